"""``attentest calibrate``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import attentest.simulation.calibrate
from attentest import AttentionTest, InputError
from attentest.cli import app
from attentest.cli.output import Interrupted
from attentest.noise import Isotropic, save_noise
from attentest.results.plots import calibration_figure
from attentest.search import SpectralSearch
from attentest.simulation.calibrate import null_results

MODEL = "tiny"
"""A link in the working directory."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(MODEL).symlink_to(saved_tiny_model)
    np.save("mean.npy", np.arange(64.0).reshape(8, 8))
    save_noise(Isotropic(2.0), "noise.json")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["calibrate", "--model", MODEL, "--tol", "1e-3", *arguments])


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
    assert written["settings"]["noise"] == {"model": "isotropic", "sigma": 1.0}
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
                   "--alpha", "0.4", "--top-fraction", "0.2", "--region", "patches", "--contrast", "neighbourhood:2",
                   "--filter", "gaussian:0.5")  # fmt: skip
    settings = found["settings"]
    assert isinstance(settings, dict)
    assert (settings["top_fraction"], settings["region_unit"]) == (0.2, "patches")
    assert settings["contrast"]["of"] == {"name": "neighbourhood", "radius": 2.0}
    assert settings["noise"]["model"] == "isotropic"
    assert [level["alpha"] for level in found["levels"]] == [0.2, 0.4]  # type: ignore[attr-defined]
    around = ("--noise", "1", "--images", "2", "--mean", "mean.npy", "--contrast", "reference")
    assert report(*around, "--reference-noise", "0")["pvalues"] != report(*around)["pvalues"]
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
        ("--noise 1,2", "^--noise is for images of 2 channel"),
        (
            "--noise 1 --true-noise 1,2",
            "^the noise that images are drawn from: the noise model is for images of 2",
        ),
        ("--noise 1 --size 0x8", "^a side in --size must be at least 1"),
    ],
)
def test_mistakes_are_refused(arguments: str, message: str) -> None:
    done = run("--images", "2", *arguments.split())
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception
    assert done.stdout == ""


@pytest.mark.parametrize("finished", [0, 3])
def test_an_interrupt_reports_what_was_done(finished: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> Iterator[object]:
        results = null_results(*arguments, **options)  # type: ignore[arg-type]
        for _ in range(finished):
            yield next(results)
        raise KeyboardInterrupt

    monkeypatch.setattr(attentest.simulation.calibrate, "null_results", interrupted)
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
        for result in null_results(*arguments, **options):  # type: ignore[arg-type]
            yield replace(result, status="max_evaluations", log_pvalue_bounds=(-np.inf, 0.0))

    monkeypatch.setattr(attentest.simulation.calibrate, "null_results", wide)
    done = run("--noise", "1", "--images", "3", "--alpha", "0.2")
    assert "searches that ended with status 'max_evaluations': 3\nerror bars that contain 0.2: 3\n" in done.stdout
    (level,) = report("--noise", "1", "--images", "3", "--alpha", "0.2")["levels"]  # type: ignore[misc]
    assert (level["certain"], level["possible"]) == (0, 3)


def test_the_figure_takes_one_image_and_rates_of_zero() -> None:
    test = AttentionTest.from_pretrained(MODEL, noise=1.0, search=SpectralSearch(tol=1e-3))
    figure = calibration_figure(attentest.calibrate(test, 1))
    figure.savefig(os.devnull, format="png")
    quantiles, rates = figure.axes
    assert quantiles.get_title() == "p-values of 1 null image"
    assert rates.get_xscale() == rates.get_yscale() == "log"
