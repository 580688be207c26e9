"""Translates a PyTorch optimizer into options of the server, or says why that is impossible."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from .._setup import Setup
from ..errors import UsageError
from ._vector import Vector

__all__ = [
    "Columns",
    "Rule",
    "columns",
    "has_steps",
    "hyper_parameters",
    "layout",
    "options",
    "refuse_changes",
    "refuse_plain",
    "refuse_state",
    "rule",
]

_USE_LOCAL = (
    "; use a method with local steps (local-sgd, diloco, easgd, …), with which every worker runs "
    "this optimizer itself and sends the change"
)
# what the kinds of torch.optim have that changes no result; what _KINDS reads is known as well
_HARMLESS = {"foreach", "capturable", "differentiable", "fused"}
_KNOWN = {"lr", "weight_decay", "maximize"} | _HARMLESS
_METHOD = ("method", "policy", "tuner", "correct", "reduce", "optim", "local", "filter", "workers")


@dataclass
class Rule:
    """What the server is told: options, the base rate, and factors of every param group."""

    options: Dict[str, Any]  # none if the worker's own optimizer takes the steps
    lr: float
    lr_factor: List[float] = field(default_factory=list)
    decay_factor: List[float] = field(default_factory=list)
    optim: str = ""  # the name of the server's optimizer, if the wrapped one was translated into it

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
    """What matters here of a method."""

    method: str
    local: str  # the name of its local rule
    takes_steps: bool  # the worker's own optimizer takes the local steps
    sends_gradients: bool
    averages: bool  # weights that all workers load become the server's
    keeps_moving: bool  # momentum of a worker or of the server, which a gradient of 0 does not stop
    optim: str  # a spec,
    optim_name: str  # and the name in it
    fixed_optim: bool  # the method works with this optimizer alone
    blocks: bool  # it hands out blocks of a matrix, which no model of PyTorch has
    reference_every: int  # updates, after which it needs another gradient of rank 0; 0: never


def columns(options: Dict[str, Any]) -> Columns:
    """Looks up the method. Errors in specs are the server's to report: all ranks hear of them."""
    given = {k: options[k] for k in _METHOD if options.get(k)}
    if not given.keys() & {"method", "policy"}:
        given.setdefault("optim", "sgd")  # the default of a run that names an optimizer
    try:
        at = Setup(**given).method()
    except UsageError:
        at = Setup().method()
    return Columns(
        str(options.get("method") or at["name"]),
        at["parts"]["local"][0],
        bool(at["any_optimizer"]),
        at["sends"] == "gradients" and not at["local_steps"],
        bool(at["averages"]),
        bool(at["keeps_moving"]),
        at["optim"],
        at["parts"]["optim"][0],
        bool(at["fixed_optim"]),
        "matrix" in at["needs"],
        int(at["reference_every"]),
    )


@dataclass
class Spec:
    """An optimizer of the server and its options."""

    name: str
    options: Dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


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


def _sgd(optimizer: Any) -> Spec:
    h = _same(optimizer, ("momentum", "dampening", "nesterov"))
    if h["nesterov"]:
        return Spec("nesterov", {"beta": float(h["momentum"]), "form": "torch"})
    if h["momentum"]:
        of = {"beta": float(h["momentum"]), "dampening": float(h["dampening"])}
        return Spec("momentum", of)
    return Spec("sgd")


def _adam(optimizer: Any) -> Spec:
    h = _same(optimizer, ("betas", "eps", "amsgrad"))
    if h["amsgrad"]:
        raise _refuse(optimizer, "amsgrad")
    name = "adamw" if type(optimizer) is torch.optim.AdamW else "adam"
    (beta1, beta2), eps = h["betas"], h["eps"]
    return Spec(name, {"beta1": float(beta1), "beta2": float(beta2), "eps": float(eps)})


def _adagrad(optimizer: Any) -> Spec:
    h = _same(optimizer, ("lr_decay", "eps", "initial_accumulator_value"))
    if h["lr_decay"] or h["initial_accumulator_value"]:
        raise _refuse(optimizer, "lr_decay or initial_accumulator_value")
    return Spec("adagrad", {"eps": float(h["eps"])})


_KINDS: Dict[Any, Tuple[Optional[Callable[[Any], Spec]], Set[str]]] = {
    torch.optim.SGD: (_sgd, {"momentum", "dampening", "nesterov"}),
    torch.optim.Adam: (_adam, {"betas", "eps", "amsgrad"}),
    torch.optim.AdamW: (_adam, {"betas", "eps", "amsgrad", "decoupled_weight_decay"}),
    torch.optim.Adagrad: (_adagrad, {"lr_decay", "eps", "initial_accumulator_value"}),
}


def _refuse_unknown(optimizer: Any, known: Set[str]) -> None:
    """Hyper-parameters of a later PyTorch, unless they are off."""
    for name in set(optimizer.defaults) - known - _KNOWN:
        if any(g.get(name) for g in optimizer.param_groups):
            raise _refuse(optimizer, name)


def has_steps(state: Any) -> bool:
    """Whether the state of an optimizer is more than that of a new one."""
    return any(
        float(s.get("step") or 0) > 0 or s.get("momentum_buffer") is not None
        for s in state.values()
    )


def refuse_state(state: Any) -> None:
    """For rules of the server, which begins with the state of a new optimizer."""
    if has_steps(state):
        raise UsageError(
            "the optimizer has state of earlier steps (momentum or moments), which the server cannot "
            "take; give a new one and resume from a checkpoint of the server (checkpoint=, "
            'resume="auto")' + _USE_LOCAL
        )


def hyper_parameters(optimizer: Any) -> List[Dict[str, Any]]:
    """Those that a rule of the server has from its beginning: all but the learning rates."""
    names = set(optimizer.defaults) - _HARMLESS - {"lr"}
    return [{n: g[n] for n in names if n in g} for g in optimizer.param_groups]


def refuse_changes(before: List[Dict[str, Any]], optimizer: Any) -> None:
    for old, new in zip(before, hyper_parameters(optimizer)):
        for name in old:
            if new.get(name) != old[name]:
                raise UsageError(
                    f"{name} has changed from {old[name]} to {new.get(name)}, but only lr may change "
                    "during a run (OneCycleLR and CyclicLR need cycle_momentum=False)" + _USE_LOCAL
                )


def _optim(optimizer: Any) -> Spec:
    """The server's optimizer for a wrapped one."""
    translate, known = _KINDS.get(type(optimizer), (None, set()))
    kind = type(optimizer).__name__
    if translate is None:
        raise UsageError(
            f"the server has no {kind}, only SGD, Adam, AdamW and Adagrad" + _USE_LOCAL
        )
    if any(g.get("maximize") for g in optimizer.param_groups):
        raise _refuse(optimizer, "maximize")
    _refuse_unknown(optimizer, known)
    return translate(optimizer)


def _given_optim(optimizer: Any, at: Columns) -> str:
    """The optimizer that the caller has given beside a wrapped one."""
    if _optim(optimizer) != Spec("sgd"):
        raise UsageError(
            f"optim={at.optim} and {type(optimizer).__name__} both set how the server changes the "
            "model; leave out optim, or wrap a plain torch.optim.SGD"
        )
    return at.optim


def _fixed_optim(optimizer: Any, at: Columns) -> Spec:
    """The optimizer without which the method does not work."""
    _optim(optimizer)
    if type(optimizer) is not torch.optim.SGD or optimizer.param_groups[0]["dampening"]:
        raise UsageError(
            f"method {at.method} has an optimizer of its own, '{at.optim_name}'; wrap "
            "torch.optim.SGD without dampening, whose momentum it uses, or choose another method"
        )
    return Spec(at.optim_name, {"beta": float(optimizer.param_groups[0]["momentum"])})


def refuse_plain(optimizer: Any, at: Columns) -> None:
    """For local rules whose steps the library takes: they are those of plain SGD. Methods that hand
    out blocks have no use for any optimizer, which the server tells."""
    if at.blocks:
        return
    plain = type(optimizer) is torch.optim.SGD and _sgd(optimizer) == Spec("sgd")
    if any(g.get("maximize") for g in optimizer.param_groups):
        raise _refuse(optimizer, "maximize")
    if not plain or len(optimizer.param_groups) > 1:
        raise UsageError(
            f"method {at.method} takes its own local steps (rule '{at.local}'), so it needs a plain "
            "torch.optim.SGD without momentum and one param group" + _USE_LOCAL
        )


def rule(optimizer: Any, at: Columns, options: Dict[str, Any]) -> Rule:
    """The options that replace the wrapped optimizer, and the factors of its groups."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("LBFGS computes several losses per step, which no method here does")
    for name in ("lr", "weight_decay"):
        if options.get(name) is not None:
            raise UsageError(
                f"{name}={options[name]} is an option here and a hyper-parameter of "
                f"{type(optimizer).__name__}; set it there, and leave the option out"
            )
    rates = [float(g["lr"]) for g in optimizer.param_groups]
    decays = [float(g.get("weight_decay", 0)) for g in optimizer.param_groups]
    if not any(rates):  # a warm-up from 0: a scheduler knows what the rates will be
        first = [float(g.get("initial_lr", 0)) for g in optimizer.param_groups]
    else:
        first = rates
    lr, decay, most = max(rates), max(decays), max(first)
    if at.takes_steps:
        return Rule({}, lr, [1.0] * len(rates), [1.0] * len(rates))
    made = Rule(
        {"weight_decay": decay, "lr": lr},
        lr,
        [r / most if most else 1.0 for r in first],
        [d / decay if decay else 1.0 for d in decays],
    )
    if not at.sends_gradients:
        return made
    if options.get("optim") is not None:
        made.options["optim"] = _given_optim(optimizer, at)
    elif at.fixed_optim:
        made.options["optim"] = str(_fixed_optim(optimizer, at))
    else:
        own = _optim(optimizer)
        made.options["optim"], made.optim = str(own), own.name
    return made


def layout(vector: Vector, groups: List[List[int]], made: Rule) -> str:
    """What the server has to know about single tensors, a line each: the factors of their param
    group, what is frozen, what is a buffer. `groups` are the ids of the parameters in each group.
    """
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
    simulated workers take the steps of plain SGD, so only "lr" is returned.

    >>> model = torch.nn.Linear(2, 1)
    >>> paceline.torch.options(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))["optim"]
    'momentum:beta=0.9,dampening=0.0'"""
    given = dict(more, method=method) if method else dict(more)
    at = columns(given)
    made = rule(optimizer, at, given)
    if not at.sends_gradients and not at.takes_steps:
        refuse_plain(optimizer, at)
    if at.takes_steps:
        made.options = {"lr": made.lr}
    if any(f != 1 for f in made.lr_factor + made.decay_factor):
        raise UsageError(
            f"the param groups of {type(optimizer).__name__} differ in lr or weight_decay, but a "
            "simulation has one lr and one weight_decay; give every group the same"
        )
    return dict(made.options)
