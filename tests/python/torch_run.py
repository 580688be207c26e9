"""The run as an object: two side by side, its name, its `with`, and what it refuses."""

import unittest
from typing import Any, Dict, Tuple, Union

import torch

import paceline
import paceline.torch as pl
from workers import backward, batch, flat, net, roles, to_the_end, together

SGD = torch.optim.SGD


class Runs(unittest.TestCase):
    def test_gan(self) -> None:
        """Two models with a run each, in two workers: under sync, they are those
        of one process with the mini-batches of both."""

        def losses(
            generator: torch.nn.Module, critic: torch.nn.Module, step: int, worker: int
        ) -> Tuple[Any, Any]:
            x, _ = batch(step, worker)
            made = generator(x)
            wanted = torch.nn.functional.softplus(critic(made)).mean()
            return wanted, torch.nn.functional.softplus(-critic(made.detach())).mean()

        def models() -> Tuple[torch.nn.Linear, torch.nn.Linear]:
            return torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)

        def made() -> Any:
            both = models()
            with torch.no_grad():
                for model in both:
                    for i, p in enumerate(model.parameters()):
                        p.copy_(torch.linspace(-0.5, 0.5, p.numel()).view(p.shape) * (i + 1))
            return both

        def worker(role: pl.Role) -> Tuple[torch.Tensor, Dict[str, Any]]:
            generator, critic = made()
            with pl.Run("sync", name="generator", role=role) as one, pl.Run(
                "sync", name="critic", role=role
            ) as two:
                opts = [
                    one.optimizer(SGD(generator.parameters(), lr=0.1), generator),
                    two.optimizer(SGD(critic.parameters(), lr=0.2), critic),
                ]
                self.assertEqual([opt.run for opt in opts], [one, two])
                for step in range(5):
                    for i, opt in enumerate(opts):
                        generator.zero_grad()
                        critic.zero_grad()
                        loss = losses(generator, critic, step, role.rank)[i]
                        loss.backward()
                        opt.step(loss)
            self.assertTrue(one.ended and two.ended)
            self.assertNotEqual(one.role.socket, two.role.socket)
            if role.rank == 0:
                self.assertEqual([r.version for r in (one, two)], [5, 5])
            return torch.cat([flat(generator), flat(critic)]), one.summary()

        (weights, summary), _ = together(2, worker)
        self.assertEqual((summary["run"]["updates"], summary["results"]), (5, 5))
        generator, critic = made()
        sgd = SGD(generator.parameters(), lr=0.1), SGD(critic.parameters(), lr=0.2)
        for step in range(5):
            for i, opt in enumerate(sgd):
                generator.zero_grad()
                critic.zero_grad()
                for rank in range(2):
                    (losses(generator, critic, step, rank)[i] / 2).backward()
                opt.step()
        off = (weights - torch.cat([flat(generator), flat(critic)])).abs().max()
        self.assertLess(float(off), 1e-6)

    def test_exception(self) -> None:
        """One in the block of rank 0 ends its run, and the others hear it; its other run goes on."""

        def worker(role: pl.Role) -> Tuple[str, Union[int, None]]:
            model, other = net(), net(seed=1)
            with pl.Run("sync", role=role, updates=4) as goes_on:
                opt = goes_on.optimizer(SGD(other.parameters(), lr=0.1), other)
                expected = ValueError if role.rank == 0 else paceline.RunError
                with self.assertRaises(expected) as caught:
                    with pl.Run("sync", role=role) as run:
                        ended = run.optimizer(SGD(model.parameters(), lr=0.1), model)
                        for step in range(10**9):
                            ended.step(backward(ended, model, step, role.rank))
                            if role.rank == 0 and step == 3:
                                raise ValueError("of the script")
                self.assertTrue(run.ended)
                self.assertFalse(goes_on.ended)
                to_the_end(opt)
            return str(caught.exception), goes_on.version if role.rank == 0 else None

        first, (told, _) = together(2, worker)
        self.assertEqual(first, ("of the script", 4))
        self.assertIn("rank 0 failed: ValueError: of the script", told)

    def test_implicit(self) -> None:
        """An optimizer that is made without a run has one, which closes as it does."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            self.assertEqual((opt.run.name, opt.run.method), ("run-1", "sync"))
            self.assertIn("Run('run-1', sync, rank 0 of 1)", repr(opt))
            opt.step(backward(opt, model))
            opt.run.close()
            self.assertTrue(opt.ended)
            self.assertEqual(opt.summary(), opt.run.summary())
            self.assertEqual(opt.run.version, 1)

        together(1, worker)

    def test_default_method(self) -> None:
        """The wrapped optimizer is a part: kasync runs, not auto, and that is what is shown."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, role=role, updates=2)
            self.assertEqual(opt.run.method, "kasync")
            to_the_end(opt)
            opt.close()
            self.assertEqual(opt.summary()["run"]["method"], "kasync")

        together(1, worker)

    def test_held_by_the_run(self) -> None:
        """The run holds the optimizer that it has made, so that one may be dropped."""

        def worker(role: pl.Role) -> Any:
            model = net()
            with pl.Run("async", role=role, updates=3) as run:

                def train() -> None:
                    to_the_end(run.optimizer(SGD(model.parameters(), lr=0.1), model))

                train()
            return run.summary()["run"]["updates"]

        self.assertEqual(together(1, worker), [3])

    def test_other_name(self) -> None:
        """Ranks that make their runs in different orders are told so."""
        role = roles(2)
        model, other = net(), net()
        with pl.Run("async", name="student", role=role[0], min_workers=1) as run:
            opt = run.optimizer(SGD(model.parameters(), lr=0.1), model)
            with self.assertRaisesRegex(paceline.RunError, "belongs to job student.*job teacher"):
                pl.Run("async", name="teacher", role=role[1]).optimizer(
                    SGD(other.parameters(), lr=0.1), other
                )
            opt.step(backward(opt, model))

    def test_refused(self) -> None:
        model = net()
        sgd = SGD(model.parameters(), lr=0.1)
        with self.assertRaisesRegex(paceline.UsageError, "name is '1 2', but must be"):
            pl.Run(name="1 2")
        run = pl.Run("sync", role=roles(1)[0])
        with self.assertRaisesRegex(paceline.UsageError, "nothing to save before its optimizer"):
            run.checkpoint()
        with self.assertRaisesRegex(paceline.UsageError, "are those of the run"):
            pl.Optimizer(sgd, model, "async", run=run)
        with run:
            run.optimizer(sgd, model)
            with self.assertRaisesRegex(paceline.UsageError, "has an optimizer already"):
                other = net()
                run.optimizer(SGD(other.parameters(), lr=0.1), other)
        with pl.Run("sync", role=roles(1)[0]) as unused:
            self.assertFalse(unused.ended)
        self.assertTrue(unused.ended)
        with self.assertRaisesRegex(paceline.RunEnded, "closed before it had an optimizer"):
            unused.optimizer(sgd, model)


if __name__ == "__main__":
    unittest.main()
