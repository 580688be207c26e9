"""Ranks of an MPI job whose rank 0 is `paceline train` compute what workers of one machine do."""

import glob
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List

from forks import Program

PACELINE = "paceline"  # the path has it
MPIEXEC = os.environ.get("MPIEXEC", "mpirun")
# As root, on loopback, more ranks than cores: in tests alone.
LOCAL = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl": "self,vader,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}
# Two param groups, the statistics of BatchNorm, and a layer that every other result lacks.
SCRIPT = """
import sys, torch, paceline.torch as pl
torch.manual_seed(3)
torch.set_num_threads(1)
method, width, checkpoint = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.BatchNorm1d(width),
                            torch.nn.Linear(width, 1))
model.extra = torch.nn.Linear(5, 1)
groups = [{"params": model[:2].parameters()},
          {"params": [*model[2].parameters(), *model.extra.parameters()], "lr": 0.04 / width}]
opt = pl.Optimizer(torch.optim.SGD(groups, lr=0.08 / width, momentum=0.9), model, method=method,
                   updates=12, checkpoint=checkpoint, zero_copy="zero" in sys.argv)
g = torch.Generator().manual_seed(17 + opt.rank)
step = 0
while not opt.ended:
    if step == 3 and "fails" in sys.argv and opt.rank == 1:
        raise ValueError("this rank fails")
    x = torch.randn(8, 5, generator=g)
    opt.zero_grad()
    out = model[2](model[1](model[0](x)))
    if step % 2:
        out = out + model.extra(x)
    step += 1
    loss = (out - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step(loss)
opt.close()
with open(f"rank{opt.rank}", "w") as f:
    f.write(f"of {opt.world_size}: {model[0].weight.flatten().tolist()}")
"""
# A worker that asks for things, until one of them is the end of the run.
ASKS = """
import ctypes, sys
from paceline import _client
if len(sys.argv) > 3:  # something else initializes MPI
    mpi, got = ctypes.CDLL(sys.argv[3], ctypes.RTLD_GLOBAL), ctypes.c_int()
    mpi.MPI_Init_thread(None, None, int(sys.argv[4]), ctypes.byref(got))
seat = _client.Client("mpi:", token=sys.argv[1], dim=int(sys.argv[2]))
dim, n = seat.server["dim"], 0
while seat.pull(60):
    n += 1
    if seat.task.worker == 0 and n == 2:
        seat.set_lr(0.125)
        seat.checkpoint()
    if seat.task.worker == 0 and n == 5:
        assert seat.task.lr == 0.125, seat.task.lr
        seat.end()
    ctypes.memset(seat.task.out, 0, 4 * dim)
    seat.push(dim, 1, 0.5)
seat.close()
try:
    _client.Client("mpi:")
except Exception as e:
    with open(f"rank{seat.task.worker}", "w") as f:
        f.write(f"{n > 3} {e}")  # the end may come before the fifth task of the other rank
if len(sys.argv) > 3:
    mpi.MPI_Finalize()
"""


def mpi_library() -> str:
    """The name of the MPI library, for a program that initializes it."""
    module = os.path.join(os.environ["BUILD_DIR"], "libpaceline-mpi.so")
    needs = subprocess.run(["ldd", module], stdout=subprocess.PIPE, check=True).stdout.decode()
    return next(line.split()[0] for line in needs.splitlines() if "libmpi" in line)


def tensors(folder: str) -> Dict[str, bytes]:
    """Weights, buffers and moments of the last checkpoint, as they lie in the file."""
    names = [n for n in os.listdir(folder) if n.endswith(".safetensors")]
    with open(os.path.join(folder, max(names)), "rb") as f:
        head: Dict[str, Any] = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    wanted = (k for k in head if not k.startswith(("run.", "__")) or k.startswith("run.optim"))
    return {k: data[slice(*head[k]["data_offsets"])] for k in wanted}


@unittest.skipUnless(os.environ.get("MPIEXEC", "mpirun") and shutil.which(MPIEXEC), "no MPI")
class Mpi(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.init = os.path.join(self.folder, "init.safetensors")

    def at(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def run_one(self, command: List[str], **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            env=dict(os.environ, **LOCAL, **env),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=600,
            universal_newlines=True,
            check=False,
        )

    def start(self, *arguments: str, **env: str) -> Any:
        """The script, outside of MPI jobs."""
        pipe = subprocess.PIPE
        return Program(
            [SCRIPT, *arguments],
            env=dict(os.environ, **env),
            cwd=self.folder,
            stdout=pipe,
            stderr=pipe,
            universal_newlines=True,
        )

    def served(self, method: str, width: int) -> List[str]:
        """The options of the server, as the script prints them."""
        script = self.start(method, str(width), "saved", PACELINE="init=" + self.init)
        printed, _ = script.communicate(timeout=600)
        line = next(x for x in printed.splitlines() if "mpirun -n 1 " in x)
        words = shlex.split(line)
        return words[words.index("train") + 1 : words.index(":")]

    def job(self, server: List[str], worker: List[str], **env: str) -> Any:
        """A server and two workers. Each has a file for its errors: mpirun would mix lines."""
        apart = ["sh", "-c", 'exec "$@" 2>"errors.$$"', "sh"]
        first = [MPIEXEC, "-n", "1", *apart, PACELINE, "train", *server]
        done = self.run_one([*first, ":", "-n", "2", *apart, *worker], **env)
        for name in glob.glob(self.at("errors.*")):
            with open(name, encoding="utf-8") as f:
                done.stderr += f.read()
            os.remove(name)
        return done

    def wrote(self) -> List[str]:
        """What the ranks have written at their end."""
        out = []
        for rank in range(2):
            with open(self.at(f"rank{rank}"), encoding="ascii") as f:
                out.append(f.read())
        return out

    def check_same(self, method: str, width: int, **env: str) -> None:
        script = [sys.executable, "-c", SCRIPT, method, str(width)]
        role = f"workers=2,socket={self.at('run.socket')},rank="
        here = [self.start(*script[3:], self.at("here"), PACELINE=role + rank) for rank in "01"]
        for rank, process in enumerate(here):
            _, errors = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, errors)
            os.remove(self.at(f"rank{rank}"))
        there = self.job(self.served(method, width), [*script, "unused"], **env)
        self.assertEqual(there.returncode, 0, there.stderr)
        self.assertRegex(there.stdout, r"updates +12\b")
        self.assertIn("2 (MPI ranks)", there.stderr)
        expected = tensors(self.at("here"))
        final = list(struct.unpack(f"{5 * width}f", expected["0.weight"]))
        self.assertEqual(self.wrote(), [f"of 2: {final}"] * 2)
        self.assertGreater(len(expected), 8)
        self.assertEqual(tensors(self.at("saved")), expected)
        self.assertFalse(os.path.exists(self.at("unused")))

    def test_gradients(self) -> None:
        self.check_same("sync", 4)

    def test_gradients_that_are_sent(self) -> None:
        """As between machines, in chunks."""
        self.check_same("sync", 20000, PACELINE_MPI_SHARED="no")

    def test_local_steps(self) -> None:
        self.check_same("local-sgd", 4, PACELINE="mpi")

    def test_models_of_their_own(self) -> None:
        """A method without a server: workers read the models of others."""
        server = [*self.served("sgp", 4), "--json"]
        done = self.job(server, [sys.executable, "-c", SCRIPT, "sgp", "4", "unused"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"updates":12,', done.stdout)
        mean = list(struct.unpack("20f", tensors(self.at("saved"))["0.weight"]))
        self.assertEqual(self.wrote(), [f"of 2: {mean}"] * 2)

    def test_requests(self) -> None:
        """A rate, a checkpoint and the end of the run, of those that may ask for them."""
        server = self.served("sync", 4)
        server[server.index("--updates") + 1] = "1000000"
        asks = [sys.executable, "-c", ASKS, "secret", "0", mpi_library(), "3"]
        done = self.job([*server, "--requests", "secret"], asks)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.wrote(), ["True over MPI a process has one seat, in one run"] * 2)
        names = [n for n in os.listdir(self.at("saved")) if n.endswith(".safetensors")]
        self.assertEqual(len(names), 2, names)  # one was asked for

    def test_a_rank_that_fails_leaves(self) -> None:
        """The run goes on without it, and the job fails when it ends."""
        script = [sys.executable, "-c", SCRIPT, "sync", "4", "unused", "fails"]
        done = self.job(self.served("sync", 4), script)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ValueError: this rank fails", done.stderr)
        self.assertIn("worker 2 left; the run continues with 1 of 2", done.stderr)
        self.assertRegex(done.stdout, r"updates +12\b")

    def test_refusals(self) -> None:
        server, asks = self.served("sync", 4), [sys.executable, "-c", ASKS, "any", "0"]
        other = [sys.executable, "-c", ASKS, "any", "7"]
        for words, first, worker in (
            ("the model of the run has 59 parameters", [*server, "--requests", "any"], other),
            ("refuses: this program has a token", [*server, "--requests", "secret"], asks),
            ("start it as rank 0 alone", server, [PACELINE, "train"]),
            ("has one server", [*server, "--servers", "2"], asks),
            ("use it with --listen", [*server, "--wire", "bf16"], asks),
            ("start rank 0 with --model external", ["--data", "blobs"], asks),
            ("was initialized without thread support", server, [*asks, mpi_library(), "0"]),
            ("was initialized for one thread", server, [*asks, mpi_library(), "1"]),
        ):
            done = self.job(first, worker)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(words, done.stderr)
        done = self.run_one([MPIEXEC, "-n", "2", *asks])
        self.assertIn("rank 0 of an MPI job is the server", done.stderr)
        # what rank 0 of a job of two programs finds in its environment
        tell = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
        done = self.run_one([MPIEXEC, "-n", "1", *tell, ":", "-n", "1", "true"])
        self.assertEqual(done.returncode, 0, done.stderr)
        cases: List[Any] = [
            (json.loads(done.stdout), [], "rank 0 of an MPI job of several programs is the server"),
            ({"PACELINE": "mpi"}, ["zero"], "which has neither group= nor zero_copy"),
        ]
        for env, more, words in cases:
            script = self.start("sync", "4", "unused", *more, **env)
            _, errors = script.communicate(timeout=600)
            self.assertNotEqual(script.returncode, 0, words)
            self.assertIn(words, errors)


if __name__ == "__main__":
    unittest.main()
