"""``attentest bench``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from attentest.cli.command import Command, refuse_options_before
from attentest.cli.options import OUTPUT, DeviceOption, ReportJsonOption, SeedOption, named_by_options
from attentest.cli.output import fail, on_interrupt, print_json, progress_bar, say
from attentest.errors import InputError, counted
from attentest.registry import COMPARISONS

if TYPE_CHECKING:
    from attentest.studies.benchmark.counts import Count
    from attentest.studies.benchmark.history import Change, Run
    from attentest.studies.benchmark.measurement import Quantity, Ratio


TOO_MANY_CODE = 1
"""Exit code if a case takes too many evaluations."""


def counts(
    record: Annotated[
        Path | None,
        typer.Option(help="Write the counts of this run to a file, instead of failing.", metavar="FILE.json"),
    ] = None,
    as_json: ReportJsonOption = False,
) -> None:
    r"""Count the model evaluations of a few small cases, and fail if one takes twice those recorded.

    For example:

    ```
    attentest bench counts
    attentest bench counts \
        --record src/attentest/studies/benchmark/recorded_counts.json
    ```

    Takes half a minute. Counts hardly depend on the machine, unlike times: this is what CI runs. The recorded ones
    came with attentest; after a change of the search, --record writes new ones.
    """
    from attentest.files import check_output_path
    from attentest.studies.benchmark.counts import COMMAND, MUCH_LOWER, TOO_MANY, read_record, write_record
    from attentest.studies.benchmark.counts import counts as counted

    recorded: dict[str, float] = {}
    if record is not None:
        check_output_path(record, "the record", (".json",))
    with nullcontext() if record is None else suppress(InputError):  # a new record mends a damaged one
        recorded = read_record()
    with progress_bar("counting evaluations") as progress:
        found = list(counted(recorded, progress))
    if as_json:
        print_json({"counts": [{**asdict(one), "ratio": one.ratio} for one in found]})
    else:
        _print_counts(found)
    if record is not None:
        write_record(found, record)
        say(f"record: {record}")
        return
    if lower := [one.case for one in found if one.much_lower]:
        say(
            f"less than {MUCH_LOWER:g} times the recorded evaluations, so record them again ({COMMAND}): {_list(lower)}"
        )
    if unknown := [one.case for one in found if one.recorded is None]:
        fail(f"no evaluations are recorded for {_list(unknown)}: record them ({COMMAND}).", TOO_MANY_CODE)
    if many := [one for one in found if one.too_many]:
        cases = _list([f"{one.case} ({one.evaluations:.0f}, recorded {one.recorded:.0f})" for one in many])
        fail(
            f"at least {TOO_MANY:g} times the recorded evaluations per image: {cases}: mend the search or, if this is "
            f"meant, record them again ({COMMAND}).",
            TOO_MANY_CODE,
        )


def _list(names: list[str]) -> str:
    return "; ".join(names)


def _print_counts(found: list[Count]) -> None:
    from attentest.presentation.tables import Column, print_table

    styles = ["bold red" if count.too_many else "green" if count.much_lower else "" for count in found]
    columns = {
        "case": [count.case for count in found],
        "images": [str(count.images) for count in found],
        "now": [f"{count.evaluations:.1f}" for count in found],
        "recorded": ["" if count.recorded is None else f"{count.recorded:.1f}" for count in found],
        "ratio": ["" if count.ratio is None else f"{count.ratio:.2f}" for count in found],
    }
    print_table(
        [
            Column(heading=heading, cells=list(map(Text, cells, styles)), is_text=heading == "case")
            for heading, cells in columns.items()
        ],
        title="model evaluations per image",
    )


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

    For example:

    ```
    attentest bench
    attentest bench --only interval --only model --size 8
    attentest bench --device cuda --images 10000 --figure bench.png
    ```

    All comparisons together take some minutes on two idle cores. Both sides of a ratio are run alternately, and the
    median of a few repeats is taken, so that a busy machine changes a ratio far less than a time. What became slower
    than in the last run is marked: times by more than 25%, evaluations by more than 10%.
    """
    if context.invoked_subcommand is not None:
        refuse_options_before(context, "measuring times")
        return
    for name in only or ():
        if name not in COMPARISONS:
            raise InputError(f"--only must be {COMPARISONS.choices()}, got {name!r}.")
    if figure is not None:
        from attentest.presentation.figure import check_figure_path

        with named_by_options({"the file name of the figure": "--figure"}):
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
        with named_by_options({"the file name of the history": "--history"}):
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


UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

SMALL_RATIO = 0.05
"""A ratio below this is printed as a fraction such as 1/39."""


def print_run(run: Run, changes: dict[tuple[str, ...], Change]) -> None:
    """Print what a run measured, beside what it should be and what it was the last time."""
    from attentest.presentation.tables import Column, print_table

    settings, machine = run.settings, run.machine
    size = settings["size"]
    before = [None, *(ratio.key[:3] for ratio in run.ratios)]
    names = [
        "" if ratio.key[:3] == previous else f"{ratio.of} / {ratio.over}"
        for ratio, previous in zip(run.ratios, before, strict=False)
    ]
    columns: dict[str, Sequence[str | Text]] = {
        "what / over what": names,
        "cost": [amount(ratio.numerator, ratio.quantity) for ratio in run.ratios],
        "over": [amount(ratio.denominator, ratio.quantity) for ratio in run.ratios],
        "ratio": [Text(shown_ratio(ratio.ratio), style=_style(ratio)) for ratio in run.ratios],
        "goal": [_shown_goal(ratio) for ratio in run.ratios],
        "change": [_shown_change(changes.get(ratio.key)) for ratio in run.ratios],
    }
    print_table(
        [Column(heading=heading, cells=cells, is_text=cells is names) for heading, cells in columns.items()],
        title=f"{size}x{size} model, {counted(settings['images'], 'image')}, tol {settings['tol']:g}; "
        f"{machine['device']}, {counted(machine['threads'], 'thread')}",
        caption="Costs are per image, those of a forward pass per evaluation, and less is better.",
        groups=list(Counter(ratio.comparison for ratio in run.ratios).values()),
    )


def amount(value: float, quantity: Quantity) -> str:
    """Return a cost with its unit."""
    if quantity == "evaluations":
        return f"{value:,.0f} eval."
    if quantity == "bytes":
        mebibytes = value / 2**20
        return f"{mebibytes:,.0f} MiB" if mebibytes >= 100 else f"{mebibytes:.3g} MiB"
    unit, size = next((unit, size) for unit, size in UNITS if value >= size or unit == "us")
    return f"{value / size:.3g} {unit}"


def shown_ratio(ratio: float) -> str:
    """Return a ratio, as a fraction such as 1/39 if it is small."""
    return f"1/{1 / ratio:.0f}" if ratio < SMALL_RATIO else f"{ratio:.3g}"


def _style(ratio: Ratio) -> str:
    return "" if ratio.goal is None else "green" if ratio.ratio <= ratio.goal else "yellow"


def _shown_goal(ratio: Ratio) -> str:
    if ratio.goal is None:
        return ""
    return f"{shown_ratio(ratio.goal)}{'' if ratio.ratio <= ratio.goal else ', missed'}"


def _shown_change(change: Change | None) -> Text:
    """Return how a ratio changed since the last run."""
    if change is None:
        return Text()
    percent = f"{100 * (change.factor - 1):+.0f}%"
    return Text(f"slower {percent}", style="bold red") if change.slower else Text(percent)
