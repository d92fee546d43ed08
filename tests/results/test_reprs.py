"""Text representations: one short line each, without arrays, that says what an object is and what it found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from attentest import (
    AttentionTest,
    Preprocessing,
    ProcessEngine,
    RayEngine,
    Results,
    attention,
    bundled_model,
    calibrate,
    contrast,
    noise,
    plan,
    search,
)
from attentest.contrast.contrast import as_contrast
from attentest.runs.engine import FailedImage
from attentest.search import Certification
from attentest.simulation.calibration import Calibration
from toys import SoftmaxScores

LONGEST = 120
"""Characters of a representation; those of noise within noise may be a little longer."""

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(20, 8, 8))
COLOURS = RNG.normal(size=(20, 8, 8, 3))
TINY = np.array([[3.0, 0.1], [0.2, 0.3]])


@pytest.fixture(scope="module")
def tiny_test() -> AttentionTest:
    return AttentionTest(SoftmaxScores(), noise=1.0)


def one_line(value: Any) -> str:
    text = repr(value)
    assert "\n" not in text
    assert "object at 0x" not in text
    assert "array(" not in text
    return text


def test_a_test_shows_what_is_not_usual() -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
    assert repr(test) == "AttentionTest(<vit>, image_shape=(1, 16, 16), threshold=0.6, noise=Isotropic(sigma=1.0))"
    other = test.replace(randomise=0.5).replace(region_unit="patches").replace(search="fixed")
    assert "region_unit='patches', randomise=0.5, search='fixed', noise=" in one_line(other)


def test_a_score_function_may_describe_itself_without_a_type() -> None:
    class Described(SoftmaxScores):
        def describe(self) -> dict[str, Any]:
            return {"mine": 1}

    test = AttentionTest(Described(), noise=1.0, contrast=contrast.Neighbourhood(1), top_fraction=0.25)
    assert repr(test).startswith("AttentionTest(<score function>, image_shape=(1, 2, 2), top_fraction=0.25, contrast=")


def test_a_result_shows_its_pvalues(tiny_test: AttentionTest) -> None:
    result = tiny_test(TINY, certification=Certification(draws=9))
    text = one_line(result)
    assert len(text) < LONGEST + 20
    assert f"pvalue={result.pvalue:.6g}, certified p {result.certificate.pvalue:.6g}, naive_pvalue=" in text  # type: ignore[union-attr]
    assert "region of 1 of 4 pixels" in text
    assert one_line(result.certificate).startswith("Certificate(pvalue=")
    for part in (result.confidence_interval(), result.truncation_set, result.certificate):
        assert len(one_line(part)) < LONGEST


def test_results_count_what_could_not_be_tested(tiny_test: AttentionTest) -> None:
    images = [TINY, TINY + 1, np.full((2, 2), np.nan)]
    results = tiny_test.map(images, on_error="row")
    assert repr(results) == "Results(2 results, 1 failure)"
    assert repr(results[:2]) == repr(results.tested) == "Results(2 results)"
    assert repr(results[1:]) == "Results(1 result, 1 failure)"
    assert repr(Results([FailedImage(number=0, reason="no")] * 2)) == "Results(0 results, 2 failures)"
    assert repr(tiny_test.components(TINY)) == "ComponentResults(1 result)"


def test_a_calibration_and_a_plan_show_what_they_found(tiny_test: AttentionTest) -> None:
    calibration = calibrate(tiny_test, 3)
    text = one_line(calibration)
    assert text.startswith("Calibration(3 null images, rejected ")
    assert text.endswith("calibrated=None)")
    assert len(text) < LONGEST
    rows = [{"image": 0, "p": 0.5, "p_low": 0.5, "p_high": 0.5, "naive_p": 0.1, "status": "converged"}]
    failed = Calibration.of([*rows, {"image": 1, "error": "no region"}])
    assert "1 null image, 1 failure, rejected 0 at 0.01, 0 at 0.05" in repr(failed)
    p_alone = tiny_test.replace(confidence_level=None)
    planned = plan(p_alone, 2, randomise=0.5, region_unit="pixels", deltas=[0, 1], side=1)
    assert repr(planned) == "Plan(1 design, deltas 0, 1, 2 images each, alpha=0.05)"
    assert repr(planned.tests[0]).startswith("SimulatedTests(pixels, gamma 0.5, delta=0, rejected ")


ESTIMATORS = [getattr(noise, name) for name in noise.__all__ if name.endswith(("Variance", "Covariance"))]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("images", [IMAGES, COLOURS], ids=["grey", "colour"])
def test_a_fitted_estimator_shows_what_it_found(estimator: type[noise.NoiseEstimator], images: Any) -> None:
    assert repr(estimator()) == f"{estimator.__name__}()"
    fitted = estimator().fit(images)
    text = one_line(fitted)
    assert text == f"{estimator.__name__}(n_images_=20, noise_={fitted.noise_!r})"
    assert re.search(r"sd (0\.9|1)|sigma=(0\.9|1)|sd 0\.\d+ to 1\.", text)
    assert len(text) < LONGEST + 20
    assert len(one_line(noise.as_noise(fitted))) < LONGEST + 40


def test_parameters_that_were_chosen_are_shown() -> None:
    assert repr(noise.StationaryCovariance(max_lag=3)) == "StationaryCovariance(max_lag=3)"
    assert repr(search.as_search("adaptive")) == "GridSearch(step=Adaptive())"
    assert (
        repr(search.GridSearch(step=search.Fixed(step=0.5), extent=5)) == "GridSearch(step=Fixed(step=0.5), extent=5.0)"
    )
    assert repr(Preprocessing(resize=(16, 16), rescale=1 / 255)).startswith(
        "Preprocessing(resize=(16, 16), rescale=0.0039"
    )
    assert repr(Preprocessing()) == "Preprocessing()"
    assert repr(ProcessEngine(workers=3)) == "ProcessEngine(workers=3, cores=None, shard=None, worker_timeout=60.0)"
    assert repr(RayEngine(workers=3)) == "RayEngine(address=None, workers=3, cores=1, shard=None, worker_timeout=60.0)"


def test_a_model_estimated_from_a_long_list_is_short() -> None:
    estimated = noise.Estimated(noise.Isotropic(1.0), {"files": [f"scan {i}.png" for i in range(1000)]})
    assert repr(estimated).endswith("...)")
    assert len(repr(estimated)) < LONGEST


@pytest.mark.parametrize(
    "part",
    [
        noise.Diagonal(np.ones((8, 8))),
        noise.Dense(np.eye(64)),
        noise.Averaged(noise.AR1(0.5), 7),
        noise.FromImage(),
        noise.from_image(IMAGES[0]),
        contrast.Background(),
        contrast.Neighbourhood(5),
        contrast.RegionMean(),
        contrast.Reference(),
        contrast.Reference(IMAGES[0], noise=noise.Diagonal(np.ones((8, 8)))),
        contrast.Filtered(np.ones((3, 3))),
        as_contrast(lambda region: region * 1.0),
        search.SpectralSearch(),
        search.as_search("combination"),
        attention.Rollout(),
        attention.LayerAttention(),
        attention.load_model(bundled_model()),
        attention.ViTScores(attention.load_model(bundled_model()).encoder),
        attention.NumpyScores(lambda images: images[:, 0], (1, 4, 4)),
        attention.TorchScores(lambda images: images[:, 0], (1, 4, 4)),
        Certification(),
    ],
    ids=lambda part: type(part).__name__,
)
def test_other_parts_are_one_short_line(part: Any) -> None:
    text = one_line(part)
    assert type(part).__name__ in text
    assert len(text) < LONGEST
