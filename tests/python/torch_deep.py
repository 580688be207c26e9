"""bench/deep.py as a program of claims: what is missing, a run on the CPU with few pictures, and going
on where it was."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DEEP = os.path.join(ROOT, "bench", "deep.py")
CLAIMS = f"""
setting tiny
  program  {sys.executable} {DEEP} async@lr=0.01 async:max_lag=4,stop=yes@lr=0.01 --workers 2
           --batch 2 --samples 8 --delay const:t=1 --eval-every 2 --target-accuracy 1.1
           --weight-decay=1e-4 --device cpu
  full     --epochs 0.5 --seeds 2 --jobs 2

claim equal
  says     A bound that no gradient meets changes nothing.
  paper    nobody
  reports  nothing
  expected shown
  holds    test_accuracy of tiny/async@lr=* minus tiny/async:max_lag=*@lr=0.01 is at least 0
  holds    time_to_target of tiny/async@lr=* is at least 1
"""


class Deep(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(folder.name, "claims.txt"), "w", encoding="utf-8") as f:
            f.write(CLAIMS)

    def reproduce(self, data: str = "synthetic", *more: str) -> Any:
        command = ["paceline", "reproduce", "--claims", "claims.txt", "--full", "--check", *more]
        return subprocess.run(
            command, cwd=self.folder, env=os.environ | {"PACELINE_CIFAR10": data},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def test_missing(self) -> None:
        done = self.reproduce("nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "(?m)^equal: not run: PACELINE_CIFAR10 is 'nowhere', which")

    def test_shown_and_resumed(self) -> None:
        first = self.reproduce()
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertRegex(first.stdout, "(?m)^equal: shown$")
        self.assertRegex(first.stderr, "(?m)^async@lr=0.01 seed 2: 0.5 epochs, 1 virtual s")
        path = os.path.join(self.folder, "reproduce/full/tiny/results.jsonl")
        with open(path, encoding="utf-8") as f:
            lines = sorted(f)
        self.assertEqual(len(lines), 4)
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(lines[:3]) + lines[3][:40])  # cut short
        os.remove(os.path.join(self.folder, "reproduce/full/tiny/setting.json"))
        again = self.reproduce()
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertNotIn(json.loads(lines[0])["entrant"] + " seed 1", again.stderr)
        with open(path, encoding="utf-8") as f:
            self.assertEqual(sorted(f), lines)


if __name__ == "__main__":
    unittest.main()
