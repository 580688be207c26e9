"""What happens in a run, event by event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

from ._text import from_c

__all__ = ["Decision", "Event", "event"]


@dataclass(frozen=True)
class Decision:
    """What was decided after an event; None where a decision has no such number.

    >>> events = []
    >>> run = paceline.simulate(method="sync", model="quadratic", workers=2, updates=1, on_event=events.append)
    >>> [(d.what, d.worker, d.version) for d in events[-2].decisions]
    [('take', 1, 0), ('commit', None, 1), ('start', 0, 1), ('start', 1, 1)]"""

    what: str  # "take", "drop", "defer", "commit", "reject", "start", "cancel", "stop", …
    worker: Optional[int]  # from 0
    peer: Optional[int]  # the other worker of a "blend", "pair" or "push"
    task: Optional[int]  # of that worker, from 1
    version: Optional[int]  # that a task computes on; of a "commit": the new one
    row: Optional[int]  # the part of the model that a "start" is about
    col: Optional[int]


@dataclass(frozen=True)
class Event:
    """An event of a run and what was decided; None where an event has no such number.

    >>> events = []
    >>> run = paceline.simulate(method="sync", model="quadratic", workers=2, updates=50, on_event=events.append)
    >>> events[0].what, events[0].worker, sum(e.what == "arrive" for e in events)
    ('join', 0, 100)"""

    what: str  # "join", "arrive", "reject", "leave", "timer", "scored", "switch", "end", …
    time: float  # seconds since the start, on the clock of the run
    worker: Optional[int]  # from 0
    task: Optional[int]  # of that worker, from 1
    loss: float  # of a result or an evaluation; NaN if it is unknown
    policy: str  # from a "switch" on; otherwise empty
    returned: bool  # a "switch" has returned to an earlier model
    decisions: Tuple[Decision, ...]


def _known(number: int) -> Optional[int]:
    return None if number < 0 else number


def event(h: Any) -> Event:
    """From a struct pl_happening."""
    return Event(
        from_c(h.what),
        1e-9 * h.time_ns,
        _known(h.worker),
        _known(h.task),
        h.loss,
        from_c(h.policy),
        bool(h.returned),
        tuple(
            Decision(
                from_c(d.what), *map(_known, (d.worker, d.peer, d.task, d.version, d.row, d.col))
            )
            for d in h.decision[: h.n_decisions]
        ),
    )
