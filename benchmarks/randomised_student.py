"""Levels of randomised selection with estimated noise: p-values under the hypothesis, and the median of the estimate.

In the first cases a difference D ~ N(theta, 1) is seen as D + gamma S E in a set that is fixed, and S^2 estimates its
variance with nu degrees of freedom: here the law is exact. In the last, eight independent values have the noise gamma S
added, all of them, and the greatest is compared with the mean of the others. What is left of the image beside the
contrast then depends on S, too, so that the law is an approximation.

    python benchmarks/randomised_student.py --draws 20000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from attentest.statistics.alternative import Alternative
from attentest.statistics.conditional_mean import mean_bounds
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import RandomisedStudent
from attentest.statistics.truncation_set import TruncationSet

Floats = NDArray[np.float64]
Draws = tuple[Floats, Floats, Floats, list[Floats]]

SETS = {
    "3 and more": [(3.0, np.inf)],
    "1 to 2": [(1.0, 2.0)],
    "1.5 and more on either side": [(-np.inf, -1.5), (1.5, np.inf)],
    "several": [(-2.5, -1.2), (0.8, 1.1), (1.4, 30.0)],
}
DEGREES = (2, 4, 8, 20)
TAILS: tuple[Alternative, ...] = get_args(Alternative)
ALPHA, VALUES = 0.05, 8


def in_a_set(ends: list[tuple[float, float]], theta: float, nu: int, gamma: float, rng: np.random.Generator) -> Draws:
    """Return statistics, coordinates, the standard deviation and sets in units of S, of differences seen in the set."""
    difference = theta + rng.normal(size=200_000)
    error = np.sqrt(rng.chisquare(nu, len(difference)) / nu)
    z = difference + gamma * error * rng.normal(size=len(difference))
    rows = np.flatnonzero(np.any([(z > low) & (z < high) for low, high in ends], axis=0))
    error = error[rows]
    return difference[rows] / error, z[rows] / error, 1 / error, [np.array(ends) / scale for scale in error]


def greatest_of_several(theta: float, nu: int, gamma: float, rng: np.random.Generator) -> Draws:
    """Return the same for the greatest of several values, compared with the mean of the others."""
    count = 20_000
    scale = np.sqrt(1 + 1 / (VALUES - 1))
    error = np.sqrt(rng.chisquare(nu, count) / nu)
    values = rng.normal(size=(count, VALUES))
    values[:, 0] += theta * scale
    seen = values + gamma * error[:, None] * rng.normal(size=values.shape)
    chosen = np.zeros(count, dtype=np.int64) if theta else seen.argmax(axis=1)
    rows = np.flatnonzero(seen.argmax(axis=1) == chosen)
    values, seen, error, chosen = values[rows], seen[rows], error[rows] * scale, chosen[rows]
    eta = np.full(values.shape, -1 / (VALUES - 1))
    eta[np.arange(len(rows)), chosen] = 1.0
    difference, z = (np.einsum("ki,ki->k", eta, data) for data in (values, seen))
    others = np.ma.masked_array(seen, eta > 0).max(axis=1).filled()
    # Where z rises by one, the difference between the chosen value and any other rises by one, too.
    first = z + others - seen[np.arange(len(rows)), chosen]
    return difference / error, z / error, scale / error, [np.array([(low, np.inf)]) for low in first / error]


def rates(
    draw: Callable[[float, int, float, np.random.Generator], Draws], nu: int, gamma: float, count: int
) -> list[float]:
    """Return the rates of p <= ALPHA for each alternative, and how often the estimate is below theta = 0 and 1."""
    rng = np.random.default_rng([nu, count])
    found = []
    for theta in (0.0, 1.0):
        parts: list[Draws] = []
        while sum(len(part[0]) for part in parts) < count:
            parts.append(draw(theta, nu, gamma, rng))
        t, z, unit = (np.concatenate(column)[:count] for column in list(zip(*parts, strict=True))[:3])
        exact = [intervals for part in parts for intervals in part[3]][:count]
        sets = [TruncationSet(intervals=one, certain=one, possible=one) for one in exact]
        columns = {"gamma": np.full(count, gamma), "degrees": np.full(count, float(nu))}
        law = RandomisedStudent(statistic=t, observed_z=z, **columns)
        if theta == 0:
            found += [float(np.mean(log_pvalues(law, sets, tails).best <= np.log(ALPHA))) for tails in TAILS]
        few = max(count // 5, 1)
        estimates = mean_bounds(law.take(slice(few)), sets[:few], [0.5])[0]
        found.append(float(np.mean(estimates < theta * unit[:few])))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--gamma", type=float, default=0.5)
    options = parser.parse_args()
    error, median = np.sqrt(ALPHA * (1 - ALPHA) / options.draws), np.sqrt(0.25 / max(options.draws // 5, 1))
    print(f"gamma {options.gamma:g}, nominal {ALPHA} (se {error:.4f}) and 0.5 (se {median:.3f})\n")
    print(f"| set | nu | {' | '.join(TAILS)} | estimate below theta = 0 | theta = 1 |")
    print("|---|---|" + "---|" * (len(TAILS) + 2))
    cases = {name: partial(in_a_set, ends) for name, ends in SETS.items()} | {"greatest of eight": greatest_of_several}
    for name, draw in cases.items():
        for nu in DEGREES:
            row = " | ".join(f"{rate:.4f}" for rate in rates(draw, nu, options.gamma, options.draws))
            print(f"| {name} | {nu} | {row} |", flush=True)


if __name__ == "__main__":
    main()
