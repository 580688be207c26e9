"""Whether gradients are those of a scaled loss that nothing has unscaled.

PyTorch has no hook for GradScaler.scale, so this looks for scalers. One that is used as it should be
is updated after every step, which PyTorch allows only if it has unscaled gradients. One that has
scaled a loss and was never updated has not, unless its first step is under way."""

from __future__ import annotations

import gc
from typing import Any, List, Tuple

import torch

from ..errors import UsageError

__all__ = ["Scaling"]


def _kinds() -> Tuple[Any, ...]:
    found = [getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler]
    return tuple(kind for kind in found if kind is not None)


def _unused(scaler: Any) -> bool:
    """Whether it has scaled a loss, and was never updated."""
    if not scaler.is_enabled() or getattr(scaler, "_scale", None) is None:
        return False
    now = scaler.state_dict()
    began = getattr(scaler, "_init_scale", now["scale"])
    return bool(now["scale"] == began and not now["_growth_tracker"])


class Scaling:
    """Looks in steps 1, 2, 4, 8, … of one optimizer, which is one of `optimizers`."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._ids = [id(opt) for opt in optimizers]
        self._steps = 0

    def _scales(self, scaler: Any) -> bool:
        """Whether the scaler has not unscaled gradients of this optimizer, and not of others."""
        unscaled = getattr(scaler, "_per_optimizer_states", {})
        return not any(i in unscaled for i in self._ids) and _unused(scaler)

    def check(self) -> None:
        """Raises if the gradients of this step are scaled."""
        self._steps += 1
        if self._steps & (self._steps - 1):
            return
        kinds = _kinds()
        found: List[Any] = [x for x in gc.get_objects() if issubclass(type(x), kinds)]
        if any(self._scales(scaler) for scaler in found):
            raise UsageError(
                "a GradScaler has scaled the loss, and opt.step() would use the scaled gradients; call "
                "scaler.step(opt) and scaler.update() instead, or use bfloat16, which needs no scaler"
            )
