from __future__ import annotations

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import AR1, Averaged, Dense, Diagonal, Estimated, Isotropic, NoiseModel, Stationary, as_noise

N = 12


def ar1_matrix(rho: float, sigma: float, n: int = N) -> np.ndarray:
    return sigma**2 * rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


MODELS = [
    (Isotropic(1.7), 1.7**2 * np.eye(N)),
    (Diagonal(np.linspace(0.5, 2, N)), np.diag(np.linspace(0.5, 2, N))),
    (AR1(0.5, 1.3), ar1_matrix(0.5, 1.3)),
    (AR1(-0.8), ar1_matrix(-0.8, 1.0)),
    (Dense(ar1_matrix(0.9, 2.0)), ar1_matrix(0.9, 2.0)),
    (Stationary(ar1_matrix(0.5, 2.0, 2 * N - 1)[N - 1 : N], (1, N)), ar1_matrix(0.5, 2.0)),
    (Estimated(AR1(0.5, 1.3), {"images": 3}), ar1_matrix(0.5, 1.3)),
    (Averaged(AR1(0.5, 1.3), 4), ar1_matrix(0.5, 1.3) / 4),
]


@pytest.mark.parametrize(("model", "covariance"), MODELS, ids=lambda value: type(value).__name__)
def test_apply_is_the_matrix_product(model: NoiseModel, covariance: np.ndarray) -> None:
    v = np.random.default_rng(0).normal(size=(3, 5, N))
    np.testing.assert_allclose(model.apply(v), v @ covariance, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("model", "covariance"), MODELS, ids=lambda value: type(value).__name__)
def test_samples_have_the_covariance(model: NoiseModel, covariance: np.ndarray) -> None:
    draws = model.sample(np.random.default_rng(0), 200_000, N)
    empirical = draws.T @ draws / len(draws)
    # An entry's standard error is sqrt((S_ii S_jj + S_ij^2) / k); 144 entries stay within 4.5 of it with
    # probability above 0.999, and the seed is fixed.
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(draws))
    assert (np.abs(empirical - covariance) < 4.5 * error).all()


def test_sampling_is_seeded_and_sized() -> None:
    for model, _ in MODELS:
        first, second = (model.sample(np.random.default_rng(5), 2, N) for _ in range(2))
        assert first.shape == (2, N)
        assert np.array_equal(first, second)
    assert Diagonal(np.ones(4)).sample(np.random.default_rng(0), 3).shape == (3, 4)


def test_ar1_takes_a_large_image_without_a_large_matrix() -> None:
    v = np.zeros(224 * 224)
    v[1000] = 1.0
    applied = AR1(0.5).apply(v)
    np.testing.assert_allclose(applied[997:1004], 0.5 ** np.abs(np.arange(-3, 4)), rtol=1e-14)


def test_a_bare_number_is_a_standard_deviation() -> None:
    assert as_noise(2) == Isotropic(2.0)
    assert as_noise(np.float32(0.5)) == Isotropic(0.5)


def test_a_singular_covariance_is_usable() -> None:
    direction = np.ones(4)
    model = Dense(np.outer(direction, direction))
    draws = model.sample(np.random.default_rng(0), 5)
    np.testing.assert_allclose(draws, draws[:, :1].repeat(4, axis=1), atol=1e-3)


def test_models_do_not_share_the_callers_array() -> None:
    variance = np.ones(3)
    model = Diagonal(variance)
    variance[0] = 5.0
    assert model.variance.tolist() == [1, 1, 1]


def test_an_estimated_model_tells_its_origin_and_fits_the_same_images() -> None:
    model = Estimated(Diagonal(np.ones((2, 3))), {"images": 3})
    assert model.record() == {"model": "diagonal", "size": 6, "images": 3}
    assert model.describe() == {**model.record(), "sentence": model.sentence()}
    assert model.size == 6
    model.check_image((1, 2, 3))
    with pytest.raises(InputError, match="the noise model is for images of shape"):
        model.check_image((1, 3, 2))
    Estimated(Isotropic(1.0), {}).check_image((1, 3, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Isotropic(0.0), "sigma .* must be positive"),
        (lambda: Isotropic(-1.0), "got -1.0"),
        (lambda: Isotropic(np.nan), "got nan"),
        (lambda: AR1(1.0), "rho must lie strictly between -1 and 1"),
        (lambda: AR1(0.5, 0.0), "sigma"),
        (lambda: Diagonal([1.0, -2.0]), "non-negative"),
        (lambda: Diagonal([0.0, 0.0]), "not all zero"),
        (lambda: Diagonal([np.inf]), "finite"),
        (lambda: Diagonal("abc"), "array of real numbers"),
        (lambda: Diagonal(np.ones(2) * 1j), "real numbers"),
        (lambda: Diagonal(np.ma.masked_array([1.0, 2.0], mask=[False, True])), "without a mask"),
        (lambda: Diagonal([[1.0], [1.0, 2.0]]), "array of numbers"),
        (lambda: Isotropic("1"), "must be a number, got '1'"),  # type: ignore[arg-type]
        (lambda: Isotropic(True), "must be a number"),
        (lambda: Averaged(Isotropic, 3), "must be a noise model, got type"),  # type: ignore[arg-type]
        (lambda: Averaged(Isotropic(1.0), 0), "count must be"),
        (lambda: AR1(None), "rho must be a number"),  # type: ignore[arg-type]
        (lambda: Isotropic(1.0).sample(np.random.default_rng(0), -1, 2), "number of draws must be at least 0"),
        (lambda: Dense(np.ones((2, 3))), r"square .* got shape \(2, 3\)"),
        (lambda: Dense([[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (lambda: Dense([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
        (lambda: Dense(np.zeros((2, 2))), "positive semi-definite"),
        (lambda: Dense([[np.nan, 0.0], [0.0, 1.0]]), "finite"),
        (lambda: Estimated(3.0, {}), "must be a noise model, got float"),  # type: ignore[arg-type]
        (lambda: Estimated(Isotropic(1.0), {1: 2}), "names as keys"),  # type: ignore[dict-item]
        (lambda: Estimated(Isotropic(1.0), {"when": object()}), "JSON-ready"),
        (lambda: Estimated(Isotropic(1.0), {"when": np.nan}), "JSON-ready"),
        (lambda: as_noise("loud"), "got str"),
        (lambda: as_noise(True), "got bool"),
        (lambda: Isotropic(1.0).sample(np.random.default_rng(0), 2), "how many pixels"),
        (lambda: Diagonal([1.0]).sample(np.random.default_rng(0), 2, 3), "for 1 pixels, but 3"),
    ],
)
def test_what_is_no_noise_model_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
