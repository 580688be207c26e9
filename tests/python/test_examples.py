"""Examples that need no PyTorch: the walk, and the trackers on stand-ins for their libraries."""

import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from typing import Any, Callable, Dict, List

import paceline

EXAMPLES = os.path.join(os.environ["SOURCE_DIR"], "examples")


class Examples(unittest.TestCase):
    def test_walk(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.join(EXAMPLES, "walk.py")]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("200 updates in", done.stdout)
            self.assertGreater(os.path.getsize(os.path.join(folder, "report.html")), 10000)

    def test_trackers(self) -> None:
        """Every tracker gets every evaluation, and finish() the summary."""
        calls = []

        def note(*args: Any, **more: Any) -> Any:
            calls.append((args, more))
            return types.SimpleNamespace(log=note, add_scalar=note)

        board = types.SimpleNamespace(SummaryWriter=note)
        flow = types.SimpleNamespace(start_run=note, log_params=note, log_metric=note)
        stands = {
            "torch": types.ModuleType("torch"),
            "torch.utils": types.ModuleType("torch.utils"),
            "torch.utils.tensorboard": board,
            "wandb": types.SimpleNamespace(init=note),
            "mlflow": flow,
        }
        with unittest.mock.patch.dict(sys.modules, stands):
            with unittest.mock.patch.object(sys, "path", [EXAMPLES, *sys.path]):
                import trackers
            makers: List[Callable[[str], Any]] = [
                trackers.tensorboard,
                trackers.wandb,
                trackers.mlflow,
            ]
            for make in makers:
                on_point = make("name")
                calls.clear()
                run = paceline.simulate(model="quadratic", updates=50, on_point=on_point)
                self.assertEqual(len(calls), len(run.points))
                self.assertIn(str(run.points[-1].updates), str(calls[-1]))
        numbers: Dict[str, float] = {}
        trackers.finish(run, numbers.__setitem__)
        self.assertEqual(numbers["updates"], 50)


if __name__ == "__main__":
    unittest.main()
