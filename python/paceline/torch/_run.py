"""The run that a process joins: its name, its options, and its life, from here to `close`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

import torch

from .. import _roles
from .._roles import Role
from ..errors import RunEnded, UsageError
from ._arguments import workers
from ._evaluator import Evaluation
from ._group import Follower, Group, Leader
from ._session import Session
from ._translate import columns
from ._vector import Vector

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["Run"]

_NAME = re.compile("[A-Za-z][0-9A-Za-z_.-]{0,59}")


class Run:
    """A run of one method, which this process joins when it makes the optimizer.

    `method` and `options` are those of `paceline train`, as for `Optimizer`, which also explains
    `on_end`, `role` and `group`. A process may have several runs, side by side or one after another;
    all ranks make them in the same order. `name` is "run-1", "run-2", … unless it is given: the server
    then refuses workers that join under another name.

    With `with`, the run is closed at the end of the block; an exception ends it, and the other ranks
    hear why.

    >>> model = torch.nn.Linear(2, 1)
    >>> with paceline.torch.Run("sync", name="critic", updates=2) as run:
    ...     opt = run.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    ...     while not run.ended:
    ...         opt.zero_grad()
    ...         model(torch.ones(4, 2)).square().mean().backward()
    ...         opt.step()
    >>> run
    paceline.torch.Run('critic', sync, rank 0 of 1, ended at version 2)
    """

    def __init__(
        self,
        method: Optional[str] = None,
        *,
        name: str = "",
        role: Optional[Role] = None,
        group: Any = None,
        on_end: Optional[Callable[[Dict[str, Any]], Any]] = None,
        **options: Any,
    ) -> None:
        if name and not _NAME.fullmatch(name):
            raise UsageError(
                f"name is '{name[:80]}', but must be at most 60 letters, digits, _ . and -, the first "
                "of them a letter"
            )
        if method is not None:
            options["method"] = method
        self.options = options  # as they were given
        self.method = columns(options).method
        self._on_end = on_end
        if role is not None and not isinstance(role, Role):
            raise UsageError(f"role is {role!r}, but must be a paceline.torch.Role")
        found = role or _roles.find(workers=workers(options.get("workers")))
        self._group: Optional[Group] = None
        if group is not None:
            self._group = group if isinstance(group, Group) else Group(group)
            if role is None and found.rank >= 0:
                found = self._group.role(found)
        self._role = _roles.next_run(found, name)
        self._session: Optional[Session] = None
        self._optimizer: Callable[[], Optional["Optimizer"]] = lambda: None
        self._closed = False  # before it had an optimizer

    def optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        *,
        evaluate: Optional[Callable[[torch.nn.Module], Any]] = None,
        on_point: Optional[Callable[[Evaluation], Any]] = None,
        reference: Optional[Callable[[torch.nn.Module], torch.Tensor]] = None,
        overlap: bool = False,
        zero_copy: bool = False,
    ) -> "Optimizer":
        """Joins the run, and returns the `Optimizer` of this worker, which explains the arguments.
        A run has one model, so it has one optimizer."""
        from ._optimizer import Optimizer

        made = Optimizer(
            optimizer,
            model,
            run=self,
            evaluate=evaluate,
            on_point=on_point,
            reference=reference,
            overlap=overlap,
            zero_copy=zero_copy,
        )
        self._optimizer = lambda: made  # the run holds it, and not only it the run
        return made

    def join(self, optimizer: Callable[[], Optional["Optimizer"]], vector: Vector) -> Session:
        """Makes the seat of the run's optimizer, which calls this; `optimizer()` returns it as long
        as there is one."""
        if self._closed:
            raise RunEnded(f"{self!r} was closed before it had an optimizer")
        if self._session is not None:
            raise UsageError(
                f"{self!r} has an optimizer already; make another paceline.torch.Run for this model"
            )
        if self._group is None:
            self._session = Session(self._role, vector)
        else:
            kind = Leader if self._group.leads else Follower
            self._session = kind(self._role, vector, self._group)
        self._session.on_end = self._on_end
        self._optimizer = optimizer
        return self._session

    # --- what it is ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What it was called, or else "run-1", "run-2", …, or the address of its server."""
        return self.role.name

    @property
    def role(self) -> Role:
        """The place of this process in the run, with the server's socket."""
        return self._role if self._session is None else self._session.role

    @property
    def rank(self) -> int:
        """The rank of this process: 0 to `world_size` - 1. Rank 0 starts the server. It is -1 until
        the optimizer is made if the server was started by somebody else, who numbers workers."""
        return self.role.rank

    @property
    def world_size(self) -> int:
        """How many workers were started together."""
        return self.role.world_size

    @property
    def grouped(self) -> bool:
        """Whether a worker is a process group."""
        return self._group is not None

    @property
    def ended(self) -> bool:
        """Whether the run is over for this worker."""
        opt = self._optimizer()
        if opt is not None:
            return opt.ended
        return self._closed if self._session is None else self._session.ended

    @property
    def version(self) -> int:
        """The version of the weights in the model: the number of updates so far."""
        opt = self._optimizer()
        if opt is not None:
            return opt.version
        return 0 if self._session is None else self._session.version

    def summary(self) -> Dict[str, Any]:
        """What this worker did: "steps", "results", "abandoned" tasks and seconds "waited". On rank
        0, once the run has ended, also "run" (the object that `paceline train --json` prints),
        "method", "diverged", and "failure" (why the run failed, or None)."""
        out: Dict[str, Any] = {"rank": self.rank, "version": self.version}
        session = self._session
        if session is not None:
            out.update(session.counts, waited=session.waited)
            result = session.result
            if result:
                out.update(run=result["run"], method=result["texts"]["method"])
                out.update(diverged=result["diverged"], failure=session.failure)
        return out

    # --- its life ------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Asks the server for a checkpoint, as soon as possible."""
        if self._session is None:
            raise UsageError(f"{self!r} has nothing to save before its optimizer is made")
        self._session.checkpoint()

    def close(self) -> None:
        """Leaves the run, as Optimizer.close does."""
        opt = self._optimizer()
        if opt is not None:
            opt.close()
        elif self._session is not None:
            self._session.close()
        else:
            self._closed = True

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        opt = self._optimizer()
        if kind is None:
            self.close()
        elif opt is not None:
            opt.__exit__(kind)
        else:
            self._closed = True

    def __repr__(self) -> str:
        at = "" if self.rank < 0 else f", rank {self.rank} of {self.world_size}"
        how = f", ended at version {self.version}" if self.ended else ""
        return f"paceline.torch.Run({self.name!r}, {self.method}{at}{how})"
