"""How the Chebyshev coefficients of a piece fall, and whether that shows all there is in the piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attentest.search.spectral.masses import Floats, Mask

RESOLVED = 0.09
"""A piece whose last coefficients exceed this fraction of the greatest one is not resolved. For a kink it is 0.05 or
less, for a steep step 0.14."""

FLAT = 0.5
"""Nor is a piece whose last coefficients exceed this fraction of those of half the order. A narrow spike between the
nodes has flanks that reach a node or two, and its coefficients are all alike; those of a kink fall to a quarter."""

ABOVE_ROUNDING = 8.0
"""Coefficients within this factor of the rounding error say nothing about their fall."""


STEADY, COMPARABLE = 0.4, 0.25
"""Coefficients fall steadily if those of either parity fall by this factor, counting the lesser of the last two if it
exceeds this fraction of the greater. Otherwise something narrower begins to show at an end of the piece."""


REGULAR = (0.25, 0.95)
"""Coefficients fall regularly if the ratios of one to the one before it lie between these, in the last half."""

FASTEST, SLOWEST = 0.03, 0.95
"""Rates are taken to be no faster and no slower than this."""


@dataclass(frozen=True, kw_only=True)
class Decay:
    """The fall of the coefficients of p pieces.

    Parameters
    ----------
    rate : (p,)
        Ratio of one coefficient to the one before it, in the last ones.
    last : (p,)
        Size of the last coefficients.
    greatest : (p,)
        Size of the greatest coefficient.
    steady : (p,) bool
        Whether both even and odd orders still fall in the last ones.
    regular : (p,) bool
        Whether the last half falls at an even rate, as no narrow bump's coefficients do.
    resolved : (p,) bool
        Whether the coefficients fall as those of a function do that is nowhere narrower than the distance of the nodes.
    """

    rate: Floats
    last: Floats
    greatest: Floats
    steady: Mask
    regular: Mask
    resolved: Mask


def decay_of(sizes: Floats, rounding: Floats) -> Decay:
    """Return the decay of coefficients of orders 1 to n and sizes (p, n), known to within their rounding (p,).

    The last coefficients can be small by chance. So the rate is no faster than it was on average, and the last
    coefficients are taken to be no smaller than any before them would have become at that average rate.
    """
    tiny = np.finfo(np.float64).tiny
    count = sizes.shape[1]
    last = sizes[:, -2:].max(axis=1)
    greatest = sizes.max(axis=1)
    lately = np.sqrt(last / np.maximum(sizes[:, -4:-2].max(axis=1), tiny))
    # Even and odd orders fall each by themselves; of the two, only the one that makes up the last coefficients counts.
    by_parity = sizes[:, -2:] / np.maximum(sizes[:, -4:-2], tiny)
    steady = np.where(sizes[:, -2:] >= COMPARABLE * last[:, None], by_parity, 0.0).max(axis=1) < STEADY
    on_average = (last / np.maximum(greatest, tiny)) ** (1 / (count - 1))
    expected = sizes * np.minimum(on_average, 1.0)[:, None] ** np.arange(count - 1, -1, -1)
    ratios = sizes[:, count // 2 + 1 :] / np.maximum(sizes[:, count // 2 : -1], tiny)
    half_way = sizes[:, count // 2 - 2 : count // 2].max(axis=1)
    flat = (last > FLAT * half_way) | (last > RESOLVED * greatest)
    return Decay(
        rate=np.clip(np.maximum(lately, on_average), FASTEST, SLOWEST),
        last=expected.max(axis=1),
        greatest=greatest,
        steady=steady,
        regular=np.asarray(((ratios > REGULAR[0]) & (ratios < REGULAR[1])).all(axis=1)),
        resolved=~flat | (last <= ABOVE_ROUNDING * rounding),
    )
