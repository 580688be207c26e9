"""What a run removes: the files that it made itself. The socket may be in a folder of the user's."""

import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any, Optional, Sequence

import torch

import paceline
import paceline.torch as pl
from paceline import _roles
from workers import CROSS_ENTROPY, batch, net

# what a user may have there, with the names that the package uses among them
MINE = ("notes.txt", "init.safetensors", "final.f32", "failed", "run.socket.part", "deep/kept.txt")


class Folders(unittest.TestCase):
    def setUp(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.temporary = os.path.join(self.place.name, "tmp")
        os.mkdir(self.temporary)
        patch = unittest.mock.patch.object(tempfile, "tempdir", self.temporary)
        patch.start()
        self.addCleanup(patch.stop)
        self.project = os.path.join(self.place.name, "project")
        os.makedirs(os.path.join(self.project, "deep"))
        for name in MINE:
            with open(os.path.join(self.project, name), "w") as f:
                f.write("mine: " + name)
        self.socket = os.path.join(self.project, "run.socket")

    def work(
        self, role: Optional[pl.Role] = None, steps: int = 3, fail: Any = None, **options: Any
    ) -> pl.Optimizer:
        _roles._made.clear()  # as if this were the first run of a process
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pl.Optimizer(optimizer, model, role=role, **options) as opt:
            for step in range(steps):
                x, y = batch(step)
                opt.zero_grad()
                loss = CROSS_ENTROPY(model(x), y)
                loss.backward()
                opt.step(loss)
                if fail:
                    fail(opt)
        return opt

    def check(self, left: Sequence[str] = ()) -> None:
        """All that the user had is there, `left` beside it, and no temporary file is left."""
        found = [
            os.path.relpath(os.path.join(folder, name), self.project)
            for folder, _, names in os.walk(self.project)
            for name in names
        ]
        self.assertEqual(sorted(found), sorted(MINE + tuple(left)))
        for name in MINE:
            with open(os.path.join(self.project, name)) as f:
                self.assertEqual(f.read(), "mine: " + name)
        temporary = [name for _, _, names in os.walk(self.temporary) for name in names]
        self.assertEqual(temporary, [])

    def test_role(self) -> None:
        opt = self.work(pl.Role(0, 1, self.socket))
        self.assertEqual(opt.summary()["run"]["updates"], 3)
        self.check()

    def test_relative(self) -> None:
        """The socket is where the role was made, also if the program changes its folder."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.place.name)
        os.makedirs("other/sub")
        role = pl.Role(0, 1, "sub/run.socket")

        def leave(opt: pl.Optimizer) -> None:
            os.chdir(os.path.join(self.place.name, "other"))
            assert opt._session.server
            opt._session.server.kill()

        with self.assertRaises(paceline.RunError):
            self.work(role, fail=leave)
        self.assertEqual(sorted(os.listdir(self.place.name)), ["other", "project", "tmp"])
        self.assertTrue(os.path.isdir("sub"))
        self.check()

    def test_variable(self) -> None:
        """A comma is part of the path, unless a key of the variable comes after it."""
        place = os.path.join(self.place.name, "a,b=c:d")
        for role in ("rank=0,workers=1,socket={}", "socket={},rank=0,workers=1,restarted=yes"):
            env = {"PACELINE": role.format(os.path.join(place, "run.socket"))}
            with unittest.mock.patch.dict(os.environ, env):
                opt = self.work()
            self.assertEqual(opt.role.socket[: len(place)], place)
            self.assertFalse(os.path.exists(place))
        self.check()

    def test_new_folder(self) -> None:
        """A folder that the run made is removed, unless somebody put something there."""
        folder = os.path.join(self.project, "new")
        self.work(pl.Role(0, 1, os.path.join(folder, "run.socket")))
        self.assertFalse(os.path.exists(folder))

        def put(opt: pl.Optimizer) -> None:
            with open(os.path.join(folder, "theirs"), "w"):
                pass

        self.work(pl.Role(0, 1, os.path.join(folder, "run.socket")), fail=put)
        self.assertEqual(os.listdir(folder), ["theirs"])
        self.check(["new/theirs"])

    def test_failures(self) -> None:
        """A run that cannot start, one that raises, and one whose server is killed."""
        with self.assertRaises(paceline.UsageError):
            self.work(pl.Role(0, 1, self.socket), method="sync:nonsense=1")
        self.check()

        def leave(opt: pl.Optimizer) -> None:
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.work(pl.Role(0, 1, self.socket), fail=leave)
        with self.assertRaises(paceline.RunError):
            self.work(pl.Role(0, 1, self.socket), fail=lambda opt: opt._session.server.kill())
        self.check()  # also without the socket that the killed server left
        self.work(pl.Role(0, 1, self.socket))
        self.check()

    def test_told_to_the_others(self) -> None:
        """Why rank 0 failed is beside the socket, for the other ranks, until the next run there."""
        told = self.socket + ".failed"
        with self.assertRaises(paceline.UsageError):
            self.work(pl.Role(0, 2, self.socket), method="sync:nonsense=1")
        self.check(["run.socket.failed"])
        with self.assertRaisesRegex(paceline.RunError, "nonsense"):
            self.work(pl.Role(1, 2, self.socket))
        self.work(pl.Role(0, 1, self.socket))
        self.check()
        # a file of that name that is the user's, and a link there
        with open(told, "w") as f:
            f.write("precious")
        with self.assertRaises(paceline.UsageError):
            self.work(pl.Role(0, 2, self.socket), method="sync:nonsense=1")
        with open(told) as f:
            self.assertEqual(f.read(), "precious")
        os.unlink(told)
        os.symlink("notes.txt", told)
        with self.assertRaises(paceline.UsageError):
            self.work(pl.Role(0, 2, self.socket), method="sync:nonsense=1")
        self.assertTrue(os.path.islink(told))
        os.unlink(told)
        self.check()

    def test_not_a_socket(self) -> None:
        """A file in the place of the socket stays, and so does the socket of a run that is alive."""
        for name in ("notes.txt", "deep"):
            with self.assertRaises(paceline.Error):
                self.work(pl.Role(0, 1, os.path.join(self.project, name)))
            self.check()

        def second(opt: pl.Optimizer) -> None:
            with self.assertRaises(paceline.Error):
                self.work(pl.Role(0, 1, self.socket))

        opt = self.work(pl.Role(0, 1, self.socket), fail=second)
        self.assertEqual(opt.summary()["run"]["updates"], 3)
        self.check()

    def test_closed_error_stream(self) -> None:
        """What the server says about a rejected result ends up in no file of the run."""
        script = (
            "import sys, torch, paceline.torch as pl; from workers import net; model = net()\n"
            "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "opt = pl.Optimizer(opt, model, role=pl.Role(0, 1, sys.argv[1]), updates=2, log='log')\n"
            "opt.zero_grad(); (model(torch.ones(1, 6)) * float('inf')).sum().backward(); opt.step()\n"
            "while not opt.ended:\n"
            "    opt.zero_grad(); model(torch.ones(1, 6)).sum().backward(); opt.step()\n"
            "opt.close(); assert opt.summary()['run']['updates'] == 2"
        )
        closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", script, self.socket]
        subprocess.run(closed, cwd=self.place.name, check=True, timeout=600)
        with open(os.path.join(self.place.name, "log")) as f:
            self.assertNotIn("paceline", f.read())


if __name__ == "__main__":
    unittest.main()
