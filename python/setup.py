"""Builds the package with the library, the MPI module and the program inside; pyproject.toml has
the rest.

They come from the CMake project that this folder is part of, which is built in ../build first. If
PACELINE_BUILD names a build folder, what is in it is taken as it is."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def built() -> str:
    """The folder with the built project."""
    given = os.environ.get("PACELINE_BUILD")
    if given:
        return given
    if not os.path.exists(os.path.join(SOURCE, "CMakeLists.txt")):
        sys.exit("paceline: the C library is not beside this folder; install from a checkout")
    if shutil.which("cmake") is None:
        sys.exit("paceline: cmake is not installed; 'make setup' in the checkout installs it")
    build = os.path.join(SOURCE, "build")
    options = ["-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(["cmake", "-S", SOURCE, "-B", build, *options], check=True)
    jobs = str(os.cpu_count() or 1)
    subprocess.run(["cmake", "--build", build, "--target", "product", "-j", jobs], check=True)
    return build


class Build(build_py):
    """The modules, and beside them what CMake installs, whose files find each other."""

    def run(self) -> None:
        super().run()
        package = os.path.join(self.build_lib, "paceline")
        with tempfile.TemporaryDirectory() as prefix:
            command = ["cmake", "--install", built(), "--prefix", prefix]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for name in ("libpaceline.so", "libpaceline-mpi.so", "paceline"):
                for path in glob.glob(os.path.join(prefix, "**", name), recursive=True):
                    if os.path.isfile(path):  # there is no module without MPI
                        shutil.copy(path, os.path.join(package, name))


class Wheel(bdist_wheel):
    """For one kind of machine and every Python: nothing is compiled against an interpreter."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> "tuple[str, str, str]":
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel})
