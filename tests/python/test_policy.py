"""Policies in Python decide like those in C, and their mistakes end a run with one error."""

import contextlib
import io
import os
import tempfile
import unittest
from typing import Any, Callable, Dict, List, Sequence, Tuple

import paceline
from ksync import KSync
from pages import run_page


def log_of(**options: Any) -> str:
    """The event log of a simulation."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events")
        paceline.simulate(events=path, **options)
        with open(path) as f:
            return f.read()


class Timed(paceline.Policy):
    """Commits what there is every two seconds."""

    name = "timed"
    options = {
        "every": paceline.options.Real(2, 0.001, 1e6, "seconds"),
        "mode": paceline.options.Choice("plain", "plain|odd"),
        "limit": paceline.options.Int(5, 1, 100, "updates"),
        "note": paceline.options.Text("hello"),
    }

    every: float
    mode: str
    limit: int
    note: str

    def begin(self) -> None:
        assert self.every == 2 and self.mode == "odd" and self.note == "hello"
        self.n_committed = 0

    def groups(self, n_workers: int, k: int) -> Tuple[int, int]:
        return (1, 1000)

    def join(self, view: paceline.View, worker: int, plan: paceline.Plan) -> None:
        plan.start(worker)
        if view.timer_ns is None:
            plan.timer(int(self.every * 1e9))

    def arrive(self, view: paceline.View, arrival: paceline.Arrival, plan: paceline.Plan) -> None:
        assert view.worker(arrival.worker).state == "idle"
        assert arrival.worker in view.idle and arrival.worker not in view.busy
        plan.take()
        plan.start(arrival.worker)

    def timer(self, view: paceline.View, plan: paceline.Plan) -> None:
        if view.n_taken:
            plan.commit()
            self.n_committed += 1
        if self.n_committed == self.limit:
            plan.stop()
        plan.timer(view.now_ns + int(self.every * 1e9))


class Policies(unittest.TestCase):
    def test_ksync_decides_like_ksync_in_c(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as script:
            script.write("3 leave 2\n7 join 2\n9 freeze 1 4\n")
            script.flush()
            for options in (
                dict(workers=8, updates=80, model="none"),
                dict(workers=5, updates=60, model="none", script=script.name),
                dict(workers=4, updates=40, model="quadratic", delay="pareto:shape=1.5"),
            ):
                for k, cancel in ((3, True), (2, False)):
                    spec = f":k={k},cancel={'yes' if cancel else 'no'}"
                    c = log_of(policy="ksync" + spec, **options)
                    self.assertEqual(log_of(policy=KSync(k=k, cancel=cancel), **options), c)
                    self.assertGreater(len(c.splitlines()), 100)

    def test_real_runs(self) -> None:
        run = paceline.train(policy=KSync(k=2), model="quadratic", workers=3, updates=30)
        assert run is not None
        self.assertEqual(run["updates"], 30)
        self.assertEqual(run.text("policy"), "my-ksync:k=2")

    def test_tuners_move_its_knobs(self) -> None:
        run = paceline.simulate(
            policy=KSync(k=1), tuner="fastestk", model="quadratic", workers=6, updates=200
        )
        self.assertEqual(run["updates"], 200)

    def test_timers_state_and_options(self) -> None:
        run = paceline.simulate(policy=Timed(mode="odd"), model="none", workers=3, updates=100)
        self.assertEqual(run["updates"], 5)
        self.assertEqual(run["time"], 10)
        run = paceline.simulate(
            policy=Timed(mode="odd", limit=7), model="none", workers=3, updates=100
        )
        self.assertEqual(run["updates"], 7)

    def test_runs_have_objects_of_their_own(self) -> None:
        setup = paceline.Setup(policy=Timed(mode="odd"), model="none", workers=3, updates=100)
        self.assertEqual([setup.simulate()["updates"] for _ in range(3)], [5, 5, 5])

    def test_replays(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rec")
            options = dict(policy=KSync(k=2), model="quadratic", workers=3, updates=20)
            paceline.simulate(record=path, **options)
            setup = paceline.Setup()
            setup.add_policy(KSync)
            self.assertEqual(setup.replay(path)["replay.same"], 1)

    def fails(
        self,
        body: Dict[str, Any],
        words: List[str],
        functions: Sequence[Callable[..., Any]] = (paceline.simulate, paceline.train),
    ) -> BaseException:
        """A policy with these members ends every run with one error."""
        policy = type("Bad", (KSync,), dict(body, name="bad"))
        for function in functions:
            with self.assertRaises(paceline.PolicyError) as caught:
                function(policy=policy, model="quadratic", workers=3, updates=50)
            for word in words:
                self.assertIn(word, str(caught.exception))
        return caught.exception

    def test_exceptions(self) -> None:
        def broken(self: KSync, *_: Any) -> None:
            raise ZeroDivisionError("oh")

        for name in ("arrive", "join", "check", "groups", "begin"):
            words = [f"'bad' failed in {name}()", "ZeroDivisionError: oh"]
            e = self.fails({name: broken}, words)
            self.assertIsInstance(e.__cause__, ZeroDivisionError)
        self.fails({"check": lambda self, n: b"no"}, ["'bad' failed in check()", "returned bytes"])
        # a real run never asks, because it computes nothing ahead of time
        self.fails({"cancels": broken}, ["failed in cancels()"], [paceline.simulate])

        with tempfile.NamedTemporaryFile("w", suffix=".txt") as script:
            script.write("3 leave 2\n")
            script.flush()
            policy = type("Bad", (KSync,), {"leave": broken, "name": "bad"})
            with self.assertRaisesRegex(paceline.PolicyError, "failed in leave"):
                paceline.simulate(policy=policy, model="none", workers=3, script=script.name)

    def test_the_referee(self) -> None:
        self.fails({"arrive": lambda self, view, arrival, plan: None}, ["bad"])
        self.fails({"arrive": lambda self, view, arrival, plan: plan.start(99)}, ["bad"])
        self.fails({"groups": lambda self, n, k: (3, 1)}, ["groups of 3 to 1"])

    def test_nothing_outlives_a_callback(self) -> None:
        kept = []

        def arrive(
            self: KSync, view: paceline.View, arrival: paceline.Arrival, plan: paceline.Plan
        ) -> None:
            kept.append((view, plan))
            KSync.arrive(self, view, arrival, plan)

        policy = type("Keeps", (KSync,), {"arrive": arrive, "name": "keeps"})
        paceline.simulate(policy=policy, model="none", workers=2, updates=3)
        view, plan = kept[0]
        uses: List[Any] = [lambda: view.version, lambda: view.worker(0), plan.take, plan.start_idle]
        for use in uses:
            with self.assertRaisesRegex(paceline.UsageError, "until the callback returns"):
                use()

    def test_bad_policies_are_refused(self) -> None:
        cases = [
            (type("A", (KSync,), {"name": ""}), "needs a name"),
            (type("B", (KSync,), {"name": "ksync"}), "already is a policy"),
            (
                type("C", (KSync,), {"name": "c", "options": {"k": paceline.options.Int(3)}}),
                "Count",
            ),
            (type("D", (KSync,), {"name": "d", "uses": {"speed"}}), "knobs are k and bound"),
        ]
        for policy, words in cases:
            with self.assertRaisesRegex(paceline.UsageError, words):
                paceline.simulate(policy=policy, model="none", workers=2, updates=3)
        with self.assertRaisesRegex(paceline.UsageError, "has no option 'speed'"):
            KSync(speed=3)

    def test_the_page(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertGreater(run_page("python.md"), 3)

    def test_indices_are_checked(self) -> None:
        seen = []

        def arrive(
            self: KSync, view: paceline.View, arrival: paceline.Arrival, plan: paceline.Plan
        ) -> None:
            for i in (-1, view.n_workers):
                try:
                    view.worker(i)
                except IndexError as e:
                    seen.append(str(e))
            KSync.arrive(self, view, arrival, plan)

        policy = type("Looks", (KSync,), {"arrive": arrive, "name": "looks"})
        paceline.simulate(policy=policy, model="none", workers=2, updates=1)
        self.assertIn("there is no worker -1", seen[0])


if __name__ == "__main__":
    unittest.main()
