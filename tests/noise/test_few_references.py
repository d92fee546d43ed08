"""Noise that was estimated from few reference images: what results say of it, and calibrations that estimate anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attentest import AttentionTest, calibrate
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.noise import (
    AR1,
    AR1Covariance,
    Averaged,
    Estimated,
    Isotropic,
    NoiseModel,
    PixelVariance,
    PooledVariance,
    StationaryCovariance,
    as_noise,
)
from attentest.noise.model import complete
from attentest.presentation.footnotes import row_notes
from attentest.presentation.rows import row_of
from attentest.results.batch import Results
from attentest.results.result import AttentionTestResult
from attentest.search import Certification, SpectralSearch
from attentest.simulation.calibrate import NullImages, ReestimatedNoise
from attentest.statistics.selection_laws import RandomisedStudent, TruncatedStudent
from toys import SoftmaxScores, tiny_vit

RNG = np.random.default_rng(3)
IMAGE = RNG.normal(size=(8, 8))
IMAGE[:4, :4] += 2.0
REFERENCES = AR1(0.7).sample(RNG, 2, 64).reshape(2, 8, 8)


class BatchedScores(SoftmaxScores):
    """Attends to the brightest of four pixels; many images at a time."""

    batch_size = 1024


def result_with(noise: object, **options: object) -> AttentionTestResult:
    test = AttentionTest(tiny_vit(), **{"noise": noise, "search": SpectralSearch(tol=1e-4), **options})  # type: ignore[arg-type]
    return test(IMAGE)


@pytest.fixture(scope="module")
def few() -> AttentionTestResult:
    return result_with(StationaryCovariance().fit(REFERENCES))


def test_results_say_from_how_many_images_their_noise_was_estimated(few: AttentionTestResult) -> None:
    assert isinstance(few.law, TruncatedStudent)
    assert few.reference_images == 2
    assert 1 <= few.degrees_of_freedom < 30
    values = json.loads(json.dumps(few.to_dict()))
    assert values["reference_images"] == 2
    assert values["degrees_of_freedom"] == few.degrees_of_freedom
    (row,) = Results([few]).table()["reference_images"]
    assert row == 2


def test_reports_say_that_p_allows_for_the_estimate_where_the_law_does(
    few: AttentionTestResult, tmp_path: Path
) -> None:
    Results([few]).report(tmp_path / "report.json")
    said = json.loads((tmp_path / "report.json").read_text())["noise"]
    assert said.endswith("estimated from 2 reference images (StationaryCovariance), and p and interval allow for that.")
    # The mean of four such images has the same degrees of freedom; noise that is given has infinitely many.
    contrast = Reference(np.zeros((8, 8)), Averaged(as_noise(StationaryCovariance().fit(REFERENCES)), 4))
    compared = result_with(Isotropic(1.0), contrast=contrast)
    assert np.isfinite(compared.degrees_of_freedom)
    assert compared.settings["contrast"]["noise"]["sentence"].endswith("p and interval allow for that.")
    assert compared.settings["noise"]["sentence"] == (
        "Independent between pixels, with a standard deviation of 1; given, not estimated by attentest."
    )


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ({}, "given, not estimated by attentest"),
        ({"images": 7}, "estimated from 7 reference images, and p and interval allow for that"),
        (
            {"estimator": "Mine", "images": None},
            "estimated from reference images (Mine), and the test does not know that it is an estimate",
        ),
        (
            {"approximate": True, "method": "sample"},
            "estimated from the tested image itself (sample), so that p is approximate",
        ),
    ],
)
def test_words_about_an_estimate_are_those_of_its_degrees_of_freedom(origin: dict[str, object], said: str) -> None:
    model = Estimated(AR1(0.5, 2.0), origin)
    assert model.origin_words() == said
    assert np.isfinite(model.degrees_of_freedom(np.ones((1, 64)))).all() == ("allow for that" in said)
    assert json.loads(json.dumps(model.describe()))["sentence"] == f"{model.words()}; {said}."


def test_a_footnote_where_they_are_few(few: AttentionTestResult) -> None:
    (note,) = row_notes(row_of("a", few.record()), None, 0.05, None)
    assert "from 2 reference images with fewer than 30 degrees of freedom" in note
    row = row_of("a", few.record())
    for degrees, gamma, said in (
        (6.0, 1.0, "fewer than 10 degrees of freedom: with randomised selection p may be too small"),
        (20.0, 1.0, "fewer than 30 degrees of freedom: p and interval allow for it"),
        (6.0, 0.0, "fewer than 30 degrees of freedom: p and interval allow for it"),
    ):
        notes = row_notes({**row, "degrees_of_freedom": degrees, "gamma": gamma}, None, 0.05, None)
        assert [note for note in notes if said in note]
    many = result_with(PooledVariance().fit(RNG.normal(size=(50, 8, 8))))
    assert many.degrees_of_freedom == pytest.approx(49 * 64)
    assert row_notes(row_of("a", many.record()), None, 0.05, None) == []


def test_a_footnote_where_image_and_noise_do_not_fit() -> None:
    image = 257 * RNG.normal(size=(16, 16))
    found = AttentionTest(tiny_vit(16), noise=1.0, confidence_level=None, search=SpectralSearch(tol=1e-3))(image)
    assert found.noise_doubt is not None
    assert "same units" in found.noise_doubt
    (note,) = row_notes(row_of("a", found.record()), None, 0.05, None)
    assert "doubtful" in note


def test_each_image_of_a_batch_has_a_doubt_of_its_own() -> None:
    test = AttentionTest(tiny_vit(16), noise=1.0, confidence_level=None, search=SpectralSearch(tol=1e-2))
    image = RNG.normal(size=(16, 16))
    results = test.map([image, 257 * image, image[::-1], image / 100])
    said = [result.noise_doubt for result in results]
    assert said[0] is said[2] is None
    assert "more than the noise" in str(said[1])
    assert "less than the noise" in str(said[3])
    assert [result.to_dict()["settings"]["noise_doubt"] for result in results] == said


def test_noise_that_is_known_is_as_before() -> None:
    estimator = StationaryCovariance().fit(REFERENCES)
    known = result_with(estimator.noise_)
    assert known.reference_images is None
    assert known.degrees_of_freedom == np.inf
    assert known.to_dict()["degrees_of_freedom"] is None
    assert known.with_known_noise().pvalue == known.pvalue


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_estimate_taken_for_the_truth_gives_the_test_with_that_noise(gamma: float) -> None:
    estimator = StationaryCovariance().fit(REFERENCES)
    estimated = result_with(estimator, randomise=gamma)
    known = result_with(estimator.noise_, randomise=gamma)
    assert type(estimated.law) is (RandomisedStudent if gamma else TruncatedStudent)
    taken = estimated.with_known_noise()
    # Both within their error bars of 1e-4.
    assert taken.pvalue == pytest.approx(known.pvalue, abs=3e-4)
    # Without added noise p depends on where in a narrow set z lies, and hardly on its scale.
    # How much p differs depends on the statistic, which differs between machines with the model's random weights.
    assert abs(estimated.pvalue - taken.pvalue) > (1e-3 if gamma else 1e-6)
    low, high = known.confidence_interval()
    wide_low, wide_high = estimated.confidence_interval()
    assert wide_low < low
    assert wide_high > high


def test_errors_of_an_image_and_of_its_reference_add_up() -> None:
    noise = as_noise(PooledVariance().fit(REFERENCES))
    alone = result_with(noise)
    assert alone.degrees_of_freedom == pytest.approx(64)
    # The same estimate for both: its relative error is the same, and so are the degrees of freedom.
    both = result_with(noise, contrast=Reference(np.zeros((8, 8)), Averaged(noise, 4)))
    assert both.degrees_of_freedom == pytest.approx(64)
    # A reference without noise leaves them, and one of known noise has its share of the variance without error.
    share = 1 / (1 + 0.25)
    model = noise.model if isinstance(noise, Estimated) else noise
    mixed = result_with(noise, contrast=Reference(np.zeros((8, 8)), Averaged(model, 4)))
    assert mixed.degrees_of_freedom == pytest.approx(64 / share**2)


def test_certificate_and_search_are_compared_with_the_noise_as_it_is() -> None:
    test = AttentionTest(BatchedScores(), noise=AR1Covariance().fit(RNG.normal(size=(3, 2, 2))))
    result = test(np.array([[1.5, -0.2], [0.3, -1.0]]), certification=Certification(draws=199))
    assert result.certificate is not None
    low, high = result.certificate.pvalue_bounds
    assert low <= result.with_known_noise().pvalue <= high
    assert result.certificate.agrees


def test_calibration_estimates_the_noise_of_each_image_anew() -> None:
    test = AttentionTest(BatchedScores(), noise=AR1(0.5), search=SpectralSearch(tol=1e-3))
    found = calibrate(test, 250, 0, reference_images=3, alphas=(0.05, 0.2))
    assert found.plug_in_pvalues is not None
    assert found.plug_in_rates is not None
    # 250 images of four pixels, of which three references say little: 12.5 +- 3.4 of a test that keeps 0.05.
    assert found.rates[0].count <= 12.5 + 3 * 3.4
    assert found.plug_in_rates[0].count > found.rates[0].count
    assert "taken for the truth" in found.summary()
    assert found.to_dict()["plug_in"][0]["count"] == found.plug_in_rates[0].count
    again = calibrate(test, 250, 0, reference_images=3, alphas=(0.05, 0.2))
    assert np.array_equal(again.pvalues, found.pvalues)
    other = calibrate(test, 5, 1, reference_images=3)
    assert not np.array_equal(other.pvalues, found.pvalues[:5])


def test_calibration_of_known_noise_has_no_second_rate() -> None:
    found = calibrate(AttentionTest(BatchedScores(), noise=1.0), 3)
    assert found.plug_in_rates is None
    assert found.to_dict()["plug_in"] is None


def test_calibration_with_an_estimate_estimates_anew_from_as_many_images() -> None:
    references = RNG.normal(size=(3, 2, 2))
    test = AttentionTest(BatchedScores(), noise=StationaryCovariance(1).fit(references))
    images = NullImages(test, 0)
    assert isinstance(images.estimated, ReestimatedNoise)
    assert images.estimated.images == 3
    assert isinstance(images.estimated.estimator, StationaryCovariance)
    assert images.estimated.estimator.max_lag == 1
    many = AttentionTest(BatchedScores(), noise=PooledVariance().fit(RNG.normal(size=(101, 2, 2))))
    assert NullImages(many, 0).estimated is None
    # Another noise to draw from than that of the test: the test keeps its own.
    assert NullImages(test, 0, true_noise=1.0).estimated is None


def test_reference_images_of_an_image_are_its_own_and_the_same_again() -> None:
    noise = ReestimatedNoise(truth=Isotropic(2.0), estimator=PooledVariance(), images=4, seed=(5,))
    image, other = RNG.normal(size=(2, 3, 8, 8))
    first, second, again = (noise.for_image(one).describe() for one in (image, other, image))
    assert first == again
    assert first != second
    assert first["images"] == 4


@pytest.mark.parametrize(
    ("noise", "kind"),
    [(Isotropic(1.0), PooledVariance), (AR1(0.5), AR1Covariance), (Averaged(AR1(0.5), 2), AR1Covariance)],
)
def test_estimators_by_kind_of_noise(noise: NoiseModel, kind: type) -> None:
    assert type(complete(noise).fresh_estimator()) is kind


def test_mistakes_end_in_a_sentence() -> None:
    test = AttentionTest(BatchedScores(), noise=1.0)
    with pytest.raises(InputError, match=r"the number of reference images must be .* 2"):
        calibrate(test, 3, reference_images=1)
    with pytest.raises(InputError, match="10"):
        calibrate(test, 3, reference_images=5, estimator=PixelVariance())
    with pytest.raises(InputError, match="an estimator is for reference images"):
        calibrate(test, 3, estimator="pooled")
    with pytest.raises(InputError, match="estimator must be one of auto, pooled"):
        calibrate(test, 3, reference_images=3, estimator=7)  # type: ignore[arg-type]


def test_another_noise_for_the_same_test() -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, search=SpectralSearch(tol=1e-4))
    other = test.replace(noise=AR1(0.5, 2.0))
    assert other.settings["noise"]["rho"] == 0.5
    assert test.settings["noise"]["model"] == "isotropic"
    expected = AttentionTest(tiny_vit(), noise=AR1(0.5, 2.0), search=SpectralSearch(tol=1e-4))(IMAGE)
    assert other(IMAGE).pvalue == expected.pvalue
