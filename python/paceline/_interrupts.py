"""Ctrl-C in a program that waits for the library."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["Interrupts"]


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
