"""Buffers of a model: averaged if they are real numbers, exact if they are whole ones or masks."""

import tempfile
import unittest
import unittest.mock
from typing import Any, Callable, Dict, Optional

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from workers import backward, net, roles, together

SGD = torch.optim.SGD
fork_servers()


class Kept(torch.nn.Module):
    """A model with a buffer of its own."""

    def __init__(self, value: torch.Tensor, seed: int = 0) -> None:
        super().__init__()
        self.net = net(seed)
        self.register_buffer("kept", value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


class Buffers(unittest.TestCase):
    def steps(
        self,
        model: Callable[[pl.Role], Any],
        method: str = "sync",
        workers: int = 2,
        n: int = 4,
        each: Optional[Callable[[Any, pl.Role], Any]] = None,
        **options: Any,
    ) -> Any:
        def worker(role: pl.Role) -> Any:
            m = model(role)
            opt = pl.Optimizer(
                SGD(m.parameters(), lr=0.01), m, method, role=role, updates=n, **options
            )
            step = 0
            while not opt.ended:
                loss = backward(opt, m, step, role.rank)
                if each:
                    each(m, role)
                opt.step(loss)
                step += 1
            opt.close()
            return m.kept

        return together(workers, worker)

    def test_replaced(self) -> None:
        """A buffer that the module binds to a new tensor is averaged like any other."""

        def each(model: Any, role: pl.Role) -> None:
            model.kept = model.kept + 2.0 * (role.rank + 1)

        found = self.steps(lambda role: Kept(torch.zeros(2)), each=each)
        self.assertEqual(found[0].tolist(), [12.0, 12.0])  # 3 per update

        def worker(role: pl.Role) -> None:
            m = Kept(torch.zeros(2))
            opt = pl.Optimizer(SGD(m.parameters(), lr=0.01), m, "sync", role=role)
            m.kept = torch.zeros(3)
            with self.assertRaisesRegex(
                paceline.UsageError, "'kept' has been removed, or replaced"
            ):
                opt.step(backward(opt, m))
            m.kept = torch.zeros(2)
            opt.close()

        together(1, worker)

    WHOLES = (
        torch.tensor([123456789, 2**40 + 1, 16777217, -(2**50) - 1, 2**63 - 1, -(2**63)]),
        torch.tensor([2**31 - 1, -(2**31), 5, -1], dtype=torch.int32),
        torch.tensor([32767, -32768, 255, -256], dtype=torch.int16),
        torch.tensor([-128, 127, -1], dtype=torch.int8),
        torch.tensor([255, 0, 128], dtype=torch.uint8),
        torch.tensor([True, False, True]),
    )

    def test_whole_numbers(self) -> None:
        for method in ("sync", "gossip-pull", "local-sgd:u=2"):
            for values in self.WHOLES:
                for kept in self.steps(lambda role: Kept(values.clone()), method):
                    self.assertTrue(torch.equal(kept, values), (method, kept, values))

    def test_whole_numbers_of_rank_0(self) -> None:
        """All workers get those of rank 0, exactly."""
        found = self.steps(lambda role: Kept(torch.tensor([2**30 + 1 + 1000 * role.rank])))
        self.assertEqual([kept.tolist() for kept in found], [[2**30 + 1]] * 2)

    def test_whole_numbers_in_checkpoints(self) -> None:
        """A run that is resumed by a program that does not know them has them exactly."""

        def each(model: Any, role: pl.Role) -> None:
            model.kept += 1

        for values in self.WHOLES[:2]:
            with tempfile.TemporaryDirectory() as folder:
                saved: Dict[str, Any] = dict(checkpoint=folder, resume="auto", workers=1)
                self.steps(lambda role: Kept(values - 4), n=4, each=each, **saved)
                again = self.steps(lambda role: Kept(torch.zeros_like(values)), n=5, **saved)[0]
            self.assertTrue(torch.equal(again, values), (again, values))

    def test_whole_numbers_are_those_of_rank_0(self) -> None:
        """A pointer or a count is not averaged."""

        def each(model: Any, role: pl.Role) -> None:
            model.kept += 1 + 4 * role.rank

        found = self.steps(lambda role: Kept(torch.tensor([10 + role.rank])), each=each)
        self.assertEqual(found[0].tolist(), [14])

    def test_whole_numbers_without_rank_0(self) -> None:
        """An update without a result of rank 0 leaves them: rank 1 may have begun with older ones."""

        def each(model: Any, role: pl.Role) -> None:
            model.kept += 1000 if role.rank else 1

        for method in ("async", "ssp", "easgd:u=1", "kbatchasync:k=2"):
            (found, _) = self.steps(lambda role: Kept(torch.tensor([0])), method, n=30, each=each)
            self.assertLessEqual(found.tolist(), [30], method)

    def test_buffer_that_is_not_finite(self) -> None:
        """What ends the run names it."""

        def each(model: Any, role: pl.Role) -> None:
            model.kept[1] = float("nan")

        for method in ("sync", "local-sgd:u=2"):
            with self.assertWarnsRegex(RuntimeWarning, "buffer 'kept' has values that are not f"):
                with self.assertRaisesRegex(paceline.RunError, "diverged: .*buffer 'kept'"):
                    self.steps(lambda role: Kept(torch.zeros(3)), method, workers=1, each=each)

    def test_not_saved(self) -> None:
        """A buffer that is not in the state_dict() stays what each rank made it."""

        def worker(role: pl.Role) -> Any:
            m: Any = net()
            m.register_buffer("own", torch.tensor([float(role.rank)]), persistent=False)
            opt = pl.Optimizer(SGD(m.parameters(), lr=0.01), m, "sync", role=role, updates=3)
            while not opt.ended:
                opt.step(backward(opt, m))
            opt.close()
            return m.own.tolist()

        self.assertEqual(together(2, worker), [[0.0], [1.0]])

    def test_masks(self) -> None:
        """A buffer with values that are not finite stays as it is, bit for bit."""
        for dtype in (torch.float32, torch.float16, torch.float64):
            mask = torch.full((3, 3), float("-inf"), dtype=dtype).triu(1)
            mask[1, 0] = 0.1
            for method in ("sync", "gossip-pull", "local-sgd:u=2"):
                for kept in self.steps(lambda role: Kept(mask.clone()), method):
                    self.assertTrue(torch.equal(kept, mask), (method, kept))
            with unittest.mock.patch("paceline.torch._vector._FLAT_ON", ("cpu",)):  # as on a GPU
                for kept in self.steps(lambda role: Kept(mask.clone())):
                    self.assertTrue(torch.equal(kept, mask), kept)

    def test_mask_in_a_checkpoint(self) -> None:
        mask = torch.full((3,), float("-inf"))
        with tempfile.TemporaryDirectory() as folder:
            saved: Dict[str, Any] = dict(checkpoint=folder, resume="auto", workers=1)
            for n in (2, 4):
                (kept,) = self.steps(lambda role: Kept(mask.clone()), n=n, **saved)
                self.assertTrue(torch.equal(kept, mask))

    def test_not_finite(self) -> None:
        model = net()
        torch.nn.init.constant_(model[0].bias, float("inf"))
        with self.assertRaisesRegex(paceline.UsageError, "'0.bias' has values that are not finite"):
            pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=roles(1)[0])

    def test_constant(self) -> None:
        """Rules for gradients leave buffers alone."""
        for method in ("sync", "centered-clipping", "krum", "byzantine-median"):
            for kept in self.steps(lambda role: Kept(torch.full((3,), 5.0)), method, workers=3):
                self.assertEqual(kept.tolist(), [5.0] * 3, method)


if __name__ == "__main__":
    unittest.main()
