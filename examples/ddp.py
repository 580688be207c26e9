"""Trains with DistributedDataParallel, and goes on from last.pt if it is there.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python3 ddp.py EPOCHS

ddp_converted.py is the same program with Paceline: compare them with diff."""

import os
import sys
from typing import Any, Dict, List

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, BATCH, ACCUMULATE = int(sys.argv[1]), 8, 2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.last = torch.nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return y


def data_set(n: int, seed: int) -> torch.utils.data.TensorDataset:
    x = torch.randn(n, 20, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def groups(model: torch.nn.Module) -> List[Dict[str, Any]]:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": decayed, "weight_decay": 1e-3}, {"params": others, "weight_decay": 0.0}]


def accuracy(model: torch.nn.Module, data: torch.utils.data.TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
    model.train()
    return float(right)


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Net()
    data, test = data_set(256, 1), data_set(200, 2)
    sampler = torch.utils.data.DistributedSampler(data, size, rank)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)
    loss_fn = torch.nn.CrossEntropyLoss()
    opt = torch.optim.SGD(groups(model), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
    model = DDP(model)
    first = 0
    if os.path.exists("last.pt"):
        last = torch.load("last.pt")
        first = last["epoch"]
        model.module.load_state_dict(last["model"])
        opt.load_state_dict(last["opt"])
        schedule.load_state_dict(last["schedule"])
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            if i % ACCUMULATE < ACCUMULATE - 1:
                with model.no_sync():
                    (loss_fn(model(x), y) / ACCUMULATE).backward()
                continue
            (loss_fn(model(x), y) / ACCUMULATE).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            schedule.step()
            opt.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy(model.module, test):.3f}", flush=True)
            last = {"epoch": epoch + 1, "model": model.module.state_dict()}
            last.update(opt=opt.state_dict(), schedule=schedule.state_dict())
            torch.save(last, "last.pt")
    dist.destroy_process_group()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
