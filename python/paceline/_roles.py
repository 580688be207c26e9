"""The rank of this process among those that were started together, and their server's socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket as sockets
import stat
import struct
import tempfile
import threading
from dataclasses import dataclass, field, replace
from typing import Dict, Mapping, NamedTuple, Optional, Set, Tuple, Union

from .errors import UsageError

__all__ = ["Role", "elsewhere", "find", "joined", "next_run"]


class Store(NamedTuple):
    """A store of PyTorch."""

    host: str
    port: int
    own: bool  # rank 0 makes it; otherwise it is the launcher's
    prefix: str  # of keys in it


_MPI = "mpi:"
_BEFORE_KEY = re.compile(",(?=(?:rank|workers|socket|restarted|listen)=)")  # paths have commas, too
_ADDRESSES = 8  # of rank 0's machine, at most
_SIOCGIFADDR = 0x8915  # of Linux: the IPv4 address of an interface


@dataclass(frozen=True)
class Role:
    """Rank 0 starts the server, which listens at `socket`; all ranks are workers. If the socket is
    the address of a server (https://HOST:PORT), no rank starts one, and the rank is -1 until the
    server has given this process a number. If it is "mpi:", the server is rank 0 of the MPI job.

    >>> paceline.torch.Role(1, 4, "/tmp/mine/run.socket").serves
    False"""

    rank: int
    world_size: int
    socket: str
    alone: bool = False  # no launcher: others may be started by hand
    restarted: bool = False  # in place of a process that has failed
    listen: str = ""  # HOST:PORT at rank 0 where workers on other machines join
    host: str = ""  # of rank 0 of a launcher: its addresses for other machines
    # how rank 0 hands keys to other machines: a store, or a folder; None: PACELINE_KEYS names them
    channel: Union[Store, str, None] = None
    # the name of the run, if a launcher's variables tell it; the server refuses others
    job: str = ""
    name: str = ""  # of the run in this process
    follows: bool = False  # in a process group whose first rank is the worker
    only: bool = False  # PACELINE is the address of its server, which has one run
    init: str = ""  # the process only writes its initial weights to this file
    token: str = field(default="", repr=False)  # for the server's `requests`: it may change the run

    def __post_init__(self) -> None:
        # the program may change its folder during the run
        if self.socket and not self.elsewhere:
            object.__setattr__(self, "socket", os.path.abspath(self.socket))

    @property
    def elsewhere(self) -> bool:
        """Whether the server was started by somebody else, perhaps on another machine."""
        return self.socket.startswith(("http://", "https://", _MPI))

    @property
    def over_mpi(self) -> bool:
        """Whether the server is rank 0 of the MPI job that this process is a rank of."""
        return self.socket == _MPI

    @property
    def serves(self) -> bool:
        """Whether this process starts the server."""
        return self.rank == 0 and not self.elsewhere and not self.follows


# rank, number of processes, number of them on this machine, what the processes of one job share
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_PORT")),
    (
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_ID", "PMI_JOBID")),
    (
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",  # only steps that srun started have it
        "SLURM_STEP_TASKS_PER_NODE",
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ),
)


def _number(env: Mapping[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    return int(text) if text.isdigit() and len(text) < 10 else None


def _tasks_on_first(env: Mapping[str, str], name: str) -> Optional[int]:
    """The number of processes on the first machine: of "4", "2(x2)" or "3,1", the last two of which
    are several machines, as Slurm writes them."""
    found = re.match(r"(\d{1,9})(\(x\d+\))?(,|$)", env.get(name, ""))
    return int(found.group(1)) if found else None


def elsewhere(address: str) -> bool:
    """Whether this is the address of another machine: no socket here can have it."""
    try:
        kind, _, _, _, at = sockets.getaddrinfo(address, 0, type=sockets.SOCK_DGRAM)[0]
        with sockets.socket(kind, sockets.SOCK_DGRAM) as s:
            s.bind(at)
    except sockets.gaierror:
        return False  # unknown
    except OSError:
        return True
    return False


def _addresses() -> str:
    """Those of this machine that others may reach, with commas between them."""
    found = []
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as s:
        for _, name in sockets.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                got = fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found.append(sockets.inet_ntoa(got[20:24]))
    return ",".join([a for a in found if not a.startswith("127.")][:_ADDRESSES])


def _several(
    launcher: str, size: int, local: Optional[int], env: Mapping[str, str]
) -> Optional[str]:
    """Says on which machines the processes are; None if all are on this one."""
    where = None
    nodes = _number(env, "SLURM_STEP_NUM_NODES") or _number(env, "SLURM_NNODES")
    master = env.get("MASTER_ADDR", "")
    if local is not None and local != size:
        where = f"{local} of them on one machine"
    elif launcher != "torchrun" and local is None and nodes is not None and nodes > 1:
        where = f"on {nodes} machines"
    elif launcher == "torchrun" and local is None and master and elsewhere(master):
        where = f"and MASTER_ADDR={master[:60]} is another machine"
    return where and f"{launcher} started {size} processes, {where}"


def _channel(
    launcher: str, job: str, port: int, where: str, env: Mapping[str, str]
) -> Union[Store, str]:
    """How rank 0 hands keys to the others: over the store of torchrun, or one on the next port if
    torchrun has no store; with srun and mpirun through the folder they start in, which must be
    shared."""
    if launcher == "torchrun":
        agents = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        at = _number(env, "MASTER_PORT") if agents else None
        return Store(env["MASTER_ADDR"], at or port + 1, at is None, f"paceline-{job}")
    if not job:
        raise UsageError(
            f"{where}, and no variable names the job; set PACELINE_KEYS to a folder of certificates "
            "that all of them can read ('paceline keys --out DIR --host ADDRESS')"
        )
    return os.path.join(env.get("PWD") or os.getcwd(), f".paceline-keys-{job}")


def _first_host(nodes: str) -> str:
    """The machine of rank 0: the first of a list as Slurm writes it, "lab[07-12,20],login"."""
    first = re.match(r"(\[[^]]*\]|[^][,])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first.group()) if first else ""


def _across(launcher: str, role: Role, where: str, job: str, env: Mapping[str, str]) -> Role:
    """The role in a run on several machines: those of rank 0's machine use its socket, the others
    its address. `job` is the same on all of them. Open MPI tells no rank where rank 0 is, which
    then writes its addresses beside the keys (_keys.found)."""
    nodes = env.get("SLURM_STEP_NODELIST", "") if launcher == "srun" else ""
    master = env.get("MASTER_ADDR", "") or _first_host(nodes)
    port = _number(env, "PACELINE_PORT")
    if port is None:
        port = (_number(env, "MASTER_PORT") or 29500) + 1
    shared = "OMPI_COMM_WORLD_RANK" in env and job and not env.get("PACELINE_KEYS")
    host = master or (_addresses() if shared else "")
    if not host:
        raise UsageError(f"{where}; set MASTER_ADDR to the address of rank 0's machine")
    if not env.get("PACELINE_KEYS"):
        role = replace(role, channel=_channel(launcher, job, port, where, env))
    if role.rank == 0 or not master:
        role = replace(role, listen=f"0.0.0.0:{port}", host=host if role.rank == 0 else "")
    elif elsewhere(master):
        role = replace(role, socket=f"https://{master}:{port}")
    return role


def _server_beside(rank: int, env: Mapping[str, str]) -> bool:
    """Whether rank 0 of this job is another program, the server: Open MPI tells how many processes
    of each program it has started."""
    first, *others = env.get("OMPI_APP_CTX_NUM_PROCS", "").split() or [""]
    if first != "1" or not others:
        return False
    if rank == 0:
        raise UsageError(
            "rank 0 of an MPI job of several programs is the server (mpirun -n 1 paceline train "
            "--model external … : -n N python3 …); start processes of one program with one -n"
        )
    return True


def base_folder() -> str:
    """A folder for sockets that only this user can write to."""
    path = os.path.join(tempfile.gettempdir(), f"paceline-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(
            f"'{path}' must be a folder that only this user can write to; remove it, or set TMPDIR"
        )
    return path


def _from_variable(text: str) -> Role:
    if text == "mpi":
        return Role(-1, 1, _MPI)
    if text.startswith(("http://", "https://")):
        return Role(-1, 1, text, only=True)
    if text.startswith("init=") and len(text) > 5:
        return Role(0, 1, "", init=text[5:])
    parts = dict(p.split("=", 1) for p in _BEFORE_KEY.split(text) if "=" in p)
    rank, workers = parts.get("rank", ""), parts.get("workers", "")
    if not parts.get("socket") or not rank.isdigit() or not workers.isdigit() or int(workers) < 1:
        raise UsageError(
            f"PACELINE is '{text[:100]}', but must be the address of a server (https://HOST:PORT), "
            "mpi if that is rank 0 of this MPI job, or rank=N,workers=N,socket=PATH, as 'paceline "
            "launch' sets it, or init=FILE; unset it if this process is alone"
        )
    return Role(
        int(rank),
        int(workers),
        parts["socket"],
        restarted=parts.get("restarted") == "yes",
        listen=parts.get("listen", ""),
    )


def find(env: Optional[Mapping[str, str]] = None, workers: int = 1) -> Role:
    """The role that the environment gives: PACELINE, which `paceline launch` sets, or the variables
    of torchrun, mpirun or srun. Without any, the process is rank 0 of `workers`. PACELINE_TOKEN is
    the token of the server's `requests`."""
    env = os.environ if env is None else env
    return replace(_find(env, workers), token=env.get("PACELINE_TOKEN", ""))


def _plain(text: str) -> str:
    """For the names of files and jobs."""
    return re.sub("[^0-9A-Za-z]", "-", text)[-60:]


def _find(env: Mapping[str, str], workers: int) -> Role:
    if env.get("PACELINE"):
        return _from_variable(env["PACELINE"])
    for launcher, rank_name, size_name, local_name, shared in _LAUNCHERS:
        rank, size = _number(env, rank_name), _number(env, size_name)
        if rank is None or size is None or size < 1:
            continue
        if launcher == "mpirun" and _server_beside(rank, env):
            return Role(-1, 1, _MPI)
        where = _several(launcher, size, _tasks_on_first(env, local_name), env)
        key = "-".join(env[name] for name in shared if env.get(name))
        job = _plain(key)
        if launcher == "mpirun" or not key:
            key += f"-{os.getppid()}"  # they have one parent
        name = "-".join([launcher] + [job] * bool(job) + [f"of-{size}"])
        folder = os.path.join(base_folder(), _plain(f"{launcher}-{key}"))
        role = Role(rank, size, os.path.join(folder, "run.socket"), job=name)
        return _across(launcher, role, where, job, env) if where else role
    folder = os.path.join(base_folder(), f"alone-{os.getpid()}")
    return Role(0, workers, os.path.join(folder, "run.socket"), alone=True)


# --- the runs of one process ----------------------------------------------------------------------

_made: Dict[Tuple[str, int], int] = {}  # runs of this process so far, by socket and rank
_joined: Set[str] = set()  # servers with one run
_making = threading.Lock()


def _existing(socket: str, above: int) -> Optional[int]:
    """The number of the first run above this one whose socket is there."""
    folder, name = os.path.split(socket)
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    numbers = [1] if name in names else []
    for other in names:
        number = other[len(name) + 1 :] if other.startswith(name + ".") else ""
        if number.isdigit() and len(number) < 10:
            numbers.append(int(number))
    return min((n for n in numbers if n > above), default=None)


def _at_port(address: str, number: int) -> str:
    """HOST:PORT or a URL, with the port of the run of this number. The first run has the port that
    is given; the next one may have a store (see _channel)."""
    host, _, first = address.rpartition(":")
    port = int(first) + number
    if port > 65535:
        raise UsageError(
            f"run {number} of this process needs a port after {first}, and 65535 is the last; set "
            "PACELINE_PORT to a lower one"
        )
    return f"{host}:{port}"


def next_run(role: Role, name: str = "") -> Role:
    """The role in the next run of this process. All ranks make their runs in the same order, and
    the second one has the socket `socket`.2, or a port of its own, so that a worker never joins a
    run of its past. The name of the run has its number, too: at a port there may be another one. A
    restarted process does not know how many runs there were, and takes those that it finds. If the
    run is given a name, the name of the job has it, too."""
    if role.only and role.socket in _joined:
        raise UsageError(
            f"the server at {role.socket} has one run, which this process has joined already; for "
            "several optimizers, let rank 0 start their servers: use torchrun, srun or mpirun "
            "instead of PACELINE"
        )
    if role.rank < 0:
        return replace(role, name=name or role.socket)
    key = (role.socket, role.rank)
    with _making:
        last = _made.get(key, 0)
        found = _existing(role.socket, last) if role.restarted else None
        number = _made[key] = found or last + 1
    parts = ([role.job, str(number)] if role.job else []) + ([name] if name else [])
    role = replace(role, name=name or f"run-{number}", job=".".join(parts))
    if number == 1:
        return role
    if role.elsewhere:
        return replace(role, socket=_at_port(role.socket, number))
    listen = _at_port(role.listen, number) if role.job and role.listen else role.listen
    return replace(role, socket=f"{role.socket}.{number}", listen=listen)


def joined(role: Role) -> None:
    """This process has joined the run of this role."""
    if role.only:
        _joined.add(role.socket)
