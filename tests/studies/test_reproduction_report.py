"""The results page of the reproduction, on data made up so that the answers are known."""

from __future__ import annotations

import copy
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attentest.errors import InputError
from attentest.runs.record_lines import add_line
from attentest.studies.document import markdown, split_by_data, to_html
from attentest.studies.measures import ENDS, MISSED, REJECTED, data_file, ending, pvalues
from attentest.studies.paper_model import ModelFolders
from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS, Series
from attentest.studies.reproduction.measures import POWER, band, bent_steps, permutation_level
from attentest.studies.reproduction.page import FIGURES, command_of, render_markdown, write_report
from attentest.studies.reproduction.run import RunSettings, summarise
from attentest.studies.reproduction.statements import findings, largest_agreeing_score, score, statements_of
from attentest.studies.reproduction.trial import NUMBERS
from plain_figures import figures_without_layout
from reproduction_data import (
    ROWS,
    curve_row,
    interval_rows,
    selective_row,
    selective_rows,
    spread_out,
    with_rate,
    write_everything,
    write_series,
)
from study_summary import shuffle_rows

NULL = Series(work="selective", model="base16")
SIGNAL = Series(work="selective", model="base16", delta=2.0)

RUN = {
    **{"preset": "paper", "counts": asdict(PRESETS["paper"]), "experiments": ["power"], "published": False, "seed": 7},
    "tests": "all",
    **{"began": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "trials": 20, "failed": 0, "trained": {}},
    **{"finished": False, "device": "some GPU", "device_type": "cuda", "threads": 2},
}
"""A run as it is recorded."""

ONE_SERIES = {
    "selective": NULL,
    "search": Series(work="search", model="base8"),
    "interval": Series(work="interval", model="base16", delta=2.0),
    "permutation": Series(work="permutation", model="base16", permutations=1000),
    "curves": Series(work="curves", model="base16"),
    "precision": Series(work="precision", model="base64"),
    "evaluation": Series(work="evaluation", model="base8", device="cpu"),
}
"""A series of each kind of work."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of data of every experiment."""
    out = tmp_path_factory.mktemp("out")
    write_everything(out, images=200)
    with figures_without_layout():
        write_report(summarise(out), out / "report")
    return out / "report"


@pytest.fixture(scope="module")
def summary(report: Path) -> dict[str, Any]:
    return dict(json.loads((report / "summary.json").read_text()))


def verdict_of(summary: dict[str, Any], words: str) -> str:
    found = [
        one for one in findings(summary) if words in one["statement"] and not one["statement"].startswith("On series")
    ]
    assert len(found) == 1, words
    return str(found[0]["verdict"])


def test_every_experiment_and_figure_is_there(report: Path, summary: dict[str, Any]) -> None:
    assert list(summary["experiments"]) == list(EXPERIMENTS)
    for figure in FIGURES:
        assert (report / "figures" / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
    page, text = (report / "index.html").read_text(), (report / "reproduction.md").read_text()
    assert page.count("data:image/png;base64,") == len(FIGURES)
    assert "<script" not in page
    assert "://" not in page
    for statement in (statement for name in EXPERIMENTS for statement in statements_of(name)):
        assert markdown(statement.text) in text


def test_verdicts_where_the_data_agree_with_the_paper(summary: dict[str, Any]) -> None:
    # 200 images a setting: at the level 0.01 two rejections are to be expected, which is too few to tell.
    for words in ("The selective test keeps the level", "The Bonferroni test keeps", "naive test does not keep"):
        assert verdict_of(summary, words) == "holds"
    assert verdict_of(summary, "does not keep the level with correlated noise") == "holds"
    assert verdict_of(summary, "does not keep the level with independent noise") == "differs"
    assert verdict_of(summary, "With attentest's models the selective test has its published power") == "holds"
    assert verdict_of(summary, "With the authors' models the selective test has its published power") == "holds"
    assert verdict_of(summary, "has much more power than Bonferroni") == "holds"
    assert verdict_of(summary, "needs fewer evaluations") == "holds"
    assert verdict_of(summary, "takes less time") == "holds"
    assert verdict_of(summary, "approximately linear") == "holds"
    assert verdict_of(summary, "tend to be close to zero") == "holds"
    assert verdict_of(summary, "With exponnorm noise") == "not enough data"


@pytest.mark.parametrize(
    ("family", "factor", "verdict"),
    [
        ("gennormflat", 0.6, "holds"),
        ("gennormflat", 1.0, "not enough data"),
        ("gennormflat", 2.5, "differs"),
        ("skewnorm", 1.1, "holds"),
        ("skewnorm", 2.5, "differs"),
        ("exponnorm", 2.5, "holds"),
        ("exponnorm", 1.0, "not enough data"),  # of 1,000 images; the paper had 10,000
    ],
)
def test_verdicts_on_noise_that_is_not_gaussian(tmp_path: Path, family: str, factor: float, verdict: str) -> None:
    series = Series(work="selective", model="base16", family=family, distance=0.04)
    write_series(tmp_path, series, (selective_row(i, min(1.0, p / factor)) for i, p in enumerate(spread_out(1000))))
    assert verdict_of(summarise(tmp_path), f"With {family} noise") == verdict


@pytest.mark.parametrize(
    ("rate", "images", "verdict"),
    [(0.05, 1000, "holds"), (0.12, 1000, "differs"), (0.05, 20, "not enough data"), (0.9, 20, "differs")],
)
def test_keeping_the_level(tmp_path: Path, rate: float, images: int, verdict: str) -> None:
    write_series(tmp_path, NULL, (selective_row(i, float(p)) for i, p in enumerate(with_rate(images, rate))))
    summary = summarise(tmp_path)
    assert verdict_of(summary, "The selective test keeps the level 0.05") == verdict
    found = summary["experiments"]["type-i-error"]["settings"][0]["tests"]["selective"]
    assert found["count"] == round(rate * images)
    assert found["within_band"] == (verdict != "differs")


def test_failed_trials_are_rejections_and_misses(tmp_path: Path) -> None:
    failed = [{"image": number, "error": "ValueError: no", "seconds": 0.0} for number in range(10)]
    for series in (NULL, SIGNAL):
        write_series(tmp_path, series, [*failed, *(selective_row(i, 0.01 if i < 30 else 0.5) for i in range(10, 100))])
    summary = summarise(tmp_path)
    null, signal = (summary["experiments"][name]["settings"][0] for name in ("type-i-error", "power"))
    assert null["tests"]["selective"]["count"] == 30  # 20 with a small p, 10 that failed
    assert signal["tests"]["selective"]["count"] == 20
    assert null["tests"]["selective"]["total"] == signal["tests"]["selective"]["total"] == 100
    assert null["failed"] == 10
    assert [entry["failed"] for entry in summary["failures"]] == [10, 10]


def test_type_i_error_has_the_papers_count_and_additional_trials_all(tmp_path: Path) -> None:
    write_series(tmp_path, NULL, selective_rows(NULL, 1200))
    experiments = summarise(tmp_path)["experiments"]
    assert experiments["type-i-error"]["settings"][0]["images"] == 1000
    assert experiments["additional-trials"]["settings"][0]["images"] == 1200
    assert experiments["additional-trials"]["settings"][0]["levels"]["0.01"]["count"] == 12


def test_statuses_other_than_converged_are_counted(tmp_path: Path) -> None:
    rows = [selective_row(number, 0.5) for number in range(5)]
    write_series(tmp_path, NULL, [*rows[:4], {**rows[4], "status": "limit"}])
    assert summarise(tmp_path)["failures"][0]["statuses"] == {"limit": 1}


@pytest.mark.parametrize(("settings", "level", "images"), [(1, 0.05, 100), (14, 0.05, 1000), (42, 0.01, 10_000)])
def test_band_holds_all_settings_with_probability_95_percent(settings: int, level: float, images: int) -> None:
    low, high = (round(end * images) for end in band(settings, level, images))
    law, tail = stats.binom(images, level), 0.05 / settings / 2
    # Neither tail is more than its share, and one step narrower it would be.
    assert law.cdf(low - 1) <= tail < law.cdf(low)
    assert law.sf(high) <= tail < law.sf(high - 1)


def test_level_of_the_permutation_count() -> None:
    # The observed statistic is equally likely to be at each of B + 1 ranks; the first 51 of 1,001 give p <= 0.05.
    assert permutation_level(0.05, 1000) == 51 / 1001
    assert permutation_level(0.05, 30) == 2 / 31


def test_published_rates_are_compared_within_monte_carlo_error() -> None:
    assert score(0.5, {"value": 0.55, "total": 1000}) == pytest.approx(0.05 / np.sqrt(0.25 / 1000 + 0.55 * 0.45 / 1000))
    assert largest_agreeing_score(1) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "holds"), (0.2, "differs")])
def test_published_power(tmp_path: Path, shift: float, verdict: str) -> None:
    rate = POWER["independent"][2.0] + shift
    write_series(tmp_path, SIGNAL, (selective_row(i, float(p)) for i, p in enumerate(with_rate(1000, rate))))
    assert verdict_of(summarise(tmp_path), "With attentest's models the selective test has its published") == verdict


def test_curves_that_are_bent_and_far_from_zero(tmp_path: Path) -> None:
    write_series(tmp_path, Series(work="curves", model="base16"), [curve_row(0, bent=True, close=0.5)])
    summary = summarise(tmp_path)
    assert verdict_of(summary, "approximately linear") == "differs"
    assert verdict_of(summary, "tend to be close to zero") == "differs"
    drawn = summary["experiments"]["demonstration"]["settings"][0]
    assert len(drawn["far"]["z"]) == len(drawn["far"]["inside"][0]) == 120


def test_a_parabola_is_bent_where_it_turns() -> None:
    # Over a step h the parabola leaves its chord by h^2 / 4; its change is 2 h |middle|: bent where |middle| < 1.25 h.
    z = np.linspace(-4.0, 4.0, 161)
    bent = bent_steps(z, np.array([z**2]), statistic=100.0)
    middles = np.arange(-3.9, 4.0, 0.2)
    assert bent.tolist() == (np.abs(middles) < 0.25).tolist()


def our_settings(summary: dict[str, Any], experiment: str, **wanted: Any) -> list[dict[str, Any]]:
    ours = summary["experiments"][experiment]["ours"]
    return [one for one in ours if all(one[name] == value for name, value in wanted.items())]


def test_our_tests_have_their_own_numbers_beside_the_papers(summary: dict[str, Any]) -> None:
    assert len(our_settings(summary, "type-i-error")) == 14 * 6
    for one in our_settings(summary, "type-i-error", randomise=1.0):
        assert one["rejected"]["value"] == 0.05
        assert one["missed"]["count"] == 8  # one of 25
        length = one["length"]
        assert length["bound"] == pytest.approx(np.sqrt(2))
        assert length["median"] == pytest.approx(np.sqrt(2) + 5e-4)
        assert (length["bounded"], length["over_bound"]) == (200, 0)  # what the search left open does not count
        assert length["longest"] == pytest.approx(1.0, abs=1e-3)
    (paper,) = our_settings(summary, "power", region="pixels", randomise=0.0, model="base64", published=False)
    assert [paper["length"][name] for name in ("bound", "bounded", "longest")] == [None, 0, None]
    assert paper["iou"] == 0.5
    for words, verdict in (
        ("With randomised selection, whole patches and both", "holds"),
        ("With randomised selection, of pixels or whole patches", "holds"),
        ("With whole patches alone", "holds"),
    ):
        assert verdict_of(summary, words) == verdict
    for words in ("Our 95% intervals miss", "No interval after randomised", "takes no more evaluations"):
        # On images and on series, without a signal and with one; series have another case of the first letter.
        found = [one["verdict"] for one in findings(summary) if words[1:] in one["statement"]]
        assert found == ["holds"] * 4


def test_our_tests_are_marked_as_ours_wherever_they_are(report: Path, summary: dict[str, Any]) -> None:
    text = (report / "reproduction.md").read_text()
    before, *sections = text.split("### ")
    titles = [f"{title}{where}: our tests" for where in ("", " on series") for title in ("Type I error rate", "Power")]
    assert [section.splitlines()[0] for section in sections] == titles
    for section in sections:
        shown = section.split("\n## ")[0]
        least, most = ("0.5", "0.5") if "on series" in section.splitlines()[0] else ("0.3", "1")
        assert f"| the paper's | ours: gamma {least} |" in shown
        assert f"| ours: patches, gamma {most} |" in shown
        assert "-ours.png)" in shown
    assert "ours: gamma" not in before.split("## Findings")[1].split("## Type I error rate")[0].replace("ours, not", "")
    for one in findings(summary):
        assert (one["where"] == "ours, not in the paper") == one["ours"]


@pytest.mark.parametrize(
    ("change", "words", "verdict"),
    [
        (
            {"confidence_high": 4.0, "confidence_error": 0.1},
            "No interval after randomised selection is longer",
            "differs",
        ),
        (
            {"confidence_high": 1.6, "confidence_error": 0.2},
            "No interval after randomised selection is longer",
            "holds",
        ),
        (
            {"confidence_low": None, "confidence_high": None, "confidence_error": None},
            "No interval after randomised",
            "not enough data",
        ),
        ({"confidence_low": 0.5, "confidence_high": 1.0}, "Our 95% intervals miss the true difference", "differs"),
        ({"p": 0.04, "p_low": 0.04, "p_high": 0.04}, "whole patches and both, the selective test keeps", "differs"),
        ({"evaluations": 300}, "takes no more evaluations", "differs"),
    ],
)
def test_what_refutes_our_claims(tmp_path: Path, change: dict[str, Any], words: str, verdict: str) -> None:
    hard, ours = (Series(work="interval", model="base16", randomise=gamma) for gamma in (0.0, 1.0))
    write_series(tmp_path, hard, interval_rows(hard, 200))
    write_series(tmp_path, ours, [{**row, **change} for row in interval_rows(ours, 200)])
    assert verdict_of(summarise(tmp_path), words) == verdict


def test_less_power_than_the_papers_is_said(tmp_path: Path) -> None:
    hard, ours = (Series(work="interval", model="base16", delta=2.0, randomise=gamma) for gamma in (0.0, 1.0))
    write_series(tmp_path, hard, interval_rows(hard, 200))
    write_series(tmp_path, ours, [{**row, "p": 0.5} for row in interval_rows(ours, 200)])
    assert verdict_of(summarise(tmp_path), "With randomised selection, of pixels or whole patches") == "differs"
    failed = [{"image": number, "error": "ValueError: no", "seconds": 0.0} for number in range(200, 250)]
    write_series(tmp_path, ours, failed)
    (one,) = our_settings(summarise(tmp_path), "power", randomise=1.0)
    assert one["missed"]["count"] == 8 + 50  # a failed trial covers nothing
    assert one["rejected"]["count"] == 0


def test_statements_without_data_are_folded_away(tmp_path: Path) -> None:
    write_series(tmp_path, NULL, selective_rows(NULL, 100))
    summary = summarise(tmp_path)
    shown, without = split_by_data(findings(summary))
    assert [one["experiment"] for one in shown] == 3 * ["type-i-error"] + ["additional-trials"]
    assert len(without) > 15
    text = render_markdown(summary)
    table, folded = text.split("## Findings")[1].split("<details>")[:2]
    assert f"<summary>{len(without)} statements without data</summary>" in folded
    for one in shown:
        assert (markdown(one["statement"]) in table, markdown(one["statement"]) in folded) == (True, False)
    for one in without:
        assert (markdown(one["statement"]) in table, markdown(one["statement"]) in folded) == (False, True)
    assert "There are no data." not in text
    assert text.startswith("# Reproduction of the paper's numerical experiments\n\nOf 4 statements of the paper ")
    assert "There are data of 2 of 10 experiments." in text
    assert "100 trials; none failed." in text


def test_the_page_says_at_once_that_trials_failed_or_are_missing(tmp_path: Path) -> None:
    write_series(tmp_path, NULL, [{"image": 0, "error": "no", "seconds": 0.0}, selective_row(1, 0.5)])
    add_line(tmp_path / "runs.jsonl", RUN)
    conclusion = render_markdown(summarise(tmp_path)).split("## Findings")[0]
    assert "2 trials; 1 of them failed, and count against the statements." in conclusion
    assert "Some trials that were asked for are [missing](#how-this-page-was-made)" in conclusion


@figures_without_layout()
def test_every_link_of_the_page_leads_to_a_heading(report: Path, tmp_path: Path) -> None:
    write_series(tmp_path, NULL, selective_rows(NULL, 20))
    write_report(summarise(tmp_path), tmp_path / "report")
    for page in ((report / "index.html").read_text(), (tmp_path / "report" / "index.html").read_text()):
        links, places = set(re.findall(r'<a href="([^"]*)"', page)), set(re.findall(r'id="([^"]*)"', page))
        assert len(links) >= 4
        assert {link.removeprefix("#") for link in links} <= places


def test_data_without_our_tests_have_no_statements_about_them(tmp_path: Path) -> None:
    write_series(tmp_path, NULL, selective_rows(NULL, 100))
    summary = summarise(tmp_path)
    assert not [one for one in findings(summary) if one["ours"]]
    assert "our tests" not in render_markdown(summary)


def test_precision_numbers(summary: dict[str, Any]) -> None:
    found = summary["experiments"]["precision"]["settings"][0]
    assert found["region_differs"]["count"] == 1
    assert found["worst"]["image"] == 1
    assert found["float32"]["greatest"] == pytest.approx(0.2)
    assert found["float64"]["greatest"] == 0.0
    assert verdict_of(summary, "float32 gives the regions and p-values of float64") == "differs"


def test_a_pvalue_that_is_not_resolved_is_a_range_in_the_table_and_counts_against_the_claim(
    summary: dict[str, Any],
) -> None:
    changed = copy.deepcopy(summary)
    (setting, *_) = changed["experiments"]["precision"]["settings"]
    shown = f"{setting['worst']['image']}: 0.02 to 0.41 (precision), "
    assert shown not in render_markdown(changed)
    setting["worst"] |= {"p_low": 0.02, "p_high": 0.41, "status": "precision"}
    assert shown in render_markdown(changed)
    row = {**selective_row(0, 0.3), "p_low": 0.02, "p_high": 0.41, "status": "max_evaluations"}
    assert pvalues([row], "selective", REJECTED).tolist() == [0.02]
    assert pvalues([row], "selective", MISSED).tolist() == [0.41]
    assert ending([row])["statuses"] == {"max_evaluations": 1}


def test_time_on_the_cpu_is_estimated_from_evaluations(tmp_path: Path) -> None:
    for search in ("spectral", "adaptive"):
        series = Series(work="search", model="base8", search=search)
        write_series(tmp_path, series, (selective_row(i, 0.5, search) for i in range(10)))
    timed = Series(work="evaluation", model="base8", device="cpu")
    write_series(tmp_path, timed, [{"image": 0, "seconds": 1.0, "seconds_an_evaluation": 0.002, "threads": 2}])
    summary = summarise(tmp_path)
    assert summary["experiments"]["computation-time"]["time"]["cpu_seconds"] == pytest.approx(
        10 * 0.002 * (60 + 3.4 * 300)
    )
    assert summary["experiments"]["computation-time"]["settings"][1]["evaluations_ratio"] == pytest.approx(5.0)


def test_the_command_names_what_was_run(tmp_path: Path) -> None:
    write_series(tmp_path, SIGNAL, selective_rows(SIGNAL, 20))
    # No run was recorded: the counts are those of the data.
    expected = "attentest reproduce --experiment power --preset full --images 20 --seed 7 --device cuda"
    assert command_of("power", summarise(tmp_path)) == expected


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    error = "<script>alert(1)</script> | `x` [link](http://example.org)"
    write_series(tmp_path, NULL, [{"image": 0, "error": error, "seconds": 0.0}, selective_row(1, 0.5)])
    summary = summarise(tmp_path)
    text = render_markdown(summary)
    page = to_html(text, {figure.name: b"" for figure in FIGURES})
    assert "<script" not in page
    assert 'example.org"' not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | `x` [link](http://example.org)" in page
    assert "<script" not in text.replace("\\<", "")
    assert "\\| \\`x\\` \\[link\\]" in text


def test_markdown_depends_on_the_summary_alone(report: Path, summary: dict[str, Any]) -> None:
    assert render_markdown(summary) == (report / "reproduction.md").read_text()


def test_the_summary_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    for series in ONE_SERIES.values():
        failed = [{"image": 20 + number, "error": f"{number}", "seconds": 0.0} for number in range(3)]
        write_series(tmp_path, series, [*ROWS[series.work](series, 20), *failed])
    before = summarise(tmp_path)
    shuffle_rows(tmp_path)
    assert json.dumps(summarise(tmp_path)) == json.dumps(before)


def test_nothing_to_report_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no results of experiments: run attentest reproduce first"):
        summarise(tmp_path)


@pytest.mark.parametrize(
    ("module", "name"), [("matplotlib.figure", "Matplotlib"), ("jinja2", "Jinja2"), ("markdown_it", "markdown-it-py")]
)
def test_without_an_optional_part_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"need.* {name}: pip install 'attentest\[plots\]'"):
        write_report({}, tmp_path / "report")


def test_what_was_asked_for_and_is_not_there_is_listed(tmp_path: Path) -> None:
    write_series(tmp_path, SIGNAL, selective_rows(SIGNAL, 20))
    settings = RunSettings(
        preset_name="paper",
        preset=PRESETS["paper"].limited(20, None),
        experiments=(EXPERIMENTS["power"],),
        folders=ModelFolders(trained=tmp_path),
    )
    others = [series for series in settings.plan() if series != SIGNAL]
    add_line(tmp_path / "runs.jsonl", {**RUN, "counts": asdict(settings.preset)})
    missing = summarise(tmp_path)["missing"]
    assert [(one["series"], one["trials"], one["asked"]) for one in missing] == [(s.name, 0, 20) for s in others]


@pytest.mark.parametrize("work", ONE_SERIES)
def test_a_row_that_lacks_a_value_is_named_with_its_file_and_line(work: str, tmp_path: Path) -> None:
    series = ONE_SERIES[work]
    first, second = ROWS[work](series, 2)
    file = data_file(tmp_path, series.name)
    needed = ["image", "seconds", *NUMBERS[work], *(ENDS if work == "interval" else ())]
    needed += ["far", "close"] if work == "curves" else []
    for name in needed:
        for value in ("absent", "text", [], 10**400):  # a header, two rows: the second is damaged
            damaged = {key: one for key, one in second.items() if key != name} | (
                {} if value == "absent" else {name: value}
            )
            file.path.unlink(missing_ok=True)
            write_series(tmp_path, series, [first, damaged])
            with pytest.raises(InputError, match=rf"line 4 of .*{file.path.name} is damaged \(.*{name}"):
                summarise(tmp_path)


def test_curves_without_a_value_at_each_point_are_refused(tmp_path: Path) -> None:
    series = ONE_SERIES["curves"]
    row = curve_row(0)
    row["far"]["inside"][0] = row["far"]["inside"][0][:-1]
    write_series(tmp_path, series, [row])
    with pytest.raises(InputError, match=r"line 3 of .* is damaged"):
        summarise(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"preset": "odd"}, "preset must be one of quick, paper, full, got 'odd'"),
        ({"preset": ["quick"]}, "a value is not of the kind"),
        ({"experiments": ["no such"]}, "no such"),
        ({"experiments": None}, "a value is not of the kind"),
        ({"counts": {}}, "a value is not of the kind"),
        ({"counts": {**asdict(PRESETS["quick"]), "nulls": 3}}, "a value is not of the kind"),
        ({"counts": {**asdict(PRESETS["quick"]), "null": 10**4000}}, "null must be .* got a number of 4001 digits"),
        ({"counts": {**asdict(PRESETS["quick"]), "power": "many"}}, "power must be a whole number"),
        ({"counts": {**asdict(PRESETS["quick"]), "models": ["giant"]}}, "giant"),
        ({"counts": {**asdict(PRESETS["quick"]), "timed": [1]}}, "a value is not of the kind"),
        ({"tests": "theirs"}, "tests must be one of all, paper, ours"),
        ({"began": "yesterday"}, "isoformat"),
        ({"began": 7}, "began must be a text"),
        ({"seconds": "7"}, "seconds must be a number"),
        ({"trained": {"large16": "long"}}, "large16 must be a number"),
        ({"trained": [1]}, "trained must be an object"),
        ({"device": None}, "device must be a text"),
    ],
)
def test_an_odd_run_is_named_with_its_line(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    write_series(tmp_path, SIGNAL, selective_rows(SIGNAL, 3))
    for values in (RUN, RUN | change):
        add_line(tmp_path / "runs.jsonl", values)
    with pytest.raises(InputError, match=rf"line 3 of .*runs.jsonl is damaged \(.*{reason}"):
        summarise(tmp_path)
