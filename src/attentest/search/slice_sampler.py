"""A step of a Markov chain whose stationary distribution is the law of the state given the truncation set.

This is slice sampling with shrinkage (Neal 2003, *Slice sampling*) along a random direction. Draw a level below the
density of the present state. On the line through the state, in the part where the density can reach that level, propose
points uniformly. A point where the density is below the level, or z is outside the truncation set, is rejected and
becomes an end of the part, on its side of the present state; the first other point is the next state. The step is
reversible: from the next state, the same rejected points lead back to the present one with the same probability.

It has no scale to choose, and nothing in it depends on where the observed state is. Each proposal shrinks the line by a
factor, so that a truncation set a million times narrower takes a few dozen proposals more; and the first proposals of
every step lie anywhere on the line, so that a chain finds the other intervals of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from attentest.search.problem import Indices, SearchProblem

MOST_PROPOSALS = 64
"""Most proposals in a step, after which the chain stays where it is: by then the line is shorter by a factor of about
1e-13, which is rounding. A step that ends so is as likely in both directions, so the chain remains reversible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepNumbers:
    """The random numbers of one step of m chains.

    Parameters
    ----------
    direction : (m, d)
        Unit vectors.
    drop : (m,)
        How far the log of the level is below the log density: exponential with mean 1.
    place : (m, MOST_PROPOSALS)
        Places of the proposals on the lines, from 0 to 1.
    """

    direction: NDArray[np.float64]
    drop: NDArray[np.float64]
    place: NDArray[np.float64]

    @classmethod
    def drawn(cls, rngs: Sequence[np.random.Generator], chains: int, dimension: int) -> Self:
        """Draw the numbers of some chains of each image, from the generator of the image."""
        normal = np.concatenate([rng.standard_normal((chains, dimension)) for rng in rngs])
        return cls(
            direction=normal / np.linalg.norm(normal, axis=1, keepdims=True),
            drop=np.concatenate([rng.standard_exponential(chains) for rng in rngs]),
            place=np.concatenate([rng.random((chains, MOST_PROPOSALS)) for rng in rngs]),
        )


def slice_step(
    problem: SearchProblem, image: Indices, state: NDArray[np.float64], numbers: StepNumbers
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Move m chains by one step.

    Parameters
    ----------
    problem
        The truncation sets, and the law of the states.
    image : (m,)
        Index of the image of each chain.
    state : (m, d)
        Present states.
    numbers
        The random numbers of the step.

    Returns
    -------
    next_state : (m, d)
        The next states.
    evaluations : (m,)
        Number of model evaluations of each chain.
    """
    law = problem.law
    level = law.log_density(image, state) - numbers.drop
    low, high = _chord(state, numbers.direction, law.radius(image, level))
    next_state = state.copy()
    evaluations = np.zeros(len(state), dtype=np.int64)
    moving = np.arange(len(state))
    for proposal in range(MOST_PROPOSALS):
        if len(moving) == 0:
            break
        shift = low[moving] + numbers.place[moving, proposal] * (high[moving] - low[moving])
        proposed = state[moving] + shift[:, None] * numbers.direction[moving]
        accepted = law.log_density(image[moving], proposed) >= level[moving]
        asked = np.flatnonzero(accepted)  # only these need the model
        some = image[moving[asked]]
        accepted[asked] = problem.inside_at(some, law.z_of(some, proposed[asked]))
        evaluations[moving[asked]] += 1
        next_state[moving[accepted]] = proposed[accepted]
        moving, shift = moving[~accepted], shift[~accepted]
        low[moving] = np.where(shift < 0, shift, low[moving])
        high[moving] = np.where(shift < 0, high[moving], shift)
    return next_state, evaluations


def _chord(
    state: NDArray[np.float64], direction: NDArray[np.float64], radius: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far (m,) the lines through states (m, d) reach within balls around zero, backwards and forwards."""
    along = np.einsum("md,md->m", state, direction)
    aside = np.einsum("md,md->m", state, state) - along**2
    half = np.sqrt(np.maximum(radius**2 - aside, along**2))  # the state itself is in the ball
    return -along - half, -along + half
