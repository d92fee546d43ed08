"""How well each estimator of noise finds the variance of a region's difference from its background.

Noise is drawn, each estimator is fitted to some images of it, and eta' Sigma eta of random regions is compared with the
truth: mean of the relative error, and its root mean square. Too small a variance makes p too small.

    python benchmarks/noise_estimators.py [--parts estimators,lengths,fields,gains,surround] [--repeats 40]

- estimators: all of them on independent and on correlated noise.
- lengths: StationaryCovariance by the length of the correlation.
- fields: noise whose variance changes over the image.
- gains: reference images that differ by a factor.
- surround: the noise of an object in a dark surround, from the tested image itself, with the surround and without it;
  and of brain slices, with --brain FILE.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from scipy import ndimage

from attentest.contrast import Background
from attentest.errors import InputError
from attentest.noise import (
    AR1Covariance,
    LocallyStationaryCovariance,
    NoiseEstimator,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
    from_image,
)
from attentest.noise.tested_image import MEDIAN_OF_NOISE
from attentest.studies.brain.dataset import load_slices

REGIONS = 8

Array = np.ndarray


class Separable:
    """Noise with the covariance s(x) s(y) R(rows) R(columns), drawn without an n x n matrix.

    Parameters
    ----------
    correlation : (side, side)
        Correlation along rows and along columns.
    deviations : (side, side)
        Standard deviation of each pixel.
    """

    def __init__(self, correlation: Array, deviations: float | Array = 1.0) -> None:
        self.correlation, self.deviations = correlation, deviations * np.ones_like(correlation)
        values, vectors = np.linalg.eigh(correlation)
        self._root = vectors * np.sqrt(np.maximum(values, 0.0))

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Draw images (count, side, side)."""
        white = rng.normal(size=(count, *self.correlation.shape))
        return np.asarray(self.deviations * (self._root @ white @ self._root.T))

    def variance(self, eta: Array) -> Array:
        """Return eta' Sigma eta of contrasts (k, side, side)."""
        scaled = self.deviations * eta
        return np.einsum("kij,kij->k", scaled, self.correlation @ scaled @ self.correlation)


def correlation(kind: str, scale: float, side: int) -> Array:
    """Return a correlation (side, side) along one axis: "AR" scale^lag, "blur" of white noise by scale pixels."""
    lag = np.abs(np.subtract.outer(np.arange(side), np.arange(side)))
    if kind == "AR":
        return np.asarray(scale**lag)
    return np.exp(-((lag / (2 * scale)) ** 2)) if scale else np.eye(side)


def contrasts(rng: np.random.Generator, side: int) -> Array:
    """Return eta (REGIONS, side, side) of blobs of a tenth of the pixels, somewhere."""
    found = []
    for _ in range(REGIONS):
        smooth = ndimage.gaussian_filter(rng.normal(size=(side, side)), side / 8)
        region = smooth > np.quantile(smooth, 0.9)
        found.append(Background().weights(region, region, np.ones_like(region)))
    return np.stack(found)


def compare(
    name: str,
    noise: Separable,
    counts: Iterable[int],
    estimators: Mapping[str, Callable[[], NoiseEstimator]],
    repeats: int,
    scene: Callable[[np.random.Generator, Array], Array] = lambda rng, images: images,
) -> None:
    """Print a row for each number of images: mean and root mean square of the relative error by estimator."""
    side = len(noise.correlation)
    for count in counts:
        rng = np.random.default_rng(0)
        errors: dict[str, list[float]] = {estimator: [] for estimator in estimators}
        for _ in range(repeats):
            images = scene(rng, noise.draw(rng, count))
            eta = contrasts(rng, side)
            flat, truth = eta.reshape(REGIONS, -1), noise.variance(eta)
            for estimator, make in estimators.items():
                if count >= make().LEAST_IMAGES:
                    found = np.einsum("ki,ki->k", flat, make().fit(images).noise_.apply(flat))
                    errors[estimator] += (found / truth - 1).tolist()
        cells = (_cell(values) for values in errors.values())
        print(f"| {name} | {side} | {count} | " + " | ".join(cells) + " |", flush=True)


def _cell(errors: list[float]) -> str:
    if not errors:
        return "-"
    return f"{np.mean(errors):+.3f}, {np.sqrt(np.mean(np.square(errors))):.3f}"


def header(title: str, columns: Iterable[str]) -> None:
    """Print the head of a table."""
    print(f"\n{title}\n\n| noise | side | images | " + " | ".join(columns) + " |")


def estimators_part(repeats: int) -> None:
    """Compare all estimators on noise that is the same everywhere."""
    chosen = (PooledVariance, PixelVariance, AR1Covariance, StationaryCovariance, LocallyStationaryCovariance,
              ShrunkCovariance)  # fmt: skip
    by_name = {estimator.__name__: estimator for estimator in chosen}
    header("estimators", by_name)
    for name, kind, scale in (
        ("independent", "blur", 0.0), ("0.5^lag", "AR", 0.5), ("0.9^lag", "AR", 0.9), ("blurred by 1", "blur", 1.0),
    ):  # fmt: skip
        compare(name, Separable(correlation(kind, scale, 16)), (20, 100), by_name, repeats)


def lengths_part(repeats: int) -> None:
    """Measure the estimate of a stationary covariance by the length of the correlation."""
    by_name: dict[str, Callable[[], NoiseEstimator]] = {"stationary": StationaryCovariance}
    header("lengths", by_name)
    kinds = (
        ("blur", 0.0),
        ("AR", 0.5),
        ("AR", 0.8),
        ("AR", 0.9),
        ("AR", 0.97),
        ("blur", 1.0),
        ("blur", 3.0),
        ("blur", 6.0),
    )
    for side in (16, 64):
        for kind, scale in kinds:
            noise = Separable(correlation(kind, scale, side))
            name = "independent" if not scale else f"{scale}^lag" if kind == "AR" else f"blurred by {scale:g}"
            compare(name, noise, (2, 5, 20, 100), by_name, repeats if side == 16 else max(2, repeats // 4))


def fields_part(repeats: int) -> None:
    """Compare estimators on noise whose variance changes over the image."""
    by_name: dict[str, Callable[[], NoiseEstimator]] = {
        "stationary": StationaryCovariance,
        "pixel": PixelVariance,
        "shrunk": ShrunkCovariance,
        "locally stationary": LocallyStationaryCovariance,
        "smoothing 2": lambda: LocallyStationaryCovariance(smoothing=2.0),
        "smoothing 4": lambda: LocallyStationaryCovariance(smoothing=4.0),
    }
    header("fields", by_name)
    side = 32
    through = np.linspace(0.0, 1.0, side)
    ramp = np.ones((side, 1)) * (1 + 2 * through)
    bump = 1 + 3 * np.exp(-((through[:, None] - 0.5) ** 2 + (through - 0.5) ** 2) / (2 * 0.15**2))
    for field, deviations in (("constant", 1.0), ("from 1 to 3", ramp), ("4 in the middle, 1 around", bump)):
        for name, kind, scale in (("independent", "blur", 0.0), ("0.5^lag", "AR", 0.5), ("0.9^lag", "AR", 0.9)):
            noise = Separable(correlation(kind, scale, side), deviations)
            compare(f"{name}, {field}", noise, (2, 5, 20, 100), by_name, max(2, repeats // 2))


def gains_part(repeats: int) -> None:
    """Compare equal gains and gains per image on reference images with gains that differ by a tenth or a third."""
    by_name: dict[str, Callable[[], NoiseEstimator]] = {
        "equal": StationaryCovariance,
        "per image": lambda: StationaryCovariance(gain="per-image"),
    }
    header("gains", by_name)
    side = 16
    mean = 20 + 10 * np.cos(np.linspace(0, 5, side))[:, None] * np.cos(np.linspace(0, 4, side))
    for spread in (0.0, 0.1, 0.3):

        def scene(rng: np.random.Generator, images: Array, spread: float = spread) -> Array:
            gains = np.exp(spread * rng.normal(size=len(images)))
            return np.asarray((gains / np.median(gains))[:, None, None] * (mean + images))

        for name, kind, scale in (("independent", "blur", 0.0), ("0.5^lag", "AR", 0.5), ("0.9^lag", "AR", 0.9)):
            noise = Separable(correlation(kind, scale, side))
            compare(f"{name}, gains {spread:g}", noise, (5, 20, 100), by_name, repeats, scene)


def surround_part(repeats: int, brain: str | None) -> None:
    """Print median and quartiles of the wavelet estimate with and without a dark surround."""
    print("\nsurround\n\n| image | truth | with the surround | without | refused |")

    def with_surround(image: Array) -> float:
        even = image[: len(image) // 2 * 2, : image.shape[1] // 2 * 2]
        detail = (even[::2, ::2] - even[::2, 1::2] - even[1::2, ::2] + even[1::2, 1::2]) / 2
        return float(np.median(np.abs(detail)) / MEDIAN_OF_NOISE)

    def row(name: str, truth: str, images: Iterable[Array]) -> None:
        whole, inner, refused = [], [], 0
        for image in images:
            whole.append(with_surround(image))
            try:
                inner.append(float(from_image(image, "wavelet").describe()["sigma"]))
            except InputError:
                refused += 1
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*np.quantile(values, [0.5, 0.25, 0.75])) for values in (whole, inner)]
        print(f"| {name} | {truth} | {' | '.join(cells)} | {refused} of {len(whole)} |", flush=True)

    rng = np.random.default_rng(0)
    for side in (16, 64, 224):
        rows, columns = (np.mgrid[:side, :side] - (side - 1) / 2) / side
        inside = np.hypot(rows, columns) < 0.4
        for quiet in (0.0, 0.2):
            scene, deviations = np.where(inside, 60.0, 2.0), np.where(inside, 2.0, quiet)
            images = [scene + deviations * rng.normal(size=(side, side)) for _ in range(repeats)]
            row(f"disc on {side} x {side}, noise around it {quiet:g}", "2", images)
        row(f"noise alone, {side} x {side}", "2", [2 * rng.normal(size=(side, side)) for _ in range(repeats)])
    if brain is not None:
        slices = load_slices(brain)
        shown = slices.flair[slices.shows_brain()].astype(np.float64)
        row("brain slices", "not known", shown[rng.permutation(len(shown))[:300]])


def main() -> None:
    """Print the tables of the parts that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {
        "estimators": estimators_part, "lengths": lengths_part, "fields": fields_part, "gains": gains_part,
    }  # fmt: skip
    parser.add_argument("--parts", default=",".join([*parts, "surround"]))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--brain", help="lgg_flair_64.npz, the slices of the brain study")
    arguments = parser.parse_args()
    for part in arguments.parts.split(","):
        if part == "surround":
            surround_part(arguments.repeats, arguments.brain)
        else:
            parts[part](arguments.repeats)


if __name__ == "__main__":
    main()
