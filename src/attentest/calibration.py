"""Does a test keep its promise on this model? Null images, and how often it rejects them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from attentest.attention_test import AttentionTest, Progress
from attentest.checks import as_generator, confidence, level, whole_number
from attentest.contrast import Contrast
from attentest.errors import AttentestWarning, InputError
from attentest.image import ImageLike, Sample, as_sample
from attentest.multiplicity import Rate, rate_of
from attentest.noise import ImageNoise, NoiseLike, NoiseModel, as_noise, check_noise
from attentest.result import AttentionTestResult

ALPHAS = (0.01, 0.05, 0.10)

MOST_IMAGES = 10**8
"""More null images than this are a slip of the keyboard."""

FEWEST_EXPECTED = 10
"""Rejections of a valid test at its greatest level, below which nothing is said of it."""

UNEVEN = 0.01
"""Kolmogorov-Smirnov p-values below this are worth a word."""

ROUNDING = 1e-12
"""Share of its terms below which a sum is nothing but their rounding."""

DRAWN_TOGETHER = 2**22
"""Numbers that are drawn at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """How a test behaves where there is nothing to find.

    Parameters
    ----------
    pvalues, naive_pvalues : (n,)
        Selective p-values of null images, and those that ignore the selection.
    alphas
        Significance levels.
    rates, naive_rates
        How often p is at most each of them, with Wilson intervals.
    statuses
        How many searches ended how.
    """

    pvalues: NDArray[np.float64]
    naive_pvalues: NDArray[np.float64]
    alphas: tuple[float, ...]
    rates: tuple[Rate, ...]
    naive_rates: tuple[Rate, ...]
    statuses: dict[str, int]

    @classmethod
    def of(
        cls,
        results: Iterable[AttentionTestResult],
        alphas: Sequence[float] = ALPHAS,
        confidence_level: float = 0.95,
    ) -> Calibration:
        """Return what results of null images say; they are looked at one by one and not kept."""
        levels = _levels(alphas)
        rows = [(result.pvalue, result.naive_pvalue, result.status) for result in results]
        if not rows:
            raise InputError("there are no results to calibrate by: give at least one.")
        selective, naive = (np.array([row[i] for row in rows]) for i in (0, 1))
        return cls(
            pvalues=selective,
            naive_pvalues=naive,
            alphas=levels,
            rates=tuple(rate_of(selective <= alpha, confidence_level) for alpha in levels),
            naive_rates=tuple(rate_of(naive <= alpha, confidence_level) for alpha in levels),
            statuses=dict(Counter(row[2] for row in rows)),
        )

    @property
    def ks_statistic(self) -> float:
        """Greatest distance of the p-values' distribution from the uniform one."""
        return float(stats.kstest(self.pvalues, "uniform").statistic)

    @property
    def ks_pvalue(self) -> float:
        """P-value of the Kolmogorov-Smirnov test that the p-values are uniform."""
        return float(stats.kstest(self.pvalues, "uniform").pvalue)

    @property
    def naive_ks_pvalue(self) -> float:
        """The same for the p-values that ignore the selection."""
        return float(stats.kstest(self.naive_pvalues, "uniform").pvalue)

    @property
    def keeps_its_promise(self) -> bool | None:
        """Whether no level is exceeded by more than chance explains; None with too few images to tell.

        A level is exceeded if the interval of its rate lies above it. With fewer than ten rejections to expect even at
        the greatest level nothing is said.
        """
        if len(self.pvalues) * max(self.alphas) < FEWEST_EXPECTED:
            return None
        return all(rate.low <= alpha for alpha, rate in zip(self.alphas, self.rates, strict=True))

    def summary(self) -> str:
        """Return in words what was found."""
        lines = [f"{len(self.pvalues)} null image{'s' if len(self.pvalues) != 1 else ''}"]
        for alpha, rate, naive in zip(self.alphas, self.rates, self.naive_rates, strict=True):
            lines.append(f"p <= {alpha:g}: selective {rate}, naive {naive}")
        return "\n".join([*lines, self.conclusion()])

    def conclusion(self) -> str:
        """Return in words what the p-values say as a whole."""
        lines = [f"uniform? Kolmogorov-Smirnov p: selective {self.ks_pvalue:.3g}, naive {self.naive_ks_pvalue:.3g}"]
        others = {status: count for status, count in self.statuses.items() if status not in ("converged", "decided")}
        lines += [f"searches that ended with status {status!r}: {count}" for status, count in others.items()]
        verdict = {
            True: "on these images the selective test keeps its promise",
            False: "on these images the selective test rejects more often than it should",
            None: "these are too few images to tell whether the selective test keeps its promise",
        }[self.keeps_its_promise]
        uneven = ", but its p-values are not uniform" if self.keeps_its_promise and self.ks_pvalue < UNEVEN else ""
        lines.append(verdict + uneven)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {
            "images": len(self.pvalues),
            "levels": [
                {"alpha": alpha, "selective": _described(rate), "naive": _described(naive)}
                for alpha, rate, naive in zip(self.alphas, self.rates, self.naive_rates, strict=True)
            ],
            "ks_statistic": self.ks_statistic,
            "ks_pvalue": self.ks_pvalue,
            "naive_ks_pvalue": self.naive_ks_pvalue,
            "keeps_its_promise": self.keeps_its_promise,
            "statuses": self.statuses,
            "pvalues": self.pvalues.tolist(),
            "naive_pvalues": self.naive_pvalues.tolist(),
        }


def calibrate(
    test: AttentionTest,
    n: int = 1000,
    rng: np.random.Generator | int = 0,
    *,
    mean: ImageLike | None = None,
    image_shape: tuple[int, ...] | None = None,
    noise: NoiseLike | None = None,
    alphas: Sequence[float] = ALPHAS,
    confidence_level: float = 0.95,
    progress: Progress | None = None,
) -> Calibration:
    """Run a test on images of noise alone, and see whether it rejects as rarely as it says.

    Parameters
    ----------
    test
        The test, with its own model, noise model and settings.
    n
        Number of null images.
    rng
        A generator, or a seed for one.
    mean
        Mean of the null images; by default zero everywhere. With a mean that is not the same everywhere the hypothesis
        that region and background have equal means is false, and what is seen is how often that is found. For the
        contrast ``Reference`` each image is drawn with a reference of the same mean and the reference's noise, which
        takes the place of a reference image of the test.
    image_shape
        (H, W) or (C, H, W) of the images; by default that of the mean image, or of the model's input where there is no
        preprocessing.
    noise
        Noise to draw from; by default the test's own. Another one shows what a wrong noise model does.
    alphas
        Significance levels to report.
    confidence_level
        Of the intervals of the rates.
    progress
        Called with (images done, images in all).
    """
    levels, confidence_level = _levels(alphas), confidence(confidence_level)  # before hours of computation, not after
    results = null_results(test, n, rng, mean=mean, image_shape=image_shape, noise=noise, progress=progress)
    return Calibration.of(results, levels, confidence_level)


def null_results(
    test: AttentionTest,
    n: int = 1000,
    rng: np.random.Generator | int = 0,
    *,
    mean: ImageLike | None = None,
    image_shape: tuple[int, ...] | None = None,
    noise: NoiseLike | None = None,
    progress: Progress | None = None,
) -> Iterator[AttentionTestResult]:
    """Yield the results of null images, as :func:`calibrate` counts them."""
    if not isinstance(test, AttentionTest):
        raise InputError(f"test must be an AttentionTest, got {type(test).__name__}.")
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of (done, total), got {progress!r}.")
    count = whole_number(n, "n (the number of null images)", 1, MOST_IMAGES)
    centre = _mean_image(test, mean, image_shape)
    drawn_from = _noise_to_draw(test.noise if noise is None else noise)
    check_noise(drawn_from, centre.shape)
    generator = as_generator(rng)
    reference = test.contrast.reference
    references = None
    if reference is not None:
        own = drawn_from if reference.noise is None else reference.noise
        references = _drawn(None if reference.exact else own, centre, count, _another(generator))
    results = test.with_confidence_level(None).stream(
        _drawn(drawn_from, centre, count, generator),
        None if progress is None else lambda done, _: progress(done, count),
        references=references,
    )
    return _with_true_hypotheses(results, test.contrast, centre.pixels.numpy())


def _another(generator: np.random.Generator) -> np.random.Generator:
    """Return a generator of its own, so that images are the same with references and without."""
    try:
        return generator.spawn(1)[0]
    except TypeError:  # one made of an old bit generator cannot
        return np.random.default_rng(generator.integers(2**63, size=4))


def _with_true_hypotheses(
    results: Iterator[AttentionTestResult], contrast: Contrast, mean: NDArray[np.float64]
) -> Iterator[AttentionTestResult]:
    """Yield results, and warn once if the hypothesis is false for one, because the mean is not the same everywhere."""
    warned = not mean.any()
    for result in results:
        if not warned:
            seen = result.part, result.region, result.seen
            weights = contrast.weights(*seen) + contrast.reference_weights(*seen)
            terms = np.abs(weights * mean).sum()
            if np.abs((weights * mean).sum(axis=(-2, -1))).max() > ROUNDING * terms:
                warned = True
                warnings.warn(
                    "with this mean image the hypothesis is false, so rejecting is no error: what is compared differs "
                    "in the mean by itself (for images of something use the contrast Reference()).",
                    AttentestWarning,
                    stacklevel=2,
                )
        yield result


def _drawn(noise: NoiseModel | None, centre: Sample, count: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Yield images around a centre, with its black and white."""
    size = centre.pixels.numel()
    together = max(1, DRAWN_TOGETHER // size)
    for start in range(0, count, together):
        some = min(together, count - start)
        noises = np.zeros((some, size)) if noise is None else noise.sample(rng, some, size)
        for one in torch.from_numpy(noises):
            yield Sample(pixels=centre.pixels + one.reshape(centre.shape), levels=centre.levels)


def _mean_image(test: AttentionTest, mean: ImageLike | None, image_shape: Any) -> Sample:
    if mean is not None:
        centre = as_sample(mean)
        if image_shape is not None and _as_shape(image_shape) != centre.shape:
            raise InputError(f"the mean image has (C, H, W) = {centre.shape}, but image_shape says {image_shape}.")
        return centre
    if image_shape is not None:
        return _zeros(_as_shape(image_shape))
    changes = test.preprocessing
    if changes is not None and (changes.resize is not None or changes.crop is not None):
        raise InputError(
            "the test's preprocessing takes images of any size: say with image_shape=(H, W) or (C, H, W) which to draw."
        )
    channels, height, width = test.image_shape
    one_channel = isinstance(test.noise, NoiseModel) and test.noise.size == height * width
    return _zeros((1 if one_channel else channels, height, width))


def _zeros(shape: tuple[int, ...]) -> Sample:
    return Sample(pixels=torch.zeros(shape, dtype=torch.float64), levels=None)


def _as_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise InputError(f"image_shape must be (H, W) or (C, H, W), got {shape!r}.")
    sides = tuple(whole_number(side, "a side in image_shape", 1, 2**20) for side in shape)
    return sides if len(sides) == 3 else (1, *sides)


def _noise_to_draw(noise: Any) -> NoiseModel:
    if isinstance(noise, ImageNoise):
        raise InputError(
            "the test makes its noise out of each image, so null images cannot be drawn from it: say with noise= what "
            "they are drawn from, such as noise=1.0."
        )
    return as_noise(noise)


def _levels(alphas: Any) -> tuple[float, ...]:
    if not isinstance(alphas, Iterable) or isinstance(alphas, str):
        raise InputError(f"alphas must be a list of significance levels, got {alphas!r}.")
    levels = tuple(level(alpha) for alpha in alphas)
    if not levels:
        raise InputError("alphas must hold at least one significance level, got none.")
    return levels


def _described(rate: Rate) -> dict[str, Any]:
    return {"rate": rate.value, "low": rate.low, "high": rate.high, "count": rate.count, "total": rate.total}
