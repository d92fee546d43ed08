"""Pieces of the z axis interpolated at nodes of their own: how wide they may be, and an estimate of their error."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from attentest.search.problem import Points, on_device
from attentest.search.spectral.cells import WORTH_PROBING, bump_height
from attentest.search.spectral.chebyshev import (
    basis,
    check_point,
    coefficients_from_lobatto,
    constant,
    decay_of,
    lobatto_nodes,
    node_polynomial,
)
from attentest.search.spectral.evaluations import Evaluations
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segments import Floats, Integers, Mask

SHARP = 0.01
"""Unresolved pieces count as evidence if a score changes in them by this fraction of the distance between the least and
the greatest score. What is smaller is rounding, or a kink in a narrow piece."""

TRUSTED = 8.0
"""Pieces up to this many times as wide as the narrowest unresolved one are trusted."""

MOST_PARTS = 20_000
"""Most pieces of this width on the axis of an image, to bound memory: it can never be searched with so many."""


class TrustedWidth:
    """Evidence of narrow features of the scores of k images, and which pieces decided what so far.

    Parameters
    ----------
    reach : (k,)
        The axis of each image ends at this distance from zero.

    Attributes
    ----------
    widest : (k,)
        Width above which a piece is not trusted; infinite without evidence.
    """

    def __init__(self, reach: Floats) -> None:
        self._narrowest = 2 * reach / MOST_PARTS
        self._spread = np.zeros(len(reach))
        self.widest = np.full(len(reach), np.inf)
        self._image: Integers = np.empty(0, dtype=np.int64)
        self._left, self._right = np.empty(0), np.empty(0)

    def learn(self, new: Pieces) -> Mask:
        """Take note of new pieces; return which images (k,) have less trusted width now."""
        fresh = new.degree > 0
        image = new.image[fresh]
        self._image = np.concatenate([self._image, image])
        self._left = np.concatenate([self._left, new.left[fresh]])
        self._right = np.concatenate([self._right, new.right[fresh]])
        np.maximum.at(self._spread, image, new.spread[fresh])
        # What rough scores show may be noise; the exact ones, which follow, will tell.
        sharp = np.isinf(new.error[fresh]) & ~new.is_rough[fresh]
        sharp &= new.change[fresh] > SHARP * self._spread[image]
        return self.limit(image[sharp], TRUSTED * (new.right - new.left)[fresh][sharp])

    def limit(self, image: Integers, width: Floats) -> Mask:
        """Trust no pieces of images (q,) wider than this (q,); return which images (k,) have less trusted width now."""
        before = self.widest.copy()
        np.minimum.at(self.widest, image, width)
        self.widest = np.maximum(self.widest, self._narrowest)
        return np.asarray(self.widest < before)

    def parts_wider(self, image: int, widest: float) -> tuple[Floats, Floats]:
        """Return the ends of the parts of an image's axis that were decided by pieces wider than this."""
        edges, owner, width = self._owners(image)
        parts = np.flatnonzero((owner >= 0) & (width[owner] > widest))
        starts = np.ones(len(parts), dtype=np.bool_)
        starts[1:] = (np.diff(parts) > 1) | (np.diff(owner[parts]) != 0)
        ends = np.ones_like(starts)
        ends[:-1] = starts[1:]
        return edges[parts[starts]], edges[parts[ends] + 1]

    def pieces_at(self, image: Integers, z: Floats) -> tuple[Floats, Floats]:
        """Return the ends (q,) of the pieces that decided about points (q,)."""
        left, right = np.empty(len(z)), np.empty(len(z))
        for row, (one, point) in enumerate(zip(image, z, strict=True)):
            here = np.flatnonzero((self._image == one) & (self._left <= point) & (self._right >= point))[-1]
            left[row], right[row] = self._left[here], self._right[here]
        return left, right

    def _owners(self, image: int) -> tuple[Floats, Integers, Floats]:
        """Return the edges (n + 1,) of all pieces of an image, and for each part between them its piece, or -1.

        And the widths of the pieces.
        """
        own = self._image == image
        left, right = self._left[own], self._right[own]
        edges = np.unique(np.concatenate([left, right]))
        owner = np.full(max(len(edges) - 1, 0), -1)
        for row, (start, end) in enumerate(zip(*(np.searchsorted(edges, e) for e in (left, right)), strict=True)):
            owner[start:end] = row  # a later piece replaces what an earlier one said
        return edges, owner, right - left


ROUNDING = 32 * float(np.finfo(np.float64).eps)
"""Rounding error of a score relative to the greatest score: five times that of the paper's trained ViTs."""

CLOSE = 1e-7
"""Distance, relative to z_obs, at which smooth scores differ from a straight line by less than rounding."""

ROUGH_SAFETY = 8.0
"""Safety factor on the noise of rough scores, measured at z_obs: in sharp models it is several times that elsewhere."""


def rough_noise(rough: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return the noise (k,) of rough scores: their distance from the exact scores (k, gh, gw) at z_obs."""
    difference = rough.at(np.arange(len(z_obs)), z_obs) - observed
    return np.asarray(ROUGH_SAFETY * difference.abs().amax(dim=(1, 2)).cpu().numpy())


def measured_jitter(exact: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return how far (k,) scores next to z_obs are from a straight line, where only noise explains it.

    Curvature grows with the square of the distance, noise does not.
    """
    everyone = np.arange(len(z_obs))
    largest = observed.abs().amax(dim=(1, 2)).cpu().numpy()
    jitter = _bend(exact, observed, z_obs, everyone, CLOSE)
    doubtful = everyone[jitter > ROUNDING * largest]
    if len(doubtful):
        farther = _bend(exact, observed, z_obs, doubtful, 4 * CLOSE)
        jitter[doubtful[farther > 8 * jitter[doubtful]]] = 0.0
    return jitter


def _bend(exact: Evaluations, observed: Tensor, z_obs: Floats, images: Integers, distance: float) -> Floats:
    """Return the second difference (m,) of the scores of some images around z_obs."""
    centre = z_obs[images]
    near = distance * np.maximum(1.0, np.abs(centre))
    around = exact.at(images, centre - near) + exact.at(images, centre + near)
    bend = around / 2 - observed[on_device(images, observed.device)]
    return np.array(bend.abs().amax(dim=(1, 2)).cpu().numpy())


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
