"""What of an optimizer is at the server, loaded and saved: weights, momentum, moments."""

from __future__ import annotations

from typing import Any, Dict

import torch

from ..errors import UsageError
from ._session import Session
from ._state import State

__all__ = ["Saving"]


class Saving:
    """The server has the state of `optimizer`, which `state` translates."""

    def __init__(self, optimizer: torch.optim.Optimizer, state: State, session: Session) -> None:
        self._optimizer, self._state, self._session = optimizer, state, session
        self._serves = session.role.serves

    def _may_give(self, what: str) -> bool:
        """Whether it is this process whose weights and state count, which is rank 0."""
        if self._session.requests != "rank 0":
            raise UsageError(
                f"a server that no script has started takes no {what} from a worker; start it with "
                "--init FILE for weights, or --resume for both"
            )
        return self._serves

    def send(self, state: Dict[Any, Any]) -> None:
        """The server gets the state of a state_dict(). That of rank 0 counts."""
        parts = self._state.from_torch(state)
        if self._may_give("state of the optimizer"):
            self._session.load(parts)
        self._optimizer.state.clear()

    def send_weights(self) -> None:
        """The server gets the weights of the model. Those of rank 0 count."""
        if self._may_give("weights"):
            self._session.load(self._state.weights())

    def state_dict(self) -> Dict[str, Any]:
        """Optimizer.state_dict."""
        version = self._session.version
        out = dict(self._optimizer.state_dict(), paceline={"version": version})
        if self._state.known and self._serves:
            data = self._session.state()
            if data is not None:
                out["state"] = self._state.to_torch(data)
        return out

    def load(self, state_dict: Any) -> None:
        """The server gets the state of a state_dict(), unless it was resumed and has its own. Raises
        UsageError if the state of earlier steps is missing or cannot be taken."""
        resumed, known = self._session.resumed, self._state.known
        state = self._state.steps_of(state_dict.get("state", {}))
        steps = state_dict.get("paceline", {}).get("version", 0)
        keeps = any(g.get("momentum", 1) for g in self._optimizer.param_groups)  # or has moments
        begins = not resumed and (known or not self._session.version)
        if steps and begins and keeps and not state and self._serves:
            raise UsageError(
                f"the momentum or moments of these {steps} updates are not in this state_dict; save "
                'that of rank 0, or give the run checkpoint= and resume="auto"'
            )
        clears = known and self._serves  # as torch.optim does
        if (state or clears) and not resumed:
            self.send(state)
