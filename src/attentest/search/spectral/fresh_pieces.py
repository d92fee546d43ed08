"""Pieces of the z axis that are interpolated at nodes of their own, and the estimate of their error."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from attentest.search.problem import Points, on_device
from attentest.search.spectral.bumps import WORTH_PROBING, bump_height
from attentest.search.spectral.chebyshev import (
    basis,
    check_point,
    coefficients_from_lobatto,
    constant,
    lobatto_nodes,
    node_polynomial,
)
from attentest.search.spectral.decay import decay_of
from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.score_error import ROUNDING

LEBESGUE = 3.0
"""Bound on the factor by which interpolation on up to 17 Lobatto nodes enlarges errors of the values."""

CHECK_SAFETY = 1.5
"""Safety factor on the error seen at the check point."""

WELL_RESOLVED = 1e-3
"""Below this fraction the error is taken to follow the node polynomial, so that it vanishes at the nodes."""

SLOW_RATE = 0.4
"""Coefficients that fall more slowly than this may be those of a kink, which fall like 1 / k^2: the sum of those cut
off is then as large as the last one times their number."""

UNSTEADY = 4.0
"""Least error, in units of the last coefficients, where these do not fall steadily."""


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Fresh pieces to make (q,): where, of which degree, and what is known there.

    Parameters
    ----------
    image, left, right, degree : (q,)
        Index of the image, ends, and degree of the Lobatto nodes: 8 or 16.
    stalls : (q,)
        How often refining has not helped.
    error_so_far : (q,)
        Error of the interpolant to be replaced; infinite if there is none.
    probed : (q,) bool
        Whether to look for bumps between the nodes, so that no allowance is made for them.
    """

    image: Integers
    left: Floats
    right: Floats
    degree: Integers
    stalls: Integers
    error_so_far: Floats
    probed: Mask

    def chosen(self, rows: Integers) -> Fresh:
        """Return some of them."""
        return Fresh(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class NodeScores:
    """Scores for fresh pieces (p,) of one degree, and their errors.

    Parameters
    ----------
    at_nodes : (p, degree + 1, gh, gw)
        Scores at the nodes of :func:`fresh_points`.
    check : (p,)
        The check points, in [-1, 1].
    at_check : (p, gh, gw)
        Scores there.
    noise : (p,)
        Error of ``at_nodes`` if they are rough, else zero.
    jitter : (p,)
        Error of exact scores beyond the rounding that is always allowed for.
    narrowest_bump : (p,)
        Standard deviation of the narrowest bump that must not be missed.
    """

    at_nodes: Tensor
    check: Floats
    at_check: Tensor
    noise: Floats
    jitter: Floats
    narrowest_bump: Floats


def fresh_points(left: Floats, right: Floats, degree: int, share: Floats) -> tuple[Points, Floats, Points]:
    """Return where fresh pieces are evaluated.

    Parameters
    ----------
    left, right : (p,)
        Ends of the pieces.
    degree
        Degree of the Lobatto nodes.
    share : (p,)
        Random numbers in [0, 1): which check points to take.

    Returns
    -------
    nodes : (p, degree + 1)
        The nodes.
    check : (p,)
        The check points, in [-1, 1].
    at_check : (p, 1)
        The check points on the z axis.
    """
    middle, half = (left + right) / 2, (right - left) / 2
    nodes = middle[:, None] + half[:, None] * lobatto_nodes(degree)
    nodes[:, 0], nodes[:, -1] = left, right
    check = check_point(degree, share)
    return nodes, check, (middle + half * check)[:, None]


def fresh_pieces(fresh: Fresh, scores: NodeScores) -> Pieces:
    """Interpolate scores on pieces (p,) of one degree, and estimate the error in two ways.

    The coefficients of an analytic function fall geometrically, so those that were cut off sum to a geometric series
    that starts at the last ones; and one point that is not a node shows the error there. The greater of the two
    counts. The check point then joins the nodes.
    """
    degree = int(fresh.degree[0])
    at_nodes, noise = scores.at_nodes.flatten(2), scores.noise
    device = at_nodes.device
    coefficients = constant(coefficients_from_lobatto, device, degree) @ at_nodes
    vanishing = constant(node_polynomial, device, degree)
    at_point = basis(on_device(scores.check, device))
    missed = scores.at_check.flatten(1) - (at_point.unsqueeze(1) @ coefficients).squeeze(1)
    reach = at_point @ vanishing
    highest, lowest = at_nodes.amax(dim=1), at_nodes.amin(dim=1)
    greatest = torch.stack([highest, -lowest, highest - lowest, missed.abs()]).amax(dim=2)
    # In one transfer, because each waits for the device.
    measured = torch.cat([greatest, reach.unsqueeze(0), coefficients.abs().amax(dim=2).T]).cpu().numpy()
    highest_score, minus_lowest, change, seen, reached = measured[:5]
    rounding = LEBESGUE * scores.jitter + ROUNDING * np.maximum(highest_score, minus_lowest)
    # Coefficients of order 1 and higher; noise is part of the floor, and is no sign of slow decay.
    sizes = np.maximum(measured[6 : 6 + degree] - noise, 0.0).T
    decay = decay_of(sizes, rounding)
    rate, last = decay.rate, decay.last
    cut_off = 2 * last * np.where(rate > SLOW_RATE, np.maximum(degree, 1 / (1 - rate)), 1 / (1 - rate))
    seen = np.maximum(seen - LEBESGUE * noise, 0.0) * (CHECK_SAFETY / np.abs(reached))
    # The check point as one more node gains a factor of about the rate; half of that is counted on.
    error = np.maximum(cut_off, seen) * np.minimum(1.0, 2 * rate)
    error = np.maximum(error, np.where(decay.steady, 0.0, UNSTEADY * last))
    bump = bump_height(decay, fresh.right - fresh.left, degree, scores.narrowest_bump) * ~fresh.probed
    bumpy = bump > WORTH_PROBING * error
    error = np.maximum(error, bump)
    coefficients.addcmul_(vanishing[:, None], (missed / reach[:, None])[:, None])
    count = len(fresh.image)
    hidden = last <= rounding + LEBESGUE * noise
    average = (np.maximum(last, rounding + noise) / np.maximum(decay.greatest, np.finfo(np.float64).tiny)) ** (
        1 / (degree - 1)
    )
    return Pieces(
        image=fresh.image,
        left=fresh.left,
        right=fresh.right,
        error=np.where(decay.resolved, error, np.inf),
        floor=rounding + LEBESGUE * noise,
        rounding=rounding,
        degree=np.full(count, degree),
        vanishes=decay.steady & (last <= WELL_RESOLVED * decay.greatest),
        order=np.full(count, degree + 2),
        rate=rate,
        fall=np.where(hidden, np.minimum(average, rate), rate),
        stalls=fresh.stalls,
        refined=np.zeros(count, dtype=np.bool_),
        bumpy=bumpy,
        change=change,
        spread=highest_score + minus_lowest,
        coefficients=coefficients.unflatten(2, scores.at_nodes.shape[2:]),
    )
