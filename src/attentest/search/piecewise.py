"""The search for networks with kinks: every piece that matters to p, exactly where it is linear.

An evaluation gives the scores of a point, their slopes, and where the piece around it ends
(``attentest.search.breakpoints``). Within a linear piece the margins follow in closed form, so nothing is estimated:
what is left open is what was not visited, and rounding. Pieces that are curved are interpolated. Points lie where
nothing is known yet, so that each finds a new piece.

The kinks of a network that are too many to visit are roughness: wide parts of the axis are sampled then. Kinks keep the
last coefficients of a polynomial large, and scores between its nodes away from it: both are looked at, and the greater
one is the error. Among many kinks the greatest are no surprise. The narrower a part of the axis is, the fewer it has,
so that what matters to p is looked at again, until there are so few that each is visited. A bump between neighbouring
points that is much greater than all around it stays unseen; that is why results say that this was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attentest.checks import whole_number
from attentest.search.problem import (
    CONVERGED,
    OUT_OF_EVALUATIONS,
    OUT_OF_PRECISION,
    ROUGH,
    TOO_SHARP,
    Report,
    SearchOutcome,
    SearchProblem,
    on_device,
)
from attentest.search.spectral.audit import drawn, uniform
from attentest.search.spectral.cells import Interpolants, inside_and_undecided
from attentest.search.spectral.chebyshev import coefficients_from, constant, lobatto_nodes
from attentest.search.spectral.interpolation import segments_of
from attentest.search.spectral.plan import too_costly
from attentest.search.spectral.search import Refinement, RefiningSearch
from attentest.search.spectral.segments import (
    INSIDE,
    PVALUES,
    UNDECIDED,
    AxisParts,
    LogBounds,
    Segments,
    Zones,
    sort_keys,
    unexplored,
)
from attentest.statistics.columns import Floats, Integers, Mask, order_by_owner, repeated

FIRST_WIDTH = 2.5  # width of the parts into which the axis is cut at first, in standard deviations of z

POINTS_PER_PIECE = 0.5
"""Points in a part of the axis, per piece that is expected there: few enough that two seldom find the same piece."""

MOST_CALLS = 4  # most model calls of a round: what is visited next depends on what was found
GOLDEN = 0.6180339887498949  # multiples of the golden ratio, less their whole parts, are never close to one another
AUDITED = 12  # number of points of an image at which conclusions are compared with the model

AUDITED_OF_SAMPLES = 0.05
"""The same where roughness was measured, as a fraction of the evaluations before, in addition."""

GAP = 1e-9  # gaps of this width, relative to z, in which no piece is found are due to rounding

DEGREE, DEGREE_OF_PIECES = 8, 4
"""Degree of polynomials through scores: in parts with kinks, and in pieces, which have none and are narrow."""

SAMPLED_WIDTH = 0.625  # greatest width of parts that are interpolated, in standard deviations of z
VISITED_FIRST = 16  # pieces that are visited before their number is estimated

FEW_PIECES = 12.0
"""Parts in which no more pieces are expected are not sampled, but their pieces visited: among few kinks the next may be
much greater than those that were seen."""

AXIS = 10.0  # length of the axis that matters to p, in standard deviations of z
ROUNDING = 1e-12  # rounding error of scores, relative to the greatest one of an image
CHECKS = 2  # points at which a polynomial is compared with the scores
SAFETY = 4.0  # how much greater than what is seen of the error of a polynomial its greatest error is taken to be

FINAL, REFINED = 0, 1
"""Whether what is undecided in a part is due to rounding, or can be looked at again: numbers of pieces of segments."""

MOST_OF_IT = 0.5
"""What is undecided is halved if it is a greater share of a part than this: looked at as it is, it would stay."""

NARROWEST = 16  # parts of the axis of so many roundings of z are not visited


@dataclass(frozen=True, kw_only=True)
class PiecewiseSearch(RefiningSearch):
    """Visit the pieces of a network, heaviest first, until those that are left cannot move p.

    For networks that are linear or smooth between breakpoints: convolutions, linear layers, ReLU and its kin, pooling,
    batch normalisation in evaluation, skip connections, upsampling.

    Parameters
    ----------
    tol
        Width of the error bar of p at which to stop.
    rtol
        The same relative to p: the search stops when either is reached.
    max_evaluations
        Most evaluations per image. If they are used up before the tolerance is reached, what was not visited counts as
        undecided, and the status says so.
    max_pieces
        Where more pieces than this are expected to matter to p, the scores are sampled in wide parts of the axis, and
        pieces are visited where the region may change. The status is then "rough".
    """

    name: ClassVar[str] = "piecewise"

    max_evaluations: int = 100_000
    max_pieces: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_pieces", whole_number(self.max_pieces, "max_pieces", 0, 10**15))

    def images_together(self, batch_size: int) -> int:
        """Return how many images to search together: each has work for many points at a time."""
        return max(1, batch_size // 4)

    @torch.no_grad()
    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""
        return Run(problem, self).outcomes(report)


class Run(Refinement):
    """A search of the axes of k images under way, which looks at parts of them."""

    def __init__(self, problem: SearchProblem, search: PiecewiseSearch) -> None:
        super().__init__(problem, search, FIRST_WIDTH * problem.law.spread)
        self._search = search
        count = len(problem.law)
        self._evaluations, self._pieces = np.zeros((2, count), dtype=np.int64)
        self._visited_width = np.zeros(count)
        self._sampled = np.zeros(count, dtype=np.bool_)
        zones = self._table.zones(np.zeros((PVALUES, count)), self._goals.active)
        zones = zones.take(order_by_owner(zones.image, zones.left))
        z_obs = problem.z_obs
        self._visit(zones, zones.last_before(np.arange(count), z_obs), z_obs)

    def evaluations(self) -> Integers:
        """Return the number of model evaluations (k,) so far."""
        return self._evaluations

    def _done(self, bounds: LogBounds) -> bool:
        if not self._goals.active.any():
            self._audit()
            self._goals.status[self._sampled & (self._goals.status == CONVERGED)] = ROUGH
            return True
        allowed = self._goals.allowed_error(bounds)
        zones = self._table.zones(allowed, self._goals.active)
        far = np.isinf(zones.width)
        costly = too_costly(zones).any(axis=0)
        if (far & costly).any():
            self._lattice.extend(self._table, zones.take(far & costly))
            return False
        zones = zones.take(costly & (zones.piece != FINAL) & (zones.width > _rounding(zones.left, zones.right)))
        busy = np.bincount(zones.image, minlength=len(self._evaluations)) > 0
        self._goals.end(self._goals.active & ~busy, OUT_OF_PRECISION)
        beyond = self._goals.active & (self._evaluations >= self._search.max_evaluations)
        self._goals.end(beyond, OUT_OF_EVALUATIONS)
        zones = zones.take(self._goals.active[zones.image])
        if len(zones):
            self._look(zones.take(np.argsort(-zones.log_cost.max(axis=0), kind="stable")))
        return False

    def _look(self, zones: Zones) -> None:
        """Look at zones, the first ones as far as a round goes: at pieces in them, or at samples of all of each."""
        per_width = self._pieces / np.maximum(self._visited_width, np.spacing(1.0))
        too_many = per_width * AXIS * self._problem.law.spread > self._search.max_pieces
        self._sampled |= too_many & (self._pieces >= VISITED_FIRST)
        most = MOST_CALLS * self._problem.batch_size
        expected = zones.width * per_width[zones.image]
        sampled = self._sampled[zones.image] & (expected > FEW_PIECES)
        if sampled.any():
            some = zones.take(sampled).take(slice(max(1, most // samples(DEGREE))))
            self._table.remove(np.isin(self._table.segments.zone, some.zone))
            self._interpolate(cut(some, SAMPLED_WIDTH * self._problem.law.spread), DEGREE)
            zones, expected = zones.take(~sampled), expected[~sampled]
        if len(zones) == 0:
            return
        # The first pieces may be much narrower than most, so no more points are asked for than pieces were seen.
        zones_of = np.maximum(1, np.bincount(zones.image, minlength=len(self._pieces)))
        seen = np.maximum(VISITED_FIRST, self._pieces) / zones_of
        expected = np.minimum(POINTS_PER_PIECE * expected, np.minimum(seen[zones.image], most))
        count = np.maximum(1, expected.astype(np.int64))
        zones = zones.take(np.cumsum(count) - count < most)
        zone, place = repeated(count[: len(zones)])
        # Near the middles, but never twice at one place: a point that is a breakpoint itself says nothing.
        middle = 0.35 + 0.3 * np.modf(GOLDEN * self._evaluations[zones.image[zone]])[0]
        self._visit(zones, zone, zones.left[zone] + (place + middle) / count[zone] * zones.width[zone])

    def _visit(self, zones: Zones, part: Integers, z: Floats) -> None:
        """Evaluate the model at points z (m,) in zones (m,), and conclude about the pieces that contain them."""
        image = zones.image[part]
        scores, slopes, left, right, curved = self._problem.pieces_at(image, z)
        self._evaluations += np.bincount(image, minlength=len(self._evaluations))
        # a piece may reach beyond its zone, into what is known.
        pieces = AxisParts(
            image=image, left=np.maximum(left, zones.left[part]), right=np.minimum(right, zones.right[part])
        )
        rows = _distinct(pieces, z)
        self._close(zones.take(np.setdiff1d(part, part[rows])))
        part, chosen = part[rows], on_device(rows, scores.device)
        pieces = _joined(pieces.take(rows), zones, part)
        self._pieces += np.bincount(pieces.image, minlength=len(self._pieces))
        self._visited_width += np.bincount(pieces.image, pieces.width, minlength=len(self._visited_width))
        self._table.remove(np.isin(self._table.segments.zone, zones.zone[part]))
        self._table.add(_rest(zones, pieces, part))
        if curved:
            self._interpolate(pieces, DEGREE_OF_PIECES)
        else:
            self._table.add(self._concluded(pieces, z[rows], scores[chosen], slopes[chosen]))

    def _close(self, zones: Zones) -> None:
        """Decide about narrow gaps between pieces where a unit is zero to rounding, so that no piece is found there.

        They are as what lies on both sides; if that is not the same, they are undecided, and not visited again.
        """
        zones = zones.take(zones.width <= GAP * np.maximum(1.0, np.abs(zones.left)))
        if len(zones) == 0:
            return
        self._table.remove(np.isin(self._table.segments.zone, zones.zone))
        gaps = unexplored(zones.image, zones.left, zones.right)
        segments = self._table.segments
        starts, ends = sort_keys(segments.image, segments.left), sort_keys(segments.image, segments.right)
        inside = segments.kind == INSIDE
        beside = [(sort_keys(gaps.image, gaps.left), ends), (sort_keys(gaps.image, gaps.right), starts)]
        within = np.array([np.isin(place, edges[inside]) for place, edges in beside])
        open_ = np.any([np.isin(place, edges[~inside]) for place, edges in beside], axis=0)
        kind = np.where(within.all(axis=0), INSIDE, UNDECIDED)
        best_right = np.where(kind == INSIDE, gaps.right, gaps.left)
        final = np.full(len(gaps), FINAL)
        closed = replace(gaps, kind=kind, piece=final, best_left=gaps.left, best_right=best_right)
        self._table.add(closed.take(within.any(axis=0) | open_))  # between two that are outside, nothing is left

    def _concluded(self, pieces: AxisParts, z: Floats, scores: Tensor, slopes: Tensor) -> Segments:
        """Return what is known of pieces (p,) with scores and slopes (p, *grid) at a point z (p,) of each."""
        device = scores.device

        def like_scores(values: Floats) -> Tensor:
            return on_device(values, device).reshape(-1, *[1] * (scores.ndim - 1))

        linear = torch.stack(
            [scores + slopes * like_scores(pieces.middle - z), slopes * like_scores(pieces.width / 2)], dim=1
        )
        errors = torch.zeros(3, len(z), dtype=torch.float64, device=device)
        errors[2] = ROUNDING * linear.abs().flatten(2).amax(dim=2).sum(dim=1)
        interpolants = Interpolants(image=on_device(pieces.image, device), coefficients=linear, errors=errors)
        parts = inside_and_undecided(self._problem.margins, interpolants, self._problem.batch_size, cells=1)
        found = segments_of(pieces, 0, parts, np.zeros(len(z), dtype=np.int64))
        return replace(found, piece=np.full(len(found), FINAL))

    def _interpolate(self, parts: AxisParts, degree: int) -> None:
        """Conclude about parts (p,) of axes from polynomials; what they leave undecided is looked at again."""
        fitted, final = polynomials(self._problem, parts, degree)
        self._evaluations += np.bincount(parts.image, minlength=len(self._evaluations)) * samples(degree)
        within = inside_and_undecided(self._problem.margins, fitted, self._problem.batch_size)
        found = segments_of(parts, 0, within, np.zeros(len(parts), dtype=np.int64))
        for segments in to_refine(parts, found, final):
            self._table.add(segments)

    def _audit(self) -> None:
        """Compare what was concluded with the model at random points; where it is wrong, nothing is known any more."""
        count = AUDITED + np.where(self._sampled, AUDITED_OF_SAMPLES * self._evaluations, 0).astype(np.int64)
        count = np.where(self._goals.sure, count, 0)
        if not count.any():
            return
        self._goals.ask_for_p(self._table, self._goals.sure)
        points = drawn(self._table, 0, count, self._problem.image_seeds, np.zeros(len(count), dtype=np.int64))
        wrong = self._problem.inside_at(points.image, points.z) != points.inside
        asked, failed = (np.bincount(which, minlength=len(count)) for which in (points.image, points.image[wrong]))
        self._evaluations += asked
        self._audited, self._contradictions = asked, failed
        for image in np.flatnonzero(failed).tolist():
            everything = AxisParts(image=np.array([image]), left=np.array([-math.inf]), right=np.array([math.inf]))
            self._table.doubt(image, everything)
        self._goals.status[failed > 0] = TOO_SHARP


def samples(degree: int) -> int:
    """Return the number of evaluations of a polynomial."""
    return degree + 1 + CHECKS


def polynomials(problem: SearchProblem, parts: AxisParts, degree: int) -> tuple[Interpolants, Mask]:
    """Return polynomials of a degree for the scores in parts (p,) of axes, and in which only rounding is left."""
    count, seeds = len(parts), problem.image_seeds[parts.image]
    checks = [uniform(seeds, parts.left, parts.right, np.full(count, number)) for number in range(CHECKS)]
    x = np.column_stack([np.tile(lobatto_nodes(degree), (count, 1)), *(2 * share - 1 for share in checks)])
    part, _ = repeated(np.full(count, samples(degree)))
    scores = problem.scores_at(parts.image[part], parts.at(part, x.ravel())).unflatten(0, x.shape)
    device = scores.device
    at_nodes, at_checks = scores.split([degree + 1, CHECKS], dim=1)
    coefficients = constant(coefficients_from, device, lobatto_nodes, degree)[: degree + 1] @ at_nodes.flatten(2)
    sizes = coefficients.abs().amax(dim=2)
    errors = torch.zeros(3, count, dtype=torch.float64, device=device)
    fitted = Interpolants(
        image=on_device(parts.image, device), coefficients=coefficients.unflatten(2, scores.shape[2:]), errors=errors
    )
    expected = fitted.scores(torch.arange(count, device=device), on_device(x[:, degree + 1 :], device))
    missed = (at_checks - expected).abs().flatten(1).amax(dim=1)
    errors[0] = SAFETY * torch.maximum(sizes[:, -2:].sum(dim=1), missed)
    errors[2] = ROUNDING * sizes.sum(dim=1)
    return fitted, (errors[0] <= errors[2]).cpu().numpy()


def to_refine(parts: AxisParts, found: Segments, final: Mask) -> tuple[Segments, Segments]:
    """Return what was found in parts (p,) of axes without the zones that are most of a part, and halves of these.

    ``final`` (p,) says in which parts only rounding is left: their zones stay.
    """
    start, end = np.full(len(found), np.inf), np.full(len(found), -np.inf)
    np.minimum.at(start, found.zone, found.left)
    np.maximum.at(end, found.zone, found.right)
    most = (end - start)[found.zone] > MOST_OF_IT * parts.width[found.piece]
    most &= ~final[found.piece] & (found.kind != INSIDE)
    zone, first = np.unique(found.zone[most], return_index=True)
    image, left, right = np.tile(found.image[most][first], 2), start[zone], end[zone]
    middle = (left + right) / 2
    halves = unexplored(image, np.append(left, middle), np.append(middle, right))
    return replace(found, piece=np.where(final[found.piece], FINAL, REFINED)).take(~most), halves


def cut(parts: AxisParts, widest: Floats) -> AxisParts:
    """Return parts of axes cut into equal ones that are no wider than this (k,) for each image."""
    count = np.ceil(parts.width / widest[parts.image]).astype(np.int64)
    part, place = repeated(count)
    left = parts.left[part] + place / count[part] * parts.width[part]
    last = place == count[part] - 1
    return AxisParts(
        image=parts.image[part], left=left, right=np.where(last, parts.right[part], np.append(left[1:], 0.0))
    )


def _rounding(left: Floats, right: Floats) -> Floats:
    """Return how far apart rounding may put what is one breakpoint, for parts of the axis with these ends."""
    return np.asarray(NARROWEST * np.spacing(np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))))


def _distinct(pieces: AxisParts, z: Floats) -> Integers:
    """Return the indices of pieces (m,) around points z (m,), sorted, each once, without those that are empty."""
    order = order_by_owner(pieces.image, z)
    first, second = order[:-1], order[1:]
    again = np.zeros(len(z), dtype=np.bool_)
    again[1:] = (pieces.image[first] == pieces.image[second]) & (pieces.right[first] >= z[second])
    return order[~again & (pieces.width > 0)[order] & np.isfinite(pieces.width)[order]]


def _joined(pieces: AxisParts, unknown: AxisParts, part: Integers) -> AxisParts:
    """Return sorted pieces (p,) in unknown parts (p,) of axes, without the gaps around them that rounding makes.

    A gap has as good as no mass, but so may all that is inside have under another mean.
    """
    same = part[1:] == part[:-1]
    before, after = unknown.left[part], unknown.right[part]
    before[1:] = np.where(same, pieces.right[:-1], before[1:])
    most = _rounding(pieces.left, pieces.right)
    left = np.where(pieces.left - before <= most, before, pieces.left)
    last = np.append(~same, np.ones(min(len(part), 1), dtype=np.bool_))
    right = np.where(last & (after - pieces.right <= most), after, pieces.right)
    return AxisParts(image=pieces.image, left=left, right=right)


def _rest(unknown: AxisParts, pieces: AxisParts, part: Integers) -> Segments:
    """Return what is left of unknown parts of axes around the pieces (p,) that were found in them, each in one (p,)."""
    owner = np.unique(part)
    number = np.concatenate([owner, part])
    starts = np.concatenate([unknown.left[owner], pieces.right])
    ends = np.concatenate([unknown.right[owner], pieces.left])
    starts, ends = (values[order_by_owner(number, values)] for values in (starts, ends))
    rest = np.flatnonzero(starts < ends)
    return unexplored(unknown.image[np.sort(number)[rest]], starts[rest], ends[rest])
