"""The page in the documentation is what the summary beside it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attentest.studies.reproduction.page import render_markdown

PAGE = Path(__file__).parents[1] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAGE / "summary.json").read_text(encoding="utf-8"))
    return found


def test_the_page_follows_from_its_summary(summary: dict[str, Any]) -> None:
    text = (PAGE / "reproduction.md").read_text(encoding="utf-8")
    assert text == render_markdown(summary), "make it anew: attentest reproduce report"
    for figure in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (PAGE / figure).is_file()


def test_the_selective_test_is_within_its_band_in_all_settings(summary: dict[str, Any]) -> None:
    own = [entry for entry in summary["experiments"]["type-i-error"]["settings"] if not entry["published"]]
    assert len(own) == 14
    for setting in own:
        assert setting["images"] == 1000
        assert setting["failed"] == 0
        assert setting["tests"]["selective"]["within_band"]


def test_models_that_are_not_bundled_have_their_records_here(summary: dict[str, Any]) -> None:
    hashes = {entry["model"]: entry["sha256"] for entry in summary["models"] if not entry["published"]}
    for model in ("large16", "huge16"):
        record = json.loads((PAGE / "models" / model / "training.json").read_text(encoding="utf-8"))
        assert [record["weights_sha256"]] == hashes[model]
