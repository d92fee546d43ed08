"""Printing the verdicts on the paper's statements."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import say, table_console
from attentest.errors import counted


def print_findings(summary: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the statements with data, verdicts and numbers as a table, or all with the summary as one JSON object."""
    from attentest.studies.document import split_by_data, summary_text

    if as_json:
        sys.stdout.write(summary_text({**summary, "findings": findings}))
        return
    table = Table("statement", "in the paper", "verdict", "numbers", show_lines=True)
    shown, without_data = split_by_data(findings)
    for finding in shown:
        table.add_row(*(escape(finding[name]) for name in ("statement", "where", "verdict", "numbers")))
    table_console().print(table)
    if without_data:
        say(f"{counted(len(without_data), 'other statement')}: no data")
