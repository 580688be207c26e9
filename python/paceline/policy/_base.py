"""What a policy is: the class that policies in Python are derived from."""

from __future__ import annotations

from typing import Any, Dict, Optional, Set, Tuple

from ..errors import UsageError
from ..options import AnyOption
from ._plan import Plan
from ._view import Arrival, View

__all__ = ["Policy"]


class Policy:
    """Subclass it, give it a `name`, and define `arrive`, and where needed `join`, `leave` and
    `timer`. Every run has an object of its own, so attributes are state that belongs to one run;
    set them in `begin`. Attributes are not part of a checkpoint: after `--resume` they begin again.

    Decide by the event, the view and the object's attributes alone: no clock, no random numbers
    but those of the view. Otherwise a replay differs from its recording.

    >>> class Pairs(paceline.Policy):
    ...     name = "pairs"
    ...     options = {"n": paceline.options.Int(2, 1, 100, "results per update")}
    ...     def groups(self, n_workers, k):
    ...         return (1, self.n)
    ...     def arrive(self, view, arrival, plan):
    ...         plan.take()
    ...         if view.n_taken + 1 >= self.n or view.n_busy == 0:
    ...             plan.commit()
    ...         plan.start(arrival.worker)
    >>> paceline.simulate(policy=Pairs(n=3), workers=4, updates=50, model="quadratic").text("policy")
    'pairs:n=3'"""

    name: str = ""
    brief: str = "a policy in Python"
    paper: str = ""
    options: Dict[str, AnyOption] = {}
    uses: Set[str] = set()  # the knobs that it reads: "k", "bound"; their options have these names
    by_batch: bool = False  # K counts mini-batches and may exceed the number of workers
    peers: bool = False  # there is no common model: every worker has its own

    def __init__(self, **options: Any) -> None:
        for key in options:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(f"policy '{self.name}' has no option '{key}'; it has: {known}")
        self.given = options

    def begin(self) -> None:
        """Called once before the first event of a run, when the options are set."""

    def check(self, n_workers: int) -> Optional[str]:
        """None if the options are valid, otherwise a phrase for the error message."""
        return None

    def groups(self, n_workers: int, k: int) -> Tuple[int, int]:
        """The smallest and the largest group that it commits while all workers are there."""
        return (k, k)

    def cancels(self) -> str:
        """Which busy workers a commit may cancel: "none", "stale" or "all"."""
        return "none"

    def arrive(self, view: View, arrival: Arrival, plan: Plan) -> None:
        """A task came back: take it, drop it or defer it."""
        raise NotImplementedError(f"policy '{self.name}' needs arrive()")

    def join(self, view: View, worker: int, plan: Plan) -> None:
        """A worker joined. By default it is started on the newest version."""
        plan.start(worker)

    def leave(self, view: View, worker: int, plan: Plan) -> None:
        """A worker left; its task is lost. Define it if a worker ever waits for another."""

    def timer(self, view: View, plan: Plan) -> None:
        """The timer has expired."""
