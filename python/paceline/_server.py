"""The server of a run of PyTorch workers: a process of its own, which rank 0 starts.

`Server` is rank 0's side. `python -m paceline._server` is the process: it reads its options as JSON
from standard input, and writes the result as JSON to standard output."""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import pickle
import signal
import socket as sockets
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Optional

from ._progress import Progress, quiet, say
from ._roles import base_folder
from .errors import Error, RunError, UsageError, error

if TYPE_CHECKING:
    from ._setup import Setup

__all__ = ["HERE", "Server", "failure", "given", "token"]

_LAUNCHER_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PMI2_", "SLURM_", "MPI_", "HYDRA_", "PACELINE=")
# what rank 0 and the server hand to each other; the last three are those of `exchange`
_FILES = ("init.safetensors", "final.f32", "load", "saved", "refused")
_ANSWER = 60  # seconds for the server to save or load a state
_LINGERS = 30  # seconds for which it is there after it has hung up, at most
_SAVES = 60  # seconds in which it writes a checkpoint when rank 0 is gone
# Files beside the socket, of its name and these: why rank 0 failed, and the token that the server
# asks of an evaluator, with the options that other ranks must have as well, as JSON. Each begins with
# a line that tells it from files of other programs.
_FAILED, _FAILED_LINE = ".failed", "paceline: why the run failed:\n"
_told: List[str] = []  # such files of earlier runs of this process
_TOKEN, _TOKEN_LINE = ".token", "paceline: the token of a run, for its evaluator:\n"


def _read(path: str, line: str) -> Optional[str]:
    """What rank 0 of this run, or of an earlier one, wrote; None if the file is somebody else's."""
    with contextlib.suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, encoding="utf-8") as f:
            if f.readline() == line:
                return f.read()
    return None


def _write(path: str, line: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as f:
            f.write(line + text)


def _forget(path: str, line: str) -> None:
    if _read(path, line) is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def failure(socket: str, since: float) -> Optional[str]:
    """What rank 0 told the other ranks about its failure; None if it has not failed."""
    with contextlib.suppress(OSError):
        if os.stat(socket + _FAILED).st_mtime >= since - 1:
            return _read(socket + _FAILED, _FAILED_LINE)
    return None


def token(socket: str) -> Optional[str]:
    """What a program must show to evaluate the run at this socket; None if there is nothing."""
    text = _read(socket + _TOKEN, _TOKEN_LINE)
    return None if text is None else text.partition("\n")[0]


def given(socket: str) -> Dict[str, str]:
    """The options of rank 0 that other ranks must have as well; empty if that is not known."""
    text = (_read(socket + _TOKEN, _TOKEN_LINE) or "").partition("\n")[2]
    return dict(json.loads(text)) if text else {}


def _answers(path: str) -> Optional[bool]:
    """Whether a server listens at this path; None if no socket is there."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return None
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as s:
            s.connect(path)
        return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return None


def _remove_scratch(folder: str) -> None:
    """Removes the files that this run made, and then the folder, if nothing else is in it."""
    for name in _FILES:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _packed(policy: Any) -> str:
    """A policy in Python as text: the server imports its module again."""
    kind = policy if isinstance(policy, type) else type(policy)
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise UsageError(
            f"policy {kind.__name__} must be in a module that the server can import, because it is "
            "another process; move the class to a file of its own"
        )
    try:
        return pickle.dumps(policy).hex()
    except Exception as e:
        raise UsageError(f"policy {kind.__name__} cannot be sent to the server: {e}") from None


HERE = object()  # as an option: the folder of the files that rank 0 and the server exchange


class Server:
    """The server's process, as rank 0 sees it.

    The socket may be in a folder of the user's. Nothing else is written there, but for why the run
    could not start; files go to a new folder below the temporary one."""

    def __init__(
        self,
        socket: str,
        options: Dict[str, Any],
        save: Optional[Callable[[str], None]],
        token: str,
        given: Dict[str, str],
    ) -> None:
        """Starts a server that listens at `socket`. `save` writes the initial weights to a path.
        `token` is for the other ranks and for evaluators on this machine, and so is `given`, see
        the function of that name."""
        socket = os.path.abspath(socket)
        self._socket, self._pid = socket, os.getpid()
        if _answers(socket):
            raise RunError(
                f"another run listens at '{socket}'; if two jobs were started by hand, give each a "
                "MASTER_PORT of its own"
            )
        self.result: Optional[Dict[str, Any]] = None
        self._made_folder = self._published = False
        self._process: Any = None
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(socket), 0o700)
            self._made_folder = True
        while _told:
            _forget(_told.pop(), _FAILED_LINE)
        _forget(socket + _FAILED, _FAILED_LINE)
        _forget(socket + _TOKEN, _TOKEN_LINE)  # of a run that was killed
        self._scratch = tempfile.mkdtemp(prefix="run-", dir=base_folder())
        init, self.weights = (os.path.join(self._scratch, name) for name in _FILES[:2])
        try:
            if save is not None:
                save(init)
                options = dict(options, init=init)
            options = {k: self._scratch if v is HERE else v for k, v in options.items()}
            order = {"options": options, "parent": os.getpid(), "scratch": self._scratch}
            order.update(socket=socket)
            if not isinstance(options.get("policy"), (str, type(None))):
                order.update(options=dict(options, policy=None), policy=_packed(options["policy"]))
            _write(socket + _TOKEN, _TOKEN_LINE, f"{token}\n{json.dumps(given)}")
            self._published = True
            self._start(order)
        except BaseException:
            self.remove()
            raise

    def _start(self, order: Dict[str, Any]) -> None:
        env = {k: v for k, v in os.environ.items() if not (k + "=").startswith(_LAUNCHER_PREFIXES)}
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        env["PYTHONPATH"] = os.pathsep.join([package] + [os.path.abspath(p) for p in sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline._server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode())
            self._process.stdin.close()
        except OSError:
            pass  # it has died, which `alive` tells

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def finish(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Waits until the server has ended; returns its result, or raises what went wrong."""
        if self.result is None:
            self._process.stdin = None
            out = b""
            try:
                out, _ = self._process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RunError(
                    f"the server did not end within {timeout:g} s and was killed"
                ) from None
            try:
                self.result = dict(json.loads(out))
            except ValueError:
                status = self._process.returncode
                how = f"signal {-status}" if status < 0 else f"status {status}"
                self.result = {"error": [-8, f"the server ended without a result ({how})"]}
        if "error" in self.result:
            raise error(*self.result["error"])
        return self.result

    # --- the state of its optimizer ---

    def _file(self, name: str) -> str:
        return os.path.join(self._scratch, name)

    def _ask(
        self,
        ask: Callable[[], None],
        done: Callable[[], bool],
        meanwhile: Optional[Callable[[], None]] = None,
    ) -> None:
        """Sends a request, and waits until the server has carried it out."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file("refused"))
        try:
            ask()
        except RunError:  # perhaps because the run has ended, and soon the server
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LINGERS)
            if self.alive:
                raise
        end, pause = time.monotonic() + _ANSWER, 1e-4
        while not done() and not os.path.exists(self._file("refused")):
            if not self.alive and not done():
                raise RunError("the run has ended, and its server takes no state any more")
            if time.monotonic() > end:
                raise RunError(f"the server has not answered for {_ANSWER} s")
            if meanwhile:
                meanwhile()
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        with contextlib.suppress(FileNotFoundError):
            with open(self._file("refused"), encoding="utf-8") as f:
                raise RunError(f.read().partition(": ")[2])  # it begins with "paceline: "

    def load(
        self,
        parts: List[bytes],
        ask: Callable[[], None],
        meanwhile: Optional[Callable[[], None]] = None,
    ) -> None:
        """The server takes a state, weights or a gradient; `ask` sends the request."""
        with open(self._file("load"), "wb") as f:
            for part in parts:
                f.write(part)
        self._ask(ask, lambda: not os.path.exists(self._file("load")), meanwhile)

    def save(self, ask: Callable[[], None]) -> bytearray:
        """The state of the server's optimizer now, or at the end; `ask` sends the request."""
        before = self._saved_number()
        try:
            self._ask(ask, lambda: self._saved_number() not in (None, before))
        except RunError:
            if self.alive:
                raise
            self.finish()  # raises unless it ended in good order, with its last state
        try:
            with open(self._file("saved"), "rb") as f:
                return bytearray(f.read())
        except FileNotFoundError:
            raise RunError("the run has ended, and its server has saved no state") from None

    def _saved_number(self) -> Optional[int]:
        """A number that changes whenever the server saves a state; None if it has not yet."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._file("saved")).st_ino
        return None

    def last_state(self) -> Optional[mmap.mmap]:
        """The state at the end, a file that has no name any more after `remove`; None if the server
        has written none."""
        with contextlib.suppress(OSError):
            with open(self._file("saved"), "rb") as f:
                return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        return None

    def report(self, message: str) -> None:
        """Tells the other ranks what went wrong."""
        _told.append(self._socket + _FAILED)
        _write(_told[-1], _FAILED_LINE, message)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def remove(self) -> None:
        """Removes what this process has made for the run."""
        if os.getpid() == self._pid:
            _remove_scratch(self._scratch)
            if self._process and not self.alive and _answers(self._socket) is False:
                with contextlib.suppress(OSError):  # it was killed and has left its socket
                    os.unlink(self._socket)
            if self._published:
                _forget(self._socket + _TOKEN, _TOKEN_LINE)
            if self._made_folder:
                with contextlib.suppress(OSError):  # something is in it
                    os.rmdir(os.path.dirname(self._socket))


# --- the process --------------------------------------------------------------------------------


def _end_with(order: Dict[str, Any], setup: "Setup") -> None:
    """Rank 0 is gone, perhaps by SIGKILL: the others hear it, and the run ends with a checkpoint if it
    has a folder for it. Otherwise the workers see that the server is gone."""
    while os.getppid() == order["parent"]:
        time.sleep(0.25)
    _write(order["socket"] + _FAILED, _FAILED_LINE, "rank 0 is gone")
    if order["options"].get("checkpoint"):
        setup.fail(RunError("rank 0 is gone"))
        time.sleep(_SAVES)  # the main thread exits before
    _exit(order)


def _exit(order: Dict[str, Any]) -> NoReturn:
    """Ends this process, which has no rank 0 to tell anything, and removes what that has left."""
    _forget(order["socket"] + _TOKEN, _TOKEN_LINE)
    _remove_scratch(order["scratch"])
    os._exit(1)


def _say(level: int, sentence: str) -> None:
    if level > logging.DEBUG:  # below are the answers to what rank 0 itself has asked for
        say(sentence)


def _serve(order: Dict[str, Any]) -> Dict[str, Any]:
    from ._setup import Setup

    options = order["options"]
    if order.get("policy"):
        options["policy"] = pickle.loads(bytes.fromhex(order["policy"]))
    setup, progress = Setup(on_log=_say, **options), Progress()
    with_parent = threading.Thread(target=_end_with, args=(order, setup), daemon=True)
    with_parent.start()
    if not quiet():
        setup.follow(progress)
    run = setup.train()
    assert run is not None
    if not quiet():
        progress.end(run)
    if run.weights is not None:
        with open(os.path.join(order["scratch"], _FILES[1]), "xb") as f:
            f.write(run.weights)
    texts = {key: run.text(key) for key in ("method", "trouble")}
    has_weights = run.weights is not None
    return {"run": run.json, "texts": texts, "diverged": run.diverged, "has_weights": has_weights}


def main() -> int:
    if sys.stderr is None:  # closed: messages go nowhere, and no file of the run gets its number
        sys.stderr = open(os.devnull, "w")
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 decides what happens
        signal.signal(number, signal.SIG_IGN)
    order = json.load(sys.stdin)
    try:
        result = _serve(order)
    except Error as e:
        result = {"error": [e.status, str(e)]}
    if os.getppid() != order["parent"]:
        _exit(order)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
