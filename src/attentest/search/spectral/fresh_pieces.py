"""Pieces of the z axis interpolated at nodes of their own, and estimates of their error and of that of the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attentest.search.problem import Points, on_device
from attentest.search.spectral import chebyshev
from attentest.search.spectral.evaluations import Evaluations
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segments import AxisParts
from attentest.statistics.columns import Floats, Integers, Mask

ROUNDING = 32 * float(np.finfo(np.float64).eps)
"""Rounding error of a score relative to the greatest score: five times that of the paper's trained ViTs."""

CLOSE = 1e-7
"""Distance, relative to z_obs, at which smooth scores differ from a straight line by less than rounding."""

ROUGH_SAFETY = 8.0
"""Safety factor on the noise of rough scores, measured at z_obs: in sharp models it is several times that elsewhere."""

LEBESGUE = 3.0  # bound on the factor by which interpolation on up to 17 Lobatto nodes enlarges errors of the values
CHECK_SAFETY = 1.5  # safety factor on the error seen at the check point

WELL_RESOLVED = 1e-3
"""Below this fraction the error is taken to follow the node polynomial, so that it vanishes at the nodes."""

SLOW_RATE = 0.4
"""Coefficients that fall more slowly than this may be those of a kink, which fall like 1 / k^2: the sum of those cut
off is then as large as the last one times their number."""

UNSTEADY = 4.0  # least error, in units of the last coefficients, where these do not fall steadily

NODES_PER_BUMP = 25.0
"""Bumps are not missed if their standard deviation is at least the width of the piece over this."""

HEIGHT, RATE = 200.0, 0.47
"""Such a bump, half way between two nodes, is up to this many times as high as the last of 8 coefficients, which then
fall neither faster than this rate nor regularly."""

WORTH_PROBING = 4.0
"""A piece is probed if it may then leave out an allowance that is this many times the rest of its error."""


def rough_noise(rough: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return the noise (k,) of rough scores: their distance from the exact scores (k, *grid) at z_obs."""
    difference = rough.at(np.arange(len(z_obs)), z_obs) - observed
    return np.asarray(ROUGH_SAFETY * difference.abs().flatten(1).amax(dim=1).cpu().numpy())


def measured_jitter(exact: Evaluations, observed: Tensor, z_obs: Floats) -> Floats:
    """Return how far (k,) scores next to z_obs are from a straight line, where only noise explains it.

    Curvature grows with the square of the distance, noise does not.
    """
    every_image = np.arange(len(z_obs))
    largest = observed.abs().flatten(1).amax(dim=1).cpu().numpy()
    jitter = _bend(exact, observed, z_obs, every_image, CLOSE)
    doubtful = every_image[jitter > ROUNDING * largest]
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
    return np.array(bend.abs().flatten(1).amax(dim=1).cpu().numpy())


@dataclass(frozen=True, kw_only=True, eq=False)
class Fresh(AxisParts):
    """Fresh pieces to make (q,): where, of which degree, and what is known there."""

    degree: Integers
    """(q,). Degree of the Lobatto nodes: 8 or 16."""
    stalls: Integers
    """(q,). How often refining has not helped."""
    error_so_far: Floats
    """(q,). Error of the interpolant to be replaced; infinite if there is none."""
    probed: Mask
    """(q,) bool. Whether to look for bumps between the nodes, so that no allowance is made for them."""

    def points(self, share: Floats) -> tuple[Points, Floats, Points]:
        """Return where fresh pieces of one degree are evaluated.

        Parameters
        ----------
        share : (q,)
            Random numbers in [0, 1): which check points to take.

        Returns
        -------
        nodes : (q, degree + 1)
            The nodes.
        check : (q,)
            The check points, in [-1, 1].
        at_check : (q, 1)
            The check points on the z axis.
        """
        degree, middle, half = int(self.degree[0]), self.middle, self.width / 2
        nodes = middle[:, None] + half[:, None] * chebyshev.lobatto_nodes(degree)
        nodes[:, 0], nodes[:, -1] = self.left, self.right
        check = chebyshev.check_point(degree, share)
        return nodes, check, (middle + half * check)[:, None]

    def probes(self, check: Floats) -> Points:
        """Return where to look for bumps in pieces of degree 8: one point in each of their four widest gaps (q, 4).

        That is the check point of the piece (q,), in [-1, 1], in the gap that has it, and elsewhere the middle: a node
        of degree 16, so that a piece that is interpolated again has use of it.
        """
        nodes = chebyshev.lobatto_nodes(chebyshev.MAX_DEGREE)
        checked = (nodes[4:11:2] < check[:, None]) & (check[:, None] < nodes[6:13:2])
        return self.middle[:, None] + self.width[:, None] / 2 * np.where(checked, check[:, None], nodes[5:12:2])


@dataclass(frozen=True, kw_only=True)
class NodeScores:
    """Scores for fresh pieces (p,) of one degree, and their errors."""

    at_nodes: Tensor
    """(p, degree + 1, *grid). Scores at the nodes of :meth:`Fresh.points`."""
    check: Floats
    """(p,). The check points, in [-1, 1]."""
    at_check: Tensor
    """(p, *grid). Scores there."""
    noise: Floats
    """(p,). Error of ``at_nodes`` if they are rough, else zero."""
    jitter: Floats
    """(p,). Error of exact scores beyond the rounding that is always allowed for."""
    narrowest_bump: Floats
    """(p,). Standard deviation of the narrowest bump that must not be missed."""


def bump_height(decay: chebyshev.Decay, width: Floats, degree: int, narrowest: Floats) -> Floats:
    """Return the height (p,) of the bump that pieces of some widths (p,) may hide; zero if they cannot.

    ``narrowest`` (p,) is the standard deviation of the narrowest bump that must not be missed. Of one that is wider, in
    units of the distance of the nodes, less is missed: with the fourth power.
    """
    thinned = np.minimum(1.0, width / (NODES_PER_BUMP * narrowest) * (8 / degree)) ** 4
    return np.where((decay.rate > RATE) & ~decay.regular, HEIGHT * thinned * decay.last, 0.0)


def fresh_pieces(fresh: Fresh, scores: NodeScores) -> Pieces:
    """Interpolate scores on pieces (p,) of one degree, and estimate the error in two ways.

    The coefficients of an analytic function fall geometrically, so those that were cut off sum to a geometric series
    that starts at the last ones; and one point that is not a node shows the error there. The greater of the two
    counts. The check point then joins the nodes.
    """
    degree = int(fresh.degree[0])
    at_nodes, noise = scores.at_nodes.flatten(2), scores.noise
    device = at_nodes.device
    coefficients = chebyshev.constant(chebyshev.coefficients_from, device, chebyshev.lobatto_nodes, degree) @ at_nodes
    vanishing = chebyshev.constant(chebyshev.node_polynomial, device, degree)
    at_point = chebyshev.basis(on_device(scores.check, device))
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
    decay = chebyshev.decay_of(sizes, rounding)
    rate, last = decay.rate, decay.last
    cut_off = 2 * last * np.where(rate > SLOW_RATE, np.maximum(degree, 1 / (1 - rate)), 1 / (1 - rate))
    seen = np.maximum(seen - LEBESGUE * noise, 0.0) * (CHECK_SAFETY / np.abs(reached))
    # The check point as one more node gains a factor of about the rate; half of that is counted on.
    error = np.maximum(cut_off, seen) * np.minimum(1.0, 2 * rate)
    error = np.maximum(error, np.where(decay.steady, 0.0, UNSTEADY * last))
    bump = bump_height(decay, fresh.width, degree, scores.narrowest_bump) * ~fresh.probed
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
