"""A PyTorch model as one vector: its parameters, then its buffers.

On the CPU the tensors stay where they are and are copied one by one. If all of them are on one GPU,
they become views of one flat tensor there, and go through host memory: weights in one transfer,
gradients in several, during backward."""

from __future__ import annotations

import ctypes as c
from itertools import accumulate, groupby
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import torch

from .._client import Tensors
from ..errors import UsageError
from ._early import Early
from ._watch import Watch
from ._whole import join, split

__all__ = ["Vector"]

_DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}  # by the size of a floating-point number
_READ_ONLY = 8  # cudaHostRegisterReadOnly
_FLAT_ON = ("cuda",)  # devices where a model becomes one flat tensor
_CACHE = 64  # vectors of shared memory whose views are kept


def _finite(t: torch.Tensor) -> bool:
    return bool(torch.isfinite(t.detach()).all())


def _whole(t: torch.Tensor) -> torch.Tensor:
    """The whole numbers in a tensor; those of floating point are its bits."""
    return t.detach().view(_BITS[t.element_size()]) if t.is_floating_point() else t


class Run(NamedTuple):
    """Tensors of whole numbers of one type."""

    last: int  # the number of the tensor after them
    size: int  # bytes per number
    begin: int  # in the vector
    end: int


class Vector:
    """The parameters and buffers of a model, in the order of the server's vector."""

    def __init__(self, model: torch.nn.Module, trained: Set[int], zero_copy: bool = False) -> None:
        saved = set(model.state_dict())
        params = list(model.named_parameters())
        buffers = [(n, b) for n, b in model.named_buffers() if n in saved]
        # whole numbers, and the bits of a mask with -inf, are exact and not averaged
        exact = {n for n, b in buffers if not b.is_floating_point() or not _finite(b)}
        buffers.sort(key=lambda nb: str(_whole(nb[1]).dtype) if nb[0] in exact else "")
        missing = len(trained - {id(p) for _, p in params})
        if missing:
            raise UsageError(
                f"the optimizer has {missing} parameters that the model does not have; pass the "
                "module that contains all of them"
            )
        self.names = [n for n, _ in params + buffers]
        self.params = [p for _, p in params]
        self.buffers = [b for _, b in buffers]
        self.trained = [id(p) in trained for p in self.params]
        self.tensors = self.params + self.buffers
        self._exact = [not p.is_floating_point() for p in self.params]
        self._exact += [n in exact for n, _ in buffers]
        self._model, self._checks = model, 0
        # every place that has one of the parameters, also if several share it
        self._places = [
            (m, leaf, p, f"{path}.{leaf}" if path else leaf)
            for path, m in model.named_modules()
            for leaf, p in m.named_parameters(recurse=False)
        ]
        # modules may put another tensor in the place of a buffer
        at = [n.rpartition(".") for n, _ in buffers]
        self._owners = [(model.get_submodule(path)._buffers, leaf) for path, _, leaf in at]
        for name, t in zip(self.names, self.tensors):
            if t.dtype not in _DTYPES:
                raise UsageError(
                    f"'{name}' is of type {t.dtype}; the types that a run can have are "
                    + ", ".join(str(d).partition(".")[2] for d in _DTYPES)
                )
            if name not in exact and t.is_floating_point() and not _finite(t):
                raise UsageError(f"'{name}' has values that are not finite, which no run accepts")
        self.shapes = [t.shape for t in self.tensors]
        self._kinds = [(p.dtype, p.device) for p in self.params]
        floats = [t.element_size() if e else 1 for t, e in zip(self.tensors, self._exact)]
        self.sizes = [t.numel() * n for t, n in zip(self.tensors, floats)]  # in the vector
        self.dim = sum(self.sizes)
        if self.dim == 0:
            raise UsageError("the model has no parameters, so there is nothing to train")
        self._runs = self._runs_of_wholes()
        self._views: Dict[int, Tuple[torch.Tensor, List[torch.Tensor]]] = {}
        self._registered: List[int] = []
        self.flat: Any = None
        self._early: Optional[Early] = None
        self._zero_copy = zero_copy
        if self._can_be_flat():
            self._flatten()
        if zero_copy and (
            self.flat is not None or any(t.dtype != torch.float32 for t in self.params)
        ):
            raise UsageError("zero_copy needs float32 parameters on the CPU; leave zero_copy out")
        self._had: Set[int] = set()  # numbers of parameters that had a gradient
        self._watch = Watch(self.params, self.flat, fixed=zero_copy)
        # what the parameters took last; None for whole numbers, whose part is another
        self._loaded: Optional[List[Optional[torch.Tensor]]] = None

    # --- what the server has to know -----------------------------------------------------------

    def describe(self) -> Tuple[Tensors, List[torch.Tensor]]:
        """The tensors for the library, and the memory that they refer to."""
        kept = [t.detach().cpu().contiguous() for t in self.tensors]
        rows = [
            (name, _DTYPES[_whole(t).dtype if e else t.dtype], tuple(t.shape), t.data_ptr())
            for name, t, e in zip(self.names, kept, self._exact)
        ]
        return Tensors(rows), kept

    # --- whole numbers -------------------------------------------------------------------------

    def _runs_of_wholes(self) -> Dict[int, Run]:
        """Tensors of whole numbers that follow each other and have one type, by the first of them."""
        runs: Dict[int, Run] = {}
        ends = list(accumulate([0] + self.sizes))
        types = [_whole(t).dtype if e else None for t, e in zip(self.tensors, self._exact)]
        for dtype, run in groupby(range(len(types)), lambda i: types[i]):
            if dtype is not None:
                first, *more = run
                last = first + len(more) + 1
                size = self.tensors[first].element_size()
                runs[first] = Run(last, size, ends[first], ends[last])
        return runs

    def _split(self, first: int) -> torch.Tensor:
        """The part of the vector with the run that begins with this tensor."""
        run = self._runs[first]
        values = [_whole(t).reshape(-1).long() for t in self.tensors[first : run.last]]
        return split(torch.cat(values), run.size)

    def _load_wholes(self, vector: torch.Tensor, first: int = 0) -> None:
        for begin, run in self._runs.items():
            if begin >= first:
                values = join(vector[run.begin : run.end], run.size)
                tensors = self.tensors[begin : run.last]
                for t, v in zip(tensors, values.split([t.numel() for t in tensors])):
                    _whole(t).copy_(v.view(t.shape))

    def _parts(self, first: int = 0) -> List[torch.Tensor]:
        """The tensors from this one on, as flat parts of the vector."""
        out = []
        for i, t in enumerate(self.tensors[first:], first):
            if not self._exact[i]:
                out.append(t.detach().reshape(-1).float())
            elif i in self._runs:
                out.append(self._split(i))
        return out

    def _write_parts(self, address: int, first: int = 0) -> None:
        """The tensors from this one on go to the vector at this address."""
        whole, parts = self._at(address)
        for t, v, e in list(zip(self.tensors, parts, self._exact))[first:]:
            if not e:
                v.copy_(t)
        for begin, run in self._runs.items():
            if begin >= first:
                whole[run.begin : run.end].copy_(self._split(begin))

    # --- a GPU ---------------------------------------------------------------------------------

    def _can_be_flat(self) -> bool:
        device = self.tensors[0].device
        return device.type in _FLAT_ON and all(
            t.device == device
            and t.is_contiguous()
            and (t.dtype == torch.float32 or (i >= len(self.params) and self._exact[i]))
            for i, t in enumerate(self.tensors)
        )

    def _flatten(self) -> None:
        self.flat = torch.cat(self._parts())
        self._sent = torch.empty_like(self.flat)
        parts = self.flat.split(self.sizes)
        for t, part, shape, e in zip(self.tensors, parts, self.shapes, self._exact):
            if not e:
                t.data = part.view(shape)

    def _register(self, address: int) -> None:
        """Pins the shared memory that the address is in."""
        with open("/proc/self/maps") as maps:
            for line in maps:
                at, perms = line.split()[:2]
                begin, end = (int(x, 16) for x in at.split("-"))
                if begin <= address < end:
                    break
            else:
                return
        if "/memfd:" not in line:
            return  # memory of this process, which others use too
        if begin in self._registered:
            return
        flag = 0 if "w" in perms else _READ_ONLY
        if int(torch.cuda.cudart().cudaHostRegister(begin, end - begin, flag)) == 0:
            self._registered.append(begin)

    def release(self) -> None:
        """Forgets all shared memory, before it is unmapped."""
        if self._early is not None:
            self._early.close()
            self._early = None
        if self._zero_copy:
            with torch.no_grad():
                for p in self.params:
                    p.data = p.data.clone()
        self._loaded = None
        self._views.clear()
        for begin in self._registered:
            torch.cuda.cudart().cudaHostUnregister(begin)
        self._registered.clear()

    def offsets(self) -> List[int]:
        """Where each tensor begins in the vector."""
        return list(accumulate([0] + self.sizes[:-1]))

    @torch.no_grad()
    def as_tensor(self) -> torch.Tensor:
        """The vector as the model is now, on the CPU."""
        self._look_up_buffers()
        return torch.cat([part.cpu() for part in self._parts()])

    # --- memory of the library -----------------------------------------------------------------

    def _at(self, address: int) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        found = self._views.get(address)
        if found is None:
            if len(self._views) >= _CACHE:
                self._views.clear()
            if self.flat is not None and self.flat.is_cuda:
                self._register(address)
            array = (c.c_float * self.dim).from_address(address)
            whole = torch.frombuffer(array, dtype=torch.float32)
            parts = self._views_of(whole)
            found = self._views[address] = (whole, parts)
        return found

    def _views_of(self, vector: torch.Tensor) -> List[torch.Tensor]:
        """The parts of a flat tensor; those of whole numbers remain flat."""
        return [
            v if e else v.view(t.shape)
            for t, v, e in zip(self.tensors, vector.split(self.sizes), self._exact)
        ]

    def at(self, address: int) -> torch.Tensor:
        """The vector at this address, as one flat tensor."""
        return self._at(address)[0]

    @torch.no_grad()
    def load(self, address: int) -> None:
        """The model takes the vector at this address."""
        self._look_up_buffers()
        whole, parts = self._at(address)
        if self.flat is not None:
            self.flat.copy_(whole, non_blocking=True)
            self._load_wholes(self.flat)
        elif self._zero_copy:
            for p, v in zip(self.params, parts):
                p.data = v
            self._load_parts(whole, parts, len(self.params))
        else:
            self._load_parts(whole, parts)
        self.accept(parts)

    def _look_up_buffers(self) -> None:
        """The tensors that the modules have as buffers now."""
        for i, (owner, leaf) in enumerate(self._owners, len(self.params)):
            b = owner.get(leaf)
            if b is self.tensors[i]:
                continue
            old = self.tensors[i]
            if b is None or (b.shape, b.dtype, b.device) != (old.shape, old.dtype, old.device):
                raise UsageError(
                    f"buffer '{self.names[i]}' has been removed, or replaced by a tensor of another "
                    "shape, type or device, since the run began; make a new paceline.torch.Optimizer"
                )
            self.tensors[i] = self.buffers[i - len(self.params)] = b
            if self.flat is not None and not self._exact[i]:
                part = self.flat.split(self.sizes)[i].view(self.shapes[i])
                part.copy_(b)
                b.data = part

    def _load_parts(self, vector: torch.Tensor, parts: List[torch.Tensor], first: int = 0) -> None:
        for t, v, e in list(zip(self.tensors, parts, self._exact))[first:]:
            if not e:
                t.data.copy_(v)
        self._load_wholes(vector, first)

    @torch.no_grad()
    def load_tensor(self, x: torch.Tensor) -> None:
        """The model takes a flat tensor."""
        self._look_up_buffers()
        parts = self._views_of(x)
        if self.flat is not None:
            self.flat.copy_(x)
            self._load_wholes(self.flat)
        else:
            self._load_parts(x, parts)
        self.accept(parts)

    def _write(self, address: int, x: torch.Tensor) -> None:
        """A flat tensor goes to the vector at this address."""
        self._at(address)[0].copy_(x, non_blocking=True)
        if x.is_cuda:
            torch.cuda.current_stream(x.device).synchronize()

    @torch.no_grad()
    def write_model(self, address: int) -> None:
        """The model goes to the vector at this address."""
        self._look_up_buffers()
        if self.flat is not None:
            torch.cat(self._parts(), out=self._sent)
            self._write(address, self._sent)
        else:
            self._write_parts(address)

    # --- gradients -----------------------------------------------------------------------------

    def send_early(self) -> None:
        """From now on, gradients may go out during backward."""
        if self.flat is not None:
            self._early = Early(self.params, self._gradients, self.flat)

    def expect(self, address: Optional[int]) -> None:
        """The gradients that are computed next go to the vector at this address; None: nowhere."""
        if self._early is not None:
            self._early.expect(None if address is None else self._at(address)[0])

    def pause(self, yes: bool) -> None:
        """Whether more will be added to the gradients that are computed."""
        if self._early is not None:
            self._early.paused = yes

    def restart(self) -> None:
        """The gradients are computed again."""
        if self._early is not None:
            self._early.restart()

    def _gradients(self, first: int, last: int) -> List[torch.Tensor]:
        """The gradients of some parameters, each as one flat tensor."""
        return [
            p.new_zeros(p.numel())
            if p.grad is None or not trained
            else (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            for p, trained in list(zip(self.params, self.trained))[first:last]
        ]

    @torch.no_grad()
    def write_gradient(self, address: int, checks: bool) -> bool:
        """The gradients and the new values of the buffers go to the vector at this address. Returns
        False if not all of them are finite; it looks only if `checks`."""
        self._look_up_buffers()
        whole, parts = self._at(address)
        if self.flat is not None:
            have = self._gradients(0, len(self.params))
            torch.cat(have + self._parts(len(self.params)), out=self._sent)
            if self._early is None or not self._early.finish(self._sent):
                self._write(address, self._sent)
            return not checks or _finite(self._sent)
        for p, v, trained in zip(self.params, parts, self.trained):
            if p.grad is None or not trained:
                v.zero_()
            else:
                v.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
        self._write_parts(address, len(self.params))
        # a finite sum has finite terms, and takes one read by all threads
        return not checks or _finite(whole.sum()) or _finite(whole)

    def spoiled(self) -> Optional[str]:
        """The name of a buffer that was finite when the run began, and is no longer."""
        first = len(self.params)
        found = zip(self.names[first:], self.tensors[first:], self._exact[first:])
        floats = [(name, b) for name, b, e in found if not e and b.numel()]
        # a finite sum has finite terms; one transfer for all of them
        if not floats or _finite(torch.stack([b.detach().double().sum() for _, b in floats])):
            return None
        return next((name for name, b in floats if not _finite(b)), None)

    # --- whether it is still the same ----------------------------------------------------------

    def _check_places(self) -> None:
        """Raises if the model has other parameters. New ones are looked for in steps 1, 2, 4, 8, … and
        in every 64th."""
        for owner, leaf, p, name in self._places:
            if getattr(owner, leaf, None) is not p:
                raise UsageError(
                    f"parameter '{name}' has been removed or replaced by another object since the run "
                    "began, which trains the first; change it in place and call opt.set_weights(), or "
                    "make a new paceline.torch.Optimizer after close()"
                )
        self._checks += 1
        if self._checks % 64 and self._checks & (self._checks - 1):
            return
        known = {id(p) for p in self.params}
        for name, p in self._model.named_parameters():
            if id(p) not in known:
                raise UsageError(
                    f"parameter '{name}' has been added to the model since the run began, which does "
                    "not train it; make a new paceline.torch.Optimizer after close()"
                )

    def check(self) -> None:
        """Raises if the model has other parameters, or they have other shapes or have left the flat
        tensor."""
        self._check_places()
        for name, t, shape in zip(self.names, self.tensors, self.shapes):
            if t.shape != shape:
                raise UsageError(
                    f"'{name}' had the shape {tuple(shape)} when the run began, and now has "
                    f"{tuple(t.shape)}; the parameters of a run cannot change"
                )
        begin = 0 if self.flat is None else self.flat.data_ptr()
        for name, p, size in zip(self.names, self.params, self.sizes):
            if begin and p.data_ptr() != begin and size:
                raise UsageError(
                    f"'{name}' has been moved or given other memory since the run began; do that "
                    "before paceline.torch.Optimizer is made"
                )
            begin += self.flat.element_size() * size if begin else 0

    def accept(self, loaded: Optional[List[torch.Tensor]] = None) -> None:
        """The weights that the model has now are meant. They are these parts of a vector, if given."""
        self._loaded = None
        if loaded is not None:
            found = zip(loaded[: len(self.params)], self._exact)
            self._loaded = [None if exact else part for part, exact in found]
        self._watch.accept()

    def _as_loaded(self, i: int) -> bool:
        """Whether a parameter that has moved has the weights that it took."""
        p = self.params[i].detach()
        if (p.dtype, p.device) != self._kinds[i]:
            raise UsageError(
                f"'{self.names[i]}' is of another type or on another device than when the run began; "
                "convert the model before paceline.torch.Optimizer is made"
            )
        part = self._loaded[i] if self._loaded is not None else None
        return part is not None and torch.equal(p, part.to(p))

    def check_unchanged(self, otherwise: str, reused: Callable[[], bool]) -> None:
        """Raises if weights were changed, which the server does not know; `otherwise` says what would
        become of it, and what to do. `reused()` tells whether the memory that the weights were taken
        from may have other numbers by now."""
        moved = self._watch.moved()
        others = [i for i in moved if not self._as_loaded(i)]
        found = others + self._watch.changed(moved, self._loaded)
        if found and reused():
            others, found = [], self._watch.changed(moved, None)
        for i in found:
            how = "given other data" if i in others else "changed in place"
            raise UsageError(f"'{self.names[i]}' was {how}, but {otherwise}")

    def without_gradient(self) -> Optional[bytes]:
        """A byte per parameter that is not empty: 1 if the optimizer has no gradient for it now. None
        if it has all."""
        found = zip(self.params, self.trained, self.sizes)
        absent = bytes(p.grad is None or not trained for p, trained, size in found if size)
        return absent if any(absent) else None

    def has_lost_gradient(self) -> bool:
        """Whether a parameter has no gradient now, and had one when this was called before."""
        have = {i for i, p in enumerate(self.params) if self.trained[i] and p.grad is not None}
        lost, self._had = self._had - have, self._had | have
        return bool(lost)
