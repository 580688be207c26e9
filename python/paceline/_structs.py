"""The structures and callbacks of the C library, one class per structure.

`python3 -m paceline._structs` prints the structures with the offsets of their fields; a test compares
them with the headers."""

from __future__ import annotations

import ctypes as c
import re
from typing import Any, Dict, List, Tuple

_TYPES: Dict[str, Any] = {
    "bool": c.c_bool,
    "char": c.c_char,
    "double": c.c_double,
    "int": c.c_int,
    "int64_t": c.c_int64,
    "size_t": c.c_size_t,
    "uint32_t": c.c_uint32,
    "uint64_t": c.c_uint64,
    "unsigned": c.c_uint,
    "void": None,
}


def declared(declarations: str) -> List[Tuple[str, Any]]:
    """The fields of a structure, declared as in C; other types are those of this file."""
    out = []
    for declaration in declarations.split(";")[:-1]:
        kind, names = declaration.split(None, 1)
        base = _TYPES[kind] if kind in _TYPES else globals()[kind]
        for star, name, n in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?", names):
            pointer = {"char": c.c_char_p, "void": c.c_void_p}.get(kind) or c.POINTER(base)
            out.append((name, pointer if star else base * int(n) if n else base))
    return out


class Number(c.Structure):
    """struct pl_number"""

    _fields_ = declared("char *name; double value;")


class Point(c.Structure):
    """struct pl_point"""

    _fields_ = declared(
        "double time; uint64_t updates; double epochs, loss, test_loss, test_accuracy; int k; "
        "double staleness; uint64_t unused; int workers, expected; uint64_t staleness_max; "
        "double samples, consensus; Number *more; int n_more;"
    )


class Decision(c.Structure):
    """struct pl_decision"""

    _fields_ = declared("char *what; int worker, peer; int64_t task, version; int row, col;")


class Happening(c.Structure):
    """struct pl_happening"""

    _fields_ = declared(
        "char *what; uint64_t time_ns; int worker; int64_t task; double loss; char *policy; "
        "int returned; Decision *decision; size_t n_decisions;"
    )


class WorkerReport(c.Structure):
    """struct pl_worker_report"""

    _fields_ = declared(
        "double compute, communication, idle, wasted; uint64_t tasks, unused; "
        "double task, usual, held_up; uint64_t last; double unfinished; int pace;"
    )


class ItemOption(c.Structure):
    """struct pl_item_option"""

    _fields_ = declared("char *name, *def, *help, accepts[120], *type;")


class Item(c.Structure):
    """struct pl_item"""

    _fields_ = declared(
        "char *family, *family_brief, *name, *brief, *paper, *when, command[200], detail[400], "
        "*facts; unsigned commands; size_t n_options; ItemOption *option;"
    )


class PlanRow(c.Structure):
    """struct pl_plan_row"""

    _fields_ = declared(
        "char *policy; int k; double time_per_update, staleness, error_floor, time_to_target; "
        "int exact, best, best_of_all, loose, loose_of_all; double regret, regret_of_all;"
    )


class Opt(c.Structure):
    """struct pl_opt"""

    _fields_ = declared(
        "char *name; int type; char *def, *help; double min, max; char *choices; "
        "size_t offset; unsigned flags;"
    )


class ListOf(c.Structure):
    """struct pl_list_of"""

    _fields_ = declared("int n; double at[16];")


class Entry(c.Structure):
    """struct pl_entry"""

    _fields_ = declared("char *name, *brief, *paper; Opt *opts; size_t conf_size; unsigned needs;")


class Worker(c.Structure):
    """struct pl_worker"""

    _fields_ = declared(
        "int state; uint64_t task, base, first, clock, since_ns; int n_contributed; "
        "bool deferred; int row, col, prev, next;"
    )


class Knobs(c.Structure):
    """struct pl_knobs"""

    _fields_ = declared("int k; uint64_t bound;")


class View(c.Structure):
    """struct pl_view"""

    _fields_ = declared(
        "uint64_t now_ns, version; int n_workers, n_alive, n_idle, n_taken, n_contributors; "
        "Knobs knobs; Worker *worker; int idle, busy; uint64_t timer_ns; "
        "void *rng, *replicas;"
    )


class Arrival(c.Structure):
    """struct pl_arrival"""

    _fields_ = declared("int worker; uint64_t lag; uint32_t samples; double loss;")


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

    _fields_ = declared(
        "Entry id; unsigned uses; bool by_batch, peers; size_t state_size; ROOM room; "
        "GRID grid; CHECK check; KNOBS knobs; GROUPS groups; CANCELS cancels; ARRIVE arrive; "
        "MOVE join, leave; TIMER timer; FETCHES fetches;"
    )


CANCELLED = c.CFUNCTYPE(c.c_int, c.c_void_p)


class Samples(c.Structure):
    """struct pl_samples"""

    _fields_ = declared(
        "uint32_t n, dim; void *x, *label, *target; uint64_t seed, batch_no; "
        "uint32_t worker, *row; int test; CANCELLED cancelled; void *token;"
    )


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

    _fields_ = declared(
        "size_t dim; int wants_data, classifies; void *ctx; INIT init; GRADIENT gradient; "
        "SCORE score;"
    )


class TensorInfo(c.Structure):
    """struct pl_tensor_info"""

    _fields_ = declared("char *name, *dtype; uint64_t shape[8]; int n_dims; void *data;")


class LoopStep(c.Structure):
    """struct pl_loop_step"""

    _fields_ = declared(
        "int what, worker; uint64_t task, version; double time, lr; void *w, *out; "
        "uint32_t n, *row; void *argument; size_t argument_size;"
    )


ON_WAITING = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class ClientConf(c.Structure):
    """struct pl_client_conf"""

    _fields_ = declared(
        "char *path; int role; double wait; size_t dim; uint64_t fingerprint; int steps; "
        "ON_WAITING waiting; void *waiting_ctx; int raw; char *token; int number; char *keys; "
        "int checks; char *job;"
    )


class ClientTask(c.Structure):
    """struct pl_client_task"""

    _fields_ = declared(
        "int worker; uint64_t task, version; size_t dim; void *w, *out, *w16, *out16; "
        "int wants; uint32_t steps, step; double lr, weight_decay; int checks;"
    )


ON_POINT = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Point))
ON_TICK = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Point))
ON_EVENT = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Happening))
ON_LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
ON_START = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
ON_ITEM = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Item))
ON_ROW = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(PlanRow))

# The structures by their names in C.
STRUCTS = {
    str(s.__doc__).split()[1]: s
    for s in list(globals().values())
    if isinstance(s, type) and issubclass(s, c.Structure)
}


if __name__ == "__main__":
    for struct, fields in STRUCTS.items():
        print(struct, c.sizeof(fields))
        for field in fields._fields_:
            print(struct, field[0], getattr(fields, field[0]).offset)
