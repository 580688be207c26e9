#!/usr/bin/env python3
"""Trains ResNet-20 on CIFAR-10 with virtual workers, as `paceline race` does small networks.

    bench/deep.py METHOD[:OPTIONS][@OPTION=VALUE]... ... --epochs N [--OPTION VALUE] ...
                  [--seeds N] [--cifar10 DIR] [--jobs N] [--out DIR]

Claims about deep networks are run by it: `paceline reproduce NAME --full`. Options of its own are
below, others are those of `paceline simulate`; --target-accuracy ends no run. Every entrant and
seed is a process of its own, all at the same time unless --jobs says how many (start
nvidia-cuda-mps-control first, so that they share the GPU well). The schedule of the learning rate
is that of examples/resnet20.py. DIR/results.jsonl gets a line for every run that has ended; a run
that is there is not repeated. The status is 77 if there is no PyTorch, no GPU, or no data: the last
line of standard output says what is missing."""

import argparse
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples")]
try:
    import torch
    import torch.nn.functional as F

    import paceline
    from resnet20 import Shifted, load, resnet20, schedule
except ModuleNotFoundError as error:
    if error.name != "torch":  # what is there but does not work is a failure
        raise
    print("PyTorch is not installed; bench/deep.py needs it")
    sys.exit(77)

Job = Tuple[str, int]  # an entrant and a seed,
Line = Dict[str, Any]  # and its line in the results
FILES = "data_batch_1.bin"  # one of those that the folder of CIFAR-10 has
COLUMNS = (("test_accuracy", 100), ("time", 1), ("time_to_target", 1))  # units: %, seconds, seconds


class Graphed(torch.nn.Module):
    """A network whose forward and backward are one launch each: two CUDA graphs, captured at the
    first mini-batch, because a simulation moves the parameters into one vector when it begins."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net, self.captured = net, False

    def forward(self, x: torch.Tensor) -> Any:
        if self.training and x.is_cuda and not self.captured:
            self.captured = True
            torch.cuda.make_graphed_callables(self.net, (x.clone(),))
        return self.net(x)


def where(args: argparse.Namespace) -> str:
    gpu = f", {torch.cuda.get_device_name()}" if args.device == "cuda" else ""
    return f"{platform.machine()}, {os.cpu_count()} cores{gpu}"


def missing(args: argparse.Namespace) -> Optional[str]:
    """What is missing, as a sentence; None if nothing is."""
    if args.device == "cuda" and not torch.cuda.is_available():
        return "there is no GPU that PyTorch can use; --device cpu takes weeks"
    if args.cifar10 == "synthetic" or os.path.exists(os.path.join(args.cifar10, FILES)):
        return None
    if args.cifar10:
        return f"PACELINE_CIFAR10 is '{args.cifar10}', which has no {FILES}"
    return (
        f"set PACELINE_CIFAR10 to the folder of the binary version of CIFAR-10, with {FILES} …, or "
        "to synthetic to try it"
    )


def train(args: argparse.Namespace, entrant: str, seed: int) -> Line:
    """Trains with one entrant; returns the line for results.jsonl."""
    method, *more = entrant.split("@")
    options = {"workers": 8, "lr": 0.1, "epochs": args.epochs} | args.options
    options |= {k.replace("-", "_"): v for k, v in (o.split("=", 1) for o in more)}
    options["lr_schedule"] = schedule(int(options["workers"]), float(options["epochs"]))[1]
    target = float(options.pop("target_accuracy", math.inf))
    begun, reached = time.time(), [math.inf]
    torch.backends.cudnn.benchmark = True  # shapes stay the same

    def point(at: paceline.Point) -> None:
        if at.test_accuracy >= target:
            reached[0] = min(reached[0], at.time)
        if args.quiet:
            return
        print(
            f"{entrant} seed {seed}: {at.epochs:.4g} epochs, {at.time:.6g} virtual s, "
            f"{time.time() - begun:.0f} s, loss {at.loss:.4f}, accuracy {at.test_accuracy:.4f}",
            file=sys.stderr,
            flush=True,
        )

    torch.manual_seed(seed)
    net = Graphed(torch.nn.Sequential(Shifted(), resnet20())).to(args.device)
    data, test = (
        tuple(t[: args.samples].to(args.device) for t in s)
        for s in load("" if args.cifar10 == "synthetic" else args.cifar10)
    )
    run = paceline.simulate(
        model=net, loss=F.cross_entropy, data=data, test=test, method=method, seed=seed,
        sampling="epoch", eval_samples=1000, on_point=point, **options
    )  # fmt: skip
    result = run.json | {"time_to_target": reached[0] if math.isfinite(reached[0]) else None}
    return {
        "entrant": entrant, "seed": seed, "diverged": run.diverged, "machine": where(args),
        "result": result,
    }  # fmt: skip


def before(path: str) -> Dict[Job, Line]:
    """The lines of results that are there, by entrant and seed. A last line without an end was cut
    short: its run is repeated."""
    if not os.path.exists(path):
        return {}
    with open(path, "r+", encoding="utf-8") as f:
        whole = [line for line in f.readlines() if line.endswith("\n")]
        f.seek(0)
        f.writelines(whole)
        f.truncate()
    lines = map(json.loads, whole)
    return {(line["entrant"], line["seed"]): line for line in lines}


def quietly() -> None:
    """For the processes of runs: Ctrl-C reaches all, and is left to the first one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def train_all(args: argparse.Namespace, jobs: List[Job], take: Callable[[Line], None]) -> bool:
    """Carries out the runs side by side. One that fails ends no other, and a signal ends all;
    returns whether all ended well."""
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    spawn = multiprocessing.get_context("spawn")
    well = True
    pool = concurrent.futures.ProcessPoolExecutor(
        min(args.jobs or len(jobs), len(jobs)), spawn, quietly
    )
    runs = {pool.submit(train, args, *job): job for job in jobs}
    pending = set(runs)
    while pending:
        done, pending = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_COMPLETED)
        if stopped:  # those that wait cannot begin then
            for process in multiprocessing.active_children():
                process.terminate()
        for run in done:
            if not run.exception():
                take(run.result())
                continue
            well = False
            if not stopped:
                print(f"{'%s seed %d' % runs[run]}: {run.exception()}", file=sys.stderr)
    pool.shutdown()
    return well


def table(entrants: List[str], found: Dict[Job, Line]) -> None:
    """Means and results of every seed."""
    print(f"{'':36} accuracy; virtual seconds in all; to the target")
    for entrant in entrants:
        runs = [line["result"] for (name, _), line in found.items() if name == entrant]
        values = [[r[key] for r in runs] for key, _ in COLUMNS]
        texts = (
            " ".join("-" if v is None else f"{scale * v:.4g}" for v in column)
            for (_, scale), column in zip(COLUMNS, values)
        )
        mean = statistics.mean(v or 0 for v in values[0])
        print(f"{entrant:36} {100 * mean:.4g} %: {'; '.join(texts)}")


def options(parser: argparse.ArgumentParser, words: Iterable[str]) -> Dict[str, str]:
    """Pairs of --NAME VALUE, or --NAME=VALUE, as options of a simulation."""
    found, words = {}, iter(words)
    for word in words:
        name, *value = word.split("=", 1)
        value = value or list(itertools.islice(words, 1))
        if not name.startswith("--") or not value:
            parser.error(f"'{word}' is no option with a value, such as --workers 8")
        found[name[2:].replace("-", "_")] = value[0]
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    p.add_argument("entrant", nargs="+", help="METHOD[:OPTIONS][@OPTION=VALUE]...")
    p.add_argument("--epochs", type=float, required=True, help="how long to train")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--seed", type=int, default=1, help="the first one")
    p.add_argument("--cifar10", default=os.environ.get("PACELINE_CIFAR10", ""), metavar="DIR",
                   help=f"folder of {FILES} …, or 'synthetic' (default: $PACELINE_CIFAR10)")  # fmt: skip
    p.add_argument("--samples", type=int, help="train on N pictures, and test on as many")
    p.add_argument("--device", default="cuda")
    p.add_argument("--jobs", type=int, help="runs at once (default: all)")
    p.add_argument("--quiet", action="store_true", help="print no progress")
    p.add_argument("--out", metavar="DIR", help="folder of results.jsonl, which may be there")
    args, rest = p.parse_known_args()
    args.options = options(p, rest)
    what = missing(args)
    if what:
        print(what)
        sys.exit(77)
    path = os.path.join(args.out, "results.jsonl") if args.out else os.devnull
    if args.out:
        os.makedirs(args.out, exist_ok=True)
    found = before(path) if args.out else {}
    seeds = range(args.seed, args.seed + args.seeds)
    jobs = [(e, s) for e in args.entrant for s in seeds if (e, s) not in found]
    with open(path, "a", encoding="utf-8") as results:

        def take(line: Line) -> None:
            found[line["entrant"], line["seed"]] = line
            results.write(json.dumps(line) + "\n")
            results.flush()

        well = not jobs or train_all(args, jobs, take)
    if not well:
        sys.exit(1)
    print(f"{where(args)}, torch {torch.__version__}, {args.epochs:g} epochs")
    table(args.entrant, found)


if __name__ == "__main__":
    main()
