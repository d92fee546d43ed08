"""Interpolants of scores on pieces of the z axis, how far off they are, and corrections of narrow zones of them."""

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
from attentest.search.spectral.chebyshev import SIZE, basis, basis_at, coefficients_from, constant, gauss_nodes
from attentest.search.spectral.segments import AxisParts
from attentest.statistics.columns import Floats, Integers, Mask

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

    Returns
    -------
    pieces
        The zones as pieces.
    underestimated : (p,) bool
        Whether the error of the parent turned out greater than its estimate.
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
