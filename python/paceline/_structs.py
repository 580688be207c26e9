"""The structures and callbacks of the C library, one class per structure.

`python3 -m paceline._structs` prints the structures with the offsets of their fields; a test compares
them with the headers."""

from __future__ import annotations

import ctypes as c


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


ON_POINT = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Point))
ON_TICK = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Point))
ON_LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
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
