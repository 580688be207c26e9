"""The optimizer that this process made last, which `rank`, `world_size` and `batches` refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .. import _roles

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["optimizer", "rank", "set_optimizer", "world_size"]

_current: Optional["Optimizer"] = None


def set_optimizer(made: "Optimizer") -> None:
    global _current
    _current = made


def optimizer() -> Optional["Optimizer"]:
    """The optimizer that was made last, or None."""
    return _current


def _role() -> _roles.Role:
    return _current.role if _current else _roles.find()


def rank() -> int:
    """The rank of this process: 0 to `world_size()` - 1. Rank 0 starts the server."""
    return _role().rank


def world_size() -> int:
    """How many workers were started together."""
    return _role().world_size
