"""The gradient of samples that rank 0 trusts, with which the filter of zeno++ compares results."""

from __future__ import annotations

from typing import Any, Callable, List

import torch

from ._state import State

__all__ = ["Reference"]


class Reference:
    """`function(model)` is the loss on these samples. The server gets its gradient between two tasks
    of rank 0: before the first one, whenever `every` updates have been made since the last time, and
    if none has been made since the task before."""

    def __init__(
        self,
        function: Callable[[torch.nn.Module], Any],
        model: torch.nn.Module,
        state: State,
        every: int,
    ) -> None:
        self._function, self._model, self._state, self._every = function, model, state, every
        self._given = self._seen = -1  # versions: of the last gradient, of the last task

    def is_due(self, version: int) -> bool:
        """Whether the server needs another one, at a task on this version."""
        stands, self._seen = version == self._seen, version
        since = version - self._given
        return self._given < 0 or since >= self._every or (stands and since > 0)

    def compute(self, version: int) -> List[bytes]:
        """The parts of a file for the server. The model has the weights of this version."""
        with torch.enable_grad():
            loss = self._function(self._model)
            parts = self._state.reference(loss)
        self._given = version
        return parts
