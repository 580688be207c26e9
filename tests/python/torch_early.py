"""Gradients that leave during backward, as on a GPU: whatever a program does between backward and
step, the result is that of a program that copies them in step. Here the flat model is on the CPU."""

import unittest
import unittest.mock
from typing import Any, Callable, List, Tuple

import torch

import paceline.torch as pl
from forks import fork_servers
from paceline.torch import _early, _vector
from workers import CROSS_ENTROPY, batch, flat, net, together

SGD = torch.optim.SGD
fork_servers()


class Branches(torch.nn.Module):
    """Every other step leaves out a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.more = net(0, norm=True), net(1)
        self.even = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x)
        return out.add(self.more(x)) if self.even else out


def plain(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    opt.zero_grad()
    loss = CROSS_ENTROPY(model(batch(step)[0]), batch(step)[1])
    loss.backward()
    return loss


def clipped(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> Any:
    loss = plain(opt, model, step)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return loss


def clamped(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> Any:
    """Old scripts do this, and no version counter tells."""
    loss = plain(opt, model, step)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.clamp_(-0.05, 0.05)
    return loss


def replaced(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> Any:
    loss = plain(opt, model, step)
    for p in model.parameters():
        p.grad = None if p.grad is None else p.grad.sign()
    return loss


def accumulated(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    plain(opt, model, step)
    loss = CROSS_ENTROPY(model(batch(step, 1)[0]), batch(step, 1)[1])
    loss.backward()
    return loss


def not_synced(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    opt.zero_grad()
    with opt.no_sync():
        for i in range(3):
            CROSS_ENTROPY(model(batch(step, i)[0]), batch(step, i)[1]).backward()
    loss = CROSS_ENTROPY(model(batch(step, 3)[0]), batch(step, 3)[1])
    loss.backward()
    return loss


def twice(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    opt.zero_grad()
    loss = CROSS_ENTROPY(model(batch(step)[0]), batch(step)[1])
    loss.backward(retain_graph=True)
    loss.backward()
    return loss


def cleared(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    """The first backward is for something else."""
    CROSS_ENTROPY(model(batch(step, 7)[0]), batch(step)[1]).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()
    loss = CROSS_ENTROPY(model(batch(step)[0]), batch(step)[1])
    loss.backward()
    return loss


def left_out(opt: pl.Optimizer, model: Any, step: int) -> Any:
    model.even = step % 2 == 0
    return plain(opt, model, step)


def scaled(opt: pl.Optimizer, model: torch.nn.Module, step: int) -> torch.Tensor:
    """As a gradient scaler does it: backward with a factor, which is taken out again."""
    opt.zero_grad()
    loss = CROSS_ENTROPY(model(batch(step)[0]), batch(step)[1])
    (1024 * loss).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(1024)
    return loss


class Early(unittest.TestCase):
    def run_with(
        self,
        compute: Callable[[pl.Optimizer, torch.nn.Module, int], Any],
        early: bool,
        method: str = "sync",
        momentum: float = 0.9,
    ) -> Any:
        """The weights, and how many buckets went out during backward in each step."""

        def worker(role: pl.Role) -> Tuple[Any, List[int]]:
            model = Branches()
            sgd = SGD(model.parameters(), lr=0.05, momentum=momentum)
            opt = pl.Optimizer(sgd, model, method, updates=8, role=role)
            went = []
            for step in range(8):
                loss = compute(opt, model, step)
                early = opt._vector._early
                went.append(sum(early._gone) if early else 0)
                opt.step(loss)
            opt.close()
            weights = flat(model)
            if early:  # it leaves no hooks behind
                with unittest.mock.patch.object(early, "_ready", self.fail):
                    model(batch(0)[0]).sum().backward()
            return weights, went

        on = ("cpu",) if early else ()
        with unittest.mock.patch.object(_vector, "_FLAT_ON", on):
            with unittest.mock.patch.object(_early, "_BUCKET", 20):
                return together(1, worker)[0]

    def check(
        self,
        compute: Callable[[pl.Optimizer, torch.nn.Module, int], Any],
        expected: Any,
        **more: Any,
    ) -> None:
        weights, went = self.run_with(compute, True, **more)
        self.assertEqual(went, expected)
        self.assertTrue(torch.equal(weights, self.run_with(compute, False, **more)[0]))

    def test_unchanged(self) -> None:
        """All buckets have gone before step."""
        self.check(plain, [5] * 8)
        self.check(not_synced, [5] * 8)
        self.check(plain, [5] * 8, momentum=0)

    def test_changed(self) -> None:
        """Changes are noticed, and if there are always some, nothing is sent early any more."""
        for compute in (clipped, clamped, replaced, scaled):
            with self.subTest(compute.__name__):
                self.check(compute, [5] * 3 + [0] * 5)

    def test_several_backwards(self) -> None:
        for compute in (accumulated, twice, cleared):
            with self.subTest(compute.__name__):
                self.check(compute, [0] * 8)

    def test_unused(self) -> None:
        self.check(left_out, [5, 3] * 4)

    def test_cancelled(self) -> None:
        """What an abandoned task has sent is not in the next result."""

        def worker(role: pl.Role) -> Any:
            model = Branches()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.05), model, "sync", role=role)
            plain(opt, model, 5)
            with unittest.mock.patch.object(opt._session, "cancelled", lambda: True):
                with unittest.mock.patch.object(opt, "_next_task", lambda: None):
                    opt.step()
            for step in range(3):
                opt.step(plain(opt, model, step))
            opt.close()
            return flat(model)

        results = []
        for on in ((), ("cpu",)):
            with unittest.mock.patch.object(_vector, "_FLAT_ON", on):
                with unittest.mock.patch.object(_early, "_BUCKET", 20):
                    results.append(together(1, worker)[0])
        self.assertTrue(torch.equal(*results))

    def test_not_finite(self) -> None:
        """A gradient that is not finite is rejected, wherever it is looked at."""
        for on in ((), ("cpu",)):
            for momentum in (0, 0.9):

                def worker(role: pl.Role) -> Tuple[Any, Any]:
                    model = net()
                    sgd = SGD(model.parameters(), lr=0.1, momentum=momentum)
                    opt = pl.Optimizer(sgd, model, "async", updates=4, role=role)
                    step = 0
                    while not opt.ended:
                        loss = plain(opt, model, step)
                        if step in (1, 3):
                            first: Any = next(model.parameters())
                            first.grad[0, 0] = float("nan")
                        opt.step(loss)
                        step += 1
                    return opt.summary()["run"]["tasks"]["rejected"], flat(model)

                with unittest.mock.patch.object(_vector, "_FLAT_ON", on):
                    rejected, weights = together(1, worker)[0]
                self.assertEqual(rejected, 2)
                self.assertTrue(torch.isfinite(weights).all())


if __name__ == "__main__":
    unittest.main()
