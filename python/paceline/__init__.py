"""Paceline: distributed SGD that keeps its pace when workers straggle, stall, leave or lie.

    import paceline
    run = paceline.simulate(method="gap-aware", workers=32, model="mlp", updates=400)
    print(run["test_accuracy"], run["time"])

Every option of the command line is a keyword argument. `simulate` runs on a virtual clock, also
with a model of PyTorch; `train` runs with real workers. `Policy` is the base class of policies in
Python. docs/python.md explains the interface."""

from __future__ import annotations

from typing import Any, List, Optional

from . import options
from ._catalog import Item, ItemOption, catalog
from ._events import Decision, Event
from ._lib import library as _library
from ._run import PlanRow, Point, Run, WorkerReport
from ._setup import Setup
from ._version import __version__
from .errors import (
    Cancelled,
    DataError,
    Error,
    FileError,
    Interrupted,
    MissingError,
    OutOfMemory,
    PolicyError,
    RunEnded,
    RunError,
    TimedOut,
    UsageError,
)
from .policy import (
    Arrival,
    Plan,
    Policy,
    View,
    Worker,
)

__all__ = [
    "Arrival",
    "Cancelled",
    "DataError",
    "Decision",
    "Error",
    "Event",
    "FileError",
    "Interrupted",
    "Item",
    "ItemOption",
    "MissingError",
    "OutOfMemory",
    "Plan",
    "PlanRow",
    "Point",
    "Policy",
    "PolicyError",
    "Run",
    "RunEnded",
    "RunError",
    "Setup",
    "TimedOut",
    "UsageError",
    "View",
    "Worker",
    "WorkerReport",
    "__version__",
    "catalog",
    "options",
    "plan",
    "rank",
    "simulate",
    "train",
]


def simulate(*, model: Any = None, **options: Any) -> Run:
    """Runs on a virtual clock.

    With a `model` of the library (a string, "mlp" by default) the options are those of `paceline
    simulate`. With a `torch.nn.Module` the gradients are computed by PyTorch; see
    `paceline.simulation.simulate` for its arguments (loss, data, …).

    >>> paceline.simulate(method="async", model="quadratic", workers=4, updates=50)
    <paceline.Run async: 50 updates>"""
    if model is None or isinstance(model, str):
        return Setup(model=model, **options).simulate()
    from .simulation import simulate as simulate_module

    return simulate_module(model=model, **options)


def train(**options: Any) -> Optional[Run]:
    """Runs with real workers, like `paceline train`. None on every MPI rank but the first.

    >>> paceline.train(method="sync", model="quadratic", workers=2, updates=40)
    <paceline.Run sync: 40 updates>"""
    return Setup(**options).train()


def plan(**options: Any) -> List[PlanRow]:
    """What theory predicts for each variant and K, like `paceline plan`.

    >>> [(row.policy, row.k) for row in paceline.plan(workers=4) if row.best_of_all]
    [('kbatchasync', 3)]"""
    return Setup(**options).plan()


def rank() -> int:
    """The rank of this process under mpirun or srun; -1 if neither of them started it.

    >>> paceline.rank()
    -1"""
    return int(_library().pl_rank())
