"""``attentest noise check``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from attentest.cli.number_range import within
from attentest.cli.option_checks import check_files
from attentest.cli.option_names import option_names
from attentest.cli.option_value import as_noise_model, noise_file
from attentest.cli.options import OUTPUT, EstimatorName, FrameOption, ReportJsonOption, WindowOption, check_level
from attentest.cli.output import print_json, progress_bar, say, table_console
from attentest.errors import InputError, counted
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS

if TYPE_CHECKING:
    from attentest.noise import NoiseLike
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
        int, typer.Option(help="Sets of images that are drawn from the model.", metavar="N", callback=within(19))
    ] = 199,
    seed: Annotated[int, typer.Option(help="Seed of the drawn images.", callback=within(0))] = 0,
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

    If every assumption holds, one is called broken with a probability of at most --alpha. The exit code is 0 if none is
    broken, 1 if one is, and 2 after an error.

    Examples:
    attentest noise check phantom/*.npy --noise noise.json --figure check.png

    attentest noise check phantom/*.npy --estimator stationary
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

        with option_names({"the file name of the figure": "--figure"}):
            check_figure_path(figure, [*images, *filter(None, [noise_file(noise)])])
    from attentest.images.image_file import read_image
    from attentest.simulation.noise_check.run import noise_check

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
        from attentest.presentation.figure import save_figure
        from attentest.simulation.noise_check.figure import noise_check_figure

        save_figure(noise_check_figure(found), figure)
        say(f"figure: {figure}")
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(BROKEN)


def _print(found: NoiseCheck) -> None:
    table = Table("assumption", "verdict", "adjusted p", "measured", show_lines=True, title=escape(found.title()))
    for one in found.assumptions:
        table.add_row(one.name, one.verdict, f"{one.adjusted_pvalue:.3g}", escape(one.in_words()))
    table_console().print(table)
    typer.echo(found.conclusion())
