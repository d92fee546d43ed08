"""``attentest calibrate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.option_checks import check_files
from attentest.cli.options import (
    OUTPUT,
    EngineOptions,
    EstimatorName,
    FrameOption,
    ReportJsonOption,
    RetryOption,
    SeedOption,
    WindowOption,
    check_level,
)
from attentest.cli.output import SOME_FAILED, Interruption, print_json, progress_bar, say
from attentest.cli.values import as_image_shape, as_true_noise, noise_file
from attentest.definition import IMAGE
from attentest.errors import InputError, counted
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS

if TYPE_CHECKING:
    from attentest.runs.engine import Engine
    from attentest.runs.records import Row
    from attentest.simulation.calibration.calibrate import NullImages
    from attentest.simulation.calibration.calibration import Calibration

REPORT, FIGURE, RECORDS = "calibration.json", "calibration.png", "null_images.jsonl"
"""Files in the output directory: what is reported, and the rows of the images that it is reported from."""


@with_options_of(EngineOptions)
@with_options_of(AttentionTestOptions)
def calibrate(
    options: AttentionTestOptions,
    images: Annotated[int, typer.Option(help="Number of null images.", metavar="N", min=1)] = 1000,
    seed: SeedOption = 0,
    true_noise: Annotated[
        str | None,
        typer.Option(
            help="Noise that null images are drawn from, if it is not --noise, which may be wrong; needed with --noise "
            f"{IMAGE_NOISE.choices()}.",
            metavar="SIGMA",
            show_default="that of --noise",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    reference_images: Annotated[
        int | None,
        typer.Option(
            help="Estimate the noise anew for each null image, from so many reference images drawn for it, and test "
            "with the estimate: shows what estimating costs.",
            metavar="K",
            min=2,
            show_default="as many as --noise was estimated from, if at most 100",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    estimator: Annotated[
        EstimatorName | None,
        typer.Option(
            help=f"With --reference-images, how the noise is estimated: {NOISE_ESTIMATORS.choices()}.",
            metavar="NAME",
            show_default="the one for noise of that kind",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    mean: Annotated[
        Path | None,
        typer.Option(
            help="Image file with the mean of the null images.",
            metavar="FILE",
            show_default="zero",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="HEIGHTxWIDTH of null images, or 3xHEIGHTxWIDTH in colour, if the model takes any size.",
            metavar="SIZE",
            show_default="that of the mean, or of the model",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    frame: FrameOption = None,
    window: WindowOption = False,
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="Significance level to report; repeatable.", metavar="X", show_default="0.01, 0.05, 0.1"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of calibration.json, calibration.png and the results: the same command, also with more "
            "--images, goes on where it stopped.",
            metavar="FOLDER",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    retry: RetryOption = False,
    as_json: ReportJsonOption = False,
    *,
    where: EngineOptions,
) -> None:
    r"""Check that the test is calibrated: how often does it reject images of noise alone?

    For example:

    ```
    attentest calibrate --noise 1.0 --images 200
    attentest calibrate --model my-vit --noise noise.safetensors \
        --top-fraction 0.1 --out calibration
    attentest calibrate --noise sample --true-noise 1.0
    attentest calibrate --noise 1.0 --rho 0.5 --reference-images 5 --images 200
    attentest calibrate --noise 1.0 --images 100000 --engine processes \
        --out calibration
    ```

    Null images are drawn from the noise and tested. A valid test has p at most alpha for a fraction alpha of them, up
    to chance, whatever the model. The table shows these rates with 95% intervals, beside those of the naive test. The
    verdict is by the numbers of rejections that a valid test exceeds at one level or more with a probability of at most
    1%. Images that cannot be tested are counted with their reasons, the verdict allows for them, and the exit code is
    then 1. Ctrl-C ends the command with a report on the images tested so far.

    Each image depends on --seed and its number alone: neither the number of images nor the workers change it.
    """
    # What can be checked before the imports below, which take seconds, is.
    image_shape = as_image_shape(size)
    where.check()
    if retry and out is None:
        raise InputError("--retry is for --out, which is not there: add it.")
    if estimator is not None and reference_images is None:
        raise InputError("--estimator is for --reference-images, which is not there: add it.")
    for level in alpha or ():
        check_level(level)
    if out is not None:
        _check_out(out, options, mean, true_noise)
    check_files("noise", [noise_file(options.noise), noise_file(true_noise), noise_file(options.reference_noise)])
    check_files("image", [mean])
    options.check()

    from attentest.images.image_file import read_image
    from attentest.simulation.calibration.calibrate import NullImages, image_count
    from attentest.simulation.calibration.calibration import ALPHAS, Calibration

    image_count(images)
    drawn_from = as_true_noise(true_noise, options.noise)
    null_images = NullImages.of(
        options.attention_test(),
        seed,
        mean=None if mean is None else read_image(mean, frame=frame, window=window),
        image_shape=image_shape,
        true_noise=drawn_from,
        reference_images=reference_images,
        estimator=None if estimator is None else str(estimator),
    )
    engine = where.chosen()
    interruption = Interruption()
    with (
        _recorded(null_images, images, seed, engine, out, retry) as (known, numbers, write),
        progress_bar(f"testing {counted(len(numbers), 'null image')}") as progress,
    ):
        new = null_images.rows(numbers, engine, progress, write)
        rows = interruption.until(chain(known, new))
        first = next(rows, None)
        calibration = None if first is None else Calibration.of(chain([first], rows), tuple(alpha or ALPHAS))
    if calibration is not None:
        report = {"asked": images, "seed": seed, **calibration.to_dict(), "settings": null_images.test.settings}
        try:
            if out is not None:
                _write(report, calibration, out)
        finally:  # the numbers in any case, because a disk may be full
            if as_json:
                print_json(report)
            else:
                _print_calibration(calibration)
    interruption.finish(images, "null image")
    if calibration is not None and calibration.failures:
        say(f"attentest: {len(calibration.failures)} of {counted(images, 'null image')} could not be tested.")
        raise typer.Exit(SOME_FAILED)


@contextmanager
def _recorded(
    images: NullImages, count: int, seed: int, engine: Engine, out: Path | None, retry: bool
) -> Iterator[tuple[list[Row], Sequence[int], Callable[[list[Row]], None] | None]]:
    """Yield the rows that a directory has, the numbers of the images that it lacks, and a function that adds rows.

    Without a directory there are none, and nothing is written. A directory of another calibration is refused.
    """
    if out is None:
        yield [], range(count), None
        return
    from attentest.cli.batch import record_header
    from attentest.runs.records import RecordFile, alone_in
    from attentest.simulation.calibration.calibration import check_row

    header = record_header(images.test, images.describe(), engine, seed)
    with alone_in(out), RecordFile(out / RECORDS).writing(header, check_row=check_row) as writer:
        found = writer.records
        numbers = found.missing(range(count), retry)
        again = set(numbers)
        yield [found.rows[number] for number in range(count) if number not in again], numbers, writer.add


def _check_out(out: Path, options: AttentionTestOptions, mean: Path | None, true_noise: str | None) -> None:
    """Refuse a directory that cannot be written to, before anything is computed."""
    from attentest.files import check_output_path
    from attentest.presentation.figure import check_figure_path

    inputs = [path for path in (*options.input_files, mean, noise_file(true_noise)) if path is not None]
    check_output_path(out / REPORT, "the report", (".json",), inputs)
    check_figure_path(out / FIGURE, inputs)


def _print_calibration(calibration: Calibration) -> None:
    from attentest.presentation.tables import Column, print_table

    columns = [Column(heading=heading, cells=cells) for heading, cells in calibration.text_table().items()]
    print_table(columns, title=counted(len(calibration.pvalues), "null image"))
    typer.echo(calibration.conclusion())


def _write(report: dict[str, Any], calibration: Calibration, out: Path) -> None:
    from attentest.files import write_complete
    from attentest.presentation.figure import save_figure

    write_complete(out / REPORT, (json.dumps(report, indent=1, allow_nan=False) + "\n").encode(), "the report")
    save_figure(calibration.figure(), out / FIGURE)
    say(f"report: {out / REPORT}, figure: {out / FIGURE}")
