"""The documentation of the brain study agrees with the summary beside it."""

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
from brain_page import expected, figures_of, plain

DOCS = Path(__file__).parents[2] / "docs" / "brain"
SLICE, RING = "stationary-background-0.6-gamma1", "stationary-neighbourhood-0.6-patches-gamma1"
IN_THE_TABLE = [
    f"{noise}-{contrast}-0.6{way}"
    for contrast in ("background", "reference")
    for noise in ("pooled", "stationary")
    for way in ("", "-gamma1", "-patches", "-patches-gamma1")
]


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "summary.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def discussion() -> str:
    """The discussion, in one line."""
    return " ".join((DOCS / "README.md").read_text(encoding="utf-8").split())


def test_the_page_shows_its_summary(summary: dict[str, Any]) -> None:
    page = (DOCS / "brain.md").read_text(encoding="utf-8")
    assert [text for text in expected(summary) if text not in plain(page)] == []
    assert figures_of(page) == {path.stem for path in (DOCS / "figures").iterdir()}
    tested = [one["name"] for one in summary["conditions"]]
    assert tested == [condition.name for condition in CONDITIONS][: len(tested)]
    assert len(tested) >= sum(not condition.ours for condition in CONDITIONS)


def test_nothing_of_the_dataset_is_here(summary: dict[str, Any]) -> None:
    assert {path.suffix for path in DOCS.rglob("*") if path.is_file()} == {".md", ".json", ".png"}
    assert not [path.name for path in DOCS.rglob("*.png") if path.name.startswith("gallery")]
    assert "TCGA_" not in json.dumps(summary)


def test_the_discussion_has_the_numbers_of_the_study(summary: dict[str, Any], discussion: str) -> None:
    by_name = {one["name"]: one for one in summary["conditions"]}
    classes = ("tumour", "free")

    def rates(condition: str, test: str = "selective") -> list[float]:
        return [by_name[condition]["classes"][name]["rates"][test]["0.05"]["value"] for name in classes]

    def percent(rate: float) -> str:
        return f"{100 * rate:.{0 if rate >= 0.1 else 1}f}"

    def shares(condition: str, test: str = "selective", digits: int = 0) -> list[str]:
        return [f"{100 * rate:.{digits}f}%" for rate in rates(condition, test)]

    paper = by_name["pooled-background-0.6"]
    rows = [paper["classes"][name]["rates"]["selective"]["0.05"] for name in classes]
    judged = summary["classifier"]["performance"]
    apart = {name: by_name[name]["together"]["means"] for name in (SLICE, RING)}
    at_least = by_name["stationary-background-0.6-patches-gamma1"]["together"]["at_least"]
    falls = {one["name"]: float(np.median(one["fall"])) for one in summary["room"]}
    for text in (
        *(f"{100 * one['value']:.0f}% [{100 * one['low']:.0f}, {100 * one['high']:.0f}]" for one in rows),
        *(f"{paper['classes'][name]['quantiles'][50]:.2f}" for name in classes),
        f"probability {paper['separation']:.2f}",
        f"{judged['auc']:.3f} [{judged['auc_interval'][0]:.3f}, {judged['auc_interval'][1]:.3f}]",
        *(f"exp({falls[name]:.1f})" for name in ("pooled-background-0.6", "stationary-background-0.6")),
        *(shares("stationary-reference-0.6", "naive", 1)[1], shares("stationary-reference-0.6", "naive")[0]),
        *shares("stationary-reference-0.6", digits=1),
        *(" against ".join(shares(f"pooled-{contrast}-0.6")) for contrast in ("reference", "neighbourhood")),
        *(" and ".join(shares(f"pooled-background-{tau}")) for tau in (0.4, 0.8)),
        *(
            f"{one['value']:.1f} [{one['low']:.1f}, {one['high']:.1f}]"
            for means in apart.values()
            for one in (means["difference"], means["free"])
        ),
        f"{at_least['tumour']} of the 450 slices with tumour and {at_least['free']} of the 684",
        " and in ".join([f"{shares(SLICE)[0]} of the slices with a tumour", f"{shares(SLICE)[1]} of those without"]),
        *(" / ".join(percent(share) for share in rates(name)) for name in IN_THE_TABLE),
        f"took {summary['runs'][-1]['seconds'] / 60:.1f} minutes",
        f"median IoU is {summary['overlap']['iou']['median']:.2f}",
        f"{summary['overlap']['spearman']:.2f}",
    ):
        assert text in discussion, text
    assert re.findall(r"\{\w+\}", discussion) == []


def test_the_recipe_for_an_own_classifier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    rng = np.random.default_rng(0)
    made = AttentionTest.from_pretrained

    def coarse(source: str, **options: Any) -> AttentionTest:
        assert source == "my-vit"
        return made(bundled_model(8), search=SpectralSearch(tol=0.1), confidence_level=None, **options)

    monkeypatch.setattr(AttentionTest, "from_pretrained", coarse)
    known = {"controls": rng.normal(size=(20, 8, 8)), "scans": rng.normal(size=(3, 8, 8))}
    exec(code, known)
    assert len(known["results"]) == 3
    assert all(0 < one.pvalue <= 1 for one in known["results"])
