"""Accelerate: device placement and mixed precision from Accelerate, steps from Paceline.

Start it with `paceline launch -n 4 -- python3 train.py`. Accelerate believes that each process is the
only one, and the server combines them.

    from paceline_accelerate import Run

    run = Run(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader, method="async", updates=500)
    for batch in run.batches():
        loss = loss_fn(run.model(batch[0]), batch[1])
        run.step(loss)
    run.close()
"""

import os

import torch

import paceline.torch as pl


class Run:
    def __init__(self, model, optimizer, loader, mixed_precision=None, **options):
        # who we are is Paceline's business: Accelerate would start a process group of its own
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)
        from accelerate import Accelerator

        self.accelerator = Accelerator(mixed_precision=mixed_precision)
        if self.accelerator.scaler is not None:
            raise ValueError(
                "fp16 scales the loss, and gradients with it; use mixed_precision='bf16'"
            )
        sampler = torch.utils.data.DistributedSampler(loader.dataset, pl.world_size(), pl.rank())
        mine = torch.utils.data.DataLoader(loader.dataset, loader.batch_size, sampler=sampler)
        self.model, self.loader = self.accelerator.prepare(model, mine)
        self.opt = pl.Optimizer(optimizer, self.model, **options)

    def batches(self, epochs=None):
        return self.opt.batches(self.loader, epochs)

    def step(self, loss):
        self.opt.zero_grad()
        self.accelerator.backward(loss)
        self.opt.step(loss)

    def close(self):
        self.opt.close()
