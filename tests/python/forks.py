"""Programs that are forks of a process with PyTorch, because importing it takes a second.

`Program([text, *arguments], ...)` is `Popen([sys.executable, "-c", text, *arguments], ...)`. A copy of
this process, made before there are threads, makes them. They become children of this process when
the one between them ends."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

import paceline.torch

__all__ = ["Program", "paceline"]

_PR_SET_CHILD_SUBREAPER = 36


class Program(subprocess.Popen):  # type: ignore[type-arg]
    def _execute_child(self, args: Any, *more: Any) -> None:
        cwd, env, out, err = more[4], more[5], more[12], more[14]
        env = dict(os.environ if env is None else env)
        request = json.dumps([args, env, os.path.abspath(cwd or ".")]).encode()
        fds = [fd if fd >= 0 else n for n, fd in ((1, out), (2, err))]
        socket.send_fds(_asks, [request], fds)
        for read, fd in ((more[11], out), (more[13], err)):
            if read >= 0:  # a pipe, and not a file of the caller
                os.close(fd)
        self.pid = int(_asks.recv(100))
        self._child_created = True


def _fork(at: socket.socket) -> Any:
    """Returns in a fork per request: what it asks for."""
    while True:
        request, fds, _, _ = socket.recv_fds(at, 1 << 20, 2)
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
        for n, fd in enumerate(fds, 1):
            os.dup2(fd, n)
            os.close(fd)
        at.send(str(os.getpid()).encode())
        at.close()
        return json.loads(request)


ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
_asks, _answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
if os.fork() == 0:
    _asks.close()
    (_text, *_arguments), _env, _folder = _fork(_answers)
    os.chdir(_folder)
    os.environ.clear()
    os.environ.update(_env)
    tempfile.tempdir = None
    sys.argv = ["-c", *_arguments]
    exec(compile(_text, "<string>", "exec"), vars(sys.modules["__main__"]))
    sys.exit()
_answers.close()
