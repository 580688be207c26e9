"""Parameters without a gradient: what torch.optim skips, the server skips. `sync` is compared with one
process on the union of the mini-batches, where a parameter that one worker has not used counts as zero
there, as with find_unused_parameters of DistributedDataParallel."""

import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Optional

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from paceline import Setup
from workers import CROSS_ENTROPY, batch, flat, net, together

STEPS, WORKERS = 12, 2
SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
fork_servers()


class Heads(torch.nn.Module):
    """A trunk, and three heads of which a step uses some."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.heads = net(width=8), torch.nn.ModuleList()
        for seed in range(3):
            self.heads.append(net(seed))

    def forward(self, x: torch.Tensor, used: List[int]) -> Any:
        return self.trunk(x) + sum(self.heads[i](x) for i in used)


def some(step: int, worker: int) -> List[int]:
    """Head 1 is used every third step; head 2 by worker 1 alone, in odd steps."""
    return [0] + [1] * (step % 3 == 0) + [2] * (step % 2 and worker == 1)


def every(step: int, worker: int) -> List[int]:
    return [0, 1, 2]


def freeze_and_thaw(model: Any, step: int) -> None:
    if step in (4, 8):
        model.heads[1].requires_grad_(step == 8)


def thaw_and_freeze(model: Any, step: int) -> None:
    if step in (0, 3, 7):
        model.trunk.requires_grad_(step == 3)
        model.zero_grad(set_to_none=True)


def loss_of(
    model: Any, step: int, worker: int, used: Callable[[int, int], List[int]]
) -> torch.Tensor:
    x, y = batch(step, worker)
    return CROSS_ENTROPY(model(x, used(step, worker)), y)


def alone(
    make: Callable[[Any], torch.optim.Optimizer],
    used: Optional[Callable[[int, int], List[int]]],
    change: Callable[[Any, int], Any],
    steps: int = STEPS,
) -> Any:
    model = Heads()
    opt = make(model)
    for step in range(steps):
        change(model, step)
        opt.zero_grad(set_to_none=True)
        for worker in range(WORKERS):
            if used:
                (loss_of(model, step, worker, used) / WORKERS).backward()
        opt.step()
    return model


def nothing(model: Any, step: int) -> None:
    pass


def with_workers(
    make: Callable[[Any], torch.optim.Optimizer],
    used: Optional[Callable[[int, int], List[int]]],
    change: Callable[[Any, int], Any],
    first: int = 0,
    updates: int = STEPS,
    method: str = "sync",
    **options: Any,
) -> Any:
    def work(role: pl.Role) -> Any:
        model = Heads()
        opt = pl.Optimizer(make(model), model, method, updates=updates, role=role, **options)
        for step in range(first, updates):
            if opt.ended:  # the others were faster
                break
            change(model, step)
            opt.zero_grad()
            if used:
                loss_of(model, step, role.rank, used).backward()
            opt.step()
        opt.close()
        return model

    return together(WORKERS, work)[0]


class Unused(unittest.TestCase):
    def same(
        self,
        make: Callable[[Any], torch.optim.Optimizer],
        used: Optional[Callable[[int, int], List[int]]] = some,
        change: Callable[[Any, int], Any] = nothing,
    ) -> None:
        expected, found = flat(alone(make, used, change)), flat(with_workers(make, used, change))
        self.assertLess(float((found - expected).abs().max()), 1e-6)

    def test_momentum(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9))
        self.same(lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.5))
        self.same(lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True))

    def test_weight_decay(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1))

    def test_adam(self) -> None:
        self.same(lambda m: ADAMW(m.parameters(), lr=0.01, weight_decay=0.1))
        self.same(lambda m: torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=0.1))
        self.same(lambda m: torch.optim.Adagrad(m.parameters(), lr=0.02, weight_decay=0.01))

    def test_frozen_in_the_middle(self) -> None:
        for change in (freeze_and_thaw, thaw_and_freeze):
            self.same(lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9), every, change)
            self.same(lambda m: ADAMW(m.parameters(), lr=0.01, weight_decay=0.1), every, change)

    def test_no_backward(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1), used=None)

    def test_param_groups_of_some(self) -> None:
        """What is not in the optimizer has gradients, which nobody uses."""

        def make(model: Any) -> torch.optim.AdamW:
            groups = [{"params": model.heads[1].parameters(), "lr": 0.02}]
            groups.append({"params": model.heads[0].parameters(), "weight_decay": 0.0})
            return ADAMW(groups, lr=0.01, weight_decay=0.1)

        self.same(make)

    def test_resumed(self) -> None:
        """A checkpoint knows how many steps each tensor had."""
        make = lambda m: ADAMW(m.parameters(), lr=0.01, weight_decay=0.1)
        expected = flat(alone(make, some, nothing))
        with tempfile.TemporaryDirectory() as folder:
            with_workers(make, some, nothing, updates=5, checkpoint=folder)
            model = with_workers(make, some, nothing, 5, checkpoint=folder, resume="auto")
        self.assertLess(float((flat(model) - expected).abs().max()), 1e-6)

    def test_bf16(self) -> None:
        """A result that is sent as bfloat16 lacks the same tensors."""
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        never = lambda step, worker: [0]
        model = with_workers(make, never, nothing, wire="bf16")
        for got, first in zip(model.heads[2].parameters(), Heads().heads[2].parameters()):
            self.assertTrue(torch.equal(got, first.bfloat16().float()) or torch.equal(got, first))

    def test_steps_of_the_library(self) -> None:
        """downpour applies weight decay in the workers' steps, which skip nothing."""
        plain = lambda m: SGD(m.parameters(), lr=0.1)
        model = with_workers(plain, lambda step, worker: [0], nothing, method="downpour")
        for got, first in zip(model.heads[2].parameters(), Heads().heads[2].parameters()):
            self.assertTrue(torch.equal(got, first))
        decayed = lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1)
        with self.assertRaisesRegex(paceline.UsageError, "no gradient in this step"):
            with_workers(decayed, some, nothing, method="downpour")

    def one(self, role: pl.Role, method: str, momentum: float = 0.0) -> float:
        """A head is used in four steps, and then no more; returns how far it moves without."""
        model = Heads()
        trusted = lambda m: loss_of(m, 0, 0, every)
        opt = pl.Optimizer(
            SGD(model.parameters(), lr=0.05, momentum=momentum),
            model,
            method,
            role=role,
            reference=trusted if method == "zeno++" else None,
        )
        at = []
        try:
            for step in range(7):
                opt.zero_grad()
                loss_of(model, step, 0, some if step < 4 else lambda *_: [0]).backward()
                opt.step()
                at.append(flat(model.heads[1]))
        finally:
            opt.close()
        return float((at[6] - at[4]).abs().max())

    def test_every_method(self) -> None:
        """No method that sends gradients moves a head that is used no more, or it says so."""

        def far(name: str) -> Any:
            at = Setup(method=name, workers=3).method()
            if at["any_optimizer"] or at["sends"] not in ("gradients", "models"):
                return "sends something else"
            momentum = 0.0 if at["sends"] == "models" or at["local_steps"] else 0.9
            workers = 3 if name in ("krum", "bulyan") else 1
            try:
                return together(workers, lambda role: self.one(role, name, momentum))[0]
            except paceline.UsageError as e:
                return str(e)

        names = [item.name for item in paceline.catalog("method")]
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(names, pool.map(far, names)))
        self.assertGreater(sum(x == 0 for x in found.values()), 30)
        moving = {name for name, x in found.items() if x not in (0, "sends something else")}
        self.assertEqual(moving, {"centered-clipping", "eamsgd"})
        for name in moving:
            self.assertRegex(str(found[name]), "no gradient in this step.*but momentum changes")


if __name__ == "__main__":
    unittest.main()
