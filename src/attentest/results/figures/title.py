"""Texts in figures: names of images of any length and in any script, and paragraphs."""

from __future__ import annotations

import textwrap
import unicodedata
from functools import cache
from typing import Any

WIDE_FONTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK KR", "Noto Sans JP", "Source Han Sans", "IPAexGothic"),
    *("TakaoGothic", "VL Gothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Hiragino Sans"),
    *("PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei"),
    *("Malgun Gothic", "Arial Unicode MS", "Unifont"),
)
"""Fonts with Chinese, Japanese and Korean characters, which Matplotlib's own does not have."""


def shown_name(name: str, letters: int) -> dict[str, Any]:
    """Return the name of an image as arguments of Matplotlib's text: as it is, in at most so many letters."""
    text, families = drawable(name)
    return {"s": shortened_name(text, letters), "family": list(families), "parse_math": False}


def shortened_name(name: str, letters: int) -> str:
    """Return a name of at most so many letters, of which a wide one counts as two: its ends, with dots between them."""
    if _width(name) <= letters:
        return name
    head, tail = "", ""
    while _width(head) + _width(tail) < letters - 3:
        if _width(head) < _width(tail):
            head += name[len(head)]
        else:
            tail = name[len(name) - len(tail) - 1] + tail
    return f"{head}…{tail}"


def drawable(text: str) -> tuple[str, tuple[str, ...]]:
    """Return text with the font families to draw it in; what no installed font has, or is no letter, is escaped."""
    import matplotlib as mpl

    usual = tuple(mpl.rcParams["font.family"])
    known = _letters(usual)
    other = {letter for letter in text if ord(letter) not in known}
    extra = [family for family in _installed() if any(ord(letter) in _letters((family,)) for letter in other)]
    families = (*usual, *extra)
    have = set().union(*(_letters((family,)) for family in extra)) | known
    return "".join(one if one.isprintable() and ord(one) in have else _escaped(one) for one in text), families


def wrapped(text: str, letters: int) -> str:
    """Return a paragraph in lines of at most so many letters."""
    return "\n".join(textwrap.wrap(text, max(letters, 20)))


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


@cache
def _installed() -> tuple[str, ...]:
    from matplotlib import font_manager

    present = {font.name for font in font_manager.fontManager.ttflist}
    return tuple(family for family in WIDE_FONTS if family in present)


@cache
def _letters(families: tuple[str, ...]) -> frozenset[int]:
    """Return the code points of the letters that a font has."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties(family=list(families))))
    return frozenset(font.get_charmap())
