"""The types of a policy's options.

    from paceline.options import Count, Real

    options = {"k": Count("all", 1, 1000000, "results that close a group"),
               "wait": Real(1, 0.001, 1e6, "seconds after the first result")}"""

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
    """One option of a policy. Its value is an attribute of the policy, under its name; see the
    example of `Policy`."""

    default: Any
    min: float = 0
    max: float = 0
    help: str = ""

    code: ClassVar[int] = 0  # enum pl_opt_type of the library
    ctype: ClassVar[Any] = c.c_int64
    choices: ClassVar[Optional[str]] = None

    def read(self, address: int) -> Any:
        """The value at an address of the library."""
        return self.ctype.from_address(address).value


class Int(Option):
    """A whole number.

    >>> paceline.options.Int(5, 1, 100, "updates")
    Int(default=5, min=1, max=100, help='updates')"""


class Real(Option):
    """A number.

    >>> paceline.options.Real(0.5, 0, 1, "seconds")
    Real(default=0.5, min=0, max=1, help='seconds')"""

    code, ctype = 1, c.c_double


class Bool(Option):
    """yes or no.

    >>> paceline.options.Bool(True, help="restart the others")
    Bool(default=True, min=0, max=0, help='restart the others')"""

    code, ctype = 2, c.c_bool


@dataclass(frozen=True)
class Choice:
    """One of several words, "a|b|c"; the attribute is the word.

    >>> paceline.options.Choice("plain", "plain|odd", "the form")
    Choice(default='plain', choices='plain|odd', help='the form')"""

    default: str
    choices: str
    help: str = ""

    code: ClassVar[int] = 3
    ctype: ClassVar[Any] = c.c_int
    min = max = 0

    def read(self, address: int) -> str:
        """The value at an address of the library."""
        return self.choices.split("|")[c.c_int.from_address(address).value]


class Count(Option):
    """A number of workers: "6", "75%" or "all".

    >>> paceline.options.Count("all", 1, 1000000, "workers").default
    'all'"""

    code, ctype = 4, c.c_int


class Bound(Option):
    """A whole number or "inf", which is `paceline.options.NO_BOUND`.

    >>> paceline.options.Bound("inf", 0, 1e6, "the largest lag").default
    'inf'"""

    code, ctype = 5, c.c_uint64


@dataclass(frozen=True)
class Text:
    """A text of at most 511 bytes.

    >>> paceline.options.Text("hello", "a greeting")
    Text(default='hello', help='a greeting')"""

    default: str = ""
    help: str = ""

    code: ClassVar[int] = 6
    ctype: ClassVar[Any] = c.c_char * 512
    choices: ClassVar[Optional[str]] = None
    min = max = 0

    def read(self, address: int) -> str:
        """The value at an address of the library."""
        return str(self.ctype.from_address(address).value.decode())


AnyOption = Union[Option, Choice, Text]
