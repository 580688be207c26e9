"""Structures of the library as objects of Python."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from ._text import from_c

__all__ = ["record"]


def record(kind: Any, struct: Any, **given: Any) -> Any:
    """An object of a dataclass, from the fields of the same names in a structure of the library,
    except those given as keywords."""

    def value(field: "Field[Any]") -> Any:
        x, kind = getattr(struct, field.name), str(field.type)
        if kind == "str":
            return from_c(x)
        return bool(x) if kind == "bool" else x

    return kind(**{f.name: value(f) for f in fields(kind) if f.name not in given}, **given)
