"""What the tests of PyTorch workers share: tiny models, and workers that are threads."""

import os
import tempfile
import threading

import torch

import paceline.torch as pl

torch.set_num_threads(1)
CROSS_ENTROPY = torch.nn.functional.cross_entropy
CLASSES, FEATURES = 3, 6


SEEDING = threading.Lock()  # threads share the generator


def net(seed=0, norm=False, width=8):
    with SEEDING:
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(FEATURES, width), torch.nn.Tanh()]
        layers.append(torch.nn.Linear(width, CLASSES))
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(width))
    return torch.nn.Sequential(*layers)


def batch(step, worker=0, n=8):
    """The mini-batch of one worker at one step."""
    g = torch.Generator().manual_seed(1000 * step + worker)
    x = torch.randn(n, FEATURES, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def flat(model):
    return torch.cat([t.detach().reshape(-1).double() for t in model.state_dict().values()])


def roles(n):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "run", "run.socket")
    return [pl.Role(r, n, path) for r in range(n)]


def together(n, work):
    """Calls work(role) in n threads; returns the results, or raises the first exception."""
    out, failed = [None] * n, []

    def one(role):
        try:
            out[role.rank] = work(role)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=one, args=(r,), daemon=True) for r in roles(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failed or not any(t.is_alive() for t in threads), "a worker hangs"
    if failed:
        raise failed[0]
    return out
