"""What a spec can name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from . import _lib, _structs
from ._record import record
from ._text import from_c
from .errors import UsageError

__all__ = ["Item", "ItemOption", "catalog"]


@dataclass(frozen=True)
class ItemOption:
    """An option of an item: its name, its default, a sentence, and what it accepts.

    >>> [(o.name, o.default) for o in paceline.catalog("policy")[0].options]
    [('k', 'all'), ('cancel', 'yes')]"""

    name: str
    default: str
    help: str
    accepts: str


@dataclass(frozen=True)
class Item:
    """Something that a spec can name: a method, a policy, a delay law, an option, …

    >>> item = paceline.catalog("delay")[0]
    >>> item.family, item.name
    ('delay', 'const')
    >>> [i.method["policy"] for i in paceline.catalog("method") if "matrix" in i.needs]
    ['blocks', 'strata', 'blocks:fine=yes']"""

    family: str
    name: str
    brief: str
    paper: str
    when: str  # of a method: when to use it
    command: str  # a command that tries it
    detail: str
    options: List[ItemOption]
    needs: List[str]  # what it needs of a run
    method: Dict[str, Any]  # of a method: what Setup(method=name).method() returns; otherwise empty


def catalog(family: Optional[str] = None) -> List[Item]:
    """Everything that a spec can name, family by family: "method", "policy", "delay", … and
    "option", the options of a run. None lists all families.

    >>> [item.name for item in paceline.catalog("filter")]
    ['none', 'kardam', 'zeno']"""
    items: List[Item] = []

    def each(_: Any, item: Any) -> None:
        i = item[0]
        options = [
            record(ItemOption, o, default=from_c(getattr(o, "def")))
            for o in (i.option[n] for n in range(i.n_options))
        ]
        facts = json.loads(i.facts)
        method = facts.get("method", {})
        items.append(record(Item, i, options=options, needs=facts["needs"], method=method))

    lib = _lib.library()
    status = lib.pl_list(family.encode() if family else None, _structs.ON_ITEM(each), None)
    if status:
        raise UsageError(f"there is no family '{family}'; paceline.catalog() shows all of them")
    return items
