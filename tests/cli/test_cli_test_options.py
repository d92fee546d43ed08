"""``attentest test``: what is compared, and what comes out."""

from __future__ import annotations

import csv
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from attentest import AttentionTest
from attentest.cli import app
from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean, gaussian
from attentest.errors import InputError
from attentest.noise import Diagonal, FromImage, Isotropic, save_noise

MODEL = "tiny"
"""A link in the working directory."""
IMAGES = np.random.default_rng(4).normal(size=(3, 8, 8))
KERNEL = np.array([[0.0, 1.0], [2.0, -1.0]])
TOL = 1e-2
QUICK = ("--tol", str(TOL), "--no-interval")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(MODEL).symlink_to(saved_tiny_model)
    for number, image in enumerate(IMAGES):
        np.save(f"{number}.npy", image)
    np.save("kernel.npy", KERNEL)
    np.save("wide.npy", np.zeros((8, 9)))
    save_noise(Isotropic(1.5), "noise.json")
    save_noise(Diagonal(np.full((8, 8), 2.0)), "noise.safetensors")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["test", *arguments, "--model", MODEL])


def objects(*arguments: str) -> list[dict[str, object]]:
    done = run(*arguments, *QUICK, "--json")
    assert done.exit_code == 0, done.exception
    return [json.loads(line) for line in done.stdout.splitlines()]


def library(**settings: object) -> AttentionTest:
    from attentest.search import SpectralSearch

    chosen = {"noise": 1.0, "search": SpectralSearch(tol=TOL), "confidence_level": None, **settings}
    return AttentionTest.from_pretrained(MODEL, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("--noise", "noise.json"), {"noise": Isotropic(1.5)}),
        (("--noise", "noise.safetensors"), {"noise": Diagonal(np.full((8, 8), 2.0))}),
        (("--noise", "sample"), {"noise": FromImage("sample")}),
        (("--noise", "wavelet"), {"noise": FromImage("wavelet")}),
        (("--top-fraction", "0.2"), {"top_fraction": 0.2}),
        (("--threshold", "0.5"), {"threshold": 0.5}),
        (("--region-unit", "pixels"), {}),
        (("--region-unit", "patches", "--threshold", "0.3"), {"region_unit": "patches", "threshold": 0.3}),
        (("--region-unit", "patches", "--top-fraction", "0.2"), {"region_unit": "patches", "top_fraction": 0.2}),
        (("--alternative", "equal-tailed"), {"alternative": "equal-tailed"}),
        (("--contrast", "background"), {"contrast": Background()}),
        (("--contrast", "neighbourhood:1.5"), {"contrast": Neighbourhood(1.5)}),
        (
            ("--contrast", "neighbourhood:5", "--spacing", "2.5,0.7"),
            {"contrast": Neighbourhood(5, spacing=(2.5, 0.7))},
        ),
        (("--contrast", "region-mean", "--filter", "laplacian"), {"contrast": Filtered("laplacian", of=RegionMean())}),
        (("--filter", "sobel-x"), {"contrast": Filtered("sobel-x")}),
        (("--filter", "sobel-y"), {"contrast": Filtered("sobel-y")}),
        (("--filter", "gaussian:0.5"), {"contrast": Filtered(gaussian(0.5))}),
        (("--filter", "kernel.npy"), {"contrast": Filtered(KERNEL)}),
        (("--contrast", "reference", "--reference", "1.npy"), {"contrast": Reference(IMAGES[1])}),
        (
            ("--contrast", "reference", "--reference", "1.npy", "--reference-noise", "0"),
            {"contrast": Reference(IMAGES[1], noise=0)},
        ),
        (
            ("--contrast", "reference", "--reference", "1.npy", "--reference-noise", "noise.json"),
            {"contrast": Reference(IMAGES[1], noise=1.5)},
        ),
    ],
)
def test_options_are_those_of_the_library(arguments: tuple[str, ...], settings: dict[str, object]) -> None:
    noise = () if "--noise" in arguments else ("--noise", "1")
    (found,) = objects("0.npy", *noise, *arguments)
    expected = library(**settings)(IMAGES[0])
    assert found["statistic"] == expected.statistic
    assert found["pvalue"] == expected.pvalue
    assert found["settings"]["region_unit"] == expected.settings["region_unit"]


def test_equal_tails_are_said() -> None:
    twice = run("0.npy", "--noise", "1", "--tol", str(TOL), "--alternative", "equal-tailed").stdout
    assert "p is twice the probability of the smaller tail, so that it agrees with the interval" in twice


def test_a_region_of_something_else_is_refused() -> None:
    done = run("0.npy", "--noise", "1", "--region-unit", "squares")
    assert done.exit_code != 0
    assert str(done.exception) == "--region-unit must be pixels or patches, got 'squares'."


def test_references_are_one_for_all_or_one_each() -> None:
    both = ("0.npy", "1.npy", "--noise", "1", "--contrast", "reference")
    one = objects(*both, "--reference", "2.npy")
    test = library(contrast=Reference())
    assert [found["statistic"] for found in one] == [test(image, reference=IMAGES[2]).statistic for image in IMAGES[:2]]
    each = objects(*both, "--reference", "2.npy", "--reference", "0.npy")
    assert each[0]["statistic"] == one[0]["statistic"]
    assert each[1]["statistic"] == test(IMAGES[1], reference=IMAGES[0]).statistic


def test_components_have_a_row_each_with_an_adjusted_pvalue() -> None:
    arguments = ("0.npy", "1.npy", "--noise", "1", "--components", "--connectivity", "2", "--threshold", "0.5")
    found = objects(*arguments, "--csv", "parts.csv", "--parquet", "parts.parquet")
    expected = library(threshold=0.5).map(IMAGES[:2], components=2)
    assert [(one["image"], one["component"]) for one in found] == [
        (f"{image}.npy", number + 1) for image, parts in enumerate(expected) for number in range(len(parts))
    ]
    adjusted = np.concatenate([parts.adjusted_pvalues() for parts in expected])
    assert len(adjusted) > 2
    np.testing.assert_allclose([one["pvalue_holm"] for one in found], adjusted, rtol=1e-9)  # type: ignore[arg-type]
    with open("parts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["image"], row["component"]) for row in rows] == [
        (one["image"], str(one["component"])) for one in found
    ]
    assert [float(row["pvalue_holm"]) for row in rows] == [one["pvalue_holm"] for one in found]
    import pyarrow.parquet as pq

    assert pq.read_table("parts.parquet").column("component").to_pylist() == [one["component"] for one in found]

    printed = run(*arguments, *QUICK).stdout
    assert "Holm p" in printed
    assert sum(".npy  " in line for line in printed.splitlines()) == len(found)
    assert "interval" not in printed


def test_the_table_shows_the_interval_and_a_summary_and_is_written() -> None:
    done = run("0.npy", "1.npy", "--noise", "1", "--tol", str(TOL), "--confidence-level", "0.9",
               "--csv", "out/all.csv", "--parquet", "out/all.parquet")  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert "90% interval" in done.stdout
    assert "2 images\nselective p <= 0.05" in done.stdout
    assert "Holm-adjusted" in done.stdout
    assert done.stderr.count("table: out/all") == 2
    with open("out/all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["0.npy", "1.npy"]
    for row, result in zip(rows, library(confidence_level=0.9).map(IMAGES[:2]), strict=True):
        interval = result.confidence_interval(0.9)
        assert float(row["confidence_low"]) == pytest.approx(interval.low, rel=1e-9)
        assert f"{interval.low:.3g} to {interval.high:.3g}" in done.stdout
        assert f"{result.estimate:.3g}" in done.stdout
    one_sided = run("0.npy", "--noise", "1", "--tol", str(TOL), "--alternative", "greater").stdout
    assert " or more " in one_sided
    assert "images" not in one_sided


def test_json_has_the_verdict_of_the_table() -> None:
    arguments = ("0.npy", "1.npy", "2.npy", "--noise", "1", "--threshold", "0.5")
    test = library(threshold=0.5)
    results, expected = test.map(IMAGES), test.map(IMAGES, components=1)
    for alpha in (0.3, 0.6):
        found = objects(*arguments, "--alpha", str(alpha))
        assert {one["alpha"] for one in found} == {alpha}
        assert [one["reject"] for one in found] == results.decisions(alpha)
        parts = objects(*arguments, "--alpha", str(alpha), "--components")
        assert [one["reject"] for one in parts] == [made for some in expected for made in some.decisions(alpha)]


def test_a_summary_after_deciding_says_what_is_open() -> None:
    test = library(confidence_level=None)
    decided = test.map(IMAGES, decide_at=0.3)
    printed = run("0.npy", "1.npy", "2.npy", "--noise", "1", *QUICK, "--decide", "--alpha", "0.3").stdout
    for method, name in (("bh", "Benjamini-Hochberg"), ("by", "Benjamini-Yekutieli"), ("holm", "Holm")):
        made = decided.decisions(0.3, method)  # type: ignore[arg-type]
        undecided = f", {made.count(None)} undecided" if None in made else ""
        assert f"{name}-adjusted p <= 0.3: {made.count(True)} of 3{undecided}\n" in f"{printed}\n"


def test_deciding_and_writing_a_table_go_together() -> None:
    (found,) = objects("0.npy", "--noise", "1", "--decide", "--csv", "decided.csv")
    assert found["reject"] is not None
    assert Path("decided.csv").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--noise much",
            "--noise must be a number, several separated by commas, a noise file .*, sample, wavelet or poisson, got "
            "'much': see .*docs/choosing-noise.md",
        ),
        ("--noise none.json", "there is no noise file none.json"),
        ("--noise noise.json --rho 0.2", "--rho goes with a number for --noise, but 'noise.json' was given"),
        ("--noise 1 --threshold 0.6 --top-fraction 0.1", "two ways to choose the region"),
        ("--noise 1 --contrast neighbour", "--contrast must be background, neighbourhood:RADIUS, reference or region"),
        ("--noise 1 --contrast neighbourhood:far", "--contrast neighbourhood:RADIUS needs a number .* got 'far'"),
        ("--noise 1 --contrast background:3", "--contrast must be background, .* got 'background:3'"),
        ("--noise 1 --spacing 1,2", "--spacing is for --contrast neighbourhood:RADIUS, but --contrast is background"),
        (
            "--noise 1 --contrast neighbourhood:5 --spacing far",
            "--spacing must be a number or several separated by commas, got 'far'",
        ),
        ("--noise 1 --contrast reference", "give it with --reference"),
        ("--noise 1 --reference 1.npy", "--reference is for --contrast reference, but --contrast is background"),
        ("--noise 1 --reference-noise 1", "--reference-noise is for --contrast reference, but --contrast is backg"),
        ("--noise 1 --contrast reference --reference 1.npy --reference 2.npy", "got it 2 times"),
        ("--noise 1 --contrast reference --reference ./0.npy", "compared with itself"),
        ("--noise 1 --contrast reference --reference 1.npy --reference-noise sample", "a number or a noise file"),
        ("--noise 1 --filter blur", "--filter must be laplacian, sobel-x, sobel-y, gaussian:SIGMA or a .npy file"),
        ("--noise 1 --filter gaussian:", "--filter gaussian:SIGMA needs a number after the colon, got ''"),
        ("--noise 1 --filter none.npy", "there is no image file none.npy"),
        ("--noise 1 --connectivity 2", "--connectivity is for --components"),
        ("--noise 1 --components --decide", "leave out --decide or --components"),
        ("--noise 1 --components --figure a.png", "leave out --figure or --components"),
        ("--noise 1 --no-interval --confidence-level 0.9", "give one of them"),
        ("--noise 1 --decide --search fixed", "--decide is for the spectral search, but --search is fixed"),
        ("--noise 1 --tol 1e-3 --search adaptive", "--tol is for the spectral search, but --search is adaptive"),
        ("--noise 1 --csv 0.npy/table.csv", "because its directory cannot be created"),
        ("--noise 1 --csv folder.csv", "it is a directory"),
        ("--noise 1 --figure 0.npy", "would overwrite the input"),
        ("--noise 1 --image-size large", "--image-size must be a side"),
        ("--noise 1 --range 1", "--range must be two numbers, such as 0,1, got '1'"),
        ("--noise 1 --range dark", "--range must be two numbers, such as 0,1, got 'dark'"),
        (
            "--noise 1 --channels red",
            "--channels must be mean, the number of a channel, or weights",
        ),
        ("--noise 1 --map all", "segmentation or residual, got 'all'"),
        ("--noise 1 --map layer:last", "--map layer:K needs a whole number after the colon, got 'last'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder.csv").mkdir()
    monkeypatch.setattr("attentest.pipeline.file_run.ImageTests", None)
    done = run("0.npy", *arguments.split())
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--noise 0", "--noise (a standard deviation) must be positive"),
        ("--rho 2", "--rho must lie strictly between -1 and 1, got 2.0"),
        ("--threshold 1.5", "--threshold (tau) must lie strictly between 0 and 1, got 1.5"),
        ("--top-fraction 2", "--top-fraction (q) must lie strictly between 0 and 1, got 2.0"),
        ("--confidence-level 1.5", "--confidence-level must lie strictly between 0 and 1, got 1.5"),
        ("--tol 2", "--tol must be positive and less than 1, got 2.0"),
        ("--tol 0", "--tol must be positive"),
        ("--alpha 1", "--alpha must lie strictly between 0 and 1, got 1.0"),
        ("--device nonsense", "--device must be cpu, cuda, or cuda:N for the GPU of number N, got 'nonsense'."),
        ("--range 1,0", "--range must be (black, white) with black below white"),
        ("--range 0,1 --no-preprocessing", "--range is for preprocessing that rescales"),
        ("--filter wide.txt.npy", "--filter: there is no image file wide.txt.npy"),
        ("--csv table.txt", "--csv must end in .csv, got 'table.txt'"),
        ("--parquet table.csv", "--parquet must end in .parquet, got 'table.csv'"),
        (
            "--figure table.csv",
            "--figure must end in .png, .svg, .pdf, or in / for a folder of figures, got 'table.csv'",
        ),
        ("--channels 0,0", "--channels (as weights) must be finite and not all zero"),
        ("--heads median", "--heads must be 'mean', 'max', 'min' or the number of a head"),
        ("--heads 99", "--heads = 99, but the model has heads"),
        ("--map layer:99", "--map layer:K must be from -2 to 1 for this model, got 99"),
        ("--contrast neighbourhood:0", "--contrast neighbourhood:RADIUS must be finite and at least 1 pixel"),
        ("--contrast neighbourhood:5 --spacing 1,0", "--spacing (each length) must be positive and finite, got 0.0"),
        ("--filter gaussian:0", "--filter gaussian:SIGMA (of the blur) must be positive"),
        (
            "--contrast reference --reference 1.npy --reference-noise=-1",
            "--reference-noise (a standard deviation) must",
        ),
        ("--image-size 0", "--image-size (the height) must be at least"),
    ],
)
def test_messages_of_the_library_name_options(arguments: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attentest.pipeline.file_run.ImageTests", None)
    noise = [] if "--noise" in arguments else ["--noise", "1"]
    done = run("0.npy", *noise, *arguments.split())
    assert isinstance(done.exception, InputError), done.output
    assert str(done.exception).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--noise 1,2,3", "0.npy: the noise model is for images of 3 channels, but the image has 1"),
        ("--frame 3", "0.npy[frame 3]: frame (of 0.npy) must be at least -1 and at most 0, got 3"),
        ("--channels 5", "0.npy: channels = 5 is no channel of the image"),
        ("--channels 1,2", "0.npy: channels gives 2 weights, but the image has 1 channel."),
        ("--contrast reference --reference wide.npy", "0.npy: the reference image has"),
    ],
)
def test_what_does_not_fit_an_image_is_its_reason(arguments: str, message: str) -> None:
    noise = [] if "--noise" in arguments else ["--noise", "1"]
    done = run("0.npy", *noise, *arguments.split())
    assert done.exit_code == 1, done.output
    assert done.stderr.strip().startswith(f"attentest: {message}")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--epochs 0", "--epochs must be at least 1"),
        ("--batch-size 0", "--batch-size must be at least 1"),
        ("--images-per-class 0", "--images-per-class must be at least 1"),
        ("--learning-rate 2", "--learning-rate must lie in (0, 1], got 2.0"),
        ("--dropout 1", "--dropout must lie in [0, 1), got 1.0"),
        ("--seed=-1", "--seed must be at least 0"),
        ("--image-size 9", "--image-size must be a multiple of the patch size"),
    ],
)
def test_messages_about_training_name_options(arguments: str, message: str) -> None:
    done = CliRunner().invoke(app, ["train", "new", *arguments.split()])
    assert isinstance(done.exception, InputError), done.output
    assert str(done.exception).startswith(message)


def test_an_error_names_options_in_place_of_its_parameters() -> None:
    names = {"intensity_range": "--range", "frame": "--frame", "n": "--images"}
    error = InputError("n = 1 is too few for intensity_range.", "n", "intensity_range")
    assert str(error.naming(names)) == "--images = 1 is too few for --range."
    assert str(error.naming({})) == str(error) == "n = 1 is too few for intensity_range."
    assert str(InputError("the frame must be rectangular.").naming(names)) == "the frame must be rectangular."
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (str(copied), copied.parameters) == (str(error), error.parameters)


def test_a_missing_extra_is_found_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("attentest.pipeline.file_run.ImageTests", None)
    assert "pip install 'attentest[tables]'" in str(run("0.npy", "--noise", "1", "--parquet", "a.parquet").exception)
    assert "pip install 'attentest[plots]'" in str(run("0.npy", "--noise", "1", "--figure", "a.png").exception)


def test_files_are_written_before_anything_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(sys.modules["attentest.cli.batch"], "print_table", closed)
    assert run("0.npy", "--noise", "1", *QUICK, "--csv", "t.csv", "--figure", "f.png").exit_code == 1
    assert Path("t.csv").exists()
    assert Path("f.png").exists()
