"""One worker's part in a run, from joining to leaving; on rank 0 also the server and its evaluator.

Every wait looks at signals and at the server from time to time, so a run that is gone ends in one
exception and not in a hang."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
from typing import Any, Dict, Iterator, Optional

import torch

from .. import _client, _server
from .._client import SLICE, WAIT
from .._roles import Role
from ..errors import Error, FileError, RunError
from ._evaluator import Evaluator, Function
from ._vector import Vector

__all__ = ["Session"]

_STARTED = time.time()
_LIMITS = ("updates", "time", "epochs", "target_loss", "target_accuracy")
_NO_LIMIT = 10**15  # updates
_LAST_SCORES = 600  # seconds for which the server waits for the last evaluation, at most


def _resumes(options: Dict[str, Any]) -> bool:
    """Whether the run continues from a checkpoint, which has the weights."""
    resume = options.get("resume")
    if resume != "auto":
        return bool(resume)
    folder = str(options.get("checkpoint") or "")
    return os.path.isdir(folder) and any(n.endswith(".safetensors") for n in os.listdir(folder))


class Session:
    """A worker's seat in the run. Open it inside `with session.opening():`."""

    def __init__(self, role: Role, vector: Vector) -> None:
        self.role, self._vector = role, vector
        self.limited = False  # the run has a limit of its own
        self.ended = False
        self.version = 0  # of the weights in the model: the number of updates
        self.waited = 0.0  # seconds for tasks
        self.result: Optional[Dict[str, Any]] = None  # of the run, on rank 0, once it has ended
        self.server: Optional[_server.Server] = None
        self._client: Optional[_client.Client] = None
        self._evaluator: Optional[Evaluator] = None
        self._opened = False

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
        atexit.register(self._at_exit)

    def open(self, options: Dict[str, Any], layout: str, rules: str) -> None:
        """Joins the run; rank 0 starts its server first, with these options. `layout` is what the
        server has to know about single tensors, `rules` the local rules that this worker computes."""
        self.limited = any(options.get(name) for name in _LIMITS)
        tensors, kept = self._vector.describe()
        if self.role.rank == 0:
            self._serve(options, tensors, layout)
        del kept
        self._client = self._join(
            dim=self._vector.dim, fingerprint=tensors.fingerprint(), rules=rules
        )

    def add_evaluator(self, model: torch.nn.Module, function: Function) -> None:
        """From now on, `function(model)` is called between two tasks with versions of the model."""
        seat = self._join(role=_client.EVALUATOR)
        self._evaluator = Evaluator(seat, self._vector, model, function)

    def _serve(self, options: Dict[str, Any], tensors: _client.Tensors, layout: str) -> None:
        role = self.role
        served = dict(options, model="external", workers=role.world_size, listen=role.socket)
        served.update(spawn="none", transport="shm")
        if not self.limited:
            served["updates"] = _NO_LIMIT
        _server.clean(role.folder)
        if not _resumes(options):
            served["init"] = os.path.join(role.folder, "init.safetensors")
            tensors.save(served["init"], layout)
            if options.get("resume") == "auto":
                del served["resume"]
        self.server = _server.Server(role.folder, served)

    def _join(self, **seat: Any) -> _client.Client:
        """Opens a seat as soon as the server is there."""
        end = time.monotonic() + WAIT
        while True:
            try:
                return _client.Client(self.role.socket, wait=SLICE, **seat)
            except FileError:
                if self.server and not self.server.alive:
                    self.server.finish()
                    raise RunError("the server ended before the run began") from None
                if self.role.rank > 0:
                    failed = _server.failure(self.role.folder, _STARTED)
                    if failed:
                        raise RunError(f"rank 0 could not start the run: {failed}") from None
                if time.monotonic() > end:
                    raise

    # --- tasks ---------------------------------------------------------------------------------

    def pull(self) -> Optional[Any]:
        """Waits for the next task; None if the run has ended. Versions are evaluated meanwhile."""
        begin = time.monotonic()
        while True:
            try:
                got = self.client.pull(SLICE)
            except RunError:
                self._lost()
                raise
            if got is not False:
                break
            # the server tells workers about the end once the last version is evaluated
            if self._evaluator:
                self._evaluator.look()
        self.waited += time.monotonic() - begin
        if got is None:
            self._finish()
            return None
        self.version = int(self.client.task.version)
        if self._evaluator:
            self._evaluator.look()
        return self.client.task

    def push(self, samples: int, loss: float) -> None:
        """Sends what was written to the task's `out`."""
        self.client.push(self._vector.dim, samples, math.nan if math.isinf(loss) else loss)

    def cancelled(self) -> bool:
        """Whether the current task is no longer wanted."""
        return self._client is not None and self._client.cancelled()

    def checkpoint(self) -> None:
        if self._client is not None:
            self._client.checkpoint()

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self) -> None:
        client, self._client = self._client, None
        self.ended = True
        self._vector.release()
        if client is not None:
            client.close()

    def _lost(self) -> None:
        """The server is gone: rank 0 knows more about it."""
        self._leave()
        if self.server:
            server, self.server = self.server, None
            try:
                server.finish(timeout=5)
            finally:
                server.remove()

    def _finish(self) -> None:
        """The run has ended, or this worker leaves it. Rank 0 gets the final weights."""
        self._leave()
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            end = time.monotonic() + _LAST_SCORES
            while self.server and self.server.alive and not evaluator.ended:
                evaluator.look(SLICE)
                if time.monotonic() > end:
                    break
            self._vector.release()
            evaluator.close()
        server, self.server = self.server, None
        if server is None:
            return
        try:
            self.result = server.finish()
            self._load_final(server.weights)
        finally:
            server.remove()

    def _load_final(self, path: str) -> None:
        with contextlib.suppress(OSError):
            with open(path, "rb") as f:
                data = bytearray(f.read())
            if len(data) == 4 * self._vector.dim:
                self._vector.load_tensor(torch.frombuffer(data, dtype=torch.float32))
                if self.result:
                    self.version = int(self.result["run"]["updates"])

    def _end(self) -> None:
        """Rank 0 asks the server to end the run."""
        if self._client is not None and self.server is not None:
            with contextlib.suppress(RunError):
                self._client.end()

    def close(self) -> None:
        """Leaves the run. On rank 0 it also waits until the run has ended, and gives the model its
        final weights; if the run has no limit of its own, it ends now."""
        atexit.unregister(self._at_exit)
        if not self.limited:
            self._end()
        if not self.ended:
            self._finish()

    def abort(self) -> None:
        """Something failed: nothing of the run is left, and the other ranks hear why."""
        atexit.unregister(self._at_exit)
        failure = sys.exc_info()[1]
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            evaluator.close()
        self._leave()
        server, self.server = self.server, None
        if server is not None:
            server.kill()
            if self._opened or self.role.world_size == 1:
                server.remove()
            else:
                server.report(str(failure) or type(failure).__name__)

    def _at_exit(self) -> None:
        failure = getattr(sys, "last_value", None)
        if failure is not None and not isinstance(failure, KeyboardInterrupt):
            self.abort()
            return
        if failure is not None:
            with contextlib.suppress(Error):
                self._end()
        with contextlib.suppress(Error):
            self.close()
