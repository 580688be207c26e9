"""The samples of a result: those of the mini-batches that its steps were made of."""

import collections
import itertools
import unittest
import unittest.mock
from typing import Any, Callable, List, Tuple

import torch

import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, net, together

SGD = torch.optim.SGD
DATA = torch.utils.data.TensorDataset(*batch(0, n=64))


def loader(size: int = 8) -> Any:
    return torch.utils.data.DataLoader(DATA, size)


class Samples(unittest.TestCase):
    def told(self, method: str, loop: Callable[[pl.Optimizer, torch.nn.Module], Any]) -> List[Any]:
        """The samples of every result of one worker that runs `loop(opt, model)`."""
        told = []

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, method, role=role)
            push = opt._session.push

            def note(samples: Any, loss: Any, absent: Any = None) -> None:
                told.append(samples)
                push(samples, loss)

            with unittest.mock.patch.object(opt._session, "push", note):
                loop(opt, model)
            opt.close()

        together(1, worker)
        return told

    def backward(
        self, opt: pl.Optimizer, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        loss = CROSS_ENTROPY(model(x), y)
        loss.backward()
        return loss

    def test_plain(self) -> None:
        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            for x, y in opt.batches(loader()):
                opt.zero_grad()
                opt.step(self.backward(opt, model, x, y))

        self.assertEqual(self.told("sync", loop), [8] * 8)

    def test_given(self) -> None:
        """A number that is given replaces what batches() has counted."""

        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            for x, y in opt.batches(loader()):
                opt.zero_grad()
                opt.step(self.backward(opt, model, x, y), samples=5)

        self.assertEqual(self.told("sync", loop), [5] * 8)
        self.assertEqual(self.told("local-sgd:u=4", loop), [20] * 2)

    def test_local_steps(self) -> None:
        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            for x, y in opt.batches(loader()):
                opt.zero_grad()
                opt.step(self.backward(opt, model, x, y), samples=len(x))

        self.assertEqual(self.told("local-sgd:u=4", loop), [32] * 2)

    def test_accumulation(self) -> None:
        """With and without steps inside no_sync(), and zero_grad() before or after the step."""

        def loop(
            opt: pl.Optimizer, model: torch.nn.Module, steps: bool = True, before: bool = True
        ) -> None:
            for i, (x, y) in enumerate(opt.batches(loader())):
                if before and i % 4 == 0:
                    opt.zero_grad()
                if i % 4 < 3:
                    with opt.no_sync():
                        loss = self.backward(opt, model, x, y)
                        if steps:
                            opt.step(loss)
                else:
                    opt.step(self.backward(opt, model, x, y))
                    if not before:
                        opt.zero_grad()

        for steps, before in itertools.product((True, False), (True, False)):
            told = self.told("sync", lambda o, m: loop(o, m, steps, before))
            self.assertEqual(told, [32] * 2, (steps, before))

    def test_skipped(self) -> None:
        """Mini-batches that the script draws and does not use, before and after zero_grad(), and those
        whose gradients it throws away."""

        def loop(opt: pl.Optimizer, model: torch.nn.Module, how: str) -> None:
            for i, (x, y) in enumerate(opt.batches(loader())):
                if how == "before" and i % 2:
                    continue
                opt.zero_grad()
                if how == "after" and i % 2:
                    continue
                loss = self.backward(opt, model, x, y)
                if how == "computed" and i % 2:
                    continue
                opt.step(loss)

        for how in ("before", "after", "computed"):
            for method, expected in (("sync", [8] * 4), ("local-sgd:u=2", [16] * 2)):
                told = self.told(method, lambda o, m: loop(o, m, how))
                self.assertEqual(told, expected, (method, how))

    def test_skipped_while_accumulating(self) -> None:
        """Of four mini-batches per step, one is not used."""

        def loop(opt: pl.Optimizer, model: torch.nn.Module) -> None:
            for i, (x, y) in enumerate(opt.batches(loader())):
                if i % 4 == 0:
                    opt.zero_grad()
                if i % 4 == 2:
                    continue
                loss = self.backward(opt, model, x, y)
                if i % 4 == 3:
                    opt.step(loss)

        self.assertEqual(self.told("sync", loop), [24] * 2)

    def test_nested(self) -> None:
        """Tensors of one length in dicts, tuples and lists; and lists with an entry per sample."""
        x, y = batch(0, n=8)
        pair = collections.namedtuple("pair", "x y")
        images = [torch.ones(3, 5, 4 + i) for i in range(8)]
        boxes = [{"boxes": torch.ones(i, 4), "label": i} for i in range(8)]
        cases: List[Tuple[Any, int]] = [
            (x, 8),
            ([x, y], 8),
            ({"x": {"one": x, "two": [x, y]}, "y": y}, 8),
            (({"ids": x, "text": ["a"] * 8}, y), 8),
            (pair((x, x), {"y": y}), 8),
            (([x, x, x], [y, y, y]), 8),
            (collections.UserDict(x=x, y=y), 8),
            ([x, 0.5], 8),
            ({"names": ["a", "b"], "x": x}, 8),
            ((images, boxes), 8),
            ((tuple(torch.ones(3, 5, 5) for _ in images), tuple(range(8))), 8),
            ({"x": torch.tensor(1.0)}, 0),
            (["a", "b"], 0),
            ([], 0),
        ]

        def loop(opt: pl.Optimizer, model: torch.nn.Module, given: Any) -> None:
            for _ in opt.batches([given]):
                opt.zero_grad()
                opt.step(self.backward(opt, model, x, y))

        for given, expected in cases:
            told = self.told("sync", lambda o, m: loop(o, m, given))
            self.assertEqual(told, [expected], given)


if __name__ == "__main__":
    unittest.main()
