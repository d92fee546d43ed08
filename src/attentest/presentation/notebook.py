"""Results as notebooks show them: a table of numbers, with a small picture for one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attentest.markup import definition_table, picture_html, row_table
from attentest.presentation.picture import Picture, displayed, overlay_pixels
from attentest.presentation.words import (
    contradiction_text,
    estimate_text,
    interval_name,
    interval_text,
    number_text,
    pvalue_text,
    range_text,
    region_text,
    searched_interval,
    verdict_text,
)
from attentest.record import ResultRecord

ALPHA = 0.05
"""Significance level of the verdict."""

MOST_ROWS = 20
"""Most images in the table of many results."""

PICTURE_SIDE = 176
"""Longer side of the picture, in screen pixels."""


def result_html(picture: Picture) -> str:
    """Return one result as HTML: the verdict in words, the numbers, and the image with attention and region."""
    record = picture.record
    settings, certificate, interval = record.settings, record.certificate, searched_interval(record)
    defined = {
        "selective p": pvalue_text(record.pvalue, record.pvalue_bounds, record.status),
        "bounds on p": range_text(*record.pvalue_bounds, 6),
        "certified p": None if certificate is None else number_text(certificate["pvalue"]),
        "naive p (not valid)": number_text(record.naive_pvalue),
        "observed difference": f"{record.difference:.3g} (standard error {record.standard_error:.3g})",
    }
    if interval is not None:
        estimate = estimate_text(record.estimate, record.estimate_bounds, record.status)
        defined["estimate given the selection"] = estimate
        defined[interval_name(interval.confidence_level)] = interval_text(*interval)
    defined |= {
        "region": region_text(record),
        "noise": noise_text(settings["noise"]),
        "search": f"{settings['search']['name']}, {record.evaluations} evaluations, {record.status}",
    }
    sentences = [text for text in (verdict_text(record, ALPHA), contradiction_text(record, ALPHA)) if text]
    shown = {name: text for name, text in defined.items() if text is not None}
    table = definition_table("AttentionTestResult", shown, sentences)
    shown_image = displayed(picture.chosen_on)
    pixels = overlay_pixels(shown_image, picture.attention, picture.region, picture.part, PICTURE_SIDE)
    image = picture_html(pixels, f"image with attention and region of {region_text(record)}", pixels.shape[1])
    return f'<div style="display:flex;gap:16px;align-items:flex-start">{image}{table}</div>'


def results_html(
    title: str,
    rows: Sequence[tuple[object, tuple[ResultRecord, float] | str]],
    total: int,
    *,
    of: str,
    adjusted: str,
    notes: Sequence[str],
) -> str:
    """Return the first of many results as HTML.

    Parameters
    ----------
    title
        What they are, and how many.
    rows
        The name of each, and its record with its adjusted p-value, or the reason why it could not be tested.
    total
        Number of rows in all.
    of
        What a row is of: "image" or "component".
    adjusted
        How p-values are adjusted.
    notes
        Sentences about all of them.
    """
    pvalues = ("selective p", f"{adjusted}-adjusted p", "naive p (not valid)")
    interval = "simultaneous interval" if of == "component" else "confidence interval"
    columns = (of, *pvalues, "observed difference", interval, "region")
    cells = [
        (name, f"could not be tested: {tested}") if isinstance(tested, str) else (name, *_numbers(*tested))
        for name, tested in rows
    ]
    more = [f"The first {len(rows)} of {total} rows; to_pandas() has all."] if total > len(rows) else []
    return row_table(title, columns, cells, [*notes, *more])


def _numbers(record: ResultRecord, adjusted: float) -> tuple[str, ...]:
    return (
        pvalue_text(record.pvalue, record.pvalue_bounds, record.status),
        number_text(adjusted),
        number_text(record.naive_pvalue),
        f"{record.difference:.3g}",
        interval_text(*(record.simultaneous_interval or record.confidence_interval)),
        region_text(record),
    )


def noise_text(noise: Mapping[str, Any]) -> str:
    """Return the noise model of a result from its description, in a few words."""
    deviation = f", standard deviation {noise['sigma']:.4g}" if "sigma" in noise else ""
    approximate = ", estimated from the tested image itself: approximate" if noise.get("approximate") else ""
    return f"{noise.get('model', '')}{deviation}{approximate}"
