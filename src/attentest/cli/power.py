"""``attentest power``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.images import image_sources
from attentest.cli.option_checks import check_files
from attentest.cli.options import (
    OUTPUT,
    AlphaOption,
    FrameOption,
    RegionUnitsName,
    ReportJsonOption,
    SeedOption,
    WindowOption,
    check_level,
)
from attentest.cli.output import Interruption, print_json, progress_bar, say
from attentest.cli.values import as_image_shape, as_true_noise, noise_file
from attentest.definition import IMAGE
from attentest.errors import InputError, counted
from attentest.registry import IMAGE_NOISE, REGION_UNITS

if TYPE_CHECKING:
    from attentest.simulation.power.plan import Plan

REPORT, TABLE, FIGURE = "power.json", "power.csv", "power.png"
"""Files in the output directory."""


@with_options_of(AttentionTestOptions, leave_out=("randomise", "randomise_seed", "region_unit"))
def power(
    options: AttentionTestOptions,
    backgrounds: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Image files that are taken as true means of the simulated images.",
            show_default="zero, which a model that rescales 0 to 255 sees as black",
        ),
    ] = None,
    images: Annotated[
        int,
        typer.Option(
            help="Number of simulated images for each row of the table; at least that of the image files.",
            metavar="N",
            min=1,
        ),
    ] = 50,
    seed: SeedOption = 0,
    delta: Annotated[
        list[float] | None,
        typer.Option(
            help="Height of the planted square in standard deviations of the noise; repeatable.",
            metavar="X",
            show_default="0, 1, 2, 3; with image files 0",
        ),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(
            help="Side of the planted square in pixels.",
            metavar="N",
            show_default="a third of the shorter side",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    true_noise: Annotated[
        str | None,
        typer.Option(
            help=f"Noise that images are drawn from, as for --noise; needed with --noise {IMAGE_NOISE.choices()}.",
            metavar="SIGMA",
            show_default="that of --noise",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="HEIGHTxWIDTH of constant images, or 3xHEIGHTxWIDTH in colour, if the model takes any size.",
            metavar="SIZE",
            show_default="that of the model",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    frame: FrameOption = None,
    window: WindowOption = False,
    randomise: Annotated[
        list[float] | None,
        typer.Option(
            help="A gamma to compare: noise added before the region is chosen, over that of the image; repeatable.",
            metavar="GAMMA",
            show_default="0, 0.3, 0.5, 1",
        ),
    ] = None,
    region_unit: Annotated[
        list[RegionUnitsName] | None,
        typer.Option(
            help=f"What the region consists of: {REGION_UNITS.choices()}; repeatable.",
            metavar="NAME",
            show_default="both",
        ),
    ] = None,
    alpha: AlphaOption = 0.05,
    target: Annotated[float, typer.Option("--power", help="Power that a detectable signal has.")] = 0.8,
    decide: Annotated[
        bool,
        typer.Option("--decide", help="Measure rejections alone and no confidence intervals, in about half the time."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of power.json, power.csv and power.png.",
            metavar="FOLDER",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: ReportJsonOption = False,
) -> None:
    r"""Find out beforehand how much the test can see: power, regions and intervals, by --randomise and --region-unit.

    For example:

    ```
    attentest power --noise 1.0 --out power
    attentest power --noise 1.0 --randomise 0 --randomise 0.5 \
        --region-unit patches --delta 0 --delta 1.5 --decide
    attentest power templates/*.npy --model my-vit --noise noise.safetensors
    ```

    Simulated images are a background, a bright square at a random place and noise. For each gamma and each kind of
    region the table shows the share of them that is rejected, with its 95% interval; the least true difference that
    is found with a probability of --power, given the region; the length of the confidence intervals over that of the
    naive ones, and how many hold the true value; and the overlap (IoU) of region and square. Differences and lengths
    are medians. Choose with it before looking at the data, not after. Ctrl-C ends the command with a report on the
    rows that are finished.
    """
    check_level(alpha)
    check_level(target, "--power")
    shape = as_image_shape(size)
    sources = image_sources(backgrounds or [], frame=frame, window=window)
    if not sources and (frame is not None or window):
        raise InputError("--frame and --window are for image files, and none are given.")
    check_files("noise", [noise_file(options.noise), noise_file(true_noise), noise_file(options.reference_noise)])
    options.check()
    if out is not None:
        files = [source.path for source in sources]
        _check_out(out, [*options.input_files, *files, *filter(None, [noise_file(true_noise)])])
    from attentest.simulation.power.simulate import RANDOMISE, REGIONS, Simulation

    drawn_from = as_true_noise(true_noise, options.noise)
    simulation = Simulation(
        options.attention_test(),
        images,
        seed,
        randomise=randomise or RANDOMISE,
        region_unit=[str(unit) for unit in region_unit] if region_unit else REGIONS,
        deltas=delta or None,
        side=side,
        backgrounds=[source.read() for source in sources] or None,
        image_shape=shape,
        true_noise=drawn_from,
        alpha=alpha,
        power=target,
        confidence_level=None if decide else 0.95,
    )
    say(
        f"{counted(len(simulation), 'test')}: {counted(images, 'image')}, "
        f"{counted(len(simulation.designs), 'way')} to choose the region, "
        f"{counted(len(simulation.deltas), 'height')} of the square"
    )
    interruption = Interruption()
    with progress_bar(counted(len(simulation), "test")) as progress:
        finished = list(interruption.until(simulation.tests(progress)))
    if finished:
        plan = simulation.plan(finished)
        report = {"images": images, "seed": seed, **plan.to_dict(), "settings": simulation.settings}
        try:
            if out is not None:
                _write(report, plan, out)
        finally:  # the numbers in any case, because a disk may be full
            if as_json:
                print_json(report)
            else:
                _print_plan(plan)
    interruption.finish(len(simulation) // images, "row")


def _check_out(out: Path, inputs: list[Path]) -> None:
    """Refuse a directory that cannot be written to, before anything is computed."""
    from attentest.files import check_output_path
    from attentest.presentation.figure import check_figure_path
    from attentest.presentation.tables import check_csv_path

    check_output_path(out / REPORT, "the report", (".json",), inputs)
    check_csv_path(out / TABLE, inputs)
    check_figure_path(out / FIGURE, inputs)


def _print_plan(plan: Plan) -> None:
    from attentest.presentation.tables import Column, print_table

    columns = plan.text_table()
    print_table(
        [Column(heading=heading, cells=cells, is_text=heading == "region") for heading, cells in columns.items()]
    )
    typer.echo(plan.summary())


def _write(report: dict[str, Any], plan: Plan, out: Path) -> None:
    from attentest.files import write_complete
    from attentest.presentation.figure import save_figure
    from attentest.presentation.tables import write_csv

    write_complete(out / REPORT, (json.dumps(report, indent=1, allow_nan=False) + "\n").encode(), "the report")
    write_csv(plan.table(), out / TABLE)
    save_figure(plan.figure(), out / FIGURE)
    say(f"report: {out / REPORT}, table: {out / TABLE}, figure: {out / FIGURE}")
