"""The alternative hypothesis: which values of a statistic are at least as extreme as the observed one."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]


def check_alternative(alternative: str) -> None:
    """Refuse an alternative that is not one of SciPy's three."""
    if alternative not in get_args(Alternative):
        raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', got {alternative!r}.")


def ordinary_range(
    statistic: NDArray[np.float64], alternative: Alternative
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends (k,) between which a value is less extreme than the observed statistics (k,).

    "two-sided" compares absolute values, as the paper does.
    """
    check_alternative(alternative)
    if alternative == "greater":
        return np.full_like(statistic, -np.inf), statistic
    if alternative == "less":
        return statistic, np.full_like(statistic, np.inf)
    return -np.abs(statistic), np.abs(statistic)
