"""The server of a run of PyTorch workers: a process of its own, which rank 0 starts.

`Server` is rank 0's side. `python -m paceline._server` is the process: it reads its options as JSON
from standard input, and writes the result as JSON to standard output."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Optional

from .errors import Error, RunError, error

__all__ = ["Server", "clean", "failure"]

_LAUNCHER_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PMI2_", "SLURM_", "MPI_", "HYDRA_", "PACELINE=")
_BEGIN = time.monotonic()
_FAILED = "failed"  # in the folder: why rank 0 could not start


def clean(folder: str) -> None:
    """Makes the folder of the run, without what an earlier run left there."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)


def failure(folder: str, since: float) -> Optional[str]:
    """Why rank 0 could not start the run, for the other ranks; None if it has not failed."""
    path = os.path.join(folder, _FAILED)
    try:
        if os.stat(path).st_mtime < since - 1:
            return None
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return None


class Server:
    """The server's process, as rank 0 sees it."""

    def __init__(self, folder: str, options: Dict[str, Any]) -> None:
        self.folder, self._pid = folder, os.getpid()
        self.weights = os.path.join(folder, "final.f32")
        self.result: Optional[Dict[str, Any]] = None
        env = {k: v for k, v in os.environ.items() if not (k + "=").startswith(_LAUNCHER_PREFIXES)}
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        env["PYTHONPATH"] = os.pathsep.join(p for p in (package, env.get("PYTHONPATH")) if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline._server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        order = {"options": options, "parent": os.getpid(), "weights": self.weights}
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
                raise RunError(f"the server did not end within {timeout:g} s and was killed") from None
            try:
                self.result = dict(json.loads(out))
            except ValueError:
                status = self._process.returncode
                how = f"signal {-status}" if status < 0 else f"status {status}"
                self.result = {"error": [-8, f"the server ended without a result ({how})"]}
        if "error" in self.result:
            raise error(*self.result["error"])
        return self.result

    def report(self, message: str) -> None:
        """Tells the other ranks why there will be no run."""
        try:
            with open(os.path.join(self.folder, _FAILED), "w", encoding="utf-8") as f:
                f.write(message)
        except OSError:
            pass

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def remove(self) -> None:
        """Removes the folder of the run, if this is the process that made it."""
        if os.getpid() == self._pid:
            shutil.rmtree(self.folder, ignore_errors=True)


# --- the process --------------------------------------------------------------------------------


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    os._exit(1)  # the workers see that the server is gone


def _say(warning: bool, sentence: str) -> None:
    if not warning and sentence.startswith("waiting for") and time.monotonic() < _BEGIN + 5:
        return  # the others are being started
    if not warning and "ended the run" in sentence:
        return  # rank 0 has called close()
    print("paceline: " + sentence, file=sys.stderr, flush=True)


def _serve(order: Dict[str, Any]) -> Dict[str, Any]:
    from ._setup import Setup

    run = Setup(on_log=_say, **order["options"]).train()
    assert run is not None
    if run.weights is not None:
        with open(order["weights"] + ".part", "wb") as f:
            f.write(run.weights)
        os.rename(order["weights"] + ".part", order["weights"])
    texts = {key: run.text(key) for key in ("method", "trouble")}
    return {"run": run.json, "texts": texts, "diverged": run.diverged}


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: rank 0 decides what happens
    order = json.load(sys.stdin)
    threading.Thread(target=_die_with, args=(order["parent"],), daemon=True).start()
    try:
        result = _serve(order)
    except Error as e:
        result = {"error": [e.status, str(e)]}
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
