"""Where the margins of interpolated scores are negative: certainly, probably and possibly. No model is called.

The interval of an interpolant is cut into cells. Between the two ends of a cell the scores follow their chord to within
the curvature bound of the polynomial, and the extremes that decide (see ``Margins``) are convex along a chord: they lie
below their own chord by no more than the pixels that attain them at the ends allow. So each cell splits into parts that
are inside, outside and undecided, and the undecided parts shrink quadratically when they become cells in turn, also
around double roots and where the extreme pixel changes. What remains undecided is so because of the interpolation
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attentest.search.problem import Margins
from attentest.search.spectral.chebyshev import basis

GRID = 24
"""Number of cells that an interpolant is first cut into."""

DEEPEST = 60
"""Most rounds of halving; after so many a cell is as narrow as rounding allows."""


@dataclass(frozen=True, kw_only=True)
class Interpolants:
    """Polynomials for the scores of p pieces, each on [-1, 1].

    Parameters
    ----------
    image : (p,)
        Index of the image of each piece.
    coefficients : (p, SIZE, gh, gw)
        Coefficients in the Chebyshev basis.
    curvature : (p,)
        Bound on the second derivative of every score.
    error : (p,)
        Estimate of the greatest difference from the true scores.
    waves : (p,)
        Degree of the Lobatto nodes at which the error vanishes; 0 where the error is the same everywhere.
    floor : (p,)
        Rounding error of the scores.
    """

    image: Tensor
    coefficients: Tensor
    curvature: Tensor
    error: Tensor
    waves: Tensor
    floor: Tensor

    def scores(self, piece: Tensor, x: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of pieces (m,) at x (m,)."""
        return torch.einsum("mk,mkhw->mhw", basis(x), self.coefficients[piece])

    def error_between(self, piece: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Return a bound (m,) on the error of pieces (m,) between left (m,) and right (m,).

        The error of an interpolant is its node polynomial times a divided difference that varies little; the
        polynomial is at most one and its slope at most twice the degree.
        """
        waves = self.waves[piece]
        here = torch.maximum(_node_polynomial(waves, left), _node_polynomial(waves, right))
        profile = torch.where(waves > 0, here + waves * (right - left), 1.0).clamp(max=1.0)
        return self.error[piece] * profile + self.floor[piece]


class Parts(NamedTuple):
    """Parts of pieces, (m,) each, in the pieces' own coordinates.

    ``best_left`` and ``best_right`` are the ends of what is inside if the interpolation error is ignored.
    """

    piece: Tensor
    left: Tensor
    right: Tensor
    best_left: Tensor
    best_right: Tensor

    @classmethod
    def of(cls, several: Sequence[Parts]) -> Parts:
        """Concatenate."""
        return cls(*(torch.cat(columns) for columns in zip(*several, strict=True)))


def inside_and_undecided(margins: Margins, interpolants: Interpolants, points_together: int) -> tuple[Parts, Parts]:
    """Return the parts of pieces that are certainly inside, and those that are undecided.

    Parameters
    ----------
    margins
        Maps scores to region membership.
    interpolants
        The pieces.
    points_together
        Number of points that are processed at a time, to bound memory.
    """
    count = len(interpolants.image)
    device = interpolants.error.device
    none = Parts(interpolants.image[:0], *4 * [interpolants.error[:0]])
    inside, undecided = [none], [none]
    edges = torch.cos(torch.linspace(torch.pi, 0, GRID + 1, dtype=torch.float64, device=device))
    edges[0], edges[-1] = -1.0, 1.0
    step = max(1, points_together // (GRID + 1))
    for start in range(0, count, step):
        piece = torch.arange(start, min(start + step, count), device=device)
        cells = _first_cells(margins, interpolants, piece, edges)
        for _ in range(DEEPEST):
            sure, final, open_ = _divide(interpolants, margins, cells)
            inside.append(sure)
            undecided += final
            if len(open_.piece) == 0:
                break
            cells = _cells_between(margins, interpolants, open_, points_together)
        else:
            undecided.append(open_)
    return Parts.of(inside), Parts.of(undecided)


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Cells of pieces: ends, extremes at the ends (m, E), and how far these can lie below their chords (m, E)."""

    piece: Tensor
    left: Tensor
    right: Tensor
    at_left: Tensor
    at_right: Tensor
    dip: Tensor


def _first_cells(margins: Margins, interpolants: Interpolants, piece: Tensor, edges: Tensor) -> _Cells:
    scores = torch.einsum("sk,pkhw->pshw", basis(edges), interpolants.coefficients[piece])
    shape = scores.shape[:2]
    image = interpolants.image[piece].repeat_interleave(len(edges))
    pixels = margins.pixels(image, scores.flatten(0, 1))
    extremes, attained = (v.unflatten(0, shape) for v in margins.extremes(image, pixels))
    pixels = pixels.unflatten(0, shape)
    dip = _dip(
        extremes[:, :-1],
        extremes[:, 1:],
        margins.signs * pixels[:, :-1].gather(2, attained[:, 1:]),
        margins.signs * pixels[:, 1:].gather(2, attained[:, :-1]),
    )
    cells = len(edges) - 1
    return _Cells(
        piece=piece.repeat_interleave(cells),
        left=edges[:-1].repeat(len(piece)),
        right=edges[1:].repeat(len(piece)),
        at_left=extremes[:, :-1].flatten(0, 1),
        at_right=extremes[:, 1:].flatten(0, 1),
        dip=dip.flatten(0, 1),
    )


def _cells_between(margins: Margins, interpolants: Interpolants, parts: Parts, points_together: int) -> _Cells:
    at_left, at_right, dips = [], [], []
    step = max(1, points_together // 2)
    for start in range(0, len(parts.piece), step):
        piece, left, right = (v[start : start + step] for v in (parts.piece, parts.left, parts.right))
        image = interpolants.image[piece]
        pixels = [margins.pixels(image, interpolants.scores(piece, x)) for x in (left, right)]
        extremes, attained = zip(*(margins.extremes(image, p) for p in pixels), strict=True)
        crossed = [margins.signs * pixels[i].gather(1, attained[1 - i]) for i in (0, 1)]
        at_left.append(extremes[0])
        at_right.append(extremes[1])
        dips.append(_dip(*extremes, *crossed))
    return _Cells(
        piece=parts.piece,
        left=parts.left,
        right=parts.right,
        at_left=torch.cat(at_left),
        at_right=torch.cat(at_right),
        dip=torch.cat(dips),
    )


def _dip(at_left: Tensor, at_right: Tensor, right_ones_at_left: Tensor, left_ones_at_right: Tensor) -> Tensor:
    """Return how far below its chord an extreme can lie when the scores follow theirs.

    The extreme is at least as great as either of the two pixels that attain it at the ends. These are two lines that
    cross at a b / (a + b) below the chord, where a and b are their distances from the extreme at the other end.
    """
    a, b = at_right - left_ones_at_right, at_left - right_ones_at_left
    return torch.where(a * b > 0, a * b / (a + b), 0.0)


def _divide(interpolants: Interpolants, margins: Margins, cells: _Cells) -> tuple[Parts, list[Parts], Parts]:
    """Return the parts of cells that are inside, finally undecided, and to be divided again."""
    weights = margins.weights
    total = weights.abs().sum(dim=1)
    width = cells.right - cells.left
    bend = (width**2 / 8 * interpolants.curvature[cells.piece]).unsqueeze(1) * total
    above = cells.dip @ weights.clamp(max=0).abs().T + bend
    below = cells.dip @ weights.clamp(min=0).T + bend
    band = interpolants.error_between(cells.piece, cells.left, cells.right).unsqueeze(1) * total
    left, right = cells.at_left @ weights.T, cells.at_right @ weights.T

    in_from, in_to = _negative(left + above + band, right + above + band)
    may_from, may_to = _negative(left - below - band, right - below - band)
    best_from, best_to = _negative(left, right)
    some = in_from < in_to
    rounded = width <= 4 * torch.finfo(torch.float64).eps
    final = rounded | ((above + below) <= 0.5 * band).all(dim=1)

    def part(chosen: Tensor, start: Tensor, end: Tensor, best_start: Tensor, best_end: Tensor) -> Parts:
        rows = chosen.nonzero().squeeze(1)  # once, not once per column: it waits for the device
        left, width_of = cells.left[rows], width[rows]
        ends = (
            _at_share(left, width_of, cells.right[rows], share[rows]) for share in (start, end, best_start, best_end)
        )
        return Parts(cells.piece[rows], *ends)

    # What may be inside less what is: to the left of it and to the right, or all of it.
    rest = []
    for start, end in ((may_from, torch.where(some, in_from, may_to)), (torch.where(some, in_to, may_to), may_to)):
        bests = best_from.clamp(start, end), best_to.clamp(start, end)
        for still_open in (False, True):
            chosen = (start < end) & (final != still_open)
            rest.append((part(chosen, start, end, *bests), width[chosen]))
    (left_final, _), (left_open, left_width), (right_final, _), (right_open, right_width) = rest
    return (
        part(some, in_from, in_to, in_from, in_to),
        [left_final, right_final],
        _halved_where_wide(Parts.of([left_open, right_open]), 0.5 * torch.cat([left_width, right_width])),
    )


def _halved_where_wide(parts: Parts, most: Tensor) -> Parts:
    wide = parts.right - parts.left > most
    middle = (parts.left + parts.right) / 2
    left_halves = parts._replace(right=torch.where(wide, middle, parts.right))
    right_halves = Parts(*(column[wide] for column in parts._replace(left=middle)))
    return Parts.of([left_halves, right_halves])


def _negative(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of [0, 1] where all lines (m, J) with these ends are negative; start > end if there is none."""
    root = left / torch.where(left == right, 1.0, left - right)
    start = torch.where(left < 0, 0.0, torch.where(right < 0, root, 2.0)).amax(dim=1)
    end = torch.where(right < 0, 1.0, torch.where(left < 0, root, -1.0)).amin(dim=1)
    return start, end


def _at_share(left: Tensor, width: Tensor, right: Tensor, share: Tensor) -> Tensor:
    """Return the points at fractions of cells; their ends exactly."""
    return torch.where(share >= 1, right, left + share.clamp(0, 1) * width)


def _node_polynomial(degree: Tensor, x: Tensor) -> Tensor:
    angle = torch.acos(x.clamp(-1, 1))
    return (torch.sin(angle) * torch.sin(degree * angle)).abs()
