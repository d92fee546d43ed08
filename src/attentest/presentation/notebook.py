"""Results as notebooks show them: a table of numbers, with a small picture for one image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from attentest.errors import worded
from attentest.markup import definition_table, png_address, png_file, row_table, text_html
from attentest.noise.model import recorded_sentence
from attentest.presentation.footnotes import contradiction_text
from attentest.presentation.picture import Picture, displayed, eight_bits, overlay_pixels, seen_name
from attentest.presentation.rows import Row
from attentest.presentation.words import (
    METHOD_NAMES,
    mask_text,
    number_text,
    region_text,
    result_numbers,
    row_texts,
    verdict_text,
)
from attentest.statistics.multiple_testing import Adjustment

ALPHA = 0.05  # significance level of the verdict
MOST_ROWS = 20  # most images in the table of many results
PICTURE_SIDE = 176  # longer side of the picture, in screen pixels


def result_html(picture: Picture) -> str:
    """Return one result as HTML: the verdict in words, the numbers, the image with its region, and what was seen."""
    picture = picture.on_plane()
    record = picture.record
    defined = {number.name: f"{number.text} ({number.note})" for number in result_numbers(record)} | {
        "noise": worded(recorded_sentence(record.settings["noise"]), record.dimension),
        "search": f"{record.settings['search']['name']}, {record.evaluations} evaluations, {record.status}",
    }
    sentences = filter(None, (verdict_text(record, ALPHA), contradiction_text(record, ALPHA)))
    table = definition_table("AttentionTestResult", defined, list(sentences))
    name = worded(f"image and region of {region_text(record)}", record.dimension)
    name = "; ".join(filter(None, [name, mask_text(record)]))
    images = _image_html(picture, picture.image, picture.attention, name)
    if picture.randomised_image is not None:
        images += _image_html(picture, picture.randomised_image, None, seen_name(record.is_of_counts, record.dimension))
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">{images}{table}</div>'


def _image_html(picture: Picture, values: NDArray[Any], attention: NDArray[Any] | None, name: str) -> str:
    """Return an image with the region of a picture, and its name below it."""
    shown = eight_bits(displayed(values))
    pixels = overlay_pixels(shown, attention, picture.region, picture.part, PICTURE_SIDE, picture.mask)
    width, text = f"width:{pixels.shape[1]}px", text_html(name)
    image = f'<img src="{png_address(png_file(pixels))}" alt="{text}" style="{width};margin:0">'
    return f'<div style="{width}">{image}<div>{text}</div></div>'


def results_html(
    title: str,
    rows: Iterable[Row],
    total: int,
    *,
    of: str,
    method: Adjustment,
    notes: Sequence[str],
    dimension: int = 2,
) -> str:
    """Return the first rows of many results, of a total number, as HTML, with sentences about all of them.

    A row is of an "image" or a "component" of so many axes. Of its adjusted p-values, those of one method are shown.
    """
    shown, cells = ("naive p", "difference", "simultaneous" if of == "component" else "interval", "pixels"), []
    for row in rows:
        if "error" in row:
            cells.append((row["image"], f"could not be tested: {row['error']}"))
        else:
            texts = row_texts(row)
            adjusted = number_text(row[f"pvalue_{method}"])
            cells.append((row["image"], texts["selective p"], adjusted, *(texts[name] for name in shown)))
    pvalues = ("selective p", f"{METHOD_NAMES[method]}-adjusted p", "naive p (not valid)")
    interval = "simultaneous interval" if of == "component" else "confidence interval"
    columns = (worded(of, dimension), *pvalues, "observed difference", interval, worded("pixels", dimension))
    more = [f"The first {len(cells)} of {total} rows; to_pandas() has all."] if total > len(cells) else []
    return row_table(title, columns, cells, [*notes, *more])
