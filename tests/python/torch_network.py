"""Workers that reach the server over HTTPS compute what those of one machine do."""

import contextlib
import glob
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from typing import Any, Dict, List, Tuple

import paceline
from forks import Program
from paceline import _keys, _roles
from workers import free_port

PACELINE = "paceline"  # the path has it
SCRIPT = """
import sys, torch, paceline.torch as pl
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
groups = [{"params": model[0].parameters(), "lr": 0.02},
          {"params": model[1:].parameters(), "weight_decay": 0.01}]
opt = pl.Optimizer(torch.optim.SGD(groups, lr=0.05, momentum=0.9), model,
                   method=sys.argv[1], updates=30)
g = torch.Generator().manual_seed(17 + opt.rank)
while not opt.ended:
    x = torch.randn(8, 5, generator=g)
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step(loss)
opt.close()
print(" ".join(f"{v:.9g}" for p in model.state_dict().values() for v in p.flatten().tolist()))
"""


def free_ports(n: int = 2) -> Any:
    """The first of n free ports."""
    while True:
        port = free_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            for more in range(1, n):
                held.enter_context(socket.socket()).bind(("", port + more))
            return port


# Two runs side by side, twice; rank 1 leaves each before rank 0, and is in the constructor of the
# next pair meanwhile. Every run begins with the weights of its rank 0.
SEVERAL = """
import os, sys, time, torch, paceline.torch as pl
for first in (0, 2):
    pair = []
    for run in (first, first + 1):
        torch.manual_seed(100 * int(sys.argv[2]) + run)
        model = torch.nn.Linear(5, 2)
        opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.0), model, method="async")
        torch.manual_seed(run)
        expected = torch.nn.Linear(5, 2)
        assert torch.equal(model.weight, expected.weight), f"run {run} is another one"
        pair.append(opt)
    for opt in pair:
        opt.zero_grad()
        loss = opt.model(torch.ones(1, 5)).sum()
        loss.backward()
        opt.step(loss)
    left = os.path.join(os.environ["PWD"], f"left-{first}")
    while opt.rank == 0 and not os.path.exists(left):
        time.sleep(0.01)
    time.sleep(0.5 * (opt.rank == 0))
    for opt in pair:
        opt.close()
    if opt.rank == 1:
        open(left, "w").close()
print(" ".join(["done"] * 40))
"""

# hand-set variables of a launcher say that the two processes are on two machines
FAR = """
import sys
from paceline import _roles
_roles.elsewhere = lambda address: _roles.find.rank == 1
_roles.find.rank = int(sys.argv[2])
"""


class Handed(unittest.TestCase):
    """Without PACELINE_KEYS, rank 0 makes keys and hands them to the other machine."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, variables: Dict[str, str], rank: str, script: str = SCRIPT) -> Any:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_KEYS")}
        env.update(variables, PWD=self.folder)
        if "SLURM_STEP_NODELIST" not in variables:
            env["MASTER_ADDR"] = "127.0.0.1"
        env["TMPDIR"] = os.path.join(self.folder, rank)  # as machines have their own
        os.mkdir(env["TMPDIR"])
        text = [FAR + script, "sync", rank]
        process = Program(text, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        return process

    def run_two(self, names: Tuple[str, ...], script: str = SCRIPT, **variables: str) -> None:
        variables["PACELINE_PORT"] = str(free_ports(6))
        variables.setdefault("MASTER_PORT", variables["PACELINE_PORT"])
        both = [self.start(dict(variables, **{names[0]: r}), r, script) for r in ("0", "1")]
        last = set()  # the weights at the end, which all ranks have
        for p in reversed(both):
            out, err = p.communicate(timeout=300)
            self.assertEqual(p.returncode, 0, err.decode())
            last.add(out)
        self.assertEqual(len(last), 1)
        self.assertGreater(len(out.split()), 30)
        left = [n for _, _, files in os.walk(self.folder) for n in files if n.endswith(".pem")]
        self.assertEqual(left, [])
        for rank in "01":
            shutil.rmtree(os.path.join(self.folder, rank))

    def test_own_store(self) -> None:
        self.run_two(("RANK",), WORLD_SIZE="2", LOCAL_WORLD_SIZE="1")

    def test_store_of_the_launcher(self) -> None:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", free_port(), None, True, wait_for_workers=False)
        self.run_two(
            ("RANK",),
            WORLD_SIZE="2",
            LOCAL_WORLD_SIZE="1",
            MASTER_PORT=str(store.port),
            TORCHELASTIC_USE_AGENT_STORE="True",
        )

    def test_keys_of_the_past(self) -> None:
        """The store of the launcher still has the keys of processes that it has started before, and
        it counts restarts per machine."""
        from torch.distributed import PrefixStore, TCPStore

        store = TCPStore("127.0.0.1", free_port(), None, True, wait_for_workers=False)
        variables = dict(
            WORLD_SIZE="2",
            LOCAL_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(store.port),
            TORCHELASTIC_USE_AGENT_STORE="True",
            PACELINE_PORT=str(free_ports(2)),
        )
        role = _roles.find(dict(variables, RANK="1"))
        assert isinstance(role.channel, _roles.Store)
        old = os.path.join(self.folder, "old")
        subprocess.run([PACELINE, "keys", "--out", old, "--host", "127.0.0.1"], check=True)
        PrefixStore(role.channel.prefix, store).set("keys", json.dumps(_keys._read(old)))
        far = self.start(dict(variables, RANK="1", TORCHELASTIC_RESTART_COUNT="1"), "1")
        until = time.monotonic() + 300
        while not glob.glob(os.path.join(self.folder, "1", "**", "worker-key.pem"), recursive=True):
            self.assertIsNone(far.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        first = self.start(dict(variables, RANK="0"), "0")
        for p in (first, far):
            err = p.communicate(timeout=300)[1]
            self.assertEqual(p.returncode, 0, err.decode())

    def test_port_in_use(self) -> None:
        """Of rank 0's own store."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            at = _roles.Store("127.0.0.1", s.getsockname()[1], True, "taken")
            role = _roles.Role(0, 2, os.path.join(self.folder, "s"), host="127.0.0.1", channel=at)
            with self.assertRaisesRegex(paceline.RunError, "cannot hand out keys .* MASTER_PORT"):
                _keys.folder(role)

    def test_several_runs(self) -> None:
        """The n-th run of a rank on another machine is the n-th run of rank 0."""
        self.run_two(("RANK",), SEVERAL, WORLD_SIZE="2", LOCAL_WORLD_SIZE="1")

    def test_folder(self) -> None:
        slurm = dict(SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="1(x2)", SLURM_JOB_ID="9")
        self.run_two(("SLURM_PROCID",), **slurm)
        self.run_two(("SLURM_PROCID",), **slurm, SLURM_STEP_NODELIST="localhost,n[3-4]")
        # what others can read is not trusted
        os.mkdir(os.path.join(self.folder, ".paceline-keys-9"))
        os.chmod(os.path.join(self.folder, ".paceline-keys-9"), 0o755)
        p = self.start(dict(slurm, SLURM_PROCID="1", PACELINE_PORT="1"), "1")
        self.assertIn("only this user can read", p.communicate(timeout=300)[1].decode())
        # what is no key is not removed
        keys = os.path.join(self.folder, ".paceline-keys-9")
        os.chmod(keys, 0o700)
        for name in ("ca.pem", "thesis.tex"):
            with open(os.path.join(keys, name), "w", encoding="ascii") as f:
                f.write("mine")
        p = self.start(dict(slurm, SLURM_PROCID="0", PACELINE_PORT=str(free_port())), "0")
        self.assertIn("are no keys of a job", p.communicate(timeout=300)[1].decode())
        self.assertEqual(sorted(os.listdir(keys)), ["ca.pem", "thesis.tex"])


class Network(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.keys = os.path.join(self.folder, "keys")
        self.begun: Dict[str, "subprocess.Popen[bytes]"] = {}
        made = subprocess.run(
            [PACELINE, "keys", "--out", self.keys], stderr=subprocess.PIPE, check=False
        )
        if b"this build cannot" in made.stderr:
            self.skipTest("this build has no GnuTLS")
        self.assertEqual(made.returncode, 0, made.stderr)

    def run_two(self, method: str, second: str, listen: str, keys: str) -> str:
        """The final weights, which both ranks print."""
        path = os.path.join(self.folder, "run.socket")
        at = f"rank=0,workers=2,socket={path}" + (f",listen={listen}" if listen else "")
        processes: List[Any] = []
        for role in (at, second or f"rank=1,workers=2,socket={path}"):
            env = dict(os.environ, PACELINE=role, PACELINE_KEYS=keys)
            pipe = subprocess.PIPE
            processes.append(Program([SCRIPT, method], env=env, stdout=pipe, stderr=pipe))
        out = [p.communicate(timeout=600) for p in processes]
        for p, (_, err) in zip(processes, out):
            self.assertEqual(p.returncode, 0, err.decode())
        self.assertEqual(out[0][0], out[1][0])
        return str(out[0][0].decode())

    def check_same(self, method: str) -> None:
        port = free_port()
        here = self.run_two(method, "", "", "")
        far = self.run_two(method, f"https://127.0.0.1:{port}", f"127.0.0.1:{port}", self.keys)
        self.assertGreater(len(here.split()), 30)
        self.assertEqual(here, far)

    def begin(
        self, name: str, command: List[str], start: Any = subprocess.Popen, **env: str
    ) -> "subprocess.Popen[bytes]":
        """A process whose output is in the file of that name; killed at the end."""
        process: "subprocess.Popen[bytes]"
        with open(os.path.join(self.folder, name), "wb") as f:
            process = start(command, env=dict(os.environ, **env), stdout=f, stderr=f)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.begun[name] = process
        return process

    def said(self, name: str) -> str:
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return f.read()

    def wait_for(self, name: str, text: str) -> None:
        for _ in range(6000):
            ended = self.begun[name].poll() is not None
            if text in self.said(name):
                return
            if ended:
                break
            time.sleep(0.1)
        self.fail(f"'{text}' did not come: {self.said(name)}")

    def serve(self, updates: int) -> List[str]:
        """The command that a script prints, for two workers."""
        init = os.path.join(self.folder, "init.safetensors")
        env = dict(os.environ, PACELINE="init=" + init)
        first = Program([SCRIPT, "sync"], env=env, stdout=subprocess.PIPE)
        printed = first.communicate()[0]
        self.assertEqual(first.returncode, 0)
        again = Program([SCRIPT, "sync"], env=env, stderr=subprocess.PIPE)
        self.assertIn(b"exists; remove it", again.communicate()[1])
        line = next(x for x in printed.decode().splitlines() if "paceline serve" in x)
        command = shlex.split(line)
        for name, value in (
            ("--updates", str(updates)),
            ("--workers", "2"),
            ("--min-workers", "2"),  # or one does it all before the other is there
            ("--listen", "127.0.0.1:0"),
            ("--keys", self.keys),
            ("--checkpoint", os.path.join(self.folder, "saved")),
        ):
            command[command.index(name) + 1] = value
        often = ["--checkpoint-every", "5", "--checkpoint-keep", "99"]
        return [*command, "--requests", "a-token", *often]

    def n_checkpoints(self) -> int:
        """Those that are complete."""
        saved = os.path.join(self.folder, "saved")
        names = os.listdir(saved) if os.path.isdir(saved) else []
        return sum(re.fullmatch(r"checkpoint-\d+\.safetensors", name) is not None for name in names)

    def kill_after_a_checkpoint(self, server: "subprocess.Popen[bytes]") -> None:
        before = self.n_checkpoints()
        while server.poll() is None and self.n_checkpoints() < before + 2:
            time.sleep(0.01)  # orders since then have told the workers of its standby
        server.kill()
        server.wait()

    def url(self, name: str) -> str:
        self.wait_for(name, "HTTPS on port ")
        return "https://127.0.0.1:" + self.said(name).split("on port ")[1].split()[0]

    def join(self, url: str) -> List["subprocess.Popen[bytes]"]:
        env = dict(PACELINE=url, PACELINE_KEYS=self.keys)
        return [
            self.begin(f"worker{i}", [SCRIPT, "sync"], Program, PACELINE_TOKEN=token, **env)
            for i, token in enumerate(("a-token", ""))
        ]

    def test_terminated(self) -> None:
        """SIGTERM at a worker: it leaves, and nobody waits for it."""
        self.begin("server", self.serve(10**6))
        workers = self.join(self.url("server"))
        self.wait_for("server", "worker 2 joined")
        self.wait_for("server", "loss")
        workers[1].terminate()
        self.assertEqual(workers[1].wait(600), 143, self.said("worker1"))
        self.wait_for("server", " left")
        self.assertNotIn("lost its connection", self.said("server"))

    def test_a_server_without_python_and_its_standby(self) -> None:
        """The command that a script prints serves it; the server is killed, and replaced."""
        first = self.begin("first", self.serve(300))
        url = self.url("first")
        standby = [PACELINE, "serve", "--standby", url, "--listen", "127.0.0.1:0"]
        second = self.begin("second", [*standby, "--keys", self.keys, "--requests", "a-token"])
        self.wait_for("second", "following")
        workers = self.join(url)
        self.wait_for("first", "worker 2 joined")
        self.wait_for("first", "a standby follows")
        self.kill_after_a_checkpoint(first)
        self.assertEqual(second.wait(600), 0, self.said("second"))
        for i, worker in enumerate(workers):
            self.assertEqual(worker.wait(600), 0, self.said(f"worker{i}"))
        self.assertIn("it takes over after update", self.said("second"))
        self.assertRegex(self.said("second"), r"updates +300\b")

    def test_a_server_that_is_started_again(self) -> None:
        """It is killed, and continues from its checkpoint; its workers return by themselves."""
        command = [*self.serve(300), "--resume", "auto"]
        first = self.begin("first", command)
        url = self.url("first")
        workers = self.join(url)
        self.wait_for("first", "worker 2 joined")
        self.kill_after_a_checkpoint(first)
        command[command.index("--listen") + 1] = url[len("https://") :]
        second = self.begin("second", command)
        self.assertEqual(second.wait(600), 0, self.said("second"))
        for i, worker in enumerate(workers):
            self.assertEqual(worker.wait(600), 0, self.said(f"worker{i}"))
        self.assertRegex(self.said("second"), r"updates +300\b")
        self.assertRegex(self.said("second"), "continues from update|resumed")

    def test_gradients(self) -> None:
        self.check_same("sync")

    def test_local_steps(self) -> None:
        self.check_same("local-sgd")


if __name__ == "__main__":
    unittest.main()
