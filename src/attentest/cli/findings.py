"""Printing the verdicts on the paper's statements."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import table_console


def print_findings(summary: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print statements, verdicts and numbers as a table, or with the summary as one JSON object."""
    if as_json:
        from attentest.studies.document import summary_text

        sys.stdout.write(summary_text({**summary, "findings": findings}))
        return
    table = Table("statement", "in the paper", "verdict", "numbers", show_lines=True)
    for finding in findings:
        table.add_row(*(escape(finding[name]) for name in ("statement", "where", "verdict", "numbers")))
    table_console().print(table)
