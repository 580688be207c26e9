"""Certificates for one job, if PACELINE_KEYS names none: rank 0 makes them and hands those of a
worker to the other machines, over a store of PyTorch or in a folder that all machines share. In the
folder are also the addresses of its machine.

docs/network.md says how safe each way is."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import importlib
import json
import os
import re
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any, Dict, List, Union

from . import _lib
from ._roles import Role, Store, base_folder, elsewhere
from .errors import RunError, UsageError, error

__all__ = ["folder", "found", "renewed"]

_HANDED = ("ca.pem", "worker.pem", "worker-key.pem")
_ADDRESSES = "addresses"
_MADE = (*_HANDED, _ADDRESSES, "server.pem", "server-key.pem", "ca-key.pem")
_WAIT = 60.0  # seconds for which others wait for the keys of rank 0
_DAYS = 365
_had: Dict[Union[Store, str], str] = {}  # folders by channel
_stores: List[Any] = []  # of rank 0, which live as long as the process


def _private() -> str:
    """A new folder of this process, which removes it."""
    path = tempfile.mkdtemp(prefix="keys-", dir=base_folder())
    atexit.register(_remove, path, os.getpid())
    return path


def _clear(path: str) -> None:
    """Removes the files that a job makes, and then the folder, if nothing else is in it."""
    for name in _MADE:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, name))
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        _clear(os.path.join(path, "keys"))
        _clear(path)


def _make(host: str) -> str:
    """A folder with the certificates of a server and a worker. No more can be made of them."""
    path = os.path.join(_private(), "keys")
    why = c.create_string_buffer(400)
    status = _lib.library().pl_keys(
        path.encode(), host.encode(), b"worker", _DAYS, c.addressof(why), len(why)
    )
    if status:
        raise error(status, why.value.decode("utf-8", "replace"))
    os.unlink(os.path.join(path, "ca-key.pem"))
    return path


def _read(path: str) -> Dict[str, str]:
    out = {}
    for name in _HANDED:
        with open(os.path.join(path, name), encoding="ascii") as f:
            out[name] = f.read()
    return out


def _put(path: str, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(os.path.join(path, name), flags, 0o600), "w", encoding="ascii") as f:
        f.write(text)


def _write(path: str, files: Dict[str, str]) -> None:
    for name in _HANDED:
        _put(path, name, files[name])


# --- a store --------------------------------------------------------------------------------------


def _open(at: Store, serves: bool) -> Any:
    dist: Any = importlib.import_module("torch.distributed")
    wait, makes = timedelta(seconds=_WAIT), at.own and serves
    store = dist.TCPStore(at.host, at.port, None, makes, wait, wait_for_workers=False)
    return dist.PrefixStore(at.prefix, store)


def _own_store(at: Store) -> Any:
    try:
        return _open(at, True)
    except Exception as e:  # what PyTorch raises differs between its versions
        raise RunError(
            f"rank 0 cannot hand out keys at {at.host}:{at.port} ({str(e)[:200]}); set MASTER_PORT to "
            "another port, or PACELINE_KEYS"
        ) from e


def _told(at: Store) -> Dict[str, str]:
    """The keys that rank 0 has handed out last."""
    try:
        return dict(json.loads(_open(at, False).get("keys")))
    except Exception as e:  # what PyTorch raises differs between its versions
        raise RunError(
            f"rank 0 has handed out no keys at {at.host}:{at.port} ({str(e)[:200]}); set "
            "PACELINE_KEYS"
        ) from None


def _keep(told: Dict[str, str]) -> str:
    path = _private()
    _write(path, told)
    return path


# --- a folder -------------------------------------------------------------------------------------


def _lay(path: str, files: Dict[str, str], host: str) -> None:
    """Puts the files and the addresses of this machine into a new folder, which others see once it
    is complete."""
    if os.path.lexists(path):  # of a job that was killed
        _check(path)
        if not set(os.listdir(path)) <= {*_HANDED, _ADDRESSES}:
            raise UsageError(
                f"'{path}' has files that are no keys of a job; move them, or set PACELINE_KEYS"
            )
        _clear(path)
    new = tempfile.mkdtemp(prefix=".paceline-", dir=os.path.dirname(path))
    _write(new, files)
    _put(new, _ADDRESSES, host)
    os.rename(new, path)
    atexit.register(_remove, path, os.getpid())


def _check(path: str) -> None:
    found = os.lstat(path)
    if not os.path.isdir(path) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"'{path}' must be a folder that only this user can read; remove it, or set "
            "PACELINE_KEYS"
        )


def _await(path: str) -> str:
    end = time.monotonic() + _WAIT
    while not os.path.lexists(path):
        if time.monotonic() > end:
            raise RunError(
                f"rank 0 has put no keys into '{path}' for {_WAIT:g} s; if its machine does not "
                "share this folder, set PACELINE_KEYS, and with mpirun MASTER_ADDR"
            )
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path))  # network file systems look again
    _check(path)
    return path


def _obtain(role: Role) -> str:
    at = role.channel
    assert at is not None
    if role.serves:
        made = _make(role.host)
        if isinstance(at, str):
            _lay(at, _read(made), role.host)
        else:
            store = _own_store(at)
            store.set("keys", json.dumps(_read(made)))
            _stores.append(store)
        return made
    return _await(at) if isinstance(at, str) else _keep(_told(at))


def folder(role: Role) -> str:
    """The folder of certificates for this role; empty if it needs none."""
    if not role.channel or not (role.serves or role.elsewhere):
        return os.environ.get("PACELINE_KEYS", "")
    if role.channel not in _had:
        _had[role.channel] = _obtain(role)
    return _had[role.channel]


def found(role: Role) -> Role:
    """The role of a rank that only the folder tells where rank 0 is. On rank 0's machine, all of the
    addresses are that machine's own."""
    at = role.channel
    if role.serves or not role.listen or not isinstance(at, str):
        return role
    path = os.path.join(_await(at), _ADDRESSES)
    with open(path, encoding="ascii") as f:
        addresses = f.read(1000).split(",")
    if not all(re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", a) for a in addresses):
        raise RunError(f"'{path}' has no addresses of rank 0's machine; set MASTER_ADDR")
    port = role.listen.rpartition(":")[2]
    far = ",".join(f"{a}:{port}" for a in addresses if elsewhere(a))
    return replace(role, socket=f"https://{far}") if far else role


def renewed(role: Role) -> bool:
    """Whether rank 0 has handed out other keys than this process has, which are those that `folder`
    has from now on. A store of torchrun still has those of processes that it has started before."""
    at = role.channel
    if not isinstance(at, Store) or at not in _had:
        return False
    told = _told(at)
    if told == _read(_had[at]):
        return False
    _had[at] = _keep(told)
    return True
