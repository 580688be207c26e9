"""A PyTorch model as one vector: its parameters, then its buffers.

On the CPU the tensors stay where they are and are copied one by one. If all of them are on one GPU,
they become views of one flat tensor there, and go through host memory in one transfer each way."""

from __future__ import annotations

import ctypes as c
from typing import Any, Dict, List, Set, Tuple

import torch

from .._client import Tensors
from ..errors import UsageError

__all__ = ["Vector"]

_DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
}
_READ_ONLY = 8  # cudaHostRegisterReadOnly
_CACHE = 64  # vectors of shared memory whose views are kept


class Vector:
    """The parameters and buffers of a model, in the order of the server's vector."""

    def __init__(self, model: torch.nn.Module, trained: Set[int], zero_copy: bool = False) -> None:
        saved = set(model.state_dict())
        params = list(model.named_parameters())
        buffers = [(n, b) for n, b in model.named_buffers() if n in saved]
        buffers.sort(key=lambda nb: not nb[1].is_floating_point())
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
        for name, t in zip(self.names, self.tensors):
            if t.dtype not in _DTYPES:
                raise UsageError(
                    f"'{name}' is of type {t.dtype}; the types that a run can have are "
                    + ", ".join(str(d).partition(".")[2] for d in _DTYPES)
                )
        self.shapes = [t.shape for t in self.tensors]
        sizes = [t.numel() for t in self.tensors]
        self.sizes, self.dim = sizes, sum(sizes)
        self.n_params = sum(sizes[: len(self.params)])
        if self.dim == 0:
            raise UsageError("the model has no parameters, so there is nothing to train")
        self._views: Dict[int, Tuple[torch.Tensor, List[torch.Tensor]]] = {}
        self._registered: List[int] = []
        self.flat: Any = None
        self._zero_copy = zero_copy
        if self._can_be_flat():
            self._flatten()
        if zero_copy and (self.flat is not None or any(t.dtype != torch.float32 for t in self.params)):
            raise UsageError("zero_copy needs float32 parameters on the CPU; leave zero_copy out")

    # --- what the server has to know -----------------------------------------------------------

    def describe(self) -> Tuple[Tensors, List[torch.Tensor]]:
        """The tensors for the library, and the memory that they refer to."""
        kept = [t.detach().cpu().contiguous() for t in self.tensors]
        rows = [
            (name, _DTYPES[t.dtype], tuple(t.shape), t.data_ptr())
            for name, t in zip(self.names, kept)
        ]
        return Tensors(rows), kept

    # --- a GPU ---------------------------------------------------------------------------------

    def _can_be_flat(self) -> bool:
        device = self.tensors[0].device
        return device.type == "cuda" and all(
            t.device == device
            and t.is_contiguous()
            and (t.dtype == torch.float32 or (i >= len(self.params) and not t.is_floating_point()))
            for i, t in enumerate(self.tensors)
        )

    def _flatten(self) -> None:
        self.flat = torch.cat([t.detach().reshape(-1).float() for t in self.tensors])
        self._sent = torch.empty_like(self.flat)
        for t, part, shape in zip(self.tensors, self.flat.split(self.sizes), self.shapes):
            if t.is_floating_point():
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
        if self._zero_copy:
            with torch.no_grad():
                for p in self.params:
                    p.data = p.data.clone()
        self._views.clear()
        for begin in self._registered:
            torch.cuda.cudart().cudaHostUnregister(begin)
        self._registered.clear()

    # --- memory of the library -----------------------------------------------------------------

    def _at(self, address: int) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        found = self._views.get(address)
        if found is None:
            if len(self._views) >= _CACHE:
                self._views.clear()
            if self.flat is not None:
                self._register(address)
            array = (c.c_float * self.dim).from_address(address)
            whole = torch.frombuffer(array, dtype=torch.float32)
            parts = [v.view(s) for v, s in zip(whole.split(self.sizes), self.shapes)]
            found = self._views[address] = (whole, parts)
        return found

    def view(self, address: int) -> torch.Tensor:
        """A vector of the library as a tensor that shares its memory."""
        return self._at(address)[0]

    @torch.no_grad()
    def load(self, address: int) -> None:
        """The model takes the vector at this address."""
        whole, parts = self._at(address)
        if self.flat is not None:
            self.flat.copy_(whole, non_blocking=True)
            self._load_whole_numbers(self.flat)
            return
        if self._zero_copy:
            for p, v in zip(self.params, parts):
                p.data = v
            parts = parts[len(self.params) :]
        self._load_parts(self.buffers if self._zero_copy else self.tensors, parts)

    def _load_parts(self, tensors: List[torch.Tensor], parts: List[torch.Tensor]) -> None:
        for t, v in zip(tensors, parts):
            t.data.copy_(v if t.is_floating_point() else v.round())

    def _load_whole_numbers(self, flat: torch.Tensor) -> None:
        for t, v in zip(self.tensors, flat.split(self.sizes)):
            if not t.is_floating_point():
                t.copy_(v.round().view(t.shape))

    @torch.no_grad()
    def load_tensor(self, x: torch.Tensor) -> None:
        """The model takes a flat tensor."""
        if self.flat is not None:
            self.flat.copy_(x)
            self._load_whole_numbers(self.flat)
        else:
            parts = [v.view(s) for v, s in zip(x.split(self.sizes), self.shapes)]
            self._load_parts(self.tensors, parts)

    @torch.no_grad()
    def read(self) -> torch.Tensor:
        """The model as a new flat tensor, on the device of a flat model, otherwise on the CPU."""
        device = self.flat.device if self.flat is not None else "cpu"
        return torch.cat([t.detach().reshape(-1).float().to(device) for t in self.tensors])

    @torch.no_grad()
    def write(self, address: int, x: torch.Tensor) -> None:
        """A flat tensor goes to the vector at this address."""
        self._at(address)[0].copy_(x, non_blocking=True)
        if x.is_cuda:
            torch.cuda.current_stream(x.device).synchronize()

    @torch.no_grad()
    def write_gradient(self, address: int) -> None:
        """The gradients and the new values of the buffers go to the vector at this address."""
        whole, parts = self._at(address)
        if self.flat is not None:
            have = [
                p.grad.reshape(-1) if p.grad is not None else p.new_zeros(p.numel())
                for p in self.params
            ]
            torch.cat(have + [b.reshape(-1).float() for b in self.buffers], out=self._sent)
            self.write(address, self._sent)
            return
        for p, v in zip(self.params, parts):
            if p.grad is None:
                v.zero_()
            else:
                v.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
        for b, v in zip(self.buffers, parts[len(self.params) :]):
            v.copy_(b)

    # --- whether it is still the same ----------------------------------------------------------

    def check(self) -> None:
        """Raises if tensors have other shapes, or have left the flat tensor."""
        for name, t, shape in zip(self.names, self.tensors, self.shapes):
            if t.shape != shape:
                raise UsageError(
                    f"'{name}' had the shape {tuple(shape)} when the run began, and now has "
                    f"{tuple(t.shape)}; the parameters of a run cannot change"
                )
        if self.flat is not None and self.params[0].data_ptr() != self.flat.data_ptr():
            raise UsageError(
                "the model has been moved since the run began; move it to its device before "
                "paceline.torch.Optimizer is made"
            )
