"""Power of a test on simulated images, by how it is randomised: known before there are data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence, level, parameter_error, real_number, strictly_between_0_and_1, whole_number
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.noise import NoiseLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.progress import Progress, ProgressLike, progress_reports
from attentest.registry import REGION_UNITS
from attentest.results.result import AttentionTestResult
from attentest.simulation.images import SimulatedImages, mean_image, noise_deviation
from attentest.simulation.power.plan import Plan
from attentest.simulation.power.simulated_tests import Design, SimulatedTests
from attentest.statistics.alternative import ONE_SIDED
from attentest.statistics.conditional_power import detectable_means
from attentest.statistics.inference import confidence_intervals_of
from attentest.statistics.multiple_testing import rate_of

RANDOMISE = (0.0, 0.3, 0.5, 1.0)
"""Values of gamma that are compared by default."""

REGIONS = tuple(REGION_UNITS)
"""What regions consist of; all are compared by default."""

DELTAS = (0.0, 1.0, 2.0, 3.0)
"""Heights of the square by default, in standard deviations of the noise."""

MOST_TESTS = 10**6
"""Upper limit on the number of tests, against typing errors."""

LARGEST_DELTA = 1e6
"""Upper limit on the height of the square, in standard deviations of the noise, against typing errors."""

VARIED = ("region_unit", "randomise", "confidence_level")
"""Settings of the given test that are not those of the simulated tests."""

RESULTS_TOGETHER = 32
"""Results whose confidence intervals are computed together: faster than one by one, and little memory."""


def plan(
    test: AttentionTest,
    n: int = 50,
    rng: np.random.Generator | int = 0,
    *,
    randomise: float | Sequence[float] = RANDOMISE,
    region_unit: str | Sequence[str] = REGIONS,
    deltas: float | Sequence[float] | None = None,
    side: int | None = None,
    backgrounds: Iterable[ImageLike] | None = None,
    image_shape: tuple[int, ...] | None = None,
    true_noise: NoiseLike | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    confidence_level: float | None = 0.95,
    progress: ProgressLike = None,
) -> Plan:
    """Simulate what a test would find, by how it is randomised and by what regions consist of.

    Simulated images are a background, a bright square at a random place (a dark one for the alternative "less") and
    noise. All designs and heights have the same backgrounds, places and noise, so that their differences are due to
    chance as little as possible. It takes n tests for each gamma, each kind of region and each height of the square.

    Parameters
    ----------
    test
        The test, with its own model, noise model and settings, among them its ``randomise_seed``; ``randomise`` and
        ``region_unit`` replace its own.
    n
        Number of images for each gamma, kind of region and height; at least that of the backgrounds.
    rng
        A generator, or a seed for one.
    randomise
        One value of gamma, or several to compare; 0 is the paper's test.
    region_unit
        What regions consist of: "pixels", "patches", or a list of both.
    deltas
        One height of the square, or several, in standard deviations of the noise. By default 0, 1, 2 and 3; with
        ``backgrounds`` 0, the backgrounds as they are.
    side
        Side of the square in pixels; by default a third of the shorter side of the image, as in the paper.
    backgrounds
        Images that are taken as true means, one after another, and from the first again; by default an image of zeros,
        which is black for a model that rescales 0 to 255. For the contrast ``Reference`` each is also the mean of the
        reference, without the square.
    image_shape
        (H, W) or (C, H, W) of the constant background; by default that of the model's input where there is no
        preprocessing.
    true_noise
        Noise to draw from; by default that of the test. Another one shows the effect of a wrong noise model.
    alpha
        Significance level.
    power
        Power that a detectable signal has.
    confidence_level
        Level of the confidence intervals whose length and coverage are measured; None for rejections alone, in about
        half the time.
    progress
        True for a progress bar; or a function, which is called with (tests done, number of tests).

    Examples
    --------
    >>> from attentest import AttentionTest, bundled_model, plan
    >>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
    >>> planned = plan(test, n=2, randomise=[0.5], region_unit=["patches"], deltas=[2], confidence_level=None)
    >>> planned.tests[0].rejected.total
    2
    """
    simulation = Simulation(
        test,
        n,
        rng,
        randomise=randomise,
        region_unit=region_unit,
        deltas=deltas,
        side=side,
        backgrounds=backgrounds,
        image_shape=image_shape,
        true_noise=true_noise,
        alpha=alpha,
        power=power,
        confidence_level=confidence_level,
    )
    with progress_reports(progress, len(simulation), "test") as report:
        return simulation.plan(simulation.tests(report))


class Simulation:
    """The simulation of :func:`plan`, whose parameters it takes and checks, before hours of computation and not after.

    Attributes
    ----------
    images
        The images.
    designs
        How regions are chosen.
    deltas
        Heights of the square in standard deviations of the noise, ascending.
    noise_deviation
        Standard deviation of the noise of a pixel.
    """

    def __init__(
        self,
        test: AttentionTest,
        n: int,
        rng: np.random.Generator | int,
        *,
        randomise: float | Sequence[float],
        region_unit: str | Sequence[str],
        deltas: float | Sequence[float] | None,
        side: int | None,
        backgrounds: Iterable[ImageLike] | None,
        image_shape: tuple[int, ...] | None,
        true_noise: NoiseLike | None,
        alpha: float,
        power: float,
        confidence_level: float | None,
    ) -> None:
        if backgrounds is None:
            means = [mean_image(test, None, image_shape)]
        elif image_shape is None:
            means = [mean_image(test, image, None) for image in _listed(backgrounds, "backgrounds")]
        else:
            raise InputError(
                "image_shape is for a constant background, but backgrounds are given: leave one of them out.",
                "image_shape",
            )
        if deltas is None:
            deltas = DELTAS if backgrounds is None else 0.0
        self.test = test
        self.count = whole_number(n, "n (the number of images)", 1, MOST_TESTS)
        self.designs = _designs(test, randomise, region_unit)
        self.deltas = sorted({_height(delta) for delta in _listed(deltas, "deltas")})
        if len(self) > MOST_TESTS:
            raise InputError(f"n = {n} would take {len(self)} tests, and at most {MOST_TESTS} are possible.", "n")
        if self.count < len(means):
            raise InputError(
                f"n = {n} would leave out backgrounds after the first {n} of {len(means)}: give at least "
                f"{len(means)}, or fewer backgrounds.",
                "n",
            )
        if side is not None:
            sizes = [mean.shape[1:] for mean in means]
            side = whole_number(side, "side (of the square, in pixels)", 1, min(map(min, sizes)))
            if (side, side) in sizes:
                raise InputError(
                    f"side = {side} makes the square all of the image, so that there is nothing to compare it with: "
                    "give a smaller one.",
                    "side",
                )
        self.images = SimulatedImages.of(test, rng, backgrounds=means, true_noise=true_noise, side=side)
        self.noise_deviation = noise_deviation(self.images.noise, means[0].pixels.size)
        self.alpha = level(alpha)
        self.power = strictly_between_0_and_1(power, "power")
        self.confidence_level = None if confidence_level is None else confidence(confidence_level)

    def __len__(self) -> int:
        """Return the number of tests."""
        return self.count * len(self.designs) * len(self.deltas)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that all tests share, JSON-ready."""
        return {name: value for name, value in self.test.settings.items() if name not in VARIED}

    def plan(self, tests: Iterable[SimulatedTests]) -> Plan:
        """Return the plan of the simulated tests, or of those that are finished."""
        sides = {self.images.side_of(number) for number in range(len(self.images.backgrounds))}
        return Plan(
            tests=tuple(tests),
            alpha=self.alpha,
            power=self.power,
            confidence_level=self.confidence_level,
            noise_deviation=self.noise_deviation,
            side=sides.pop() if len(sides) == 1 else None,
        )

    def tests(self, progress: Progress | None = None) -> Iterator[SimulatedTests]:
        """Yield the tests of each height and each design; progress is in tests."""
        cells = [(delta, design) for delta in self.deltas for design in self.designs]
        for number, (delta, design) in enumerate(cells):

            def report(done: float, _: int | None, before: int = number * self.count) -> None:
                if progress is not None:
                    progress(before + done, len(self))

            yield self._tests(design, delta, report)

    def _tests(self, design: Design, delta: float, progress: Progress) -> SimulatedTests:
        test = self.test.replace(region_unit=design.region, randomise=design.randomise)
        alternative = test.settings["alternative"]
        height = (-1 if alternative == "less" else 1) * delta * self.noise_deviation
        numbers = range(self.count)
        results = test.replace(confidence_level=self.confidence_level).stream(
            (self.images.image(number, height) for number in numbers),
            progress,
            references=self.images.references(numbers),
            decide_at=self.alpha if self.confidence_level is None else None,
        )
        decisions: list[bool | None] = []
        evaluations: list[int] = []
        overlaps: list[float] = []
        intervals: list[_Interval] = []
        while batch := list(islice(results, RESULTS_TOGETHER)):
            numbered = list(enumerate(batch, len(decisions)))
            decisions += [result.reject_at(self.alpha) for result in batch]
            evaluations += [result.evaluations for result in batch]
            if delta:
                overlaps += [_overlap(result.region, self.images.square(number)) for number, result in numbered]
            if self.confidence_level is not None:
                truths = [
                    float(self.images.contrast_terms(test, result, number, height).sum()) for number, result in numbered
                ]
                intervals += _intervals(batch, truths, self.confidence_level, self.alpha, self.power)
        return SimulatedTests(
            design=design,
            delta=delta,
            rejected=rate_of(np.array([decision is True for decision in decisions])),
            undecided=decisions.count(None),
            coverage=rate_of(np.array([interval.covers for interval in intervals])) if intervals else None,
            lengths=_array([interval.length for interval in intervals if alternative not in ONE_SIDED]),
            differences=_array([interval.difference for interval in intervals]),
            overlaps=_array(overlaps),
            evaluations=float(np.mean(evaluations)),
        )


class _Interval(NamedTuple):
    """Whether an interval covers the true value, its length over the naive one, and what the test can detect."""

    covers: bool
    length: float
    difference: float


def _intervals(
    results: Sequence[AttentionTestResult], truths: Sequence[float], confidence_level: float, alpha: float, power: float
) -> list[_Interval]:
    """Return what the intervals of results of one test say; one-sided ones have no length.

    Detectable differences are from the truncation sets as far as the confidence intervals needed them.
    """
    law = type(results[0].law).concatenated([result.law for result in results])
    means = detectable_means(law, [result.intervals for result in results], results[0].alternative, alpha, power)
    measured = []
    intervals = confidence_intervals_of(results, confidence_level)
    for result, interval, truth, mean in zip(results, intervals, truths, means, strict=True):
        naive = result.naive_confidence_interval(confidence_level)
        naive_length = naive.high - naive.low
        length = (interval.high - interval.low) / naive_length if np.isfinite(naive_length) else np.nan
        measured.append(_Interval(truth in interval, length, float(mean * result.standard_error)))
    return measured


def _array(values: list[float]) -> NDArray[np.float64] | None:
    return np.array(values) if values else None


def _overlap(region: NDArray[np.bool_], square: NDArray[np.bool_]) -> float:
    """Return the pixels in both the region and the square (H, W) over those in either."""
    return float((region & square).sum() / (region | square).sum())


def _designs(test: AttentionTest, randomise: Any, region_unit: Any) -> tuple[Design, ...]:
    """Return each kind of region with each gamma, after the test has checked both."""
    listed = _listed(region_unit, "region_unit")
    units = tuple(dict.fromkeys(test.replace(region_unit=unit).definition.region_unit for unit in listed))
    gammas = tuple(dict.fromkeys(_listed(randomise, "randomise")))
    for gamma in gammas:
        test.replace(randomise=gamma)
    return tuple(Design(float(gamma), unit) for unit in units for gamma in gammas)


def _height(delta: Any) -> float:
    name = "deltas (the heights of the square)"
    number = real_number(delta, name)
    if not 0 <= number <= LARGEST_DELTA:
        raise parameter_error(name, f"must be from 0 to {LARGEST_DELTA:g} standard deviations, got {number:g}")
    return number


def _listed(values: Any, name: str) -> list[Any]:
    """Return a value or several as a list; raise an error if there is none."""
    if isinstance(values, (str, Real)):
        return [values]
    if not isinstance(values, Iterable):
        raise InputError(f"{name} must be a value or a list of them, got {values!r}.")
    listed = list(values)
    if not listed:
        raise InputError(f"{name} must hold at least one value, got none.")
    return listed
