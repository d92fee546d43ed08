"""``attentest power``."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import attentest
from attentest import AttentionTest
from attentest.cli import app
from attentest.cli.output import Interrupted
from attentest.errors import InputError
from attentest.search import SpectralSearch
from attentest.simulation.simulate import Simulation

MODEL = "tiny"
"""A link in the working directory."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(MODEL).symlink_to(saved_tiny_model)
    np.save("slope.npy", np.linspace(0, 3, 64).reshape(8, 8))
    np.save("other.npy", np.linspace(3, 0, 64).reshape(8, 8))
    np.save("small.npy", np.zeros((4, 4)))


def run(*arguments: str, model: str = MODEL) -> Result:
    return CliRunner().invoke(app, ["power", "--model", model, "--tol", "1e-2", *arguments])


def report(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_the_plan_of_the_library_and_is_written() -> None:
    done = run("--noise", "2", "--images", "1", "--seed", "5", "--randomise", "0", "--randomise", "1", "--delta", "0",
               "--delta", "3", "--side", "4", "--region-unit", "patches", "--decide", "--out", "out/here")  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert "4 tests: 1 image, 2 ways to choose the region, 2 heights of the planted signal" in done.stderr
    test = AttentionTest.from_pretrained(MODEL, noise=2.0, search=SpectralSearch(tol=1e-2), confidence_level=None)
    expected = attentest.plan(test, 1, 5, randomise=[0, 1], region_unit=["patches"], deltas=[0, 3], side=4)
    written = json.loads(Path("out/here/power.json").read_text())
    assert {name: written[name] for name in expected.to_dict()} == json.loads(json.dumps(expected.to_dict()))
    assert (written["images"], written["seed"], written["settings"]["noise"]["sigma"]) == (1, 5, 2.0)
    with Path("out/here/power.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [float(row["evaluations"]) for row in rows] == [tests.evaluations for tests in expected.tests]
    assert [(row["delta"], row["signal"], row["randomise"]) for row in rows[2:]] == [
        ("3.0", "6.0", "0.0"),
        ("3.0", "6.0", "1.0"),
    ]
    assert expected.summary() in done.stdout
    assert "rejected at 0.05" in done.stdout
    with Image.open("out/here/power.png") as picture:
        assert picture.width > 800
    assert "figure: out/here/power.png" in done.stderr


def test_image_files_are_backgrounds_and_decisions_are_enough() -> None:
    found = report("slope.npy", "--noise", "1", "--images", "1", "--randomise", "0.5", "--decide", "--alpha", "0.2")
    assert [(row["region"], row["delta"]) for row in found["tests"]] == [("pixels", 0), ("patches", 0)]
    assert found["alpha"] == 0.2
    assert found["confidence_level"] is None
    assert {row["coverage"] for row in found["tests"]} == {None}
    drawn = report("--noise", "sample", "--true-noise", "3", "--images", "1", "--randomise", "0", "--region-unit",
                   "pixels",
                   "--delta", "1", "--decide", "--power", "0.5")  # fmt: skip
    (row,) = report("--noise", "1", "--images", "1", "--randomise", "1", "--region-unit", "patches", "--delta", "1")[
        "tests"
    ]
    assert 1 < row["mean_length"] < 2**0.5 + 1e-2
    assert (drawn["noise_deviation"], drawn["power"]) == (3.0, 0.5)
    assert drawn["side"] == 8 // 3
    assert not {"region_unit", "randomise", "confidence_level"} & set(drawn["settings"])  # they differ by row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--noise sample", "--noise sample estimates the noise from each image, .* with --true-noise"),
        ("--noise 1 --true-noise wavelet", "--true-noise must be a number or a noise file"),
        ("--noise 1 --randomise 20", "^--randomise must be 0, for the paper's test, or a number"),
        ("--noise 1 --delta=-1", "^--delta .the heights of the raised part. must be from 0"),
        ("--noise 1 --side 9", "^--side .of the raised part, in pixels. must be at least 1 and at most 8"),
        ("--noise 1 --side 8", "^--side = 8 raises all of the image"),
        (
            "slope.npy other.npy --noise 1 --images 1",
            "^--images = 1 would leave out .* give at least 2, or fewer",
        ),
        ("--noise 1 --images 1000000", "^--images = 1000000 would take 32000000 tests"),
        ("--noise 1 --power 1", "^--power must lie strictly between 0 and 1"),
        ("--noise 1 --alpha 0", "--alpha must lie strictly between 0 and 1"),
        ("--noise 1 --size 9x9", "height 8, width 8"),
        ("--noise 1 --frame 2", "--frame and --window are for image files"),
        ("slope.npy --noise 1 --size 8x8", "--size is for a constant background"),
        ("slope.npy small.npy --noise 1", "image 1: the model takes images of height 8"),
        ("none.npy --noise 1", "there is no image file none.npy"),
        ("--noise 1 --out slope.npy", "cannot be created"),
    ],
)
def test_mistakes_are_refused(arguments: str, message: str) -> None:
    done = run(*arguments.split())
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--side 0", "--side (of the raised part, in samples) must be at least 1 and at most 256, got 0."),
        ("--side 256", "--side = 256 raises all of the signal, so that there is nothing to compare it with: give"),
        ("slope.npy other.npy", "signal 0: the model takes signals of length 256 and 1 channel"),
        ("deep.npy", "deep.npy must hold one signal (T,) or (C, T), got an array of shape (2, 2, 2): give one, or a "),
    ],
)
def test_signals_are_called_signals(arguments: str, message: str) -> None:
    np.save("deep.npy", np.zeros((2, 2, 2)))
    done = run("--noise", "1", *arguments.split(), model="signal256")
    assert str(done.exception).startswith(message)


def test_backgrounds_of_signals() -> None:
    np.save("recording.npy", np.linspace(0, 3, 256))
    done = run("recording.npy", "--noise", "1", "--images", "1", "--decide", "--region-unit", "patches",
               "--randomise", "0.5", "--delta", "2", "--json", model="signal256")  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["side"] == 256 // 3


def test_a_model_that_resizes_needs_a_size(tmp_path: Path, saved_tiny_model: Path) -> None:
    resizing = shutil.copytree(saved_tiny_model, tmp_path / "resizing")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}, "do_rescale": False}
    (resizing / "preprocessor_config.json").write_text(json.dumps(processor))
    done = CliRunner().invoke(app, ["power", "--model", str(resizing), "--noise", "1"])
    assert str(done.exception).endswith("say which to draw with --size, as (H, W) or in colour as (C, H, W)."), (
        done.output
    )


@pytest.mark.parametrize("finished", [0, 1])
def test_an_interrupt_reports_what_was_done(finished: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Simulation.tests

    def interrupted(self: Simulation, *arguments: Any) -> Iterator[object]:
        rows = whole(self, *arguments)
        for _ in range(finished):
            yield next(rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "tests", interrupted)
    done = run("--noise", "1", "--images", "1", "--decide", "--out", "out", "--json")
    assert isinstance(done.exception, Interrupted)
    assert f"{finished} of 32 rows were finished" in str(done.exception)
    assert Path("out/power.png").exists() == (finished > 0)
    assert (len(json.loads(done.stdout)["tests"]) == 1) if finished else (done.stdout == "")
