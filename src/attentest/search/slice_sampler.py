"""A step of a Markov chain whose stationary distribution is the law of the state given the truncation set.

States are standard normal vectors if there is no selection (see ``Law.state_obs``). The step is one of slice sampling
with shrinkage (Neal 2003, *Slice sampling*) along a random line. Draw a level below the density of the present state,
which the density exceeds in a ball around zero. On the line through the state, propose points uniformly in the ball. A
point where z is outside the truncation set is rejected, and from then on the line ends there, on that side of the
present state; the first other point is the next state. The step is reversible: from the next state, the same line, ball
and rejected points lead back to the present one with the same probability.

It has no scale to choose, and nothing in it depends on where the observed state is. Each proposal shortens the line by
a factor, so that a truncation set a million times narrower takes a few dozen proposals more; and the first proposals of
every step lie anywhere in the ball, so that a chain finds the other intervals of the set.
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
1e-13, which is rounding. The paths of at most so many proposals lead forth and back with the same probability, so the
chain remains reversible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepNumbers:
    """The random numbers of one step of m chains.

    Parameters
    ----------
    direction : (m, d)
        Unit vectors.
    drop : (m,)
        How far the log of the level is below the log of the density: exponential with mean 1.
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
    low, high = _line_in_ball(state, numbers.direction, numbers.drop)
    next_state = state.copy()
    evaluations = np.zeros(len(state), dtype=np.int64)
    moving = np.arange(len(state))
    for proposal in range(MOST_PROPOSALS):
        if len(moving) == 0:
            break
        shift = low[moving] + numbers.place[moving, proposal] * (high[moving] - low[moving])
        proposed = state[moving] + shift[:, None] * numbers.direction[moving]
        inside = problem.inside_at(image[moving], law.z_of(image[moving], proposed))
        evaluations[moving] += 1
        next_state[moving[inside]] = proposed[inside]
        moving, shift = moving[~inside], shift[~inside]
        low[moving] = np.where(shift < 0, shift, low[moving])
        high[moving] = np.where(shift < 0, high[moving], shift)
    return next_state, evaluations


def _line_in_ball(
    state: NDArray[np.float64], direction: NDArray[np.float64], drop: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far (m,) one can go from states along directions, backwards and forwards, within their balls.

    In the ball the log density -|state|^2 / 2 is lower than at the state by no more than ``drop``.
    """
    along = np.einsum("md,md->m", state, direction)
    # The two roots of t^2 + 2 t along = 2 drop; far from zero the nearer one would be lost in a difference.
    far = -along - np.copysign(np.sqrt(along**2 + 2 * drop), along)
    near = -2 * drop / far
    return np.minimum(far, near), np.maximum(far, near)
