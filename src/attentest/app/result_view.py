"""A result as a part of the page: verdict, pictures, numbers, sensitivity to the noise and what else to know."""

from __future__ import annotations

import io
from base64 import b64encode
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
from attentest.presentation.picture import Picture, displayed, draw_map, draw_overlay
from attentest.presentation.result_figure import draw_density
from attentest.presentation.rows import RULES, row_of
from attentest.presentation.words import (
    compared_with,
    estimate_text,
    interval_name,
    interval_text,
    number_text,
    pvalue_text,
    range_text,
    row_notes,
    selection_notes,
    selective_p,
    short_verdict,
    verdict_text,
)
from attentest.record import ResultRecord
from attentest.results.result import AttentionTestResult
from attentest.statistics.noise_factor import SHOWN_FACTORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PREVIEW_SIDE = 480
"""Length in pixels of the longer side of the preview, at least half of it and at most it."""

OUTLINE = 3
"""Width in pixels of the outline of the region in the preview."""

PANEL_SIDE, RESOLUTION = 2.6, 160
"""Side of the picture of a square image in inches, and pixels per inch."""

FLATTEST = 0.4
"""Least height of a picture over its width; a flatter image has room above and below."""

STYLES: dict[bool, Any] = {
    dark: {
        "font.size": 9.0,
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), paper),
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
    }
    for dark, paper, ink in ((False, "#ffffff", "#1f2933"), (True, "#0a0f1e", "#e4e7eb"))
}
"""Background and text of pictures on a light and on a dark page, as Matplotlib's settings."""

KINDS = {True: "significant", False: "ordinary", None: "undecided"}
"""What a decision looks like, as a class of the style sheet."""

ONE_PICTURE = Lock()
"""Matplotlib's settings are those of the whole process, so one picture is drawn at a time."""


def message_html(text: str, kind: str) -> str:
    """Return a message of one or two sentences as HTML; the kind is "error" or "welcome"."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="message {kind}" role="{role}">{escape(text)}</div>'


def preview_html(image: UploadedImage, region: NDArray[np.bool_], randomised: bool) -> str:
    """Return an image with the outline of its region (H, W), and the size of the region, as HTML."""
    height, width = region.shape
    png = io.BytesIO()
    Image.fromarray(region_picture(image.pixels, region)).save(png, "PNG")
    size = f"<strong>{int(region.sum()):,}</strong> of {height * width:,} pixels"
    return (
        f'<figure class="preview"><img src="{_address(png)}" alt="The image with the outline of the region">'
        f"<figcaption>{escape(image.name)}, {width} × {height}. Region: "
        f'<span id="region-size">{size}</span>{" of the image plus noise" if randomised else ""}.</figcaption></figure>'
    )


def region_picture(image: NDArray[Any], region: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return an image (H, W) or (H, W, C), with the outline of a region (H, W), as a picture (h, w, 3)."""
    from scipy.ndimage import binary_erosion  # here because scipy.ndimage is slow to import

    height, width = region.shape
    # Small images are enlarged by a whole factor, so that all of their pixels have the same size.
    factor = PREVIEW_SIDE // max(height, width) or PREVIEW_SIDE / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    grey = Image.fromarray(np.round(255 * displayed(image)).astype(np.uint8))
    picture = np.array(grey.convert("RGB").resize(size, method))
    inside = np.array(Image.fromarray(region).resize(size, Image.Resampling.NEAREST))
    core = binary_erosion(inside, np.ones((3, 3)), iterations=OUTLINE)
    picture[inside & ~core] = list(bytes.fromhex(REGION_COLOUR[1:]))
    return picture


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
    picture = tested.result.picture()
    record, rejected = picture.record, tested.result.reject_at(tested.alpha)
    text: str = _template("result.html.j2").render(
        kind=KINDS[rejected],
        pvalue=selective_p(record),
        short=short_verdict(rejected, tested.alpha),
        verdict=verdict_text(record, tested.alpha),
        panels=_panels(picture, dark),
        numbers=_numbers(record),
        sensitivity=tested.result.sensitivity(alpha=tested.alpha, factors=SHOWN_FACTORS),
        notes=_notes(tested, record),
        settings=_settings(tested, record),
        key=key,
    )
    return text


def _numbers(record: ResultRecord) -> list[tuple[str, str, str, str]]:
    """Return the numbers, each with a key and a name before it and a note behind it."""
    interval, naive = record.confidence_interval, record.naive_confidence_interval()
    return [
        (
            "selective-p",
            "Selective p-value",
            pvalue_text(record.pvalue, record.pvalue_bounds, record.status, 4),
            f"valid; error bar {range_text(*record.pvalue_bounds)}",
        ),
        (
            "naive-p",
            "Naive p-value",
            number_text(record.naive_pvalue),
            "not valid: it ignores that the model chose the region",
        ),
        (
            "estimate",
            "Difference, estimated",
            estimate_text(record.estimate, record.estimate_bounds, record.status),
            "median-unbiased, in units of the pixels",
        ),
        (
            "interval",
            interval_name(interval.confidence_level),
            interval_text(interval.low, interval.high),
            f"naive, not valid: {interval_text(naive.low, naive.high)}",
        ),
        (
            "difference",
            "Difference, observed",
            f"{record.difference:.3g}",
            f"{abs(record.statistic):.4g} standard errors; biased, because the model chose where to look",
        ),
        ("region", "Region", f"{record.part_pixels:,} pixels", f"of {record.seen_pixels:,} that the model sees"),
    ]


def _notes(tested: TestedImage, record: ResultRecord) -> list[str]:
    """Return what else there is to know about a result, in sentences."""
    row = row_of(tested.image.name, record)
    noise = recorded_sentence(record.settings["noise"])
    notes = [f"Noise of the pixels: {noise[:1].lower()}{noise[1:]}"]
    if tested.settings_tried > 1:
        notes.append(
            f"This image was tested with {tested.settings_tried} different settings on this page. Only a p-value whose "
            "settings were chosen before looking is valid: to try several and to report the smallest is not."
        )
    level = record.confidence_interval.confidence_level
    footnotes = (*selection_notes(row), *row_notes(row, record.reject_at(tested.alpha), tested.alpha, level))
    notes.extend(f"{note[:1].upper()}{note[1:]}." for note in footnotes)
    if tested.form.preprocessing(tested.model, tested.image) is not tested.model.preprocessing:
        _, height, width = tested.model.scores.image_shape
        notes.append(
            f"The model takes images of {width} × {height} pixels and says nothing about others, so it saw this one "
            "resized, with pixel values as they are. Region and noise are those of the image itself."
        )
    return notes


def _settings(tested: TestedImage, record: ResultRecord) -> str:
    settings = record.settings
    rule = next(f"{name.replace('_', ' ')} {settings[name]:g}" for name in RULES if name in settings)
    return ", ".join(
        (
            tested.image.name,
            tested.model.name,
            f"{rule} of {settings['region_unit']}",
            f"compared with {compared_with(settings['contrast'])}",
            "two-sided, equal tails" if record.alternative == "equal-tailed" else record.alternative,
            f"{record.evaluations} evaluations of the model",
        )
    )


def _panels(picture: Picture, dark: bool) -> list[tuple[str, str]]:
    """Return the addresses of the pictures, with their captions."""
    where = "image" if picture.randomised_image is None else "randomised image"
    height, width = picture.region.shape
    tall = min(max(height / width, FLATTEST), 1 / FLATTEST)
    share = "half of p" if picture.record.alternative == "equal-tailed" else "p"

    def draw_attention(axes: Axes) -> None:
        axes.figure.colorbar(draw_map(axes, picture), ax=axes).ax.tick_params(labelsize=8)

    def drawn(draw: Callable[[Axes], None], width: float, height: float) -> str:
        from matplotlib import rc_context

        with ONE_PICTURE, rc_context(STYLES[dark]):
            figure = new_figure(PANEL_SIDE * width, PANEL_SIDE * height)
            draw(figure.add_subplot())
            png = io.BytesIO()
            figure.savefig(png, format="png", dpi=RESOLUTION)
        return _address(png)

    return [
        (
            drawn(lambda axes: draw_overlay(axes, picture), 1.0, tall),
            f"The {where}, what the model attends to, and the outline of the region",
        ),
        (drawn(draw_attention, 1.17, tall), "The attention map, from 0 to 1"),
        (
            drawn(lambda axes: draw_density(axes, picture.record), 1.75, 1.0),
            f"Where the statistic could lie by chance: the dark share is {share}",
        ),
    ]


def _address(png: io.BytesIO) -> str:
    """Return a PNG file as an address that holds the file itself."""
    return f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("attentest.app")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)
