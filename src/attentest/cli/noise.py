"""``attentest noise``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attentest.cli import options as shared
from attentest.cli.attention_test_options import as_noise_model, check_files, noise_file
from attentest.cli.command import Command, Group, with_options
from attentest.cli.images import for_model, image_sources
from attentest.cli.output import Move, check_figure, print_columns, print_json, progress_bar, say, write_figure
from attentest.definition import REQUIRED, option
from attentest.errors import InputError, counted, listed, worded
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS, NOISE_FORMATS

if TYPE_CHECKING:
    from attentest.images.image_source import ImageSource
    from attentest.images.sample import ImageLike
    from attentest.noise import NoiseEstimator, NoiseLike


BROKEN = 1  # exit code if an assumption is broken
AUTOMATIC = "auto"  # the default estimator


EQUAL, PER_IMAGE = "equal", "per-image"  # whether reference images have the same gain or one each

noise = typer.Typer(
    name="noise",
    cls=Group,
    no_args_is_help=True,
    help="Estimate the noise from reference images, check a noise model against them, or print a noise file.",
)

AXES = {
    f"a model of {' or '.join(worded('images', axis) for axis in axes)}": f"--axes {' or '.join(map(str, axes))}"
    for axes in ((1,), (2,), (3,), (1, 2), (2, 3))
}
"""The option that says what files hold, in place of the model that decides it where images are tested."""


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Options of the commands that read reference images."""

    frame: int | None = shared.frame_option()
    window: bool = shared.window_option()
    channel: list[str] | None = shared.channel_option()
    axes: int = option("What the files are: 1 for signals, 2 for images, 3 for volumes.", default=2, limits=(1, 3))
    as_json: bool = shared.json_option()

    @property
    def called(self) -> str:
        """What an image is called."""
        return worded("image", self.axes)

    def sources(self, images: Sequence[Path]) -> list[ImageSource]:
        """Return the images of files and folders; they are not read."""
        sources = image_sources(images, frame=self.frame, window=self.window, channels=self.channel or ())
        return for_model(sources, self.axes)

    def read(self, sources: Sequence[ImageSource], progress: Move) -> Iterator[ImageLike]:
        """Read images one by one, and report how many are read."""
        from attentest.images.nifti import is_nifti
        from attentest.images.sample import as_sample

        for done, source in enumerate(sources):
            progress(done, len(sources))
            try:
                image = source.read(self.axes)
            except InputError as error:
                whole = (
                    ""
                    if self.axes != 2 or self.frame is not None or not is_nifti(source.path)
                    else (" Whole volumes are read with --axes 3.")
                )
                raise InputError(f"{error}{whole}", *error.parameters) from None
            try:
                yield image if self.axes == 2 else as_sample(image, self.axes)
            except InputError as error:
                raise InputError(f"{source.name} cannot be used: {error}") from None
        progress(len(sources), len(sources))


@contextmanager
def named_by_files(sources: Sequence[ImageSource]) -> Iterator[None]:
    """Let the errors of the library name the files in place of the numbers of reference images."""
    listed = [source.name for source in sources]
    kinds = (f"{kind}{called}" for kind in ("", "reference ") for called in ("image", "signal", "volume"))
    names = {f"{kind} {number}": name for kind in kinds for number, name in enumerate(listed, start=1)}
    with shared.named_by_options({**AXES, **names}):
        yield


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ReferenceOptions):
    """Options of a check of a noise model."""

    noise: str | None = option(
        "The noise model: a standard deviation, several separated by commas for channels, or a noise file.",
        metavar="SIGMA|FILE",
    )
    estimator: str | None = option(
        f"Fit this to the same images instead of --noise: {NOISE_ESTIMATORS.choices()}.", choices=NOISE_ESTIMATORS
    )
    alpha: float = option(
        "Error rate of all verdicts together if every assumption holds, between 0 and 1.", default=0.05
    )
    simulations: int = option("Most sets of images that are drawn from the model.", default=999, limits=(19, None))
    seed: int = shared.seed_option()
    figure: Path | None = shared.output_option("File of a one-page picture: .png, .svg or .pdf.")


@noise.command(cls=Command)
@with_options
def check(
    options: CheckOptions,
    images: list[Path] = typer.Argument(
        help="Independent images of one size and the same mean, at least three, or folders of them; not the tested "
        "images."
    ),
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
    shared.check_level(options.alpha)
    noise, figure = options.noise, options.figure
    if (noise is None) == (options.estimator is None):
        raise InputError("give either --noise, a model to check, or --estimator, which is fitted to the same images.")
    if noise in IMAGE_NOISE:
        raise InputError(f"--noise {noise} estimates the noise from each tested image: give a number or a noise file.")
    sources = options.sources(images)
    check_files("noise", [noise_file(noise)])
    check_figure(figure, [*(source.path for source in sources), *filter(None, [noise_file(noise)])])
    from attentest.presentation.figure import new_figure
    from attentest.simulation.noise_check.noise_check import noise_check

    model: NoiseLike = (
        as_noise_model(noise)  # type: ignore[assignment]  # no ImageNoise
        if noise is not None
        else NOISE_ESTIMATORS.load(options.estimator)()
    )
    with progress_bar(f"reading {counted(len(sources), options.called)}") as progress, named_by_files(sources):
        result = noise_check(
            model,
            options.read(sources, progress),
            alpha=options.alpha,
            simulations=options.simulations,
            rng=options.seed,
            progress=lambda done, total: progress(done, total, f"simulating {options.called}s"),
        )
    write_figure(figure, lambda: result.plot(new_figure(1.0, 1.0)))
    if options.as_json:
        print_json(result.to_dict())
    else:
        columns = {
            "assumption": [worded(assumption.name, options.axes) for assumption in result.assumptions],
            "verdict": [assumption.verdict for assumption in result.assumptions],
            "adjusted p": [assumption.adjusted_text for assumption in result.assumptions],
            "measured": [assumption.in_words() for assumption in result.assumptions],
        }
        print_columns(columns, columns, title=result.title(), separated=True)
        typer.echo(result.conclusion())
    if not result.passed:
        raise typer.Exit(BROKEN)


@dataclass(frozen=True, kw_only=True)
class FitOptions(ReferenceOptions):
    """Options of an estimate of the noise."""

    out: Path = option(f"File to write: {NOISE_FORMATS.help()}.", default=REQUIRED)
    estimator: str = option(
        f"Which covariance is estimated: {NOISE_ESTIMATORS.choices()}.", default=AUTOMATIC, choices=NOISE_ESTIMATORS
    )
    max_lag: int | None = option(
        "For auto, stationary and locally-stationary: pixels up to which correlations are estimated; they are zero at "
        "twice that.",
        limits=(1, None),
        shown_default="half the side, and a curve beyond",
    )
    smoothing: float | None = option(
        "For auto and locally-stationary: standard deviation in pixels of the Gaussian that smooths the variances.",
        metavar="PIXELS",
        shown_default="as much as the variances need",
    )
    ignore_constant: bool = option(
        "For auto, pooled, ar1 and stationary: leave out pixels that have the same value in all images, such as a dark "
        "surround.",
        default=False,
    )
    gain: str = option(
        "per-image for images of one scene that differ by a factor, too: each is divided by its own. The noise is then "
        "that of an image with the median factor.",
        default=EQUAL,
        choices=(EQUAL, PER_IMAGE),
        metavar=f"{EQUAL}|{PER_IMAGE}",
    )
    check: bool = option(
        "Afterwards, compare the middle of at most 20 of the images with the model, and warn if they do not fit it.",
        default=True,
    )


@noise.command(cls=Command)
@with_options
def fit(
    options: FitOptions,
    images: list[Path] = typer.Argument(
        help="Images of one size that differ by independent noise alone (scans of a phantom, repeated exposures), or "
        "folders of them."
    ),
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

    By default the images decide whether it is locally stationary or stationary.
    """
    from attentest.files import check_output_path

    out, sources = options.out, options.sources(images)
    check_output_path(out, "the noise file", tuple(NOISE_FORMATS), [source.path for source in sources])
    per_image_gain = options.gain == PER_IMAGE
    values = {
        "max_lag": options.max_lag,
        "smoothing": options.smoothing,
        "ignore_constant": options.ignore_constant or None,
        "gain": options.gain if per_image_gain else None,
    }
    parameters = {name: value for name, value in values.items() if value is not None}
    _check_parameters(options.estimator, parameters)
    fitted: NoiseEstimator = NOISE_ESTIMATORS.load(options.estimator)(**parameters)
    from attentest.noise import AutomaticCovariance, load_noise, save_noise
    from attentest.noise.model import complete, shown_record
    from attentest.presentation.footnotes import FEW_DEGREES

    with progress_bar(f"reading {counted(len(sources), options.called)}") as progress, named_by_files(sources):
        read = list(options.read(sources, progress))
        progress(0, None, "fitting the noise")
        fitted.fit(read)
        save_noise(fitted, out)
        objection = _objection(fitted, read, progress, options.called) if options.check else ""
    degrees = _degrees_of_freedom(fitted)
    if options.as_json:
        gains = {"gains": fitted.gains_.tolist()} if per_image_gain else {}
        described = {"file": str(out), **load_noise(out).describe(), "shape": list(fitted.mean_.shape)}
        print_json({**described, **gains, "degrees_of_freedom": degrees, "objection": objection or None})
        return
    channels, *sides = fitted.mean_.shape
    size = " x ".join(map(str, sides))
    what = f"{counted(fitted.n_images_, 'image')} of {size} pixels and {counted(channels, 'channel')}"
    say(worded(what, options.axes))
    if per_image_gain:
        least, most = fitted.gains_.min(), fitted.gains_.max()
        which = worded("an image", options.axes)
        say(f"gains from {least:.3g} to {most:.3g}; the noise is that of {which} with the median gain, 1")
    if isinstance(fitted, AutomaticCovariance):
        say(f"chosen: {fitted.choice_}")
    say(", ".join(f"{name} {value}" for name, value in shown_record(complete(fitted.noise_).record()).items()))
    few = ", which is little: tests allow for it, and more images make their intervals shorter"
    halves = f"the variance of the difference between the halves of an image has {degrees:.0f} degrees of freedom"
    say(worded(f"{halves}{few if degrees < FEW_DEGREES else ''}", options.axes))
    if objection:
        say(f"warning: {objection}")
        say("attentest noise check says what it does to p-values and what to do")
    typer.echo(str(out))


@noise.command(cls=Command)
@with_options
def show(
    file: Path = typer.Argument(help="File written by attentest noise fit or save_noise."),
    as_json: bool = shared.json_option(),
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
    dimension = len(described.get("shape", ("height", "width")))
    for name, value in shown_record(described).items():
        typer.echo(worded(f"{name}: {value}", dimension) if name == "sentence" else f"{name}: {value}")


def _check_parameters(estimator: str, parameters: Iterable[str]) -> None:
    """Raise an error for parameters that an estimator does not have."""
    for parameter in parameters:
        having = [name for name in NOISE_ESTIMATORS if parameter in signature(NOISE_ESTIMATORS.load(name)).parameters]
        if estimator not in having:
            raise InputError(
                f"--{parameter.replace('_', '-')} is for the estimator{'s' if len(having) > 1 else ''} "
                f"{listed(having, 'and')}, but --estimator is {estimator}."
            )


def _objection(fitted: NoiseEstimator, images: Sequence[ImageLike], progress: Move, called: str) -> str:
    """Return in a sentence what the images say against their noise model; empty if they fit it."""
    from attentest.simulation.noise_check.noise_check import quick_check

    def report(done: float, total: float | None) -> None:
        progress(done, total, "checking the residuals")

    try:
        return quick_check(fitted, images, progress=report).objection()
    except InputError as error:  # two images, a single row, or a middle without noise
        return f"the {called}s could not be compared with the model: {error}"


def _degrees_of_freedom(estimator: NoiseEstimator) -> float:
    """Return the degrees of freedom of the variance of the difference between the two halves of an image."""
    import numpy as np

    from attentest.noise import as_noise
    from attentest.noise.model import complete

    pixels = estimator.mean_[0].size
    halves = np.where(np.arange(pixels) < pixels // 2, 1.0, -1.0)
    eta = np.tile(halves, len(estimator.mean_))[None]
    return float(complete(as_noise(estimator)).degrees_of_freedom(eta)[0])
