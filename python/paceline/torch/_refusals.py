"""What an optimizer refuses because of its method, and what it says about it."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ._translate import Columns, refuse_plain

__all__ = ["refuse_arguments", "refuse_to_move", "why_unchanged"]


def refuse_arguments(
    optimizer: Any, at: Columns, zero_copy: bool, reference: Any, grouped: bool
) -> None:
    """Raises if an argument of Optimizer does not go with the method."""
    if not at.sends_gradients and not at.takes_steps:
        refuse_plain(optimizer, at)
    if zero_copy and at.takes_steps:
        raise UsageError(
            f"zero_copy needs a method that sends gradients, but {at.method} takes local steps, "
            "which change the parameters in place; leave zero_copy out"
        )
    if at.reference_every and (reference is None or grouped):
        raise UsageError(
            f"{at.method} compares gradients with one that rank 0 computes; give reference=, a "
            "function of the model that returns its loss on samples you trust, and no group="
        )


def why_unchanged(method: str, sends_gradients: bool) -> str:
    """What would become of weights that the script has changed, and what to do."""
    if sends_gradients:
        return (
            "the server has the weights and would undo it; load weights before "
            "paceline.torch.Optimizer is made, or call opt.set_weights()"
        )
    return (
        f"{method} would merge it with the server's weights as if it were a step; load weights "
        "before paceline.torch.Optimizer is made, or use plain local-sgd, which averages what workers load"
    )


def refuse_to_move(method: str, lost: bool, decays: bool) -> None:
    """For methods in which a result cannot lack tensors: those without a gradient count as 0. A
    parameter has `lost` its gradient and has momentum, or the server `decays` one without."""
    if lost or decays:
        why = "weight_decay of the server" if decays else "momentum"
        raise UsageError(
            "some parameters have no gradient in this step, and PyTorch would leave them as they "
            f"are, but {why} changes them under {method}; set it to 0, use them in every step or in "
            "none, or use another method"
        )
