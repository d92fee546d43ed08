"""Footnotes: what must be said of the numbers of a result, of a row of a table, and of all of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from attentest.errors import worded
from attentest.presentation.number_texts import is_converged
from attentest.presentation.words import ring_text, searched_interval

if TYPE_CHECKING:
    from attentest.record import ResultRecord


COUNTS = "poisson"  # the noise of rows whose estimates are ratios of rates

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

FEW_RANDOMISED_DEGREES = 10.0
"""With randomised selection and fewer than this, tests with an estimated correlation reject too often: up to twice as
often as they should with two reference images (docs/evidence/noise.md)."""

ROUNDING = 1e-9  # levels this close are the same

APPROXIMATE = "approximate: the noise was estimated from the tested image itself, which the test does not know"

DISAGREE = (
    "p and the interval disagree about a difference of 0: p counts both tails together, the interval each by itself; "
    "the equal-tailed p agrees with it"
)


def row_notes(
    row: Mapping[str, Any],
    rejected: bool | None,
    alpha: float,
    interval_level: float | None,
    *,
    simultaneous: bool = False,
) -> list[str]:
    """Return what must be said of the numbers of one row of a table; nothing of an image that could not be tested.

    ``rejected`` says whether its own p-value is at most alpha, or with simultaneous intervals, whether Holm's method
    rejects its hypothesis; None if the error bars do not tell. ``interval_level`` is that of the interval that is
    shown, if one is, which is ``simultaneous`` if it covers together with those of the other components.
    """
    from attentest.search import ROUGH
    from attentest.statistics.alternative import ONE_SIDED
    from attentest.statistics.pvalue import decision

    if "error" in row:
        return []
    notes = []
    if not is_converged(row["status"]):
        ended = ENDINGS.get(row["status"], "the search did not converge")
        notes.append(f"{ended} (status {row['status']}): what is shown as a range is only known to lie in it")
    if row["status"] == ROUGH:
        notes.append(
            "the scores have too many kinks to visit each (status rough): the error bar of p rests on how rough they "
            "were measured to be"
        )
    if interval_level is not None:
        which = "simultaneous" if simultaneous else "confidence"
        interval, equal = (row[f"{which}_low"], row[f"{which}_high"]), float(row.get("noise") == COUNTS)
        disagree = contradict(rejected, interval, interval_level, alpha, equal)
        if simultaneous:
            alone = decision(row["pvalue_low"], row["pvalue_high"], alpha / row["simultaneous_count"])
            if disagree and rejected and not contradict(alone, interval, interval_level, alpha, equal):
                notes.append(
                    "Holm's method rejects a difference of 0, which is in the simultaneous interval: these intervals "
                    "are Bonferroni's, wider than Holm's decisions need"
                )
            disagree = contradict(alone, interval, interval_level, alpha, equal)
        if row["alternative"] not in ONE_SIDED and any(map(isinf, interval)):
            notes.append("an infinite end: the image and the selection do not bound the difference on that side")
        if row["alternative"] == "two-sided" and disagree:
            notes.append(DISAGREE.replace(*RATIO) if equal else DISAGREE)
    degrees = row.get("degrees_of_freedom")
    if degrees is not None and degrees < FEW_DEGREES:
        images = "" if row["reference_images"] is None else f" from {row['reference_images']} reference images"
        few = row["gamma"] and degrees < FEW_RANDOMISED_DEGREES
        allowance = (
            "with randomised selection p may be too small, at worst by half: estimate it from at least five images"
            if few
            else "p and interval allow for it, and more images would make the interval shorter"
        )
        limit = FEW_RANDOMISED_DEGREES if few else FEW_DEGREES
        notes.append(f"the noise is an estimate{images} with fewer than {limit:.0f} degrees of freedom: {allowance}")
    if doubt := row.get("noise_doubt"):
        notes.append(doubt_note(doubt))
    if row.get("assumed_preprocessing"):
        notes.append(
            "the model was saved without an image processor: it saw the image as "
            f"{row['assumed_preprocessing']}; resize= and scale= (--resize and --scale) choose otherwise"
        )
    if not row.get("certificate_agrees", True):
        notes.append("the certified p contradicts the search")
    return _worded(notes, row)


def doubt_note(doubt: str) -> str:
    """Return in short what a sentence says that doubts the noise of an image."""
    from attentest.noise.implausible import NO_NOISE, SMOOTHER

    if doubt.startswith(NO_NOISE):
        return doubt.removesuffix(".")
    size = "smaller" if SMOOTHER in doubt else "larger"
    return (
        f"the noise is doubtful: the finest details of the image are much {size} than it would make them; check "
        "the units, and the noise model"
    )


def caveats_text(record: ResultRecord) -> str:
    """Return in sentences what must be known of the noise of a result, and how wide the ring around its region is.

    Empty if there is nothing; the verdict itself says that an image has no noise at all.
    """
    from attentest.noise.implausible import NO_NOISE

    doubt, said = record.noise_doubt or "", [ring_text(record)]
    if record.approximate_noise:
        said.append(APPROXIMATE)
    if doubt and not doubt.startswith(NO_NOISE):
        said.append(doubt_note(doubt))
    return worded(" ".join(f"{text[0].upper()}{text[1:]}." for text in said if text), record.dimension)


def contradiction_text(record: ResultRecord, alpha: float) -> str:
    """Return a sentence if p and the interval do not agree about a difference of 0; empty if they do."""
    interval = searched_interval(record)
    if interval is None or record.alternative != "two-sided":
        return ""
    ends, equal = (interval.low, interval.high), float(record.is_of_counts)
    contradiction = contradict(record.reject_at(alpha), ends, interval.confidence_level, alpha, equal)
    return f"Here {DISAGREE.replace(*RATIO) if equal else DISAGREE}." if contradiction else ""


RATIO = "a difference of 0", "a ratio of 1"  # what is said of differences, and in its place of ratios of rates


def contradict(
    rejected: bool | None, interval: tuple[float, float], interval_level: float, alpha: float, equal: float = 0.0
) -> bool:
    """Return whether a two-sided decision at alpha and an interval of level 1 - alpha disagree about zero, or 1.

    Those of the paper's p-value can. An equal-tailed p-value cannot: whether it is at most alpha is a question about
    the same two tails as whether the interval contains zero, also where a search left something open.
    """
    same_level = abs(1 - interval_level - alpha) < ROUNDING
    return same_level and rejected is not None and rejected == (interval[0] <= equal <= interval[1])


def selection_notes(row: Mapping[str, Any]) -> list[str]:
    """Return what must be said of how the test of a row was made, where it is not as in the paper."""
    if "error" in row:
        return []
    notes = [f"regions are those of the {row['map_words']}"] if "map_words" in row else []
    if use := row.get("mask_use"):
        notes.append(f"pixels outside the mask do not count for the {'map and the contrast' if use == 'both' else use}")
    if row["region_unit"] == "patches":
        notes.append("the region consists of whole patches of the model")
    if row.get("noise") == COUNTS:
        notes.append(
            f"counts: the model chose the region on {100 / (1 + row['gamma'] ** 2):.3g}% of them, drawn at random, and "
            "the others were tested; estimate and interval are of the ratio of the mean rates inside and outside"
        )
    elif row["gamma"]:
        seed = f", seed {row['randomise_seed']}" if row["randomise_seed"] else ""
        notes.append(
            f"randomised selection: the region was chosen on the image plus noise of {row['gamma']:g} times its "
            f"own{seed}; map and region are those of that sum, the statistic is that of the image itself"
        )
        if "draws" in row:
            notes.append(
                f"p, estimate and interval are those of {row['draws']} draws of that noise together; difference, "
                "statistic and naive p are those of the draw with the median p"
            )
    if row["alternative"] == "equal-tailed":
        notes.append("p is twice the probability of the smaller tail, so that it agrees with the interval")
    if row["approximate_noise"]:
        notes.append(APPROXIMATE)
    return _worded(notes, row)


def interval_notes(row: Mapping[str, Any], interval_level: float | None, *, simultaneous: bool) -> list[str]:
    """Return what must be said of the intervals of a table, from one of its rows; without a level, there are none."""
    from attentest.statistics.alternative import ONE_SIDED

    notes = []
    if interval_level is not None and simultaneous:
        notes.append(
            f"intervals are simultaneous: those of an image all cover together with {100 * interval_level:.10g}% "
            "(Bonferroni); each by itself is in --json and --csv"
        )
    if interval_level is not None and row["alternative"] in ONE_SIDED:
        notes.append(f"intervals have one end, as the alternative is one-sided: {row['alternative']}")
    return _worded(notes, row)


def _worded(notes: Iterable[str], row: Mapping[str, Any]) -> list[str]:
    """Return notes in the words for what was tested."""
    return [worded(note, row.get("dimension", 2)) for note in notes]


def footnote_marks(notes: Iterable[Iterable[str]]) -> dict[str, str]:
    """Return each footnote of the rows of a table once, with its letter: a number would look like a part of a p-value.

    There are fewer kinds of footnotes than letters; those of an unusual batch that has more share the last one.
    """
    different = dict.fromkeys(note for row in notes for note in row)
    return {note: ascii_lowercase[min(place, 25)] for place, note in enumerate(different)}
