"""How often a tested image is said not to have the noise that a model says.

The first rows are images of pure noise, drawn from the model itself: nothing should be said of them. The others are
slices of a packed brain data set (see ``attentest brain``): 400 are tested, and models are fitted to 100
others.

    python benchmarks/implausible_noise.py [--repeats 2000] [--brain lgg_flair_64.npz]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from agreement import table

from attentest.noise import (
    AR1,
    FloatArray,
    Isotropic,
    NoiseModel,
    PooledVariance,
    Stationary,
    StationaryCovariance,
)
from attentest.noise.implausible import noise_doubts

TESTED, FITTED = 400, 100
"""Slices that are tested, and slices that models are fitted to."""


def models(size: int) -> dict[str, NoiseModel]:
    """Return noise models of images of a side, from rough to smooth."""
    lag = np.arange(-size + 1, size)
    return {
        "independent": Isotropic(1.0),
        "AR1, rho 0.9": AR1(0.9),
        "AR1, rho -0.9": AR1(-0.9),
        "0.9^lag": Stationary(0.9 ** np.add.outer(np.abs(lag), np.abs(lag)), (size, size)),
        "Gaussian, 2 pixels": Stationary(np.exp(-np.add.outer(lag**2, lag**2) / 8.0), (size, size)),
    }


def row(name: str, noise: NoiseModel, images: Iterable[FloatArray]) -> list[str]:
    """Return of how many images (1, H, W) it is said that the noise is too strong, or too weak."""
    said = [noise_doubts(image[None], [noise])[0] or "" for image in images]
    strong, weak = (sum(word in each for each in said) / len(said) for word in ("too strong", "same units"))
    return [name, str(len(said)), f"{strong:.4f}", f"{weak:.4f}"]


def rows(repeats: int, brain: Path | None) -> Iterator[list[str]]:
    """Yield a row for each kind of images and noise model."""
    rng = np.random.default_rng(0)
    for size in (16, 64):
        for name, noise in models(size).items():
            draws = (noise.sample(rng, 1, size * size).reshape(1, size, size) for _ in range(repeats))
            yield row(f"{name}, {size}x{size}", noise, draws)
    if brain is None:
        return
    with np.load(brain) as packed:
        slices = packed["flair"].astype(np.float64)[:, None]
    slices = slices[slices.min(axis=(1, 2, 3)) < slices.max(axis=(1, 2, 3))]
    order = rng.permutation(len(slices))
    tested = slices[order[:TESTED]]
    fitted = list(slices[order[TESTED : TESTED + FITTED], 0])
    for sigma in (0.03, 1.0, 4.0, 16.0, 30.0):
        yield row(f"slices, independent noise of {sigma:g}", Isotropic(sigma), tested)
    for estimator in (PooledVariance(), StationaryCovariance()):
        yield row(f"slices, {type(estimator).__name__}", estimator.fit(fitted).noise_, tested)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--brain", type=Path)
    asked = parser.parse_args()
    table(["noise model", "images", "too strong", "too weak"], rows(asked.repeats, asked.brain))


if __name__ == "__main__":
    main()
