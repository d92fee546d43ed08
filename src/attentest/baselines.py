"""The tests the paper compares with (appendix C.1): naive, Bonferroni and permutation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from attentest.errors import InputError
from attentest.truncated_normal import Alternative, check_alternative

LOG_2 = float(np.log(2.0))


def naive_log_pvalue(z: float, alternative: Alternative = "two-sided") -> float:
    """Return the log p-value of a plain z-test, which ignores that the region was chosen by looking."""
    check_alternative(alternative)
    if alternative == "greater":
        return float(log_ndtr(-z))
    if alternative == "less":
        return float(log_ndtr(z))
    return LOG_2 + float(log_ndtr(-abs(z)))


def bonferroni_log_pvalue(log_naive: float, pixels: int) -> float:
    """Return the log of min(1, 2^pixels p): a correction for every region there could have been."""
    return min(0.0, pixels * LOG_2 + log_naive)


@dataclass(frozen=True, kw_only=True)
class PermutationResult:
    """A permutation test.

    Parameters
    ----------
    statistic
        Observed statistic.
    pvalue
        (count + 1) / (B + 1), never zero.
    count_pvalue
        count / B, the paper's formula.
    permuted : (B,)
        Statistics of the permuted images.
    """

    statistic: float
    pvalue: float
    count_pvalue: float
    permuted: NDArray[np.float64]


def permutation_test(
    image: NDArray[np.float64],
    statistics: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    permutations: int,
    batch_size: int,
    rng: np.random.Generator,
) -> PermutationResult:
    """Compare the statistic of an image with those of the same pixels in random order.

    Parameters
    ----------
    image : (C, H, W)
        Observed image; the channels of a pixel stay together.
    statistics
        Maps images (m, C, H, W) to their statistics (m,), each with a region of its own.
    permutations
        Number B of permutations.
    batch_size
        Images at a time.
    rng
        Source of randomness.
    """
    if permutations < 1:
        raise InputError(f"permutations must be at least 1, got {permutations}.")
    observed = float(statistics(image[None])[0])
    flat = image.reshape(image.shape[0], -1)
    permuted = np.empty(permutations)
    for start in range(0, permutations, batch_size):
        count = min(batch_size, permutations - start)
        orders = rng.permuted(np.tile(np.arange(flat.shape[1]), (count, 1)), axis=1)
        shuffled = np.moveaxis(flat[:, orders], 1, 0).reshape(count, *image.shape)
        permuted[start : start + count] = statistics(shuffled)
    exceeding = int(np.sum(np.abs(permuted) > abs(observed)))
    return PermutationResult(
        statistic=observed,
        pvalue=(exceeding + 1) / (permutations + 1),
        count_pvalue=exceeding / permutations,
        permuted=permuted,
    )
