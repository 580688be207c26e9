"""The rank of this process among those that were started together, and their server's socket."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from typing import Mapping, Optional

from .errors import UsageError

__all__ = ["Role", "find"]


@dataclass(frozen=True)
class Role:
    """Rank 0 starts the server, which listens at `socket`; all ranks are workers."""

    rank: int
    world_size: int
    socket: str
    alone: bool = False  # no launcher: others may be started by hand

    @property
    def folder(self) -> str:
        return os.path.dirname(self.socket)


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
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


def _number(env: Mapping[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    return int(text) if text.isdigit() and len(text) < 10 else None


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
    parts = dict(p.split("=", 1) for p in text.split(",") if "=" in p)
    rank, workers = parts.get("rank", ""), parts.get("workers", "")
    if not parts.get("socket") or not rank.isdigit() or not workers.isdigit() or int(workers) < 1:
        raise UsageError(
            f"PACELINE is '{text[:100]}', but must be rank=N,workers=N,socket=PATH, as "
            "'paceline launch' sets it; unset it if this process is alone"
        )
    return Role(int(rank), int(workers), os.path.abspath(parts["socket"]))


def find(env: Optional[Mapping[str, str]] = None, workers: int = 1) -> Role:
    """The role that the environment gives: PACELINE, which `paceline launch` sets, or the variables
    of torchrun, mpirun or srun. Without any, the process is rank 0 of `workers`."""
    env = os.environ if env is None else env
    if env.get("PACELINE"):
        return _from_variable(env["PACELINE"])
    for launcher, rank_name, size_name, local_name, shared in _LAUNCHERS:
        rank, size = _number(env, rank_name), _number(env, size_name)
        if rank is None or size is None or size < 1:
            continue
        local = _number(env, local_name)
        if local is not None and local != size:
            raise UsageError(
                f"{launcher} started {size} processes, {local} of them on this machine, but all "
                "workers of a PyTorch run must be on one machine"
            )
        key = "-".join(env[name] for name in shared if env.get(name))
        if launcher == "mpirun" or not key:
            key += f"-{os.getppid()}"  # they have one parent
        safe = "".join(ch if ch.isalnum() else "-" for ch in f"{launcher}-{key}")[-60:]
        return Role(rank, size, os.path.join(base_folder(), safe, "run.socket"))
    folder = os.path.join(base_folder(), f"alone-{os.getpid()}")
    return Role(0, workers, os.path.join(folder, "run.socket"), alone=True)
