"""What `paceline serve` needs to serve a script's model, which it cannot compute.

With PACELINE=init=FILE the script writes its initial weights to that file when it makes its
Optimizer, prints the command that serves them, and ends."""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, NoReturn

from .. import _client
from ..errors import UsageError

__all__ = ["begin"]


def _options(path: str, options: Dict[str, Any]) -> str:
    """The options that this script gives its server, as those of a command line."""
    options = {"checkpoint": "saved", **options}
    words = ["--model", "external", "--init", path]
    for name, value in options.items():
        if value is None or value is False or name in ("workers", "listen"):
            continue
        if not isinstance(value, (str, int, float)):
            raise UsageError(
                f"PACELINE=init=FILE: the command line has no {name} that is an object"
            )
        words += ["--" + name.replace("_", "-")]
        words += [] if value is True else [str(value)]
    return shlex.join(words)


def begin(path: str, options: Dict[str, Any], tensors: _client.Tensors, layout: str) -> NoReturn:
    """Ends the process."""
    if os.path.lexists(path):
        raise UsageError(f"'{path}' exists; remove it, or write the weights elsewhere")
    served = _options(path, options)
    tensors.save(path, layout)
    print(f"The initial weights are in {path}. This serves them:\n")
    print(f"  paceline serve {served} --workers N --min-workers 1 --listen HOST:PORT --keys DIR\n")
    print("Then, anywhere, any number of times:\n")
    print("  PACELINE_KEYS=DIR PACELINE=https://HOST:PORT python3 ...\n")
    print("Or, as one job of MPI:\n")
    print(f"  mpirun -n 1 paceline train {served} : -n N python3 ...\n")
    if "requests" not in options:
        print(
            "If the script has a scheduler, evaluate= or checkpoint(), or pl.evaluate runs beside"
        )
        print("it, the server also needs --requests TOKEN, and one worker and the evaluator")
        print("PACELINE_TOKEN=TOKEN in their environment.")
    raise SystemExit(0)
