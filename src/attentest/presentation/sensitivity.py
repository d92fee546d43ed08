"""How a result depends on the noise that was assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import confidence, float_array, level
from attentest.errors import InputError
from attentest.markup import row_table
from attentest.presentation.figure import checked_axes, new_figure, shown_figure
from attentest.presentation.result_figure import MM, WIDTH, checked_width
from attentest.presentation.sensitivity_figure import Layout, draw_figure, draw_sensitivity, panel_count
from attentest.presentation.words import VERDICTS, interval_name, interval_text, number_text, range_text
from attentest.record import interval_from_values, interval_values, json_ready
from attentest.statistics.confidence_interval import Estimates
from attentest.statistics.inference import Inference
from attentest.statistics.interval_mass import probability
from attentest.statistics.noise_factor import (
    FACTORS,
    SHOWN_FACTORS,
    NoiseSensitivity,
    SameVerdict,
    SensitivityCurve,
    factor_curve,
    same_verdict,
)
from attentest.statistics.pvalue import LogPvalues

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FACTOR, LENGTH = "factor", "correlation_length"
"""Names of the two parameters of the noise in rows and tables."""

SAME = 0.01
"""Bounds on p that differ by less than this, relative to the greater, are shown as one number."""

NEGLIGIBLE = 1e-5
"""So are bounds that differ by less than this: it is of the order of the usual tolerance of a search."""

ENDS = ("", "_low", "_high")
"""Ends of the names of a value and of its bounds in a row."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity(NoiseSensitivity):
    """P, estimate and interval of one image as functions of what may be wrong about the noise.

    Its numbers are those of :class:`~attentest.statistics.noise_factor.NoiseSensitivity`.
    """

    def same_verdict_text(self) -> str:
        """Return how wrong the assumed noise may be before the verdict changes, in one sentence."""
        return same_verdict_text(self.same_verdict)

    def sentences(self) -> list[str]:
        """Return how the verdict depends on the factor and on the correlation length, and what is unsure."""
        found = [same_verdict_text(self.same_verdict)]
        if self.lengths is not None:
            found.append(self._length_sentence(self.lengths))
        unsure = self.factors.values[self.factors.unsure]
        if len(unsure):
            found.append(
                f"For factors of {_range_text([unsure[0], unsure[-1]])} intervals may be shorter than shown: the "
                "search did not look far enough to know them."
            )
        return found

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
            layout = Layout.of(self, checked_width(width), title, self.sentences())
            figure = shown_figure(layout.width * MM, layout.height * MM, arranged=False)
            return draw_figure(figure, self, layout, title)
        given = checked_axes(axes, panel_count(self))
        draw_sensitivity(given, self)
        return given

    def figure(self, *, title: str = "", width: float = WIDTH) -> Figure:
        """Return a figure of its own, of a width in mm, which is not shown."""
        layout = Layout.of(self, width, title, self.sentences())
        figure = new_figure(width * MM, layout.height * MM)
        figure.set_layout_engine("none")  # the layout says where everything is
        draw_figure(figure, self, layout, title)
        return figure

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each factor and each correlation length; needs pandas (``pip install 'attentest[tables]'``).

        Correlation lengths that are not known, because they were not asked for, are NaN.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("data frames need pandas: pip install 'attentest[tables]'.") from None
        length = np.nan if self.assumed_length is None else self.assumed_length
        rows = [{FACTOR: row[FACTOR], LENGTH: length, **_flat(row)} for row in self._factor_rows]
        rows += [{FACTOR: 1.0, LENGTH: row[LENGTH], **_flat(row)} for row in self._length_rows]
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; infinite numbers become "inf" and "-inf"."""
        same = self.same_verdict
        return {
            "alpha": self.alpha,
            "confidence_level": self.confidence_level,
            "alternative": self.alternative,
            "difference": self.difference,
            "text": " ".join(self.sentences()),
            "note": self.note,
            "reject": same.reject,
            "same_verdict_from": same.low,
            "same_verdict_to": same.high,
            "below": same.below,
            "above": same.above,
            "factors": self._factor_rows,
            "lengths": None if self.lengths is None else self._length_rows,
            "assumed_length": None if self.assumed_length is None else json_ready(self.assumed_length),
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

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """Return a few rows of text: what is assumed of the noise, p, verdict, estimate and interval."""
        rows = [
            (f"standard deviation x {row[FACTOR]:.3g}", row)
            for row in self._factor_rows
            if len(self.factors) <= len(SHOWN_FACTORS) or np.isclose(row[FACTOR], SHOWN_FACTORS).any()
        ]
        rows += [(f"correlation length {row[LENGTH]:.3g} px", row) for row in self._length_rows]
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
        interval = interval_name(self.confidence_level)
        columns = ("noise", "selective p", f"verdict at {self.alpha:g}", "estimate", interval)
        return row_table("Sensitivity to the noise", columns, self.table(), self.summary().split("\n"))

    @property
    def _factor_rows(self) -> list[dict[str, Any]]:
        return curve_rows(self.factors, FACTOR, self.alpha)

    @property
    def _length_rows(self) -> list[dict[str, Any]]:
        return [] if self.lengths is None else curve_rows(self.lengths, LENGTH, self.alpha)

    def _length_sentence(self, lengths: SensitivityCurve) -> str:
        """Return the verdicts by correlation length."""
        found = zip(lengths.decisions(self.alpha), lengths.values.tolist(), strict=True)
        groups = [(verdict, [value for _, value in some]) for verdict, some in groupby(found, lambda pair: pair[0])]
        texts = [f'"{VERDICTS[verdict]}" at {_range_text(some)} pixels' for verdict, some in groups]
        return (
            f"With the same variances and another correlation length, the verdict is {', '.join(texts)} "
            f"(assumed: {self.assumed_length:.3g})."
        )


def factor_sensitivity(
    inference: Inference, *, alpha: float, confidence_level: float, factors: ArrayLike = FACTORS
) -> Sensitivity:
    """Return the sensitivity to a factor on the standard deviation of the noise.

    Parameters
    ----------
    inference
        The compared difference.
    alpha, confidence_level
        Levels of verdicts and intervals.
    factors
        Factors of the curve, positive.
    """
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
    """Return the sensitivity to a few factors, with the correlation lengths of one that was recorded.

    Parameters
    ----------
    inference
        The compared difference.
    recorded
        A recorded sensitivity (:meth:`Sensitivity.to_dict`), if there is one.
    alpha, confidence_level
        Levels of verdicts and intervals.
    """
    found = factor_sensitivity(inference, alpha=alpha, confidence_level=confidence_level, factors=SHOWN_FACTORS)
    if recorded is None or recorded["lengths"] is None:
        return found
    earlier = Sensitivity.from_dict(recorded)
    return replace(
        found, lengths=earlier.lengths, assumed_length=earlier.assumed_length, evaluations=earlier.evaluations
    )


def same_verdict_text(same: SameVerdict) -> str:
    """Return how wrong the assumed noise may be before the verdict changes, in one sentence."""
    if same.reject is None:
        return "The verdict is open already with the noise that was assumed."
    beyond = {
        "other": f"it is {VERDICTS[not same.reject]}",
        "unknown": "it may be another one: the search did not look far enough to tell where it changes",
    }
    ends = [
        f"{where} {end:.2f} times {beyond[what]}"
        for where, end, what in (("below", same.low, same.below), ("above", same.high, same.above))
        if what != "same"
    ]
    first = (
        f'The verdict is "{VERDICTS[same.reject]}" if the true standard deviation of the noise is {same.low:.2f} to '
        f"{same.high:.2f} times the one that was assumed"
    )
    return "; ".join([first, *ends]) + "."


def curve_rows(curve: SensitivityCurve, name: str, alpha: float) -> list[dict[str, Any]]:
    """Return a row for each value of a curve, JSON-ready, with the value under a name and the verdict at alpha."""
    bounded = {"log_pvalue": curve.log_pvalues, "estimate": curve.estimates}
    return [
        {
            name: float(value),
            "standard_error": float(curve.standard_errors[i]),
            "pvalue": probability(curve.log_pvalues.best[i]),
            "pvalue_bounds": curve.pvalue_bounds[i].tolist(),
            **{
                f"{what}{end}": json_ready(column[i])
                for what, columns in bounded.items()
                for end, column in zip(ENDS, columns, strict=True)
            },
            "confidence_interval": interval_values(curve.intervals[i]),
            "reject": rejected,
            "text": pvalue_text(*(float(column[i]) for column in curve.log_pvalues)),
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


def pvalue_text(best: float, low: float, high: float) -> str:
    """Return p from the logs of p and its bounds: a number, or the bounds if they differ visibly."""
    p, bounds = probability(best), (probability(low), probability(high))
    known = bounds[1] - bounds[0] <= max(SAME * bounds[1], NEGLIGIBLE)
    return number_text(p, 2) if known else range_text(*bounds, 2)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table has of a row."""
    low, high = row["pvalue_bounds"]
    interval = row["confidence_interval"]
    return {
        "standard_error": row["standard_error"],
        "pvalue": row["pvalue"],
        "pvalue_low": low,
        "pvalue_high": high,
        "estimate": float(row["estimate"]),
        **{f"confidence_{end}": float(interval[end]) for end in ("low", "high", "error")},
        "reject": row["reject"],
    }


def _range_text(values: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{value:.3g}" for value in (values[0], values[-1]))
    return " to ".join(ends)
