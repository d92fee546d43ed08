"""P-values, estimates, verdicts and footnotes as text, for tables, figures and reports.

What needs NumPy or torch is imported where it is used: the help of the command line needs none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any

from attentest.errors import counted

if TYPE_CHECKING:
    from attentest.record import ResultRecord
    from attentest.statistics.confidence_interval import ConfidenceInterval
    from attentest.statistics.multiple_testing import Adjustment, ManyPvalues

SMALLEST = 1e-307
"""Smaller p-values are shown as below it: their digits are lost in a float64."""


def number_text(p: float, digits: int = 3) -> str:
    """Return a p-value that is known exactly."""
    return f"<{SMALLEST:g}" if p < SMALLEST else f"{p:.{digits}g}"


def range_text(low: float, high: float, digits: int = 3) -> str:
    """Return the bounds on a p-value."""
    return f"{'0' if low < SMALLEST else number_text(low, digits)} to {number_text(high, digits)}"


def pvalue_text(p: float, bounds: tuple[float, float], status: str, digits: int = 3) -> str:
    """Return a p-value as its search knows it: "0.042", or "0.02 to 0.41 (max_evaluations)".

    Only a search that converged made the error bar as narrow as it was asked to. Of any other the whole error bar is
    shown, with the status, and not a p-value that is somewhere in it.

    Parameters
    ----------
    p, bounds
        The p-value, and the least and the greatest one compatible with what the search knows.
    status
        How the search ended.
    digits
        Significant digits.
    """
    return number_text(p, digits) if is_converged(status) else f"{range_text(*bounds, digits)} ({status})"


def estimate_text(estimate: float, bounds: tuple[float, float], status: str) -> str:
    """Return an estimate as its search knows it: "1.2", or the bounds on it if the search did not converge."""
    return f"{estimate:.3g}" if is_converged(status) else f"{bounds[0]:.3g} to {bounds[1]:.3g}"


def is_converged(status: str) -> bool:
    """Return whether a search ended because it knew enough, by its status."""
    from attentest.search import CONVERGED

    return status == CONVERGED


def interval_text(low: float, high: float) -> str:
    """Return a confidence interval: "-0.2 to 1.3", or "0.4 or more" where one end is infinite."""
    if isinf(low) and isinf(high):
        return "unbounded"
    if isinf(low):
        return f"{high:.3g} or less"
    return f"{low:.3g} or more" if isinf(high) else f"{low:.3g} to {high:.3g}"


def interval_name(confidence_level: float, what: str = "interval") -> str:
    """Return an interval with its level: "95% interval"."""
    return f"{100 * confidence_level:.10g}% {what}"


def with_sign(text: str) -> str:
    """Return the text of a p-value with the sign that goes between it and its name: "= 0.042", "< 1e-307"."""
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


VERDICTS = {True: "significant", False: "not significant", None: "undecided"}
"""A decision in a word or two."""

OTHERS = {
    "background": "the rest of the image",
    "neighbourhood": "its surroundings",
    "reference": "the same place in the reference image",
    "region mean": "zero",
}
"""What the region is compared with, by the name of the contrast."""

RELATIONS = {
    "two-sided": "differs from",
    "equal-tailed": "differs from",
    "greater": "is greater than",
    "less": "is less than",
}
"""What the alternative hypothesis says of the mean of the region and what it is compared with."""

TINY = 1e-4
"""Smaller shares are not written as percentages."""


def verdict_text(record: ResultRecord, alpha: float) -> str:
    """Return the verdict on a result at a significance level in two or three sentences."""
    low, high = record.pvalue_bounds
    rejected = record.reject_at(alpha)
    if rejected is None:
        return (
            f"Undecided at {alpha:g}: the search found only that p lies between {low:.3g} and {high:.3g}. Allow it "
            "more evaluations, or certify the result."
        )
    subject = "attention region" if record.connectivity is None else "component of the attention region"
    compared = compared_with(record.settings["contrast"])
    relation = f"the mean of this {subject} {RELATIONS[record.alternative]} {compared}"
    p, meaning = selective_p(record), _meaning(record, rejected)
    if rejected:
        return f"Significant at {alpha:g}: {relation} (selective p {p}). {meaning}"
    return (
        f"Not significant at {alpha:g}: there is no evidence that {relation} (selective p {p}). {meaning} This does "
        "not show that there is none."
    )


def _meaning(record: ResultRecord, rejected: bool) -> str:
    """Return in a sentence what the p-value of a result counts."""
    equal_tailed = record.alternative == "equal-tailed"
    p, low, high = (value / 2 if equal_tailed else value for value in (record.pvalue, *record.pvalue_bounds))
    if is_converged(record.status):
        share = percentage(p)
    else:
        share = f"at most {percentage(high)}" if rejected else f"at least {percentage(low)}"
    counts = "one at least as large"
    if equal_tailed:  # the estimate is the mean at which both tails are equal, so its sign says which one is smaller
        end = "high as this one or higher" if record.estimate > 0 else "low as this one or lower"
        counts = f"one as {end}; p is twice this share, that of the smaller tail"
    return f"Among images without such a difference in which the model chooses this same region, {share} show {counts}."


def selective_p(record: ResultRecord) -> str:
    """Return the selective p-value of a result with its sign: "= 0.042"."""
    return with_sign(pvalue_text(record.pvalue, record.pvalue_bounds, record.status))


def searched_interval(record: ResultRecord) -> ConfidenceInterval | None:
    """Return the confidence interval of a result; None if the search went for p alone."""
    return None if record.confidence_level is None else record.confidence_interval


def difference_text(record: ResultRecord) -> str:
    """Return the estimated difference and its interval in a sentence; empty if the search went for p alone."""
    interval = searched_interval(record)
    if interval is None:
        return ""
    estimate = estimate_text(record.estimate, record.estimate_bounds, record.status)
    ends = f"{interval_name(interval.confidence_level)} {interval.low:.3g} to {interval.high:.3g}"
    return f"Estimated difference {estimate}, {ends}, in units of the pixel values."


def contradiction_text(record: ResultRecord, alpha: float) -> str:
    """Return a sentence if p and the interval do not agree about a difference of 0; empty if they do."""
    interval = searched_interval(record)
    if interval is None or record.alternative != "two-sided":
        return ""
    if not contradict(record.reject_at(alpha), (interval.low, interval.high), interval.confidence_level, alpha):
        return ""
    return (
        "Here p and the interval disagree: p counts both tails together, the interval each by itself "
        '(alternative="equal-tailed" makes them agree).'
    )


def region_text(record: ResultRecord) -> str:
    """Return the size of the compared part: "35 of 256 pixels"."""
    return f"{record.part_pixels:,} of {record.seen_pixels:,} pixels"


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
    if "error" in row:
        return []
    notes = []
    if not is_converged(row["status"]):
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
    from attentest.statistics.pvalue import decision

    notes = row_notes(row, None, alpha, None)
    if interval_level is None or "error" in row:
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
    from attentest.statistics.alternative import ONE_SIDED

    notes = []
    if row["alternative"] not in ONE_SIDED and any(map(isinf, interval)):
        notes.append("an infinite end: the image and the selection do not bound the difference on that side")
    if row["alternative"] == "two-sided" and disagree:
        notes.append(
            "p and the interval disagree about a difference of 0: p counts both tails beyond |T| together, the "
            "interval has the same probability in each tail; the p of the equal-tailed alternative agrees with it"
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
    if row["alternative"] == "equal-tailed":
        notes.append("p is twice the probability of the smaller tail, so that it agrees with the interval")
    if row["approximate_noise"]:
        notes.append("approximate: the noise was estimated from the tested image itself, which the test does not know")
    return notes


METHOD_NAMES: dict[Adjustment, str] = {
    "bh": "Benjamini-Hochberg",
    "by": "Benjamini-Yekutieli",
    "holm": "Holm",
}
"""Names of the ways to adjust p-values."""


def summary_text(
    known: ManyPvalues, alpha: float, of: str = "image", methods: Sequence[Adjustment] | None = None
) -> str:
    """Return a summary of many p-values at a significance level.

    Parameters
    ----------
    known
        The p-values.
    alpha
        Significance level.
    of
        What the p-values are of, in the singular.
    methods
        How to adjust them; by default all ways that are valid, after the rates of those that are not adjusted.
    """
    lines, decisions = [counted(len(known), of)], []
    if methods is None:
        decisions = known.decisions(alpha)
        lines += [
            f"selective p <= {alpha:g}: {known.rejection_rate(alpha)}{_undecided(decisions)}",
            f"naive p <= {alpha:g}: {known.rejection_rate(alpha, naive=True)}",
        ]
    for method in methods or (("by", "holm") if known.share_a_reference else ("bh", "by", "holm")):
        adjusted = known.decisions(alpha, method)
        rejected = f"{adjusted.count(True)} of {len(known)}{_undecided(adjusted)}"
        lines.append(f"{METHOD_NAMES[method]}-adjusted p <= {alpha:g}: {rejected}")
        decisions = decisions + adjusted
    if methods is None and known.share_a_reference:
        lines.append(
            "images that are compared with the same noisy reference have p-values that depend on each other: "
            "Benjamini-Hochberg does not apply to them"
        )
    return "\n".join([*lines, *([advice_text(known, alpha)] if None in decisions else [])])


def advice_text(known: ManyPvalues, alpha: float) -> str:
    """Return a sentence that says how to resolve p-values whose error bar contains alpha."""
    from attentest.search import DECIDED, TOO_SHARP

    more = "a larger max_evaluations= (--max-evaluations)"
    sharp = [known.certified[i] for i, status in enumerate(known.statuses) if status == TOO_SHARP]
    if DECIDED in known.statuses:
        how = "to resolve them, test without decide_at= (without --decide)"
    elif not sharp:
        how = f"a smaller tolerance (tol=, --tol) or {more} may resolve them"
    elif all(sharp):
        how = f"where the status is sharp, report the certified p, or use {more}"
    else:
        how = f"where the status is sharp, certify (certification=, --certify), or use {more}"
    return f"undecided: error bars that contain {alpha:g}; {how}"


def _undecided(decisions: Sequence[bool | None]) -> str:
    count = list(decisions).count(None)
    return f", {count} undecided" if count else ""


LONGEST_CELL = 64
"""Most characters of a name in a table; its middle is left out."""


def plain(text: object) -> str:
    """Return text in which bytes that are not text, and characters that control how others are shown, are escaped."""
    known = str(text).encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in known)


def short(text: str) -> str:
    """Return text without its middle if it is long: the end of a path tells more than its beginning."""
    if len(text) <= LONGEST_CELL:
        return text
    end = 2 * LONGEST_CELL // 3
    return f"{text[: LONGEST_CELL - 1 - end]}\u2026{text[-end:]}"
