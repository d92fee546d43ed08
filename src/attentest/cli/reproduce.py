"""``attentest reproduce``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attentest.cli.command import Command, refuse_options_before, with_options_of
from attentest.cli.options import DeviceOption, EngineOptions, ReportJsonOption, SeedOption
from attentest.cli.output import on_interrupt, print_findings, progress_bar, say
from attentest.definition import option
from attentest.errors import InputError, counted
from attentest.files import make_directory

MODELS = "The models"  # panel of the help

PRESETS = ("quick", "paper", "full")
EXPERIMENTS = (
    *("type-i-error", "additional-trials", "power", "computation-time"),
    *("estimated-variance", "non-gaussian", "demonstration", "precision", "series-type-i-error", "series-power"),
)
TESTS = ("all", "paper", "ours")
CLASSIFIERS = (
    *("base8", "small16", "base16", "large16", "huge16", "base32", "base64", "series-base128", "series-small256"),
    *("series-base256", "series-large256", "series-huge256", "series-base512", "series-base1024"),
)
"""The names of the library, whose import takes seconds."""

OutOption = Annotated[Path, typer.Option(help="Folder of data, models and report.", metavar="FOLDER")]
OUT = Path("reproduction")

reproduce = typer.Typer(name="reproduce", invoke_without_command=True)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run, how often and with which models."""

    experiment: list[str] | None = option(
        "Only this experiment; repeatable.", default=None, choices=lambda: EXPERIMENTS, shown_default="all"
    )
    preset: str = option(
        "How many images: quick (ten minutes on two cores), paper (as in the main text), or full (as in the "
        "appendices).",
        default="quick",
        choices=lambda: PRESETS,
    )
    images: int | None = option(
        "At most this many images per series.", default=None, limits=(1, None), shown_default="as preset"
    )
    permutations: int | None = option(
        "At most this many permutations.", default=None, limits=(1, None), shown_default="as preset"
    )
    tests: str = option(
        "Which tests: all, the paper's, or ours (randomised selection and whole patches).",
        default="all",
        choices=lambda: TESTS,
    )
    seed: SeedOption = 0
    device: DeviceOption = "cpu"
    model: list[str] | None = option(
        "Only this classifier, in the experiments on several; repeatable.",
        default=None,
        choices=lambda: CLASSIFIERS,
        panel=MODELS,
        shown_default="as preset",
    )
    models: Path | None = option(
        "Folder of the classifiers that are not bundled; those that are missing are trained into it.",
        default=None,
        metavar="FOLDER",
        panel=MODELS,
        shown_default="OUT/models",
    )
    published: Path | None = option(
        "Folder of the authors' models (d8, d16small, d16, d32, d64), to be run as well.",
        default=None,
        metavar="FOLDER",
        panel=MODELS,
        shown_default="none",
    )
    retry: bool = option("Repeat the trials that failed before.", default=False)
    out: OutOption = OUT
    as_json: ReportJsonOption = False


@reproduce.callback()
@with_options_of(EngineOptions)
@with_options_of(RunOptions)
def run(context: typer.Context, asked: RunOptions, where: EngineOptions) -> None:
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
    out, published, device = asked.out, asked.published, asked.device
    make_directory(out)
    from attentest.studies.reproduction.experiment import PRESETS, check_choice, chosen_experiments
    from attentest.studies.reproduction.run import RunSettings
    from attentest.studies.reproduction.run import run as run_experiments
    from attentest.training.paper_model import ModelFolders

    counts = PRESETS[asked.preset].limited(asked.images, asked.permutations)
    experiments = chosen_experiments(asked.experiment or None)
    check_choice(experiments, models=bool(asked.model), published=published is not None, tests=asked.tests)
    settings = RunSettings(
        preset_name=str(asked.preset),
        preset=counts.with_models(asked.model or None),
        experiments=tuple(experiments),
        folders=ModelFolders(trained=out / "models" if asked.models is None else asked.models, published=published),
        seed=asked.seed,
        device=device,
        retry=asked.retry,
        tests=str(asked.tests),
    )
    engine, plan = where.chosen(), settings.plan()
    if not plan:  # such as models of images alone, in an experiment on series
        named = ", ".join(experiment.name for experiment in experiments)
        raise InputError(f"{named} has no use for {', '.join(asked.model or ())}: leave --model out, or name another.")
    say(f"{counted(sum(plan.values()), 'trial')} in {len(plan)} series; results go to {out}")
    if untrained := settings.untrained():
        slow = "" if device.startswith("cuda") else "; this takes hours without a GPU (--device cuda)"
        say(f"to be trained first: {', '.join(untrained)}{slow}")
    kept = f"the finished trials are in {out}: the same command goes on from there."
    with on_interrupt(kept), progress_bar("reproduction") as progress:
        done = run_experiments(settings, out, progress, engine)
    failed = f", {done['failed']} of them failed (the data say why)" if done["failed"] else ""
    say(f"{counted(done['trials'], 'trial')} in {done['seconds']:.0f} s{failed}")
    summary = _print_findings(out, asked.as_json)
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
    from attentest.studies.reproduction.run import summarise
    from attentest.studies.reproduction.statements import findings

    summary = summarise(out)
    print_findings(summary, findings(summary), as_json)
    return summary


def _write_page(summary: dict[str, Any], out: Path) -> None:
    from attentest.studies.reproduction.page import write_report

    say(f"page: {write_report(summary, out / 'report')}")
