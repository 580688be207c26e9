"""What the server's optimizer keeps (momentum, moments), as the state of PyTorch's: the files that
rank 0 and its server exchange. docs/workers.md has their format."""

from __future__ import annotations

import ctypes as c
import struct
from typing import Any, Dict, List, Mapping

import torch

from ..errors import UsageError
from ._translate import has_steps, refuse_state
from ._vector import Vector

__all__ = ["State"]

_HEAD = struct.Struct("<6Q")  # elements, version, tensors, weights, vectors, reference
# the vectors of a rule, as PyTorch calls them
_NAMES = {
    "momentum": ("momentum_buffer",),
    "nesterov": ("momentum_buffer",),
    "adagrad": ("sum",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
}


def _taken(own: Mapping[str, Any]) -> int:
    """The steps behind the state of one parameter."""
    if "step" in own:
        return int(own["step"])
    return 1 if own.get("momentum_buffer") is not None else 0


class State:
    """The state of one rule of the server, for the parameters in `groups`, lists of their ids."""

    def __init__(self, rule: str, vector: Vector, groups: List[List[int]]) -> None:
        self._vector = vector
        self._names = _NAMES.get(rule, ())
        self._number = {i: n for n, i in enumerate(i for g in groups for i in g)}  # in state_dict()

    @property
    def known(self) -> bool:
        """Whether the rule keeps something, and it is known how PyTorch calls it."""
        return bool(self._names)

    def steps_of(self, state: Dict[Any, Any]) -> Dict[Any, Any]:
        """The state of earlier steps, if the server can take it; empty if there were none."""
        if not self.known or not has_steps(state):
            refuse_state(state)
            return {}
        return state

    def to_torch(self, data: bytearray) -> Dict[int, Dict[str, Any]]:
        """The state of a state_dict(), from a file that the server has saved."""
        v, dim = self._vector, self._vector.dim
        n = _HEAD.unpack_from(data)[2]
        steps = iter(struct.unpack_from(f"<{n}Q", data, _HEAD.size))
        reals = torch.frombuffer(data, dtype=torch.float32, offset=_HEAD.size + 8 * n)
        split = [part.split(v.sizes) for part in reals.split(dim)]
        out: Dict[int, Dict[str, Any]] = {}
        for k, p in enumerate(v.params):
            taken = next(steps) if v.sizes[k] else 0
            if id(p) not in self._number or taken == 0:
                continue
            own = {m: s[k].view(p.shape).to(p.device) for m, s in zip(self._names, split)}
            if "momentum_buffer" not in own:
                own["step"] = torch.tensor(float(taken))
            out[self._number[id(p)]] = own
        return dict(sorted(out.items()))

    def from_torch(self, state: Mapping[Any, Any]) -> List[bytes]:
        """The parts of a file with the state of a state_dict()."""
        v = self._vector
        steps: List[int] = []
        reals = torch.zeros(len(self._names), v.dim, dtype=torch.float32, device="cpu")
        for k, (p, begin) in enumerate(zip(v.params, v.offsets())):
            own = state.get(self._number.get(id(p)), {})
            taken = _taken(own)
            for row, name in zip(reals, self._names if taken else ()):
                if own.get(name) is None or own[name].shape != p.shape:
                    raise UsageError(
                        f"the state that is loaded has no '{name}' for '{v.names[k]}', or one of another "
                        "shape; it must be that of the same optimizer"
                    )
                row[begin : begin + v.sizes[k]].copy_(own[name].reshape(-1))
            if v.sizes[k]:
                steps.append(taken)
        head = _HEAD.pack(v.dim, 0, len(steps), 0, len(self._names), 0)
        return [head, struct.pack(f"<{len(steps)}Q", *steps), _bytes(reals)]

    def weights(self) -> List[bytes]:
        """The parts of a file with the weights that the model has now."""
        return [_HEAD.pack(self._vector.dim, 0, 0, 1, 0, 0), _bytes(self._vector.as_tensor())]

    def reference(self, loss: torch.Tensor) -> List[bytes]:
        """The parts of a file with the gradient of this loss. It leaves `p.grad` as it is."""
        v = self._vector
        found = {i: p for i, p in enumerate(v.params) if v.trained[i] and p.requires_grad}
        gradients = torch.autograd.grad(loss, list(found.values()), allow_unused=True)
        out = torch.zeros(v.dim, dtype=torch.float32, device="cpu")
        parts = out.split(v.sizes)
        for i, g in zip(found, gradients):
            if g is not None:
                parts[i].copy_((g.to_dense() if g.is_sparse else g).reshape(-1))
        return [_HEAD.pack(v.dim, 0, 0, 0, 0, 1), _bytes(out)]


def _bytes(t: torch.Tensor) -> bytes:
    """What is in the memory of a contiguous tensor on the CPU."""
    return c.string_at(t.data_ptr(), t.numel() * t.element_size())
