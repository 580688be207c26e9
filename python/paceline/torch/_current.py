"""The optimizer that `rank`, `world_size` and `batches` of the module refer to: the only one."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Iterator, Optional

from .. import _roles
from ..errors import UsageError

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["add", "batches", "rank", "world_size"]

_made: "weakref.WeakSet[Optimizer]" = weakref.WeakSet()
_last: Optional["Optimizer"] = None


def add(made: "Optimizer") -> None:
    global _last
    _last = made
    _made.add(made)


def batches(loader: Any, epochs: Optional[int] = None) -> Iterator[Any]:
    """`batches` of the optimizer of this process, if it has exactly one; see `Optimizer.batches` and
    the example of `Optimizer`."""
    if _last is None:
        raise UsageError("batches() was called before a paceline.torch.Optimizer was made")
    running = [opt for opt in _made if not opt.ended and opt.rank == _last.rank]
    if len(running) > 1:
        raise UsageError(
            f"this process has {len(running)} optimizers whose runs go on, and batches() cannot tell "
            "which is meant; use opt.batches(loader)"
        )
    return _last.batches(loader, epochs)


def _role() -> _roles.Role:
    role = _last.role if _last is not None else _roles.find()
    if role.rank < 0:
        raise UsageError(
            "the server gives this process its rank when its Optimizer is made; make that first, and "
            "use opt.rank and opt.world_size"
        )
    return role


def rank() -> int:
    """The rank of this process: 0 to `world_size()` - 1. Rank 0 starts the server.

    >>> paceline.torch.rank()
    0"""
    return _role().rank


def world_size() -> int:
    """How many workers were started together.

    >>> paceline.torch.world_size()
    1"""
    return _role().world_size
