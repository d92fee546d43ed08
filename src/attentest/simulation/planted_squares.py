"""Simulated images: a background, a square of known height at a random place, and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.images.sample import Sample
from attentest.noise import NoiseModel
from attentest.simulation.drawn_images import IMAGE, REFERENCE, drawn_image

SQUARE = 2
"""Place of a square among what is drawn for an image, beside IMAGE and REFERENCE."""

EXAMINED_PIXELS = 64
"""Pixels whose variances are averaged, spread evenly over the image: the variance of one takes a product with Sigma."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlantedSquares:
    """Images by number, the same however many there are and in whatever order they are drawn.

    Images of one number have the same background, place of the square and noise, whatever the height of the square.

    Parameters
    ----------
    backgrounds
        Means of the images without the square; image i has that of i modulo their number.
    side
        Side of the square in pixels; None for a third of the shorter side of the image, as in the paper.
    noise
        Noise model of the images.
    reference_noise
        Noise model of their references; None for references without noise.
    seed
        Whole numbers from which everything is drawn.
    """

    backgrounds: tuple[Sample, ...]
    side: int | None
    noise: NoiseModel
    reference_noise: NoiseModel | None
    seed: tuple[int, ...]

    def image(self, number: int, height: float) -> Sample:
        """Return an image whose square has a height, in the units of the pixels."""
        mean = Sample(pixels=self.mean(number, height), levels=self.background(number).levels)
        return drawn_image(mean, self.noise, self._seed(number, IMAGE))

    def reference(self, number: int) -> Sample:
        """Return the reference of an image: its background with noise of its own."""
        return drawn_image(self.background(number), self.reference_noise, self._seed(number, REFERENCE))

    def mean(self, number: int, height: float) -> NDArray[np.float64]:
        """Return the mean (C, H, W) of an image."""
        return self.background(number).pixels + height * self.square(number)

    def background(self, number: int) -> Sample:
        """Return the background of an image."""
        return self.backgrounds[number % len(self.backgrounds)]

    def side_of(self, number: int) -> int:
        """Return the side of the square of an image in pixels."""
        return max(1, min(self.background(number).shape[1:]) // 3) if self.side is None else self.side

    def square(self, number: int) -> NDArray[np.bool_]:
        """Return the pixels (H, W) of the square of an image."""
        size, side = self.background(number).shape[1:], self.side_of(number)
        top, left = np.random.default_rng(self._seed(number, SQUARE)).integers(0, np.array(size) - side + 1)
        mask = np.zeros(size, dtype=bool)
        mask[top : top + side, left : left + side] = True
        return mask

    def _seed(self, number: int, stream: int) -> tuple[int, ...]:
        return (*self.seed, number, stream)


def noise_deviation(noise: NoiseModel, size: int) -> float:
    """Return the standard deviation of a pixel of images of a size, from the mean variance of some of the pixels."""
    pixels = np.unique(np.linspace(0, size - 1, min(size, EXAMINED_PIXELS)).round().astype(np.int64))
    units = np.zeros((len(pixels), size))
    units[np.arange(len(pixels)), pixels] = 1.0
    variances = np.einsum("ki,ki->k", units, noise.apply(units))
    return float(np.sqrt(variances.mean()))
