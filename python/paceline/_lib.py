"""Finds and loads the C library, and declares its functions: one line each in `_FUNCTIONS`.

Everything else that depends on the binary interface is in `_structs.py`."""

from __future__ import annotations

import ctypes as c
import ctypes.util
import glob
import os
import threading
from typing import Any, Dict, List, Optional

from . import _structs
from ._version import __version__

__all__ = ["library", "library_path", "load"]

# --- functions ----------------------------------------------------------------------------------

_TYPES: Dict[str, Any] = {
    "void": None,
    "int": c.c_int,
    "bool": c.c_bool,
    "u32": c.c_uint32,
    "u64": c.c_uint64,
    "size": c.c_size_t,
    "real": c.c_double,
    "text": c.c_char_p,
    "ptr": c.c_void_p,
    "ptr*": c.POINTER(c.c_void_p),
    "int*": c.POINTER(c.c_int),
    "size*": c.POINTER(c.c_size_t),
    "point*": c.POINTER(_structs.Point),
    "point**": c.POINTER(c.POINTER(_structs.Point)),
    "report**": c.POINTER(c.POINTER(_structs.WorkerReport)),
    "view": c.POINTER(_structs.View),
    "policy": c.POINTER(_structs.PolicyStruct),
    "function": c.POINTER(_structs.Function),
    "u16*": c.POINTER(c.c_uint16),
    "step": c.POINTER(_structs.LoopStep),
    "tensors": c.POINTER(_structs.TensorInfo),
    "conf": c.POINTER(_structs.ClientConf),
    "task": c.POINTER(_structs.ClientTask),
    "on_point": _structs.ON_POINT,
    "on_tick": _structs.ON_TICK,
    "on_event": _structs.ON_EVENT,
    "on_log": _structs.ON_LOG,
    "on_start": _structs.ON_START,
    "on_item": _structs.ON_ITEM,
    "on_row": _structs.ON_ROW,
}

# name: result, then arguments
_FUNCTIONS = """
pl_version: text
pl_instruction_set: text
pl_status_text: text int
pl_setup_new: int ptr*
pl_setup_copy: int ptr ptr*
pl_setup_free: void ptr
pl_setup_set: int ptr text text
pl_setup_get: int ptr text ptr size
pl_setup_check: int ptr
pl_setup_method: int ptr ptr
pl_setup_why: text ptr
pl_setup_watch: void ptr on_point on_tick ptr
pl_setup_events: void ptr on_event ptr
pl_setup_log: void ptr on_log ptr
pl_setup_start: void ptr on_start ptr
pl_setup_function: int ptr function
pl_setup_policy: int ptr policy
pl_setup_rows: int ptr u32 u32 u16*
pl_setup_tensors: int ptr tensors size
pl_setup_layout: int ptr text
pl_save_tensors: int text tensors size text ptr size
pl_fingerprint: u64 tensors size
pl_setup_recorded: int ptr text
pl_simulate: int ptr ptr*
pl_train: int ptr ptr*
pl_replay: int ptr text ptr*
pl_eval: int ptr text ptr*
pl_work: int ptr text text
pl_keys: int text text text int ptr size
pl_rank: int
pl_ranks: int
pl_run_free: void ptr
pl_run_json: text ptr
pl_run_number: real ptr text
pl_run_text: text ptr text
pl_run_points: size ptr point**
pl_run_weights: ptr ptr size*
pl_run_workers: size ptr report**
pl_run_diverged: int ptr
pl_list: int text on_item ptr
pl_cores: int
pl_plan: int ptr on_row ptr
pl_take: void ptr real
pl_drop: void ptr
pl_defer: void ptr
pl_take_deferred: void ptr int real
pl_commit: void ptr real
pl_start: void ptr int int
pl_start_idle: void ptr view
pl_cancel: void ptr int
pl_restart_busy: void ptr view
pl_stop: void ptr
pl_timer: void ptr u64
pl_blend: void ptr int int real real
pl_pair: void ptr int int real
pl_push: void ptr int int real
pl_absorb: void ptr int
pl_fits: bool view int int
pl_weight: real view int
pl_draw_peer: int view int int
pl_rng_below: u32 ptr u32
pl_rng_unit: real ptr
pl_loop_open: int ptr size ptr*
pl_loop_close: void ptr
pl_loop_next: int ptr step
pl_loop_give: int ptr ptr
pl_loop_gradient: int ptr real int
pl_loop_score: int ptr real real real
pl_loop_stop: void ptr
pl_loop_run: int ptr ptr*
pl_loop_kernel: text ptr
pl_client_open: int conf ptr* ptr size
pl_client_close: void ptr
pl_client_server: text ptr
pl_client_pull: int ptr real task
pl_client_interrupt: void ptr
pl_client_cancelled: int ptr
pl_client_push: int ptr size u32 real
pl_client_absent: int ptr text size
pl_client_fail: int ptr
pl_client_report: int ptr text real
pl_client_set_lr: int ptr real
pl_client_checkpoint: int ptr
pl_client_load: int ptr
pl_client_pause: int ptr int
pl_client_save: int ptr
pl_client_end: int ptr
pl_client_why: text ptr
"""


def _declare(lib: c.CDLL, table: str) -> None:
    for line in table.strip().splitlines():
        name, signature = line.split(":")
        words = signature.split()
        function = getattr(lib, name)
        function.restype = _TYPES[words[0]]
        function.argtypes = [_TYPES[w] for w in words[1:]]


# --- finding the library ------------------------------------------------------------------------


def _candidates() -> List[str]:
    """Where the library may be, in the order in which it is looked for."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = []
    checkout = os.path.dirname(os.path.dirname(here))
    if os.path.exists(os.path.join(checkout, "include", "paceline.h")):
        found.append(os.path.join(checkout, "build", "libpaceline.so"))
    found.append(os.path.join(here, "libpaceline.so"))
    # installed as PREFIX/lib/python3/dist-packages/paceline
    prefix = here
    for _ in range(4):
        prefix = os.path.dirname(prefix)
    for folder in ("lib", "lib64", os.path.join("lib", "*-linux-gnu*")):
        found += sorted(glob.glob(os.path.join(prefix, folder, "libpaceline.so*")))
    return [f for f in found if os.path.exists(f)]


def library_path() -> str:
    """The path of the library, or its name if the dynamic linker has to find it.

    PACELINE_LIBRARY comes first, then build/ of the checkout that this package is part of, a copy
    inside the package, the prefix it was installed with, and the linker's own paths."""
    given = os.environ.get("PACELINE_LIBRARY")
    if given:
        return given
    found = _candidates()
    if found:
        return found[0]
    return ctypes.util.find_library("paceline") or "libpaceline.so." + __version__.split(".")[0]


def load(path: Optional[str] = None) -> c.CDLL:
    """Loads the library at `path`, or the one that `library_path` finds."""
    where = path or library_path()
    try:
        lib = c.CDLL(where)
    except OSError as e:
        raise ImportError(
            f"libpaceline cannot be loaded ({e}); build it with 'make build', or set "
            "PACELINE_LIBRARY to the path of libpaceline.so"
        ) from None
    lib.pl_version.restype = c.c_char_p
    version = lib.pl_version().decode()
    if version != __version__:
        raise ImportError(
            f"{where} is version {version}, but the Python package is version {__version__}; "
            "install both from the same version"
        )
    _declare(lib, _FUNCTIONS)
    return lib


_lock = threading.Lock()
_library: Optional[c.CDLL] = None


def library() -> c.CDLL:
    """The library, loaded once."""
    global _library
    with _lock:
        if _library is None:
            _library = load()
        return _library
