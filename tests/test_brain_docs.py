"""The documentation of the brain study says what the summary beside it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attentest import AttentionTest, bundled_model
from attentest.search import SpectralSearch
from attentest.studies.brain.condition import CONDITIONS
from attentest.studies.brain.page import render_markdown

DOCS = Path(__file__).parents[1] / "docs" / "brain"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "summary.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def text() -> str:
    """The discussion, in one line."""
    return " ".join((DOCS / "README.md").read_text(encoding="utf-8").split())


def test_the_page_follows_from_its_summary(summary: dict[str, Any]) -> None:
    page = (DOCS / "brain.md").read_text(encoding="utf-8")
    assert page == render_markdown(summary), "make it anew: attentest brain"
    for figure in re.findall(r"\]\((figures/[^)]+)\)", page):
        assert (DOCS / figure).is_file()
    assert [one["name"] for one in summary["conditions"]] == [condition.name for condition in CONDITIONS]


def test_nothing_of_the_dataset_is_here(summary: dict[str, Any]) -> None:
    assert {path.suffix for path in DOCS.rglob("*") if path.is_file()} == {".md", ".json", ".png"}
    assert not [path.name for path in DOCS.rglob("*.png") if path.name.startswith("gallery")]
    assert "TCGA_" not in json.dumps(summary)


def test_the_discussion_has_the_numbers_of_the_study(summary: dict[str, Any], text: str) -> None:
    by_name = {one["name"]: one for one in summary["conditions"]}

    def share(condition: str, name: str, test: str = "selective") -> float:
        return float(100 * by_name[condition]["classes"][name]["rates"][test]["0.05"]["value"])

    paper = by_name["pooled-background-0.6"]
    rows = {name: paper["classes"][name]["rates"]["selective"]["0.05"] for name in ("tumour", "free")}
    intervals = [
        f"{100 * one['value']:.0f}% [{100 * one['low']:.0f}, {100 * one['high']:.0f}]" for one in rows.values()
    ]
    medians = [f"{paper['classes'][name]['quantiles'][50]:.2f}" for name in ("tumour", "free")]
    auc = summary["classifier"]["performance"]
    fall = {one["name"]: float(np.median(one["fall"])) for one in summary["room"]}
    for sentence in (
        f"| selective p at most 0.05 | {intervals[0]} | {intervals[1]} |",
        f"| median selective p | {medians[0]} | {medians[1]} |",
        f"smaller p with probability {paper['separation']:.2f}",
        f"0.962 [{auc['auc_interval'][0]:.3f}, {auc['auc_interval'][1]:.3f}]",
        f"exp({fall['pooled-background-0.6']:.1f})",
        f"exp({fall['stationary-background-0.6']:.1f})",
        f"naive test rejects only {share('stationary-reference-0.6', 'free', 'naive'):.1f}% of them, and "
        f"{share('stationary-reference-0.6', 'tumour', 'naive'):.0f}%",
        f"the selective test {share('stationary-reference-0.6', 'free'):.1f}% and "
        f"{share('stationary-reference-0.6', 'tumour'):.1f}%",
        f"{share('pooled-reference-0.6', 'tumour'):.0f}% against {share('pooled-reference-0.6', 'free'):.0f}% are",
        f"neighbourhood {share('pooled-neighbourhood-0.6', 'tumour'):.0f}% against "
        f"{share('pooled-neighbourhood-0.6', 'free'):.0f}% are rejected",
        f"tau 0.4 rejects {share('pooled-background-0.4', 'tumour'):.0f}% and "
        f"{share('pooled-background-0.4', 'free'):.0f}%, tau 0.8 {share('pooled-background-0.8', 'tumour'):.0f}% and "
        f"{share('pooled-background-0.8', 'free'):.0f}%",
        f"median IoU is {summary['overlap']['iou']['median']:.2f}",
        f"Spearman's {summary['overlap']['spearman']:.2f}",
    ):
        assert sentence in text, sentence


def test_the_recipe_for_an_own_classifier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    rng = np.random.default_rng(0)
    made = AttentionTest.from_pretrained

    def coarse(source: str, **options: Any) -> AttentionTest:
        assert source == "my-vit"
        return made(bundled_model(16), search=SpectralSearch(tol=0.1), confidence_level=None, **options)

    monkeypatch.setattr(AttentionTest, "from_pretrained", coarse)
    known = {"controls": rng.normal(size=(20, 16, 16)), "scans": rng.normal(size=(3, 16, 16))}
    exec(code, known)
    assert len(known["results"]) == 3
    assert all(0 < one.pvalue <= 1 for one in known["results"])
