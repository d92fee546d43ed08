"""``attentest calibrate``."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import attentest.presentation.figure
from attentest import AttentionTest
from attentest.cli import app
from attentest.cli.output import Interrupted
from attentest.errors import InputError, OutputError
from attentest.images.sample import Sample
from attentest.noise import Diagonal, Isotropic, save_noise
from attentest.runs.record_lines import add_line
from attentest.search import SpectralSearch
from attentest.simulation.calibrate import NullImages
from attentest.simulation.images import SimulatedImages
from command_line import full_disk, kill_at_random

MODEL = "tiny"
"""A link in the working directory."""

all_rows = NullImages.rows


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(MODEL).symlink_to(saved_tiny_model)
    np.save("mean.npy", np.arange(64.0).reshape(8, 8))
    save_noise(Isotropic(2.0), "noise.json")


def run(*arguments: str, model: str = MODEL) -> Result:
    return CliRunner().invoke(app, ["calibrate", "--model", model, "--tol", "1e-3", *arguments])


def report(*arguments: str) -> dict[str, object]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.exception
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_is_the_library_calibration_and_is_written() -> None:
    done = run("--noise", "1", "--images", "6", "--seed", "5", "--out", "out/here")
    assert done.exit_code == 0, done.exception
    test = AttentionTest.from_pretrained(MODEL, noise=1.0, search=SpectralSearch(tol=1e-3))
    expected = attentest.calibrate(test, 6, 5)
    written = json.loads(Path("out/here/calibration.json").read_text())
    assert written["pvalues"] == expected.pvalues.tolist()
    assert written["naive_pvalues"] == expected.naive_pvalues.tolist()
    assert (written["asked"], written["seed"], written["images"]) == (6, 5, 6)
    assert written["settings"]["noise"] == Isotropic(1.0).describe()
    for alpha, rate, limit in zip(expected.alphas, expected.rates, expected.limits, strict=True):
        assert f"{limit} at {alpha:g}" in done.stdout
        assert str(rate) in done.stdout
    assert "Kolmogorov-Smirnov p: selective" in done.stdout
    assert "too few images to tell whether the selective test is calibrated" in done.stdout
    with Image.open("out/here/calibration.png") as picture:
        assert picture.width > 800
    assert "report:" in done.stderr


def test_options_reach_the_calibration() -> None:
    found = report("--noise", "sample", "--true-noise", "noise.json", "--images", "2", "--alpha", "0.2",
                   "--alpha", "0.4", "--top-fraction", "0.2", "--region-unit", "patches",
                   "--contrast", "neighbourhood:2",
                   "--filter", "gaussian:0.5")  # fmt: skip
    settings = found["settings"]
    assert isinstance(settings, dict)
    assert (settings["top_fraction"], settings["region_unit"]) == (0.2, "patches")
    assert settings["contrast"]["of"] == {"name": "neighbourhood", "radius": 2.0}
    assert settings["noise"]["method"] == "sample"
    assert [level["alpha"] for level in found["levels"]] == [0.2, 0.4]  # type: ignore[attr-defined]
    around = ("--noise", "1", "--images", "2", "--mean", "mean.npy", "--contrast", "reference")
    assert report(*around, "--reference-noise", "0")["pvalues"] != report(*around)["pvalues"]
    np.save("recording.npy", np.ones(256))
    done = run("--noise", "1", "--images", "1", "--mean", "recording.npy", model="signal256")
    assert (done.exit_code, "these are too few signals" in done.output) == (0, True), done.exception
    sized = report("--noise", "1", "--images", "2", "--size", "8x8")
    assert sized["pvalues"] == report("--noise", "1", "--images", "2", "--size", "1x8x8")["pvalues"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--noise sample", "--noise sample estimates the noise from each image, .* with --true-noise"),
        ("--noise 1 --true-noise wavelet", "--true-noise must be a number or a noise file"),
        ("--noise 1 --true-noise few", "--true-noise must be a number"),
        ("--noise 1 --size 8", "--size must be HEIGHTxWIDTH"),
        ("--noise 1 --size 9x8", "height 8, width 8"),
        ("--noise 1 --mean mean.npy --size 4x4", "the mean image has"),
        ("--noise 1 --mean none.npy", "there is no image file none.npy"),
        ("--noise 1 --alpha 1", "--alpha must lie strictly between"),
        ("--noise 1 --out mean.npy", "cannot be created"),
        ("--noise taken/calibration.json --out taken", "the report would overwrite the input"),
        ("--noise 1 --true-noise=-1", "^--true-noise .a standard deviation. must be positive"),
        ("--noise 1,2", "the noise model is for images of 2 channel"),
        (
            "--noise 1 --true-noise 1,2",
            "^the noise that images are drawn from: the noise model is for images of 2",
        ),
        ("--noise 1 --size 0x8", "^--size .each side. must be at least 1"),
        ("--noise 1 --retry", "--retry is for --out, which is not there"),
        ("--noise 1 --workers 2", "--workers is for --engine processes or ray"),
    ],
)
def test_mistakes_are_refused(arguments: str, message: str) -> None:
    done = run("--images", "2", *arguments.split())
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception
    assert done.stdout == ""


def test_one_null_image_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 null image " in run("--noise", "1", "--images", "1").stdout

    def interrupted(*_: object, **__: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(NullImages, "rows", interrupted)
    assert str(run("--noise", "1", "--images", "1").exception) == "0 of 1 null image was finished."


@pytest.mark.parametrize("finished", [0, 3])
def test_an_interrupt_reports_what_was_done(finished: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> Iterator[object]:
        rows = all_rows(*arguments, **options)  # type: ignore[arg-type]
        for _ in range(finished):
            yield next(rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(NullImages, "rows", interrupted)
    done = run("--noise", "1", "--images", "50", "--out", "out", "--json")
    assert isinstance(done.exception, Interrupted)
    assert f"{finished} of 50 null images were finished" in str(done.exception)
    assert Path("out/calibration.json").exists() == (finished > 0)
    if finished:
        found = json.loads(done.stdout)
        assert (found["images"], found["asked"]) == (3, 50)
    else:
        assert done.stdout == ""


def test_the_report_shows_what_searches_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(*arguments: object, **options: object) -> Iterator[object]:
        for row in all_rows(*arguments, **options):  # type: ignore[arg-type]
            yield {**row, "status": "max_evaluations", "p_low": 0.0, "p_high": 1.0}

    monkeypatch.setattr(NullImages, "rows", wide)
    done = run("--noise", "1", "--images", "3", "--alpha", "0.2")
    assert "searches that ended with status 'max_evaluations': 3\nerror bars that contain 0.2: 3\n" in done.stdout
    (level,) = report("--noise", "1", "--images", "3", "--alpha", "0.2")["levels"]  # type: ignore[misc]
    assert (level["certain"], level["possible"]) == (0, 3)


def test_the_figure_takes_one_image_and_rates_of_zero() -> None:
    test = AttentionTest.from_pretrained(MODEL, noise=1.0, search=SpectralSearch(tol=1e-3))
    figure = attentest.calibrate(test, 1).figure()
    figure.savefig(os.devnull, format="png")
    quantiles, rates = figure.axes
    assert quantiles.get_title() == "p-values of 1 null image"
    assert rates.get_xscale() == rates.get_yscale() == "log"


RECORDS = Path("out/null_images.jsonl")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing, which would take a second each time."""
    monkeypatch.setattr(attentest.presentation.figure, "save_figure", lambda figure, path: None)


def recorded(*arguments: str) -> dict[str, Any]:
    """Run into the directory ``out``, and return the report that is there."""
    done = run("--noise", "1", *arguments, "--out", "out")
    assert done.exit_code == 0, done.exception or done.output
    # What was computed in different batches is the same to rounding.
    found: dict[str, Any] = json.loads(
        Path("out/calibration.json").read_text(), parse_float=lambda text: round(float(text), 12)
    )
    return found


def rows_on_disk() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    return [line for line in lines if "image" in line]


def fail_at(monkeypatch: pytest.MonkeyPatch, numbers: set[int]) -> None:
    """Let images of some numbers be too small for the model."""
    original = SimulatedImages.image

    def image(self: SimulatedImages, number: int) -> Sample:
        return Sample(pixels=np.zeros((1, 3, 3)), levels=None) if number in numbers else original(self, number)

    monkeypatch.setattr(SimulatedImages, "image", image)


@pytest.mark.usefixtures("without_figures")
def test_a_directory_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recorded("--images", "7")
    assert sorted(row["image"] for row in rows_on_disk()) == list(range(7))
    asked: list[list[int]] = []
    original = NullImages.run
    monkeypatch.setattr(
        NullImages, "run", lambda self, tasks, *rest: (asked.append(list(tasks)), original(self, tasks, *rest))[1]
    )
    content = RECORDS.read_bytes()
    draw = random.Random(1)
    for cut in [0, len(content), *(draw.randrange(len(content)) for _ in range(4))]:  # what a kill leaves
        RECORDS.write_bytes(content[:cut])
        complete = sum(b'"image": ' in line for line in content[:cut].split(b"\n")[:-1])
        asked.clear()
        assert recorded("--images", "7") == whole
        assert sum(map(len, asked)) == 7 - complete
        assert sorted(row["image"] for row in rows_on_disk()) == list(range(7))
    asked.clear()
    more = recorded("--images", "9", "--alpha", "0.3")  # another level needs no other tests
    assert asked == [[7, 8]]
    assert more["pvalues"][:7] == whole["pvalues"]
    assert [level["alpha"] for level in more["levels"]] == [0.3]
    fewer = recorded("--images", "7")
    assert fewer == whole
    assert asked == [[7, 8]]


@pytest.mark.usefixtures("without_figures")
def test_another_calibration_in_the_same_directory_is_refused_with_the_difference() -> None:
    for name, scale in (("one", 1.0), ("two", 2.0)):
        save_noise(Diagonal(scale * np.ones((8, 8))), f"{name}.json")
    for value in (5.0, 6.0):
        np.save(f"mean{value:g}.npy", np.full((8, 8), value))
    options = {
        "--noise": "one.json",
        "--true-noise": "one.json",
        "--mean": "mean5.npy",
        "--images": "1",
        "--out": "out",
    }

    def run_with(changes: dict[str, str]) -> Result:
        return run(*(part for option in (options | changes).items() for part in option))

    assert run_with({}).exit_code == 0
    before = RECORDS.read_bytes()
    for option, value, message in (
        ("--seed", "3", "other values of --seed .0, now 3. made out/null_images.jsonl"),
        ("--threshold", "0.5", "other values of --threshold .0.6, now 0.5. made"),
        ("--noise", "two.json", "other values of checksum of --noise ."),
        ("--true-noise", "two.json", "other values of checksum of --true-noise ."),
        ("--mean", "mean6.npy", "other values of --mean ."),
        ("--contrast", "reference", "other values of .*name of --contrast .'background', now 'reference'."),
    ):
        done = run_with({option: value})
        assert isinstance(done.exception, InputError), done.output
        with pytest.raises(InputError, match=message):
            raise done.exception
        assert RECORDS.read_bytes() == before


@pytest.mark.usefixtures("without_figures")
def test_images_that_cannot_be_tested_are_reported_and_tried_again_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail_at(patch, {2, 4})
        done = run("--noise", "1", "--images", "6", "--out", "out")
    assert done.exit_code == 1, done.exception
    assert "null images that could not be tested: 2\n  2 because: " in done.stdout
    assert "attentest: 2 of 6 null images could not be tested." in done.stderr
    written = json.loads(Path("out/calibration.json").read_text())
    assert (written["images"], [each["image"] for each in written["failures"]]) == (4, [2, 4])
    assert run("--noise", "1", "--images", "6", "--out", "out").exit_code == 1  # the record of the failure
    again = recorded("--images", "6", "--retry")
    assert (again["images"], again["failures"]) == (6, [])


def test_a_run_in_which_nothing_can_be_tested_ends_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, {1, 2})
    done = run("--noise", "1", "--images", "3", "--json")  # image 0 is looked at beforehand
    assert done.exit_code == 1
    fail_at(monkeypatch, {0, 1, 2})
    done = run("--noise", "1", "--images", "3")
    assert isinstance(done.exception, InputError)


@pytest.mark.usefixtures("without_figures")
def test_a_full_disk_loses_nothing_that_was_written() -> None:
    recorded("--images", "2")
    with full_disk(RECORDS.stat().st_size + 500):
        done = run("--noise", "1", "--images", "9", "--out", "out")
    assert isinstance(done.exception, InputError), done.output
    assert "free some space and run again, earlier rows are safe" in str(done.exception)
    found = recorded("--images", "9")
    assert (found["images"], found["failures"]) == (9, [])
    assert [row["image"] for row in rows_on_disk()] == list(range(9))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"naive_p"', '"naive"', "'naive_p' is missing"),
        ('"status": "', '"status": 3, "was": "', "status must be a text"),
        ('"p_low": ', '"p_low": 3', "p_low must lie between 0 and 1"),
        ('"image": 1', '"image": "1"', "image must be a number"),
    ],
)
@pytest.mark.usefixtures("without_figures")
def test_damaged_rows_are_refused(old: str, new: str, reason: str) -> None:
    recorded("--images", "2")
    lines = [json.loads(line.replace(old, new)) for line in RECORDS.read_text().splitlines()[1:]]
    RECORDS.unlink()
    for values in lines:
        add_line(RECORDS, {name: value for name, value in values.items() if name not in ("line", "checksum")})
    done = run("--noise", "1", "--images", "3", "--out", "out")
    assert isinstance(done.exception, InputError), done.output
    assert reason in str(done.exception)
    assert "lines 3, 4 of" in str(done.exception) or "line 4 of" in str(done.exception)


@pytest.mark.usefixtures("without_figures")
def test_records_that_are_removed_end_the_run_and_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    original = NullImages.run

    def one_by_one(self: NullImages, tasks: list[int], *rest: Any) -> Iterator[Any]:
        for task in tasks:
            yield from original(self, [task], *rest)
            if task == 1:
                shutil.rmtree("out")

    monkeypatch.setattr(NullImages, "run", one_by_one)
    done = run("--noise", "1", "--images", "5", "--out", "out")
    assert isinstance(done.exception, OutputError), done.output
    assert str(done.exception).endswith("all its records are there again, and the same command goes on from there.")
    assert [row["image"] for row in rows_on_disk()] == [0, 1, 2]


@pytest.mark.usefixtures("without_figures")
def test_an_interrupt_in_a_directory_keeps_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recorded("--images", "5")
    RECORDS.write_bytes(b"".join(RECORDS.read_bytes().splitlines(keepends=True)[:4]))  # two rows after a header
    original = NullImages.run

    def one_by_one(self: NullImages, tasks: list[int], *rest: Any) -> Iterator[Any]:
        yield from original(self, tasks[:1], *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(NullImages, "run", one_by_one)
        done = run("--noise", "1", "--images", "5", "--out", "out")
    assert "3 of 5 null images were finished" in str(done.exception)
    assert json.loads(Path("out/calibration.json").read_text())["pvalues"] == pytest.approx(
        whole["pvalues"][:3], abs=1e-11
    )
    assert recorded("--images", "5") == whole


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_exact_calibration() -> None:
    options = ("--noise", "1", "--images", "300", "--seed", "6")
    assert run(*options, "--out", "whole").exit_code == 0

    def finished() -> None:
        assert [row["image"] for row in rows_on_disk()] == list(range(300))
        killed, whole = (json.loads(Path(name, "calibration.json").read_text()) for name in ("out", "whole"))
        assert killed == whole
        shutil.rmtree("out")

    command = [sys.executable, "-m", "attentest", "calibrate", "--model", MODEL, "--tol", "1e-3", *options]
    kill_at_random([*command, "--out", "out"], 15.0, finished)
