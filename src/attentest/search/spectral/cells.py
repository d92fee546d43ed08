"""Where the margins of interpolated scores are negative: certainly, probably and possibly. No model is called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attentest.search.problem import Margins
from attentest.search.spectral.chebyshev import basis, basis_at, constant, second_derivative
from attentest.statistics.columns import Columns, Floats, Integers, Mask

GRID = 24  # number of cells that an interpolant is first cut into

NARROWEST = 4 * torch.finfo(torch.float64).eps
"""Cells of this width are not divided again: it is as narrow as rounding allows."""


@dataclass(frozen=True, kw_only=True)
class Interpolants:
    """Polynomials for the scores of p pieces, each on [-1, 1]."""

    image: Tensor
    """(p,). Index of the image of each piece."""
    coefficients: Tensor
    """(p, n, *grid). Coefficients in the Chebyshev basis, no more than SIZE."""
    errors: Tensor
    """(3, p). Estimate of the greatest difference from the true scores; degree of the Lobatto nodes at which it
    vanishes, 0 where it is the same everywhere; rounding error of the scores."""

    def take(self, rows: slice) -> Interpolants:
        """Return some of them, without a copy."""
        return Interpolants(image=self.image[rows], coefficients=self.coefficients[rows], errors=self.errors[:, rows])

    def scores(self, piece: Tensor, x: Tensor) -> Tensor:
        """Return the scores (m, j, *grid) of pieces (m,) at points x (m, j)."""
        coefficients = self.coefficients.index_select(0, piece)
        values = basis(x)[..., : coefficients.shape[1]] @ coefficients.flatten(2)
        return values.reshape(*x.shape, *coefficients.shape[2:])

    def curvature(self) -> Tensor:
        """Return a bound (p,) on the second derivative of every score."""
        count = self.coefficients.shape[1]
        bend = constant(second_derivative, self.coefficients.device)[:, :count] @ self.coefficients.flatten(2)
        return bend.abs().sum(dim=1).amax(dim=1)

    def error_between(self, piece: Tensor, ends: Tensor) -> Tensor:
        """Return a bound (m,) on the error of pieces (m,) between two points (m, 2) of each.

        The error of an interpolant is its node polynomial times a divided difference that varies little; the
        polynomial is at most one and its slope at most twice the degree.
        """
        error, degree, floor = self.errors[:, piece].unbind()
        angle = torch.acos(ends.clamp(-1, 1))
        at_ends = (torch.sin(angle) * torch.sin(degree.unsqueeze(1) * angle)).abs().amax(dim=1)
        profile = torch.where(degree > 0, at_ends + degree * (ends[:, 1] - ends[:, 0]), 1.0).clamp(max=1.0)
        return error * profile + floor


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts(Columns):
    """Parts (m,) of pieces, in the pieces' own coordinates, in no order.

    ``best_left`` and ``best_right`` are the ends of what is inside if the interpolation error is ignored; ``inside``
    says whether a part is certainly inside. If not, it is undecided.
    """

    piece: Integers
    left: Floats
    right: Floats
    best_left: Floats
    best_right: Floats
    inside: Mask


def inside_and_undecided(
    margins: Margins, interpolants: Interpolants, points_together: int, cells: int = GRID
) -> Parts:
    """Return the parts of pieces that are certainly inside, and those that are undecided.

    So many points are processed at a time, to bound memory, and each interpolant is first cut into so many cells.
    """
    step = max(1, points_together // (cells + 1))
    tables = [np.empty((6, 0))]
    for start in range(0, len(interpolants.image), step):
        some = interpolants.take(slice(start, start + step))
        table = _table(margins, some, max(1, points_together // 2), cells)
        table[0] += start
        tables.append(table)
    piece, left, right, best_left, best_right, kind = np.concatenate(tables, axis=1)
    return Parts(
        piece=piece.astype(np.int64),
        left=left,
        right=right,
        best_left=best_left,
        best_right=best_right,
        inside=kind == 0,
    )


def least_distances(margins: Margins, scores: Tensor, points_together: int) -> Floats:
    """Return how far (k,) the scores (k, *grid) of images are from being another region, in units of their errors."""
    total, least = margins.weights.abs().sum(dim=1), [scores.new_empty(0)]
    for image in torch.arange(len(scores), device=scores.device).split(points_together):
        extremes, _ = margins.extremes(image, margins.pixels(image, scores[image]))
        least.append(((extremes @ margins.weights.T).abs() / total).amin(dim=1))
    return np.asarray(torch.cat(least).cpu().numpy())


def _table(margins: Margins, interpolants: Interpolants, cells_together: int, first_cells: int) -> Floats:
    """Return the parts of pieces on the host, as rows: piece, ends, and kind, which is 0 if a part is inside."""
    curvature, total = interpolants.curvature(), margins.weights.abs().sum(dim=1)
    device, coefficients = interpolants.image.device, interpolants.coefficients
    first = torch.arange(len(coefficients), device=device)
    at_edges = constant(basis_at, device, _edges, first_cells)[:, : coefficients.shape[1]]
    scores = (at_edges @ coefficients.flatten(2)).unflatten(2, coefficients.shape[2:])
    divided = []
    edges = constant(_edges, device, first_cells).expand(len(first), -1)
    to_divide = [_cells(margins, interpolants, first, edges, scores)]
    while to_divide:
        cells = to_divide.pop()
        parts, piece, ends = _divide(interpolants, curvature, total, cells)
        divided.append(parts)
        if len(piece):
            for part in zip(piece.split(cells_together), ends.split(cells_together), strict=True):
                to_divide.append(_cells(margins, interpolants, *part, interpolants.scores(*part)))
    piece, ends, final = (torch.cat(columns, dim=-1) for columns in zip(*divided, strict=True))
    kind, cell = final.nonzero().unbind(dim=1)
    return torch.cat([piece[cell].unsqueeze(0), ends[:, kind, cell], kind.unsqueeze(0)]).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Cells (m,) of pieces."""

    piece: Tensor
    """(m,). The piece of each cell."""
    ends: Tensor
    """(m, 2). Where the cell begins and ends."""
    combined: Tensor
    """(m, 2, J). The combinations of extremes that must be negative, at the ends."""
    above: Tensor
    below: Tensor
    """(m, J). How far these can lie above and below their chords when the scores follow theirs."""


def _edges(cells: int) -> Floats:
    """Return the ends (cells + 1,) of the first cells."""
    edges = torch.cos(torch.linspace(torch.pi, 0, cells + 1, dtype=torch.float64))
    edges[0], edges[-1] = -1.0, 1.0
    return edges.numpy()


def _cells(margins: Margins, interpolants: Interpolants, piece: Tensor, x: Tensor, scores: Tensor) -> _Cells:
    """Return the cells between neighbours of points x (m, j) of pieces (m,) with scores (m, j, *grid)."""
    count = x.shape[1]
    image = interpolants.image[piece].repeat_interleave(count)
    pixels = margins.pixels(image, scores.flatten(0, 1))
    extremes, attained = margins.extremes(image, pixels)
    combined = extremes @ margins.weights.T

    def at_ends(values: Tensor) -> Tensor:
        """Return values (m j, n) of the points as those (m, j - 1, 2, n) of the ends of cells, without a copy."""
        return values.reshape(len(piece), count, -1).unfold(1, 2, 1).mT

    # An extreme is at least as great as either of the two pixels that attain it at the ends. Along chords these are two
    # lines that cross at a b / (a + b) below its own chord, with a and b their distances from it at the other end.
    distances = at_ends(extremes) - margins.signs * at_ends(pixels).gather(3, at_ends(attained).flip(2))
    product = distances.prod(dim=2)
    dip = torch.where(product > 0, product / distances.sum(dim=2), 0.0).flatten(0, 1)
    above, below = (dip @ torch.cat([-margins.weights, margins.weights]).relu().T).chunk(2, dim=1)
    return _Cells(
        piece=piece.repeat_interleave(count - 1),
        ends=x.unfold(1, 2, 1).flatten(0, 1),
        combined=at_ends(combined).flatten(0, 1),
        above=above,
        below=below,
    )


def _divide(
    interpolants: Interpolants, curvature: Tensor, total: Tensor, cells: _Cells
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """Divide cells (m,) into parts that are inside, outside and undecided.

    ``curvature`` (p,) bounds the second derivative of the scores of each piece, and ``total`` (J,) is the sum of the
    absolute weights of each combination: how much greater its error can be than that of the scores. Return the pieces
    (m,); the ends (4, 3, m) of what is inside, undecided before it and undecided after it, and of the best estimates in
    them; which of these (3, m) are there and are not to be divided again; and pieces (n,) and ends (n, 2) of those that
    are, as cells.
    """
    left, right = cells.ends.unbind(dim=1)
    width = right - left
    bend = (width**2 / 8 * curvature[cells.piece]).unsqueeze(1) * total
    band = interpolants.error_between(cells.piece, cells.ends).unsqueeze(1) * total
    above, below = cells.above + bend, cells.below + bend
    upper, lower = (above + band).unsqueeze(1), (below + band).unsqueeze(1)
    lines = torch.stack([cells.combined + upper, cells.combined - lower, cells.combined])
    (in_from, may_from, best_from), (in_to, may_to, best_to) = _negative(*lines.unbind(dim=2))
    # What may be inside less what is: to the left of it and to the right, or all of it.
    certain = in_from < in_to
    start = torch.stack([in_from, may_from, torch.where(certain, in_to, may_to)])
    end = torch.stack([in_to, torch.where(certain, in_from, may_to), may_to])
    share = torch.stack([start, end, best_from.clamp(start, end), best_to.clamp(start, end)])
    ends = torch.where(share >= 1, right, left + share.clamp(0, 1) * width)  # the ends of cells exactly

    resolved = ((above + below) <= 0.5 * band).all(dim=1) | (width <= NARROWEST)
    final = start < end
    rest = final[1:]
    undecided = rest & ~resolved
    rest &= resolved

    # What is left undecided becomes a cell, or two if it is more than half of one, so that widths are halved at least.
    start, end = ends[:2, 1:]
    cut = torch.where(end - start > 0.5 * width, (start + end) / 2, end)
    halves = torch.stack([start, cut, end]).unfold(0, 2, 1)
    rows = (undecided & (halves[..., 0] < halves[..., 1])).nonzero().unbind(dim=1)  # waits for the device
    return (cells.piece, ends, final), cells.piece[rows[2]], halves[rows]


def _negative(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of [0, 1] where all lines (..., J) with these ends are negative; start > end if there is none."""
    root = left / torch.where(left == right, 1.0, left - right)
    at_left, at_right = left < 0, right < 0
    start = torch.where(at_left, 0.0, torch.where(at_right, root, 2.0)).amax(dim=-1)
    end = torch.where(at_right, 1.0, torch.where(at_left, root, -1.0)).amin(dim=-1)
    return start, end
