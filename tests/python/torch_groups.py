"""Process groups that are one worker each: two groups of two ranks train what one process trains,
and with NCCL on a GPU, two groups of one rank, or of two where there are two GPUs."""

import os
import shutil
import subprocess
import tempfile
import unittest
from typing import Any, List

import torch

from forks import Program
from workers import free_port

SCRIPT = """
import os, sys, torch, torch.distributed as dist, paceline, paceline.torch as pl
from paceline import _roles
torch.set_num_threads(1)
out, method, what, backend = sys.argv[1:]
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
each = n // 2  # ranks of a group
if what == "far":  # the second group is on another machine
    _roles.elsewhere = lambda address: rank >= each
place = torch.device("cuda", rank % each) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(place)
dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=n)
groups = [dist.new_group(list(range(g, g + each)), backend=backend) for g in (0, each)]
group = groups[rank // each]
torch.manual_seed(rank)  # the weights of rank 0 count
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
model.to(place)
ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0 if method == "local-sgd:u=3" else 0.9)
try:
    if what == "fails":
        sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    opt = pl.Optimizer(sgd, model, method, group=group, updates=12,
                       **(dict(threads=-7) if what == "fails" and rank < each else {}))
except paceline.Error as e:
    torch.save(str(e), f"{out}.{rank}")
    os._exit(0)
assert (opt.rank, opt.world_size) == (rank // each, 2), (opt.rank, opt.world_size)
assert opt.role.elsewhere == (what == "far" and rank >= each), opt.role
seen, told, step = [], [], 0
push = opt._session.push
opt._session.push = lambda samples, *more: told.append(samples) or push(samples, *more)
while not opt.ended:
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * step + rank)).to(place)
    opt.zero_grad()
    with opt.task():
        loss = torch.nn.functional.cross_entropy(ddp(x), (x[:, 0] > 0).long())
        loss.backward()
        opt.step(loss, samples=8)
    step += 1
    seen.append(torch.cat([p.detach().reshape(-1).cpu().clone() for p in model.parameters()]))
opt.close()
torch.save((seen, opt.summary(), told), f"{out}.{rank}")
os._exit(0)  # the threads of DistributedDataParallel mind an ordinary exit
"""


def one_process(steps: int, u: int, each: int) -> List[torch.Tensor]:
    """The same without groups: `u` local steps of two models, which are then averaged."""
    torch.manual_seed(0)
    models = [
        torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    sgd = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.0 if u else 0.9) for m in models]
    seen = []
    for step in range(steps):
        for g, (model, opt) in enumerate(zip(models, sgd)):
            opt.zero_grad(set_to_none=True)
            for rank in range(each * g, each * (g + 1)):
                x = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * step + rank))
                loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
                (loss / each).backward()
        pairs = list(zip(models[0].parameters(), models[1].parameters()))
        if not u:
            for a, b in pairs:
                assert a.grad is not None and b.grad is not None
                a.grad = b.grad = (a.grad + b.grad) / 2
        for opt in sgd:
            opt.step()
        if u and step % u == u - 1:
            for a, b in pairs:
                a.data = b.data = (a.data + b.data) / 2
                b.data = a.data.clone()
        seen.append(torch.cat([p.detach().reshape(-1).clone() for p in models[0].parameters()]))
    return seen


class Groups(unittest.TestCase):
    def run_ranks(
        self, method: str, what: str = "", each: int = 2, backend: str = "gloo"
    ) -> List[Any]:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        out = os.path.join(folder, "out")
        processes, n = [], str(2 * each)
        port = free_port()
        for rank in range(2 * each):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=n, LOCAL_WORLD_SIZE=n)
            env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TMPDIR=folder)
            if what == "far":
                env.update(LOCAL_WORLD_SIZE=str(each), PACELINE_PORT=str(port))
                env.update(PACELINE_KEYS=self.keys(folder), TMPDIR=f"{folder}/{rank // each}")
                os.makedirs(env["TMPDIR"], exist_ok=True)  # machines have their own
            command = [SCRIPT, out, method, what, backend]
            processes.append(Program(command, env=env, stderr=subprocess.PIPE))
        said = [p.communicate(timeout=300)[1].decode() for p in processes]
        for p, text in zip(processes, said):
            self.assertEqual(p.returncode, 0, text)
        return [torch.load(f"{out}.{rank}") for rank in range(2 * each)]

    def keys(self, folder: str) -> str:
        """A folder of certificates, which is made once."""
        path = os.path.join(folder, "keys")
        if os.path.isdir(path):
            return path
        made = subprocess.run(["paceline", "keys", "--out", path], stderr=subprocess.PIPE)
        if b"this build cannot" in made.stderr:
            self.skipTest("this build has no GnuTLS")
        self.assertEqual(made.returncode, 0, made.stderr)
        return path

    def check(
        self, method: str, u: int, each: int = 2, backend: str = "gloo", what: str = ""
    ) -> None:
        found = self.run_ranks(method, what, each, backend)
        expected = one_process(12 * max(1, u), u, each)
        tolerance = 1e-6 if backend == "gloo" else 1e-5  # sums on a GPU have another order
        for rank, (seen, _, told) in enumerate(found):
            self.assertGreaterEqual(len(seen), len(expected) if rank < each else len(expected) - 1)
            for step, (a, b) in enumerate(zip(seen, expected)):
                averaged = not u or step % u == u - 1
                last = step == len(expected) - 1  # which the second group may not hear of
                if rank < each or (averaged and not last):
                    self.assertLess(float((a - b).abs().max()), tolerance, (rank, step))
            self.assertEqual(set(told), {8 * each * max(1, u)} if rank % each == 0 else set())
        for i, j in ((0, each - 1), (each, 2 * each - 1)):
            self.assertEqual(found[i][1]["steps"], found[j][1]["steps"])
            for x, y in zip(found[i][0], found[j][0]):
                self.assertTrue(torch.equal(x, y))
        run = found[0][1]["run"]
        self.assertEqual((run["updates"], run["tasks"]["applied"]), (12, 24))

    def test_gradients(self) -> None:
        self.check("sync", 0)

    def test_local_steps(self) -> None:
        self.check("local-sgd:u=3", 3)

    def test_two_machines(self) -> None:
        """The first rank of the second group joins over HTTPS, for all of its group."""
        self.check("sync", 0, what="far")
        self.check("local-sgd:u=3", 3, what="far")

    @unittest.skipUnless(torch.cuda.is_available() and torch.distributed.is_nccl_available(),
                         "there is no GPU, or no NCCL")  # fmt: skip
    def test_nccl(self) -> None:
        """NCCL refuses two ranks of a communicator on one GPU."""
        each = min(2, torch.cuda.device_count())
        self.check("sync", 0, each, "nccl")
        self.check("local-sgd:u=3", 3, each, "nccl")

    def test_cancelled(self) -> None:
        """All ranks of a group drop the same steps."""
        found = self.run_ranks("ksync:k=1")
        self.assertEqual(found[0][1]["run"]["updates"], 12)
        for a, b in ((0, 1), (2, 3)):
            one, other = found[a][1], found[b][1]
            self.assertEqual(one["steps"], other["steps"])
            self.assertEqual(one["abandoned"], other["abandoned"])

    def test_failure(self) -> None:
        """If the first rank of a group cannot begin, all hear of it."""
        said = self.run_ranks("sync", "fails")
        self.assertIn("threads", said[0])
        for rank in (1, 3):
            self.assertIn("first rank", said[rank])


if __name__ == "__main__":
    unittest.main()
