"""The page in the documentation shows the numbers of the summary beside it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from attentest.studies.document import markdown, split_by_data
from attentest.studies.paper_model import SERIES_MODELS, is_bundled
from attentest.studies.reproduction.page import FIGURES, command_of, render_markdown
from attentest.studies.reproduction.statements import findings
from attentest.training.bundled import BUNDLED_SERIES

PAGE = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAGE / "summary.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def page() -> str:
    return (PAGE / "reproduction.md").read_text(encoding="utf-8")


def numbers(line: str) -> Counter[str]:
    """The numbers of a line, whatever the words between them."""
    return Counter(re.findall(r"\d[\d.,]*(?:e[-+]\d+)?", line))


def test_every_statement_is_on_the_page_with_its_verdict_and_numbers(summary: dict[str, Any], page: str) -> None:
    found, without = split_by_data(findings(summary))
    for finding in without:
        assert f"- {markdown(finding['statement'])} (" in page
    for statement in {finding["statement"] for finding in found}:
        about = [line for line in page.splitlines() if markdown(statement) in line]
        same = [finding for finding in found if finding["statement"] == statement]  # of our tests, in two experiments
        assert about, statement
        for line in about:
            assert any(
                f"**{finding['verdict']}" in line.lower() and numbers(finding["numbers"]) <= numbers(line)
                for finding in same
            )
        for finding in same:
            assert any(numbers(finding["numbers"]) <= numbers(line) for line in about)


def test_every_table_is_on_the_page_with_its_numbers(summary: dict[str, Any], page: str) -> None:
    shown = [numbers(line) for line in page.splitlines() if line.startswith("|")]
    rows = [line for line in render_markdown(summary).splitlines() if line.startswith("|") and "**" not in line]
    assert len(rows) > 200
    for row in rows:
        assert numbers(row) in shown, row


def test_every_figure_is_on_the_page(summary: dict[str, Any], page: str) -> None:
    shown = re.findall(r"\]\(figures/([^)]+)\.png\)", page)
    assert sorted(shown) == sorted(figure.name for figure in FIGURES if figure.settings(summary))
    for name in shown:
        assert (PAGE / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_every_experiment_has_its_command(summary: dict[str, Any], page: str) -> None:
    for name in summary["experiments"]:
        assert command_of(name, summary) in page


@pytest.mark.parametrize("experiment", ["type-i-error", "series-type-i-error"])
def test_the_selective_test_is_within_its_band_in_all_settings(summary: dict[str, Any], experiment: str) -> None:
    own = [entry for entry in summary["experiments"][experiment]["settings"] if not entry["published"]]
    assert len(own) == 14
    for setting in own:
        assert setting["images"] == 1000
        assert setting["failed"] == 0
        assert setting["tests"]["selective"]["within_band"]


def test_models_that_are_not_bundled_have_their_records_here(summary: dict[str, Any]) -> None:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (PAGE / "models").glob("*/training.json")]
    trained = [entry for entry in summary["models"] if not entry["published"] and not is_bundled(entry["model"])]
    used = [sha256 for entry in trained for sha256 in entry["sha256"]]
    assert {"large16", "huge16"} | {*SERIES_MODELS} - {BUNDLED_SERIES} == {entry["model"] for entry in trained}
    assert sorted(record["weights_sha256"] for record in records) == sorted(used)
