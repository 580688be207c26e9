"""ResNet-20 on CIFAR-10: batch 128 per worker, rate 0.1 with five epochs of warm-up and a tenth of it
from epochs 80 and 120 on, momentum 0.9, weight decay 1e-4, 160 epochs. Fewer --epochs shorten the
warm-up and the rest in proportion. Pictures are shifted and mirrored at random.

    paceline launch -n 4 -- python3 examples/resnet20.py --data cifar-10-batches-bin --epochs 160
    python3 examples/resnet20.py --simulate --workers 32 --method dana --device cuda

--data is the folder of the binary version of CIFAR-10; without it, the images are synthetic."""

import os
from typing import Callable, Dict, List, Tuple

import torch
from torch import nn

import common
import paceline.torch as pl

Norm = Callable[[int], nn.Module]  # makes a normalization of that many channels


class Block(nn.Module):
    def __init__(self, n_in: int, n: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(n, n, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(n), norm(n)
        self.stride, self.more = stride, n - n_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        short = x[:, :, :: self.stride, :: self.stride]
        if self.more:  # the paper's option A: zeros for the new channels
            short = nn.functional.pad(short, (0, 0, 0, 0, self.more // 2, self.more // 2))
        return torch.relu(y + short)


def group_norm(n: int) -> nn.Module:
    return nn.GroupNorm(2, n)


def resnet20(norm: Norm = nn.BatchNorm2d, width: int = 16, depth: int = 3) -> nn.Sequential:
    layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width), nn.ReLU()]
    n_in = width
    for stage in range(3):
        for i in range(depth):
            n = width << stage
            layers.append(Block(n_in, n, 2 if stage and i == 0 else 1, norm))
            n_in = n
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))


class Shifted(nn.Module):
    """Pictures for training, each shifted by up to four pixels and mirrored or not, at random."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        n, channels, height, width = x.shape

        def numbers(end: int, *shape: int) -> torch.Tensor:
            return torch.arange(end, device=x.device).view(shape)

        by = torch.randint(0, 9, (2, n, 1), device=x.device)
        rows, columns = by[0] + numbers(height, 1, -1), by[1] + numbers(width, 1, -1)
        mirrored = torch.rand(n, 1, device=x.device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
        shifted = nn.functional.pad(x, (4, 4, 4, 4))[
            numbers(n, -1, 1, 1, 1),
            numbers(channels, 1, -1, 1, 1),
            rows.view(n, 1, height, 1),
            columns.view(n, 1, 1, width),
        ]
        return shifted.contiguous(memory_format=torch.channels_last)  # faster on a GPU


def load(folder: str) -> Tuple[common.Pair, common.Pair]:
    if not folder:
        g = torch.Generator().manual_seed(0)
        y = torch.randint(0, 10, (6000,), generator=g)
        x = torch.randn(10, 3, 32, 32, generator=g)[y] + torch.randn(6000, 3, 32, 32, generator=g)
        return (x[:5000], y[:5000]), (x[5000:], y[5000:])
    sets = []
    for files in ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]):
        raw = bytearray()
        for name in files:
            with open(os.path.join(folder, name), "rb") as f:
                raw += f.read()
        rows = torch.frombuffer(raw, dtype=torch.uint8).view(-1, 3073)
        mean, std = torch.tensor([0.491, 0.482, 0.447]), torch.tensor([0.247, 0.243, 0.262])
        x = (rows[:, 1:].view(-1, 3, 32, 32) / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
        sets.append((x, rows[:, 0].long()))
    return sets[0], sets[1]


def schedule(workers: int, epochs: float) -> Tuple[Callable[[float], float], str]:
    """The factor of the rate after some epochs, for real workers, and the same as an option."""
    over, first, second = (epochs * part for part in (1 / 32, 1 / 2, 3 / 4))

    def factor(epoch: float) -> float:
        warm = (1 + (workers - 1) * min(1, epoch / over)) / workers
        return warm * (1 if epoch < first else 0.1 if epoch < second else 0.01)

    return factor, f"warmup:over={over:g}+step:at={first:g},{second:g}"


def main() -> None:
    p = common.parser(__doc__, batch=128, lr=0.1)
    p.add_argument("--data", default="", help="folder of data_batch_1.bin … (default: synthetic)")
    p.add_argument(
        "--norm", choices=("batch", "group"), default="batch", help="kind of normalization"
    )
    p.add_argument("--width", type=int, default=16, help="channels of the first stage")
    p.add_argument("--depth", type=int, default=3, help="blocks per stage; 3 is ResNet-20")
    args = p.parse_args()
    torch.manual_seed(0)
    norms: Dict[str, Norm] = {"batch": nn.BatchNorm2d, "group": group_norm}
    model = resnet20(norms[args.norm], args.width, args.depth)
    if args.data:  # synthetic pictures are not the same when mirrored
        model = nn.Sequential(Shifted(), model)
    train, test = load(args.data)
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=args.lr, momentum=m, weight_decay=1e-4)
        for m in (0.9, 0)
    ]
    workers = args.workers if args.simulate else pl.world_size()
    common.run(
        args,
        model,
        nn.functional.cross_entropy,
        train,
        test,
        optimizers,
        *schedule(workers, args.epochs or 160),
    )


if __name__ == "__main__":
    main()
