"""What the tests of PyTorch workers share: tiny models, and workers that are threads."""

import atexit
import contextlib
import os
import queue
import random
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

import torch

import paceline.torch as pl

torch.set_num_threads(1)
CROSS_ENTROPY = torch.nn.functional.cross_entropy
CLASSES, FEATURES = 3, 6


SEEDING = threading.Lock()  # threads share the generator


def net(seed: int = 0, norm: bool = False, width: int = 8) -> torch.nn.Sequential:
    with SEEDING:
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(FEATURES, width), torch.nn.Tanh()]
        layers.append(torch.nn.Linear(width, CLASSES))
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(width))
    return torch.nn.Sequential(*layers)


class Cast(torch.nn.Linear):
    """Computes in float32, because not every CPU multiplies matrices of bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.float(), self.bias.float())


def batch(step: int, worker: int = 0, n: int = 8) -> Tuple[torch.Tensor, torch.Tensor]:
    """The mini-batch of one worker at one step."""
    g = torch.Generator().manual_seed(1000 * step + worker)
    x = torch.randn(n, FEATURES, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([t.detach().reshape(-1).double() for t in model.state_dict().values()])


def backward(
    opt: torch.optim.Optimizer, model: torch.nn.Module, step: int = 0, worker: int = 0
) -> torch.Tensor:
    opt.zero_grad()
    x, y = batch(step, worker)
    loss = CROSS_ENTROPY(model(x), y)
    loss.backward()
    return loss


def to_the_end(opt: pl.Optimizer, pause: float = 0.0) -> None:
    """Steps until the run has ended."""
    step = 0
    while not opt.ended:
        opt.zero_grad()
        x, y = batch(step)
        loss = CROSS_ENTROPY(opt.model(x), y)
        loss.backward()
        time.sleep(pause)
        opt.step(loss)
        step += 1


def free_port() -> int:
    """One that the system gives to nobody who does not ask for it by its number."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", port))
            return port


def folder_of_runs() -> str:
    """One per process, which removes it at its end; forks make their own."""
    with SEEDING:
        if os.getpid() not in _folders:
            _folders[os.getpid()] = tempfile.mkdtemp()
            atexit.register(_remove_mine, os.getpid())
    return _folders[os.getpid()]


def _remove_mine(pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(_folders[pid], ignore_errors=True)


_folders: Dict[int, str] = {}


def roles(n: int, far: bool = False) -> List[pl.Role]:
    """Far workers join over HTTP, all but rank 0."""
    folder = tempfile.mkdtemp(dir=folder_of_runs())
    path = os.path.join(folder, "run", "run.socket")
    if not far:
        return [pl.Role(r, n, path) for r in range(n)]
    at = f"127.0.0.1:{free_port()}"
    return [pl.Role(0, n, path, listen=at)] + [pl.Role(-1, 1, f"http://{at}")] * (n - 1)


def together(n: int, work: Callable[[pl.Role], Any], far: bool = False) -> List[Any]:
    """Calls work(role) in n threads; returns the results, or raises the first exception. Of far
    workers, only the result of rank 0 is returned. After an exception nobody is waited for long:
    workers look for a server that failed to start for a minute."""
    out: List[Any] = [None] * n
    failed: List[BaseException] = []
    ended: queue.Queue[pl.Role] = queue.Queue()

    def one(role: pl.Role) -> None:
        try:
            out[role.rank] = work(role)
        except BaseException as e:
            failed.append(e)
        ended.put(role)

    threads = [threading.Thread(target=one, args=(r,), daemon=True) for r in roles(n, far)]
    for t in threads:
        t.start()
    for _ in threads:
        try:
            ended.get(timeout=2 if failed else 600)
        except queue.Empty:
            assert failed, "a worker hangs"
    if failed:
        raise failed[0]
    return out
