"""All ranks name the method and the options of rank 0, or hear that theirs are others."""

import unittest
from typing import Any, Callable, Dict, List, Optional

import torch

import paceline
import paceline.torch as pl
from ksync import KSync
from workers import backward, net, roles

SGD = torch.optim.SGD


def make(
    role: pl.Role,
    method: Optional[str] = None,
    kind: Callable[..., torch.optim.Optimizer] = SGD,
    **options: Any,
) -> pl.Optimizer:
    model = net()
    return pl.Optimizer(kind(model.parameters(), lr=0.1), model, method, role=role, **options)


class Agreement(unittest.TestCase):
    def second(self, first: Any, other: Any, far: bool = False) -> None:
        """Rank 1 makes its optimizer with `other`, rank 0 with `first`; rank 0 goes on."""
        role = roles(2, far)
        opt = make(role[0], min_workers=1, **first)
        try:
            made = make(role[1], **other)
            made._session.abort()
        finally:
            opt.step(backward(opt, opt.model))
            opt._session.abort()

    def test_another(self) -> None:
        cases: List[Any] = [
            ({}, {"method": "async"}, "given method=async, but rank 0 has method=sync,"),
            ({}, {"method": "sync:k=1"}, "method=sync:k=1, but rank 0 has method=sync,"),
            ({}, {"method": None}, "given method=kasync, but rank 0 has method=sync,"),
            ({}, {"updates": 30}, "given updates=30, but rank 0 has no updates,"),
            ({"updates": 40}, {"updates": 30}, "updates=30, but rank 0 has updates=40,"),
            ({}, {"max_norm": 1}, "given max_norm=1, but rank 0 has no max_norm,"),
            ({}, {"kind": torch.optim.Adam}, "optim=adam:.*, but rank 0 has optim=sgd,"),
        ]
        for first, other, expected in cases:
            with self.subTest(other):
                with self.assertRaisesRegex(paceline.UsageError, expected):
                    self.second({"method": "sync", **first}, {"method": "sync", **other})

    def test_another_policy(self) -> None:
        with self.assertRaisesRegex(paceline.UsageError, "policy=ksync:k=1, but .* policy=KSync,"):
            self.second({"policy": KSync(k=1)}, {"policy": "ksync:k=1"})

    def test_the_same(self) -> None:
        """Also if it is written in another way, or for rank 0 alone, or a rate."""
        cases: List[Dict[str, Any]] = [{"time": 60.0}, {"updates": None}, {"log": "other"}]
        for other in cases:
            self.second({"method": "sync", "time": 60, "updates": 9}, {"method": "sync", **other})
        self.second({}, {"method": "kasync"})
        self.second({"policy": KSync(k=1)}, {"policy": KSync})

    def test_elsewhere(self) -> None:
        """A worker elsewhere may leave the method to the server."""
        expected = "given method=async, but the server has method=sync,"
        with self.assertRaisesRegex(paceline.UsageError, expected):
            self.second({"method": "sync"}, {"method": "async"}, far=True)
        for method in ("sync", None):
            self.second({"method": "sync"}, {"method": method}, far=True)


if __name__ == "__main__":
    unittest.main()
