"""The page of the brain study, on synthetic data with known answers."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attentest.errors import InputError
from attentest.studies.brain.condition import CONDITIONS, OUR_CONDITIONS, PAPER, Condition
from attentest.studies.brain.page import FIGURES, drawn_charts, render_markdown, write_report
from attentest.studies.brain.summary import ROOM_CONDITIONS, STATEMENTS, condition_of, findings, summarise
from attentest.studies.document import text, to_html
from brain_data import estimated, failed_row, row, rows, write_everything, write_study
from brain_gallery import gallery
from brain_page import expected, figures_of, plain
from plain_figures import figures_without_layout
from study_summary import shuffle_rows

NAIVE, LARGE, SMALL, SMALLER, RANDOMISED, PATCHES = (statement.text for statement in STATEMENTS)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of data of every condition."""
    out = write_everything(tmp_path_factory.mktemp("out"))
    with figures_without_layout():
        write_report(summarise(out), out / "report", {"tumour": gallery(8), "free": gallery(3)})
    return out / "report"


@pytest.fixture(scope="module")
def summary(report: Path) -> dict[str, Any]:
    return dict(json.loads((report / "summary.json").read_text()))


def verdicts(out: Path, found: list[dict[str, Any]]) -> dict[str, str]:
    judged = findings(summarise(write_study(out, {PAPER: found})))
    return {one["statement"]: one["verdict"] for one in judged}


def cells(page: str, *first: str) -> list[str]:
    """The cells of the table row that begins with these cells."""
    lines = [[cell.strip() for cell in line.split(" | ")] for line in page.replace("\\", "").splitlines()]
    found = [line for line in lines if line[: len(first)] == [f"| {first[0]}", *first[1:]]]
    assert len(found) == 1, first
    return [cell.removesuffix(" |") for cell in found[0][len(first) :]]


def test_the_page_has_every_statement_table_and_figure(report: Path, summary: dict[str, Any]) -> None:
    page = (report / "brain.md").read_text()
    assert [one for one in expected(summary) if one not in plain(page)] == []
    names = {path.stem for path in (report / "figures").iterdir()}
    assert figures_of(page) == names == {*FIGURES, "maps-tumour", "maps-free"}
    assert len(summary["conditions"]) == len(CONDITIONS)


def test_the_html_has_the_same_content_in_one_file(report: Path, summary: dict[str, Any]) -> None:
    page = (report / "index.html").read_text()
    shown = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert [one for one in expected(summary) if one not in shown] == []
    assert page.count("data:image/png;base64,") == len(FIGURES) + 2
    assert "<script" not in page
    assert not re.search(r'(src|<a href)="(?!data:image/png;base64,|#)', page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)', page)
    assert policy
    assert html.unescape(policy[1]).startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_slices_are_in_the_html_alone(report: Path) -> None:
    page = (report / "brain.md").read_text()
    assert "gallery" not in page
    assert "licence is non-commercial" in plain(page)
    assert not list((report / "figures").glob("gallery*"))
    assert "8 slices with tumour" in page


def test_the_page_depends_on_the_summary_alone(report: Path, summary: dict[str, Any]) -> None:
    figures = [path.stem for path in (report / "figures").iterdir()]
    assert render_markdown(summary, figures) == (report / "brain.md").read_text()


def test_the_summary_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    found = [*rows(20), failed_row(100, tumour=True, error="one"), failed_row(101, tumour=True, error="other")]
    write_study(tmp_path, {PAPER: found, Condition(noise="ar1"): rows(20)})
    before = summarise(tmp_path)
    shuffle_rows(tmp_path)
    assert json.dumps(summarise(tmp_path)) == json.dumps(before)


def test_patients_are_not_named(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: rows(20)}, patient="TCGA_12"))
    assert len(summary["classifier"]["performance"]["by_patient"]) == 3
    assert "TCGA" not in json.dumps(summary)


@pytest.mark.parametrize(
    ("statement", "shares", "verdict"),
    [
        (NAIVE, {"naive": 0.95}, "holds"),
        (NAIVE, {"naive": 0.94}, "differs"),
        (LARGE, {"without": 0.05}, "holds"),
        (LARGE, {"without": 0.0}, "holds"),
        (LARGE, {"without": 0.4}, "differs"),
        (SMALL, {"with_tumour": 0.5}, "holds"),
        (SMALL, {"with_tumour": 0.49}, "differs"),
        (SMALLER, {"with_tumour": 0.8, "without": 0.1}, "holds"),
        (SMALLER, {"with_tumour": 0.8, "without": 0.78}, "differs"),
        (SMALLER, {"with_tumour": 0.8, "without": 1.0}, "differs"),
    ],
)
def test_verdicts(tmp_path: Path, statement: str, shares: dict[str, float], verdict: str) -> None:
    assert verdicts(tmp_path, rows(100, **shares))[statement] == verdict


def test_few_slices_decide_nothing(tmp_path: Path) -> None:
    found = rows(20)
    few = [one for one in found if one["tumour"]] + [one for one in found if not one["tumour"]][:9]
    unknown = "not enough data"
    assert verdicts(tmp_path, few) == {NAIVE: unknown, LARGE: unknown, SMALL: "holds", SMALLER: unknown}


def test_two_patients_are_too_few(tmp_path: Path) -> None:
    few = [{**one, "patient": f"P{one['image'] % 2}"} for one in rows(100)]
    assert set(verdicts(tmp_path, few).values()) == {"not enough data"}


@figures_without_layout()
def test_one_class_alone(tmp_path: Path) -> None:
    free = [one for one in rows(20) if not one["tumour"]]
    summary = summarise(write_study(tmp_path, {PAPER: free, Condition(noise="ar1"): free}))
    judged = {one["statement"]: one for one in findings(summary)}
    assert judged[SMALL]["verdict"] == "not enough data"
    assert judged[SMALL]["numbers"] == "There are no data."
    assert judged[LARGE]["verdict"] == "holds"
    write_report(summary, tmp_path / "report")
    assert {path.stem for path in (tmp_path / "report" / "figures").iterdir()} == {"pvalues", "noise", "slack"}
    assert cells((tmp_path / "report" / "brain.md").read_text(), "background", "ar1")[0] == "- / 20"


@figures_without_layout()
def test_the_papers_condition_alone(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: rows(20)}))
    charts = drawn_charts(summary)
    assert list(charts) == ["pvalues", "overlap", "slack"]
    assert all(chart.startswith(b"\x89PNG") for chart in charts.values())
    page = render_markdown(summary, charts)
    assert "no slices are shown" in page
    assert f"not tested: {CONDITIONS[1].name}, " in page


def test_failed_slices_are_counted_and_listed(tmp_path: Path) -> None:
    found = [*rows(20), *(failed_row(100 + index, tumour=index < 2) for index in range(5))]
    found[0]["status"] = "max_evaluations"
    summary = summarise(write_study(tmp_path, {PAPER: found}))
    rates = summary["conditions"][0]["classes"]
    assert rates["tumour"]["rates"]["selective"]["0.05"]["count"] == 16  # failed ones are not rejected
    assert rates["free"]["rates"]["selective"]["0.05"]["count"] == 1 + 3  # failed ones are rejected
    page = render_markdown(summary, ())
    with_tumour, without = (cells(page, PAPER.name, f"{which} tumour") for which in ("with", "without"))
    assert with_tumour == ["22", "2", "2 x InputError: no", "1 x max_evaluations"]
    assert without == ["23", "3", "3 x InputError: no", "-"]


def test_a_failed_slice_counts_against_the_claim(tmp_path: Path) -> None:
    found = [*rows(20), *(failed_row(100 + index, tumour=False) for index in range(5))]
    rates = condition_of(summarise(write_study(tmp_path, {PAPER: found})))["classes"]["free"]["rates"]
    without = condition_of(summarise(write_study(tmp_path / "other", {PAPER: rows(20)})))["classes"]["free"]["rates"]
    for test, more in (("selective", 5), ("bonferroni", 5), ("naive", 0)):
        assert rates[test]["0.05"]["count"] == without[test]["0.05"]["count"] + more


def test_an_error_bar_that_contains_the_level_counts_against_the_claim(tmp_path: Path) -> None:
    found = [one | {"status": "precision", "p_low": 1e-3, "p_high": 0.9} for one in rows(20)]
    classes = condition_of(summarise(write_study(tmp_path, {PAPER: found})))["classes"]
    assert classes["tumour"]["rates"]["selective"]["0.05"]["count"] == 0
    assert classes["free"]["rates"]["selective"]["0.05"]["count"] == 20


@figures_without_layout()
def test_nothing_but_failures(tmp_path: Path) -> None:
    found = [failed_row(index, tumour=index < 12) for index in range(24)]
    summary = summarise(write_study(tmp_path, {PAPER: found, Condition(threshold=0.4): found}))
    page = write_report(summary, tmp_path / "report").read_text()
    assert "12 of 12 slices without tumour have a selective p" in page


def test_numbers_in_the_tables(report: Path) -> None:
    page = (report / "brain.md").read_text()
    assert [cell.split()[0] for cell in cells(page, "selective", "with tumour")] == ["0.800", "0.800", "0.800"]
    assert cells(page, "Bonferroni", "without tumour")[0] == "0.000 [0.000, 0.000]"
    assert cells(page, "background", "pooled", "100 / 100")[:2] == ["0.75 / 0.75", "43 / 43"]
    assert cells(page, "reference", "ar1")[0] == "20 / 20"
    assert cells(page, "0.4")[1] == "1,030 / 1,010"
    assert cells(page, "tests under the paper's condition") == ["100.0 s", "0.5", "200"]
    assert cells(page, "none")[0] == "2"
    assert cells(page, "ar1")[2] == "sigma 24.9, rho 0.728"
    assert cells(page, "median of the selective p") == ["0.01", "0.5"]
    assert cells(page, "background", "pooled", "200") == ["15 (15 to 15)", "20 (20 to 20)", "860 (820 to 900)"]
    assert cells(page, "reference", "stationary", "patches", "0.3", "20 / 20")[0] == "43 / 43"
    found = cells(page, "reference", "stationary", "patches", "0.3", "15 / 15")
    assert found == ["2 / 2", "3.48", "0 / 0", "1,030 / 1,010", "200", "0.5"]
    assert cells(page, "background", "stationary", "patches", "0", "15 / 15")[:3] == ["2 / 2", "-", "-"]
    # The lengths of the paper's selection were not computed.
    assert cells(page, "background", "stationary", "pixels", "0", "15 / 15")[0] == "- / -"


def test_texts_of_numbers() -> None:
    assert text(1e-9, 1e-6) == "< 1e-06"  # only known to be below the tolerance
    assert text(-1e-9, 1e-6) == "-1e-09"
    assert [text(value) for value in (0.0123, None, 12345, 0.0, "text")] == ["0.0123", "-", "12,345", "0", "text"]
    assert text({"value": 0.5, "low": 0.25, "high": 1.0}) == "0.500 [0.250, 1.000]"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script> | `x` [link](http://example.org)"
    found = [*rows(20), failed_row(100, tumour=True, error=bad), row(101, tumour=False, p=0.5, patient=bad)]
    summary = summarise(write_study(tmp_path, {PAPER: found}, patient=bad, command=f"attentest\n```\n{bad}"))
    page = to_html(render_markdown(summary, (), html=True), {})
    assert "<script" not in page
    assert not re.search(r'<a href="[^#]', page)
    assert page.count("&lt;script&gt;") == 2  # the error and the command
    markdown = render_markdown(summary, ())
    assert markdown.count("```") == 2
    outside = markdown.split("```")[0] + markdown.split("```")[2]
    assert "<script" not in outside.replace("\\<", "")
    assert "\\| \\`x\\` \\[link\\]" in outside


@pytest.mark.parametrize(
    ("module", "name"), [("matplotlib.figure", "Matplotlib"), ("jinja2", "Jinja2"), ("markdown_it", "markdown-it-py")]
)
def test_without_an_optional_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any], module: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"need.* {name}: pip install 'attentest\[plots\]'"):
        write_report(summary, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_rooms_are_of_every_slice_that_could_be_tested(tmp_path: Path, summary: dict[str, Any]) -> None:
    assert [one["name"] for one in summary["room"]] == [condition.name for condition in ROOM_CONDITIONS]
    for one, count in zip(summary["room"], (200, 40, 40, 40), strict=True):
        assert one["room_in_grey_levels"] == [15.0] * count
        assert one["room"] == [20.0] * count  # standard error 0.75
        assert sorted(set(one["fall"])) == [20.0 * statistic for statistic in range(40, 47)]
    found = [*rows(20), failed_row(100, tumour=True)]
    assert len(summarise(write_study(tmp_path, {PAPER: found}))["room"][0]["p"]) == 40


@figures_without_layout()
def test_without_data_of_our_tests_nothing_is_said_of_them(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: [{**one, "room": None} for one in rows(20)]}))
    assert len(findings(summary)) == 4
    page = render_markdown(summary, drawn_charts(summary))
    assert "Slack of the statistic" not in page
    assert "Our tests" not in page


def test_our_tests_are_marked_as_ours(report: Path, summary: dict[str, Any]) -> None:
    page = (report / "brain.md").read_text()
    section = page.split("## Our tests: randomised selection and whole patches")[1].split("\n## ")[0]
    assert "Not in the paper." in section
    assert section.count("| background |") + section.count("| reference |") == 2 * len(OUR_CONDITIONS)
    assert "figures/ours.png" in section
    ours = [one for one in findings(summary) if one["where"] == "ours, not in the paper"]
    assert [one["statement"] for one in ours] == [RANDOMISED, PATCHES]
    assert all("stationary-background-0.6" in one["numbers"] for one in ours)


@pytest.mark.parametrize(("paper", "verdict"), [(0.1, "holds"), (0.7, "differs")])
def test_verdicts_on_our_tests(tmp_path: Path, paper: float, verdict: str) -> None:
    correlated, ours = Condition(noise="stationary"), Condition(noise="stationary", randomise=1.0)
    found = {PAPER: rows(100), correlated: rows(100, with_tumour=paper), ours: rows(100)}
    judged = {one["statement"]: one["verdict"] for one in findings(summarise(write_study(tmp_path, found)))}
    assert judged[RANDOMISED] == verdict
    assert PATCHES not in judged  # there are no such data


def test_what_slices_show_together(report: Path, summary: dict[str, Any]) -> None:
    together = condition_of(summary, Condition(randomise=1.0))["together"]
    means = {name: mean["value"] for name, mean in together["means"].items()}
    assert means == pytest.approx({"tumour": 24.5, "free": 16.5, "difference": 8.0})
    # With tumour 8 slices have p 1e-9 and 8 have 0.01, without one has 0.01; all others 0.5. The largest set that the
    # test of Simes does not reject has 28, and 16 with tumour have p at most 6 * 0.05 / 28, so that 16 - 5 differ.
    assert together["at_least"] == {"tumour": 11, "free": 0}
    shared = condition_of(summary, Condition(contrast="reference", randomise=1.0))["together"]
    assert shared["means"] is None  # all slices have the noise of the reference
    assert shared["at_least"] == {"tumour": 8, "free": 0}  # under any dependence fewer
    page = (report / "brain.md").read_text()
    section = page.split("## What the slices show together")[1].split("\n## ")[0]
    randomised = [condition for condition in CONDITIONS if condition.randomise]
    assert section.count("\n| ") == 1 + len(randomised)
    assert cells(section, "reference", "pooled", "pixels", "1")[1:4] == ["-", "-", "-"]


def test_a_slice_that_failed_is_in_no_mean_and_does_not_differ(tmp_path: Path) -> None:
    ours, good = Condition(randomise=1.0), estimated(rows(20))
    lost = [failed_row(100 + index, tumour=True) for index in range(5)]
    before = summarise(write_study(tmp_path / "whole", {PAPER: rows(20), ours: good}))
    after = summarise(write_study(tmp_path, {PAPER: rows(20), ours: [*good, *lost]}))
    first, second = (condition_of(found, ours)["together"] for found in (before, after))
    assert second["means"] == first["means"]
    assert second["at_least"]["tumour"] <= first["at_least"]["tumour"]
    assert second["slices"] == first["slices"] == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda one: {**one, "patient": f"P{one['image'] % 2}"},  # two patients
        lambda one: {**one, "patient": "P0" if one["tumour"] else one["patient"]},  # one patient with tumour
        lambda one: {**one, "tumour": True, "iou": 0.1},
    ],
)
def test_too_few_patients_have_no_means(tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    ours = Condition(randomise=1.0)
    summary = summarise(write_study(tmp_path, {PAPER: rows(20), ours: [change(one) for one in estimated(rows(20))]}))
    assert condition_of(summary, ours)["together"]["means"] is None
    assert "What the slices show together" in render_markdown(summary, ())


def test_without_estimates_nothing_is_said_of_slices_together(tmp_path: Path) -> None:
    summary = summarise(write_study(tmp_path, {PAPER: rows(20), Condition(randomise=1.0): rows(20)}))
    assert condition_of(summary, Condition(randomise=1.0))["together"] is None
    assert "together" not in render_markdown(summary, ())


def test_an_interval_longer_than_its_bound_is_counted(tmp_path: Path) -> None:
    ours = Condition(randomise=1.0)
    ends = {"confidence_low": 0.0, "confidence_high": 10.0, "confidence_error": 0.1, "confidence_bound": 1.5}
    found = [{**one, **ends} for one in rows(20)]
    found[-1] |= {"confidence_low": None, "confidence_error": None}
    summary = summarise(write_study(tmp_path, {PAPER: rows(20), ours: found}))
    tumour, free = (condition_of(summary, ours)["classes"][name]["interval"] for name in ("tumour", "free"))
    assert (tumour["over_bound"], free["over_bound"]) == (20, 19)
    assert free["infinite"] == 1
    assert free["mean"] is None
    assert tumour["median"] == pytest.approx(10 / (2 * 1.959964 * 0.75))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"log_p": "small"}, "log_p must be a number, got 'small'"),
        ({"log_p": None}, "log_p must be a number, got None"),
        ({"tumour": None}, "no class"),
        ({"iou": 7.0}, "iou must lie between 0 and 1, got 7.0"),
        ({"room": [1]}, "room must be a number"),
        ({"status": 3}, "status must be a text"),
        ({"confidence_low": 1.0}, "'confidence_high' is missing"),
        ({"estimate": 1.0}, "'noise_degrees' is missing"),
        ({"estimate": None, "noise_degrees": None}, "estimate must be a number, got None"),
    ],
)
def test_damaged_data_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    found = rows(20)
    out = write_study(tmp_path, {PAPER: [{**found[0], **change}, *found[1:]]})
    with pytest.raises(InputError, match=rf"line 3 of .*pooled-background-0.6.jsonl is damaged \(.*{complaint}"):
        summarise(out)


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"settings": {}}'])
def test_a_damaged_record_of_the_training_is_refused(tmp_path: Path, content: str) -> None:
    out = write_study(tmp_path, {PAPER: rows(20)})
    (out / "model" / "training.json").write_text(content)
    with pytest.raises(InputError, match=r"training.json cannot be read \(.*\): remove .*, and it is trained anew"):
        summarise(out)


def test_the_command_says_how_many_slices_other_conditions_have(tmp_path: Path) -> None:
    other = Condition(threshold=0.4)
    summary = summarise(write_study(tmp_path, {PAPER: rows(100), other: rows(20)}))
    assert summary["command"].endswith("--sensitivity-images 20")
