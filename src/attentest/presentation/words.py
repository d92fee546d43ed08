"""What is said of a result: its numbers with what to know about them, verdicts, summaries.

Tables, figures, notebooks, reports, the command line and the web page take their words from here, and their footnotes
from :mod:`attentest.presentation.footnotes`.

What needs NumPy or torch is imported where it is used: the help of the command line needs none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from attentest.errors import counted, worded
from attentest.presentation.number_texts import (
    SMALLEST,
    difference_number,
    estimate_text,
    interval_name,
    interval_text,
    is_converged,
    number_text,
    pvalue_text,
    range_text,
    share_text,
    with_sign,
)

if TYPE_CHECKING:
    from attentest.record import ResultRecord
    from attentest.statistics.inference import ConfidenceInterval
    from attentest.statistics.multiple_testing import Adjustment, ManyPvalues
    from attentest.statistics.noise_factor import SameVerdict


class ShownNumber(NamedTuple):
    """A number of a result: its name, its text, and what to know about it."""

    name: str
    text: str
    note: str


def result_numbers(record: ResultRecord) -> list[ShownNumber]:
    """Return the numbers of one result, in the order in which notebooks, reports and the web page show them."""
    interval, together, certificate = searched_interval(record), record.simultaneous_interval, record.certificate
    p = pvalue_text(record.pvalue, record.pvalue_bounds, record.status)
    holds = "approximate, as the noise is from the tested image" if record.approximate_noise else "valid"
    numbers = {"selective p": (p, f"{holds}; error bar {range_text(*record.pvalue_bounds, 6)}")}
    if certificate is not None:
        numbers["certified p"] = number_text(certificate["pvalue"]), certificate["summary"]
    ignored = "not valid: it ignores that the model chose the region"
    numbers["naive p"] = number_text(record.naive_pvalue), ignored
    if interval is not None:
        level = interval.confidence_level
        estimate = estimate_text(record.estimate, record.estimate_bounds, record.status)
        naive = f"naive, not valid: {interval_text(*record.naive_confidence_interval(level))}"
        what = "median-unbiased given the selection, in units of the pixels"
        if record.is_of_counts:
            what = "ratio of the mean rates inside and outside, 1 if they are equal"
        numbers |= {"estimate": (estimate, what), interval_name(level): (interval_text(*interval), naive)}
        if together is not None:
            how = f"the {together.together} intervals of this region cover together with {100 * level:.10g}%"
            numbers["simultaneous interval"] = interval_text(*together), how
    errors = f"{abs(record.statistic):.4g} standard errors; biased, because the model chose where to look"
    if record.is_of_counts:
        errors = f"of mean counts, {abs(record.statistic):.4g} standard errors; from counts that the model did not see"
    difference = difference_number(record.difference, record.statistic)
    share = f"{100 * record.part_pixels / record.seen_pixels:.2g}% of what the model sees"
    if record.settings.get("mask") and record.settings["mask_use"] != "map":
        share = f"{share} within the mask"
    size, *measure = region_text(record).split(", ", 1)
    numbers |= {"observed difference": (difference, errors), "region": (size, "; ".join([share, *measure]))}
    context = record.context
    if context is not None and context.standard_deviations is not None:
        size = f"{context.standard_deviations:.3g} standard deviations of the image"
        numbers["effect size"] = size, f"{context.percent_of_range:.3g}% of its range; descriptive"
        shown = f"{SIZES[record.alternative]} than {share_text(context.share, context.placements)}"
        where = f"differences of {PLACES}; descriptive"
        numbers["in the image"] = ("", NO_ROOM) if context.share is None else (shown, where)
    if record.draws is not None:
        from attentest.record import USUAL_ALPHA

        count, total = record.significant_draws(USUAL_ALPHA)
        pixels = record.draws["majority_pixels"]
        note = f"of their own p at most {USUAL_ALPHA:g}; {pixels:,} pixels are in the region of more than half of them"
        median = "difference, region and naive p are of the draw of median p"
        numbers["draws"] = f"{count} of {total}", f"{note}; {median}"
    said = ((worded(text, record.dimension) for text in (name, *number)) for name, number in numbers.items())
    return [ShownNumber(*texts) for texts in said]


SIZES = {"two-sided": "larger", "equal-tailed": "larger", "greater": "higher", "less": "lower"}
RELATIONS = dict.fromkeys(SIZES, "differs from") | {"greater": "is greater than", "less": "is less than"}
"""What a difference is, compared with the smaller ones of other places in the image, and what the alternative says of
the mean of the region and what it is compared with, by the alternative."""

PLACES, NO_ROOM = "regions of the same shape elsewhere in the image", "there is no room for other places"
"""What the difference is compared with, beside p, and where it cannot be."""

CONTEXT_NOTE = (
    f"larger than: how many {PLACES} have a smaller difference; difference / SD: in standard deviations of the image; "
    "both are descriptive"
)
"""What the columns of a table are that show how large a difference is within the image."""


def context_text(record: ResultRecord) -> str:
    """Return how large the difference is within the image in a sentence; empty if that is not known."""
    context = record.context
    if context is None or context.standard_deviations is None:
        return ""
    said = f"It cannot be compared with {PLACES}: there is no room for them."
    if context.share is not None:
        share = share_text(context.share, context.placements)
        said = f"It is {SIZES[record.alternative]} than the difference of {share} {PLACES} (descriptive)."
    return worded(said, record.dimension)


VERDICTS = {True: "significant", False: "not significant", None: "undecided"}  # a decision in a word or two

OTHERS = {
    "background": "the rest of the image",
    "neighbourhood": "its surroundings",
    "reference": "the same place in the reference image",
    "region mean": "zero",
}
"""What the region is compared with, by the name of the contrast."""

WITHIN_THE_IMAGE = ("background", "neighbourhood")  # contrasts with other parts of the same image

EVIDENT = 1e-100
"""A smaller p comes from noise that is small beside the contrasts of the image; a strong signal in noise has 1e-20."""

FAR_BELOW = 1e-20  # a smaller p is far below any level in use: what is left to ask is how large the difference is

USUAL = (
    "So small a p is usual for photographs, whose parts are never equal and whose noise is small: it does not say "
    "whether this difference is unusual."
)
"""What is said of an evident difference within an image."""

TINY = 1e-4  # smaller shares are not written as percentages


def verdict_text(record: ResultRecord, alpha: float) -> str:
    """Return the verdict on a result at a significance level in a few sentences; one is of an image without noise."""
    from attentest.noise.implausible import NO_NOISE

    doubt = record.noise_doubt or ""
    said = f" {doubt[0].upper()}{doubt[1:]}" if doubt.startswith(NO_NOISE) else ""
    return worded(f"{_verdict(record, alpha)}{said}{target_text(record)}", record.dimension)


def target_text(record: ResultRecord) -> str:
    """Return in a sentence what class or text the map is for; empty for maps of attention alone."""
    from attentest.record import TEXT_MAP

    target = record.target
    if target is None:
        return ""
    label, score = target["label"], f"{target['score']:.3g}"
    if record.map_kind == TEXT_MAP:
        return f" The map is for the text “{label}” (similarity {score})."
    named = f"class {target['class']} ({label}, score {score})" if label else f"class {target['class']} (score {score})"
    if not target["predicted"]:
        return f" The map is for {named}."
    return f" The map is for {named}, which the model predicts for this image: p is among images for which it does."


def _verdict(record: ResultRecord, alpha: float) -> str:
    low, high = record.pvalue_bounds
    rejected = record.reject_at(alpha)
    if rejected is None:
        certify = "certify the result (certification=, --certify)"
        if record.certificate is not None:
            certify = f"report the certified p, {number_text(record.certificate['pvalue'])}"
        return (
            f"Undecided at {alpha:g}: the search found only that p lies between {low:.3g} and {high:.3g}. Allow it "
            f"more evaluations, or {certify}."
        )
    region = f"{record.map_kind} region"
    subject = region if record.connectivity is None else f"component of the {region}"
    if measure := measure_text(record):
        subject = f"{subject} ({counted(record.part_pixels, 'pixel')}, {measure})"
    compared = compared_with(record.settings["contrast"])
    if mask := mask_text(record, ""):
        use = record.settings["mask_use"]
        subject = f"{subject} within the {mask}" if use == "map" else subject
        compared += {"map": "", "contrast": f" within the {mask}", "both": f", both within the {mask}"}[use]
    mean = "mean rate" if record.is_of_counts else "mean"
    relation = f"the {mean} of this {subject} {RELATIONS[record.alternative]} {compared}"
    p, meaning = selective_p(record), _meaning(record, rejected)
    if record.draws is not None:
        count, total = record.significant_draws(alpha)
        some = "at least one" if rejected else "any"
        relation = f"the mean of {some} {subject} that was chosen {RELATIONS[record.alternative]} {compared}"
        meaning = (
            f"It is that of {total} draws of the noise added for the selection together; {count} of them "
            f"{'is significant by itself' if count == 1 else 'are significant by themselves'}."
        )
    if rejected:
        sentences = [f"Significant at {alpha:g}: {relation} (selective p {p}).", meaning]
        if high < EVIDENT and record.settings["contrast"]["name"] in WITHIN_THE_IMAGE:
            sentences.append(USUAL)
        if high < FAR_BELOW:
            sentences.append(context_text(record))
        return " ".join(filter(None, sentences))
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
    if record.is_of_counts:
        how = {"greater": "as high", "less": "as low"}.get(record.alternative, "as far from 1")
        twice = "; p is twice this share, that of the smaller tail" if equal_tailed else ""
        return (
            f"If the mean rates were equal, {share} of the ways in which the same counts, which the model did not see, "
            f"could lie inside and outside would show a ratio of rates at least {how}{twice}."
        )
    counts = "one as low or lower" if record.alternative == "less" else "one at least as large"
    if equal_tailed:  # the estimate is the mean at which both tails are equal, so its sign says which one is smaller
        end = "high as this one or higher" if record.estimate > 0 else "low as this one or lower"
        counts = f"one as {end}; p is twice this share, that of the smaller tail"
    return f"Among images without such a difference in which the model chooses this same region, {share} show {counts}."


def selective_p(record: ResultRecord) -> str:
    """Return the selective p-value of a result with its sign, in the digits that are known: "= 0.042", "< 2.7e-08"."""
    low, high = record.pvalue_bounds
    if not is_converged(record.status) or high < SMALLEST:
        return with_sign(pvalue_text(record.pvalue, (low, high), record.status))
    first, greatest = (10.0 ** floor(log10(max(value, SMALLEST))) for value in (record.pvalue, high))  # of first digits
    known = next((digits for digits in (3, 2, 1) if high - low <= first * 10.0 ** (1 - digits)), 0)
    at_most = f"<{ceil(10 * high / greatest) * greatest / 10:.2g}"
    return with_sign(number_text(record.pvalue, known) if known else at_most)


def searched_interval(record: ResultRecord) -> ConfidenceInterval | None:
    """Return the confidence interval of a result; None if the search went for p alone."""
    return None if record.confidence_level is None else record.confidence_interval


def difference_text(record: ResultRecord) -> str:
    """Return the estimated difference and its interval in a sentence; empty if the search went for p alone."""
    interval = searched_interval(record)
    if interval is None:
        return ""
    estimate = estimate_text(record.estimate, record.estimate_bounds, record.status)
    ends = f"{interval_name(interval.confidence_level)} {interval_text(interval.low, interval.high)}"
    if record.is_of_counts:
        return f"Estimated ratio of the mean rates inside and outside {estimate}, {ends}."
    return worded(f"Estimated difference {estimate}, {ends}, in units of the pixel values.", record.dimension)


def same_verdict_text(same: SameVerdict) -> str:
    """Return how wrong the assumed noise may be before the verdict changes, in one sentence."""
    from attentest.statistics.noise_factor import LEAST, MOST

    if same.reject is None:
        return "The verdict is open already with the noise that was assumed."
    beyond = {
        "other": f"it is {VERDICTS[not same.reject]}",
        "unknown": "it may be another one: the search did not look far enough to tell where it changes",
    }
    ends = [
        f"{where} {end:.2f} times {beyond[what]}"
        for where, end, what in (("below", same.low, same.below), ("above", same.high, same.above))
        if what != "same"
    ]
    # An end of the range tried is no limit of the verdict.
    limits = {
        (True, True): "everywhere",
        (True, False): f"up to {same.high:.2f} times",
        (False, True): f"from {same.low:.2f} times on",
        (False, False): f"from {same.low:.2f} to {same.high:.2f} times",
    }[same.below == "same", same.above == "same"]
    first = (
        f"In the range tried, {LEAST:g} to {MOST:g} times the standard deviation of the noise that was assumed, the "
        f'verdict is "{VERDICTS[same.reject]}" {limits}'
    )
    return "; ".join([first, *ends]) + "."


def majority_text(record: ResultRecord) -> str:
    """Return how many pixels were chosen in most of several draws, for the title of a picture."""
    pixels = 0 if record.draws is None else record.draws["majority_pixels"]
    return worded(f"image, and the {pixels:,} of {record.seen_pixels:,}\npixels chosen in most draws", record.dimension)


def dark_share_text(record: ResultRecord) -> str:
    """Return what the dark share of the density of a result is, wherever it is drawn: "p", "half of p"."""
    of = "p" if record.draws is None else "the p of the draw with the median p"
    return f"half of {of}" if record.alternative == "equal-tailed" else of


def outlined_text(record: ResultRecord) -> str:
    """Return what the outline in a picture is the border of, in the words for what was tested, without "the"."""
    return worded(OUTLINED[record.draws is not None], record.dimension)


OUTLINED = {False: "region", True: "pixels that most draws chose"}
"""What pictures outline, of a result of one draw and of several."""


def mask_text(record: ResultRecord, what: str = "dashed: ") -> str:
    """Return what the dashed line in a picture is: "dashed: mask of 120 pixels"; empty if there is none."""
    mask = record.settings.get("mask")
    return worded(f"{what}mask of {counted(mask['pixels'], 'pixel')}", record.dimension) if mask else ""


def region_text(record: ResultRecord) -> str:
    """Return the size of the compared part: "35 of 256 pixels", "1,204 of 4,096 voxels, 9.6 cm3"."""
    pixels = worded(f"{record.part_pixels:,} of {record.seen_pixels:,} pixels", record.dimension)
    return ", ".join(filter(None, [pixels, measure_text(record)]))


def measure_text(record: ResultRecord) -> str:
    """Return what the compared part measures: "9.6 cm3", "from 1.2 s to 1.6 s"; empty if the file did not tell."""
    spacing, count = record.spacing, record.part_pixels
    if spacing is None or not spacing.unit:
        return ""
    if len(spacing.lengths) > 1:
        return spacing.size_text(count)
    (step,) = spacing.lengths
    digits = max(0, ceil(-log10(step)))  # as many as tell neighbouring samples apart
    start, end = (f"{round(edge * step, digits):.15g} {spacing.unit}" for edge in record.extent[0])
    is_whole = record.extent[0][1] - record.extent[0][0] == count
    return f"from {start} to {end}" if is_whole else f"{spacing.size_text(count)} between {start} and {end}"


def short_verdict(rejected: bool | None, alpha: float) -> str:
    """Return a decision at a level in a few words: "not significant at 0.05"."""
    return f"{VERDICTS[rejected]} at {alpha:g}"


def compared_with(contrast: Mapping[str, Any]) -> str:
    """Return what the mean of the region is compared with, from the description of the contrast."""
    if contrast["name"] == "filtered":
        return f"{compared_with(contrast['of'])} in the filtered image"
    return OTHERS.get(contrast["name"], "what it is compared with")


def ring_text(record: ResultRecord) -> str:
    """Return what the surroundings are that a region is compared with: "the surroundings are a ring 5 pixels wide"."""
    contrast = record.settings["contrast"]
    while contrast["name"] == "filtered":
        contrast = contrast["of"]
    if contrast["name"] != "neighbourhood":
        return ""
    radius, unit = contrast["radius"], "pixel" if contrast["radius"] == 1 else "pixels"
    if contrast.get("spacing"):  # the radius is in its unit
        unit = "" if record.spacing is None else record.spacing.unit
    width = " ".join(filter(None, [f"{radius:g}", unit]))
    return worded(f"the surroundings are a ring {width} wide", record.dimension)


def percentage(share: float) -> str:
    """Return a share as a percentage, or in words if it is tiny."""
    return f"{100 * share:.3g}%" if share >= TINY else f"fewer than 1 in {1 / TINY:,.0f}"


METHOD_NAMES: dict[Adjustment, str] = {"bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli", "holm": "Holm"}
"""Names of the ways to adjust p-values."""


def summary_text(
    known: ManyPvalues, alpha: float, of: str = "image", methods: Sequence[Adjustment] | None = None
) -> str:
    """Return a summary of many p-values at a significance level; ``of`` says what they are of, in the singular.

    By default they are adjusted in all ways that are valid, after the rates of those that are not adjusted.
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
    from attentest.search import DECIDED
    from attentest.search.problem import TOO_SHARP

    more = "a larger max_evaluations= (--max-evaluations)"
    sharp = [known.certified[i] for i, status in enumerate(known.statuses) if status == TOO_SHARP]
    if DECIDED in known.statuses:
        how = "to resolve them, test without decide_at= (without --decide)"
    elif not sharp:
        how = f"a smaller tolerance (tol=, --tol) or {more} may resolve them, or certify (certification=, --certify)"
    elif all(sharp):
        how = f"where the status is sharp, report the certified p, or use {more}"
    else:
        how = f"where the status is sharp, certify (certification=, --certify), or use {more}"
    return f"undecided: error bars that contain {alpha:g}; {how}"


def _undecided(decisions: Sequence[bool | None]) -> str:
    count = list(decisions).count(None)
    return f", {count} undecided" if count else ""
