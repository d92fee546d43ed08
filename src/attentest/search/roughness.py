"""Polynomials through scores that may have kinks or jumps between the nodes, with an error that is measured.

The kinks of a network that are too many to visit are roughness. They keep the last coefficients of a polynomial large,
and scores between its nodes away from it: both are looked at, and the greater one is the error. Among many kinks the
greatest are no surprise. The narrower a part of the axis is, the fewer it has, so that what matters to p is looked at
again, until there are so few that each is visited. A bump between neighbouring points that is much greater than all
around it stays unseen; that is why results say that this was measured.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from attentest.search.problem import SearchProblem, on_device
from attentest.search.spectral.audit import uniform
from attentest.search.spectral.cells import Interpolants
from attentest.search.spectral.chebyshev import coefficients_from, constant, lobatto_nodes
from attentest.search.spectral.segments import INSIDE, AxisParts, Segments, unexplored
from attentest.statistics.columns import Floats, Mask, repeated

ROUNDING = 1e-12  # rounding error of scores, relative to the greatest one of an image
CHECKS = 2  # points at which a polynomial is compared with the scores
SAFETY = 4.0  # how much greater than what is seen of the error of a polynomial its greatest error is taken to be

FINAL, REFINED = 0, 1
"""Whether what is undecided in a part is due to rounding, or can be looked at again: numbers of pieces of segments."""

MOST_OF_IT = 0.5
"""What is undecided is halved if it is a greater share of a part than this: looked at as it is, it would stay."""


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
