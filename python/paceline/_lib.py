"""Finds and loads the C library, and declares its functions and structures.

Everything that depends on the binary interface is in this file: one line per function in
`_FUNCTIONS`, one class per structure. `python3 -m paceline._lib` prints the structures with the
offsets of their fields; a test compares them with the headers."""

from __future__ import annotations

import ctypes as c
import ctypes.util
import glob
import os
import threading
from typing import Any, Dict, List, Optional

from ._version import __version__

__all__ = ["library", "library_path", "load"]

# --- structures ---------------------------------------------------------------------------------


class Point(c.Structure):
    """struct pl_point"""

    _fields_ = [
        ("time", c.c_double),
        ("updates", c.c_uint64),
        ("epochs", c.c_double),
        ("loss", c.c_double),
        ("test_loss", c.c_double),
        ("test_accuracy", c.c_double),
        ("k", c.c_int),
        ("staleness", c.c_double),
        ("unused", c.c_uint64),
        ("workers", c.c_int),
        ("expected", c.c_int),
        ("staleness_max", c.c_uint64),
        ("samples", c.c_double),
        ("consensus", c.c_double),
        ("more", c.c_char_p),
    ]


class WorkerReport(c.Structure):
    """struct pl_worker_report"""

    _fields_ = [
        ("compute", c.c_double),
        ("communication", c.c_double),
        ("idle", c.c_double),
        ("wasted", c.c_double),
        ("tasks", c.c_uint64),
        ("unused", c.c_uint64),
        ("task", c.c_double),
        ("held_up", c.c_double),
        ("last", c.c_uint64),
        ("unfinished", c.c_double),
    ]


class ItemOption(c.Structure):
    """struct pl_item_option"""

    _fields_ = [
        ("name", c.c_char_p),
        ("def", c.c_char_p),
        ("help", c.c_char_p),
        ("accepts", c.c_char * 120),
        ("type", c.c_char_p),
    ]


class Item(c.Structure):
    """struct pl_item"""

    _fields_ = [
        ("family", c.c_char_p),
        ("family_brief", c.c_char_p),
        ("name", c.c_char_p),
        ("brief", c.c_char_p),
        ("paper", c.c_char_p),
        ("when", c.c_char_p),
        ("command", c.c_char * 200),
        ("detail", c.c_char * 400),
        ("commands", c.c_uint),
        ("n_options", c.c_size_t),
        ("option", c.POINTER(ItemOption)),
    ]


class PlanRow(c.Structure):
    """struct pl_plan_row"""

    _fields_ = [
        ("policy", c.c_char_p),
        ("k", c.c_int),
        ("time_per_update", c.c_double),
        ("staleness", c.c_double),
        ("error_floor", c.c_double),
        ("time_to_target", c.c_double),
        ("exact", c.c_int),
        ("best", c.c_int),
        ("best_of_all", c.c_int),
        ("loose", c.c_int),
        ("loose_of_all", c.c_int),
        ("regret", c.c_double),
        ("regret_of_all", c.c_double),
    ]


class Opt(c.Structure):
    """struct pl_opt"""

    _fields_ = [
        ("name", c.c_char_p),
        ("type", c.c_int),
        ("def", c.c_char_p),
        ("help", c.c_char_p),
        ("min", c.c_double),
        ("max", c.c_double),
        ("choices", c.c_char_p),
        ("offset", c.c_size_t),
        ("flags", c.c_uint),
    ]


class ListOf(c.Structure):
    """struct pl_list_of"""

    _fields_ = [("n", c.c_int), ("at", c.c_double * 16)]


class Entry(c.Structure):
    """struct pl_entry"""

    _fields_ = [
        ("name", c.c_char_p),
        ("brief", c.c_char_p),
        ("paper", c.c_char_p),
        ("opts", c.POINTER(Opt)),
        ("conf_size", c.c_size_t),
        ("needs", c.c_uint),
    ]


class Worker(c.Structure):
    """struct pl_worker"""

    _fields_ = [
        ("state", c.c_int),
        ("task", c.c_uint64),
        ("base", c.c_uint64),
        ("first", c.c_uint64),
        ("clock", c.c_uint64),
        ("since_ns", c.c_uint64),
        ("n_contributed", c.c_int),
        ("deferred", c.c_bool),
        ("row", c.c_int),
        ("col", c.c_int),
        ("prev", c.c_int),
        ("next", c.c_int),
    ]


class Knobs(c.Structure):
    """struct pl_knobs"""

    _fields_ = [("k", c.c_int), ("bound", c.c_uint64)]


class View(c.Structure):
    """struct pl_view"""

    _fields_ = [
        ("now_ns", c.c_uint64),
        ("version", c.c_uint64),
        ("n_workers", c.c_int),
        ("n_alive", c.c_int),
        ("n_idle", c.c_int),
        ("n_taken", c.c_int),
        ("n_contributors", c.c_int),
        ("knobs", Knobs),
        ("worker", c.POINTER(Worker)),
        ("idle", c.c_int),
        ("busy", c.c_int),
        ("timer_ns", c.c_uint64),
        ("rng", c.c_void_p),
        ("replicas", c.c_void_p),
    ]


class Arrival(c.Structure):
    """struct pl_arrival"""

    _fields_ = [
        ("worker", c.c_int),
        ("lag", c.c_uint64),
        ("samples", c.c_uint32),
        ("loss", c.c_double),
    ]


ROOM = c.CFUNCTYPE(c.c_size_t, c.c_void_p, c.c_int)
GRID = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int)
CHECK = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_int)
KNOBS = c.c_void_p  # returns a structure, which a callback of ctypes cannot: pl_knobs_first
# struct pl_sizes is two ints, which the ABIs of 64-bit machines return like one 64-bit number
GROUPS = c.CFUNCTYPE(c.c_uint64, c.c_void_p, c.c_int, c.c_int)
CANCELS = c.CFUNCTYPE(c.c_int, c.c_void_p)
ARRIVE = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(View), c.POINTER(Arrival), c.c_void_p)
MOVE = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(View), c.c_int, c.c_void_p)
TIMER = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(View), c.c_void_p)
FETCHES = c.CFUNCTYPE(c.c_bool, c.c_void_p)


class PolicyStruct(c.Structure):
    """struct pl_policy"""

    _fields_ = [
        ("id", Entry),
        ("uses", c.c_uint),
        ("by_batch", c.c_bool),
        ("peers", c.c_bool),
        ("state_size", c.c_size_t),
        ("room", ROOM),
        ("grid", GRID),
        ("check", CHECK),
        ("knobs", KNOBS),
        ("groups", GROUPS),
        ("cancels", CANCELS),
        ("arrive", ARRIVE),
        ("join", MOVE),
        ("leave", MOVE),
        ("timer", TIMER),
        ("fetches", FETCHES),
    ]


CANCELLED = c.CFUNCTYPE(c.c_int, c.c_void_p)


class Samples(c.Structure):
    """struct pl_samples"""

    _fields_ = [
        ("n", c.c_uint32),
        ("dim", c.c_uint32),
        ("x", c.c_void_p),
        ("label", c.c_void_p),
        ("target", c.c_void_p),
        ("seed", c.c_uint64),
        ("batch_no", c.c_uint64),
        ("worker", c.c_uint32),
        ("row", c.POINTER(c.c_uint32)),
        ("test", c.c_int),
        ("cancelled", CANCELLED),
        ("token", c.c_void_p),
    ]


INIT = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_void_p)
GRADIENT = c.CFUNCTYPE(
    c.c_int, c.c_void_p, c.c_void_p, c.POINTER(Samples), c.c_void_p, c.POINTER(c.c_double)
)
SCORE = c.CFUNCTYPE(
    None,
    c.c_void_p,
    c.c_void_p,
    c.POINTER(Samples),
    c.POINTER(c.c_double),
    c.POINTER(c.c_uint32),
)


class Function(c.Structure):
    """struct pl_function"""

    _fields_ = [
        ("dim", c.c_size_t),
        ("wants_data", c.c_int),
        ("classifies", c.c_int),
        ("ctx", c.c_void_p),
        ("init", INIT),
        ("gradient", GRADIENT),
        ("score", SCORE),
    ]


class TensorInfo(c.Structure):
    """struct pl_tensor_info"""

    _fields_ = [
        ("name", c.c_char_p),
        ("dtype", c.c_char_p),
        ("shape", c.c_uint64 * 8),
        ("n_dims", c.c_int),
        ("data", c.c_void_p),
    ]


class LoopStep(c.Structure):
    """struct pl_loop_step"""

    _fields_ = [
        ("what", c.c_int),
        ("worker", c.c_int),
        ("task", c.c_uint64),
        ("version", c.c_uint64),
        ("time", c.c_double),
        ("lr", c.c_double),
        ("w", c.c_void_p),
        ("out", c.c_void_p),
        ("n", c.c_uint32),
        ("row", c.POINTER(c.c_uint32)),
        ("argument", c.c_void_p),
        ("argument_size", c.c_size_t),
    ]


ON_WAITING = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class ClientConf(c.Structure):
    """struct pl_client_conf"""

    _fields_ = [
        ("path", c.c_char_p),
        ("role", c.c_int),
        ("wait", c.c_double),
        ("dim", c.c_size_t),
        ("fingerprint", c.c_uint64),
        ("steps", c.c_int),
        ("waiting", ON_WAITING),
        ("waiting_ctx", c.c_void_p),
        ("raw", c.c_int),
        ("token", c.c_char_p),
        ("number", c.c_int),
        ("keys", c.c_char_p),
        ("checks", c.c_int),
    ]


class ClientTask(c.Structure):
    """struct pl_client_task"""

    _fields_ = [
        ("worker", c.c_int),
        ("task", c.c_uint64),
        ("version", c.c_uint64),
        ("dim", c.c_size_t),
        ("w", c.c_void_p),
        ("out", c.c_void_p),
        ("w16", c.c_void_p),
        ("out16", c.c_void_p),
        ("wants", c.c_int),
        ("steps", c.c_uint32),
        ("step", c.c_uint32),
        ("lr", c.c_double),
        ("weight_decay", c.c_double),
        ("checks", c.c_int),
    ]


# The structures by their names in C.
STRUCTS = {
    s.__doc__.split()[1]: s  # type: ignore[union-attr]
    for s in (
        Point,
        WorkerReport,
        ItemOption,
        Item,
        PlanRow,
        Opt,
        ListOf,
        Entry,
        Worker,
        Knobs,
        View,
        Arrival,
        PolicyStruct,
        Samples,
        Function,
        TensorInfo,
        LoopStep,
        ClientConf,
        ClientTask,
    )
}

ON_POINT = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Point))
ON_TICK = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Point))
ON_LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
ON_ITEM = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Item))
ON_ROW = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(PlanRow))

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
    "point*": c.POINTER(Point),
    "point**": c.POINTER(c.POINTER(Point)),
    "report**": c.POINTER(c.POINTER(WorkerReport)),
    "view": c.POINTER(View),
    "policy": c.POINTER(PolicyStruct),
    "function": c.POINTER(Function),
    "u16*": c.POINTER(c.c_uint16),
    "step": c.POINTER(LoopStep),
    "tensors": c.POINTER(TensorInfo),
    "conf": c.POINTER(ClientConf),
    "task": c.POINTER(ClientTask),
    "on_point": ON_POINT,
    "on_tick": ON_TICK,
    "on_log": ON_LOG,
    "on_item": ON_ITEM,
    "on_row": ON_ROW,
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
pl_setup_log: void ptr on_log ptr
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


if __name__ == "__main__":
    for struct, fields in STRUCTS.items():
        print(struct, c.sizeof(fields))
        for field in fields._fields_:
            print(struct, field[0], getattr(fields, field[0]).offset)
