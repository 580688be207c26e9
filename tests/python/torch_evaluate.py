"""paceline.torch.evaluate: an evaluator beside the workers of a run, with a model of its own."""

import threading
import time
import unittest

import torch

import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, flat, net, roles

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
        step = 0
        while not opt.ended:
            time.sleep(0.01)
            opt.zero_grad()
            x, y = batch(step)
            loss = CROSS_ENTROPY(model(x), y)
            loss.backward()
            opt.step(loss)
            step += 1
        opt.close()
        watching.join(30)
        self.assertFalse(watching.is_alive())
        run = opt.summary()["run"]
        self.assertEqual(times, [len(seen)])
        self.assertGreaterEqual(len(seen), 2)  # the last version, and one before it
        self.assertEqual((run["updates"], run["test_loss"]), (UPDATES, float(len(seen))))
        self.assertEqual(float((seen[-1] - flat(model)).abs().max()), 0)


if __name__ == "__main__":
    unittest.main()
