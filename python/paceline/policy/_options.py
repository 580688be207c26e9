"""The options of a policy: their types, and where their values are in the library's memory."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any, ClassVar, Optional, Union

__all__ = [
    "AnyOption",
    "Bool",
    "Bound",
    "Choice",
    "Count",
    "Int",
    "NO_BOUND",
    "Option",
    "Real",
    "Text",
]

NO_BOUND = 2**64 - 1


@dataclass(frozen=True)
class Option:
    """One option of a policy. Its value is an attribute of the policy, under its name."""

    default: Any
    min: float = 0
    max: float = 0
    help: str = ""

    _type = 0
    _ctype: ClassVar[Any] = c.c_int64
    _choices: ClassVar[Optional[str]] = None

    def read(self, address: int) -> Any:
        return self._ctype.from_address(address).value


class Int(Option):
    """A whole number."""


class Real(Option):
    """A number."""

    _type, _ctype = 1, c.c_double


class Bool(Option):
    """yes or no."""

    _type, _ctype = 2, c.c_bool


@dataclass(frozen=True)
class Choice:
    """One of several words, "a|b|c"; the attribute is the word."""

    default: str
    choices: str
    help: str = ""

    _type = 3
    _ctype = c.c_int
    min = max = 0

    @property
    def _choices(self) -> str:
        return self.choices

    def read(self, address: int) -> str:
        return self.choices.split("|")[c.c_int.from_address(address).value]


class Count(Option):
    """A number of workers: "6", "75%" or "all"."""

    _type, _ctype = 4, c.c_int


class Bound(Option):
    """A whole number or "inf", which is `paceline.policy.NO_BOUND`."""

    _type, _ctype = 5, c.c_uint64


@dataclass(frozen=True)
class Text:
    """A text of at most 511 bytes."""

    default: str = ""
    help: str = ""

    _type = 6
    _ctype = c.c_char * 512
    _choices = None
    min = max = 0

    def read(self, address: int) -> str:
        return str(self._ctype.from_address(address).value.decode())


AnyOption = Union[Option, Choice, Text]
