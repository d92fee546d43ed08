"""What a test would find: its power, regions and intervals on simulated images, by how it is randomised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from attentest.errors import InputError, counted
from attentest.markup import row_table
from attentest.statistics.multiple_testing import Rate


class Design(NamedTuple):
    """How the region is chosen: the gamma of ``AttentionTest(randomise=)`` and what regions consist of."""

    randomise: float
    region: str

    def __str__(self) -> str:
        gamma = f"gamma {self.randomise:g}" if self.randomise else "not randomised"
        return f"{self.region}, {gamma}"


class Detectable(NamedTuple):
    """The least that a test finds with the asked-for power, in the units of the pixels, with its Monte-Carlo error.

    ``low`` and ``high`` are the ends of a 95% interval of ``value``, possibly infinite.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedTests:
    """The tests of simulated images with one design and one height of the planted signal.

    Parameters
    ----------
    design
        How the region was chosen.
    delta
        Height of the signal in standard deviations of the noise; 0 if there is none.
    rejected
        Share of the images with p at most alpha, with its Wilson interval. Only what is certain counts.
    undecided
        Number of images whose error bar contains alpha.
    coverage
        Share of the confidence intervals that hold the true value; None if there are no intervals.
    lengths : (n,)
        Lengths of the confidence intervals over those of the naive ones; None if there are no two-sided intervals.
    differences : (n,)
        Least true difference of each image, in the units of the pixels, that its test finds with the asked-for power,
        given the region that was chosen; None if there are no intervals.
    overlaps : (n,)
        Pixels in both the region and the signal over those in either (IoU); None without a signal.
    evaluations
        Mean number of model evaluations per image.
    """

    design: Design
    delta: float
    rejected: Rate
    undecided: int
    coverage: Rate | None
    lengths: NDArray[np.float64] | None
    differences: NDArray[np.float64] | None
    overlaps: NDArray[np.float64] | None
    evaluations: float

    def __repr__(self) -> str:
        return f"SimulatedTests({self.design}, delta={self.delta:g}, rejected {self.rejected})"

    @property
    def median_length(self) -> float | None:
        """Median of the lengths."""
        return None if self.lengths is None else float(np.median(self.lengths))

    @property
    def length_quartiles(self) -> tuple[float, float, float] | None:
        """Lower quartile, median and upper quartile of the lengths, some of which may be infinite."""
        if self.lengths is None or self.median_length is None:
            return None
        low, high = np.quantile(self.lengths, [0.25, 0.75], method="inverted_cdf")
        return float(low), self.median_length, float(high)

    @property
    def mean_length(self) -> float | None:
        """Mean of the lengths; infinite if one interval is."""
        return None if self.lengths is None else float(np.mean(self.lengths))

    @property
    def detectable_difference(self) -> Detectable | None:
        """Median of the differences, with its 95% interval, by their ranks."""
        if self.differences is None:
            return None
        ordered = np.sort(self.differences)
        rank = int(binom.ppf(0.025, len(ordered), 0.5))  # the interval from this to the same from the end
        low, high = (0.0, np.inf) if rank == 0 else (ordered[rank - 1], ordered[-rank])
        return Detectable(float(np.median(ordered)), float(low), float(high))

    @property
    def mean_overlap(self) -> float | None:
        """Mean of the overlaps."""
        return None if self.overlaps is None else float(np.mean(self.overlaps))

    @property
    def overlap_error(self) -> float | None:
        """Standard error of the mean of the overlaps; None for fewer than two."""
        if self.overlaps is None or len(self.overlaps) < 2:
            return None
        return float(np.std(self.overlaps, ddof=1) / np.sqrt(len(self.overlaps)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a test would find on simulated images: to choose, before looking at the data, how it is randomised.

    Parameters
    ----------
    tests
        The simulated tests, by height of the signal, then by design.
    alpha
        Significance level of the tests.
    power
        Power that a detectable signal has.
    confidence_level
        Level of the confidence intervals; None if there are none.
    noise_deviation
        Standard deviation of the noise of a pixel, in the units of the pixels: the unit of ``delta``.
    side
        Side of the planted square in pixels; None if it differs between images, as a third of their shorter sides.
    """

    tests: tuple[SimulatedTests, ...]
    alpha: float
    power: float
    confidence_level: float | None
    noise_deviation: float
    side: int | None

    def __post_init__(self) -> None:
        if not self.tests:
            raise InputError("a plan needs at least one simulated test, got none.")

    @property
    def designs(self) -> tuple[Design, ...]:
        """The designs, in order."""
        return tuple(dict.fromkeys(tests.design for tests in self.tests))

    @property
    def deltas(self) -> tuple[float, ...]:
        """The heights of the signal, in standard deviations of the noise, ascending."""
        return tuple(sorted({tests.delta for tests in self.tests}))

    def of(self, design: Design) -> tuple[SimulatedTests, ...]:
        """Return the tests of a design, by height of the signal."""
        found = sorted((tests for tests in self.tests if tests.design == design), key=lambda tests: tests.delta)
        if not found:
            raise InputError(
                f"this plan has no tests of {Design(*design)}: it has {'; '.join(map(str, self.designs))}."
            )
        return tuple(found)

    def detectable(self, design: Design) -> Detectable | None:
        """Return the least height of the signal that a design finds with the asked-for power; None without signals.

        Between two heights the power is interpolated, and so are the ends of its intervals, which give those of the
        height. It is infinite if the power is not reached. If it is reached at the least height already, the value is
        that height, and the true one is at most that.
        """
        tests = self.of(design)
        deltas = [each.delta for each in tests]
        if deltas[-1] == 0:
            return None
        ends = ([getattr(each.rejected, name) for each in tests] for name in ("value", "high", "low"))
        value, low, high = (_crossing(deltas, rates, self.power) for rates in ends)
        if low == deltas[0]:
            low = 0.0
        return Detectable(*(self.noise_deviation * delta for delta in (value, low, high)))

    def detectable_text(self, design: Design) -> str:
        """Return in words which signal a design finds, or at which heights its power is on one side; empty without any.

        "a signal of 1.8 [1.6, 2.1] is found with a probability of 0.8", "power 0.8 is not reached at any height up to
        3: rejected there 0.2 [0.1334, 0.2888] (20 of 100)".
        """
        found = self.detectable(design)
        if found is None:
            return ""
        tests = self.of(design)
        weakest, strongest = tests[0], tests[-1]
        least, most = (f"{self.noise_deviation * each.delta:.3g}" for each in (weakest, strongest))
        if np.isinf(found.value):
            return (
                f"power {self.power:g} is not reached at any height up to {most}: rejected there {strongest.rejected}"
            )
        if weakest.rejected.value >= self.power:
            where = f"at the least height, {least}, already" if weakest.delta else "without a signal"
            return f"power {self.power:g} is reached {where}: rejected there {weakest.rejected}"
        end = f"above {most}" if np.isinf(found.high) else f"{found.high:.3g}"
        return f"a signal of {found.value:.3g} [{found.low:.3g}, {end}] is found with a probability of {self.power:g}"

    def table(self) -> dict[str, list[Any]]:
        """Return columns with a row for each design and height of the signal; None where there is nothing to say."""
        return {
            "region": [each.design.region for each in self.tests],
            "randomise": [each.design.randomise for each in self.tests],
            "delta": [each.delta for each in self.tests],
            "signal": [each.delta * self.noise_deviation for each in self.tests],
            "images": [each.rejected.total for each in self.tests],
            "rejected": [each.rejected.value for each in self.tests],
            "rejected_low": [each.rejected.low for each in self.tests],
            "rejected_high": [each.rejected.high for each in self.tests],
            "undecided": [each.undecided for each in self.tests],
            "coverage": [None if each.coverage is None else each.coverage.value for each in self.tests],
            "median_length": [each.median_length for each in self.tests],
            "mean_length": [each.mean_length for each in self.tests],
            **{
                f"difference{suffix}": [
                    None if found is None else found[i] for found in (each.detectable_difference for each in self.tests)
                ]
                for i, suffix in enumerate(("", "_low", "_high"))
            },
            "iou": [each.mean_overlap for each in self.tests],
            "iou_error": [each.overlap_error for each in self.tests],
            "evaluations": [each.evaluations for each in self.tests],
        }

    def summary(self) -> str:
        """Return the detectable signals, or without a signal the shares rejected, in words."""
        unit = f"standard deviation of the noise: {self.noise_deviation:.4g}"
        images = self.tests[0].rejected.total
        lines = [f"{counted(images, 'simulated image')} for each row; {unit}"]
        for design in self.designs:
            *_, strongest = self.of(design)
            if self.detectable(design) is None:
                lines.append(f"{design}: rejected at {self.alpha:g}: {strongest.rejected}")
                if (least := strongest.detectable_difference) is not None:
                    lines[-1] += f"; a difference of {least.value:.3g} is found with a probability of {self.power:g}"
            else:
                lines.append(f"{design}: {self.detectable_text(design)}")
        undecided = sum(tests.undecided for tests in self.tests)
        if undecided:
            lines.append(f"error bars that contain {self.alpha:g}, counted as not rejected: {undecided}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        designs, images = counted(len(self.designs), "design"), counted(self.tests[0].rejected.total, "image")
        deltas = ", ".join(f"{delta:g}" for delta in self.deltas)
        return f"Plan({designs}, deltas {deltas}, {images} each, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        columns = ("region", "gamma", "signal", "rejected", "coverage", "median length over naive", "IoU with signal")
        rows = [
            (
                each.design.region,
                f"{each.design.randomise:g}",
                f"{each.delta * self.noise_deviation:.3g}",
                each.rejected,
                "" if each.coverage is None else f"{each.coverage.value:.3g}",
                "" if each.median_length is None else f"{each.median_length:.3g}",
                "" if each.mean_overlap is None else f"{each.mean_overlap:.2f}",
            )
            for each in self.tests
        ]
        return row_table(f"Plan at alpha = {self.alpha:g}", columns, rows, self.summary().split("\n"))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values; infinite numbers become "inf"."""
        columns = self.table()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {
            "alpha": self.alpha,
            "power": self.power,
            "confidence_level": self.confidence_level,
            "noise_deviation": self.noise_deviation,
            "side": self.side,
            "detectable": [{**design._asdict(), **_described(self.detectable(design))} for design in self.designs],
            "tests": [{name: _json_ready(value) for name, value in row.items()} for row in rows],
        }


def _described(found: Detectable | None) -> dict[str, Any]:
    values = (None, None, None) if found is None else found
    return dict(zip(("signal", "low", "high"), map(_json_ready, values), strict=True))


def _json_ready(value: Any) -> Any:
    return "inf" if value == float("inf") else value


def _crossing(deltas: Sequence[float], rates: Iterable[float], target: float) -> float:
    """Return the least delta at which rates, interpolated linearly, reach a target; infinite if they never do."""
    before: tuple[float, float] | None = None
    for delta, rate in zip(deltas, rates, strict=True):
        if rate >= target:
            if before is None:
                return delta
            share = (target - before[1]) / (rate - before[1])
            return before[0] + share * (delta - before[0])
        before = delta, rate
    return float("inf")
