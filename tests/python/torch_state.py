"""Weights and the state of the optimizer go to the server and come back: state_dict(),
load_state_dict(), checkpoints, set_weights()."""

import tempfile
import unittest
import unittest.mock
from typing import Any, Callable, Dict, List, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import CROSS_ENTROPY, backward, batch, flat, net, together

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
fork_servers()


class Sent(unittest.TestCase):
    """Weights and state that a script gives to the server, and gets from it."""

    KINDS = (
        (SGD, dict(lr=0.1, momentum=0.9, dampening=0.5)),
        (SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
        (ADAMW, dict(lr=0.01)),
        (torch.optim.Adagrad, dict(lr=0.05)),
    )

    def alone(
        self,
        kind: Callable[..., torch.optim.Optimizer],
        options: Dict[str, Any],
        first: int,
        last: int,
        model: Any = None,
        state: Any = None,
    ) -> Tuple[Any, torch.optim.Optimizer]:
        """Steps `first` to `last` - 1 in one process, on the mini-batches of two workers. The last layer
        misses step 1."""
        model = model or net()
        opt = kind(model.parameters(), **options)
        if state:
            opt.load_state_dict(state)
        for step in range(first, last):
            opt.zero_grad(set_to_none=True)
            for worker in range(2):
                (self.loss(model, step, worker) / 2).backward()
            opt.step()
        return model, opt

    @staticmethod
    def loss(model: Any, step: int, worker: int) -> Any:
        x, y = batch(step, worker)
        return model[0](x).square().mean() if step == 1 else CROSS_ENTROPY(model(x), y)

    def steps(
        self, opt: pl.Optimizer, model: torch.nn.Module, role: pl.Role, first: int, last: int
    ) -> None:
        for step in range(first, last):
            opt.zero_grad(set_to_none=True)
            loss = self.loss(model, step, role.rank)
            loss.backward()
            opt.step(loss)

    def same(self, a: Any, b: Any) -> None:
        self.assertEqual(list(a["state"]), list(b["state"]))
        for i, own in a["state"].items():
            self.assertEqual(sorted(own), sorted(b["state"][i]))
            for name, value in own.items():
                other = b["state"][i][name]
                self.assertEqual(value.shape, other.shape)
                self.assertLess(float((value - other).abs().max()), 1e-6, (i, name))

    def test_state(self) -> None:
        """state_dict() is that of PyTorch, during the run and after it; it continues a run, before or
        after the optimizer is wrapped, and an optimizer of PyTorch."""
        for kind, options in self.KINDS:
            model3, opt3 = self.alone(kind, options, 0, 3)
            model6, opt6 = self.alone(kind, options, 0, 6)

            def begin(role: pl.Role) -> Tuple[Any, Dict[str, Any], Dict[str, Any]]:
                model = net()
                opt = pl.Optimizer(kind(model.parameters(), **options), model, "sync", role=role)
                self.steps(opt, model, role, 0, 3)
                during = opt.state_dict()
                opt.close()
                return model.state_dict(), during, opt.state_dict()

            (weights, during, after), (_, other, _) = together(2, begin)
            self.same(during, opt3.state_dict())
            self.same(after, opt3.state_dict())
            self.assertFalse(any(s.get("step", 1) for s in other["state"].values()))

            def go_on(role: pl.Role, before: Any) -> Tuple[Any, Dict[str, Any]]:
                model = net(seed=4)
                inner = kind(model.parameters(), **options)
                if before:
                    inner.load_state_dict({k: v for k, v in after.items() if k != "paceline"})
                    model.load_state_dict(weights)
                opt = pl.Optimizer(inner, model, "sync", role=role)
                if not before:
                    model.load_state_dict(weights)
                    opt.set_weights()
                    opt.load_state_dict(after)
                self.steps(opt, model, role, 3, 6)
                out = opt.state_dict()
                opt.close()
                return model, out

            for before in (True, False):
                (model, state), _ = together(2, lambda role: go_on(role, before))
                self.assertLess(float((flat(model) - flat(model6)).abs().max()), 2e-6, kind)
                self.same(state, opt6.state_dict())

            model = net()
            model.load_state_dict(weights)
            own = {k: v for k, v in after.items() if k != "paceline"}
            model, _ = self.alone(kind, options, 3, 6, model, own)
            self.assertLess(float((flat(model) - flat(model6)).abs().max()), 2e-6, kind)

    def test_state_in_a_checkpoint(self) -> None:
        """Steps that a state_dict brought are in the checkpoints of the server."""
        kind: Any = ADAMW
        options = dict(lr=0.01)
        expected, _ = self.alone(kind, options, 0, 6)
        begun, inner = self.alone(kind, options, 0, 2)

        def work(role: pl.Role, folder: str, first: int, last: int) -> Any:
            model = net()
            opt = pl.Optimizer(
                kind(model.parameters(), **options),
                model,
                "sync",
                role=role,
                checkpoint=folder,
                resume="auto",
            )
            if first == 2:
                model.load_state_dict(begun.state_dict())
                opt.set_weights()
                opt.load_state_dict(inner.state_dict())
            self.steps(opt, model, role, first, last)
            opt.close()
            return model

        with tempfile.TemporaryDirectory() as folder:
            together(2, lambda role: work(role, folder, 2, 4))
            model = together(2, lambda role: work(role, folder, 4, 6))[0]
        self.assertLess(float((flat(model) - flat(expected)).abs().max()), 2e-6)

    def test_resumed(self) -> None:
        """A resumed run keeps its momentum, whatever the wrapped optimizer brings, and takes the rate of
        the script."""

        def work(
            role: pl.Role, folder: str, brings: Any = None
        ) -> Tuple[Dict[str, Any], Dict[str, Any], List[Any]]:
            model = net()
            inner = SGD(model.parameters(), lr=0.1, momentum=0.9)
            if brings:
                inner.load_state_dict(brings)
            opt = pl.Optimizer(inner, model, "sync", role=role, checkpoint=folder, resume="auto")
            if brings:
                opt.param_groups[0]["lr"] = 0.1
            first = opt.state_dict()
            rates: List[Any] = []
            with unittest.mock.patch.object(opt._session.client, "set_lr", rates.append):
                opt.step(backward(opt, model))
            opt.param_groups[0]["lr"] = 0.01
            opt.step(backward(opt, model))
            opt.close()
            return first, opt.state_dict(), rates

        other = self.alone(SGD, dict(lr=0.1, momentum=0.9), 0, 1)[1].state_dict()
        with tempfile.TemporaryDirectory() as folder:
            _, last, rates = together(1, lambda role: work(role, folder))[0]
            self.assertEqual(rates, [])
            first, _, rates = together(1, lambda role: work(role, folder, other))[0]
        self.same(first, last)
        self.assertEqual(rates, [0.1])

    def test_state_that_is_missing(self) -> None:
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def loads(role: pl.Role, state: Any, expected: Any, method: str = "sync") -> None:
            model = net()
            opt = pl.Optimizer(make(model), model, method, role=role)
            with self.assertRaisesRegex(paceline.UsageError, expected):
                opt.load_state_dict(state)
            opt.close()

        empty = make(net()).state_dict()
        lost = dict(empty, paceline={"version": 3})
        adam = self.alone(ADAMW, {}, 0, 1)[1].state_dict()
        momentum = self.alone(SGD, dict(lr=0.1, momentum=0.9), 0, 1)[1].state_dict()
        together(1, lambda role: loads(role, lost, "of these 3 updates are not in"))
        together(1, lambda role: loads(role, adam, "no 'momentum_buffer' for '0.weight'"))
        together(1, lambda role: loads(role, momentum, "state of earlier steps", "dana"))

    def test_early_state(self) -> None:
        """The state from before the first step clears what the server has. Where numbers are float64 by
        default, it gets float32 all the same."""
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(make(model), model, "sync", role=role)
            early = opt.state_dict()
            self.steps(opt, model, role, 0, 1)
            some = opt.state_dict()
            opt.load_state_dict(early)
            self.assertEqual(opt.state_dict()["state"], {})
            opt.load_state_dict(some)
            self.same(opt.state_dict(), some)
            lost = dict(early, paceline={"version": 3})
            with self.assertRaisesRegex(paceline.UsageError, "of these 3 updates are not in"):
                opt.load_state_dict(lost)
            torch.nn.init.constant_(model[0].bias, float("inf"))
            self.assertRaisesRegex(paceline.RunError, "not finite", opt.set_weights)
            opt.close()

        self.addCleanup(torch.set_default_dtype, torch.float32)
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            together(1, worker)

    def test_weights(self) -> None:
        """A clamp after every step, as in a WGAN: momentum goes on."""
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def clamp(model: torch.nn.Module) -> None:
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.2, 0.2)

        expected = net(norm=True)
        opt = make(expected)
        for step in range(5):
            backward(opt, expected, step)
            opt.step()
            clamp(expected)

        def worker(role: pl.Role) -> Any:
            model = net(norm=True)
            opt = pl.Optimizer(make(model), model, "sync", role=role)
            for step in range(5):
                opt.step(backward(opt, model, step))
                clamp(model)
                opt.set_weights()
            opt.close()
            self.assertRaisesRegex(paceline.RunEnded, "has ended", opt.set_weights)
            return model

        (model,) = together(1, worker)
        self.assertLess(float((flat(model) - flat(expected)).abs().max()), 1e-6)

        def local(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(make(model), model, "local-sgd:u=2", role=role)
            self.assertRaisesRegex(paceline.UsageError, "takes local steps", opt.set_weights)
            opt.close()

        together(1, local)


if __name__ == "__main__":
    unittest.main()
