"""Results as HTML: the report of a batch, which needs no other file and sends no request, and tables in notebooks.

What a report says is also there as JSON.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.errors import counted, required, worded
from attentest.files import check_output_path, write_complete
from attentest.markup import definition_table, page_from, plain, png_address, png_file, row_table, text_html
from attentest.noise.model import recorded_sentence
from attentest.presentation import USUAL_CARDS
from attentest.presentation.figure import new_figure
from attentest.presentation.footnotes import COUNTS, contradiction_text, footnote_marks, row_notes, selection_notes
from attentest.presentation.number_texts import number_text, row_texts, with_sign
from attentest.presentation.picture import Picture, seen_name
from attentest.presentation.result_figure import draw_density
from attentest.presentation.rows import COLUMNS, Row, pvalues_of, with_adjusted
from attentest.presentation.sensitivity import recorded_sensitivity
from attentest.presentation.small_picture import SHARP_SIDE, displayed, eight_bits, overlay_pixels
from attentest.presentation.tables import elided
from attentest.presentation.tested_batch import TestedBatch
from attentest.presentation.words import (
    METHOD_NAMES,
    OUTLINED,
    VERDICTS,
    dark_share_text,
    majority_text,
    mask_text,
    outlined_text,
    region_text,
    result_numbers,
    verdict_text,
)
from attentest.progress import Progress
from attentest.record import ResultRecord, dimension_of, json_ready, map_kind, map_title
from attentest.statistics.multiple_testing import Adjustment

Draw: TypeAlias = Callable[[int, int | None, ResultRecord], Mapping[str, bytes | str]]
"""Draws a result that is described in detail, from the place of its image, the number of its component if it is one,
and its record; returns PNG files by what they show, and of a volume as ``slices`` which ones these are."""

KEPT = {
    "bh": "which keeps the expected share of false findings among all findings at that level",
    "by": "which keeps the expected share of false findings at that level although the images share a reference",
    "holm": "which keeps the chance of any false finding at that level",
}
"""What each way to adjust p-values is for."""

METHOD = (
    "The region is where the {kind} map of the model exceeds {cut}. The compared difference is standardised "
    "by the noise, and its distribution is taken given that the model chooses this very region: the truncation set, on "
    "which it does, is searched along the line on which only the difference varies. The selective p-value is the "
    "probability, under that distribution and if there is no difference, of a difference at least as large as the "
    "observed one. Where there is nothing to find and the noise is as assumed, it is at most 0.05 one time in twenty, "
    "whatever the model. Estimate and interval come from the same distribution. The naive p-value ignores that the "
    "model chose the region, and is not valid."
)

METHOD_OF_COUNTS = (
    "The region is where the {kind} map of the model exceeds {cut}. The model saw a random part of each count. "
    "The other part is independent of it if counts are Poisson, and so of the region: given their total, the counts in "
    "the region are binomial. The selective p-value is that of the exact binomial test of equal mean rates, the "
    "estimate is the ratio of the mean rates inside and outside, and its interval is that of Clopper and Pearson. The "
    "naive p-value is that of all counts, which ignores that the model chose the region on some, and is not valid."
)

EQUAL_TAILS = (
    "Here the selective p-value has equal tails: it is twice the probability of the smaller of the two tails that the "
    "observed difference divides the distribution into, and less than 0.05 exactly when the 95% interval excludes 0."
)

TOGETHER = (
    "Simultaneous intervals of the components of one region all cover their true differences together with the stated "
    "probability (Bonferroni), given the region."
)

CITATION = (
    "Shiraishi, T., Miwa, D., Katsuoka, T., Duy, V. N. L., Taji, K. and Takeuchi, I.: Statistical Test for Attention "
    "Map in Vision Transformer. attentest is an independent implementation of its method."
)


def report_content(
    batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None, draw: Draw | None = None
) -> dict[str, Any]:
    """Return what a report says of a batch, JSON-ready.

    With components of regions, the p-values are those of components, and adjusted within each image. At most so many
    ``cards``, the results with the smallest p-values, are described in detail; progress is in these, and ``draw`` draws
    what becomes ``pictures`` of the ``detail`` of each.
    """
    rows = [row for image in batch.rows for row in image]
    places = [place for place, image in enumerate(batch.rows) for _ in image]
    tested = [number for number, row in enumerate(rows) if "error" not in row]
    components = any("component" in row for row in rows)
    known, adjusted = pvalues_of(rows), _adjusted_decisions(batch, alpha)
    if not components:
        rows = list(with_adjusted(rows, known))
    decisions = known.decisions(alpha)
    settings = batch.origin["settings"]
    searched = settings.get("confidence_level")
    unknown: dict[str, Any] = {"verdict": "not tested", "adjusted_verdicts": {}, "footnotes": [], "detail": None}
    results = [{name: json_ready(row[name]) for name in COLUMNS if name in row} | unknown for row in rows]
    for number, rejected, *others in zip(tested, decisions, *adjusted.values(), strict=True):
        row = rows[number]
        level = None if searched is None else row.get("confidence_level")
        results[number] |= {
            "verdict": VERDICTS[rejected],
            "adjusted_verdicts": {method: VERDICTS[other] for method, other in zip(adjusted, others, strict=True)},
            "footnotes": [*row_notes(row, rejected, alpha, level), *selection_notes(row)],
        }
    smallest = sorted(tested, key=lambda number: rows[number]["log_pvalue"])[:cards]
    tell = progress or (lambda done, total: None)
    for done, number in enumerate(smallest):
        tell(done, len(smallest))
        place, part = places[number], rows[number].get("component")
        records, sensitivity = batch.line(place)
        record = records[0 if part is None else part - 1]
        total = len(tested) if part is None else sum("error" not in row for row in batch.rows[place])
        adjusted_text = worded(_adjusted_text(results[number], total), record.dimension)
        detail = _detail(record, sensitivity, alpha) | {"adjusted": adjusted_text}
        results[number]["detail"] = detail if draw is None else detail | {"pictures": draw(place, part, record)}
    tell(len(smallest), len(smallest))
    images = {places[number] for number in tested}
    counts: dict[str, Any] = {
        "images": len(batch.rows),
        "failed": len(batch.rows) - len(images),
        "tested": len(images),
        "components": len(tested) if components else None,
        **_counts(decisions),
        "adjusted": {method: _counts(others) for method, others in adjusted.items()},
        "naive_significant": int((known.naive <= alpha).sum()),
    }
    counted_pixels = (settings.get("noise") or {}).get("model") == COUNTS
    method = METHOD_OF_COUNTS if counted_pixels else METHOD
    level = settings.get("level")
    cut = "its threshold" if level is None else f"the level {level:g}, in its own units"
    equal_tails = [EQUAL_TAILS] if settings.get("alternative") == "equal-tailed" else []
    together = [TOGETHER] if components and searched is not None else []
    summary = summary_sentences(counts, alpha, map_kind(settings))
    if map_words := next((row["map_words"] for row in rows if "map_words" in row), None):
        summary.insert(0, f"Regions are those of the {map_words}.")
    dimension = dimension_of(settings)
    noises = {name: batch.origin[name] for name in ("noise", "reference_noise")}
    return {
        **batch.origin,
        **{name: noise and worded(recorded_sentence(noise), dimension) for name, noise in noises.items()},
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "alpha": alpha,
        "counts": counts,
        "summary": [worded(said, dimension) for said in summary],
        "dimension": dimension,
        "results": results,
        "in_detail": smallest,
        "map_kind": map_kind(settings),
        "several": (settings.get("draws") or 1) > 1,
        "counts_tested": counted_pixels,
        "method": " ".join([method.format(kind=map_kind(settings), cut=cut), *equal_tails, *together]),
        "citation": CITATION,
    }


def summary_sentences(counts: dict[str, Any], alpha: float, kind: str) -> list[str]:
    """Return the counts in sentences."""
    tested, components = counts["tested"], counts["components"]
    what = f"{counted(tested, 'image')} {'was' if tested == 1 else 'were'} tested"
    if components is not None:
        what += f", with {counted(components, 'connected component')} of {kind} regions in all"
    sentences = [f"{what}."]
    if total := tested if components is None else components:
        whose = "its" if counts["significant"] == 1 else "their"
        sentences.append(
            f"{_significant(counts, total, f'at {alpha:g} by {whose} own selective p-value')} If no region were real, "
            f"about {alpha * total:.2g} would be."
        )
        for method, made in counts["adjusted"].items():
            name = METHOD_NAMES[method]
            how = f"for the number of images by the method of {name}, {KEPT[method]}"
            if components is not None:
                how = f"for the number of components of each region ({name})"
            sentences.append(_significant(made, total, f"after adjustment {how}"))
        sentences.append(
            f"A naive test, which is not valid because the model chose the region from the same image, would call "
            f"{counts['naive_significant']} of {total} significant."
        )
    if counts["failed"]:
        sentences.append(f"{counted(counts['failed'], 'image')} could not be tested; the reasons are below.")
    return sentences


def _adjusted_decisions(batch: TestedBatch, alpha: float) -> dict[Adjustment, list[bool | None]]:
    """Return the decisions on all tested rows by adjusted p-values, for each way to adjust them."""
    images = [image for image in batch.rows if "error" not in image[0]]
    if any("component" in image[0] for image in images):
        return {"holm": [decided for image in images for decided in pvalues_of(image).decisions(alpha, "holm")]}
    known = pvalues_of(row for image in images for row in image)
    methods: tuple[Adjustment, ...] = ("by", "holm") if known.share_a_reference else ("bh", "holm")
    return {method: known.decisions(alpha, method) for method in methods}


def _detail(record: ResultRecord, recorded: Mapping[str, Any] | None, alpha: float) -> dict[str, Any]:
    """Return what the card of a result says besides its row."""
    level = record.interval_level(getattr(record.confidence_interval, "confidence_level", None))
    detail: dict[str, Any] = {
        "verdict": verdict_text(record, alpha),
        "map_title": map_title(record.settings),
        "mask": mask_text(record),
        "outlined": outlined_text(record),
        "dark_share": dark_share_text(record),
        "numbers": [number._asdict() for number in result_numbers(record)],
        "noise": worded(recorded_sentence(record.settings["noise"]), record.dimension),
        "sensitivity": None,
    }
    # Of several draws, the record has not what each would be with other noise, and counts have no noise model.
    if record.draws is None and not record.is_of_counts:
        sensitivity = recorded_sensitivity(record, recorded, alpha=alpha, confidence_level=level)
        detail |= {"sensitivity": sensitivity.to_dict(), "sensitivity_table": sensitivity.table()}
    return detail


def _adjusted_text(result: Mapping[str, Any], total: int) -> str:
    """Return the verdicts after adjustment; none where there is one hypothesis only."""
    if total < 2:
        return ""
    of = "components of this region" if "component" in result else "tested images"
    texts = [
        f"{verdict} by {METHOD_NAMES[method]} (p {with_sign(number_text(result[f'pvalue_{method}']))})"
        for method, verdict in result["adjusted_verdicts"].items()
    ]
    return f"Adjusted for the {total} {of}, from upper bounds on p: {', '.join(texts)}."


def _counts(decisions: Sequence[bool | None]) -> dict[str, int]:
    return {"significant": decisions.count(True), "undecided": decisions.count(None)}


def _significant(counts: Mapping[str, int], total: int, how: str) -> str:
    undecided = f" ({counts['undecided']} undecided)" if counts["undecided"] else ""
    verb = "is" if counts["significant"] == 1 else "are"
    return f"{counts['significant']} of {total} {verb} significant {how}{undecided}."


WIDTH, HEIGHT = 3.5, 2.7  # size of the picture of a density in inches
DPI = 180  # pixels per inch: sharp on a screen of twice the usual resolution, and on paper

DENSITY_COLOURS, IMAGE_COLOURS = 48, 128
"""Colours of the files of densities, and of images too large to be enlarged: this keeps them small."""


def card_pictures(batch: TestedBatch) -> Draw:
    """Return a function that draws the density of a result, and image, randomised image and map if they are known.

    All densities are drawn on the same figure: a new one takes longer.
    """
    figure = new_figure(WIDTH, HEIGHT, arranged=False)

    def density(record: ResultRecord) -> bytes:
        import matplotlib as mpl

        with mpl.rc_context(mpl.rcParamsDefault):  # black on white, whatever the user's own style
            figure.clear()
            draw_density(figure.add_axes((0.04, 0.1, 0.92, 0.86)), record, size=8.5)
            drawn = io.BytesIO()
            figure.savefig(drawn, format="rgba", dpi=DPI, facecolor="white")
        pixels = np.frombuffer(drawn.getvalue(), dtype=np.uint8).reshape(-1, round(WIDTH * DPI), 4)
        return png_file(pixels[..., :3], DENSITY_COLOURS)

    def draw(place: int, part: int | None, record: ResultRecord) -> dict[str, bytes | str]:
        small = batch.picture(place)
        drawn: dict[str, bytes | str] = {"density": density(record)}
        if small is not None:
            small = small if part is None else small.through.get(part, small)
            if small.caption:
                drawn["slices"] = small.caption
            for name, pixels in (("overlay", small.overlay(part)), ("seen", small.seen(part)), ("map", small.map())):
                if pixels is not None:
                    drawn[name] = png_file(pixels, IMAGE_COLOURS if max(pixels.shape) > SHARP_SIDE else None)
        return drawn

    return draw


NAME = "the report"  # what messages call the file


def is_json(path: Path) -> bool:
    """Return whether a report is to be JSON."""
    return path.suffix.lower() == ".json"


def check_report_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if no report can be written to a path, or if it would overwrite an input."""
    check_output_path(path, NAME, (".html", ".htm", ".json"), inputs)
    if not is_json(path):
        required("jinja2", "the report needs Jinja2")
        new_figure(1.0, 1.0)  # an error where Matplotlib is missing


HEADINGS = {"by": "BY p", "bh": "BH p", "holm": "Holm p"}  # short names of adjusted p-values
LONGEST_NAME = 64  # most characters of a name in a table; its middle is left out


def html_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as one HTML page."""
    content = report_content(batch, alpha, cards, progress, card_pictures(batch))
    templates = files("attentest.presentation") / "templates"
    return sealed_page(
        "attentest.presentation",
        "report.html.j2",
        style=(templates / "report.css").read_text("utf-8"),
        script=(templates / "report.js").read_text("utf-8"),
        **content,
        short=lambda name: elided(plain(name), LONGEST_NAME),
        readable=readable,
        p=number_text,
        texts=[None if "error" in result else row_texts(result) for result in content["results"]],
        methods=[name for name in METHOD_NAMES if name in content["counts"]["adjusted"]],
        with_classes=any(result.get("class_predicted") for result in content["results"]),
        with_intervals=content["settings"].get("confidence_level") is not None,
        headings=HEADINGS,
        seen=seen_name(content["counts_tested"], content["dimension"]).capitalize(),
        worded=lambda text: worded(text, content["dimension"]),
        method_names=METHOD_NAMES,
        outlined=worded(OUTLINED[content["several"]], content["dimension"]),
        marks=footnote_marks(result["footnotes"] for result in content["results"]),
    )


OWN = "attentest.presentation"  # whose templates have the frame that those of other packages fill


def sealed_page(package: str, template: str, *, style: str = "", script: str = "", **values: Any) -> str:
    """Return a page from a template, in the style of all pages, that loads and runs nothing but what stands in it."""
    style = (files(OWN) / "html_style.css").read_text("utf-8") + style
    allowed = {"default-src": "'none'", "img-src": "data:"}
    for source, text in (("style-src", style), ("script-src", script)):
        if text:
            allowed[source] = f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    allowed |= {"base-uri": "'none'", "form-action": "'none'"}
    policy = "; ".join(f"{what} {source}" for what, source in allowed.items())
    return page_from(dict.fromkeys((package, OWN)), template, style=style, script=script, policy=policy, **values)


def readable(value: Any) -> str:
    """Return a setting as text: the names and values of one that has several, "none" for one that is not there."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {readable(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(part, Mapping) for part in value):
            return "; ".join(readable(part) for part in value)
        return f"({', '.join(readable(part) for part in value)})"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def write_report(
    path: Path, batch: TestedBatch, *, alpha: float, cards: int = USUAL_CARDS, progress: Progress | None = None
) -> None:
    """Write the report of a batch to a checked path, completely or not at all; one ending in .json is JSON."""
    make = json_report if is_json(path) else html_report
    write_complete(path, make(batch, alpha, cards, progress).encode(), NAME)


def json_report(batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None) -> str:
    """Return the report of a batch as JSON."""
    return json.dumps(report_content(batch, alpha, cards, progress), allow_nan=False, indent=1) + "\n"


ALPHA = 0.05  # significance level of the verdict
MOST_ROWS = 20  # most images in the table of many results
PICTURE_SIDE = 176  # longer side of the picture, in screen pixels


def result_html(picture: Picture) -> str:
    """Return one result as HTML: the verdict in words, the numbers, the image with its region, and what was seen."""
    picture = picture.on_plane()
    record = picture.record
    defined = {number.name: f"{number.text} ({number.note})" for number in result_numbers(record)} | {
        "noise": worded(recorded_sentence(record.settings["noise"]), record.dimension),
        "search": f"{record.settings['search']['name']}, {counted(record.evaluations, 'evaluation')}, {record.status}",
    }
    sentences = filter(None, (verdict_text(record, ALPHA), contradiction_text(record, ALPHA)))
    table = definition_table("AttentionTestResult", defined, list(sentences))
    name = worded(f"image and region of {region_text(record)}", record.dimension)
    name = name if record.draws is None else majority_text(record).replace("\n", " ")
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
