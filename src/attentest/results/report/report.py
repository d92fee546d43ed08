"""Writing the report of a batch, as HTML or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from attentest.files import write_complete
from attentest.results.progress import Progress
from attentest.results.report.card_pictures import CardPictures
from attentest.results.report.content import report_content
from attentest.results.report.page import html_page
from attentest.results.report.report_file import NAME, USUAL_CARDS, is_json
from attentest.results.report.tested_batch import TestedBatch


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
