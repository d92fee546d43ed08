"""attentest's own search: interpolate the smooth scores, decide on the interpolant, refine what moves p.

The raw scores of an image are smooth along its line; only what follows, min-max and the threshold, has kinks. So the
scores are interpolated on pieces of the z axis (``pieces``), and where the interpolated region is the observed one is
worked out without calling the model (``cells``). What the interpolation error leaves undecided is kept in a ledger,
which knows how far each zone can move the p-value (``ledger``). Each round evaluates the model for the zones that
matter and for no others, for all images together, until the error bar of every image is narrow enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError
from attentest.search.outcome import CONVERGED, DECIDED, OUT_OF_EVALUATIONS, OUT_OF_PRECISION, Report, SearchOutcome
from attentest.search.problem import SearchProblem
from attentest.search.spectral.cells import Parts, inside_and_undecided
from attentest.search.spectral.chebyshev import SIZE
from attentest.search.spectral.evaluations import Evaluations, Requests
from attentest.search.spectral.goals import END_RTOL, Goals, P
from attentest.search.spectral.lattice import lattice, lattice_width
from attentest.search.spectral.pieces import (
    LEBESGUE,
    ROUNDING,
    Pieces,
    corrected_pieces,
    correction_points,
    fresh_pieces,
    fresh_points,
)
from attentest.search.spectral.plan import Fresh, Plan, plan_for
from attentest.search.spectral.segments import (
    INSIDE,
    NO_PIECE,
    UNDECIDED,
    UNEXPLORED,
    Floats,
    Integers,
    Ledger,
    Mask,
    Segments,
    Zones,
    unexplored,
)
from attentest.statistics.intervals import Intervals, contains, union

CENTRE = 2.0
"""Pieces up to here from zero are explored first, with those at z_obs: they hold most of the mass."""

FARTHER = math.log(1e-4)
"""Pieces of less than this share of the mass of the heaviest unexplored one wait, unless few were explored before: it
may make them needless."""

FAR_OUT = 50.0
"""With what is more extreme than z_obs so many logs lighter than the rest, |z_obs| above ten or so, it is explored
first: two or three pieces of dozens."""

FARTHEST_OUT = 1e4
"""A confidence interval that depends on what happens farther than this from z_obs is as wide as it can be."""

WIDENED_RATE, MOST_WIDENED = 0.15, 8
"""Where coefficients fall so fast that they would still fall at this rate in wider pieces, wider pieces are used, at
most by this factor at a time. The rate is proportional to the width."""

LEFT_OVER = 0.4
"""Share of the tolerance that may be left in zones that are not refined."""

STALLED = 4
"""A zone that has not improved so many times will not improve."""

CLOSE = 1e-7
"""Distance, relative to z_obs, at which smooth scores differ from a straight line by less than rounding."""

NOISE_AT_MOST = 1e8
"""Times the rounding error of float64: what is rougher than float32 noise is a feature of the scores."""

DECISION_SHARE = 0.25
"""In decision mode, the error bar aimed at as a share of the distance between p and alpha."""

EXACT_BELOW = 300.0
"""Fresh pieces are made from exact scores where the error to improve on is within this factor of the noise of the
rough ones."""

POINTS_AN_IMAGE = 4
"""That an image asks for in a late round: enough images are searched together to fill a batch then."""

Precision = Literal["auto", "float64", "mixed"]


@dataclass(frozen=True, kw_only=True)
class SpectralSearch:
    """Piecewise Chebyshev interpolation of the scores, refined until the error bar of p is narrow enough.

    The error bar covers what the interpolation error leaves undecided, what was not explored and the tails. The
    interpolation error is an estimate, from the decay of the coefficients and from points that are not nodes; a
    feature of the scores much narrower than the distance of the nodes (a fifth of ``width``) may escape it.

    Parameters
    ----------
    tol
        Width of the error bar of p at which to stop.
    rtol
        The same relative to p: the search stops when either is reached. With ``tol=0`` it resolves p of any size.
    max_evaluations
        Model evaluations an image. When they are used up the error bar is what it is, and the status says so.
    width
        Width on the z axis of the pieces it starts with.
    precision
        "float64", or "mixed": explore with the model's fast rough scores, and use exact ones wherever a decision
        depends on it. "auto" is mixed where that is faster. A model that has no rough scores is read in float64.
    """

    tol: float = 1e-6
    rtol: float = 0.0
    max_evaluations: int = 10_000
    width: float = 2.5
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        for name in ("tol", "rtol"):
            value = real_number(getattr(self, name), name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be at least 0 and less than 1, got {value}.")
            object.__setattr__(self, name, value)
        if self.tol == self.rtol == 0:
            raise InputError("tol and rtol cannot both be 0: no finite number of evaluations gives p exactly.")
        object.__setattr__(self, "width", positive_number(self.width, "width"))
        budget = whole_number(self.max_evaluations, "max_evaluations", 64, 10**15)
        object.__setattr__(self, "max_evaluations", budget)
        if self.precision not in get_args(Precision):
            raise InputError(f"precision must be 'auto', 'float64' or 'mixed', got {self.precision!r}.")

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters."""
        return {"name": "spectral", **{field.name: getattr(self, field.name) for field in fields(self)}}

    def images_together(self, batch_size: int) -> int:
        """Return a share of the batch size: an image asks for some thirty points first and for a few in the end."""
        return math.ceil(batch_size / POINTS_AN_IMAGE)

    @torch.no_grad()
    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""
        return _Exploration(self, problem).run(report)


class _Exploration:
    """The search of k images under way."""

    def __init__(self, search: SpectralSearch, problem: SearchProblem) -> None:
        self._search = search
        self._problem = problem
        self._count = len(problem.z_obs)
        self._exact = Evaluations(problem, rough=False)
        everyone = np.arange(self._count)
        if problem.observed is None:
            observed = self._exact.at(everyone, problem.z_obs)
        else:
            observed = problem.observed
            self._exact.know(everyone, problem.z_obs, observed)
        self._rough: Evaluations | None = None
        self._noise = np.zeros(self._count)
        mixed = search.precision == "mixed" or (search.precision == "auto" and problem.rough_is_faster)
        if mixed and problem.rough_scores is not None:
            self._rough = Evaluations(problem, rough=True)
            difference = self._rough.at(everyone, problem.z_obs) - observed
            self._noise = 4 * difference.abs().amax(dim=(1, 2)).cpu().numpy()
        self._jitter = np.zeros(self._count) if problem.exact else self._measured_jitter(observed)
        self._points_together = self._affordable_points(problem, observed)
        self._ledger = Ledger(problem.z_obs, problem.alternative)
        confidence_level = problem.confidence_level if problem.alpha is None else None
        self._goals = Goals(self._ledger, problem.z_obs, confidence_level)
        self._width = lattice_width(problem.z_obs, search.width)
        self._ledger.add(lattice(problem.z_obs, self._width))
        self._pieces: Pieces | None = None
        self._status: list[str | None] = [None] * self._count
        self._explored = np.zeros(self._count, dtype=np.int64)

    def _measured_jitter(self, observed: torch.Tensor) -> Floats:
        """Return how far scores next to z_obs are from a straight line, where noise alone explains it.

        Curvature grows with the square of the distance, noise does not.
        """
        everyone = np.arange(self._count)
        largest = observed.abs().amax(dim=(1, 2)).cpu().numpy()
        jitter = self._bend(observed, everyone, CLOSE)
        doubtful = everyone[jitter > ROUNDING * largest]
        if len(doubtful):
            farther = self._bend(observed, doubtful, 4 * CLOSE)
            jitter[doubtful[farther > 8 * jitter[doubtful]]] = 0.0
        return jitter

    def _bend(self, observed: torch.Tensor, images: Integers, distance: float) -> Floats:
        z_obs = self._problem.z_obs[images]
        near = distance * np.maximum(1.0, np.abs(z_obs))
        around = self._exact.at(images, z_obs - near) + self._exact.at(images, z_obs + near)
        bend = around / 2 - observed[torch.from_numpy(images).to(observed.device)]
        return np.array(bend.abs().amax(dim=(1, 2)).cpu().numpy())

    @staticmethod
    def _affordable_points(problem: SearchProblem, observed: torch.Tensor) -> int:
        first = torch.zeros(1, dtype=torch.int64, device=observed.device)
        pixels = problem.margins.pixels(first, observed[:1]).shape[1]
        bytes_a_point = 8 * (8 * pixels + 2 * SIZE * observed[0].numel())
        return max(64, problem.memory // bytes_a_point)

    @property
    def _evaluations(self) -> Integers:
        return self._exact.counts if self._rough is None else self._exact.counts + self._rough.counts

    @property
    def _active(self) -> Mask:
        return self._goals.active

    @property
    def _for_p(self) -> Mask:
        return np.asarray(self._goals.current == P)

    def run(self, report: Report | None) -> list[SearchOutcome]:
        """Refine until every image is done."""
        first = True
        reported = 0.0
        while True:
            self._goals.take_aim()
            log_low, log_high = self._ledger.log_bounds()
            self._finish(log_low, log_high)
            if report is not None:
                reported = max(reported, self._share_done(log_low, log_high))
                report(reported)
            if not self._active.any():
                return self._outcomes()
            if self._goals.moved:
                continue
            zones = self._ledger.zones(log_high)
            aim = self._aim(log_low, log_high)
            plan = self._plan(self._chosen(zones, aim, first), aim)
            if plan is not None:
                self._carry_out(plan)
            first = False

    def _finish(self, log_low: Floats, log_high: Floats) -> None:
        """Note which images have reached their goal."""
        low, high = np.exp(log_low), np.exp(log_high)
        tol, rtol = self._tolerances()
        narrow = (high - low <= tol) & (tol > 0)
        with np.errstate(invalid="ignore"):  # p is nothing at all
            narrow |= log_high - log_low <= np.log1p(rtol)
        self._retire(narrow, CONVERGED)
        if self._problem.alpha is not None:
            self._retire(self._for_p & ((low > self._problem.alpha) | (high <= self._problem.alpha)), DECIDED)

    def _tolerances(self) -> tuple[Floats, Floats]:
        """Return the absolute and the relative width (k,) of the error bar at which each image has its goal."""
        return np.where(self._for_p, self._search.tol, 0.0), np.where(self._for_p, self._search.rtol, END_RTOL)

    def _retire(self, images: Mask, status: str) -> None:
        """Leave what some images were searched for, for a reason; what comes next is worth while if all went well."""
        images = self._active & images
        for image in np.flatnonzero(images & self._for_p):
            self._status[image] = status
        out_of_evaluations = status == OUT_OF_EVALUATIONS
        if status == CONVERGED:
            self._goals.advance(images)
        else:
            self._goals.advance(images & ~self._for_p)
            self._goals.end(images & (self._for_p | out_of_evaluations))

    def _share_done(self, log_low: Floats, log_high: Floats) -> float:
        """Return how far the error bars have come, on a log scale."""
        width = np.exp(log_high) - np.exp(log_low)
        least = self._search.tol or self._search.rtol
        share = np.log(np.clip(width, least, 1.0)) / math.log(least)
        return float(np.where(self._for_p, np.minimum(share, 0.9), np.where(self._active, 0.95, 1.0)).mean())

    def _aim(self, log_low: Floats, log_high: Floats) -> Floats:
        """Return how much error bar may be left in zones that are not refined now, as a share of the upper bound."""
        low, high = np.exp(log_low), np.exp(log_high)
        stop, rtol = self._tolerances()
        if self._problem.alpha is not None:  # then there is no other goal than p
            stop = np.maximum(stop, DECISION_SHARE * np.abs((low + high) / 2 - self._problem.alpha))
        relative = rtol * np.exp(log_low - log_high)
        return LEFT_OVER * np.maximum(relative, stop / np.maximum(high, np.finfo(np.float64).tiny))

    def _chosen(self, zones: Zones, aim: Floats, first: bool) -> Zones:
        """Return the zones to refine: the fewest that leave less than ``aim`` of error bar in the others."""
        image = zones.image
        workable = self._active[image] & np.isfinite(zones.left) & np.isfinite(zones.right) & ~self._hopeless(zones)
        fresh = zones.piece == NO_PIECE
        z_obs = self._problem.z_obs[image]
        at_obs = (zones.left <= z_obs) & (zones.right >= z_obs)
        if first:
            chosen = workable & (at_obs | (zones.left < CENTRE) & (zones.right > -CENTRE))
            np.add.at(self._explored, image[chosen], 1)
            return zones.chosen(chosen)
        # Before any of Z is known there is nothing to compare masses with, and it is known best at z_obs.
        here = np.bincount(image[at_obs & workable], minlength=self._count) > 0
        blind = here & ~self._ledger.anything_inside()
        beyond = _beyond(zones, aim)
        needed = workable & np.where(blind[image], at_obs, beyond)
        chosen = needed & (~fresh | at_obs | self._first_to_explore(zones, needed & fresh))
        busy = chosen | self._reach_out(zones, beyond)
        idle = self._active & (np.bincount(image[busy], minlength=self._count) == 0)
        self._retire(idle, OUT_OF_PRECISION)
        return zones.chosen(chosen)

    def _reach_out(self, zones: Zones, beyond: Mask) -> Mask:
        """Extend the lattice where an end of a confidence interval depends on a tail; return which tails."""
        inner = np.where(np.isfinite(zones.left), zones.left, zones.right)
        distance = inner - self._problem.z_obs[zones.image]
        tails = np.isinf(zones.left) | np.isinf(zones.right)
        tails &= beyond & (self._active & ~self._for_p)[zones.image] & (np.abs(distance) < FARTHEST_OUT)
        if tails.any():
            image, inner, distance = zones.image[tails], inner[tails], distance[tails]
            outer = inner + np.copysign(np.maximum(np.abs(distance), self._width[image]), distance)
            self._ledger.keep(~np.isin(self._ledger.segments.zone, zones.zone[tails]))
            self._ledger.add(unexplored(image, np.minimum(inner, outer), np.maximum(inner, outer)))
            lower = distance < 0
            self._ledger.add(unexplored(image, np.where(lower, -np.inf, outer), np.where(lower, outer, np.inf)))
        return np.asarray(tails)

    def _first_to_explore(self, zones: Zones, candidates: Mask) -> Mask:
        """Tell which unexplored zones to explore first: the heaviest, half as many as were explored before.

        With z_obs far out, what is more extreme is far lighter than the rest, and only few zones; once these are
        known, the rest may no longer matter.
        """
        heaviest, extreme = np.full(self._count, -np.inf), np.full(self._count, -np.inf)
        np.maximum.at(heaviest, zones.image[candidates], zones.log_mass[candidates])
        np.maximum.at(extreme, zones.image[candidates], zones.log_extreme[candidates])
        far_out = (extreme > -np.inf) & (extreme < heaviest - FAR_OUT)
        outer = candidates & far_out[zones.image] & (zones.log_extreme >= (extreme + FARTHER)[zones.image])
        return outer | self._heaviest(zones, candidates & ~far_out[zones.image])

    def _heaviest(self, zones: Zones, candidates: Mask) -> Mask:
        rows = np.flatnonzero(candidates)
        rows = rows[np.lexsort((-zones.log_mass[rows], zones.image[rows]))]
        image = zones.image[rows]
        starts = np.ones(len(rows), dtype=np.bool_)
        starts[1:] = image[1:] != image[:-1]
        first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
        close = zones.log_mass[rows] >= zones.log_mass[rows][first] + FARTHER
        heaviest = np.zeros(len(zones.zone), dtype=np.bool_)
        heaviest[rows] = close | (np.arange(len(rows)) - first < self._explored[image] // 2)
        np.add.at(self._explored, zones.image[heaviest], 1)
        return heaviest

    def _hopeless(self, zones: Zones) -> Mask:
        """Tell which zones no evaluation can make smaller."""
        narrow = zones.right - zones.left <= 16 * np.spacing(np.maximum(np.abs(zones.left), np.abs(zones.right)))
        hopeless = narrow | (zones.stalls >= STALLED)
        known = zones.piece != NO_PIECE
        if self._pieces is not None:
            piece = zones.piece[known]
            exact = self._pieces.floor[piece] <= self._pieces.rounding[piece]
            hopeless[known] |= exact & (self._pieces.error[piece] <= self._pieces.rounding[piece])
        return np.asarray(hopeless)

    def _plan(self, chosen: Zones, aim: Floats) -> Plan | None:
        """Return how to refine the chosen zones within the budget of each image; None if there is nothing to do."""
        plan = plan_for(self._ledger.segments, self._pieces, chosen, aim)
        after = self._evaluations.copy()
        np.add.at(after, plan.fresh.image, plan.fresh.degree + 2)
        if self._pieces is not None:
            np.add.at(after, self._pieces.image[plan.corrections.piece], plan.corrections.count)
        beyond = self._active & (after > self._search.max_evaluations)
        if beyond.any():
            self._retire(beyond, OUT_OF_EVALUATIONS)
            plan = plan_for(self._ledger.segments, self._pieces, chosen.chosen(~beyond[chosen.image]), aim)
        return plan if plan.replaced.any() else None

    def _carry_out(self, plan: Plan) -> None:
        """Evaluate the model, make the new pieces, and enter what they say."""
        new, distrusted = self._make(plan)
        self._ledger.keep(~plan.replaced)
        if self._pieces is None:
            self._pieces, first = new, 0
        else:
            self._pieces.refined[plan.refined] = True
            self._give_up_rough(plan)
            if len(distrusted):
                new = self._start_over(distrusted, new)
            first = len(self._pieces)
            self._pieces = self._pieces.followed_by(new)
        self._widen_unexplored(new)
        self._ledger.add(
            _segments(
                new, first, *inside_and_undecided(self._problem.margins, new.interpolants(), self._points_together)
            )
        )
        self._forget_pieces()

    def _widen_unexplored(self, explored: Pieces) -> None:
        """Merge neighbouring unexplored pieces of images whose scores are smoother than the pieces need.

        Only pieces as wide as the unexplored ones tell, so that each step is seen to be right before the next.
        """
        as_wide = explored.right - explored.left > 0.9 * self._width[explored.image]
        slowest = np.full(self._count, np.inf)
        slowest[explored.image[as_wide]] = 0.0
        np.maximum.at(slowest, explored.image[as_wide], explored.fall[as_wide])
        wider = WIDENED_RATE / np.maximum(slowest, 1e-3)
        together = 2 ** np.floor(np.log2(np.clip(wider, 1, MOST_WIDENED)))
        self._width *= together
        segments = self._ledger.segments
        merged = (segments.kind == UNEXPLORED) & np.isfinite(segments.left) & np.isfinite(segments.right)
        merged &= together[segments.image] > 1
        some = segments.chosen(merged)
        some = some.chosen(np.lexsort((some.left, some.image)))
        if len(some) == 0:
            return
        starts = np.ones(len(some), dtype=np.bool_)
        starts[1:] = (some.image[1:] != some.image[:-1]) | (some.left[1:] != some.right[:-1])
        place = np.arange(len(some)) - np.maximum.accumulate(np.where(starts, np.arange(len(some)), 0))
        first = place % together[some.image] == 0
        last = np.ones_like(first)
        last[:-1] = first[1:]
        self._ledger.keep(~merged)
        self._ledger.add(unexplored(some.image[first], some.left[first], some.right[last]))

    def _make(self, plan: Plan) -> tuple[Pieces, Pieces]:
        """Return the new pieces, and the old ones whose error turned out greater than they said."""
        exact = Requests(self._exact)
        rough = exact if self._rough is None else Requests(self._rough)
        fresh, corrections = plan.fresh, plan.corrections
        exploring = fresh.error_so_far > EXACT_BELOW * LEBESGUE * self._noise[fresh.image]
        jobs = []
        for degree in np.unique(fresh.degree):
            for roughly in (True, False):
                rows = np.flatnonzero((fresh.degree == degree) & (exploring == roughly))
                nodes, check = fresh_points(fresh.left[rows], fresh.right[rows], int(degree))
                image = fresh.image[rows]
                jobs.append((rows, roughly, (rough if roughly else exact).add(image, nodes), exact.add(image, check)))
        zones = []
        for count in np.unique(corrections.count):
            rows = np.flatnonzero(corrections.count == count)
            points = correction_points(corrections.left[rows], corrections.right[rows], int(count))
            zones.append((rows, exact.add(self._known.image[corrections.piece[rows]], points)))
        exact.send()
        rough.send()
        made, distrusted = [], []
        for rows, roughly, at_nodes, at_check in jobs:
            if len(rows):
                made.append(self._fresh_pieces(fresh, rows, roughly, at_nodes(), at_check()[:, 0]))
        for rows, values in zones:
            parents = self._known.chosen(corrections.piece[rows])
            corrected, surprising = corrected_pieces(parents, corrections.left[rows], corrections.right[rows], values())
            made.append(corrected)
            distrusted.append(parents.chosen(surprising))
        none = made[0].chosen(np.empty(0, dtype=np.int64))
        return _all_of(made), _all_of([none, *distrusted])

    def _fresh_pieces(
        self, fresh: Fresh, rows: Integers, roughly: bool, at_nodes: torch.Tensor, at_check: torch.Tensor
    ) -> Pieces:
        image = fresh.image[rows]
        noise = self._noise[image] if roughly else np.zeros(len(rows))
        degree = int(fresh.degree[rows[0]])
        stalls = fresh.stalls[rows]
        pieces = fresh_pieces(
            image,
            fresh.left[rows],
            fresh.right[rows],
            degree,
            at_nodes,
            at_check,
            noise,
            self._jitter[image],
            stalls,
        )
        so_far = fresh.error_so_far[rows]
        # A steep place is halved until it is resolved; only what may be noise is worth giving up for.
        steep = pieces.error > NOISE_AT_MOST * pieces.rounding
        helped = steep | (pieces.error + pieces.floor <= 0.5 * so_far)
        return replace(pieces, stalls=np.where(np.isinf(so_far), stalls, np.where(helped, 0, stalls + 1)))

    @property
    def _known(self) -> Pieces:
        assert self._pieces is not None  # asked for only where there are zones of pieces
        return self._pieces

    def _give_up_rough(self, plan: Plan) -> None:
        """Use exact scores from now on for images of which rough ones left a piece mostly undecided."""
        if self._rough is not None:
            pieces = self._known
            drowned = (pieces.floor > pieces.rounding) & (pieces.error < EXACT_BELOW * pieces.floor)
            self._noise[pieces.image[plan.anew[drowned[plan.anew]]]] = np.inf

    def _start_over(self, distrusted: Pieces, new: Pieces) -> Pieces:
        """Forget all that was concluded where a piece was wrong about its error; return the new pieces elsewhere."""
        widest_first = np.argsort(distrusted.left - distrusted.right)
        taken: list[tuple[int, float, float]] = []
        for row in widest_first:
            image, left, right = int(distrusted.image[row]), distrusted.left[row], distrusted.right[row]
            if any(image == i and left >= start and right <= end for i, start, end in taken):
                continue
            taken.append((image, left, right))
            segments = self._ledger.segments
            self._ledger.keep((segments.image != image) | (segments.left < left) | (segments.right > right))
            new = new.chosen((new.image != image) | (new.left < left) | (new.right > right))
            middle = (left + right) / 2
            stalls = np.full(2, distrusted.stalls[row] + 1)
            halves = np.array([left, middle]), np.array([middle, right])
            self._ledger.add(unexplored(np.full(2, image), *halves, stalls))
        return new

    def _forget_pieces(self) -> None:
        """Keep only the interpolants that zones still under way refer to."""
        segments = self._ledger.segments
        live = (segments.piece != NO_PIECE) & (segments.kind != INSIDE) & self._active[segments.image]
        used = np.zeros(len(self._known) + 1, dtype=np.bool_)
        used[segments.piece[live]] = True
        number = np.where(used, np.cumsum(used) - 1, NO_PIECE)
        segments.piece[:] = number[segments.piece]
        self._pieces = self._known.chosen(used[:-1])

    def _outcomes(self) -> list[SearchOutcome]:
        evaluations = self._evaluations
        outcomes = []
        for image, (found, certain, possible) in enumerate(self._ledger.sets()):
            z_obs = float(self._problem.z_obs[image])
            # z_obs belongs to Z by definition, though its part of it may be narrower than anything was resolved.
            itself = np.array([[np.nextafter(z_obs, -np.inf), np.nextafter(z_obs, np.inf)]])
            sets: list[Intervals] = [
                known if contains(known, z_obs) else union(known, itself) for known in (found, certain, possible)
            ]
            outcomes.append(
                SearchOutcome(
                    intervals=sets[0],
                    certain=sets[1],
                    possible=sets[2],
                    evaluations=int(evaluations[image]),
                    status=self._status[image] or CONVERGED,
                )
            )
        return outcomes


def _beyond(zones: Zones, aim: Floats) -> Mask:
    """Tell which zones cost more, together with the cheaper ones of their image, than its aim (k,)."""
    image = zones.image
    # In units of each image's greatest cost: those of images differ by hundreds of orders of magnitude.
    unit = np.full(len(aim), -np.inf)
    np.maximum.at(unit, image, zones.log_cost)
    cost = np.exp(zones.log_cost - np.where(unit > -np.inf, unit, 0.0)[image])
    sums = np.cumsum(cost)  # the least costs of an image come first
    starts = np.r_[True, image[1:] != image[:-1]]
    before = np.maximum.accumulate(np.where(starts, sums - cost, 0.0))
    with np.errstate(divide="ignore"):  # an aim of zero: all are needed
        limit = np.exp(np.log(aim) - np.where(unit > -np.inf, unit, 0.0))
    return np.asarray(sums - before > limit[image])


def _all_of(pieces: Sequence[Pieces]) -> Pieces:
    whole = pieces[0]
    for part in pieces[1:]:
        whole = whole.followed_by(part)
    return whole


def _segments(pieces: Pieces, first: int, inside: Parts, undecided: Parts) -> Segments:
    """Return what cells say about pieces, the first of which has number ``first``, as segments of the z axis."""
    piece, left, right, best_left, best_right = (column.cpu().numpy() for column in Parts.of([inside, undecided]))
    kind = np.where(np.arange(len(piece)) < len(inside.piece), INSIDE, UNDECIDED)
    order = np.lexsort((left, piece))
    piece, left, right, kind = piece[order], left[order], right[order], kind[order]
    best_left, best_right = best_left[order], best_right[order]
    # Parts that touch and are of one kind are a run: inside they become one segment, undecided a zone.
    starts = np.ones(len(piece), dtype=np.bool_)
    starts[1:] = (piece[1:] != piece[:-1]) | (left[1:] != right[:-1]) | (kind[1:] != kind[:-1])
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    inner = kind == INSIDE
    right[starts & inner] = right[ends & inner]
    kept = ~inner | starts
    best_right[inner] = right[inner]
    ends_on_axis = (pieces.at(piece, x)[kept] for x in (left, right, best_left, best_right))
    return Segments(
        **dict(zip(("left", "right", "best_left", "best_right"), ends_on_axis, strict=True)),
        image=pieces.image[piece][kept],
        kind=kind[kept],
        piece=first + piece[kept],
        zone=(np.cumsum(starts) - 1)[kept],
        stalls=pieces.stalls[piece][kept],
    )
