"""A report as one HTML file that needs no other and sends no request, with small pictures, or as JSON."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attentest.errors import InputError
from attentest.files import check_output_path, write_complete
from attentest.presentation.figure import new_figure
from attentest.presentation.picture import MAP_COLOURS, outline_pixels, overlay_pixels, resized
from attentest.presentation.report import USUAL_CARDS
from attentest.presentation.report.content import report_content
from attentest.presentation.report.tested_batch import SmallPicture, TestedBatch
from attentest.presentation.result_figure import draw_density
from attentest.presentation.rows import Row
from attentest.presentation.words import (
    METHOD_NAMES,
    VERDICTS,
    estimate_text,
    interval_text,
    is_converged,
    number_text,
    plain,
    range_text,
    short,
)
from attentest.progress import Progress
from attentest.record import ResultRecord

WIDTH, HEIGHT = 3.5, 2.7
"""Size in inches."""

DPI = 180
"""Pixels per inch: sharp on a screen of twice the usual resolution, and on paper."""

COLOURS = 48
"""Colours of the file, which has few of its own: this keeps it small."""


class DensityImages:
    """Draws one density after the other on the same figure: a new one for each would take longer."""

    def __init__(self) -> None:
        self._figure = new_figure(WIDTH, HEIGHT)
        self._figure.set_layout_engine("none")

    def png(self, record: ResultRecord) -> bytes:
        """Return the density of a result."""
        import matplotlib as mpl

        with mpl.rc_context(mpl.rcParamsDefault):  # black on white, whatever the user's own style
            self._figure.clear()
            draw_density(self._figure.add_axes((0.04, 0.1, 0.92, 0.86)), record, size=8.5)
            drawn = io.BytesIO()
            self._figure.savefig(drawn, format="png", dpi=DPI, facecolor="white")
        content = io.BytesIO()
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(content, "PNG", optimize=True)
        return content.getvalue()


SHARP_SIDE = 256
"""Small images are enlarged to so many pixels, so that the outline of the region is finer than they are."""

CARD_IMAGES_COLOURS = 128
"""Most colours of a picture that is too large to be enlarged, which keeps its file small."""


def overlay_png(picture: SmallPicture, part: int | None = None) -> bytes:
    """Return the image with the attention over it and the outline of its region, or of one compared part thick."""
    region = picture.parts > 0
    outlined = region if part is None else picture.parts == part
    return _png(overlay_pixels(picture.image / 255.0, picture.attention / 255.0, region, outlined, _side(picture)))


def map_png(picture: SmallPicture) -> bytes:
    """Return the attention map with a thin outline of the region."""
    from matplotlib import colormaps

    colours = np.asarray(colormaps[MAP_COLOURS](picture.attention, bytes=True)[..., :3])
    pixels = resized(colours, _side(picture))
    outline_pixels(pixels, picture.parts > 0, max(1, max(pixels.shape) // 200))
    return _png(pixels)


def _side(picture: SmallPicture) -> int:
    return int(max(SHARP_SIDE, *picture.parts.shape))


def _png(pixels: NDArray[np.uint8]) -> bytes:
    picture = Image.fromarray(pixels)
    if max(pixels.shape) > SHARP_SIDE:
        picture = picture.quantize(CARD_IMAGES_COLOURS)
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return content.getvalue()


class CardPictures:
    """Draws pictures one after the other and holds them by the number of the result in the table."""

    def __init__(self, batch: TestedBatch) -> None:
        self._batch = batch
        self._densities = DensityImages()
        self.drawn: dict[int, dict[str, bytes]] = {}

    def draw(self, number: int, place: int, part: int | None, record: ResultRecord) -> None:
        """Draw the density of a result, and the image and the map if there is a picture of them."""
        small = self._batch.picture(place)
        images = {} if small is None else {"overlay": overlay_png(small, part), "map": map_png(small)}
        self.drawn[number] = {**images, "density": self._densities.png(record)}


NAME = "the report"
"""What messages call the file."""

JSON_SUFFIX = ".json"
SUFFIXES = (".html", ".htm", JSON_SUFFIX)


def is_json(path: Path) -> bool:
    """Return whether a report is to be JSON."""
    return path.suffix.lower() == JSON_SUFFIX


def check_report_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path to which no report can be written, or that would overwrite an input."""
    check_output_path(path, NAME, SUFFIXES, inputs)
    if not is_json(path):
        required_jinja2()
        new_figure(1.0, 1.0)  # refuses where Matplotlib is missing


def required_jinja2() -> Any:
    """Return Jinja2, or refuse where it is not installed."""
    try:
        return import_module("jinja2")
    except ImportError:
        raise InputError("the report needs Jinja2: pip install 'attentest[plots]'.") from None


HEADINGS = {"by": "BY p", "bh": "BH p", "holm": "Holm p"}
"""Short names of adjusted p-values."""


def html_page(content: Mapping[str, Any], pictures: Mapping[int, Mapping[str, bytes]]) -> str:
    """Return the page.

    Parameters
    ----------
    content
        What it says: see :func:`~attentest.presentation.report.content.report_content`.
    pictures
        PNG files of the results that are described in detail, by their number in the table and what they show.
    """
    jinja2 = required_jinja2()
    package = files("attentest.presentation")
    style = package.joinpath("html_style.css").read_text("utf-8")
    style += package.joinpath("report/templates/report.css").read_text("utf-8")
    script = package.joinpath("report/templates/report.js").read_text("utf-8")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attentest.presentation.report"),
        autoescape=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=lambda name: short(plain(name)),
        data=lambda picture: f"data:image/png;base64,{b64encode(picture).decode()}",
        readable=_readable,
        pvalue=_pvalue,
        estimate=lambda row: estimate_text(
            float(row["estimate"]), (float(row["estimate_low"]), float(row["estimate_high"])), row["status"]
        ),
        interval=lambda row: _interval(row, "confidence"),
        simultaneous=lambda row: _interval(row, "simultaneous"),
        ends=lambda interval: interval_text(float(interval["low"]), float(interval["high"])),
        verdict=VERDICTS.get,
        p=number_text,
    )
    methods = [name for name in METHOD_NAMES if name in content["counts"]["adjusted"]]
    return str(
        environment.get_template("report.html.j2").render(
            **content,
            methods=methods,
            headings=HEADINGS,
            method_names=METHOD_NAMES,
            marks=_marks(content["results"]),
            pictures=pictures,
            style=_trusted(style),
            script=_trusted(script),
            policy="; ".join(
                [
                    "default-src 'none'",
                    "img-src data:",
                    f"style-src {_hash(style)}",
                    f"script-src {_hash(script)}",
                    "base-uri 'none'",
                    "form-action 'none'",
                ]
            ),
        )
    )


def _trusted(text: str) -> Any:
    """Return text of our own, which is inserted as it is."""
    return import_module("markupsafe").Markup(text)


def _hash(text: str) -> str:
    """Return the source expression of a content security policy that allows exactly this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _pvalue(row: Row) -> str:
    """Return p without the status, which a footnote explains."""
    return (
        number_text(row["pvalue"]) if is_converged(row["status"]) else range_text(row["pvalue_low"], row["pvalue_high"])
    )


def _interval(row: Row, which: str) -> str:
    return f"{float(row[f'{which}_low']):.3g} to {float(row[f'{which}_high']):.3g}"


def _readable(value: Any) -> str:
    """Return a setting as text: the names and values of one that has several, "none" for one that is not there."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_readable(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_readable(each) for each in value)})"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def _marks(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return each footnote of the table with its letter: a number would look like a part of a p-value.

    There are fewer kinds of footnotes than letters; those of an unusual batch that has more share the last one.
    """
    notes = dict.fromkeys(note for result in results for note in result["footnotes"])
    return {note: ascii_lowercase[min(place, 25)] for place, note in enumerate(notes)}


def write_report(
    path: Path, batch: TestedBatch, *, alpha: float, cards: int = USUAL_CARDS, progress: Progress | None = None
) -> None:
    """Write the report of a batch to a checked path, completely or not at all; one ending in .json is JSON.

    Parameters
    ----------
    path
        The file.
    batch
        The batch.
    alpha
        Significance level of the verdicts.
    cards
        Largest number of results that are described in detail: those with the smallest p-values.
    progress
        Told how many of them are done.
    """
    make = json_report if is_json(path) else html_report
    write_complete(path, make(batch, alpha, cards, progress).encode(), NAME)


def html_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as one HTML page."""
    pictures = CardPictures(batch)
    content = report_content(batch, alpha, cards, progress, pictures.draw)
    return html_page(content, pictures.drawn)


def json_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as JSON."""
    return json.dumps(report_content(batch, alpha, cards, progress), allow_nan=False, indent=1) + "\n"
