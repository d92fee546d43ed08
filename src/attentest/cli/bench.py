"""``attentest bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from attentest.cli.bench_counts import counts
from attentest.cli.command import Command
from attentest.cli.options import DeviceOption, ReportJsonOption, SeedOption
from attentest.cli.output import progress_bar, say, table_console
from attentest.cli.subcommand import refuse_options_before
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.studies.benchmark.old import Report


bench = typer.Typer(name="bench", invoke_without_command=True)
bench.command(cls=Command)(counts)


@bench.callback()
def run(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder of bench.json and bench.png.", metavar="FOLDER")] = Path("bench"),
    images: Annotated[int, typer.Option(help="Null images for the spectral search.", min=1)] = 100,
    grid_images: Annotated[
        int | None,
        typer.Option(
            help="Images for the adaptive and the combination search.",
            metavar="N",
            show_default="2, or 20 with CUDA",
            min=1,
        ),
    ] = None,
    fixed_images: Annotated[
        int | None,
        typer.Option(
            help="Images for the fixed search, run to its end; if 0, its time is extrapolated.",
            metavar="N",
            show_default="1, or 20 with CUDA",
            min=0,
        ),
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Only models for images with this side; repeatable.", metavar="N", show_default="all"),
    ] = None,
    tol: Annotated[float, typer.Option(help="Width of the error bar of the spectral search.")] = 1e-4,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: ReportJsonOption = False,
) -> None:
    """Measure the cost of a p-value with each search, side by side, on the bundled models.

    Takes about a quarter of an hour on two cores, most of it for the paper's searches.

    Example:
    attentest bench --size 16 --images 20 --out bench
    """
    if context.invoked_subcommand is not None:
        refuse_options_before(context, "measuring times")
        return
    from attentest.results.figures.figure_file import check_figure_path, save_figure
    from attentest.training.bundled import BUNDLED

    figure = out / "bench.png"
    check_figure_path(figure)
    cuda = device.startswith("cuda")
    unknown = set(size or ()) - {side for _, side in BUNDLED}
    if unknown:
        raise InputError(f"there is no bundled model for images of side {min(unknown)}: use 8, 16, 32 or 64.")
    from attentest.studies.benchmark.old import BenchSettings, run_benchmark
    from attentest.studies.benchmark.old_figure import benchmark_figure

    settings = BenchSettings(
        sizes=tuple(model for model in BUNDLED if not size or model[1] in size),
        images=images,
        grid_images=min(images, (20 if cuda else 2) if grid_images is None else grid_images),
        fixed_images=min(images, (20 if cuda else 1) if fixed_images is None else fixed_images),
        tol=tol,
        device=device,
        seed=seed,
    )
    with progress_bar("benchmark") as progress:
        report = run_benchmark(settings, progress)
    (out / "bench.json").write_text(report.to_json(), encoding="utf-8")
    if as_json:
        sys.stdout.write(report.to_json())
    else:
        _print_benchmark(report)
    save_figure(benchmark_figure(report), figure)
    say(f"report: {out / 'bench.json'}, figure: {figure}")


def _print_benchmark(report: Report) -> None:
    adaptive = {row.model: row.seconds for row in report.rows if row.search == "adaptive"}
    console = table_console()
    headings = (
        "model",
        "search",
        "images",
        "evaluations",
        "s per image",
        "times faster than adaptive",
        "max |dp|",
        "median |dp|",
        "MiB",
    )
    table = Table(*headings, title=f"one p-value, error bar {report.settings['tol']:g}, {report.machine['device']}")
    for row in report.rows:
        table.add_row(
            row.model,
            row.search + (" (extrapolated)" if row.extrapolated else ""),
            str(row.images),
            f"{row.evaluations:.0f}",
            f"{row.seconds:.3g}",
            f"{adaptive[row.model] / row.seconds:.1f}",
            *("" if d is None else f"{d:.1e}" for d in (row.largest_difference, row.median_difference)),
            "" if row.peak_mebibytes is None else f"{row.peak_mebibytes:.0f}",
            end_section=row.search == "fixed",
        )
    console.print(table)
    growth = Table("images together", "ms per image", title="spectral, as the number of images grows")
    for point in report.growth:
        growth.add_row(f"{point['images']:.0f}", f"{1e3 * point['seconds']:.2f}")
    console.print(growth)
    sizes = Table("model", "pixels", "parameters", "ms per image", title="spectral in map, as images and models grow")
    for row in report.rows:
        if row.search.startswith("spectral, map"):
            sizes.add_row(row.model, str(row.pixels), str(row.parameters), f"{1e3 * row.seconds:.2f}")
    console.print(sizes)
    stages = Table("stage", "ms per image", "share", title="time of the stages of the spectral search")
    for name, seconds in report.stages.items():
        stages.add_row(name, f"{1e3 * seconds:.2f}", f"{seconds / report.stages['in all']:.0%}")
    console.print(stages)
