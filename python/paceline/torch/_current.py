"""The optimizer that `rank`, `world_size` and `batches` of the module refer to: the only one.

Nothing here keeps an optimizer alive that its program has dropped."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Set

import torch

from .. import _roles
from ..errors import UsageError

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["add", "batches", "rank", "refuse_shared", "world_size"]

_made: "weakref.WeakSet[Optimizer]" = weakref.WeakSet()
_adding = threading.Lock()
_last: Optional["weakref.ref[Optimizer]"] = None
_last_role: Optional[_roles.Role] = None


def add(made: "Optimizer") -> None:
    global _last, _last_role
    with _adding:
        _last, _last_role = weakref.ref(made), made.role
        _made.add(made)


def _running() -> List["Optimizer"]:
    with _adding:
        return [opt for opt in _made if not opt.ended]


def refuse_shared(model: torch.nn.Module, trained: Set[int]) -> None:
    """Raises if another run goes on with parameters of this model, which both would set."""
    own = {id(p) for p in model.parameters()}
    for other in _running():
        theirs = {id(p) for p in other.model.parameters()}
        changed = trained.union(id(p) for g in other.param_groups for p in g["params"])
        if own & theirs & changed:
            raise UsageError(
                "parameters of this model are in the model of another paceline.torch.Optimizer, and both "
                "would set them; pass the submodule that contains only its parameters, or close() the "
                "other first"
            )


def batches(loader: Any, epochs: Optional[int] = None) -> Iterator[Any]:
    """`batches` of the optimizer of this process whose run goes on, if there is exactly one, or of the
    last one if all runs have ended; see `Optimizer.batches` and the example of `Optimizer`."""
    running = _running()
    if len(running) > 1:
        raise UsageError(
            f"this process has {len(running)} optimizers whose runs go on, and batches() cannot tell "
            "which is meant; use opt.batches(loader)"
        )
    meant = running[0] if running else _last() if _last is not None else None
    if meant is None:
        raise UsageError("batches() was called before a paceline.torch.Optimizer was made")
    return meant.batches(loader, epochs)


def _role() -> _roles.Role:
    """That of the optimizers whose runs go on, if they agree; otherwise of the last one."""
    running = [opt.role for opt in _running()]
    if len({(role.rank, role.world_size) for role in running}) > 1:
        raise UsageError(
            f"this process has {len(running)} optimizers with different ranks, and rank() and "
            "world_size() cannot tell which is meant; use opt.rank and opt.world_size"
        )
    role = running[0] if running else _last_role or _roles.find()
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
