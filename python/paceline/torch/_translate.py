"""Translates a PyTorch optimizer into options of the server, or says why that is impossible."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import torch

from .._catalog import catalog
from ..errors import UsageError
from ._local import LOCAL_RULES
from ._vector import Vector

__all__ = ["Columns", "Rule", "columns", "layout", "options", "refuse_plain", "rule"]

_USE_LOCAL = (
    "; use a method with local steps (local-sgd, diloco, easgd, …), with which every worker runs "
    "this optimizer itself and sends the change"
)
_OWN_MOMENTUM = ("dana", "ormo")  # optimizers that only asynchronous methods have


@dataclass
class Rule:
    """What the server is told: options, the base rate, and factors of every param group."""

    options: Dict[str, Any]  # none if the worker's own optimizer takes the steps
    lr: float
    lr_factor: List[float] = field(default_factory=list)
    decay_factor: List[float] = field(default_factory=list)

    def rate(self, param_groups: Any) -> float:
        """The base rate now, from the learning rates of the param groups."""
        groups = [(float(g["lr"]), f) for g, f in zip(param_groups, self.lr_factor)]
        base = next((lr / f for lr, f in groups if f > 0), 0.0)
        if any(abs(lr - f * base) > 1e-6 * (abs(lr) + f * base) for lr, f in groups):
            raise UsageError(
                "the learning rates of the param groups have changed in relation to each other, "
                "but the server has constant factors; use a method with local steps (local-sgd, "
                "diloco, easgd, …)"
            )
        return base


@dataclass
class Columns:
    """What matters here of a method: its local rule and its optimizer."""

    method: str
    local: str
    local_options: Dict[str, float]
    optim: str

    @property
    def takes_steps(self) -> bool:
        """Whether the worker's own optimizer takes the steps."""
        o = self.local_options
        return self.local in LOCAL_RULES and not o.get("delta") and not o.get("beta")

    @property
    def sends_gradients(self) -> bool:
        return self.local == "gradient"


def _options(text: str) -> Dict[str, str]:
    return dict(p.split("=", 1) for p in text.split(",") if "=" in p)


def columns(options: Dict[str, Any]) -> Columns:
    """Looks up the method. Errors in specs are the server's to report."""
    given = str(options.get("method") or "")
    name, _, args = given.partition(":")
    detail = next((m.detail for m in catalog("method") if m.name == name), "")
    found = dict(re.findall(r"--([\w-]+) (\S+)", detail))
    local = str(options.get("local") or found.get("local", "gradient"))
    rule_name, _, rule_args = local.partition(":")
    values = {}
    for item in catalog("local"):
        if item.name == rule_name:
            values = {o.name: o.default for o in item.options}
    known = set(values)
    values.update(_options(rule_args))
    values.update({k: v for k, v in _options(args).items() if k in known})
    numbers = {}
    for key, value in values.items():
        try:
            numbers[key] = float(value)
        except ValueError:
            pass
    optim = str(options.get("optim") or found.get("optim", "sgd"))
    return Columns(given or str(options.get("policy") or "kasync"), rule_name, numbers, optim)


# --- hyper-parameters -------------------------------------------------------------------------------


def _same(optimizer: Any, names: Tuple[str, ...]) -> Dict[str, Any]:
    """Hyper-parameters that all groups must have in common."""
    groups = optimizer.param_groups
    kind = type(optimizer).__name__
    for name in names:
        if any(g[name] != groups[0][name] for g in groups):
            raise UsageError(
                f"the param groups of {kind} differ in {name}, but the server has one rule for all "
                "of them (lr and weight_decay may differ)" + _USE_LOCAL
            )
    return {name: groups[0][name] for name in names}


def _refuse(optimizer: Any, what: str) -> UsageError:
    return UsageError(f"the server has no {type(optimizer).__name__} with {what}" + _USE_LOCAL)


def _sgd(optimizer: Any) -> str:
    h = _same(optimizer, ("momentum", "dampening", "nesterov"))
    if h["nesterov"]:
        return f"nesterov:beta={h['momentum']!r},form=torch"
    if h["momentum"]:
        return f"momentum:beta={h['momentum']!r},dampening={float(h['dampening'])!r}"
    return "sgd"


def _adam(optimizer: Any) -> str:
    h = _same(optimizer, ("betas", "eps", "amsgrad"))
    if h["amsgrad"]:
        raise _refuse(optimizer, "amsgrad")
    name = "adamw" if type(optimizer) is torch.optim.AdamW else "adam"
    (beta1, beta2), eps = h["betas"], h["eps"]
    return f"{name}:beta1={float(beta1)!r},beta2={float(beta2)!r},eps={float(eps)!r}"


def _adagrad(optimizer: Any) -> str:
    h = _same(optimizer, ("lr_decay", "eps", "initial_accumulator_value"))
    if h["lr_decay"] or h["initial_accumulator_value"]:
        raise _refuse(optimizer, "lr_decay or initial_accumulator_value")
    return f"adagrad:eps={float(h['eps'])!r}"


_KINDS = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adam,
    torch.optim.Adagrad: _adagrad,
}


def _optim(optimizer: Any, at: Columns, given: bool) -> str:
    """The server's optimizer for a wrapped one."""
    translate = _KINDS.get(type(optimizer))
    kind = type(optimizer).__name__
    if translate is None:
        raise UsageError(f"the server has no {kind}, only SGD, Adam, AdamW and Adagrad" + _USE_LOCAL)
    if any(g.get("maximize") for g in optimizer.param_groups):
        raise _refuse(optimizer, "maximize")
    optim = translate(optimizer)
    own = at.optim.partition(":")[0]
    if given:
        if optim != "sgd":
            raise UsageError(
                f"optim={at.optim} and {kind} both set how the server changes the model; leave out "
                "optim, or wrap a plain torch.optim.SGD"
            )
        return at.optim
    if own in _OWN_MOMENTUM:
        if type(optimizer) is not torch.optim.SGD or optimizer.param_groups[0]["dampening"]:
            raise UsageError(
                f"method {at.method} has an optimizer of its own, '{own}'; wrap torch.optim.SGD "
                "without dampening, whose momentum it uses, or choose another method"
            )
        return f"{own}:beta={optimizer.param_groups[0]['momentum']!r}"
    return optim


def refuse_plain(optimizer: Any, at: Columns, n_buffers: int) -> None:
    """For local rules whose steps the library takes: they are those of plain SGD."""
    plain = type(optimizer) is torch.optim.SGD and _sgd(optimizer) == "sgd"
    if not plain or len(optimizer.param_groups) > 1 or n_buffers:
        raise UsageError(
            f"method {at.method} takes its own local steps (rule '{at.local}'), so it needs a plain "
            "torch.optim.SGD without momentum, one param group, and a model without buffers" + _USE_LOCAL
        )


def rule(optimizer: Any, at: Columns, options: Dict[str, Any]) -> Rule:
    """The options that replace the wrapped optimizer, and the factors of its groups."""
    for name in ("lr", "weight_decay"):
        if options.get(name) is not None:
            raise UsageError(
                f"{name}={options[name]} is an option here and a hyper-parameter of "
                f"{type(optimizer).__name__}; set it there, and leave the option out"
            )
    rates = [float(g["lr"]) for g in optimizer.param_groups]
    decays = [float(g.get("weight_decay", 0)) for g in optimizer.param_groups]
    lr, decay = max(rates), max(decays)
    if at.takes_steps:
        return Rule({}, lr, [1.0] * len(rates), [1.0] * len(rates))
    made: Dict[str, Any] = {"weight_decay": decay, "lr": lr}
    if at.sends_gradients:
        made["optim"] = _optim(optimizer, at, options.get("optim") is not None)
    return Rule(
        made,
        lr,
        [r / lr if lr else 1.0 for r in rates],
        [d / decay if decay else 1.0 for d in decays],
    )


def layout(vector: Vector, groups: List[List[int]], made: Rule) -> str:
    """What the server has to know about single tensors, a line each: the factors of their param
    group, what is frozen, what is a buffer. `groups` are the ids of the parameters in each group."""
    lines = []
    group = {i: n for n, ids in enumerate(groups) for i in ids}
    for name, p, trained in zip(vector.names, vector.params, vector.trained):
        lr = made.lr_factor[group[id(p)]] if trained else 0.0
        decay = made.decay_factor[group[id(p)]] if trained else 0.0
        if made.options and (lr != 1 or decay != 1):
            lines.append(f"{name} lr={lr!r} decay={decay!r}")
    lines += [f"{name} buffer=yes" for name in vector.names[len(vector.params) :]]
    return "\n".join(lines)


def options(optimizer: Any, method: Optional[str] = None, **more: Any) -> Dict[str, Any]:
    """Translates an optimizer into options for `paceline.simulate`: "lr", "optim" and
    "weight_decay". Raises UsageError if the method cannot use it. Under methods with local steps,
    simulated workers take the steps of plain SGD, so only "lr" is returned."""
    given = dict(more, method=method) if method else dict(more)
    at = columns(given)
    made = rule(optimizer, at, given)
    if not at.sends_gradients and not at.takes_steps:
        refuse_plain(optimizer, at, 0)
    if at.takes_steps:
        made.options = {"lr": made.lr}
    if any(f != 1 for f in made.lr_factor + made.decay_factor):
        raise UsageError(
            f"the param groups of {type(optimizer).__name__} differ in lr or weight_decay, but a "
            "simulation has one lr and one weight_decay; give every group the same"
        )
    return dict(made.options)
