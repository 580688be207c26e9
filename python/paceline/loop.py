"""A simulation in a loop of one's own: the library decides, the program computes.

The interface of include/paceline_loop.h for programs that keep their vectors themselves, on a GPU
for example. `paceline.simulate` uses it for PyTorch models on CUDA."""

from __future__ import annotations

import ctypes as c
from typing import Any, Optional, Sequence

from . import _lib, _structs
from ._run import Run
from ._setup import Setup
from .errors import UsageError

__all__ = ["COMMIT", "END", "GRADIENT", "LOAD", "Loop", "MEMORY", "SCORE", "set_rows"]

END, MEMORY, LOAD, GRADIENT, COMMIT, SCORE = range(6)


def set_rows(
    setup: Setup, n_train: int, n_test: int = 0, labels: Optional[Sequence[int]] = None
) -> None:
    """Data that the program keeps: the library draws which rows a mini-batch consists of. See the
    example of `Loop`."""
    for name, n, least in (("n_train", n_train, 1), ("n_test", n_test, 0)):
        if not least <= n < 2**32:
            raise UsageError(f"{name} is {n}, but must be a number from {least} to {2**32 - 1}")
    array = None
    if labels is not None:
        if len(labels) != n_train or not all(0 <= label < 2**16 for label in labels):
            raise UsageError(f"labels must be {n_train} numbers from 0 to {2**16 - 1}")
        array = (c.c_uint16 * n_train)(*labels)
    setup.raise_error(_lib.library().pl_setup_rows(setup.handle, n_train, n_test, array))


class Loop:
    """One simulation. `next()` returns what to do; the vectors are addresses that the program gave
    with `give`. Use it in a `with` statement. docs/simulate-torch.md has a whole program.

    >>> setup = paceline.Setup(method="async", workers=2, updates=3)
    >>> paceline.loop.set_rows(setup, 100)
    >>> with paceline.loop.Loop(setup, dim=10) as loop:
    ...     loop.next().what == paceline.loop.MEMORY
    True"""

    def __init__(self, setup: Setup, dim: int) -> None:
        self._setup, self._lib = setup, _lib.library()
        self._handle: Any = c.c_void_p()
        self.step = _structs.LoopStep()
        self._at = c.byref(self.step)
        setup.raise_error(self._lib.pl_loop_open(setup.handle, dim, c.byref(self._handle)))

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Frees the simulation; a `with` statement does it."""
        handle, self._handle = self._handle, None
        if handle:
            self._lib.pl_loop_close(handle)

    def _opened(self) -> Any:
        """The library's object; raises an error after `close`."""
        if not self._handle:
            raise UsageError("this loop is closed")
        return self._handle

    def next(self) -> _structs.LoopStep:
        """What to do next: `step.what` is MEMORY, LOAD, GRADIENT, COMMIT, SCORE or END."""
        self._setup.raise_error(self._lib.pl_loop_next(self._opened(), self._at))
        return self.step

    def give(self, address: int) -> None:
        """Memory for one vector, filled with zeros. It must live as long as the loop."""
        self._setup.raise_error(self._lib.pl_loop_give(self._opened(), address))

    def gradient(self, loss: float, finite: bool = True) -> None:
        """Answers GRADIENT. The loss is NaN if unknown."""
        self._setup.raise_error(self._lib.pl_loop_gradient(self._opened(), loss, int(finite)))

    def score(
        self, loss: float, test_loss: float = float("nan"), accuracy: float = float("nan")
    ) -> None:
        """Answers SCORE; NaN if unknown."""
        self._setup.raise_error(self._lib.pl_loop_score(self._opened(), loss, test_loss, accuracy))

    def stop(self) -> None:
        """Ends the run: what follows is its last evaluation, and END."""
        self._lib.pl_loop_stop(self._opened())

    def run(self) -> Run:
        """The results, after END."""
        out = c.c_void_p()
        self._setup.raise_error(self._lib.pl_loop_run(self._opened(), c.byref(out)))
        return Run(out)

    def kernel(self) -> str:
        """The source of the function that carries out COMMIT."""
        return str(self._lib.pl_loop_kernel(self._opened()).decode())
