"""``attentest brain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.command import with_options_of
from attentest.cli.options import DeviceOption, EngineOptions, ReportJsonOption
from attentest.cli.output import on_interrupt, print_findings, progress_bar, say
from attentest.cli.values import all_or_count
from attentest.errors import InputError, counted

SPLIT, TRAINING, TESTS = "The slices", "The classifier", "The tests"
"""Panels of the help."""


@with_options_of(EngineOptions)
def brain(
    data: Annotated[
        Path | None,
        typer.Option(
            help="The kaggle_3m folder of the LGG MRI dataset, own slices in its layout, or a packed .npz; without it, "
            "the command says where to get the data.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the model, the data and the report.", metavar="FOLDER")] = Path(
        "brain"
    ),
    noise_images: Annotated[
        int,
        typer.Option(
            help="Slices without tumour to estimate the noise from.", metavar="N", min=10, rich_help_panel=SPLIT
        ),
    ] = 100,
    training_per_class: Annotated[
        int,
        typer.Option(
            help="Slices with tumour, and as many without, to train on.", metavar="N", min=1, rich_help_panel=SPLIT
        ),
    ] = 700,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the training.", metavar="N", min=0)] = 0,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training slices.",
            metavar="N",
            show_default="360",
            min=1,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    sensitivity_images: Annotated[
        str,
        typer.Option(
            help="Test slices of each class, a number or all, that are tested in other ways too than the paper's.",
            metavar="N",
            rich_help_panel=TESTS,
        ),
    ] = "100",
    device: DeviceOption = "cpu",
    retry: Annotated[
        bool, typer.Option("--retry", help="Repeat tests that failed before.", rich_help_panel=TESTS)
    ] = False,
    as_json: ReportJsonOption = False,
    *,
    where: EngineOptions,
) -> None:
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
    from attentest.studies.brain.dataset import HOW_TO_GET, load_slices

    if data is None:
        say(HOW_TO_GET)
        raise typer.Exit(2)
    from attentest.attention.device import usable_device
    from attentest.studies.brain.classifier import BrainTraining
    from attentest.studies.brain.condition import CONDITIONS, available
    from attentest.studies.brain.page import write_report
    from attentest.studies.brain.statements import findings
    from attentest.studies.brain.study import SliceTests, StudySettings, model_directory
    from attentest.studies.brain.study import run as run_study
    from attentest.studies.brain.summary import COUNT, example_galleries, summarise
    from attentest.studies.document import check_can_report

    training = BrainTraining(seed=seed) if epochs is None else BrainTraining(seed=seed, epochs=epochs)
    settings = StudySettings(
        noise_images=noise_images,
        training_per_class=training_per_class,
        training=training,
        sensitivity_images=all_or_count(sensitivity_images, "--sensitivity-images"),
    )
    chosen_device, engine = usable_device(device), where.chosen()  # before anything is read
    kept = (
        f"finished tests are in {out}, and the same command continues from there; an unfinished training starts again."
    )
    with on_interrupt(kept):
        with progress_bar("reading slices") as move:
            slices = load_slices(data, move)
        cohort = settings.cohort(slices)
        plan = settings.plan(cohort)
        parts = ", ".join(
            f"{name} {part['with_tumour']} with and {part['without_tumour']} without tumour of "
            + counted(part["patients"], "patient")
            for name, part in cohort.facts()["split"].items()
        )
        say(f"{len(cohort.slices):,} of {cohort.total:,} slices show enough of a brain: {parts}")
        tests = counted(sum(len(numbers) for numbers in plan.values()), "test")
        say(f"{tests} under {counted(len(plan), 'condition')}; results go to {out}")
        if not model_directory(out).exists() and not device.startswith("cuda"):
            say("training takes minutes on a GPU (--device cuda), over an hour on a CPU (--epochs makes it shorter)")
        with progress_bar("study") as move:
            done = run_study(cohort, settings, out, chosen_device, move, retry, engine)
        slices_failed = counted(done["failed"], "slice")
        failed = f"; {slices_failed} could not be tested, the report says why" if done["failed"] else ""
        say(f"{counted(done['tested'], 'test')} in {done['seconds']:.0f} s{failed}")
        if set(CONDITIONS) - set(available()):
            say(
                "attentest: note: the noise model shrunk is left out, because it needs scikit-learn: "
                "pip install 'attentest[estimators]'."
            )
        summary = summarise(out)
        print_findings(summary, findings(summary), as_json)
        try:
            check_can_report()  # before anything is computed
            with progress_bar("pictures"):
                galleries = example_galleries(SliceTests(cohort, out, chosen_device), cohort, COUNT)
                page = write_report(summary, out / "report", galleries)
            say(f"page: {page}")
        except InputError as error:  # the work is done and on disk, whatever the page lacks
            say(f"attentest: no page was made: {error} The same command then makes it.")
