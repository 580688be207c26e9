"""A policy in Python as the library sees it: a structure of the C contract and its callbacks."""

from __future__ import annotations

import ctypes as c
import random
from typing import Any, Dict, Optional, Type, Union

from .. import _structs
from .._text import option_text
from ..errors import PolicyError, UsageError
from ..options import Bound, Count
from ._base import Policy
from ._plan import Plan
from ._view import Arrival, View

__all__ = ["Binding"]

_FIELDS = {"k": 0, "bound": 8}  # of struct pl_knobs, which the conf begins with
_CONF = 16
_CANCELS = ("none", "stale", "all")


class Binding:
    """A policy as the library sees it: its structure, its callbacks, the objects of its runs."""

    def __init__(self, policy: Union[Policy, Type[Policy]], lib: Any) -> None:
        given = {} if isinstance(policy, type) else policy.given
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
                    f"policy '{self.kind.name}': option '{name}' must be a paceline.options.{kind.__name__}"
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
            size += (c.sizeof(option.ctype) + 7) // 8 * 8
        self._size = size

    def _make(self) -> None:
        kind, options = self.kind, self.kind.options
        self._opts = (_structs.Opt * (len(options) + 1))()
        for at, (name, option) in zip(self._opts, options.items()):
            at.name = name.encode()
            at.type = option.code
            setattr(at, "def", option_text(option.default).encode())
            at.help = (option.help or name).encode()
            at.min, at.max = option.min, option.max
            at.choices = option.choices.encode() if option.choices else None
            at.offset = self._offset[name]
        s = self.struct = _structs.PolicyStruct()
        s.id.name, s.id.brief = kind.name.encode(), kind.brief.encode()
        s.id.paper = kind.paper.encode()
        s.id.opts = c.cast(self._opts, c.POINTER(_structs.Opt))
        s.id.conf_size = self._size
        s.uses = sum({"k": 1, "bound": 2}[u] for u in kind.uses)
        s.by_batch, s.peers = kind.by_batch, kind.peers
        s.state_size = self._size + 8  # the conf, and a number that tells runs apart
        s.check = _structs.CHECK(self._check)
        s.knobs = c.cast(self._lib.pl_knobs_first, c.c_void_p).value
        s.groups = _structs.GROUPS(self._groups)
        s.cancels = _structs.CANCELS(self._cancels)
        s.arrive = _structs.ARRIVE(self._arrive)
        s.join = _structs.MOVE(self._join)
        if kind.leave is not Policy.leave:
            s.leave = _structs.MOVE(self._leave)
        s.timer = _structs.TIMER(self._timer)

    # --- objects -------------------------------------------------------------------------------

    def _object(self, conf: int) -> Policy:
        """An object with the options of a conf."""
        made = self.kind.__new__(self.kind)
        made.given = {}
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
            if phrase is not None and not isinstance(phrase, str):
                raise TypeError(f"it returned {type(phrase).__name__}, neither None nor a str")
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
            view.expire()
            plan.expire()
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
