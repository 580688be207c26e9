"""Which worker may change a run whose server no script has started: the one with PACELINE_TOKEN."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import Program
from paceline import _roles
from workers import CROSS_ENTROPY, batch, flat, net, together

SCRIPT = """
import sys, torch
import paceline.torch as pl
from workers import net, to_the_end
model = net()
if sys.argv[1] == "evaluate":
    n = pl.evaluate(model, lambda m: {"test_loss": 0.25, "extra": 7.0})
    raise SystemExit(0 if n else 1)
opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, "sync",
                   updates=40, eval_every=0.05)
to_the_end(opt)
opt.close()
"""


class Owner(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def printed(self) -> Tuple[Any, Any]:
        """What the script prints about its server, and the options of that."""
        init = os.path.join(self.folder, "init.safetensors")
        env = dict(os.environ, PACELINE="init=" + init)
        script = Program([SCRIPT, "work"], env=env, stdout=subprocess.PIPE)
        told = script.communicate()[0].decode()
        self.assertEqual(script.returncode, 0)
        line = next(x for x in told.splitlines() if "paceline serve" in x).split()
        return told, line[2 : line.index("--workers")]

    def serve(self, *more: str, options: Any = None) -> None:
        """Starts the server that the script describes, which may be joined at self.url."""
        options = options or self.printed()[1]
        with open(os.path.join(self.folder, "err"), "w", encoding="utf-8") as err:
            self.server = subprocess.Popen(
                ["paceline", "serve", *options, "--checkpoint", os.path.join(self.folder, "saved"),
                 "--listen", "127.0.0.1:0", "--json", *more],
                stdout=subprocess.PIPE, stderr=err,
            )  # fmt: skip
        self.addCleanup(self.server.communicate)
        self.addCleanup(self.server.kill)
        self.await_line("on port ")
        scheme = "https" if "--keys" in more else "http"
        port = re.findall(r"on port (\d+)", self.said())[0]
        self.url = f"{scheme}://127.0.0.1:{port}"

    def said(self) -> str:
        with open(os.path.join(self.folder, "err"), encoding="utf-8") as f:
            return f.read()

    def await_line(self, text: str) -> None:
        for _ in range(1200):
            ended = self.server.poll() is not None
            if text in self.said():
                return
            self.assertFalse(ended, self.said())
            time.sleep(0.05)
        self.fail(f"'{text}' did not come: {self.said()}")

    def result(self) -> Any:
        """Of the run, which has ended."""
        out, _ = self.server.communicate(timeout=120)
        self.assertEqual(self.server.returncode, 0, self.said())
        return json.loads(out)

    def opened(
        self, token: str = "", method: str = "sync", updates: Optional[int] = 40, **more: Any
    ) -> pl.Optimizer:
        model = net()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        role = pl.Role(-1, 1, self.url, token=token)
        return pl.Optimizer(sgd, model, method, role=role, updates=updates, **more)

    def step(self, opt: pl.Optimizer, step: int) -> None:
        opt.zero_grad()
        x, y = batch(step, opt.rank)
        loss = CROSS_ENTROPY(opt.model(x), y)
        loss.backward()
        opt.step(loss)

    def both(self, work: Callable[[str], Any], *tokens: str) -> Dict[str, Any]:
        """Calls work(token) in threads; returns what they return."""
        out = {}
        threads = [
            threading.Thread(target=lambda t=t: out.update({t: work(t)}), daemon=True)
            for t in tokens
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(sorted(out), sorted(tokens))
        return out

    def test_scheduler_of_the_worker_with_the_token(self) -> None:
        """Two workers with the same script: the run has the rates of torch.optim."""
        self.serve("--workers", "2", "--requests", "secret")

        def work(token: str) -> Dict[int, torch.Tensor]:
            opt = self.opened(token)
            schedule = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
            step, seen = 0, {}
            while not opt.ended:
                self.step(opt, step)
                schedule.step()
                step += 1
                if not opt.ended:
                    seen[opt.version] = flat(opt.model)
            opt.close()
            return seen

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seen = self.both(work, "secret", "")
        told = [str(w.message) for w in caught if "PACELINE_TOKEN" in str(w.message)]
        self.assertEqual(len(told), 1, told)  # from the other worker, once
        self.assertIn("lr has changed from 0.1 to 0.05", told[0])
        self.assertEqual(self.result()["updates"], 40)
        self.assertIn("set the learning rate to 0.05, from 0.1", self.said())
        model = net()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(sgd, 5, 0.5)
        for step in range(39):
            sgd.zero_grad()
            for worker in range(2):
                x, y = batch(step, worker)
                (CROSS_ENTROPY(model(x), y) / 2).backward()
            sgd.step()
            schedule.step()
            for token in ("secret", ""):
                off = (seen[token][step + 1] - flat(model)).abs().max()
                self.assertLess(float(off), 1e-5, f"update {step + 1}")

    def test_a_server_without_requests(self) -> None:
        """Nobody can tell the server, so what the script changes raises."""
        self.serve("--workers", "1", "--wait", "60")
        with self.assertRaisesRegex(paceline.RunError, "token that is not the run's"):
            self.opened("secret")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opt = self.opened(evaluate=lambda m: 0.5)
        self.assertIn("evaluate= is not called", str(caught[-1].message))
        self.step(opt, 0)
        with self.assertRaisesRegex(paceline.UsageError, "--requests TOKEN"):
            opt.checkpoint()
        with self.assertRaisesRegex(paceline.UsageError, "takes no weights"):
            opt.set_weights()
        saved = opt.state_dict()
        saved["state"] = {
            i: {"momentum_buffer": torch.zeros_like(p)}
            for i, p in enumerate(opt.model.parameters())
        }
        with self.assertRaisesRegex(paceline.UsageError, "takes no state of the optimizer"):
            opt.load_state_dict(saved)
        opt.param_groups[0]["momentum"] = 0.5
        with self.assertRaisesRegex(paceline.UsageError, "momentum has changed"):
            self.step(opt, 1)
        opt.param_groups[0]["momentum"] = 0.9
        self.step(opt, 1)
        opt.param_groups[0]["lr"] = 0.05
        with self.assertRaisesRegex(
            paceline.UsageError, "lr has changed from 0.1 to 0.05.*PACELINE_TOKEN"
        ):
            self.step(opt, 2)
        opt.param_groups[0]["lr"] = 0.1
        self.step(opt, 2)
        opt.close()

    def test_a_second_optimizer(self) -> None:
        """It would join the first one's run again, because the server has no other."""
        self.serve("--workers", "2", "--min-workers", "1", "--wait", "60")
        role = _roles.find({"PACELINE": self.url})
        model = net()
        opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, role=role)
        for _ in range(2):
            other = net(seed=1)
            with self.assertRaisesRegex(paceline.UsageError, "one run.* joined already"):
                pl.Optimizer(torch.optim.SGD(other.parameters(), lr=0.1), other, role=role)
            opt.close()

    def test_end_checkpoint_and_evaluation(self) -> None:
        """The worker with the token is what rank 0 is on one machine; another one goes on without
        it if it fails."""
        self.serve(
            "--workers", "2", "--min-workers", "1", "--requests", "secret", "--updates", "100000",
            "--checkpoint-every", "1h",
        )  # fmt: skip
        other = self.opened(updates=None)
        opt = self.opened("secret", updates=None)
        opt._session.abort()  # as after an exception
        self.await_line("worker 2 left")
        self.step(other, 0)
        other.close()
        self.assertIsNone(self.server.poll())
        points: List[Any] = []
        opt = self.opened(
            "secret", updates=None, evaluate=lambda m: {"test_loss": 0.125}, on_point=points.append
        )
        opt.checkpoint()
        for step in range(10):
            self.step(opt, step)
        opt.close()
        result = self.result()
        self.assertEqual(result["test_loss"], 0.125)
        self.assertGreaterEqual(len(points), 1)
        self.assertLess(result["updates"], 100)
        self.assertIn("ended the run after update", self.said())

    def test_an_evaluator_over_https(self) -> None:
        """A process of its own, with the variables of a worker and the token."""
        keys = os.path.join(self.folder, "keys")
        made = subprocess.run(["paceline", "keys", "--out", keys], stderr=subprocess.PIPE)
        if b"this build cannot" in made.stderr:
            self.skipTest("this build has no GnuTLS")
        told, options = self.printed()
        self.assertIn("--requests TOKEN", told)
        self.assertIn("PACELINE_TOKEN=TOKEN", told)
        log = os.path.join(self.folder, "log")
        self.serve(
            "--workers", "1", "--requests", "secret", "--keys", keys, "--log-dir", log,
            options=options,
        )  # fmt: skip
        env = dict(os.environ, PACELINE=self.url, PACELINE_KEYS=keys)
        refused = Program([SCRIPT, "evaluate"], env=env, stderr=subprocess.PIPE)
        self.assertIn(b"in Python: PACELINE_TOKEN", refused.communicate()[1])
        processes = []
        for what, token in (("evaluate", "secret"), ("work", "")):
            processes.append(Program([SCRIPT, what], env=dict(env, PACELINE_TOKEN=token)))
            self.await_line("evaluator 2 joined")  # or the worker does it all before
        for p in processes:
            self.assertEqual(p.wait(300), 0, self.said())
        self.assertEqual(self.result()["test_loss"], 0.25)
        lines = []
        for folder, _, names in os.walk(log):
            for name in names:
                if name.endswith(".jsonl"):
                    with open(os.path.join(folder, name), encoding="utf-8") as f:
                        lines += [json.loads(x) for x in f]
        scored = [x for x in lines if x.get("test_loss") == 0.25 and x.get("extra") == 7.0]
        self.assertTrue(scored, lines)

    def test_ranks_know_that_rank_0_is_the_owner(self) -> None:
        """Workers that join the server of a rank 0 over HTTP neither raise nor warn. They may have the
        same PACELINE_TOKEN as rank 0, and still leave requests to it."""

        def work(role: pl.Role) -> bool:
            model = net()
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            role = dataclasses.replace(role, token="secret")
            opt = pl.Optimizer(sgd, model, "sync", role=role, updates=10)
            schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
            step = 0
            while not opt.ended:
                self.step(opt, step)
                schedule.step()
                step += 1
            opt.close()
            return opt._session.owns

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertTrue(together(2, work, far=True)[0])
        self.assertEqual([str(w.message) for w in caught if "lr has" in str(w.message)], [])
        self.assertNotIn("secret", repr(pl.Role(-1, 1, "https://a:1", token="secret")))

    def test_rate_when_the_run_ends(self) -> None:
        """The run ends after a step has looked whether its task is wanted, and before the new rate is
        sent: the next task tells."""

        def work(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "async",
                               role=role, updates=20)  # fmt: skip
            if opt.rank == 0:
                opt.param_groups[0]["lr"] = 0.05
                while not opt._session.cancelled():
                    time.sleep(0.01)
                wanted = unittest.mock.Mock(return_value=(8, 1.0, False))
                with unittest.mock.patch.object(opt._session, "settle", wanted):
                    self.step(opt, 0)
                wanted.assert_called()
            for step in range(10**9):
                if opt.ended:
                    break
                self.step(opt, step)
            opt.close()

        together(2, work)


if __name__ == "__main__":
    unittest.main()
