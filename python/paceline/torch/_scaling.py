"""Whether gradients are those of a scaled loss that nothing has unscaled.

PyTorch has no hook for GradScaler.scale, so the method is wrapped, in the classes that there are when
an optimizer is made. Each optimizer then hears of every loss that is scaled, and notes the scaler if
the graph of the loss has parameters of its own; scalers of other models do not matter. One that is
used as it should be is updated after every step, which PyTorch allows only if it has unscaled
gradients. One that was never updated has not, unless its first step is under way."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Iterator, List, Set

import torch

from ..errors import UsageError

__all__ = ["Scaling"]

_watching: "weakref.WeakSet[Scaling]" = weakref.WeakSet()
_lock = threading.Lock()


def _kinds() -> List[Any]:
    """All classes of scalers."""
    found = [getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler]
    kinds = [kind for kind in found if kind is not None]
    for kind in kinds:
        kinds += [k for k in kind.__subclasses__() if k not in kinds]
    return kinds


def _wrap(kind: Any) -> None:
    """Its method `scale` tells what it has scaled."""
    scale = vars(kind).get("scale")
    if scale is None or hasattr(scale, "told_to_paceline"):
        return

    @functools.wraps(scale)
    def telling(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if self.is_enabled():
            with _lock:
                optimizers = list(_watching)
            for one in optimizers:
                one.note(self, scaled)
        return scaled

    setattr(telling, "told_to_paceline", True)
    kind.scale = telling


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, (list, tuple)):
        for part in outputs:
            yield from _tensors(part)


def _reaches(outputs: Any, ids: Set[int]) -> bool:
    """Whether backward of these tensors computes the gradient of one of the parameters."""
    ahead: List[Any] = [t.grad_fn for t in _tensors(outputs)]
    seen: Set[Any] = {None}
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        if id(getattr(node, "variable", None)) in ids:
            return True
        ahead += [following for following, _ in node.next_functions]
    return False


def _unscaled(scaler: Any) -> Set[int]:
    """The optimizers whose gradients it has unscaled since its last update."""
    return set(getattr(scaler, "_per_optimizer_states", {}))


def _unused(scaler: Any) -> bool:
    """Whether it was never updated."""
    now = scaler.state_dict()
    began = getattr(scaler, "_init_scale", now["scale"])
    return bool(now["scale"] == began and not now["_growth_tracker"])


class Scaling:
    """Looks in steps 1, 2, 4, 8, … of one optimizer, which wraps another."""

    def __init__(self, optimizer: torch.optim.Optimizer, wrapped: torch.optim.Optimizer) -> None:
        self._ids = {id(optimizer), id(wrapped)}
        self._params = {id(p) for g in wrapped.param_groups for p in g["params"]}
        self._steps = 0
        self.forget()
        with _lock:
            for kind in _kinds():
                _wrap(kind)
            _watching.add(self)

    def _is_due(self) -> bool:
        """Whether this looks in the step that comes next."""
        return self._steps & (self._steps + 1) == 0

    def forget(self) -> None:
        """The gradients are cleared."""
        # scalers, and what each had unscaled when it scaled the loss
        self._noted: "weakref.WeakKeyDictionary[Any, Set[int]]" = weakref.WeakKeyDictionary()

    def note(self, scaler: Any, outputs: Any) -> None:
        """The scaler has scaled these."""
        if self._is_due() and _reaches(outputs, self._params):
            self._noted[scaler] = _unscaled(scaler)

    def check(self) -> None:
        """Raises if the gradients of this step are scaled."""
        noted = list(self._noted.items())
        self.forget()
        self._steps += 1
        for scaler, before in noted:
            now = _unscaled(scaler)
            # what was unscaled since is either this optimizer, or the one whose loss it was
            if not now & self._ids and not now - before and _unused(scaler):
                raise UsageError(
                    "a GradScaler has scaled the loss, and opt.step() would use the scaled gradients; "
                    "call scaler.step(opt) and scaler.update() instead, or use bfloat16, which needs no "
                    "scaler"
                )
