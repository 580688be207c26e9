"""Lightning: Paceline's optimizer in a LightningModule, and a callback that ends with the run.

Start it with `paceline launch -n 4 -- python3 train.py` and Trainer(devices=1): every process trains
on its own, and the server combines them.

    from paceline_lightning import Paceline, PacelineModule, shard

    class Mine(PacelineModule):
        def make_optimizer(self): return torch.optim.AdamW(self.parameters(), lr=1e-3)
        def training_step(self, batch, i):
            loss = ...
            self.step(loss)

    mine = Mine(method="diloco:u=20")
    Trainer(devices=1, max_epochs=100, callbacks=[Paceline()]).fit(mine, shard(data, batch_size=32))
"""

from typing import Any, List, Optional

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import paceline.torch as pl

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L  # the other name of the same package


def shard(data: Dataset[Any], **options: Any) -> DataLoader[Any]:
    """A loader of this rank's part of the data, which Trainer(devices=1) would not take by itself."""
    return DataLoader(data, sampler=DistributedSampler(data, pl.world_size(), pl.rank()), **options)


class PacelineModule(L.LightningModule):
    """A module with manual optimization: Lightning calls training_step, the server decides."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.run_options = options
        self.opt: Any = None  # from the beginning of the fit

    def make_optimizer(self) -> torch.optim.Optimizer:
        raise NotImplementedError

    def configure_optimizers(self) -> List[Any]:
        return []

    def on_train_start(self) -> None:  # the weights are on their device by now
        if getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError(
                "precision 16-mixed scales the loss, and gradients with it; use bf16-mixed"
            )
        self.opt = pl.Optimizer(self.make_optimizer(), self, **self.run_options)

    def step(self, loss: torch.Tensor) -> None:
        """Call this at the end of training_step."""
        self.opt.zero_grad()
        self.manual_backward(loss)
        self.opt.step(loss)


class Paceline(L.Callback):
    """Ends the fit with the run; every rank then has the final weights."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if module.opt.ended:
            trainer.should_stop = True

    def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> Optional[int]:
        return -1 if module.opt.ended else None  # skip what is left of the epoch

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        module.opt.close()
