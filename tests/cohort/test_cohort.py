"""Cohorts of tested images: claims, bad input, sentences, figures, pages."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from attentest import AttentionTest, Cohort, Results
from attentest.cohort.study_files import read_table
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.noise import StationaryCovariance
from attentest.runs.engine import FailedImage
from attentest.runs.record_lines import add_line
from attentest.runs.records import read_runs
from command_line import run_main

PATIENTS = ["a", "a", "b", "c", "c", "d", "e", "f"]
GROUPS = ["sick", "sick", "well", "sick", "sick", "well", "well", "sick"]
AGES = [30, 30, 44, 51, 51, 62, 35, 70]


@pytest.fixture(scope="module")
def randomised(tiny_test: AttentionTest, tiny_images: np.ndarray) -> Results:
    return tiny_test.replace(randomise=0.5).map(tiny_images)


@pytest.fixture(scope="module")
def unrandomised(tiny_test: AttentionTest, tiny_images: np.ndarray) -> Results:
    return tiny_test.map(tiny_images)


def study(results: Results, **changes: Any) -> Cohort:
    values: dict[str, Any] = {"groups": GROUPS, "clusters": PATIENTS, "covariates": {"age": AGES}}
    return results.cohort(**values | changes)


def changed(results: Results, place: int, **settings: Any) -> Results:
    """The results with other settings of one."""
    every = list(results)
    every[place] = replace(every[place], settings={**every[place].settings, **settings})
    return Results(every)


def test_means_are_t_tests_of_unbiased_estimates(randomised: Results) -> None:
    cohort = randomised.cohort()
    estimates = cohort.estimates
    draws = [result.randomised_image - result.image for result in randomised]
    for place, (result, added) in enumerate(zip(randomised, draws, strict=True)):
        part, rest = result.part, result.seen & ~result.part
        contrast = added[part].mean() - added[rest].mean()  # eta'W
        assert estimates.plain[place] == pytest.approx(result.difference - contrast / 0.25)
    expected = stats.ttest_1samp(estimates.value, 0).confidence_interval(0.9)
    found = cohort.mean(confidence_level=0.9)
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_groups_are_regression_on_an_indicator(randomised: Results) -> None:
    cohort = study(randomised, covariates=None)
    difference = cohort.differences()["well"]
    assert cohort.group_names == ["sick", "well"]
    assert difference.value == pytest.approx(cohort.mean("well").value - cohort.mean("sick").value)
    assert cohort.regression()["well"] == difference
    assert cohort.regression()["intercept"].value == pytest.approx(cohort.mean("sick").value)


def test_values_by_name_and_in_order_are_the_same(randomised: Results) -> None:
    groups, clusters, ages = (dict(zip(randomised.names, values, strict=True)) for values in (GROUPS, PATIENTS, AGES))
    assert study(randomised).to_dict() == randomised.cohort(groups, clusters, {"age": ages}).to_dict()


def test_a_series_with_an_index_of_its_own_is_matched_by_it(randomised: Results) -> None:
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    shuffled = pandas.Series([GROUPS[place] for place in order], index=order)
    assert study(randomised, groups=shuffled).groups == study(randomised).groups
    backwards = pandas.Series(GROUPS)[::-1]
    assert study(randomised, groups=backwards).groups == study(randomised, groups=pandas.Series(GROUPS)).groups
    with pytest.raises(InputError, match="there is none for 0, 1, 2"):
        study(randomised, groups=pandas.Series(GROUPS, index=range(8, 16)))
    with pytest.raises(InputError, match="groups have an index, by which they are found, with a name twice"):
        study(randomised, groups=pandas.Series(GROUPS, index=[0] * 8))


def test_an_image_that_failed_keeps_its_place_and_is_left_out(randomised: Results) -> None:
    results = Results([randomised[0], FailedImage(number=1, reason="broken"), *randomised[1:]])
    cohort = results.cohort([GROUPS[0], "nobody", *GROUPS[1:]], [PATIENTS[0], "x", *PATIENTS[1:]])
    assert (len(cohort), cohort.failed, cohort.names) == (8, 1, [0, *range(2, 9)])
    assert cohort.mean() == randomised.cohort(clusters=PATIENTS).mean()
    assert "Not tested, and left out: 1 image." in cohort.summary()


def test_one_image_per_cluster_is_no_cluster(randomised: Results) -> None:
    alone = randomised.cohort(clusters=range(8))
    assert alone.mean() == randomised.cohort().mean()
    assert alone.random_effects() == randomised.cohort().random_effects()


def test_two_tests_of_the_same_images_are_compared_image_by_image(
    randomised: Results, tiny_test: AttentionTest, tiny_images: np.ndarray
) -> None:
    other = tiny_test.replace(randomise=0.5, threshold=0.4).map(tiny_images)
    mine, theirs = randomised.cohort(), Results(other[::-1], other.names[::-1]).cohort()
    expected = stats.ttest_rel(mine.estimates.value, other.cohort().estimates.value)
    assert mine.paired(theirs).pvalue == pytest.approx(expected.pvalue)
    with pytest.raises(InputError, match="same images, and 7 are in one"):
        mine.paired(other[:7].cohort())


def test_a_shared_noise_estimate_widens_means(tiny_test: AttentionTest) -> None:
    rng = np.random.default_rng(8)
    estimated = StationaryCovariance(max_lag=1).fit(rng.normal(size=(3, 8, 8)))
    cohort = tiny_test.replace(randomise=0.5, noise=estimated).map(rng.normal(size=(4, 8, 8))).cohort()
    assert math.isfinite(cohort.noise_degrees)
    assert cohort.mean().standard_error > stats.sem(cohort.estimates.value)
    assert "estimate with" in cohort.summary()


def test_several_draws_count_as_their_mean(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    results = tiny_test.replace(randomise=0.5, draws=3, confidence_level=None).map(tiny_images[:3])
    cohort = results.cohort()
    for result, value, error in zip(results, cohort.estimates.value, cohort.estimates.error, strict=True):
        each = [replace(result, draws=(), **{name: getattr(draw, name) for name in DRAW}) for draw in result.draws]
        others = Cohort(list(enumerate(each)))
        assert value == pytest.approx(others.estimates.plain.mean())
        assert error <= others.estimates.error.max()
    records = Cohort([(number, result.record()) for number, result in enumerate(results)])
    np.testing.assert_allclose(records.estimates.value, cohort.estimates.value)
    stopped = tiny_test.replace(randomise=0.5, draws=3).map(tiny_images[:3], decide_at=0.05)
    first_two = [np.mean(draws) for draws in ([_u(draw) for draw in result.draws[:2]] for result in stopped)]
    np.testing.assert_allclose(stopped.cohort().estimates.value, first_two)
    assert "Truncation sets known" not in cohort.summary()


DRAW = ("law", "truncation_set", "standard_error", "log_pvalue", "log_pvalue_bounds", "region")
"""What the draws of a result have of their own."""


def _u(draw: Any) -> float:
    t, z, gamma = draw.statistic, float(draw.law.z_obs[0]), float(draw.law.gamma[0])
    return float(draw.standard_error * (t + (t - z) / gamma**2))


def test_without_randomisation_there_is_a_common_effect_and_no_mean(unrandomised: Results) -> None:
    cohort = unrandomised.cohort()
    with pytest.raises(InputError, match="no mean of them is valid"):
        cohort.mean()
    with pytest.raises(InputError, match="no unbiased estimates"):
        _ = cohort.estimates
    found = cohort.common_effect()
    assert found.low < found.value < found.high
    summary = cohort.summary()
    assert "by the same amount, it is" in summary
    assert "There is no mean difference" in summary
    assert cohort.to_dict()["common_effect"]["value"] == found.value
    assert len(cohort.plot()) == 1


def test_with_randomisation_a_common_effect_is_refused(randomised: Results) -> None:
    with pytest.raises(InputError, match="assumes less"):
        randomised.cohort().common_effect()


def test_images_with_one_noisy_reference_depend_on_each_other(tiny_model: Any, tiny_images: np.ndarray) -> None:
    from toys import COARSE

    reference = np.random.default_rng(3).normal(size=(8, 8))
    test = AttentionTest(tiny_model, noise=1.0, search=COARSE, randomise=0.5, contrast=Reference(reference))
    results = test.map(tiny_images[:4])
    cohort = results.cohort()
    assert cohort.dependence == "any"
    with pytest.raises(InputError, match="same noisy reference"):
        cohort.mean()
    assert "Hommel" in cohort.summary()
    exact = test.replace(contrast=Reference(reference, noise=0)).map(tiny_images[:4]).cohort()
    assert exact.dependence == "positive"
    assert exact.why_no_mean is None


def test_any_subset_may_be_counted(randomised: Results) -> None:
    strong = [replace(result, log_pvalue_bounds=(-30.0, -20.0 + place)) for place, result in enumerate(randomised)]
    weak = [replace(result, log_pvalue_bounds=(-1.0, -0.1)) for result in strong[:3]]
    cohort = Results([*weak, *strong[3:]]).cohort()
    assert cohort.at_least() == 5
    assert cohort.at_least(subset=[3, 4]) == cohort.at_least(subset=np.arange(8) // 2 == 2) == 2
    assert cohort.at_least(subset=[0, 1]) == cohort.at_least(subset=[]) == 0
    assert cohort.at_least(dependence="any") <= 5
    with pytest.raises(InputError, match="'nobody' is none"):
        cohort.at_least(subset=["nobody"])
    with pytest.raises(InputError, match="8 values, got 2"):
        cohort.at_least(subset=np.ones(2, dtype=bool))
    with pytest.raises(InputError, match="dependence must be"):
        cohort.at_least(dependence="some")  # type: ignore[arg-type]


def test_a_pilot_says_how_many_patients_find_an_effect(randomised: Results) -> None:
    pilot = randomised.cohort()
    few, many = pilot.patients_needed(2.0), pilot.patients_needed(1.0)
    assert 2 <= few < many
    assert study(randomised).patients_needed(2.0) >= 2


def test_the_summary_is_what_a_journal_prints(randomised: Results) -> None:
    lines = study(randomised).summary().split("\n")
    assert lines[0].startswith(
        "On average the attention regions of 8 images of 6 clusters differ from the rest of the image by "
    )
    assert "What is estimated is the effect of the regions that the model chose" in lines[0]
    assert [line.partition(":")[0] for line in lines[1:7]] == [
        *("sick", "well", "well less sick", "regression, intercept", "regression, well", "regression, age"),
    ]
    assert "of the 8 images truly differ, " in lines[-1]
    assert repr(study(randomised)) == "Cohort(8 images, 6 clusters, sick, well, age)"


def test_the_summary_counts_images_whose_noise_is_doubtful(randomised: Results) -> None:
    assert (
        "assumed noise, on which all of this rests: 1." in changed(randomised, 2, noise_doubt="why").cohort().summary()
    )


def test_numbers_are_in_json_and_table(randomised: Results) -> None:
    cohort = study(randomised)
    values = json.loads(json.dumps(cohort.to_dict(0.1), allow_nan=False))
    assert values["mean"]["confidence_level"] == 0.9
    assert values["clusters"] == 6
    assert set(values["groups"]) == set(values["at_least_of"]) == {"sick", "well"}
    assert list(cohort.table()) == [
        *("image", "group", "cluster", "estimate", "standard_error", "plain_estimate", "pvalue", "pvalue_high", "age"),
    ]
    assert cohort.table()["estimate"] == cohort.estimates.value.tolist()


def test_a_report_is_one_file(randomised: Results, tmp_path: Path) -> None:
    named = Results(randomised, [f"<b>{place}</b>.png" for place in range(8)])
    study(named).report(tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    assert "On average the attention regions" in page
    assert "data:image/png" in page
    assert "<b>0</b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    study(named).report(tmp_path / "study.json")
    assert json.loads((tmp_path / "study.json").read_text())["images"] == 8


def test_a_large_cohort_is_drawn_without_names(randomised: Results) -> None:
    large = Results([result for result in randomised for _ in range(8)])
    forest, bounds, funnel = large.cohort(groups=GROUPS * 8).plot()
    assert [text.get_text() for text in forest.get_yticklabels()] == ["sick", "well", "mean", "random effects"]
    assert bounds.get_title() == f"at least {large.cohort().at_least()} of 64 images differ"
    small, others, mean, limits = funnel.lines
    cohort, significant = large.cohort(), np.array([result.pvalue <= 0.05 for result in large])
    for line, chosen in ((small, significant), (others, ~significant)):
        np.testing.assert_array_equal(line.get_xdata(), cohort.estimates.value[chosen])
        np.testing.assert_array_equal(line.get_ydata(), cohort.estimates.error[chosen])
    assert mean.get_xdata() == pytest.approx([cohort.mean().value] * 2)
    (low, _, high), (most, none, _) = limits.get_data()
    assert ((high - low) / 2, none) == pytest.approx((1.959964 * most, 0))
    assert funnel.get_ylim()[0] > funnel.get_ylim()[1]  # the more precise estimates are above


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one group": ({"groups": ["all"] * 8}, "at least two groups"),
    "an empty group": ({"groups": ["", *GROUPS[1:]]}, "there is none for 0"),
    "too few groups": ({"groups": GROUPS[:7]}, "a value for each of the 8 images"),
    "a text for groups": ({"groups": "sickwell"}, "a value for each of the 8 images"),
    "a name without a group": ({"groups": {0: "sick"}}, "there is none for 1, 2, 3 and 4 more"),
    "a cluster of two groups": ({"clusters": ["a", "b", "a", *PATIENTS[3:]]}, "'a' is in 'sick' and 'well'"),
    "a group of one cluster": ({"clusters": ["a", "a", "x", "c", "c", "x", "x", "f"]}, "'well' with 1"),
    "words as a covariate": ({"covariates": {"age": ["old"] * 8}}, "covariates must be finite numbers, and age"),
    "a missing value": ({"groups": ["N/A", *GROUPS[1:]]}, "there is none for 0"),
    "a table for groups": ({"groups": np.array([GROUPS] * 8)}, "a value for each of the 8 images"),
    "a frame for groups": ({"groups": pandas.DataFrame({"a": GROUPS}, index=list("abcdefgh"))}, "a value for each of"),
    "a group with the name of a coefficient": (
        {"groups": ["intercept"] * 5 + ["a"] * 3},
        "groups must have other names",
    ),
    "a covariate with the name of a group": ({"covariates": {"well": AGES}}, "'well', which is that of a group"),
    "a covariate of the name of a coefficient": ({"covariates": {"intercept": AGES}}, "other names than 'intercept'"),
    "a covariate of the name of a column": ({"covariates": {"pvalue": AGES}}, "other names than 'pvalue'"),
    "an infinite covariate": ({"covariates": {"age": [math.inf, *AGES[1:]]}}, "covariates must be finite"),
    "covariates without names": ({"covariates": AGES}, "numbers by name"),
}


@pytest.mark.parametrize("case", BAD)
def test_values_that_make_no_study_are_refused_in_a_sentence(case: str, randomised: Results) -> None:
    values, message = BAD[case]
    with pytest.raises(InputError, match=message):
        study(randomised, **values)


def test_what_cannot_be_estimated_is_refused_in_a_sentence(randomised: Results) -> None:
    with pytest.raises(InputError, match="at least two images that were tested, each with its own name, got 1"):
        randomised[:1].cohort()
    with pytest.raises(InputError, match="no groups to compare"):
        randomised.cohort().differences()
    with pytest.raises(InputError, match="group must be one of"):
        study(randomised).mean("dead")
    with pytest.raises(InputError, match="needs more than 3 clusters"):
        study(randomised, covariates={"age": [group == "sick" for group in GROUPS]}).regression()
    with pytest.raises(InputError, match="all images are in one of the clusters"):
        randomised.cohort(clusters=["a"] * 8).mean()


OTHER_TESTS = [{"randomise": 1.0}, {"noise": {"model": "isotropic", "sigma": 2.0}}, {"contrast": {"name": "filtered"}}]


@pytest.mark.parametrize("settings", OTHER_TESTS)
def test_results_of_different_tests_are_refused(settings: dict[str, Any], randomised: Results) -> None:
    with pytest.raises(InputError, match=r"a cohort takes results of one test, and .* for 0 and .* for 5"):
        changed(randomised, 5, **settings).cohort()


def test_components_are_refused(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    components = tiny_test.replace(randomise=0.5, threshold=0.3).components(tiny_images[0])
    twice = Results([*components, *components])
    with pytest.raises(InputError, match="these are components"):
        twice.cohort()


@pytest.fixture
def folder(folder_of_scans: None, saved_tiny_model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    (tmp_path / "scans/broken.npy").write_bytes(b"no image")
    run_main(capsys, "test", "scans", "--model", "tiny", "--noise", "1", "--randomise", "0.5", "--out", "tested")
    rows = [f"{number}.npy;{'ab' if number % 2 else 'cd'}[{number // 2}];{number % 2};{number}" for number in range(5)]
    text = "\n".join(["image;patient;group;age", *rows, "nobody.npy;z;1;0", ";y;0;0", ";x;0;0"])
    (tmp_path / "patients.csv").write_text(text, encoding="utf-8-sig")
    return tmp_path


OPTIONS = ("--table", "patients.csv", "--group", "group", "--cluster", "patient")


def test_the_command_reads_a_folder_and_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = ("--figure", "forest.png", "--report", "study.html", "--plan", "1", "--versus", "again")
    run_main(capsys, "test", "scans", "--model", "tiny", "--noise", "1", "--randomise", "0.5", "--out", "again")
    done = run_main(capsys, "cohort", "tested", *OPTIONS, *outputs)
    assert done.code == 0, done.err
    assert done.out.startswith("On average the attention regions of 5 images of 5 clusters")
    assert "Not tested, and left out: 1 image." in done.out
    assert done.out.rstrip().split("\n")[-3] == "Rows of patients.csv that belong to no image of the folder: 3."
    assert "tested less again, image by image: 0 (" in done.out
    assert "clusters like these in each of two groups find 1." in done.out
    assert (folder / "forest.png").stat().st_size > 1000
    assert "data:image/png" in (folder / "study.html").read_text()
    values = json.loads(run_main(capsys, "cohort", "tested", *OPTIONS, "--covariate", "age", "--json").out)
    assert values["failed"] == 1
    assert list(values["regression"]) == ["intercept", "1", "age"]
    assert values["table"]["image"] == [f"scans/{number}.npy" for number in range(5)]
    assert Cohort.from_folder("tested").mean().value == values["mean"]["value"]


ROWS = "".join(f"{number}.npy,{number},{number % 2}\n" for number in range(1, 5))

TABLES = {
    "a missing file": (
        "image,patient,group\n0.npy,a,1\n",
        r"has no row for 'scans/1.npy', 'scans/2.npy', 'scans/3.npy' and 1 more",
    ),
    "a missing column": ("image,group\n0.npy,1\n", "has no column 'patient'; its columns are 'image', 'group'"),
    "other values": ("image,patient,group\n0.npy,a,1\n0.npy,b,1\n", "two rows with other values for '0.npy'"),
    "nothing": ("", "patients.csv is empty: give a CSV file"),
    "an empty line": ("\n", "patients.csv is empty: give a CSV file"),
    "too many cells": ("image,patient,group\n0.npy,a,1,5\n", "line 2 .* has 4 cells, and its first line .* of 3"),
    "a column twice": ("image,patient,group,group\n0.npy,a,1,2\n", "has two columns 'group'"),
    "two rows": (
        f"image,patient,group\n{ROWS}scans/0.npy,b,1\n./0.npy,a,0\n",
        "two rows with other values for 'scans/0.npy', 'scans/0.npy' and '0.npy'",
    ),
    "an empty cell": (f"image,patient,group\n{ROWS}0.npy,a,NA\n", "has no 'group' for 'scans/0.npy', but 'NA'"),
    "no text": ('\x00\n"', "has no column 'image'|is no CSV file"),
}


def test_tables_that_do_not_fit_are_refused_in_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    for case, (text, message) in TABLES.items():
        (folder / "patients.csv").write_text(text)
        done = run_main(capsys, "cohort", "tested", *OPTIONS)
        assert (done.code, done.out) == (2, ""), case
        assert re.search(message, done.err), (case, done.err)
    (folder / "patients.csv").write_bytes(b"image,\xff\n")
    assert "is no CSV file in UTF-8" in run_main(capsys, "cohort", "tested", *OPTIONS).err
    assert "no table with a column 'age'" in run_main(capsys, "cohort", "tested", "--covariate", "age").err
    assert "there is no table none.csv" in run_main(capsys, "cohort", "tested", "--table", "none.csv").err
    assert "has no results.jsonl" in run_main(capsys, "cohort", "scans").err
    default = inspect.signature(Cohort.from_folder).parameters["image"].default
    assert f"[default: ({default})]" in run_main(capsys, "cohort", "--help").out
    assert "--image is a column of --table" in run_main(capsys, "cohort", "tested", "--image", "file").err
    assert "got tested itself" in run_main(capsys, "cohort", "tested", "--versus", "./tested").err
    assert "--plan must be" in run_main(capsys, "cohort", "tested", "--plan", "0").err


def test_images_of_one_name_need_their_folders_and_slices_of_a_stack_do_not(tmp_path: Path) -> None:
    table, names = tmp_path / "patients.csv", ["a/1.png", "b/1.png"]
    table.write_text("image\tgroup\na/1.png\tx\nb/1.png\ty\n")
    assert read_table(table, names, "image", ["group"]) == ({"group": {"a/1.png": "x", "b/1.png": "y"}}, [])
    table.write_text("image,group\nhead.nii,x\n")
    assert read_table(table, ["a/head.nii[0]", "a/head.nii[1]"], "image", ["group"])[0]["group"]["a/head.nii[1]"] == "x"
    table.write_text("image,group\n1.png,x\n")
    with pytest.raises(InputError, match=r"one row for several images called '1.png'"):
        read_table(table, names, "image", ["group"])
    table.write_text("image,group\na/1.png,x\nb/1.png,y\n")
    folders = ["study/a/1.png", "study/b/1.png"]
    assert read_table(table, folders, "image", ["group"])[0]["group"] == dict(zip(folders, "xy", strict=True))
    table.write_text("image,group\nMu\u0308ller.png,x\n")  # as macOS has it
    assert read_table(table, ["M\u00fcller.png"], "image", ["group"])[0]["group"] == {"M\u00fcller.png": "x"}
    table.write_text('image,group,remark\n.\\a\\1.png,x,"one\u2028line"\nb/1.png,y,"two\nlines"\n\n')  # of Windows
    assert read_table(table, names, "image", ["group"])[0]["group"] == dict(zip(names, "xy", strict=True))


def test_a_folder_that_is_not_complete_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, (run,) = (folder / "tested/results.jsonl").read_text(), read_runs(folder / "tested", ())
    assert Cohort.from_folder("tested").notes == []
    (folder / "tested/results.jsonl").write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert "records are missing" in Cohort.from_folder("tested").summary()
    (folder / "tested/results.jsonl").write_text(whole)
    add_line(folder / "tested/runs.jsonl", run | {"left": 3})
    note = "The last run ended before 3 images of it had a record: its command tests them."
    assert Cohort.from_folder("tested").summary().split("\n")[-1] == note
    (folder / "tested/runs.jsonl").unlink()
    assert "has not ended, or was cut off" in Cohort.from_folder("tested").summary()
    run_main(capsys, "test", "scans", "--model", "tiny", "--noise", "1", "--randomise", "0.5", "--out", "tested")
    assert Cohort.from_folder("tested").notes == []


@pytest.mark.filterwarnings("ignore:.* has the results of")
def test_an_image_under_two_names_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tiny", "--noise", "1", "--randomise", "0.5", "--out", "tested")
    assert run_main(capsys, "test", str(folder / "scans/0.npy"), *asked).code == 0
    done = run_main(capsys, "cohort", "tested")
    assert done.code == 2
    assert f"one image under several names, such as 'scans/0.npy' and '{folder / 'scans/0.npy'}'" in done.err


@pytest.mark.filterwarnings("ignore:.* has the results of")
def test_runs_that_share_their_added_noise_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tiny", "--noise", "1", "--randomise", "0.5", "--out", "together")
    for number in range(2):
        Path(f"patient{number}").mkdir()
        Path(f"scans/{number}.npy").rename(f"patient{number}/flair.npy")
        assert run_main(capsys, "test", f"patient{number}", *asked).code == 0
    done = run_main(capsys, "cohort", "together")
    assert done.code == 2
    assert "'patient0/flair.npy' and 'patient1/flair.npy' of together were tested in several runs" in done.err
    assert run_main(capsys, "test", "patient0", "patient1", *asked[:-1], "apart").code == 0
    assert run_main(capsys, "cohort", "apart").code == 0
