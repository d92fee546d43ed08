"""``attentest report`` and ``cohort``: what is made of the results in a folder."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from attentest.cli.options import alpha_option, check_level, json_option, output_option
from attentest.cli.output import check_figure, progress_bar, say, write_figure
from attentest.definition import option
from attentest.errors import InputError, worded
from attentest.files import same_file
from attentest.presentation import MOST_CARDS, USUAL_CARDS

if TYPE_CHECKING:
    from attentest.presentation.tested_batch import TestedBatch


REPORT = "report.html"  # name of the report in a folder of records, unless another is asked for


def report(
    directory: Path = typer.Argument(help="Folder of results: that of attentest test --out."),
    out: Path | None = option(
        "File for the report: .html or .json.", metavar="<path>", shown_default=f"DIRECTORY/{REPORT}"
    ),
    alpha: float = alpha_option(),
    cards: int = option(
        "Most results with pictures and details: those with the smallest p-values. All are in the table.",
        default=USUAL_CARDS,
        limits=(0, MOST_CARDS),
    ),
    as_json: bool = json_option(),
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
    from attentest.presentation.report import check_report_path, json_report
    from attentest.presentation.tested_batch import batch_of_folder

    batch = batch_of_folder(directory)  # before a folder is made for the report
    target = directory / REPORT if out is None and not as_json else out
    if target is not None:
        check_report_path(target)
    if as_json:
        sys.stdout.write(json_report(batch, alpha, cards))
    if target is not None:
        write_batch_report(batch, target, alpha, cards)


def write_batch_report(batch: TestedBatch, target: Path, alpha: float, cards: int) -> None:
    """Write the report of a batch, with a progress bar."""
    from attentest.presentation.report import write_report

    with progress_bar("writing the report") as progress:
        write_report(target, batch, alpha=alpha, cards=cards, progress=progress)
    say(f"report: {target}")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options that say what is known of the images."""

    panel: ClassVar[str] = "The study"

    table: Path | None = option("CSV file with a row for each image: file name, patient, group and more.")
    image: str | None = option("Column of --table with the file names.", metavar="COLUMN", shown_default="image")
    group: str | None = option("Column of --table with groups to compare.", metavar="COLUMN")
    cluster: str | None = option("Column with what images share, such as the patient.", metavar="COLUMN")
    covariates: list[str] | None = option(
        "Column with numbers, for a regression.", flag="--covariate", metavar="COLUMN"
    )
    versus: Path | None = option("Folder of another test of the same images.", metavar="FOLDER")
    plan: float | None = option("Say how many patients find this mean difference with probability 0.8.")


def cohort(
    known: TableOptions,
    directory: Path = typer.Argument(help="Folder of results: that of attentest test --out."),
    alpha: float = alpha_option(),
    figure: Path | None = output_option("Also draw a forest and a funnel plot.", metavar="<path>"),
    report: Path | None = output_option("Also write a page, .html or .json.", metavar="<path>"),
    as_json: bool = json_option(),
) -> None:
    """Say what the images of a study show together: mean difference, groups, and how many images differ at least.

    For example:

    ```
    attentest test scans/ --noise 1 --randomise 0.5 --out tested
    attentest cohort tested --table patients.csv --group diagnosis --cluster patient --covariate age
    attentest cohort tested --figure forest.png --report study.html
    ```

    The table has a row for each image, with the columns image (its file name), patient, diagnosis and age. Means,
    groups and regression need tests with --randomise, because without it observed differences are too large; how many
    images differ at least, and a difference that all have in common, do not.
    """
    check_level(alpha)
    from attentest.presentation.report import check_report_path

    if known.image is not None and known.table is None:
        raise InputError("--image is a column of --table, which is not given: give --table, or leave --image out.")
    if known.versus is not None and same_file(directory, known.versus):
        raise InputError(f"--versus must be the folder of another test of the same images, got {directory} itself.")
    inputs = [] if known.table is None else [known.table]
    if report is not None:
        check_report_path(report, inputs)
    from attentest.cohort.cohort import Cohort, cohort_figure

    check_figure(figure, inputs)
    columns: dict[str, Any] = {name: getattr(known, name) for name in ("table", "group", "cluster")}
    columns |= {"image": known.image} if known.image is not None else {}
    study = Cohort.from_folder(directory, **columns, covariates=known.covariates or ())
    values, lines = study.to_dict(alpha), study.summary(alpha).split("\n")
    if known.versus is not None:
        other = Cohort.from_folder(known.versus)
        difference = study.paired(other, confidence_level=1 - alpha)
        values["versus"] = asdict(difference)
        which = worded("image by image", study.results[0].dimension)
        lines.append(f"{directory} less {known.versus}, {which}: {difference}")
        lines += [f"{known.versus}: {note}" for note in other.notes]
    if known.plan is not None:
        values["patients_needed"] = needed = study.patients_needed(known.plan, alpha=alpha)
        groups = " in each of two groups" if study.groups else ""
        lines.append(f"With a probability of 0.8, {needed:,} {study.unit}s like these{groups} find {known.plan:g}.")
    typer.echo(json.dumps(values, allow_nan=False, indent=1) if as_json else "\n".join(lines))
    write_figure(figure, lambda: cohort_figure(study, alpha))
    if report is not None:
        study.report(report, alpha=alpha)
        say(f"report: {report}")
