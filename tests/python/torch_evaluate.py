"""paceline.torch.evaluate: an evaluator beside the workers of a run, with a model of its own."""

import threading
import unittest

import torch

import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, flat, net, roles, to_the_end

UPDATES = 100


class Evaluate(unittest.TestCase):
    def test_beside_a_worker(self):
        (role,) = roles(1)
        seen, times = [], []

        def score(model):
            self.assertFalse(model.training)
            seen.append(flat(model))
            return {"test_loss": float(len(seen)), "test_accuracy": 0.5}

        def watch():
            times.append(pl.evaluate(net(seed=7), score, role=role, wait=30))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        model = net()
        opt = pl.Optimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model, "async", role=role,
            updates=UPDATES, eval_every=0.05,
        )  # fmt: skip
        to_the_end(opt, pause=0.01)
        opt.close()
        watching.join(30)
        self.assertFalse(watching.is_alive())
        run = opt.summary()["run"]
        self.assertEqual(times, [len(seen)])
        self.assertGreaterEqual(len(seen), 2)  # the last version, and one before it
        self.assertEqual((run["updates"], run["test_loss"]), (UPDATES, float(len(seen))))
        self.assertEqual(float((seen[-1] - flat(model)).abs().max()), 0)

    def test_trackers(self):
        """on_point gets every evaluation of rank 0, and on_end the summary."""
        (role,) = roles(1)
        points, ends = [], []
        model = net()
        opt = pl.Optimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model, "sync", role=role, updates=20,
            eval_every=0.01, evaluate=lambda m: {"test_loss": 0.5, "extra": 2},
            on_point=points.append, on_end=ends.append,
        )  # fmt: skip
        while not opt.ended:
            opt.zero_grad()
            x, y = batch(0)
            loss = CROSS_ENTROPY(model(x), y)
            loss.backward()
            opt.step(loss)
        opt.close()
        self.assertEqual(points[-1].updates, 20)
        self.assertEqual((points[-1].test_loss, points[-1].numbers["extra"]), (0.5, 2.0))
        self.assertNotEqual(points[-1].test_accuracy, points[-1].test_accuracy)
        self.assertEqual([run["updates"] for run in ends], [20])


if __name__ == "__main__":
    unittest.main()
