"""Trains a model of PyTorch with any method of Paceline, by wrapping its optimizer.

    import paceline.torch as pl

    opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model,
                       method="gap-aware", updates=400)
    for x, y in pl.batches(loader):
        opt.zero_grad(); loss = loss_fn(model(x), y); loss.backward(); opt.step(loss)
    opt.close()

Start the script with `paceline launch -n 8 -- python3 train.py`, torchrun, mpirun or srun. Rank 0
starts the server, a process of its own. docs/from-ddp.md explains the interface."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

from . import _client, _roles, _server
from ._inner import Inner
from ._roles import Role
from ._translate import Columns, columns, refuse_plain, rule
from ._vector import Vector
from .errors import Error, FileError, RunEnded, RunError, UsageError

__all__ = [
    "Abandoned",
    "Optimizer",
    "Role",
    "RunEnded",
    "batches",
    "evaluate",
    "options",
    "rank",
    "world_size",
]

_STARTED = time.time()
_LIMITS = ("updates", "time", "epochs", "target_loss", "target_accuracy")
_NO_LIMIT = 10**15  # updates
_SLICE = 0.25  # seconds after which a wait looks at signals and at the server
_WAIT = 60.0  # seconds that the other ranks wait for rank 0

_current: Optional["Optimizer"] = None  # the last one that was made, for batches


class Abandoned(Exception):
    """Raised inside `with opt.task():`, which catches it: the task is no longer wanted."""


def rank() -> int:
    """The rank of this process: 0 to `world_size()` - 1. Rank 0 starts the server."""
    return _current.role.rank if _current else _roles.find().rank


def world_size() -> int:
    """How many workers were started together."""
    return _current.role.world_size if _current else _roles.find().world_size


def options(optimizer: torch.optim.Optimizer, method: Optional[str] = None, **more: Any) -> Dict[str, Any]:
    """The options of a run that stand for an optimizer: "lr", "optim" and "weight_decay", for
    `paceline.simulate`. Raises UsageError if the method cannot have it. Simulated workers with
    local steps take those of plain SGD."""
    given = dict(more, method=method) if method else dict(more)
    at = columns(given)
    made = rule(optimizer, at, given)
    if not at.sends_gradients and not at.takes_steps:
        refuse_plain(optimizer, at, 0)
    if at.takes_steps:
        made.options = {"lr": made.lr}
    if any(f != 1 for f in made.lr_factor + made.decay_factor):
        raise UsageError("a simulation has one param group; give every parameter the same lr")
    return dict(made.options)


class Optimizer(torch.optim.Optimizer):
    """An optimizer of PyTorch whose steps are those of a run with many workers.

    `method` and all other options are those of `paceline train`, for example `updates=400` or
    `checkpoint="ck"`; those of rank 0 count. If the method sends gradients, the hyper-parameters
    of `optimizer` become the rule of the server. If it takes local steps, `optimizer` takes them
    in every worker. Without updates, time or a target, the run ends when rank 0 closes.

    The model gets the weights of rank 0 here, and the server's after every step. Its buffers (the
    statistics of BatchNorm) are averaged over the results behind every update.

    `evaluate(model)` is called on rank 0 from time to time (`eval_every`), with the newest weights
    in the model, and returns the test loss or a dict of numbers, such as {"test_loss": 0.3,
    "test_accuracy": 0.91}. `zero_copy` makes the parameters read-only views of shared memory
    instead of copies: an operation that changes one in place ends the process. `role` replaces what
    the environment says."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        method: Optional[str] = None,
        *,
        evaluate: Optional[Callable[[torch.nn.Module], Any]] = None,
        zero_copy: bool = False,
        role: Optional[Role] = None,
        **options: Any,
    ) -> None:
        self._opened = False
        if isinstance(optimizer, Optimizer) or not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError("optimizer must be one of torch.optim")
        self.optimizer, self.model = optimizer, model
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self._share()
        self.role = role or _roles.find(workers=int(options.get("workers") or 1))
        self.ended = False
        self.version = 0  # of the weights in the model: the number of updates
        self._client: Optional[_client.Client] = None
        self._server: Optional[_server.Server] = None
        self._evaluator: Optional[_Evaluator] = None
        self._evaluate = evaluate
        self._accumulating = self._in_task = self._hooked = False
        self._samples = 0
        self._counts = {"steps": 0, "results": 0, "abandoned": 0, "waited": 0.0}
        self._losses: List[float] = []
        self._result: Optional[Dict[str, Any]] = None

        if method is not None:
            options["method"] = method
        self._limited = any(options.get(name) for name in _LIMITS)
        at = columns(options)
        made = rule(optimizer, at, options)
        self._groups = [[id(p) for p in g["params"]] for g in self.param_groups]
        self._vector = Vector(model, {i for g in self._groups for i in g}, zero_copy)
        if not at.sends_gradients and not at.takes_steps:
            refuse_plain(optimizer, at, len(self._vector.buffers))
        if zero_copy and at.takes_steps:
            raise UsageError("zero_copy needs a method that sends gradients; steps are in place")
        self._factor = made.lr_factor
        self._sent_rate: Any = made.lr or None
        self._local = at.takes_steps
        try:
            self._open(at, made, options)
        except BaseException:
            self._abort()
            raise
        self._opened = True
        global _current
        _current = self
        atexit.register(self._at_exit)

    # --- joining -------------------------------------------------------------------------------

    def _layout(self, made: Any) -> str:
        """The lines of "layout": factors of param groups, what is frozen, buffers."""
        v, lines = self._vector, []
        group = {i: n for n, ids in enumerate(self._groups) for i in ids}
        for name, p, trained in zip(v.names, v.params, v.trained):
            lr = made.lr_factor[group[id(p)]] if trained else 0.0
            decay = made.decay_factor[group[id(p)]] if trained else 0.0
            if not self._local and (lr != 1 or decay != 1):
                lines.append(f"{name} lr={lr!r} decay={decay!r}")
        lines += [f"{name} buffer=yes" for name in v.names[len(v.params) :]]
        return "\n".join(lines)

    def _open(self, at: Columns, made: Any, options: Dict[str, Any]) -> None:
        role, v = self.role, self._vector
        tensors, kept = v.describe()
        if role.rank == 0:
            all_options = dict(options, **made.options)
            all_options.update(model="external", workers=role.world_size, listen=role.socket)
            all_options.update(spawn="none", transport="shm")
            if not self._limited:
                all_options["updates"] = _NO_LIMIT
            _server.clean(role.folder)
            if not _resumes(options):
                all_options["init"] = os.path.join(role.folder, "init.safetensors")
                tensors.save(all_options["init"], self._layout(made))
                if options.get("resume") == "auto":
                    del all_options["resume"]
            self._server = _server.Server(role.folder, all_options)
        del kept
        seat = dict(
            dim=v.dim,
            fingerprint=tensors.fingerprint(),
            rules=at.local if self._local else "gradient",
        )
        self._client = self._join(**seat)
        if role.rank == 0 and self._evaluate:
            self._evaluator = _Evaluator(self._join(role=_client.EVALUATOR))
        if self._local:
            self._inner = Inner(at.local, at.local_options, role.world_size, v)
            self._steps_left = 0
        self._pull()

    def _join(self, **seat: Any) -> _client.Client:
        """Opens a seat as soon as the server is there."""
        end = time.monotonic() + _WAIT
        while True:
            try:
                return _client.Client(self.role.socket, wait=_SLICE, **seat)
            except FileError:
                if self._server and not self._server.alive:
                    self._server.finish()
                    raise RunError("the server ended before the run began") from None
                if self.role.rank > 0:
                    failed = _server.failure(self.role.folder, _STARTED)
                    if failed:
                        raise RunError(f"rank 0 could not start the run: {failed}") from None
                if time.monotonic() > end:
                    raise

    # --- tasks ---------------------------------------------------------------------------------

    def _pull(self) -> None:
        """Waits for the next task, and gives the model its weights."""
        client = self._client
        assert client is not None
        begin = time.monotonic()
        while True:
            try:
                got = client.pull(_SLICE)
            except RunError:
                self._lost()
                raise
            if got is not False:
                break
            # the server tells workers about the end once the last version is evaluated
            if self._evaluator and self._evaluator.ready(0):
                self._score(self._evaluator)
        self._counts["waited"] += time.monotonic() - begin
        if got is None:
            self._finish()
            return
        task = client.task
        self.version = int(task.version)
        if self._evaluator and self._evaluator.ready(0):
            self._score(self._evaluator)
        if self._local:
            self._inner.begin(task)
            self._steps_left = max(1, int(task.steps))
            self._losses.clear()
            self._samples = 0
        else:
            self._vector.load(task.w)

    def _lost(self) -> None:
        """The server is gone: rank 0 knows more about it."""
        self._leave()
        if self._server:
            server, self._server = self._server, None
            self.ended = True
            try:
                server.finish(timeout=5)
            finally:
                server.remove()

    def _rate(self) -> float:
        """The learning rate of the run, from those of the param groups."""
        groups = [(float(g["lr"]), f) for g, f in zip(self.param_groups, self._factor)]
        base = next((lr / f for lr, f in groups if f > 0), 0.0)
        if any(abs(lr - f * base) > 1e-6 * (abs(lr) + f * base) for lr, f in groups):
            raise UsageError(
                "the learning rates of the param groups have changed in relation to each other, "
                "but the server has constant factors; use a method with local steps (local-sgd, "
                "diloco, easgd, …)"
            )
        return base

    def _check(self) -> None:
        groups = [[id(p) for p in g["params"]] for g in self.param_groups]
        if groups != self._groups:
            raise UsageError(
                "the parameters of the optimizer have changed since the run began; make a new "
                "paceline.torch.Optimizer after close()"
            )
        self._vector.check()

    def step(self, loss: Any = None, samples: int = 0) -> None:  # type: ignore[override]
        """Sends what was computed, and waits for the next weights.

        `loss` is the mean loss of the mini-batch, a tensor or a number; unknown if left out.
        `samples` is the size of the mini-batch; `batches` fills it in. Does nothing inside
        `no_sync()`. Raises RunEnded if the run had ended before."""
        if callable(loss) and not isinstance(loss, torch.Tensor):
            raise UsageError(
                "step() takes the loss, not a closure: call loss.backward(), then step(loss)"
            )
        if self._accumulating:
            return
        if self.ended or self._client is None:
            raise RunEnded("the run has ended; check opt.ended, or loop over paceline.torch.batches")
        self._check()
        self._counts["steps"] += 1
        value = math.nan if loss is None else float(getattr(loss, "detach", lambda: loss)())
        if self._client.cancelled():
            self._abandon()
        elif self._local:
            self._local_step(value, samples)
        else:
            self._send_gradient(value, samples)

    def _send_gradient(self, loss: float, samples: int) -> None:
        client = self._client
        assert client is not None
        if self.role.rank == 0:
            rate = self._rate()
            if rate != self._sent_rate:
                client.set_lr(rate)
                self._sent_rate = rate
        self._vector.write_gradient(client.task.out)
        self._push(samples or self._samples, loss)

    def _local_step(self, loss: float, samples: int) -> None:
        client = self._client
        assert client is not None
        self.optimizer.step()
        self._inner.stepped()
        self._losses.append(loss)
        self._samples += samples
        self._steps_left -= 1
        if self._steps_left == 0:
            self._inner.result(client.task)
            self._push(self._samples, sum(self._losses) / len(self._losses))

    def _push(self, samples: int, loss: float) -> None:
        client = self._client
        assert client is not None
        if math.isinf(loss):
            loss = math.nan
        client.push(self._vector.dim, samples, loss)
        self._counts["results"] += 1
        self._pull()

    def _abandon(self) -> None:
        self._counts["abandoned"] += 1
        self._pull()

    # --- what a torch.optim.Optimizer has ------------------------------------------------------

    def _share(self) -> None:
        """Both have the same groups and state, so schedulers may use either."""
        self.param_groups = self.optimizer.param_groups
        self.state = self.optimizer.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, except inside `no_sync()`."""
        if not self._accumulating:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: Any) -> None:
        if self._opened:
            raise UsageError(
                "param groups cannot be added to a run; make a new paceline.torch.Optimizer"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> Dict[str, Any]:
        """The state of the wrapped optimizer, and the version of the weights. The state of the
        server's rule is in its checkpoints (`checkpoint=`)."""
        return dict(self.optimizer.state_dict(), paceline={"version": self.version})

    def load_state_dict(self, state_dict: Any) -> None:
        own = {k: v for k, v in state_dict.items() if k != "paceline"}
        self.optimizer.load_state_dict(own)
        self._share()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients: `step` and `zero_grad` do nothing inside."""
        before, self._accumulating = self._accumulating, True
        try:
            yield
        finally:
            self._accumulating = before

    # --- abandoning ----------------------------------------------------------------------------

    def _look(self, *_: Any) -> None:
        if self._in_task and self._client is not None and self._client.cancelled():
            raise Abandoned

    @contextlib.contextmanager
    def task(self) -> Iterator[None]:
        """Around the computation of one result: if the server cancels the task, the computation
        stops at the next module (forward) or parameter (backward), and the block is left.

            for x, y in pl.batches(loader):
                with opt.task():
                    opt.zero_grad(); loss = loss_fn(model(x), y); loss.backward(); opt.step(loss)

        Without it, a cancelled task is computed to its end and abandoned by `step`."""
        if not self._hooked:
            self._hooked = True
            for module in self.model.modules():
                module.register_forward_pre_hook(self._look)
            for p in self._vector.params:
                if p.requires_grad:
                    p.register_hook(self._look)
        self._in_task = True
        try:
            yield
        except Abandoned:
            self._in_task = False
            self._abandon()
        finally:
            self._in_task = False

    # --- evaluating ----------------------------------------------------------------------------

    def _score(self, evaluator: "_Evaluator") -> None:
        assert self._evaluate is not None
        self._vector.load(evaluator.seat.task.w)
        _report(evaluator.seat, _call(self._evaluate, self.model))
        evaluator.go_on()

    def checkpoint(self) -> None:
        """Asks the server for a checkpoint, as soon as possible."""
        if self._client is not None:
            self._client.checkpoint()

    # --- ending --------------------------------------------------------------------------------

    def _leave(self) -> None:
        client, self._client = self._client, None
        self.ended = True
        self._vector.release()
        if client is not None:
            client.close()

    def _finish(self) -> None:
        """The run has ended, or this worker leaves it. Rank 0 gets the final weights."""
        self._leave()
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            end = time.monotonic() + 600  # the server waits no longer
            while self._server and self._server.alive and not evaluator.ended:
                if evaluator.ready(_SLICE):
                    self._score(evaluator)
                if time.monotonic() > end:
                    break
            self._vector.release()
            evaluator.close()
        server, self._server = self._server, None
        if server is None:
            return
        try:
            self._result = server.finish()
            self._load_final(server.weights)
        finally:
            server.remove()

    def _load_final(self, path: str) -> None:
        with contextlib.suppress(OSError):
            with open(path, "rb") as f:
                data = bytearray(f.read())
            if len(data) == 4 * self._vector.dim:
                self._vector.load_tensor(torch.frombuffer(data, dtype=torch.float32))
                self.version = int(self._result["run"]["updates"]) if self._result else self.version

    def _abort(self) -> None:
        """Something failed: nothing of the run is left, and the other ranks hear why."""
        failure = sys.exc_info()[1]
        if getattr(self, "_evaluator", None):
            self._evaluator.close()  # type: ignore[union-attr]
            self._evaluator = None
        if hasattr(self, "_vector"):
            self._leave()
        server, self._server = getattr(self, "_server", None), None
        if server is not None:
            server.kill()
            if self._opened or self.role.world_size == 1:
                server.remove()
            else:
                server.report(str(failure) or type(failure).__name__)

    def close(self) -> None:
        """Leaves the run. On rank 0 it also waits until the run has ended, and gives the model its
        final weights; if the run has no limit of its own, it ends now."""
        atexit.unregister(self._at_exit)
        if self._client is not None and self._server is not None and not self._limited:
            with contextlib.suppress(RunError):
                self._client.end()
        if not self.ended:
            self._finish()

    def _at_exit(self) -> None:
        failure = getattr(sys, "last_value", None)
        if failure is None or isinstance(failure, KeyboardInterrupt):
            if failure is not None and self._client is not None and self._server is not None:
                with contextlib.suppress(Error):
                    self._client.end()
            with contextlib.suppress(Error):
                self.close()
        else:
            self._abort()

    def summary(self) -> Dict[str, Any]:
        """What happened: "steps", "results", "abandoned" tasks and seconds "waited" of this worker;
        on rank 0, once the run has ended, also "run", the object that `paceline train --json`
        prints, "method", and "trouble", why it ended early."""
        out: Dict[str, Any] = dict(self._counts, rank=self.role.rank, version=self.version)
        if self._result:
            out["run"] = self._result["run"]
            out.update(self._result["texts"])
        return out

    def __enter__(self) -> "Optimizer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            atexit.unregister(self._at_exit)
            self._abort()

    def __repr__(self) -> str:
        return f"paceline.torch.Optimizer({self.optimizer!r}, rank {self.role.rank})"


def _resumes(options: Dict[str, Any]) -> bool:
    """Whether the run continues from a checkpoint, which has the weights."""
    resume = options.get("resume")
    if resume != "auto":
        return bool(resume)
    folder = str(options.get("checkpoint") or "")
    return os.path.isdir(folder) and any(n.endswith(".safetensors") for n in os.listdir(folder))


# --- evaluators -------------------------------------------------------------------------------------


class _Evaluator:
    """The evaluator's seat on rank 0. A thread waits for versions, because a question to the server
    takes a while; the model is evaluated by the worker's thread, between two tasks."""

    def __init__(self, seat: _client.Client) -> None:
        self.seat = seat
        self.ended = False
        self._ready, self._free = threading.Event(), threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        with contextlib.suppress(Error):
            while not self._closing:
                got = self.seat.pull(_SLICE)
                if got is None:
                    break
                if got:
                    self._free.clear()
                    self._ready.set()
                    self._free.wait()
        self.ended = True
        self._ready.set()

    def ready(self, seconds: float) -> bool:
        """Whether there is a version to be evaluated, which the thread then leaves alone."""
        return self._ready.wait(seconds) and not self.ended

    def go_on(self) -> None:
        self._ready.clear()
        self._free.set()

    def close(self) -> None:
        self._closing = True
        self.go_on()
        self._thread.join()
        self.seat.close()


def _call(function: Callable[[torch.nn.Module], Any], model: torch.nn.Module) -> Any:
    """Calls it with the model in evaluation mode."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return function(model)
    finally:
        for m, training in modes:
            m.training = training


def _report(seat: _client.Client, numbers: Any) -> None:
    if not isinstance(numbers, dict):
        numbers = {"test_loss": numbers}
    for name, value in numbers.items():
        seat.report(name, float(value))
    seat.push(0, 0, math.nan)


def evaluate(
    model: torch.nn.Module,
    function: Callable[[torch.nn.Module], Any],
    *,
    role: Optional[Role] = None,
    wait: float = _WAIT,
) -> int:
    """Evaluates a run in a process of its own, until the run ends. Returns how often.

    `function(model)` returns the test loss or a dict of numbers. The process is not one of the
    ranks: start it with the variable PACELINE of a worker."""
    vector = Vector(model, set())
    tensors, _ = vector.describe()
    role = role or _roles.find()
    seat = _client.Client(
        role.socket,
        role=_client.EVALUATOR,
        wait=wait,
        dim=vector.dim,
        fingerprint=tensors.fingerprint(),
    )
    times = 0
    try:
        while True:
            got = seat.pull(_SLICE)
            if got is None:
                return times
            if got:
                vector.load(seat.task.w)
                _report(seat, _call(function, model))
                times += 1
    finally:
        vector.release()
        seat.close()


# --- data -------------------------------------------------------------------------------------------


def _length(batch: Any) -> int:
    """The number of samples in a mini-batch: the length of its first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        batch = batch[0] if batch else None
    return len(batch) if isinstance(batch, torch.Tensor) and batch.dim() > 0 else 0


def batches(loader: Any, epochs: Optional[int] = None) -> Iterator[Any]:
    """The mini-batches of `loader`, pass after pass, until the run ends or `epochs` passes are over.

    A run without a limit of its own gets one pass unless `epochs` is given. `set_epoch` of a
    DistributedSampler is called before every pass; after a resume it continues where it was, by the
    number of updates. Workers may have loaders of different lengths."""
    opt = _current
    if opt is None:
        raise UsageError("paceline.torch.batches needs a paceline.torch.Optimizer made before")
    if epochs is None and not opt._limited:
        epochs = 1
    first = opt.version // max(1, len(loader)) if hasattr(loader, "__len__") else 0
    sampler = getattr(loader, "sampler", None)
    done = 0
    while not opt.ended and (epochs is None or done < epochs):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(first + done)
        any_batch = False
        for batch in loader:
            any_batch = True
            opt._samples = _length(batch) if not opt._local else opt._samples + _length(batch)
            yield batch
            if opt.ended:
                return
        if not any_batch:
            raise UsageError("the loader is empty, so this worker has nothing to compute")
        done += 1
