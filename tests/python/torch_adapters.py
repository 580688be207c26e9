"""The adapters in examples/ for Lightning and Accelerate, on stand-ins.

Debian has a package of neither. The stand-ins below have the calls that the adapters use, with the
meaning that the libraries document, and nothing else. So this tests the adapters and not the
libraries: another version of one of them may still differ."""

import importlib.util
import os
import sys
import types
import unittest
import unittest.mock

import torch

import paceline.torch as pl
from workers import CROSS_ENTROPY, FEATURES, batch, flat, net, roles

SOURCE = os.environ["SOURCE_DIR"]
UPDATES = 12


def example(name):
    """The module examples/NAME.py, under another name than the library that it imports."""
    path = os.path.join(SOURCE, "examples", name + ".py")
    spec = importlib.util.spec_from_file_location("example_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alone(role):
    """What `paceline launch` tells a process."""
    return {"PACELINE": f"rank={role.rank},workers={role.world_size},socket={role.socket}"}


def data(n=64):
    x, y = batch(0, n=n)
    return torch.utils.data.TensorDataset(x, y)


# --- Lightning ------------------------------------------------------------------------------------


class LightningModule(torch.nn.Module):
    """Stand-in for lightning.LightningModule with manual optimization."""

    automatic_optimization = True

    def manual_backward(self, loss):
        assert not self.automatic_optimization, "Lightning refuses this call otherwise"
        loss.backward()

    def on_fit_start(self):
        pass


class Callback:
    """Stand-in for lightning.Callback."""


class Trainer:
    """Stand-in for lightning.Trainer(devices=1): the order of its hooks, on one process."""

    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.should_stop = False
        self.n_batches = 0

    def _call(self, hook, module, *args):
        return [getattr(c, hook)(self, module, *args) for c in self.callbacks if hasattr(c, hook)]

    def _epoch(self, module, loader):
        for i, one in enumerate(loader):
            if -1 in self._call("on_train_batch_start", module, one, i):
                return
            self._call("on_train_batch_end", module, module.training_step(one, i), one, i)
            self.n_batches += 1
            if self.should_stop:
                return

    def fit(self, module, loader):
        module.configure_optimizers()
        module.on_fit_start()
        module.train()
        for _ in range(self.max_epochs):
            self._epoch(module, loader)
            if self.should_stop:
                break
        self._call("on_fit_end", module)


# --- Accelerate -----------------------------------------------------------------------------------


class Accelerator:
    """Stand-in for accelerate.Accelerator in one process: places nothing, and scales nothing."""

    def __init__(self, mixed_precision=None):
        group = [name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if name in os.environ]
        assert not group, f"Accelerate would start a process group: {group}"
        self.mixed_precision = mixed_precision

    def prepare(self, *objects):
        return objects

    def backward(self, loss):
        loss.backward()


class Adapters(unittest.TestCase):
    def setUp(self):
        self.patch(unittest.mock.patch.object(pl._current, "_current", None))
        (role,) = roles(1)
        self.patch(unittest.mock.patch.dict(os.environ, alone(role)))

    def patch(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def modules(self, **library):
        """Makes the stand-in of a library importable."""
        for name, has in library.items():
            module = types.ModuleType(name)
            module.__dict__.update(has)
            self.patch(unittest.mock.patch.dict(sys.modules, {name: module}))

    def test_lightning(self):
        self.modules(lightning={"LightningModule": LightningModule, "Callback": Callback})
        adapter = example("lightning")

        class Mine(adapter.PacelineModule):
            def __init__(self, **options):
                super().__init__(**options)
                self.net = net()

            def make_optimizer(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-3)

            def training_step(self, one, i):
                x, y = one
                self.step(CROSS_ENTROPY(self.net(x), y))

        trainer = Trainer(max_epochs=100, callbacks=[adapter.Paceline()])
        module = Mine(method="async", updates=UPDATES)
        trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=8))
        self.assertEqual(module.opt.summary()["run"]["updates"], UPDATES)
        self.assertEqual(trainer.n_batches, UPDATES)
        self.assertTrue(trainer.should_stop)
        self.assertGreater(float((flat(module.net) - flat(net())).abs().max()), 1e-4)

    def test_accelerate(self):
        self.modules(accelerate={"Accelerator": Accelerator})
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        adapter = example("accelerate")
        model = net()
        loader = torch.utils.data.DataLoader(data(), batch_size=8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run = adapter.Run(model, optimizer, loader, method="async", updates=UPDATES)
        n = 0
        for x, y in run.batches():
            self.assertEqual(x.shape, (8, FEATURES))
            run.step(CROSS_ENTROPY(run.model(x), y))
            n += 1
        run.close()
        self.assertEqual((n, run.opt.summary()["run"]["updates"]), (UPDATES, UPDATES))
        self.assertGreater(float((flat(model) - flat(net())).abs().max()), 1e-4)


if __name__ == "__main__":
    unittest.main()
