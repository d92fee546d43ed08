"""The page of the brain study, on data made up so that the answers are known."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.studies.brain.condition import CONDITIONS, PAPER, Condition
from attentest.studies.brain.figures import FIGURES, available_figures, drawn
from attentest.studies.brain.finding import FINDINGS, condition_of, findings
from attentest.studies.brain.gallery import Gallery
from attentest.studies.brain.page import render_html, render_markdown, write_report
from attentest.studies.brain.page_tables import (
    noise_table,
    overlap_table,
    pvalue,
    rates_table,
    room_table,
    threshold_table,
    times_table,
)
from attentest.studies.brain.room import ROOM_CONDITIONS, rooms_of
from attentest.studies.brain.slices import SIDE
from attentest.studies.brain.summary import summarise
from attentest.studies.document import markdown
from brain_data import failed_row, row, rows, write_everything, write_study
from brain_gallery import Bench, gallery

NAIVE, LARGE, SMALL, SMALLER = (finding.statement for finding in FINDINGS)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of data of every condition."""
    out = write_everything(tmp_path_factory.mktemp("out"))
    galleries = {"tumour": gallery(8), "free": gallery(3)}
    write_report(summarise(out), out / "report", galleries, rooms_of(Bench(), galleries))
    return out / "report"


@pytest.fixture(scope="module")
def summary(report: Path) -> dict[str, Any]:
    return dict(json.loads((report / "summary.json").read_text()))


def verdicts(out: Path, found: list[dict[str, Any]]) -> dict[str, str]:
    judged = findings(summarise(write_study(out, {PAPER: found})))
    return {one["statement"]: one["verdict"] for one in judged}


def cells(table: Any, *keys: str) -> tuple[str, ...]:
    """The row that begins with these cells."""
    chosen = [one for one in table.rows if one[: len(keys)] == keys]
    assert len(chosen) == 1, keys
    return tuple(chosen[0])


def test_the_page_has_everything_and_stands_alone(report: Path, summary: dict[str, Any]) -> None:
    page, text = (report / "index.html").read_text(), (report / "brain.md").read_text()
    names = {path.stem for path in (report / "figures").iterdir()}
    assert names == {"pvalues", "noise", "threshold", "overlap", "room", "maps-tumour", "maps-free"}
    assert set(re.findall(r"\]\(figures/([^)]+)\.png\)", text)) == names
    assert page.count("data:image/png;base64,") == len(names)
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!data:image/png;base64,)', page)
    for finding in FINDINGS:
        assert markdown(finding.statement) in text
        assert markdown(finding.rule) in text
    assert "3,929 slices" in text
    assert "716 nearly" in text
    assert "Not tested" not in text
    assert "No test failed, and every search converged." in text
    assert len(summary["conditions"]) == len(CONDITIONS)


def test_slices_are_in_the_html_alone(report: Path) -> None:
    text = (report / "brain.md").read_text()
    assert "gallery" not in text
    assert "licence is non-commercial" in text
    assert not list((report / "figures").glob("gallery*"))
    assert "8 slices with tumour" in text


def test_markdown_depends_on_the_summary_alone(report: Path, summary: dict[str, Any]) -> None:
    assert render_markdown(summary) == (report / "brain.md").read_text()


def test_patients_are_not_named(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: rows(20)}, patient="TCGA_12"))
    assert len(summary["classifier"]["performance"]["by_patient"]) == 3
    assert "TCGA" not in json.dumps(summary)


@pytest.mark.parametrize(("share", "verdict"), [(0.95, "holds"), (0.94, "differs")])
def test_naive_p_without_tumour(tmp_path: Path, share: float, verdict: str) -> None:
    assert verdicts(tmp_path, rows(100, naive=share))[NAIVE] == verdict


@pytest.mark.parametrize(("share", "verdict"), [(0.05, "holds"), (0.0, "holds"), (0.4, "differs")])
def test_selective_p_without_tumour(tmp_path: Path, share: float, verdict: str) -> None:
    assert verdicts(tmp_path, rows(100, without=share))[LARGE] == verdict


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "holds"), (0.49, "differs")])
def test_selective_p_with_tumour(tmp_path: Path, share: float, verdict: str) -> None:
    assert verdicts(tmp_path, rows(100, with_tumour=share))[SMALL] == verdict


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "holds"), (0.78, "differs"), (1.0, "differs")])
def test_classes_are_compared_by_their_intervals(tmp_path: Path, share: float, verdict: str) -> None:
    assert verdicts(tmp_path, rows(100, with_tumour=0.8, without=share))[SMALLER] == verdict


def test_few_slices_decide_nothing(tmp_path: Path) -> None:
    found = rows(20)
    few = [one for one in found if one["tumour"]] + [one for one in found if not one["tumour"]][:9]
    judged = verdicts(tmp_path, few)
    assert judged == {
        NAIVE: "not enough data",
        LARGE: "not enough data",
        SMALL: "holds",
        SMALLER: "not enough data",
    }


def test_one_class_alone(tmp_path: Path) -> None:
    free = [one for one in rows(20) if not one["tumour"]]
    summary = summarise(write_study(tmp_path, {PAPER: free, Condition(noise="ar1"): free}))
    judged = {one["statement"]: one for one in findings(summary)}
    assert judged[SMALL]["verdict"] == "not enough data"
    assert judged[SMALL]["numbers"] == "There are no data."
    assert judged[LARGE]["verdict"] == "holds"
    write_report(summary, tmp_path / "report")
    assert {path.stem for path in (tmp_path / "report" / "figures").iterdir()} == {"pvalues", "noise"}
    assert cells(noise_table(summary), "background", "ar1")[2] == "- / 20"


def test_the_papers_condition_alone(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: rows(20)}))
    assert [figure.name for figure in available_figures(summary)] == ["pvalues", "overlap"]
    for figure in FIGURES:
        assert drawn(figure, summary).startswith(b"\x89PNG")
    page = write_report(summary, tmp_path / "report")
    assert "no slices were looked at" in page.read_text()
    assert f"Not tested: {CONDITIONS[1].name}, " in page.read_text()


def test_failed_slices_are_counted_and_listed(tmp_path: Path) -> None:
    found = [*rows(20), *(failed_row(100 + index, tumour=index < 2) for index in range(5))]
    found[0]["status"] = "max_evaluations"
    summary = summarise(write_study(tmp_path, {PAPER: found}))
    rates = summary["conditions"][0]["classes"]
    assert rates["tumour"]["rates"]["selective"]["0.05"]["count"] == 16  # failed ones are missed
    assert rates["free"]["rates"]["selective"]["0.05"]["count"] == 1 + 3  # failed ones are rejected
    text = render_markdown(summary)
    assert "| pooled-background-0.6 | with tumour | 22 | 2 | 2 x InputError: no | 1 x max\\_evaluations |" in text
    assert "| pooled-background-0.6 | without tumour | 23 | 3 | 3 x InputError: no | - |" in text


def test_nothing_but_failures(tmp_path: Path) -> None:
    found = [failed_row(index, tumour=index < 12) for index in range(24)]
    summary = summarise(write_study(tmp_path, {PAPER: found}))
    text = write_report(summary, tmp_path / "report").read_text()
    assert "12 of 12 slices without tumour have a selective p" in text
    for figure in FIGURES[:3]:
        assert drawn(figure, summary).startswith(b"\x89PNG")


def test_numbers_in_the_tables(summary: dict[str, Any]) -> None:
    selective = cells(rates_table(summary), "selective", "with tumour")
    assert [text.split()[0] for text in selective[2:]] == ["0.800", "0.800", "0.800"]
    assert cells(rates_table(summary), "Bonferroni", "without tumour")[2] == "0.000 [0.000, 0.000]"
    paper = cells(noise_table(summary), "background", "pooled")
    assert paper[2:5] == ("100 / 100", "0.75 / 0.75", "43 / 43")
    assert cells(noise_table(summary), "reference", "ar1")[2] == "20 / 20"
    assert len(noise_table(summary).rows) == 17
    assert cells(threshold_table(summary), "0.4")[2] == "1,030 / 1,010"
    assert cells(times_table(summary), "tests under the paper's condition")[1:] == ("100.0 s", "0.5", "200")
    by_iou = cells(overlap_table(summary), "none")
    assert by_iou[1] == "2"
    text = render_markdown(summary)
    assert "| ar1 | one variance" in text
    assert "sigma 24.9, rho 0.728 |" in text
    assert "| median of the selective p | 0.01 | 0.5 |" in text


def test_a_p_below_the_tolerance_is_a_bound() -> None:
    assert pvalue(1e-9) == "< 1e-06"
    assert pvalue(0.0123) == "0.0123"
    assert pvalue(None) == "-"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script> | `x` [link](http://example.org)"
    found = [*rows(20), failed_row(100, tumour=True, error=bad), row(101, tumour=False, p=0.5, patient=bad)]
    out = write_study(tmp_path, {PAPER: found}, patient=bad, command=f"attentest\n```\n{bad}")
    summary = summarise(out)
    page = render_html(summary, {figure.name: b"" for figure in FIGURES})
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2  # the error and the command
    text = render_markdown(summary)
    assert text.count("```") == 2
    outside = text.split("```")[0] + text.split("```")[2]
    assert "<script" not in outside.replace("\\<", "")
    assert "\\| \\`x\\` \\[link\\]" in outside


@pytest.mark.parametrize(("module", "name"), [("matplotlib.figure", "Matplotlib"), ("jinja2", "Jinja2")])
def test_without_an_optional_part_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any], module: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"need.* {name}: pip install 'attentest\[plots\]'"):
        write_report(summary, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_rooms_are_of_every_slice_that_could_be_tested(summary: dict[str, Any]) -> None:
    assert [one["name"] for one in summary["room"]] == [condition.name for condition in ROOM_CONDITIONS]
    for one in summary["room"]:
        assert one["room"] == [20.0] * 11
        assert one["room_in_grey_levels"] == [16.0] * 11  # standard error 0.8
        assert one["fall"] == [800.0] * 11  # statistic 40
    bench = Bench(bad=3)
    flair = np.zeros((5, SIDE, SIDE), dtype=np.uint8)
    flair[:, 0, 0] = np.arange(5)
    one_fails = Gallery(flair=flair, mask=np.zeros(flair.shape, dtype=bool), results=(None,) * 5)
    assert [len(one["p"]) for one in rooms_of(bench, {"free": one_fails})] == [4] * len(ROOM_CONDITIONS)
    assert cells(room_table(summary), "background", "pooled")[2:] == (
        "11",
        "16 (16 to 16)",
        "20 (20 to 20)",
        "800 (800 to 800)",
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"log_p": "small"}, "could not convert"),
        ({"log_p": None}, "NoneType"),
        ({"tumour": None}, "no class"),
        ({"iou": 7.0}, "IoU"),
    ],
)
def test_damaged_data_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    found = rows(20)
    out = write_study(tmp_path, {PAPER: [{**found[0], **change}, *found[1:]]})
    with pytest.raises(InputError, match=f"pooled-background-0.6.jsonl is damaged .*{complaint}"):
        summarise(out)


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"settings": {}}'])
def test_a_damaged_record_of_the_training_is_refused(tmp_path: Path, content: str) -> None:
    out = write_study(tmp_path, {PAPER: rows(20)})
    (out / "model" / "training.json").write_text(content)
    with pytest.raises(InputError, match=r"training.json (lacks|cannot be read)"):
        summarise(out)


def test_a_failed_slice_counts_against_what_is_claimed(tmp_path: Path) -> None:
    found = [*rows(20), *(failed_row(100 + index, tumour=False) for index in range(5))]
    rates = condition_of(summarise(write_study(tmp_path, {PAPER: found})))["classes"]["free"]["rates"]
    without = condition_of(summarise(write_study(tmp_path / "other", {PAPER: rows(20)})))["classes"]["free"]["rates"]
    for test, more in (("selective", 5), ("bonferroni", 5), ("naive", 0)):
        assert rates[test]["0.05"]["count"] == without[test]["0.05"]["count"] + more


def test_the_command_says_how_many_slices_other_conditions_have(tmp_path: Path) -> None:
    other = Condition(threshold=0.4)
    summary = summarise(write_study(tmp_path, {PAPER: rows(100), other: rows(20)}))
    assert summary["command"].endswith("--sensitivity-images 20")


def test_two_patients_are_too_few(tmp_path: Path) -> None:
    few = [{**one, "patient": f"P{one['image'] % 2}"} for one in rows(100)]
    assert set(verdicts(tmp_path, few).values()) == {"not enough data"}
