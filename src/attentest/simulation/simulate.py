"""Power of a test on simulated images, by how it is randomised: known before there are data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np

from attentest.checks import level, parameter_error, real_number, strictly_between_0_and_1, whole_number
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.noise import NoiseLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.progress import Progress, ProgressLike, progress_reports
from attentest.registry import REGION_UNITS
from attentest.simulation.images import SimulatedImages, noise_deviation
from attentest.simulation.plan import Design, Plan, SimulatedTests
from attentest.statistics.alternative import ONE_SIDED
from attentest.statistics.conditional_mean import detectable_means
from attentest.statistics.draws import intervals_of_draws
from attentest.statistics.multiple_testing import rate_of

RANDOMISE = (0.0, 0.3, 0.5, 1.0)  # values of gamma that are compared by default
REGIONS = tuple(REGION_UNITS)  # what regions consist of; all are compared by default
DELTAS = (0.0, 1.0, 2.0, 3.0)  # heights of the square by default, in standard deviations of the noise
MOST_TESTS = 10**6  # upper limit on the number of tests, against typing errors

LARGEST_DELTA = 1e6
"""Upper limit on the height of the square, in standard deviations of the noise, against typing errors."""

VARIED = ("region_unit", "randomise", "draws", "confidence_level")
"""Settings of the given test that are not those of the simulated tests."""

RESULTS_TOGETHER = 32
"""Results whose confidence intervals are computed together: faster than one by one, and little memory."""


def plan(
    test: AttentionTest,
    n: int = 50,
    rng: np.random.Generator | int = 0,
    *,
    randomise: float | Sequence[float] = RANDOMISE,
    draws: int | Sequence[int] = 1,
    region_unit: str | Sequence[str] = REGIONS,
    deltas: float | Sequence[float] | None = None,
    side: int | None = None,
    backgrounds: Iterable[ImageLike] | None = None,
    image_shape: tuple[int, ...] | None = None,
    true_noise: NoiseLike | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    progress: ProgressLike = None,
) -> Plan:
    """Simulate what a test would find, by how it is randomised and by what regions consist of.

    Simulated images are a background, a bright square at a random place (a dark one for the alternative "less"; of a
    signal an interval, of a volume a cube) and noise. All designs and heights have the same backgrounds, places and
    noise, so that their differences are due to chance as little as possible. It takes n tests for each gamma, each kind
    of region and each height of the square.

    Parameters
    ----------
    test
        The test, with its own model, noise model and settings, among them its ``randomise_seed``; ``randomise``,
        ``draws`` and ``region_unit`` replace its own. Length and coverage of the intervals are measured at its
        ``confidence_level``; with None there are rejections alone, in about half the time.
    n
        Number of images for each gamma, kind of region and height; at least that of the backgrounds.
    rng
        A generator, or a seed for one.
    randomise
        One value of gamma, or several to compare; 0 is the paper's test.
    draws
        One number of draws of the added noise, or several to compare; a test that is not randomised has one.
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
    progress
        True for a progress bar; or a function, which is called with (tests done, number of tests).

    Examples
    --------
    >>> from attentest import AttentionTest, bundled_model, plan
    >>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, confidence_level=None)
    >>> planned = plan(test, n=2, randomise=0.5, region_unit="patches", deltas=2)
    >>> planned.tests[0].rejected.total
    2
    """
    simulation = Simulation(
        test,
        n,
        rng,
        randomise=randomise,
        draws=draws,
        region_unit=region_unit,
        deltas=deltas,
        side=side,
        backgrounds=backgrounds,
        image_shape=image_shape,
        true_noise=true_noise,
        alpha=alpha,
        power=power,
    )
    with progress_reports(progress, len(simulation), "test") as report:
        return simulation.plan(simulation.tests(report))


class Simulation:
    """The simulation of :func:`plan`, whose parameters it takes and checks, before hours of computation and not after.

    Its designs, heights and numbers are those of the :class:`Plan` that it returns.
    """

    def __init__(
        self,
        test: AttentionTest,
        n: int,
        rng: np.random.Generator | int,
        *,
        randomise: float | Sequence[float],
        draws: int | Sequence[int] = 1,
        region_unit: str | Sequence[str],
        deltas: float | Sequence[float] | None,
        side: int | None,
        backgrounds: Iterable[ImageLike] | None,
        image_shape: tuple[int, ...] | None,
        true_noise: NoiseLike | None,
        alpha: float,
        power: float,
    ) -> None:
        if backgrounds is not None and image_shape is not None:
            raise InputError(
                "image_shape is for a constant background, but backgrounds are given: leave one of them out.",
                "image_shape",
            )
        means = [None] if backgrounds is None else _listed(backgrounds, "backgrounds")
        if deltas is None:
            deltas = DELTAS if backgrounds is None else 0.0
        self.images = SimulatedImages(test, rng, means=means, image_shape=image_shape, true_noise=true_noise, side=side)
        self.test = test
        self.confidence_level = test.definition.confidence_level
        self.count = whole_number(n, "n (the number of images)", 1, MOST_TESTS)
        self.designs = _designs(test, randomise, draws, region_unit)
        self.deltas = sorted({_height(delta) for delta in _listed(deltas, "deltas")})
        if len(self) > MOST_TESTS:
            raise InputError(f"n = {n} would take {len(self)} tests, and at most {MOST_TESTS} are possible.", "n")
        if self.count < len(means):
            raise InputError(
                f"n = {n} would leave out backgrounds after the first {n} of {len(means)}: give at least "
                f"{len(means)}, or fewer backgrounds.",
                "n",
            )
        self.noise_deviation = noise_deviation(self.images.noise, self.images.backgrounds[0].pixels.size)
        self.alpha = level(alpha)
        self.power = strictly_between_0_and_1(power, "power")

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
            dimension=self.images.dimension,
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
        test = self.test.replace(region_unit=design.region, randomise=design.randomise, draws=design.draws)
        alternative = test.settings["alternative"]
        height = (-1 if alternative == "less" else 1) * delta * self.noise_deviation
        numbers = range(self.count)
        results = test.stream(
            (self.images.image(number, height) for number in numbers),
            progress,
            references=self.images.references(numbers),
            names=numbers,
            decide_at=self.alpha if self.confidence_level is None else None,
        )
        decisions: list[bool | None] = []
        evaluations: list[int] = []
        covered: list[bool] = []
        lengths: list[float] = []
        differences: list[float] = []
        overlaps: list[float] = []
        while batch := list(islice(results, RESULTS_TOGETHER)):
            first = len(decisions)
            decisions += [result.reject_at(self.alpha) for result in batch]
            evaluations += [result.evaluations for result in batch]
            if delta:
                squares = map(self.images.square, numbers[first:])
                regions = (result.majority_region for result in batch)
                overlaps += [
                    float((region & square).sum() / (region | square).sum())
                    for region, square in zip(regions, squares, strict=False)
                ]
            if self.confidence_level is None:
                continue
            if design.draws == 1:
                law = type(batch[0].law).concatenated([result.law for result in batch])
                sets = [result.intervals for result in batch]  # as far as the confidence intervals needed them
                means = detectable_means(law, sets, alternative, self.alpha, self.power)
                differences += [float(mean * result.standard_error) for result, mean in zip(batch, means, strict=True)]
            groups = [result.draws or (result,) for result in batch]
            intervals = intervals_of_draws(groups, [self.confidence_level] * len(batch))
            for number, (result, interval) in enumerate(zip(batch, intervals, strict=True), first):
                drawn = (draw.region for draw in result.draws or (result,))
                chosen = (replace(result, region=region, part=region) for region in drawn)
                terms = [self.images.contrast_terms(one_draw, number, height).sum() for one_draw in chosen]
                covered.append(float(np.mean(terms)) in interval)
                if alternative not in ONE_SIDED:  # one-sided intervals have no length
                    naive = result.naive_confidence_interval(self.confidence_level)
                    lengths.append((interval.high - interval.low) / (naive.high - naive.low))
        return SimulatedTests(
            design=design,
            delta=delta,
            rejected=rate_of(np.array([decision is True for decision in decisions])),
            undecided=decisions.count(None),
            coverage=rate_of(np.array(covered)) if covered else None,
            lengths=np.array(lengths) if lengths else None,
            differences=np.array(differences) if differences else None,
            overlaps=np.array(overlaps) if overlaps else None,
            evaluations=float(np.mean(evaluations)),
        )


def _designs(test: AttentionTest, randomise: Any, draws: Any, region_unit: Any) -> tuple[Design, ...]:
    """Return each kind of region with each gamma and each number of draws, after the test has checked them."""
    listed = _listed(region_unit, "region_unit")
    units = tuple(dict.fromkeys(test.replace(region_unit=unit).definition.region_unit for unit in listed))
    gammas = tuple(dict.fromkeys(_listed(randomise, "randomise")))
    for gamma in gammas:
        test.replace(randomise=gamma)
    randomised = test.replace(randomise=max(gammas) or 1.0)
    counts = tuple(dict.fromkeys(randomised.replace(draws=count).definition.draws for count in _listed(draws, "draws")))
    if not any(gammas) and max(counts) > 1:
        randomised.replace(randomise=0, draws=max(counts))  # raises an error: there is no noise to draw
    designs = (
        Design(float(gamma), unit, count if gamma else 1) for unit in units for gamma in gammas for count in counts
    )
    return tuple(dict.fromkeys(designs))


def _height(delta: Any) -> float:
    name = "deltas (the heights of the raised part)"
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
