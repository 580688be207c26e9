"""Prints what becomes of every method with a PyTorch model: real workers and simulated, on the CPU.

    PYTHONPATH=python python3 bench/torch_methods.py >docs/bench/torch-methods.md

Three workers, 20 updates, a small network. Real workers wrap plain SGD, SGD with momentum, or Adam. A
cell is "works", which means finite weights that have moved, or the sentence with which the method is
refused."""

import os
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, List, Tuple

import torch

import paceline
import paceline.torch as pl

WORKERS, UPDATES = 3, 20
CROSS_ENTROPY = torch.nn.functional.cross_entropy
Maker = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: Dict[str, Maker] = {
    "plain SGD": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.002),
}


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batch(seed: int, n: int = 8) -> Tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def trusted(model: torch.nn.Module) -> torch.Tensor:
    """The loss on samples that rank 0 trusts, for zeno++."""
    x, y = batch(1, 200)
    return CROSS_ENTROPY(model(x), y)


def verdict(start: torch.Tensor, model: torch.nn.Module) -> str:
    now = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    moved = float((now - start).abs().max())
    return "works" if torch.isfinite(now).all() and moved > 1e-4 else f"wrong: moved by {moved:.3g}"


def work(method: str, make: Maker, role: pl.Role, out: List[str], start: torch.Tensor) -> None:
    """One worker of a real run."""
    model = net()
    torch.nn.utils.vector_to_parameters(start.clone(), model.parameters())
    try:
        inner = make(model.parameters())
        reference = trusted if method == "zeno++" else None
        opt = pl.Optimizer(inner, model, method, updates=UPDATES, role=role, reference=reference)
        step = 0
        while not opt.ended:
            with opt.task():
                x, y = batch(1000 * step + role.rank)
                opt.zero_grad()
                loss = CROSS_ENTROPY(model(x), y)
                loss.backward()
                opt.step(loss)
            step += 1
        opt.close()
        out[role.rank] = verdict(start, model)
    except paceline.Error as e:
        out[role.rank] = str(e)


def real(method: str, make: Maker, start: torch.Tensor) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.socket")
        out = ["hangs"] * WORKERS
        threads = [
            threading.Thread(
                target=work, args=(method, make, pl.Role(r, WORKERS, path), out, start)
            )
            for r in range(WORKERS)
        ]
        for t in threads:
            t.daemon = True
            t.start()
        for t in threads:
            t.join(120)
    return out[0]


def simulated(method: str, start: torch.Tensor) -> str:
    model = net()
    torch.nn.utils.vector_to_parameters(start.clone(), model.parameters())
    try:
        paceline.simulate(
            model=model,
            loss=CROSS_ENTROPY,
            data=batch(1, 200),
            method=method,
            workers=WORKERS,
            updates=UPDATES,
            lr=0.05,
            batch=8,
        )
    except paceline.Error as e:
        return str(e)
    return verdict(start, model)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    start = torch.nn.utils.parameters_to_vector(net().parameters()).detach()
    columns = [f"real, {name}" for name in OPTIMIZERS] + ["simulated"]
    rows = []
    for item in paceline.catalog("method"):
        cells = [real(item.name, make, start) for make in OPTIMIZERS.values()]
        rows.append([item.name, *cells, simulated(item.name, start)])
        print(*rows[-1], sep="; ", file=sys.stderr)
    print("# Every method with a PyTorch model\n")
    for i, how in enumerate(columns, 1):
        n = sum(row[i] == "works" for row in rows)
        print(f"- {how}: {n} of {len(rows)} work")
    print(f"\n| method | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |", flush=True)


if __name__ == "__main__":
    main()
