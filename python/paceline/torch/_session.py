"""One worker's seat in a run, from joining to leaving; on rank 0 also the server and its evaluator.

Every wait looks at signals and at the server from time to time, so a run that is gone ends in one
exception and not in a hang."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import secrets
import sys
import time
import warnings
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from .. import _client, _keys, _server
from .._client import SLICE, STEPS, WAIT, patience
from .._interrupts import tell_briefly
from .._roles import Role, joined
from ..errors import Cancelled, Error, FileError, RunEnded, RunError, UsageError
from . import _sigterm
from ._agreement import agree, told
from ._begin import begin
from ._evaluator import Evaluator, Function
from ._reference import Reference
from ._vector import Vector

__all__ = ["Session", "is_limited"]

_STARTED = time.time()
_LIMITS = ("updates", "time", "epochs", "target_loss", "target_accuracy")
_NO_LIMIT = 10**15  # updates
_LAST_SCORES = 600  # seconds for which the server waits for the last evaluation, at most
_GRACE = 8  # seconds in which a run that failed writes its checkpoint
_ALONE = 20  # seconds without any worker after which the run ends, unless one joins again
_OWNER = "--requests TOKEN, and one worker with PACELINE_TOKEN=TOKEN in its environment"
_EVICT = 1800  # seconds without a result after which a worker is frozen, as for torch.distributed


def is_limited(options: Dict[str, Any]) -> bool:
    """Whether the run has a limit of its own."""
    return any(options.get(name) for name in _LIMITS)


def _resumes(options: Dict[str, Any]) -> bool:
    """Whether the run continues from a checkpoint, which has the weights."""
    resume = options.get("resume")
    if resume != "auto":
        return bool(resume)
    folder = str(options.get("checkpoint") or "")
    if not folder:
        raise UsageError("resume='auto' needs checkpoint=, the folder to continue from")
    return os.path.isdir(folder) and any(n.endswith(".safetensors") for n in os.listdir(folder))


class Session:
    """A worker's seat in the run. Open it inside `with session.opening():`."""

    def __init__(self, role: Role, vector: Vector) -> None:
        self.role, self._vector = role, vector
        self._pid = os.getpid()
        self._follows = role.rank < 0  # its rank is what the server says
        self.limited = False  # the run has a limit of its own
        self.ended = False
        self.batches = 1  # per task
        self.may_lack = False  # results may lack tensors
        self.version = 0  # of the weights in the model: the number of updates
        self.waited = 0.0  # seconds for tasks
        self.counts = {"steps": 0, "results": 0, "abandoned": 0}
        self.result: Optional[Dict[str, Any]] = None  # of the run, on rank 0, once it has ended
        self.failure: Optional[str] = None  # why the run failed, or has no final weights
        self.resumed = False  # the run continues from a checkpoint of the server; known to rank 0
        self.reference: Optional[Reference] = None  # on rank 0
        self.on_end: Any = None  # called with the summary of the run, on rank 0
        self._last_state: Any = None  # of the server's optimizer, once the run has ended
        self.server: Optional[_server.Server] = None
        self._client: Optional[_client.Client] = None
        self._evaluator: Optional[Evaluator] = None
        self._opened = False
        # what the server asks of who may change the run
        self._token: Optional[str] = role.token or None
        self.owns = self.role.serves  # this process may change it
        self.requests = "rank 0"  # or who else may: "token", "any", "none"
        self._warned = False
        self._pauses = 0
        self._spoiled: Optional[str] = None  # a buffer that made a result useless

    @property
    def client(self) -> _client.Client:
        """The seat; there is one until the run has ended."""
        assert self._client is not None
        return self._client

    # --- joining -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Whatever fails inside ends the run, and the other ranks hear why."""
        try:
            yield
        except BaseException:
            self.abort()
            raise
        self._opened = True
        tell_briefly()
        atexit.register(self._at_exit)

    def open(self, options: Dict[str, Any], layout: str, steps: bool) -> None:
        """Joins the run; rank 0 starts its server first, with these options. `layout` is what the
        server has to know about single tensors; `steps`: this worker's optimizer takes local steps.
        """
        self.limited = is_limited(options)
        tensors, kept = self._vector.describe()
        if self.role.init:
            unlimited = {} if self.limited else {"updates": "N"}
            begin(self.role.init, {"evict": _EVICT, **options, **unlimited}, tensors, layout)
        if self.role.serves:
            self._serve(options, tensors, layout, steps)
        self.role = _keys.found(self.role)
        del kept
        claims = self._follows and bool(self._token)
        self._client = self._join(
            dim=self._vector.dim,
            fingerprint=tensors.fingerprint(),
            steps=steps,
            token=self._token if self.role.serves or claims else None,
            shares=not self.role.elsewhere and not self.role.serves,
            number=self.role.rank + 1,
            checks=True,
        )
        joined(self.role)
        _sigterm.watch(self)
        if self.role.elsewhere:
            self.requests = str(self._client.server.get("requests", "token"))
            self.owns = claims and self.requests != "rank 0"
        if self._follows:
            workers = int(self._client.server["workers"])
            self.role = replace(self.role, world_size=workers)
        if not self.role.serves:
            of_rank_0 = {} if self.role.elsewhere else _server.given(self.role.socket)
            agree(options, str(self._client.server["method"]), of_rank_0, self._follows)
        self.batches = int(self._client.server["batches_per_task"])
        self.may_lack = bool(self._client.server["tensors"])

    def add_evaluator(self, model: torch.nn.Module, function: Function, on_point: Any) -> None:
        """From now on, the process that owns the run calls `function(model)` between two tasks, with
        versions of the model, and then `on_point`, unless it is None."""
        if not self.owns or self.role.over_mpi:
            if self.requests == "none" and not self.role.over_mpi:
                warnings.warn(
                    f"evaluate= is not called, because the server takes no requests; start it with {_OWNER}",
                    stacklevel=3,
                )
            return
        seat = self._join(role=_client.EVALUATOR, token=self._token)
        self._evaluator = Evaluator(seat, self._vector, model, function, on_point)

    def _serve(
        self, options: Dict[str, Any], tensors: _client.Tensors, layout: str, steps: bool
    ) -> None:
        role = self.role
        served = dict(options, model="external", workers=role.world_size, listen=role.socket)
        served.update(spawn="none", transport="shm", worker_names="rank")
        if role.listen:
            served.update(listen=f"{role.socket},{role.listen}")
            served.update(keys=_keys.folder(role))
        if role.job:
            served["job"] = role.job
        if not steps:
            served["exchange"] = _server.HERE
        if served.get("wait") is None:
            served["wait"] = _ALONE
        # what a worker does between two results is its own business
        if served.get("evict") is None:
            served["evict"] = _EVICT
        asked = served.setdefault("requests", self._token or secrets.token_hex(16))
        if asked == "none":
            raise UsageError("requests='none': rank 0 must be able to end the run; leave it out")
        self._token = None if asked == "any" else str(asked)
        if not self.limited:
            served["updates"] = _NO_LIMIT
        save = None
        self.resumed = _resumes(options)
        if not self.resumed:
            save = functools.partial(tensors.save, layout=layout)
            if options.get("resume") == "auto":
                del served["resume"]
        self.server = _server.Server(role.socket, served, save, self._token or "any", told(options))
        _sigterm.watch(self)

    def _join(self, shares: bool = False, **seat: Any) -> _client.Client:
        """Opens a seat as soon as the server is there; `shares`: with the token of rank 0."""
        end = time.monotonic() + WAIT
        while True:
            keys = _keys.folder(self.role) if self.role.elsewhere else None
            if shares:
                seat["token"] = _server.token(self.role.socket)
            try:
                at, wait = self.role.socket, patience(self.role.socket)
                return _client.Client(at, wait=wait, keys=keys, job=self.role.job, **seat)
            except FileError:
                pass  # it is not there yet
            except UsageError:  # such as a server that is not trusted
                if not self.role.elsewhere or not _keys.renewed(self.role):
                    raise
            if self.server and not self.server.alive:
                self.server.finish()
                raise RunError("the server ended before the run began")
            self._raise_reason()
            if time.monotonic() > end:
                raise FileError(
                    f"no server has listened at '{self.role.socket}' for {WAIT:g} s"
                    + ("" if self.role.elsewhere else "; rank 0 starts it, on this machine")
                )

    def _raise_reason(self) -> None:
        """Raises what was told about the failure of rank 0."""
        failed = None if self.role.serves else _server.failure(self.role.socket, _STARTED)
        if failed:
            raise RunError(failed) from None

    # --- tasks ---------------------------------------------------------------------------------

    def pull(self) -> Optional[Any]:
        """Waits for the next task, whose weights the model then has; None if the run has ended.
        Versions are evaluated meanwhile."""
        begin = time.monotonic()
        while True:
            try:
                got = self.client.pull(SLICE)
            except RunError:
                self._lost()
                self._raise_reason()
                raise
            if got is not False:
                break
            # the server tells workers about the end once the last version is evaluated
            self._evaluate()
        self.waited += time.monotonic() - begin
        if got is None:
            self._take_final()
            self._finish(over=True)
            self._raise_reason()
            return None
        self.version = int(self.client.task.version)
        if (
            self.role.job
            and not self._opened
            and not self.role.restarted
            and self.client.task.worker != self.role.rank
        ):
            raise RunError(
                f"rank {self.role.rank} has joined the run at '{self.role.socket}' before, as "
                "another process; if two jobs were started by hand, give each a MASTER_PORT of its "
                "own"
            )
        if self._follows:  # it may have joined again, with another number
            self.role = replace(self.role, rank=int(self.client.task.worker))
        self._evaluate()
        task = self.client.task
        if self.reference and self.reference.is_due(self.version):
            with self.pausing():
                self._vector.load(task.w)  # and again below, because it may change buffers
                self._give(self.reference.compute(self.version))
        self._vector.load(task.w)
        self._vector.expect(None if task.wants == STEPS else task.out)
        return task

    def _take_final(self) -> None:
        """The weights that the run ended with come with its end. Rank 0 gets them from its server."""
        task = self.client.task
        if task.w:
            self._vector.load(task.w)
            self.version = int(task.version)
        elif not self.role.serves:
            self.failure = "the server has sent no final weights"

    def _evaluate(self) -> None:
        """Evaluates the next version if there is one, which is no part of the current task."""
        if self._evaluator and self._evaluator.has_version:
            with self.pausing():
                self._evaluator.look()

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """The server does not count this time for the task of this worker (evict=)."""
        self._pauses += 1
        if self._pauses == 1:
            self._pause(True)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._pause(False)

    def _pause(self, yes: bool) -> None:
        if self._client is None:
            return
        try:
            with contextlib.suppress(RunError):  # the next task tells that the run is gone
                self._client.pause(yes)
        except UsageError:
            if yes:
                warnings.warn(
                    "the server takes no requests from this worker, so evict= counts the time of "
                    "paused(); give it PACELINE_TOKEN, the token of the server's --requests",
                    stacklevel=6,  # the script
                )

    def push(self, samples: int, loss: float, absent: Optional[bytes] = None) -> None:
        """Sends what was written to the task's `out`, without the tensors that are absent. An infinite
        loss tells that it is not finite."""
        self.client.push(self._vector.dim, samples, loss, absent)

    def spoils(self, buffer: Optional[str]) -> None:
        """The result that comes next has this buffer, which is not finite; None: no buffer is to blame."""
        if buffer is not None and self._spoiled is None:
            self._spoiled = buffer
            warnings.warn(
                f"buffer '{buffer}' has values that are not finite, so the server cannot use this result",
                RuntimeWarning,
                stacklevel=5,  # the script
            )

    def cancelled(self) -> bool:
        """Whether the current task is no longer wanted."""
        return self._client is not None and self._client.cancelled()

    def hung_up(self) -> bool:
        """Whether the server has given up this worker, as after evict=; the next pull joins again."""
        return self._client is not None and self._client.hung_up()

    def settle(self, samples: int, loss: float) -> Tuple[int, float, bool]:
        """The samples and the loss of a step, and whether its task is no longer wanted."""
        return samples, loss, self.cancelled()

    def share(self) -> None:
        """All ranks of a process group get the weights that its first rank has."""

    def checkpoint(self) -> None:
        if self._client is not None:
            if not self.owns and self.requests in ("token", "none"):
                raise UsageError(
                    f"this worker may not ask for checkpoints; start the server with {_OWNER}"
                )
            self._client.checkpoint()

    def unsent(self, what: str) -> None:
        """This process has changed something that only the owner of the run can tell the server.
        Raises if the server listens to no process, and warns once if another one may be the owner;
        ranks of a launcher know that rank 0 is."""
        if self.requests == "none":
            raise UsageError(
                f"{what}, but the server takes no requests; start it with {_OWNER}, or with "
                "--lr-schedule and the script without a scheduler"
            )
        if self.requests != "rank 0" and not self._warned:
            self._warned = True
            warnings.warn(
                f"{what}, which this worker does not tell the server, because it has no "
                f"PACELINE_TOKEN; the rates of the worker that has it count (serve {_OWNER})",
                stacklevel=7,  # the script
            )

    # --- the server's weights and state, on rank 0 ----------------------------------------------

    def _request(self, send: Callable[[_client.Client], None]) -> None:
        """Sends a request by the worker's seat or, if that has been left, by the evaluator's."""
        if self._client is None and self._evaluator is not None:
            self._evaluator.request(send)
        else:
            send(self.client)

    def load(self, parts: List[bytes]) -> None:
        """The server takes the parts of a file of State. Raises RunEnded after the run."""
        if self.server is None:
            raise RunEnded("the run has ended, so its weights and state cannot change")
        self.server.load(parts, lambda: self._request(_client.Client.load))

    def _give(self, parts: List[bytes]) -> None:
        """The server takes a gradient, unless the run ends meanwhile, which the next task tells."""
        assert self.server is not None
        try:
            self.server.load(parts, self.client.load, self._evaluate)
        except (Cancelled, RunError):
            if self.server.alive:
                raise

    def state(self) -> Optional[bytearray]:
        """The state of the server's optimizer, now or at the end; None if that is not known."""
        if self.server is not None:
            return self.server.save(lambda: self._request(_client.Client.save))
        return None if self._last_state is None else bytearray(self._last_state)

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self) -> None:
        client, self._client = self._client, None
        self.ended = True
        self._vector.release()
        if client is not None:
            client.close()
        _sigterm.unwatch(self)

    def _lost(self) -> None:
        """The server is gone: rank 0 knows more about it."""
        self._leave()
        if self.server:
            server, self.server = self.server, None
            try:
                server.finish(timeout=5)
            finally:
                server.remove()

    def _finish(self, over: bool) -> None:
        """The run is over, or this worker leaves it. Rank 0 gets the final weights."""
        self._leave()
        evaluator = self._evaluator
        if evaluator is not None:
            end = time.monotonic() + _LAST_SCORES
            while (self.server.alive if self.server else over) and not evaluator.ended:
                evaluator.look(SLICE)
                if time.monotonic() > end:
                    break
            self._evaluator = None
            self._vector.release()
            evaluator.close()
        server, self.server = self.server, None
        if server is None:
            return
        try:
            self.result = server.finish()
            self._last_state = server.last_state()
            self._load_final(self.result, server.weights)
        finally:
            server.remove()
        if self.on_end:
            self.on_end(self.result["run"])

    def _load_final(self, result: Dict[str, Any], path: str) -> None:
        updates = int(result["run"]["updates"])
        if result["has_weights"]:
            with open(path, "rb") as f:
                data = bytearray(f.read())
            self._vector.load_tensor(torch.frombuffer(data, dtype=torch.float32))
            self.version = updates
        self.failure = result["texts"]["trouble"]
        if result["diverged"]:
            buffer = f" (buffer '{self._spoiled}' was not finite)" if self._spoiled else ""
            self.failure = (
                f"the run diverged: {result['run']['diverged']}{buffer}; try a smaller lr"
            )
        elif not result["has_weights"] and not self.failure:
            self.failure = "the server has no final weights"

    def check(self) -> None:
        """Raises if the run has ended and has failed."""
        if self.failure:
            raise RunError(self.failure)

    def _end(self) -> None:
        """The owner asks the server to end the run."""
        if self._client is not None and self.owns:
            with contextlib.suppress(RunError):
                self._client.end()

    @property
    def _ends(self) -> bool:
        """Whether the run ends when its owner leaves."""
        return not self.limited or _sigterm.received()

    def close(self) -> None:
        """Leaves the run; if that has no limit of its own and this is its owner, it ends now. Rank 0
        also waits until it has ended. The model has the final weights if the run has ended."""
        if self._ends:
            self._end()
        if self.server is None and self.cancelled():  # perhaps because the run has ended
            self._look_for_end()
        self._close()

    def _look_for_end(self) -> None:
        with contextlib.suppress(RunError):
            if self.client.pull(SLICE) is None:
                self._take_final()

    def _close(self) -> None:
        atexit.unregister(self._at_exit)
        if not self.ended:
            self._finish(over=self.owns and self._ends)
        self.check()

    def _told(self) -> str:
        """What the other ranks are told about the failure of this one."""
        if _sigterm.received():
            return "rank 0 was terminated"
        e = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if not self._opened:
            return f"rank 0 could not start the run: {e or type(e).__name__}"
        return f"rank 0 failed: {type(e).__name__}: {e}"

    def drop(self) -> None:
        """The program has dropped its optimizer without close(), so it cannot end the run any more."""
        if os.getpid() != self._pid or (self.ended and self.server is None):
            return
        told = "rank 0 has dropped its paceline.torch.Optimizer"
        if self.server is not None:
            warnings.warn(
                f"{told} without close(), so the run ends now", RuntimeWarning, stacklevel=2
            )
        self.abort(told)

    def abort(self, told: Optional[str] = None) -> None:
        """Something failed: the run ends with a checkpoint, if it had begun and has one to write,
        and the other ranks hear why. A forked child has a copy of the object only."""
        atexit.unregister(self._at_exit)
        if os.getpid() != self._pid:
            return
        if self.server is not None and self.role.world_size > 1:
            self.server.report(told or self._told())
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            evaluator.close()
        if self._opened and self.server is not None:  # others go on without their owner
            with contextlib.suppress(Error):
                self._end()
        self._leave()
        server, self.server = self.server, None
        if server is not None:
            with contextlib.suppress(Error):
                if self._opened:
                    server.finish(timeout=_GRACE)
            server.kill()
            server.remove()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        failure = getattr(sys, "last_value", None)
        if _sigterm.received() or not isinstance(failure, (KeyboardInterrupt, type(None))):
            self.abort()
            return
        try:
            if not self.ended and self.limited and self.server is not None and failure is None:
                warnings.warn(
                    "rank 0 exits before the limit of the run, which ends now; opt.close() waits for it",
                    RuntimeWarning,
                    stacklevel=1,
                )
            if self.server is not None:
                self._end()
            self._close()
        except Error as e:
            logging.getLogger("paceline").error("paceline: %s", e)  # there is no caller to tell
