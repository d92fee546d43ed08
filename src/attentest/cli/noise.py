"""``attentest noise``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.command import Command, Group
from attentest.cli.option_checks import check_files
from attentest.cli.option_names import option_names
from attentest.cli.options import FrameOption, ReportJsonOption, WindowOption, names_in
from attentest.cli.output import print_json, progress_bar, say
from attentest.errors import InputError
from attentest.registry import NOISE_ESTIMATORS, NOISE_FORMATS

if TYPE_CHECKING:
    from attentest.noise import NoiseEstimator

    EstimatorName = str
else:
    EstimatorName = names_in(NOISE_ESTIMATORS)

POOLED, STATIONARY = "pooled", "stationary"
"""The default estimator, and the one with a largest lag."""

noise = typer.Typer(
    name="noise",
    cls=Group,
    no_args_is_help=True,
    help="Estimate the noise from reference images, or print the content of a noise file.",
)


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
            help="For stationary: pixels up to which correlations are estimated; they are zero at twice that.",
            metavar="N",
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

    if max_lag is not None and estimator != STATIONARY:
        raise InputError(f"--max-lag is for the stationary estimator, but --estimator is {estimator}.")
    with option_names({"the file name of the noise file": "--out"}):
        check_output_path(out, "the noise file", tuple(NOISE_FORMATS), images)
    check_files("image", images)
    from attentest.images.read import read_image
    from attentest.noise import load_noise, save_noise

    chosen: NoiseEstimator = NOISE_ESTIMATORS.load(str(estimator))(**({} if max_lag is None else {"max_lag": max_lag}))
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

    described = load_noise(file).describe()
    if as_json:
        print_json(dict(described))
        return
    for name, value in described.items():
        typer.echo(f"{name}: {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_shown(part)}" for name, part in value.items()) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_shown(part) for part in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
