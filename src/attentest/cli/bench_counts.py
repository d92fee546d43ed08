"""``attentest bench counts``."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from attentest.cli.options import ReportJsonOption
from attentest.cli.output import fail, print_json, progress_bar, say, table_console
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.studies.benchmark.counts import Count

TOO_MANY_CODE = 1
"""Exit code if a case takes too many evaluations."""


def counts(
    record: Annotated[
        Path | None,
        typer.Option(help="Write the counts of this run to a file, instead of failing.", metavar="FILE.json"),
    ] = None,
    as_json: ReportJsonOption = False,
) -> None:
    """Count the model evaluations of a few small cases, and fail if one takes twice those recorded.

    Takes half a minute. Counts hardly depend on the machine, unlike times: this is what CI runs. The recorded ones
    came with attentest; after a change of the search, --record writes new ones.

    Examples:
    attentest bench counts

    attentest bench counts --record src/attentest/studies/benchmark/recorded_counts.json
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
    table = Table("case", title="model evaluations per image", title_justify="left")
    for heading in ("images", "now", "recorded", "ratio"):
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(
            one.case,
            str(one.images),
            f"{one.evaluations:.1f}",
            "" if one.recorded is None else f"{one.recorded:.1f}",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            style="bold red" if one.too_many else "green" if one.much_lower else None,
        )
    table_console().print(table)
