"""What a script changes during a run takes effect, or raises: weights, frozen layers, state,
hyper-parameters, buffers."""

import tempfile
import unittest

import torch

import paceline
import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, flat, net, roles, together

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW


def backward(opt, model, step=0, worker=0):
    opt.zero_grad()
    x, y = batch(step, worker)
    loss = CROSS_ENTROPY(model(x), y)
    loss.backward()
    return loss


class Changes(unittest.TestCase):
    def one(self, make, change, expected, method="sync", model=net, before=None):
        """One worker takes a step, then `change(opt, model)` is made, and the next step raises."""

        def worker(role):
            m = model()
            opt = pl.Optimizer(make(m), m, method, role=role)
            opt.step(backward(opt, m))
            change(opt, m)
            if expected:
                with self.assertRaisesRegex(paceline.UsageError, expected):
                    opt.step(backward(opt, m, 1))
            else:
                opt.step(backward(opt, m, 1))
            opt.close()
            return m

        return together(1, worker)[0]

    def test_weights(self):
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def load(opt, model):
            model.load_state_dict(net(seed=5).state_dict())

        def clamp(opt, model):
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.01, 0.01)

        for change in (load, clamp):
            self.one(make, change, "changed in place")
            self.one(make, change, None, method="local-sgd:u=2")  # its steps begin there
        self.one(make, lambda opt, model: None, None)

    def test_hyper_parameters(self):
        momentum = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def change(**values):
            return lambda opt, model: opt.param_groups[0].update(values)

        def cycle(opt, model):
            torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)

        self.one(momentum, cycle, "momentum has changed from 0.9 to 0.95")
        self.one(momentum, change(weight_decay=0.1), "weight_decay has changed")
        self.one(lambda m: ADAMW(m.parameters()), change(betas=(0.5, 0.9)), "betas has changed")
        self.one(lambda m: ADAMW(m.parameters()), change(eps=1e-3), "eps has changed")
        self.one(momentum, change(lr=0.05), None)
        self.one(momentum, change(momentum=0.5), None, method="local-sgd:u=2")

    def test_state(self):
        """State of earlier steps is refused, before and after the optimizer is made."""

        def stepped(kind, **options):
            model = net()
            opt = kind(model.parameters(), **options)
            backward(opt, model)
            opt.step()
            return model, opt

        for kind, options in (
            (SGD, dict(lr=0.1, momentum=0.9)),
            (ADAMW, {}),
            (torch.optim.Adagrad, {}),
        ):
            model, opt = stepped(kind, **options)
            state = opt.state_dict()
            with self.assertRaisesRegex(paceline.UsageError, "state of earlier steps"):
                pl.Optimizer(opt, model, "sync", role=roles(1)[0])

            def worker(role):
                m = net()
                new = pl.Optimizer(kind(m.parameters(), **options), m, "sync", role=role)
                with self.assertRaisesRegex(paceline.UsageError, "state of earlier steps"):
                    new.load_state_dict(state)
                new.load_state_dict(new.state_dict())
                new.close()

            together(1, worker)

    def test_state_of_the_server(self):
        """Momentum is in the server's checkpoints; a state_dict without them is not enough."""
        make = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def saved(role, folder):
            model = net()
            opt = pl.Optimizer(make(model), model, "sync", role=role, checkpoint=folder)
            opt.step(backward(opt, model))
            opt.close()
            return opt.state_dict()

        def loaded(role, state, **options):
            model = net()
            opt = pl.Optimizer(make(model), model, "sync", role=role, **options)
            try:
                opt.load_state_dict(state)
            finally:
                opt.close()

        with tempfile.TemporaryDirectory() as folder:
            (state,) = together(1, lambda role: saved(role, folder))
            with self.assertRaisesRegex(paceline.UsageError, "these 1 updates"):
                together(1, lambda role: loaded(role, state))
            together(1, lambda role: loaded(role, state, checkpoint=folder, resume="auto"))

    def test_frozen_in_the_optimizer(self):
        """A layer that requires no gradient is not decayed."""
        for make in (
            lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1, momentum=0.9),
            lambda m: ADAMW(m.parameters(), lr=0.01, weight_decay=0.1),
        ):
            alone = net()
            alone[0].requires_grad_(False)
            opt = make(alone)
            for step in range(5):
                backward(opt, alone, step)
                opt.step()

            def worker(role):
                model = net()
                model[0].requires_grad_(False)
                opt = pl.Optimizer(make(model), model, "sync", role=role)
                for step in range(5):
                    opt.step(backward(opt, model, step))
                opt.close()
                return model

            (model,) = together(1, worker)
            self.assertLess(float((flat(model) - flat(alone)).abs().max()), 1e-6)

    def test_warm_up_before(self):
        """Groups whose scheduler begins at 0, made before the optimizer is wrapped."""

        def make(model):
            groups = [{"params": list(model.parameters())[:2], "lr": 0.1}]
            groups.append({"params": list(model.parameters())[2:], "lr": 0.02})
            return SGD(groups)

        def schedule(opt):
            return torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / 3))

        alone = net()
        opt = make(alone)
        rates = schedule(opt)
        for step in range(6):
            backward(opt, alone, step)
            opt.step()
            rates.step()

        def worker(role):
            model = net()
            optimizer = make(model)
            rates = schedule(optimizer)
            opt = pl.Optimizer(optimizer, model, "sync", role=role)
            for step in range(6):
                opt.step(backward(opt, model, step))
                rates.step()
            opt.close()
            return model

        (model,) = together(1, worker)
        self.assertLess(float((flat(model) - flat(alone)).abs().max()), 1e-6)

    def test_refused_hyper_parameters(self):
        class Float(float):
            def __repr__(self):
                return f"numpy.float64({float(self)})"

        model = net()
        later = torch.optim.Adam(model.parameters())
        later.defaults["decoupled_weight_decay"] = True
        later.param_groups[0]["decoupled_weight_decay"] = True
        lbfgs = torch.optim.LBFGS(model.parameters())
        for optimizer, method, expected in (
            (later, "sync", "decoupled_weight_decay"),
            (lbfgs, "local-sgd:u=2", "LBFGS"),
        ):
            with self.assertRaisesRegex(paceline.UsageError, expected):
                pl.Optimizer(optimizer, model, method, role=roles(1)[0])
        self.one(
            lambda m: SGD(m.parameters(), lr=0.1, momentum=Float(0.9)), lambda o, m: None, None
        )


class Kept(torch.nn.Module):
    """A model with a buffer of its own."""

    def __init__(self, value, seed=0):
        super().__init__()
        self.net = net(seed)
        self.register_buffer("kept", value)

    def forward(self, x):
        return self.net(x)


class Buffers(unittest.TestCase):
    def steps(self, model, method="sync", workers=2, n=4, each=None):
        def worker(role):
            m = model(role)
            opt = pl.Optimizer(SGD(m.parameters(), lr=0.01), m, method, role=role, updates=n)
            step = 0
            while not opt.ended:
                loss = backward(opt, m, step, role.rank)
                if each:
                    each(m, role)
                opt.step(loss)
                step += 1
            opt.close()
            return m.kept

        return together(workers, worker)

    def test_replaced(self):
        """A buffer that the module binds to a new tensor is averaged like any other."""

        def each(model, role):
            model.kept = model.kept + 2.0 * (role.rank + 1)

        found = self.steps(lambda role: Kept(torch.zeros(2)), each=each)
        self.assertEqual(found[0].tolist(), [12.0, 12.0])  # 3 per update

        def worker(role):
            m = Kept(torch.zeros(2))
            opt = pl.Optimizer(SGD(m.parameters(), lr=0.01), m, "sync", role=role)
            m.kept = torch.zeros(3)
            with self.assertRaisesRegex(
                paceline.UsageError, "'kept' has been removed, or replaced"
            ):
                opt.step(backward(opt, m))
            m.kept = torch.zeros(2)
            opt.close()

        together(1, worker)

    def test_whole_numbers(self):
        for values in (
            torch.tensor([123456789, 2**40 + 1, 16777217, -(2**50) - 1]),
            torch.tensor([2**31 - 1, -(2**31) + 1, 5], dtype=torch.int32),
            torch.tensor([True, False, True]),
            torch.tensor([-128, 127], dtype=torch.int8),
        ):
            for kept in self.steps(lambda role: Kept(values.clone())):
                self.assertTrue(torch.equal(kept, values), (kept, values))

    def test_whole_numbers_that_differ(self):
        with self.assertRaisesRegex(paceline.UsageError, "'kept' has whole numbers beyond"):
            self.steps(lambda role: Kept(torch.tensor([2**30 + 1000 * role.rank])))
        first = self.steps(lambda role: Kept(torch.tensor([7 + role.rank])))[0]
        self.assertEqual(first.tolist(), [7])

    def test_not_finite(self):
        model = Kept(torch.full((2, 2), float("-inf")).triu(1))
        with self.assertRaisesRegex(paceline.UsageError, "'kept' has values that are not finite"):
            pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=roles(1)[0])

    def test_constant(self):
        """Rules for gradients leave buffers alone."""
        for method in ("sync", "centered-clipping", "krum", "byzantine-median"):
            for kept in self.steps(lambda role: Kept(torch.full((3,), 5.0)), method, workers=3):
                self.assertEqual(kept.tolist(), [5.0] * 3, method)


if __name__ == "__main__":
    unittest.main()
