"""Evaluators: a seat beside the workers' that gets versions of the model and reports numbers.

`Evaluator` is the one that rank 0 has beside its worker; `evaluate` is a process of its own."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

import torch

from .. import _client, _keys, _roles, _server
from .._client import SLICE, WAIT, patience
from .._roles import Role
from ..errors import Error, FileError, UsageError
from ._vector import Vector

__all__ = ["Evaluation", "Evaluator", "evaluate"]

_MOMENT = 0.001  # seconds

Function = Callable[[torch.nn.Module], Any]


def _call(function: Function, model: torch.nn.Module) -> Any:
    """Calls it with the model in evaluation mode."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return function(model)
    finally:
        for m, training in modes:
            m.training = training


@dataclass(frozen=True)
class Evaluation:
    """What `on_point` of an Optimizer is called with. Unknown numbers are NaN.

    >>> paceline.torch.Evaluation(100, 2.5, {"test_loss": 0.3}).test_loss
    0.3"""

    updates: int  # before the version that was evaluated
    time: float  # seconds since the optimizer was made
    numbers: Dict[str, float]  # what the function has returned

    @property
    def test_loss(self) -> float:
        """The test loss."""
        return self.numbers.get("test_loss", math.nan)

    @property
    def test_accuracy(self) -> float:
        """The test accuracy, from 0 to 1."""
        return self.numbers.get("test_accuracy", math.nan)


def _numbers(found: Any) -> Dict[str, float]:
    """What the function has returned, as numbers by name."""
    given = found if isinstance(found, dict) else {"test_loss": found}
    try:
        return {name: float(value) for name, value in given.items()}
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(
            f"evaluate= returned {str(found)[:80]!r}, but must return the test loss or a dict of numbers, "
            'such as {"test_loss": 0.3, "test_accuracy": 0.91}'
        ) from None


def _score(
    seat: _client.Client, vector: Vector, model: torch.nn.Module, function: Function
) -> Dict[str, float]:
    """Evaluates the version that the seat has pulled, and reports the numbers."""
    vector.load(seat.task.w)
    numbers = _numbers(_call(function, model))
    for name, value in numbers.items():
        seat.report(name, value)
    seat.push(0, 0, math.nan)
    return numbers


class Evaluator:
    """The evaluator's seat on rank 0. A thread waits for versions, because a question to the server
    takes a while; the model is evaluated by the worker's thread, between two tasks."""

    def __init__(
        self,
        seat: _client.Client,
        vector: Vector,
        model: torch.nn.Module,
        function: Function,
        on_point: Optional[Callable[[Evaluation], Any]] = None,
    ) -> None:
        self.seat, self._on_point, self._began = seat, on_point, time.monotonic()
        self.ended = False
        self._vector, self._model, self._function = vector, model, function
        self._ready, self._free = threading.Event(), threading.Event()
        self._closing = self._asked = False
        self._using = threading.Lock()  # the seat
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        with contextlib.suppress(Error):
            while not self._closing:
                if self._asked:
                    time.sleep(_MOMENT)
                    continue
                with self._using:
                    got = self.seat.pull(SLICE)
                if got is None:
                    break
                if got:
                    self._free.clear()
                    self._ready.set()
                    while not self._free.wait(SLICE) and not self._closing:
                        pass
        self.ended = True
        self._ready.set()

    def _go_on(self) -> None:
        self._ready.clear()
        self._free.set()

    @property
    def has_version(self) -> bool:
        """Whether `look` would evaluate one at once."""
        return self._ready.is_set() and not self.ended

    def look(self, seconds: float = 0) -> None:
        """Evaluates the next version if there is one within this time. The thread leaves the
        version alone meanwhile."""
        if self._ready.wait(seconds) and not self.ended:
            version = int(self.seat.task.version)
            numbers = _score(self.seat, self._vector, self._model, self._function)
            self._go_on()
            if self._on_point:
                self._on_point(Evaluation(version, time.monotonic() - self._began, numbers))

    def request(self, send: Callable[[_client.Client], None]) -> None:
        """Calls send(seat), while the thread does not use the seat."""
        self._asked = True
        try:
            with self._using:
                send(self.seat)
        finally:
            self._asked = False

    def close(self) -> None:
        self._closing = True
        self._go_on()
        self._thread.join()
        self.seat.close()


def _join(role: Role, dim: int, fingerprint: int, wait: float) -> _client.Client:
    """Takes the evaluator's seat. On this machine, rank 0 writes the token when its server is there."""
    end = time.monotonic() + wait
    keys = _keys.folder(role) if role.elsewhere else None
    while True:
        token = role.token if role.elsewhere else _server.token(role.socket)
        try:
            if token is None:
                raise FileError(
                    f"rank 0 has written no token for the run at '{role.socket}'; its PACELINE must "
                    "be set here"
                )
            return _client.Client(
                role.socket,
                role=_client.EVALUATOR,
                wait=patience(role.socket),
                dim=dim,
                fingerprint=fingerprint,
                token=token,
                keys=keys,
            )
        except FileError:
            if time.monotonic() > end:
                raise
            time.sleep(SLICE)


def evaluate(
    model: torch.nn.Module,
    function: Function,
    *,
    role: Optional[Role] = None,
    wait: float = WAIT,
) -> int:
    """Evaluates a run in a process of its own, until the run ends. Returns how often.

    `function(model)` returns the test loss or a dict of numbers. The process is not one of the
    ranks. `role` names the run: it is `role` of any worker's Optimizer. By default it comes from
    the environment, so PACELINE must be that of a worker: with the path of a socket on this machine,
    or the address of a server (https://HOST:PORT), which also needs PACELINE_TOKEN, the token of
    its `requests`, and PACELINE_KEYS. Like `evaluate=` in the example of `Optimizer`."""
    vector = Vector(model, set())
    tensors, _ = vector.describe()
    role = role or _roles.find()
    seat = _join(role, vector.dim, tensors.fingerprint(), wait)
    times = 0
    try:
        while True:
            got = seat.pull(SLICE)
            if got is None:
                return times
            if got:
                _score(seat, vector, model, function)
                times += 1
    finally:
        vector.release()
        seat.close()
