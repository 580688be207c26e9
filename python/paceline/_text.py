"""Text that goes to the library, and text that comes from it."""

from __future__ import annotations

from typing import Any, Optional

__all__ = ["from_c", "option_text"]


def from_c(value: Optional[bytes]) -> str:
    """A string of the library; empty if there is none."""
    return value.decode("utf-8", "replace") if value else ""


def option_text(value: Any) -> str:
    """The value of an option as the command line would take it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(v) for v in value)
    return str(value)
