"""What a script changes during a run takes effect, or raises: weights, frozen layers,
hyper-parameters."""

import unittest
import unittest.mock
from typing import Any, Callable, List

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import Cast, backward, flat, net, roles, together

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
HALF = [torch.bfloat16, torch.float16]
fork_servers()


class Changes(unittest.TestCase):
    def one(
        self,
        make: Callable[[Any], torch.optim.Optimizer],
        change: Callable[[Any, Any], Any],
        expected: Any,
        method: str = "sync",
        model: Callable[[], Any] = net,
        steps: int = 1,
    ) -> Any:
        """One worker takes some steps, then `change(opt, model)` is made, and the next step raises."""

        def worker(role: pl.Role) -> Any:
            m = model()
            opt = pl.Optimizer(make(m), m, method, role=role)
            for _ in range(steps):
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

    def test_weights(self) -> None:
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def load(opt: pl.Optimizer, model: Any) -> None:
            model.load_state_dict(net(seed=5).state_dict())

        def clamp(opt: pl.Optimizer, model: Any) -> None:
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.01, 0.01)

        for change in (load, clamp):
            self.one(make, change, "changed in place")
            self.one(make, change, None, method="local-sgd:u=2")  # its steps begin there
        self.one(make, lambda opt, model: None, None)

    # the server's weights would not become those that all workers have loaded
    MERGE = ["diloco:u=2", "easgd:u=2", "sync-easgd", "overlap-local-sgd:u=2", "gossip-pull"]
    MERGE += ["local-sgd:u=2,outer=0.5", "downpour:push=2", "eamsgd:u=2"]

    def test_weights_that_would_be_merged(self) -> None:
        """Local steps are taken from weights that the server knows, or the worker raises, also in the
        middle of a task."""
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def load(opt: pl.Optimizer, model: Any) -> None:
            model.load_state_dict(net(seed=5).state_dict())

        def tell(opt: pl.Optimizer, model: Any) -> None:
            with self.assertRaisesRegex(paceline.UsageError, "before paceline.torch.Optimizer is"):
                opt.set_weights()
            load(opt, model)

        for method in self.MERGE:
            expected = f"in place, but {method.partition(':')[0]}.* before paceline.*local-sgd"
            for steps in (2, 3):
                self.one(make, tell, expected, method, steps=steps)
                self.one(make, lambda opt, model: None, None, method, steps=steps)
        for change in (self.data, self.vector, self.set_):
            self.one(make, change, "'2.weight' was .*diloco", "diloco:u=2", steps=3)

    def test_weights_that_are_averaged(self) -> None:
        """Where the server averages models, weights that all ranks load become the server's."""

        def worker(role: pl.Role, method: str) -> Any:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.0), model, method, role=role, updates=6)
            model.load_state_dict(net(seed=5).state_dict())
            while not opt.ended:
                opt.step(backward(opt, model))
            opt.close()
            return model

        for method in ("local-sgd:u=2", "nodelay:u=2", "nodelay-async:u=2", "cocod:u=2"):
            model = together(2, lambda role: worker(role, method))[0]
            self.assertLess(float((flat(model) - flat(net(seed=5))).abs().max()), 1e-6, method)

    OTHER = "'2.weight' has been moved or given other memory"

    @staticmethod
    def data(opt: Any, model: Any) -> None:
        model[2].weight.data = torch.full_like(model[2].weight, 0.25)

    @staticmethod
    def vector(opt: Any, model: Any) -> None:
        vector = torch.nn.utils.parameters_to_vector(model[2].parameters())
        torch.nn.utils.vector_to_parameters(vector.detach() + 0.25, model[2].parameters())

    @staticmethod
    def set_(opt: Any, model: Any) -> None:
        with torch.no_grad():
            model[2].weight.set_(torch.full_like(model[2].weight, 0.25))

    def test_other_data(self) -> None:
        """Data that a script binds a parameter to."""
        make = lambda m: SGD(m.parameters(), lr=0.1)
        for change in (self.data, self.vector, self.set_):
            self.one(make, change, "'2.weight' was (given other data|changed in place)")
            self.one(make, change, None, method="local-sgd:u=2")
            with unittest.mock.patch("paceline.torch._vector._FLAT_ON", ("cpu",)):  # as on a GPU
                self.one(make, change, self.OTHER)

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(make(model), model, "sync", role=role)
            for convert in (model.half, model.double, lambda: model.to(torch.bfloat16)):
                convert()
                with self.assertRaisesRegex(paceline.UsageError, "'0.weight' is of another type"):
                    opt.step()
            opt.close()

        together(1, worker)

    def test_other_type_in_the_same_memory(self) -> None:
        """As it happens when the new tensor is where the old one was."""

        def worker(role: pl.Role) -> None:
            model = net()
            wide = [torch.empty(p.shape, dtype=torch.float64) for p in model.parameters()]
            for p, w in zip(model.parameters(), wide):
                p.data = w.view(-1).view(torch.float32)[: p.numel()].view(p.shape).copy_(p.data)
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            for p, w in zip(model.parameters(), wide):
                p.data = w
            with self.assertRaisesRegex(paceline.UsageError, "'0.weight' is of another type"):
                opt.step()
            opt.close()

        together(1, worker)

    def test_other_data_is_sent(self) -> None:
        """opt.set_weights() tells the server of it."""
        make = lambda m: SGD(m.parameters(), lr=0.1)
        for change in (self.data, self.vector, self.set_):

            def tell(opt: pl.Optimizer, model: Any) -> None:
                change(opt, model)
                opt.set_weights()

            alone = net()
            opt = make(alone)
            backward(opt, alone)
            opt.step()
            change(opt, alone)
            backward(opt, alone, 1)
            opt.step()
            model = self.one(make, tell, None)
            self.assertLess(float((flat(model) - flat(alone)).abs().max()), 1e-6)

    def test_data_in_place(self) -> None:
        """PyTorch does not count these changes; the numbers of the parameters tell."""
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def copy(opt: pl.Optimizer, model: Any) -> None:
            model[2].weight.data.copy_(torch.full_like(model[2].weight, 0.25))

        def clamp(opt: pl.Optimizer, model: Any) -> None:
            for p in model.parameters():
                p.data.clamp_(-0.01, 0.01)

        def back(opt: pl.Optimizer, model: Any) -> None:
            for p in model.parameters():
                before = p.data.clone()
                p.data.mul_(2)
                p.data.copy_(before)

        for on in ((), ("cpu",)):
            with unittest.mock.patch("paceline.torch._vector._FLAT_ON", on):
                self.one(make, copy, "'2.weight' was changed in place")
                self.one(make, clamp, "'0.weight' was changed in place")
                self.one(make, back, None)
                self.one(make, clamp, None, method="local-sgd:u=2")

    def test_data_of_other_types(self) -> None:
        """In half precision and in float64, on the CPU and on a device whose memory is not read."""
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def copy(opt: pl.Optimizer, model: Any) -> None:
            model[2].weight.data.copy_(torch.full_like(model[2].weight, 0.25))

        def halve(opt: pl.Optimizer, model: Any) -> None:
            for p in model.parameters():
                p.data.mul_(0.5)

        def last(opt: pl.Optimizer, model: Any) -> None:
            model[0].weight.data[-1, -1] += 0.25

        cases: List[Any] = [(dtype, ()) for dtype in (*HALF, torch.float64)]
        for dtype, on in [(torch.bfloat16, ("cpu",)), *cases]:

            def model() -> torch.nn.Sequential:
                return torch.nn.Sequential(Cast(6, 8), torch.nn.Tanh(), Cast(8, 3)).to(dtype)

            with unittest.mock.patch("paceline.torch._watch._READABLE", on):
                self.one(make, copy, "'2.weight' was changed in place", model=model)
                self.one(make, halve, "'0.weight' was changed in place", model=model)
                self.one(make, last, "'0.weight' was changed in place", model=model)
                self.one(make, self.data, "'2.weight' was given other data", model=model)
                self.one(make, lambda opt, model: None, None, model=model, steps=5)
                self.one(make, halve, None, method="local-sgd:u=2", model=model)
                self.one(make, halve, "easgd", method="easgd:u=2", model=model, steps=3)

    def test_data_far_from_the_first_number(self) -> None:
        """A change is noticed wherever it is: at once in steps 1, 2, 4, 8, …, and if every step makes
        it, within 64 of them. On a GPU it is noticed at once."""
        size = 200_000

        def worker(role: pl.Role, quiet: int, limit: int, at_once: bool) -> None:
            model = torch.nn.Linear(size, 1)
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "async", role=role)

            def step() -> None:
                opt.zero_grad()
                model.bias.sum().backward()
                opt.step()

            for _ in range(quiet):
                step()
            with self.assertRaisesRegex(paceline.UsageError, "'weight' was changed in place"):
                for n in range(limit):
                    model.weight.data[0, size - 5] += 0.25
                    step()
            self.assertTrue(n == 0 or not at_once)
            opt.close()

        for on in ((), ("cpu",)):
            with unittest.mock.patch("paceline.torch._vector._FLAT_ON", on):
                together(1, lambda role: worker(role, 0, 1, True))
                together(1, lambda role: worker(role, 1, 1, True))
                together(1, lambda role: worker(role, 65, 64, bool(on)))

    def test_abandoned(self) -> None:
        """A task that is cancelled does not hide a change."""

        def worker(role: pl.Role) -> None:
            m = net()
            opt = pl.Optimizer(SGD(m.parameters(), lr=0.1), m, "sync", role=role)
            self.data(opt, m)
            with self.assertRaisesRegex(paceline.UsageError, "'2.weight' was given other data"):
                with opt.task():
                    raise pl.Abandoned
            opt.close()

        together(1, worker)

    def test_memory(self) -> None:
        """A parameter may move. On a GPU, one that leaves the flat tensor would not be trained any
        more."""

        def move(opt: pl.Optimizer, model: Any) -> None:
            model[2].weight.data = model[2].weight.data.clone()

        make = lambda m: SGD(m.parameters(), lr=0.1)
        self.one(make, move, None)
        with unittest.mock.patch("paceline.torch._vector._FLAT_ON", ("cpu",)):
            self.one(make, move, self.OTHER)

    def test_other_parameters(self) -> None:
        """Parameters that a script replaces, removes or adds, and that the run does not train."""
        make = lambda m: SGD(m.parameters(), lr=0.1)

        def replace(opt: pl.Optimizer, model: Any) -> None:
            model[0].weight = torch.nn.Parameter(model[0].weight.detach().clone())

        def replace_module(opt: pl.Optimizer, model: Any) -> None:
            model[2] = torch.nn.Linear(8, 3)

        def remove(opt: pl.Optimizer, model: Any) -> None:
            model[0].bias = None

        def add(opt: pl.Optimizer, model: Any) -> None:
            model.add_module("more", torch.nn.Linear(3, 3))

        def tied() -> Any:
            model = net(norm=True, width=3)
            model[3].bias = model[1].bias
            return model

        def untie(opt: pl.Optimizer, model: Any) -> None:
            model[3].bias = torch.nn.Parameter(model[3].bias.detach().clone())

        for method in ("sync", "local-sgd:u=1"):
            cases: List[Any] = [(replace, "0.weight", net), (remove, "0.bias", net)]
            for change, name, model in [*cases, (untie, "3.bias", tied)]:
                self.one(make, change, f"'{name}' has been removed or replaced", method, model)
            self.one(make, replace_module, "'2.weight' has been added", method)
            self.one(make, add, "'more.weight' has been added", method)
        self.one(make, lambda opt, model: None, None, model=tied)

    def test_hyper_parameters(self) -> None:
        momentum = lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9)

        def change(**values: Any) -> Any:
            return lambda opt, model: opt.param_groups[0].update(values)

        def cycle(opt: pl.Optimizer, model: Any) -> None:
            torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)

        self.one(momentum, cycle, "momentum has changed from 0.9 to 0.95")
        self.one(momentum, change(weight_decay=0.1), "weight_decay has changed")
        self.one(lambda m: ADAMW(m.parameters()), change(betas=(0.5, 0.9)), "betas has changed")
        self.one(lambda m: ADAMW(m.parameters()), change(eps=1e-3), "eps has changed")
        self.one(momentum, change(lr=0.05), None)
        self.one(momentum, change(momentum=0.5), None, method="local-sgd:u=2")

    def test_frozen_in_the_optimizer(self) -> None:
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

            def worker(role: pl.Role) -> Any:
                model = net()
                model[0].requires_grad_(False)
                opt = pl.Optimizer(make(model), model, "sync", role=role)
                for step in range(5):
                    opt.step(backward(opt, model, step))
                opt.close()
                return model

            (model,) = together(1, worker)
            self.assertLess(float((flat(model) - flat(alone)).abs().max()), 1e-6)

    def test_warm_up_before(self) -> None:
        """Groups whose scheduler begins at 0, made before the optimizer is wrapped."""

        def make(model: Any) -> torch.optim.SGD:
            groups = [{"params": list(model.parameters())[:2], "lr": 0.1}]
            groups.append({"params": list(model.parameters())[2:], "lr": 0.02})
            return SGD(groups, lr=0.1)

        def schedule(opt: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
            return torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / 3))

        alone = net()
        opt = make(alone)
        rates = schedule(opt)
        for step in range(6):
            backward(opt, alone, step)
            opt.step()
            rates.step()

        def worker(role: pl.Role) -> Any:
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

    def test_refused_hyper_parameters(self) -> None:
        class Float(float):
            def __repr__(self) -> str:
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

    def test_shared_parameters(self) -> None:
        """Two optimizers over one model would undo each other's updates."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model[0].parameters(), lr=0.1), model, "sync", role=role)
            for other in (model, model[0]):
                with self.assertRaisesRegex(paceline.UsageError, "pass the submodule"):
                    pl.Optimizer(SGD(other.parameters(), lr=0.1), other, "sync", role=role)
            opt.close()
            first, last = (
                pl.Optimizer(SGD(m.parameters(), lr=0.1), m, "sync", role=role)
                for m in (model[0], model[2])
            )
            before = flat(model)
            loss = backward(first, model)
            first.step(loss)
            last.step(loss)
            self.assertTrue((flat(model) != before).any())
            for opt in (first, last):
                opt.close()

        together(1, worker)

    def test_load_state_of_the_wrapped(self) -> None:
        def load(opt: pl.Optimizer, model: Any) -> None:
            opt.optimizer.load_state_dict(opt.optimizer.state_dict())

        for method in ("sync", "local-sgd:u=1"):
            self.one(lambda m: SGD(m.parameters(), lr=0.1), load, "on the wrapped", method=method)


if __name__ == "__main__":
    unittest.main()
