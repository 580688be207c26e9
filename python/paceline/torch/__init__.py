"""Trains a PyTorch model with any method of Paceline: wrap its optimizer, and start N processes.

    import paceline.torch as pl

    opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model,
                       method="gap-aware", updates=400)
    for x, y in opt.batches(loader):
        opt.zero_grad(); loss = loss_fn(model(x), y); loss.backward(); opt.step(loss)
    opt.close()

Start the script with `paceline launch -n 8 -- python3 train.py`, torchrun, mpirun or srun. Rank 0
starts the server, a process of its own. docs/from-ddp.md explains the interface."""

from __future__ import annotations

from .._roles import Role
from ..errors import RunEnded
from ._current import batches, rank, world_size
from ._evaluator import Evaluation, evaluate
from ._optimizer import Abandoned, Optimizer
from ._run import Run
from ._spawn import spawn
from ._translate import options

__all__ = [
    "Abandoned",
    "Evaluation",
    "Optimizer",
    "Role",
    "Run",
    "RunEnded",
    "batches",
    "evaluate",
    "options",
    "rank",
    "spawn",
    "world_size",
]
