"""How well each estimator of noise finds the variance of a region's difference from its background.

Noise of three kinds is drawn, each estimator is fitted to some images of it, and eta' Sigma eta of random regions is
compared with the truth: mean of the relative error, and its root mean square. Too small a variance makes p too small.

    python benchmarks/noise_estimators.py [--size 16] [--repeats 40]
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import ndimage

from attentest.contrast import Background
from attentest.noise import (
    AR1Covariance,
    Dense,
    Isotropic,
    NoiseModel,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
)

ESTIMATORS = (PooledVariance, PixelVariance, AR1Covariance, StationaryCovariance, ShrunkCovariance)
REGIONS = 8


def fields(size: int) -> dict[str, NoiseModel]:
    """Return noise models with dense covariances: white, separable AR in two directions, and blurred."""
    lag = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    blur = np.exp(-(lag**2) / 4.0)  # white noise blurred with a standard deviation of one pixel
    return {
        "white": Isotropic(1.0),
        "AR 0.5 both ways": Dense(np.kron(0.5**lag, 0.5**lag)),
        "AR 0.9 both ways": Dense(np.kron(0.9**lag, 0.9**lag)),
        "blurred": Dense(np.kron(blur, blur)),
    }


def contrasts(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return eta of blobs of a tenth of the pixels, somewhere."""
    found = []
    for _ in range(REGIONS):
        smooth = ndimage.gaussian_filter(rng.normal(size=(size, size)), size / 8)
        region = smooth > np.quantile(smooth, 0.9)
        found.append(Background().weights(region, region, np.ones_like(region)).ravel())
    return np.stack(found)


def main() -> None:
    """Print a row for each kind of noise, number of images and estimator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    size = arguments.size
    print(f"{'noise':18} {'images':>6} {'estimator':22} {'mean error':>10} {'rms error':>10}")
    for name, noise in fields(size).items():
        for count in (20, 100):
            rng = np.random.default_rng(0)
            errors: dict[str, list[float]] = {estimator.__name__: [] for estimator in ESTIMATORS}
            for _ in range(arguments.repeats):
                images = noise.sample(rng, count, size * size).reshape(count, size, size)
                eta = contrasts(rng, size)
                truth = np.einsum("ki,ki->k", eta, noise.apply(eta))
                for estimator in ESTIMATORS:
                    fitted = estimator().fit(images).noise_
                    found = np.einsum("ki,ki->k", eta, fitted.apply(eta))
                    errors[estimator.__name__] += (found / truth - 1).tolist()
            for estimator_name, values in errors.items():
                spread = float(np.sqrt(np.mean(np.square(values))))
                print(f"{name:18} {count:6} {estimator_name:22} {np.mean(values):+10.3f} {spread:10.3f}", flush=True)


if __name__ == "__main__":
    main()
