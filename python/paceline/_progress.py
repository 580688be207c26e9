"""What a server without a terminal of its own tells people while its run goes on.

Nothing is printed about a run that is over within two seconds, except where it was resumed from and
where it was saved."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any, Dict, List, Optional

__all__ = ["Progress", "quiet", "say"]

_FIRST = 2.0  # seconds before the first line
_MOST = 60.0  # seconds between two lines, at most; before that as long as the run has taken so far
_NO_LIMIT = 1e15  # updates of a run that has no limit


def quiet() -> bool:
    """Whether the user asked for silence: PACELINE_QUIET is set, by `paceline launch --quiet` too."""
    return os.environ.get("PACELINE_QUIET", "") not in ("", "0", "no")


def say(sentence: str) -> None:
    print("paceline: " + sentence, file=sys.stderr, flush=True)


class Progress:
    """Follows one run."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + _FIRST
        self._limits: Dict[str, float] = {}
        self._scored: Optional[Any] = None  # the last evaluation
        self._time = self._samples = math.nan  # at the last line
        self.lines = 0

    def begin(self, text: str) -> None:
        """The run begins; `text` is its run.json."""
        run = json.loads(text)
        self._limits = {k: float(v) for k, v in run["limits"].items() if v and v < _NO_LIMIT}
        resumed = run["resumed"]
        if resumed:
            say(f"resumed from {resumed['checkpoint']} at update {resumed['updates']}")

    def point(self, p: Any) -> None:
        """There is an evaluation."""
        self._scored = p

    def tick(self, p: Any) -> None:
        """Is called often, with the state of the run."""
        now = time.monotonic()
        if math.isnan(self._time):
            self._time, self._samples = p.time, p.samples
        if now < self._next:
            return
        self._next = now + min(max(now - self._began, _FIRST), _MOST)
        say("  ".join(self._fields(p)))
        self.lines += 1

    def _share(self, p: Any) -> float:
        """How much of the run is done, by the limit that will end it first; 0 if unknown."""
        return max([0.0] + [float(getattr(p, key)) / most for key, most in self._limits.items()])

    def _fields(self, p: Any) -> List[str]:
        """The same as those of the progress of `paceline train`."""
        fields = [f"{p.time:.4g} s"]
        share = min(self._share(p), 1.0)
        if self._limits:
            fields.insert(0, f"{math.floor(100 * share)} %")
        for name, key in (
            ("loss", "loss"),
            ("accuracy", "test_accuracy"),
            ("test loss", "test_loss"),
        ):
            value = getattr(self._scored, key, math.nan)
            if math.isfinite(value):
                fields.append(f"{name} {value:.4g}")
        fields.append(f"update {p.updates}")
        if p.time > self._time and p.samples >= self._samples:
            fields.append(f"{(p.samples - self._samples) / (p.time - self._time):.4g} samples/s")
        self._time, self._samples = p.time, p.samples
        staleness = p.staleness if math.isfinite(p.staleness) else 0
        fields.append(f"stale {staleness:.2f}/{p.staleness_max}")
        fields.append(f"workers {p.workers}/{p.expected}")
        return fields

    def end(self, run: Any) -> None:
        """The run has ended."""
        told = []
        if self.lines:
            told.append(f"the run ended after {run['time']:.4g} s at update {run['updates']:.0f}")
        if run.text("checkpoint"):
            at = f"{run['checkpoint_updates']:.0f}"
            told.append(f"saved in {run.text('checkpoint')} at update {at}")
        if told:
            say("; ".join(told))
