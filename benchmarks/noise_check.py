"""How often the check of a noise model calls each assumption broken: on good images, and on images that break one.

The first rows are the error rate, which is to be at most 5% for all assumptions together: noise models that are
given, and models that are fitted to the same images. The others are the power: one assumption is broken, and the noise
model is independent noise of the true standard deviation. Where a model is given, the images of a row are compared with
the same 499 sets of simulated images, which saves most of the time; of a model that is fitted, images are simulated
for each set anew. The last rows are ``noise_check`` as it is, on a scale that is off by 4.5 standard errors. With
``--only time``: the seconds of CPU that it takes for 20 images, and how many sets it draws.

    python benchmarks/noise_check.py [--size 16] [--images 5 20] [--repeats 200] [--fitted-repeats 100]
        [--only level fitted power scale time]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from agreement import table
from scipy import ndimage

from attentest.noise import (
    AR1,
    AR1Covariance,
    FloatArray,
    Isotropic,
    NoiseModel,
    PooledVariance,
    Stationary,
    StationaryCovariance,
)
from attentest.simulation.noise_check.assumptions import CRITERIA, Assumption, verdicts
from attentest.simulation.noise_check.measures import Measures, ResidualImages
from attentest.simulation.noise_check.noise_check import noise_check

BANK = 499
"""Sets of simulated images that the sets of a row are compared with."""

MEAN = 100.0
SIGMA = 10.0

Breaking = Callable[[np.random.Generator, FloatArray], FloatArray]
"""From independent standard normal images (K, H, W) to images that break an assumption."""


def noises(size: int) -> dict[str, tuple[NoiseModel, type]]:
    """Return true noise models of standard deviation 10, each with the estimator that is for it."""
    lag = np.abs(np.arange(-size + 1, size))
    correlation = 0.5 ** np.add.outer(lag, lag)
    return {
        "independent": (Isotropic(SIGMA), PooledVariance),
        "AR1, rho 0.5": (AR1(0.5, SIGMA), AR1Covariance),
        "stationary, 0.5^lag": (Stationary(SIGMA**2 * correlation, (size, size)), StationaryCovariance),
    }


def _field(noise: FloatArray) -> FloatArray:
    """Return noise whose standard deviation rises by a half from one side of the image to the other."""
    return noise * np.linspace(0.8, 1.2, noise.shape[2])


def _scaled(rng: np.random.Generator, noise: FloatArray, spread: float) -> FloatArray:
    return noise * np.exp(spread * rng.standard_normal((len(noise), 1, 1)))


def _correlated(noise: FloatArray, rho: float) -> FloatArray:
    """Return standard normal noise with a correlation of about rho between neighbours in both directions."""
    kernel = np.array([rho / 2, 1.0, rho / 2])
    kernel /= np.sqrt((kernel**2).sum())
    down = ndimage.convolve1d(noise, kernel, axis=1, mode="wrap")
    return np.asarray(ndimage.convolve1d(down, kernel, axis=2, mode="wrap"))


def _clipped(noise: FloatArray, share: float) -> FloatArray:
    return np.maximum(noise, np.quantile(noise, share))


def breakings() -> dict[str, Breaking]:
    """Return images that break one assumption each."""
    return {
        "sd 10% larger": lambda rng, noise: 1.1 * noise,
        "sd 10% smaller": lambda rng, noise: 0.9 * noise,
        "correlation 0.1": lambda rng, noise: _correlated(noise, 0.1),
        "correlation 0.5": lambda rng, noise: _correlated(noise, 0.5),
        "sd from 0.8 to 1.2": lambda rng, noise: _field(noise),
        "Student t, 5 degrees": lambda rng, noise: rng.standard_t(5, noise.shape) / np.sqrt(5 / 3),
        "skewness 0.5": lambda rng, noise: (rng.gamma(16, size=noise.shape) - 16) / 4,
        "1% clipped": lambda rng, noise: _clipped(noise, 0.01),
        "5% clipped": lambda rng, noise: _clipped(noise, 0.05),
        "gain varies by 10%": lambda rng, noise: _scaled(rng, noise, 0.1),
        "gain varies by 20%": lambda rng, noise: _scaled(rng, noise, 0.2),
        "brightness varies by 0.3 sd": lambda rng, noise: noise + 0.3 * rng.standard_normal((len(noise), 1, 1)),
        "two images are the same": lambda rng, noise: np.concatenate([noise[:1], noise[:-1]]),
    }


def measured(images: FloatArray) -> Measures:
    """Return the measures of images (K, H, W) for models of standard deviation 10 everywhere."""
    stack = images[:, None]
    return ResidualImages(stack - stack.mean(axis=0), np.full(stack.shape[1:], SIGMA), stack).measures()


def against_bank(sets: Iterable[FloatArray], bank: list[Measures]) -> Iterator[tuple[Assumption, ...]]:
    """Yield the verdicts on sets of images by the measures of simulated ones."""
    for images in sets:
        found = measured(images)
        tested = {name: [numbers, *(sample.tested[name] for sample in bank)] for name, numbers in found.tested.items()}
        yield verdicts(found, bank, 0.05, tested)


def draws(noise: NoiseModel, rng: np.random.Generator, count: int, size: int, repeats: int) -> Iterator[FloatArray]:
    """Yield sets of images (K, H, W)."""
    for _ in range(repeats):
        yield MEAN + noise.sample(rng, count, size * size).reshape(count, size, size)


def row(name: str, count: int, found: list[tuple[Assumption, ...]]) -> list[str]:
    """Return how often any assumption was called broken, and which two were named most often."""
    broken = np.array([[not one.holds for one in each] for each in found])
    shares = dict(zip(CRITERIA, broken.mean(axis=0).tolist(), strict=True))
    named = [f"{criterion} {shares[criterion]:.2f}" for criterion in sorted(shares, key=lambda one: -shares[one])[:2]]
    most = ", ".join(text for text in named if not text.endswith(" 0.00"))
    return [name, str(count), str(len(found)), f"{broken.any(axis=1).mean():.3f}", most or "none"]


def times(repeats: int) -> Iterator[list[str]]:
    """Yield the mean seconds of checks of 20 images, and the mean number of sets that were drawn."""
    cases: dict[str, tuple[int, float, float | StationaryCovariance]] = {
        "16x16, independent": (16, 1.0, SIGMA),
        "16x16, independent, scale 10% off": (16, 1.1, SIGMA),
        "64x64, independent": (64, 1.0, SIGMA),
        "64x64, independent, scale 10% off": (64, 1.1, SIGMA),
        "32x32, StationaryCovariance": (32, 1.0, StationaryCovariance()),
    }
    for name, (size, factor, noise) in cases.items():
        rng = np.random.default_rng(2)
        noise_check(noise, next(draws(Isotropic(SIGMA), rng, 20, 16, 1)))  # what is imported once does not count
        seconds, sets = [], []
        for images in draws(Isotropic(factor * SIGMA), rng, 20, size, repeats):
            start = time.process_time()
            sets.append(noise_check(noise, images).simulations)
            seconds.append(time.process_time() - start)
        yield [name, f"{np.mean(seconds):.2f}", f"{np.mean(sets):.0f}"]


def level(count: int, asked: argparse.Namespace) -> Iterator[list[str]]:
    """Yield rows of models that are given and true."""
    for name, (noise, _) in noises(asked.size).items():
        rng = np.random.default_rng(0)
        bank = [measured(images) for images in draws(noise, rng, count, asked.size, BANK)]
        yield row(f"{name}: given", count, [*against_bank(draws(noise, rng, count, asked.size, asked.repeats), bank)])


def fitted(count: int, asked: argparse.Namespace) -> Iterator[list[str]]:
    """Yield rows of models that are fitted to the same images."""
    for name, (noise, estimator) in noises(asked.size).items():
        rng = np.random.default_rng(0)
        sets = draws(noise, rng, count, asked.size, asked.fitted_repeats)
        checks = [noise_check(estimator(), images, rng=rng) for images in sets]
        yield row(f"{name}: {estimator.__name__}", count, [check.assumptions for check in checks])


def power(count: int, asked: argparse.Namespace) -> Iterator[list[str]]:
    """Yield rows of images that break an assumption."""
    rng = np.random.default_rng(0)
    size = asked.size
    bank = [measured(images) for images in draws(Isotropic(SIGMA), rng, count, size, BANK)]
    for name, breaking in breakings().items():
        sets = (MEAN + SIGMA * breaking(rng, rng.standard_normal((count, size, size))) for _ in range(asked.repeats))
        yield row(name, count, [*against_bank(sets, bank)])


def scale(count: int, asked: argparse.Namespace) -> Iterator[list[str]]:
    """Yield rows of a scale that is just visibly off, by the number of sets drawn."""
    rng = np.random.default_rng(1)
    sigma = SIGMA * (1 + 4.5 / np.sqrt(2 * (count - 1) * asked.size**2))
    for simulations in (199, 999):
        sets = draws(Isotropic(sigma), rng, count, asked.size, asked.fitted_repeats)
        checks = [noise_check(SIGMA, images, simulations=simulations, rng=rng) for images in sets]
        yield row(f"scale, at most {simulations} sets drawn", count, [check.assumptions for check in checks])


def main() -> None:
    """Print a row for each kind of images and number of images."""
    parts = {part.__name__: part for part in (level, fitted, power, scale)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--fitted-repeats", type=int, default=100)
    parser.add_argument("--images", type=int, nargs="+", default=(5, 20), help="numbers of reference images")
    parser.add_argument("--only", choices=(*parts, "time"), nargs="+", default=list(parts))
    asked = parser.parse_args()
    for part in asked.only:
        if part == "time":
            table(["20 images of", "s of CPU", "sets drawn"], times(asked.fitted_repeats))
            continue
        rows = (line for count in asked.images for line in parts[part](count, asked))
        table(["images", "K", "sets", "any called broken", "named most often"], rows)


if __name__ == "__main__":
    main()
