"""Names of images in tables: short enough for their column, and never the same."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from attentest.presentation.tables import common_folder, elided, shortened, shown

FAMILIES = {
    "long": ["a" * 300, "b" * 300, "a" * 299 + "b"],
    "last character": [f"{'scan' * 40}{i}" for i in range(10)],
    "middle": [f"{'x' * 100}{i:03d}{'y' * 100}" for i in range(500)],
    "far apart": [f"{i}{'x' * 80}{j}{'y' * 80}{k}" for i in range(3) for j in range(3) for k in range(3)],
    "prefixes": ["n" * length for length in range(1, 120)],
    "wide": [f"患者{'の写真' * 20}{i}番{'画像' * 20}.png" for i in range(30)],
    "emoji": [f"{'🧠' * 30}{'❤️' * i}{'🩻' * 30}" for i in range(1, 9)],
    "numbered already": [*["q" * 50 + "#1" + "r" * i for i in range(40, 44)], "qqqq…#1", "…#1", "…#2"],
    "escapes": [
        shown(name) for name in ("a\nb" * 40, "a\\nb" * 40, "\x1b[31mred" * 30, "\udcff" * 40, "\u202eevil" * 20)
    ],
    "one": ["z" * 500],
    "empty": ["", "a"],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [7, 10, 12, 20, 26, 60])
@pytest.mark.parametrize("ellipsis", ["…", "..."])
def test_no_two_names_become_the_same(family: str, width: int, ellipsis: str) -> None:
    names = FAMILIES[family]
    short = shortened(names, width, ellipsis)
    assert list(short) == list(dict.fromkeys(names))
    assert len(set(short.values())) == len(short)
    assert max(cell_len(text) for text in short.values()) <= width
    fitting = [name for name in names if cell_len(name) <= width]
    if len(fitting) == len(names):
        assert all(short[name] == name for name in names)


def test_random_names_stay_different() -> None:
    rng = np.random.default_rng(0)
    names = list({"".join(rng.choice(list("ab"), size=rng.integers(1, 40))) for _ in range(500)})
    for width in (7, 12, 20):
        short = shortened(names, width)
        assert len(set(short.values())) == len(names)
        assert max(map(cell_len, short.values())) <= width


def test_the_part_that_tells_names_apart_is_shown() -> None:
    names = [f"{'left' * 20}_{slice_:02d}_{'right' * 20}" for slice_ in range(40)]
    assert all(f"{slice_:02d}" in shortened(names, 20)[name] for slice_, name in enumerate(names))


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        (["a/b/x.npy", "a/b/y.npy"], "a/b/"),
        (["a/bc/x.npy", "a/bd/x.npy"], "a/"),
        (["x.npy", "y.npy"], ""),
        (["/x.npy", "/y.npy"], "/"),
        (["a/x.npz[t/1,0]", "a/x.npz[t/1,1]"], "a/"),
        (["a/b/x.npy"], "a/b/"),
    ],
)
def test_the_folder_that_names_have_in_common(names: list[str], folder: str) -> None:
    assert common_folder(names) == folder


def test_more_of_the_end_is_kept_and_wide_letters_count_twice() -> None:
    assert elided("0123456789", 7) == "01…6789"
    assert elided("0123456789", 10) == "0123456789"
    assert elided("患者患者患者", 7) == "患…患者"
    assert elided("0123456789", 1) == "…"
    assert elided("0123456789", 0) == ""


def test_names_that_the_terminal_cannot_write_are_escaped() -> None:
    assert shown("患\n", "ascii") == r"\u60a3\n"
    assert shown("a\nb") != shown(r"a\nb")
    assert shown("a\x1b[2J\udcff") == r"a\x1b[2J\udcff"
