"""What the modules and parameters of a model call before they compute."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Sequence

import torch

__all__ = ["hook"]


class _Hook:
    """Calls a method of an object, as long as there is that object. Copies of a model have none."""

    def __init__(self, method: Optional[Callable[[], None]]) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None

    def __call__(self, *_: Any) -> None:
        method = self._method() if self._method is not None else None
        if method is not None:
            method()

    def __reduce__(self) -> Any:
        return _Hook, (None,)


def hook(
    model: torch.nn.Module, params: Sequence[torch.Tensor], method: Callable[[], None]
) -> List[Any]:
    """`method` is called before every forward pass of a module, and when there is a gradient of a
    parameter. Returns what has the method remove() for each of the hooks."""
    call = _Hook(method)
    hooks: List[Any] = [m.register_forward_pre_hook(call) for m in model.modules()]
    return hooks + [p.register_hook(call) for p in params if p.requires_grad]
