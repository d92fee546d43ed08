"""``attentest noise``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.command import Command, Group
from attentest.cli.noise_check import check
from attentest.cli.number_range import within
from attentest.cli.option_checks import check_files
from attentest.cli.option_names import option_names
from attentest.cli.options import EstimatorName, FrameOption, ReportJsonOption, WindowOption
from attentest.cli.output import print_json, progress_bar, say
from attentest.errors import InputError, counted
from attentest.presentation.words import FEW_DEGREES
from attentest.registry import NOISE_ESTIMATORS, NOISE_FORMATS

if TYPE_CHECKING:
    from attentest.noise import NoiseEstimator

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
            callback=within(1),
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
    """Estimate the noise from reference images and save it for --noise of test and calibrate.

    Examples:
    attentest noise fit phantom/*.npy --out noise.json

    attentest noise fit phantom/*.dcm --estimator stationary --max-lag 4 --out noise.safetensors

    attentest noise fit controls/*.npy --estimator locally-stationary --gain per-image --out noise.safetensors

    attentest test scan.dcm --noise noise.safetensors
    """
    from attentest.files import check_output_path

    with option_names({"the file name of the noise file": "--out"}):
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

    Example:
    attentest noise show noise.safetensors
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
