"""Results as notebooks show them: a table of numbers, with a small picture for one image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.markup import definition_table, picture_html, row_table
from attentest.presentation.figure import REGION_COLOUR
from attentest.presentation.picture import MOST_OPAQUE, Picture, displayed
from attentest.presentation.words import estimate_text, number_text, pvalue_text, range_text

ALPHA = 0.05
"""Significance level of the verdict."""

MOST_ROWS = 20
"""Most images in the table of many results."""

PICTURE_SIDE = 176
"""Longer side of the picture, in screen pixels."""

ATTENTION_COLOUR = (253, 231, 37)
"""The colour of the greatest attention in the figures, viridis' last."""


def result_html(picture: Picture) -> str:
    """Return one result as HTML: the verdict in words, the numbers, and the image with attention and region."""
    values = picture.values
    low, high = values["pvalue_bounds"]
    defined = {
        "selective p": pvalue_text(values["pvalue"], (low, high), values["status"]),
        "bounds on p": range_text(low, high, 6),
        **({} if picture.certified_text is None else {"certified p": number_text(values["certificate"]["pvalue"])}),
        "naive p (not valid)": number_text(values["naive_pvalue"]),
        "observed difference": f"{values['difference']:.3g} (standard error {values['standard_error']:.3g})",
        **({} if picture.interval is None else _corrected(picture)),
        "region": picture.region_text,
        "noise": noise_text(values["noise"]),
        "search": f"{values['search']['name']}, {values['evaluations']} evaluations, {values['status']}",
    }
    sentences = [text for text in (picture.verdict(ALPHA), picture.contradiction_text(ALPHA)) if text]
    table = definition_table("AttentionTestResult", defined, sentences)
    shown = overlay_pixels(picture)
    image = picture_html(shown, f"image with attention and region of {picture.region_text}", shown.shape[1])
    return f'<div style="display:flex;gap:16px;align-items:flex-start">{image}{table}</div>'


def _corrected(picture: Picture) -> dict[str, str]:
    """Return what is known of the true difference, given the selection."""
    low, high = (float(bound) for bound in picture.values["estimate_bounds"])
    return {
        "estimate given the selection": estimate_text(
            float(picture.values["estimate"]), (low, high), picture.values["status"]
        ),
        picture.interval_name: interval_text(picture.values["confidence_interval"]),
    }


def results_html(
    title: str,
    rows: Sequence[tuple[object, Mapping[str, Any] | str]],
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
        The name of each, and its JSON-ready values with its adjusted p-value as "adjusted", or the reason why it could
        not be tested.
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
        (name, f"could not be tested: {values}") if isinstance(values, str) else (name, *_numbers(values))
        for name, values in rows
    ]
    more = [f"The first {len(rows)} of {total} rows; to_pandas() has all."] if total > len(rows) else []
    return row_table(title, columns, cells, [*notes, *more])


def _numbers(values: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        pvalue_text(values["pvalue"], values["pvalue_bounds"], values["status"]),
        number_text(values["adjusted"]),
        number_text(values["naive_pvalue"]),
        f"{values['difference']:.3g}",
        interval_text(values.get("simultaneous_interval") or values["confidence_interval"]),
        f"{values['part_pixels']:,} of {values['seen_pixels']:,} pixels",
    )


def overlay_pixels(picture: Picture) -> NDArray[np.uint8]:
    """Return the image that the region was chosen on, tinted by attention, with the region's outline: (h, w, 3)."""
    from PIL import Image
    from scipy.ndimage import binary_dilation, binary_erosion

    grey = displayed(picture.image if picture.randomised_image is None else picture.randomised_image)
    colours = 255 * (np.repeat(grey[..., None], 3, axis=2) if grey.ndim == 2 else grey)
    opacity = MOST_OPAQUE * np.clip(picture.attention, 0.0, 1.0)[..., None]
    tinted = ((1 - opacity) * colours + opacity * ATTENTION_COLOUR).astype(np.uint8)
    height, width = picture.part.shape
    scale = PICTURE_SIDE / max(height, width)
    size = max(1, round(scale * width)), max(1, round(scale * height))
    shown = np.array(Image.fromarray(tinted).resize(size, Image.Resampling.BOX))
    for mask, thickness in ((picture.region, 1), (picture.part, 2)):  # the same, unless the part is a component
        inside = np.array(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST), dtype=bool)
        shown[binary_dilation(inside) & ~inside] = 255
        shown[inside & ~binary_erosion(inside, iterations=thickness)] = _rgb(REGION_COLOUR)
    return shown


def interval_text(interval: Mapping[str, Any]) -> str:
    """Return a confidence interval from its JSON-ready values."""
    low, high = (float(interval[end]) for end in ("low", "high"))
    if math.isinf(low) and math.isinf(high):
        return "unbounded"
    if math.isinf(low):
        return f"{high:.3g} or less"
    return f"{low:.3g} or more" if math.isinf(high) else f"{low:.3g} to {high:.3g}"


def noise_text(noise: Mapping[str, Any]) -> str:
    """Return the noise model of a result from its description, in a few words."""
    deviation = f", standard deviation {noise['sigma']:.4g}" if "sigma" in noise else ""
    approximate = ", estimated from the tested image itself: approximate" if noise.get("approximate") else ""
    return f"{noise.get('model', '')}{deviation}{approximate}"


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))
