"""Runs of the same processes, one after another and side by side, and how a run tells that it
failed: it diverged, or it ended early."""

import contextlib
import dataclasses
import gc
import os
import threading
import time
import unittest
import unittest.mock
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

import paceline
import paceline.torch as pl
from forks import fork_servers
from ksync import KSync
from pages import check_documented, run_examples
from paceline import _roles
from workers import CROSS_ENTROPY, backward, batch, free_port, net, roles, together

SGD = torch.optim.SGD
LIMIT = 600  # seconds in which everything here must end
fork_servers()


def train(
    opt: pl.Optimizer,
    model: torch.nn.Module,
    rank: int,
    steps: Optional[int] = None,
    scale: float = 1.0,
) -> int:
    """Steps until the run ends; returns how many."""
    step = 0
    while not opt.ended and step != steps:
        opt.zero_grad()
        x, y = batch(step, rank)
        loss = CROSS_ENTROPY(model(x), y) * scale
        loss.backward()
        opt.step(loss)
        step += 1
    return step


class Documented(unittest.TestCase):
    def test_everything_public(self) -> None:
        check_documented(self, pl)

    MEMBERS = ("report", "set_weights", "no_sync", "paused")

    def test_examples(self) -> None:
        def example() -> pl.Optimizer:
            """The optimizer that examples of methods begin with."""
            model = torch.nn.Linear(2, 1)
            return pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync")

        for name in self.MEMBERS:
            self.assertIn(">>> opt = example()", getattr(pl.Optimizer, name).__doc__)
        with unittest.mock.patch(
            "paceline.torch._current._last_role", None
        ):  # no optimizer was made yet
            run_examples(self, pl, paceline=paceline, torch=torch, example=example)


class Several(unittest.TestCase):
    def test_one_after_another(self) -> None:
        """A worker's next run is rank 0's next run, although rank 0 has not closed the last one."""
        others_go_on = threading.Event()

        def worker(role: pl.Role) -> List[Tuple[bool, bool]]:
            made = []
            for fold in range(3):
                model = net(seed=10 * fold + role.rank)
                opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "async", role=role)
                first = [p.detach().clone() for p in model.parameters()]
                expected = list(net(seed=10 * fold).parameters())
                same = opt.version > 0 or all(map(torch.equal, first, expected))
                train(opt, model, role.rank, 3)
                if role.rank == 1:
                    opt.close()
                    others_go_on.set()
                else:  # rank 1 is in its next constructor when this run ends
                    others_go_on.wait(LIMIT)
                    others_go_on.clear()
                    time.sleep(0.3)
                    opt.close()
                made.append((same, opt.version >= 3))
            return made

        for made in together(2, worker):
            self.assertEqual(made, [(True, True)] * 3)

    def test_side_by_side(self) -> None:
        """Two optimizers in each process, of two models: each has a run of its own."""

        def worker(role: pl.Role) -> Tuple[List[Dict[str, Any]], str, str]:
            models = net(seed=role.rank), net(seed=role.rank, width=5)
            opts = [
                pl.Optimizer(SGD(m.parameters(), lr=0.1), m, "sync", updates=6, role=role)
                for m in models
            ]
            for _ in range(6):
                for opt, model in zip(opts, models):
                    train(opt, model, role.rank, 1)
            for opt in opts:
                opt.close()
            return [opt.summary() for opt in opts], opts[0].role.socket, opts[1].role.socket

        (first, one, two), (_, *others) = together(2, worker)
        self.assertEqual([s["run"]["updates"] for s in first], [6, 6])
        self.assertEqual([one, two], others)
        self.assertNotEqual(one, two)

    def test_batches_of_the_module(self) -> None:
        """They are those of the optimizer whose run goes on, whichever was made last."""

        def one(updates: int) -> pl.Optimizer:
            model = net()
            sgd = SGD(model.parameters(), lr=0.1)
            return pl.Optimizer(sgd, model, "sync", role=roles(1)[0], updates=updates)

        def count() -> int:
            n = 0
            for _ in pl.batches([batch(0)] * 2):
                first.step(backward(first, first.model))
                n += 1
            return n

        first, second = one(3), one(1)
        with self.assertRaisesRegex(paceline.UsageError, "has 2 optimizers"):
            pl.batches([])
        train(second, second.model, 0)
        second.close()
        self.assertIn(count(), (3, 4))  # the end may come after a fourth has been drawn
        first.close()
        self.assertEqual(count(), 0)

    def test_two_jobs_at_one_address(self) -> None:
        """A rank of another job is refused, here and from another machine, and so is a second rank 1,
        which has taken the place of rank 2."""
        port, at = str(free_port()), f"127.0.0.1:{free_port()}"

        def joined(rank: str, size: str = "3", **more: Any) -> pl.Optimizer:
            model = net()
            role = _roles.find({"RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port})
            role = dataclasses.replace(role, **more)
            with unittest.mock.patch("paceline._roles._made", {}):  # it is another process
                sgd = SGD(model.parameters(), lr=0.1)
                return pl.Optimizer(sgd, model, "async", min_workers=1, role=role)

        opt = joined("0", listen=at)
        elsewhere: List[Dict[str, str]] = [{}, {"socket": f"http://{at}"}]
        for more in elsewhere:
            with self.assertRaisesRegex(
                paceline.RunError, f"belongs to job torchrun-{port}-of-3.1, .*-of-2.1; give each"
            ):
                joined("1", "2", **more)
        second = joined("1")
        with self.assertRaisesRegex(paceline.RunError, "rank 1 has joined .* MASTER_PORT"):
            joined("1")
        train(opt, opt.model, 0, 3)
        second.close()
        opt.close()

    def test_ranks_that_differ(self) -> None:
        """rank() answers if all optimizers agree; otherwise it names those that know."""
        both = threading.Barrier(2, timeout=LIMIT)

        def worker(role: pl.Role) -> None:
            opts = []
            for width in (8, 5):
                model = net(width=width)
                opts.append(pl.Optimizer(SGD(model.parameters(), lr=0.1), model, role=role))
            both.wait()
            for ask in (pl.rank, pl.world_size):
                with self.assertRaisesRegex(paceline.UsageError, "use opt.rank and opt.world_size"):
                    ask()
            both.wait()
            if role.rank == 1:
                for opt in opts:
                    opt.close()
            both.wait()
            if role.rank == 0:
                self.assertEqual((pl.rank(), pl.world_size()), (0, 2))
                for opt in opts:
                    opt.close()
                self.assertEqual((pl.rank(), pl.world_size())[1], 2)

        together(2, worker)

    def test_hooks(self) -> None:
        """task() leaves nothing at the model after close()."""

        def worker(role: pl.Role, leave: Callable[[pl.Optimizer], Any]) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            with opt.task():
                opt.step(backward(opt, model))
            self.assertTrue(all(m._forward_pre_hooks for m in model.modules()))
            leave(opt)
            self.assertFalse(any(m._forward_pre_hooks for m in model.modules()))
            self.assertFalse(any(p._backward_hooks for p in model.parameters()))

        together(1, lambda role: worker(role, lambda opt: opt.close()))
        together(1, lambda role: worker(role, lambda opt: opt.__exit__(ValueError, None, None)))

    def test_dropped(self) -> None:
        """A run ends when rank 0 drops its optimizer, and with it the server's process."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            with opt.task():
                opt.step(backward(opt, model))
            session, server = opt._session, opt._session.server
            del opt
            gc.collect()
            self.assertTrue(session.ended)
            self.assertFalse(server and server.alive)
            self.assertFalse(os.path.exists(role.socket))

        with self.assertWarnsRegex(RuntimeWarning, "dropped its .*Optimizer without close()"):
            together(1, worker)

    def test_restarted(self) -> None:
        """A worker that was restarted joins the run that there is."""
        role = roles(2)[1]
        os.mkdir(os.path.dirname(role.socket))
        restarted = _roles.Role(1, 2, role.socket, restarted=True)
        for name in (role.socket + ".3", role.socket + ".5", role.socket + ".x"):
            with open(name, "w"):
                pass
        found = [_roles.next_run(restarted).socket for _ in range(3)]
        self.assertEqual(found, [role.socket + end for end in (".3", ".5", ".6")])
        again = _roles.find({"PACELINE": f"rank=1,workers=2,socket={role.socket},restarted=yes"})
        self.assertTrue(again.restarted)


class Failed(unittest.TestCase):
    def test_diverged(self) -> None:
        """close() and batches() say that it diverged, on rank 0; so does summary()."""
        data = torch.utils.data.TensorDataset(*batch(0, n=64))
        for method in ("sync", "local-sgd:u=2"):
            for end in ("batches", "close"):

                def worker(role: pl.Role) -> Any:
                    model = net()
                    optimizer = SGD(model.parameters(), lr=1e6)
                    opt = pl.Optimizer(optimizer, model, method, updates=500, role=role)
                    if end == "close":
                        train(opt, model, role.rank, scale=1e38)
                    else:
                        for x, y in opt.batches(torch.utils.data.DataLoader(data, 8)):
                            opt.zero_grad()
                            loss = CROSS_ENTROPY(model(x), y) * 1e38
                            loss.backward()
                            opt.step(loss)
                    return opt, opt.close

                caught = []

                def tried(role: pl.Role) -> Any:
                    try:
                        opt, close = worker(role)
                        close()
                    except paceline.RunError as e:
                        caught.append(str(e))
                        return None
                    return opt

                together(1, tried)
                self.assertEqual(len(caught), 1, (method, end))
                self.assertIn("diverged", caught[0])

    def test_summary_after_divergence(self) -> None:
        def worker(role: pl.Role) -> Dict[str, Any]:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=1e6), model, "sync", updates=9, role=role)
            train(opt, model, role.rank, scale=1e38)
            for _ in range(2):
                with self.assertRaisesRegex(paceline.RunError, "diverged"):
                    opt.close()
            return opt.summary()

        (summary,) = together(1, worker)
        self.assertTrue(summary["diverged"])
        self.assertIn("diverged", summary["failure"])

    def test_losses_that_soar(self) -> None:
        """A loss that is finite and enormous tells that the run diverged, with or without an evaluator;
        one that has doubled does not."""

        def worker(
            role: pl.Role, scale: float, score: Sequence[float], losses: List[float]
        ) -> Optional[str]:
            model = net()
            seen: List[float] = []

            def evaluate(m: torch.nn.Module) -> float:
                seen.append(score[len(seen) > 0])
                return seen[-1]

            opt = pl.Optimizer(
                SGD(model.parameters(), lr=0.1),
                model,
                "sync",
                role=role,
                evaluate=evaluate if score else None,
            )
            while score and not seen:
                opt.step(backward(opt, model))
            for loss in losses:
                backward(opt, model)
                opt.step(loss * scale)
            try:
                opt.close()
            except paceline.RunError as e:
                self.assertTrue(opt.summary()["diverged"])
                return str(e)
            self.assertFalse(opt.summary()["diverged"])
            return None

        def one(*args: Any) -> Any:
            return together(1, lambda role: worker(role, *args))[0]

        enormous = "the run diverged: the {} rose from {} to {}; try a smaller lr"
        said = one(1, None, [2.0, 8e32])
        self.assertEqual(said, enormous.format("loss", "2", "4e+32"))
        self.assertIsNone(one(1, None, [0.0, 900.0]))
        self.assertIsNone(one(1e-9, None, [1.0, 1e8]))
        for last, shown in ((2.1e36, "2.1e+36"), (float("inf"), "inf")):
            said = one(1, (2.0, last), [2.0, 2.0])
            self.assertEqual(said, enormous.format("test loss", "2", shown))
        self.assertIsNone(one(1, (2.0, 1e3), [2.0, 2.0]))
        self.assertIsNone(one(1, (2.0, float("nan")), [2.0, 2.0]))

    def test_ended_early(self) -> None:
        """All workers leave before the limit of the run."""

        def worker(role: pl.Role) -> Dict[str, Any]:
            model = net()
            optimizer = SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(optimizer, model, "sync", updates=50, wait=1, role=role)
            train(opt, model, role.rank, 3)
            with self.assertRaisesRegex(paceline.RunError, "every worker has gone.* update 3"):
                opt.close()
            return opt.summary()

        (summary,) = together(1, worker)
        self.assertEqual(summary["run"]["updates"], 3)
        self.assertFalse(summary["diverged"])

    def test_without_an_update(self) -> None:
        """Local steps that are in no result are lost, which close() tells."""

        def worker(role: pl.Role, steps: int) -> None:
            model = net()
            optimizer = SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(optimizer, model, "local-sgd:u=4", role=role)
            train(opt, model, role.rank, steps)
            opt.close()

        lost = "3 local steps since the last result are not in the model"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            together(1, lambda role: worker(role, 4))
            self.assertEqual(said, [])
            together(1, lambda role: worker(role, 7))
            self.assertEqual([str(w.message) for w in said], [lost])
            with self.assertRaisesRegex(paceline.RunError, "this rank took 3 steps"):
                together(1, lambda role: worker(role, 3))


class Options(unittest.TestCase):
    def test_evaluation_is_no_freeze(self) -> None:
        """A worker that pauses may take its time between two results, and is not evicted with one
        that is as slow without a word."""
        evicted = threading.Event()

        def worker(role: pl.Role) -> bool:
            model = net()
            sgd = SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(sgd, model, "sync", role=role, evict=2)
            client = opt._session.client
            if role.rank == 1:
                with opt.paused(), opt.paused():
                    evicted.wait(LIMIT)
                out = client.hung_up()
            while role.rank == 2 and not client.hung_up():
                time.sleep(0.01)
            evicted.set()
            if role.rank != 2:
                opt.step(backward(opt, model))
            opt.close()
            return role.rank == 1 and out

        self.assertEqual(together(3, worker), [False] * 3)

    def test_eviction(self) -> None:
        """By default, a worker has half an hour."""
        cases: List[Tuple[Dict[str, Any], Any]] = [({}, 1800), ({"evict": "auto"}, "auto")]
        for given, expected in [*cases, ({"evict": None}, 1800)]:
            with unittest.mock.patch("paceline._server.Server") as server:
                server.side_effect = paceline.RunError("not now")
                model = net()
                with self.assertRaisesRegex(paceline.RunError, "not now"):
                    sgd = SGD(model.parameters(), lr=0.1)
                    pl.Optimizer(sgd, model, role=roles(1)[0], **given)
                self.assertEqual(server.call_args[0][1]["evict"], expected)

    def test_arguments_of_other_types(self) -> None:
        """One sentence tells what was given."""

        def refuses(sentence: str, call: Callable[[], Any]) -> None:
            with self.assertRaisesRegex(paceline.UsageError, sentence):
                call()

        def one(**options: Any) -> pl.Optimizer:
            model = net()
            return pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", **options)

        refuses("workers is 'x', but must be a whole number", lambda: one(workers="x"))
        refuses("role is 'x', but must be a paceline.torch.Role", lambda: one(role="x"))
        opt = one(role=roles(1)[0])
        opt.step(backward(opt, opt.model))
        backward(opt, opt.model)
        refuses(r"a tensor of shape \(2,\)", lambda: opt.step(torch.ones(2)))
        refuses("must be one number.* but is of type str", lambda: opt.step("x"))
        for given, shown in (({}, "one with nothing"), ({"a": 1}, "one with 'a'"), (1, "a int")):
            refuses(f"'param_groups', but was given {shown}", lambda: opt.load_state_dict(given))
        opt.close()
        for given in (None, "low", {"test_loss": "low"}):
            with self.assertRaisesRegex(paceline.UsageError, "evaluate= returned .*a dict of numb"):
                opt = one(role=roles(1)[0], evaluate=lambda m: given, updates=50)
                train(opt, opt.model, 0)
                opt.close()
            with contextlib.suppress(paceline.Error):
                opt.__exit__(ValueError)

    def test_resume_without_a_folder(self) -> None:
        model = net()
        with self.assertRaisesRegex(paceline.UsageError, "resume='auto' needs checkpoint="):
            optimizer = SGD(model.parameters(), lr=0.1)
            pl.Optimizer(optimizer, model, role=roles(1)[0], resume="auto")

    def test_alone(self) -> None:
        """A run that all workers have left ends soon."""
        cases: List[Tuple[Dict[str, Any], int]] = [({}, 20), ({"wait": 3}, 3)]
        for given, expected in cases:
            with unittest.mock.patch("paceline._server.Server") as server:
                model = net()
                server.side_effect = paceline.RunError("not now")
                with self.assertRaisesRegex(paceline.RunError, "not now"):
                    pl.Optimizer(SGD(model.parameters(), lr=0.1), model, role=roles(1)[0], **given)
                self.assertEqual(server.call_args[0][1]["wait"], expected)

    def test_policy_in_python(self) -> None:
        def worker(role: pl.Role, policy: Any) -> Dict[str, Any]:
            model = net()
            optimizer = SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(optimizer, model, role=role, updates=5, policy=policy)
            while not opt.ended:
                train(opt, model, role.rank, 1)
            opt.close()
            return opt.summary()

        summary = together(3, lambda role: worker(role, KSync(k=2)))[0]
        self.assertEqual(summary["run"]["updates"], 5)

        class Local(KSync):
            pass

        with self.assertRaisesRegex(paceline.UsageError, "file of its own"):
            together(1, lambda role: worker(role, Local))

    def test_ranks_are_workers(self) -> None:
        """The server calls a worker by its rank, whoever joins first."""

        def worker(role: pl.Role) -> Any:
            time.sleep(0.3 * (role.rank == 1))
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)
            number = opt._session.client.task.worker
            known.wait()
            opt.close()
            return number

        known = threading.Barrier(3)

        self.assertEqual(together(3, worker), [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
