"""How a run ends and what is told of it: its rank 0 is ended or fails, workers leave, or are
fewer than asked for."""

import contextlib
import dataclasses
import io
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import unittest
import unittest.mock
from typing import Any, List, Tuple

import paceline
from forks import Program
from paceline._progress import Progress

LIMIT = 600  # seconds in which everything here must end


def script(text: str, socket: str, rank: int = 0, workers: int = 1) -> Any:
    """A worker that is a process, with a model and the optimizer `opt` made by `text`."""
    text = (
        "import signal, sys, time, torch, paceline.torch as pl\n"
        # a shell starts what runs in the background with this signal ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from workers import net, batch, CROSS_ENTROPY\n"
        "def steps(opt, model, n=10**9):\n"
        "    for step in range(n):\n"
        "        x, y = batch(step); opt.zero_grad()\n"
        "        loss = CROSS_ENTROPY(model(x), y); loss.backward(); opt.step(loss)\n"
        "        if step == 5: print('began', flush=True)\n"
        "model = net(); sgd = torch.optim.SGD(model.parameters(), lr=0.01)\n" + text
    )
    env = dict(os.environ, PACELINE=f"rank={rank},workers={workers},socket={socket}")
    return Program([text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Ended(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.socket = os.path.join(place.name, "run.socket")
        self.checkpoints = os.path.join(place.name, "ck")
        self.make = f"opt = pl.Optimizer(sgd, model, 'async', checkpoint={self.checkpoints!r})\n"

    def saved(self) -> List[Any]:
        return [n for n in os.listdir(self.checkpoints) if n.endswith(".safetensors")]

    def end(self, p: Any) -> Tuple[Any, Any]:
        try:
            out, err = p.communicate(timeout=LIMIT)
        finally:
            p.kill()
        return out, err

    def test_terminated(self) -> None:
        """SIGTERM on rank 0: the run ends with a checkpoint, and the exit status tells the signal."""
        closes = "try: steps(opt, model)\nfinally: opt.close()"
        limited = self.make.replace("'async',", "'async', updates=10**9,")
        for text in (self.make + "steps(opt, model)", limited + closes):
            p = script(text, self.socket)
            self.assertEqual(p.stdout.readline(), "began\n")
            p.send_signal(signal.SIGTERM)
            _, err = self.end(p)
            self.assertEqual(p.returncode, 128 + signal.SIGTERM, err)
            self.assertTrue(self.saved())
            for name in os.listdir(self.checkpoints):
                os.unlink(os.path.join(self.checkpoints, name))

    def test_killed(self) -> None:
        """SIGKILL on rank 0: the server writes a checkpoint, and another rank hears of it."""
        ranks = [script(self.make + "steps(opt, model)", self.socket, r, 2) for r in range(2)]
        for p in ranks:
            self.assertEqual(p.stdout.readline(), "began\n")
        ranks[0].kill()
        self.end(ranks[0])
        _, err = self.end(ranks[1])
        self.assertIn("RunError: rank 0 is gone", err)
        self.assertTrue(self.saved())

    def test_interrupted(self) -> None:
        """Ctrl-C: one line says where it was, another one where the run was saved; the run that goes
        on says from where. PACELINE_QUIET silences what is no failure."""
        p = script(self.make + "steps(opt, model)", self.socket)
        self.assertEqual(p.stdout.readline(), "began\n")
        p.send_signal(signal.SIGINT)
        _, err = self.end(p)
        self.assertNotIn("Traceback", err)
        self.assertRegex(err, "paceline: KeyboardInterrupt in .*, line [0-9]+\n")
        self.assertRegex(err, f"saved in {self.checkpoints} at update [0-9]+\n")
        again = self.make.replace("'async'", "'async', resume='auto'") + "steps(opt, model, 20)"
        for silent in (False, True):
            with unittest.mock.patch.dict(os.environ, {"PACELINE_QUIET": "1"} if silent else {}):
                _, err = self.end(script(again + "\nopt.close()", self.socket))
            words = f"paceline: resumed from {self.checkpoints}/.* at update [0-9]+\n"
            self.assertEqual(bool(re.search(words, err)), not silent, err)
            self.assertEqual("saved in" in err, not silent)

    def test_progress(self) -> None:
        """A line after two seconds and then at growing intervals, with what is known."""
        nan = math.nan
        point = paceline.Point(2, 50, 1, nan, nan, nan, 2, 0.5, 0, 2, 2, 3, 640, nan)
        run = {"limits": {"updates": 200, "time": None}, "resumed": None}
        said, now = io.StringIO(), unittest.mock.Mock(return_value=0.0)
        with contextlib.redirect_stderr(said), unittest.mock.patch("time.monotonic", now):
            progress = Progress()
            progress.begin(json.dumps(run))
            progress.tick(dataclasses.replace(point, time=0, samples=0))
            progress.point(dataclasses.replace(point, loss=0.25))
            for second in range(1, 200):
                now.return_value = second
                progress.tick(point)
                if second == 1:
                    self.assertEqual(said.getvalue(), "")
        lines = said.getvalue().splitlines()
        words = "25 %  2 s  loss 0.25  update 50  320 samples/s  stale 0.50/3  workers 2/2"
        self.assertEqual(lines[0], "paceline: " + words)
        self.assertEqual(len(lines), 8)  # after 2, 4, 8, 16, 32, 64, 124 and 184 s

    def test_exception(self) -> None:
        """An exception on rank 0: there is a checkpoint, and the other ranks hear about it."""
        for how in ("steps(opt, model, 20); 1 / 0", "with opt: steps(opt, model, 20); 1 / 0"):
            p = script(self.make + how, self.socket, workers=2)
            other = script(self.make + "steps(opt, model)", self.socket, rank=1, workers=2)
            _, err = self.end(p)
            self.assertIn("ZeroDivisionError", err)
            self.assertEqual(p.returncode, 1)
            self.assertTrue(self.saved())
            _, err = self.end(other)
            self.assertIn("RunError: rank 0 failed: ZeroDivisionError: division by zero", err)
            for name in self.saved():
                os.unlink(os.path.join(self.checkpoints, name))

    def test_exception_in_a_child(self) -> None:
        """A forked child that fails leaves the server of its parent alone."""
        text = (
            "import os\nopt = pl.Optimizer(sgd, model, 'sync'); steps(opt, model, 2)\n"
            "if os.fork() == 0: opt._session.server.kill = lambda: print('killed'); 1 / 0\n"
            "os.wait(); opt.close(); print(opt.version)"
        )
        out, err = self.end(script(text, self.socket))
        self.assertEqual(out, "2\n", err)
        self.assertIn("ZeroDivisionError", err)

    def test_exit_status(self) -> None:
        """sys.exit on rank 0 ends a run whose limit is far away."""
        text = "opt = pl.Optimizer(sgd, model, 'async', updates=10**9)\n"
        p = script(text + "steps(opt, model, 10); sys.exit(3)", self.socket, workers=2)
        other = script(text + "steps(opt, model)", self.socket, 1, workers=2)
        _, err = self.end(p)
        self.assertEqual(p.returncode, 3, err)
        self.assertIn("rank 0 exits before the limit", err)
        self.end(other)

    def test_rank_that_left(self) -> None:
        text = f"opt = pl.Optimizer(sgd, model, 'async', time={LIMIT})\n"
        p = script(text + "steps(opt, model)", self.socket, workers=2)
        other = script(text + "steps(opt, model, 10)", self.socket, 1, workers=2)
        self.end(other)
        self.assertTrue(any("rank 1 left" in line for line in p.stderr), "nobody hears of it")
        p.kill()
        self.end(p)

    def test_the_end_is_no_news(self) -> None:
        """A rank that leaves less than a second before rank 0 ends the run is not reported."""
        text = "opt = pl.Optimizer(sgd, model, 'sync'); steps(opt, model, 3)\n"
        for attempt in range(10):
            done = f"{self.socket}.{attempt}"
            p = script(
                f"{text}import os\n"
                f"while not os.path.exists({done!r}): time.sleep(0.001)\n"
                "opt.close(); print(time.monotonic())",
                self.socket,
                workers=2,
            )
            other = script(
                f"{text}begun = time.monotonic(); opt.close(); open({done!r}, 'w')\nprint(begun)",
                self.socket,
                rank=1,
                workers=2,
            )
            begun, (ended, err) = float(self.end(other)[0]), self.end(p)
            os.unlink(done)
            if float(ended) - begun < 0.9:
                self.assertEqual(err, "")
                return
        self.skipTest("this machine is too slow")

    def test_fewer_workers(self) -> None:
        """A run that begins without all of its workers says so."""
        p = script(
            "opt = pl.Optimizer(sgd, model, 'sync', updates=3, wait=1)\n"
            "steps(opt, model, 3); opt.close()",
            self.socket,
            workers=3,
        )
        _, err = self.end(p)
        self.assertIn("begins with 1 of 3 workers", err)
        self.assertEqual(p.returncode, 0, err)

    def test_two_jobs(self) -> None:
        """Rank 0 of another job with the same socket is told, and the first job goes on."""
        p = script(self.make + "steps(opt, model)", self.socket)
        self.assertEqual(p.stdout.readline(), "began\n")
        other = script(self.make + "steps(opt, model)", self.socket)
        _, err = self.end(other)
        self.assertIn("another run", err)
        self.assertIsNone(p.poll())
        p.kill()
        self.end(p)


if __name__ == "__main__":
    unittest.main()
