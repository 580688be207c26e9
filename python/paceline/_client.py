"""A worker or an evaluator of a run whose server is another process: pl_client_* as a class."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _lib, _structs
from .errors import UsageError, error

__all__ = ["Client", "EVALUATOR", "SLICE", "STEPS", "Tensors", "WAIT", "WORKER", "patience"]

WORKER, EVALUATOR = range(2)
STEPS = 1  # what a task wants: steps of the worker's own optimizer, not a gradient
SLICE = 0.25  # seconds after which a wait looks at signals and at the server
WAIT = 60.0  # seconds for which a client waits for its server
_SILENT = 4.0  # seconds for an address that does not answer, if others follow
_CANCELLED, _TIMED_OUT, _INTERRUPTED = -6, -9, -10
_HUNG_UP = 2


def patience(path: str) -> float:
    """For how long one try to join may wait: all addresses of a list get their turn."""
    return SLICE + _SILENT * path.count(",")


class Tensors:
    """Names, types, shapes and addresses of tensors, as the library takes them."""

    def __init__(self, tensors: Sequence[Tuple[str, str, Sequence[int], int]]) -> None:
        self._lib = _lib.library()
        self.n = len(tensors)
        self.infos = (_structs.TensorInfo * max(1, self.n))()
        for info, (name, dtype, shape, address) in zip(self.infos, tensors):
            if len(shape) > 8:
                raise UsageError(f"'{name}' has {len(shape)} dimensions; at most 8 are possible")
            info.name, info.dtype = name.encode(), dtype.encode()
            info.n_dims, info.data = len(shape), address or None
            for i, length in enumerate(shape):
                info.shape[i] = length

    def fingerprint(self) -> int:
        return int(self._lib.pl_fingerprint(self.infos, self.n))

    def save(self, path: str, layout: str) -> None:
        why = c.create_string_buffer(400)
        status = self._lib.pl_save_tensors(
            path.encode(), self.infos, self.n, layout.encode() or None, why, len(why)
        )
        if status:
            raise error(status, why.value.decode("utf-8", "replace"))


class Client:
    """One seat in a run. It belongs to the process that opened it; a forked child cannot use it."""

    def __init__(
        self,
        path: str,
        *,
        role: int = WORKER,
        wait: float = 0,
        dim: int = 0,
        fingerprint: int = 0,
        steps: bool = False,
        token: Optional[str] = None,
        number: int = 0,
        checks: bool = False,
        keys: Optional[str] = None,
        job: str = "",
    ) -> None:
        self._handle: Any = None
        self._lib = _lib.library()
        self._pid = os.getpid()
        self.task = _structs.ClientTask()
        conf = _structs.ClientConf(
            path=path.encode(),
            role=role,
            wait=wait,
            dim=dim,
            fingerprint=fingerprint,
            steps=steps,
            token=token.encode() if token else None,
            number=number,
            checks=checks,
            keys=keys.encode() if keys else None,
            job=job.encode() if job else None,
        )
        handle = c.c_void_p()
        why = c.create_string_buffer(400)
        status = self._lib.pl_client_open(c.byref(conf), c.byref(handle), why, len(why))
        if status:
            message = why.value.decode("utf-8", "replace")
            raise error(status, message or self._lib.pl_status_text(status).decode())
        self._handle = handle
        self._task = c.byref(self.task)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the run."""
        handle, self._handle = self._handle, None
        # a forked child has a copy of the object only
        if handle and os.getpid() == self._pid:
            self._lib.pl_client_close(handle)

    def _opened(self) -> Any:
        """The library's object; raises an error if this is not a seat any more."""
        if self._handle is None:
            raise UsageError("this client is closed")
        if os.getpid() != self._pid:
            raise UsageError(
                "a client belongs to the process that opened it; open another one here"
            )
        return self._handle

    @property
    def server(self) -> Dict[str, Any]:
        """What the server says about the run."""
        return dict(json.loads(self._lib.pl_client_server(self._opened())))

    def _check(self, status: int) -> None:
        if status:
            why = self._lib.pl_client_why(self._opened()).decode("utf-8", "replace")
            raise error(status, why or self._lib.pl_status_text(status).decode())

    def pull(self, seconds: float) -> Optional[bool]:
        """Waits for the next task or, as an evaluator, for a newer version: at most this long.
        Returns True if `task` has it, False if nothing came, None if the run has ended."""
        status = self._lib.pl_client_pull(self._opened(), seconds, self._task)
        if status == 0:
            return True
        if status in (_TIMED_OUT, _INTERRUPTED):
            return False
        if status == _CANCELLED:
            return None
        self._check(status)
        return None

    def cancelled(self) -> bool:
        """Whether the current task is no longer wanted."""
        return bool(self._lib.pl_client_cancelled(self._opened()))

    def hung_up(self) -> bool:
        """Whether the server has hung up, after which it may use the memory of `task` again."""
        return int(self._lib.pl_client_cancelled(self._opened())) == _HUNG_UP

    def push(self, n: int, samples: int, loss: float, absent: Optional[bytes] = None) -> None:
        """Sends the result; `absent` has a byte per tensor, which is 1 if the result lacks it."""
        if absent is not None:
            self._check(self._lib.pl_client_absent(self._opened(), absent, len(absent)))
        self._check(self._lib.pl_client_push(self._opened(), n, samples, loss))

    def report(self, name: str, value: float) -> None:
        self._check(self._lib.pl_client_report(self._opened(), name.encode(), value))

    def set_lr(self, lr: float) -> None:
        self._check(self._lib.pl_client_set_lr(self._opened(), lr))

    def checkpoint(self) -> None:
        self._check(self._lib.pl_client_checkpoint(self._opened()))

    def pause(self, yes: bool) -> None:
        """This worker leaves its task alone from now on, or continues."""
        self._check(self._lib.pl_client_pause(self._opened(), yes))

    def load(self) -> None:
        """The server takes the file "load" in its folder `exchange`, which it removes."""
        self._check(self._lib.pl_client_load(self._opened()))

    def save(self) -> None:
        """The server writes the state of its optimizer to "saved" in its folder `exchange`."""
        self._check(self._lib.pl_client_save(self._opened()))

    def end(self) -> None:
        self._check(self._lib.pl_client_end(self._opened()))
