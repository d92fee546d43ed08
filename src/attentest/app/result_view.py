"""A result as a part of the page: verdict, pictures, numbers, sensitivity to the noise and what else to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.app.form import Form
from attentest.app.offered import OfferedModel, UploadedImage
from attentest.definition import REGION_RULES
from attentest.errors import counted, worded
from attentest.markup import page_from, png_address, png_file, text_html
from attentest.noise.model import recorded_sentence
from attentest.presentation import picture as pictures
from attentest.presentation.figure import new_figure, png_of
from attentest.presentation.footnotes import row_notes, selection_notes
from attentest.presentation.plane import Plane
from attentest.presentation.result_figure import draw_density
from attentest.presentation.rows import row_of
from attentest.presentation.small_picture import displayed, eight_bits, outline_pixels, resized
from attentest.presentation.words import (
    compared_with,
    dark_share_text,
    mask_text,
    outlined_text,
    result_numbers,
    selective_p,
    short_verdict,
    verdict_text,
)
from attentest.record import ResultRecord, map_title
from attentest.results.result import AttentionTestResult
from attentest.statistics.noise_factor import SHOWN_FACTORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PREVIEW_SIDE = 480  # length in pixels of the longer side of the preview, at least half of it and at most it
OUTLINE = 3  # width in pixels of the outline of the region in the preview
PANEL_SIDE, RESOLUTION = 2.6, 160  # side of the picture of a square image in inches, and pixels per inch
FLATTEST = 0.4  # least height of a picture over its width; a flatter image has room above and below

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

ONE_PICTURE = Lock()  # Matplotlib's settings are those of the whole process, so one picture is drawn at a time


def message_html(text: str, kind: str) -> str:
    """Return a message of one or two sentences as HTML; the kind is "error" or "welcome"."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="message {kind}" role="{role}">{text_html(text)}</div>'


def preview_html(image: UploadedImage, region: NDArray[np.bool_], of: str = "") -> str:
    """Return an image with the outline of its region (*axes), and the size of the region, of what, as HTML.

    A signal is shown by its traces, and a volume by slices through the region.
    """
    pixels, shown, which = image.pixels, region, ""
    if image.dimension != 2:
        plane = Plane.through(region, pixels, image.spacing)
        pixels, shown, which = plane.image(pixels), plane.values(region), plane.caption.replace("\n", " ")
    slices = f" Shown: {which}." if which else ""
    png = png_file(region_picture(pixels, shown))
    sides = " × ".join(map(str, reversed(image.size)))
    size = f"<strong>{int(region.sum()):,}</strong> of {region.size:,} {worded('pixels', image.dimension)}"
    called = worded("image", image.dimension)
    return (
        f'<figure class="preview {called}"><img src="{png_address(png)}" alt="The {called} with the outline of the '
        f'region"><figcaption>{text_html(image.shown_name)}, {sides}. Region: '
        f'<span id="region-size">{size}</span>{of}.{slices}</figcaption></figure>'
    )


def region_picture(image: NDArray[Any], region: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return an image (H, W) or (H, W, C), with the outline of a region (H, W), as a picture (h, w, 3)."""
    # Small images are enlarged by a whole factor, so that all of their pixels have the same size.
    side = max(region.shape) * (PREVIEW_SIDE // max(region.shape)) or PREVIEW_SIDE
    shown = eight_bits(displayed(image))
    pixels: NDArray[np.uint8] = resized(shown if shown.ndim == 3 else np.stack([shown] * 3, axis=2), side)
    outline_pixels(pixels, region, OUTLINE)
    return pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedImage:
    """A result with what the page knows about it."""

    image: UploadedImage
    form: Form
    model: OfferedModel
    """What was tested, as the fields of the page say."""
    result: AttentionTestResult
    alpha: float
    """The result, and the significance level of its verdict."""
    settings_tried: int
    """With how many different settings the image was tested on this page."""


def result_html(tested: TestedImage, *, key: str, dark: bool) -> str:
    """Return a tested image as HTML for a light or a dark page, with the key of its report; every text is escaped."""
    picture = tested.result.picture()
    record, rejected = picture.record, tested.result.reject_at(tested.alpha)
    approximate = ", approximate" if record.approximate_noise else ""
    return page_from(
        ["attentest.app"],
        "result.html.j2",
        kind=KINDS[rejected],
        pvalue=selective_p(record),
        short=short_verdict(rejected, tested.alpha) + approximate,
        verdict=verdict_text(record, tested.alpha),
        panels=_panels(picture, dark),
        numbers=result_numbers(record),
        sensitivity=None
        if tested.result.draws or record.is_of_counts
        else tested.result.sensitivity(alpha=tested.alpha, factors=SHOWN_FACTORS),
        notes=_notes(tested, record),
        settings=_settings(tested, record),
        key=key,
    )


def _notes(tested: TestedImage, record: ResultRecord) -> list[str]:
    """Return what else there is to know about a result, in sentences."""
    row = row_of(tested.image.name, record)
    noise = worded(recorded_sentence(record.settings["noise"]), record.dimension)
    notes = [f"Noise of the {worded('pixels', record.dimension)}: {noise[:1].lower()}{noise[1:]}"]
    if tested.settings_tried > 1:
        notes.append(
            f"This {worded('image', record.dimension)} was tested with {tested.settings_tried} different settings on "
            "this page. Only a p-value whose settings were chosen before looking is valid: to try several and to "
            "report the smallest is not."
        )
    level = None if record.confidence_interval is None else record.confidence_interval.confidence_level
    footnotes = (*selection_notes(row), *row_notes(row, record.reject_at(tested.alpha), tested.alpha, level))
    notes.extend(f"{note[:1].upper()}{note[1:]}." for note in footnotes)
    steps = tested.form.preprocessing(tested.model, tested.image)
    if tested.model.preprocessing is None and steps is not None and not steps.assumed:
        sides = tested.model.scores.image_shape[1:]
        size = " × ".join(map(str, sides[::-1] if record.dimension == 2 else sides))
        text = (
            f"The model takes images of {size} pixels and says nothing about others, so it saw this one resized, with "
            "pixel values as they are. Region and noise are those of the image itself."
        )
        notes.append(worded(text, record.dimension))
    return notes


def _settings(tested: TestedImage, record: ResultRecord) -> str:
    settings = record.settings
    rule = next(name for name in REGION_RULES if settings.get(name) is not None)
    return ", ".join(
        (
            tested.image.shown_name,
            tested.model.name,
            f"{map_title({**settings, 'draws': 1})} ({settings['model']['attention']['name']})",
            worded(f"{rule.replace('_', ' ')} {settings[rule]:g} of {settings['region_unit']}", record.dimension),
            worded(f"compared with {compared_with(settings['contrast'])}", record.dimension),
            "two-sided, equal tails" if record.alternative == "equal-tailed" else record.alternative,
            f"{counted(record.evaluations, 'evaluation')} of the model",
        )
    )


def _panels(picture: pictures.Picture, dark: bool) -> list[tuple[bytes, str]]:
    """Return the pictures as PNG files, with their captions."""
    height, width = (3, 4) if picture.region.ndim == 1 else picture.on_plane().region.shape
    tall = min(max(height / width, FLATTEST), 1 / FLATTEST)

    def draw_attention(axes: Axes) -> None:
        axes.figure.colorbar(pictures.draw_map(axes, picture), ax=axes).ax.tick_params(labelsize=8)

    def draw_image(axes: Axes) -> None:
        pictures.draw_overlay(axes, picture)
        if picture.region.ndim != 2:
            pictures.label_axes(axes, picture, 8.0)

    def drawn(draw: Callable[[Axes], None], width: float, height: float) -> bytes:
        from matplotlib import rc_context

        with ONE_PICTURE, rc_context(STYLES[dark]):
            figure = new_figure(PANEL_SIDE * width, PANEL_SIDE * height)
            draw(figure.add_subplot())
            return png_of(figure, RESOLUTION)

    outlined = f"{worded('The image and the outline of the', picture.record.dimension)} {outlined_text(picture.record)}"
    title, seen = map_title(picture.record.settings), []
    title = f"The {title}" if picture.record.draws is None else f"{title[0].upper()}{title[1:]}"
    if picture.randomised_image is not None:
        name = pictures.seen_name(picture.record.is_of_counts, picture.record.dimension).capitalize()
        seen.append((drawn(lambda axes: pictures.draw_seen(axes, picture), 1.0, tall), name))
    return [
        (
            drawn(draw_image, 1.0, tall),
            "; ".join(filter(None, [outlined, mask_text(picture.record)])),
        ),
        *seen,
        (drawn(draw_attention, 1.17, tall), f"{title}, from 0 to 1"),
        (
            drawn(lambda axes: draw_density(axes, picture.record), 1.45, 1.0),
            f"Where the statistic could lie by chance: the dark share is {dark_share_text(picture.record)}",
        ),
    ]
