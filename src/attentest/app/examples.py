"""Images to try the page with, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.app.uploaded_image import UploadedImage
from attentest.simulation.synthetic_images import null_images, signal_images

SEED = 0
"""Seed of the images: the first two are those of ``attentest demo``."""

SMALL, LARGE = 16, 64
"""Sides of the images in pixels, which are those of bundled models."""

SIGNAL = 3.0
"""Mean of the signal in standard deviations of the noise."""

SPOT = 4.0
"""Brightness of the spot in the drawn scan, in standard deviations of the noise."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """An image to try the page with; its noise has a standard deviation of 1.

    Parameters
    ----------
    image
        The image.
    size
        Its side in pixels.
    """

    image: UploadedImage
    size: int


def examples() -> dict[str, Example]:
    """Return the examples by what the page calls them."""
    rng = np.random.default_rng(SEED)
    noise = null_images(rng, 1, SMALL)[0]
    signal = signal_images(rng, 1, SMALL, SIGNAL)[0][0]
    scan = drawn_scan(np.random.default_rng(SEED), LARGE)
    drawn = {"Pure noise": noise, "Noise and a signal": signal, "A drawn scan": scan}
    return {
        label: Example(image=UploadedImage(name=label.lower(), pixels=pixels), size=len(pixels))
        for label, pixels in drawn.items()
    }


def drawn_scan(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Return a grey image (size, size) like a slice of a head, with a bright spot and noise of standard deviation 1."""
    across = np.linspace(-1, 1, size)
    x, y = np.meshgrid(across, across)
    head = (x / 0.72) ** 2 + (y / 0.92) ** 2
    inside = 1 / (1 + np.exp((head - 0.85) / 0.02))
    skull = np.exp(-(((head - 0.92) / 0.05) ** 2))
    folds = 0.3 * np.cos(9 * x + 2 * np.sin(5 * y)) * np.cos(8 * y)
    spot = ((x - 0.25) ** 2 + (y + 0.3) ** 2) < 0.2**2
    return np.asarray(inside * (1 + folds) + 1.5 * skull + SPOT * spot + rng.normal(size=(size, size)))
