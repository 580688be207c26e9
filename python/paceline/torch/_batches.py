"""Mini-batches for a training loop that ends with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional

import torch

from ..errors import UsageError

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["batches"]


def _length(batch: Any) -> int:
    """The number of samples in a mini-batch: the length of its first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        batch = batch[0] if batch else None
    return len(batch) if isinstance(batch, torch.Tensor) and batch.dim() > 0 else 0


def _set_epoch(opt: "Optimizer", loader: Any, sampler: Any) -> None:
    """Numbers the passes of this process, from the epoch that the program has set, if it has."""
    now = getattr(sampler, "epoch", opt._sampler_epoch)
    if now != opt._sampler_epoch:
        opt._passes = now
    elif opt._passes == 0 and hasattr(loader, "__len__"):
        opt._passes = opt._first_version // max(1, len(loader))
    sampler.set_epoch(opt._passes)
    opt._sampler_epoch = opt._passes
    opt._passes += 1


def batches(opt: "Optimizer", loader: Any, epochs: Optional[int]) -> Iterator[Any]:
    """Optimizer.batches."""
    if epochs is None and not opt._limited:
        epochs = 1
    sampler = getattr(loader, "sampler", None)
    done = 0
    while not opt.ended and (epochs is None or done < epochs):
        if hasattr(sampler, "set_epoch"):
            _set_epoch(opt, loader, sampler)
        any_batch = False
        for batch in loader:
            any_batch = True
            opt._count_samples(_length(batch))
            yield batch
            if opt.ended:
                break
        if not any_batch:
            raise UsageError("the loader has no mini-batches, so this worker has nothing to compute")
        done += 1
    opt._session.check()
