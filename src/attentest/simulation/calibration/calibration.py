"""Whether a test is calibrated: how often it rejects images in which there is nothing to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest.checks import level
from attentest.errors import InputError, counted, shortened
from attentest.markup import row_table
from attentest.presentation.words import number_text
from attentest.runs.records import check_numbers, check_texts
from attentest.search import CONVERGED
from attentest.statistics.multiple_testing import Rate, rate_of, rejection_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ALPHAS = (0.01, 0.05, 0.10)

ERROR_RATE = 0.01
"""Probability, at most, that a valid test is called one that rejects too often."""

FEWEST_EXPECTED = 10
"""Expected rejections at the greatest level below which no test is called calibrated."""

NUMBERS = ("p", "p_low", "p_high", "naive_p")
"""Numbers in the row of an image that was tested."""

PLUG_IN = "plug_in_p"
"""P-value in the row of an image whose noise was estimated, if the estimate is taken for the truth."""

MOST_REASONS = 3
"""Reasons for failures that a summary names, the most frequent ones."""

UNEVEN = 0.01
"""Kolmogorov-Smirnov p-values below this are mentioned: the error rate of that remark, beside ERROR_RATE."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """The behaviour of a test on null images, in which there is nothing to find.

    Parameters
    ----------
    pvalues, naive_pvalues : (n,)
        Selective p-values of null images, and those that ignore the selection.
    pvalue_bounds : (n, 2)
        Least and greatest selective p-value compatible with what each search knows.
    alphas
        Significance levels.
    rates, naive_rates
        Rejection rates at these levels. The Wilson interval of each is for that rate alone; the verdict does not use
        them.
    limits
        For each level, the number of rejections above which the test is called one that rejects too often. A valid
        test exceeds one of the limits or more with probability at most ``ERROR_RATE`` = 1%: they are exact, by the
        joint distribution of binomial counts, for every number of images.
    statuses
        Number of searches by status.
    failures
        Reasons why images could not be tested, by their numbers. They have no p-value and are in no rate, but the
        limits are for all images, and the verdict counts each as rejected or not, whichever would change it.
    plug_in_pvalues : (n,)
        Selective p-values if the noise, which was estimated for each image from reference images, is taken to be known;
        None if it was not estimated.
    plug_in_rates
        Rejection rates of these.
    """

    pvalues: NDArray[np.float64]
    pvalue_bounds: NDArray[np.float64]
    naive_pvalues: NDArray[np.float64]
    alphas: tuple[float, ...]
    rates: tuple[Rate, ...]
    naive_rates: tuple[Rate, ...]
    limits: tuple[int, ...]
    statuses: dict[str, int]
    failures: dict[int, str] = field(default_factory=dict)
    plug_in_pvalues: NDArray[np.float64] | None = None
    plug_in_rates: tuple[Rate, ...] | None = None

    @classmethod
    def of(
        cls, rows: Iterable[Mapping[str, Any]], alphas: Sequence[float] = ALPHAS, confidence_level: float = 0.95
    ) -> Calibration:
        """Return the calibration of null images.

        Parameters
        ----------
        rows
            A row for each image, in any order; they are consumed one by one. Each has the number of its "image", and
            either "p", "p_low", "p_high", "naive_p" and "status", or the "error" because of which it was not tested.
        alphas
            Significance levels.
        confidence_level
            Level of the intervals of the rates.
        """
        levels = significance_levels(alphas)
        tested: dict[int, tuple[Any, ...]] = {}
        failed: dict[int, str] = {}
        for row in rows:
            if "error" in row:
                failed[row["image"]] = row["error"]
            else:
                tested[row["image"]] = (*(row[name] for name in NUMBERS), row.get(PLUG_IN, np.nan), row["status"])
        if not tested:
            if failed:
                number, reason = min(failed.items())
                raise InputError(
                    f"of {counted(len(failed), 'null image')} none could be tested; image {number}: {reason}"
                )
            raise InputError("there are no results to calibrate by: give at least one.")
        ordered = [tested[number] for number in sorted(tested)]
        numbers = np.array([row[:-1] for row in ordered], dtype=np.float64)
        selective, naive, bounds, plug_in = numbers[:, 0], numbers[:, 3], numbers[:, 1:3], numbers[:, 4]
        estimated = not np.any(np.isnan(plug_in))
        return cls(
            pvalues=selective,
            pvalue_bounds=bounds,
            naive_pvalues=naive,
            alphas=levels,
            rates=tuple(rate_of(selective <= alpha, confidence_level) for alpha in levels),
            naive_rates=tuple(rate_of(naive <= alpha, confidence_level) for alpha in levels),
            limits=rejection_limits(levels, len(tested) + len(failed), ERROR_RATE),
            statuses=dict(Counter(row[-1] for row in ordered)),
            failures=dict(sorted(failed.items())),
            plug_in_pvalues=plug_in if estimated else None,
            plug_in_rates=tuple(rate_of(plug_in <= a, confidence_level) for a in levels) if estimated else None,
        )

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
        lines = [counted(len(self.pvalues), "null image")]
        plug_in = ("" for _ in self.alphas) if self.plug_in_rates is None else map(_plug_in_text, self.plug_in_rates)
        for alpha, rate, other, naive in zip(self.alphas, self.rates, plug_in, self.naive_rates, strict=True):
            lines.append(f"p <= {alpha:g}: selective {rate}, {other}naive {naive}")
        return "\n".join([*lines, self.conclusion()])

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
            lines.append(f"null images that could not be tested: {len(self.failures)}")
            reasons = Counter(self.failures.values()).most_common()
            lines += [f"  {count} because: {reason}" for reason, count in reasons[:MOST_REASONS]]
            lines += [f"  {len(reasons) - MOST_REASONS} more reasons"] * (len(reasons) > MOST_REASONS)
        limits = ", ".join(f"{limit} at {alpha:g}" for alpha, limit in zip(self.alphas, self.limits, strict=True))
        lines.append(
            f"rejections of a valid test: at most {limits}; it exceeds one of these limits with a probability of at "
            f"most {ERROR_RATE:.0%}"
        )
        return "\n".join([*lines, self._verdict()])

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

    @property
    def error_rate(self) -> float:
        """Probability, at most, that a valid test is called one that rejects too often."""
        return ERROR_RATE

    def plot(self, axes: Sequence[Axes] | None = None) -> list[Axes]:
        """Draw the p-values against those of a perfect test, and the rejection rates with their limits.

        Needs Matplotlib (``pip install 'attentest[plots]'``).

        Parameters
        ----------
        axes
            Two axes to draw on; by default those of a new figure.
        """
        from attentest.presentation.figure import checked_axes, shown_figure
        from attentest.simulation.calibration.figure import SIZE, WIDTHS, draw_calibration

        chosen = shown_figure(*SIZE).subplots(1, 2, width_ratios=WIDTHS) if axes is None else axes
        given = checked_axes(chosen, 2)
        draw_calibration(given, self)
        return given

    def __repr__(self) -> str:
        rates = (f"{rate.value:.3g} at {alpha:g}" for alpha, rate in zip(self.alphas, self.rates, strict=True))
        failed = f", {counted(len(self.failures), 'failure')}" if self.failures else ""
        tested = counted(len(self.pvalues), "null image")
        return f"Calibration({tested}{failed}, rejected {', '.join(rates)}, calibrated={self.calibrated})"

    def _repr_html_(self) -> str:
        columns = ["level", "selective: rejected", "limit", "naive (not valid): rejected"]
        levels = zip(self.alphas, self.rates, self.limits, self.naive_rates, strict=True)
        total = len(self.pvalues) + len(self.failures)
        rows = [[f"{alpha:g}", rate, f"{limit} of {total}", naive] for alpha, rate, limit, naive in levels]
        if self.plug_in_rates is not None:
            columns.append("estimated noise taken for the truth: rejected")
            rows = [[*row, rate] for row, rate in zip(rows, self.plug_in_rates, strict=True)]
        title = f"Calibration on {counted(len(self.pvalues), 'null image')}"
        return row_table(title, columns, rows, self.conclusion().split("\n"))

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


def significance_levels(alphas: Any) -> tuple[float, ...]:
    """Return significance levels as plain floats; refuse an empty list and what is no level."""
    if not isinstance(alphas, Iterable) or isinstance(alphas, str):
        raise InputError(f"alphas must be a list of significance levels, got {alphas!r}.")
    levels = tuple(level(alpha) for alpha in alphas)
    if not levels:
        raise InputError("alphas must hold at least one significance level, got none.")
    return levels


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


def _plug_in_text(rate: Rate) -> str:
    return f"with the estimated noise taken for the truth {rate}, "


def _described(rate: Rate) -> dict[str, Any]:
    return {"rate": rate.value, "low": rate.low, "high": rate.high, "count": rate.count, "total": rate.total}
