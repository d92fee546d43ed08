"""The alternative hypothesis: which values of a statistic are at least as extreme as the observed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
"""The alternatives of a test, those of SciPy."""

TwoSided: TypeAlias = Literal["absolute", "equal-tailed"]
"""The two-sided p-values of a test: of absolute values, as in the paper, or twice the smaller tail."""

Tails: TypeAlias = Literal["two-sided", "equal-tailed", "greater", "less"]
"""Which tails a p-value counts: the two choices in one word. "two-sided" is that of absolute values."""


def tails_of(alternative: str, two_sided: str = "absolute") -> Tails:
    """Return which tails the p-value of a test counts, from its two parameters; refuse other values of them."""
    if alternative not in get_args(Alternative):
        raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', got {alternative!r}.")
    if two_sided not in get_args(TwoSided):
        raise InputError(f"two_sided must be 'absolute' or 'equal-tailed', got {two_sided!r}.")
    if two_sided == "absolute":
        return alternative  # type: ignore[return-value]  # checked above
    if alternative != "two-sided":
        raise InputError(
            f"two_sided={two_sided!r} is for the alternative 'two-sided', but alternative is {alternative!r}: "
            "leave one of them out."
        )
    return "equal-tailed"


def parameters_of(tails: Tails) -> dict[str, Any]:
    """Return the parameters ``alternative`` and, if it is two-sided, ``two_sided`` of a test, JSON-ready."""
    if tails in ("greater", "less"):
        return {"alternative": tails}
    return {"alternative": "two-sided", "two_sided": "equal-tailed" if tails == "equal-tailed" else "absolute"}


def recorded_tails(values: Mapping[str, Any]) -> Tails:
    """Return which tails the p-value of a record counts; one of an earlier version has but the alternative."""
    return tails_of(values["alternative"], values.get("two_sided") or "absolute")


def ordinary_range(
    statistic: NDArray[np.float64], alternative: Tails
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends (k,) between which a value is less extreme than the observed statistics (k,).

    "two-sided" compares absolute values, as the paper does. For "equal-tailed" what is not ordinary is one tail: that
    from the statistic away from zero. Its p-value is twice the probability of this tail or of the rest, whichever is
    smaller.
    """
    if alternative not in get_args(Tails):
        raise InputError(f"alternative must be one of {', '.join(get_args(Tails))}, got {alternative!r}.")
    nowhere = np.full_like(statistic, np.inf)
    if alternative == "two-sided":
        return -np.abs(statistic), np.abs(statistic)
    upper = statistic >= 0 if alternative == "equal-tailed" else alternative == "greater"
    return np.where(upper, -nowhere, statistic), np.where(upper, statistic, nowhere)
