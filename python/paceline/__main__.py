"""`python -m paceline` is the program `paceline`, and so is the command that pip installs."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._lib import library_path

__all__ = ["main"]


def main() -> NoReturn:
    """Becomes the program that came with the library: beside it, or in bin/ of its prefix."""
    folder = os.path.dirname(os.path.abspath(library_path()))
    up = os.path.dirname(folder)
    for place in (folder, os.path.join(up, "bin"), os.path.join(os.path.dirname(up), "bin")):
        program = os.path.join(place, "paceline")
        if os.path.isfile(program) and os.access(program, os.X_OK):
            os.execv(program, ["paceline", *sys.argv[1:]])
    sys.exit(
        "paceline: the program is not installed beside the library; 'make install' installs it"
    )


if __name__ == "__main__":
    main()
