"""Mini-batches for a training loop that ends with the run."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from ..errors import UsageError
from ._session import Session

__all__ = ["Passes", "Samples"]


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if not isinstance(batch, (list, tuple)):
        yield batch
        return
    for part in batch:
        yield from _leaves(part)


def _length(batch: Any) -> int:
    """The number of samples in a mini-batch, which is the length of its tensors, however they are
    nested. If they differ in that, or there are single numbers as well, lists of one length that are
    all of it have an entry per sample, as for images of different sizes."""
    leaves = list(_leaves(batch))
    lengths = [len(t) for t in leaves if isinstance(t, torch.Tensor) and t.dim() > 0]
    single = any(isinstance(x, (int, float)) or getattr(x, "shape", None) == () for x in leaves)
    if single or len(set(lengths)) > 1:
        parts = batch if isinstance(batch, (list, tuple)) else [None]
        sizes = {len(p) if isinstance(p, (list, tuple)) else -1 for p in parts}
        if len(sizes) == 1 and -1 not in sizes:
            return sizes.pop()
    return lengths[0] if lengths else 0


class Samples:
    """Counts the samples of a result: those of the mini-batches that its steps were made of. What a
    script has skipped counts for nothing."""

    def __init__(self, params: Sequence[torch.Tensor]) -> None:
        self._params = params
        self.result = 0  # of the steps so far
        self._computed = 0  # of mini-batches that no step has taken, although they have gradients
        self._batch = 0  # of the last mini-batch
        self._before = self._gradients()

    def _gradients(self) -> List[Tuple[int, int]]:
        """What changes if a gradient is computed, or added to another."""
        grads = [p.grad for p in self._params]
        return [(0, 0) if g is None else (id(g), g._version) for g in grads]

    def hand_out(self, n: int) -> None:
        """The loop gets a mini-batch of n samples."""
        now = self._gradients()
        if self._batch and any(a != b and a != (0, 0) for a, b in zip(now, self._before)):
            self._computed += self._batch
        self._batch, self._before = n, now

    def step(self, given: int, accumulates: bool) -> None:
        """A step of the script; `given` is what it says the size of the mini-batch is, or 0."""
        self._computed += given or self._batch
        self._batch = 0
        if not accumulates:
            self.result += self._computed
            self._computed = 0

    def drop(self, steps: bool) -> None:
        """Gradients are cleared, and with them `steps` that had not been sent."""
        self._computed = 0
        self.result = 0 if steps else self.result
        self._before = self._gradients()

    def abandon(self) -> None:
        """The task and its last mini-batch are dropped."""
        self._batch = self._computed = 0


class _SetEpoch:
    """Takes the place of a sampler's set_epoch, and notes what the program says: it may set the number
    that is there already."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        # before the first pass, 0 is what a sampler has by itself
        self.said: Optional[int] = getattr(sampler, "epoch", 0) or None

    def __call__(self, epoch: int) -> None:
        self.said = epoch
        self.set(epoch)

    def set(self, epoch: int) -> None:
        type(self._sampler).set_epoch(self._sampler, epoch)


class Passes:
    """The passes of one optimizer over its loaders."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first_version = session.version  # of a run that was resumed, or joined late
        self._n = 0  # the number of the next one

    def _set_epoch(self, loader: Any, sampler: Any) -> None:
        """Numbers the passes, from the epoch that the program has set last, if it has."""
        if not isinstance(sampler.set_epoch, _SetEpoch):
            sampler.set_epoch = _SetEpoch(sampler)
        told: _SetEpoch = sampler.set_epoch
        if told.said is not None:
            self._n, told.said = told.said, None
        elif self._n == 0 and hasattr(loader, "__len__"):
            self._n = self._first_version // max(1, len(loader))
        told.set(self._n)
        self._n += 1

    def over(
        self, loader: Any, epochs: Optional[int], count: Callable[[int], None]
    ) -> Iterator[Any]:
        """Optimizer.batches. `count` is called with the number of samples of each mini-batch."""
        if epochs is None and not self._session.limited:
            epochs = 1
        sampler = getattr(loader, "sampler", None)
        done = 0
        while not self._session.ended and (epochs is None or done < epochs):
            if hasattr(sampler, "set_epoch"):
                self._set_epoch(loader, sampler)
            any_batch = False
            for batch in loader:
                any_batch = True
                count(_length(batch))
                if self._session.ended:
                    break
                yield batch
                if self._session.ended:
                    break
            if not any_batch:
                raise UsageError(
                    "the loader has no mini-batches, so this worker has nothing to compute"
                )
            done += 1
        count(0)
        self._session.check()
