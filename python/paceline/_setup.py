"""What to run."""

from __future__ import annotations

import contextlib
import ctypes as c
import json
import logging
import os
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

from . import _lib, _structs
from ._events import Event, event
from ._interrupts import Interrupts
from ._progress import Progress
from ._record import record
from ._run import PlanRow, Point, Run
from ._text import as_keywords, from_c, option_text
from .errors import UsageError, error
from .policy import Policy
from .policy._binding import Binding

__all__ = ["Setup"]

T = TypeVar("T")

# What a run writes to more than once, or removes if it fails.
_WRITTEN = ("checkpoint", "events", "exchange", "history", "log", "log-dir", "record", "resume")
_LEVELS = {-1: logging.DEBUG, 0: logging.INFO, 1: logging.WARNING}  # enum pl_level


def _weakly(method: Callable[..., T]) -> Callable[..., T]:
    """A callback that does not keep the object alive, so that it is freed when its last user lets
    go. The library calls it only while the object lives."""
    at = weakref.WeakMethod(method)

    def call(*args: Any) -> T:
        function = at()
        assert function is not None
        return function(*args)

    return call


class Setup:
    """What to run. Every option of the command line is a keyword argument: `updates=400` is
    `--updates 400`, `lr_schedule="cosine"` is `--lr-schedule cosine`, `respawn=True` is
    `--respawn yes`. `policy` may also be a `Policy`, or a subclass of it.

    `on_point` is called with a `Point` after every evaluation; `on_event` with an `Event` whenever
    a worker joins, leaves or returns a result, and the rest of what `events=` writes; `on_log` with
    a level of `logging` and a sentence, so it may be the `log` of a logger. An exception that one of
    them raises ends the run.

    >>> setup = paceline.Setup(method="sync", model="quadratic", updates=50)
    >>> setup.get("updates"), setup.simulate()
    ('50', <paceline.Run sync: 50 updates>)"""

    def __init__(
        self,
        *,
        on_point: Optional[Callable[[Point], None]] = None,
        on_event: Optional[Callable[[Event], None]] = None,
        on_log: Optional[Callable[[int, str], None]] = None,
        **options: Any,
    ) -> None:
        self._lib = _lib.library()
        self._handle: Any = c.c_void_p()
        self._kept: List[Any] = []  # what the library points to
        self._failure: Optional[BaseException] = None
        self._policies: List[Any] = []
        self._interrupts = Interrupts()
        self._on_point, self._on_event, self._on_log = on_point, on_event, on_log
        self._progress: Optional[Progress] = None
        self.raise_error(self._lib.pl_setup_new(c.byref(self._handle)))
        self._watch()
        self.set(**options)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._lib.pl_setup_free(handle)

    @property
    def handle(self) -> Any:
        """The library's object, for functions of its C interface."""
        return self._handle

    @property
    def ending(self) -> bool:
        """Whether the run is about to end because of an exception or Ctrl-C."""
        return self._failure is not None or self._interrupts.caught

    def raise_error(self, status: int) -> None:
        """Raises what went wrong in a call to the library that returned this; nothing if 0."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        for policy in self._policies:
            policy.raise_failure()
        if status != 0:
            why = as_keywords(from_c(self._lib.pl_setup_why(self._handle)))
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
            self.raise_error(self._lib.pl_setup_set(self._handle, name.encode(), text.encode()))
        return self

    def get(self, key: str) -> str:
        """The value of an option: what was set, or the default."""
        buffer = c.create_string_buffer(512)
        name = key.rstrip("_").replace("_", "-").encode()
        self.raise_error(self._lib.pl_setup_get(self._handle, name, buffer, 512))
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
        self.raise_error(self._lib.pl_setup_policy(self._handle, c.byref(bound.struct)))
        return bound.spec

    def set_function(self, function: _structs.Function) -> None:
        """The model is a function of the program's; see struct pl_function of include/paceline.h."""
        self._kept.append(function)
        self.raise_error(self._lib.pl_setup_function(self._handle, c.byref(function)))

    def check(self) -> None:
        """Checks everything that a run would check, and loads the data, without running."""
        self.raise_error(self._lib.pl_setup_check(self._handle))

    def method(self) -> Dict[str, Any]:
        """What the method consists of: pl_setup_method of include/paceline.h."""
        text = c.c_char_p()
        self.raise_error(self._lib.pl_setup_method(self._handle, c.byref(text)))
        return dict(json.loads(text.value or b""))

    # --- callbacks -----------------------------------------------------------------------------

    def fail(self, failure: BaseException) -> None:
        """Ends the run with an exception; for code that the run calls."""
        if self._failure is None:
            self._failure = failure

    def _point(self, _: Any, point: Any) -> None:
        try:
            if self._progress:
                self._progress.point(Point.of(point[0]))
            if self._on_point:
                self._on_point(Point.of(point[0]))
        except BaseException as e:
            self.fail(e)

    def _event(self, _: Any, happening: Any) -> None:
        try:
            if self._on_event:
                self._on_event(event(happening[0]))
        except BaseException as e:
            self.fail(e)

    def follow(self, progress: Progress) -> None:
        """Hands every point of the run to `progress`, until its end."""
        self._progress = progress
        self._kept.append(_structs.ON_START(_weakly(self._start)))
        self._lib.pl_setup_start(self._handle, self._kept[-1], None)

    def _start(self, _: Any, header: bytes, run: bytes) -> None:
        try:
            if self._progress:
                self._progress.begin(from_c(run))
        except BaseException as e:
            self.fail(e)

    def _tick(self, _: Any, point: Any) -> int:
        try:
            if self._progress:
                self._progress.tick(point[0])
        except BaseException as e:
            self.fail(e)
        return int(self.ending or any(p.failure is not None for p in self._policies))

    def _say(self, _: Any, level: int, sentence: bytes) -> None:
        try:
            if self._on_log:
                self._on_log(_LEVELS[level], from_c(sentence))
        except BaseException as e:
            self.fail(e)

    def _watch(self) -> None:
        watch = (
            _structs.ON_POINT(_weakly(self._point)),
            _structs.ON_TICK(_weakly(self._tick)),
            _structs.ON_LOG(_weakly(self._say)),
        )
        self._kept += watch
        self._lib.pl_setup_watch(self._handle, watch[0], watch[1], None)
        self._lib.pl_setup_log(self._handle, watch[2], None)
        if self._on_event:
            self._kept.append(_structs.ON_EVENT(_weakly(self._event)))
            self._lib.pl_setup_events(self._handle, self._kept[-1], None)

    # --- running -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _absolute(self) -> Iterator[None]:
        """Makes the paths that a run writes to absolute, because the program may change its folder
        meanwhile."""
        given = {name: self.get(name) for name in _WRITTEN}
        given = {name: path for name, path in given.items() if path not in ("", "-", "auto")}
        try:
            self.set(**{name: os.path.abspath(path) for name, path in given.items()})
            yield
        finally:
            for name, path in given.items():
                self._lib.pl_setup_set(self._handle, name.encode(), path.encode())

    def _run(self, function: Callable[..., int], *args: Any) -> Optional[Run]:
        with self._absolute():
            return self._run_there(function, *args)

    def _run_there(self, function: Callable[..., int], *args: Any) -> Optional[Run]:
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
        self.raise_error(status)
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
            rows.append(record(PlanRow, row[0]))

        self.raise_error(self._lib.pl_plan(self._handle, _structs.ON_ROW(each), None))
        return rows
