"""Whether a rank was given the method and the options of rank 0, which count."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..errors import UsageError
from .._text import option_text
from ._translate import columns

__all__ = ["agree", "told"]

# Options that decide what a run computes and when it ends. Folders, files, ports and the like belong
# to rank 0 alone, and so does the rate, which changes during a run.
_SHARED = (
    *("policy", "tuner", "correct", "reduce", "optim", "local", "filter", "attack"),
    *("lr_schedule", "lr_scale", "weight_decay", "max_norm", "average", "wire"),
    *("updates", "epochs", "time", "target_loss", "target_accuracy"),
)


def _text(value: Any) -> str:
    """An option as text; an object is what its class is called."""
    if isinstance(value, (bool, int, float, str, list, tuple)):
        return option_text(value)
    return (value if isinstance(value, type) else type(value)).__qualname__


def told(options: Mapping[str, Any]) -> Dict[str, str]:
    """What a rank was given, as far as it must be the same on all of them."""
    given = {k: _text(options[k]) for k in _SHARED if options.get(k) is not None}
    return {"method": columns(dict(options)).method, **given}


def _same(a: str, b: Optional[str]) -> bool:
    try:
        return a == b or (b is not None and float(a) == float(b))
    except ValueError:
        return False


def agree(
    options: Mapping[str, Any], ran: str, of_rank_0: Mapping[str, str], follows: bool
) -> None:
    """Raises if this rank names another method than the one that is `ran`, or other options than
    rank 0, as far as these are known. `follows`: a server that no script has started hands out the
    ranks, so a script may leave the method to it."""
    mine = told(options)
    if follows:
        if not any(options.get(k) for k in ("method", "policy")):
            return
        of_rank_0 = {}
    if not of_rank_0:  # somewhere else
        name = mine["method"].partition(":")[0]
        mine, of_rank_0 = {"method": name}, {"method": ran}
    who = "the server" if follows else "rank 0"
    for name, value in mine.items():
        its = of_rank_0.get(name)
        if not _same(value, its):
            has = f"has no {name}" if its is None else f"has {name}={its}"
            raise UsageError(
                f"this rank was given {name}={value}, but {who} {has}, which counts; give all of "
                "them the same"
            )
