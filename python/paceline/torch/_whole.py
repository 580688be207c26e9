"""Whole numbers in the server's vector: a float per byte, the lowest first, so that they are exact in
whatever precision. The highest byte has the sign; src/base/dtype.c does the same."""

from __future__ import annotations

import torch

__all__ = ["join", "split"]


def _shifts(size: int, device: torch.device) -> torch.Tensor:
    return 8 * torch.arange(size, device=device)


def split(values: torch.Tensor, size: int) -> torch.Tensor:
    """The bytes of int64 values that fit into `size` bytes, as floats."""
    digits = values.unsqueeze(1) >> _shifts(size, values.device)
    digits[:, :-1] &= 255
    return digits.reshape(-1).float()


def join(floats: torch.Tensor, size: int) -> torch.Tensor:
    """The int64 values. If bytes have been averaged, the nearest number."""
    digits = floats.view(-1, size)
    bytes = digits.round()
    powers = torch.ones_like(bytes, dtype=torch.int64) << _shifts(size, floats.device)
    exact = (bytes.long() * powers).sum(1)
    about = (digits.double() * powers).sum(1).round().long()
    return torch.where(((digits - bytes).abs() < 1 / 64).all(1), exact, about)
