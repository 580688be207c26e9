"""Whether a script has changed weights, which the server has and would undo."""

from __future__ import annotations

import ctypes as c
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

__all__ = ["Watch"]

_HEAD = 16  # numbers of each parameter that are compared in every step
_CHUNK = 1 << 16  # numbers, at most, that are compared at a time
_TURN = 64  # steps after which every number was compared

_READABLE = ("cpu",)  # devices whose memory this process reads as it is
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# the number of a parameter, where the chunk begins in it, and where it ends
Chunk = Tuple[int, int, int]


def _head_size(p: torch.Tensor) -> int:
    return min(_HEAD, p.numel()) if p.is_contiguous() else 1


def _head(p: torch.Tensor) -> Any:
    """The first numbers of a parameter: `raw` of it is what is in memory at that moment."""
    return (c.c_char * (_head_size(p) * p.element_size())).from_address(p.data_ptr())


class _Heads:
    """The first numbers of parameters on one device and of one type, as bits, of which one tensor is
    made at a time."""

    def __init__(self, params: Sequence[torch.Tensor], numbers: Sequence[int]) -> None:
        found = [params[i].detach() for i in numbers]
        self._views = [torch.as_strided(p, (_head_size(p),), (1,)) for p in found]
        self._whose = [i for i, view in zip(numbers, self._views) for _ in range(len(view))]
        self._seen = self._now()

    def _now(self) -> torch.Tensor:
        numbers = torch.cat(self._views)
        return numbers.view(_BITS[numbers.element_size()])

    def accept(self) -> None:
        self._seen = self._now()

    def changed(self) -> List[int]:
        """The numbers of the parameters whose first numbers are others than when they were accepted."""
        other = self._now().ne(self._seen)
        return [self._whose[k] for k in other.nonzero()[:, 0].tolist()]


Loaded = Optional[Sequence[Optional[torch.Tensor]]]  # what parameters took, where that is known


def _same(p: torch.Tensor, loaded: Optional[torch.Tensor]) -> bool:
    """Whether a parameter has the numbers that it took, as far as they are known. NaN is a number here."""
    if loaded is None:
        return True
    now = p.detach()
    then = loaded.to(now)
    return bool(torch.equal(now, then) or torch.eq(now, then).logical_or(now.isnan()).all())


class Watch:
    """Parameters, and what they were when they were accepted.

    PyTorch counts most changes. It counts neither `p.data = other`, after which the parameter has
    other memory, nor `p.data.copy_()`, for which numbers are compared.

    In the vector `flat`, if that has them all, these are the first of each parameter and the sum of
    all. Otherwise (on the CPU, and on a GPU with types other than float32) reading all in every step
    would take long: it compares the first of each, all in steps 1, 2, 4, 8, … and in the others some,
    in turn. If they are `fixed`, there is no need to."""

    def __init__(
        self, params: Sequence[torch.Tensor], flat: Optional[torch.Tensor], fixed: bool
    ) -> None:
        self._params, self._flat = params, flat
        self._reads = flat is None and not fixed
        self._at: List[Tuple[int, torch.dtype]] = []
        self._heads: List[Tuple[int, Any]] = []  # with the numbers of their parameters
        self._far: List[_Heads] = []  # of those on a device
        self._steps = 0
        self._chunks: List[Chunk] = []
        if flat is not None:
            begin, first = 0, []  # type: int, List[int]
            self._whose: List[int] = []
            for i, p in enumerate(params):
                n = min(_HEAD, p.numel())
                self._whose += [i] * n
                first += range(begin, begin + n)
                begin += p.numel()
            self._first = torch.tensor(first, device=flat.device)
            self._end = begin
        self.accept()

    def accept(self) -> None:
        """What the parameters are now is meant."""
        self._versions = [p._version for p in self._params]
        at = self._where()
        if at != self._at:
            self._at = at
            read = [i for i, p in enumerate(self._params) if p.numel() > 0 and self._reads]
            here = [i for i in read if self._params[i].device.type in _READABLE]
            self._heads = [(i, _head(self._params[i])) for i in here]
            self._far = self._heads_of(set(read).difference(here))
            self._chunks = [chunk for i in read for chunk in self._chunks_of(i)]
        self._seen = [h.raw for _, h in self._heads]
        for heads in self._far:
            heads.accept()
        if self._flat is not None:
            self._seen_flat, self._seen_sum = self._numbers(), self._sum()

    def moved(self) -> List[int]:
        """The numbers of the parameters that have other memory, or another type, than when they were
        accepted."""
        at = self._where()
        return [] if at == self._at else [i for i, a in enumerate(at) if a != self._at[i]]

    def _where(self) -> List[Tuple[int, torch.dtype]]:
        """The memory of each, which may be that of the old tensor again, and the type."""
        return [(p.data_ptr(), p.dtype) for p in self._params]

    def changed(self, but: Sequence[int], loaded: Loaded) -> List[int]:
        """The numbers of those that were changed where they are, `but` for those that have moved."""
        now = [p._version for p in self._params]
        if now != self._versions:
            return [i for i, v in enumerate(now) if v != self._versions[i] and i not in but]
        if self._flat is not None:
            return self._changed_in_flat(loaded)
        here = zip(self._heads, self._seen)
        found = [i for (i, h), seen in here if i not in but and h.raw != seen]
        found += [i for heads in self._far for i in heads.changed() if i not in but]
        if loaded is None or found:
            return found
        due = [chunk for chunk in self._due() if chunk[0] not in but]
        return [i for i, begin, end in due if not self._as_loaded(i, begin, end, loaded[i])]

    # --- one by one ----------------------------------------------------------------------------

    def _heads_of(self, numbers: Set[int]) -> List[_Heads]:
        kinds: Dict[Tuple[torch.device, torch.dtype], List[int]] = {}
        for i in sorted(numbers):
            kinds.setdefault((self._params[i].device, self._params[i].dtype), []).append(i)
        return [_Heads(self._params, found) for found in kinds.values()]

    def _chunks_of(self, i: int) -> List[Chunk]:
        n = self._params[i].numel()
        if not self._params[i].is_contiguous():
            return [(i, 0, n)]
        return [(i, a, min(a + _CHUNK, n)) for a in range(0, n, _CHUNK)]

    def _due(self) -> List[Chunk]:
        """The chunks that this step compares."""
        self._steps += 1
        if self._steps & (self._steps - 1) == 0:
            return self._chunks
        return self._chunks[self._steps % _TURN :: _TURN]

    def _as_loaded(self, i: int, begin: int, end: int, loaded: Optional[torch.Tensor]) -> bool:
        p = self._params[i]
        if loaded is not None and end - begin < p.numel():
            return _same(p.detach().view(-1)[begin:end], loaded.view(-1)[begin:end])
        return _same(p, loaded)

    # --- in the flat vector --------------------------------------------------------------------

    def _changed_in_flat(self, loaded: Loaded) -> List[int]:
        same = self._numbers().eq(self._seen_flat)
        if bool(same.all() & self._sum().eq(self._seen_sum)):
            return []
        found = [self._whose[k] for k in (~same).nonzero()[:, 0].tolist()]
        if not found and loaded is not None:
            found = [i for i, p in enumerate(self._params) if not _same(p, loaded[i])]
        return found or [0]  # of one of them

    def _numbers(self) -> torch.Tensor:
        """The first numbers of all parameters in the flat vector, as bits."""
        assert self._flat is not None
        return self._flat[self._first].view(torch.int32)

    def _sum(self) -> torch.Tensor:
        """The sum of all their bits, which is exact."""
        assert self._flat is not None
        return self._flat[: self._end].view(torch.int32).sum()
