"""What the examples share: options, and training for real or simulated."""

import argparse
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch

import paceline
import paceline.torch as pl

Pair = Tuple[torch.Tensor, torch.Tensor]  # inputs and targets


def parser(about: Optional[str], **defaults: float) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--method", default="sync", help="any of 'paceline list method'")
    p.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    p.add_argument("--simulate", action="store_true", help="on a virtual clock, in this process")
    p.add_argument("--workers", type=int, default=4, help="simulated workers")
    p.add_argument("--delay", default="exp:mean=1", help="simulated time per mini-batch")
    p.add_argument("--updates", type=int, default=0, help="stop after N updates")
    p.add_argument(
        "--epochs",
        type=float,
        default=0,
        help="stop after N passes over the data (default 1 if --updates is not given)",
    )
    p.add_argument("--batch", type=int, help="samples per mini-batch of a worker")
    p.add_argument("--lr", type=float, help="learning rate")
    p.add_argument("--samples", type=int, default=0, help="use the first N training samples only")
    p.set_defaults(**defaults)
    return p


def first_accepted(
    method: str, optimizers: Sequence[torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """The first optimizer that the method accepts."""
    for optimizer in optimizers[:-1]:
        try:
            pl.options(optimizer, method)
            return optimizer
        except paceline.UsageError:
            pass
    return optimizers[-1]


def run(
    args: argparse.Namespace,
    model: torch.nn.Module,
    loss: Callable[..., torch.Tensor],
    train: Pair,
    test: Pair,
    optimizers: Sequence[torch.optim.Optimizer],
    schedule: Optional[Callable[[float], float]] = None,
    lr_schedule: Optional[str] = None,
) -> None:
    """Trains with the first of `optimizers` that the method accepts.

    `schedule(epoch)` is a factor of the learning rate, for real workers; `lr_schedule` is the same
    as an option, for simulated ones."""
    if args.samples:
        train = train[0][: args.samples], train[1][: args.samples]
    model.to(args.device)
    optimizer = first_accepted(args.method, optimizers)
    epochs = args.epochs or (1 if not args.updates else 0)

    def evaluate(model: torch.nn.Module) -> Dict[str, Any]:
        x, y = (t[:1000].to(args.device) for t in test)
        out = model(x)
        right = (out.argmax(-1 if out.dim() == 2 else 1) == y).float().mean()
        return {"test_loss": loss(out, y), "test_accuracy": right}

    if args.simulate:
        result = paceline.simulate(
            model=model,
            loss=loss,
            data=train,
            test=test,
            method=args.method,
            batch=args.batch,
            workers=args.workers,
            delay=args.delay,
            updates=args.updates or None,
            epochs=epochs or None,
            lr_schedule=lr_schedule,
            **pl.options(optimizer, args.method),
        )
        print(
            f"{result['updates']:.0f} updates, {result['time']:.1f} virtual seconds, "
            f"test loss {result['test_loss']:.3f}, accuracy {result['test_accuracy']:.3f}"
        )
        return

    updates = args.updates or max(1, int(epochs * len(train[0]) / args.batch))
    opt = pl.Optimizer(
        optimizer, model, args.method, updates=updates, batch=args.batch, evaluate=evaluate
    )
    data = torch.utils.data.TensorDataset(*train)
    sampler = torch.utils.data.DistributedSampler(data, pl.world_size(), pl.rank())
    loader = torch.utils.data.DataLoader(data, args.batch, sampler=sampler, drop_last=True)
    rate = None
    if schedule:
        factor = schedule
        per_step = args.batch * pl.world_size() / len(data)
        rate = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: float(factor(step * per_step)))
    for x, y in opt.batches(loader):
        with opt.task():
            opt.zero_grad()
            value = loss(model(x.to(args.device)), y.to(args.device))
            value.backward()
            opt.step(value)
        if rate:
            rate.step()
    opt.close()
    if pl.rank() == 0:
        s = opt.summary()["run"]
        print(
            f"{s['updates']} updates, {s['time']:.1f} s, test loss {s['test_loss']:.3f}, "
            f"accuracy {s['test_accuracy']:.3f}"
        )
