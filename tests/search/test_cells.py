"""Cells against dense sampling of the same polynomials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from attentest.region.attention_map import attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import ThresholdMargins, margins, region_of
from attentest.search.spectral.cells import Interpolants, Parts, inside_and_undecided
from attentest.search.spectral.chebyshev import SIZE, basis

SAMPLES = 20_001


def random_pieces(
    count: int, error: float, seed: int, smoothness: float = 0.5
) -> tuple[ThresholdMargins, Interpolants]:
    """Polynomials for 4 x 4 scores with falling coefficients, and the regions they have at x = 0."""
    rng = np.random.default_rng(seed)
    fall = smoothness ** np.arange(SIZE)
    coefficients = torch.from_numpy(rng.normal(size=(count, SIZE, 4, 4)) * fall[:, None, None])
    middle = torch.einsum("k,pkhw->phw", basis(torch.tensor(0.0, dtype=torch.float64)), coefficients)
    patch_grid = PatchGrid((8, 8), (4, 4))
    regions = region_of(attention_map(middle, patch_grid), 0.6)
    errors = torch.tensor([error, 0.0, 1e-14], dtype=torch.float64).unsqueeze(1).expand(3, count)
    return ThresholdMargins(regions, 0.6, patch_grid), Interpolants(
        image=torch.arange(count), coefficients=coefficients, errors=errors
    )


def covered(parts: Parts, piece: int, x: np.ndarray) -> np.ndarray:
    own = parts.take(parts.piece == piece)
    return ((own.left[:, None] <= x) & (x <= own.right[:, None])).any(axis=0)


def inside_and_not(rule: ThresholdMargins, pieces: Interpolants, together: int) -> tuple[Parts, Parts]:
    parts = inside_and_undecided(rule, pieces, together)
    return parts.take(parts.inside), parts.take(~parts.inside)


def scores_at(pieces: Interpolants, which: torch.Tensor, x: np.ndarray) -> torch.Tensor:
    return pieces.scores(which, torch.from_numpy(x)[:, None])[:, 0]


def combined(rule: ThresholdMargins, which: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    extremes, _ = rule.extremes(which, rule.pixels(which, scores))
    return (extremes @ rule.weights.T).amax(dim=1)


@pytest.mark.parametrize("error", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("together", [30, 10_000])
def test_what_is_said_of_a_piece_holds_at_every_point(error: float, together: int) -> None:
    rule, pieces = random_pieces(6, error, seed=2)
    inside, undecided = inside_and_not(rule, pieces, together)
    x = np.linspace(-1, 1, SAMPLES)
    for piece in range(6):
        which = torch.full((SAMPLES,), piece)
        value = combined(rule, which, scores_at(pieces, which, x)).numpy()
        sure, open_ = covered(inside, piece, x), covered(undecided, piece, x)
        band = 2 * (error + 1e-14)
        assert (value[sure & ~open_] < -band * (1 - 1e-6) + 1e-13).all()
        assert (value[~sure & ~open_] > band * (1 - 1e-6) - 1e-13).all()
        assert sure[SAMPLES // 2] | open_[SAMPLES // 2]  # where the region was taken
        # Little more is undecided than what the band leaves undecided.
        truly = np.abs(value) <= 3 * band
        assert open_.sum() <= truly.sum() + 20


def test_the_best_guess_is_the_interpolant_at_its_word() -> None:
    rule, pieces = random_pieces(4, 1e-3, seed=5)
    inside, undecided = inside_and_not(rule, pieces, 10_000)
    x = np.linspace(-1, 1, SAMPLES)
    for piece in range(4):
        which = torch.full((SAMPLES,), piece)
        value = combined(rule, which, scores_at(pieces, which, x)).numpy()
        best = replace(undecided, left=undecided.best_left, right=undecided.best_right)
        guess = covered(inside, piece, x) | covered(best, piece, x)
        assert (guess != (value < 0)).sum() <= 12  # samples next to a crossing


@pytest.mark.parametrize(
    ("patch_grid", "step"),
    [
        (PatchGrid((12, 8), (4, 4)), 0.05),
        (PatchGrid((120, 90), (4, 4)), 0.001),  # many pixels a patch: only those that can be extreme are looked at
        (
            PatchGrid((90, 120), (4, 4), (64.0, 60.0), ((0.9, -7.3), (0.6, 2.1))),
            0.001,
        ),  # cropped, with a border
    ],
)
def test_four_extremes_say_what_all_margins_say(patch_grid: PatchGrid, step: float) -> None:
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(400, 4, 4)))
    regions = region_of(attention_map(scores[:200], patch_grid), 0.6).repeat(2, 1, 1)
    rule = ThresholdMargins(regions, 0.6, patch_grid)
    which = torch.arange(400)
    mixed = scores.clone()
    mixed[200:] = scores[:200] + step * scores[200:]  # near the region, inside it or not
    every = margins(attention_map(mixed, patch_grid), regions, 0.6)
    assert torch.equal(rule(which, mixed), every)
    inside = every.amax(dim=1) < 0
    assert 20 < int(inside[200:].sum()) < 180
    clear = every.amax(dim=1).abs() > 1e-14  # on which side of zero rounding falls is anybody's guess
    assert clear.sum() >= 398
    assert torch.equal((combined(rule, which, mixed) < 0)[clear], inside[clear])
    assert torch.equal(rule.inside(which, mixed)[clear], inside[clear])
    pixels = patch_grid.unit_scores(mixed).flatten(1)
    region = regions.flatten(1)
    extremes, _ = rule.extremes(which, rule.pixels(which, mixed))
    every_pixel = [
        -pixels.amin(dim=1),
        pixels.amax(dim=1),
        -pixels.masked_fill(~region, torch.inf).amin(dim=1),
        pixels.masked_fill(region, -torch.inf).amax(dim=1),
    ]
    torch.testing.assert_close(extremes, torch.stack(every_pixel, dim=1), rtol=0, atol=1e-14)


def test_a_large_image_has_few_pixels_that_can_be_extreme() -> None:
    scores = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 14, 14)))
    counts = []
    for side in (224, 896):
        patch_grid = PatchGrid((side, side), (14, 14))
        rule = ThresholdMargins(region_of(attention_map(scores, patch_grid), 0.6), 0.6, patch_grid)
        counts.append(rule.pixels(torch.arange(3), scores).shape[1])
    assert counts[0] < 224**2 / 15
    assert counts[1] < 5 * counts[0]  # sixteen times the pixels
