"""Every method trains a model of PyTorch, or is refused in one sentence. Local methods run the
worker's own optimizer."""

import contextlib
import dataclasses
import os
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
from typing import Any, Dict, Iterable, List, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import CROSS_ENTROPY, Cast, batch, flat, net, together

SGD = torch.optim.SGD
fork_servers()


def train(
    method: str,
    make: Any,
    workers: int = 2,
    norm: bool = False,
    updates: int = 6,
    far: bool = False,
    **options: Any,
) -> Any:
    """Returns the model of rank 0 and its summary."""

    def work(role: pl.Role) -> Tuple[Any, Dict[str, Any]]:
        model = net(norm=norm)
        opt = pl.Optimizer(make(model), model, method, updates=updates, role=role, **options)
        step = 0
        while not opt.ended:
            with opt.task():
                opt.zero_grad()
                loss = CROSS_ENTROPY(model(batch(step, role.rank)[0]), batch(step, role.rank)[1])
                loss.backward()
                opt.step(loss)
            step += 1
        opt.close()
        return model, opt.summary()

    return together(workers, work, far)[0]


def trusted(model: torch.nn.Module) -> torch.Tensor:
    """The loss on samples that rank 0 trusts."""
    x, y = batch(0, n=64)
    return CROSS_ENTROPY(model(x), y)


class Table(unittest.TestCase):
    def test_has_all_methods(self) -> None:
        """docs/bench/torch-methods.md, which bench/torch_methods.py writes."""
        with open(os.path.join(os.environ["SOURCE_DIR"], "docs/bench/torch-methods.md")) as f:
            rows = [line.split(" | ")[0][2:] for line in f if line.startswith("| ")]
        self.assertEqual(rows[1:], [item.name for item in paceline.catalog("method")])


class Methods(unittest.TestCase):
    def check(self, items: Iterable[paceline.Item], far: bool) -> None:
        for item in items:
            with self.subTest(item.name):
                start = flat(net())
                try:
                    needs: Dict[str, Any] = (
                        {"reference": trusted} if "reference" in item.needs else {}
                    )
                    make = lambda m: SGD(m.parameters(), lr=0.05)
                    model, summary = train(item.name, make, workers=3, far=far, **needs)
                except paceline.Error as e:
                    self.assertIn("matrix", item.needs, str(e))
                    self.assertIn("block", str(e))
                    self.assertNotIn("--", str(e))  # options of the command line
                    self.assertNotIn("\n", str(e))
                    continue
                self.assertNotIn("matrix", item.needs)
                self.assertGreaterEqual(summary["run"]["updates"], 6)
                self.assertTrue(torch.isfinite(flat(model)).all())
                self.assertGreater(float((flat(model) - start).abs().max()), 1e-4)

    def test_all(self) -> None:
        self.check(paceline.catalog("method"), far=False)

    def test_blocks(self) -> None:
        """Whatever the optimizer is, the sentence is about the method."""
        kinds: List[Any] = [torch.optim.Adam, lambda p: SGD(p, lr=0.1, momentum=0.9)]
        for item in paceline.catalog("method"):
            for kind in kinds if "matrix" in item.needs else []:
                with self.assertRaisesRegex(paceline.Error, "hands out blocks of a matrix"):
                    train(item.name, lambda m: kind(m.parameters()), workers=1)

    def test_each_kind_over_http(self) -> None:
        """The first method with each pair of a policy and a local rule."""
        first: Dict[Any, paceline.Item] = {}
        for item in paceline.catalog("method"):
            parts = item.method["parts"]
            first.setdefault((*parts["policy"], *parts["local"]), item)
        self.assertGreater(len(first), 12)
        self.check(first.values(), far=True)


class Types(unittest.TestCase):
    """Parameters in half precision."""

    def loss(
        self, method: str, dtype: torch.dtype, lr: float, updates: int, workers: int = 1
    ) -> float:
        """The loss after a run, of the model of rank 0."""

        first = net().state_dict()

        def make(norm: bool = False) -> torch.nn.Sequential:
            model = torch.nn.Sequential(Cast(6, 8), torch.nn.Tanh(), Cast(8, 3))
            model.load_state_dict(first)
            return model.to(dtype)

        with unittest.mock.patch(__name__ + ".net", make):
            model, _ = train(
                method, lambda m: SGD(m.parameters(), lr=lr), workers=workers, updates=updates
            )
        self.assertEqual({p.dtype for p in model.parameters()}, {dtype})
        with torch.no_grad():
            return float(trusted(model))

    def test_half_precision(self) -> None:
        start = float(trusted(net()))
        for dtype in (torch.bfloat16, torch.float16):
            for method in ("sync", "async", "local-sgd:u=4", "easgd:u=4"):
                found = self.loss(method, dtype, 0.1, 60, workers=2)
                self.assertLess(found, start - 0.2, (method, dtype))

    def test_weights_at_the_server_are_float32(self) -> None:
        """Changes that are too small for bfloat16 add up there, but not in local steps."""
        exact = self.loss("sync", torch.float32, 1e-3, 300)
        server = self.loss("sync", torch.bfloat16, 1e-3, 300)
        local = self.loss("local-sgd:u=1", torch.bfloat16, 1e-3, 300)
        self.assertLess(abs(server - exact), 0.01)
        self.assertGreater(local - exact, 0.02)


class Local(unittest.TestCase):
    """The worker's own optimizer takes the steps."""

    def reference(
        self, make: Any, rounds: int, u: int, workers: int = 2, norm: bool = False
    ) -> Any:
        """Local SGD in one process: returns the model after some rounds, and the changes that the
        mean made in each."""
        models = [net(norm=norm) for _ in range(workers)]
        opts = [make(m) for m in models]
        for r in range(rounds):
            for w, (model, opt) in enumerate(zip(models, opts)):
                for i in range(u):
                    opt.zero_grad(set_to_none=True)
                    x, y = batch(r * u + i, w)
                    CROSS_ENTROPY(model(x), y).backward()
                    opt.step()
            with torch.no_grad():
                for tensors in zip(*(m.state_dict().values() for m in models)):
                    mean = torch.stack([t.double() for t in tensors]).mean(0)
                    for t in tensors:
                        t.copy_(mean)
        return models[0]

    def test_zeno(self) -> None:
        """Gradients that go uphill on what rank 0 trusts are rejected, and no others."""
        attacked = threading.Event()

        def work(role: pl.Role, log: Any) -> None:
            model = net(norm=True)
            opt = pl.Optimizer(
                SGD(model.parameters(), lr=0.02), model, "zeno++:eps=0.001,every=3", role=role,
                reference=trusted, evaluate=lambda m: 0.0, eval_every=0.01, updates=30, events=log,
            )  # fmt: skip
            # the reference has left no traces
            if opt.version == 0:
                self.assertEqual(int(model[1].num_batches_tracked), 0)
            self.assertIsNone(model[0].weight.grad)
            while not opt.ended:
                opt.zero_grad()
                loss = trusted(model)
                loss.backward()
                for p in model.parameters():
                    assert p.grad is not None
                    p.grad.mul_(-10 if role.rank == 2 else 1)
                opt.step(loss, samples=64)
                if role.rank < 2 and opt.version > 20:
                    attacked.wait(600)
                elif opt.summary()["results"] > 3 or opt.ended:
                    attacked.set()
            opt.close()

        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "events")
            together(3, lambda role: work(role, log))
            with open(log) as f:
                lines = f.read()
        self.assertNotIn("arrive W3", lines)
        self.assertIn("reject W3", lines)
        trained = lines.partition("commit w1 ")[2]  # before, there may have been no reference
        self.assertIn("commit w30 ", trained)
        self.assertNotRegex(trained, "reject W[12]")

    def test_what_a_server_cannot_compute(self) -> None:
        """A replay needs all gradients."""
        make = lambda m: SGD(m.parameters(), lr=0.1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.pcl")
            train("sync", make, record=path)
            for more in ("", "--method=async"):
                command = ["paceline", "replay", path, *more.split()]
                done = subprocess.run(command, capture_output=True, text=True)
                self.assertIn("neither simulated nor replayed", done.stderr)

    def test_buffers_of_own_steps(self) -> None:
        """Rules whose local steps are the library's leave buffers to the model."""

        def worker(role: pl.Role, method: str) -> Any:
            model = net(norm=True)
            model.register_buffer("constant", torch.tensor([5.0, -3.0]))
            opt = pl.Optimizer(
                SGD(model.parameters(), lr=0.05), model, method, role=role, updates=12
            )
            step = 0
            while not opt.ended:
                x, y = batch(step, role.rank)
                opt.zero_grad()
                loss = CROSS_ENTROPY(model(x), y)
                loss.backward()
                opt.step(loss)
                step += 1
            opt.close()
            return model

        for method in ("downpour:push=2", "eamsgd:u=2"):
            model = together(2, lambda role: worker(role, method))[0]
            self.assertEqual(model.constant.tolist(), [5.0, -3.0], method)
            self.assertGreater(int(model[1].num_batches_tracked), 2, method)
            self.assertGreater(float(model[1].running_mean.abs().max()), 0, method)

    def test_buffers_of_gossip(self) -> None:
        """Workers that exchange models exchange buffers with them. All take as many steps."""

        def work(role: pl.Role, method: str, steps: threading.Barrier) -> Any:
            model = net(norm=True)
            model.register_buffer("constant", torch.tensor([5.0, -3.0]))
            opt = pl.Optimizer(
                SGD(model.parameters(), lr=0.05), model, method, updates=60, role=role
            )
            step = 0
            while not opt.ended:
                with contextlib.suppress(threading.BrokenBarrierError):
                    steps.wait()
                opt.zero_grad()
                x, y = batch(step, role.rank)
                loss = CROSS_ENTROPY(model(x + 3), y)
                loss.backward()
                opt.step(loss)
                step += 1
            steps.abort()
            opt.close()
            return model

        for method in ("gossip-pull", "gossip-push", "gosgd", "ad-psgd", "sgp"):
            steps = threading.Barrier(3)
            model = together(3, lambda role: work(role, method, steps))[0]
            for got, first in zip(model.constant.tolist(), (5.0, -3.0)):
                self.assertAlmostEqual(got, first, 4, method)
            self.assertGreater(int(model[1].num_batches_tracked), 3, method)
            self.assertGreater(float(model[1].running_mean.abs().max()), 0.05, method)

    def test_local_sgd(self) -> None:
        """With groups and AdamW inside; with buffers."""

        def adamw(m: torch.nn.Module) -> torch.optim.AdamW:
            params = list(m.parameters())
            groups: List[Dict[str, Any]] = [{"params": params[:2]}]
            groups.append({"params": params[2:], "lr": 1e-3})
            return torch.optim.AdamW(groups, lr=0.01)

        for make, norm in (
            (adamw, False),
            (lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9), True),
        ):
            expected = flat(self.reference(make, 6, 4, norm=norm))
            model, summary = train("local-sgd:u=4", make, norm=norm, updates=6)
            self.assertLess(float((flat(model) - expected).abs().max()), 2e-6)
            self.assertGreaterEqual(summary["results"], 6)

    def test_rates_of_groups(self) -> None:
        """Each worker's optimizer has its own, also 0: that group stays as it is."""

        def make(model: Any) -> torch.optim.SGD:
            groups = [{"params": model[0].parameters(), "lr": 0.0}]
            groups.append({"params": model[2].parameters()})
            return SGD(groups, lr=0.1)

        methods = [item for item in paceline.catalog("method") if item.method["any_optimizer"]]
        self.assertGreater(len(methods), 10)
        for item in methods:
            model, _ = train(item.name, make, updates=4)
            still, moved = (flat(model[i]) - flat(net()[i]) for i in (0, 2))
            self.assertLess(float(still.abs().max()), 1e-6, item.name)
            self.assertGreater(float(moved.abs().max()), 1e-4, item.name)

    def test_diloco(self) -> None:
        """DiLoCo with AdamW inside: the outer step is Nesterov's, on the mean of the changes. One
        worker, because then a reference is short."""
        make = lambda m: torch.optim.AdamW(m.parameters(), lr=0.01)
        u, rounds, outer, beta = 5, 6, 0.7, 0.9
        model, summary = train(f"diloco:u={u}", make, workers=1, updates=rounds)
        reference = net()
        opt = make(reference)
        params = list(reference.parameters())
        w = [p.detach().clone() for p in params]
        v = [torch.zeros_like(p) for p in params]
        ahead = [x.clone() for x in w]
        for r in range(rounds):
            for p, x in zip(params, ahead):
                p.data.copy_(x)
            for i in range(u):
                opt.zero_grad(set_to_none=True)
                x, y = batch(r * u + i)
                CROSS_ENTROPY(reference(x), y).backward()
                opt.step()
            for k, p in enumerate(params):
                v[k] = beta * v[k] + (ahead[k] - p.data)
                w[k] = w[k] - outer * v[k]
                ahead[k] = w[k] - outer * beta * v[k]
        expected = torch.cat([x.reshape(-1).double() for x in w])
        self.assertEqual(summary["run"]["updates"], rounds)
        self.assertLess(float((flat(model) - expected).abs().max()), 2e-6)

    def test_gradients_or_steps(self) -> None:
        """With plain SGD inside, it makes no difference who takes the steps."""
        make = lambda m: SGD(m.parameters(), lr=0.1)
        columns = pl._translate.columns

        def gradients(options: Dict[str, Any]) -> Any:
            return dataclasses.replace(columns(options), takes_steps=False)

        for method in (
            "local-sgd:u=3",
            "diloco:u=4",
            "nodelay:u=3",
            "overlap-local-sgd:u=2",
            "sync-easgd:u=3",
        ):
            with self.subTest(method):
                mine, summary = train(method, make)
                self.assertIn(summary["results"] - summary["run"]["updates"], (0, 1))
                with unittest.mock.patch("paceline.torch._optimizer.columns", gradients):
                    theirs, _ = train(method, make)
                self.assertLess(float((flat(mine) - flat(theirs)).abs().max()), 2e-6)

    def test_schedule(self) -> None:
        """A scheduler changes the rate of the local steps."""

        def make(m: torch.nn.Module) -> torch.optim.SGD:
            opt = SGD(m.parameters(), lr=0.1)
            opt.param_groups[0]["lr"] = 0.0
            return opt

        model, _ = train("local-sgd:u=3", make)
        self.assertEqual(float((flat(model) - flat(net())).abs().max()), 0)


if __name__ == "__main__":
    unittest.main()
