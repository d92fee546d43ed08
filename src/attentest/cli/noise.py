"""``attentest noise``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.option_value import NOISE_FILES
from attentest.cli.options import FrameOption, ReportJsonOption, WindowOption
from attentest.cli.output import print_json, progress_bar, say
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.noise import NoiseEstimator


class EstimatorName(StrEnum):
    """Estimators of the noise from reference images."""

    pooled = "pooled"
    pixel = "pixel"
    ar1 = "ar1"
    stationary = "stationary"
    shrunk = "shrunk"


noise = typer.Typer(
    name="noise", no_args_is_help=True, help="Estimate the noise from reference images, or look at a noise file."
)


@noise.command()
def fit(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Independent images of one size that differ by their noise alone: scans of a phantom, repeats of an "
            "exposure, registered healthy controls.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="File to write: .json or, for large ones, .safetensors.", show_default=False)
    ],
    estimator: Annotated[
        EstimatorName,
        typer.Option(
            help="What is taken to be true: pooled (all pixels independent, with one variance), pixel (independent, "
            "each with its own), ar1 (correlated along rows), stationary (a covariance that depends on the distance "
            "between pixels), or shrunk (any covariance, of small images)."
        ),
    ] = EstimatorName.pooled,
    max_lag: Annotated[
        int | None,
        typer.Option(
            help="For stationary: distance in pixels, along rows and columns, up to which correlations are kept; they "
            "fade to zero at twice that.",
            min=1,
            show_default="half the side",
        ),
    ] = None,
    frame: FrameOption = None,
    window: WindowOption = False,
    as_json: ReportJsonOption = False,
) -> None:
    """Estimate the noise from reference images and save it for --noise of test and calibrate.

    Examples:
    attentest noise fit phantom/*.npy --out noise.json

    attentest noise fit phantom/*.dcm --estimator stationary --max-lag 4 --out noise.safetensors

    attentest test scan.dcm --noise noise.safetensors
    """
    from attentest.files import check_output_path
    from attentest.images.read import read_image
    from attentest.noise import load_noise, save_noise

    if max_lag is not None and estimator is not EstimatorName.stationary:
        raise InputError(f"--max-lag belongs to the stationary estimator, and {estimator.value} was asked for.")
    check_output_path(out, "the noise file", NOISE_FILES, images)
    chosen = _estimator(estimator, max_lag)
    with progress_bar(f"reading {len(images)} image(s)") as progress:

        def read() -> Iterator[Any]:
            for done, path in enumerate(images):
                progress(done, len(images))
                yield read_image(path, frame=frame, window=window)
            progress(len(images), len(images))

        chosen.fit(read())
        save_noise(chosen, out)
    found = {"file": str(out), **load_noise(out).describe(), "shape": list(chosen.mean_.shape)}
    if as_json:
        print_json(found)
    else:
        channels, height, width = chosen.mean_.shape
        say(f"{chosen.n_images_} images of {height} x {width} pixels and {channels} channel(s)")
        say(", ".join(f"{name} {_shown(value)}" for name, value in chosen.noise_.describe().items()))
        typer.echo(str(out))


@noise.command()
def show(
    file: Annotated[Path, typer.Argument(help="A file that noise fit or save_noise wrote.", show_default=False)],
    as_json: ReportJsonOption = False,
) -> None:
    """Say what a noise file holds.

    Example:
    attentest noise show noise.safetensors
    """
    from attentest.noise import load_noise

    described = load_noise(file).describe()
    if as_json:
        print_json(dict(described))
        return
    for name, value in described.items():
        typer.echo(f"{name}: {_shown(value)}")


def _estimator(name: EstimatorName, max_lag: int | None) -> NoiseEstimator:
    from attentest.noise import AR1Covariance, PixelVariance, PooledVariance, ShrunkCovariance, StationaryCovariance

    made: dict[EstimatorName, Callable[[], NoiseEstimator]] = {
        EstimatorName.pooled: PooledVariance,
        EstimatorName.pixel: PixelVariance,
        EstimatorName.ar1: AR1Covariance,
        EstimatorName.stationary: partial(StationaryCovariance, max_lag),
        EstimatorName.shrunk: ShrunkCovariance,
    }
    return made[name]()


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_shown(part)}" for name, part in value.items()) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_shown(part) for part in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
