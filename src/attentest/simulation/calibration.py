"""Whether a test is calibrated: how often it rejects images in which there is nothing to find."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest.checks import confidence, level
from attentest.errors import AttentestWarning, InputError, counted, shortened, worded
from attentest.markup import row_table
from attentest.presentation import figure as drawing
from attentest.presentation.number_texts import number_text, with_sign
from attentest.runs.records import check_numbers, check_texts
from attentest.search import CONVERGED
from attentest.statistics.multiple_testing import Rate, rate_of, rejection_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ALPHAS = (0.01, 0.05, 0.10)

ERROR_RATE = 0.01  # probability, at most, that a valid test is called one that rejects too often
FEWEST_EXPECTED = 10  # expected rejections at the greatest level below which no test is called calibrated
NUMBERS = ("p", "p_low", "p_high", "naive_p")  # numbers in the row of an image that was tested

PLUG_IN = "plug_in_p"
"""P-value in the row of an image whose noise was estimated, if the estimate is taken for the truth."""

FALSE_HYPOTHESIS = "false_hypothesis"  # what the row of an image has whose mean makes the hypothesis false
MOST_REASONS = 3  # reasons for failures that a summary names, the most frequent ones

UNEVEN = 0.01
"""Kolmogorov-Smirnov p-values below this are mentioned: the error rate of that remark, beside ERROR_RATE."""

FEW_POINTS = 100  # up to this many p-values are drawn as points

COLOURS = {"naive": drawing.NAIVE_COLOUR, "selective": drawing.EXTREME_COLOUR}


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """The behaviour of a test on null images, in which there is nothing to find."""

    pvalues: NDArray[np.float64]
    """(n,). Selective p-values of null images."""
    pvalue_bounds: NDArray[np.float64]
    """(n, 2). Least and greatest selective p-value compatible with what each search knows."""
    naive_pvalues: NDArray[np.float64]
    """(n,). P-values that ignore the selection."""
    alphas: tuple[float, ...]
    """Significance levels."""
    confidence_level: float
    """Level of the intervals of the rates."""
    statuses: dict[str, int]
    """Number of searches by status."""
    failures: dict[int, str]
    """Reasons why images could not be tested, by their numbers. They have no p-value and are in no rate, but the limits
    are for all images, and the verdict counts each as rejected or not, whichever would change it."""
    plug_in_pvalues: NDArray[np.float64] | None
    """(n,). Selective p-values if the noise, which was estimated for each image from reference images, is taken to be
    known; None if it was not estimated."""
    dimension: int = 2
    """Number of axes of the images, which says what they are called."""

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, Any]],
        alphas: Sequence[float] = ALPHAS,
        confidence_level: float = 0.95,
        dimension: int = 2,
    ) -> Calibration:
        """Return the calibration of null images, from a row for each in any order; they are consumed one by one.

        A row has the number of its "image", and either "p", "p_low", "p_high", "naive_p" and "status", or the "error"
        because of which it was not tested. The other parameters are fields of the calibration.
        """
        # Checked before the first row is taken, which may be hours of computation.
        if not isinstance(alphas, Iterable) or isinstance(alphas, str):
            raise InputError(f"alphas must be a list of significance levels, got {alphas!r}.")
        levels, confidence_level = tuple(map(level, alphas)), confidence(confidence_level)
        if not levels:
            raise InputError("alphas must hold at least one significance level, got none.")
        tested: dict[int, tuple[Any, ...]] = {}
        failures: dict[int, str] = {}
        warned = False
        for row in rows:
            if not warned and FALSE_HYPOTHESIS in row:
                warned = True
                warnings.warn(
                    "with this mean image the hypothesis is false, so rejections are not errors: the compared means "
                    "differ by themselves (for images with content use the contrast Reference()).",
                    AttentestWarning,
                    stacklevel=2,
                )
            if "error" in row:
                failures[row["image"]] = row["error"]
            else:
                tested[row["image"]] = (*(row[name] for name in NUMBERS), row.get(PLUG_IN, np.nan), row["status"])
        if not tested:
            if failures:
                number, reason = min(failures.items())
                said = f"of {counted(len(failures), 'null image')} none could be tested; image {number}: "
                raise InputError(f"{worded(said, dimension)}{reason}")
            raise InputError("there are no results to calibrate by: give at least one.")
        *columns, statuses = zip(*(tested[number] for number in sorted(tested)), strict=True)
        selective, low, high, naive, plug_in = np.array(columns, dtype=np.float64)
        return cls(
            pvalues=selective,
            pvalue_bounds=np.stack([low, high], axis=1),
            naive_pvalues=naive,
            alphas=levels,
            confidence_level=confidence_level,
            statuses=dict(Counter(statuses)),
            failures=dict(sorted(failures.items())),
            plug_in_pvalues=None if np.any(np.isnan(plug_in)) else plug_in,
            dimension=dimension,
        )

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Rejection rates at the levels; the Wilson interval of each is for that rate alone, not for the verdict."""
        return self._rates(self.pvalues)

    @property
    def naive_rates(self) -> tuple[Rate, ...]:
        """Rejection rates of the test that ignores the selection."""
        return self._rates(self.naive_pvalues)

    @property
    def plug_in_rates(self) -> tuple[Rate, ...] | None:
        """Rejection rates if the estimated noise is taken to be known; None if it was not estimated."""
        return None if self.plug_in_pvalues is None else self._rates(self.plug_in_pvalues)

    def _rates(self, pvalues: NDArray[np.float64]) -> tuple[Rate, ...]:
        return tuple(rate_of(pvalues <= alpha, self.confidence_level) for alpha in self.alphas)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """For each level, the number of rejections above which the test is called one that rejects too often.

        A valid test exceeds one of the limits or more with probability at most ``ERROR_RATE`` = 1%: they are exact, by
        the joint distribution of binomial counts, for every number of images.
        """
        return rejection_limits(self.alphas, len(self._all_bounds), ERROR_RATE)

    @property
    def rejections(self) -> tuple[tuple[int, int], ...]:
        """For each level the numbers of certain and of possible rejections, by the bounds on the p-values.

        Any p-value is possible for an image that could not be tested.
        """
        low, high = self._all_bounds.T
        return tuple((int(np.sum(high <= alpha)), int(np.sum(low <= alpha))) for alpha in self.alphas)

    @property
    def ks_statistic(self) -> float:
        """Greatest distance of the p-values' distribution from the uniform one, at least, by the bounds on them."""
        low, high = np.sort(self._all_bounds, axis=0).T
        ranks = np.arange(len(low) + 1) / len(low)
        return float(max((ranks[1:] - high).max(), (low - ranks[:-1]).max()))

    @property
    def ks_pvalue(self) -> float:
        """P-value of the Kolmogorov-Smirnov test that the p-values are uniform; the greatest, by the bounds on them."""
        return float(stats.kstwo.sf(self.ks_statistic, len(self._all_bounds)))

    @property
    def naive_ks_pvalue(self) -> float:
        """The same for the p-values that ignore the selection."""
        return float(stats.kstest(self.naive_pvalues, "uniform").pvalue)

    @property
    def calibrated(self) -> bool | None:
        """Whether the type I error is compatible with every nominal level; None if that cannot be told.

        False if the certain rejections exceed the limit at a level: for a valid test the probability of that is at
        most ``ERROR_RATE`` = 1%. True if even the possible rejections, which include every p-value whose error bar
        contains the level, exceed none. None if it depends on those, or with fewer than ten expected rejections at the
        greatest level, which are too few to show that a test is calibrated.
        """
        certain, possible = (
            any(count > limit for count, limit in zip(counts, self.limits, strict=True))
            for counts in zip(*self.rejections, strict=True)
        )
        if certain:
            return False
        return None if possible or self._few else True

    @property
    def _all_bounds(self) -> NDArray[np.float64]:
        """The bounds (n + k, 2) on the p-values of all images, k of which could not be tested."""
        return np.concatenate([self.pvalue_bounds, np.tile([0.0, 1.0], (len(self.failures), 1))])

    @property
    def _few(self) -> bool:
        return len(self.pvalues) * max(self.alphas) < FEWEST_EXPECTED

    def summary(self) -> str:
        """Return the rates and the conclusion, in words."""
        named = {"selective": self.rates, "naive": self.naive_rates}
        if self.plug_in_rates is not None:
            named["with the estimated noise taken for the truth"] = self.plug_in_rates
        lines = [
            f"p <= {alpha:g}: {', '.join(f'{name} {rates[place]}' for name, rates in named.items())}"
            for place, alpha in enumerate(self.alphas)
        ]
        return "\n".join([self.counted(), *lines, self.conclusion()])

    def counted(self) -> str:
        """Return how many null images were tested, in words."""
        return worded(counted(len(self.pvalues), "null image"), self.dimension)

    def conclusion(self) -> str:
        """Return the test of uniformity, the limits and the verdict, in words."""
        selective, naive = number_text(self.ks_pvalue), number_text(self.naive_ks_pvalue)
        lines = [f"uniform? Kolmogorov-Smirnov p: selective {selective}, naive {naive}"]
        others = {status: count for status, count in self.statuses.items() if status != CONVERGED}
        lines += [f"searches that ended with status {status!r}: {count}" for status, count in others.items()]
        lines += [
            f"error bars that contain {alpha:g}: {possible - certain - len(self.failures)}"
            for alpha, (certain, possible) in zip(self.alphas, self.rejections, strict=True)
            if possible > certain + len(self.failures)
        ]
        if self.failures:
            lines.append(worded(f"null images that could not be tested: {len(self.failures)}", self.dimension))
            reasons = Counter(self.failures.values()).most_common()
            lines += [f"  {count} because: {reason}" for reason, count in reasons[:MOST_REASONS]]
            lines += [f"  {len(reasons) - MOST_REASONS} more reasons"] * (len(reasons) > MOST_REASONS)
        limits = ", ".join(f"{limit} at {alpha:g}" for alpha, limit in zip(self.alphas, self.limits, strict=True))
        lines.append(
            f"rejections of a valid test: at most {limits}; it exceeds one of these limits with a probability of at "
            f"most {ERROR_RATE:.0%}"
        )
        return "\n".join([*lines, worded(self._verdict(), self.dimension)])

    def _verdict(self) -> str:
        calibrated = self.calibrated
        if calibrated is None:
            whether = "to tell whether the selective test is calibrated"
            if self._few:
                return f"these are too few images {whether}"
            if self.failures:
                return f"too many images could not be tested, or have error bars that are too wide, {whether}"
            return f"these error bars are too wide {whether}"
        if not calibrated:
            return "not calibrated: the selective test rejects more often than its level"
        uneven = f", but its p-values are not uniform (Kolmogorov-Smirnov p below {UNEVEN:g})"
        return (
            "calibrated: these images give no reason to think that the selective test rejects more often than its level"
            f"{uneven if self.ks_pvalue < UNEVEN else ''}"
        )

    def plot(self, axes: Sequence[Axes] | None = None) -> list[Axes]:
        """Draw the p-values against those of a perfect test, and the rejection rates with their limits.

        They are drawn on two axes, by default those of a new figure. Needs Matplotlib (``pip install
        'attentest[plots]'``).
        """
        drawn_on = drawing.checked_axes(_axes(drawing.shown_figure) if axes is None else axes, 2)
        _draw_quantiles(drawn_on[0], self)
        _draw_rates(drawn_on[1], self)
        drawing.word_axes(drawn_on, self.dimension)
        return drawn_on

    def figure(self) -> Figure:
        """Return the same as a figure that no window shows, for a file."""
        return self.plot(_axes(drawing.new_figure))[0].get_figure(root=True)  # type: ignore[return-value]

    def __repr__(self) -> str:
        rates = (f"{rate.value:.3g} at {alpha:g}" for alpha, rate in zip(self.alphas, self.rates, strict=True))
        failed = f", {counted(len(self.failures), 'failure')}" if self.failures else ""
        return f"Calibration({self.counted()}{failed}, rejected {', '.join(rates)}, calibrated={self.calibrated})"

    def text_table(self) -> dict[str, list[str]]:
        """Return the columns that the command line and notebooks show."""
        total = len(self._all_bounds)
        columns = {
            "level": [f"{alpha:g}" for alpha in self.alphas],
            "selective: p at most the level": list(map(str, self.rates)),
            "of a valid test at most": [f"{limit} of {total}" for limit in self.limits],
            "naive (not valid): p at most the level": list(map(str, self.naive_rates)),
        }
        if self.plug_in_rates is not None:
            columns["estimated noise taken for the truth: p at most the level"] = list(map(str, self.plug_in_rates))
        return columns

    def _repr_html_(self) -> str:
        columns = self.text_table()
        title = f"Calibration on {self.counted()}"
        return row_table(title, list(columns), zip(*columns.values(), strict=True), self.conclusion().split("\n"))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        levels = zip(self.alphas, self.rates, self.naive_rates, self.limits, self.rejections, strict=True)
        return {
            "images": len(self.pvalues),
            "levels": [
                {
                    "alpha": alpha,
                    "selective": _described(rate),
                    "naive": _described(naive),
                    "limit": limit,
                    "certain": certain,
                    "possible": possible,
                }
                for alpha, rate, naive, limit, (certain, possible) in levels
            ],
            "error_rate": ERROR_RATE,
            "ks_statistic": self.ks_statistic,
            "ks_pvalue": self.ks_pvalue,
            "naive_ks_pvalue": self.naive_ks_pvalue,
            "calibrated": self.calibrated,
            "statuses": self.statuses,
            "failures": [{"image": number, "error": reason} for number, reason in self.failures.items()],
            "plug_in": None if self.plug_in_rates is None else [_described(rate) for rate in self.plug_in_rates],
            "pvalues": self.pvalues.tolist(),
            "pvalue_bounds": self.pvalue_bounds.tolist(),
            "naive_pvalues": self.naive_pvalues.tolist(),
            "plug_in_pvalues": None if self.plug_in_pvalues is None else self.plug_in_pvalues.tolist(),
        }


def check_row(row: Mapping[str, Any]) -> None:
    """Raise a ValueError or KeyError for a row that :meth:`Calibration.of` cannot use."""
    if type(row["image"]) is not int:
        raise ValueError(f"image must be a number, got {shortened(row['image'])}")
    if "error" in row:
        check_texts(row, ["error"])
        return
    check_texts(row, ["status"])
    check_numbers(row, NUMBERS)
    for name in NUMBERS:
        if not 0 <= row[name] <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {row[name]}")


def _described(rate: Rate) -> dict[str, Any]:
    return {"rate": rate.value, "low": rate.low, "high": rate.high, "count": rate.count, "total": rate.total}


def _axes(make: Callable[[float, float], Figure]) -> Any:
    """Return the two axes of a figure that is made of a width and a height in inches."""
    return make(11.0, 5.2).subplots(1, 2, width_ratios=(1.25, 1.0))


def _draw_quantiles(axes: Axes, drawn: Calibration) -> None:
    """Draw the quantiles of p-values against those of a perfect test."""
    count = len(drawn.pvalues)
    rank = np.arange(1, count + 1)
    expected = rank / (count + 1)  # the mean of the i-th of n uniform numbers, which is Beta(i, n + 1 - i)
    low, high = (stats.beta.ppf(tail, rank, count + 1 - rank) for tail in (0.025, 0.975))
    axes.fill_between(
        expected, low, high, color=drawing.GREY, alpha=0.25, lw=0, label="95% of perfect tests, at each point"
    )
    axes.plot([0, 1], [0, 1], color=drawing.GREY, lw=1, label="uniform: a perfect test")
    marker = "o" if count <= FEW_POINTS else ""
    for kind, values, uniform in (
        ("naive", drawn.naive_pvalues, drawn.naive_ks_pvalue),
        ("selective", drawn.pvalues, drawn.ks_pvalue),
    ):
        label = f"{kind} (Kolmogorov-Smirnov p {with_sign(number_text(uniform))})"
        axes.plot(expected, np.sort(values), color=COLOURS[kind], lw=1.8, marker=marker, ms=3, label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("quantile of the uniform distribution")
    axes.set_ylabel("quantile of the p-values")
    axes.set_title(f"p-values of {count:,} null image{'s' if count > 1 else ''}")
    drawing.legend_below(axes, 2, 9)


def _draw_rates(axes: Axes, drawn: Calibration) -> None:
    """Draw rates with their intervals and limits on logarithmic axes; a rate of zero is an arrow out of the picture."""
    levels = np.array(drawn.alphas)
    floor = levels.min() / 5
    ends = np.array([levels.min() / 2, min(1.0, levels.max() * 2)])
    axes.plot(ends, ends, color=drawing.GREY, lw=1, label="as it should be")
    about = f"at most {ERROR_RATE:.0%} of valid tests exceed one of these"
    axes.hlines(
        np.array(drawn.limits) / len(drawn.pvalues),
        levels / 1.12,
        levels * 1.12,
        color=drawing.GREY,
        lw=1.5,
        label=about,
    )
    for kind, measured, shift in (("naive", drawn.naive_rates, 1.04), ("selective", drawn.rates, 1 / 1.04)):
        at, colour = levels * shift, COLOURS[kind]
        label = f"{kind}, with its {100 * measured[0].confidence_level:.4g}% interval"
        axes.vlines(at, [max(rate.low, floor) for rate in measured], [rate.high for rate in measured], color=colour)
        axes.plot(at, [rate.value or np.nan for rate in measured], "o", color=colour, ms=5, label=label)
        at_zero = at[[not rate.count for rate in measured]]
        axes.plot(at_zero, [floor * 1.1] * len(at_zero), "v", color=colour, ms=6)
    axes.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=(floor, 1.3))
    axes.set_xticks(levels, [f"{alpha:g}" for alpha in drawn.alphas])
    axes.set_xticks([], minor=True)
    marks = [mark for mark in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0) if mark >= floor]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.set_yticks([], minor=True)
    drawing.draw_grid(axes)
    axes.set_xlabel("significance level")
    axes.set_ylabel("share of null images rejected")
    axes.set_title("rejections where there is nothing to find")
    drawing.legend_below(axes, 1, 9)
