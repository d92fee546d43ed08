"""Names of images on the terminal: without characters that control it, and short without becoming the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import ceil

from rich.cells import cell_len

from attentest.markup import plain

ELLIPSIS = "\u2026"  # stands for the part of a name that is left out; three dots where it cannot be written

SHARES = (2 / 3, 1 / 2, 1 / 3)
"""Shares of the room that the end of a name gets, in the order in which they are tried."""


def shown(name: object, encoding: str = "utf-8") -> str:
    """Return the name of an image for the terminal: what is not text in its encoding, or controls it, is escaped."""
    text = str(name) if os.sep == "\\" else str(name).replace("\\", r"\\")  # so that an escape is not another name
    return plain(text).encode(encoding, "backslashreplace").decode(encoding)


def common_folder(names: Sequence[str]) -> str:
    """Return the leading folders that all names have in common, with the slash behind them; "" if there are none."""
    shared = names[0][: _shared(names)].partition("[")[0]  # behind it is the place of an image in a stack
    return shared[: shared.rfind("/") + 1]


def shortened(names: Iterable[str], width: int, ellipsis: str = ELLIPSIS) -> dict[str, str]:
    """Return names by themselves in at most ``width`` cells of a terminal each, no two of them the same.

    The names are as :func:`shown` returns them; a Chinese character takes two cells. The middle of a long name is left
    out. Of names that this would make the same, the part that tells them apart is shown; if there is no room for it,
    they are numbered.
    """
    whole = list(dict.fromkeys(names))
    attempts = [[elided(name, width, ellipsis, share) for name in whole] for share in SHARES]
    short = next((texts for texts in attempts if not _alike(texts)), attempts[0])
    for places in _alike(short):
        for place, text in zip(places, _told_apart([whole[i] for i in places], width, ellipsis), strict=True):
            short[place] = text
    taken = set(short)
    for places in _alike(short):
        for number, place in enumerate(places, start=1):
            short[place] = _numbered(short[place], number, width, ellipsis, taken)
            taken.add(short[place])
    return dict(zip(whole, short, strict=True))


def elided(text: str, width: int, ellipsis: str = ELLIPSIS, end_share: float = SHARES[0]) -> str:
    """Return a text in at most ``width`` cells, without its middle if it is longer; its end has a share of the room."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 1:
        return ellipsis[:width]
    end = _end(text, ceil(end_share * room))
    return f"{_start(text, room - cell_len(end))}{ellipsis}{end}"


def _told_apart(names: Sequence[str], width: int, ellipsis: str) -> list[str]:
    """Return different names from where they differ on; equal ones where there is no room to tell them apart."""
    before = _shared(names)
    texts = [f"{ellipsis}{elided(name[before:], width - cell_len(ellipsis), ellipsis, SHARES[-1])}" for name in names]
    for places in _alike(texts):
        if len(places) < len(names):
            for place, text in zip(places, _told_apart([names[i] for i in places], width, ellipsis), strict=True):
                texts[place] = text
    return texts


def _numbered(text: str, number: int, width: int, ellipsis: str, taken: set[str]) -> str:
    """Return a name with a number behind it that no other name has."""
    while True:
        mark = f"#{number}"
        numbered = f"{elided(text, max(width - len(mark), 0), ellipsis)}{mark}"
        if numbered not in taken:
            return numbered
        number += 1


def _alike(texts: Sequence[str]) -> list[list[int]]:
    """Return the places of texts that are the same, for each text that is there more than once."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, []).append(place)
    return [equal for equal in places.values() if len(equal) > 1]


def _shared(texts: Sequence[str]) -> int:
    """Return the number of characters with which all texts begin alike."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _start(text: str, room: int) -> str:
    """Return as much of the start of a text as fits into so many cells."""
    length = room
    while cell_len(text[:length]) > room:
        length -= 1
    return text[:length]


def _end(text: str, room: int) -> str:
    """Return as much of the end of a text as fits into so many cells."""
    length = min(room, len(text))
    while cell_len(text[len(text) - length :]) > room:
        length -= 1
    return text[len(text) - length :]
