"""Policies in Python: when is the model updated, and which workers compute next?

A policy is a subclass of `Policy`. It decides in the simulator and in real runs, through the same
interface as a policy in C (include/paceline_policy.h), and the same referee checks what it plans:

    class KSync(paceline.Policy):
        name = "my-ksync"
        options = {"k": paceline.Count("all", 1, 1000000, "workers an update waits for")}
        uses = {"k"}

        def arrive(self, view, arrival, plan):
            if arrival.lag > 0:
                plan.drop()
                plan.start(arrival.worker)
                return
            plan.take()
            if view.n_taken + 1 >= view.k or view.n_busy == 0:
                plan.commit()
                plan.start_idle()
                plan.restart_busy()

    run = paceline.simulate(policy=KSync(k=6), workers=8, model="none", updates=100)
"""

from __future__ import annotations

import ctypes as c
import random
from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Iterator, List, Optional, Set, Tuple, Type, Union

from . import _lib
from .errors import PolicyError, UsageError

__all__ = [
    "Arrival",
    "Bool",
    "Bound",
    "Choice",
    "Count",
    "Int",
    "Plan",
    "Policy",
    "Real",
    "Text",
    "View",
    "Worker",
]

NO_BOUND = 2**64 - 1
NO_TIMER = 2**64 - 1
GONE, IDLE, BUSY = 0, 1, 2

# --- options --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """One option of a policy. Its value is an attribute of the policy, under its name."""

    default: Any
    min: float = 0
    max: float = 0
    help: str = ""

    _type = 0
    _ctype: ClassVar[Any] = c.c_int64
    _choices: ClassVar[Optional[str]] = None

    def read(self, address: int) -> Any:
        return self._ctype.from_address(address).value


class Int(Option):
    """A whole number."""


class Real(Option):
    """A number."""

    _type, _ctype = 1, c.c_double


class Bool(Option):
    """yes or no."""

    _type, _ctype = 2, c.c_bool


@dataclass(frozen=True)
class Choice:
    """One of several words, "a|b|c"; the attribute is the word."""

    default: str
    choices: str
    help: str = ""

    _type = 3
    _ctype = c.c_int
    min = max = 0

    @property
    def _choices(self) -> str:
        return self.choices

    def read(self, address: int) -> str:
        return self.choices.split("|")[c.c_int.from_address(address).value]


class Count(Option):
    """A number of workers: "6", "75%" or "all"."""

    _type, _ctype = 4, c.c_int


class Bound(Option):
    """A whole number or "inf", which is `paceline.policy.NO_BOUND`."""

    _type, _ctype = 5, c.c_uint64


@dataclass(frozen=True)
class Text:
    """A text of at most 511 bytes."""

    default: str = ""
    help: str = ""

    _type = 6
    _ctype = c.c_char * 512
    _choices = None
    min = max = 0

    def read(self, address: int) -> str:
        return str(self._ctype.from_address(address).value.decode())


AnyOption = Union[Option, Choice, Text]

# --- what a policy sees ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrival:
    """A task that came back."""

    worker: int
    lag: int  # commits since its base version: the staleness
    samples: int
    loss: float  # NaN if unknown


@dataclass(frozen=True)
class Worker:
    """One worker, as it was when it was asked for."""

    state: str  # "gone", "idle" or "busy"
    task: int
    base: int
    first: int
    clock: int
    since_ns: int
    n_contributed: int
    deferred: bool


class _Borrowed:
    """Something that the library owns and that is valid until the callback returns."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    def _use(self) -> Any:
        if self._pointer is None:
            raise UsageError("a view and a plan are valid only until the callback returns")
        return self._pointer


class View(_Borrowed):
    """The run as a policy sees it. Workers are numbered from 0."""

    def __init__(self, pointer: Any, lib: Any) -> None:
        super().__init__(pointer)
        self._lib = lib

    def _at(self) -> Any:
        return self._use()[0]

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the run began; virtual if simulated."""
        return int(self._at().now_ns)

    @property
    def version(self) -> int:
        """Of the model: the number of commits so far."""
        return int(self._at().version)

    @property
    def n_workers(self) -> int:
        """All workers, including those that are gone."""
        return int(self._at().n_workers)

    @property
    def n_alive(self) -> int:
        return int(self._at().n_alive)

    @property
    def n_idle(self) -> int:
        return int(self._at().n_idle)

    @property
    def n_busy(self) -> int:
        v = self._at()
        return int(v.n_alive - v.n_idle)

    @property
    def n_taken(self) -> int:
        """Members of the open group, without an arrival that is about to be taken."""
        return int(self._at().n_taken)

    @property
    def n_contributors(self) -> int:
        """Workers that are there and have contributed to the open group."""
        return int(self._at().n_contributors)

    @property
    def k(self) -> int:
        """How many contributions close a group; a tuner may change it."""
        return int(self._at().knobs.k)

    @property
    def bound(self) -> int:
        """A lag of this or more is too stale; `NO_BOUND` if none is."""
        return int(self._at().knobs.bound)

    @property
    def timer_ns(self) -> Optional[int]:
        """When timer() will be called, or None."""
        at = int(self._at().timer_ns)
        return None if at == NO_TIMER else at

    def worker(self, i: int) -> Worker:
        v = self._at()
        if not 0 <= i < v.n_workers:
            raise IndexError(f"there is no worker {i}; there are {v.n_workers}, from 0")
        w = v.worker[i]
        return Worker(
            ("gone", "idle", "busy")[w.state],
            w.task,
            w.base,
            w.first,
            w.clock,
            w.since_ns,
            w.n_contributed,
            w.deferred,
        )

    def alive(self, i: int) -> bool:
        return self.worker(i).state != "gone"

    def _chain(self, first: int) -> Iterator[int]:
        v = self._at()
        while first >= 0:
            yield first
            first = v.worker[first].next

    @property
    def idle(self) -> List[int]:
        """The idle workers, in order of arrival."""
        return list(self._chain(self._at().idle))

    @property
    def busy(self) -> List[int]:
        """The busy workers, in order of start: the oldest base is first."""
        return list(self._chain(self._at().busy))

    def random(self) -> float:
        """Uniform in [0, 1). The same for the same seed and events."""
        return float(self._lib.pl_rng_unit(self._at().rng))

    def random_below(self, n: int) -> int:
        """Uniform in 0, …, n - 1. The same for the same seed and events."""
        if not 0 < n < 2**32:
            raise UsageError(f"random_below needs a number from 1 to 2**32 - 1, not {n}")
        return int(self._lib.pl_rng_below(self._at().rng, n))

    def fits(self, worker: int, peer: int) -> bool:
        """Whether there is room for an exchange between two workers with models of their own."""
        self._pair(worker, peer)
        return bool(self._lib.pl_fits(self._use(), worker, peer))

    def weight(self, worker: int) -> float:
        """The push-sum weight of a worker with a model of its own: 1 at first."""
        self._pair(worker, worker)
        return float(self._lib.pl_weight(self._use(), worker))

    def draw_peer(self, worker: int, other_half: bool = False) -> Optional[int]:
        """A random other worker that is alive, or None."""
        self.worker(worker)
        peer = int(self._lib.pl_draw_peer(self._use(), worker, int(other_half)))
        return None if peer < 0 else peer

    def _pair(self, worker: int, peer: int) -> None:
        self.worker(worker), self.worker(peer)
        if not self._at().replicas:
            raise UsageError("workers have their own models only if the policy sets peers = True")


class Plan(_Borrowed):
    """What a policy decides. Actions are carried out in the order in which they are written."""

    def __init__(self, pointer: Any, view: View, lib: Any) -> None:
        super().__init__(pointer)
        self._view, self._lib = view, lib

    def take(self, factor: float = 1) -> None:
        """The arrival joins the open group, multiplied by `factor`."""
        self._lib.pl_take(self._use(), factor)

    def drop(self) -> None:
        """The arrival is not used, and counted as dropped."""
        self._lib.pl_drop(self._use())

    def defer(self) -> None:
        """The arrival is taken later, by `take_deferred`; its worker is idle until then."""
        self._lib.pl_defer(self._use())

    def take_deferred(self, worker: int, factor: float = 1) -> None:
        self._lib.pl_take_deferred(self._use(), worker, factor)

    def commit(self, factor: float = 1) -> None:
        """The open group becomes an update; `factor` multiplies the learning rate."""
        self._lib.pl_commit(self._use(), factor)

    def start(self, worker: int, keep: bool = False) -> None:
        """An idle worker gets its next task, on the newest version, or on the one it has."""
        self._lib.pl_start(self._use(), worker, int(keep))

    def start_idle(self) -> None:
        """Starts every idle worker on the newest version."""
        self._lib.pl_start_idle(self._use(), self._view._use())

    def cancel(self, worker: int) -> None:
        """The task of a busy worker is void; the worker is idle."""
        self._lib.pl_cancel(self._use(), worker)

    def restart_busy(self) -> None:
        """Cancels every busy worker and starts it again on the newest version."""
        self._lib.pl_restart_busy(self._use(), self._view._use())

    def stop(self) -> None:
        """The run ends."""
        self._lib.pl_stop(self._use())

    def timer(self, when_ns: Optional[int]) -> None:
        """Sets the timer to a time that is not before now; None clears it."""
        when = NO_TIMER if when_ns is None else when_ns
        if not 0 <= when <= NO_TIMER:
            raise UsageError(f"the timer needs a time in nanoseconds, not {when_ns}")
        self._lib.pl_timer(self._use(), when)

    def blend(self, worker: int, peer: int, a: float, b: float) -> None:
        """x = a x + b x_peer"""
        self._lib.pl_blend(self._use(), worker, peer, a, b)

    def pair(self, worker: int, peer: int, a: float) -> None:
        """Both models move by `a` of the way towards each other."""
        self._lib.pl_pair(self._use(), worker, peer, a)

    def push(self, worker: int, peer: int, share: float) -> None:
        """Push-sum: a share of the model and its weight goes to the inbox of the peer."""
        self._lib.pl_push(self._use(), worker, peer, share)

    def absorb(self, worker: int) -> None:
        """What is in the inbox joins the worker's model."""
        self._lib.pl_absorb(self._use(), worker)


# --- what a policy is -----------------------------------------------------------------------------


class Policy:
    """Subclass it, give it a `name`, and define `arrive`, and where needed `join`, `leave` and
    `timer`. Every run has an object of its own, so attributes are state that belongs to one run;
    set them in `begin`. Attributes are not part of a checkpoint: after `--resume` they begin again.

    Decide by the event, the view and the object's attributes alone: no clock, no random numbers
    but those of the view. Otherwise a replay differs from its recording."""

    name: str = ""
    brief: str = "a policy in Python"
    paper: str = ""
    options: Dict[str, AnyOption] = {}
    uses: Set[str] = set()  # the knobs that it reads: "k", "bound"; their options have these names
    by_batch: bool = False  # K counts mini-batches and may exceed the number of workers
    peers: bool = False  # there is no common model: every worker has its own

    def __init__(self, **options: Any) -> None:
        for key in options:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(f"policy '{self.name}' has no option '{key}'; it has: {known}")
        self._given = options

    def begin(self) -> None:
        """Called once before the first event of a run, when the options are set."""

    def check(self, n_workers: int) -> Optional[str]:
        """None if the options are valid, otherwise a phrase for the error message."""
        return None

    def groups(self, n_workers: int, k: int) -> Tuple[int, int]:
        """The smallest and the largest group that it commits while all workers are there."""
        return (k, k)

    def cancels(self) -> str:
        """Which busy workers a commit may cancel: "none", "stale" or "all"."""
        return "none"

    def arrive(self, view: View, arrival: Arrival, plan: Plan) -> None:
        """A task came back: take it, drop it or defer it."""
        raise NotImplementedError(f"policy '{self.name}' needs arrive()")

    def join(self, view: View, worker: int, plan: Plan) -> None:
        """A worker joined. By default it is started on the newest version."""
        plan.start(worker)

    def leave(self, view: View, worker: int, plan: Plan) -> None:
        """A worker left; its task is lost. Define it if a worker ever waits for another."""

    def timer(self, view: View, plan: Plan) -> None:
        """The timer has expired."""


_FIELDS = {"k": 0, "bound": 8}  # of struct pl_knobs, which the conf begins with
_CONF = 16
_CANCELS = ("none", "stale", "all")


class _Bound:
    """A policy as the library sees it: its structure, its callbacks, the objects of its runs."""

    def __init__(self, policy: Union[Policy, Type[Policy]], lib: Any) -> None:
        given = {} if isinstance(policy, type) else policy._given
        self.kind: Type[Policy] = policy if isinstance(policy, type) else type(policy)
        self._lib = lib
        self.failure: Optional[PolicyError] = None
        self._objects: Dict[int, Policy] = {}
        self._phrase = b""
        self._check_class()
        self._layout()
        self._make()
        self.spec = self.kind.name
        if given:
            from ._run import option_text

            parts = ",".join(f"{k}={option_text(v)}" for k, v in given.items())
            self.spec += ":" + parts

    def _check_class(self) -> None:
        for knob in self.kind.uses:
            if knob not in _FIELDS:
                raise UsageError(f"policy '{self.kind.name}' uses '{knob}'; knobs are k and bound")
        for name, kind in (("k", Count), ("bound", Bound)):
            option = self.kind.options.get(name)
            if option is not None and not isinstance(option, kind):
                raise UsageError(
                    f"policy '{self.kind.name}': option '{name}' must be a paceline.{kind.__name__}"
                )

    def _layout(self) -> None:
        """Every option has a field in the conf; k and bound have those of struct pl_knobs."""
        self._offset: Dict[str, int] = {}
        size = _CONF
        for name, option in self.kind.options.items():
            if name in _FIELDS:
                self._offset[name] = _FIELDS[name]
                continue
            self._offset[name] = size
            size += (c.sizeof(option._ctype) + 7) // 8 * 8
        self._size = size

    def _make(self) -> None:
        kind, options = self.kind, self.kind.options
        from ._run import option_text

        self._opts = (_lib.Opt * (len(options) + 1))()
        for at, (name, option) in zip(self._opts, options.items()):
            at.name = name.encode()
            at.type = option._type
            setattr(at, "def", option_text(option.default).encode())
            at.help = (option.help or name).encode()
            at.min, at.max = option.min, option.max
            at.choices = option._choices.encode() if option._choices else None
            at.offset = self._offset[name]
        s = self.struct = _lib.PolicyStruct()
        s.id.name, s.id.brief = kind.name.encode(), kind.brief.encode()
        s.id.paper = kind.paper.encode()
        s.id.opts = c.cast(self._opts, c.POINTER(_lib.Opt))
        s.id.conf_size = self._size
        s.uses = sum({"k": 1, "bound": 2}[u] for u in kind.uses)
        s.by_batch, s.peers = kind.by_batch, kind.peers
        s.state_size = self._size + 8  # the conf, and a number that tells runs apart
        s.check = _lib.CHECK(self._check)
        s.knobs = c.cast(self._lib.pl_knobs_first, c.c_void_p).value
        s.groups = _lib.GROUPS(self._groups)
        s.cancels = _lib.CANCELS(self._cancels)
        s.arrive = _lib.ARRIVE(self._arrive)
        s.join = _lib.MOVE(self._join)
        if kind.leave is not Policy.leave:
            s.leave = _lib.MOVE(self._leave)
        s.timer = _lib.TIMER(self._timer)

    # --- objects -------------------------------------------------------------------------------

    def _object(self, conf: int) -> Policy:
        """An object with the options of a conf."""
        made = self.kind.__new__(self.kind)
        made._given = {}
        for name, option in self.kind.options.items():
            setattr(made, name, option.read(conf + self._offset[name]))
        return made

    def _of_run(self, state: int) -> Policy:
        """The object of the run whose state this is; a state that is zero is new."""
        tag = c.c_uint64.from_address(state + self._size)
        if tag.value not in self._objects:
            tag.value = random.SystemRandom().getrandbits(63) | 1
            made = self._object(state)
            self._objects[tag.value] = made
            try:
                made.begin()
            except BaseException as e:
                self._failed(e, "begin")
        return self._objects[tag.value]

    def forget(self) -> None:
        """The run has ended."""
        self._objects.clear()

    def raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def _failed(self, e: BaseException, where: str) -> None:
        if self.failure is not None:
            return
        what = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
        self.failure = PolicyError(f"policy '{self.kind.name}' failed in {where}(): {what}")
        self.failure.__cause__ = e

    # --- callbacks -----------------------------------------------------------------------------

    def _check(self, conf: int, n_workers: int) -> Optional[int]:
        try:
            phrase = self._object(conf).check(n_workers)
        except BaseException as e:
            self._failed(e, "check")
            phrase = "check() failed"
        if phrase is None:
            return None
        self._phrase = phrase.encode()
        return c.cast(c.c_char_p(self._phrase), c.c_void_p).value

    def _groups(self, conf: int, n_workers: int, k: int) -> int:
        try:
            least, most = self._object(conf).groups(n_workers, k)
            return (int(least) & 0xFFFFFFFF) | (int(most) & 0xFFFFFFFF) << 32
        except BaseException as e:
            self._failed(e, "groups")
            return 1 | 1 << 32

    def _cancels(self, conf: int) -> int:
        try:
            return _CANCELS.index(self._object(conf).cancels())
        except BaseException as e:
            self._failed(e, "cancels")
            return 0

    def _call(self, where: str, state: int, view_at: Any, plan_at: int, *event: Any) -> None:
        """One event. An exception stops the run and is raised when the library has returned."""
        view = View(view_at, self._lib)
        plan = Plan(plan_at, view, self._lib)
        try:
            mine = self._of_run(state)
            if self.failure is None:
                getattr(mine, where)(view, *event, plan)
        except BaseException as e:
            self._failed(e, where)
        finally:
            view._pointer = plan._pointer = None
        if self.failure is not None:
            self._lib.pl_stop(plan_at)

    def _arrive(self, state: int, view: Any, arrival: Any, plan: int) -> None:
        a = arrival[0]
        self._call("arrive", state, view, plan, Arrival(a.worker, a.lag, a.samples, a.loss))

    def _join(self, state: int, view: Any, worker: int, plan: int) -> None:
        self._call("join", state, view, plan, worker)

    def _leave(self, state: int, view: Any, worker: int, plan: int) -> None:
        self._call("leave", state, view, plan, worker)

    def _timer(self, state: int, view: Any, plan: int) -> None:
        self._call("timer", state, view, plan)


def bind(policy: Union[Policy, Type[Policy]], lib: Any) -> _Bound:
    """A policy as a structure of the library."""
    return _Bound(policy, lib)
