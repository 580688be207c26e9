"""What a policy decides: the actions that follow an event, in order."""

from __future__ import annotations

from typing import Any, Optional

from ..errors import UsageError
from ._view import NO_TIMER, Borrowed, View

__all__ = ["Plan"]


class Plan(Borrowed):
    """What a policy decides. Actions are carried out in the order in which they are written. See the
    example of `Policy`."""

    def __init__(self, pointer: Any, view: View, lib: Any) -> None:
        super().__init__(pointer)
        self._view, self._lib = view, lib

    def take(self, factor: float = 1) -> None:
        """The arrival joins the open group, multiplied by `factor`."""
        self._lib.pl_take(self.use(), factor)

    def drop(self) -> None:
        """The arrival is not used, and counted as dropped."""
        self._lib.pl_drop(self.use())

    def defer(self) -> None:
        """The arrival is taken later, by `take_deferred`; its worker is idle until then."""
        self._lib.pl_defer(self.use())

    def take_deferred(self, worker: int, factor: float = 1) -> None:
        """The deferred arrival of a worker joins the open group, multiplied by `factor`."""
        self._lib.pl_take_deferred(self.use(), worker, factor)

    def commit(self, factor: float = 1) -> None:
        """The open group becomes an update; `factor` multiplies the learning rate."""
        self._lib.pl_commit(self.use(), factor)

    def start(self, worker: int, keep: bool = False) -> None:
        """An idle worker gets its next task, on the newest version, or on the one it has."""
        self._lib.pl_start(self.use(), worker, int(keep))

    def start_idle(self) -> None:
        """Starts every idle worker on the newest version."""
        self._lib.pl_start_idle(self.use(), self._view.use())

    def cancel(self, worker: int) -> None:
        """The task of a busy worker is void; the worker is idle."""
        self._lib.pl_cancel(self.use(), worker)

    def restart_busy(self) -> None:
        """Cancels every busy worker and starts it again on the newest version."""
        self._lib.pl_restart_busy(self.use(), self._view.use())

    def stop(self) -> None:
        """The run ends."""
        self._lib.pl_stop(self.use())

    def timer(self, when_ns: Optional[int]) -> None:
        """Sets the timer to a time that is not before now; None clears it."""
        when = NO_TIMER if when_ns is None else when_ns
        if not 0 <= when <= NO_TIMER:
            raise UsageError(f"the timer needs a time in nanoseconds, not {when_ns}")
        self._lib.pl_timer(self.use(), when)

    def blend(self, worker: int, peer: int, a: float, b: float) -> None:
        """x = a x + b x_peer"""
        self._lib.pl_blend(self.use(), worker, peer, a, b)

    def pair(self, worker: int, peer: int, a: float) -> None:
        """Both models move by `a` of the way towards each other."""
        self._lib.pl_pair(self.use(), worker, peer, a)

    def push(self, worker: int, peer: int, share: float) -> None:
        """Push-sum: a share of the model and its weight goes to the inbox of the peer."""
        self._lib.pl_push(self.use(), worker, peer, share)

    def absorb(self, worker: int) -> None:
        """What is in the inbox joins the worker's model."""
        self._lib.pl_absorb(self.use(), worker)
