"""Workers that reach the server over HTTPS compute what those of one machine do."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from workers import free_port

PACELINE = "paceline"  # the path has it
SCRIPT = """
import sys, torch, paceline.torch as pl
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model,
                   method=sys.argv[1], updates=30)
g = torch.Generator().manual_seed(17 + opt.rank)
while not opt.ended:
    x = torch.randn(8, 5, generator=g)
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step(loss)
opt.close()
if opt.rank == 0:
    print(" ".join(f"{v:.9g}" for p in model.state_dict().values() for v in p.flatten().tolist()))
"""


class Network(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.keys = os.path.join(self.folder, "keys")
        made = subprocess.run(
            [PACELINE, "keys", "--out", self.keys], stderr=subprocess.PIPE, check=False
        )
        if b"this build cannot" in made.stderr:
            self.skipTest("this build has no GnuTLS")
        self.assertEqual(made.returncode, 0, made.stderr)

    def run_two(self, method: str, second: str, listen: str, keys: str) -> str:
        """What rank 0 of two prints."""
        path = os.path.join(self.folder, "run.socket")
        at = f"rank=0,workers=2,socket={path}" + (f",listen={listen}" if listen else "")
        processes = []
        for role in (at, second or f"rank=1,workers=2,socket={path}"):
            env = dict(os.environ, PACELINE=role, PACELINE_KEYS=keys)
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", SCRIPT, method],
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        out = [p.communicate(timeout=600) for p in processes]
        for p, (_, err) in zip(processes, out):
            self.assertEqual(p.returncode, 0, err.decode())
        return out[0][0].decode()

    def check_same(self, method: str) -> None:
        port = free_port()
        here = self.run_two(method, "", "", "")
        far = self.run_two(method, f"https://127.0.0.1:{port}", f"127.0.0.1:{port}", self.keys)
        self.assertGreater(len(here.split()), 30)
        self.assertEqual(here, far)

    def test_gradients(self) -> None:
        self.check_same("sync")

    def test_local_steps(self) -> None:
        self.check_same("local-sgd")


if __name__ == "__main__":
    unittest.main()
