"""``attentest calibrate``, ``power`` and ``sanity``: commands that test simulated images, or randomised models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attentest.cli import options as shared
from attentest.cli.attention_test_options import (
    AttentionTestOptions,
    as_image_shape,
    as_true_noise,
    check_files,
    noise_file,
)
from attentest.cli.command import Without
from attentest.cli.images import for_model, image_sources
from attentest.cli.output import SOME_FAILED, Interruption, check_figure, print_columns, print_json, progress_bar, say
from attentest.definition import Definition, image_option, option
from attentest.errors import InputError, counted, worded
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS, REGION_UNITS

if TYPE_CHECKING:
    from attentest.runs.engine import Engine
    from attentest.runs.records import Row
    from attentest.simulation.calibrate import NullImages
    from attentest.simulation.calibration import Calibration
    from attentest.simulation.plan import Plan

RECORDS = "null_images.jsonl"  # rows of the null images that a calibration is reported from


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Options that say which images are simulated, and the report on them."""

    name: ClassVar[str]
    """Name of the files of the report in the output directory, without their suffixes."""
    has_table: ClassVar[bool] = False
    """Whether there is a CSV file among them."""

    seed: int = shared.seed_option()
    true_noise: str | None = image_option(
        "Noise that images are drawn from, if it is not --noise, which may be wrong; needed with --noise "
        f"{IMAGE_NOISE.choices()}.",
        metavar="SIGMA",
        shown_default="that of --noise",
    )
    size: str | None = image_option(
        "HEIGHTxWIDTH of images without a file, or 3xHEIGHTxWIDTH in colour, if the model takes any size.",
        metavar="HEIGHTxWIDTH",
        shown_default="that of the model",
    )
    frame: int | None = shared.frame_option()
    window: bool = shared.window_option()
    as_json: bool = shared.json_option()
    out: Path | None = shared.output_option("Folder of the report.", metavar="FOLDER")

    def check(self, options: AttentionTestOptions, images: Sequence[Path]) -> None:
        """Check files and options, those of the test and image files among them, before imports that take seconds."""
        as_image_shape(self.size)
        if self.out is not None:
            from attentest.files import check_output_path
            from attentest.presentation.tables import check_table_path

            inputs = [*options.input_files, *images, *filter(None, [noise_file(self.true_noise)])]
            check_output_path(self.out / f"{self.name}.json", "the report", (".json",), inputs)
            if self.has_table:
                check_table_path(self.out / f"{self.name}.csv", ".csv", inputs)
            check_figure(self.out / f"{self.name}.png", inputs)
        check_files("noise", [noise_file(text) for text in (options.noise, self.true_noise, options.reference_noise)])
        check_files("image", images)
        options.check()

    def drawn(self, noise: str) -> dict[str, Any]:
        """Return how images are drawn, by the parameters of the library, for a test with this --noise."""
        return {"image_shape": as_image_shape(self.size), "true_noise": as_true_noise(self.true_noise, noise)}

    def report(self, results: Calibration | Plan, values: dict[str, Any], title: str, words: str) -> None:
        """Write a report on what was simulated to the directory, if there is one, and print it.

        The values are the same JSON-ready, with how it was simulated; title and words are above and below its table.
        """
        from attentest.files import write_complete
        from attentest.presentation.figure import save_figure
        from attentest.presentation.tables import write_csv
        from attentest.simulation.plan import Plan

        try:
            if self.out is not None:
                paths = {"report": self.out / f"{self.name}.json"}
                text = json.dumps(values, indent=1, allow_nan=False) + "\n"
                write_complete(paths["report"], text.encode(), "the report")
                if isinstance(results, Plan):
                    paths["table"] = self.out / f"{self.name}.csv"
                    write_csv(results.table(), paths["table"])
                paths["figure"] = self.out / f"{self.name}.png"
                save_figure(results.figure(), paths["figure"])
                say(", ".join(f"{kind}: {path}" for kind, path in paths.items()))
        finally:  # the numbers in any case, because a disk may be full
            if self.as_json:
                print_json(values)
            else:
                print_columns(results.text_table(), ["region"], title=title)
                typer.echo(words)


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(SimulationOptions):
    """Options of a calibration."""

    name: ClassVar[str] = "calibration"

    images: int = option("Number of null images.", default=1000, limits=(1, None))
    reference_images: int | None = image_option(
        "Estimate the noise anew for each null image, from so many reference images drawn for it, and test with the "
        "estimate: shows what estimating costs.",
        metavar="K",
        limits=(2, None),
        shown_default="as many as --noise was estimated from, if at most 100",
    )
    estimator: str | None = image_option(
        f"With --reference-images, how the noise is estimated: {NOISE_ESTIMATORS.choices()}.",
        choices=NOISE_ESTIMATORS,
        needs="--reference-images",
        shown_default="the one for noise of that kind",
    )
    mean: Path | None = image_option(
        "Image file with the mean of the null images.", metavar="FILE", shown_default="zero"
    )
    alpha: list[float] | None = option(
        "Significance level to report; repeatable.", metavar="X", shown_default="0.01, 0.05, 0.1"
    )
    out: Path | None = shared.output_option(
        "Folder of calibration.json, calibration.png and the results: the same command, also with more --images, goes "
        "on where it stopped.",
        metavar="FOLDER",
    )
    retry: bool = shared.retry_option()


def calibrate(options: AttentionTestOptions, drawing: CalibrationOptions, where: shared.EngineOptions) -> None:
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
    where.check()
    images, mean = drawing.images, drawing.mean
    for level in drawing.alpha or ():
        shared.check_level(level)
    drawing.check(options, [] if mean is None else [mean])

    from attentest.images.image_file import read_image
    from attentest.simulation.calibrate import NullImages, image_count
    from attentest.simulation.calibration import ALPHAS, Calibration

    image_count(images)
    drawn = drawing.drawn(options.noise)
    test = options.attention_test()
    dimension = test.pipeline.inputs.dimension
    read: dict[str, Any] = {"frame": drawing.frame, "window": drawing.window, "dimension": dimension}
    null_images = NullImages(
        test,
        drawing.seed,
        mean=None if mean is None else read_image(mean, **read),
        reference_images=drawing.reference_images,
        estimator=drawing.estimator,
        **drawn,
    )
    engine = where.chosen()
    called = worded("null image", dimension)
    interruption = Interruption()
    with (
        _recorded(null_images, drawing, engine) as (known, numbers, write),
        progress_bar(f"testing {counted(len(numbers), called)}") as progress,
    ):
        new = null_images.rows(numbers, engine, progress, write)
        rows = interruption.until(chain(known, new))
        first = next(rows, None)
        calibration = None
        if first is not None:
            levels = tuple(drawing.alpha or ALPHAS)
            calibration = Calibration.of(chain([first], rows), levels, dimension=dimension)
    if calibration is not None:
        values = {"asked": images, "seed": drawing.seed, **calibration.to_dict(), "settings": null_images.test.settings}
        drawing.report(calibration, values, calibration.counted(), calibration.conclusion())
    interruption.finish(images, called, kept=drawing.out is not None)
    if calibration is not None and calibration.failures:
        say(f"attentest: {len(calibration.failures)} of {counted(images, called)} could not be tested.")
        raise typer.Exit(SOME_FAILED)


@contextmanager
def _recorded(
    images: NullImages, drawing: CalibrationOptions, engine: Engine
) -> Iterator[tuple[list[Row], Sequence[int], Callable[[list[Row]], object] | None]]:
    """Yield the rows that a directory has, the numbers of the images that it lacks, and a function that adds rows.

    Without a directory there are none, and nothing is written. A directory of another calibration is an error.
    """
    count, out = drawing.images, drawing.out
    if out is None:
        yield [], range(count), None
        return
    from attentest.runs.record_lines import alone_in
    from attentest.runs.records import RecordFile, record_header
    from attentest.simulation.calibration import check_row

    header = record_header(images.test, images.describe(), engine, drawing.seed)
    with alone_in(out), RecordFile(out / RECORDS).writing(header, check_row=check_row) as writer:
        records = writer.records
        numbers = records.missing(range(count), drawing.retry)
        again = set(numbers)
        yield [records.rows[number] for number in range(count) if number not in again], numbers, writer.add


@dataclass(frozen=True, kw_only=True)
class PowerOptions(SimulationOptions):
    """Options of a simulation of the power."""

    name: ClassVar[str] = "power"
    has_table: ClassVar[bool] = True

    images: int = option(
        "Number of simulated images for each row of the table; at least that of the image files.",
        default=50,
        limits=(1, None),
    )
    delta: list[float] | None = option(
        "Height of the raised part in standard deviations of the noise; repeatable.",
        metavar="X",
        shown_default="0, 1, 2, 3; with image files 0",
    )
    side: int | None = image_option("Side of the raised part in pixels.", shown_default="a third of the shorter side")
    randomise: list[float] | None = option(
        "A gamma to compare: noise added before the region is chosen, over that of the image; repeatable.",
        metavar="GAMMA",
        shown_default="0, 0.3, 0.5, 1",
    )
    draws: list[int] | None = option(
        "A number of draws of that noise to compare; repeatable.", metavar="N", shown_default="1"
    )
    region_unit: list[str] | None = option(
        f"What the region consists of: {REGION_UNITS.choices()}; repeatable.",
        choices=REGION_UNITS,
        shown_default="both",
    )
    alpha: float = shared.alpha_option()
    power: float = option("Power that a detectable signal has.", default=0.8)
    decide: bool = option(
        "Measure rejections alone and no confidence intervals, in about half the time.", default=False
    )
    out: Path | None = shared.output_option("Folder of power.json, power.csv and power.png.", metavar="FOLDER")


def power(
    options: Annotated[AttentionTestOptions, Without(["randomise", "draws", "randomise_seed", "region_unit"])],
    drawing: PowerOptions,
    backgrounds: list[Path] | None = typer.Argument(
        help="Image files that are taken as true means of the simulated images.",
        show_default="zero, which a model that rescales 0 to 255 sees as black",
        default=None,
    ),
) -> None:
    r"""Find out beforehand how much the test can see: power, regions and intervals, by --randomise and --region-unit.

    For example:

    ```
    attentest power --noise 1.0 --out power
    attentest power --noise 1.0 --randomise 0 --randomise 0.5 \
        --region-unit patches --delta 0 --delta 1.5 --decide
    attentest power templates/*.npy --model my-vit --noise noise.safetensors
    ```

    Simulated images are a background with a raised part at a random place (a square; of a signal an interval, of a
    volume a cube) and noise. For each gamma and each kind of region the table shows the share of them that is rejected,
    with its 95% interval; the least true difference that is found with a probability of --power, given the region; the
    length of the confidence intervals over that of the naive ones, and how many hold the true value; and the overlap
    (IoU) of region and raised part. Differences and lengths are medians. Choose with it before looking at the data, not
    after. Ctrl-C ends the command with a report on the rows that are finished.
    """
    shared.check_level(drawing.alpha)
    shared.check_level(drawing.power, "--power")
    images = drawing.images
    sources = image_sources(backgrounds or [], frame=drawing.frame, window=drawing.window)
    if not sources and (drawing.frame is not None or drawing.window):
        raise InputError("--frame and --window are for image files, and none are given.")
    drawing.check(options, [source.path for source in sources])
    from attentest.simulation.simulate import RANDOMISE, REGIONS, Simulation

    drawn = drawing.drawn(options.noise)
    test = options.attention_test(None if drawing.decide else Definition.confidence_level)
    dimension = test.pipeline.inputs.dimension
    simulation = Simulation(
        test,
        images,
        drawing.seed,
        randomise=drawing.randomise or RANDOMISE,
        draws=drawing.draws or 1,
        region_unit=drawing.region_unit or REGIONS,
        deltas=drawing.delta or None,
        side=drawing.side,
        backgrounds=[source.read(dimension) for source in for_model(sources, dimension)] or None,
        alpha=drawing.alpha,
        power=drawing.power,
        **drawn,
    )
    say(
        f"{counted(len(simulation), 'test')}: {counted(images, worded('image', dimension))}, "
        f"{counted(len(simulation.designs), 'way')} to choose the region, "
        f"{counted(len(simulation.deltas), 'height')} of the planted signal"
    )
    interruption = Interruption()
    with progress_bar(counted(len(simulation), "test")) as progress:
        finished = list(interruption.until(simulation.tests(progress)))
    if finished:
        plan = simulation.plan(finished)
        values = {"images": images, "seed": drawing.seed, **plan.to_dict(), "settings": simulation.settings}
        drawing.report(plan, values, "", plan.summary())
    interruption.finish(len(simulation) // images, "row")
