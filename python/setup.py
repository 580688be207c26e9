"""Installs the package; pyproject.toml has the rest.

The package is pure Python over the C library. If the checkout beside it has been built, a copy of
build/libpaceline.so is installed with it, so that `pip install ./python` is all there is to do."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class Build(build_py):
    def run(self):
        super().run()
        library = os.environ.get("PACELINE_LIBRARY") or os.path.join(
            HERE, "..", "build", "libpaceline.so"
        )
        if os.path.exists(library):
            shutil.copy(library, os.path.join(self.build_lib, "paceline", "libpaceline.so"))


setup(cmdclass={"build_py": Build})
