"""Every method trains a model of PyTorch, or is refused in one sentence. Local methods run the
worker's own optimizer."""

import unittest

import torch

import paceline
import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, flat, net, together

SGD = torch.optim.SGD


def train(method, make, workers=2, norm=False, updates=6, **options):
    """Returns the model of rank 0 and its summary."""

    def work(role):
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

    return together(workers, work)[0]


class Methods(unittest.TestCase):
    # why a method is refused
    REFUSED = {
        "fdsgd": "block",
        "dsgd": "block",
        "fpsgd": "block",
        "zeno++": "external",
        "krum": "",
        "bulyan": "",
    }
    # what else a method needs
    OPTIONS = {}

    def test_all(self):
        for item in paceline.list("method"):
            print(item.name, flush=True)
            with self.subTest(item.name):
                options = self.OPTIONS.get(item.name, {})
                start = flat(net())
                try:
                    model, summary = train(
                        item.name, lambda m: SGD(m.parameters(), lr=0.05), workers=3, **options
                    )
                except paceline.Error as e:
                    self.assertIn(item.name, self.REFUSED, str(e))
                    self.assertIn(self.REFUSED[item.name], str(e))
                    self.assertNotIn("\n", str(e))
                    continue
                self.assertNotIn(item.name, self.REFUSED)
                self.assertGreaterEqual(summary["run"]["updates"], 6)
                self.assertTrue(torch.isfinite(flat(model)).all())
                self.assertGreater(float((flat(model) - start).abs().max()), 1e-4)


if __name__ == "__main__":
    unittest.main()
