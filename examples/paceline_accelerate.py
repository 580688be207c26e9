"""Accelerate: device placement and mixed precision from Accelerate, steps from Paceline.

Start it with `paceline launch -n 4 -- python3 train.py`, or by torchrun. Accelerate believes that each
process is the only one, and the server combines them.

    from paceline_accelerate import Run

    run = Run(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader, method="async", updates=500)
    for batch in run.batches():
        loss = loss_fn(run.model(batch[0]), batch[1])
        run.step(loss)
    run.close()
"""

import os
from typing import Any, Iterator, Optional

import torch

import paceline.torch as pl

Loader = torch.utils.data.DataLoader[Any]


def shard(loader: Loader) -> Loader:
    """The same loader, of this rank's share of the data."""
    data = loader.dataset
    sampler = torch.utils.data.DistributedSampler(data, pl.world_size(), pl.rank())
    kept = {
        name: getattr(loader, name)
        for name in ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last")
    }
    return torch.utils.data.DataLoader(data, sampler=sampler, **kept)


def alone(mixed_precision: Optional[str]) -> Any:
    """An Accelerator that knows of no other rank: it would start a process group of its own."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        from accelerate import Accelerator

        return Accelerator(mixed_precision=mixed_precision)
    finally:
        os.environ.update(hidden)


class Run:
    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Loader,
        mixed_precision: Optional[str] = None,
        **options: Any,
    ) -> None:
        self.accelerator = alone(mixed_precision)
        if self.accelerator.scaler is not None:
            raise ValueError(
                "fp16 scales the loss, and gradients with it; use mixed_precision='bf16'"
            )
        self.model, self.loader = self.accelerator.prepare(model, shard(loader))
        self.opt = pl.Optimizer(optimizer, self.model, **options)

    def batches(self, epochs: Optional[int] = None) -> Iterator[Any]:
        return self.opt.batches(self.loader, epochs)

    def step(self, loss: torch.Tensor) -> None:
        self.opt.zero_grad()
        self.accelerator.backward(loss)
        self.opt.step(loss)

    def close(self) -> None:
        self.opt.close()
