"""Workers and evaluators of a run that `paceline train` serves, without PyTorch."""

import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from typing import Any, Callable

from paceline import UsageError, _client, loop
from paceline._setup import Setup

LIMIT = 600  # seconds in which everything here must end


class Clients(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.path = os.path.join(folder, "run.socket")
        self.server = subprocess.Popen(
            [os.environ["PACELINE"], "train", "--model", "external:dim=2", "--method", "async",
             "--workers", "1", "--eval-every", "0.05", "--updates", "1000000000", "--listen", self.path,
             "--requests", "a-token"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.addCleanup(self.server.wait, LIMIT)
        self.addCleanup(self.server.kill)

    def work(self) -> None:
        """A worker that pushes until the run ends."""
        worker = _client.Client(self.path, wait=LIMIT, dim=2)
        while True:
            got = worker.pull(LIMIT)
            if got is None:
                worker.close()
                return
            if got:
                time.sleep(0.001)
                worker.push(2, 1, 0.5)

    def evaluate(self, pull: Callable[[Any], Any]) -> None:
        """Evaluates three versions, which `pull` waits for."""
        working = threading.Thread(target=self.work, daemon=True)
        working.start()
        seat = _client.Client(self.path, wait=LIMIT, role=_client.EVALUATOR, token="a-token")
        versions = []
        for _ in range(3):
            self.assertTrue(pull(seat), "no version came")
            versions.append(seat.task.version)
            seat.report("test_loss", 1.0)
            seat.push(0, 0, math.nan)
        self.assertEqual(versions, sorted(set(versions)))
        seat.end()
        seat.close()
        working.join(LIMIT)
        self.assertFalse(working.is_alive())

    def test_evaluator_waits(self) -> None:
        self.evaluate(lambda seat: seat.pull(LIMIT))

    def test_evaluator_looks(self) -> None:
        """An evaluator that has other things to do looks from time to time, without waiting."""

        def look(pause: float) -> Any:
            def pull(seat: Any) -> bool:
                end = time.monotonic() + LIMIT
                while time.monotonic() < end:
                    if seat.pull(0):
                        return True
                    time.sleep(pause)
                return False

            return pull

        seldom, often = look(0.3), look(0)
        self.evaluate(lambda seat: seldom(seat) and (seat.push(0, 0, math.nan) or often(seat)))

    def test_after_close(self) -> None:
        """A client that is closed, and one of another process, raise an error and do not crash."""

        def refused(seat: Any, sentence: str) -> None:
            for call in (
                lambda: seat.server,
                lambda: seat.pull(0),
                lambda: seat.push(2, 1, 0.5),
                lambda: seat.report("test_loss", 1.0),
                lambda: seat.set_lr(0.1),
                seat.cancelled,
                seat.checkpoint,
                seat.end,
            ):
                with self.assertRaisesRegex(UsageError, sentence):
                    call()

        seat = _client.Client(self.path, wait=LIMIT, dim=2)
        child = os.fork()
        if child == 0:
            try:
                refused(seat, "another one here")
                seat.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(seat.server["dim"], 2)
        seat.close()
        refused(seat, "closed")
        seat.close()


class Loops(unittest.TestCase):
    def test_after_close(self) -> None:
        one = loop.Loop(Setup(model="external:dim=2", updates=2, workers=1), 2)
        one.close()
        for call in (
            one.next,
            lambda: one.gradient(0.5),
            lambda: one.give(0),
            lambda: one.score(0.5),
            one.stop,
            one.run,
            one.kernel,
        ):
            with self.assertRaisesRegex(UsageError, "closed"):
                call()
        one.close()

    def test_rows(self) -> None:
        setup = Setup(model="external:dim=2", updates=2, workers=1)
        for n_train, n_test in ((-1, 0), (2**40, 0), (4, -1)):
            with self.assertRaisesRegex(UsageError, "must be a number"):
                loop.set_rows(setup, n_train, n_test)
        for labels in ([1, 2, 70000], [1, 2, -1], [1, 2]):
            with self.assertRaisesRegex(UsageError, "labels must be 3"):
                loop.set_rows(setup, 3, labels=labels)


if __name__ == "__main__":
    unittest.main()
