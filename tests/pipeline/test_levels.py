"""Tests whose region is where a map that is not scaled exceeds a level: p, words, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest
from attentest.attention import GradCAM, Residual
from attentest.errors import InputError
from attentest.record import ResultRecord
from attentest.region.rule import TIE
from attentest.search import PiecewiseSearch, SpectralSearch
from dense_grid import dense_pvalue, small_autoencoder, small_cnn
from toys import COARSE, SoftmaxScores, tiny_vit

IMAGES = np.random.default_rng(1).normal(size=(7, 8, 8))


def network(attention: Any, module: torch.nn.Module, **options: Any) -> AttentionTest:
    return AttentionTest(
        module,
        image_shape=(1, 8, 8),
        attention=attention,
        **{"noise": 1.0, "confidence_level": None, "search": SpectralSearch(tol=1e-9), **options},
    )


def transformer(level: float = 0.15, **options: Any) -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0, level=level, **{"confidence_level": None, **options})


CASES: dict[str, Any] = {
    "transformer": lambda: transformer(search=SpectralSearch(tol=1e-10)),
    "transformer, patches": lambda: transformer(search=SpectralSearch(tol=1e-10), region_unit="patches"),
    "network, signed": lambda: network(GradCAM("2", target=1, sign="signed"), small_cnn(), level=2e-4),
    "network, positive": lambda: network(GradCAM("2", target=1, sign="positive"), small_cnn(), level=2e-4),
    "network, absolute": lambda: network(GradCAM("2", target=1, sign="absolute"), small_cnn(), level=3e-4),
    "network, predicted": lambda: network(GradCAM("2", sign="positive"), small_cnn(), level=2e-4),
    "autoencoder": lambda: network(Residual(), small_autoencoder(), level=1.5),
}


@pytest.mark.parametrize("case", [name for name in CASES if "predicted" not in name])
def test_p_is_that_of_a_dense_grid(case: str) -> None:
    test = CASES[case]()
    level, absolute = test.definition.level, "absolute" in case
    assert isinstance(test.pipeline.search, SpectralSearch if "transformer" in case else PiecewiseSearch)

    def select(values: NDArray[np.float64]) -> NDArray[np.int64]:
        flat = values.reshape(len(values), -1)
        span = abs(flat).max(axis=1) if absolute else np.ptp(flat, axis=1)
        cut = level + TIE * span[:, None]
        return (flat > cut).astype(np.int64) - (absolute & (flat < -cut))

    for image in IMAGES[:3]:
        result = test(image)
        assert result.status == "converged"
        assert result.pvalue == pytest.approx(dense_pvalue(test, image, select), abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_region_is_where_the_map_exceeds_the_level(case: str) -> None:
    """The map that is shown is scaled; where it is above the scaled level, the map itself is above the level."""
    test = CASES[case]()
    for result in test.map(IMAGES):
        inside, outside = result.attention[result.region], result.attention[~result.region]
        assert inside.min() > outside.max()
        assert 0 < result.region.mean() < 1


def test_a_level_in_the_units_of_a_residual() -> None:
    """A network that reconstructs nothing: the residual is the image, and the region where it exceeds the level."""

    class Nothing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.weight * images

    test = network(Residual("signed"), Nothing(), level=0.8)
    result = test(IMAGES[0])
    assert np.array_equal(result.region, IMAGES[0] > 0.8)
    # Along the line, pixels of the region move by z / (n_in s) and others by -z / (n_out s): two ends of the set.
    n_in, n_out = (IMAGES[0] > 0.8).sum(), (IMAGES[0] <= 0.8).sum()
    scale = np.sqrt(1 / n_in + 1 / n_out)
    z = (IMAGES[0][result.region].mean() - IMAGES[0][~result.region].mean()) / scale
    low_in = z - (IMAGES[0][result.region].min() - 0.8) * n_in * scale
    low_out = z - (0.8 - IMAGES[0][~result.region].max()) * n_out * scale
    law = stats.truncnorm(max(low_in, low_out), np.inf)
    assert result.pvalue == pytest.approx(law.sf(abs(z)) + law.cdf(-abs(z)), rel=1e-7)


def test_the_grid_search_agrees() -> None:
    for image in IMAGES[:2]:
        coarse = transformer(search=COARSE)(image)
        assert coarse.pvalue == pytest.approx(transformer()(image).pvalue, abs=5e-3)


def test_p_is_uniform_on_null_images() -> None:
    """200 images; a Kolmogorov-Smirnov p of 1e-3 is a false alarm once in 1,000 seeds."""
    test = network(Residual(), small_autoencoder(), level=1.5, search=SpectralSearch(tol=1e-3))
    images = np.random.default_rng(11).normal(size=(200, 8, 8))
    tested = [result for result in test.map(images, on_error="row") if isinstance(result.pvalue, float)]
    assert len(tested) > 190
    assert stats.kstest([result.pvalue for result in tested], "uniform").pvalue > 1e-3
    assert stats.kstest([result.naive_pvalue for result in tested], "uniform").pvalue < 1e-6


@pytest.mark.parametrize(("level", "said"), [(0.9, "no value of the map exceeds"), (0.0, "every value of the map")])
def test_a_level_beyond_the_map_is_one_sentence(level: float, said: str) -> None:
    with pytest.raises(InputError) as raised:
        transformer(level)(IMAGES[0])
    assert str(raised.value).startswith(said)
    assert "the map ranges from 0.0" in str(raised.value)
    assert str(raised.value).endswith("so use a level in between, or a threshold.")
    with pytest.raises(InputError, match=r"^image 0: "):
        transformer(level).map(IMAGES)


def test_one_rule_is_in_force() -> None:
    with pytest.raises(InputError, match="threshold and level are two ways to choose the region: give one of them"):
        transformer(threshold=0.5)
    test = transformer()
    assert (test.definition.threshold, test.definition.level) == (None, 0.15)
    assert test.replace(noise=2.0).definition.level == 0.15
    other = test.replace(threshold=0.7).definition
    assert (other.threshold, other.top_fraction, other.level) == (0.7, None, None)
    assert (test.replace(top_fraction=0.1).replace(level=0).definition.level) == 0


def test_records_rows_and_words_say_the_level() -> None:
    test = transformer(randomise=0.5)
    result = test(IMAGES[0])
    assert result.settings["level"] == 0.15
    assert result.settings["threshold"] is None
    assert "level=0.15" in repr(test)
    assert "above the level 0.15, not scaled" in test._repr_html_()
    record = ResultRecord.from_dict(result.to_dict())
    assert record.settings["level"] == 0.15
    assert test.map(IMAGES[:1]).table()["level"] == [0.15]


def test_components_and_certificates_go_with_a_level() -> None:
    from attentest.search import Certification

    parts = transformer(0.12).components(IMAGES[0])
    assert sum(part.part.sum() for part in parts) == parts[0].region.sum()
    certified = transformer()(IMAGES[0], certification=Certification(draws=19))
    assert certified.certificate is not None
    assert certified.certificate.agrees


def test_a_closed_form_of_a_score_function() -> None:
    """Scores are a softmax of four pixels: above a half lies at most one of them."""
    test = AttentionTest(SoftmaxScores(), noise=1.0, level=0.5)
    result = test(np.array([[3.0, 0.0], [0.2, -0.1]]))
    assert result.region.tolist() == [[True, False], [False, False]]
    with pytest.raises(InputError, match=r"no value of the map exceeds the level 0\.5"):
        test(np.array([[0.3, 0.0], [0.2, -0.1]]))
