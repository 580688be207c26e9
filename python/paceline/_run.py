"""Setups and runs: what to run, and what came out of it."""

from __future__ import annotations

import ctypes as c
import json
import signal
import threading
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, List, Optional

from . import _lib
from ._text import from_c, option_text
from .errors import UsageError, error
from .policy import Policy
from .policy._binding import Binding

__all__ = ["Item", "ItemOption", "PlanRow", "Point", "Run", "Setup", "WorkerReport", "catalog"]


# --- results ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """The state of a run at one moment. Unknown numbers are NaN."""

    time: float
    updates: int
    epochs: float
    loss: float
    test_loss: float
    test_accuracy: float
    k: int
    staleness: float
    unused: int
    workers: int
    expected: int
    staleness_max: int
    samples: float
    consensus: float
    more: str = ""  # other numbers of an evaluator, "name=value name=value"; for on_point only


@dataclass(frozen=True)
class WorkerReport:
    """Where one worker's time went, in seconds; for real runs."""

    compute: float
    communication: float
    idle: float
    wasted: float
    tasks: int
    unused: int
    task: float
    held_up: float
    last: int
    unfinished: float


@dataclass(frozen=True)
class ItemOption:
    """An option of an item: its name, its default, a sentence, and what it accepts."""

    name: str
    default: str
    help: str
    accepts: str


@dataclass(frozen=True)
class Item:
    """Something that a spec can name: a method, a policy, a delay law, an option, …"""

    family: str
    name: str
    brief: str
    paper: str
    when: str  # of a method: when to use it
    command: str  # a command that tries it
    detail: str
    options: List[ItemOption]


@dataclass(frozen=True)
class PlanRow:
    """The planner's prediction for one variant at one K."""

    policy: str
    k: int
    time_per_update: float
    staleness: float
    error_floor: float
    time_to_target: float
    exact: bool
    best: bool
    best_of_all: bool
    regret: float  # above 1.2, plan cannot know the best K of this variant
    regret_of_all: float  # likewise, of all variants


def _copy(kind: Any, struct: Any, **given: Any) -> Any:
    names = [f.name for f in fields(kind) if f.name != "more"]
    return kind(*(getattr(struct, name) for name in names), **given)


class Run:
    """The results of a finished run.

    `run["staleness.mean"]` is one number; `run.json` has all of them; `run.points` are the
    evaluations, in order of time, and `run.weights` the final model."""

    def __init__(self, handle: c.c_void_p) -> None:
        self._lib = _lib.library()
        self._handle = handle

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._lib.pl_run_free(handle)

    def __getitem__(self, key: str) -> float:
        """One number: "time", "updates", "tasks.applied", "staleness.mean", … NaN if unknown."""
        return float(self._lib.pl_run_number(self._handle, key.encode()))

    def text(self, key: str) -> Optional[str]:
        """ "method", a column ("policy", "tuner", …), "replay" or "trouble"; None if unknown."""
        value = self._lib.pl_run_text(self._handle, key.encode())
        return None if value is None else from_c(value)

    @property
    def json(self) -> Dict[str, Any]:
        """The object that `paceline simulate --json` prints."""
        return dict(json.loads(from_c(self._lib.pl_run_json(self._handle))))

    @property
    def points(self) -> List[Point]:
        """The evaluations, in order of time."""
        at = c.POINTER(_lib.Point)()
        n = self._lib.pl_run_points(self._handle, c.byref(at))
        return [_copy(Point, at[i]) for i in range(n)]

    @property
    def workers(self) -> List[WorkerReport]:
        """One report per worker of a real run; empty if simulated."""
        at = c.POINTER(_lib.WorkerReport)()
        n = self._lib.pl_run_workers(self._handle, c.byref(at))
        return [_copy(WorkerReport, at[i]) for i in range(n)]

    @property
    def weights(self) -> Optional[memoryview]:
        """The final weights, not copied; None if only timing was simulated.

        `numpy.asarray(run.weights)` and `torch.frombuffer(run.weights, dtype=torch.float32)` share
        its memory."""
        n = c.c_size_t()
        at = self._lib.pl_run_weights(self._handle, c.byref(n))
        if not at:
            return None
        array = (c.c_float * n.value).from_address(at)
        array._run = self  # type: ignore[attr-defined] # the memory lives as long as the run
        return memoryview(array).cast("B").cast("f")

    def numpy(self) -> Any:
        """The final weights as a NumPy array, not copied."""
        import numpy

        if self.weights is None:
            raise UsageError("the run has no weights: only timing was simulated")
        return numpy.asarray(self.weights)

    @property
    def diverged(self) -> bool:
        """Whether the run ended because no more finite gradients arrived."""
        return bool(self._lib.pl_run_diverged(self._handle))

    def __repr__(self) -> str:
        return f"<paceline.Run {self.text('method')}: {self['updates']:.0f} updates>"


# --- Ctrl-C -------------------------------------------------------------------------------------


class Interrupts:
    """Ctrl-C while the library runs: the run ends in good order, then KeyboardInterrupt is raised.

    An exception that a signal handler raises on its way into a callback of ctypes would be lost,
    so the handler only takes a note here."""

    def __init__(self) -> None:
        self.caught = False
        self._before: Any = None

    def _handle(self, number: int, frame: Any) -> None:
        self.caught = True

    def __enter__(self) -> "Interrupts":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


# --- setups -------------------------------------------------------------------------------------


class Setup:
    """What to run. Every option of the command line is a keyword argument: `updates=400` is
    `--updates 400`, `lr_schedule="cosine"` is `--lr-schedule cosine`, `respawn=True` is
    `--respawn yes`. `policy` may also be a `Policy`, or a subclass of it.

    `on_point` is called with a `Point` after every evaluation; `on_log` with a boolean (whether it
    is a warning) and a sentence. An exception that one of them raises ends the run."""

    def __init__(
        self,
        *,
        on_point: Optional[Callable[[Point], None]] = None,
        on_log: Optional[Callable[[bool, str], None]] = None,
        **options: Any,
    ) -> None:
        self._lib = _lib.library()
        self._handle: Any = c.c_void_p()
        self._kept: List[Any] = []  # what the library points to
        self._failure: Optional[BaseException] = None
        self._policies: List[Any] = []
        self._interrupts = Interrupts()
        self._on_point, self._on_log = on_point, on_log
        self._check(self._lib.pl_setup_new(c.byref(self._handle)))
        self._watch()
        self.set(**options)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._lib.pl_setup_free(handle)

    def _check(self, status: int) -> None:
        """Raises what went wrong in the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        for policy in self._policies:
            policy.raise_failure()
        if status != 0:
            why = from_c(self._lib.pl_setup_why(self._handle))
            raise error(status, why or from_c(self._lib.pl_status_text(status)))

    def set(self, **options: Any) -> "Setup":
        """Sets options, and returns the setup. None leaves an option as it is."""
        for key, value in options.items():
            if value is None:
                continue
            if key == "policy" and not isinstance(value, str):
                value = self.add_policy(value)
            name = key.rstrip("_").replace("_", "-")
            text = option_text(value)
            if "\0" in text:
                raise UsageError(f"the value of {name} contains a zero byte")
            self._check(self._lib.pl_setup_set(self._handle, name.encode(), text.encode()))
        return self

    def get(self, key: str) -> str:
        """The value of an option: what was set, or the default."""
        buffer = c.create_string_buffer(512)
        name = key.rstrip("_").replace("_", "-").encode()
        self._check(self._lib.pl_setup_get(self._handle, name, buffer, 512))
        return from_c(buffer.value)

    def add_policy(self, policy: Any) -> str:
        """Registers a `Policy` (an object or a class); returns the spec that selects it."""
        kind = policy if isinstance(policy, type) else type(policy)
        if not issubclass(kind, Policy):
            raise UsageError(
                f"policy must be the name of a policy or a paceline.Policy, not {policy!r:.60}"
            )
        bound = Binding(policy, self._lib)
        self._policies.append(bound)
        self._check(self._lib.pl_setup_policy(self._handle, c.byref(bound.struct)))
        return bound.spec

    def check(self) -> None:
        """Checks everything that a run would check, and loads the data, without running."""
        self._check(self._lib.pl_setup_check(self._handle))

    # --- callbacks -----------------------------------------------------------------------------

    def fail(self, failure: BaseException) -> None:
        """Ends the run with an exception; for code that the run calls."""
        if self._failure is None:
            self._failure = failure

    def _point(self, _: Any, point: Any) -> None:
        try:
            if self._on_point:
                self._on_point(_copy(Point, point[0], more=from_c(point[0].more)))
        except BaseException as e:
            self.fail(e)

    def _tick(self, _: Any, point: Any) -> int:
        ends = self._failure is not None or self._interrupts.caught
        return int(ends or any(p.failure is not None for p in self._policies))

    def _say(self, _: Any, warning: int, sentence: bytes) -> None:
        try:
            if self._on_log:
                self._on_log(bool(warning), from_c(sentence))
        except BaseException as e:
            self.fail(e)

    def _watch(self) -> None:
        # the callbacks refer to the setup weakly, so that it is freed when its last user lets go
        import weakref

        me = weakref.ref(self)

        def point(ctx: Any, at: Any) -> None:
            me()._point(ctx, at)  # type: ignore[union-attr]

        def tick(ctx: Any, at: Any) -> int:
            return me()._tick(ctx, at)  # type: ignore[union-attr]

        def say(ctx: Any, warning: int, sentence: bytes) -> None:
            me()._say(ctx, warning, sentence)  # type: ignore[union-attr]

        watch = (_lib.ON_POINT(point), _lib.ON_TICK(tick), _lib.ON_LOG(say))
        self._kept += watch
        self._lib.pl_setup_watch(self._handle, watch[0], watch[1], None)
        self._lib.pl_setup_log(self._handle, watch[2], None)

    # --- running -------------------------------------------------------------------------------

    def _run(self, function: Callable[..., int], *args: Any) -> Optional[Run]:
        out = c.c_void_p()
        self._failure = None
        self._interrupts = Interrupts()
        with self._interrupts:
            status = function(self._handle, *args, c.byref(out))
        run = Run(out) if status == 0 and out else None
        for policy in self._policies:
            policy.forget()
        if self._failure is None and self._interrupts.caught:
            raise KeyboardInterrupt
        self._check(status)
        return run

    def simulate(self) -> Run:
        """Runs on a virtual clock."""
        run = self._run(self._lib.pl_simulate)
        assert run is not None
        return run

    def train(self) -> Optional[Run]:
        """Runs with real workers, which the library starts ("spawn"), or which join ("listen").

        None on every rank but the first, if mpirun or srun started several."""
        return self._run(self._lib.pl_train)

    def replay(self, path: str) -> Run:
        """Repeats a recorded run; `run.text("replay")` says whether it was the same."""
        run = self._run(self._lib.pl_replay, path.encode())
        assert run is not None
        return run

    def eval(self, path: str) -> Run:
        """Evaluates a checkpoint: a file, or the latest in a folder."""
        run = self._run(self._lib.pl_eval, path.encode())
        assert run is not None
        return run

    def plan(self) -> List[PlanRow]:
        """What theory predicts for each variant and K."""
        rows: List[PlanRow] = []

        def each(_: Any, row: Any) -> None:
            r = row[0]
            rows.append(
                PlanRow(
                    from_c(r.policy),
                    r.k,
                    r.time_per_update,
                    r.staleness,
                    r.error_floor,
                    r.time_to_target,
                    bool(r.exact),
                    bool(r.best),
                    bool(r.best_of_all),
                    r.regret,
                    r.regret_of_all,
                )
            )

        self._check(self._lib.pl_plan(self._handle, _lib.ON_ROW(each), None))
        return rows


def catalog(family: Optional[str] = None) -> List[Item]:
    """Everything that a spec can name, family by family: "method", "policy", "delay", … and
    "option", the options of a run. None lists all families."""
    items: List[Item] = []

    def each(_: Any, item: Any) -> None:
        i = item[0]
        options = [
            ItemOption(from_c(o.name), from_c(getattr(o, "def")), from_c(o.help), from_c(o.accepts))
            for o in (i.option[n] for n in range(i.n_options))
        ]
        items.append(
            Item(
                from_c(i.family),
                from_c(i.name),
                from_c(i.brief),
                from_c(i.paper),
                from_c(i.when),
                from_c(i.command),
                from_c(i.detail),
                options,
            )
        )

    lib = _lib.library()
    status = lib.pl_list(family.encode() if family else None, _lib.ON_ITEM(each), None)
    if status:
        raise UsageError(f"there is no family '{family}'; paceline.list() shows all of them")
    return items
