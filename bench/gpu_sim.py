#!/usr/bin/env python3
"""What a simulation costs on a GPU: ResNet-20 on CIFAR-10-shaped tensors, 32 virtual workers, every
vector and rule on the GPU, against the bare PyTorch loop with the same number of gradients.

    PYTHONPATH=python python3 bench/gpu_sim.py [--steps 400] [--workers 32] [--batch 128]
                                               [--cifar10 cifar-10-batches-bin] [--device cuda]

Each run is timed after a warm-up, several times, interleaved; the table has the medians. With the
folder of the binary CIFAR-10 files the pictures are real, otherwise they are noise."""

import argparse
import os
import statistics
import time
from typing import Dict, List

import torch
import torch.nn.functional as F

import paceline


class Block(torch.nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(n_out)
        self.conv2 = torch.nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(n_out)
        self.stride, self.pad = stride, (n_out - n_in) // 2

    def forward(self, x):
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride > 1:  # the shortcut without parameters of He et al., option A
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(out + x)


class ResNet20(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        sizes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2
        sizes += [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = torch.nn.Sequential(*(Block(*s) for s in sizes))
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.head(x.mean((2, 3)))


def cifar10(folder):
    """The binary files: 10000 records of a label and 3072 bytes each."""
    parts = []
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)]:
        with open(os.path.join(folder, name), "rb") as f:
            parts.append(torch.frombuffer(bytearray(f.read()), dtype=torch.uint8))
    rows = torch.cat(parts).view(-1, 3073)
    x = rows[:, 1:].view(-1, 3, 32, 32).float() / 255
    mean, spread = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return (x - mean) / spread, rows[:, 0].long()


def synthetic(n=10000):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 32, 32, generator=g), torch.randint(10, (n,), generator=g)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def bare(net, data, args, momentum):
    """The loop that everybody writes."""
    x, y = data
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=momentum)
    rows = torch.randint(len(x), (args.steps, args.batch), device=x.device)
    wait(args.device)
    start = time.perf_counter()
    for r in rows:
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(net(x[r]), y[r]).backward()
        opt.step()
    wait(args.device)
    return time.perf_counter() - start


def simulated(net, data, args, **options):
    """As many gradients, in a simulation; one evaluation of 100 samples is part of it."""
    start = time.perf_counter()
    run = paceline.simulate(
        model=net, loss=F.cross_entropy, data=data, workers=args.workers, batch=args.batch,
        lr=0.01, eval_every=1e9, eval_samples=100, delay="gamma:shape=100,mean=1", **options
    )  # fmt: skip
    wait(args.device)
    return (time.perf_counter() - start) * args.steps / run["gradients_computed"]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--workers", type=int, default=32)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--cifar10", help="folder of data_batch_1.bin …")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    x, y = cifar10(args.cifar10) if args.cifar10 else synthetic()
    data = (x.to(args.device), y.to(args.device))

    def new():
        torch.manual_seed(0)
        return ResNet20().to(args.device)

    def each(**options):  # one update per gradient
        return simulated(new(), data, args, updates=args.steps, **options)

    cases = {
        "bare loop, SGD": lambda: bare(new(), data, args, 0),
        "bare loop, momentum": lambda: bare(new(), data, args, 0.9),
        "async": lambda: each(policy="kasync:k=1"),
        "async, momentum": lambda: each(policy="kasync:k=1", optim="momentum"),
        "async, adam": lambda: each(policy="kasync:k=1", optim="adam"),
        "gap-aware": lambda: each(method="gap-aware"),
        "dana": lambda: each(method="dana"),
        "sync": lambda: simulated(
            new(), data, args, method="sync", updates=max(1, args.steps // args.workers)
        ),
    }
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    n = sum(p.numel() for p in new().parameters())
    kind = "real" if args.cifar10 else "synthetic"
    print(f"{name}, torch {torch.__version__}, ResNet-20 ({n} parameters), batch {args.batch},")
    print(f"{args.workers} workers, {args.steps} gradients, {kind} data")
    steps, args.steps = args.steps, 20
    for run in cases.values():  # warm-up: kernels are compiled and algorithms chosen
        run()
    args.steps = steps
    times: Dict[str, List[float]] = {case: [] for case in cases}
    for _ in range(args.repeat):
        for case, run in cases.items():
            times[case].append(run() / args.steps * 1e3)
    base = {c: statistics.median(t) for c, t in times.items()}
    print(f"{'':22} ms per gradient   against the bare loop with momentum")
    for case, ms in base.items():
        print(f"{case:22} {ms:8.3f}          {ms / base['bare loop, momentum']:.3f}")


if __name__ == "__main__":
    main()
