"""Gradients on a GPU leave for the server's memory while backward computes the rest of them.

On the CPU, backward and the copy would need the same cores, so the copy is in `step` there."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

__all__ = ["Early"]

_BUCKET = 1 << 20  # elements per transfer, at least
_MISSES = 3  # steps in a row that had to send again, after which nothing is sent early any more


def _after_gradient(p: torch.Tensor, call: Callable[[], None]) -> Tuple[Any, Any]:
    """From now on, `call` is called when backward has added to p.grad. Returns the handle of the hook
    and an object that must live as long as it."""
    if hasattr(p, "register_post_accumulate_grad_hook"):  # PyTorch 2.1
        return p.register_post_accumulate_grad_hook(lambda _: call()), None
    with torch.enable_grad():
        grown: Any = p.expand_as(p)
        node = grown.grad_fn.next_functions[0][0]
    return node.register_hook(lambda *_: call()), node


class Early:
    """The gradients of `params`, which are the first elements of a vector, in buckets.

    `gather(first, last)` returns the flat gradients of these parameters as they are now; the vector
    is like `vector`. Whatever a program does between backward and step (clipping, unscaling, another
    backward) is noticed by `finish`, which compares all that was sent."""

    def __init__(
        self,
        params: Sequence[torch.Tensor],
        gather: Callable[[int, int], List[torch.Tensor]],
        vector: torch.Tensor,
    ) -> None:
        self._gather = gather
        self._hooks: List[Any] = []
        self._sent = torch.empty_like(vector)  # what the last transfers took, on the GPU
        self._side = torch.cuda.Stream(vector.device) if vector.is_cuda else None
        self._to: Optional[torch.Tensor] = None  # the memory that the result goes to
        self.paused = False  # more will be added to the gradients
        self._misses, self._moving = 0, False
        # buckets as (first parameter, last, first element, last); backward begins with the last
        self._buckets: List[Any] = []
        last, end = len(params), sum(p.numel() for p in params)
        self._params_end = end
        begin, waits = end, 0
        self._waits: List[int] = []  # parameters with hooks in every bucket
        for i in reversed(range(len(params))):
            begin -= params[i].numel()
            if params[i].requires_grad:
                waits += 1
                hook = self._hook(i, len(self._buckets))
                self._hooks.append(_after_gradient(params[i], hook))
            if end - begin >= _BUCKET or i == 0:
                self._buckets.append((i, last, begin, end))
                self._waits.append(waits)
                last, end, waits = i, begin, 0
        self._n_params = len(params)
        self.restart()

    def _hook(self, param: int, bucket: int) -> Callable[[], None]:
        return lambda: self._ready(param, bucket)

    def restart(self) -> None:
        """The gradients are computed again."""
        self._seen = [False] * self._n_params
        self._left = list(self._waits)
        self._gone = [False] * len(self._buckets)  # and nothing was added to it since then

    def expect(self, to: Optional[torch.Tensor]) -> None:
        """The gradients that are computed next go to this memory; None: nothing is sent early."""
        self._drain()
        self._to = to if self._misses < _MISSES else None
        self.restart()

    @contextlib.contextmanager
    def _aside(self) -> Any:
        """Inside, transfers are beside what the current stream computes, and after what it has."""
        self._moving = True
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._sent.device))
        with torch.no_grad(), torch.cuda.stream(self._side):
            yield

    def close(self) -> None:
        """Nothing is sent any more, and the model has no hooks left."""
        self.expect(None)
        for handle, _ in self._hooks:
            handle.remove()

    def _drain(self) -> None:
        if self._moving and self._side is not None:
            self._side.synchronize()
        self._moving = False

    def _transfer(self, begin: int, end: int, parts: List[torch.Tensor]) -> None:
        assert self._to is not None
        torch.cat(parts, out=self._sent[begin:end])
        self._to[begin:end].copy_(self._sent[begin:end], non_blocking=True)

    def _ready(self, param: int, bucket: int) -> None:
        if self._to is None or self.paused:
            return
        if self._side is not None and torch.cuda.is_current_stream_capturing():
            return  # a CUDA graph is recorded, which calls no hooks when it runs
        if self._seen[param]:  # a second backward
            self._gone[bucket] = False
            return
        self._seen[param] = True
        self._left[bucket] -= 1
        if self._left[bucket] == 0:
            first, last, begin, end = self._buckets[bucket]
            with self._aside():  # what is gathered is memory of that stream, too
                self._transfer(begin, end, self._gather(first, last))
            self._gone[bucket] = True

    def finish(self, now: torch.Tensor) -> bool:
        """Sends what has not gone yet of the vector `now`. Returns whether all that has gone is what
        it should be; otherwise the caller sends everything."""
        if self._to is None:
            return False
        wasted = False
        with self._aside():
            for (_, _, begin, end), gone, left in zip(self._buckets, self._gone, self._left):
                if not gone:
                    self._transfer(begin, end, [now[begin:end]])
                    wasted |= left == 0
            if len(now) > self._params_end:
                self._transfer(self._params_end, len(now), [now[self._params_end :]])
        self._drain()
        same = torch.equal(now.view(torch.int32), self._sent.view(torch.int32))
        self._misses = self._misses + 1 if wasted or not same else 0
        self._to = None
        return same
