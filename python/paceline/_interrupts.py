"""Ctrl-C in a program that waits for the library."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any

__all__ = ["Interrupts", "tell_briefly"]


class Interrupts:
    """Ctrl-C while the library runs: the run ends in good order, then KeyboardInterrupt is raised.

    An exception that a signal handler raises on its way into a callback of ctypes would be lost,
    so the handler only takes a note here."""

    def __init__(self) -> None:
        self.caught = False
        self._before: Any = None

    def _handle(self, number: int, frame: Any) -> None:
        self.caught = True

    def __enter__(self) -> "Interrupts":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _brief(kind: Any, value: Any, trace: Any) -> None:
    """An excepthook: one line about Ctrl-C, with the line of the script that was running."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, value, trace)
        return
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    frames = traceback.extract_tb(trace)
    own = [f for f in frames if f.filename == script] or list(frames)
    where = f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
    print(f"paceline: KeyboardInterrupt{where}", file=sys.stderr, flush=True)


def tell_briefly() -> None:
    """Ctrl-C reaches all copies that `paceline launch` has started, and as many tracebacks would hide
    what it ends with. The hook of a program, or of a debugger, stays."""
    launched = os.environ.get("PACELINE", "").startswith("rank=")
    if launched and sys.excepthook is sys.__excepthook__:
        sys.excepthook = _brief
