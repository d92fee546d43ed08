"""Checks of the parameters of noise models: standard deviations and shapes of samples."""

from __future__ import annotations

from attentest.checks import real_number, whole_number
from attentest.errors import InputError

MOST_DRAWN = 10**12
"""Largest number of draws or pixels: a larger one is a mistake."""

SMALLEST_SIGMA, LARGEST_SIGMA = 1e-150, 1e150
"""Limits between which a variance neither underflows nor overflows."""


def standard_deviation(sigma: float) -> float:
    """Return a standard deviation as a plain float."""
    number = real_number(sigma, "sigma (a standard deviation)")
    if not SMALLEST_SIGMA <= number <= LARGEST_SIGMA:
        raise InputError(
            f"sigma (a standard deviation) must be positive and finite, from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g} "
            f"so that its square is too, got {number}."
        )
    return number


def sample_shape(count: int, asked: int | None, own: int | None) -> tuple[int, int]:
    """Return the shape of a sample: number of draws and number of pixels.

    Parameters
    ----------
    count
        Number of draws.
    asked
        Number of pixels that the caller asks for, or None.
    own
        Number of pixels that the noise model is for, or None for any.
    """
    if asked is None and own is None:
        raise InputError("this noise model applies to any image: say how many pixels to draw, sample(rng, k, n).")
    if asked is not None and own is not None and asked != own:
        raise InputError(f"this noise model is for {own} pixels, but {asked} were asked for.")
    length = whole_number(asked if own is None else own, "the number of pixels", 1, MOST_DRAWN)
    return whole_number(count, "the number of draws", 0, MOST_DRAWN), length
