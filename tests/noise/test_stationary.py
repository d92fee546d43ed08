from __future__ import annotations

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import AR1, NoiseModel, PerChannel, Stationary


def separable(rho_rows: float, rho_columns: float, reach: tuple[int, int], variance: float = 1.0) -> np.ndarray:
    rows, columns = (np.abs(np.arange(-lag, lag + 1)) for lag in reach)
    return variance * np.outer(rho_rows**rows, rho_columns**columns)


def dense(autocovariance: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The n x n covariance, entry by entry."""
    reach = [side // 2 for side in autocovariance.shape]
    pixels = [(i, j) for i in range(shape[0]) for j in range(shape[1])]
    matrix = np.zeros((len(pixels), len(pixels)))
    for a, (i, j) in enumerate(pixels):
        for b, (k, m) in enumerate(pixels):
            if abs(i - k) <= reach[0] and abs(j - m) <= reach[1]:
                matrix[a, b] = autocovariance[reach[0] + i - k, reach[1] + j - m]
    return matrix


DIAGONAL_STRIPES = np.array([[0.4, 0.1, 0.0], [0.1, 1.0, 0.1], [0.0, 0.1, 0.4]])
"""Correlated along one diagonal and not the other: rows and columns must not be mixed up or mirrored."""

CASES = {
    "as far as the image": (separable(0.5, 0.8, (3, 4), 2.0), (4, 5)),
    "further than the image": (separable(0.5, 0.3, (9, 7)), (4, 5)),
    "near only": (DIAGONAL_STRIPES, (4, 5)),
    "near rows, far columns": (separable(0.0, 0.6, (0, 9)), (5, 3)),
    "one row": (separable(0.0, -0.7, (0, 5)), (1, 6)),
    "one column": (separable(0.7, 0.0, (5, 0)), (6, 1)),
    "white": (np.array([[3.0]]), (3, 3)),
}


@pytest.mark.parametrize(("autocovariance", "shape"), CASES.values(), ids=CASES)
def test_apply_is_the_matrix_product(autocovariance: np.ndarray, shape: tuple[int, int]) -> None:
    model = Stationary(autocovariance, shape)
    v = np.random.default_rng(0).normal(size=(2, 3, model.size))
    np.testing.assert_allclose(model.apply(v), v @ dense(autocovariance, shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("autocovariance", "shape"), CASES.values(), ids=CASES)
def test_samples_come_from_exactly_that_covariance(autocovariance: np.ndarray, shape: tuple[int, int]) -> None:
    # Sampling is linear in the standard normal draws: unit draws in their place show its matrix L, and L L' is Sigma.
    model = Stationary(autocovariance, shape)
    draws = int(np.prod(model._torus))

    class UnitDraws:
        def standard_normal(self, size: tuple[int, ...]) -> np.ndarray:
            return np.eye(draws).reshape(size)

    factor = model.sample(UnitDraws(), draws)  # type: ignore[arg-type]
    np.testing.assert_allclose(factor.T @ factor, dense(autocovariance, shape), rtol=1e-12, atol=1e-12)


def test_samples_have_the_covariance() -> None:
    model = Stationary(DIAGONAL_STRIPES, (3, 4))
    covariance = dense(DIAGONAL_STRIPES, (3, 4))
    draws = model.sample(np.random.default_rng(0), 100_000)
    # Standard error of an entry sqrt((S_ii S_jj + S_ij^2) / k); 144 entries stay within 4.5 of it, the seed is fixed.
    error = np.sqrt((1 + covariance**2) / len(draws))
    assert (np.abs(draws.T @ draws / len(draws) - covariance) < 4.5 * error).all()


def test_one_row_is_the_ar1_model() -> None:
    v = np.random.default_rng(1).normal(size=(2, 20))
    stationary = Stationary(separable(0.0, 0.6, (0, 19), 1.3**2), (1, 20))
    np.testing.assert_allclose(stationary.apply(v), AR1(0.6, 1.3).apply(v), rtol=1e-12, atol=1e-12)


def test_a_symmetric_positive_operator() -> None:
    model = Stationary(separable(0.9, 0.7, (31, 31)), (32, 32))
    u, v = np.random.default_rng(2).normal(size=(2, model.size))
    assert u @ model.apply(v) == pytest.approx(v @ model.apply(u), rel=1e-10)
    assert v @ model.apply(v) > 0


def test_a_large_image_without_a_large_matrix() -> None:
    model = Stationary(DIAGONAL_STRIPES, (224, 224))
    v = np.zeros((224, 224))
    v[100, 50] = 1.0
    np.testing.assert_allclose(
        model.apply(v.ravel()).reshape(224, 224)[99:102, 49:52], DIAGONAL_STRIPES, rtol=1e-12, atol=1e-12
    )


def test_colours_have_it_in_space() -> None:
    channels = np.array([[2.0, 0.5], [0.5, 1.0]])
    model = PerChannel(channels, Stationary(DIAGONAL_STRIPES, (3, 4)))
    assert model.size == 24
    v = np.random.default_rng(3).normal(size=(2, 24))
    expected = v @ np.kron(channels, dense(DIAGONAL_STRIPES, (3, 4)))
    np.testing.assert_allclose(model.apply(v), expected, rtol=1e-12, atol=1e-12)
    model.check_image((2, 3, 4))
    with pytest.raises(InputError, match=r"one channel of \(H, W\) = \(3, 4\)"):
        model.check_image((2, 4, 3))


def test_it_says_what_it_is() -> None:
    model = Stationary(4 * DIAGONAL_STRIPES, (3, 4))
    assert isinstance(model, NoiseModel)
    assert model.record() == {"model": "stationary", "shape": [3, 4], "sigma": 2.0, "lags": [1, 1]}
    assert repr(model) == "Stationary(<sd 2, neighbours 0.10 and 0.10>, shape=(3, 4))"
    model.check_image((1, 3, 4))
    assert model.sample(np.random.default_rng(0), 0).shape == (0, 12)
    first, second = (model.sample(np.random.default_rng(5), 2) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_spectrum_that_reaches_zero_is_usable() -> None:
    model = Stationary(np.ones((5, 5)), (3, 3))
    draws = model.sample(np.random.default_rng(0), 4)
    np.testing.assert_allclose(draws, draws[:, :1].repeat(9, axis=1), atol=1e-12)


def test_it_does_not_share_the_callers_array() -> None:
    given = DIAGONAL_STRIPES.copy()
    model = Stationary(given, (3, 4))
    given[:] = 0
    assert np.array_equal(model.autocovariance, DIAGONAL_STRIPES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stationary(np.ones((2, 3)), (4, 4)), r"odd length, .* got shape \(2, 3\) for images with 2"),
        (lambda: Stationary(np.ones(3), (4, 4)), "odd length"),
        (lambda: Stationary(np.ones((0, 1)), (4, 4)), "odd length"),
        (lambda: Stationary([[np.nan]], (4, 4)), "finite"),
        (lambda: Stationary([["a"]], (4, 4)), "real numbers"),
        (lambda: Stationary([[0.0]], (4, 4)), "variance in the middle"),
        (lambda: Stationary([[-1.0]], (4, 4)), "got -1 there"),
        (lambda: Stationary([[1.2, 1.0, 1.2]], (4, 4)), "no smaller than any covariance, got 1 there and up to 1.2"),
        (lambda: Stationary([[1e301]], (4, 4)), "standard deviation"),
        (lambda: Stationary([[0.2, 1.0, 0.3]], (4, 4)), r"opposite lags, .* differs by 0.1"),
        (lambda: Stationary([[0.8, 1.0, 0.8]], (4, 4)), "negative power"),
        (lambda: Stationary([[1.0]], 4), r"\(height, width\), for one to three axes, got 4"),
        (lambda: Stationary([[1.0]], (4, 4, 4)), "as many axes as the images"),
        (lambda: Stationary([[1.0]], (4, 0)), "each side of the images.* must be at least 1"),
        (lambda: Stationary([[1.0]], (2**20, 2**20)), "at most 67108864 pixels"),
        (lambda: Stationary([[1.0]], (2, 2)).apply(np.ones(5)), "for 4 pixels, but 5"),
        (lambda: Stationary([[1.0]], (2, 2)).sample(np.random.default_rng(0), 1, 5), "for 4 pixels, but 5"),
        (lambda: Stationary([[1.0]], (2, 2)).check_image((3, 2, 2)), "PerChannel"),
        (lambda: Stationary([[1.0]], (2, 3)).check_image((1, 3, 2)), r"but the image is \(C, H, W\) = \(1, 3, 2\)"),
    ],
)
def test_what_is_no_stationary_noise_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
