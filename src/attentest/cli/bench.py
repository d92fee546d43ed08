"""``attentest bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.bench_counts import counts
from attentest.cli.command import Command
from attentest.cli.interruption import on_interrupt
from attentest.cli.option_names import option_names
from attentest.cli.options import OUTPUT, DeviceOption, ReportJsonOption, SeedOption
from attentest.cli.output import print_json, progress_bar, say
from attentest.cli.subcommand import refuse_options_before
from attentest.errors import InputError, counted
from attentest.registry import COMPARISONS

if TYPE_CHECKING:
    from attentest.studies.benchmark.history import Change, Run

CPU_IMAGES, CUDA_IMAGES = 10, 1000
CPU_GRID_IMAGES, CUDA_GRID_IMAGES = 2, 10

bench = typer.Typer(name="bench", invoke_without_command=True)
bench.command(cls=Command)(counts)


@bench.callback()
def run(
    context: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this comparison; repeatable.", metavar="NAME", show_default="all"),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of the images, and so the bundled model: 8, 16, 32 or 64.")] = 16,
    images: Annotated[
        int | None,
        typer.Option(
            help="Null images that are tested together.",
            metavar="N",
            show_default=f"{CPU_IMAGES}, or {CUDA_IMAGES} with CUDA",
        ),
    ] = None,
    grid_images: Annotated[
        int | None,
        typer.Option(
            help="Images for the paper's searches and the authors' package, which take long.",
            metavar="N",
            show_default=f"{CPU_GRID_IMAGES}, or {CUDA_GRID_IMAGES} with CUDA",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often both sides of a ratio are timed.")] = 3,
    tol: Annotated[float, typer.Option(help="Width of the error bar of the spectral search.")] = 1e-4,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    history: Annotated[
        Path,
        typer.Option(
            help="File to which the run is added, and with whose last run on this machine with these settings it is "
            "compared.",
            metavar="FILE.jsonl",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("bench/history.jsonl"),
    figure: Annotated[
        Path | None,
        typer.Option(help="Picture of the history (.png, .svg, .pdf).", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    as_json: ReportJsonOption = False,
) -> None:
    """Measure what a test costs, as ratios of times, evaluations and memory that are measured side by side.

    All comparisons together take some minutes on two idle cores. Both sides of a ratio are run alternately, and the
    median of a few repeats is taken, so that a busy machine changes a ratio far less than a time. What became slower
    than in the last run is marked: times by more than 25%, evaluations by more than 10%.

    Examples:
    attentest bench

    attentest bench --only interval --only model --size 8

    attentest bench --device cuda --images 10000 --figure bench.png
    """
    if context.invoked_subcommand is not None:
        refuse_options_before(context, "measuring times")
        return
    for name in only or ():
        if name not in COMPARISONS:
            raise InputError(f"--only must be {COMPARISONS.choices()}, got {name!r}.")
    if figure is not None:
        from attentest.presentation.figure import check_figure_path

        with option_names({"the file name of the figure": "--figure"}):
            check_figure_path(figure)
    with on_interrupt(f"nothing was added to {history}, to which a run is added when all of it is measured."):
        from attentest.studies.benchmark.history import (
            add_to_history,
            changes,
            check_history_path,
            damage_note,
            read_history,
            run_benchmark,
        )
        from attentest.studies.benchmark.measurement import BenchSettings

        cuda = device.startswith("cuda")
        count = (CUDA_IMAGES if cuda else CPU_IMAGES) if images is None else images
        few = (CUDA_GRID_IMAGES if cuda else CPU_GRID_IMAGES) if grid_images is None else grid_images
        settings = BenchSettings(
            size=size,
            images=count,
            grid_images=min(count, few) if grid_images is None else few,
            repeats=repeats,
            tol=tol,
            device=device,
            seed=seed,
        )
        with option_names({"the file name of the history": "--history"}):
            check_history_path(history)
        past = read_history(history)
        if past.damaged:
            say(f"attentest: note: {damage_note(history, past.damaged)}")
        with progress_bar("benchmark") as progress:
            done = run_benchmark(settings, tuple(dict.fromkeys(only or ())), progress)
        found = changes(done, past)
        add_to_history(history, done)
    with on_interrupt(f"the run was added to {history}."):
        if as_json:
            print_json({**done.as_dict(), "changes": [_as_dict(change) for change in found.values()]})
        else:
            from attentest.cli.bench_table import print_run

            print_run(done, found)
        _say_more(done, found)
        say(f"history: {history}, {counted(len(past.runs) + 1, 'run')}")
        if figure is not None:
            from attentest.presentation.figure import save_figure
            from attentest.studies.benchmark.history import history_figure

            save_figure(history_figure([*past.runs, done]), figure)
            say(f"figure: {figure}")


def _say_more(done: Run, changes: dict[tuple[str, ...], Change]) -> None:
    """Say what was left out, and what became slower."""
    for name, reason in done.left_out.items():
        say(f"{name} was left out: {reason}")
    if slower := [change.now for change in changes.values() if change.slower]:
        say(f"slower than the last time: {'; '.join(f'{one.of} ({one.quantity})' for one in slower)}")


def _as_dict(change: Change) -> dict[str, object]:
    now = change.now
    return {
        "comparison": now.comparison,
        "of": now.of,
        "over": now.over,
        "quantity": now.quantity,
        "ratio_before": change.before.ratio,
        "numerator_before": change.before.numerator,
        "factor": change.factor,
        "slower": change.slower,
    }
