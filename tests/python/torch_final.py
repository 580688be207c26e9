"""The weights after a run: those that it ended with, on every rank that was there at the end."""

import threading
import unittest
import unittest.mock
import warnings
from typing import Any, List, Optional

import torch

import paceline
import paceline.torch as pl
from paceline import _client
from workers import backward, flat, net, together, to_the_end

SGD = torch.optim.SGD
# their servers have one model, a mean of weights, or one model per worker
METHODS = ("sync", "async", "local-sgd:u=3", "easgd", "diloco:u=3", "gosgd", "ad-psgd", "sgp")
LIMIT = 600  # seconds in which everything here must end


class Final(unittest.TestCase):
    def check_equal(self, ended: List[Any], what: str) -> None:
        (weights, version), *others = ended
        self.assertTrue(torch.isfinite(weights).all(), what)
        for theirs, their_version in others:
            self.assertEqual(their_version, version, what)
            self.assertTrue(torch.equal(theirs, weights), what)

    def ends_of(
        self, n: int, method: str, far: bool = False, norm: bool = False, **options: Any
    ) -> List[Any]:
        """The weights and version of all ranks after a run with a limit."""
        ended: List[Any] = []

        def work(role: pl.Role) -> None:
            model = net(norm=norm)
            sgd = SGD(model.parameters(), lr=0.05)
            opt = pl.Optimizer(sgd, model, method, role=role, updates=20, **options)
            to_the_end(opt, pause=0.001 * (1 + max(opt.rank, 0)))
            opt.close()
            ended.insert(len(ended) if role.rank else 0, (flat(model), opt.version))

        together(n, work, far)
        return ended

    def test_limit(self) -> None:
        """Every rank has the weights of rank 0, which are a mean if workers have models of their own."""
        for method in METHODS:
            self.check_equal(self.ends_of(3, method, norm=True), method)

    def test_over_the_network(self) -> None:
        for method in ("sync", "async", "local-sgd:u=3"):
            self.check_equal(self.ends_of(2, method, far=True, norm=True), method)
        self.check_equal(self.ends_of(2, "async", far=True, wire="bf16"), "bf16")

    def test_zero_copy(self) -> None:
        self.check_equal(self.ends_of(2, "async", zero_copy=True), "zero_copy")

    def test_in_the_middle_of_a_task(self) -> None:
        """Rank 0 closes while the others compute: the server is gone when they have finished."""
        for far in (False, True):
            began, closed = threading.Event(), threading.Event()
            ended: List[Any] = []

            def work(role: pl.Role) -> None:
                model = net()
                sgd = SGD(model.parameters(), lr=0.05)
                opt = pl.Optimizer(sgd, model, "async", role=role)
                loss = backward(opt, model)
                if role.rank == 0:  # opt.rank is 0 for a far worker that joins before
                    began.wait(LIMIT)
                    for _ in range(5):
                        opt.step(loss)
                        loss = backward(opt, model)
                    opt.close()
                    closed.set()
                else:
                    began.set()
                    closed.wait(LIMIT)
                    opt.step(loss)
                    self.assertTrue(opt.ended)
                    opt.close()
                ended.insert(len(ended) if role.rank else 0, (flat(model), opt.version))

            together(2, work, far)
            self.check_equal(ended, f"far={far}")

    def test_close_after_the_end(self) -> None:
        """A rank that closes after the run has ended, and has not asked for a task since."""
        for far in (False, True):
            here, closed = threading.Barrier(2), threading.Event()
            ended: List[Any] = []

            def work(role: pl.Role) -> None:
                model = net()
                opt = pl.Optimizer(SGD(model.parameters(), lr=0.05), model, "async", role=role)
                opt.step(backward(opt, model))
                here.wait(LIMIT)
                if role.rank == 0:
                    opt.step(backward(opt, model))
                    opt.close()
                    closed.set()
                else:
                    closed.wait(LIMIT)
                    opt.close()
                ended.insert(len(ended) if role.rank else 0, (flat(model), opt.version))

            together(2, work, far)
            self.check_equal(ended, f"far={far}")

    def test_left_early(self) -> None:
        """A rank that leaves before the end keeps the weights that it has."""
        left = threading.Event()

        def work(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.05), model, "async", role=role)
            if role.rank == 1:
                opt.step(backward(opt, model))
                before, version = flat(model), opt.version
                opt.close()
                left.set()
                self.assertEqual(opt.version, version)
                self.assertTrue(torch.equal(flat(model), before))
                return
            left.wait(LIMIT)
            for _ in range(5):
                opt.step(backward(opt, model))
            opt.close()

        together(2, work)

    def test_without_weights(self) -> None:
        """They were not sent, so this rank raises."""

        class Forgetful(_client.Client):
            def pull(self, seconds: float) -> Optional[bool]:
                got = super().pull(seconds)
                if got is None and self.number > 1:
                    self.task.w = None
                return got

            def __init__(self, *args: Any, **seat: Any) -> None:
                super().__init__(*args, **seat)
                self.number = seat.get("number", 0)

        def work(role: pl.Role) -> None:
            model = net()
            sgd = SGD(model.parameters(), lr=0.05)
            opt = pl.Optimizer(sgd, model, "async", role=role, updates=20)
            to_the_end(opt)
            if role.rank == 0:
                opt.close()
                return
            with self.assertRaisesRegex(paceline.RunError, "the server has sent no final weights"):
                opt.close()

        with unittest.mock.patch("paceline._client.Client", Forgetful):
            together(2, work)


if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    unittest.main()
