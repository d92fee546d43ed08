"""Interpolants of scores on pieces of the z axis: fresh ones and corrected ones, and how far off they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attentest.search.problem import Points, on_device
from attentest.search.spectral.cells import Interpolants
from attentest.search.spectral.chebyshev import (
    MAX_DEGREE,
    SIZE,
    Decay,
    basis,
    basis_at,
    check_point,
    coefficients_from,
    constant,
    decay_of,
    gauss_nodes,
    lobatto_nodes,
    node_polynomial,
)
from attentest.search.spectral.evaluations import Evaluations
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

SLOPE = 8.0  # bound on the slope of a score in units of its change over a resolved piece: z itself is rounded too
CORRECTION_SAFETY = 2.0  # safety factor on the error of a corrected piece

SMOOTH_RATE = 0.65
"""Only pieces whose coefficients fall faster than this are corrected, because corrections need a smooth error."""

MOST_CORRECTIONS = 4  # most points at which a zone is corrected


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces(AxisParts):
    """Interpolants of p pieces."""

    error: Floats
    """(p,). Estimate of the greatest error of the smooth part; infinite for a piece that is not resolved, so that
    nothing is concluded from it."""
    floor: Floats
    """(p,). Error that does not vanish at the nodes: rounding, or more where the scores are rough."""
    rounding: Floats
    """(p,). Rounding error of exact scores."""
    degree: Integers
    """(p,). Degree of the Lobatto nodes, 0 for a corrected piece."""
    vanishes: Mask
    """(p,) bool. Whether the error vanishes at the nodes."""
    order: Integers
    """(p,). Degree of the polynomial that the error resembles: bounds its slope."""
    rate: Floats
    """(p,). Ratio of one coefficient to the one before it."""
    fall: Floats
    """(p,). The same as an average over all coefficients that rounding does not hide."""
    stalls: Integers
    """(p,). How often refining has not helped."""
    refined: Mask
    """(p,) bool. Whether zones of the piece have become pieces of their own."""
    bumpy: Mask
    """(p,) bool. Whether the error is mostly an allowance for bumps between the nodes."""
    change: Floats
    spread: Floats
    """(p,). How much a score changes from node to node, at most; and the distance of the least from the greatest
    score."""
    coefficients: Tensor
    """(p, SIZE, *grid). Coefficients in the Chebyshev basis, on the device."""

    @classmethod
    def none(cls, grid: tuple[int, ...], device: torch.device) -> Pieces:
        """Return no pieces, of scores on a grid (*grid)."""
        types = {"Floats": np.float64, "Integers": np.int64, "Mask": np.bool_}
        columns: dict[str, Any] = {f.name: np.empty(0, types[str(f.type)]) for f in fields(cls) if f.type in types}
        return cls(**columns, coefficients=torch.empty(0, SIZE, *grid, dtype=torch.float64, device=device))

    @property
    def rounding_of_z(self) -> Floats:
        """What the rounding of z itself does to scores as steep as those of each piece can be."""
        slope = SLOPE * self.change / self.width
        return np.asarray(slope * np.spacing(np.maximum(np.abs(self.left), np.abs(self.right))))

    @property
    def is_rough(self) -> Mask:
        """Which pieces are made from rough scores."""
        return np.asarray(self.floor > self.rounding)

    @classmethod
    def concatenated(cls, tables: Sequence[Pieces]) -> Pieces:
        """Return several tables of pieces, one or more, as one."""
        several = [pieces for pieces in tables if len(pieces)]
        if len(several) < 2:
            return several[0] if several else tables[0]
        columns = {name: np.concatenate([vars(pieces)[name] for pieces in several]) for name in cls._columns()}
        return cls(**columns, coefficients=torch.cat([pieces.coefficients for pieces in several]))

    def take(self, rows: Integers | Mask | slice) -> Pieces:
        """Return some of the pieces."""
        index = on_device(np.arange(len(self))[rows], self.coefficients.device)
        columns = {name: vars(self)[name][rows] for name in self._columns()}
        return Pieces(**columns, coefficients=self.coefficients.index_select(0, index))

    @classmethod
    def _columns(cls) -> list[str]:
        """Return the names of the arrays: all fields but the coefficients, which are on the device."""
        return [field.name for field in fields(cls) if field.name != "coefficients"]

    def interpolants(self) -> Interpolants:
        """Return the polynomials and their errors, as :mod:`~attentest.search.spectral.cells` needs them."""
        device = self.coefficients.device
        errors = np.stack([self.error, np.where(self.vanishes, self.degree, 0), self.floor])
        return Interpolants(
            image=on_device(self.image, device), coefficients=self.coefficients, errors=on_device(errors, device)
        )

    def deciding(self, image: Integers, z: Floats) -> Integers:
        """Return the index of the piece that decided about points (m,): the last one there that is resolved; or -1."""
        resolved = np.flatnonzero(np.isfinite(self.error))
        parts = AxisParts(image=self.image[resolved], left=self.left[resolved], right=self.right[resolved])
        return np.append(resolved, -1)[parts.last_at(image, z)]


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
        """Return where fresh pieces of one degree are evaluated, with check points by random numbers (q,) in [0, 1).

        These are the nodes (q, degree + 1), the check points (q,) in [-1, 1], and those on the z axis (q, 1).
        """
        degree, middle, half = int(self.degree[0]), self.middle, self.width / 2
        nodes = middle[:, None] + half[:, None] * lobatto_nodes(degree)
        nodes[:, 0], nodes[:, -1] = self.left, self.right
        check = check_point(degree, share)
        return nodes, check, (middle + half * check)[:, None]

    def probes(self, check: Floats) -> Points:
        """Return where to look for bumps in pieces of degree 8: one point in each of their four widest gaps (q, 4).

        That is the check point of the piece (q,), in [-1, 1], in the gap that has it, and elsewhere the middle: a node
        of degree 16, so that a piece that is interpolated again has use of it.
        """
        nodes = lobatto_nodes(MAX_DEGREE)
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


def bump_height(decay: Decay, width: Floats, degree: int, narrowest: Floats) -> Floats:
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
    coefficients = constant(coefficients_from, device, lobatto_nodes, degree) @ at_nodes
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


def correction_points(zones: AxisParts, count: int) -> Points:
    """Return the points (q, count) at which zones (q,) are corrected."""
    return zones.middle[:, None] + zones.width[:, None] / 2 * gauss_nodes(count)


def correction_gain(order: Integers, pieces: AxisParts, zones: AxisParts, count: int) -> Floats:
    """Return the factor (q,) by which ``count`` corrections reduce the errors of pieces (q,) on zones (q,) of them.

    Interpolating a function of x at ``count`` Chebyshev points of a zone, of half width s in x, leaves no more than
    2 (s / 2)^count / count! times its greatest derivative of that order. An error resembles a polynomial of degree n,
    the ``order`` (q,), whose derivatives grow as (n / sqrt(1 - x^2))^count towards the ends of the piece, and there as
    those of the Chebyshev polynomial (the inequalities of Bernstein and Markov). In the middle n^count is taken without
    the half.
    """
    share = zones.width / pieces.width
    outermost = np.maximum(np.abs(zones.left - pieces.middle), np.abs(zones.right - pieces.middle)) / pieces.width * 2
    bernstein = (order / np.sqrt(np.maximum(1 - outermost**2, order**-2.0))) ** count  # no greater than Markov's there
    markov = np.prod([(order**2 - k**2) / (2 * k + 1) for k in range(count)], axis=0)
    derivative = np.maximum(order.astype(float) ** count, np.minimum(bernstein, markov) / 2**count)
    return np.asarray(CORRECTION_SAFETY * 2 * derivative * share**count / math.factorial(count))


def corrected_pieces(parents: Pieces, zones: AxisParts, values: Tensor) -> tuple[Pieces, Mask]:
    """Correct zones of pieces by scores (p, count, *grid) at :func:`correction_points`.

    Return the zones as pieces, and whether the error of each parent (p,) turned out greater than its estimate.
    """
    device = values.device
    left, right, count = zones.left, zones.right, values.shape[1]
    half = parents.width / 2
    start, end = (left - parents.middle) / half, (right - parents.middle) / half
    inner = gauss_nodes(SIZE)  # as many as represent the parent's polynomial exactly
    points = (start + end)[:, None] / 2 + (end - start)[:, None] / 2 * inner
    carried = constant(coefficients_from, device, gauss_nodes, SIZE) @ basis(on_device(points, device))
    coefficients = carried @ parents.coefficients.flatten(2)
    missed = values.flatten(2) - constant(basis_at, device, gauss_nodes, count) @ coefficients
    coefficients += constant(coefficients_from, device, gauss_nodes, count) @ missed
    seen = missed.abs().amax(dim=(1, 2)).cpu().numpy()
    estimated = parents.error + parents.floor
    gain = correction_gain(parents.order, parents, zones, count)
    corrected = replace(
        parents,
        left=left,
        right=right,
        error=np.maximum(estimated, 2 * seen) * np.minimum(1.0, gain),
        floor=parents.rounding,
        degree=np.zeros(len(left), dtype=np.int64),
        vanishes=np.zeros(len(left), dtype=np.bool_),
        order=np.full(len(left), count + 2),
        refined=np.zeros(len(left), dtype=np.bool_),
        bumpy=np.zeros(len(left), dtype=np.bool_),
        coefficients=coefficients.unflatten(2, values.shape[2:]),
    )
    return corrected, seen > estimated
