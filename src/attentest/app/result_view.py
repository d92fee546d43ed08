"""A result as a part of the page: verdict, pictures, numbers, sensitivity to the noise and what else to know."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attentest.app.form import Form
from attentest.app.offered import OfferedModel, UploadedImage
from attentest.noise.model import recorded_sentence
from attentest.presentation.figure import REGION_COLOUR, new_figure
from attentest.presentation.picture import Picture, draw_map, draw_overlay
from attentest.presentation.result_figure import draw_density
from attentest.presentation.rows import row_of
from attentest.presentation.words import (
    compared_with,
    estimate_text,
    number_text,
    row_notes,
    selection_notes,
    selective_p,
    short_verdict,
)
from attentest.results.result import AttentionTestResult
from attentest.statistics.noise_factor import SHOWN_FACTORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIDE = 480
"""Length in pixels of the longer side of the picture, at least half of it and at most it."""

OUTLINE = 3
"""Width in pixels of the outline."""


def region_picture(image: NDArray[Any], region: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return an image (H, W) or (H, W, C), with the outline of a region (H, W), as a picture (h, w, 3)."""
    height, width = region.shape
    # Small images are enlarged by a whole factor, so that all of their pixels have the same size.
    factor = SIDE // max(height, width) or SIDE / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    picture = np.array(Image.fromarray(shown_values(image)).convert("RGB").resize(size, method))
    inside = np.array(Image.fromarray(region).resize(size, Image.Resampling.NEAREST))
    picture[_outline(inside)] = [int(REGION_COLOUR[i : i + 2], 16) for i in (1, 3, 5)]
    return picture


def shown_values(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image with its least value as black and its greatest as white, in 8 bits: (H, W) or (H, W, 3)."""
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values.mean(axis=2)
    low, high = float(values.min()), float(values.max())
    scaled = (values / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves, because a difference may overflow
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


def data_address(picture: NDArray[np.uint8]) -> str:
    """Return a picture (h, w, 3) as an address that holds the picture itself."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return png_address(file.getvalue())


def png_address(png: bytes) -> str:
    """Return the bytes of a PNG file as an address that holds them."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels inside that are near the outside or the border of the picture."""
    padded = np.pad(inside, OUTLINE)
    core = inside.copy()
    height, width = inside.shape
    for down in range(2 * OUTLINE + 1):
        for right in range(2 * OUTLINE + 1):
            core &= padded[down : down + height, right : right + width]
    return inside & ~core


LEVEL = 0.95
"""Confidence level of the intervals."""

RESOLUTION = 160
"""Pixels per inch of the pictures."""

RESULT_VIEW_SIDE, FONT_SIZE = 2.6, 9.0
"""Side of the picture of a square image in inches, and size of the letters in points."""

FLATTEST = 0.4
"""Least height of a picture over its width; a flatter image has room above and below."""

COLOURS: dict[bool, dict[str, Any]] = {
    dark: {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), paper),
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
    }
    for dark, paper, ink in ((False, "#ffffff", "#1f2933"), (True, "#0a0f1e", "#e4e7eb"))
}
"""Background and text of pictures on a light and on a dark page."""

RULES = ("threshold", "top_fraction")
"""Names of the rules of the region in the settings of a result."""

KINDS = {True: "significant", False: "ordinary", None: "undecided"}
"""What a decision looks like, as a class of the style sheet."""

ONE_PICTURE = Lock()
"""Matplotlib's settings are those of the whole process, so one picture is drawn at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedImage:
    """A result with what the page knows about it.

    Parameters
    ----------
    image, form, model
        What was tested, as the fields of the page say.
    result, alpha
        The result, and the significance level of its verdict.
    settings_tried
        With how many different settings the image was tested on this page.
    """

    image: UploadedImage
    form: Form
    model: OfferedModel
    result: AttentionTestResult
    alpha: float
    settings_tried: int


def result_html(tested: TestedImage, *, key: str, dark: bool) -> str:
    """Return a tested image as HTML, in which every text is escaped.

    Parameters
    ----------
    tested
        The image, its result and its settings.
    key
        Key of its report.
    dark
        Whether the page is dark.
    """
    result = tested.result
    picture = result.picture()
    text: str = _template("result.html.j2").render(
        kind=KINDS[result.reject_at(tested.alpha)],
        pvalue=selective_p(picture.record),
        short=short_verdict(result.reject_at(tested.alpha), tested.alpha),
        verdict=result.verdict(tested.alpha),
        panels=_panels(picture, dark),
        rows=_rows(result),
        sensitivity=result.sensitivity(alpha=tested.alpha, factors=SHOWN_FACTORS),
        notes=notes_on(tested),
        settings=_settings(tested),
        key=key,
    )
    return text


def message_html(text: str, kind: str) -> str:
    """Return a message of one or two sentences as HTML.

    Parameters
    ----------
    text
        The message; it is escaped.
    kind
        "error" or "welcome".
    """
    role = "alert" if kind == "error" else "status"
    return f'<div class="message {kind}" role="{role}">{escape(text)}</div>'


def _rows(result: AttentionTestResult) -> list[dict[str, str]]:
    """Return the numbers, each with a key, a name and a note."""
    low, high = (number_text(bound) for bound in result.pvalue_bounds)
    interval, naive_interval = result.confidence_interval(LEVEL), result.naive_confidence_interval(LEVEL)
    rows = {
        "selective-p": ("Selective p-value", result.pvalue_text(4), f"valid; error bar {low} to {high}"),
        "naive-p": (
            "Naive p-value",
            number_text(result.naive_pvalue),
            "not valid: it ignores that the model chose the region",
        ),
        "estimate": (
            "Difference, estimated",
            estimate_text(result.estimate, result.estimate_bounds, result.status),
            "median-unbiased, in units of the pixels",
        ),
        "interval": (
            f"{100 * LEVEL:g}% interval",
            f"{interval.low:.3g} to {interval.high:.3g}",
            f"naive, not valid: {naive_interval.low:.3g} to {naive_interval.high:.3g}",
        ),
        "difference": (
            "Difference, observed",
            f"{result.difference:.3g}",
            f"{abs(result.statistic):.4g} standard errors; biased, because the model chose where to look",
        ),
        "region": (
            "Region",
            f"{int(result.part.sum()):,} pixels",
            f"of {int(result.seen.sum()):,} that the model sees",
        ),
    }
    return [{"key": key, "name": name, "value": value, "note": note} for key, (name, value, note) in rows.items()]


def notes_on(tested: TestedImage) -> list[str]:
    """Return what else there is to know about a result, in sentences."""
    result = tested.result
    row = row_of(tested.image.name, result.record(LEVEL))
    noise = recorded_sentence(result.settings["noise"])
    notes = [f"Noise of the pixels: {noise[:1].lower()}{noise[1:]}"]
    if tested.settings_tried > 1:
        notes.append(
            f"This image was tested with {tested.settings_tried} different settings on this page. Only a p-value whose "
            "settings were chosen before looking is valid: to try several and to report the smallest is not."
        )
    footnotes = (*selection_notes(row), *row_notes(row, result.reject_at(tested.alpha), tested.alpha, LEVEL))
    notes.extend(f"{note[:1].upper()}{note[1:]}." for note in footnotes)
    if tested.form.preprocessing(tested.model, tested.image) is not tested.model.preprocessing:
        _, height, width = tested.model.scores.image_shape
        notes.append(
            f"The model takes images of {width} × {height} pixels and says nothing about others, so it saw this one "
            "resized, with pixel values as they are. Region and noise are those of the image itself."
        )
    return notes


def _settings(tested: TestedImage) -> str:
    settings = tested.result.settings
    rule = next(f"{name.replace('_', ' ')} {settings[name]:g}" for name in RULES if name in settings)
    return ", ".join(
        (
            tested.image.name,
            tested.model.name,
            f"{rule} of {settings['region_unit']}",
            f"compared with {compared_with(settings['contrast'])}",
            "two-sided, equal tails" if tested.result.alternative == "equal-tailed" else tested.result.alternative,
            f"{tested.result.evaluations} evaluations of the model",
        )
    )


def _panels(picture: Picture, dark: bool) -> list[dict[str, str]]:
    """Return the pictures with their captions."""
    where = "image" if picture.randomised_image is None else "randomised image"
    height, width = picture.region.shape
    tall = min(max(height / width, FLATTEST), 1 / FLATTEST)
    share = "half of p" if picture.record.alternative == "equal-tailed" else "p"

    def attention(axes: Axes) -> None:
        bar = axes.figure.colorbar(draw_map(axes, picture), ax=axes)
        bar.ax.tick_params(labelsize=8)

    drawn: tuple[tuple[str, Callable[[Axes], None], float, float], ...] = (
        (
            f"The {where}, what the model attends to, and the outline of the region",
            lambda axes: draw_overlay(axes, picture),
            1.0,
            tall,
        ),
        ("The attention map, from 0 to 1", attention, 1.17, tall),
        (
            f"Where the statistic could lie by chance: the dark share is {share}",
            lambda axes: draw_density(axes, picture.record),
            1.75,
            1.0,
        ),
    )
    return [
        {"address": _drawn(draw, (RESULT_VIEW_SIDE * across, RESULT_VIEW_SIDE * down), dark), "caption": caption}
        for caption, draw, across, down in drawn
    ]


def _drawn(draw: Callable[[Axes], None], size: tuple[float, float], dark: bool) -> str:
    """Return the address of a picture of a width and a height in inches."""
    from matplotlib import rc_context

    settings: Any = {**COLOURS[dark], "font.size": FONT_SIZE}
    with ONE_PICTURE, rc_context(settings):
        figure = new_figure(*size)
        draw(figure.add_subplot())
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=RESOLUTION)
    return png_address(file.getvalue())


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("attentest.app")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)
