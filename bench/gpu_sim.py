#!/usr/bin/env python3
"""ResNet-20 on CIFAR-10 with 32 virtual workers on a GPU: what a simulation costs.

    PYTHONPATH=python python3 bench/gpu_sim.py [--steps 400] [--workers 32] [--batch 128]
                                               [--cifar10 cifar-10-batches-bin] [--device cuda]

The cost is against the bare PyTorch loop with the same number of gradients; every vector and rule is
on the GPU. Each run is timed after a warm-up, several times, interleaved; the table has the medians.
With the folder of the binary CIFAR-10 files the pictures are real, otherwise noise. How well methods
train such a network is the matter of deep.py."""

import argparse
import os
import statistics
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples")]
import paceline  # noqa: E402
from deep import Graphed, where  # noqa: E402
from resnet20 import load, resnet20  # noqa: E402

Data = Tuple[torch.Tensor, ...]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def bare(net: torch.nn.Module, data: Data, args: argparse.Namespace, momentum: float) -> float:
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


def simulated(net: torch.nn.Module, data: Data, args: argparse.Namespace, **options: Any) -> float:
    """As many gradients, in a simulation; one evaluation of 100 samples is part of it."""
    start = time.perf_counter()
    run = paceline.simulate(
        model=net, loss=F.cross_entropy, data=data, workers=args.workers, batch=args.batch,
        lr=0.01, eval_every=1e9, eval_samples=100, delay="gamma:shape=100,mean=1", **options
    )  # fmt: skip
    wait(args.device)
    return (time.perf_counter() - start) * float(args.steps) / float(run["gradients_computed"])


def cost(args: argparse.Namespace) -> None:
    data = tuple(t.to(args.device) for t in load(args.cifar10)[0])

    def new() -> Any:
        torch.manual_seed(0)
        return resnet20().to(args.device)

    def each(
        net: Optional[torch.nn.Module] = None, **options: Any
    ) -> float:  # one update per gradient
        return simulated(net or new(), data, args, updates=args.steps, **options)

    cases = {
        "bare loop, SGD": lambda: bare(new(), data, args, 0),
        "bare loop, momentum": lambda: bare(new(), data, args, 0.9),
        "async": lambda: each(policy="kasync:k=1"),
        "async, momentum": lambda: each(policy="kasync:k=1", optim="momentum"),
        "async, adam": lambda: each(policy="kasync:k=1", optim="adam"),
        "gap-aware": lambda: each(method="gap-aware"),
        "gap-aware, graphs": lambda: each(Graphed(new()), method="gap-aware"),
        "dana": lambda: each(method="dana"),
        "sync": lambda: simulated(
            new(), data, args, method="sync", updates=max(1, args.steps // args.workers)
        ),
    }
    n = sum(p.numel() for p in new().parameters())
    kind = "real" if args.cifar10 else "synthetic"
    print(f"{where(args)}, torch {torch.__version__}, ResNet-20 ({n} parameters),")
    print(f"batch {args.batch}, {args.workers} workers, {args.steps} gradients, {kind} data")
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


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--workers", type=int, default=32)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--cifar10", default="", help="folder of data_batch_1.bin …")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    cost(p.parse_args())


if __name__ == "__main__":
    main()
