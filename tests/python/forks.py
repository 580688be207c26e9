"""Programs that are forks of a process with PyTorch, because importing it takes a second.

`Program([text, *arguments], ...)` is `Popen([sys.executable, "-c", text, *arguments], ...)`. A copy of
this process, made before there are threads, makes them. They become children of this process when
the one between them ends.

`fork_servers()` makes forks of the servers, too, that runs of this process start: a new interpreter
takes longer than a short run."""

import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest.mock
from typing import Any

import paceline.torch
from paceline import _server

__all__ = ["Program", "fork_servers", "paceline"]

_PR_SET_CHILD_SUBREAPER = 36


class Program(subprocess.Popen):  # type: ignore[type-arg]
    def _execute_child(self, args: Any, *more: Any) -> None:
        cwd, env, given, out, err = more[4], more[5], more[9], more[12], more[14]
        env = dict(os.environ if env is None else env)
        request = json.dumps([args, env, os.path.abspath(cwd or ".")]).encode()
        fds = [fd if fd >= 0 else n for n, fd in enumerate((given, out, err))]
        with _asking:
            socket.send_fds(_asks, [request], fds)
            self.pid = int(_asks.recv(100))
        for mine, fd in ((more[10], given), (more[11], out), (more[13], err)):
            if mine >= 0:  # a pipe, and not a file of the caller
                os.close(fd)
        self._child_created = True


# No thread is there at its end; what PyTorch has to clean up takes as long as the rest.
_SERVER = """
import os, sys
from paceline import _server
status = _server.main()
sys.stderr.flush()
os._exit(status)
"""


def _start_server(command: Any, **options: Any) -> Program:
    assert command == [sys.executable, "-m", _server.__name__], command
    return Program([_SERVER], **options)


def fork_servers() -> None:
    """From now on."""
    popen = types.SimpleNamespace(**dict(vars(subprocess), Popen=_start_server))
    unittest.mock.patch.object(_server, "subprocess", popen).start()


def _fork(at: socket.socket) -> Any:
    """Returns in a fork per request: what it asks for."""
    while True:
        request, fds, _, _ = socket.recv_fds(at, 1 << 20, 3)
        if not request:
            os._exit(0)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        for n, fd in enumerate(fds):
            os.dup2(fd, n)
            os.close(fd)
        at.send(str(os.getpid()).encode())
        at.close()
        return json.loads(request)


ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
_asking = threading.Lock()
_asks, _answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
if os.fork() == 0:
    _asks.close()
    gc.freeze()  # collections do not write to what the forks share
    (_text, *_arguments), _env, _folder = _fork(_answers)
    os.chdir(_folder)
    os.environ.clear()
    os.environ.update(_env)
    tempfile.tempdir = None
    sys.argv = ["-c", *_arguments]
    exec(compile(_text, "<string>", "exec"), vars(sys.modules["__main__"]))
    sys.exit()
_answers.close()
