"""Text that goes to the library, and text that comes from it."""

from __future__ import annotations

import re
from typing import Any, Match, Optional

__all__ = ["as_keywords", "from_c", "option_text"]

# An option of the command line, and what follows it if that is a value and not the next word of
# the sentence: it has a colon or an equals sign, is quoted, in capitals, or ends a clause.
_FLAG = re.compile(
    r"(?<!\S)--([a-z][a-z0-9-]*)"
    r"(?: (?:'([^']*)'|([^\s;]*[:=][^\s;]*[^\s;,]|[A-Z]+\b|[^\s;,]+(?=[;,]|$))(?![^\s;,])))?"
)


def from_c(value: Optional[bytes]) -> str:
    """A string of the library; empty if there is none."""
    return value.decode("utf-8", "replace") if value else ""


def as_keywords(sentence: str) -> str:
    """A sentence about options, as Python has them: `--lr 0.1` is `lr="0.1"`."""

    def keyword(flag: Match[str]) -> str:
        value = flag[2] or flag[3]
        return flag[1].replace("-", "_") + (f'="{value}"' if value else "=")

    return _FLAG.sub(keyword, sentence)


def option_text(value: Any) -> str:
    """The value of an option as the command line would take it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(v) for v in value)
    return str(value)
