"""What comes out of a run or a plan."""

from __future__ import annotations

import ctypes as c
import json
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from . import _lib, _structs
from ._record import record
from ._text import from_c
from .errors import UsageError

__all__ = ["PlanRow", "Point", "Run", "WorkerReport"]


@dataclass(frozen=True)
class Point:
    """The state of a run at one moment. Unknown numbers are NaN.

    >>> run = paceline.simulate(model="quadratic", updates=50)
    >>> run.points[-1].updates
    50"""

    time: float
    updates: int
    epochs: float
    loss: float
    test_loss: float
    test_accuracy: float
    k: int
    staleness: float
    unused: int
    workers: int
    expected: int
    staleness_max: int
    samples: float
    consensus: float
    more: Dict[str, float] = field(default_factory=dict)  # of an evaluator; for on_point only

    @classmethod
    def of(cls, struct: Any) -> "Point":
        """From a struct pl_point."""
        more = {from_c(m.name): m.value for m in struct.more[: struct.n_more]}
        point: Point = record(cls, struct, more=more)
        return point


_PACES = ("unknown", "usual", "slow", "stuck")


@dataclass(frozen=True)
class WorkerReport:
    """Where one worker's time went, in seconds; for real runs.

    >>> run = paceline.train(method="sync", model="quadratic", workers=2, updates=40)
    >>> [worker.tasks for worker in run.workers]
    [40, 40]"""

    compute: float
    communication: float
    idle: float
    wasted: float
    tasks: int
    unused: int
    task: float
    usual: float
    held_up: float
    last: int
    unfinished: float
    pace: str  # "unknown", "usual", "slow" or "stuck"


@dataclass(frozen=True)
class PlanRow:
    """The planner's prediction for one variant at one K.

    >>> row = paceline.plan(workers=4)[0]
    >>> row.policy, row.k
    ('ksync', 1)"""

    policy: str
    k: int
    time_per_update: float
    staleness: float
    error_floor: float
    time_to_target: float
    exact: bool
    best: bool
    best_of_all: bool
    regret: float  # above 1.2, plan cannot know the best K of this variant
    regret_of_all: float  # likewise, of all variants


class Run:
    """The results of a finished run.

    `run["staleness.mean"]` is one number; `run.json` has all of them; `run.points` are the
    evaluations, in order of time, and `run.weights` the final model.

    >>> run = paceline.simulate(method="sync", model="quadratic", workers=4, updates=50)
    >>> run["updates"], run["staleness.mean"], run.text("policy"), run.diverged
    (50.0, 0.0, 'ksync:k=4', False)
    >>> "updates" in run, "test_accuracy" in run
    (True, False)"""

    def __init__(self, handle: c.c_void_p) -> None:
        self._lib = _lib.library()
        self._handle: Optional[c.c_void_p] = handle

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._lib.pl_run_free(handle)

    def __getitem__(self, key: str) -> float:
        """One number: "time", "updates", "tasks.applied", "staleness.mean", … NaN if unknown."""
        return float(self._lib.pl_run_number(self._handle, key.encode()))

    def __contains__(self, key: str) -> bool:
        """Whether this number is known."""
        return not math.isnan(self[key])

    def text(self, key: str) -> Optional[str]:
        """ "method", a column ("policy", "tuner", …), "replay" or "trouble"; None if unknown."""
        value = self._lib.pl_run_text(self._handle, key.encode())
        return None if value is None else from_c(value)

    @property
    def json(self) -> Dict[str, Any]:
        """The object that `paceline simulate --json` prints."""
        return dict(json.loads(from_c(self._lib.pl_run_json(self._handle))))

    @property
    def points(self) -> List[Point]:
        """The evaluations, in order of time."""
        at = c.POINTER(_structs.Point)()
        n = self._lib.pl_run_points(self._handle, c.byref(at))
        return [Point.of(at[i]) for i in range(n)]

    @property
    def workers(self) -> List[WorkerReport]:
        """One report per worker of a real run; empty if simulated."""
        at = c.POINTER(_structs.WorkerReport)()
        n = self._lib.pl_run_workers(self._handle, c.byref(at))
        return [record(WorkerReport, at[i], pace=_PACES[at[i].pace]) for i in range(n)]

    @property
    def weights(self) -> Optional[memoryview]:
        """The final weights, not copied; None if only timing was simulated.

        `numpy.asarray(run.weights)` and `torch.frombuffer(run.weights, dtype=torch.float32)` share
        its memory."""
        n = c.c_size_t()
        at = self._lib.pl_run_weights(self._handle, c.byref(n))
        if not at:
            return None
        fields = {"_fields_": [("at", c.c_float * n.value)]}
        memory: c.Structure = c.cast(
            at, c.POINTER(type("Weights", (c.Structure,), fields))
        ).contents
        memory.run = self  # the memory lives as long as the run
        return memoryview(memory).cast("B").cast("f")

    def numpy(self) -> Any:
        """The final weights as a NumPy array, not copied."""
        import numpy

        if self.weights is None:
            raise UsageError("the run has no weights: only timing was simulated")
        return numpy.asarray(self.weights)

    @property
    def diverged(self) -> bool:
        """Whether the run ended because no more finite gradients arrived."""
        return bool(self._lib.pl_run_diverged(self._handle))

    def __repr__(self) -> str:
        return f"<paceline.Run {self.text('method')}: {self['updates']:.0f} updates>"
