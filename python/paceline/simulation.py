"""Simulates the training of a PyTorch model by any number of workers on a virtual clock.

    run = paceline.simulate(model=net, loss=torch.nn.functional.cross_entropy, data=(x, y),
                            test=(x_test, y_test), method="gap-aware", workers=128,
                            delay="gamma:shape=100,mean=1", updates=2000, batch=128)

The library decides which worker computes what and when, draws mini-batches, applies the rules and
keeps the time; PyTorch computes the gradients, one after the other. docs/simulate-torch.md has the
details."""

from __future__ import annotations

import ctypes as c
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import _structs, loop
from ._events import Event
from ._run import Point, Run
from ._setup import Setup
from .errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["simulate"]

NAN = float("nan")
EVAL_BATCH = 1000  # samples evaluated at a time


class _Data:
    """Samples by number: a pair of tensors, or a data set with a length and items."""

    def __init__(self, data: Any, device: torch.device, torch: ModuleType, what: str) -> None:
        self._torch, self._device = torch, device
        self._pair = isinstance(data, (tuple, list)) and len(data) == 2
        if self._pair:
            fits = all(isinstance(t, torch.Tensor) for t in data) and len(data[0]) == len(data[1])
            self._x, self._y = data
        else:
            fits = hasattr(data, "__len__") and hasattr(data, "__getitem__")
        if not fits:
            raise UsageError(f"{what} must be two tensors of the same length, or a data set")
        self._set = data
        self.n = len(data[0]) if self._pair else len(data)
        if self.n == 0:
            raise UsageError(f"{what} is empty")

    def rows(self, rows: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """The samples with these numbers, on the device of the model."""
        if not self._pair:
            from torch.utils.data import default_collate

            batch = default_collate([self._set[int(r)] for r in rows])
            tensors = [isinstance(t, self._torch.Tensor) for t in batch]
            if not isinstance(batch, (tuple, list)) or tensors != [True, True]:
                raise UsageError(
                    "items of a data set must be pairs of an input and a target, which become tensors; "
                    f"this one has a {type(self._set[int(rows[0])]).__name__}"
                )
            x, y = batch
        else:
            near = rows.to(self._x.device, non_blocking=True)
            x, y = self._x[near], self._y[near]
        return x.to(self._device, non_blocking=True), y.to(self._device, non_blocking=True)

    def labels(self) -> Optional[List[int]]:
        """The classes of the samples, if they are whole numbers below 65536."""
        if not self._pair:
            return None
        y = self._y
        whole = not y.is_floating_point() and not y.is_complex() and y.dim() == 1
        if not whole or y.dtype == self._torch.bool or int(y.min()) < 0 or int(y.max()) > 65535:
            return None
        return list(y.tolist())


class _Net:
    """A model as a function of one flat vector."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any], torch: ModuleType) -> None:
        self.torch, self.model, self.loss = torch, model, loss
        self.params = [p for p in model.parameters() if p.requires_grad]
        if not self.params:
            raise UsageError("the model has no parameters that require a gradient")
        first = self.params[0]
        for p in self.params:
            if p.dtype != torch.float32 or p.device != first.device:
                raise UsageError(
                    "all parameters must be float32 and on one device, but one is "
                    f"{p.dtype} on {p.device}"
                )
        self.device = first.device
        self.dim = sum(p.numel() for p in self.params)
        self._before = [(p, p.data, p.grad) for p in self.params]
        self._buffers = [(b, b.clone()) for b in model.buffers()]
        with torch.no_grad():
            self.w = torch.cat([p.detach().reshape(-1) for p in self.params]).clone()
            self.first = self.w.clone()
            at = 0
            for p in self.params:  # the parameters become views of one vector
                p.data = self.w[at : at + p.numel()].view(p.shape)
                at += p.numel()

    def use(self, w: torch.Tensor) -> None:
        """Sets the parameters."""
        with self.torch.no_grad():
            self.w.copy_(w)

    def gradient(self, w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> Any:
        """The mean loss of a mini-batch at w, a tensor, and its gradient."""
        self.use(w)
        for p in self.params:
            p.grad = None
        loss = self.loss(self.model(x), y)
        loss.backward()
        with self.torch.no_grad():
            grads = [
                (p.grad if p.grad is not None else self.torch.zeros_like(p)).reshape(-1)
                for p in self.params
            ]
            self.torch.cat(grads, out=out)
        return loss.detach()

    def score(self, data: _Data, rows: Any) -> Tuple[Any, Optional[Any]]:
        """The summed loss and the number classified correctly (None if nothing is classified) of
        the parameters that are set, as tensors."""
        total, right = None, None
        with self.torch.no_grad():
            for part in rows.split(EVAL_BATCH):
                x, y = data.rows(part)
                out = self.model(x)
                loss = self.loss(out, y) * len(part)
                total = loss if total is None else total + loss
                if _classifies(out, y):
                    n = (out.argmax(1) == y).sum()
                    right = n if right is None else right + n
        return total, right

    def restore(self) -> None:
        """The model is what it was: parameters have their own memory again."""
        with self.torch.no_grad():
            for p, data, grad in self._before:
                p.data, p.grad = data, grad
            for b, value in self._buffers:
                b.copy_(value)

    def finish(self, w: torch.Tensor) -> None:
        """The model keeps these parameters, each in memory of its own, and no gradients."""
        self.use(w)
        for p in self.params:
            p.data = p.data.clone()
            p.grad = None


def _classifies(out: Any, y: torch.Tensor) -> bool:
    return (
        getattr(out, "dim", lambda: 0)() == 2
        and y.dim() == 1
        and not y.is_floating_point()
        and len(out) == len(y)
    )


def _rows(torch: ModuleType, pointer: Any, n: int) -> Any:
    """Numbers of samples, copied from memory of the library."""
    array = (c.c_int32 * n).from_address(c.addressof(pointer.contents))
    return torch.frombuffer(array, dtype=torch.int32).long()


# --- vectors on the host ------------------------------------------------------------------


class _OnHost:
    """Vectors in the library's memory, rules by its store, gradients by callbacks: every method."""

    def __init__(self, setup: Setup, net: _Net, train: _Data, test: Optional[_Data]) -> None:
        self.setup, self.net, self.train, self.test = setup, net, train, test
        self.torch = net.torch
        self._out = self.torch.empty(net.dim, device=net.device)
        function = _structs.Function(dim=net.dim, wants_data=1, classifies=1)
        function.init = _structs.INIT(self._init)
        function.gradient = _structs.GRADIENT(self._gradient)
        function.score = _structs.SCORE(self._score)
        setup.set(threads=1)
        setup.set_function(function)

    def _vector(self, address: int) -> Any:
        """Memory of the library as a tensor."""
        array = (c.c_float * self.net.dim).from_address(address)
        return self.torch.frombuffer(array, dtype=self.torch.float32)

    def _init(self, _: Any, seed: int, w: int) -> None:
        self._vector(w).copy_(self.net.first)

    def _gradient(self, _: Any, w: int, samples: Any, g: int, loss: Any) -> int:
        if self.setup.ending:
            return -6
        try:
            s = samples[0]
            x, y = self.train.rows(_rows(self.torch, s.row, s.n))
            loss[0] = float(self.net.gradient(self._vector(w), x, y, self._out))
            self._vector(g).copy_(self._out)
            return 0
        except BaseException as e:
            self.setup.fail(e)
            return -6

    def _score(self, _: Any, w: int, samples: Any, loss: Any, right: Any) -> None:
        if self.setup.ending:
            return
        was = self.net.model.training
        try:
            s = samples[0]
            data = self.test if s.test and self.test else self.train
            self.net.model.eval()
            self.net.use(self._vector(w))
            total, n = self.net.score(data, _rows(self.torch, s.row, s.n))
            loss[0] = float(total)
            right[0] = int(n) if n is not None else 0
        except BaseException as e:
            self.setup.fail(e)
        finally:
            self.net.model.train(was)

    def run(self) -> Run:
        run = self.setup.simulate()
        weights = run.weights
        assert weights is not None
        self.net.finish(self.torch.frombuffer(weights, dtype=self.torch.float32))
        return run


# --- vectors on the device ----------------------------------------------------------------


class _OnDevice:
    """Versions, gradients and rules stay on the GPU; the library sees addresses alone."""

    def __init__(
        self,
        setup: Setup,
        net: _Net,
        train: _Data,
        test: Optional[_Data],
        kernel: Optional[Callable[[str], Callable[[int, int], None]]] = None,
    ) -> None:
        self.setup, self.net, self.train, self.test = setup, net, train, test
        self.torch = net.torch
        self.vectors: Dict[int, torch.Tensor] = {}
        self._make_kernel = kernel or self._cuda_kernel
        n_eval = min(int(setup.get("eval-samples")), train.n)
        self._eval_rows = self._spread(n_eval, train.n)

    def _spread(self, n: int, n_train: int) -> Any:
        """The samples that the library evaluates (src/learn/task.c): one of each of n parts."""
        i = self.torch.arange(n)
        first, end = i * n_train // n, (i + 1) * n_train // n
        return first + ((end - first) * (i * 0x9E3779B9 % 2**32) >> 32)

    def _cuda_kernel(self, source: str) -> Callable[[int, int], None]:
        from ._cuda import Kernel

        return Kernel(source, self.net.dim, self.torch, self.net.device)

    def _gradient(self, step: _structs.LoopStep, at: loop.Loop) -> None:
        torch = self.torch
        x, y = self.train.rows(_rows(torch, step.row, step.n))
        out = self.vectors[step.out]
        loss = self.net.gradient(self.vectors[step.w], x, y, out)
        # one transfer for both: the largest element is not finite if any is not
        largest = torch.linalg.vector_norm(out, float("inf"))
        value, most = torch.stack((loss.float(), largest)).tolist()
        finite = most - most == 0 and value - value == 0
        at.gradient(value, finite)

    def _evaluate(self, step: _structs.LoopStep, at: loop.Loop) -> None:
        net, torch = self.net, self.torch
        was = net.model.training
        net.model.eval()
        try:
            net.use(self.vectors[step.w])
            total, _ = net.score(self.train, self._eval_rows)
            loss = float(total) / len(self._eval_rows)
            test_loss = accuracy = NAN
            if self.test:
                total, right = net.score(self.test, torch.arange(self.test.n))
                test_loss = float(total) / self.test.n
                if right is not None:
                    accuracy = int(right) / self.test.n
        finally:
            net.model.train(was)
        at.score(loss, test_loss, accuracy)

    def run(self) -> Run:
        torch, net = self.torch, self.net
        with loop.Loop(self.setup, net.dim) as at:
            commit = self._make_kernel(at.kernel())
            while True:
                step = at.next()
                what = step.what
                if what == loop.GRADIENT:
                    self._gradient(step, at)
                elif what == loop.COMMIT:
                    commit(step.argument, step.argument_size)
                elif what == loop.SCORE:
                    self._evaluate(step, at)
                elif what == loop.MEMORY:
                    for _ in range(step.n):
                        vector = torch.zeros(net.dim, device=net.device)
                        self.vectors[vector.data_ptr()] = vector
                        at.give(vector.data_ptr())
                elif what == loop.LOAD:
                    for address in (step.w, step.out):
                        if address:
                            self.vectors[address].copy_(net.first)
                else:
                    net.finish(self.vectors[step.w])
                    return at.run()


# --- the function -------------------------------------------------------------------------


def simulate(
    *,
    model: torch.nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    data: Any,
    test: Any = None,
    vectors: str = "auto",
    on_point: Optional[Callable[[Point], None]] = None,
    on_event: Optional[Callable[[Event], None]] = None,
    on_log: Optional[Callable[[int, str], None]] = None,
    **options: Any,
) -> Run:
    """Simulates the training of `model`, a torch.nn.Module, and leaves the final weights in it. If it
    raises, the model is what it was before.

    `loss(output, target)` is the mean loss of a mini-batch. `data` and `test` are pairs of tensors
    (x, y) or data sets with a length and items. Every option of `paceline simulate` is a keyword
    argument; `partition` and `sampling` work on `data`, `epochs` counts its length.

    `vectors` says where the versions of the model and the gradients are: "host", in the library's
    memory, or "device", on the GPU of the model, which has fewer rules. "auto" is "device" if the
    model is on a GPU; the default method is kasync there, because auto has a rule that a GPU has not.
    Buffers of the model (the statistics of BatchNorm) exist once and are updated by every gradient in
    the order of virtual time.

    >>> model, x = torch.nn.Linear(2, 1), torch.ones(8, 2)
    >>> run = paceline.simulate(model=model, loss=torch.nn.functional.mse_loss, data=(x, x[:, :1]),
    ...                         method="sync", workers=4, updates=10, lr=0.1, batch=2)
    >>> run["updates"], run.diverged
    (10.0, False)"""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"model must be the name of a model or a torch.nn.Module, not a {type(model).__name__}"
        )
    if vectors not in ("auto", "host", "device"):
        raise UsageError(f"vectors is 'auto', 'host' or 'device', not '{vectors}'")
    first = next(model.parameters(), None)
    on_gpu = first is not None and first.is_cuda
    if vectors == "device" and not on_gpu:
        raise UsageError("vectors='device' needs a model on a CUDA device; use vectors='host'")
    on_device = on_gpu and vectors != "host"
    if on_device and "policy" not in options:
        options.setdefault("method", "kasync")
    setup = Setup(on_point=on_point, on_event=on_event, on_log=on_log, **options)
    net = _Net(model, loss, torch)
    try:
        train = _Data(data, net.device, torch, "data")
        held = _Data(test, net.device, torch, "test") if test is not None else None
        loop.set_rows(setup, train.n, held.n if held else 0, train.labels())
        devices = [net.device] if on_gpu else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(setup.get("seed")))
            if on_device:
                return _OnDevice(setup, net, train, held).run()
            return _OnHost(setup, net, train, held).run()
    except BaseException:
        net.restore()
        raise
