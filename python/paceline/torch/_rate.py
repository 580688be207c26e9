"""The learning rate of the server, which is that of the process that owns the run."""

from __future__ import annotations

import contextlib
import weakref

import torch

from ..errors import RunError
from ._session import Session
from ._translate import Rule

__all__ = ["Rate"]


class Rate:
    """Follows the rates of an optimizer whose rule is the server's. Optimizers that take local steps
    have their own, which may differ between param groups, and nothing is sent."""

    def __init__(self, optimizer: torch.optim.Optimizer, rule: Rule, session: Session) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._rule, self._session = rule, session
        self._first = self._now() if rule.options else rule.lr
        began = session.resumed or (session.owns and not session.role.serves)
        self._sent = None if began else rule.lr or None  # what the server has; None: unknown
        self._said = self._sent  # without a result

    def _now(self) -> float:
        optimizer = self._optimizer()
        assert optimizer is not None
        return self._rule.rate(optimizer.param_groups)

    def send(self, cancelled: bool = False) -> None:
        """The rate of the owner counts: rank 0, or the worker with the token. It goes with the next
        result, which the server may drop, or at once if the task is cancelled and will have none.
        """
        if not self._rule.options:
            return
        session, rate = self._session, self._now()
        if session.owns:
            if rate != self._sent or (cancelled and rate != self._said):
                with contextlib.suppress(RunError):  # if the run is over, the next task tells
                    session.client.set_lr(rate)
                    self._sent = rate
                    if cancelled:
                        self._said = rate
        elif session.requests != "rank 0" and rate != self._first:
            session.unsent(f"lr has changed from {self._first:g} to {rate:g}")
