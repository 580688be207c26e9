"""Whether a script has changed weights, which the server has and would undo."""

from __future__ import annotations

import ctypes as c
from typing import Any, List, Optional, Sequence, Tuple

import torch

__all__ = ["Watch"]

_HEAD = 16  # numbers of each parameter that are compared, because reading all would take long


def _head(p: torch.Tensor) -> Any:
    """The first numbers of a parameter: `raw` of it is what is in memory at that moment."""
    n = min(_HEAD, p.numel()) if p.is_contiguous() else 1
    return (c.c_char * (n * p.element_size())).from_address(p.data_ptr())


class Watch:
    """Parameters, and what they were when they were accepted.

    PyTorch counts most changes. It counts neither `p.data = other`, after which the parameter has
    other memory, nor `p.data.copy_()`. For that one, the first numbers of each are compared: on the
    CPU, or in the vector `flat` if that has them all. If they are `fixed`, there is no need to."""

    def __init__(
        self, params: Sequence[torch.Tensor], flat: Optional[torch.Tensor], fixed: bool
    ) -> None:
        self._params, self._flat = params, flat
        self._reads = flat is None and not fixed
        self._at: List[int] = []
        self._heads: List[Tuple[int, Any]] = []  # with the numbers of their parameters
        if flat is not None:
            self._whose, first, begin = [], [], 0
            for i, p in enumerate(params):
                n = min(_HEAD, p.numel())
                self._whose += [i] * n
                first += range(begin, begin + n)
                begin += p.numel()
            self._first = torch.tensor(first, device=flat.device)
        self.accept()

    def accept(self) -> None:
        """What the parameters are now is meant."""
        self._versions = [p._version for p in self._params]
        at = [p.data_ptr() for p in self._params]
        if at != self._at:
            self._at = at
            here = [p.device.type == "cpu" and p.numel() > 0 for p in self._params]
            found = enumerate(zip(self._params, here))
            self._heads = [(i, _head(p)) for i, (p, yes) in found if yes and self._reads]
        self._seen = [h.raw for _, h in self._heads]
        if self._flat is not None:
            self._seen_flat = self._numbers()

    def moved(self) -> List[int]:
        """The numbers of the parameters that have other memory than when they were accepted."""
        at = [p.data_ptr() for p in self._params]
        return [] if at == self._at else [i for i, a in enumerate(at) if a != self._at[i]]

    def changed(self, but: Sequence[int] = ()) -> List[int]:
        """The numbers of those that were changed where they are, `but` for those that have moved."""
        now = [p._version for p in self._params]
        if now != self._versions:
            return [i for i, v in enumerate(now) if v != self._versions[i] and i not in but]
        if self._flat is not None:
            same = self._numbers().eq(self._seen_flat)
            return [] if same.all() else [self._whose[k] for k in (~same).nonzero()[:, 0].tolist()]
        heads = zip(self._heads, self._seen)
        return [i for (i, h), seen in heads if i not in but and h.raw != seen]

    def _numbers(self) -> torch.Tensor:
        """The first numbers of all parameters in the flat vector, as bits."""
        assert self._flat is not None
        return self._flat[self._first].view(torch.int32)
