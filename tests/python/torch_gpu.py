"""Rules on a GPU against the same rules on the CPU. Skipped if there is no GPU."""

import os
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import torch

import paceline


class Bowl(torch.nn.Module):
    """A quadratic bowl around every sample: the gradient of one sample has the same bits on every
    device, so a difference between two runs comes from the rules."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, dim))
        self.register_buffer("slope", torch.linspace(0.1, 1.5, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.w - x) * self.slope


def bowl_loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (out * out).sum()


def samples(dim: int, n: int = 64) -> Tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    return torch.randn(n, dim, generator=g), torch.zeros(n)


class Rules(unittest.TestCase):
    DIM = 10007
    OPTIONS = dict(workers=6, batch=1, lr=0.02, updates=60, seed=2, eval_samples=4)

    def run_on(self, device: str, **options: Any) -> Tuple[torch.Tensor, str]:
        x, y = samples(self.DIM)
        model = Bowl(self.DIM).to(device)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            paceline.simulate(
                model=model, loss=bowl_loss, data=(x.to(device), y.to(device)), events=path,
                **dict(self.OPTIONS, **options)
            )  # fmt: skip
            with open(path) as f:
                return model.w.detach().cpu(), f.read()

    def test_each_rule(self) -> None:
        cases: List[Dict[str, Any]] = [
            dict(method=m) for m in ("sync", "gap-aware", "dana", "dc-asgd", "kasync:k=3")
        ]
        for optim in [i.name for i in paceline.catalog("optim")]:
            for correct in ("none", "gap", "dc"):
                cases.append(dict(policy="kasync:k=1", optim=optim, correct=correct))
        cases.append(dict(policy="kasync:k=1", optim="adam", correct="gap", weight_decay=0.01))
        cases.append(dict(policy="kasync:k=1", optim="dana:form=slim"))
        cases.append(dict(policy="kasync:k=1", optim="dana:form=multi", correct="gap"))
        cases.append(dict(policy="kasync:k=1", correct="dc:form=a,lambda=2"))
        cases.append(dict(method="sync", workers=40, correct="gap"))
        cases.append(dict(method="sync", workers=20, reduce="mean:by=samples", weight_decay=0.01))
        n_equal = 0
        for case in cases:
            try:
                cpu, log = self.run_on("cpu", **case)
            except paceline.UsageError as e:
                print("no such combination:", case, e)
                continue
            gpu, log2 = self.run_on("cuda", **case)
            self.assertEqual(log, log2)
            far = ((cpu - gpu).abs() / (cpu.abs() + 1e-3)).max().item()
            self.assertLess(far, 2e-6, case)
            n_equal += torch.equal(cpu, gpu)
        print(f"{n_equal} of {len(cases)} cases have the same bits on both")

    def test_the_host_has_the_rest(self) -> None:
        """A model on the GPU with vectors on the host: any method."""
        for options in (dict(method="krum"), dict(method="easgd"), dict(method="gosgd")):
            with self.assertRaisesRegex(paceline.UsageError, "memory of this process"):
                self.run_on("cuda", **options)
            cpu, log = self.run_on("cpu", **options)
            gpu, log2 = self.run_on("cuda", vectors="host", **options)
            self.assertEqual(log, log2)
            self.assertLess(((cpu - gpu).abs() / (cpu.abs() + 1e-3)).max().item(), 2e-6)

    def test_training(self) -> None:
        """A network that learns, on the GPU alone."""
        g = torch.Generator().manual_seed(0)
        x = torch.randn(2000, 16, generator=g).cuda()
        y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU()]
        net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 4)).cuda()
        run = paceline.simulate(
            model=net, loss=torch.nn.functional.cross_entropy, data=(x, y), test=(x, y),
            method="gap-aware", optim="momentum", workers=32, batch=32, lr=0.02, updates=600,
        )  # fmt: skip
        self.assertGreater(run["test_accuracy"], 0.9)
        self.assertTrue(next(net.parameters()).is_cuda)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: there is no CUDA device")
        sys.exit(77)
    unittest.main()
