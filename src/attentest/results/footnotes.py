"""Footnotes of results: what a number needs to be read rightly."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import Any

ENDINGS = {
    "decided": "the search stopped once the verdict was certain",
    "max_evaluations": "the search ended at its largest number of evaluations",
    "precision": "the search ended where rounding of the scores hides the rest",
    "sharp": "the scores change too abruptly for the search",
}
"""How searches end that do not converge, by their status."""

FEW_DEGREES = 30.0
"""With fewer degrees of freedom of the standard error than this its uncertainty is mentioned: the 97.5% quantile of
Student's distribution is 4% above that of the normal distribution, and the 99.95% quantile 11%."""

ROUNDING = 1e-9
"""Levels this close are the same."""


def row_notes(row: Mapping[str, Any], rejected: bool | None, alpha: float, interval_level: float | None) -> list[str]:
    """Return what must be said of the numbers of one row of a table.

    Parameters
    ----------
    row
        The row; of an image that could not be tested there is nothing to say.
    rejected
        Whether its own p-value is at most alpha; None if its error bar does not tell.
    alpha
        Significance level.
    interval_level
        Level of the confidence interval that is shown; None if none is.
    """
    from attentest.search import CONVERGED  # imported here: it takes long, and the help of the command line needs none

    if "error" in row:
        return []
    notes = []
    if row["status"] != CONVERGED:
        ended = ENDINGS.get(row["status"], "the search did not converge")
        notes.append(f"{ended} (status {row['status']}): what is shown as a range is only known to lie in it")
    if interval_level is not None:
        interval = row["confidence_low"], row["confidence_high"]
        notes += _interval_notes(row, interval, contradict(rejected, interval, interval_level, alpha))
    notes += noise_notes(row)
    if not row.get("certificate_agrees", True):
        notes.append("the certified p contradicts the search")
    return notes


def component_notes(
    row: Mapping[str, Any], rejected: bool | None, alpha: float, interval_level: float | None
) -> list[str]:
    """Return what must be said of the numbers of a component whose simultaneous interval is shown.

    Parameters
    ----------
    row, alpha, interval_level
        As in :func:`row_notes`.
    rejected
        Whether Holm's method rejects its hypothesis; None if the error bars do not tell.
    """
    from attentest.statistics.pvalue import decision  # imported here: as above

    notes = row_notes(row, None, alpha, None)
    if interval_level is None or "simultaneous_low" not in row:  # not tested, or a record of an earlier version
        return notes
    interval, count = (row["simultaneous_low"], row["simultaneous_high"]), row["simultaneous_count"]
    alone = decision(row["pvalue_low"], row["pvalue_high"], alpha / count)
    disagree = contradict(alone, interval, interval_level, alpha)
    if not disagree and rejected and contradict(rejected, interval, interval_level, alpha):
        notes.append(
            "Holm's method rejects a difference of 0, which is in the simultaneous interval: these intervals are "
            "Bonferroni's, wider than Holm's decisions need"
        )
    return [*notes, *_interval_notes(row, interval, disagree)]


def _interval_notes(row: Mapping[str, Any], interval: tuple[float, float], disagree: bool) -> list[str]:
    """Return what must be said of the interval of a row, which disagrees with its p-value about zero or not."""
    notes = []
    if row["alternative"] == "two-sided" and any(map(isinf, interval)):
        notes.append("an infinite end: the image and the selection do not bound the difference on that side")
    if row["two_sided"] == "absolute" and disagree:
        notes.append(
            "p and the interval disagree about a difference of 0: p counts both tails beyond |T| together, the "
            "interval has the same probability in each tail; p agrees with it if it is asked for with "
            'two_sided="equal-tailed"'
        )
    return notes


def contradict(rejected: bool | None, interval: tuple[float, float], interval_level: float, alpha: float) -> bool:
    """Return whether a two-sided decision at alpha and an interval of level 1 - alpha disagree about zero.

    Those of the paper's p-value can. An equal-tailed p-value cannot: whether it is at most alpha is a question about
    the same two tails as whether the interval contains zero, also where a search left something open.
    """
    same_level = abs(1 - interval_level - alpha) < ROUNDING
    return same_level and rejected is not None and rejected == (interval[0] <= 0 <= interval[1])


def noise_notes(row: Mapping[str, Any]) -> list[str]:
    """Return what must be said of the noise model of a row, in words that rows have in common."""
    notes = []
    degrees = row.get("degrees_of_freedom")
    if degrees is not None and degrees < FEW_DEGREES:
        images = "" if row["reference_images"] is None else f" from {row['reference_images']} reference images"
        notes.append(
            f"the noise is an estimate{images} with fewer than {FEW_DEGREES:.0f} degrees of freedom: p and interval "
            "allow for it, and more images would make the interval shorter"
        )
    if row.get("noise_doubt"):
        notes.append(
            "the noise is doubtful: the finest details of the image are much larger or smaller than it would make "
            "them; check the units, and the noise model"
        )
    return notes


def selection_notes(row: Mapping[str, Any]) -> list[str]:
    """Return what must be said of how the test of a row was made, where it is not as in the paper."""
    if "error" in row:
        return []
    notes = []
    if row["region_unit"] == "patches":
        notes.append("the region consists of whole patches of the model")
    if row["gamma"]:
        seed = "" if row["randomise_seed"] is None else f", seed {row['randomise_seed']}"
        notes.append(
            f"randomised selection: the region was chosen on the image plus noise of {row['gamma']:g} times its "
            f"own{seed}; map and region are those of that sum, the statistic is that of the image itself"
        )
    if row["two_sided"] == "equal-tailed":
        notes.append("p is twice the probability of the smaller tail, so that it agrees with the interval")
    if row["approximate_noise"]:
        notes.append("approximate: the noise was estimated from the tested image itself, which the test does not know")
    return notes
