#!/usr/bin/env python3
"""Claims about deep networks: ResNet-20 on CIFAR-10 with virtual workers, on a GPU.

    PYTHONPATH=python python3 bench/deep.py CLAIM --cifar10 cifar-10-batches-bin [--seeds 3]
                              [--epochs N] [--entrants METHOD[@OPTION=VALUE]...,...] [--out FILE]

Every entrant and seed is a process of its own, all at the same time (start nvidia-cuda-mps-control
first, so that they share the GPU well). The schedule of the learning rate is that of
examples/resnet20.py. Prints every evaluation, and at the end a table. A claim is about groups of
entrants, and the best of a group, by the mean over its seeds, stands for it; if its rate is the
lowest or the highest that ran, others may be better, and nothing is shown. --out gets the outcome;
`scripts/results --add FILE` stores it."""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import time
from typing import Dict, List, Sequence, Tuple

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples")]
import paceline  # noqa: E402
from resnet20 import Shifted, load, resnet20, schedule  # noqa: E402

T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t, two-sided
CHANCE = 0.1  # the accuracy of a run that diverged
COLUMNS = ((0, 100), (1, 1), (2, 1))  # of a result, and its unit: %, seconds, seconds


@dataclasses.dataclass
class Claim:
    """What a paper says, and a race that shows it or not: `left` against `right`."""

    says: str
    paper: str
    reports: str
    left: Sequence[str]  # entrants, METHOD[@OPTION=VALUE]...
    right: Sequence[str]
    workers: int
    batch: int
    epochs: float
    delay: str
    every: float  # virtual seconds between evaluations
    options: Dict[str, str] = dataclasses.field(default_factory=dict)
    target: float = 0  # an accuracy: the claim is about the time to reach it
    least: float = 0  # of the difference of accuracies, or of the ratio of times, right over left


def rates(method, *values):
    return [f"{method}@lr={v:g}" for v in values]


CLAIMS = {
    "gap-aware-resnet": Claim(
        "Dividing by the gap is better than dividing by the staleness, in ResNet-20 on CIFAR-10.",
        "Barkai, Hakimi, Schuster 2020",
        "86.9 % against 82.7 % (32 workers, 160 epochs; made with PyTorch)",
        ["gap-aware"],
        ["staleness-aware@optim=momentum"],
        workers=32, batch=128, epochs=160, delay="gamma:shape=100,mean=1", every=97,
    ),
    "backup-resnet": Claim(
        "Backup workers are faster than asynchronous SGD, each at its best learning rate, in "
        "ResNet-20 on CIFAR-10.",
        "Chen, Pan, Monga, Bengio, Jozefowicz 2016",
        "25 % less time and half a point more precision (Inception, ImageNet; recalled)",
        rates("backup:k=30@optim=momentum", 0.4, 0.8),
        rates("async@epochs=45", 0.003, 0.00625, 0.0125),  # as much time as the others
        workers=32, batch=64, epochs=30, delay="shiftexp:shift=1,mean=0.3", every=30,
        target=0.75, least=1,
    ),
    "nodelay-resnet": Claim(
        "Averaging without delay is as accurate with 4 workers as with one, in ResNet-20 on "
        "CIFAR-10.",
        "Talyansky and others, Asynchronous SGD without gradient delay",
        "linear speed-up at equal accuracy",
        rates("nodelay:u=8", 0.5, 1, 2),
        rates("nodelay:u=8@workers=1", 0.3, 1),
        workers=4, batch=128, epochs=30, delay="const:t=0.01", every=2,
        options={"update_time": "0.02", "vectors": "host"}, least=-0.005,
    ),
}  # fmt: skip


class Graphed(torch.nn.Module):
    """A network whose forward and backward are one launch each: two CUDA graphs, captured at the
    first mini-batch, because a simulation moves the parameters into one vector when it begins."""

    def __init__(self, net):
        super().__init__()
        self.net, self.captured = net, False

    def forward(self, x):
        if self.training and x.is_cuda and not self.captured:
            self.captured = True
            torch.cuda.make_graphed_callables(self.net, (x.clone(),))
        return self.net(x)


def train(args, entrant, seed):
    """Trains with one entrant; returns its final accuracy, time, and time to the target."""
    claim: Claim = CLAIMS[args.claim]
    method, *more = entrant.split("@")
    options = {"workers": claim.workers, "lr": 0.1, "epochs": args.epochs} | claim.options
    options |= dict(o.split("=", 1) for o in more)
    options["lr_schedule"] = schedule(claim.workers, float(options["epochs"]))[1]
    begun, reached = time.time(), [math.inf]
    torch.backends.cudnn.benchmark = True  # shapes stay the same

    def point(at):
        if at.test_accuracy >= (claim.target or math.inf):
            reached[0] = min(reached[0], at.time)
        print(
            f"{entrant} seed {seed}: {at.epochs:.4g} epochs, {at.time:.6g} virtual s, "
            f"{time.time() - begun:.0f} s, loss {at.loss:.4f}, accuracy {at.test_accuracy:.4f}",
            flush=True,
        )

    torch.manual_seed(seed)
    net = Graphed(torch.nn.Sequential(Shifted(), resnet20())).to(args.device)
    data, test = (tuple(t.to(args.device) for t in s) for s in load(args.cifar10))
    run = paceline.simulate(
        model=net, loss=F.cross_entropy, data=data, test=test, method=method, seed=seed,
        batch=claim.batch, weight_decay=1e-4, sampling="epoch", delay=claim.delay,
        eval_every=claim.every, eval_samples=1000, on_point=point, **options
    )  # fmt: skip
    accuracy = run["test_accuracy"]
    return accuracy if math.isfinite(accuracy) else CHANCE, run["time"], reached[0]


def interval(values):
    """The mean and half of its 95 % interval; infinite if there is but one value."""
    if len(values) < 2:
        return values[0], math.inf
    half = T95[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), half


def requirement(claim, left, right, found):
    """Whether `left` is better, by seed, as `paceline reproduce` would find it. A run that has not
    reached its target counts with the time it had, so that a ratio of times is a bound."""
    pairs = list(zip(found[left], found[right]))
    late = [sum(math.isinf(run[2]) for run in side) for side in zip(*pairs)]
    bound = None
    if claim.target:
        figure = f"time_to_target of {right} over {left}"
        values = [min(b[1], b[2]) / min(a[1], a[2]) for a, b in pairs]
        bound = "at most" if late[0] else "at least" if late[1] else None
    else:
        figure = f"test_accuracy of {left} minus {right}"
        values = [a[0] - b[0] for a, b in pairs]
    mean, half = interval(values)
    verdict = f"cannot be told with {len(values)} seeds"
    if claim.target and all(late):
        pass  # of both it is only known that they take longer
    elif mean - half > claim.least and bound != "at most":
        verdict = "shown"
    elif mean + half < claim.least and bound != "at least":
        verdict = "not shown"
    return {
        "holds": f"{figure} is at least {claim.least:g}",
        "run": left, "other": right, "verdict": verdict, "mean": mean,
        "half": half if math.isfinite(half) else None, "seeds": len(values), "bound": bound,
    }  # fmt: skip


def best(claim, found, group):
    """Of the entrants of a group that ran, the first to arrive or the most accurate."""

    def rank(entrant):
        arrived = statistics.mean(r[2] for r in found[entrant])
        return (arrived, -statistics.mean(r[0] for r in found[entrant]))

    return min((e for e in group if e in found), key=rank)


def rate(entrant):
    """The learning rate in an entrant's name; None if it has none."""
    return next((float(o[3:]) for o in entrant.split("@") if o.startswith("lr=")), None)


def edge(found, group, chosen):
    """Why the entrant chosen from a group need not be at its best rate; "" if its rate is between
    others, or the group is no choice of rates."""
    tried = sorted(r for r in map(rate, (e for e in group if e in found)) if r is not None)
    if not tried or tried[0] < rate(chosen) < tried[-1]:
        return ""
    return f"{rate(chosen):g} of {', '.join(f'{r:g}' for r in tried)} for {chosen.split('@')[0]}"


def outcome(args, claim, found):
    """What `paceline reproduce` would write about the claim."""
    left, right = (best(claim, found, g) for g in (claim.left, claim.right))
    required = requirement(claim, left, right, found)
    edges = [edge(found, *g) for g in ((claim.left, left), (claim.right, right))]
    if required["verdict"] == "shown" and any(edges):
        required["verdict"] = "cannot be told: the best rate is at an edge of those tried (%s)" % (
            "; ".join(e for e in edges if e)
        )
    means = [
        "{} {:.2f} ± {:.2g} %".format(e, *(100 * v for v in interval([r[0] for r in runs])))
        for e, runs in found.items()
    ]
    stated = {
        "name": args.claim,
        "says": claim.says,
        "paper": claim.paper,
        "reports": claim.reports,
        "note": f"Test accuracies: {', '.join(means)}. [simulate-torch.md](simulate-torch.md) has "
        "more about these runs.",
        # after a shorter schedule neither has trained: who is ahead then proves nothing
        "verdict": required["verdict"]
        if args.epochs >= claim.epochs
        else f"cannot be told before {claim.epochs:g} epochs",
        "expected": False,
        "required": [required],
        "commands": [
            f"python3 bench/deep.py {args.claim} --cifar10 cifar-10-batches-bin "
            f"--seeds {args.seeds} --epochs {args.epochs:g} --entrants {','.join(found)}"
        ],
    }
    version = paceline.__version__
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {
        "form": "full", "machine": where(args), "program": version, "date": date,
        "claims": [stated],
    }  # fmt: skip


def where(args):
    gpu = f", {torch.cuda.get_device_name()}" if args.device == "cuda" else ""
    return f"{platform.machine()}, {os.cpu_count()} cores{gpu}"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("claim", choices=CLAIMS)
    p.add_argument("--cifar10", default="", help="folder of data_batch_1.bin … (noise without it)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--epochs", type=float, help="how long to train (default: what the claim needs)")
    p.add_argument("--entrants", help="some of the claim's, or others of its methods")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first-seed", type=int, default=1)
    p.add_argument("--out", help="file of the outcome")
    args = p.parse_args()
    claim = CLAIMS[args.claim]
    args.epochs = args.epochs or claim.epochs
    if args.out and os.path.exists(args.out):
        p.error(f"{args.out} already exists and will not be overwritten; choose another name")
    entrants = args.entrants.split(",") if args.entrants else [*claim.left, *claim.right]
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [(args, e, s) for e in entrants for s in seeds]
    with concurrent.futures.ProcessPoolExecutor(
        len(jobs), multiprocessing.get_context("spawn")
    ) as pool:
        results = list(pool.map(train, *zip(*jobs)))
    found: Dict[str, List[Tuple[float, float, float]]] = {}
    for (_, entrant, _), result in zip(jobs, results):
        found.setdefault(entrant, []).append(result)
    print(f"{where(args)}, torch {torch.__version__}, {args.epochs:g} epochs")
    print(f"{'':36} accuracy; virtual seconds in all; to {claim.target:g}")
    for entrant, runs in found.items():
        columns = (" ".join(f"{scale * r[i]:.4g}" for r in runs) for i, scale in COLUMNS)
        print(f"{entrant:36} {'; '.join(columns)}")
    if args.out:
        with open(args.out, "x", encoding="utf-8") as f:
            json.dump(outcome(args, claim, found), f, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
