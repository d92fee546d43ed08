"""How a result depends on the noise that was assumed: in numbers, words and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import confidence, float_array, level
from attentest.errors import InputError
from attentest.markup import row_table
from attentest.presentation import figure as drawing
from attentest.presentation.number_texts import bounded_text, interval_name, interval_text
from attentest.presentation.tables import data_frame
from attentest.presentation.words import VERDICTS, same_verdict_text
from attentest.record import interval_from_values, interval_values, json_ready
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import Estimates, Inference, naive_confidence_interval
from attentest.statistics.noise_factor import (
    FACTORS,
    SHOWN_FACTORS,
    SameVerdict,
    SensitivityCurve,
    factor_curve,
    same_verdict,
)
from attentest.statistics.pvalue import LogPvalues
from attentest.statistics.selection_laws import BinomialCounts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FACTOR, LENGTH = "factor", "correlation_length"  # names of the two parameters of the noise in rows and tables
ENDS = ("", "_low", "_high")  # ends of the names of a value and of its bounds in a row


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity:
    """P, estimate and interval of one image as functions of what may be wrong about the noise."""

    alpha: float
    """Significance level of the verdicts."""
    confidence_level: float
    """Level of the confidence intervals."""
    alternative: Alternative
    """The alternative of p-values and intervals."""
    difference: float
    """Observed difference, in the units of the pixels."""
    factors: SensitivityCurve
    """The curve in a factor on the standard deviation of the noise; 1 is the noise that was assumed."""
    same_verdict: SameVerdict
    """The factors around 1 for which the verdict is the same, and what comes beyond them."""
    lengths: SensitivityCurve | None = None
    """The curve in the correlation length of the noise in pixels, with the variances that were assumed; None if it was
    not computed."""
    assumed_length: float | None = None
    """Correlation length of the noise that was assumed; None without ``lengths``."""
    evaluations: int = 0
    """Model evaluations that ``lengths`` took; ``factors`` takes none."""
    note: str | None = None
    """What else to know, if anything."""

    @property
    def flips(self) -> tuple[float, ...]:
        """The factors at which the verdict becomes the opposite one: the nearest below 1 and the nearest above."""
        same = self.same_verdict
        ends = ((same.low, same.below), (same.high, same.above))
        return tuple(end for end, beyond in ends if beyond == "other")

    def same_verdict_text(self) -> str:
        """Return how wrong the assumed noise may be before the verdict changes, in one sentence."""
        return same_verdict_text(self.same_verdict)

    def sentences(self) -> list[str]:
        """Return how the verdict depends on the factor and on the correlation length, and what is unsure."""
        sentences = [self.same_verdict_text()]
        if self.lengths is not None:
            decided = zip(self.lengths.decisions(self.alpha), self.lengths.values.tolist(), strict=True)
            groups = [(rejected, list(group)) for rejected, group in groupby(decided, lambda pair: pair[0])]
            verdicts = [
                f'"{VERDICTS[rejected]}" at {_ends_text(group[0][1], group[-1][1])} pixels'
                for rejected, group in groups
            ]
            sentences.append(
                f"With the same variances and another correlation length, the verdict is {', '.join(verdicts)} "
                f"(assumed: {self.assumed_length:.3g})."
            )
        unsure = self.factors.values[self.factors.unsure & self._in_table]
        if len(unsure):
            which, it = ("factors", "them") if len(unsure) > 1 else ("a factor", "it")
            intervals = "intervals" if len(unsure) > 1 else "the interval"
            sentences.append(
                f"For {which} of {_ends_text(unsure[0], unsure[-1])} {intervals} may be shorter than shown: the search "
                f"did not look far enough to know {it}."
            )
        return sentences

    def summary(self) -> str:
        """Return how the verdict depends on the noise, in words."""
        lines = [*self.sentences(), *([] if self.note is None else [self.note])]
        if self.lengths is not None:
            lines.append(
                f"The factors took no evaluation of the model, the correlation lengths {self.evaluations:,} of them."
            )
        return "\n".join(lines)

    def plot(self, axes: Sequence[Axes] | None = None, *, title: str = "", width: float = 180.0) -> list[Axes]:
        """Draw p and interval against the factor, and p against the correlation length if that was computed.

        Colours of background and text are those of Matplotlib's style. Needs Matplotlib (``pip install
        'attentest[plots]'``).

        Parameters
        ----------
        axes
            Axes to draw on, two or with correlation lengths three; by default those of a new figure, which also has
            the summary in words.
        title
            Name of the image, for a new figure.
        width
            Width of a new figure in mm.

        Returns
        -------
        list of Axes
            Those of p by factor, interval by factor, and p by correlation length.
        """
        if axes is None:
            return self._draw(partial(drawing.shown_figure, arranged=False), title, drawing.checked_width(width))
        panels = drawing.checked_axes(axes, len(self._curves) + 1)
        draw_sensitivity(panels, self)
        return panels

    def figure(self, *, title: str = "", width: float = drawing.WIDTH) -> Figure:
        """Return a figure of its own, of a width in mm, which is not shown."""
        return self._draw(partial(drawing.new_figure, arranged=False), title, width)[0].get_figure(root=True)  # type: ignore[return-value]

    def _draw(self, make: Callable[[float, float], Figure], title: str, width: float) -> list[Axes]:
        """Draw everything on a figure, which is made of a width and a height in inches."""
        words = " ".join(self.sentences())
        layout = sensitivity_layout(width, len(self._curves) + 1, bool(title), words)
        axes = layout.draw(make(*layout.inches), title, words)
        draw_sensitivity(axes, self, size=layout.size)
        return axes

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each factor and each correlation length; needs pandas (``pip install 'attentest[tables]'``).

        Correlation lengths that are not known, because they were not asked for, are NaN.
        """
        length = np.nan if self.assumed_length is None else self.assumed_length
        rows = [{LENGTH: length, **row} for row in self._rows(FACTOR)]
        rows += [{FACTOR: 1.0, **row} for row in self._rows(LENGTH)]
        return data_frame(
            [
                {
                    **{name: row[name] for name in (FACTOR, LENGTH, "standard_error", "pvalue")},
                    **dict(zip(("pvalue_low", "pvalue_high"), row["pvalue_bounds"], strict=True)),
                    "estimate": float(row["estimate"]),
                    **{f"confidence_{end}": float(row["confidence_interval"][end]) for end in ("low", "high", "error")},
                    "reject": row["reject"],
                }
                for row in rows
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; infinite numbers become "inf" and "-inf"."""
        same = self.same_verdict
        return {
            **{name: getattr(self, name) for name in ("alpha", "confidence_level", "alternative", "difference")},
            "text": " ".join(self.sentences()),
            "note": self.note,
            "reject": same.reject,
            "same_verdict_from": same.low,
            "same_verdict_to": same.high,
            "below": same.below,
            "above": same.above,
            "factors": self._rows(FACTOR),
            "lengths": None if self.lengths is None else self._rows(LENGTH),
            "assumed_length": json_ready(self.assumed_length),
            "evaluations": self.evaluations,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sensitivity:
        """Return the sensitivity whose :meth:`to_dict` this is."""
        lengths, assumed = values["lengths"], values["assumed_length"]
        return cls(
            **{name: values[name] for name in ("alpha", "confidence_level", "alternative", "difference", "note")},
            factors=curve_from_rows(FACTOR, values["factors"]),
            same_verdict=SameVerdict(
                reject=values["reject"],
                low=values["same_verdict_from"],
                high=values["same_verdict_to"],
                below=values["below"],
                above=values["above"],
            ),
            lengths=None if lengths is None else curve_from_rows(LENGTH, lengths),
            assumed_length=None if assumed is None else float(assumed),
            evaluations=values["evaluations"],
        )

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the :meth:`table`."""
        return "noise", "selective p", f"verdict at {self.alpha:g}", "estimate", interval_name(self.confidence_level)

    def table(self) -> list[tuple[str, ...]]:
        """Return a few rows of text: what is assumed of the noise, p, verdict, estimate and interval."""
        factors = compress(self._rows(FACTOR), self._in_table)
        rows = [(f"standard deviation x {row[FACTOR]:.3g}", row) for row in factors]
        rows += [(f"correlation length {row[LENGTH]:.3g} px", row) for row in self._rows(LENGTH)]
        return [
            (
                what,
                row["text"],
                VERDICTS[row["reject"]],
                f"{float(row['estimate']):.3g}",
                interval_text(*interval_from_values(row["confidence_interval"])),
            )
            for what, row in rows
        ]

    def __repr__(self) -> str:
        flips = ", ".join(f"{flip:.2f}" for flip in self.flips) or "none"
        lengths = "" if self.lengths is None else f", {len(self.lengths)} correlation lengths"
        return (
            f"Sensitivity({VERDICTS[self.same_verdict.reject]} at {self.alpha:g}, {len(self.factors)} factors, "
            f"flips: {flips}{lengths})"
        )

    def _repr_html_(self) -> str:
        return row_table("Sensitivity to the noise", self.headings, self.table(), self.summary().split("\n"))

    @property
    def _curves(self) -> list[SensitivityCurve]:
        return [curve for curve in (self.factors, self.lengths) if curve is not None]

    @property
    def _in_table(self) -> NDArray[np.bool_]:
        """Which factors (k,) the table and the sentences are about: a few of those of the usual curve, else all."""
        few = np.isclose(self.factors.values[:, None], SHOWN_FACTORS)
        return np.asarray(few.any(axis=1) | (not few.any(axis=0).all()))

    def _rows(self, name: str) -> list[dict[str, Any]]:
        curve = self.factors if name == FACTOR else self.lengths
        return [] if curve is None else curve_rows(curve, name, self.alpha)


def factor_sensitivity(
    inference: Inference, *, alpha: float, confidence_level: float, factors: ArrayLike = FACTORS
) -> Sensitivity:
    """Return the sensitivity of a compared difference to a factor on the standard deviation of the noise.

    Verdicts are at alpha, intervals at the confidence level, and the factors of the curve positive.
    """
    if isinstance(inference.law, BinomialCounts):
        raise InputError("counts are tested without a noise model, so there is nothing to be sensitive to.", "noise")
    ascending = np.unique(float_array(factors, "factors"))
    if ascending.ndim != 1 or not len(ascending) or not np.all((ascending > 0) & np.isfinite(ascending)):
        raise InputError(f"factors must be a list of positive finite numbers, got {factors!r}.")
    return Sensitivity(
        alpha=level(alpha),
        confidence_level=confidence(confidence_level),
        alternative=inference.alternative,
        difference=inference.difference,
        factors=factor_curve(inference, ascending, confidence_level),
        same_verdict=same_verdict(inference, alpha),
    )


def recorded_sensitivity(
    inference: Inference, recorded: Mapping[str, Any] | None, *, alpha: float, confidence_level: float
) -> Sensitivity:
    """Return the sensitivity to a few factors, with the correlation lengths of one that was recorded, if there is one.

    Recorded are the values of :meth:`Sensitivity.to_dict`.
    """
    computed = factor_sensitivity(inference, alpha=alpha, confidence_level=confidence_level, factors=SHOWN_FACTORS)
    if recorded is None:
        return computed
    earlier, names = Sensitivity.from_dict(recorded), ("lengths", "assumed_length", "evaluations", "note")
    return replace(computed, **{name: getattr(earlier, name) for name in names})


def curve_rows(curve: SensitivityCurve, name: str, alpha: float) -> list[dict[str, Any]]:
    """Return a row for each value of a curve, JSON-ready, with the value under a name and the verdict at alpha."""
    bounded = {"log_pvalue": curve.log_pvalues, "estimate": curve.estimates}
    return [
        {
            name: float(value),
            "standard_error": float(curve.standard_errors[i]),
            "pvalue": float(curve.pvalues[i]),
            "pvalue_bounds": curve.pvalue_bounds[i].tolist(),
            **{
                f"{what}{end}": json_ready(column[i])
                for what, columns in bounded.items()
                for end, column in zip(ENDS, columns, strict=True)
            },
            "confidence_interval": interval_values(curve.intervals[i]),
            "reject": rejected,
            "text": bounded_text(float(curve.pvalues[i]), curve.pvalue_bounds[i].tolist()),
        }
        for i, (value, rejected) in enumerate(zip(curve.values, curve.decisions(alpha), strict=True))
    ]


def curve_from_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> SensitivityCurve:
    """Return the curve whose :func:`curve_rows` these are."""

    def column(key: str) -> NDArray[np.float64]:
        return np.array([float(row[key]) for row in rows])

    return SensitivityCurve(
        values=column(name),
        standard_errors=column("standard_error"),
        log_pvalues=LogPvalues(*(column(f"log_pvalue{end}") for end in ENDS)),
        estimates=Estimates(*(column(f"estimate{end}") for end in ENDS)),
        intervals=[interval_from_values(row["confidence_interval"]) for row in rows],
    )


def _ends_text(first: float, last: float) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (first, last)))


SMALLEST_LOG = -6.0
"""P-values are drawn down to this power of ten at least, to a tenth of alpha, and to the square of p with the assumed
noise; smaller ones, of less noise, leave the axes."""

FARTHEST_DRAWN = 1.0  # an interval is drawn no farther out than this many times the range of the naive one
NEAR = 1.15  # a factor that is less than this is as near to 1 as the word beside the line at 1 is wide

FACTOR_TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)


def sensitivity_layout(width: float, count: int, titled: bool, words: str) -> drawing.Layout:
    """Return the layout of so many panels of one size in a row, or below each other on a narrow figure."""
    columns = 1 if width < drawing.NARROW else count
    left, gap = 13.0, 14.0  # room for the numbers and names of the axes
    wide = (width - left - 4 - (columns - 1) * gap) / columns
    high = min(wide, 52.0)
    top, row = (16.0 if titled else 10.0), high + 27  # below: the names of the axes and the legend
    places = [divmod(number, columns) for number in range(count)]
    return drawing.Layout(
        width=width,
        panels=[(left + column * (wide + gap), top + line * row, wide, high) for line, column in places],
        above_words=top - 8 + count // columns * row,
        lines=drawing.wrapped(words, drawing.letters_across(width - 8, drawing.Layout.size)).count("\n") + 1,
    )


def draw_sensitivity(axes: Sequence[Axes], drawn: Sensitivity, *, size: float = 8.0) -> None:
    """Draw a sensitivity on two axes, or on three if it has correlation lengths."""
    level = float(np.log10(drawn.alpha))
    smallest = min(*(_powers(curve.log_pvalues.best).min() for curve in drawn._curves), level)
    assumed = float(np.interp(1.0, drawn.factors.values, _powers(drawn.factors.log_pvalues.best)))
    least = max(smallest - 0.3, min(SMALLEST_LOG, level - 1, 2 * assumed))  # the same for both axes of p
    beside = any(1.0 < flip < NEAR for flip in drawn.flips)  # a line through the word that is usually there
    _draw_pvalues(axes[0], drawn.factors, 1.0, drawn.alpha, least, size, side="left", word_before=beside, lw=1.6)
    for flip in drawn.flips:
        axes[0].axvline(flip, color=drawing.VERMILION, lw=1.1)
        text, where = f"flips at {flip:.2f}", ("data", "axes fraction")
        drawing.annotate(
            axes[0], text, (flip, 1.0), along=where, ha="center", va="bottom", color=drawing.VERMILION, size=size
        )
    _factor_axis(axes[0], drawn.factors, size)
    axes[0].set_title("selective p", size=size, pad=14)
    _draw_intervals(axes[1], drawn, size)
    if drawn.lengths is not None and drawn.assumed_length is not None:
        first, last = drawn.lengths.values[[0, -1]]
        margin = 0.05 * (last - first) or 1.0
        style: dict[str, Any] = {"lw": 1.2, "marker": "o", "ms": 4}
        _draw_pvalues(axes[2], drawn.lengths, drawn.assumed_length, drawn.alpha, least, size, side="right", **style)
        axes[2].set_xlim(first - margin, last + margin)
        drawing.make_plain(axes[2], "correlation length in pixels", size)
        axes[2].set_title("selective p, same variances", size=size, pad=14)


def _draw_pvalues(
    axes: Axes,
    curve: SensitivityCurve,
    assumed: float,
    alpha: float,
    least: float,
    size: float,
    *,
    side: Literal["left", "right"],
    word_before: bool = False,
    **style: Any,
) -> None:
    """Draw log10 p with its bounds from ``least``, the assumed noise, and alpha with its name."""
    best, low, high = (np.maximum(_powers(logs), 2 * least) for logs in curve.log_pvalues)
    axes.fill_between(curve.values, low, high, color=drawing.BLUE, alpha=0.25, lw=0)
    axes.plot(curve.values, best, color=drawing.BLUE, **style)
    axes.axvline(assumed, color=drawing.GREY, lw=0.8, zorder=0)
    text: dict[str, Any] = {"color": drawing.GREY, "size": size}
    across: dict[str, Any] = {"along": ("data", "axes fraction"), "rotation": 90, "va": "bottom"}
    across |= {"by": (-2, 2), "ha": "right"} if word_before else {"by": (2, 2)}
    drawing.annotate(axes, "assumed", (assumed, 0.0), **across, **text | {"size": size - 1})
    height = float(np.log10(alpha))
    axes.axhline(height, color=drawing.GREY, lw=1.0, ls=(0, (3, 2)))
    end, inwards = (0.0, 3) if side == "left" else (1.0, -3)
    drawing.annotate(
        axes, f"alpha {alpha:g}", (end, height), along=("axes fraction", "data"), by=(inwards, 2), ha=side, **text
    )
    # Powers of ten on a linear axis: p-values below 1e-308 are too small for a logarithmic one.
    axes.set_ylim(least, -0.03 * least)
    axes.locator_params(axis="y", integer=True, nbins=7)
    axes.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")


def _powers(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the powers of ten of natural logs."""
    return np.asarray(logs / np.log(10.0))


def _draw_intervals(axes: Axes, drawn: Sensitivity, size: float) -> None:
    curve = drawn.factors
    naive = np.array(
        [
            tuple(naive_confidence_interval(drawn.difference, float(error), drawn.alternative, drawn.confidence_level))
            for error in curve.standard_errors
        ]
    )
    ends = np.array([tuple(interval) for interval in curve.intervals])
    near = np.array([0.0, drawn.difference, *naive[np.isfinite(naive)]])
    reach = FARTHEST_DRAWN * (near.max() - near.min())
    bottom = max(min(ends.min(), near.min()), near.min() - reach)
    top = min(max(ends.max(), near.max()), near.max() + reach)
    margin = 0.04 * (top - bottom)
    beyond = np.clip(ends, bottom - 2 * margin, top + 2 * margin)
    axes.fill_between(curve.values, beyond[:, 0], beyond[:, 1], color=drawing.BLUE, alpha=0.18, lw=0)
    sure = np.where(curve.unsure[:, None], np.nan, beyond)
    at_most = "at most" if curve.unsure.any() else ""
    axes.plot(curve.values, sure, color=drawing.BLUE, lw=1.2, label=["selective", ""])
    axes.plot(curve.values, beyond, color=drawing.BLUE, lw=1.2, ls=":", label=[at_most, ""])
    axes.plot(curve.values, naive, color=drawing.NAIVE_COLOUR, lw=1.0, ls=(0, (4, 2)), label=["naive (not valid)", ""])
    estimates = np.clip(curve.estimates.best, bottom - 2 * margin, top + 2 * margin)
    axes.plot(curve.values, estimates, color=drawing.BLUE, lw=1.8, ls=(0, (5, 1.5, 1, 1.5)), label="estimate")
    axes.axhline(0.0, color=drawing.GREY, lw=1.0, ls=(0, (3, 2)))
    axes.axvline(1.0, color=drawing.GREY, lw=0.8, zorder=0)
    axes.set_ylim(bottom - margin, top + margin)
    axes.locator_params(axis="y", nbins=6)
    _factor_axis(axes, curve, size)
    drawing.legend_below(axes, 2, size - 1)
    axes.set_title(f"{interval_name(drawn.confidence_level)} of the difference", size=size, pad=14)


def _factor_axis(axes: Axes, curve: SensitivityCurve, size: float) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xlim(curve.values[0], curve.values[-1])
    ticks = [tick for tick in FACTOR_TICKS if curve.values[0] <= tick <= curve.values[-1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    drawing.make_plain(axes, "noise, times the assumed", size)
