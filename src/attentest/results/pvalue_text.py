"""P-values and estimates as text, for tables, figures and reports."""

from __future__ import annotations

from attentest.search import CONVERGED

SMALLEST = 1e-307
"""Smaller p-values are shown as below it: their digits are lost in a float64."""


def number_text(p: float, digits: int = 3) -> str:
    """Return a p-value that is known exactly."""
    return f"<{SMALLEST:g}" if p < SMALLEST else f"{p:.{digits}g}"


def range_text(low: float, high: float, digits: int = 3) -> str:
    """Return the bounds on a p-value."""
    return f"{'0' if low < SMALLEST else number_text(low, digits)} to {number_text(high, digits)}"


def pvalue_text(p: float, bounds: tuple[float, float], status: str, digits: int = 3) -> str:
    """Return a p-value as its search knows it: "0.042", or "0.02 to 0.41 (max_evaluations)".

    Only a search that converged made the error bar as narrow as it was asked to. Of any other the whole error bar is
    shown, with the status, and not a p-value that is somewhere in it.

    Parameters
    ----------
    p, bounds
        The p-value, and the least and the greatest one compatible with what the search knows.
    status
        How the search ended.
    digits
        Significant digits.
    """
    return number_text(p, digits) if status == CONVERGED else f"{range_text(*bounds, digits)} ({status})"


def estimate_text(estimate: float, bounds: tuple[float, float], status: str) -> str:
    """Return an estimate as its search knows it: "1.2", or the bounds on it if the search did not converge."""
    return f"{estimate:.3g}" if status == CONVERGED else f"{bounds[0]:.3g} to {bounds[1]:.3g}"


def with_sign(text: str) -> str:
    """Return the text of a p-value with the sign that goes between it and its name: "= 0.042", "< 1e-307"."""
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"
