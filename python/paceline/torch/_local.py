"""Local rules whose steps a PyTorch optimizer takes: where a task begins, and what it sends.

The formulas are those of src/rule/local.c; the steps in between are the optimizer's. What a rule
keeps counts once the server has accepted the result."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from ._vector import Vector

__all__ = ["LOCAL_RULES", "LocalRule"]

LOCAL_RULES = ("steps", "own", "overlap", "overlap-local", "elastic")


class LocalRule:
    """The local rule of one worker."""

    def __init__(self, rule: str, options: Dict[str, float], workers: int, vector: Vector) -> None:
        self.rule, self.vector = rule, vector
        alpha = options.get("alpha", 0.0)
        self.alpha = alpha if alpha > 0 else 0.9 / workers
        self.a = options.get("a", 0.6)
        self._prev: Optional[Tuple[torch.Tensor, ...]] = None
        self._next: Optional[Tuple[torch.Tensor, ...]] = None
        self._begin: Any = None
        self._pull: Any = None

    def begin(self, task: Any) -> None:
        """The model gets the point from which the task's steps are taken."""
        v = self.vector
        if task.acked and self._next is not None:
            self._prev = self._next
        self._next = None
        self._pull = None
        if self.rule in ("steps", "own"):
            v.load(task.w)
            return
        n, w, prev = v.n_params, v.view(task.w), self._prev
        if prev is None:
            x = w.clone()
        elif self.rule == "overlap":
            x = prev[0].clone() if not task.fresh else w.clone().to(prev[0].device)
            if task.fresh and not task.merged:
                x[:n] += prev[0][:n] - prev[1][:n]
        elif self.rule == "overlap-local":
            x = prev[0].clone()
            x[:n] -= self.a * (x[:n] - w[:n].to(x.device))
        else:
            x = prev[0].clone()
        if self.rule == "elastic":  # both see the same difference, taken before the first step
            self._pull = self.alpha * (x[:n] - w[:n].to(x.device))
        v.load_tensor(x)
        self._begin = x

    def stepped(self) -> None:
        """Called after every step."""
        if self._pull is not None:
            n, x = self.vector.n_params, self.vector.read()
            x[:n] -= self._pull.to(x.device)
            self.vector.load_tensor(x)
            self._pull = None

    def result(self, task: Any) -> None:
        """Writes what the task sends."""
        v = self.vector
        n, x = v.n_params, v.read()
        if self.rule == "overlap":
            self._next = (x, self._begin.to(x.device))
        elif self.rule not in ("steps", "own"):
            self._next = (x,)
        if self.rule in ("steps", "overlap"):
            begin = v.view(task.w) if self.rule == "steps" else self._begin
            sent = x.clone() if self.rule == "overlap" else x
            sent[:n] = begin[:n].to(x.device) - x[:n]
            x = sent
        v.write(task.out, x)
