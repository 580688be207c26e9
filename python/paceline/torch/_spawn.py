"""Ranks that a program starts itself, as in a notebook."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable

from torch.multiprocessing import (
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from .._roles import base_folder
from ..errors import RunError, UsageError

__all__ = ["spawn"]


def _be_rank(rank: int, others: str, function: Callable[..., Any], args: Any) -> None:
    os.environ["PACELINE"] = f"rank={rank},{others}"
    function(*args)


def spawn(
    function: Callable[..., Any], workers: int, *args: Any, start_method: str = "spawn"
) -> None:
    """Calls `function(*args)` in `workers` new processes, which are the ranks of one job, and waits
    until all have ended. It is `paceline launch` for a program without a command line.

    `start_method` is that of multiprocessing. With "spawn", the function must be in a module; one of
    a notebook needs "fork", before this process has computed gradients or used a GPU. If a rank fails,
    the others are ended, and RunError has its traceback.

    >>> paceline.torch.spawn(torch.manual_seed, 2, 17)"""
    if not isinstance(workers, int) or workers < 1:
        raise UsageError(f"workers is {workers!r}, but must be a whole number from 1 on")
    with tempfile.TemporaryDirectory(prefix="spawn-", dir=base_folder()) as folder:
        others = f"workers={workers},socket={os.path.join(folder, 'run.socket')}"
        try:
            start_processes(
                _be_rank, (others, function, args), nprocs=workers, start_method=start_method
            )
        except (ProcessExitedException, ProcessRaisedException) as e:
            raise RunError(f"rank {e.error_index} failed: {e.msg.strip()}") from e
