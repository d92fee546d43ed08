"""The alternative hypothesis: which values of a statistic are at least as extreme as the observed one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from attentest.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Alternative: TypeAlias = Literal["two-sided", "equal-tailed", "greater", "less"]
"""The alternatives of a test: those of SciPy, where "two-sided" is the paper's p-value of absolute values, and
"equal-tailed", two-sided as well: twice the smaller tail."""

ONE_SIDED = ("greater", "less")  # the alternatives with one tail


def alternatives() -> tuple[str, ...]:
    """Return the names of the alternatives."""
    return get_args(Alternative)


def as_alternative(alternative: str) -> Alternative:
    """Return an alternative; raise an error if there is no such alternative."""
    if alternative not in get_args(Alternative):
        raise InputError(
            f"alternative must be 'two-sided', 'equal-tailed', 'greater' or 'less', got {alternative!r}.", "alternative"
        )
    return cast(Alternative, alternative)


def ordinary_range(
    statistic: NDArray[np.float64], alternative: Alternative
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends (k,) between which a value is less extreme than the observed statistics (k,).

    "two-sided" compares absolute values, as the paper does. For "equal-tailed" what is not ordinary is one tail: that
    from the statistic away from zero. Its p-value is twice the probability of this tail or of the rest, whichever is
    smaller.
    """
    import numpy as np  # the names of alternatives are needed before any number is

    as_alternative(alternative)
    nowhere = np.full_like(statistic, np.inf)
    if alternative == "two-sided":
        return -np.abs(statistic), np.abs(statistic)
    upper = statistic >= 0 if alternative == "equal-tailed" else alternative == "greater"
    return np.where(upper, -nowhere, statistic), np.where(upper, statistic, nowhere)
