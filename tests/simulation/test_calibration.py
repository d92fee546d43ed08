from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from attentest import AttentionTest, Preprocessing, calibrate
from attentest.contrast import Reference, RegionMean
from attentest.errors import AttentestWarning, InputError
from attentest.noise import AR1, Diagonal, FromImage
from attentest.search import SpectralSearch
from attentest.simulation.calibrate import NullImages
from attentest.simulation.calibration import ALPHAS, ERROR_RATE, Calibration, check_row
from attentest.simulation.images import SimulatedImages
from attentest.statistics.multiple_testing import rejection_limits
from shuffled_engine import ShuffledEngine
from toys import ConstantScores, SoftmaxScores, tiny_vit


def vit(**options: Any) -> AttentionTest:
    return AttentionTest(tiny_vit(), **{"noise": 1.0, "search": SpectralSearch(tol=1e-3), **options})


class BatchedScores(SoftmaxScores):
    """Attends to the brightest of four pixels, so that the selection matters much; many images at a time."""

    batch_size = 1024


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate(AttentionTest(BatchedScores(), noise=AR1(0.5), search=SpectralSearch(tol=1e-3)), 300, 1)


def test_the_selective_test_is_calibrated_and_the_naive_one_is_not(calibration: Calibration) -> None:
    """A valid test fails this with a probability of 1%."""
    assert calibration.calibrated
    assert calibration.ks_pvalue > 0.001
    assert calibration.naive_ks_pvalue < 0.01
    assert calibration.naive_rates[1].low > 0.05
    for alpha, rate in zip(calibration.alphas, calibration.rates, strict=True):
        assert rate.count == int((calibration.pvalues <= alpha).sum())
        assert rate.total == 300


def test_a_wrong_noise_model_shows(calibration: Calibration) -> None:
    """Noise three times as large as the test believes."""
    wrong = calibrate(
        AttentionTest(BatchedScores(), noise=1.0, search=SpectralSearch(tol=1e-3)), 300, 1, true_noise=3.0
    )
    assert not wrong.calibrated
    assert wrong.ks_pvalue < 0.01
    assert "more often than its level" in wrong.summary()
    assert "calibrated: these images give no reason" in calibration.summary()


def test_the_report_is_json_ready(calibration: Calibration) -> None:
    report = json.loads(json.dumps(calibration.to_dict(), allow_nan=False))
    assert report["images"] == 300
    assert report["error_rate"] == 0.01
    assert [row["limit"] for row in report["levels"]] == list(calibration.limits)
    assert all(row["certain"] <= row["selective"]["count"] <= row["possible"] for row in report["levels"])
    assert report["pvalue_bounds"] == calibration.pvalue_bounds.tolist()
    assert [row["alpha"] for row in report["levels"]] == [0.01, 0.05, 0.10]
    assert report["calibrated"] is True
    assert report["pvalues"] == calibration.pvalues.tolist()
    assert 0 < report["ks_statistic"] < 0.2


def test_the_same_seed_gives_the_same_images() -> None:
    first, again, other = (calibrate(vit(), 3, seed).naive_pvalues.tolist() for seed in (3, 3, 4))
    assert first == again != other


def null_images(test: AttentionTest, rng: Any = 7, **options: Any) -> NullImages:
    return NullImages(test, rng, **options)


def rows_of(images: NullImages, numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [row for rows in images.run(list(numbers)) for row in rows]


def test_images_are_those_of_the_noise_model_at_the_users_size() -> None:
    """The p-values are those of images drawn by hand; preprocessing resizes them."""
    test = vit(noise=2.0, preprocessing=Preprocessing(resize=(8, 8)), confidence_level=None)
    rows = rows_of(null_images(test, image_shape=(12, 10)), range(2))
    seed = np.random.default_rng(7).integers(2**63, size=2).tolist()
    for number, row in enumerate(rows):
        drawn = 2.0 * np.random.default_rng([*seed, number, 0]).standard_normal(120).reshape(12, 10)
        result = test(drawn)
        assert (row["p"], row["p_low"], row["p_high"]) == pytest.approx((result.pvalue, *result.pvalue_bounds))
        assert (row["log_p"], row["naive_p"]) == pytest.approx((result.log_pvalue, result.naive_pvalue), rel=1e-12)
        assert (row["image"], row["status"]) == (number, result.status)
        assert row["evaluations"] > 0 < row["seconds"]
    assert calibrate(test, 2, 7, image_shape=(12, 10)).pvalues == pytest.approx([row["p"] for row in rows], abs=1e-9)


@pytest.mark.parametrize("noise", [1.0, AR1(0.5), Diagonal([[1.0, 2.0], [3.0, 4.0]])], ids=str)
def test_an_image_depends_on_the_seed_and_its_number_alone(noise: Any) -> None:
    """Any numbers in any order and in batches of any size give the same images, to the last bit, and the same p."""

    def images(batch_size: int, **options: Any) -> NullImages:
        scores = BatchedScores()
        scores.batch_size = batch_size
        return null_images(AttentionTest(scores, noise=noise, search=SpectralSearch(tol=1e-3), **options))

    drawings = SimulatedImages.image, SimulatedImages.reference
    whole = images(1024, contrast=Reference(noise=0.5))
    known = {row["image"]: row["p"] for row in rows_of(whole, range(12))}
    draw = random.Random(0)
    for batch_size in (1, 20, 256):
        again = images(batch_size, contrast=Reference(noise=0.5))
        numbers = draw.sample(range(12), 7)
        for number in numbers:
            for drawn in drawings:
                np.testing.assert_array_equal(drawn(again.images, number).pixels, drawn(whole.images, number).pixels)
        found = rows_of(again, numbers)
        assert [row["image"] for row in found] == numbers
        assert [row["p"] for row in found] == pytest.approx([known[number] for number in numbers], abs=1e-9)
    assert len({drawn(whole.images, number).pixels.tobytes() for number in range(12) for drawn in drawings}) == 24
    np.testing.assert_array_equal(
        images(5).images.image(3).pixels, whole.images.image(3).pixels
    )  # with references and without


def test_a_generator_gives_one_seed() -> None:
    generator = np.random.default_rng(3)
    first, second = (null_images(vit(), generator).images.seed for _ in range(2))
    assert first == null_images(vit(), 3).images.seed != second


def test_any_engine_gives_the_same_calibration() -> None:
    seen: list[tuple[float, int | None]] = []
    test = vit(contrast=Reference(noise=0.5))
    here = calibrate(test, 6, 2)
    there = calibrate(test, 6, 2, engine=ShuffledEngine(), progress=lambda done, total: seen.append((done, total)))
    assert there.pvalues == pytest.approx(here.pvalues, abs=1e-9)
    assert there.naive_pvalues.tolist() == here.naive_pvalues.tolist()
    assert there.rejections == here.rejections
    assert seen[-1] == (6, 6)
    with pytest.warns(AttentestWarning, match="the hypothesis is false"):
        calibrate(vit(), 2, mean=np.eye(8), engine=ShuffledEngine(1))


class Fragile(BatchedScores):
    """A model that fails for images with a pixel above 2."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if float(images[:, 0, 0, 0].max()) > 2:
            raise RuntimeError("the model does not like this image")
        return super().__call__(images)


@pytest.mark.parametrize("engine", ["local", ShuffledEngine()], ids=["local", "shuffled"])
def test_images_that_cannot_be_tested_are_reported(engine: Any) -> None:
    test = AttentionTest(Fragile(), noise=1.0, search=SpectralSearch(tol=1e-2))
    images = null_images(test, 0)
    bad = [number for number in range(40) if images.images.image(number).pixels[0, 0, 0] > 2]
    assert bad
    found = calibrate(test, 40, engine=engine)
    # The search walks through pixel values above 2, too, so that more images fail than those.
    assert set(bad) <= set(found.failures)
    assert 0 < len(found.pvalues) == 40 - len(found.failures)
    assert all(reason.endswith("the model does not like this image") for reason in found.failures.values())
    assert f"could not be tested: {len(found.failures)}" in found.summary()
    assert "because: " in found.summary()
    assert found.to_dict()["failures"][0]["image"] == min(found.failures)
    assert found.limits == rejection_limits(ALPHAS, 40, ERROR_RATE)
    assert all(possible - certain >= len(found.failures) for certain, possible in found.rejections)
    lost = images.lost(3, "its worker ended")
    check_row(lost)
    tested = next(number for number in range(40) if number not in found.failures)
    assert Calibration.of([*rows_of(images, [tested]), lost]).failures == {3: "its worker ended"}


def test_nothing_that_can_be_tested_is_an_error() -> None:
    with pytest.raises(InputError, match="of 3 null images none could be tested; image 0: "):
        calibrate(AttentionTest(ConstantScores(), noise=1.0), 3)


def test_a_mean_image_needs_a_reference() -> None:
    slope = np.linspace(0, 2, 4).reshape(2, 2)

    def toy(**options: Any) -> AttentionTest:
        return AttentionTest(BatchedScores(), noise=1.0, search=SpectralSearch(tol=1e-3), **options)

    with pytest.warns(AttentestWarning, match="the hypothesis is false, so rejections are not errors"):
        against_background = calibrate(toy(), 300, 0, mean=slope)
    against_itself = calibrate(toy(contrast=Reference(noise=0.5)), 300, 0, mean=slope)
    assert against_itself.calibrated
    assert against_itself.ks_pvalue > 0.001
    assert against_background.ks_pvalue < against_itself.ks_pvalue
    exact = calibrate(toy(contrast=Reference(slope, noise=0)), 300, 1, mean=slope)
    assert exact.calibrated
    assert exact.ks_pvalue > 0.001


def test_noise_from_the_image_is_calibrated_with_noise_that_is_given() -> None:
    test = vit(noise=FromImage())
    with pytest.raises(InputError, match="say with true_noise="):
        calibrate(test, 5)
    assert calibrate(test, 20, true_noise=1.0).rates[0].total == 20


def test_a_grey_noise_model_means_grey_images() -> None:
    test = AttentionTest(tiny_vit(channels=3), noise=Diagonal(np.ones((8, 8))), search=SpectralSearch(tol=1e-2))
    assert calibrate(test, 2).rates[0].total == 2


def test_a_contrast_that_does_not_sum_to_zero_needs_a_mean_of_zero() -> None:
    with pytest.warns(AttentestWarning, match="the hypothesis is false"):
        calibrate(vit(contrast=RegionMean()), 3, mean=np.full((8, 8), 5.0))
    calibrate(vit(), 3, mean=np.full((8, 8), 5.0))  # no warning: the background has the same mean


def test_a_mean_image_says_what_black_and_white_are() -> None:
    test = vit(noise=5.0, preprocessing=Preprocessing(resize=(8, 8), rescale=1 / 255))
    assert calibrate(test, 2, mean=np.full((10, 10), 100, dtype=np.uint8)).rates[0].total == 2


def test_generators_that_cannot_spawn_will_do() -> None:
    assert calibrate(vit(contrast=Reference()), 2, np.random.RandomState(0)).rates[0].total == 2


def test_few_images_tell_nothing() -> None:
    few = calibrate(vit(), 5)
    assert few.calibrated is None
    assert "too few images to tell" in few.summary()
    assert json.loads(json.dumps(few.to_dict()))["calibrated"] is None


def calibration_of(
    pvalues: np.ndarray, width: float | np.ndarray = 0.0, status: str = "converged", failed: int = 0
) -> Calibration:
    """The calibration of p-values with error bars of a width on either side, within 0 and 1, and of failures."""
    bounds = np.clip([pvalues - width, pvalues + width], 1e-300, 1).T
    rows: list[dict[str, Any]] = [
        {"image": number, "p": p, "naive_p": p, "p_low": low, "p_high": high, "status": status}
        for number, (p, (low, high)) in enumerate(zip(pvalues.tolist(), bounds.tolist(), strict=True))
    ]
    rows += [{"image": len(pvalues) + number, "error": f"reason {number % 5}"} for number in range(failed)]
    random.Random(0).shuffle(rows)
    calibration = Calibration.of(rows)
    assert calibration.pvalues.tolist() == pvalues.tolist()
    return calibration


@pytest.mark.parametrize("count", [100, 1000])
def test_a_valid_test_is_called_invalid_as_often_as_is_said(count: int) -> None:
    """2,000 runs on uniform p-values: at most 1%, standard error 0.22%."""
    rng = np.random.default_rng(count)
    limits = np.array(calibration_of(rng.random(count)).limits)
    assert limits.tolist() == list(rejection_limits(ALPHAS, count, ERROR_RATE))
    pvalues = rng.random((2000, count, 1))
    called = ((pvalues <= np.array(ALPHAS)).sum(axis=1) > limits).any(axis=1)
    assert called.mean() <= ERROR_RATE + 3 * 0.0022
    for run in np.flatnonzero(called)[:3]:
        assert calibration_of(pvalues[run, :, 0]).calibrated is False
    for run in np.flatnonzero(~called)[:3]:
        assert calibration_of(pvalues[run, :, 0]).calibrated


def test_a_test_that_rejects_too_often_is_found() -> None:
    """8% at a level of 5%, of 2,000 images: found with a probability of 99.8%."""
    limit = rejection_limits(ALPHAS, 2000, ERROR_RATE)[1]
    assert stats.binom.sf(limit, 2000, 0.08) > 0.99
    rng = np.random.default_rng(0)
    pvalues = np.where(rng.random(2000) < 0.08, 0.03, rng.uniform(0.15, 1, 2000))
    found = calibration_of(pvalues)
    assert found.calibrated is False
    assert f"{limit} at 0.05" in found.summary()
    assert "exceeds one of these limits with a probability of at most 1%" in found.summary()
    # Even of few images, as long as it is certain.
    assert calibration_of(np.full(20, 0.02)).calibrated is False


def test_wide_error_bars_do_not_make_a_verdict() -> None:
    rng = np.random.default_rng(1)
    pvalues = rng.random(500)
    assert calibration_of(pvalues).calibrated
    # Many rejections, none of them certain, and few rejections with many more that are possible.
    for values in (np.full(500, 0.03), np.full(500, 0.2)):
        found = calibration_of(values, 0.5, "max_evaluations")
        assert found.calibrated is None
        assert "searches that ended with status 'max_evaluations': 500" in found.summary()
        assert "error bars that contain 0.05: 500" in found.summary()
        assert found.summary().endswith("error bars are too wide to tell whether the selective test is calibrated")
        assert [row["possible"] - row["certain"] for row in found.to_dict()["levels"]] == [500, 500, 500]
    # A few that are open change nothing where the rest is clear.
    few = np.where(np.arange(500) < 3, 0.2, 0.0)
    assert calibration_of(pvalues, few).calibrated
    assert calibration_of(pvalues / 3, few).calibrated is False


def test_failures_count_as_rejected_or_not_whichever_matters() -> None:
    """Brute force: a verdict is that of every p-value that the failed images might have had."""
    pvalues = np.random.default_rng(1).random(300)
    for factor, failed, expected in ((1.0, 0, True), (1.0, 2, True), (1.0, 60, None), (0.2, 60, False)):
        found = calibration_of(factor * pvalues, failed=failed)
        assert found.calibrated is expected
        ends = [calibration_of(np.concatenate([factor * pvalues, np.full(failed, p)])) for p in (1e-9, 1.0)]
        verdicts = {end.calibrated for end in ends}
        assert found.calibrated is (verdicts.pop() if len(verdicts) == 1 else None)
        assert found.ks_statistic <= min(end.ks_statistic for end in ends) + 1e-12
        assert found.rates == calibration_of(factor * pvalues).rates
        assert "error bars that contain" not in found.summary()
        assert (f"could not be tested: {failed}" in found.summary()) == (failed > 0)
    text = calibration_of(pvalues, failed=60).summary()
    assert "12 because: reason 0" in text
    assert "2 more reasons" in text
    assert text.endswith(
        "too many images could not be tested, or have error bars that are too wide, to tell whether the selective test "
        "is calibrated"
    )


def test_the_test_of_uniformity_allows_for_the_error_bars() -> None:
    pvalues = np.random.default_rng(2).beta(1.0, 1.4, size=200)
    exact = stats.kstest(pvalues, "uniform")
    found = calibration_of(pvalues)
    assert (found.ks_statistic, found.ks_pvalue) == pytest.approx((exact.statistic, exact.pvalue), rel=1e-9)
    width = 0.05
    moved = np.random.default_rng(3).uniform(-width, width, size=(300, 200)) + pvalues
    assert calibration_of(pvalues, width).ks_statistic <= min(
        stats.kstest(np.clip(some, 0, 1), "uniform").statistic for some in moved
    )
    assert "not uniform (Kolmogorov-Smirnov p below 0.01)" in calibration_of(np.linspace(0.3, 1, 400)).summary()


def test_progress_is_reported() -> None:
    seen: list[tuple[float, int | None]] = []
    calibrate(vit(), 4, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "the number of null images. must be at least 1"),
        ({"n": 2.5}, "must be a whole number"),
        ({"alphas": (0.05, 1.0)}, "alpha must lie strictly between 0 and 1"),
        ({"alphas": 0.05}, "alphas must be a list of significance levels, got 0.05"),
        ({"alphas": ()}, "at least one significance level"),
        ({"confidence_level": 0.0}, "confidence_level must lie strictly"),
        ({"progress": 3}, "progress must be True"),
        ({"test": None}, "test must be an AttentionTest, got NoneType"),
        ({"engine": "abacus"}, "engine must be"),
        ({"engine": 3}, "engine must be a name or an engine"),
        ({"rng": "seed"}, "rng must be a numpy.random.Generator or a seed"),
        ({"mean": np.zeros((4, 4))}, "the model takes images of"),
        ({"mean": np.full((8, 8), np.nan)}, "finite pixel values"),
        ({"mean": np.zeros((8, 8)), "image_shape": (9, 9)}, "but image_shape says .9, 9."),
        ({"image_shape": 8}, "image_shape must be .H, W. or .C, H, W., got 8"),
        ({"image_shape": (8, 0)}, "image_shape .each side. must be at least 1"),
        ({"true_noise": Diagonal(np.ones(5))}, "the noise model is for 5 pixels"),
    ],
)
def test_bad_input_ends_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(**{"test": vit(), "n": 3, **options})


def test_preprocessing_of_any_size_needs_a_size() -> None:
    with pytest.raises(InputError, match="say which to draw with image_shape"):
        calibrate(vit(preprocessing=Preprocessing(resize=(8, 8))), 3)
    # One that keeps the size leaves no choice.
    assert len(calibrate(vit(preprocessing=Preprocessing(mean=(0.5,), std=(2.0,))), 3).pvalues) == 3
    with pytest.raises(InputError, match="no results to calibrate by"):
        Calibration.of([])
