"""Mini-batches for a training loop that ends with the run."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

import torch

from ..errors import UsageError
from ._session import Session

__all__ = ["Passes"]


def _length(batch: Any) -> int:
    """The number of samples in a mini-batch: the length of its first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        batch = batch[0] if batch else None
    return len(batch) if isinstance(batch, torch.Tensor) and batch.dim() > 0 else 0


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
