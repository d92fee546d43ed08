"""``attentest noise``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.command import Command, Group
from attentest.cli.option_checks import check_files
from attentest.cli.options import (
    OUTPUT,
    EstimatorName,
    FrameOption,
    ReportJsonOption,
    WindowOption,
    check_level,
    named_by_options,
)
from attentest.cli.output import print_json, progress_bar, say
from attentest.cli.values import as_noise_model, noise_file
from attentest.errors import InputError, counted
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS, NOISE_FORMATS

if TYPE_CHECKING:
    from attentest.noise import NoiseEstimator, NoiseLike
    from attentest.simulation.noise_check.noise_check import NoiseCheck


BROKEN = 1
"""Exit code if an assumption is broken."""


def check(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Independent images of one size and the same mean, at least three; not the tested images.",
            show_default=False,
        ),
    ],
    noise: Annotated[
        str | None,
        typer.Option(
            help="The noise model: a standard deviation, several separated by commas for channels, or a noise file.",
            metavar="SIGMA|FILE",
            show_default=False,
        ),
    ] = None,
    estimator: Annotated[
        EstimatorName | None,
        typer.Option(
            help=f"Fit this to the same images instead of --noise: {NOISE_ESTIMATORS.choices()}.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Error rate of all verdicts together if every assumption holds, between 0 and 1.")
    ] = 0.05,
    simulations: Annotated[
        int, typer.Option(help="Sets of images that are drawn from the model.", metavar="N", min=19)
    ] = 199,
    seed: Annotated[int, typer.Option(help="Seed of the drawn images.", metavar="N", min=0)] = 0,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="File of a one-page picture: .png, .svg or .pdf.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    frame: FrameOption = None,
    window: WindowOption = False,
    as_json: ReportJsonOption = False,
) -> None:
    """Check a noise model against reference images: a verdict in words for each assumption.

    For example:

    ```
    attentest noise check phantom/*.npy --noise noise.json --figure check.png
    attentest noise check phantom/*.npy --estimator stationary
    ```

    If every assumption holds, one is called broken with a probability of at most --alpha. The exit code is 0 if none is
    broken, 1 if one is, and 2 after an error.
    """
    check_level(alpha)
    if (noise is None) == (estimator is None):
        raise InputError("give either --noise, a model to check, or --estimator, which is fitted to the same images.")
    if noise in IMAGE_NOISE:
        raise InputError(f"--noise {noise} estimates the noise from each tested image: give a number or a noise file.")
    check_files("image", images)
    check_files("noise", [noise_file(noise)])
    if figure is not None:
        from attentest.presentation.figure import check_figure_path

        with named_by_options({"the file name of the figure": "--figure"}):
            check_figure_path(figure, [*images, *filter(None, [noise_file(noise)])])
    from attentest.images.image_file import read_image
    from attentest.simulation.noise_check.noise_check import noise_check

    model: NoiseLike = (
        as_noise_model(noise)  # type: ignore[assignment]  # no ImageNoise
        if noise is not None
        else NOISE_ESTIMATORS.load(str(estimator))()
    )
    with progress_bar(f"reading {counted(len(images), 'image')}") as progress:

        def read() -> Iterator[Any]:
            for done, path in enumerate(images):
                progress(done, len(images))
                yield read_image(path, frame=frame, window=window)

        def simulated(done: float, total: int | None) -> None:
            progress(done, total, "simulating images")

        found = noise_check(model, read(), alpha=alpha, simulations=simulations, rng=seed, progress=simulated)
    if figure is not None:
        from attentest.presentation.figure import new_figure, save_figure

        save_figure(found.plot(new_figure(1.0, 1.0)), figure)
        say(f"figure: {figure}")
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(BROKEN)


def _print(found: NoiseCheck) -> None:
    from attentest.presentation.tables import Column, print_table

    columns = {
        "assumption": [assumption.name for assumption in found.assumptions],
        "verdict": [assumption.verdict for assumption in found.assumptions],
        "adjusted p": [f"{assumption.adjusted_pvalue:.3g}" for assumption in found.assumptions],
        "measured": [assumption.in_words() for assumption in found.assumptions],
    }
    print_table(
        [Column(heading=heading, cells=cells, is_text=True) for heading, cells in columns.items()],
        title=found.title(),
        separated=True,
    )
    typer.echo(found.conclusion())


POOLED = "pooled"
"""The default estimator."""


class GainName(StrEnum):
    """Whether reference images have the same gain or one each."""

    EQUAL = "equal"
    PER_IMAGE = "per-image"


noise = typer.Typer(
    name="noise",
    cls=Group,
    no_args_is_help=True,
    help="Estimate the noise from reference images, check a noise model against them, or print a noise file.",
)
noise.command(cls=Command)(check)


@noise.command(cls=Command)
def fit(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Images of one size that differ by independent noise alone: scans of a phantom, repeated exposures.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help=f"File to write: {NOISE_FORMATS.help()}.", metavar="FILE", show_default=False)
    ],
    estimator: Annotated[
        EstimatorName,
        typer.Option(help=f"Which covariance is estimated: {NOISE_ESTIMATORS.choices()}.", metavar="NAME"),
    ] = POOLED,
    max_lag: Annotated[
        int | None,
        typer.Option(
            help="For stationary and locally-stationary: pixels up to which correlations are estimated; they are zero "
            "at twice that.",
            metavar="N",
            min=1,
            show_default="half the side, and a curve beyond",
        ),
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(
            help="For locally-stationary: standard deviation in pixels of the Gaussian that smooths the variances.",
            metavar="PIXELS",
            show_default="as much as the variances need",
        ),
    ] = None,
    ignore_constant: Annotated[
        bool,
        typer.Option(
            "--ignore-constant",
            help="For pooled, ar1 and stationary: leave out pixels that have the same value in all images, such as a "
            "dark surround.",
        ),
    ] = False,
    gain: Annotated[
        GainName,
        typer.Option(
            help="per-image for images of one scene that differ by a factor, too: each is divided by its own. The "
            "noise is then that of an image with the median factor.",
        ),
    ] = GainName.EQUAL,
    frame: FrameOption = None,
    window: WindowOption = False,
    as_json: ReportJsonOption = False,
) -> None:
    r"""Estimate the noise from reference images and save it for --noise of test and calibrate.

    For example:

    ```
    attentest noise fit phantom/*.npy --out noise.json
    attentest noise fit phantom/*.dcm --estimator stationary --max-lag 4 \
        --out noise.safetensors
    attentest noise fit controls/*.npy --estimator locally-stationary \
        --gain per-image --out noise.safetensors
    attentest test scan.dcm --noise noise.safetensors
    ```
    """
    from attentest.files import check_output_path

    with named_by_options({"the file name of the noise file": "--out"}):
        check_output_path(out, "the noise file", tuple(NOISE_FORMATS), images)
    check_files("image", images)
    per_image_gain = gain is GainName.PER_IMAGE
    given = {
        "max_lag": max_lag,
        "smoothing": smoothing,
        "ignore_constant": ignore_constant or None,
        "gain": str(gain) if per_image_gain else None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    _check_options(str(estimator), options)
    chosen: NoiseEstimator = NOISE_ESTIMATORS.load(str(estimator))(**options)
    from attentest.images.image_file import read_image
    from attentest.noise import load_noise, save_noise
    from attentest.noise.model import complete, shown_record

    with progress_bar(f"reading {counted(len(images), 'image')}") as progress:

        def read() -> Iterator[Any]:
            for done, path in enumerate(images):
                progress(done, len(images))
                yield read_image(path, frame=frame, window=window)
            progress(len(images), len(images))

        chosen.fit(read())
        save_noise(chosen, out)
    found = {"file": str(out), **load_noise(out).describe(), "shape": list(chosen.mean_.shape)}
    if per_image_gain:
        found["gains"] = chosen.gains_.tolist()
    degrees = _degrees_of_freedom(chosen)
    found["degrees_of_freedom"] = degrees
    if as_json:
        print_json(found)
    else:
        channels, height, width = chosen.mean_.shape
        taken = counted(chosen.n_images_, "image")
        say(f"{taken} of {height} x {width} pixels and {counted(channels, 'channel')}")
        if per_image_gain:
            least, most = chosen.gains_.min(), chosen.gains_.max()
            say(f"gains from {least:.3g} to {most:.3g}; the noise is that of an image with the median gain, 1")
        say(", ".join(f"{name} {value}" for name, value in shown_record(complete(chosen.noise_).record()).items()))
        from attentest.presentation.words import FEW_DEGREES

        few = ", which is little: tests allow for it, and more images make their intervals shorter"
        say(
            f"the variance of the difference between the halves of an image has {degrees:.0f} degrees of freedom"
            f"{few if degrees < FEW_DEGREES else ''}"
        )
        typer.echo(str(out))


@noise.command(cls=Command)
def show(
    file: Annotated[
        Path, typer.Argument(help="File written by attentest noise fit or save_noise.", show_default=False)
    ],
    as_json: ReportJsonOption = False,
) -> None:
    """Print the noise model in a noise file.

    For example:

    ```
    attentest noise show noise.safetensors
    ```
    """
    check_files("noise", [file])
    from attentest.noise import load_noise
    from attentest.noise.model import shown_record

    described = load_noise(file).describe()
    if as_json:
        print_json(dict(described))
        return
    for name, value in shown_record(described).items():
        typer.echo(f"{name}: {value}")


def _check_options(estimator: str, options: Iterable[str]) -> None:
    """Refuse options that an estimator does not have."""
    for option in options:
        having = [name for name in NOISE_ESTIMATORS if option in signature(NOISE_ESTIMATORS.load(name)).parameters]
        if estimator not in having:
            *most, last = having
            names = f"{', '.join(most)} and {last}" if most else last
            raise InputError(
                f"--{option.replace('_', '-')} is for the estimator{'s' if most else ''} {names}, but --estimator is "
                f"{estimator}."
            )


def _degrees_of_freedom(estimator: NoiseEstimator) -> float:
    """Return the degrees of freedom of the variance of the difference between the two halves of an image."""
    import numpy as np

    from attentest.noise import as_noise
    from attentest.noise.model import complete

    pixels = estimator.mean_[0].size
    halves = np.where(np.arange(pixels) < pixels // 2, 1.0, -1.0)
    eta = np.tile(halves, len(estimator.mean_))[None]
    return float(complete(as_noise(estimator)).degrees_of_freedom(eta)[0])
