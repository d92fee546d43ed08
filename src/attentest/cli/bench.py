"""``attentest bench``."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from attentest.cli.command import Command, refuse_options_before, with_options
from attentest.cli.options import device_option, json_option, output_option, seed_option
from attentest.cli.output import (
    check_figure,
    fail,
    on_interrupt,
    print_columns,
    print_json,
    progress_bar,
    say,
    write_figure,
)
from attentest.definition import option
from attentest.errors import InputError, counted
from attentest.registry import COMPARISONS

if TYPE_CHECKING:
    from attentest.studies.benchmark.measurement import Change, Quantity, Run
    from attentest.studies.benchmark.own_process import Growth


TOO_MANY_CODE = 1  # exit code if a case takes too many evaluations
SMALL_RATIO = 0.05  # a ratio below this is printed as a fraction such as 1/39

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

CPU_IMAGES, CUDA_IMAGES = 10, 1000
CPU_GRID_IMAGES, CUDA_GRID_IMAGES = 2, 10


def counts(
    record: Path | None = option("Write the counts of this run to a file, instead of failing.", metavar="FILE.json"),
    as_json: bool = json_option(),
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
    from attentest.studies.benchmark.counts import COMMAND, MUCH_LOWER, TOO_MANY, case_counts, read_record, write_record

    recorded: dict[str, float] = {}
    if record is not None:
        check_output_path(record, "the record", (".json",))
    with nullcontext() if record is None else suppress(InputError):  # a new record mends a damaged one
        recorded = read_record()
    with progress_bar("counting evaluations") as progress:
        measured = list(case_counts(recorded, progress))
    many = [count for count in measured if count.ratio is not None and count.ratio >= TOO_MANY]
    lower = [count for count in measured if count.ratio is not None and count.ratio < MUCH_LOWER]
    if as_json:
        print_json({"counts": [{**count._asdict(), "ratio": count.ratio} for count in measured]})
    else:
        styles = ["bold red" if count in many else "green" if count in lower else "" for count in measured]
        columns = {
            "case": [count.case for count in measured],
            "images": [str(count.images) for count in measured],
            "now": [f"{count.evaluations:.1f}" for count in measured],
            "recorded": ["" if count.recorded is None else f"{count.recorded:.1f}" for count in measured],
            "ratio": ["" if count.ratio is None else f"{count.ratio:.2f}" for count in measured],
        }
        styled = {heading: list(map(Text, cells, styles)) for heading, cells in columns.items()}
        print_columns(styled, ["case"], title="model evaluations per image")
    if record is not None:
        write_record(measured, record)
        say(f"record: {record}")
        return
    if lower:
        cases = "; ".join(count.case for count in lower)
        say(f"less than {MUCH_LOWER:g} times the recorded evaluations, so record them again ({COMMAND}): {cases}")
    if unknown := "; ".join(count.case for count in measured if count.recorded is None):
        fail(f"no evaluations are recorded for {unknown}: record them ({COMMAND}).", TOO_MANY_CODE)
    if many:
        cases = "; ".join(f"{count.case} ({count.evaluations:.0f}, recorded {count.recorded:.0f})" for count in many)
        fail(
            f"at least {TOO_MANY:g} times the recorded evaluations per image: {cases}: mend the search or, if this is "
            f"meant, record them again ({COMMAND}).",
            TOO_MANY_CODE,
        )


bench = typer.Typer(name="bench", invoke_without_command=True)
bench.command(cls=Command)(with_options(counts))


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, on what, and where it goes."""

    only: list[str] | None = option("Only this comparison; repeatable.", shown_default="all")
    size: int = option("Side of the images, and so the bundled model: 8, 16, 32 or 64.", default=16, metavar="<int>")
    images: int | None = option(
        "Null images that are tested together.", shown_default=f"{CPU_IMAGES}, or {CUDA_IMAGES} with CUDA"
    )
    grid_images: int | None = option(
        "Images for the paper's searches and the authors' package, which take long.",
        shown_default=f"{CPU_GRID_IMAGES}, or {CUDA_GRID_IMAGES} with CUDA",
    )
    repeats: int = option("How often both sides of a ratio are timed.", default=3, metavar="<int>")
    tol: float = option("Width of the error bar of the spectral search.", default=1e-4, metavar="<float>")
    seed: int = seed_option()
    device: str = device_option()
    history: Path = output_option(
        "File to which the run is added, and with whose last run on this machine with these settings it is compared.",
        default=Path("bench/history.jsonl"),
        metavar="FILE.jsonl",
    )
    figure: Path | None = output_option("Picture of the history or of scaling (.png, .svg, .pdf).")
    as_json: bool = json_option()


@bench.callback()
@with_options
def run(context: typer.Context, asked: BenchOptions) -> None:
    """Measure what a test costs, as ratios of times, evaluations and memory that are measured side by side.

    For example:

    ```
    attentest bench
    attentest bench --only interval --only model --size 8
    attentest bench --device cuda --images 10000 --figure bench.png
    attentest bench --only scaling --figure scaling.png
    ```

    All comparisons together take some minutes on two idle cores. Both sides of a ratio are run alternately, and the
    median of a few repeats is taken, so that a busy machine changes a ratio far less than a time. What became slower
    than in the last run is marked: times by more than 25%, evaluations by more than 10%.
    """
    if context.invoked_subcommand is not None:
        refuse_options_before(context, "measuring times")
        return
    for name in asked.only or ():
        if name not in COMPARISONS:
            raise InputError(f"--only must be {COMPARISONS.choices()}, got {name!r}.")
    history, figure, device = asked.history, asked.figure, asked.device
    check_figure(figure)
    with on_interrupt(f"nothing was added to {history}, to which a run is added when all of it is measured."):
        from attentest.runs.record_lines import add_line
        from attentest.studies.benchmark.measurement import (
            SCALING,
            BenchSettings,
            changes,
            check_history_path,
            damage_note,
            history_figure,
            read_history,
            run_benchmark,
        )
        from attentest.studies.benchmark.own_process import growths, scaling_figure

        cuda = device.startswith("cuda")
        count = (CUDA_IMAGES if cuda else CPU_IMAGES) if asked.images is None else asked.images
        few = min(count, CUDA_GRID_IMAGES if cuda else CPU_GRID_IMAGES)
        same: dict[str, Any] = {name: getattr(asked, name) for name in ("size", "repeats", "tol", "seed", "device")}
        grid_images = few if asked.grid_images is None else asked.grid_images
        settings = BenchSettings(images=count, grid_images=grid_images, **same)
        check_history_path(history)
        past, damaged = read_history(history)
        if damaged:
            say(f"attentest: note: {damage_note(history, damaged)}")
        with progress_bar("benchmark") as progress:
            done = run_benchmark(settings, tuple(dict.fromkeys(asked.only or ())), progress)
        changed = changes(done, past)
        add_line(history, done.as_dict())
    with on_interrupt(f"the run was added to {history}."):
        sizes, ratios = growths(done), tuple(ratio for ratio in done.ratios if ratio.comparison != SCALING)
        if asked.as_json:
            listed = {"changes": [change.as_dict() for change in changed.values()]}
            print_json({**done.as_dict(), **listed, "exponents": [growth._asdict() for growth in sizes]})
        else:
            if ratios or not sizes:
                print_run(replace(done, ratios=ratios), changed)
            if sizes:
                print_growths(sizes)
        for name, reason in done.left_out.items():
            say(f"{name} was left out: {reason}")
        if slower := [change.now for change in changed.values() if change.slower]:
            say(f"slower than the last time: {'; '.join(f'{ratio.of} ({ratio.quantity})' for ratio in slower)}")
        say(f"history: {history}, {counted(len(past) + 1, 'run')}")
        write_figure(figure, lambda: scaling_figure(done) if sizes and not ratios else history_figure([*past, done]))


def print_run(run: Run, changes: dict[tuple[str, ...], Change]) -> None:
    """Print what a run measured, beside what it should be and what it was the last time."""
    rows: list[tuple[str | Text, ...]] = []
    previous = None
    for ratio in run.ratios:
        name = "" if ratio.key[:3] == previous else f"{ratio.of} / {ratio.over}"
        previous, met = ratio.key[:3], ratio.goal is None or ratio.ratio <= ratio.goal
        style = "" if ratio.goal is None else "green" if met else "yellow"
        goal = "" if ratio.goal is None else f"{shown_ratio(ratio.goal)}{'' if met else ', missed'}"
        change = Text()
        if (known := changes.get(ratio.key)) is not None:
            percent = f"{100 * (known.factor - 1):+.0f}%"
            change = Text(f"slower {percent}", style="bold red") if known.slower else Text(percent)
        costs = (amount(cost, ratio.quantity) for cost in (ratio.numerator, ratio.denominator))
        rows.append((name, *costs, Text(shown_ratio(ratio.ratio), style=style), goal, change))
    headings = ("what / over what", "cost", "over", "ratio", "goal", "change")
    size, images, tol = (run.settings[name] for name in ("size", "images", "tol"))
    print_columns(
        {heading: [row[place] for row in rows] for place, heading in enumerate(headings)},
        headings[:1],
        title=f"{size}x{size} model, {counted(images, 'image')}, tol {tol:g}; "
        f"{run.machine['device']}, {counted(run.machine['threads'], 'thread')}",
        caption="Costs are per image, those of a forward pass per evaluation, and less is better.",
        groups=list(Counter(ratio.comparison for ratio in run.ratios).values()),
    )


def print_growths(growths: list[Growth]) -> None:
    """Print the costs of all sizes, and with the smallest of each kind the fitted exponents."""
    names = list(dict.fromkeys(growth.against for growth in growths))
    by_cost = {(growth.against, growth.quantity): growth for growth in growths}
    rows: list[tuple[str, ...]] = []
    for name in names:
        pair = (by_cost[name, "seconds"], by_cost.get((name, "bytes")))
        for place, size in enumerate(pair[0].sizes):
            costs = (amount(growth.costs[place], growth.quantity) if growth else "" for growth in pair)
            powers = (growth.power if growth and place == 0 else "" for growth in pair)
            rows.append((name if place == 0 else "", f"{size:,}", *costs, *powers))
    headings = ("against", "size", "time", "memory", "exponent of time", "of memory")
    print_columns(
        dict(zip(headings, zip(*rows, strict=True), strict=True)),
        headings[:1],
        title="p alone of models with random weights, all images of a size",
        caption="Exponents are fitted by least squares in logarithms; standard errors are in brackets.",
        groups=[len(by_cost[name, "seconds"].sizes) for name in names],
    )


def amount(value: float, quantity: Quantity) -> str:
    """Return a cost with its unit."""
    if quantity == "evaluations":
        return f"{value:,.0f} eval."
    if quantity == "bytes":
        mebibytes = value / 2**20
        return f"{mebibytes:,.0f} MiB" if mebibytes >= 100 else f"{mebibytes:.3g} MiB"
    return next(f"{value / size:.3g} {unit}" for unit, size in UNITS if value >= size or unit == "us")


def shown_ratio(ratio: float) -> str:
    """Return a ratio, as a fraction such as 1/39 if it is small."""
    return f"1/{1 / ratio:.0f}" if ratio < SMALL_RATIO else f"{ratio:.3g}"
