"""`sync` with P workers is single-process training on the union of their mini-batches: every
optimizer, weight decay, param groups, schedules, accumulation, buffers."""

import itertools
import time
import unittest
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import CROSS_ENTROPY, batch, flat, net, roles, together

STEPS, WORKERS = 50, 2
SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
fork_servers()


def groups(model: torch.nn.Module) -> List[Any]:
    """Two param groups: no decay and a tenth of the rate for the last layer."""
    params = list(model.parameters())
    return [{"params": params[:2]}, {"params": params[2:], "lr": 0.01, "weight_decay": 0.0}]


def alone(
    make: Callable[[Any], torch.optim.Optimizer],
    scheduler: Optional[Callable[..., Any]] = None,
    norm: bool = False,
    workers: int = WORKERS,
    clip: Optional[float] = None,
) -> Any:
    """One process; with BatchNorm, the statistics of every worker's half are averaged."""
    model = net(norm=norm)
    opt = make(model)
    sched = scheduler(opt) if scheduler else None
    for step in range(STEPS):
        opt.zero_grad(set_to_none=True)
        before = [b.clone() for b in model.buffers()]
        after = []
        for w in range(workers):
            for b, old in zip(model.buffers(), before):
                b.copy_(old)
            x, y = batch(step, w)
            (CROSS_ENTROPY(model(x), y) / workers).backward()
            after.append([b.clone() for b in model.buffers()])
        for b, *new in zip(model.buffers(), *after):
            b.copy_(torch.stack([n.double() for n in new]).mean(0))
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        if sched:
            sched.step()
    return model


def with_workers(
    make: Callable[[Any], torch.optim.Optimizer],
    scheduler: Optional[Callable[..., Any]] = None,
    norm: bool = False,
    workers: int = WORKERS,
    **options: Any,
) -> Any:
    def work(role: pl.Role) -> Tuple[Any, Dict[str, Any]]:
        model = net(seed=role.rank, norm=norm)  # the weights of rank 0 count
        opt = pl.Optimizer(make(model), model, method="sync", updates=STEPS, role=role, **options)
        sched = scheduler(opt) if scheduler else None
        step = 0
        while not opt.ended:
            opt.zero_grad()
            x, y = batch(step, role.rank)
            loss = CROSS_ENTROPY(model(x), y)
            loss.backward()
            opt.step(loss)
            if sched:
                sched.step()
            step += 1
        opt.close()
        return model, opt.summary()

    return together(workers, work)


class Exact(unittest.TestCase):
    def same(
        self,
        make: Callable[[Any], torch.optim.Optimizer],
        scheduler: Optional[Callable[..., Any]] = None,
        norm: bool = False,
        workers: int = WORKERS,
    ) -> None:
        expected = flat(alone(make, scheduler, norm, workers))
        (model, summary), *_ = with_workers(make, scheduler, norm, workers)
        self.assertEqual(summary["run"]["updates"], STEPS)
        self.assertGreater(float((expected - flat(net(norm=norm))).abs().max()), 1e-2)
        self.assertLess(float((flat(model) - expected).abs().max()), 1e-6)

    def test_sgd(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1))

    def test_momentum(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01))

    def test_dampening(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1, momentum=0.8, dampening=0.3))

    def test_nesterov(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True))

    def test_adam(self) -> None:
        self.same(lambda m: ADAM(m.parameters(), lr=0.003, betas=(0.8, 0.99), weight_decay=0.01))

    def test_adamw(self) -> None:
        self.same(lambda m: ADAMW(m.parameters(), lr=0.003, weight_decay=0.1))

    def test_adagrad(self) -> None:
        self.same(lambda m: torch.optim.Adagrad(m.parameters(), lr=0.02))

    def test_sparse(self) -> None:
        """Gradients of an embedding that are sparse: rows that a mini-batch has not used have none."""

        def make() -> Any:
            embedding = torch.nn.Embedding(6, 3, sparse=True)
            with torch.no_grad():
                embedding.weight.copy_(torch.linspace(-1, 1, 18).view(6, 3))
            return embedding

        def loss(model: torch.nn.Module, step: int, rank: int = 0) -> Any:
            rows = torch.tensor([step % 3, 2 * rank + step % 2])
            return model(rows).square().sum()

        def worker(role: pl.Role, optimizer: Callable[[Any], torch.optim.Optimizer]) -> Any:
            model = make()
            opt = pl.Optimizer(optimizer(model), model, "sync", role=role, updates=STEPS)
            step = 0
            while not opt.ended:
                opt.zero_grad()
                loss(model, step, role.rank).backward()
                self.assertTrue(model.weight.grad.is_sparse)
                opt.step()
                step += 1
            opt.close()
            return flat(model)

        for optimizer in (
            lambda m: SGD(m.parameters(), lr=0.1),
            lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9),
            lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1),
        ):
            found = together(2, lambda role: worker(role, optimizer))[0]
            model = make()
            alone = optimizer(model)
            for step in range(STEPS):
                alone.zero_grad()
                for rank in range(2):
                    (loss(model, step, rank) / 2).backward()
                alone.step()
            self.assertGreater(float((flat(model) - flat(make())).abs().max()), 1e-2)
            self.assertLess(float((found - flat(model)).abs().max()), 1e-6)
        model = make()
        with self.assertRaisesRegex(paceline.UsageError, "no SparseAdam"):
            sparse = torch.optim.SparseAdam(list(model.parameters()))
            pl.Optimizer(sparse, model, "sync", role=roles(1)[0])

    def test_clipping(self) -> None:
        """max_norm clips the mean, as a script with DDP does; weight decay is added afterwards."""
        for make in (
            lambda m: SGD(groups(m), lr=0.1, momentum=0.9, weight_decay=0.1),
            lambda m: ADAMW(m.parameters(), lr=0.003, weight_decay=0.1),
        ):
            expected = flat(alone(make, clip=0.05))
            self.assertGreater(float((expected - flat(alone(make))).abs().max()), 1e-3)
            (model, _), _ = with_workers(make, max_norm=0.05)
            self.assertLess(float((flat(model) - expected).abs().max()), 1e-6)

    def test_param_groups(self) -> None:
        self.same(lambda m: SGD(groups(m), lr=0.1, momentum=0.9, weight_decay=0.02))
        self.same(lambda m: ADAMW(groups(m), lr=0.003, weight_decay=0.1))

    def test_four_workers(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.1), workers=4)

    def test_buffers(self) -> None:
        self.same(lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9), norm=True)

    def test_frozen_parameters(self) -> None:
        def make(model: Any) -> torch.optim.SGD:
            model[0].bias.requires_grad_(False)
            return SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)

        self.same(make)

    def test_schedules(self) -> None:
        warm = torch.optim.lr_scheduler.LambdaLR
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR
        make = lambda m: SGD(groups(m), lr=0.1, momentum=0.9)
        self.same(make, lambda o: warm(o, lambda s: min(1.0, s / 10)))
        self.same(make, lambda o: cosine(o, STEPS))

    def test_accumulation_scaler_and_zero_copy(self) -> None:
        """Two mini-batches per step in one worker are two workers; a disabled scaler changes
        nothing; neither do views."""
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)
        expected = flat(alone(make))
        for zero_copy in (False, True):

            def work(role: pl.Role) -> Any:
                model = net()
                opt = pl.Optimizer(
                    make(model), model, "sync", role=role, updates=STEPS, zero_copy=zero_copy
                )
                scaler = torch.cuda.amp.GradScaler(enabled=False)
                for step in range(STEPS):
                    opt.zero_grad()
                    for w in range(2):
                        x, y = batch(step, w)
                        loss = CROSS_ENTROPY(model(x), y) / 2
                        scaler.scale(loss).backward()
                        if w == 0:
                            with opt.no_sync():
                                scaler.step(opt, loss)
                                opt.zero_grad()
                    scaler.step(opt, loss)
                    scaler.update()
                opt.close()
                return model

            (model,) = together(1, work)
            self.assertLess(float((flat(model) - expected).abs().max()), 1e-6)

    @unittest.skipUnless(torch.cuda.is_available(), "there is no CUDA device")
    def test_gpu(self) -> None:
        """The flat model on a GPU, with buffers, through pinned shared memory."""
        make = lambda m: SGD(groups(m), lr=0.05, momentum=0.9)
        expected = flat(alone(make, norm=True))

        def work(role: pl.Role) -> Any:
            model = net(norm=True).cuda()
            opt = pl.Optimizer(make(model), model, "sync", updates=STEPS, role=role)
            self.assertIsNotNone(opt._vector.flat)
            for step in itertools.count():
                if opt.ended:
                    return model
                opt.zero_grad()
                x, y = (t.cuda() for t in batch(step, role.rank))
                loss = CROSS_ENTROPY(model(x), y)
                loss.backward()
                opt.step(loss)

        models = together(WORKERS, work)
        self.assertLess(float((flat(models[0].cpu()) - expected).abs().max()), 1e-5)

    def test_state_dict(self) -> None:
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def work(role: pl.Role) -> Tuple[Any, Any]:
            model = net()
            opt = pl.Optimizer(make(model), model, "sync", role=role, updates=5)
            state = opt.state_dict()
            self.assertEqual(state["paceline"], {"version": 0})
            state["param_groups"][0]["lr"] = 0.025
            opt.load_state_dict(state)
            for step in itertools.count():
                if opt.ended:
                    break
                opt.zero_grad()
                x, y = batch(step)
                CROSS_ENTROPY(model(x), y).backward()
                opt.step()
            return model, opt.summary()["run"]["lr"]

        ((model, _),) = together(1, work)
        reference = net()
        opt = SGD(reference.parameters(), lr=0.025)
        for step in range(5):
            opt.zero_grad(set_to_none=True)
            x, y = batch(step)
            CROSS_ENTROPY(reference(x), y).backward()
            opt.step()
        self.assertLess(float((flat(model) - flat(reference)).abs().max()), 1e-6)

    def test_ends_inside_a_task(self) -> None:
        """A run that ends while its only worker computes ends well, whatever the worker does next."""

        def work(role: pl.Role) -> Tuple[int, Any]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role, time=600)
            steps = 0
            while not opt.ended:
                opt.zero_grad()
                opt.param_groups[0]["lr"] = 0.05
                x, y = batch(steps)
                CROSS_ENTROPY(model(x), y).backward()
                server = opt._session.server
                assert server is not None
                opt._session._end()
                while server.alive:  # the run ends, and its server is gone
                    time.sleep(0.01)
                opt.step()
                steps += 1
            return steps, opt.summary()["failure"]

        self.assertEqual(together(1, work), [(1, None)])

    def test_refusals(self) -> None:
        cases: List[Tuple[Callable[..., Any], Dict[str, Any], str]] = [
            (lambda m: ADAM(m.parameters(), amsgrad=True), dict(method="sync"), "amsgrad"),
            (lambda m: torch.optim.RMSprop(m.parameters()), dict(method="sync"), "no RMSprop"),
            (lambda m: ADAM(m.parameters()), dict(method="dana"), "optimizer of its own"),
            (lambda m: SGD(m.parameters(), lr=0.1), dict(lr=0.3), "leave the option out"),
            (
                lambda m: SGD(
                    [{"params": [p], "momentum": i / 9} for i, p in enumerate(m.parameters())], lr=1
                ),
                dict(method="sync"),
                "differ in momentum",
            ),
            (
                lambda m: SGD(m.parameters(), lr=0.1),
                dict(method="local-sgd", max_norm=1),
                "clip in the workers",
            ),
            (lambda m: ADAM(m.parameters()), dict(method="downpour"), "plain torch.optim.SGD"),
            (lambda m: SGD(net(1).parameters(), lr=1), dict(method="sync"), "does not have"),
            (lambda m: SGD(m.parameters(), lr=1), dict(method="sink"), "sink"),
            (lambda m: SGD(m.parameters(), lr=1), dict(method="zeno++"), "give reference="),
            (lambda m: SGD(m.parameters(), lr=1), dict(reference=sum), "leave it out"),
            (lambda m: SGD(m.parameters(), lr=1), dict(wrkers=3), "wrkers"),
        ]
        for make, options, expected in cases:

            def work(role: pl.Role) -> None:
                model = net()
                pl.Optimizer(make(model), model, role=role, **options)

            with self.assertRaises(paceline.Error) as caught:
                together(1, work)
            self.assertIn(expected, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
