from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest.contrast import Background
from attentest.errors import InputError
from attentest.noise import AR1, Dense, Diagonal, Isotropic
from attentest.pipeline.hypotheses import Lines, lines_through

N = 20


def direction(lines: Lines) -> np.ndarray:
    """The directions (k, n) of lines."""
    return np.asarray(lines.covariance_eta / lines.standard_error[:, None])


def origins(lines: Lines, seen: np.ndarray) -> np.ndarray:
    """The nuisance component Q of the paper, of images that the model sees."""
    return np.asarray(seen - direction(lines) * lines.z_obs[:, None])


@pytest.fixture
def observed() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    regions = rng.random((3, 4, 5)) > 0.6
    return rng.normal(size=(3, N)) * 40, np.stack(
        [Background().weights(r, r, np.ones_like(r)).ravel() for r in regions]
    )


@pytest.mark.parametrize("noise", [Isotropic(0.3), AR1(0.5, 2.0), Diagonal(np.linspace(0.1, 3, N))])
def test_the_origin_of_the_line_has_no_contrast(observed: tuple[np.ndarray, np.ndarray], noise: object) -> None:
    images, eta = observed
    lines = lines_through(images, eta, [noise] * len(images))  # type: ignore[arg-type]
    # Sums of 20 products of rounding errors of the pixels, with weights below 1.
    tolerance = 20 * np.finfo(float).eps * np.abs(images).max()
    np.testing.assert_allclose((eta * origins(lines, images)).sum(axis=1), 0, atol=tolerance)


def test_matches_the_matrices_of_the_paper(observed: tuple[np.ndarray, np.ndarray]) -> None:
    images, eta = observed
    sigma = 0.7 ** np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
    lines = lines_through(images, eta, [Dense(sigma)] * len(images))
    for k in range(3):
        variance = eta[k] @ sigma @ eta[k]
        projector = np.eye(N) - np.outer(sigma @ eta[k], eta[k]) / variance
        np.testing.assert_allclose(origins(lines, images)[k], projector @ images[k], atol=1e-12)
        np.testing.assert_allclose(direction(lines)[k], sigma @ eta[k] / np.sqrt(variance), atol=1e-14)
        assert lines.z_obs[k] == pytest.approx(eta[k] @ images[k] / np.sqrt(variance), rel=1e-13)
        assert eta[k] @ direction(lines)[k] == pytest.approx(np.sqrt(variance), rel=1e-13)


def test_a_noise_model_of_another_size_is_refused(observed: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(InputError, match="for 7 pixels, but the image has 20"):
        lines_through(*observed, [Diagonal(np.ones(7))] * len(observed[0]))


def test_noise_that_does_not_reach_the_contrast_is_refused(observed: tuple[np.ndarray, np.ndarray]) -> None:
    common = Dense(np.ones((N, N)))  # every pixel moves alike, so no difference of means varies
    with pytest.raises(InputError, match="no variance"):
        lines_through(*observed, [common] * len(observed[0]))


def test_noise_added_from_another_covariance_moves_along_the_same_line() -> None:
    """Coordinate and rest of X + W are linear in X and W, so that their covariances are products of matrices."""
    rng = np.random.default_rng(0)
    n, gamma = 6, 0.7
    sigma, sigma_added = (part @ part.T for part in rng.normal(size=(2, n, n)))
    eta = rng.normal(size=n)
    basis, nothing = np.eye(n), np.zeros((n, n))

    def lines(images: NDArray[np.float64], added: NDArray[np.float64]) -> Lines:
        one = [Dense(sigma)] * n
        return lines_through(images, np.tile(eta, (n, 1)), one, None, added, [Dense(sigma_added)] * n)

    of_image, of_added = lines(basis, nothing), lines(nothing, basis)
    covariance = {"image": sigma, "added": gamma**2 * sigma_added}
    statistic = {"image": of_image.statistic, "added": of_added.statistic}
    z = {"image": of_image.z_obs, "added": of_added.z_obs}
    rest = {"image": origins(of_image, basis).T, "added": origins(of_added, basis).T}
    for other in (statistic, z):
        dependence = sum(rest[part] @ covariance[part] @ other[part] for part in covariance)
        np.testing.assert_allclose(dependence, 0.0, atol=1e-6 * np.abs(sigma).max())
    np.testing.assert_allclose(statistic["added"], 0.0, atol=1e-12)
    spread = z["added"] @ covariance["added"] @ z["added"]
    assert spread == pytest.approx(gamma**2 / of_image.own_share[0], rel=1e-6)
    np.testing.assert_allclose(z["image"], statistic["image"])


def test_noise_added_for_a_smaller_standard_deviation_counts_for_less() -> None:
    """Noise of 1.4 times the standard deviation for which it was added: all is in units that are 1.4 times as great."""
    rng = np.random.default_rng(1)
    images, eta, added = rng.normal(size=(3, 2, 5))
    assumed = lines_through(images, eta, [AR1(0.5)] * 2, None, added)
    greater = lines_through(images, eta, [AR1(0.5, 1.4)] * 2, None, added, [AR1(0.5)] * 2)
    np.testing.assert_allclose(greater.z_obs, assumed.z_obs / 1.4, rtol=1e-7)
    np.testing.assert_allclose(greater.own_share, 1.4**2, rtol=1e-7)  # gamma is divided by its root
