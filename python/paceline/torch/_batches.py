"""Mini-batches for a training loop that ends with the run."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import torch

from ..errors import UsageError
from . import _current

__all__ = ["batches"]


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
    opt = _current.optimizer()
    if opt is None:
        raise UsageError("batches() was called before a paceline.torch.Optimizer was made")
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
            opt._count_samples(_length(batch))
            yield batch
            if opt.ended:
                return
        if not any_batch:
            raise UsageError("the loader has no mini-batches, so this worker has nothing to compute")
        done += 1
