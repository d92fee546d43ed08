"""``attentest noise``."""

from __future__ import annotations

import json
import re
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from attentest import bundled_model, noise_check
from attentest.cli import app
from attentest.errors import InputError
from attentest.noise import (
    AR1,
    AR1Covariance,
    AutomaticCovariance,
    Isotropic,
    LocallyStationaryCovariance,
    NoiseEstimator,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
    as_noise,
    load_noise,
)
from command_line import run_main

IMAGES = np.random.default_rng(7).normal(4.0, 1.5, size=(12, 6, 5))
FILES = [f"{number}.npy" for number in range(len(IMAGES))]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, image in zip(FILES, IMAGES, strict=True):
        np.save(name, image)
    np.save("wrong.npy", -IMAGES[1])
    np.save("wide.npy", np.arange(12.0).reshape(3, 4))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["noise", *arguments])


@pytest.mark.parametrize(
    ("options", "estimator"),
    [
        ((), AutomaticCovariance()),
        (("--estimator", "pooled"), PooledVariance()),
        (("--estimator", "pixel"), PixelVariance()),
        (("--estimator", "ar1"), AR1Covariance()),
        (("--estimator", "stationary"), StationaryCovariance()),
        (("--estimator", "stationary", "--max-lag", "1"), StationaryCovariance(1)),
        (("--estimator", "stationary", "--ignore-constant"), StationaryCovariance(ignore_constant=True)),
        (("--estimator", "locally-stationary"), LocallyStationaryCovariance()),
        (
            ("--estimator", "locally-stationary", "--smoothing", "2", "--max-lag", "1"),
            LocallyStationaryCovariance(2, 1),
        ),
        (("--gain", "per-image"), AutomaticCovariance(gain="per-image")),
        (("--estimator", "shrunk"), ShrunkCovariance()),
    ],
)
def test_an_estimator_is_fitted_and_saved(options: tuple[str, ...], estimator: NoiseEstimator) -> None:
    out = "new/noise.safetensors" if "stationary" in options else "noise.json"
    done = run("fit", *FILES, *options, "--no-check", "--out", out)
    assert done.exit_code == 0, done.exception
    assert done.stdout == f"{out}\n"
    assert "12 images of 6 x 5 pixels and 1 channel\n" in done.stderr
    assert ("the noise is that of an image with the median gain" in done.stderr) == ("per-image" in options)
    expected = estimator.fit(IMAGES).noise_
    v = np.random.default_rng(1).normal(size=30)
    np.testing.assert_array_equal(load_noise(out).apply(v), expected.apply(v))
    shown = run("show", out).stdout
    assert f"model: {expected.describe()['model']}" in shown
    assert f"estimator: {type(estimator).__name__}\nimages: 12" in shown


def test_json_says_the_same() -> None:
    found = json.loads(run("fit", *FILES, "--estimator", "pooled", "--out", "noise.json", "--json").stdout)
    sigma = PooledVariance().fit(IMAGES).noise_.describe()["sigma"]
    described = as_noise(PooledVariance().fit(IMAGES)).describe()
    assert {
        "model": "isotropic",
        "sigma": sigma,
        "estimator": "PooledVariance",
        "images": 12,
    }.items() <= described.items()
    # One degree of freedom for each pixel of the 11 residual images.
    extra = {"shape": [1, 6, 5], "degrees_of_freedom": pytest.approx(330), "objection": None}
    assert found == {"file": "noise.json", **extra, **described}
    assert json.loads(run("show", "noise.json", "--json").stdout) == described


def test_json_has_the_gains() -> None:
    options = ("--estimator", "pooled", "--gain", "per-image")
    found = json.loads(run("fit", *FILES, *options, "--out", "noise.json", "--json").stdout)
    assert found["gains"] == PooledVariance(gain="per-image").fit(IMAGES).gains_.tolist()


def test_a_folder_of_images_is_taken_as_its_files() -> None:
    Path("phantom").mkdir()
    for number in range(3):
        shutil.copy(f"{number}.npy", "phantom")
    files, folder = (
        run("fit", *given, "--estimator", "pooled", "--no-check", "--json", "--out", "noise.json")
        for given in (["0.npy", "1.npy", "2.npy"], ["phantom"])
    )
    assert files.exit_code == 0, files.output
    assert folder.stdout == files.stdout
    Path("empty").mkdir()
    refused = run("fit", "empty", "--out", "noise.json").exception
    assert str(refused) == "there is no image file in the folder empty."
    assert "sample (variance" not in run("check", "--help").stdout


def test_colours_and_frames() -> None:
    rng = np.random.default_rng(2)
    for name in ("a", "b", "c"):
        Image.fromarray(rng.integers(0, 255, (6, 5, 3), dtype=np.uint8)).save(f"{name}.png")
        pages = [Image.fromarray(rng.integers(0, 255, (6, 5), dtype=np.uint8)) for _ in range(2)]
        pages[0].save(f"{name}.tiff", save_all=True, append_images=pages[1:])
    done = run("fit", "a.png", "b.png", "c.png", "--no-check", "--out", "noise.json")
    assert "3 images of 6 x 5 pixels and 3 channels" in done.stderr
    assert "channels: [[" in run("show", "noise.json").stdout
    assert run("fit", "a.tiff", "b.tiff", "--frame", "1", "--out", "second.json").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit 0.npy 1.npy --out 0.npy", "the noise file would overwrite the input 0.npy"),
        ("fit 0.npy 1.npy --out noise.npy", "must end in .json, .safetensors"),
        ("fit 0.npy 1.npy --out 0.npy/noise.json", "cannot be created"),
        ("fit 0.npy --out noise.json", "at least 2 reference images"),
        ("fit 0.npy 1.npy --estimator pixel --out noise.json", "at least 10 reference images"),
        ("fit 0.npy wide.npy --out noise.json", "must have one shape, but 0.npy is .* and wide.npy is"),
        ("fit 0.npy none.npy --out noise.json", "there is no image file none.npy"),
        (
            "fit 0.npy 1.npy --estimator pooled --max-lag 2 --out noise.json",
            "--max-lag is for the estimators auto, stationary and locally-stationary, but --estimator is pooled",
        ),
        (
            "fit 0.npy 1.npy --estimator pooled --smoothing 2 --out noise.json",
            "--smoothing is for the estimators auto and locally-stationary, but --estimator is pooled",
        ),
        (
            "fit 0.npy 1.npy --ignore-constant --estimator pixel --out noise.json",
            "--ignore-constant is for the estimators auto, pooled, ar1 and stationary, but --estimator is pixel",
        ),
        ("fit 0.npy 1.npy --estimator locally-stationary --smoothing 0 --out noise.json", "smoothing must be positive"),
        ("fit 0.npy wrong.npy --gain per-image --out noise.json", "0.npy is not the same scene"),
        ("fit 0.npy 1.npy --window --out noise.json", "only a DICOM file has a display window"),
        ("fit 0.npy 1.npy --frame 3 --out noise.json", "frame"),
        ("show none.json", "there is no noise file none.json"),
        ("check 0.npy 1.npy 2.npy", "give either --noise, a model to check, or --estimator"),
        ("check 0.npy 1.npy 2.npy --noise 1 --estimator pooled", "give either --noise, a model to check"),
        ("check 0.npy 1.npy 2.npy --noise wavelet", "--noise wavelet estimates the noise from each tested image"),
        ("check 0.npy 1.npy 2.npy --noise none.json", "there is no noise file none.json"),
        ("check 0.npy none.npy --noise 1", "there is no image file none.npy"),
        ("check 0.npy 1.npy --noise 1", "at least 3 reference images"),
        ("check 0.npy 1.npy 2.npy --noise 1 --alpha 2", "--alpha must lie strictly between 0 and 1"),
        ("check 0.npy 1.npy 2.npy --noise 1 --alpha 0.005", "--simulations must be at least 1599 for alpha = 0.005"),
        ("check 0.npy 1.npy 2.npy --noise 0", "--noise"),
        ("check 0.npy 1.npy 2.npy --noise 1 --figure 0.npy", "would overwrite the input 0.npy"),
        ("check 0.npy 1.npy 2.npy --noise 1 --figure a.gif", "must end in .png, .svg, .pdf"),
        ("show 0.npy", "must end in .json or .safetensors"),
    ],
)
def test_mistakes_are_refused(arguments: str, message: str) -> None:
    done = run(*arguments.split())
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception
    assert done.stdout == ""
    assert not Path("noise.json").exists()


def test_check_says_in_words_and_by_its_exit_code_whether_the_model_fits() -> None:
    good = run("check", *FILES, "--noise", "1.5", "--figure", "check.png")
    assert good.exit_code == 0, good.output
    assert re.search(r"No assumption is broken \(error rate 0.05 for all together, \d+0 simulations\)\.", good.stdout)
    assert "figure: check.png" in good.stderr
    with Image.open("check.png") as picture:
        assert min(picture.size) > 500
    bad = run("check", *FILES, "--noise", "0.5", "--json")
    assert bad.exit_code == 1
    found = json.loads(bad.stdout)
    assert found == noise_check(Isotropic(0.5), IMAGES).to_dict()
    assert found["broken"] == ["scale"]


def test_check_of_a_file_and_of_an_estimator() -> None:
    run("fit", *FILES[:6], "--no-check", "--out", "noise.json")
    given = run("check", *FILES[6:], "--noise", "noise.json", "--simulations", "159", "--seed", "3", "--json")
    assert (
        json.loads(given.stdout)["assumptions"]
        == noise_check(load_noise("noise.json"), IMAGES[6:], simulations=159, rng=3).to_dict()["assumptions"]
    )
    fitted = json.loads(run("check", *FILES, "--estimator", "pooled", "--json").stdout)
    assert fitted["fitted_to"] == "PooledVariance"
    assert fitted["assumptions"][0]["adjusted_pvalue"] == 1.0  # the standard deviation was fitted


def test_fit_says_what_it_chose_and_why() -> None:
    said = run("fit", *FILES, "--no-check", "--out", "noise.json").stderr
    assert "chosen: stationary, because no part of the image shows stronger noise than others: p = " in said
    assert "choice: stationary, because no part of the image" in run("show", "noise.json").stdout


def test_fit_warns_where_the_images_do_not_fit_the_model() -> None:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((6, 41, 40))
    images = images + np.roll(images, 1, axis=2)  # neighbours in a row have a correlation of 0.5
    for name, image in zip(FILES, images, strict=False):
        np.save(name, image)
    said = run("fit", *FILES[:6], "--estimator", "pooled", "--out", "noise.json").stderr
    assert "warning: the images do not fit this noise model (broken: correlation" in said
    assert "): the correlation of pixels 1 column apart is 0." in said
    assert "warning" not in run("fit", *FILES[:6], "--out", "noise.json").stderr
    few = run("fit", *FILES[:2], "--estimator", "pooled", "--out", "noise.json")
    assert few.exit_code == 0
    assert "could not be compared with the model: at least 3 reference images are needed" in few.stderr


def test_the_check_after_a_fit_allows_for_unequal_gains() -> None:
    scene = 50 + 20 * np.random.default_rng(1).random((12, 12))
    for name, noise in zip(FILES, np.random.default_rng(2).standard_normal((12, 12, 12)), strict=True):
        np.save(name, (scene + noise) * (1 + 0.1 * int(name[0])))
    said = run("fit", *FILES, "--estimator", "pooled", "--gain", "per-image", "--out", "noise.json").stderr
    assert "warning" not in said


def test_help_teaches() -> None:
    assert "attentest noise check phantom/*.npy" in run("check", "--help").stdout
    assert "attentest noise fit phantom/*.npy" in run("fit", "--help").stdout
    assert "attentest noise show" in run("show", "--help").stdout


def test_the_noise_of_signals_is_fitted_checked_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recordings").mkdir()
    for number, signal in enumerate(AR1(0.6).sample(np.random.default_rng(0), 6, 256)):
        np.save(f"recordings/{number}.npy", signal)
    done = run_main(capsys, "noise", "fit", "recordings", "--axes", "1", "--out", "noise.json")
    assert (done.code, "6 signals of 256 samples and 1 channel" in done.err) == (0, True), done.err
    checked = run_main(capsys, "noise", "check", "recordings", "--axes", "1", "--noise", "noise.json")
    assert (checked.code, "equal mean value" in checked.out, "brightness" in checked.out) == (0, True, False)
    options = ("--model", str(bundled_model(axes=1)), "--noise", "noise.json", "--no-interval", "--tol", "1e-3")
    done = run_main(capsys, "test", "recordings/0.npy", *options)
    assert (done.code, done.out.startswith("signal")) == (0, True), done.err
    refused = run_main(capsys, "noise", "fit", "recordings", "--out", "noise.json")
    assert (refused.code, "Traceback" in refused.err) == (2, False)
    assert refused.err.endswith("got an array of shape (256,): give one, or --axes 1.\n")
    with wave.open("recording.wav", "wb") as file:
        file.setparams((1, 2, 100, 0, "NONE", ""))
        file.writeframes(bytes(600))
    refused = run_main(capsys, "noise", "fit", "recording.wav", "--axes", "3", "--out", "noise.json")
    assert refused.err.endswith("which holds signals, and a volume is needed: give one, or --axes 1.\n")
    np.save("volume.npy", np.zeros((4, 4, 4)))
    refused = run_main(capsys, "noise", "fit", "volume.npy", "--axes", "1", "--out", "noise.json")
    assert refused.err.endswith("got an array of shape (4, 4, 4): give one, or --axes 2 or 3.\n")
