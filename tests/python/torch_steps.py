"""The exact arithmetic of a step: samples are counted once, the rate of rank 0 arrives, an abandoned
task leaves nothing behind, the sampler's epoch is the program's."""

import copy
import inspect
import pickle
import threading
import time
import unittest
import unittest.mock
from typing import Any, Callable, Dict, List, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import CROSS_ENTROPY, batch, flat, net, roles, to_the_end, together

SGD = torch.optim.SGD
DATA = torch.utils.data.TensorDataset(*batch(0, n=64))
fork_servers()


def loader(size: int = 8) -> Any:
    return torch.utils.data.DataLoader(DATA, size)


class Overlap(unittest.TestCase):
    both = threading.Barrier(2, timeout=600)

    def seen(self, role: pl.Role, method: str, overlap: bool) -> Tuple[List[Any], Any]:
        """The weights that every mini-batch is computed with, and those at the end."""
        model, seen = net(), []
        opt = pl.Optimizer(
            SGD(model.parameters(), lr=0.1), model, method, role=role, overlap=overlap
        )
        model.register_forward_pre_hook(lambda *_: seen.append(flat(model)))
        sampler = torch.utils.data.DistributedSampler(DATA, 2, role.rank, shuffle=False)
        passes = torch.utils.data.DataLoader(DATA, 8, sampler=sampler)
        for x, y in opt.batches(passes, epochs=2):
            opt.zero_grad()
            loss = CROSS_ENTROPY(model(x), y)
            loss.backward()
            opt.step(loss)
        seen.append(flat(model))
        saved = opt.state_dict()["paceline"]["version"]
        self.both.wait()  # the run ends when rank 0 closes
        opt.close()
        return seen, saved

    def test_weights(self) -> None:
        """Every mini-batch is computed with the weights that it has without overlap, and what is
        asked for is that of the newest task."""
        for method in ("sync", "local-sgd:u=2"):
            runs = [
                together(2, lambda role: self.seen(role, method, overlap))
                for overlap in (False, True)
            ]
            for (theirs, version), (mine, saved) in zip(*runs):
                self.assertEqual((len(mine), saved), (9, version))
                for step, (a, b) in enumerate(zip(theirs, mine)):
                    self.assertLess(float((a - b).abs().max()), 1e-6, (method, step))

    def test_until_it_is_looked_at(self) -> None:
        """step() leaves the weights as they are; the model, `version` and `ended` wait for the next."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(
                SGD(model.parameters(), lr=0.1), model, "sync", role=role, overlap=True
            )

            def pauses() -> None:
                with opt.paused():
                    pass

            looks = (lambda: opt.version, lambda: opt.ended, lambda: model(batch(0)[0]))
            for look in (*looks, opt.state_dict, lambda: opt.run.version, pauses):
                opt.zero_grad()
                CROSS_ENTROPY(model(batch(0)[0]), batch(0)[1]).backward()
                before = flat(model)
                opt.step()
                self.assertTrue(torch.equal(flat(model), before))
                with self.assertRaisesRegex(paceline.UsageError, "model must be called"):
                    opt.step()
                look()
                self.assertFalse(torch.equal(flat(model), before))
            opt.close()
            self.assertEqual(opt.summary()["run"]["updates"], 6)
            self.assertFalse(model._forward_pre_hooks)

        together(1, worker)


class Steps(unittest.TestCase):
    def test_shapes(self) -> None:
        """A closure, a keyword, and what others call without arguments, give the same weights."""

        def worker(role: pl.Role, how: str) -> Tuple[Any, List[Any]]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            losses = []
            push = opt._session.push

            def note(samples: Any, loss: Any, absent: Any = None) -> None:
                losses.append(loss)
                push(samples, loss)

            with unittest.mock.patch.object(opt._session, "push", note):
                for step in range(3):
                    x, y = batch(step)

                    def closure() -> torch.Tensor:
                        opt.zero_grad()
                        loss = CROSS_ENTROPY(model(x), y)
                        loss.backward()
                        return loss

                    if how == "closure":
                        self.assertGreater(float(opt.step(closure)), 0)
                    elif how == "named closure":
                        with torch.no_grad():
                            opt.step(closure=closure)
                    elif how == "first":
                        self.assertIsNone(opt.step(closure()))
                    elif how == "report":
                        opt.report(loss=closure(), samples=8)
                        opt.step()
                    else:
                        self.assertIsNone(opt.step(loss=closure()))
            opt.close()
            return flat(model), losses

        results = [
            together(1, lambda role: worker(role, how))[0]
            for how in ("loss", "first", "closure", "named closure", "report")
        ]
        for weights, losses in results[1:]:
            self.assertTrue(torch.equal(weights, results[0][0]))
            self.assertEqual(losses, results[0][1])

    def test_interrupted_wait(self) -> None:
        """An exception while step() waits for the next task: the next step() waits again, and sends no
        second gradient of the same weights. Copies of a model do not have the optimizer."""

        def worker(role: pl.Role) -> Tuple[int, int, int, Any, List[Any]]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)

            def step() -> None:
                with opt.task():
                    opt.zero_grad()
                    x, y = batch(0)
                    CROSS_ENTROPY(model(x), y).backward()
                    opt.step()

            step()
            copied = copy.deepcopy(model)
            hooks = copied[0]._forward_pre_hooks.values()
            with unittest.mock.patch.object(opt._session, "pull", side_effect=KeyboardInterrupt):
                self.assertRaises(KeyboardInterrupt, step)
            before = opt.version
            step()
            after = opt.version
            step()
            opt.close()
            return before, after, opt.version, opt.summary()["results"], [h._method for h in hooks]

        self.assertEqual(together(1, worker), [(1, 2, 3, 3, [None])])

    def test_signature(self) -> None:
        """It is that of torch.optim, with more keywords."""
        found = list(inspect.signature(pl.Optimizer.step).parameters.values())
        self.assertEqual([(p.name, p.default) for p in found[1:2]], [("closure", None)])
        self.assertEqual({p.kind for p in found[2:]}, {inspect.Parameter.KEYWORD_ONLY})
        model = net()
        opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=roles(1)[0])
        with self.assertRaisesRegex(paceline.UsageError, "two losses"):
            opt.step(0.5, loss=0.5)
        opt.close()

    def test_maximize_is_refused(self) -> None:
        for method in ("sync", "downpour", "eamsgd"):
            model = net()
            optimizer = SGD(model.parameters(), lr=0.1, **dict(maximize=True))
            with self.assertRaisesRegex(paceline.UsageError, "maximize"):
                pl.Optimizer(optimizer, model, method, role=roles(1)[0])


class Cancelled(unittest.TestCase):
    def slow(self, loop: Callable[[pl.Optimizer, torch.nn.Module], Any]) -> Any:
        """K-sync restarts the slow rank 0, whose loop is given; the run ends after that."""

        def worker(role: pl.Role) -> Dict[str, Any]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "ksync:k=1", role=role)
            if role.rank == 0:
                loop(opt, model)
            else:
                to_the_end(opt, pause=0.005)
            opt.close()
            return opt.summary()

        return together(2, worker)

    def wait(self, opt: pl.Optimizer) -> None:
        """Until the task is cancelled."""
        while not opt._session.cancelled():
            time.sleep(0.001)

    def test_rate(self) -> None:
        """A rate that rank 0 sets before a cancelled task arrives."""
        rates = []

        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            opt.param_groups[0]["lr"] = 0.0
            self.wait(opt)
            opt.step()
            for _ in range(3):  # the rate is that of the next update
                self.wait(opt)
                opt.step()
            rates.append(flat(model))
            self.wait(opt)
            opt.step()
            rates.append(flat(model))

        summary = self.slow(loop)[0]
        self.assertGreaterEqual(summary["abandoned"], 3)
        self.assertTrue(torch.equal(*rates))

    def test_gradients(self) -> None:
        """An abandoned task leaves no gradients, whether step() or task() abandons it."""
        left = []

        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            for inside in (False, True):
                x, y = batch(0)
                with opt.task():
                    CROSS_ENTROPY(model(x), y).backward()
                    self.wait(opt)
                    if inside:
                        model(x)
                    opt.step()
                left.append([p.grad is None for p in model.parameters()])

        self.slow(loop)
        self.assertEqual(left, [[True] * 4] * 2)


class Epochs(unittest.TestCase):
    def passes(self, method: str, loop: Callable[[Any, Any], Any], **options: Any) -> Any:
        def worker(role: pl.Role) -> List[Any]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, method, role=role, **options)
            sampler = torch.utils.data.DistributedSampler(DATA, 1, 0)
            epochs = []

            def train(sampler: Any = sampler, **more: Any) -> None:
                mine = torch.utils.data.DataLoader(DATA, 16, sampler=sampler)
                for i, (x, y) in enumerate(opt.batches(mine, **more)):
                    if i % 4 == 0:
                        epochs.append(sampler.epoch)
                    opt.zero_grad()
                    loss = CROSS_ENTROPY(model(x), y)
                    loss.backward()
                    opt.step(loss)

            loop(train, sampler)
            opt.close()
            return epochs

        return together(1, worker)[0]

    def test_counted(self) -> None:
        """One number for every pass, also if an update takes several mini-batches."""
        for method in ("sync", "local-sgd:u=8"):
            self.assertEqual(self.passes(method, lambda t, s: t(epochs=4)), [0, 1, 2, 3])
            loop = lambda t, s: [t() for _ in range(4)]
            self.assertEqual(self.passes(method, loop), [0, 1, 2, 3])

    def test_of_the_program(self) -> None:
        def loop(train: Any, sampler: Any) -> None:
            for epoch in (7, 8, 20):
                sampler.set_epoch(epoch)
                train()
            train(epochs=2)

        self.assertEqual(self.passes("local-sgd:u=4", loop), [7, 8, 20, 21, 22])

    def test_the_same_again(self) -> None:
        """A number that `batches` has set is the program's if the program sets it too."""

        def loop(train: Any, sampler: Any) -> None:
            for epoch in (0, 0, 0, 1, 2, 1):
                sampler.set_epoch(epoch)
                train()
            train()
            copied = copy.deepcopy(pickle.loads(pickle.dumps(sampler)))
            copied.set_epoch(9)
            self.assertEqual((sampler.epoch, copied.epoch), (2, 9))
            train()
            train(copied)

        self.assertEqual(self.passes("sync", loop), [0, 0, 0, 1, 2, 1, 2, 3, 9])

    def test_several_samplers(self) -> None:
        """The passes of an optimizer are counted, whatever they are over."""
        other = lambda: torch.utils.data.DistributedSampler(DATA, 1, 0)

        def loop(train: Any, first: Any) -> None:
            second = other()
            for sampler in (first, second, first, second, other(), other()):
                train(sampler)
            second.set_epoch(0)
            train(second)
            train(first)

        self.assertEqual(self.passes("sync", loop), [0, 1, 2, 3, 4, 5, 0, 1])

    def test_that_cannot_be_read(self) -> None:
        """A sampler that does not show its epoch."""

        class Own(torch.utils.data.SequentialSampler):
            def set_epoch(self, epoch: int) -> None:
                self.seen = epoch

            @property
            def epoch(self) -> None:
                raise AttributeError("epoch")

        own, seen = Own(DATA), []

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            loader = torch.utils.data.DataLoader(DATA, 16, sampler=own)
            for epoch in (None, 5, None, 5):
                if epoch is not None:
                    own.set_epoch(epoch)
                for _ in opt.batches(loader):
                    pass
                seen.append(own.seen)
            opt.close()

        together(1, worker)
        self.assertEqual(seen, [0, 5, 6, 5])


if __name__ == "__main__":
    unittest.main()
