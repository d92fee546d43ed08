"""``attentest reproduce``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.command import Command, refuse_options_before, with_options_of
from attentest.cli.options import DeviceOption, EngineOptions, ReportJsonOption, SeedOption
from attentest.cli.output import on_interrupt, print_findings, progress_bar, say
from attentest.errors import InputError, counted
from attentest.files import make_directory

MODELS = "The models"
"""Panel of the help."""

PRESETS = ("quick", "paper", "full")
EXPERIMENTS = (
    *("type-i-error", "additional-trials", "power", "computation-time"),
    *("estimated-variance", "non-gaussian", "demonstration", "precision"),
)
TESTS = ("all", "paper", "ours")
CLASSIFIERS = ("base8", "small16", "base16", "large16", "huge16", "base32", "base64")
"""The names of the library, whose import takes seconds."""

if TYPE_CHECKING:
    PresetName = str
    ExperimentName = str
    WhoseTests = str
    ModelName = str
else:
    PresetName, ExperimentName, WhoseTests, ModelName = (
        StrEnum("Name", {name: name for name in names}) for names in (PRESETS, EXPERIMENTS, TESTS, CLASSIFIERS)
    )

OutOption = Annotated[Path, typer.Option(help="Folder of data, models and report.", metavar="FOLDER")]
OUT = Path("reproduction")

reproduce = typer.Typer(name="reproduce", invoke_without_command=True)


@reproduce.callback()
@with_options_of(EngineOptions)
def run(
    context: typer.Context,
    experiment: Annotated[
        list[ExperimentName] | None,
        typer.Option(help="Only this experiment; repeatable.", metavar="NAME", show_default="all"),
    ] = None,
    preset: Annotated[
        PresetName,
        typer.Option(
            help="How many images: quick (ten minutes on two cores), paper (as in the main text), or full (as in the "
            "appendices).",
            metavar="NAME",
        ),
    ] = "quick",
    images: Annotated[
        int | None,
        typer.Option(help="At most this many images per series.", metavar="N", show_default="as preset", min=1),
    ] = None,
    permutations: Annotated[
        int | None,
        typer.Option(help="At most this many permutations.", metavar="N", show_default="as preset", min=1),
    ] = None,
    tests: Annotated[
        WhoseTests,
        typer.Option(
            help="Which tests: all, the paper's, or ours (randomised selection and whole patches).",
            metavar="NAME",
        ),
    ] = "all",
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    model: Annotated[
        list[ModelName] | None,
        typer.Option(
            help="Only this classifier, in the experiments on several; repeatable.",
            metavar="NAME",
            show_default="as preset",
            rich_help_panel=MODELS,
        ),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the classifiers that are not bundled; those that are missing are trained into it.",
            metavar="FOLDER",
            show_default="OUT/models",
            rich_help_panel=MODELS,
        ),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the authors' models (d8, d16small, d16, d32, d64), to be run as well.",
            metavar="FOLDER",
            show_default="none",
            rich_help_panel=MODELS,
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat the trials that failed before.")] = False,
    out: OutOption = OUT,
    as_json: ReportJsonOption = False,
    *,
    where: EngineOptions,
) -> None:
    r"""Run the paper's numerical experiments, and write data, figures and a page that compares them with the paper.

    For example:

    ```
    attentest reproduce --out reproduction
    attentest reproduce --preset paper --experiment type-i-error \
        --experiment power --device cuda
    ```

    Trials are saved every few seconds: after an interruption, or with a larger preset, the same command goes on where
    it stopped. Images depend on the seed alone, not on the device or the order, nor on the workers of --engine
    processes, several of which keep a GPU busy, or ray. Times are always taken in this process (the searches of
    computation-time, and evaluations): those of workers that compute beside each other would be wrong.
    """
    if context.invoked_subcommand is not None:
        refuse_options_before(context, "running experiments")
        return
    where.check()
    make_directory(out)
    from attentest.studies.reproduction.experiment import PRESETS, check_choice, chosen_experiments
    from attentest.studies.reproduction.run import RunSettings
    from attentest.studies.reproduction.run import run as run_experiments
    from attentest.training.paper_model import ModelFolders

    counts = PRESETS[preset].limited(images, permutations)
    experiments = chosen_experiments(experiment or None)
    check_choice(experiments, models=bool(model), published=published is not None, tests=tests)
    settings = RunSettings(
        preset_name=str(preset),
        preset=counts.with_models(model or None),
        experiments=tuple(experiments),
        folders=ModelFolders(trained=out / "models" if models is None else models, published=published),
        seed=seed,
        device=device,
        retry=retry,
        tests=str(tests),
    )
    engine, plan = where.chosen(), settings.plan()
    say(f"{counted(sum(plan.values()), 'trial')} in {len(plan)} series; results go to {out}")
    if untrained := settings.untrained():
        slow = "" if device.startswith("cuda") else "; this takes hours without a GPU (--device cuda)"
        say(f"to be trained first: {', '.join(untrained)}{slow}")
    kept = f"the finished trials are in {out}: the same command goes on from there."
    with on_interrupt(kept), progress_bar("reproduction") as progress:
        done = run_experiments(settings, out, progress, engine)
    failed = f", {done['failed']} of them failed (the data say why)" if done["failed"] else ""
    say(f"{counted(done['trials'], 'trial')} in {done['seconds']:.0f} s{failed}")
    summary = _print_findings(out, as_json)
    try:
        _write_page(summary, out)
    except InputError as error:  # the work is done and on disk, whatever the page lacks
        say(f"attentest: no page was made: {error} Then: attentest reproduce report --out {out}")
    if done["failed"]:
        raise typer.Exit(1)


@reproduce.command(cls=Command)
def report(out: OutOption = OUT, as_json: ReportJsonOption = False) -> None:
    """Write the page again from the data: report/index.html, report/reproduction.md, figures and summary.json.

    For example:

    ```
    attentest reproduce report --out reproduction
    ```
    """
    _write_page(_print_findings(out, as_json), out)


@reproduce.command("list", cls=Command)
def list_experiments() -> None:
    """List the experiments, and how many trials each takes with each preset."""
    from attentest.presentation.tables import Column, print_table
    from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS

    experiments = EXPERIMENTS.values()
    columns = [
        Column(heading="experiment", cells=[experiment.name for experiment in experiments], is_text=True),
        Column(heading="in the paper", cells=[experiment.where for experiment in experiments], is_text=True),
    ]
    for name, preset in PRESETS.items():
        counts = [sum(count for _, count in experiment.series(preset, False)) for experiment in experiments]
        columns.append(Column(heading=f"trials, {name}", cells=[f"{count:,}" for count in counts]))
    print_table(columns)


def _print_findings(out: Path, as_json: bool) -> dict[str, Any]:
    """Print what the data in a directory say about the statements of the paper, and return their summary."""
    from attentest.studies.reproduction.statements import findings
    from attentest.studies.reproduction.summary import summarise

    summary = summarise(out)
    print_findings(summary, findings(summary), as_json)
    return summary


def _write_page(summary: dict[str, Any], out: Path) -> None:
    from attentest.studies.reproduction.page import write_report

    say(f"page: {write_report(summary, out / 'report')}")
