"""A report as one HTML file that needs no other and sends no request, with small pictures, or as JSON."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from attentest.errors import worded
from attentest.files import check_output_path, write_complete
from attentest.markup import page_from, plain, png_file, required
from attentest.presentation.figure import new_figure
from attentest.presentation.footnotes import footnote_marks
from attentest.presentation.image_names import elided
from attentest.presentation.picture import SHARP_SIDE, seen_name
from attentest.presentation.report import USUAL_CARDS
from attentest.presentation.report.content import report_content
from attentest.presentation.report.tested_batch import TestedBatch
from attentest.presentation.result_figure import draw_density
from attentest.presentation.words import METHOD_NAMES, number_text, row_texts
from attentest.progress import Progress
from attentest.record import ResultRecord

WIDTH, HEIGHT = 3.5, 2.7  # size of the picture of a density in inches
DPI = 180  # pixels per inch: sharp on a screen of twice the usual resolution, and on paper

DENSITY_COLOURS, IMAGE_COLOURS = 48, 128
"""Colours of the files of densities, and of images too large to be enlarged: this keeps them small."""


class CardPictures:
    """Draws the pictures of results one after the other, all densities on the same figure: a new one takes longer."""

    def __init__(self, batch: TestedBatch) -> None:
        self._batch = batch
        self._figure = new_figure(WIDTH, HEIGHT, arranged=False)

    def draw(self, place: int, part: int | None, record: ResultRecord) -> dict[str, bytes]:
        """Return PNG files of the density of a result, and of image, randomised image and map if they are known."""
        small, drawn = self._batch.picture(place), {"density": self._density(record)}
        if small is not None:
            for name, pixels in (("overlay", small.overlay(part)), ("seen", small.seen(part)), ("map", small.map())):
                if pixels is not None:
                    drawn[name] = png_file(pixels, IMAGE_COLOURS if max(pixels.shape) > SHARP_SIDE else None)
        return drawn

    def _density(self, record: ResultRecord) -> bytes:
        import matplotlib as mpl

        with mpl.rc_context(mpl.rcParamsDefault):  # black on white, whatever the user's own style
            self._figure.clear()
            draw_density(self._figure.add_axes((0.04, 0.1, 0.92, 0.86)), record, size=8.5)
            drawn = io.BytesIO()
            self._figure.savefig(drawn, format="rgba", dpi=DPI, facecolor="white")
        pixels = np.frombuffer(drawn.getvalue(), dtype=np.uint8).reshape(-1, round(WIDTH * DPI), 4)
        return png_file(pixels[..., :3], DENSITY_COLOURS)


NAME = "the report"  # what messages call the file

JSON_SUFFIX = ".json"
SUFFIXES = (".html", ".htm", JSON_SUFFIX)


def is_json(path: Path) -> bool:
    """Return whether a report is to be JSON."""
    return path.suffix.lower() == JSON_SUFFIX


def check_report_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if no report can be written to a path, or if it would overwrite an input."""
    check_output_path(path, NAME, SUFFIXES, inputs)
    if not is_json(path):
        required("jinja2", "Jinja2")
        new_figure(1.0, 1.0)  # an error where Matplotlib is missing


HEADINGS = {"by": "BY p", "bh": "BH p", "holm": "Holm p"}  # short names of adjusted p-values
LONGEST_NAME = 64  # most characters of a name in a table; its middle is left out


def html_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as one HTML page."""
    content = report_content(batch, alpha, cards, progress, CardPictures(batch).draw)
    package = files("attentest.presentation")
    style = package.joinpath("html_style.css").read_text("utf-8")
    style += package.joinpath("report/templates/report.css").read_text("utf-8")
    script = package.joinpath("report/templates/report.js").read_text("utf-8")
    allowed = {"img-src": "data:", "style-src": allowed_hash(style), "script-src": allowed_hash(script)}
    policy = {"default-src": "'none'", **allowed, "base-uri": "'none'", "form-action": "'none'"}
    return page_from(
        "attentest.presentation.report",
        "report.html.j2",
        **content,
        short=lambda name: elided(plain(name), LONGEST_NAME),
        readable=_readable,
        p=number_text,
        texts=[None if "error" in result else row_texts(result) for result in content["results"]],
        methods=[name for name in METHOD_NAMES if name in content["counts"]["adjusted"]],
        with_classes=any(result.get("class_predicted") for result in content["results"]),
        with_intervals=content["settings"].get("confidence_level") is not None,
        headings=HEADINGS,
        seen=seen_name(content["counts_tested"], content["dimension"]).capitalize(),
        worded=lambda text: worded(text, content["dimension"]),
        method_names=METHOD_NAMES,
        marks=footnote_marks(result["footnotes"] for result in content["results"]),
        style=style,
        script=script,
        policy="; ".join(f"{what} {source}" for what, source in policy.items()),
    )


def allowed_hash(text: str) -> str:
    """Return the source expression of a content security policy that allows exactly this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _readable(value: Any) -> str:
    """Return a setting as text: the names and values of one that has several, "none" for one that is not there."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_readable(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_readable(part) for part in value)})"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def write_report(
    path: Path, batch: TestedBatch, *, alpha: float, cards: int = USUAL_CARDS, progress: Progress | None = None
) -> None:
    """Write the report of a batch to a checked path, completely or not at all; one ending in .json is JSON.

    Its other parameters are those of its content (:func:`report_content`).
    """
    make = json_report if is_json(path) else html_report
    write_complete(path, make(batch, alpha, cards, progress).encode(), NAME)


def json_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as JSON."""
    return json.dumps(report_content(batch, alpha, cards, progress), allow_nan=False, indent=1) + "\n"
