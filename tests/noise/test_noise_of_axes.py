"""Noise of signals and volumes: every model against a dense covariance, and every estimator against a known one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.images.sample import Sample
from attentest.noise import (
    AR1,
    AR1Covariance,
    ARAlong,
    AutomaticCovariance,
    Diagonal,
    FromImage,
    Isotropic,
    LocallyStationary,
    LocallyStationaryCovariance,
    NoiseEstimator,
    NoiseModel,
    PerChannel,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    Stationary,
    StationaryCovariance,
    as_noise,
    from_image,
    load_noise,
    save_noise,
)
from attentest.noise.correlated import Exponential
from attentest.noise.implausible import detail_deviations, noise_doubts
from attentest.noise.model import FloatArray, complete
from attentest.noise.residuals import Cells, fitted_tail
from attentest.noise.stationary import gaussian_pixels

SIGNAL, VOLUME = (23,), (4, 5, 3)
SHAPES = {1: SIGNAL, 3: VOLUME}
RNG = np.random.default_rng(11)
FIELDS = {dimension: RNG.uniform(0.5, 2.0, shape) for dimension, shape in SHAPES.items()}


def triangle_lags(dimension: int, variance: float = 1.0) -> FloatArray:
    """Return covariances by lag that fall as triangles of another width along each axis, with a skewed part."""
    reach = (3, 2, 1)[:dimension]
    lines = [1 - np.abs(np.arange(-far, far + 1)) / (far + 1) for far in reach]
    separable = np.ones(())
    for line in lines:
        separable = np.multiply.outer(separable, line)
    skewed = np.zeros_like(separable)  # of a moving average along the diagonal
    middle = np.array(skewed.shape) // 2
    for lag, value in ((-1, 0.5), (0, 1.0), (1, 0.5)):
        skewed[tuple(middle + lag)] = value
    return np.asarray(variance * (0.6 * separable + 0.4 * skewed))


def covariance_by_lag(lags: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the dense covariance, from the definition of the lags."""
    places = np.indices(shape).reshape(len(shape), -1).T
    middle = np.array(lags.shape) // 2
    matrix = np.zeros((len(places), len(places)))
    for i, first in enumerate(places):
        lag = places - first
        near = np.all(np.abs(lag) <= middle, axis=1)
        matrix[i, near] = lags[tuple((middle + lag[near]).T)]
    return matrix


def along_axis(rho: float, shape: tuple[int, ...], axis: int) -> FloatArray:
    """Return the dense correlation of a series along one axis: a product with identities along the others."""
    matrix = np.ones((1, 1))
    for place, side in enumerate(shape, start=-len(shape)):
        steps = np.abs(np.subtract.outer(np.arange(side), np.arange(side)))
        matrix = np.kron(matrix, rho**steps if place == axis else np.eye(side))
    return matrix


def exponential(length: float, shape: tuple[int, ...]) -> FloatArray:
    """Return the dense correlation exp(-distance / length)."""
    places = np.indices(shape).reshape(len(shape), -1).T
    return np.asarray(np.exp(-np.abs(places[:, None] - places).sum(axis=2) / length))


def dense_models() -> list[tuple[str, NoiseModel, FloatArray]]:
    """Return models with their covariance matrices."""
    models: list[tuple[str, NoiseModel, FloatArray]] = []
    for dimension, shape in SHAPES.items():
        lags, field = triangle_lags(dimension), FIELDS[dimension]
        outer = np.outer(field, field)
        correlation = covariance_by_lag(lags, shape)
        models += [
            (f"stationary {dimension}", Stationary(2 * lags, shape), 2 * correlation),
            (f"locally {dimension}", LocallyStationary(field, lags), outer * correlation),
            (f"diagonal {dimension}", Diagonal(field), np.diag(field.ravel())),
            (f"exponential {dimension}", Exponential(field[None], 1.5), outer * exponential(1.5, shape)),
            (
                f"channels {dimension}",
                PerChannel([[2.0, 0.5], [0.5, 1.0]], Stationary(lags, shape)),
                np.kron([[2.0, 0.5], [0.5, 1.0]], correlation),
            ),
        ]
    models += [
        (f"along {axis}", ARAlong(0.7, 1.5, shape=VOLUME, axis=axis), 2.25 * along_axis(0.7, VOLUME, axis))
        for axis in (-1, -2, -3)
    ]
    leads = (2, 9)
    return [*models, ("leads", ARAlong(-0.4, shape=leads), along_axis(-0.4, leads, -1))]


MODELS = [pytest.param(model, matrix, id=name) for name, model, matrix in dense_models()]


@pytest.mark.parametrize(("model", "matrix"), MODELS)
def test_a_model_is_its_dense_covariance(model: NoiseModel, matrix: FloatArray) -> None:
    n, noise = len(matrix), complete(model)
    vectors = np.random.default_rng(0).standard_normal((2, 3, n))
    np.testing.assert_allclose(model.apply(vectors), vectors @ matrix, atol=1e-12 * np.abs(matrix).max() * n)
    places = np.array([0, 1, 5, n // 2, n - 1])
    np.testing.assert_allclose(noise.covariances(places, n), matrix[np.ix_(places, places)], atol=1e-12)
    np.testing.assert_allclose(noise.variances(n), np.diag(matrix), rtol=1e-12)
    draws = 20_000
    sample = model.sample(np.random.default_rng(1), draws, n)
    covariance = sample.T @ sample / draws
    scale = np.sqrt((np.outer(np.diag(matrix), np.diag(matrix)) + matrix**2) / draws)
    assert np.abs(covariance - matrix).max() < 6 * scale.max()  # of some 3,000 entries; six standard errors


@pytest.mark.parametrize(("model", "matrix"), MODELS)
def test_a_model_is_the_same_after_being_saved(model: NoiseModel, matrix: FloatArray, tmp_path: Path) -> None:
    if isinstance(model, Exponential):
        pytest.skip("it is not saved")
    vectors = np.random.default_rng(0).standard_normal((2, len(matrix)))
    for suffix in ("json", "safetensors"):
        save_noise(model, tmp_path / f"noise.{suffix}")
        assert np.array_equal(load_noise(tmp_path / f"noise.{suffix}").apply(vectors), model.apply(vectors))
    json.dumps(dict(model.describe()), allow_nan=False)


@pytest.mark.parametrize("dimension", SHAPES)
def test_a_correlation_length_is_changed_along_each_axis(dimension: int) -> None:
    shape = SHAPES[dimension]
    spread = Isotropic(2.0).with_correlation_length(1.5, (1, *shape))
    vectors = np.random.default_rng(0).standard_normal((2, int(np.prod(shape))))
    np.testing.assert_allclose(spread.apply(vectors), vectors @ (4 * exponential(1.5, shape)), rtol=1e-9)
    model = Stationary(triangle_lags(dimension), shape)
    length = model.correlation_length()
    wider = complete(model.with_correlation_length(2 * length, (1, *shape)))
    assert wider.correlation_length() == pytest.approx(2 * length, rel=0.15)  # lags are interpolated
    np.testing.assert_allclose(wider.variances(vectors.shape[1]), 1.0, rtol=1e-9)
    assert np.linalg.eigvalsh(wider.apply(np.eye(vectors.shape[1]))).min() > -1e-9


def test_an_axis_of_a_volume_stretches_along_that_axis() -> None:
    model = ARAlong(-0.5, 2.0, shape=VOLUME, axis=-3)
    assert model.with_correlation_length(3.0, VOLUME_IMAGE) == ARAlong(-np.exp(-1 / 3), 2.0, shape=VOLUME, axis=-3)


VOLUME_IMAGE = (1, *VOLUME)


@pytest.mark.parametrize("dimension", [1, 2])
def test_one_axis_is_the_same_as_an_image_of_one_row(dimension: int) -> None:
    lags = triangle_lags(1)
    signal = Stationary(lags, (17,))
    ones = (1,) * (dimension - 1)
    same = Stationary(lags.reshape(*ones, -1), (*ones, 17))
    vectors = np.random.default_rng(0).standard_normal((3, 17))
    np.testing.assert_allclose(signal.apply(vectors), same.apply(vectors), atol=1e-14)
    np.testing.assert_allclose(signal.degrees_per_image(vectors, {}), same.degrees_per_image(vectors, {}), rtol=1e-9)


def series(count: int, length: int, rho: float, seed: int) -> list[FloatArray]:
    """Return signals with a mean of their own and autoregressive noise of standard deviation 2."""
    mean = np.sin(np.arange(length) / 5)
    return [mean + draw for draw in AR1(rho, 2.0).sample(np.random.default_rng(seed), count, length)]


@pytest.mark.parametrize(
    "estimator", [AR1Covariance(), AR1Covariance(-1), StationaryCovariance(), AutomaticCovariance()]
)
def test_estimators_recover_the_covariance_of_signals(estimator: NoiseEstimator) -> None:
    noise = estimator.fit(series(40, 120, 0.6, 3)).noise_
    lags = noise.apply(np.eye(120)[50])[50:54]
    # 40 signals of some 30 independent values each: a relative standard error of 4%.
    np.testing.assert_allclose(lags, 4 * 0.6 ** np.arange(4), atol=0.45)


def test_leads_have_a_covariance_across_them() -> None:
    truth = PerChannel([[4.0, 1.0], [1.0, 1.0]], AR1(0.5))
    leads = [draw.reshape(2, 100) for draw in truth.sample(np.random.default_rng(0), 60, 200)]
    for estimator in (AR1Covariance(), StationaryCovariance(), LocallyStationaryCovariance()):
        noise = estimator.fit(leads, dimension=1).noise_
        assert isinstance(noise, PerChannel)
        np.testing.assert_allclose(noise.channels, [[4.0, 1.0], [1.0, 1.0]], atol=0.35)
        complete(noise).check_image((2, 100))
        assert noise.covariances(np.array([50, 51]), 200)[0, 1] == pytest.approx(2.0, abs=0.25)


def repeats(count: int, shape: tuple[int, ...]) -> list[FloatArray]:
    """Return repeats of a volume with noise of known covariances by lag."""
    mean = np.random.default_rng(1).uniform(10, 20, shape)
    truth = Stationary(triangle_lags(3, 4.0), shape)
    return [mean + draw.reshape(shape) for draw in truth.sample(np.random.default_rng(2), count)]


@pytest.mark.parametrize(
    "estimator",
    [StationaryCovariance(), StationaryCovariance(2), LocallyStationaryCovariance(), AutomaticCovariance()],
)
def test_estimators_recover_the_covariance_of_volumes(estimator: NoiseEstimator) -> None:
    shape = (9, 10, 7)
    functional = np.stack(repeats(20, shape), axis=-1)  # (X, Y, Z, repeats), as functional volumes are stored
    noise = estimator.fit(np.moveaxis(functional, -1, 0), dimension=3).noise_
    places = np.ravel_multi_index(([4, 5, 4, 4, 5], [5, 5, 6, 5, 6], [3, 3, 3, 4, 4]), shape)
    truth = Stationary(triangle_lags(3, 4.0), shape).covariances(places, 630)
    # 20 x 630 values with some 10 correlated neighbours each: a relative standard error of 4%; a variance at one place
    # has 14%.
    np.testing.assert_allclose(complete(noise).covariances(places, 630), truth, atol=1.2)
    degrees = complete(as_noise(estimator)).degrees_of_freedom(np.random.default_rng(0).standard_normal((2, 630)))
    assert np.all((degrees > 50) & (degrees < 20 * 630))


def test_estimators_of_independent_noise_take_any_number_of_axes() -> None:
    volumes = repeats(12, (4, 5, 3))
    assert complete(PooledVariance().fit(volumes, dimension=3).noise_).variances(1)[0] == pytest.approx(4.0, rel=0.3)
    assert PixelVariance().fit(volumes, dimension=3).noise_.arguments()["variance"].shape == (1, 4, 5, 3)
    assert ShrunkCovariance().fit(volumes, dimension=3).noise_.size == 60
    by_gain = PooledVariance(gain="per-image").fit([volume * (1 + 0.1 * i) for i, volume in enumerate(volumes)], 3)
    np.testing.assert_allclose(by_gain.gains_ / by_gain.gains_[0], 1 + 0.1 * np.arange(12), rtol=0.12)


def test_an_axis_of_volumes_is_estimated_alone() -> None:
    truth = ARAlong(0.6, 3.0, shape=(30, 6, 7), axis=-3)
    frames = [draw.reshape(30, 6, 7) for draw in truth.sample(np.random.default_rng(0), 6)]
    fitted = AR1Covariance(axis=-3).fit(frames, dimension=3)
    noise = fitted.noise_
    assert isinstance(noise, ARAlong)
    # 5 x 1,260 values: the correlation has a standard error of 0.01, the deviation one of 1.5%.
    assert noise.rho == pytest.approx(0.6, abs=0.04)
    assert noise.sigma == pytest.approx(3.0, rel=0.06)
    assert noise.axis == -3
    again = complete(as_noise(fitted)).fresh_estimator()
    assert again.parameters() == fitted.parameters()
    across = AR1Covariance(axis=-1).fit(frames, dimension=3).noise_
    assert isinstance(across, ARAlong)
    assert abs(across.rho) < 0.05


def test_the_number_of_axes_is_that_of_the_first_image() -> None:
    rng = np.random.default_rng(0)
    assert PooledVariance().fit([rng.standard_normal(9) for _ in range(3)]).mean_.shape == (1, 9)
    assert PooledVariance().fit(rng.standard_normal((3, 9)), dimension=1).mean_.shape == (1, 9)
    assert PooledVariance().fit(rng.standard_normal((3, 9, 2))).mean_.shape == (1, 9, 2)
    assert PooledVariance().fit(rng.standard_normal((3, 9, 4, 2))).mean_.shape == (2, 9, 4)
    assert PooledVariance().fit(rng.standard_normal((3, 9, 4, 2)), dimension=3).mean_.shape == (1, 9, 4, 2)
    assert PooledVariance().fit(torch.randn(3, 2, 9, 4, 5)).mean_.shape == (2, 9, 4, 5)
    samples = [Sample(pixels=rng.standard_normal((2, 9)), levels=None) for _ in range(3)]
    assert PooledVariance().fit(samples).mean_.shape == (2, 9)


@pytest.mark.parametrize("dimension", SHAPES)
def test_the_curve_of_long_lags_finds_its_parameters(dimension: int) -> None:
    sides = {1: (81,), 3: (15, 13, 17)}[dimension]
    distances = [np.abs(np.arange(1.0 - side, side)) for side in sides]
    lengths = (4.0, 3.0, 5.0)[:dimension]
    grid = np.meshgrid(*distances, indexing="ij")
    curve = 0.8 * np.exp(
        -(sum((lag / length) ** 1.5 for lag, length in zip(grid, lengths, strict=True)) ** (1.2 / 1.5))
    )
    middle = tuple(side - 1 for side in sides)
    correlation = curve.copy()
    correlation[middle] = 1.0
    pairs = np.prod([side - lag for side, lag in zip(sides, grid, strict=True)], axis=0)
    found = fitted_tail(correlation, pairs / pairs.max())(*np.ix_(*distances))
    assert np.abs(found - curve).max() < 1e-3


@pytest.mark.parametrize("shape", [(19,), (9, 11), (9, 6, 13)])
def test_cells_are_those_of_a_literal_division(shape: tuple[int, ...]) -> None:
    cells = Cells(shape)
    values = np.random.default_rng(0).standard_normal((2, *shape))
    numbers = cells.spread(np.arange(cells.means(values).shape[-1], dtype=np.float64)).astype(int)
    literal = [[image[numbers == cell].mean() for cell in range(numbers.max() + 1)] for image in values]
    np.testing.assert_allclose(cells.means(values), literal, rtol=1e-12)
    lags = np.random.default_rng(1).standard_normal([2 * side - 1 for side in shape])
    weights = np.array([(numbers == cell).ravel() / (numbers == cell).sum() for cell in range(numbers.max() + 1)])
    literal = weights @ covariance_by_lag(lags, shape) @ weights.T
    np.testing.assert_allclose(cells.covariances(lags), literal.T, atol=1e-12)


@pytest.mark.parametrize("shape", [(400,), (14, 12, 10)])
def test_strength_that_differs_over_signals_and_volumes_is_seen(shape: tuple[int, ...]) -> None:
    rng, ramp = np.random.default_rng(0), np.linspace(0.5, 2.0, shape[-1])
    equal = [rng.standard_normal(shape) for _ in range(8)]
    assert AutomaticCovariance().fit(equal, len(shape)).choice_.startswith("stationary")
    assert AutomaticCovariance().fit([ramp * image for image in equal], len(shape)).choice_.startswith("locally")


def test_a_gaussian_mean_counts_as_many_pixels_as_it_has_in_any_number_of_axes() -> None:
    weights = np.exp(-((np.arange(-40, 41) / 5) ** 2) / 2)
    line = weights.sum() ** 2 / (weights**2).sum()
    assert [gaussian_pixels(5.0, dimension) for dimension in (1, 2, 3)] == pytest.approx([line, line**2, line**3])


@pytest.mark.parametrize("method", ["sample", "wavelet"])
@pytest.mark.parametrize("shape", [(4000,), (16, 18, 20)])
def test_the_noise_of_a_signal_or_volume_is_estimated_from_itself(method: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    noise = from_image(3.0 * rng.standard_normal(shape), method, len(shape))
    assert complete(noise).variances(1)[0] == pytest.approx(9.0, rel=0.1)
    smooth = 20 * np.sin(np.arange(shape[-1]) / shape[-1] * 6)
    if method == "wavelet":
        found = from_image(smooth + 3.0 * rng.standard_normal(shape), method, len(shape))
        assert complete(found).variances(1)[0] == pytest.approx(9.0, rel=0.25)
    two = FromImage(method).for_image(np.stack([rng.standard_normal(shape), 2 * rng.standard_normal(shape)]))
    np.testing.assert_allclose(
        complete(two).covariances(np.array([0, two_plane(shape)]), 2 * two_plane(shape)), [[1, 0], [0, 4]], atol=0.5
    )


def two_plane(shape: tuple[int, ...]) -> int:
    """Return the place of the first value of the second channel."""
    return int(np.prod(shape))


def test_a_dark_surround_of_a_volume_is_left_out() -> None:
    volume = np.zeros((20, 20, 20))
    volume[4:16, 4:16, 4:16] = np.random.default_rng(0).normal(100, 3, (12, 12, 12))
    assert complete(from_image(volume, "wavelet", 3)).variances(1)[0] == pytest.approx(9.0, rel=0.35)


@pytest.mark.parametrize(("model", "matrix"), MODELS)
def test_details_have_the_deviation_of_the_dense_covariance(model: NoiseModel, matrix: FloatArray) -> None:
    shape = (len(matrix) // 60, *VOLUME) if len(matrix) % 60 == 0 else (len(matrix) // 23, 23)
    if np.prod(shape) != len(matrix):
        shape = (2, 9)
    channels, *sides = shape
    deviations = []
    for channel in range(channels):
        variances = []
        for share in np.r_[[[0.5] * len(sides)], np.indices([2] * len(sides)).reshape(len(sides), -1).T / 2 + 0.25]:
            weights = np.zeros(shape)
            for corner in np.ndindex(*[2] * len(sides)):
                place = [int(at * (side - 2)) + step for at, side, step in zip(share, sides, corner, strict=True)]
                weights[(channel, *place)] = (-1) ** sum(corner) / 2 ** (len(sides) / 2)
            variances.append(weights.ravel() @ matrix @ weights.ravel())
        deviations.append(np.sqrt(np.median(variances)))
    np.testing.assert_allclose(detail_deviations(model, shape), deviations, rtol=1e-9)


@pytest.mark.parametrize("shape", [(300,), (12, 10, 14)])
def test_noise_that_an_image_cannot_have_is_seen(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).standard_normal((3, 1, *shape))
    assert noise_doubts(images, [Isotropic(1.0)] * 3) == [None] * 3
    for sigma, said in ((4.0, "the noise model is too strong"), (0.01, "same units")):
        assert all(said in (doubt or "") for doubt in noise_doubts(images, [Isotropic(sigma)] * 3))
    assert "constant" in (noise_doubts(np.ones((1, 1, *shape)), [Isotropic(1.0)])[0] or "")
    assert "two values" in (noise_doubts((images > 0).astype(float), [Isotropic(1.0)] * 3)[0] or "")


def test_words_name_the_axes() -> None:
    assert "up to 3 samples: 0.65 of neighbours, 1/e at" in Stationary(triangle_lags(1), SIGNAL).words()
    volume = Stationary(triangle_lags(3), VOLUME)
    assert "up to 3 slices, 2 rows and 1 columns: 0.45 of neighbours across slices, 0.40 in a column" in volume.words()
    assert repr(volume) == "Stationary(<sd 1, neighbours 0.45, 0.40 and 0.30>, shape=(4, 5, 3))"
    assert "along axis -3" in ARAlong(0.5, shape=VOLUME, axis=-3).words()
    assert "within 2 pixels along each axis" in Exponential(np.ones((1, 5)), 2.0).words()


LAGS = np.ones((1, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stationary(LAGS, (3, 3)).check_image((1, 2, 3, 3)), r"\(H, W\) = \(3, 3\), but .*\(C, D, H, W\) = "),
        (
            lambda: Stationary([1.0], (9,)).check_image((2, 9)),
            r"channel of \(T\) = \(9,\), but the image is \(C, T\) = ",
        ),
        (lambda: Stationary(LAGS, (3, 3, 3)), r"as many axes as the images, .* got shape \(1, 1\) for images with 3"),
        (lambda: Stationary([1.0], (2, 2, 2, 2, 2)), "one to three axes"),
        (lambda: Stationary(np.ones((1, 1, 1)), (400, 400, 400)), "too much memory"),
        (lambda: LocallyStationary(np.ones((2, 2, 2, 2)), LAGS), r"one to three axes .* got shape \(2, 2, 2, 2\)"),
        (lambda: Diagonal(np.ones((3, 4))).check_image((1, 2, 3, 4)), r"but the image is \(C, D, H, W\) = \(1, 2, 3"),
        (lambda: ARAlong(0.5, shape=(4, 5), axis=0), "axis .* at most -1, got 0"),
        (lambda: ARAlong(0.5, shape=(4, 5), axis=-3), "axis .* at least -2"),
        (lambda: ARAlong(0.5, shape=7), "sides of the images"),
        (lambda: ARAlong(0.5, shape=(4, 5)).check_image((1, 5, 4)), "make one for that shape"),
        (lambda: AR1Covariance(axis=1), "axis .* must be at least -3"),
        (lambda: AR1Covariance(axis=-2).fit(series(4, 20, 0.5, 0)), "axis .* must be at least -1"),
        (
            lambda: PooledVariance().fit(series(4, 20, 0.5, 0), dimension=4),
            "dimension must be at least 1 and at most 3",
        ),
        (lambda: PooledVariance().fit(np.array(series(4, 20, 0.5, 0))), "or dimension=1"),
        (lambda: PooledVariance().fit(series(4, 20, 0.5, 0), dimension=3), r"volume 1 .* a volume must be .*\(20,\)"),
        (lambda: PooledVariance().fit([np.eye(5), np.ones((2, 5, 5, 5))]), "reference image 2 cannot be used"),
        (lambda: FromImage("wavelet").for_image(np.ones((1, 7))), "at least 4 blocks of 2 pixels, but the image has 7"),
        (lambda: FromImage().for_image(np.ones((1, 2, 2, 2, 2))), r"\(C, T\), \(C, H, W\) or \(C, D, H, W\)"),
    ],
)
def test_what_does_not_fit_the_axes_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        make()
    assert str(error.value).count(". ") == 0


def patch_means(signals: torch.Tensor) -> torch.Tensor:
    """Return the attention of eight patches: a smooth function of their means."""
    return torch.tanh(signals.reshape(len(signals), 8, -1).mean(dim=2))


@pytest.mark.parametrize(
    "noise",
    [ARAlong(0.5, shape=(64,)), Stationary(triangle_lags(1), (64,)), LocallyStationary(np.ones(64), triangle_lags(1))],
    ids=["along", "stationary", "locally stationary"],
)
def test_a_signal_is_tested_and_its_sensitivity_to_correlation_lengths(noise: NoiseModel) -> None:
    test = AttentionTest(patch_means, image_shape=(1, 64), noise=noise)
    signal = noise.sample(np.random.default_rng(0), 1, 64)[0]
    result = test(signal)
    assert 0 < result.pvalue < 1
    sensitivity = test.sensitivity(signal)
    assert sensitivity.lengths is not None
    assert len(sensitivity.lengths) == 5
