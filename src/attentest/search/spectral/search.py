"""attentest's own search: interpolate the smooth scores, decide on the interpolant, refine what moves p."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch

from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError
from attentest.search.problem import (
    CONVERGED,
    OUT_OF_EVALUATIONS,
    OUT_OF_PRECISION,
    TOO_SHARP,
    Audit,
    Report,
    SearchOutcome,
    SearchProblem,
)
from attentest.search.spectral.audit import AuditPoints, drawn
from attentest.search.spectral.goals import Goals
from attentest.search.spectral.interpolation import Interpolation
from attentest.search.spectral.lattice import Lattice, TrustedWidth
from attentest.search.spectral.pieces import NODES_PER_BUMP, Pieces
from attentest.search.spectral.plan import DEGREE, Chooser, Plan, plan_for
from attentest.search.spectral.segments import (
    INSIDE,
    NO_PIECE,
    PVALUES,
    AxisParts,
    LogBounds,
    SegmentTable,
    Zones,
    unexplored,
)
from attentest.statistics.columns import Floats, Integers, Mask
from attentest.statistics.truncation_set import Intervals, TruncationSet, Unions, union

SET_ASIDE = 0.25
"""Segments of images that are done leave the table when they are this share of it, so that none is copied often."""

AUDITED_PER_ACTIVE = 9
"""Images that are done are audited when they are this many times those that are not: what an audit contradicts is
searched again together with these, not after them, and audits stay few."""

AUDITED, AUDITED_STRICTLY = 0.06, 0.25
"""Number of audit points of an image, as a fraction of the evaluations before."""

STRICTER = 2.0  # a strict search begins with pieces that are narrower by this factor

POINTS_PER_IMAGE = 4
"""Points that an image needs in a late round: enough images are searched together to fill a batch then."""

LARGE_BATCH = 1024
"""Batches of this size or more are those of a GPU, where the work between model calls takes as long as the calls."""

LARGE_BATCHES_TOGETHER = 4
"""As many images are searched together there as make so many batches: the last rounds, for the few images that take
longest, cost the same however many images there were."""

Precision = Literal["auto", "float64", "mixed"]


@dataclass(frozen=True, kw_only=True)
class RefiningSearch:
    """What searches share that refine what is open on the axis until the error bar of p is narrow enough."""

    name: ClassVar[str]

    tol: float = 1e-6
    rtol: float = 0.0
    max_evaluations: int = 10_000

    def __post_init__(self) -> None:
        for name in ("tol", "rtol"):
            value = real_number(getattr(self, name), name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be at least 0 and less than 1, got {value}.")
            object.__setattr__(self, name, value)
        if self.tol == self.rtol == 0:
            raise InputError("tol and rtol cannot both be 0: no finite number of evaluations gives p exactly.")
        budget = whole_number(self.max_evaluations, "max_evaluations", 64, 10**15)
        object.__setattr__(self, "max_evaluations", budget)

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters."""
        return {"name": self.name, **asdict(self)}


class Refinement(ABC):
    """A search of k images under way; ``width`` (k,) is that of the parts into which their axes are cut at first."""

    def __init__(self, problem: SearchProblem, search: RefiningSearch, width: Floats) -> None:
        self._problem = problem
        self._goals = Goals(problem, search.tol, search.rtol)
        self._lattice = Lattice(problem.law, width)
        self._table = SegmentTable(problem.law, problem.alternative)
        self._table.add(self._lattice.segments())
        self._audited, self._contradictions = np.zeros((2, len(problem.law)), dtype=np.int64)

    def outcomes(self, report: Report | None) -> list[SearchOutcome]:
        """Go on until every image is done and no audit contradicts what was concluded."""
        reported = 0.0
        while True:
            self._goals.update(self._table)
            bounds = self._table.log_bounds()
            while (for_ends := self._goals.finish(self._table, bounds)).any():
                self._ask_for_ends(for_ends)
                bounds = self._table.log_bounds()
            if report is not None:
                reported = max(reported, self._goals.fraction_done(bounds))
                report(reported)
            if self._done(bounds):
                return self._outcomes()

    @abstractmethod
    def evaluations(self) -> Integers:
        """Return the number of model evaluations (k,) so far."""

    @abstractmethod
    def _done(self, bounds: LogBounds) -> bool:
        """Refine what is open, or audit what was concluded; return whether nothing is left to do."""

    def _ask_for_ends(self, images: Mask) -> None:
        self._goals.ask_for_ends(self._table, images)

    def _outcomes(self) -> list[SearchOutcome]:
        z_obs = self._problem.z_obs
        sets = [_with_points(unions, z_obs) for unions in self._table.unions(np.ones(len(z_obs), dtype=np.bool_))]
        counts = (values.tolist() for values in (self.evaluations(), self._audited, self._contradictions))
        audit = cache(Audit)  # few differ, and the garbage collector looks through every object that results keep
        return [
            SearchOutcome(
                truncation_set=TruncationSet(intervals=intervals, certain=certain, possible=possible),
                evaluations=evaluations,
                status=status or CONVERGED,
                audit=audit(points=points, contradictions=contradictions),
            )
            for intervals, certain, possible, evaluations, points, contradictions, status in zip(
                *sets, *counts, self._goals.status, strict=True
            )
        ]


def _with_points(unions: Unions, z: Floats) -> list[Intervals]:
    """Return sets that contain points z (k,), which belong to them by definition however little was resolved."""
    sets = unions.arrays()
    for row in np.flatnonzero(~unions.contain(z)).tolist():
        around = np.array([[np.nextafter(z[row], -np.inf), np.nextafter(z[row], np.inf)]])
        sets[row] = union(sets[row], around)
    return sets


@dataclass(frozen=True, kw_only=True)
class SpectralSearch(RefiningSearch):
    """Piecewise Chebyshev interpolation of the scores, refined until the error bar of p is narrow enough.

    The error bar covers what the interpolation error leaves undecided, what was not explored, and the tails. The
    interpolation error is an estimate, from the decay of the coefficients and from points that are not nodes. Nothing
    is concluded where the coefficients do not fall, and what was concluded is checked at random points before the
    status becomes "converged". A bump of the scores with a standard deviation below ``width / 25`` can still escape;
    far from z_obs and from zero, where an end of an interval depends on it but p does not, one of six times that.

    Parameters
    ----------
    tol
        Width of the error bar of p at which to stop.
    rtol
        The same relative to p: the search stops when either is reached. With ``tol=0`` it resolves p of any size.
    max_evaluations
        Most model evaluations per image. If they are used up before the tolerance is reached, the status says so.
    width
        Width on the z axis of the first pieces, in standard deviations of z.
    strict
        Whether to take pieces of half the width, for intervals too, and more audit points: 1.7 times the evaluations of
        p on trained models.
    precision
        "float64", or "mixed": explore with the model's fast rough scores, and use exact ones wherever a decision
        depends on them. "auto" is mixed where that is faster. A model without rough scores is evaluated in float64.
    """

    name: ClassVar[str] = "spectral"

    width: float = 2.5
    strict: bool = False
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive_number(self.width, "width"))
        if not isinstance(self.strict, bool):
            raise InputError(f"strict must be True or False, got {self.strict!r}.")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision must be 'auto', 'float64' or 'mixed', got {self.precision!r}.")

    def images_together(self, batch_size: int) -> int:
        """Return how many images to search together: each needs some thirty points at first and few in the end."""
        if batch_size >= LARGE_BATCH:
            return LARGE_BATCHES_TOGETHER * batch_size
        return math.ceil(batch_size / POINTS_PER_IMAGE)

    @torch.no_grad()
    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""
        return Run(problem, self).outcomes(report)


class Run(Refinement):
    """A spectral search of k images under way."""

    def __init__(self, problem: SearchProblem, search: SpectralSearch) -> None:
        first_width = problem.law.spread * (search.width / (STRICTER if search.strict else 1))
        super().__init__(problem, search, first_width)
        self._search = search
        mixed = search.precision == "mixed" or (search.precision == "auto" and problem.rough_is_faster)
        self._interpolation = Interpolation(problem, mixed, first_width / NODES_PER_BUMP)
        self._pieces = self._interpolation.no_pieces
        self._chooser = Chooser(problem.law)
        self._trusted = TrustedWidth(self._lattice.reach)
        count = len(problem.law)
        self._unaudited, self._came_back = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        self._audit_share = AUDITED_STRICTLY if search.strict else AUDITED
        self._looks = np.zeros(count, dtype=np.int64)

    def evaluations(self) -> Integers:
        """Return the number of model evaluations (k,) so far."""
        return self._interpolation.evaluations

    def _ask_for_ends(self, images: Mask) -> None:
        # Scores that are sharp somewhere may be so farther out as well.
        in_wider_pieces = images & np.isinf(self._trusted.widest) & (not self._search.strict)
        self._lattice.join_tails(self._table, in_wider_pieces)
        super()._ask_for_ends(images)

    def _done(self, bounds: LogBounds) -> bool:
        active = np.count_nonzero(self._goals.active)
        waiting = np.count_nonzero(self._unaudited & ~self._goals.active)
        if active == 0 or waiting >= AUDITED_PER_ACTIVE * active:
            self._table.bring_back()
            return not (self._contradicted() or self._goals.active.any() or self._widened())
        done = ~self._goals.active
        if np.count_nonzero(done[self._table.segments.image]) > SET_ASIDE * len(self._table.segments):
            self._table.set_aside(done)
        plan = self._ask(bounds)
        if plan.replaced.any():
            self._tell(plan, *self._interpolation.carry_out(plan, self._pieces))
        return False

    def _ask(self, bounds: LogBounds) -> Plan:
        """Return which zones to refine in this round, and how."""
        allowed = self._goals.allowed_error(bounds)
        zones = self._table.zones(allowed, self._goals.active)
        tails = self._chooser.tails(zones, self._goals)
        if len(tails):
            self._lattice.extend(self._table, tails)
            zones = self._table.zones(allowed, self._goals.active)
        anything_inside = self._table.anything_inside()
        zones, idle = self._chooser.choose(zones, self._pieces, self._goals, anything_inside=anything_inside)
        # What a tail that was cut still holds may be all that matters; then it is cut again in the next round.
        idle &= np.bincount(tails.image, minlength=len(idle)) == 0
        self._goals.end(idle, OUT_OF_PRECISION)
        return self._affordable(zones)

    def _affordable(self, zones: Zones) -> Plan:
        """Return the plan for zones, without the images whose evaluations it would use up."""
        plan = plan_for(self._table.segments, self._pieces, zones)
        needed = np.zeros(len(self._unaudited))
        np.add.at(needed, plan.fresh.image, plan.fresh.degree + 2 + 4 * plan.fresh.probed)
        zones_corrected, points = plan.corrected
        np.add.at(needed, zones_corrected.image, points)
        beyond = self._goals.active & (needed > self._evaluations_left)
        if beyond.any():
            self._goals.end(beyond, OUT_OF_EVALUATIONS)
            zones = zones.take(~beyond[zones.image])
            plan = plan_for(self._table.segments, self._pieces, zones)
        return plan

    def _tell(self, plan: Plan, new: Pieces, underestimated: Pieces) -> None:
        """Replace the segments of a plan by those of the new pieces."""
        self._table.remove(plan.replaced)
        if len(self._pieces):
            refined = self._pieces.refined.copy()
            refined[plan.refined] = True
            self._pieces = replace(self._pieces, refined=refined)
            self._interpolation.use_exact_scores(self._pieces, plan.redone)
        new = self._start_over(underestimated, new)
        first = len(self._pieces)
        self._pieces = Pieces.concatenated([self._pieces, new])
        self._lattice.widen(self._table, new)
        self._table.add(self._interpolation.segments(new, first))
        self._narrow(self._trusted.learn(new))
        self._drop_unused_pieces()

    def _contradicted(self) -> bool:
        """Audit what was concluded about images that are done; return whether something must be searched again."""
        points = self._audit_points()
        if len(points) == 0:
            return False
        wrong, noisier = self._interpolation.check(points, self._pieces)
        count = len(self._unaudited)
        self._audited += np.bincount(points.image, minlength=count)
        self._contradictions += np.bincount(points.image[wrong], minlength=count)
        again = noisier.copy()
        again[points.image[wrong]] = True
        self._lattice.part_tails(self._table, again)
        self._goals.reopen(self._table, again)
        self._unaudited |= again
        wrong &= ~noisier[points.image]
        doubted = self._trusted.pieces_at(points.image[wrong], points.z[wrong])
        anew = [self._trusted.parts_wider(image, 0.0) for image in map(int, np.flatnonzero(noisier))]
        self._explore_again(AxisParts.concatenated([*anew, doubted]))
        halved = np.full(count, np.inf)
        np.minimum.at(halved, doubted.image, doubted.width / 2)
        self._lattice.cut(self._table, halved)
        return bool(again.any())

    def _widened(self) -> bool:
        """Search again for p where that for the interval has widened its bar; return whether there is any.

        Each image comes back once at most. If its bar is too wide then, too, it ends as one that cannot be resolved.
        """
        if not self._goals.with_ends:
            return False
        again = self._goals.reopen_widened(self._table, np.ones(len(self._unaudited), dtype=np.bool_))
        self._goals.end(again & self._came_back, OUT_OF_PRECISION)
        self._came_back |= again
        return bool(self._goals.active.any())

    def _audit_points(self) -> AuditPoints:
        """Draw the points of an audit of the images that are done, from the laws of all their goals."""
        done = ~self._goals.active
        images = self._unaudited & self._goals.sure & done
        self._unaudited &= ~done
        count = np.where(images, np.ceil(self._audit_share * self.evaluations()), 0).astype(np.int64)
        laws = 1 + PVALUES if self._goals.with_ends else 1

        def points(number: int, pvalue: int) -> AuditPoints:
            share = (count + laws - 1 - number) // laws
            return drawn(self._table, pvalue, share, self._problem.image_seeds, laws * self._looks + number)

        self._goals.ask_for_p(self._table, images)
        drawn_points = [points(0, 0)]
        if self._goals.with_ends:
            self._goals.ask_for_ends(self._table, images)
            drawn_points += [points(1 + pvalue, pvalue) for pvalue in range(PVALUES)]
        self._looks += images
        return AuditPoints.concatenated(drawn_points)

    def _narrow(self, images: Mask) -> None:
        """Explore again, in narrower pieces, what was concluded from pieces wider than is trusted now."""
        if not images.any():
            return
        widest = np.where(images, self._trusted.widest, np.inf)
        least_share = self._search.tol or np.finfo(np.float64).tiny
        again = []
        for image in map(int, np.flatnonzero(images)):
            parts = self._trusted.parts_wider(image, widest[image])
            matter = self._table.log_shares(image, parts) > np.log(least_share)  # to p
            needed = parts.width[matter].sum() / widest[image] * (DEGREE + 1)
            if needed > self._evaluations_left[image]:
                self._table.doubt(image, parts)
                self._goals.end(np.arange(len(images)) == image, TOO_SHARP)
                widest[image] = np.inf
            else:
                again.append(parts)
        if again:
            self._explore_again(AxisParts.concatenated(again))
        self._lattice.cut(self._table, widest)

    @property
    def _evaluations_left(self) -> Floats:
        """Number of evaluations (k,) that are left, if an audit follows."""
        budget = self._search.max_evaluations / (1 + self._audit_share)
        return np.asarray(budget - self.evaluations(), dtype=float)

    def _explore_again(self, parts: AxisParts) -> None:
        """Forget all that was concluded about parts of the axes."""
        parts = parts.take(parts.outermost())
        self._table.remove(parts.contain(self._table.segments))
        self._table.add(unexplored(parts.image, parts.left, parts.right))

    def _start_over(self, underestimated: Pieces, new: Pieces) -> Pieces:
        """Remove all that was concluded where a piece was wrong about its error; return the new pieces elsewhere."""
        if len(underestimated) == 0:
            return new
        parts = underestimated.take(underestimated.outermost())
        self._table.remove(parts.contain(self._table.segments))
        self._table.add(unexplored(parts.image, parts.left, parts.middle, parts.stalls + 1))
        self._table.add(unexplored(parts.image, parts.middle, parts.right, parts.stalls + 1))
        return new.take(np.flatnonzero(~parts.contain(new)))

    def _drop_unused_pieces(self) -> None:
        """Drop the interpolants that no open zone of an active image refers to, if all together take much memory.

        They are of use to the audit, which can do without them.
        """
        if self._pieces.coefficients.numel() * 8 <= self._problem.memory // 4:
            return
        segments = self._table.segments
        live = (segments.piece != NO_PIECE) & (segments.kind != INSIDE) & self._goals.active[segments.image]
        used = np.zeros(len(self._pieces) + 1, dtype=np.bool_)
        used[segments.piece[live]] = True
        self._table.renumber_pieces(np.where(used, np.cumsum(used) - 1, NO_PIECE))
        self._pieces = self._pieces.take(used[:-1])
