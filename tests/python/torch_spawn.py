"""Ranks that a program starts itself."""

import os
import tempfile
import unittest
import unittest.mock
from typing import Any, List

import torch

import paceline
import paceline.torch as pl
from paceline._roles import base_folder
from workers import flat, net, to_the_end


def train(folder: str) -> None:
    model = net(seed=pl.rank())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pl.Optimizer(sgd, model, "sync", updates=5) as opt:
        to_the_end(opt)
    torch.save((opt.world_size, flat(model)), os.path.join(folder, f"rank{opt.rank}"))


def fail(on: int) -> None:
    if pl.rank() == on:
        raise ValueError("no such luck")


class Spawn(unittest.TestCase):
    def test_one_run(self) -> None:
        with tempfile.TemporaryDirectory() as mine:  # other runs of this user may have ranks, too
            with unittest.mock.patch.dict(os.environ, TMPDIR=mine):
                with unittest.mock.patch("tempfile.tempdir", mine):
                    self.check_one_run(mine)

    def check_one_run(self, mine: str) -> None:
        for how in ("spawn", "fork"):
            with tempfile.TemporaryDirectory() as folder:
                pl.spawn(train, 2, folder, start_method=how)
                ranks = [torch.load(os.path.join(folder, f"rank{r}")) for r in range(2)]
            self.assertEqual([size for size, _ in ranks], [2, 2])
            self.assertTrue(torch.equal(ranks[0][1], ranks[1][1]))
        self.assertEqual(os.path.dirname(base_folder()), mine)
        self.assertEqual([n for n in os.listdir(base_folder()) if n.startswith("spawn-")], [])

    def test_failed(self) -> None:
        with self.assertRaisesRegex(paceline.RunError, "rank 1 failed: (.|\n)*no such luck"):
            pl.spawn(fail, 2, 1)
        given: List[Any] = [0, 1.5, "2"]
        for workers in given:
            with self.assertRaisesRegex(paceline.UsageError, "workers is"):
                pl.spawn(fail, workers, 0)


if __name__ == "__main__":
    unittest.main()
