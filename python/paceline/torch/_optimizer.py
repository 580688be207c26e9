"""The optimizer that a training script uses: each step is a result of one worker of the run."""

from __future__ import annotations

import contextlib
import math
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from .._client import STEPS
from .._roles import Role
from ..errors import RunEnded, RunError, UsageError
from . import _current
from ._arguments import number, shown
from ._batches import Passes, Samples
from ._evaluator import Evaluation
from ._group import Group
from ._hooks import hook
from ._rate import Rate
from ._reference import Reference
from ._refusals import refuse_arguments, refuse_to_move, why_unchanged
from ._run import Run
from ._saving import Saving
from ._scaling import Scaling
from ._state import State
from ._translate import (
    columns,
    hyper_parameters,
    layout,
    refuse_changes,
    rule,
)
from ._vector import Vector

__all__ = ["Abandoned", "Optimizer"]


class Abandoned(Exception):
    """Raised inside `with opt.task():`, which catches it: the task is no longer wanted. See the
    example of `Optimizer`."""


class Optimizer(torch.optim.Optimizer):
    """Wraps a PyTorch optimizer; each step is a result of one worker of the run.

    `method` and all other options are those of `paceline train`, for example `updates=400` or
    `checkpoint="ck"`; those of rank 0 count, and ranks with others raise. The default method is
    kasync, asynchronous updates of half of the workers each; "sync" is what DistributedDataParallel
    does. If the method sends gradients, the hyper-parameters of `optimizer` become the rule of the
    server. If it takes local steps, `optimizer` takes them in every worker. Without updates, time or
    a target, the run ends when rank 0 closes. If no script has started the server (`paceline
    serve`), the worker with PACELINE_TOKEN sets the rates, evaluates and ends the run in place of
    rank 0.

    The model gets the weights of rank 0 here, and the server's after every step. Its buffers (the
    statistics of BatchNorm) are averaged over the results behind every update.

    `evaluate(model)` is called on rank 0 from time to time (`eval_every`), with the newest weights
    in the model, and returns the test loss or a dict of numbers, such as {"test_loss": 0.3,
    "test_accuracy": 0.91}. Then `on_point` is called with a paceline.torch.Evaluation, and `on_end`
    with the summary, a dict, once the run has ended: both are for trackers.

    `reference(model)` returns the loss, a tensor, on samples that rank 0 trusts. Its gradient is what
    the server compares gradients with under zeno++, which needs it; no other method does.

    `run` is that of this optimizer: Run.optimizer gives its own, and otherwise it is made of `method`,
    `on_end`, `role`, `group` and the options.

    With `overlap`, `step` returns when the result is sent: the server's weights come with the next
    mini-batch of `batches`, or when the model is called or this object is asked for anything. Until
    then parameters are those of the last task.

    `zero_copy` makes the parameters read-only views of shared memory instead of copies: an
    operation that changes one in place ends the process. `role` replaces what the environment says.

    `group`, a process group of torch.distributed, makes its ranks one worker: they train one replica
    with DistributedDataParallel, or anything that leaves the same gradients on all of them. Its
    first rank speaks to the server, and hands the new weights to the others.

    >>> model = torch.nn.Linear(2, 1)
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> opt = paceline.torch.Optimizer(sgd, model, "sync", updates=3, evaluate=lambda m: 0.5)
    >>> for x in opt.batches([torch.ones(4, 2)]):
    ...     with opt.task():
    ...         opt.zero_grad()
    ...         loss = model(x).square().mean()
    ...         loss.backward()
    ...         opt.step(loss)
    >>> opt.close()
    >>> opt.summary()["run"]["updates"]
    3
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        method: Optional[str] = None,
        *,
        evaluate: Optional[Callable[[torch.nn.Module], Any]] = None,
        on_point: Optional[Callable[[Evaluation], Any]] = None,
        on_end: Optional[Callable[[Dict[str, Any]], Any]] = None,
        reference: Optional[Callable[[torch.nn.Module], torch.Tensor]] = None,
        overlap: bool = False,
        zero_copy: bool = False,
        role: Optional[Role] = None,
        group: Any = None,
        run: Optional[Run] = None,
        **options: Any,
    ) -> None:
        self._ready = False
        if isinstance(optimizer, Optimizer):
            raise UsageError("optimizer is a paceline.torch.Optimizer; give the one that it wraps")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"optimizer must be a torch.optim.Optimizer, but is a {type(optimizer).__name__}"
            )
        if on_point and not evaluate:
            raise UsageError("on_point= is called after evaluate=, which is missing")
        self.optimizer, self.model = optimizer, model
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self._share()
        if run is None:
            together = group and Group(group, next(model.parameters()).device)
            run = Run(method, role=role, group=together, on_end=on_end, **options)
        elif options or any(x is not None for x in (method, role, group, on_end)):
            raise UsageError("method, on_end, role, group and options are those of the run")
        self.run = run
        options = dict(run.options)
        if run.role.over_mpi and (run.grouped or zero_copy):
            raise UsageError(
                "over MPI every rank is a worker, with memory of its own, which has neither group= "
                "nor zero_copy; leave them out, or start mpirun -n N python3 … alone"
            )
        self._accumulating = self._in_task = self._needs_task = False
        self._overlaps, self._sent = overlap, False  # and the next task has not been waited for
        if overlap and run.grouped:
            raise UsageError("overlap= is for workers that are one process; leave it or group= out")
        self._hooks: List[Any] = []  # of task(), until close()
        self._reported: Tuple[Any, int] = (None, 0)
        self._losses: List[float] = []
        self._scaling = Scaling(self, optimizer)

        at = columns(options)
        self._rule = rule(optimizer, at, options)
        self._groups = [[id(p) for p in g["params"]] for g in self.param_groups]
        trained = {i for g in self._groups for i in g}
        _current.refuse_shared(model, trained)
        self._vector = Vector(model, trained, zero_copy)
        self._samples = Samples([p for p in self._vector.params if id(p) in trained])
        self._method = at.method
        self._takes_steps = at.takes_steps  # with the optimizer that was given
        self._sends_gradients = at.sends_gradients
        self._averages = at.averages
        self._keeps_moving = at.keeps_moving
        if at.sends_gradients and not run.grouped:  # a group's are complete only after backward
            self._vector.send_early()
        state = State(self._rule.optim, self._vector, self._groups)
        brings = {} if at.takes_steps else state.steps_of(optimizer.state_dict()["state"])
        self._hyper_parameters = hyper_parameters(optimizer)
        refuse_arguments(optimizer, at, zero_copy, reference, run.grouped)
        self._local = at.takes_steps  # the steps are taken here
        self._steps_left = 0

        self._session = run.join(weakref.ref(self), self._vector)
        self._stays = run.grouped  # what was begun is computed to its end
        self._saving = Saving(optimizer, state, self._session)
        self._total = 0  # samples of the result so far, of all ranks of the group
        with self._session.opening():
            self._session.open(
                dict(options, **self._rule.options),
                layout(self._vector, self._groups, self._rule),
                self._local,
            )
            self._rate = Rate(self, self._rule, self._session)
            if brings and not self._session.resumed:
                self._saving.send(brings)
            if reference and not at.reference_every:
                raise UsageError(f"{at.method} has no use for reference=; leave it out")
            if reference and run.role.serves:
                self._session.reference = Reference(reference, model, state, at.reference_every)
            if evaluate:
                self._session.add_evaluator(model, evaluate, on_point)
            self._next_task()
        self._passes = Passes(self._session)
        self._ready = True
        if overlap:
            self._hooks = hook(model, self._vector.params, self._look)
        _current.add(self)
        self._dropped = weakref.finalize(self, self._session.drop)
        self._dropped.atexit = False  # the session does that

    @property
    def role(self) -> Role:
        """The place of this process in the run, with the server's socket."""
        return self.run.role

    @property
    def ended(self) -> bool:
        """Whether the run is over for this worker."""
        self._await_task()
        return self._session.ended

    @property
    def version(self) -> int:
        """The version of the weights in the model: the number of updates so far."""
        self._await_task()
        return self._session.version

    # --- tasks ---------------------------------------------------------------------------------

    def _next_task(self) -> None:
        """Waits for the next task; the model then has its weights."""
        inside, self._in_task = self._in_task, False  # evaluations belong to no task
        self._needs_task = True  # until there is one, also after an exception
        try:
            task = self._session.pull()
        finally:
            self._in_task = inside
        self._needs_task = False
        if task is None:
            return
        self._local = task.wants == STEPS
        if self._local:
            self._steps_left = int(task.steps)
            self._losses.clear()
        self._samples.result = 0

    def _await_task(self) -> None:
        """With overlap, the model gets the weights that `step` has not waited for."""
        if self._sent:
            self._sent = False
            self._next_task()

    def _count_samples(self, n: int) -> None:
        """`batches` tells the size of the mini-batch that it hands out, or that there is none."""
        self._await_task()
        self._samples.hand_out(n)

    def _check(self) -> None:
        if self.optimizer.param_groups is not self.param_groups:
            raise UsageError(
                "load_state_dict was called on the wrapped optimizer; call it on the "
                "paceline.torch.Optimizer"
            )
        groups = [[id(p) for p in g["params"]] for g in self.param_groups]
        if groups != self._groups:
            raise UsageError(
                "the parameters of the optimizer have changed since the run began; make a new "
                "paceline.torch.Optimizer after close()"
            )
        self._vector.check()
        if not self._takes_steps:
            refuse_changes(self._hyper_parameters, self.optimizer)
        if not self._averages:
            why = why_unchanged(self._method, self._sends_gradients)
            self._vector.check_unchanged(why, self._session.hung_up)

    def report(self, loss: Any = None, samples: int = 0) -> None:
        """Tells the loss and the size of a mini-batch before a `step` that others call without
        arguments, such as GradScaler or a Lightning trainer.

        >>> opt = example()
        >>> loss = opt.model(torch.ones(4, 2)).square().mean()
        >>> loss.backward()
        >>> opt.report(loss, samples=4)
        >>> opt.step()
        >>> opt.close()"""
        self._reported = (loss, samples)

    def step(self, closure: Any = None, *, loss: Any = None, samples: Optional[int] = None) -> Any:
        """Sends what was computed, and waits for the next weights.

        `loss` is the mean loss of the mini-batch, a tensor or a number; unknown if left out. It may
        also be the first argument: `opt.step(loss)`. `samples` is the size of the mini-batch; `batches`
        fills it in. `report` may have told both before. A `closure`, as in torch.optim, is called once,
        and its result is the loss, which is returned. Inside `no_sync()`, only the samples are counted.
        Raises RunEnded if the run had ended before."""
        calls = callable(closure) and not isinstance(closure, torch.Tensor)
        if closure is not None and loss is not None:
            raise UsageError("step() was given two losses; give one, or a closure alone")
        if calls:
            with torch.enable_grad():
                loss = closure()
        elif closure is not None:
            loss = closure
        told, self._reported = self._reported, (None, 0)
        loss = told[0] if loss is None else loss
        self._samples.step(samples or told[1], self._accumulating)
        if not self._accumulating:
            self._step(loss)
        return loss if calls else None

    def _step(self, loss: Any) -> None:
        if self._sent:
            raise UsageError(
                "with overlap=True the model must be called as a module between two steps, or the "
                "gradients are those of old weights; leave overlap out"
            )
        if self.ended:
            raise RunEnded(
                "the run has ended; check opt.ended, or loop over paceline.torch.batches"
            )
        if self._needs_task:  # the gradients are of the last one
            self.optimizer.zero_grad(set_to_none=True)
            self._next_task()
            return
        self._check()
        self._scaling.check()
        self._session.counts["steps"] += 1
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        self._total, value, cancelled = self._session.settle(self._samples.result, number(loss))
        if cancelled:
            self._abandon()
        elif self._local:
            self._local_step(value)
        else:
            self._send_gradient(value)

    def _send_gradient(self, loss: float) -> None:
        if self._session.role.follows:
            self._next_task()
            return
        self._rate.send()
        absent = self._vector.without_gradient()
        if not self._session.may_lack:
            lost = self._vector.has_lost_gradient() and self._keeps_moving
            decays = absent and self._rule.options["weight_decay"]
            refuse_to_move(self._method, lost, bool(decays))
            absent = None
        task = self._session.client.task
        finite = self._vector.write_gradient(task.out, bool(task.checks))
        if not finite:
            self._session.spoils(self._vector.spoiled())
        self._push(loss if finite else math.inf, absent)

    def _local_step(self, loss: float) -> None:
        self.optimizer.step()
        if not self._averages:
            self._vector.accept()
        self._losses.append(loss)
        self._steps_left -= 1
        if self._steps_left == 0 and self._session.role.follows:
            self._next_task()
        elif self._steps_left == 0:
            self._vector.write_model(self._session.client.task.out)
            self._session.spoils(self._vector.spoiled())
            self._push(sum(self._losses) / len(self._losses))

    def _push(self, loss: float, absent: Optional[bytes] = None) -> None:
        task = self._session.client.task
        complete = task.step + task.steps == self._session.batches
        self._session.push(self._total, loss, absent)
        self._session.counts["results"] += complete
        if self._overlaps:
            self._sent = True
        else:
            self._next_task()

    def _abandon(self) -> None:
        """Drops what was computed for the task: its gradients must not get into the next result."""
        self._session.counts["abandoned"] += 1
        self._samples.abandon()
        self.optimizer.zero_grad(set_to_none=True)
        if not self._local:
            self._rate.send(cancelled=True)
        self._next_task()

    # --- what a torch.optim.Optimizer has ------------------------------------------------------

    def _share(self) -> None:
        """Both have the same groups and state, so schedulers may use either."""
        self.param_groups = self.optimizer.param_groups
        self.state = self.optimizer.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients. Does nothing inside `no_sync()`."""
        if not self._accumulating:
            self.optimizer.zero_grad(set_to_none=set_to_none)
            self._vector.restart()
            self._samples.drop(steps=not self._local)
            self._scaling.forget()

    def add_param_group(self, param_group: Any) -> None:
        if self._ready:
            raise UsageError(
                "param groups cannot be added to a run; make a new paceline.torch.Optimizer"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> Dict[str, Any]:
        """The state of the wrapped optimizer, as it would be without Paceline, and the version of the
        weights. If the server has the rule, rank 0 asks it for momentum and moments; those of the
        other ranks have none. Rules of Paceline's own have them in checkpoints (`checkpoint=`) only.
        """
        self._await_task()
        return self._saving.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads the param groups (learning rates) and the state of earlier steps. If the server has
        the rule, it gets the momentum and moments of rank 0, unless the run was resumed from a
        checkpoint of the server, which has them. Raises UsageError if they are missing or cannot be
        taken."""
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            raise UsageError(
                "load_state_dict needs what opt.state_dict() returns, a dict with 'state' and "
                f"'param_groups', but was given {shown(state_dict)}"
            )
        self._await_task()
        own = {k: v for k, v in state_dict.items() if k != "paceline"}
        if not self._takes_steps:
            self._saving.load(state_dict)
            own["state"] = {}
        self.optimizer.load_state_dict(own)
        self._share()

    def set_weights(self) -> None:
        """The weights and buffers that the model has now become the server's: after
        `model.load_state_dict(…)` or a change in place. Call it in all ranks that have changed them;
        those of rank 0 count. Momentum and moments stay. Results that other ranks are computing are
        applied to the new weights. Raises UsageError under methods with local steps.

        >>> opt = example()
        >>> opt.model.load_state_dict(torch.nn.Linear(2, 1).state_dict())
        <All keys matched successfully>
        >>> opt.set_weights()
        >>> opt.close()"""
        if not self._sends_gradients:
            raise UsageError(
                f"set_weights() needs a method that sends gradients, but {self._method} takes local "
                "steps in every worker; change weights before paceline.torch.Optimizer is made"
            )
        self._await_task()
        self._vector.check()
        self._saving.send_weights()
        self._vector.accept()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients: inside, `step` sends nothing and `zero_grad` clears nothing.

        >>> opt = example()
        >>> with opt.no_sync():
        ...     (opt.model(torch.ones(4, 2)).square().mean() / 2).backward()
        >>> (opt.model(torch.zeros(4, 2)).square().mean() / 2).backward()
        >>> opt.step()  # of both mini-batches
        >>> opt.version
        1
        >>> opt.close()"""
        before, self._accumulating = self._accumulating, True
        self._vector.pause(True)
        try:
            yield
        finally:
            self._accumulating = before
            self._vector.pause(before)

    # --- abandoning ----------------------------------------------------------------------------

    def _look(self) -> None:
        self._await_task()
        if self._in_task and not self._stays and self._session.cancelled():
            raise Abandoned

    @contextlib.contextmanager
    def task(self) -> Iterator[None]:
        """Encloses the computation of one result. If the server cancels the task, the computation
        stops at the next module (forward) or parameter (backward), and the block is left.

            for x, y in opt.batches(loader):
                with opt.task():
                    opt.zero_grad(); loss = loss_fn(model(x), y); loss.backward(); opt.step(loss)

        Without it, a cancelled task is computed to its end and abandoned by `step`."""
        if not self._hooks and not self.ended:
            self._hooks = hook(self.model, self._vector.params, self._look)
        self._in_task = True
        try:
            yield
        except Abandoned:
            self._in_task = False
            self._check()
            self._abandon()
        finally:
            self._in_task = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Encloses what is no part of a task, such as an evaluation that the script makes itself.
        `evict=` does not count this time, unless it is half an hour. `evaluate=` and `reference=` need
        no such block.

        >>> opt = example()
        >>> with opt.paused():
        ...     outputs = opt.model(torch.ones(4, 2))
        >>> opt.close()"""
        self._await_task()
        with self._session.pausing():
            yield

    # --- the run -------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Asks the server for a checkpoint, as soon as possible."""
        self._session.checkpoint()

    def close(self) -> None:
        """Leaves the run. On rank 0 it also waits until the run has ended, and gives the model its
        final weights; if the run has no limit of its own, it ends now. Then it raises RunError if
        the run has failed: it diverged, or every worker left before its limit. On another rank, the
        model has the final weights if the run has ended, or RunError says that they did not come; a
        rank that closes before keeps the weights that it has. All ranks of a process group close
        together."""
        ended = self.ended
        self._release()
        lost = len(self._losses) if self._local and not ended else 0
        if lost:
            warnings.warn(
                f"{lost} local steps since the last result are not in the model",
                RuntimeWarning,
                stacklevel=2,
            )
        try:
            self._session.close()
        finally:
            if not ended:
                self._session.share()
        result = self._session.result
        if lost and result and not result["run"]["updates"]:
            raise RunError(
                f"the run has ended without an update, although this rank took {lost} steps"
            )

    def _release(self) -> None:
        """Nothing of this object is left at the model."""
        self._dropped.detach()
        hooks, self._hooks = self._hooks, []
        for handle in hooks:
            handle.remove()

    def batches(self, loader: Any, epochs: Optional[int] = None) -> Iterator[Any]:
        """The mini-batches of `loader`, pass after pass, until the run ends or `epochs` passes are
        over.

        A run without a limit of its own gets one pass unless `epochs` is given. The passes of a
        DistributedSampler are numbered by `set_epoch`, from the epoch that the program has set last
        or, if it has set none, from 0 (after a resume: the number of updates by the length of the
        loader, unless the program has set an epoch other than 0). Workers may have loaders of
        different lengths. Raises RunError on rank 0 if the run has failed: it diverged, or ended
        early."""
        return self._passes.over(loader, epochs, self._count_samples)

    @property
    def rank(self) -> int:
        """The rank of this process: 0 to `world_size` - 1. Rank 0 starts the server."""
        return self.run.rank

    @property
    def world_size(self) -> int:
        """How many workers were started together."""
        return self.run.world_size

    def summary(self) -> Dict[str, Any]:
        """What this worker did; see `Run.summary`."""
        return self.run.summary()

    def __enter__(self) -> "Optimizer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._release()
            self._session.abort()

    def __repr__(self) -> str:
        return f"paceline.torch.Optimizer({self.optimizer!r}, run={self.run!r})"
