"""``attentest brain``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from attentest.cli.command import with_options_of
from attentest.cli.options import DeviceOption, EngineOptions, ReportJsonOption
from attentest.cli.output import on_interrupt, print_findings, progress_bar, say
from attentest.cli.values import all_or_count
from attentest.definition import option
from attentest.errors import InputError, counted

SPLIT, TRAINING, TESTS = "The slices", "The classifier", "The tests"  # panels of the help


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is read, how it is split, trained and tested, and where it goes."""

    data: Path | None = option(
        "The kaggle_3m folder of the LGG MRI dataset, own slices in its layout, or a packed .npz; without it, the "
        "command says where to get the data.",
        default=None,
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
        "Passes over the training slices.", default=None, limits=(1, None), panel=TRAINING, shown_default="360"
    )
    sensitivity_images: str = option(
        "Test slices of each class, a number or all, that are tested in other ways too than the paper's.",
        default="100",
        metavar="N",
        panel=TESTS,
    )
    device: DeviceOption = "cpu"
    retry: bool = option("Repeat tests that failed before.", default=False, panel=TESTS)
    as_json: ReportJsonOption = False


@with_options_of(EngineOptions)
@with_options_of(StudyOptions)
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
            done = run_study(cohort, settings, out, chosen_device, move, asked.retry, engine)
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
                galleries = example_galleries(SliceTests(cohort, out, chosen_device), cohort, COUNT)
                page = write_report(summary, out / "report", galleries)
            say(f"page: {page}")
        except InputError as error:  # the work is done and on disk, whatever the page lacks
            say(f"attentest: no page was made: {error} The same command then makes it.")
