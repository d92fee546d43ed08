"""What is written and printed after a run over many images: tables, verdicts, failures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attentest.cli.image_names import shown
from attentest.cli.output import say
from attentest.cli.result_table import print_component_table, print_table

if TYPE_CHECKING:
    from attentest.results.rows import ImageRows, Row

MOST_ROWS = 200
"""Largest number of images in the table that is printed; files have all of them."""

COMPLETE = ("--csv", "--json")
"""Options that give every number of every image."""

MOST_REASONS = 10
"""Largest number of images that could not be tested whose reasons are printed."""


def write_tables(rows: ImageRows, components: bool, csv: Path | None, parquet: Path | None) -> None:
    """Write the table of all images, with adjusted p-values: those of components are adjusted within their image."""
    from attentest.presentation.tables import write_csv, write_parquet
    from attentest.results.rows import columns_of, pvalues_of, with_adjusted

    if csv is None and parquet is None:
        return
    columns = columns_of(rows.all() if components else with_adjusted(rows.all(), pvalues_of(rows.all())))
    for path, write in ((csv, write_csv), (parquet, write_parquet)):
        if path is not None:
            write(columns, path)
            say(f"table: {path}")


def print_results(rows: ImageRows, components: bool, alpha: float, confidence_level: float | None) -> None:
    """Print the table and, of several images, a summary."""
    from attentest.results.rows import pvalues_of

    first = list(islice(rows, MOST_ROWS))
    if components:
        print_component_table(first, alpha, confidence_level, COMPLETE)
        return
    print_table([row for some in first for row in some], alpha, confidence_level, COMPLETE)
    if len(rows) > len(first):
        say(f"attentest: note: the table has the first {len(first)} of {len(rows)} images; --csv has all.")
    known = pvalues_of(rows.all())
    if len(known) > 1:
        typer.echo(known.summary(alpha))


def say_failures(failed: Sequence[Row], count: int, stack: bool) -> None:
    """Say which images could not be tested, and why."""
    from attentest.images.image_source import looks_like_a_stack

    for row in failed[:MOST_REASONS]:
        name, reason = shown(row["image"]), shown(row["error"])
        say(f"attentest: {reason if reason.startswith(name) else f'{name}: {reason}'}")
    if failed and count > 1:
        say(f"attentest: {len(failed)} of {count} images could not be tested; the rows of --csv and --json say why.")
    if not stack and any(looks_like_a_stack(Path(row["image"])) for row in failed):
        say("attentest: note: a file that holds several images needs --stack.")
