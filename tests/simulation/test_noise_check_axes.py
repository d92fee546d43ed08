"""The check of a noise model for signals and volumes."""

from __future__ import annotations

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import AR1, AR1Covariance, ARAlong, Isotropic, StationaryCovariance
from attentest.noise.model import FloatArray
from attentest.simulation.noise_check.measures import (
    CORRELATION,
    SCALE,
    STATIONARY,
    autocorrelation,
    lag_names,
    lag_values,
    mean_deviations,
    spreads,
)
from attentest.simulation.noise_check.noise_check import noise_check, quick_check

SIGNAL, VOLUME = (96,), (8, 9, 3)


def white(shape: tuple[int, ...], count: int = 8, seed: int = 0) -> FloatArray:
    """Return images of independent noise around a constant."""
    return 10.0 + np.random.default_rng(seed).standard_normal((count, *shape))


@pytest.mark.parametrize("shape", [SIGNAL, VOLUME])
def test_each_fault_is_found_and_nothing_else(shape: tuple[int, ...]) -> None:
    dimension, images = len(shape), white(shape)
    assert noise_check(1.0, images, simulations=199, dimension=dimension).passed
    assert SCALE in noise_check(1.5, images, simulations=199, dimension=dimension).broken
    ramp = np.linspace(0.3, 2.0, shape[0]).reshape(-1, *[1] * (dimension - 1))
    uneven = 10 + ramp * (images - 10)
    assert STATIONARY in noise_check(StationaryCovariance(), uneven, simulations=199, dimension=dimension).broken
    along = ARAlong(0.7, shape=shape, axis=-dimension).sample(np.random.default_rng(1), 8).reshape(8, *shape)
    assert CORRELATION in noise_check(Isotropic(1.0), along, simulations=199, dimension=dimension).broken
    assert noise_check(ARAlong(0.7, shape=shape, axis=-dimension), along, simulations=199, dimension=dimension).passed


def test_leads_are_checked_together() -> None:
    leads = white((3, 64))
    check = noise_check(1.0, leads, simulations=199, dimension=1)
    assert check.passed
    assert check.title().startswith("8 signals of 64 samples and 3 channels")
    alike = leads.copy()
    alike[:, 1] = 0.8 * (leads[:, 0] - 10) + 0.6 * (leads[:, 1] - 10) + 10
    broken = noise_check(1.0, alike, simulations=199, dimension=1)
    assert "channels 0 and 1" in broken[CORRELATION].finding


@pytest.mark.parametrize("shape", [(19,), (7, 5, 6)])
def test_correlations_by_lag_are_those_of_a_literal_sum(shape: tuple[int, ...]) -> None:
    fields = np.random.default_rng(0).standard_normal((3, *shape))
    found = autocorrelation(fields)
    reach = [side // 2 for side in found.shape]
    places = list(np.ndindex(*shape))
    for lag in ([1] * len(shape), [0] * (len(shape) - 1) + [2], [-far for far in reach]):
        pairs = [(place, tuple(np.add(place, lag))) for place in places]
        inside = [(first, second) for first, second in pairs if np.all(np.less(second, shape)) and min(second) >= 0]
        products = np.mean([fields[(slice(None), *a)] * fields[(slice(None), *b)] for a, b in inside])
        assert found[tuple(np.add(reach, lag))] == pytest.approx(products / (fields**2).mean(), rel=1e-9)
    assert len(lag_values(found)) == len(lag_names(found))
    constant = mean_deviations(np.ones_like(found), [2])
    np.testing.assert_allclose(constant, 1.0)  # of pixels that are all the same


def test_lags_and_spreads_are_named_by_their_axes() -> None:
    assert lag_names(np.zeros(5)) == ["1 sample apart", "2 samples apart"]
    names = lag_names(np.zeros((3, 3, 3)))
    assert names[:4] == [
        "1 column apart",
        "1 row and 1 column to the left apart",
        "1 row apart",
        "1 row and 1 column to the right apart",
    ]
    assert names[4] == "1 slice and 1 row up and 1 column to the left apart"
    assert len(set(names)) == 13
    assert spreads(1) == ["in blocks", "from pixel to pixel"]
    assert spreads(3)[1:4] == ["between slices", "between rows", "between columns"]


def test_the_middle_of_volumes_and_signals_is_checked_quickly() -> None:
    signals = list(AR1(0.5).sample(np.random.default_rng(0), 8, 3000))
    check = quick_check(AR1Covariance().fit(signals), signals)
    assert check.shape == (1, 1024)
    volumes = white((12, 14, 11))
    assert quick_check(StationaryCovariance(2).fit(volumes, dimension=3), volumes).shape == (1, 10, 10, 10)


@pytest.mark.parametrize("shape", [SIGNAL, VOLUME])
def test_it_is_drawn(shape: tuple[int, ...]) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    noise_check(1.0, white(shape), simulations=199, dimension=len(shape)).plot(figure)
    figure.canvas.draw()
    panels = {axes.get_title(): axes for axes in figure.axes}
    part = {1: "samples", 3: "voxels"}[len(shape)]
    assert len(panels[f"correlation of {part}"].get_legend().get_texts()) == 2 * len(shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((3,), "signals must have at least 4 samples .* got 3"), ((9, 1, 9), "2 x 4 x 4 .* 9 x 1 x 9")],
)
def test_images_that_are_too_small_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise_check(1.0, white(shape), dimension=len(shape))
