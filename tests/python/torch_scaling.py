"""Gradients of a scaled loss: those of this model are unscaled, or the step raises."""

import unittest
import unittest.mock
from typing import Any, Callable, Dict

import torch

import paceline
import paceline.torch as pl
from workers import CROSS_ENTROPY, batch, flat, net, roles, together

SGD = torch.optim.SGD


class Scaler(torch.cuda.amp.GradScaler):
    """One that works on the CPU, also in versions of PyTorch whose scaler does not."""

    def __init__(self) -> None:
        with unittest.mock.patch("torch.cuda.is_available", return_value=True):
            super().__init__(init_scale=1024.0)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(loss.device)
        return loss * self._scale

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Any, found_inf: Any, allow_fp16: Any
    ) -> Dict[Any, Any]:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.mul_(inv_scale)
        return {torch.device("cpu"): found_inf}


class Scaling(unittest.TestCase):
    def test_scaled_gradients(self) -> None:
        """They are unscaled by scaler.step(opt) or unscale_, or opt.step() raises."""

        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(SGD(model.parameters(), lr=0.1), model, "sync", role=role)

            def backward(scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss) -> None:
                opt.zero_grad()
                x, y = batch(0)
                with torch.autocast("cpu", torch.bfloat16):
                    loss = CROSS_ENTROPY(model(x), y)
                scale(loss).backward()

            backward()
            opt.step()  # bfloat16 needs no scaler
            scaler = Scaler()
            backward(scaler.scale)
            with self.assertRaisesRegex(paceline.UsageError, "scaler.step"):
                opt.step()
            del scaler
            opt._scaling._steps = 0  # every step is looked at
            scaler = Scaler()
            first = flat(model)
            for unscales in (False, True):
                backward(scaler.scale)
                if unscales:
                    scaler.unscale_(opt)
                    opt.step()
                else:
                    scaler.step(opt)
                scaler.update(new_scale=512.0)
                opt._scaling._steps = 0
            self.assertLess(float((flat(model) - first).abs().max()), 1)
            backward()
            opt.step()  # the scaler is that of another model
            opt.close()

        together(1, worker)

    def others(self, order: Any, clears: Any = lambda opt, critic: opt.zero_grad()) -> None:
        """A model with a scaler and another optimizer, beside the critic of the run, which has none.
        `order` is that of its calls and of the critic's step."""
        maker, critic = torch.nn.Linear(6, 6), net()
        opt = pl.Optimizer(SGD(critic.parameters(), lr=0.1), critic, "sync", role=roles(1)[0])
        scaler, sgd = Scaler(), SGD(maker.parameters(), lr=0.1)
        x, y = batch(0)

        def step() -> None:
            clears(opt, critic)
            CROSS_ENTROPY(critic(x), y).backward()
            opt.step()

        calls = {
            "scale": lambda: scaler.scale(CROSS_ENTROPY(maker(x), y)).backward(),
            "through": lambda: scaler.scale(CROSS_ENTROPY(critic(maker(x)), y)).backward(),
            "step": lambda: scaler.step(sgd),
            "update": lambda: scaler.update(new_scale=512.0),
            "critic": step,
        }
        try:
            for _ in range(3):
                for name in order.split():
                    calls[name]()
        finally:
            opt._session.abort()

    def test_teacher(self) -> None:
        """Another model's scaler, wherever its calls are, and if it has not made a step yet."""
        self.others("scale critic step update")
        self.others("scale step critic update")
        self.others("scale scale critic")

    def test_gan(self) -> None:
        """The other model's scaled loss goes through this one, whose gradients of it are cleared."""
        self.others("through critic step update")
        self.others("through step critic update", lambda opt, critic: critic.zero_grad())
        with self.assertRaisesRegex(paceline.UsageError, "scaler.step"):
            self.others("through critic", lambda opt, critic: None)

    def test_one_scaler_for_both(self) -> None:
        """It has unscaled the gradients of the other model only."""
        maker, critic = torch.nn.Linear(6, 6), net()
        opt = pl.Optimizer(SGD(critic.parameters(), lr=0.1), critic, "sync", role=roles(1)[0])
        scaler, sgd = Scaler(), SGD(maker.parameters(), lr=0.1)
        x, y = batch(0)
        scaler.scale(CROSS_ENTROPY(maker(x), y)).backward()
        scaler.step(sgd)
        scaler.scale(CROSS_ENTROPY(critic(x), y)).backward()
        with self.assertRaisesRegex(paceline.UsageError, "scaler.step"):
            opt.step()
        opt._session.abort()


if __name__ == "__main__":
    unittest.main()
