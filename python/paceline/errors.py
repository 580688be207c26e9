"""The exceptions of the package. Each has the status code of the library and its message."""

from __future__ import annotations

from typing import Dict, Type

__all__ = [
    "Error",
    "UsageError",
    "DataError",
    "FileError",
    "OutOfMemory",
    "PolicyError",
    "Cancelled",
    "RunEnded",
    "MissingError",
    "RunError",
    "TimedOut",
    "Interrupted",
]


class Error(Exception):
    """The base class of all exceptions that this package raises.

    >>> try:
    ...     paceline.simulate(method="sink")
    ... except paceline.Error as e:
    ...     print(type(e).__name__, isinstance(e, ValueError))
    UsageError True"""

    status: int = 0


class UsageError(Error, ValueError):
    """The request is invalid. The message says what to use instead."""

    status = -1


class DataError(Error, ValueError):
    """A file is damaged or has the wrong format."""

    status = -2


class FileError(Error, OSError):
    """A file cannot be read or written."""

    status = -3


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""

    status = -4


class PolicyError(Error, RuntimeError):
    """A policy broke its contract or raised an exception, which is then the cause of this one."""

    status = -5


class Cancelled(Error):
    """The run was cancelled."""

    status = -6


class MissingError(Error, ImportError):
    """A required program or library is not installed."""

    status = -7


class RunError(Error, RuntimeError):
    """The run cannot continue."""

    status = -8


class TimedOut(Error, TimeoutError):
    """A time limit has passed."""

    status = -9


class Interrupted(Error, InterruptedError):
    """A signal interrupted the call."""

    status = -10


_BY_STATUS: Dict[int, Type[Error]] = {c.status: c for c in Error.__subclasses__()}


class RunEnded(Cancelled):
    """The run has ended, so there is no task for this result."""


def error(status: int, message: str) -> Error:
    """The exception for a status of the library."""
    return _BY_STATUS.get(status, Error)(message)
