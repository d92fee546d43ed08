"""Running the paper's experiments: trials, resuming, failures, models."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch

import attentest.studies.paper_model
from attentest import AttentionTest, bundled_model
from attentest.errors import InputError
from attentest.noise import AR1, FromImage
from attentest.registry import ENGINES
from attentest.runs.record_lines import add_line
from attentest.runs.records import read_runs
from attentest.studies.measures import PlannedSeries, data_file
from attentest.studies.paper_model import (
    MODELS,
    PUBLISHED,
    SERIES_MODELS,
    ModelFolders,
    PaperModel,
    architecture_of,
    side_of,
)
from attentest.studies.reproduction import trial
from attentest.studies.reproduction.experiment import (
    EXPERIMENTS,
    PRESETS,
    Experiment,
    Series,
    chosen_experiments,
    plan_of,
)
from attentest.studies.reproduction.run import RUN_FIELDS, RunSettings, run, summarise
from attentest.studies.reproduction.trial import SEARCH, TOL, Trials
from attentest.training.bundled import ARCHITECTURES, TrainingSettings
from reproduction_data import small_base8_fixture, small_directory_fixture  # noqa: F401
from shuffled_engine import ShuffledEngine
from study_summary import differences

NULL = Series(work="selective", model="base8", noise="correlated")
PERMUTED = Series(work="permutation", model="base8", permutations=20)


def an_experiment(*series: Series, count: int = 6) -> Experiment:
    return Experiment(
        name="type-i-error", title="", where="", series=lambda preset, published: [(one, count) for one in series]
    )


def settings_of(tmp_path: Path, *series: Series, count: int = 6, **options: Any) -> RunSettings:
    return RunSettings(
        preset_name="quick",
        preset=PRESETS["quick"],
        experiments=(an_experiment(*series, count=count),),
        folders=ModelFolders(trained=tmp_path / "models"),
        **options,
    )


def counts(record: dict[str, Any]) -> tuple[int, int]:
    """The numbers of trials of a run and of failed ones."""
    return record["trials"], record["failed"]


def rows_of(out: Path, series: Series) -> dict[int, dict[str, Any]]:
    """The rows of a series without their times."""
    rows = data_file(out, series.name).read().rows
    return {number: {k: v for k, v in row.items() if k != "seconds"} for number, row in rows.items()}


def test_no_two_series_share_a_file_or_images() -> None:
    plan = plan_of(EXPERIMENTS.values(), PRESETS["full"], published=True)
    assert len({series.name for series in plan}) == len(plan)
    null = {series: series.images(0, [0]) for series in plan if series.work == "selective" and not series.estimated}
    first = [float(image.flat[0]) for image in null.values()]
    assert len(set(first)) == len(first)


def test_series_that_are_compared_see_the_same_images() -> None:
    for other in (
        Series(work="permutation", model="base8", noise="correlated", permutations=20),
        Series(work="search", model="base8", noise="correlated", search="fixed"),
        Series(work="interval", model="base8", noise="correlated", region="patches", randomise=0.5),
    ):
        np.testing.assert_array_equal(other.images(3, [0, 5]), NULL.images(3, [0, 5]))


def test_an_image_depends_on_seed_and_number_alone() -> None:
    together = NULL.images(1, [0, 1, 2])
    np.testing.assert_array_equal(together[2:], NULL.images(1, [2]))
    assert together.shape == (3, 8, 8)
    assert not np.any(together == NULL.images(2, [0, 1, 2]))
    assert len(np.unique(together)) == together.size


def test_images_have_the_law_that_is_asked_for() -> None:
    flat = NULL.images(0, list(range(2000))).reshape(2000, -1)
    # 126,000 neighbouring pairs: the standard error of a correlation is below 0.004.
    assert np.mean(flat[:, 1:] * flat[:, :-1]) == pytest.approx(0.5, abs=0.016)
    assert np.var(flat) == pytest.approx(1.0, abs=0.02)
    bright = Series(work="selective", model="base16", delta=3.0).images(0, list(range(400)))
    # A square of 5 x 5 of 256 pixels; the standard error of the mean of 102,400 pixels is below 0.004.
    assert bright.mean() == pytest.approx(3 * 25 / 256, abs=0.013)
    other = Series(work="selective", model="base16", family="t", distance=0.04).images(0, list(range(400)))
    assert other.var() == pytest.approx(1.0, abs=0.025)


def test_the_papers_counts() -> None:
    def count(name: str, preset: str) -> set[int]:
        plan = EXPERIMENTS[name].series(PRESETS[preset], False)
        return {number for series, number in plan if series.work in ("selective", "permutation")}

    assert count("type-i-error", "paper") == count("power", "paper") == {1000}
    for name in ("additional-trials", "estimated-variance", "non-gaussian"):
        assert count(name, "full") == {10_000}
    plan = plan_of([EXPERIMENTS["type-i-error"]], PRESETS["paper"], published=False)
    assert sum(series.work == "selective" for series in plan) == 14
    # Ours, and the paper's among them: gamma 0, 0.3 and 1, of pixels and of patches, in the same 14 settings.
    assert [number for series, number in plan.items() if series.ours] == [1000] * 14 * 6
    assert {series.permutations for series in plan if series.work == "permutation"} == {1000}
    assert set(PRESETS["quick"].models) <= set(PUBLISHED)  # those that are bundled


def test_the_series_of_the_authors_later_work() -> None:
    names = ("series-type-i-error", "series-power")
    plans = [plan_of([EXPERIMENTS[name]], PRESETS["full"], True, "paper") for name in names]
    null, signal = ([series for series in plan if series.work == "selective"] for plan in plans)
    assert {(architecture_of(series.model), side_of(series.model)) for series in null} == {
        *(("base", length) for length in (128, 256, 512, 1024)),
        *((name, 256) for name in ("small", "large", "huge")),
    }
    assert [plans[0][series] for series in null] == [10_000] * 14
    assert {(series.model, series.delta) for series in signal} == {("series-base256", delta) for delta in range(1, 5)}
    assert {series.permutations for series in plans[0] if series.work == "permutation"} == {1000}
    assert not any(series.published for plan in plans for series in plan)
    # A quick run trains nothing.
    assert not ModelFolders(trained=Path("nowhere")).missing(
        {series.model for name in names for series, _ in EXPERIMENTS[name].series(PRESETS["quick"], False)}
    )


def test_series_have_the_law_that_is_asked_for() -> None:
    null = Series(work="selective", model="series-base128", noise="correlated").images(0, list(range(800)))
    assert null.shape == (800, 128)
    # 101,600 neighbouring pairs: the standard error of a correlation is below 0.005.
    assert np.mean(null[:, 1:] * null[:, :-1]) == pytest.approx(0.5, abs=0.02)
    raised, where = Series(work="selective", model="series-base256", delta=3.0).images_and_squares(0, list(range(100)))
    assert (where.sum(axis=1) == 25).all()
    assert (np.abs(np.diff(where.astype(int), axis=1)).sum(axis=1) <= 2).all()  # in one piece
    # 2,500 samples: the standard error of their mean is 0.02.
    assert raised[where].mean() == pytest.approx(3.0, abs=0.1)


def test_models_of_series_overlap_and_are_tested_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURES, "base", ARCHITECTURES["small"])  # type: ignore[attr-defined]
    tiny = partial(TrainingSettings, epochs=1, images_per_class=4)
    monkeypatch.setattr(attentest.studies.paper_model, "TrainingSettings", tiny)
    null = Series(work="selective", model="series-base128", noise="correlated")
    ours = Series(work="interval", model="series-base128", delta=3.0, region="patches", randomise=0.5)
    permuted = Series(work="permutation", model="series-base128", permutations=3)
    assert counts(run(settings_of(tmp_path, null, ours, permuted, count=1), tmp_path)) == (3, 0)
    model = ModelFolders(trained=tmp_path / "models").find("series-base128")
    config = json.loads((model.directory / "config.json").read_text())
    assert [config[name] for name in ("image_size", "patch_size", "patch_margin")] == [[128], [2], 1]
    assert model.training["command"].endswith(
        "--image-size 128 --axes 1 --architecture base --seed 0 --epochs 1 "
        "--batch-size 256 --learning-rate 0.0001 --dropout 0.1 --images-per-class 4 --series"
    )
    test = AttentionTest.from_pretrained(model.directory, noise=AR1(0.5), search=SEARCH, confidence_level=None)
    (row,) = rows_of(tmp_path, null).values()
    result = test(null.images(0, [0])[0])
    assert result.attention.shape == (128,)
    assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
    shutil.copytree(model.directory, tmp_path / "models" / "series-base256")
    with pytest.raises(InputError, match=r"series-base256 is no series-base256: its configuration has"):
        ModelFolders(trained=tmp_path / "models").find("series-base256")


def test_presets_can_be_cut_down() -> None:
    assert PRESETS["paper"].with_models(("series-base512", "base8")).series_models == ("series-base512",)
    small = PRESETS["paper"].limited(3, 7).with_models(("base64", "base8"))
    assert small.models == ("base8", "base64")
    assert (small.null, small.additional, small.curves, small.permutations) == (3, 3, 3, 7)
    assert set(small.timed.values()) == {3}
    assert PRESETS["quick"].limited(10**6, 10**6) == PRESETS["quick"]
    with pytest.raises(InputError, match="a model must be one of base8"):
        PRESETS["quick"].with_models(("vit",))
    with pytest.raises(InputError, match="images must be at least 1"):
        PRESETS["quick"].limited(0, None)
    with pytest.raises(InputError, match="an experiment must be one of type-i-error"):
        chosen_experiments(["figure 4"])


def test_rows_are_the_librarys_own_results(tmp_path: Path, small_base8: Path) -> None:
    estimated = Series(work="selective", model="base8", estimated=True)
    run(settings_of(tmp_path, NULL, estimated, PERMUTED, count=3), tmp_path)
    for series, noise in ((NULL, AR1(0.5)), (estimated, FromImage("sample"))):
        test = AttentionTest.from_pretrained(small_base8, noise=noise, search=SEARCH, confidence_level=None)
        results = test.map(series.images(0, [0, 1, 2]))
        for row, result in zip(rows_of(tmp_path, series).values(), results, strict=True):
            assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
            assert row["statistic"] == result.statistic
            assert row["log_naive"] == result.naive_log_pvalue
            assert row["log_bonferroni"] == result.bonferroni_log_pvalue
            assert row["region"] == result.region.sum()
    known = AttentionTest.from_pretrained(small_base8, noise=1.0)
    for number, row in rows_of(tmp_path, PERMUTED).items():
        image = PERMUTED.images(0, [number])[0]
        expected = known.permutation_test(image, 20, PERMUTED.generator(0, number, "permutations"))
        assert row["p"] == expected.count_pvalue
        assert row["p_with_observed"] == expected.pvalue


def test_headers_say_how_rows_were_made(tmp_path: Path, small_base8: Path) -> None:
    run(settings_of(tmp_path, NULL, count=1, seed=5), tmp_path)
    (header,) = data_file(tmp_path, NULL.name).read().headers
    assert header["seed"] == 5
    assert header["model_sha256"] == PaperModel.read(small_base8).sha256
    assert header["series"]["noise_model"].items() >= {"model": "ar1", "rho": 0.5, "sigma": 1.0}.items()
    assert header["settings"]["threshold"] == 0.6
    assert header["settings"]["search"]["tol"] == TOL
    assert {"attentest", "torch", "transformers", "numpy", "scipy", "python"} == set(header["versions"])
    (entry,) = read_runs(tmp_path, RUN_FIELDS)
    assert entry["trials"] == 1
    assert entry["finished"]
    assert entry["preset"] == "quick"


@pytest.mark.usefixtures("small_base8")
def test_a_second_run_does_only_what_is_missing(tmp_path: Path) -> None:
    assert run(settings_of(tmp_path, NULL, count=3), tmp_path)["trials"] == 3
    before = data_file(tmp_path, NULL.name).path.read_bytes()
    assert run(settings_of(tmp_path, NULL, count=3), tmp_path)["trials"] == 0
    assert data_file(tmp_path, NULL.name).path.read_bytes() == before
    assert run(settings_of(tmp_path, NULL, count=5), tmp_path)["trials"] == 2
    assert sorted(rows_of(tmp_path, NULL)) == [0, 1, 2, 3, 4]


def test_rows_of_our_tests_have_intervals_bounds_and_the_truth(tmp_path: Path, small_base8: Path) -> None:
    options: list[dict[str, Any]] = [{"randomise": 0.5, "region": "patches"}, {"randomise": 1.0, "delta": 2.0}, {}]
    for option in options:
        series = Series(work="interval", model="base8", **option)
        run(settings_of(tmp_path, series, count=1), tmp_path)
        gamma, region, delta = series.randomise, series.region, series.delta
        test = AttentionTest.from_pretrained(small_base8, noise=1.0, search=SEARCH, region_unit=region, randomise=gamma)
        images, squares = series.images_and_squares(0, [0])
        for row, result, square in zip(rows_of(tmp_path, series).values(), test.map(images), squares, strict=True):
            interval = result.confidence_interval(0.95)
            assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
            # The square has the mean delta, and all else zero.
            chosen = result.region
            truth = delta * (square[chosen].mean() - square[~chosen].mean())
            assert row["true_difference"] == pytest.approx(truth, abs=1e-12)
            assert (row["confidence_low"], row["confidence_high"]) == pytest.approx(
                (interval.low, interval.high), abs=1e-6
            )
            assert row["standard_error"] == result.standard_error
            if gamma:
                assert row["confidence_bound"] == pytest.approx(np.sqrt(1 + 1 / gamma**2))
                naive = 2 * 1.96 * result.standard_error
                assert interval.high - interval.low - 2 * interval.error <= row["confidence_bound"] * naive
            else:
                assert row["confidence_bound"] is None
            assert ("iou" in row) == bool(delta)
            assert row["evaluations"] == result.evaluations


def test_ours_or_the_papers_tests_alone() -> None:
    power, preset = [EXPERIMENTS["power"]], PRESETS["quick"]
    everything, paper, ours = (plan_of(power, preset, True, tests) for tests in ("all", "paper", "ours"))
    assert everything == paper | ours
    assert not set(paper) & set(ours)
    assert {series.work for series in paper} == {"selective"}
    # For every setting of the paper, and a larger image: four gammas, of pixels and of patches.
    assert len(ours) == 8 * (len(paper) + 2)


@pytest.mark.usefixtures("small_base8")
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_interrupted_and_resumed_gives_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setitem(trial.FIRST_CHUNK, "cpu", chunk)
    monkeypatch.setattr(trial, "LARGEST_CHUNK", chunk)

    def stop(done: float, total: float, label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings_of(tmp_path, NULL), tmp_path, stop)
    assert sorted(rows_of(tmp_path, NULL)) == list(range(chunk))
    assert not read_runs(tmp_path, RUN_FIELDS)[0]["finished"]
    run(settings_of(tmp_path, NULL), tmp_path)
    found = rows_of(tmp_path, NULL)
    whole = tmp_path / "whole"
    monkeypatch.undo()
    run(settings_of(tmp_path, NULL), whole)
    assert sorted(found) == sorted(rows_of(whole, NULL)) == list(range(6))
    for number, row in rows_of(whole, NULL).items():
        assert found[number]["p"] == pytest.approx(row["p"], abs=1e-11)
        assert found[number]["statistic"] == pytest.approx(row["statistic"], abs=1e-12)


@pytest.mark.usefixtures("small_base8")
def test_another_engine_gives_the_same_rows_and_times_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("TIMED_BATCHES", 1), ("CURVE_POINTS", 41), ("CLOSE_POINTS", 11)):
        monkeypatch.setattr(trial, name, small)
    series = [
        NULL,
        PERMUTED,
        Series(work="interval", model="base8", delta=2.0, randomise=1.0),
        Series(work="curves", model="base8"),
    ]
    timed = [Series(work="search", model="base8"), Series(work="evaluation", model="base8", device="cpu")]
    settings, engine = settings_of(tmp_path, *series, *timed, count=2), ShuffledEngine()
    assert counts(run(settings, tmp_path / "local")) == (12, 0)
    assert counts(run(settings, tmp_path / "there", engine=engine)) == (12, 0)
    assert len(engine.works) == len(series)
    assert engine.not_kept == 0
    assert any(list(rows_of(tmp_path / "there", one)) != [0, 1] for one in series)
    for one in (*series, *timed):
        local, there = (data_file(tmp_path / name, one.name).read() for name in ("local", "there"))
        assert [header["engine"] for header in local.headers] == ["local"]
        assert [header["engine"] for header in there.headers] == ["local" if one.timed else "shuffled"]
        assert one.work == "evaluation" or not list(differences(there.rows, local.rows, 1e-9))
    assert not list(differences(summarise(tmp_path / "there"), summarise(tmp_path / "local"), 1e-9))


@pytest.mark.slow
@pytest.mark.usefixtures("small_base8")
@pytest.mark.parametrize("name", ["processes", "ray"])
def test_real_workers_give_the_same_rows(name: str, tmp_path: Path) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    engine = ENGINES.load(name)(workers=2, shard=2)
    settings = settings_of(tmp_path, NULL, PERMUTED)
    assert counts(run(settings, tmp_path / "local")) == (12, 0)
    assert counts(run(settings, tmp_path / "there", engine=engine)) == (12, 0)
    for one in (NULL, PERMUTED):
        assert not list(differences(rows_of(tmp_path / "there", one), rows_of(tmp_path / "local", one), 1e-9))
        (header,) = data_file(tmp_path / "there", one.name).read().headers
        assert (header["engine"], header["workers"]) == (name, 2)


def test_a_cluster_that_is_not_there_is_found_out_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent(ShuffledEngine):
        def __enter__(self) -> Self:
            raise InputError("there is no cluster")

    monkeypatch.setattr(ModelFolders, "train", None)  # training would fail
    with pytest.raises(InputError, match="there is no cluster"):
        run(settings_of(tmp_path, Series(work="selective", model="large16")), tmp_path, engine=Absent())


def test_a_trial_whose_worker_is_lost_is_a_failed_trial(tmp_path: Path, small_base8: Path) -> None:
    class Lost(ShuffledEngine):
        def run(self, work: Any, tasks: Any, progress: Any = None) -> Any:
            yield [0], [work.lost(0, "its worker ended")]

    assert counts(run(settings_of(tmp_path, NULL, count=1), tmp_path, engine=Lost())) == (1, 1)
    assert rows_of(tmp_path, NULL) == {0: {"image": 0, "error": "its worker ended"}}
    assert summarise(tmp_path)["failures"][0]["failed"] == 1


def failing_on(number: int, message: str) -> Callable[[Trials, list[int]], list[dict[str, Any]]]:
    selective = Trials._selective

    def fail(trials: Trials, numbers: list[int]) -> list[dict[str, Any]]:
        if number in numbers:
            raise ValueError(message)
        return selective(trials, numbers)

    return fail


@pytest.mark.usefixtures("small_base8")
def test_a_failed_trial_is_a_row_and_the_others_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path, NULL, count=4)
    with monkeypatch.context() as patched:
        patched.setitem(trial.FIRST_CHUNK, "cpu", 4)
        patched.setattr(Trials, "_selective", failing_on(1, "no attention here"))
        done = run(settings, tmp_path)
    assert counts(done) == (4, 1)
    rows = rows_of(tmp_path, NULL)
    assert rows[1] == {"image": 1, "error": "ValueError: no attention here"}
    assert all("p" in rows[number] for number in (0, 2, 3))
    assert run(settings, tmp_path)["trials"] == 0  # it is done, though it failed
    assert run(settings_of(tmp_path, NULL, count=4, retry=True), tmp_path)["trials"] == 1
    assert "p" in rows_of(tmp_path, NULL)[1]


@pytest.mark.usefixtures("small_base8")
@pytest.mark.parametrize("count", [1, 2])
def test_another_seed_in_the_same_directory_is_refused(tmp_path: Path, count: int) -> None:
    run(settings_of(tmp_path, NULL, count=1), tmp_path)
    with pytest.raises(InputError, match=r"other values of seed .*made"):
        run(settings_of(tmp_path, NULL, count=count, seed=1), tmp_path)  # also where nothing is left to do


@pytest.mark.usefixtures("small_base8")
def test_what_another_run_has_done_meanwhile_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(settings_of(tmp_path, NULL, count=3), tmp_path)
    late = [0, 1, 2, 3]  # the list was made before the other run ended
    monkeypatch.setattr(PlannedSeries, "missing", lambda *_: late)
    assert run(settings_of(tmp_path, NULL, count=4), tmp_path)["trials"] == 1
    assert len(data_file(tmp_path, NULL.name).path.read_text().splitlines()) == 6


@pytest.mark.usefixtures("small_base8")
def test_what_stopped_a_run_is_said_and_not_that_its_record_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "runs.jsonl").mkdir()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"base8-correlated.jsonl cannot be written \(No space left on device"):
        run(settings_of(tmp_path, NULL, count=1), tmp_path)


@pytest.mark.usefixtures("small_base8")
def test_the_list_of_runs_survives_a_line_that_was_not_finished(tmp_path: Path) -> None:
    run(settings_of(tmp_path, NULL, count=1), tmp_path)
    runs = tmp_path / "runs.jsonl"
    with open(runs, "a") as file:
        file.write('{"preset": "qu')
    assert len(read_runs(tmp_path, RUN_FIELDS)) == 1
    run(settings_of(tmp_path, NULL, count=2), tmp_path)
    assert [entry["trials"] for entry in read_runs(tmp_path, RUN_FIELDS)] == [1, 1]
    runs.unlink()
    add_line(runs, {})
    with pytest.raises(InputError, match=r"line 2 of .*runs.jsonl is damaged .* is missing"):
        read_runs(tmp_path, RUN_FIELDS)


def test_models_are_found_by_name() -> None:
    folders = ModelFolders(trained=Path("nowhere"))
    assert [(architecture_of(model), side_of(model)) for model in ("base8", "huge16")] == [("base", 8), ("huge", 16)]
    assert folders.missing(MODELS) == ["large16", "huge16"]
    assert [model for model in SERIES_MODELS if model not in folders.missing(SERIES_MODELS)] == ["series-small256"]
    assert folders.find("small16").directory == bundled_model(16, "small")
    for model, published in (("large16", False), ("base8", True)):
        with pytest.raises(InputError, match=r"holds no complete model|there is no published model"):
            folders.find(model, published)


def test_weights_that_are_not_those_of_the_record_are_refused(tmp_path: Path) -> None:
    shutil.copytree(bundled_model(8), tmp_path / "large16")
    record = json.loads((tmp_path / "large16" / "training.json").read_text())
    (tmp_path / "large16" / "training.json").write_text(json.dumps({**record, "weights_sha256": "0" * 64}))
    with pytest.raises(InputError, match="is not the file that"):
        ModelFolders(trained=tmp_path).find("large16")


def test_a_model_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    shutil.copytree(bundled_model(8), tmp_path / "large16")
    with pytest.raises(InputError, match=r"large16 is no large16: its configuration has \{'image_size': 8"):
        ModelFolders(trained=tmp_path).find("large16")


def test_missing_models_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURES, "large", ARCHITECTURES["small"])  # type: ignore[attr-defined]
    tiny = partial(TrainingSettings, epochs=1, images_per_class=4)
    monkeypatch.setattr(attentest.studies.paper_model, "TrainingSettings", tiny)
    monkeypatch.setattr(attentest.studies.reproduction.trial, "TIMED_BATCHES", 1)
    series = Series(work="evaluation", model="large16", device="cpu")
    steps: list[str] = []
    run(settings_of(tmp_path, series, count=1), tmp_path, lambda done, total, label: steps.append(label))
    assert steps[0] == "training large16"
    assert list(read_runs(tmp_path, RUN_FIELDS)[0]["trained"]) == ["large16"]
    assert ModelFolders(trained=tmp_path / "models").find("large16").training["settings"]["architecture"] == "large"
    (row,) = data_file(tmp_path, series.name).read().rows.values()
    assert row["seconds_an_evaluation"] > 0
    run(settings_of(tmp_path, series, count=2), tmp_path)
    assert read_runs(tmp_path, RUN_FIELDS)[1]["trained"] == {}


def test_curves_are_f_of_the_paper(tmp_path: Path, small_base8: Path) -> None:
    series = Series(work="curves", model="base8")
    run(settings_of(tmp_path, series, count=1), tmp_path)
    row = data_file(tmp_path, series.name).read().rows[0]
    test = AttentionTest.from_pretrained(small_base8, noise=1.0, search=SEARCH, confidence_level=None)
    result = test(series.images(0, [0])[0])
    assert row["statistic"] == result.statistic
    z = np.array(row["close"]["z"])
    middle = len(z) // 2
    assert z[middle] == pytest.approx(result.statistic, abs=1e-6)
    inside, outside = (np.array(row["close"][name])[:, middle] for name in ("inside", "outside"))
    assert set(np.round(inside, 5)) <= set(np.round(0.6 - result.attention[result.region], 5))
    assert set(np.round(outside, 5)) <= set(np.round(result.attention[~result.region] - 0.6, 5))
    assert max(inside.max(), outside.max()) < 0  # the region at the statistic is the observed one
    # f_i < 0 for all i is what the truncation set is: where the curves drawn are not, the point is not in it.
    far, curves = np.array(row["far"]["z"]), np.array(row["far"]["inside"] + row["far"]["outside"])
    within = np.any([(low <= far) & (far <= high) for low, high in row["intervals"]], axis=0)
    assert within.any()
    assert not within.all()
    assert (curves[:, within].max(axis=0) < 1e-6).all()


@pytest.mark.usefixtures("small_base8")
def test_precision_compares_the_same_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse(monkeypatch)
    series = Series(work="precision", model="base8")
    run(settings_of(tmp_path, series, count=2), tmp_path)
    for row in data_file(tmp_path, series.name).read().rows.values():
        assert row["statistic_float32"] == pytest.approx(row["statistic"], abs=1e-5) or row["region_changed"]
        assert 0 <= row["p_float32"] <= 1
        assert row["p_float64"] == pytest.approx(row["p"], abs=0.05)  # coarse steps jump over gaps


def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the paper's grids take steps that a test can wait for."""
    from attentest.search import Adaptive, Combination, Fixed, GridSearch

    grid = "attentest.search.grid"
    monkeypatch.setattr(f"{grid}.adaptive", lambda: GridSearch(step=Adaptive(eps_min=1.0, eps_max=2.0)))
    monkeypatch.setattr(f"{grid}.fixed", lambda: GridSearch(step=Fixed(step=0.05)))
    monkeypatch.setattr(f"{grid}.combination", lambda: GridSearch(step=Combination(fine=0.01, coarse=0.1)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("series", [NULL, PERMUTED, Series(work="selective", model="base64", noise="correlated")])
def test_devices_give_the_same_numbers(tmp_path: Path, series: Series) -> None:
    for device in ("cpu", "cuda"):
        run(settings_of(tmp_path, series, device=device), tmp_path / device)
    there = rows_of(tmp_path / "cuda", series)
    for number, row in rows_of(tmp_path / "cpu", series).items():
        # Where a search refines depends on the last digit of the scores, and p by less than the error bar of 1e-4.
        assert there[number]["p"] == pytest.approx(row["p"], abs=1e-6)
        assert there[number]["statistic"] == pytest.approx(row["statistic"], abs=1e-12)
