"""What a policy sees: the event, the workers, and the state of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, List, Optional

from ..errors import UsageError

__all__ = ["Arrival", "Borrowed", "NO_TIMER", "View", "Worker"]

NO_TIMER = 2**64 - 1


@dataclass(frozen=True)
class Arrival:
    """A task that came back; see the example of `Policy`."""

    worker: int
    lag: int  # commits since its base version: the staleness
    samples: int
    loss: float  # NaN if unknown


@dataclass(frozen=True)
class Worker:
    """One worker, as it was when it was asked for, with `view.worker(number)`; see the example of
    `Policy`."""

    state: str  # "gone", "idle" or "busy"
    task: int
    base: int
    first: int
    clock: int
    since_ns: int
    n_contributed: int
    deferred: bool


class Borrowed:
    """Something that the library owns and that is valid until the callback returns."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    def expire(self) -> None:
        """The callback has returned."""
        self._pointer = None

    def use(self) -> Any:
        """The library's object; raises an error after the callback."""
        if self._pointer is None:
            raise UsageError("a view and a plan are valid only until the callback returns")
        return self._pointer


class View(Borrowed):
    """The run as a policy sees it. Workers are numbered from 0. See the example of `Policy`."""

    def __init__(self, pointer: Any, lib: Any) -> None:
        super().__init__(pointer)
        self._lib = lib

    def _at(self) -> Any:
        return self.use()[0]

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the run began; virtual if simulated."""
        return int(self._at().now_ns)

    @property
    def version(self) -> int:
        """Of the model: the number of commits so far."""
        return int(self._at().version)

    @property
    def n_workers(self) -> int:
        """All workers, including those that are gone."""
        return int(self._at().n_workers)

    @property
    def n_alive(self) -> int:
        """Workers that are there, idle or busy."""
        return int(self._at().n_alive)

    @property
    def n_idle(self) -> int:
        """Workers that wait for a task."""
        return int(self._at().n_idle)

    @property
    def n_busy(self) -> int:
        """Workers that compute."""
        v = self._at()
        return int(v.n_alive - v.n_idle)

    @property
    def n_taken(self) -> int:
        """Members of the open group, without an arrival that is about to be taken."""
        return int(self._at().n_taken)

    @property
    def n_contributors(self) -> int:
        """Workers that are there and have contributed to the open group."""
        return int(self._at().n_contributors)

    @property
    def k(self) -> int:
        """How many contributions close a group; a tuner may change it."""
        return int(self._at().knobs.k)

    @property
    def bound(self) -> int:
        """A lag of this or more is too stale; `NO_BOUND` if none is."""
        return int(self._at().knobs.bound)

    @property
    def timer_ns(self) -> Optional[int]:
        """When timer() will be called, or None."""
        at = int(self._at().timer_ns)
        return None if at == NO_TIMER else at

    def worker(self, i: int) -> Worker:
        """One worker, as it is now. Raises IndexError if there is none of this number."""
        v = self._at()
        if not 0 <= i < v.n_workers:
            raise IndexError(f"there is no worker {i}; there are {v.n_workers}, from 0")
        w = v.worker[i]
        return Worker(
            ("gone", "idle", "busy")[w.state],
            w.task,
            w.base,
            w.first,
            w.clock,
            w.since_ns,
            w.n_contributed,
            w.deferred,
        )

    def alive(self, i: int) -> bool:
        """Whether a worker is there, idle or busy."""
        return self.worker(i).state != "gone"

    def _chain(self, first: int) -> Iterator[int]:
        v = self._at()
        while first >= 0:
            yield first
            first = v.worker[first].next

    @property
    def idle(self) -> List[int]:
        """The idle workers, in order of arrival."""
        return list(self._chain(self._at().idle))

    @property
    def busy(self) -> List[int]:
        """The busy workers, in order of start: the oldest base is first."""
        return list(self._chain(self._at().busy))

    def random(self) -> float:
        """Uniform in [0, 1). The same for the same seed and events."""
        return float(self._lib.pl_rng_unit(self._at().rng))

    def random_below(self, n: int) -> int:
        """Uniform in 0, …, n - 1. The same for the same seed and events."""
        if not 0 < n < 2**32:
            raise UsageError(f"random_below needs a number from 1 to 2**32 - 1, not {n}")
        return int(self._lib.pl_rng_below(self._at().rng, n))

    def fits(self, worker: int, peer: int) -> bool:
        """Whether there is room for an exchange between two workers with models of their own."""
        self._pair(worker, peer)
        return bool(self._lib.pl_fits(self.use(), worker, peer))

    def weight(self, worker: int) -> float:
        """The push-sum weight of a worker with a model of its own: 1 at first."""
        self._pair(worker, worker)
        return float(self._lib.pl_weight(self.use(), worker))

    def draw_peer(self, worker: int, other_half: bool = False) -> Optional[int]:
        """A random other worker that is alive, or None."""
        self.worker(worker)
        peer = int(self._lib.pl_draw_peer(self.use(), worker, int(other_half)))
        return None if peer < 0 else peer

    def _pair(self, worker: int, peer: int) -> None:
        self.worker(worker), self.worker(peer)
        if not self._at().replicas:
            raise UsageError("workers have their own models only if the policy sets peers = True")
