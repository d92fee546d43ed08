"""``attentest report``, and the report of ``attentest test``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.options import AlphaOption, EngineOptions, ReportJsonOption, check_level
from attentest.cli.output import progress_bar, say
from attentest.errors import InputError
from attentest.presentation.report import MOST_CARDS, USUAL_CARDS

if TYPE_CHECKING:
    from attentest.presentation.report.tested_batch import TestedBatch

REPORT = "report.html"  # name of the report in a folder of records, unless another is asked for
PICTURES = "pictures"  # the kind of saved arrays that a report shows
MOST_PICTURES = 1000  # most images of a run whose pictures are saved without being asked for


def report(
    directory: Annotated[
        Path, typer.Argument(help="Folder of results: that of attentest test --out.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="File for the report: .html or .json.", show_default=f"DIRECTORY/{REPORT}")
    ] = None,
    alpha: AlphaOption = 0.05,
    cards: Annotated[
        int,
        typer.Option(
            help="Most results with pictures and details: those with the smallest p-values. All are in the table.",
            metavar="N",
            min=0,
            max=MOST_CARDS,
        ),
    ] = USUAL_CARDS,
    as_json: ReportJsonOption = False,
) -> None:
    """Write a report of the results in a folder: one HTML file that needs no other.

    For example:

    ```
    attentest report tested
    attentest report tested --out report.html --alpha 0.01
    attentest report tested --json
    ```

    It has a summary in words, a table of all images, a card with pictures for each, what was assumed about the noise
    and how p depends on it, the method and all settings. With --json it is printed as JSON instead, and written only if
    --out is given.
    """
    check_level(alpha)
    from attentest.presentation.report.page import check_report_path, json_report
    from attentest.presentation.report.tested_batch import batch_of_folder

    batch = batch_of_folder(directory)  # before a folder is made for the report
    target = directory / REPORT if out is None and not as_json else out
    if target is not None:
        check_report_path(target)
    if as_json:
        sys.stdout.write(json_report(batch, alpha, cards))
    if target is not None:
        write_batch_report(batch, target, alpha, cards)


@contextmanager
def records_folder(out: Path | None, report: Path | None, where: EngineOptions) -> Iterator[Path | None]:
    """Yield the folder of records: that of --out, for a report without one a temporary folder, or none."""
    if out is not None or report is None:
        yield out
        return
    if where.address is not None:
        raise InputError("--report on a cluster reads what its workers saved: add --out with a folder they share.")
    with TemporaryDirectory(prefix="attentest-") as scratch:
        yield Path(scratch)


def picture_kinds(kinds: list[str], save: str | None, images: int, where: EngineOptions) -> tuple[list[str], list[str]]:
    """Return what is saved of each image, and what of it is saved without having been asked for: its picture.

    Without being asked, pictures are saved of not too many images, and not on a cluster whose folders may be others.
    """
    if save == "none" or PICTURES in kinds or images > MOST_PICTURES or where.address is not None:
        return kinds, []
    return [*kinds, PICTURES], [PICTURES]


def write_batch_report(batch: TestedBatch, target: Path, alpha: float, cards: int) -> None:
    """Write the report of a batch, with a progress bar."""
    from attentest.presentation.report.page import write_report

    with progress_bar("writing the report") as progress:
        write_report(target, batch, alpha=alpha, cards=cards, progress=progress)
    say(f"report: {target}")
