"""Statements about computing rather than testing: what searches cost, the shape of f_i, and precision."""

from __future__ import annotations

from collections.abc import Sequence

from attentest.studies.reproduction.published_figure import SECONDS
from attentest.studies.reproduction.verdict import FEWEST_IMAGES, Setting, label
from attentest.studies.verdict import NO_DATA, Outcome, Verdict

STRAIGHT = 0.9
"""Share of steps that must be straight for curves to be approximately linear."""

FEWEST_TIMED = 10
"""Images of a search below which its cost is not compared."""

SAME_P = 1e-3
"""Difference of p that counts as none."""

CLOSE_TO_ZERO = 0.05
"""|f_i| that counts as close to zero, in every image; attention lies between 0 and 1."""


def adaptive_is_least(settings: Sequence[Setting], field: str) -> Verdict:
    """Judge that the adaptive search costs less than fixed and combination wherever all three were run."""
    costs: dict[tuple[str, str], dict[str, float]] = {}
    fewest = min((setting["images"] for setting in settings if setting["search"] in SECONDS), default=0)
    for setting in settings:
        if setting[field] is not None:
            costs.setdefault((setting["model"], setting["noise"]), {})[setting["search"]] = setting[field]
    compared = [cost for cost in costs.values() if set(SECONDS) <= set(cost)]
    if not compared:
        return NO_DATA
    least = sum(cost["adaptive"] < min(cost["fixed"], cost["combination"]) for cost in compared)
    unit = "s" if field == "seconds" else "evaluations"
    ranges = [_range([cost[search] for cost in compared], search, unit) for search in SECONDS]
    paper = "; ".join(f"{search} {low:,.0f} to {high:,.0f} s" for search, (low, high) in SECONDS.items())
    beside = f" The paper, on its machine: {paper}." if field == "seconds" else ""
    outcome: Outcome = "holds" if least == len(compared) else "differs"
    return Verdict(
        outcome=outcome if fewest >= FEWEST_TIMED else "not enough data",
        numbers=f"Adaptive is least in {least} of {len(compared)} settings. An image takes: {'; '.join(ranges)}."
        + beside,
    )


def _range(values: Sequence[float], name: str, unit: str) -> str:
    low, high = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (min(values), max(values)))
    return f"{name} {low} {unit}" if low == high else f"{name} {low} to {high} {unit}"


def straight(settings: Sequence[Setting]) -> Verdict:
    """Judge that f_i is nearly linear over the paper's largest step, away from the statistic."""
    if not settings:
        return NO_DATA
    bent = sum(setting["bent"]["count"] for setting in settings)
    total = sum(setting["bent"]["total"] for setting in settings)
    return Verdict(
        outcome="holds" if bent <= (1 - STRAIGHT) * total else "differs",
        numbers=f"{bent:,} of {total:,} steps of about 0.2 ({bent / total:.1%}) leave the chord by more than a tenth "
        f"of their change (or of 0.01, where the change is smaller). Up to {1 - STRAIGHT:.0%} counts as nearly linear.",
    )


def small_close(settings: Sequence[Setting]) -> Verdict:
    """Judge that some f_i come close to zero near the statistic."""
    if not settings:
        return NO_DATA
    smallest, typical = (
        ", ".join(f"{setting[name]:.2g}" for setting in settings) for name in ("smallest_close", "median_close")
    )
    close = max(setting["smallest_close"] for setting in settings) <= CLOSE_TO_ZERO
    return Verdict(
        outcome="holds" if close else "differs",
        numbers=f"Smallest |f_i| within 0.1 of the statistic, over all pixels: {smallest}; that of the median pixel "
        f"drawn: {typical}. Up to {CLOSE_TO_ZERO} in every image counts as close to zero.",
    )


def single_precision(settings: Sequence[Setting]) -> Verdict:
    """Judge that float32 gives the regions and the p-values of float64."""
    if not settings:
        return NO_DATA
    sentences = []
    for setting in settings:
        single, double = setting["float32"], setting["float64"]
        sentences.append(
            f"{label(setting)}, {setting['images']:,} images: the region differs on "
            f"{setting['region_differs']['value']:.1%}, p by {single['median']:.2g} in the median and up to "
            f"{single['greatest']:.2f}, the verdict at 0.05 on {single['verdict_changes']['value']:.1%}; the same "
            f"search in float64 moves p by at most {double['greatest']:.1g}."
        )
    differ = any(
        setting["float32"]["greatest"] > SAME_P or setting["region_differs"]["count"] > 0 for setting in settings
    )
    few = min(setting["images"] for setting in settings) < FEWEST_IMAGES
    outcome: Outcome = "differs" if differ else "not enough data" if few else "holds"
    return Verdict(outcome=outcome, numbers=" ".join(sentences))
