"""Text that comes from outside, such as file names, made harmless to show."""

from __future__ import annotations

LONGEST_CELL = 64
"""Most characters of a name in a table; its middle is left out."""


def plain(text: object) -> str:
    """Return text in which bytes that are not text, and characters that control how others are shown, are escaped."""
    known = str(text).encode("utf-8", "backslashreplace").decode()
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in known)


def short(text: str) -> str:
    """Return text without its middle if it is long: the end of a path tells more than its beginning."""
    if len(text) <= LONGEST_CELL:
        return text
    end = 2 * LONGEST_CELL // 3
    return f"{text[: LONGEST_CELL - 1 - end]}\u2026{text[-end:]}"
