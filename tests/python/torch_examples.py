"""The examples, for real and simulated, and every command of the pages about them."""

import difflib
import importlib.util
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from typing import Any, List, Sequence

import torch

import paceline.torch as pl
from forks import Program
from workers import CROSS_ENTROPY, batch, flat, free_port, net

SOURCE = os.environ["SOURCE_DIR"]
PYTHON = os.environ["PYTHON"]
SMALL = {
    "resnet20": ["--samples", "200", "--batch", "8", "--width", "4", "--depth", "1"],
    "chars": [
        "--samples",
        "200",
        "--batch",
        "8",
        "--width",
        "16",
        "--length",
        "16",
        "--layers",
        "1",
    ],
}


LIGHTNING = importlib.util.find_spec("lightning") or importlib.util.find_spec("pytorch_lightning")
DATA = """
import torch
torch.manual_seed(0)
x = torch.randn(400, 6)
data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
net = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 3))
def loss_of(net):
    with torch.no_grad():
        out = net.cpu().eval()(x)
        return torch.nn.functional.cross_entropy(out, data.tensors[1]).item()
first = loss_of(net)
net.train()
def told(opt):
    print(f"{opt.summary()['run']['updates']} updates")
    print(f"loss {first:.3f} {loss_of(net):.3f}")
"""
TRAIN_LIGHTNING = (
    DATA
    + """
from paceline_lightning import L, Paceline, PacelineModule, shard
class Mine(PacelineModule):
    def __init__(self, **options):
        super().__init__(**options)
        self.net = net
    def make_optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.5)
    def training_step(self, batch, i):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.step(loss)
        return loss
mine = Mine(method="sync", updates=30)
trainer = L.Trainer(
    accelerator="auto", devices=1, max_epochs=100, callbacks=[Paceline()], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, precision="bf16-mixed",
)
trainer.fit(mine, shard(data, batch_size=20))
if mine.opt.rank == 0:
    told(mine.opt)
"""
)
TRAIN_ACCELERATE = (
    DATA
    + """
from paceline_accelerate import Run
loader = torch.utils.data.DataLoader(data, batch_size=20)
sgd = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
run = Run(net, sgd, loader, mixed_precision="bf16", method="sync", updates=30)
for a, b in run.batches():
    run.step(torch.nn.functional.cross_entropy(run.model(a), b))
run.close()
if run.opt.rank == 0:
    told(run.opt)
"""
)


# In place of an interpreter: asks this process for a fork that runs the script, and waits for it.
PYTHON_OF_FORKS = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect({path!r})
    request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(s, [len(request).to_bytes(4, "little") + request], [0, 1, 2])
    sys.exit(int(s.recv(100)))
"""
RUN_SCRIPT = """
import os, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fork_for(asks: socket.socket) -> None:
    with asks:
        data, fds, _, _ = socket.recv_fds(asks, 1 << 20, 3)
        while len(data) < 4 + int.from_bytes(data[:4], "little"):
            data += asks.recv(1 << 20)
        script, env, cwd = json.loads(data[4:])
        program = Program(
            [RUN_SCRIPT, *script], env=env, cwd=cwd, stdin=fds[0], stdout=fds[1], stderr=fds[2]
        )
        for fd in fds:
            os.close(fd)
        status = program.wait()
        asks.send(str(status if status >= 0 else 128 - status).encode())


def run(folder: str, command: Sequence[str], limit: float = 1500) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(os.environ, TMPDIR=folder),  # ports of the pages may be in use by others
        shell=isinstance(command, str),
        timeout=limit,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        # the pages say python3
        self.python3 = os.path.join(self.folder, "python3")
        os.symlink(shutil.which(PYTHON) or PYTHON, self.python3)
        os.environ["PATH"] = self.folder + os.pathsep + os.environ["PATH"]

    def fork(self) -> None:
        """From now on, python3 is a fork of this process."""
        listens = socket.socket(socket.AF_UNIX)
        self.addCleanup(listens.close)
        path = os.path.join(self.folder, "forks")
        listens.bind(path)
        listens.listen()
        os.remove(self.python3)
        with open(self.python3, "w") as f:
            f.write(PYTHON_OF_FORKS.format(python=shutil.which(PYTHON), path=path))
        os.chmod(self.python3, 0o755)

        def serve() -> None:
            while True:
                try:
                    asks, _ = listens.accept()
                except OSError:  # the test has ended
                    return
                threading.Thread(target=fork_for, args=(asks,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

    def cifar10(self) -> str:
        """A folder with files like those of CIFAR-10, of 40 pictures each."""
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(b"".join(bytes([i % 10]) + os.urandom(3072) for i in range(40)))
        return self.folder

    def test_examples(self) -> None:
        # fashion.py is in a page
        for name, method in (("resnet20", "sync"), ("chars", "diloco:u=3")):
            program = [PYTHON, os.path.join(SOURCE, "examples", name + ".py"), *SMALL[name]]
            program += ["--method", method, "--updates", "4"]
            with self.subTest(name):
                real = run(self.folder, ["paceline", "launch", "-n", "2", "--", *program])
                self.assertRegex(real, r"\[0\] 4 updates, .* test loss \d+\.\d+")
                data = ["--data", self.cifar10()] if name == "resnet20" else []
                more = [*data, "--simulate", "--workers", "3"]
                simulated = Program(
                    [RUN_SCRIPT, *program[1:], *more],
                    cwd=self.folder,
                    stdout=subprocess.PIPE,
                    text=True,
                ).communicate(timeout=1500)[0]
                self.assertRegex(simulated, r"4 updates, .* virtual seconds, test loss \d+\.\d+")

    def page(self, name: str, only: str = "", replaced: Sequence[Any] = ()) -> List[Any]:
        """What the blocks of a page print that have this text."""
        with open(os.path.join(SOURCE, "docs", name)) as f:
            text = f.read()
        for old, new in replaced:
            text = text.replace(old, new)
        for block in re.findall(r"^```python\n# (\S+)\n(.*?)^```", text, re.S | re.M):
            with open(os.path.join(self.folder, block[0]), "w") as f:
                f.write(block[1])
        out = []
        for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
            lines = [line[2:] for line in block.splitlines() if line[:2] in ("$ ", "> ")]
            self.assertTrue(lines)
            if only not in block:
                continue
            out.append(run(self.folder, "set -e\n" + "\n".join(lines)))
        return out

    def test_from_ddp(self) -> None:
        self.fork()
        first, second, named, resumed = self.page("from-ddp.md")
        self.assertEqual(first.count("[0] updates 200"), 2, first)
        self.assertEqual(second.count("updates 200"), 1, second)
        self.assertIn("Run('critic', sync, rank 0 of 2, ended at version 20)", named)
        self.assertIn("[0] updates 20 rate 0.0905", resumed)

    def test_network(self) -> None:
        self.fork()
        port = str(free_port())
        keys = subprocess.run(["paceline", "keys", "--out", "keys"], cwd=self.folder, stderr=-1)
        if b"this build cannot" in keys.stderr:
            self.skipTest("this build has no GnuTLS")
        # the workers wait for the evaluator, or they do it all before
        await_line = "while ! grep -q 'evaluator . joined' log; do sleep 0.1; done"
        replaced = [
            ("7070", port),
            ("my-token &", "my-token 2>log &"),
            ("evaluate.py &", f"evaluate.py &\n$ {await_line}"),
        ]
        (out,) = self.page("network.md", "train.py", replaced)
        self.assertRegex(out, r"\n +updates +300\n")
        with open(os.path.join(self.folder, "log")) as f:
            self.assertRegex(out, r"\n +test loss +0\.\d+\n", f.read())
        # the options that the script has printed are those of the page
        with open(os.path.join(SOURCE, "docs", "network.md")) as f:
            page = " ".join(f.read().replace("\\\n>", "").split())
        printed = re.findall(r"  paceline serve (.*) --workers N", out)[0]
        self.assertTrue(f"$ paceline serve {printed} --workers" in page, printed)

    def test_which_method(self) -> None:
        for name in ("common.py", "fashion.py"):
            shutil.copy(os.path.join(SOURCE, "examples", name), self.folder)
        (out,) = self.page("which-method.md")
        self.assertIn("20 updates", out)

    def ddp_model(self, name: str) -> Any:
        """The final model of two ranks that are ended in the third epoch and go on after the second."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        with open(os.path.join(SOURCE, "examples", name + ".py")) as f:
            program = f.read()
        step = "            opt.step()\n"
        ended = "            if epoch == 2 and i == 7: os.kill(os.getpid(), 15)\n" + step
        self.assertEqual(program.count(step), 1)
        for text in program.replace(step, ended), program:
            # a new port each time: a server may outlive its ranks a little
            port = free_port()
            ranks = []
            for rank in "0", "1":
                env = dict(os.environ, RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
                env["MASTER_PORT"] = str(port)
                ranks.append(Program([text, "4"], cwd=folder, env=env))
            statuses = [r.wait() for r in ranks]
        self.assertEqual(statuses, [0, 0], name)
        return torch.load(os.path.join(folder, "model.pt"))

    def test_ddp_converted(self) -> None:
        """A script with BatchNorm, groups, a schedule, accumulation, evaluation and resume has the
        weights that it had with DDP. The statistics of BatchNorm are rank 0's there, a mean here.
        """
        theirs, mine = self.ddp_model("ddp"), self.ddp_model("ddp_converted")
        self.assertEqual(set(theirs), set(mine))
        for name in theirs:
            if "running" not in name:
                away = float((theirs[name].double() - mine[name].double()).abs().max())
                self.assertLess(away, 1e-6, name)
        lines = []
        for name in ("ddp", "ddp_converted"):
            with open(os.path.join(SOURCE, "examples", name + ".py")) as f:
                lines.append(f.read().split('"""', 2)[2].splitlines(True))
        changed = [
            d
            for d in difflib.unified_diff(lines[0], lines[1], n=0)
            if d[:2] not in ("--", "++", "@@")
        ]
        self.assertLessEqual(len(changed), 23, changed)
        with open(os.path.join(SOURCE, "docs", "from-ddp.md")) as f:
            self.assertIn("```diff\n" + "".join(changed) + "```\n", f.read())

    def adapter(self, name: str, **stands: Any) -> Any:
        """The names of an example, which finds stand-ins in place of the libraries it imports."""
        with unittest.mock.patch.dict(sys.modules, stands):
            return types.SimpleNamespace(
                **runpy.run_path(os.path.join(SOURCE, "examples", name + ".py"))
            )

    def launch(self, script: str) -> None:
        """Two ranks run a script that finds the adapters; the loss falls."""
        path = os.path.join(self.folder, "train.py")
        with open(path, "w") as f:
            f.write(script)
        for name in ("lightning", "accelerate"):
            adapter = f"paceline_{name}.py"
            shutil.copy(os.path.join(SOURCE, "examples", adapter), self.folder)
        out = run(self.folder, ["paceline", "launch", "-n", "2", "--", PYTHON, path])
        self.assertIn("[0] 30 updates", out)
        before, after = map(float, re.findall(r"loss (\S+) (\S+)", out)[0])
        self.assertLess(after, 0.7 * before)

    @unittest.skipUnless(LIGHTNING, "Lightning is not installed")
    def test_lightning_itself(self) -> None:
        self.launch(TRAIN_LIGHTNING)

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "Accelerate is not installed")
    def test_accelerate_itself(self) -> None:
        self.launch(TRAIN_ACCELERATE)

    def test_lightning(self) -> None:
        """On a stand-in that calls what Trainer.fit calls."""

        class Module(torch.nn.Module):
            def manual_backward(self, loss: torch.Tensor) -> None:
                loss.backward()

        stand = types.SimpleNamespace(LightningModule=Module, Callback=object)
        example = self.adapter("paceline_lightning", lightning=stand)
        base: Any = example.PacelineModule

        class Mine(base):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                self.net = net()

            def make_optimizer(self) -> torch.optim.SGD:
                return torch.optim.SGD(self.parameters(), lr=0.1)

            def training_step(self, both: Any, i: int) -> torch.Tensor:
                loss = CROSS_ENTROPY(self.net(both[0]), both[1])
                self.step(loss)
                return loss

        x, y = batch(0, n=40)
        data = torch.utils.data.TensorDataset(x, y)
        mine, callback = Mine(method="async", updates=12), example.Paceline()
        plugin = types.SimpleNamespace(scaler=None)
        trainer = types.SimpleNamespace(precision_plugin=plugin, should_stop=False)
        mine.trainer = trainer
        start = flat(mine.net)
        mine.on_train_start()
        while not trainer.should_stop:
            for i, both in enumerate(example.shard(data, batch_size=8)):
                if callback.on_train_batch_start(trainer, mine, both, i) == -1:
                    break
                mine.training_step(both, i)
                callback.on_train_batch_end(trainer, mine, None, both, i)
        callback.on_fit_end(trainer, mine)
        self.assertEqual(mine.opt.summary()["run"]["updates"], 12)
        self.assertGreater(float((flat(mine.net) - start).abs().max()), 1e-3)
        seen = set()
        for rank in (0, 1):
            role = pl.Role(rank, 2, "/nowhere")
            with unittest.mock.patch("paceline.torch._current._role", lambda role=role: role):
                loader = example.shard(torch.arange(40), batch_size=8)
                seen |= {int(v) for part in loader for v in part}
                self.assertEqual(len(loader), 3)
        self.assertEqual(len(seen), 40)
        plugin.scaler = object()
        with self.assertRaisesRegex(ValueError, "bf16-mixed"):
            mine.on_train_start()

    def test_accelerate(self) -> None:
        """On a stand-in for Accelerator."""
        prepare = lambda *given: given
        backward = lambda loss: loss.backward()
        one = types.SimpleNamespace(prepare=prepare, backward=backward, scaler=None)
        stand = types.SimpleNamespace(Accelerator=lambda mixed_precision: one)
        x, y = batch(0, n=40)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        example = self.adapter("paceline_accelerate")
        with unittest.mock.patch.dict(sys.modules, accelerate=stand):
            run = example.Run(model, optimizer, loader, method="async", updates=12)
            for both in run.batches():
                run.step(CROSS_ENTROPY(run.model(both[0]), both[1]))
            run.close()
            self.assertEqual(run.opt.summary()["run"]["updates"], 12)
            one.scaler = object()
            with self.assertRaisesRegex(ValueError, "bf16"):
                example.Run(model, optimizer, loader)
            one.scaler = None
            with unittest.mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2"):
                example.alone(None)
                self.assertEqual(os.environ["RANK"], "1")  # Paceline reads it afterwards
        seen = set()
        for rank in (0, 1):
            role = pl.Role(rank, 2, "/nowhere")
            with unittest.mock.patch("paceline.torch._current._role", lambda role=role: role):
                numbers = torch.utils.data.TensorDataset(torch.arange(40))
                mine = example.shard(torch.utils.data.DataLoader(numbers, 8, drop_last=True))
                self.assertEqual(len(mine), 2)  # of 20 samples, without the last 4
                seen |= {int(v) for (part,) in mine for v in part}
        self.assertEqual(len(seen), 32)


if __name__ == "__main__":
    unittest.main()
