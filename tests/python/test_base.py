"""The package as a program uses it: options, results, errors, Ctrl-C."""

import gc
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
from typing import Any, Callable, Dict, List, Tuple, Type

import paceline
from paceline import _lib, _structs

QUADRATIC = dict(model="quadratic", workers=4, updates=60, seed=3)


class Base(unittest.TestCase):
    def test_structures_are_those_of_the_headers(self) -> None:
        """Offsets and sizes, as the C compiler sees them."""
        cc = os.environ.get("CC", "cc")
        include = os.path.join(os.environ["SOURCE_DIR"], "include")
        lines = []
        for name, struct in _structs.STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            for field in struct._fields_:
                lines.append(
                    f'printf("{name} {field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));'
                )
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "layout.c")
            with open(source, "w") as f:
                f.write('#include <stdio.h>\n#include "paceline_policy.h"\n')
                f.write('#include "paceline_client.h"\n#include "paceline_loop.h"\n')
                f.write("int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
            program = os.path.join(folder, "layout")
            subprocess.run([cc, "-I", include, source, "-o", program], check=True)
            expected = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        mine = subprocess.run(
            [sys.executable, "-m", "paceline._structs"], check=True, capture_output=True, text=True
        ).stdout
        self.assertGreater(len(expected), 500)
        self.assertEqual(expected.splitlines(), mine.splitlines())

    def test_every_public_function_is_declared(self) -> None:
        """A new function of the headers is declared, or named here with the reason."""
        unknown = {
            "pl_hint",  # of the command line
            "pl_report",  # paceline report
            "pl_predict",  # paceline predict
            "pl_setup_serve",  # the option dashboard of one run does it
            "pl_setup_start",  # headers and run.json are the program's
            "pl_setup_describe",
            "pl_write_run",
            "pl_write_file",
            "pl_start_part",  # policies in Python have no grid
        }
        include = os.path.join(os.environ["SOURCE_DIR"], "include")
        known = {line.split(":")[0] for line in _lib._FUNCTIONS.strip().splitlines()}
        known.add("pl_knobs_first")
        for header in ("paceline.h", "paceline_client.h", "paceline_policy.h", "paceline_loop.h"):
            with open(os.path.join(include, header)) as f:
                text = re.sub(r"\s+", " ", f.read())
            found = re.findall(r"PL_API [^;{]*?\b(pl_\w+)\(", text)
            self.assertTrue(found)
            for name in found:
                if not name.startswith("pl_client_"):  # paceline.torch's
                    self.assertIn(name, known | unknown)

    def test_results(self) -> None:
        points: List[paceline.Point] = []
        run = paceline.simulate(method="async", on_point=points.append, **QUADRATIC)
        self.assertEqual(run["updates"], 60)
        self.assertEqual(run.json["updates"], 60)
        self.assertEqual(run.text("method"), "async")
        self.assertIsNone(run.text("nothing"))
        self.assertTrue(math.isnan(run["nothing"]))
        self.assertEqual(repr(run.points), repr(points))  # NaN is not equal to itself
        self.assertTrue(0 < points[-1].loss < points[0].loss)
        self.assertFalse(run.diverged)
        weights = run.weights
        del run
        gc.collect()
        assert weights is not None
        self.assertEqual(weights.format, "f")
        self.assertTrue(all(math.isfinite(w) for w in weights))
        self.assertIsNone(paceline.simulate(model="none", updates=5).weights)

    def test_runs_are_those_of_the_program(self) -> None:
        program = os.environ["PACELINE"]
        line = [program, "simulate", "--model", "quadratic", "--workers", "4", "--updates", "60"]
        line += ["--seed", "3", "--method", "gap-aware", "--json"]
        import json

        theirs = json.loads(subprocess.run(line, check=True, capture_output=True).stdout)
        self.assertIn("id", theirs.pop("run"))  # what only this run has
        self.assertEqual(paceline.simulate(method="gap-aware", **QUADRATIC).json, theirs)

    def test_options(self) -> None:
        setup = paceline.Setup(lr=0.25, lr_schedule="constant", respawn=True, workers=None)
        self.assertEqual(setup.get("lr"), "0.25")
        self.assertEqual(setup.get("lr-schedule"), "constant")
        self.assertEqual(setup.get("respawn"), "yes")
        self.assertEqual(setup.get("workers"), paceline.Setup().get("workers"))
        for option in paceline.catalog("option"):
            setup.get(option.name)

    def test_the_catalog_has_what_a_method_is_and_needs(self) -> None:
        methods = {item.name: item for item in paceline.catalog("method")}
        for name, item in methods.items():
            self.assertEqual(item.method, paceline.Setup(method=name).method())
            self.assertEqual(item.method["needs"], item.needs)
            for family in "policy tuner correct reduce optim local filter".split():
                known = {i.name: i for i in paceline.catalog(family)}
                self.assertTrue(item.method[family])
                for part in item.method["parts"][family]:
                    self.assertLessEqual(set(known[part].needs), set(item.needs), name)
        self.assertIn("matrix", methods["dsgd"].needs)
        moving = {name for name, item in methods.items() if item.method["keeps_moving"]}
        self.assertEqual({"async", "downpour", "dana", "easgd"} & moving, {"dana", "easgd"})
        chain = paceline.Setup(method="sync", reduce="nnm:f=1+trimmed:f=1", workers=7).method()
        self.assertEqual(chain["parts"]["reduce"], ["nnm", "trimmed"])
        self.assertIn("whole-vectors", {n for i in paceline.catalog("attack") for n in i.needs})

    def test_errors(self) -> None:
        cases: List[Tuple[Dict[str, Any], Type[Exception], str]] = [
            (dict(wrkers=3), paceline.UsageError, "did you mean 'workers'"),
            (dict(learning_rate=0.1), paceline.UsageError, "use lr="),
            (dict(momentum=0.9), paceline.UsageError, 'use optim="momentum:beta=0.9"'),
            (dict(policy="async"), paceline.UsageError, 'use method="async"'),
            (
                dict(loss=1),
                paceline.UsageError,
                "use target_loss= to end at a loss; model= decides",
            ),
            (dict(workers="many"), paceline.UsageError, "many"),
            (dict(method="no-such"), paceline.UsageError, "no-such"),
            (dict(policy=3), paceline.UsageError, "paceline.Policy"),
            (dict(model="none", events="/no/such/folder/x", updates=1), paceline.FileError, "/no"),
            (dict(model="mlp\0", updates=1), paceline.UsageError, "zero byte"),
        ]
        for options, kind, words in cases:
            with self.assertRaises(kind, msg=options) as caught:
                paceline.simulate(**options)
            self.assertIn(words, str(caught.exception))
            self.assertIsInstance(caught.exception, paceline.Error)
        with self.assertRaises(ValueError):
            paceline.catalog("no-such")

    def test_an_option_error_has_one_traceback(self) -> None:
        wrong: List[Dict[str, Any]] = [dict(bad_option=1), dict(lr="fast"), dict(method="no-such")]
        for options in wrong:
            with self.assertRaises(paceline.UsageError) as caught:
                paceline.train(**options)
            e = caught.exception
            lines = "".join(traceback.format_exception(type(e), e, e.__traceback__))
            self.assertNotIn("During handling", lines)
            self.assertNotIn("direct cause", lines)

    def test_an_exception_in_a_callback_ends_the_run(self) -> None:
        def point(p: Any) -> None:
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            paceline.simulate(method="async", on_point=point, **dict(QUADRATIC, updates=10**9))

    def test_real_runs(self) -> None:
        run = paceline.train(method="sync", model="quadratic", workers=2, updates=40)
        assert run is not None
        self.assertEqual(run["updates"], 40)
        self.assertEqual(len(run.workers), 2)
        self.assertEqual(run.workers[0].tasks, 40)

    def test_ctrl_c(self) -> None:
        """SIGINT ends a run that would take forever, simulated or real, within seconds."""
        # a shell starts what runs in the background with this signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        functions: List[Callable[..., Any]] = [paceline.simulate, paceline.train]
        for function in functions:
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                function(method="async", model="quadratic", workers=2, updates=10**12)
            timer.join()
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_recordings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.rec")
            paceline.simulate(method="abs", record=path, **QUADRATIC)
            run = paceline.Setup().replay(path)
            self.assertEqual(run["replay.same"], 1)

    def test_a_callback_changes_the_folder(self) -> None:
        """A run writes its files where it was started, and no others."""
        self.addCleanup(os.chdir, os.getcwd())
        names = ["events", "h.json", "ld/history.json", "ld/run.json", "log", "record"]
        options = dict(events="events", history="h.json", log="log", log_dir="ld", record="record")
        options.update(checkpoint="ck")
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "other/ld"))
            os.chdir(os.path.join(folder, "other"))
            for name in names:
                with open(name, "w") as f:
                    f.write("mine")
            os.chdir(folder)

            def point(p: Any) -> None:
                os.chdir(os.path.join(folder, "other"))

            setup = paceline.Setup(on_point=point)
            setup.set(**QUADRATIC, **options)
            setup.train()
            self.assertEqual(os.getcwd(), os.path.realpath(os.path.join(folder, "other")))
            for key, value in options.items():
                self.assertEqual(setup.get(key), value)
            for name in names:
                with open(name) as f:
                    self.assertEqual(f.read(), "mine", name)
            self.assertFalse(os.path.exists("ck"))
            os.chdir(folder)
            self.assertEqual(sorted(os.listdir()), sorted(["other", *options.values()]))

    def test_plan(self) -> None:
        rows = paceline.plan(workers=4)
        self.assertEqual(sum(r.best_of_all for r in rows), 1)

    def test_setups_are_freed(self) -> None:
        import weakref

        setup = paceline.Setup(model="none", updates=2)
        setup.simulate()
        gone = weakref.ref(setup)
        del setup
        self.assertIsNone(gone())

    def test_every_status_has_a_class(self) -> None:
        from paceline.errors import error

        with open(os.path.join(os.environ["SOURCE_DIR"], "include", "paceline.h")) as f:
            statuses = re.findall(r"X\(PL_E\w+, (-\d+),", f.read())
        self.assertGreater(len(statuses), 7)
        for status in statuses:
            self.assertIsNot(type(error(int(status), "")), paceline.Error, status)

    def test_version(self) -> None:
        with open(os.path.join(os.environ["SOURCE_DIR"], "include", "paceline.h")) as f:
            self.assertIn(f'#define PL_VERSION "{paceline.__version__}"', f.read())

    def test_a_missing_library_is_reported(self) -> None:
        code = "import paceline; paceline.catalog()"
        env = dict(os.environ, PACELINE_LIBRARY="/no/such/library.so")
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("PACELINE_LIBRARY", out.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
