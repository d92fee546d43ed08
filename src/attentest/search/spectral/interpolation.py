"""Carrying out the plan of a round: evaluate the model and make the new interpolants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from attentest.search.problem import Points, SearchProblem, on_device
from attentest.search.spectral.audit import AuditPoints, uniform
from attentest.search.spectral.cells import Parts, inside_and_undecided, least_distances
from attentest.search.spectral.chebyshev import SIZE, SLOWEST
from attentest.search.spectral.evaluations import Evaluations
from attentest.search.spectral.pieces import (
    LEBESGUE,
    Fresh,
    NodeScores,
    Pieces,
    corrected_pieces,
    correction_points,
    fresh_pieces,
    measured_jitter,
    rough_noise,
)
from attentest.search.spectral.plan import Plan
from attentest.search.spectral.segments import INSIDE, UNDECIDED, AxisParts, Segments
from attentest.statistics.columns import Floats, Integers, Mask, run_ends

NOISE_AT_MOST = 1e8
"""Errors above this many times the rounding error of float64 are features of the scores, not noise: rougher than
float32."""

EXACT_BELOW = 150.0
"""Fresh pieces are made from exact scores where the error to improve on is within this factor of the noise of the
rough ones."""

MOST_REDONE = 8  # so many pieces of an image are made from rough scores in vain before they are given up

FLOORS = 30.0
"""An interpolant is contradicted by a score that is farther off than its error and this many times its rounding error:
models that amplify rounding are not at fault."""

VERIFIED = 3  # one of so many rough scores at check and audit points has its noise measured


class Interpolation:
    """The scores of k images and interpolants of them.

    Parameters
    ----------
    problem
        What is searched for.
    mixed
        Whether to use rough scores where they are accurate enough.
    narrowest_bump : (k,)
        Standard deviation of the narrowest bump of the scores that must not be missed.
    """

    def __init__(self, problem: SearchProblem, mixed: bool, narrowest_bump: Floats) -> None:
        self._problem = problem
        self._narrowest_bump = narrowest_bump
        z_obs = problem.z_obs
        images = np.arange(len(z_obs))
        self._exact = Evaluations(problem, rough=False)
        if problem.observed is None:
            observed = self._exact.at(images, z_obs)
        else:
            observed = problem.observed
            self._exact.add(images, z_obs, observed)
        self._rough = Evaluations(problem, rough=True) if mixed and problem.rough_scores is not None else None
        self._evaluated = [self._exact] if self._rough is None else [self._exact, self._rough]
        self._noise = np.zeros(len(z_obs)) if self._rough is None else rough_noise(self._rough, observed, z_obs)
        self._jitter = np.zeros(len(z_obs)) if problem.exact else measured_jitter(self._exact, observed, z_obs)
        self._exact_only = np.full(len(z_obs), self._rough is None)
        self._noisier = np.zeros(len(z_obs), dtype=np.bool_)
        self._made_roughly, self._redone = np.zeros((2, len(z_obs)), dtype=np.int64)
        # As many as have pixels and interpolants that fit into the memory of the problem.
        pixels = problem.margins.pixels(observed.new_zeros(1).long(), observed[:1]).shape[1]
        self._points_together = max(64, problem.memory // (8 * (8 * pixels + 2 * SIZE * observed[0].numel())))
        self.no_pieces = Pieces.none(tuple(observed.shape[1:]), observed.device)
        self._noise_hides = np.zeros(len(z_obs), dtype=np.bool_)
        if self._rough is not None:
            least = least_distances(problem.margins, observed, self._points_together)
            self._noise_hides = least <= LEBESGUE * self._noise

    @property
    def evaluations(self) -> Integers:
        """Number of model evaluations (k,) so far."""
        return np.asarray(sum(evaluations.counts for evaluations in self._evaluated))

    def carry_out(self, plan: Plan, pieces: Pieces) -> tuple[Pieces, Pieces]:
        """Evaluate the model and return the new pieces, and the old ones whose error was underestimated."""
        fresh, roughly = self._with_scores_to_use(plan.fresh)
        zones, counts = plan.corrected
        corrected = [(zones.take(counts == count), int(count)) for count in np.unique(counts)]
        exact_points = [(part.image, correction_points(part, count)) for part, count in corrected]
        rough_points: list[tuple[Integers, Points]] = []
        interpolated = []
        for degree, exactly in sorted(set(zip(fresh.degree.tolist(), (~roughly).tolist(), strict=True))):
            part, is_rough = fresh.take((fresh.degree == degree) & (roughly != exactly)), not exactly
            seeds = self._problem.image_seeds[part.image]
            nodes, check, checked = part.points(uniform(seeds, part.left, part.right))
            # No interpolant may disagree with a score that is known, so it is enough to have the probes evaluated.
            probes = part.image[part.probed], part.probes(check)[part.probed]
            (rough_points if is_rough else exact_points).extend([(part.image, nodes), probes, (part.image, checked)])
            verified = np.flatnonzero(is_rough & (uniform(seeds, part.right, part.left) < 1 / VERIFIED))
            exact_points.append((part.image[verified], checked[verified]))
            interpolated.append((part, is_rough, check, verified))
            self._made_roughly += is_rough * np.bincount(part.image, minlength=len(self._made_roughly))
        known_before = [evaluations.known for evaluations in self._evaluated]
        requests = (exact_points, rough_points)
        answers = [iter(known.at_each(asked)) for known, asked in zip(self._evaluated, requests, strict=False)]
        at_zones = [next(answers[0]) for _ in corrected]
        new, underestimated = [self.no_pieces], [self.no_pieces]
        for part, is_rough, check, verified in interpolated:
            at_nodes, _, at_check = (next(answers[is_rough]) for _ in range(3))
            at_check = self._verified(part.image, at_check.squeeze(1), verified, next(answers[0]).squeeze(1))
            scores = NodeScores(
                at_nodes=at_nodes,
                check=check,
                at_check=at_check,
                noise=self._noise[part.image] if is_rough else np.zeros(len(part.image)),
                jitter=self._jitter[part.image],
                narrowest_bump=self._narrowest_bump[part.image],
            )
            new.append(fresh_pieces(part, scores))
        for (zones, _), values in zip(corrected, at_zones, strict=True):
            parents = pieces.take(zones.piece)
            corrections, wrong = corrected_pieces(parents, zones, values)
            new.append(corrections)
            if wrong.any():
                underestimated.append(parents.take(wrong))
        judged = self._unless_known_better(Pieces.concatenated(new), fresh.probed, known_before)
        return _with_stalls(judged, fresh), Pieces.concatenated(underestimated)

    def check(self, points: AuditPoints, pieces: Pieces) -> tuple[Mask, Mask]:
        """Evaluate the model at audit points and compare with what was concluded there, and with the interpolants.

        What was concluded from rough scores is compared with rough scores, and with exact ones where these disagree.

        Returns
        -------
        wrong : (m,) bool
            At which points a conclusion, or the error of the interpolant that it rests on, was contradicted.
        noisier : (k,) bool
            For which images the rough scores were somewhere noisier than at z_obs.
        """
        piece = pieces.deciding(points.image, points.z)
        roughly = np.append(pieces.is_rough, False)[piece] & ~self._exact_only[points.image]
        rough, exact = np.flatnonzero(roughly), np.flatnonzero(~roughly)
        wrong = np.zeros(len(points), dtype=np.bool_)
        if self._rough is not None and len(rough):
            scores = self._rough.at(points.image[rough], points.z[rough])
            verified = np.flatnonzero(_place_within(points.image[rough]) % VERIFIED == 0)
            exactly = self._exact.at(points.image[rough[verified]], points.z[rough[verified]])
            scores = self._verified(points.image[rough], scores, verified, exactly)
            doubtful = rough[self._disagrees(points.take(rough), scores, pieces, piece[rough])]
            exact = np.concatenate([exact, doubtful])
        scores = self._exact.at(points.image[exact], points.z[exact])
        wrong[exact] = self._disagrees(points.take(exact), scores, pieces, piece[exact])
        if self._rough is not None:
            self._noisier |= self._rough.lost & ~self._exact_only
            self._exact_only |= self._noisier
        audited = np.bincount(points.image, minlength=len(self._noisier)) > 0
        noisier: Mask = self._noisier & audited
        self._noisier &= ~audited
        return wrong, noisier

    def _disagrees(self, points: AuditPoints, scores: Tensor, pieces: Pieces, piece: Integers) -> Mask:
        """Return at which points (m,) scores (m, *grid) contradict what was concluded, or the pieces (m,) there."""
        wrong: Mask = self._problem.inside(points.image, scores) != points.inside
        known = np.flatnonzero(piece >= 0)
        at_known = scores[on_device(known, scores.device)]
        wrong[known] |= self._contradicted(pieces, piece[known], points.z[known], at_known)
        return wrong

    def _verified(self, image: Integers, scores: Tensor, verified: Integers, exact: Tensor) -> Tensor:
        """Return scores (m, *grid) of images (m,), some of them (v,) replaced by exact ones; measure their noise.

        Images with more noise than was measured at z_obs have exact scores from now on, and the next audit says so.
        """
        if len(verified) == 0:
            return scores
        rows = on_device(verified, scores.device)
        noise = (scores[rows] - exact).abs().flatten(1).amax(dim=1).cpu().numpy()
        measured = image[verified]
        self._noisier[measured[noise > self._noise[measured]]] = True
        self._exact_only |= self._noisier
        return scores.index_copy(0, rows, exact)

    def _contradicted(
        self, pieces: Pieces, piece: Integers, z: Floats, scores: Tensor, noise: Floats | None = None
    ) -> Mask:
        """Return whether scores (m, *grid) at points z (m,) differ from interpolants by more than these allow.

        Scores may have noise (m,) of their own.
        """
        contradicted = np.zeros(len(piece), dtype=np.bool_)
        if len(piece) == 0:
            return contradicted
        device = scores.device
        x = on_device((z - pieces.middle[piece]) / (pieces.width / 2)[piece], device).unsqueeze(1)
        which = on_device(piece, device)
        floor = (1 + FLOORS) * pieces.floor + pieces.rounding_of_z
        interpolants = replace(pieces, floor=floor).interpolants()
        for start in range(0, len(piece), self._points_together):
            rows = slice(start, start + self._points_together)
            missed = scores[rows] - interpolants.scores(which[rows], x[rows]).squeeze(1)
            allowed = interpolants.error_between(which[rows], x[rows].expand(-1, 2))
            if noise is not None:
                allowed = allowed + on_device(noise[rows], device)
            contradicted[rows] = (missed.abs().flatten(1).amax(dim=1) > allowed).cpu().numpy()
        return contradicted

    def _unless_known_better(self, pieces: Pieces, probed: Mask, known_before: list[int]) -> Pieces:
        """Return new pieces; a fresh one that does not agree with a score known from before is not resolved.

        The fresh ones (q,) come first. They agree with the scores they are made from, so that of those that were not
        known before only the probes matter.
        """
        fresh = slice(len(probed))
        intervals = pieces.image[fresh], pieces.left[fresh], pieces.right[fresh]
        piece, z, scores = self._exact.within(*intervals, np.where(probed, self._exact.known, known_before[0]))
        wrong = piece[self._contradicted(pieces, piece, z, scores)]
        if self._rough is not None:
            # Where noise cannot be the only reason, it is the exact scores at these points that decide.
            piece, z, scores = self._rough.within(*intervals, np.where(probed, self._rough.known, known_before[1]))
            doubtful = self._contradicted(pieces, piece, z, scores, self._noise[pieces.image[piece]])
            piece, z = piece[doubtful], z[doubtful]
            scores = self._exact.at(pieces.image[piece], z)
            wrong = np.concatenate([wrong, piece[self._contradicted(pieces, piece, z, scores)]])
        error, rate = pieces.error.copy(), pieces.rate.copy()
        error[wrong], rate[wrong] = np.inf, SLOWEST
        return replace(pieces, error=error, rate=rate)

    def use_exact_scores(self, pieces: Pieces, redone: Integers) -> None:
        """Use exact scores from now on for images whose pieces are not resolved, or most redone, because of noise.

        Those around z_obs are often redone; others need only tell that they are outside.

        Parameters
        ----------
        pieces
            All pieces.
        redone : (q,)
            Indices of those that are interpolated again.
        """
        if self._rough is not None:
            unresolved, noisy = (
                np.bincount(pieces.image[redone[(pieces.is_rough & reason)[redone]]], minlength=len(self._redone))
                for reason in (np.isinf(pieces.error), pieces.error < EXACT_BELOW * pieces.floor)
            )
            self._redone += noisy
            in_vain = (self._redone >= MOST_REDONE) & (2 * self._redone > self._made_roughly)
            self._exact_only |= (unresolved > 0) | in_vain

    def segments(self, pieces: Pieces, first: int) -> Segments:
        """Return the segments that follow from pieces, the first of which has index ``first``."""
        parts = inside_and_undecided(self._problem.margins, pieces.interpolants(), self._points_together)
        return segments_of(pieces, first, parts, pieces.stalls)

    def _with_scores_to_use(self, fresh: Fresh) -> tuple[Fresh, Mask]:
        """Return fresh pieces (q,) sorted by degree, and which to make from rough scores: the first of each degree."""
        if self._rough is not None:
            self._exact_only |= self._rough.lost
        roughly = fresh.error_so_far > EXACT_BELOW * LEBESGUE * self._noise[fresh.image]
        z_obs = self._problem.z_obs[fresh.image]
        in_vain = self._noise_hides[fresh.image] & (fresh.left <= z_obs) & (z_obs <= fresh.right)
        roughly &= ~(self._exact_only[fresh.image] | in_vain)
        order = np.lexsort((~roughly, fresh.degree))
        return fresh.take(order), roughly[order]


def _with_stalls(pieces: Pieces, fresh: Fresh) -> Pieces:
    """Return new pieces, the fresh ones first, with the number of times that interpolating anew has not helped."""
    count = len(fresh.image)
    error = pieces.error[:count]
    # A steep place is halved until it is resolved; only what may be noise is worth giving up for.
    steep = error > NOISE_AT_MOST * pieces.rounding[:count]
    helped = steep | (error + pieces.floor[:count] <= 0.5 * fresh.error_so_far)
    known_before = np.isfinite(fresh.error_so_far)
    stalls = pieces.stalls.copy()
    stalls[:count] = np.where(known_before, np.where(helped, 0, fresh.stalls + 1), fresh.stalls)
    return replace(pieces, stalls=stalls)


def _place_within(image: Integers) -> Integers:
    """Return how many of the points (m,) before each are of the same image (m,)."""
    order = np.argsort(image, kind="stable")
    ordered = image[order]
    place = np.empty(len(image), dtype=np.int64)
    place[order] = np.arange(len(image)) - np.searchsorted(ordered, ordered)
    return place


def segments_of(pieces: AxisParts, first: int, parts: Parts, stalls: Integers) -> Segments:
    """Return parts of pieces as segments of the z axis; the pieces have indices from ``first`` on, and stalls (p,)."""
    wide = np.flatnonzero(parts.left < parts.right)  # rounding can leave nothing of a part
    by_piece_and_end = parts.piece[wide] + 1j * parts.left[wide]
    # This sort is fast because it merges runs, of which there are few.
    parts = parts.take(wide[np.argsort(by_piece_and_end, kind="stable")])
    piece, left, right, inner = parts.piece, parts.left, parts.right, parts.inside
    best_left, best_right = parts.best_left, parts.best_right
    kind = np.where(inner, INSIDE, UNDECIDED)
    # Touching parts of one kind form a run: inside it becomes one segment, undecided it becomes a zone.
    breaks = (piece[1:] != piece[:-1]) | (left[1:] != right[:-1]) | (kind[1:] != kind[:-1])
    starts, ends = run_ends(len(piece), breaks)
    right[starts & inner] = right[ends & inner]
    kept = ~inner | starts
    best_left[inner], best_right[inner] = left[inner], right[inner]
    ends_on_axis = (pieces.at(piece, x)[kept] for x in (left, right, best_left, best_right))
    return Segments(
        **dict(zip(("left", "right", "best_left", "best_right"), ends_on_axis, strict=True)),
        image=pieces.image[piece][kept],
        kind=kind[kept],
        piece=first + piece[kept],
        zone=(np.cumsum(starts) - 1)[kept],
        stalls=stalls[piece][kept],
    )
