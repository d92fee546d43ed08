"""Whether numbers bear a statement out, and a sentence with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attentest.studies.reproduction.paper_model import architecture_of, side_of
from attentest.studies.reproduction.published_figure import largest_agreeing_score, scores
from attentest.studies.verdict import NO_DATA, Verdict

Setting: TypeAlias = dict[str, Any]
Rated: TypeAlias = tuple[str, dict[str, Any]]
"""What a rate is of, and the rate."""

FEWEST_EXPECTED = 10
"""Rejections of a valid test below which a rate says nothing of its level."""

FEWEST_IMAGES = 100
"""Below this a rate is not compared with a published one."""


def label(setting: Setting) -> str:
    """Return a setting in words: "base 16x16, independent noise"."""
    side = side_of(setting["model"])
    authors = ", authors' model" if setting["published"] else ""
    return f"{architecture_of(setting['model'])} {side}x{side}{authors}, {setting['noise']} noise"


def spread(rates: Sequence[Rated]) -> str:
    """Return the least and the greatest of some rates."""
    values = [rate["value"] for _, rate in rates]
    if min(values) == max(values):
        return f"{values[0]:.3f}"
    return f"{min(values):.3f} to {max(values):.3f}"


def counted(rates: Sequence[Rated]) -> str:
    """Return how many rates there are, and of how many images each."""
    totals = sorted({rate["total"] for _, rate in rates})
    images = f"{totals[0]:,}" if len(totals) == 1 else f"{totals[0]:,} to {totals[-1]:,}"
    return f"1 rate of {images} images" if len(rates) == 1 else f"{len(rates)} rates of {images} images each"


def enough(rate: Mapping[str, Any]) -> bool:
    """Return whether a rate is of enough images to say something of its level."""
    # A product such as 1000 * 0.01 may fall short of 10 by its rounding.
    return bool(rate["total"] * rate["level"] >= FEWEST_EXPECTED - 1e-9)


def named(rates: Sequence[Rated], most: int = 4) -> str:
    """Return some rates by name."""
    shown = "; ".join(f"{name}: {rate['value']:.3f}" for name, rate in rates[:most])
    return shown if len(rates) <= most else f"{shown}; and {len(rates) - most} more"


def keeps_level(rates: Sequence[Rated]) -> Verdict:
    """Judge that a test keeps its level: none of its rates lies above the band."""
    if not rates:
        return NO_DATA
    above = [one for one in rates if one[1]["above_band"]]
    below = [one for one in rates if not one[1]["within_band"] and not one[1]["above_band"]]
    sentence = f"{counted(rates)}: {spread(rates)}; {len(above)} above the band, {len(below)} below it."
    if above:
        return Verdict(outcome="differs", numbers=f"{sentence} Above: {named(above)}.")
    told = [one for one in rates if enough(one[1])]
    if not told:
        return Verdict(outcome="not enough data", numbers=sentence)
    few = len(rates) - len(told)
    if few:
        sentence += f" {few} had too few images to tell."
    return Verdict(outcome="holds", numbers=sentence)


def breaks_level(rates: Sequence[Rated]) -> Verdict:
    """Judge that a test does not keep its level: some of its rates lie above the band."""
    if not rates:
        return NO_DATA
    above = [one for one in rates if one[1]["above_band"]]
    sentence = f"{counted(rates)}: {spread(rates)}; {len(above)} above the band."
    if above:
        return Verdict(outcome="holds", numbers=sentence)
    return Verdict(outcome="differs" if any(enough(rate) for _, rate in rates) else "not enough data", numbers=sentence)


def agrees(pairs: Sequence[tuple[str, float, dict[str, Any]]]) -> Verdict:
    """Judge that published rates and ours differ by no more than chance explains.

    Parameters
    ----------
    pairs
        What the rates are of, the published one, and ours.
    """
    if not pairs:
        return NO_DATA
    sentence = "; ".join(f"{name}: {theirs:.3f}, here {ours['value']:.3f}" for name, theirs, ours in pairs)
    if min(ours["total"] for _, _, ours in pairs) < FEWEST_IMAGES:
        return Verdict(outcome="not enough data", numbers=f"Published and here: {sentence}.")
    found = scores([(theirs, ours) for _, theirs, ours in pairs])
    most = largest_agreeing_score(len(pairs))
    greatest = max(abs(score) for score in found)
    return Verdict(
        outcome="holds" if greatest <= most else "differs",
        numbers=f"Published and here: {sentence}. Greatest |z| {greatest:.2f}; up to {most:.2f} is chance.",
    )
