"""Simulations of PyTorch models. tests/shell/torch.sh runs this where PyTorch is installed."""

import contextlib
import ctypes
import itertools
import io
import math
import os
import signal
import subprocess
import tempfile
import threading
import unittest
from typing import Any, Dict, List, Tuple

import torch

import paceline
from ksync import KSync
from pages import run_examples, run_page
from paceline import loop, simulation

torch.set_num_threads(1)
CROSS_ENTROPY = torch.nn.functional.cross_entropy


def data(n: int = 300, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def net(seed: int = 0, norm: bool = False) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(12, 10), torch.nn.Tanh(), torch.nn.Linear(10, 4)]
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(10))
    return torch.nn.Sequential(*layers)


def flat(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class CKernel:
    """The kernel that the library hands out, compiled as C: a GPU whose memory we can read."""

    compiled: Dict[str, ctypes.CDLL] = {}

    def __init__(self, source: Any) -> None:
        if source not in self.compiled:
            with tempfile.TemporaryDirectory() as folder:
                name = os.path.join(folder, "kernel")
                with open(name + ".c", "w") as f:
                    f.write(source)
                cc = [os.environ.get("CC", "cc"), "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
                subprocess.run(cc + [name + ".c", "-o", name + ".so", "-lm"], check=True)
                self.compiled[source] = ctypes.CDLL(name + ".so")
        self.commit = self.compiled[source].pl_kernel
        self.commit.argtypes = [ctypes.c_void_p]
        self.commit.restype = None

    def __call__(self, argument: Any, size: int) -> None:
        self.commit(argument)


def on_device(model: Any, train: Any, test: Any = None, **options: Any) -> paceline.Run:
    """A run with vectors outside of the library, on this machine."""
    setup = paceline.Setup(**options)
    n = simulation._Net(model, CROSS_ENTROPY, torch)
    held = simulation._Data(test, n.device, torch, "test") if test else None
    train = simulation._Data(train, n.device, torch, "data")
    loop.set_rows(setup, train.n, held.n if held else 0, train.labels())
    return simulation._OnDevice(setup, n, train, held, CKernel).run()


OPTIONS = dict(workers=5, batch=8, lr=0.1, updates=80, seed=4, eval_samples=50)


class Simulate(unittest.TestCase):
    def simulate(self, **options: Any) -> Tuple[Any, Any]:
        options = dict(OPTIONS, **options)
        model = options.pop("model", None) or net()
        test = options.pop("test", None)
        return model, paceline.simulate(
            model=model, loss=CROSS_ENTROPY, data=data(), test=test, **options
        )

    def test_sync_is_large_batch_training(self) -> None:
        """One worker is plain SGD on the rows that the library drew."""
        options = dict(method="sync", workers=1, updates=30, batch=300, sampling="epoch")
        model, run = self.simulate(**options)
        mine = net()
        x, y = data()
        opt = torch.optim.SGD(mine.parameters(), lr=0.1)
        for _ in range(30):
            opt.zero_grad()
            CROSS_ENTROPY(mine(x), y).backward()
            opt.step()
        self.assertLess((flat(mine) - flat(model)).abs().max().item(), 1e-6)
        final = torch.frombuffer(run.weights, dtype=torch.float32)
        self.assertTrue(torch.equal(flat(model), final))
        self.assertEqual(run["epochs"], 30)

    def test_every_method(self) -> None:
        """Every method of the library trains a PyTorch model, or is refused in a sentence."""
        trained = 0
        once = dict(eval_every=10**6, eval_samples=10)  # evaluate at both ends alone
        for item in paceline.catalog("method"):
            try:
                _, run = self.simulate(method=item.name, workers=8, updates=6, **once)
            except paceline.UsageError as e:
                self.assertGreater(len(str(e)), 30, item.name)
                continue
            trained += run["updates"] == 6
        self.assertGreater(trained, 40)

    def test_items_are_pairs(self) -> None:
        class Dicts(torch.utils.data.Dataset[Any]):
            def __len__(self) -> int:
                return 64

            def __getitem__(self, i: int) -> Dict[str, Any]:
                return {"x": torch.zeros(6), "y": 0}

        with self.assertRaisesRegex(paceline.UsageError, "pairs .* has a dict"):
            paceline.simulate(model=net(), loss=CROSS_ENTROPY, data=Dicts(), updates=2, workers=2)

    def test_decisions_are_those_of_the_simulator(self) -> None:
        """The event log depends on delays and the seed, not on who computes the gradients."""
        for method in ("ksync:k=3", "kasync:k=2", "abs", "gap-aware", "dana", "rennala", "ssp"):
            logs = []
            for kind in ("library", "host", "device"):
                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "events")
                    options = dict(OPTIONS, method=method, events=path, delay="exp:mean=2")
                    options["net"] = "latency=0.01"
                    if kind == "library":
                        paceline.simulate(
                            model="softmax", data="blobs:samples=300,test=10", **options
                        )
                    elif kind == "host":
                        paceline.simulate(model=net(), loss=CROSS_ENTROPY, data=data(), **options)
                    else:
                        on_device(net(), data(), **options)
                    with open(path) as f:
                        logs.append(f.read())
            self.assertGreater(len(logs[0].splitlines()), 80)
            self.assertEqual(logs[0], logs[1], method)
            self.assertEqual(logs[0], logs[2], method)

    def test_rules_on_the_device_are_those_of_the_library(self) -> None:
        """Bit for bit: the kernel is made of the functions that the library calls."""
        methods = ["sync", "async", "gap-aware", "dana", "dc-asgd", "kasync:k=2"]
        cases: List[Dict[str, Any]] = [dict(method=m) for m in methods]
        for optim in [i.name for i in paceline.catalog("optim")]:
            for correct in ("none", "gap", "dc", "lag", "exp", "delay-adaptive"):
                case = dict(policy="kasync:k=1", optim=optim, correct=correct)
                cases.append(dict(case, weight_decay=0.01 if correct == "gap" else 0))
        cases.append(dict(policy="kasync:k=1", optim="dana:form=slim"))
        cases.append(dict(policy="kasync:k=1", correct="dc:form=a,lambda=2"))
        cases.append(dict(policy="kasync:k=1", correct="gap", optim="dana:form=multi"))
        cases.append(dict(method="sync", workers=40, correct="gap"))  # a commit in three pieces
        cases.append(dict(policy="kbatchsync:k=33", lr_schedule="warmup:over=2"))
        n_refused = 0
        for case in cases:
            options: Dict[str, Any] = dict(OPTIONS, updates=25, eval_every=10)
            options.update(case)
            try:
                host, run = self.simulate(**options)
            except paceline.UsageError:
                n_refused += 1  # the rules do not go together, anywhere
                continue
            other = net()
            run2 = on_device(other, data(), **options)
            self.assertTrue(torch.equal(flat(host), flat(other)), case)
            self.assertEqual(run.json, run2.json)
            self.assertEqual(repr(run.points), repr(run2.points))
        self.assertLess(n_refused, len(cases) / 3)

    def test_rules_that_need_the_host(self) -> None:
        """Refused in a sentence on a device."""
        for options in (
            dict(method="krum"),
            dict(method="easgd"),
            dict(method="gosgd"),
            dict(method="kardam"),
            dict(method="fastest-k"),
            dict(policy="ksync:k=3", reduce="median"),
            dict(policy="kasync:k=1", correct="clip"),
            dict(policy="kasync:k=1", correct="gap:form=scalar"),
            dict(policy="ksync:k=3", attack="signflip:f=1"),
        ):
            words = "memory of this process .vectors 'host'.; keep them there"
            with self.assertRaisesRegex(paceline.UsageError, words, msg=options):
                on_device(net(), data(), **dict(OPTIONS, **options))

    def test_scores_and_targets(self) -> None:
        for run_it in (
            lambda **o: self.simulate(test=data(100, 1), **o)[1],
            lambda **o: on_device(net(), data(), data(100, 1), **dict(OPTIONS, **o)),
        ):
            run = run_it(method="async", updates=5000, target_accuracy=0.8, optim="momentum")
            self.assertGreaterEqual(run.points[-1].test_accuracy, 0.8)
            self.assertLess(run["updates"], 5000)
            self.assertFalse(math.isnan(run["time_to_target"]))

    def test_policies_in_python(self) -> None:
        _, c = self.simulate(policy="ksync:k=3")
        _, python = self.simulate(policy=KSync(k=3))
        self.assertEqual(c["time"], python["time"])
        self.assertEqual(bytes(c.weights), bytes(python.weights))

    def test_partitions(self) -> None:
        """The shards of the workers are disjoint; labels reach the library."""
        seen = []

        class Looks(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = torch.nn.Parameter(torch.zeros(4))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                seen.append(set(x[:, 0].long().tolist()))
                return (x[:, :1] * 0 + self.w).expand(len(x), 4)

        x = torch.arange(100.0).unsqueeze(1)
        y = torch.arange(100) // 25
        for partition in ("iid", "label:alpha=0.5"):
            seen.clear()
            paceline.simulate(
                model=Looks(), loss=CROSS_ENTROPY, data=(x, y), method="sync", workers=4, batch=50,
                partition=partition, updates=1, eval_samples=1, eval_every=1000,
            )  # fmt: skip
            batches = [s for s in seen if len(s) > 1]
            self.assertGreaterEqual(len(batches), 2)
            self.assertEqual(sum(map(len, batches)), len(set().union(*batches)))
        with self.assertRaisesRegex(paceline.UsageError, "label"):
            paceline.simulate(
                model=Looks(), loss=torch.nn.functional.mse_loss, data=(x, x), partition="label",
                updates=1,
            )  # fmt: skip

    def test_data_sets(self) -> None:
        class Rows(torch.utils.data.Dataset[Any]):
            def __len__(self) -> int:
                return 300

            def __getitem__(self, i: int) -> Tuple[Any, Any]:
                return data()[0][i], data()[1][i]

        a, _ = self.simulate(method="async", updates=5)
        b = net()
        paceline.simulate(
            model=b, loss=CROSS_ENTROPY, data=Rows(), method="async", **dict(OPTIONS, updates=5)
        )
        self.assertTrue(torch.equal(flat(a), flat(b)))

    def test_batch_norm_and_dropout(self) -> None:
        for vectors in ("host", "device"):
            states = []
            for _ in range(2):
                model = torch.nn.Sequential(net(norm=True), torch.nn.Dropout(0.1))
                options = dict(OPTIONS, method="async", updates=40)
                if vectors == "host":
                    paceline.simulate(model=model, loss=CROSS_ENTROPY, data=data(), **options)
                    states.append(model.state_dict())
                else:
                    torch.manual_seed(1)
                    on_device(model, data(), **options)
                    states.append(model.state_dict())
                self.assertTrue(model.training)
            for key in states[0]:
                self.assertTrue(torch.equal(states[0][key], states[1][key]), key)
            self.assertEqual(int(states[0]["0.1.num_batches_tracked"]), 40)

    def test_gradients_that_are_not_finite_are_rejected(self) -> None:
        def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            factor = float("nan") if next(calls) % 10 == 0 else 1
            return CROSS_ENTROPY(out, y) * factor

        words = []
        for vectors in ("host", "device"):
            calls = itertools.count(1)
            options: Dict[str, Any] = dict(OPTIONS, method="async", eval_every=10**6)
            setup = paceline.Setup(on_log=lambda warns, s: words.append(s), **options)
            n = simulation._Net(net(), loss, torch)
            train = simulation._Data(data(), n.device, torch, "data")
            loop.set_rows(setup, train.n, 0, None)
            if vectors == "host":
                run = simulation._OnHost(setup, n, train, None).run()
            else:
                run = simulation._OnDevice(setup, n, train, None, CKernel).run()
            self.assertEqual(run["updates"], 80)
            self.assertGreater(run["tasks.rejected"], 5)
            self.assertTrue(torch.isfinite(n.w).all())
        self.assertIn("not finite", words[0])

    def test_exceptions_end_the_run(self) -> None:
        class Mine(Exception):
            pass

        def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if next(calls) == n:
                raise Mine("here")
            return CROSS_ENTROPY(out, y)

        for n in (1, 20):
            calls = itertools.count(1)
            with self.assertRaisesRegex(Mine, "here"):
                paceline.simulate(model=net(), loss=loss, data=data(), method="async", **OPTIONS)

    def test_ctrl_c(self) -> None:
        # a shell starts what runs in the background with this signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            self.simulate(method="async", updates=10**9)
        timer.join()
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            on_device(net(), data(), **dict(OPTIONS, method="async", updates=10**9))
        timer.join()

    def test_bad_arguments(self) -> None:
        x, y = data()
        cases: List[Tuple[Dict[str, Any], str]] = [
            (dict(model=3), "torch.nn.Module"),
            (dict(model=torch.nn.Tanh()), "no parameters"),
            (dict(model=net().double()), "float32"),
            (dict(data=(x, y[:5])), "same length"),
            (dict(data=3), "data set"),
            (dict(data=(x[:0], y[:0])), "empty"),
            (dict(vectors="cloud"), "'auto', 'host' or 'device'"),
            (dict(vectors="device"), "CUDA"),
            (dict(wrkers=3), "did you mean"),
        ]
        for options, words in cases:
            given: Dict[str, Any] = dict(model=net(), loss=CROSS_ENTROPY, data=(x, y), updates=3)
            given.update(options)
            with self.assertRaisesRegex(paceline.UsageError, words):
                paceline.simulate(**given)


class Documented(unittest.TestCase):
    def test_examples(self) -> None:
        run_examples(self, simulation, paceline=paceline, torch=torch)


class Restored(unittest.TestCase):
    def test_model_after_an_exception(self) -> None:
        """Whatever raises, the model is what it was, in its own memory."""

        def fails(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            self.left -= 1
            if self.left == 0:
                raise KeyError("loss")
            return CROSS_ENTROPY(output, target)

        for error, options in (
            (paceline.UsageError, dict(method="fdsgd")),
            (paceline.UsageError, dict(workers=-1)),
            (paceline.UsageError, dict(data=(torch.zeros(0, 12), torch.zeros(0)))),
            (KeyError, dict(loss=fails)),
        ):
            self.left = 5
            model = net(norm=True)
            before = [t.clone() for t in model.state_dict().values()]
            at = [p.data_ptr() for p in model.parameters()]
            usual: Dict[str, Any] = dict(model=model, loss=CROSS_ENTROPY, data=data(), updates=9)
            with self.assertRaises(error):
                simulation.simulate(**dict(usual, **options))
            self.assertEqual([p.data_ptr() for p in model.parameters()], at, options)
            for t, old in zip(model.state_dict().values(), before):
                self.assertTrue(torch.equal(t, old), options)
            self.assertTrue(all(p.grad is None for p in model.parameters()))


class Loops(unittest.TestCase):
    def test_the_page(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(run_page("simulate-torch.md"), 2)

    def test_misuse(self) -> None:
        setup = paceline.Setup(method="async", workers=2, updates=3, batch=2)
        loop.set_rows(setup, 10)
        room = (ctypes.c_float * 4096)()
        with loop.Loop(setup, 4) as at:
            with self.assertRaisesRegex(paceline.UsageError, "did not ask"):
                at.gradient(1.0)
            with self.assertRaisesRegex(paceline.UsageError, "after PL_LOOP_END"):
                at.run()
            given = 0
            while at.next().what != loop.GRADIENT:
                for _ in range(at.step.n if at.step.what == loop.MEMORY else 0):
                    at.give(ctypes.addressof(room) + 64 * given)
                    given += 1
                if at.step.what == loop.SCORE:
                    at.score(1.0)
            with self.assertRaisesRegex(paceline.UsageError, "pl_loop_gradient"):
                at.next()
            with self.assertRaisesRegex(paceline.UsageError, "did not ask"):
                at.score(1.0)
            at.stop()
            self.assertEqual(at.next().what, loop.SCORE)
            at.score(0.5)
            self.assertEqual(at.next().what, loop.END)
            self.assertEqual(at.next().what, loop.END)
            run = at.run()
            self.assertEqual(run["updates"], 0)
            self.assertEqual(run.points[-1].loss, 0.5)
            with self.assertRaisesRegex(paceline.UsageError, "one result"):
                at.run()


if __name__ == "__main__":
    unittest.main()
