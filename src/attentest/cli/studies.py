"""``attentest reproduce`` and ``brain``: the studies of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from attentest.cli.attention_test_options import all_or_count
from attentest.cli.command import Command, refuse_options_before, with_options
from attentest.cli.options import EngineOptions, device_option, json_option, seed_option
from attentest.cli.output import on_interrupt, print_columns, print_findings, progress_bar, say
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

out_option = partial(option, "Folder of data, models and report.", default=Path("reproduction"), metavar="FOLDER")

reproduce = typer.Typer(name="reproduce", invoke_without_command=True)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run, how often and with which models."""

    experiment: list[str] | None = option("Only this experiment; repeatable.", choices=EXPERIMENTS, shown_default="all")
    preset: str = option(
        "How many images: quick (ten minutes on two cores), paper (as in the main text), or full (as in the "
        "appendices).",
        default="quick",
        choices=PRESETS,
    )
    images: int | None = option("At most this many images per series.", limits=(1, None), shown_default="as preset")
    permutations: int | None = option("At most this many permutations.", limits=(1, None), shown_default="as preset")
    tests: str = option(
        "Which tests: all, the paper's, or ours (randomised selection and whole patches).", default="all", choices=TESTS
    )
    seed: int = seed_option()
    device: str = device_option()
    model: list[str] | None = option(
        "Only this classifier, in the experiments on several; repeatable.",
        choices=CLASSIFIERS,
        panel=MODELS,
        shown_default="as preset",
    )
    models: Path | None = option(
        "Folder of the classifiers that are not bundled; those that are missing are trained into it.",
        metavar="FOLDER",
        panel=MODELS,
        shown_default="OUT/models",
    )
    published: Path | None = option(
        "Folder of the authors' models (d8, d16small, d16, d32, d64), to be run as well.",
        metavar="FOLDER",
        panel=MODELS,
        shown_default="none",
    )
    retry: bool = option("Repeat the trials that failed before.", default=False)
    out: Path = out_option()
    as_json: bool = json_option()


@reproduce.callback()
@with_options
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
    from attentest.studies.paper_model import ModelFolders
    from attentest.studies.reproduction.experiment import PRESETS, check_choice, chosen_experiments
    from attentest.studies.reproduction.run import RunSettings
    from attentest.studies.reproduction.run import run as run_experiments

    counts = PRESETS[asked.preset].limited(asked.images, asked.permutations)
    experiments = chosen_experiments(asked.experiment or None)
    check_choice(experiments, models=bool(asked.model), published=published is not None, tests=asked.tests)
    settings = RunSettings(
        preset_name=asked.preset,
        preset=counts.with_models(asked.model or None),
        experiments=tuple(experiments),
        folders=ModelFolders(trained=out / "models" if asked.models is None else asked.models, published=published),
        seed=asked.seed,
        device=device,
        retry=asked.retry,
        tests=asked.tests,
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
@with_options
def report(out: Path = out_option(), as_json: bool = json_option()) -> None:
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
    from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS

    experiments = EXPERIMENTS.values()
    texts = {
        "experiment": [experiment.name for experiment in experiments],
        "in the paper": [experiment.where for experiment in experiments],
    }
    counts = {
        f"trials, {name}": [
            f"{sum(count for _, count in experiment.series(preset, False)):,}" for experiment in experiments
        ]
        for name, preset in PRESETS.items()
    }
    print_columns(texts | counts, texts)


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


SPLIT, TRAINING, TESTED = "The slices", "The classifier", "The tests"  # panels of the help


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is read, how it is split, trained and tested, and where it goes."""

    data: Path | None = option(
        "The kaggle_3m folder of the LGG MRI dataset, own slices in its layout, or a packed .npz; without it, the "
        "command says where to get the data.",
        metavar="FOLDER",
        shown_default=False,
    )
    out: Path = option("Folder of the model, the data and the report.", default=Path("brain"), metavar="FOLDER")
    noise_images: int = option(
        "Slices without tumour to estimate the noise from.", default=100, limits=(10, None), panel=SPLIT
    )
    training_per_class: int = option(
        "Slices with tumour, and as many without, to train on.", default=700, limits=(1, None), panel=SPLIT
    )
    seed: int = option("Seed of the split and of the training.", default=0, limits=(0, None))
    epochs: int | None = option(
        "Passes over the training slices.", limits=(1, None), panel=TRAINING, shown_default="360"
    )
    sensitivity_images: str = option(
        "Test slices of each class, a number or all, that are tested in other ways too than the paper's.",
        default="100",
        metavar="N",
        panel=TESTED,
    )
    device: str = device_option()
    retry: bool = option("Repeat tests that failed before.", default=False, panel=TESTED)
    as_json: bool = json_option()


def brain(asked: StudyOptions, where: EngineOptions) -> None:
    r"""Run the paper's brain MRI study: train, test the attention of every test slice, and write a report.

    For example:

    ```
    attentest brain --data kaggle_3m --device cuda --sensitivity-images all
    attentest brain --data my-slices --out mine --training-per-class 300 \
        --noise-images 50
    attentest brain --data kaggle_3m --epochs 20 --sensitivity-images 0 \
        --out first-look
    ```

    Own slices are in one folder NAME per patient, with NAME_N.tif and NAME_N_mask.tif. The test slices of
    --sensitivity-images are also tested with other noise models, contrasts and thresholds, with randomised selection
    and with whole patches.

    Slices are split by patient. The classifier is the paper's base ViT on 64x64 FLAIR slices. Finished tests are on
    disk: after an interruption the same command continues with the others. --engine processes, or ray, tests slices on
    several workers; the classifier is trained in this process. The report (OUT/report/index.html) shows slices; its
    Markdown and figures do not, so that they can be shared whatever the licence of the images.
    """
    where.check()
    out, device = asked.out, asked.device
    from attentest.studies.brain.dataset import HOW_TO_GET, load_slices

    if asked.data is None:
        say(HOW_TO_GET)
        raise typer.Exit(2)
    from attentest.attention.device import usable_device
    from attentest.studies.brain.classifier import BrainTraining
    from attentest.studies.brain.condition import CONDITIONS, available
    from attentest.studies.brain.page import write_report
    from attentest.studies.brain.study import SliceTests, StudySettings, model_directory
    from attentest.studies.brain.study import run as run_study
    from attentest.studies.brain.summary import COUNT, example_galleries, findings, summarise
    from attentest.studies.document import check_can_report

    settings = StudySettings(
        noise_images=asked.noise_images,
        training_per_class=asked.training_per_class,
        training=BrainTraining(seed=asked.seed, epochs=asked.epochs or BrainTraining.epochs),
        sensitivity_images=all_or_count(asked.sensitivity_images, "--sensitivity-images"),
    )
    chosen_device, engine = usable_device(device), where.chosen()  # before anything is read
    kept = (
        f"finished tests are in {out}, and the same command continues from there; an unfinished training starts again."
    )
    with on_interrupt(kept):
        with progress_bar("reading slices") as move:
            slices = load_slices(asked.data, move)
        split = settings.split(slices)
        plan = settings.plan(split)
        parts = ", ".join(
            f"{name} {part['with_tumour']} with and {part['without_tumour']} without tumour of "
            + counted(part["patients"], "patient")
            for name, part in split.facts()["split"].items()
        )
        say(f"{len(split.slices):,} of {split.total:,} slices show enough of a brain: {parts}")
        tests = counted(sum(len(numbers) for numbers in plan.values()), "test")
        say(f"{tests} under {counted(len(plan), 'condition')}; results go to {out}")
        if not model_directory(out).exists() and not device.startswith("cuda"):
            say("training takes minutes on a GPU (--device cuda), over an hour on a CPU (--epochs makes it shorter)")
        with progress_bar("study") as move:
            done = run_study(split, settings, out, chosen_device, move, asked.retry, engine)
        slices_failed = counted(done["failed"], "slice")
        failed = f"; {slices_failed} could not be tested, the report says why" if done["failed"] else ""
        say(f"{counted(done['tested'], 'test')} in {done['seconds']:.0f} s{failed}")
        if set(CONDITIONS) - set(available()):
            say(
                "attentest: note: the noise model shrunk is left out, because it needs scikit-learn: "
                "pip install 'attentest[estimators]'."
            )
        summary = summarise(out)
        print_findings(summary, findings(summary), asked.as_json)
        try:
            check_can_report()  # before anything is computed
            with progress_bar("pictures"):
                galleries = example_galleries(SliceTests(split, out, chosen_device), split, COUNT)
                page = write_report(summary, out / "report", galleries)
            say(f"page: {page}")
        except InputError as error:  # the work is done and on disk, whatever the page lacks
            say(f"attentest: no page was made: {error} The same command then makes it.")
