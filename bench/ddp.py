"""Paceline's workers against DistributedDataParallel on Gloo, on this machine.

    python3 bench/ddp.py [--processes 2,4] [--models 4,17,60,resnet20] [--steps 60] [--slow 5]
                         [--device cuda] [--repeat 3] [--overlap]
    python3 bench/ddp.py --network https [--wire bf16]

1. Without a straggler: median seconds per step of `sync` and of DDP, same model and mini-batches.
   The two take turns, --repeat times, and the table has the medians.
2. With one worker slowed by --slow (0: not measured): seconds until the loss of DDP's --steps is
   reached by asynchronous updates.
3. With --bare: median seconds per step of one asynchronous worker and of the bare PyTorch loop.

With --overlap, the optimizer has the option of that name.

With --network, all ranks but 0 reach the server over HTTP or HTTPS (PACELINE_KEYS names the folder of
certificates), and only the first is measured (aims: at most 1.0 plain, 1.3 encrypted, 0.7 with bf16).

A model is a number, that many million parameters in four layers; resnet20, or resnet20x10 with ten
times the channels (27 million parameters, as many as ResNet-50). Prints one line per measurement;
the last column is Paceline's time over the other (aims: at most 0.4 with 17 million parameters and
0.7 with resnet20 without a straggler, at most 1/3 with one, at most 1.05 of the bare loop). Every
process has a fair share of the cores; on a GPU, all share it."""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples")]
import paceline.torch as pl  # noqa: E402

BATCH, FEATURES, CLASSES = 32, 256, 10
WARM_UP = 5


def net(name: str) -> Any:
    """A model by its name: four layers, with about that many million parameters, or a ResNet-20."""
    torch.manual_seed(0)
    if name.startswith("resnet20"):
        from resnet20 import resnet20

        return resnet20(width=16 * int(name[9:] or 1))
    width = int((float(name) * 1e6 / 3) ** 0.5)
    layers = [torch.nn.Linear(FEATURES, width), torch.nn.ReLU()]
    for _ in range(3 if width < FEATURES else 2):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, CLASSES))


def batch(a: Dict[str, Any], rank: int, step: int) -> Tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(7919 * step + rank)
    shape = (128, 3, 32, 32) if a["model"].startswith("resnet") else (BATCH, FEATURES)
    x = torch.randn(*shape, generator=g)
    return x.to(a["device"]), x.flatten(1)[:, :CLASSES].argmax(1).to(a["device"])


def gradient(
    model: torch.nn.Module, a: Dict[str, Any], rank: int, step: int, slow: float
) -> torch.Tensor:
    begin = time.perf_counter()
    x, y = batch(a, rank, step)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if slow > 1:  # the straggler takes that many times as long
        time.sleep((slow - 1) * (time.perf_counter() - begin))
    return loss


def finished(a: Dict[str, Any]) -> float:
    """The time when all work on the device is done."""
    if a["device"] != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def held_out(model: torch.nn.Module, a: Dict[str, Any]) -> float:
    x, y = batch(a, 10**6, 0)
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(x), y))


def ddp(rank: int, a: Dict[str, Any], say: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(a["port"]))
    torch.set_num_threads(a["threads"])
    model = net(a["model"]).to(a["device"])
    if a["n"] > 1:
        dist.init_process_group("gloo", rank=rank, world_size=a["n"])
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if a["n"] > 1 else model
    opt = torch.optim.SGD(model.parameters(), lr=a["lr"])
    times, begin = [], time.perf_counter()
    for step in range(a["steps"]):
        at = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        gradient(wrapped, a, rank, step, a["slow"] if rank == a["n"] - 1 else 1)
        opt.step()
        times.append(finished(a) - at)
    took = time.perf_counter() - begin
    if rank == 0:
        say.send((statistics.median(times[WARM_UP:]), took, held_out(model, a)))
    if a["n"] > 1:
        dist.barrier()
        dist.destroy_process_group()


def role(rank: int, a: Dict[str, Any]) -> pl.Role:
    if not a["network"]:
        return pl.Role(rank, a["n"], a["socket"])
    at = f"127.0.0.1:{a['port'] + 1}"
    if rank == 0:
        return pl.Role(rank, a["n"], a["socket"], listen=at)
    return pl.Role(rank, a["n"], f"{a['network']}://{at}")


def paceline(rank: int, a: Dict[str, Any], say: Any) -> None:
    torch.set_num_threads(a["threads"])
    model = net(a["model"]).to(a["device"])
    opt = pl.Optimizer(
        torch.optim.SGD(model.parameters(), lr=a["lr"]),
        model,
        a["method"],
        role=role(rank, a),
        updates=a["updates"] if a["target"] is None else None,  # rank 0 ends the others
        **a["options"],
    )
    times, begin, reached, looked = [], time.perf_counter(), None, 0.0
    step = 0
    while not opt.ended and reached is None and step < a["n"] * a["updates"]:
        at = time.perf_counter()
        opt.zero_grad()
        loss = gradient(model, a, rank, step, a["slow"] if rank == a["n"] - 1 else 1)
        opt.step(loss)
        times.append(finished(a) - at)
        step += 1
        if rank == 0 and a["target"] is not None and step % 5 == 0 and reached is None:
            at = time.perf_counter()
            if held_out(model, a) <= a["target"]:
                reached = at - begin - looked
            looked += time.perf_counter() - at
    if rank == 0:
        say.send((statistics.median(times[WARM_UP:] or times), reached, step))
    opt.close()


def start(work: Callable[[int, Dict[str, Any], Any], None], **a: Any) -> Any:
    """Runs the processes; returns what rank 0 tells."""
    context = multiprocessing.get_context("spawn")
    hear, say = context.Pipe(duplex=False)
    a["threads"] = max(1, len(os.sched_getaffinity(0)) // a["n"])
    with tempfile.TemporaryDirectory() as folder:
        a["socket"] = os.path.join(folder, "run", "run.socket")
        a["port"] = 29000 + os.getpid() % 2000
        made = [context.Process(target=work, args=(r, a, say)) for r in range(a["n"])]
        for p in made:
            p.start()
        told = hear.recv() if hear.poll(570) else None
        for p in made:
            p.join(30)
            if p.is_alive():
                p.kill()
    if told is None:
        sys.exit(f"bench/ddp.py: {work.__name__} with {a['n']} processes took more than 570 s")
    if any(p.exitcode != 0 for p in made):  # what the others measured is something else
        sys.exit(f"bench/ddp.py: {work.__name__}: not all of {a['n']} processes ended well")
    return told


def line(n: int, model: str, what: str, theirs: float, mine: Optional[float]) -> None:
    ratio = f"{mine / theirs:6.2f}" if mine else "   n/a"
    shown = f"{mine:9.4f}s" if mine else "not reached"
    print(f"{n:9} {model:>12} {what:>9} {theirs:9.4f}s {shown} {ratio}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--processes", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4])
    p.add_argument("--models", type=lambda t: t.split(","), default=["4", "17"])
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--slow", type=float, default=5)
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--bare", action="store_true")
    p.add_argument("--overlap", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--method", default="async", help="with a straggler, and with --bare")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--network", choices=("http", "https"), default="")
    p.add_argument("--wire", choices=("f32", "bf16"), default="")
    a = p.parse_args()
    print(
        f"{'processes':>9} {'model':>12} {'straggler':>9} {'DDP':>10} {'Paceline':>10} {'ratio':>6}"
    )

    def same_for(n: int, model: str, slow: float) -> Dict[str, Any]:
        """What both sides are told."""
        options = {"wire": a.wire} if a.wire else {}
        if a.overlap:
            options["overlap"] = True
        if a.network:
            options["min_workers"] = n
        same = dict(n=n, model=model, steps=a.steps, slow=slow, lr=a.lr, device=a.device)
        return dict(same, network=a.network, options=options)

    def steps(n: int, model: str, method: str) -> List[float]:
        """Seconds per step of DDP, or of the bare loop, and of Paceline."""
        same = same_for(n, model, 1)
        pairs = [
            (
                start(ddp, **same)[0],
                start(paceline, **same, method=method, updates=a.steps, target=None)[0],
            )
            for _ in range(a.repeat)
        ]
        return [statistics.median(t) for t in zip(*pairs)]

    for model in a.models:
        if a.bare:
            line(1, model, "bare", *steps(1, model, a.method))
        for n in a.processes:
            line(n, model, "none", *steps(n, model, "sync"))
            if a.slow > 1 and not a.network:
                same = same_for(n, model, a.slow)
                _, took, loss = start(ddp, **same)
                most = 100 * a.steps
                _, mine, _ = start(paceline, **same, method=a.method, updates=most, target=loss)
                line(n, model, f"{a.slow:.3g}x", took, mine)


if __name__ == "__main__":
    main()
