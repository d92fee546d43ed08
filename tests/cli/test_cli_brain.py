"""``attentest brain``, on small synthetic data with the layout of the real data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import quick_brain
from attentest import read_image
from attentest.cli import app
from attentest.cli.options import EngineOptions
from attentest.errors import InputError
from attentest.noise import load_noise
from attentest.runs.record_lines import add_line, alone_in
from attentest.runs.records import read_runs
from attentest.search import SpectralSearch
from attentest.studies.brain.classifier import BrainTraining
from attentest.studies.brain.condition import CONDITIONS, PAPER
from attentest.studies.brain.dataset import load_slices
from attentest.studies.brain.page import FIGURES
from attentest.studies.brain.study import StudySettings, read_record, run
from attentest.studies.brain.summary import summarise
from attentest.studies.measures import data_file
from brain_folder import write_brain_folder
from brain_page import expected, plain
from command_line import full_disk, kill_at_random
from plain_figures import figures_not_drawn
from quick_brain import make_quick
from shuffled_engine import ShuffledEngine
from study_summary import differences

SMALL = {"--noise-images": "10", "--training-per-class": "4", "--epochs": "1", "--sensitivity-images": "1"}


FEW = StudySettings(noise_images=10, training_per_class=4, training=BrainTraining(epochs=1), sensitivity_images=0)


def brain(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["brain", *map(str, arguments)])


def small(*own: str) -> list[str]:
    """Options of a small study, in addition to its own."""
    return [*own, *(part for option, value in SMALL.items() if option not in own for part in (option, value))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_brain_folder(tmp_path / "download", patients=8, slices=6)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quick(monkeypatch)


@pytest.mark.usefixtures("quick")
def test_the_whole_study_runs_from_the_download(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = tuple(one for one in CONDITIONS if not one.ours or one.name.startswith("stationary-background"))
    monkeypatch.setattr("attentest.studies.brain.study.available", lambda: some)
    out = tmp_path / "out"
    with figures_not_drawn():
        done = brain("--data", folder, "--out", out, *small(), "--json")
    assert done.exit_code == 0, (done.exception, done.stderr)
    summary = json.loads(done.stdout)
    assert [one["name"] for one in summary["conditions"]] == [condition.name for condition in some]
    assert len(summary["findings"]) == 6
    # Every test slice is tested as in the paper, one of each class under the other conditions.
    split = summary["data"]["split"]
    paper, *others = summary["conditions"]
    for name, key in (("tumour", "with_tumour"), ("free", "without_tumour")):
        assert paper["classes"][name]["images"] == split["test"][key] > 1
        assert {one["classes"][name]["images"] for one in others} == {1}
        assert paper["classes"][name]["failed"] == 0
    assert (split["noise"]["with_tumour"], split["noise"]["without_tumour"]) == (0, 10)
    assert (split["training"]["with_tumour"], split["training"]["without_tumour"]) == (4, 4)
    # No patient is in two parts: those of the tested slices are none of those trained on.
    rows = data_file(out, PAPER.name).read().rows.values()
    tested = {row["patient"] for row in rows}
    assert len(tested) == split["test"]["patients"]
    assert sum(part["patients"] for part in split.values()) <= summary["data"]["patients"] == 8
    # The noise that was used is there for later use, and the model takes slices as they are.
    assert load_noise(out / "noise" / "pooled.json").describe()["sigma"] == summary["noise"]["pooled"]["sigma"]
    image = next(path for path in sorted(folder.glob("*/*_2.tif")))
    grey = tmp_path / "slice.npy"
    np.save(grey, read_image(image)[..., 1])
    arguments = ["test", str(grey), "--model", str(out / "model"), "--noise", str(out / "noise" / "pooled.json")]
    single = CliRunner().invoke(app, [*arguments, "--json"])
    assert single.exit_code == 0, (single.exception, single.stderr)

    report = out / "report"
    written = json.loads((report / "summary.json").read_text())
    page = (report / "brain.md").read_text()
    assert [text for text in expected(written) if text not in plain(page)] == []
    assert len(re.findall(r"<img src=\"data:image/png;base64,", (report / "index.html").read_text())) == 8
    assert {path.stem for path in (report / "figures").iterdir()} == {*FIGURES, "maps-free", "maps-tumour"}
    assert "TCGA_XX" not in page + (report / "summary.json").read_text()

    # All results exist: the same command has nothing left to do but the page.
    pages: list[Path] = []
    monkeypatch.setattr("attentest.studies.brain.summary.example_galleries", lambda *_: {})
    monkeypatch.setattr("attentest.studies.brain.page.write_report", lambda *given: pages.append(given[1]))
    again = brain("--data", folder, "--out", out, *small())
    assert again.exit_code == 0, (again.exception, again.stderr)
    assert "0 tests in" in again.stderr
    assert "section 4" in again.stdout
    assert pages == [out / "report"]
    assert len(read_runs(out, ("tested",))) == 1
    # Slices that could not be tested are tried again only with --retry.
    broken = data_file(out, PAPER.name)
    first = next(iter(broken.read().rows.values()))
    failed = {name: first[name] for name in ("image", "patient", "slice", "tumour", "seconds")}
    add_line(broken.path, {**failed, "error": "MemoryError: once"})
    for options, tests in (((), "0 tests"), (("--retry",), "1 test")):
        again = brain("--data", folder, "--out", out, *small(*options))
        assert again.exit_code == 0, (again.exception, again.stderr)
        assert f"{tests} in" in again.stderr
    assert broken.read().rows[first["image"]]["p"] == first["p"]
    # Another split, or another training, is another study.
    for other in (("--seed", "1"), ("--epochs", "2")):
        refused = brain("--data", folder, "--out", out, *small(*other))
        assert isinstance(refused.exception, InputError)
        assert "use another output directory" in str(refused.exception)
    # And so is another model.
    weights = out / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    refused = brain("--data", folder, "--out", out, *small())
    assert isinstance(refused.exception, InputError)
    assert "model.safetensors is not the file that" in str(refused.exception)
    weights.unlink()
    refused = brain("--data", folder, "--out", out, *small())
    assert isinstance(refused.exception, InputError)
    assert "holds no complete model" in str(refused.exception)


def test_without_data_it_says_where_they_are() -> None:
    done = brain()
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "https://www.kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation" in done.stderr
    assert "attentest brain --data kaggle_3m" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--sensitivity-images", "some"), "whole number from 0, or all, got 'some'"),
        (("--training-per-class", "4000"), "4000 slices with and 4000 without tumour are wanted"),
        (("--noise-images", "4000"), "4000 slices without tumour are wanted"),
        (("--sensitivity-images", "9" * 5000), "whole number from 0, or all, got '9999"),
        (("--device", "cuda:99"), "cuda:99"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = brain("--data", folder, "--out", tmp_path / "out", *small(*arguments))
    assert isinstance(done.exception, InputError), done.exception
    assert complaint in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    done = brain("--data", tmp_path / "nothing")
    assert isinstance(done.exception, InputError)
    assert "kaggle" in str(done.exception)


@pytest.mark.usefixtures("quick")
def test_a_study_goes_on_after_an_interruption_and_a_full_disk(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attentest.studies.brain.study.available", lambda: (PAPER,))
    monkeypatch.setattr(SpectralSearch, "images_together", lambda *_: 2)
    split, file = FEW.split(load_slices(folder)), data_file(tmp_path, PAPER.name)
    calls = []

    def stop(done: float, total: float, label: str) -> None:
        calls.append((label, done, total))
        if label.startswith("testing") and done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(split, FEW, tmp_path, progress=stop)
    first = file.read().rows
    total = int(calls[-1][2])
    assert 0 < len(first) < total
    weights = read_record(tmp_path)["weights_sha256"]
    with (
        full_disk(file.path.stat().st_size + 3 * 700),  # a row has some 600 bytes
        pytest.raises(InputError, match="free some space and run again, earlier rows are safe"),
    ):
        run(split, FEW, tmp_path)
    second = file.read().rows
    assert len(first) < len(second) < total
    outcome = run(split, FEW, tmp_path)
    assert outcome["tested"] == total - len(second)
    rows = file.read().rows
    assert len(rows) == total
    assert read_record(tmp_path)["weights_sha256"] == weights
    assert [entry["finished"] for entry in read_runs(tmp_path, ("finished",))] == [False, False, True]
    assert all(rows[number] == row for some in (first, second) for number, row in some.items())


@pytest.mark.usefixtures("quick")
def test_another_engine_gives_the_same_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_brain_folder(tmp_path / "download", patients=9, slices=5)  # two of them are tested
    monkeypatch.setattr("attentest.studies.brain.study.available", lambda: quick_brain.CONDITIONS)
    split, settings = FEW.split(load_slices(folder)), replace(FEW, sensitivity_images=1)
    run(split, settings, tmp_path / "local")
    shutil.copytree(tmp_path / "local" / "model", tmp_path / "there" / "model")
    engine = ShuffledEngine()
    monkeypatch.setattr(EngineOptions, "chosen", lambda self: engine)
    monkeypatch.setattr("attentest.studies.brain.summary.example_galleries", lambda *_: {})
    monkeypatch.setattr("attentest.studies.brain.page.write_report", lambda *_: None)
    command = ("--data", folder, "--out", tmp_path / "there", "--engine", "ray", *small())
    done = brain(*command)
    assert done.exit_code == 0, (done.exception, done.stderr)
    assert len(engine.works) == len(quick_brain.CONDITIONS)
    assert engine.not_kept == 0
    for condition in quick_brain.CONDITIONS:
        local, there = (data_file(tmp_path / name, condition.name).read() for name in ("local", "there"))
        assert [header["engine"] for header in local.headers] == ["local"]
        assert [header["engine"] for header in there.headers] == ["shuffled"]
        assert not list(differences(there.rows, local.rows, 1e-9))
        assert condition != PAPER or list(there.rows) != list(local.rows)
    assert not list(differences(summarise(tmp_path / "there"), summarise(tmp_path / "local"), 1e-9))


@pytest.mark.slow
def test_a_killed_study_is_resumed_to_the_exact_summary(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [sys.executable, quick_brain.__file__, "brain", "--data", str(folder), *small()]
    start = time.monotonic()
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    seconds = time.monotonic() - start
    out = tmp_path / "killed"

    def finished() -> None:
        assert not list(differences(summarise(out), summarise(tmp_path / "whole"), 1e-9))
        for path in (out / "data").iterdir():
            images = [json.loads(line).get("image") for line in path.read_text().splitlines()]
            found = [image for image in images if image is not None]
            assert len(found) == len(set(found))  # no slice was tested twice
        shutil.rmtree(out)

    kill_at_random([*command, "--out", str(out)], seconds, finished)


@pytest.mark.usefixtures("quick")
def test_the_study_runs_on_some_real_slices(brain_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attentest.studies.brain.study.available", lambda: (PAPER,))
    slices = load_slices(brain_data)
    some = slices.take(np.flatnonzero(np.isin(slices.patient, np.unique(slices.patient)[:12]))[::5])
    settings = StudySettings(
        noise_images=12, training_per_class=5, training=BrainTraining(epochs=2), sensitivity_images=0
    )
    outcome = run(settings.split(some), settings, tmp_path)
    assert outcome["failed"] == 0
    summary = summarise(tmp_path)
    (paper,) = summary["conditions"]
    # Head and dark differ by far more than any noise allows, wherever a hardly trained model looks.
    for one in paper["classes"].values():
        assert one["rates"]["naive"]["0.05"]["value"] > 0.5
    assert 10 < summary["noise"]["pooled"]["sigma"] < 60


def test_where_results_cannot_go_is_said_before_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attentest.studies.brain.study.train_brain_classifier", None)  # training would fail
    (tmp_path / "file").write_text("")
    done = brain("--data", folder, "--out", tmp_path / "file", *small())
    assert isinstance(done.exception, InputError)
    assert "cannot be made a directory" in str(done.exception)
    (tmp_path / "out").mkdir()
    with alone_in(tmp_path / "out"):
        done = brain("--data", folder, "--out", tmp_path / "out", *small())
    assert isinstance(done.exception, InputError)
    assert f"another run (process {os.getpid()} on " in str(done.exception)
