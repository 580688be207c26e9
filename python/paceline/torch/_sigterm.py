"""SIGTERM while a process has a part in a run: it exits in good order, by SystemExit, and so leaves
the run, or ends it if it is rank 0."""

from __future__ import annotations

import signal
import threading
from typing import Any, Set

__all__ = ["received", "unwatch", "watch"]

_parts: Set[Any] = set()  # sessions that have a seat, or a server
_received = False


def received() -> bool:
    """Whether SIGTERM came, so that the process is exiting."""
    return _received


def watch(part: Any) -> None:
    """From now on, as long as any part is watched, unless the program catches SIGTERM itself."""
    _parts.add(part)
    _catch()


def unwatch(part: Any) -> None:
    _parts.discard(part)
    _catch()


def _terminate(number: int, _: Any) -> None:
    global _received
    _received = True
    raise SystemExit(128 + number)


def _catch() -> None:
    if threading.current_thread() is threading.main_thread():
        now = signal.getsignal(signal.SIGTERM)
        if _parts and now is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        elif not _parts and now is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
