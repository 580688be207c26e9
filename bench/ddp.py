"""Paceline's workers against DistributedDataParallel on Gloo, on this machine.

    python3 bench/ddp.py [--processes 2,4] [--parameters 4,17] [--steps 60] [--slow 5]
    python3 bench/ddp.py --network https [--wire bf16]

1. Without a straggler: median seconds per step of `sync` and of DDP, same model and mini-batches.
2. With one worker slowed by --slow: seconds until the loss of DDP's --steps is reached by
   asynchronous updates.

With --network, all ranks but 0 reach the server over HTTP or HTTPS (PACELINE_KEYS names the folder of
certificates), and only the first is measured (aims: at most 1.0 plain, 1.3 encrypted, 0.7 with bf16).

Prints one line per measurement; the last column is Paceline's time over DDP's (aims: at most 0.9
without a straggler, at most 1/3 with one). Every process has one thread of its own and a fair share
of the cores."""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import paceline.torch as pl  # noqa: E402

BATCH, FEATURES, CLASSES = 32, 256, 10
WARM_UP = 5


def net(millions):
    """Four layers, with about this many million parameters."""
    torch.manual_seed(0)
    width = int((millions * 1e6 / 3) ** 0.5)
    layers = [torch.nn.Linear(FEATURES, width), torch.nn.ReLU()]
    for _ in range(3 if width < FEATURES else 2):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, CLASSES))


def batch(rank, step):
    g = torch.Generator().manual_seed(7919 * step + rank)
    x = torch.randn(BATCH, FEATURES, generator=g)
    return x, (x[:, :CLASSES].argmax(1))


def gradient(model, rank, step, slow):
    begin = time.perf_counter()
    x, y = batch(rank, step)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if slow > 1:  # the straggler takes that many times as long
        time.sleep((slow - 1) * (time.perf_counter() - begin))
    return loss


def held_out(model):
    x, y = batch(10**6, 0)
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(x), y))


def ddp(rank, a, say):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(a["port"]))
    torch.set_num_threads(a["threads"])
    dist.init_process_group("gloo", rank=rank, world_size=a["n"])
    model = net(a["millions"])
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=a["lr"])
    times, begin = [], time.perf_counter()
    for step in range(a["steps"]):
        at = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        gradient(wrapped, rank, step, a["slow"] if rank == a["n"] - 1 else 1)
        opt.step()
        times.append(time.perf_counter() - at)
    took = time.perf_counter() - begin
    if rank == 0:
        say.send((statistics.median(times[WARM_UP:]), took, held_out(model)))
    dist.barrier()
    dist.destroy_process_group()


def role(rank, a):
    if not a["network"]:
        return pl.Role(rank, a["n"], a["socket"])
    at = f"127.0.0.1:{a['port'] + 1}"
    if rank == 0:
        return pl.Role(rank, a["n"], a["socket"], listen=at)
    return pl.Role(rank, a["n"], f"{a['network']}://{at}")


def paceline(rank, a, say):
    torch.set_num_threads(a["threads"])
    model = net(a["millions"])
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
        loss = gradient(model, rank, step, a["slow"] if rank == a["n"] - 1 else 1)
        opt.step(loss)
        times.append(time.perf_counter() - at)
        step += 1
        if rank == 0 and a["target"] is not None and step % 5 == 0 and reached is None:
            at = time.perf_counter()
            if held_out(model) <= a["target"]:
                reached = at - begin - looked
            looked += time.perf_counter() - at
    if rank == 0:
        say.send((statistics.median(times[WARM_UP:] or times), reached, step))
    opt.close()


def start(work, **a):
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
    return told


def numbers(text):
    return [float(x) for x in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--processes", type=numbers, default=[2, 4])
    p.add_argument("--parameters", type=numbers, default=[4, 17], help="millions")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--slow", type=float, default=5)
    p.add_argument("--method", default="async", help="with a straggler")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--network", choices=("http", "https"), default="")
    p.add_argument("--wire", choices=("f32", "bf16"), default="")
    a = p.parse_args()
    print(
        f"{'processes':>9} {'parameters':>11} {'straggler':>9} {'DDP':>10} {'Paceline':>10} {'ratio':>6}"
    )
    for n in (int(x) for x in a.processes):
        for millions in a.parameters:
            for slow in (1,) if a.network else (1, a.slow):
                same = dict(n=n, millions=millions, steps=a.steps, slow=slow, lr=a.lr)
                same.update(network=a.network, options={"wire": a.wire} if a.wire else {})
                if a.network:
                    same["options"]["min_workers"] = n
                step, took, loss = start(ddp, **same)
                if slow == 1:
                    theirs = step
                    mine, _, _ = start(
                        paceline, **same, method="sync", updates=a.steps, target=None
                    )
                else:
                    theirs = took
                    _, mine, _ = start(
                        paceline, **same, method=a.method, updates=100 * a.steps, target=loss
                    )
                ratio = f"{mine / theirs:6.2f}" if mine else "   n/a"
                shown = f"{mine:9.4f}s" if mine else "not reached"
                print(
                    f"{n:9} {millions:10.1f}M {slow:8.3g}x {theirs:9.4f}s {shown} {ratio}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
