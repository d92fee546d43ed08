"""``attentest cohort``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from attentest.cli.command import with_options_of
from attentest.cli.options import OUTPUT, AlphaOption, ReportJsonOption, check_level
from attentest.cli.output import say
from attentest.definition import option
from attentest.errors import worded


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options that say what is known of the images."""

    panel: ClassVar[str] = "The study"

    table: Path | None = option("CSV file with a row for each image: file name, patient, group and more.", default=None)
    image: str = option("Column of --table with the file names.", default="image", metavar="COLUMN")
    group: str | None = option("Column of --table with groups to compare.", default=None, metavar="COLUMN")
    cluster: str | None = option("Column with what images share, such as the patient.", default=None, metavar="COLUMN")
    covariates: list[str] | None = option(
        "Column with numbers, for a regression.", default=None, flag="--covariate", metavar="COLUMN"
    )
    versus: Path | None = option("Folder of another test of the same images.", default=None, metavar="FOLDER")
    plan: float | None = option("Say how many patients find this mean difference with probability 0.8.", default=None)


@with_options_of(TableOptions)
def cohort(
    directory: Annotated[Path, typer.Argument(help="Folder of results: that of attentest test --out.")],
    known: TableOptions,
    alpha: AlphaOption = 0.05,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw a forest and a funnel plot.", rich_help_panel=OUTPUT)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a page, .html or .json.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: ReportJsonOption = False,
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
    from attentest.presentation.report.page import check_report_path

    inputs = [] if known.table is None else [known.table]
    if report is not None:
        check_report_path(report, inputs)
    from attentest.cohort.cohort import Cohort
    from attentest.cohort.shown import cohort_figure
    from attentest.presentation.figure import check_figure_path, save_figure

    if figure is not None:
        check_figure_path(figure, inputs)
    columns: dict[str, Any] = {name: getattr(known, name) for name in ("table", "group", "cluster", "image")}
    study = Cohort.from_folder(directory, **columns, covariates=known.covariates or ())
    values, lines = study.to_dict(alpha), study.summary(alpha).split("\n")
    if known.versus is not None:
        difference = study.paired(Cohort.from_folder(known.versus), confidence_level=1 - alpha)
        values["versus"] = asdict(difference)
        which = worded("image by image", study.results[0].dimension)
        lines.append(f"{directory} less {known.versus}, {which}: {difference}")
    if known.plan is not None:
        values["patients_needed"] = needed = study.patients_needed(known.plan, alpha=alpha)
        groups = " in each of two groups" if study.groups else ""
        lines.append(f"With a probability of 0.8, {needed:,} {study.unit}s like these{groups} find {known.plan:g}.")
    typer.echo(json.dumps(values, allow_nan=False, indent=1) if as_json else "\n".join(lines))
    if figure is not None:
        save_figure(cohort_figure(study, alpha), figure)
        say(f"figure: {figure}")
    if report is not None:
        study.report(report, alpha=alpha)
        say(f"report: {report}")
