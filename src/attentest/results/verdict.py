"""The verdict of a test in words: what the p-value says, and what it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attentest.results.pvalue_text import pvalue_text, with_sign
from attentest.search import CONVERGED
from attentest.statistics.alternative import recorded_tails
from attentest.statistics.pvalue import decision

VERDICTS = {True: "significant", False: "not significant", None: "undecided"}
"""A decision in a word or two."""

OTHERS = {
    "background": "the rest of the image",
    "neighbourhood": "its surroundings",
    "reference": "the same place in the reference image",
    "region mean": "zero",
}
"""What the region is compared with, by the name of the contrast."""

RELATIONS = {"two-sided": "differs from", "greater": "is greater than", "less": "is less than"}
"""What the alternative hypothesis says of the mean of the region and what it is compared with."""

TINY = 1e-4
"""Smaller shares are not written as percentages."""


def verdict_text(values: Mapping[str, Any], alpha: float) -> str:
    """Return the verdict on one result in two or three sentences.

    Parameters
    ----------
    values
        JSON-ready values of the result (``result.to_dict()``).
    alpha
        Significance level.
    """
    low, high = values["pvalue_bounds"]
    rejected = decision(low, high, alpha)
    if rejected is None:
        return (
            f"Undecided at {alpha:g}: the search found only that p lies between {low:.3g} and {high:.3g}. Allow it "
            "more evaluations, or certify the result."
        )
    subject = "attention region" if values["components"] is None else "component of the attention region"
    p = with_sign(pvalue_text(values["pvalue"], (low, high), values["status"]))
    relation = f"the mean of this {subject} {RELATIONS[values['alternative']]} {compared_with(values['contrast'])}"
    meaning = _meaning(values, rejected)
    if rejected:
        return f"Significant at {alpha:g}: {relation} (selective p {p}). {meaning}"
    return (
        f"Not significant at {alpha:g}: there is no evidence that {relation} (selective p {p}). {meaning} This does "
        "not show that there is none."
    )


def _meaning(values: Mapping[str, Any], rejected: bool) -> str:
    """Return in a sentence what the p-value of a result counts."""
    equal_tailed = recorded_tails(values) == "equal-tailed"
    p, low, high = (one / 2 if equal_tailed else one for one in (values["pvalue"], *values["pvalue_bounds"]))
    if values["status"] == CONVERGED:
        share = percentage(p)
    else:
        share = f"at most {percentage(high)}" if rejected else f"at least {percentage(low)}"
    counted = "one at least as large"
    if equal_tailed:  # the estimate is the mean at which both tails are equal, so its sign says which one is smaller
        end = "high as this one or higher" if float(values["estimate"]) > 0 else "low as this one or lower"
        counted = f"one as {end}; p is twice this share, that of the smaller tail"
    return (
        f"Among images without such a difference in which the model chooses this same region, {share} show {counted}."
    )


def short_verdict(rejected: bool | None, alpha: float) -> str:
    """Return a decision at a level in a few words: "not significant at 0.05"."""
    return f"{VERDICTS[rejected]} at {alpha:g}"


def compared_with(contrast: Mapping[str, Any]) -> str:
    """Return what the mean of the region is compared with, from the description of the contrast."""
    if contrast["name"] == "filtered":
        return f"{compared_with(contrast['of'])} in the filtered image"
    return OTHERS.get(contrast["name"], "what it is compared with")


def percentage(share: float) -> str:
    """Return a share as a percentage, or in words if it is tiny."""
    return f"{100 * share:.3g}%" if share >= TINY else f"fewer than 1 in {1 / TINY:,.0f}"
