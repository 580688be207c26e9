"""Arguments of Optimizer and Run that may be of any type."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import UsageError

__all__ = ["number", "shown", "workers"]


def workers(given: Any) -> int:
    """The option `workers` as a number."""
    try:
        return int(given or 1)
    except (TypeError, ValueError):
        raise UsageError(f"workers is {given!r}, but must be a whole number from 1 on") from None


def shown(given: Any) -> str:
    """What was given in place of a dict with other keys."""
    if not isinstance(given, dict):
        return f"a {type(given).__name__}"
    return f"one with {', '.join(map(repr, list(given)[:5])) or 'nothing'}"


def number(loss: Any) -> float:
    """A loss as one number; NaN if it is unknown or infinite."""
    try:
        value = math.nan if loss is None else float(loss)
    except (TypeError, ValueError, RuntimeError):
        shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else ""
        what = f"a tensor of shape {shape}" if shape else f"of type {type(loss).__name__}"
        raise UsageError(
            f"the loss of step() or report() must be one number, the mean of the mini-batch, but is {what}"
        ) from None
    return math.nan if math.isinf(value) else value
