"""Numbers of results as text: p-values with what their searches know, estimates, intervals, and the cells of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

SMALLEST = 1e-307  # smaller p-values are shown as below it: their digits are lost in a float64
SAME = 0.01  # bounds on p that differ by less than this, relative to the greater, are shown as one number
ROUNDING = 1e-9  # smaller differences, in standard errors, are shown as 0

NEGLIGIBLE = 1e-5
"""So are bounds that differ by less than this: it is of the order of the usual tolerance of a search."""


def number_text(p: float, digits: int = 3) -> str:
    """Return a p-value that is known exactly."""
    return f"<{SMALLEST:g}" if p < SMALLEST else f"{p:.{digits}g}"


def range_text(low: float, high: float, digits: int = 3) -> str:
    """Return the bounds on a p-value."""
    return f"{'0' if low < SMALLEST else number_text(low, digits)} to {number_text(high, digits)}"


def pvalue_text(p: float, bounds: tuple[float, float], status: str, digits: int = 3) -> str:
    """Return a p-value as its search knows it: "0.042", or "0.02 to 0.41 (max_evaluations)".

    Only a search that converged made the error bar as narrow as it was asked to. Of any other the whole error bar is
    shown, with the status, and not a p-value that is somewhere in it. The bounds are the least and the greatest p-value
    compatible with what the search knows.
    """
    return number_text(p, digits) if is_converged(status) else f"{range_text(*bounds, digits)} ({status})"


def bounded_text(p: float, bounds: Sequence[float]) -> str:
    """Return a p-value in two digits, or its bounds if they differ visibly."""
    known = bounds[1] - bounds[0] <= max(SAME * bounds[1], NEGLIGIBLE)
    return number_text(p, 2) if known else range_text(bounds[0], bounds[1], 2)


def estimate_text(estimate: float, bounds: tuple[float, float], status: str) -> str:
    """Return an estimate as its search knows it: "1.2", or the bounds on it if the search did not converge."""
    return f"{estimate:.3g}" if is_converged(status) else f"{bounds[0]:.3g} to {bounds[1]:.3g}"


def is_converged(status: str) -> bool:
    """Return whether a search ended because it knew enough, by its status."""
    from attentest.search import CONVERGED, ROUGH

    return status in (CONVERGED, ROUGH)


def interval_text(low: float, high: float) -> str:
    """Return a confidence interval: "-0.2 to 1.3", or "0.4 or more" where one end is infinite."""
    if isinf(low) and isinf(high):
        return "unbounded"
    if isinf(low):
        return f"{high:.3g} or less"
    return f"{low:.3g} or more" if isinf(high) else f"{low:.3g} to {high:.3g}"


def interval_name(confidence_level: float, what: str = "interval") -> str:
    """Return an interval with its level: "95% interval"."""
    return f"{100 * confidence_level:.10g}% {what}"


def with_sign(text: str) -> str:
    """Return the text of a p-value with the sign that goes between it and its name: "= 0.042", "< 1e-307"."""
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def difference_number(difference: float, statistic: float) -> str:
    """Return an observed difference as text; one that is nothing beside its standard error is rounding: 0."""
    return f"{difference:.3g}" if abs(statistic) > ROUNDING else "0"


def share_text(share: float | None, placements: int) -> str:
    """Return a share of the other places in an image: "63% of 412"; "no room" if there are none."""
    return "no room" if share is None else f"{100 * share:.3g}% of {placements:,}"


def row_texts(row: Mapping[str, Any], digits: int = 3) -> dict[str, str]:
    """Return the numbers of the row of a tested image as tables show them, by the names of their columns.

    Where p is shown as a range, a footnote (:func:`row_notes`) says why. Infinite numbers may be texts.
    """

    def numbers(*names: str) -> list[float]:
        return [float(row[name]) for name in names]

    low, high = numbers("pvalue_low", "pvalue_high")
    estimate, *estimate_bounds = numbers("estimate", "estimate_low", "estimate_high")
    pixels = f"{row['part_pixels']:,} of {row['seen_pixels']:,}"
    texts = {
        "pixels": ", ".join(filter(None, [pixels, row.get("part_measure")])),
        "difference": difference_number(row["difference"], row["statistic"]),
        "estimate": estimate_text(estimate, (estimate_bounds[0], estimate_bounds[1]), row["status"]),
        "interval": interval_text(*numbers("confidence_low", "confidence_high")) if "confidence_low" in row else "",
        "statistic": f"{row['statistic']:z.4f}",
        "naive p": number_text(row["naive_pvalue"]),
        "selective p": number_text(row["pvalue"], digits) if is_converged(row["status"]) else range_text(low, high),
        "error bar": f"{high - low:.0e}",
    }
    if row.get("class_predicted"):
        label = row["class_label"]
        texts["class"] = f"{row['class']} ({label})" if label else str(row["class"])
    if "component" in row:
        texts["component"] = str(row["component"])
    if "certificate_pvalue" in row:
        texts["certified p"] = number_text(row["certificate_pvalue"], digits)
    if "context_share" in row:
        texts["larger than"] = share_text(row["context_share"], row["context_placements"])
        deviations = row["context_standard_deviations"]
        texts["difference / SD"] = "" if deviations is None else f"{deviations:.2g}"
    if "simultaneous_low" in row:
        texts["simultaneous"] = interval_text(*numbers("simultaneous_low", "simultaneous_high"))
    return texts
