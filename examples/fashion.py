"""A small convolutional network on Fashion-MNIST (Debian: dataset-fashion-mnist).

    paceline launch -n 4 -- python3 examples/fashion.py --method gap-aware
    python3 examples/fashion.py --method gap-aware --simulate --workers 32
"""

import gzip
import os
from typing import Tuple

import torch
from torch import nn

import common


def read(path: str, head: int) -> torch.Tensor:
    with gzip.open(path) as f:
        return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)[head:]


def load(folder: str) -> Tuple[common.Pair, common.Pair]:
    """Images and labels for training and for testing; synthetic if there is no such folder."""
    if not os.path.isdir(folder):
        print(f"{folder} does not exist; using synthetic images")
        g = torch.Generator().manual_seed(0)
        y = torch.randint(0, 10, (6000,), generator=g)
        means = torch.randn(10, 1, 28, 28, generator=g)
        x = means[y] + torch.randn(6000, 1, 28, 28, generator=g)
        return (x[:5000], y[:5000]), (x[5000:], y[5000:])
    sets = []
    for name in ("train", "t10k"):
        x = read(os.path.join(folder, f"{name}-images-idx3-ubyte.gz"), 16).view(-1, 1, 28, 28)
        y = read(os.path.join(folder, f"{name}-labels-idx1-ubyte.gz"), 8)
        sets.append(((x.float() / 255 - 0.286) / 0.353, y.long()))
    return sets[0], sets[1]


def main() -> None:
    p = common.parser(__doc__, batch=64, lr=0.05)
    p.add_argument(
        "--data",
        default="/usr/share/datasets/fashion-mnist",
        help="folder of the files; synthetic images if it does not exist",
    )
    args = p.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    train, test = load(args.data)
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=args.lr / 10, momentum=0.9),
        torch.optim.SGD(model.parameters(), lr=args.lr),
    ]
    common.run(args, model, nn.functional.cross_entropy, train, test, optimizers)


if __name__ == "__main__":
    main()
