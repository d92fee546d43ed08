"""The rules that decide whether the data agree with a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import norm

from attentest.statistics.multiple_testing import rate_of
from attentest.studies.document import NO_DATA, Outcome, Verdict, number
from attentest.studies.reproduction.measures import COUNTS, IMAGES, SECONDS, Setting, chosen, label

Rated: TypeAlias = tuple[str, Mapping[str, Any]]
"""A name and its rate."""

SIGNIFICANCE = 0.05  # of all comparisons of a statement together
FEWEST_EXPECTED = 10  # expected rejections of a valid test below which a rate says nothing about its level
FEWEST_IMAGES = 100  # below which a rate is not compared with a published one
FEWEST_TIMED = 10  # images of a search below which its cost is not compared
SLIGHTLY = 1.5  # rates up to this many times a level exceed it slightly
STRAIGHT = 0.9  # share of steps that must be straight for curves to be approximately linear
CLOSE_TO_ZERO = 0.05  # largest |f_i| that counts as close to zero, in every image; attention lies between 0 and 1
SAME_P = 1e-3  # largest difference of p-values that counts as none


def enough(rate: Mapping[str, Any]) -> bool:
    """Return whether a rate has enough images to say something about its level."""
    # A product such as 1000 * 0.01 may fall short of 10 by its rounding.
    return bool(rate["total"] * rate["level"] >= FEWEST_EXPECTED - 1e-9)


def span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Return the least and the greatest of some values as text, or the only one."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def _described(rates: Sequence[Rated]) -> str:
    """Return how many rates there are, of how many images, and their range."""
    images = span([rate["total"] for _, rate in rates], "{:,}".format)
    counted = f"1 rate of {images} images" if len(rates) == 1 else f"{len(rates)} rates of {images} images each"
    return f"{counted}: {span([rate['value'] for _, rate in rates], '{:.3f}'.format)}"


def keeps_level(rates: Sequence[Rated]) -> Verdict:
    """Judge that a test keeps its level: none of its rates lies above the band."""
    above = [(name, rate) for name, rate in rates if rate["above_band"]]
    below = sum(not rate["within_band"] and not rate["above_band"] for _, rate in rates)
    sentence = f"{_described(rates)}; {len(above)} above the band, {below} below it."
    if above:
        shown = "; ".join(f"{name}: {rate['value']:.3f}" for name, rate in above[:4])
        more = f"; and {len(above) - 4} more" if len(above) > 4 else ""
        return Verdict("differs", f"{sentence} Above: {shown}{more}.")
    few = sum(not enough(rate) for _, rate in rates)
    if few == len(rates):
        return Verdict("not enough data", sentence)
    return Verdict("holds", sentence + (f" {few} had too few images to tell." if few else ""))


def breaks_level(rates: Sequence[Rated]) -> Verdict:
    """Judge that a test does not keep its level: some of its rates lie above the band."""
    above = sum(rate["above_band"] for _, rate in rates)
    told = any(enough(rate) for _, rate in rates)
    outcome: Outcome = "holds" if above else "differs" if told else "not enough data"
    return Verdict(outcome, f"{_described(rates)}; {above} above the band.")


def score(theirs: float, ours: Mapping[str, Any]) -> float:
    """Return the difference of our rate from a published one, in units of its standard error."""
    variance = theirs * (1 - theirs) / IMAGES + ours["value"] * (1 - ours["value"]) / ours["total"]
    return float((ours["value"] - theirs) / np.sqrt(variance))


def largest_agreeing_score(comparisons: int) -> float:
    """Return the |z| that some comparisons of equal rates stay below together with probability 0.95."""
    return float(norm.isf(SIGNIFICANCE / comparisons / 2))


def agrees(pairs: Sequence[tuple[str, float, Mapping[str, Any]]]) -> Verdict:
    """Judge that published rates and ours, given with their names, differ by no more than chance explains."""
    sentence = "; ".join(f"{name}: {theirs:.3f}, here {ours['value']:.3f}" for name, theirs, ours in pairs)
    if min(ours["total"] for _, _, ours in pairs) < FEWEST_IMAGES:
        return Verdict("not enough data", f"Published and here: {sentence}.")
    greatest = max(abs(score(theirs, ours)) for _, theirs, ours in pairs)
    most = largest_agreeing_score(len(pairs))
    return Verdict(
        "holds" if greatest <= most else "differs",
        f"Published and here: {sentence}. Greatest |z| {greatest:.2f}; up to {most:.2f} is chance.",
    )


def more_powerful(settings: Sequence[Setting]) -> Verdict:
    """Judge that the selective test finds more than Bonferroni: their intervals are apart in every setting."""
    pairs = [(setting["tests"]["selective"], setting["tests"]["bonferroni"]) for setting in settings]
    apart = sum(ours["low"] > other["high"] for ours, other in pairs)
    few = min(ours["total"] for ours, _ in pairs) < FEWEST_IMAGES
    values = [ours["value"] for ours, _ in pairs]
    return Verdict(
        "holds" if apart == len(pairs) else "not enough data" if few else "differs",
        f"In {apart} of {len(pairs)} settings the interval of the selective test lies above that of Bonferroni; "
        f"selective {min(values):.3f} to {max(values):.3f}, Bonferroni at most "
        f"{max(other['value'] for _, other in pairs):.3f}.",
    )


def finds_as_many(settings: Sequence[Setting]) -> Verdict:
    """Judge that our tests find as many signals as the paper's: none finds fewer by more than chance explains.

    They see the same images, so that differences are taken for more random than they are.
    """
    pairs = [
        (paper["rejected"], one["rejected"])
        for one in settings
        for paper in _beside(one, settings, "pixels")
        if paper is not one
    ]
    if not pairs:
        return NO_DATA
    scores = [_difference(paper, ours) for paper, ours in pairs]
    most = float(norm.isf(SIGNIFICANCE / len(pairs)))
    fewer, more = sum(z < -most for z in scores), sum(z > most for z in scores)
    few = min(ours["total"] for _, ours in pairs) < FEWEST_IMAGES
    paper_rates, our_rates = (span([pair[at]["value"] for pair in pairs], "{:.3f}".format) for at in (0, 1))
    return Verdict(
        "not enough data" if few else "differs" if fewer else "holds",
        f"Of {len(pairs)} comparisons ours finds more in {more} and fewer in {fewer}, by more than chance explains; "
        f"the paper's {paper_rates}, ours {our_rates}.",
    )


def _beside(setting: Setting, settings: Sequence[Setting], region: str) -> list[Setting]:
    """Return the test without randomised selection on the same images, with pixels or patches."""
    names = ("model", "noise", "published", "delta")
    return chosen(settings, randomise=0.0, region=region, **{name: setting[name] for name in names})


def _difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the difference of two rates in units of its standard error; each counts half an image more, of two."""
    shares = [((one["count"] + 0.5) / (one["total"] + 1), one["total"]) for one in (first, second)]
    return float((shares[1][0] - shares[0][0]) / np.sqrt(sum(share * (1 - share) / total for share, total in shares)))


def within_bounds(settings: Sequence[Setting]) -> Verdict:
    """Judge that no interval is longer than its bound, but for what its search left open."""
    lengths = [one["length"] for one in settings if one["length"] and one["length"]["bounded"]]
    if not lengths:
        return NO_DATA
    count, over = (sum(length[name] for length in lengths) for name in ("bounded", "over_bound"))
    longest = max(length["longest"] for length in lengths)
    return Verdict(
        "differs" if over else "not enough data" if count < FEWEST_IMAGES else "holds",
        f"{over:,} of {count:,} intervals are longer than their bounds; the longest has {longest:.4f} times its bound.",
    )


def takes_no_more(settings: Sequence[Setting]) -> Verdict:
    """Judge that randomised selection takes no more evaluations than conditioning on the same kind of region does."""
    pairs = [
        (exact["evaluations"], one["evaluations"])
        for one in settings
        if one["randomise"] and one["evaluations"]
        for exact in _beside(one, settings, one["region"])
        if exact["evaluations"]
    ]
    if not pairs:
        return NO_DATA
    more, few = sum(ours > exact for exact, ours in pairs), min(one["images"] for one in settings) < FEWEST_TIMED
    exact_range, our_range = (span([pair[at] for pair in pairs], number) for at in (0, 1))
    return Verdict(
        "not enough data" if few else "differs" if more else "holds",
        f"More in {more} of {len(pairs)} comparisons of mean evaluations per image; without randomising {exact_range}, "
        f"with it {our_range}. All searches go as far as a 95% interval needs, to the same tolerance.",
    )


def adaptive_needs_least(field: str) -> Callable[[Sequence[Setting]], Verdict]:
    """Return the rule that adaptive needs less than fixed and combination; field is "seconds" or "evaluations"."""

    def judge(settings: Sequence[Setting]) -> Verdict:
        costs: dict[tuple[str, str], dict[str, float]] = {}
        for setting in settings:
            if setting[field] is not None:
                costs.setdefault((setting["model"], setting["noise"]), {})[setting["search"]] = setting[field]
        compared = [cost for cost in costs.values() if set(SECONDS) <= set(cost)]
        if not compared:
            return NO_DATA
        least = sum(cost["adaptive"] < min(cost["fixed"], cost["combination"]) for cost in compared)
        fewest = min(setting["images"] for setting in settings if setting["search"] in SECONDS)
        unit = "s" if field == "seconds" else field
        ranges = "; ".join(f"{search} {span([cost[search] for cost in compared], number)} {unit}" for search in SECONDS)
        paper = "; ".join(f"{search} {low:,.0f} to {high:,.0f} s" for search, (low, high) in SECONDS.items())
        beside = f" The paper, on its machine: {paper}." if field == "seconds" else ""
        return Verdict(
            "not enough data" if fewest < FEWEST_TIMED else "holds" if least == len(compared) else "differs",
            f"Adaptive is least in {least} of {len(compared)} settings. Per image: {ranges}.{beside}",
        )

    return judge


def below_levels(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are below the levels: some intervals are, and none is above."""
    return _judged(settings, lambda above, below, far: "differs" if above else "holds" if below else "not enough data")


def at_most_slightly_above(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are at the levels or slightly above: no interval is above 1.5 times its level."""
    return _judged(settings, lambda above, below, far: "differs" if far else "holds")


def above_levels(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are above the levels: some intervals are."""
    # With fewer images than in the paper, a level that seems kept may not be.
    as_many = all(setting["images"] >= COUNTS["non-gaussian"] for setting in settings)
    otherwise: Outcome = "differs" if as_many else "not enough data"
    return _judged(settings, lambda above, below, far: "holds" if above else otherwise)


def _judged(settings: Sequence[Setting], outcome: Callable[[list[str], list[str], list[str]], Outcome]) -> Verdict:
    """Judge by the rates whose intervals, 95% together, lie above their level, below it, and far above it."""
    rates = [
        (f"{setting['distance']:g} at level {alpha}", float(alpha), rate)
        for setting in settings
        for alpha, rate in setting["levels"].items()
    ]
    intervals = [
        (name, alpha, rate_of(np.arange(rate["total"]) < rate["count"], 1 - SIGNIFICANCE / len(rates)))
        for name, alpha, rate in rates
    ]
    above = [name for name, alpha, interval in intervals if interval.low > alpha]
    far = [name for name, alpha, interval in intervals if interval.low > SLIGHTLY * alpha]
    below = [name for name, alpha, interval in intervals if interval.high < alpha]
    shown = ", ".join(
        f"{setting['distance']:g}: " + " and ".join(f"{rate['value']:.3f}" for rate in setting["levels"].values())
        for setting in settings
    )
    # The intervals of too few images are wide and not to be trusted.
    told = all(enough(rate) for _, _, rate in rates)
    return Verdict(
        outcome(above, below, far) if told else "not enough data",
        f"Rates at levels {' and '.join(settings[0]['levels'])} by distance: {shown}. "
        f"Above the level: {'; '.join(above) or 'none'}. Below it: {'; '.join(below) or 'none'}. "
        f"Above {SLIGHTLY:g} times the level: {'; '.join(far) or 'none'}.",
    )


def nearly_linear(settings: Sequence[Setting]) -> Verdict:
    """Judge that f_i is nearly linear over the paper's largest step, away from the statistic."""
    bent, total = (sum(setting["bent"][name] for setting in settings) for name in ("count", "total"))
    return Verdict(
        "holds" if bent <= (1 - STRAIGHT) * total else "differs",
        f"{bent:,} of {total:,} steps of about 0.2 ({bent / total:.1%}) leave the chord by more than a tenth of their "
        f"change (or of 0.01, where the change is smaller). Up to {1 - STRAIGHT:.0%} counts as nearly linear.",
    )


def small_nearby(settings: Sequence[Setting]) -> Verdict:
    """Judge that some f_i come close to zero near the statistic."""
    smallest, typical = (
        ", ".join(f"{setting[name]:.2g}" for setting in settings) for name in ("smallest_close", "median_close")
    )
    return Verdict(
        "holds" if max(setting["smallest_close"] for setting in settings) <= CLOSE_TO_ZERO else "differs",
        f"Smallest |f_i| within 0.1 of the statistic, over all pixels: {smallest}; that of the median pixel drawn: "
        f"{typical}. Up to {CLOSE_TO_ZERO} in every image counts as close to zero.",
    )


def same_in_float32(settings: Sequence[Setting]) -> Verdict:
    """Judge that float32 gives the regions and the p-values of float64."""
    sentences = [
        f"{label(setting)}, {setting['images']:,} images: the region differs on "
        f"{setting['region_differs']['value']:.1%}, p by {setting['float32']['median']:.2g} in the median and up to "
        f"{setting['float32']['greatest']:.2f}, the verdict at 0.05 on "
        f"{setting['float32']['verdict_changes']['value']:.1%}; the same search in float64 moves p by at most "
        f"{setting['float64']['greatest']:.1g}."
        for setting in settings
    ]
    differ = any(one["float32"]["greatest"] > SAME_P or one["region_differs"]["count"] for one in settings)
    few = min(setting["images"] for setting in settings) < FEWEST_IMAGES
    return Verdict("differs" if differ else "not enough data" if few else "holds", " ".join(sentences))
