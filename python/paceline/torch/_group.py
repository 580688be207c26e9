"""A process group that is one worker of the run: its first rank has the seat, the others follow it.

All ranks of the group make the same calls. The first one hands out the weights and what a task is,
and all of them add up the samples and losses of a step, so that they agree on what becomes of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, Optional, Tuple

import torch
import torch.distributed as dist

from .._roles import Role
from ..errors import RunError, UsageError
from ._session import Session, is_limited
from ._vector import Vector

__all__ = ["Follower", "Group", "Leader"]

_ENDED, _FAILED, _TASK = range(3)


class Group:
    """The ranks of a process group."""

    def __init__(self, group: Any, model_device: Optional[torch.device] = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise UsageError("group= needs torch.distributed.init_process_group before")
        if dist.get_rank(group) < 0:
            raise UsageError("this process is not in the group that was given; give it its own")
        self._group, self._model_device = group, model_device
        self._device = self._device_for(group)
        self._size = dist.get_world_size(group)
        self._first = dist.get_global_rank(group, 0)
        self.leads = dist.get_rank() == self._first

    def _device_for(self, group: Any) -> torch.device:
        """Where tensors must be that this group communicates."""
        if dist.get_backend(group) != "nccl":
            return torch.device("cpu")
        return self._model_device or torch.device("cuda", torch.cuda.current_device())

    def role(self, found: Role) -> Role:
        """The role of the group, from that of this process: groups are numbered by their first
        ranks. All processes of the job call it."""
        mine = torch.tensor([self._first], device=self._device_for(None))
        everybody = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, mine)
        firsts = sorted({int(t) for t in everybody})
        if firsts[0] != 0:
            raise UsageError("rank 0 must be the first of its group, because it starts the server")
        return replace(found, rank=firsts.index(self._first), world_size=len(firsts))

    def settle(self, samples: int, loss: float, cancelled: bool) -> Tuple[int, float, bool]:
        """All samples of a step, the mean loss, and whether the first rank's task is cancelled."""
        told = torch.tensor([samples, loss, cancelled], dtype=torch.float64, device=self._device)
        dist.all_reduce(told, group=self._group)
        return int(told[0]), float(told[1]) / self._size, bool(told[2] > 0)

    def hand_out(self, t: torch.Tensor) -> torch.Tensor:
        """The tensor of the first rank; the others give one of the same shape and type."""
        there = t.to(self._device)
        dist.broadcast(there, self._first, group=self._group)
        return there


@dataclass
class _Task:
    """What followers know of a task."""

    wants: int
    steps: int


class Leader(Session):
    """The session of a group's first rank."""

    def __init__(self, role: Role, vector: Vector, group: Group) -> None:
        super().__init__(role, vector)
        self._group, self._model = group, vector
        self._waited_for = True  # the others wait for the first task

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        try:
            with super().opening():
                yield
        except BaseException:
            if self._waited_for:
                self._group.hand_out(torch.tensor([_FAILED, 0, 0, 0]))
            raise

    def pull(self) -> Optional[Any]:
        head, task = [_FAILED, 0, 0, 0], None
        self._waited_for = False
        try:
            task = super().pull()
            head[0] = _ENDED
            if task is not None:
                head = [_TASK, self.version, int(task.wants), int(task.steps)]
        finally:
            self._group.hand_out(torch.tensor(head))
        if task is None:
            self.share()
        else:
            self._group.hand_out(self._model.at(task.w))
        return task

    def share(self) -> None:
        self._group.hand_out(self._model.as_tensor())

    def settle(self, samples: int, loss: float) -> Tuple[int, float, bool]:
        return self._group.settle(samples, loss, self.cancelled())


class Follower(Session):
    """What the other ranks of a group have in place of a seat."""

    def __init__(self, role: Role, vector: Vector, group: Group) -> None:
        super().__init__(replace(role, follows=True), vector)
        self._group, self._model = group, vector
        self._weights = torch.empty(vector.dim, dtype=torch.float32, device="cpu")

    def open(self, options: Dict[str, Any], layout: str, steps: bool) -> None:
        self.limited = is_limited(options)

    def pull(self) -> Optional[Any]:
        """Hears of the next task, whose weights the model then has; None if the run has ended."""
        head = self._group.hand_out(torch.zeros(4, dtype=torch.int64))
        kind, self.version, wants, steps = head.tolist()
        self.ended = kind != _TASK
        if kind == _FAILED:
            raise RunError("the first rank of this process group has left the run; it says why")
        self.share()
        return None if self.ended else _Task(wants, steps)

    def share(self) -> None:
        self._model.load_tensor(self._group.hand_out(self._weights))

    def settle(self, samples: int, loss: float) -> Tuple[int, float, bool]:
        return self._group.settle(samples, loss, False)
