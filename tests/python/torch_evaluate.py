"""paceline.torch.evaluate: an evaluator beside the workers of a run, with a model of its own."""

import threading
import unittest
import unittest.mock
from typing import Any, Callable, Dict, List, Tuple

import torch

import paceline
import paceline.torch as pl
from workers import CROSS_ENTROPY, backward, batch, flat, net, roles, to_the_end

UPDATES = 100


class Evaluate(unittest.TestCase):
    def test_beside_a_worker(self) -> None:
        (role,) = roles(1)
        seen, times = [], []

        def score(model: torch.nn.Module) -> Dict[str, Any]:
            self.assertFalse(model.training)
            seen.append(flat(model))
            return {"test_loss": float(len(seen)), "test_accuracy": 0.5}

        def watch() -> None:
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

    def test_no_part_of_a_task(self) -> None:
        """Whatever evict= says, rank 0 is not frozen while it evaluates: it says that it pauses."""
        (role,) = roles(1)
        told: List[Any] = []
        pauses = paceline._client.Client.pause

        def pause(client: Any, yes: bool) -> None:
            told.append(yes)
            pauses(client, yes)

        def score(model: torch.nn.Module) -> float:
            told.append("evaluates")
            return 0.5

        model = net()
        with unittest.mock.patch("paceline._client.Client.pause", pause):
            opt = pl.Optimizer(
                torch.optim.SGD(model.parameters(), lr=0.05), model, "async", role=role, evict=5,
                evaluate=score, eval_every=0.01,
            )  # fmt: skip
            while "evaluates" not in told:
                opt.step(backward(opt, model))
            during = list(told)
            opt.close()
        self.assertEqual(during[:3], [True, "evaluates", False])

    def test_trackers(self) -> None:
        """on_point gets every evaluation of rank 0, and on_end the summary."""
        (role,) = roles(1)
        points: List[Any] = []
        ends: List[Any] = []
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

    def test_nothing_to_tell(self) -> None:
        model = net()
        with self.assertRaisesRegex(paceline.UsageError, "on_point= is called after evaluate="):
            pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, on_point=print)

    def test_an_evaluator_that_asks_late(self) -> None:
        """It has joined, so the last version is evaluated, even if it asks after the last update."""
        (role,) = roles(1)
        model, over = net(), threading.Event()
        points: List[Any] = []
        waits = pl._evaluator.Evaluator._wait

        def late(evaluator: Any) -> None:
            over.wait()
            waits(evaluator)

        with unittest.mock.patch.object(pl._evaluator.Evaluator, "_wait", late):
            opt = pl.Optimizer(
                torch.optim.SGD(model.parameters(), lr=0.05), model, "sync", role=role, updates=3,
                evaluate=lambda m: 0.5, on_point=points.append,
            )  # fmt: skip
        threading.Timer(0.5, over.set).start()
        for step in range(3):
            opt.step(backward(opt, model, step))
        opt.close()
        self.assertEqual(points[-1].updates, 3)

    def ends(
        self, where: str, limit: Dict[str, int], ask: Callable[[pl.Optimizer], Any]
    ) -> Tuple[Any, pl.Optimizer]:
        """A run of one worker in which evaluate= or on_point= calls ask(opt). Returns what the last
        call returned, which is after the last update, and the optimizer."""
        (role,) = roles(1)
        model, over = net(), [False]
        made: List[pl.Optimizer] = []
        found: List[Any] = []

        def look(_: Any) -> float:
            # the evaluation of the first weights may come as late as after the third update
            if made and made[0].version == 3 and (limit or over[0]):
                found.append(ask(made[0]))
            return 0.5

        options: Any = {"evaluate": lambda m: 0.5, **limit, where: look}
        opt = pl.Optimizer(
            torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model, "sync", role=role,
            eval_every=1000, **options,
        )  # fmt: skip
        made.append(opt)
        for step in range(3):
            opt.step(backward(opt, model, step))
        while limit and not opt.ended:
            opt.step(backward(opt, model, 4))
        over[0] = True
        opt.close()
        self.assertEqual(opt.version, 3)
        return found[-1], opt

    ENDS: List[Any] = [
        (where, limit) for where in ("evaluate", "on_point") for limit in ({"updates": 3}, {})
    ]

    def test_state_at_the_end(self) -> None:
        """state_dict() of the last evaluation has the final state, with a limit and without one."""
        for where, limit in self.ENDS:
            found, opt = self.ends(where, limit, lambda opt: opt.state_dict())
            after = opt.state_dict()
            self.assertEqual(sorted(after["state"]), [0, 1, 2, 3])
            for i, own in after["state"].items():
                mine = found["state"][i]["momentum_buffer"]
                self.assertTrue(torch.equal(own["momentum_buffer"], mine), (where, limit, i))

    def test_loading_at_the_end(self) -> None:
        """What would come too late raises."""

        def ask(opt: Any) -> bool:
            torch.nn.init.constant_(opt.model[0].bias, 0.5)
            with self.assertRaisesRegex(paceline.Error, "the run has ended"):
                opt.set_weights()
            return True

        for where, limit in self.ENDS:
            self.assertTrue(self.ends(where, limit, ask)[0])


if __name__ == "__main__":
    unittest.main()
