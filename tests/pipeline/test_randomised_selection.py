"""Randomised selection through the whole test: what the model sees, what is drawn, what is recorded."""

from __future__ import annotations

import json
from csv import DictReader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, FromImage
from attentest.presentation.result_figure import results_figure
from attentest.presentation.small_picture import displayed
from attentest.search import Certification, Fixed, GridSearch, SpectralSearch
from attentest.statistics.selection_laws import RandomisedNormal
from command_line import run_main
from toys import COARSE, tiny_vit

VIT = tiny_vit()
IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8))


QUICK: dict[str, Any] = {"confidence_level": None, "search": GridSearch(step=Fixed(step=0.5))}
"""Options for tests of what does not depend on the search."""


def a_test(**options: Any) -> AttentionTest:
    return AttentionTest(VIT, **{"noise": 1.0, "search": SpectralSearch(tol=1e-5), "randomise": 0.5, **options})


def added_to(image: NDArray[np.float64], test: AttentionTest) -> NDArray[np.float64]:
    seen = test(image).randomised_image
    assert seen is not None
    return np.asarray(seen - image)


def test_the_model_chooses_on_the_randomised_image_and_the_image_is_tested() -> None:
    result, plain = a_test(**QUICK)(IMAGES[0]), a_test(randomise=0, **QUICK)(IMAGES[0])
    assert plain.randomised_image is None
    assert plain.interval_bound == np.inf
    assert result.randomised_image is not None
    seen = a_test(randomise=0, **QUICK)(result.randomised_image)
    assert np.array_equal(result.region, seen.region)
    assert np.array_equal(result.attention, seen.attention)
    inside, outside = IMAGES[0][result.region], IMAGES[0][~result.region]
    assert result.difference == pytest.approx(inside.mean() - outside.mean(), rel=1e-12)
    assert isinstance(result.law, RandomisedNormal)
    at = result.randomised_image
    assert result.law.z_obs[0] * result.standard_error == pytest.approx(
        at[result.region].mean() - at[~result.region].mean(), rel=1e-12
    )
    assert result.interval_bound == pytest.approx(np.sqrt(5))
    assert result.to_dict()["settings"]["randomise"] == 0.5


def test_a_seed_gives_other_noise_and_is_recorded() -> None:
    added = added_to(IMAGES[0], a_test(**QUICK))
    assert np.array_equal(added, added_to(IMAGES[0], a_test(randomise_seed=0, **QUICK)))
    assert np.allclose(added, 0.5 * added_to(IMAGES[0], a_test(randomise=1.0, **QUICK)))
    in_batch = a_test(**QUICK).map(IMAGES[:3])
    assert np.array_equal(in_batch[0].randomised_image, IMAGES[0] + added)
    assert in_batch[0].pvalue == pytest.approx(a_test(**QUICK)(IMAGES[0]).pvalue, abs=1e-3)
    other = added_to(IMAGES[0], a_test(randomise_seed=1, **QUICK))
    assert abs(np.corrcoef(added.ravel(), other.ravel())[0, 1]) < 0.5
    assert a_test(randomise_seed=7, **QUICK)(IMAGES[0]).settings["randomise_seed"] == 7


def test_the_noise_is_like_that_of_the_image() -> None:
    test = a_test(noise=AR1(rho=0.8, sigma=2.0), randomise=0.3, **QUICK)
    images = np.random.default_rng(1).normal(size=(40, 8, 8))
    added = np.stack([r.randomised_image for r in test.map(images)]) - images  # type: ignore[arg-type, misc]
    flat = added.reshape(40, 64)
    assert np.std(flat) == pytest.approx(0.6, rel=0.1)
    assert np.mean(flat[:, 1:] * flat[:, :-1]) / np.var(flat) == pytest.approx(0.8, abs=0.06)


def test_searches_and_certificate_agree() -> None:
    for image in IMAGES[:2]:
        spectral = a_test()(image, certification=Certification(draws=199))
        fixed = a_test(search=COARSE)(image)
        low, high = fixed.pvalue_bounds
        assert low - 1e-6 <= spectral.pvalue <= high + 1e-6
        assert spectral.certificate is not None
        assert spectral.certificate.agrees
        for one, other in zip(spectral.confidence_interval(), fixed.confidence_interval(), strict=True):
            assert one == pytest.approx(other, abs=0.01)


def test_rejections_of_null_images_are_as_many_as_they_should_be() -> None:
    images = np.random.default_rng(3).normal(size=(120, 8, 8))
    test = a_test(search=SpectralSearch(tol=1e-3), confidence_level=None, region_unit="patches", randomise=1.0)
    pvalues = np.array([result.pvalue for result in test.map(images)])
    assert stats.kstest(pvalues, "uniform").pvalue > 0.01
    assert stats.binomtest(int(np.sum(pvalues <= 0.1)), 120, 0.1).pvalue > 0.005


@pytest.mark.parametrize(
    "options",
    [
        {"top_fraction": 0.25, "alternative": "greater"},
        {"region_unit": "patches", "contrast": "neighbourhood:2"},
        {"noise": FromImage()},
        {"search": SpectralSearch(tol=1e-4, precision="mixed")},
        {"search": COARSE, "confidence_level": None},
        {"preprocessing": Preprocessing(resize=(8, 8))},
    ],
    ids=lambda options: "-".join(options),
)
def test_with_every_other_part(options: dict[str, Any]) -> None:
    image = IMAGES[1] if "preprocessing" not in options else np.kron(IMAGES[1], np.ones((2, 2)))
    result = a_test(**options)(image)
    assert 0 < result.pvalue_bounds[0] <= result.pvalue <= result.pvalue_bounds[1] <= 1
    assert result.randomised_image is not None
    assert result.randomised_image.shape == image.shape
    interval, naive = result.confidence_interval(), result.naive_confidence_interval()
    if result.alternative == "two-sided" and result.confidence_level is not None:
        bound = result.interval_bound * (naive.high - naive.low)
        assert interval.high - interval.low <= bound + 2 * interval.error


def test_colour_components_references_and_decisions() -> None:
    colour = np.random.default_rng(2).normal(size=(8, 8, 3))
    test = AttentionTest(tiny_vit(channels=3), noise=1.0, randomise=0.5, **QUICK)
    result = test(colour)
    assert result.randomised_image is not None
    assert result.randomised_image.shape == (8, 8, 3)
    parts = a_test(threshold=0.5, **QUICK).components(IMAGES[2])
    assert all(np.array_equal(part.randomised_image, parts[0].randomised_image) for part in parts)
    compared = a_test(contrast=Reference(np.zeros((8, 8))), **QUICK)(IMAGES[3])
    assert compared.interval_bound < np.sqrt(5)  # the noise of the reference is no part of the selection
    exact = a_test(contrast=Reference(np.zeros((8, 8)), noise=0), **QUICK)(IMAGES[3])
    assert exact.interval_bound == pytest.approx(np.sqrt(5))
    assert a_test()(IMAGES[4], decide_at=0.05).reject is not None


def test_an_interval_that_was_not_resolved_exceeds_its_bound_by_twice_its_error_at_most() -> None:
    exceeded = 0
    for image in IMAGES:
        result = a_test(search=SpectralSearch(tol=1e-2), confidence_level=None)(image, decide_at=0.05)
        interval, naive = result.confidence_interval(), result.naive_confidence_interval()
        excess = interval.high - interval.low - result.interval_bound * (naive.high - naive.low)
        assert excess <= 2 * interval.error + 1e-9
        exceeded += excess > 0
    assert exceeded


def test_the_picture_shows_the_image_and_beside_it_what_the_model_saw() -> None:
    result = a_test()(IMAGES[0])
    figure = results_figure([result.picture("one")])
    assert result.randomised_image is not None
    shown = [axes.images[0].get_array() for axes in figure.axes[:2]]
    for pixels, image in zip(shown, (result.image, result.randomised_image), strict=True):
        assert np.array_equal(pixels, displayed(image))  # type: ignore[arg-type]
    density = next(axes for axes in figure.axes[3].child_axes if axes.patches)
    filled = [patch.get_data() for patch in density.patches if patch.get_fill()]
    areas = [np.sum(step.values * np.diff(step.edges)) for step in filled]
    assert areas == pytest.approx([1, result.pvalue], abs=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"randomise": -0.5}, "randomise must be 0, for the paper's test, or a number from 0.01 to 10, got -0.5"),
        ({"randomise": 0.001}, "from 0.01 to 10, got 0.001"),
        ({"randomise": 11}, "from 0.01 to 10, got 11"),
        ({"randomise": float("nan")}, "randomise must be"),
        ({"randomise": "much"}, "randomise must be"),
        ({"randomise_seed": -1}, "randomise_seed must be"),
        ({"randomise": 0, "randomise_seed": 3}, "randomise_seed 3 does nothing without randomise:"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        a_test(**options)


def test_the_permutation_test_is_the_papers() -> None:
    with pytest.raises(InputError, match="randomise=0"):
        a_test().permutation_test(IMAGES[0])


def test_on_the_command_line(saved_tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "one.npy", np.random.default_rng(5).normal(size=(8, 8)))
    call = ["test", str(tmp_path / "one.npy"), "--model", str(saved_tiny_model), "--noise", "1", "--tol", "1e-2",
            "--no-interval", "--randomise"]  # fmt: skip
    found = json.loads(run_main(capsys, *call, "0.5", "--randomise-seed", "3", "--json").out)
    assert [found["settings"][name] for name in ("randomise", "randomise_seed")] == [0.5, 3]
    assert "--randomise must be 0" in run_main(capsys, *call, "50").err
    assert run_main(capsys, *call, "0", "--randomise-seed", "3").err == (
        "attentest: --randomise-seed 3 does nothing without --randomise: give both, or neither.\n"
    )
    csv = tmp_path / "table.csv"
    table = run_main(capsys, *call, "0.5", "--randomise-seed", "3", "--region-unit", "patches", "--csv", str(csv)).out
    assert "the region was chosen on the image plus noise of 0.5 times its own, seed 3" in table
    assert "the region consists of whole patches of the model\n" in table
    assert "approximate" not in table
    call[call.index("--noise") + 1] = "sample"
    estimated = "approximate: the noise was estimated from the tested image itself"
    assert estimated in run_main(capsys, *call, "0.5").out
    columns = ("region_unit", "threshold", "top_fraction", "gamma", "randomise_seed")
    (row,) = DictReader(csv.read_text().splitlines())
    assert [row[name] for name in columns] == ["patches", "0.6", "", "0.5", "3"]
