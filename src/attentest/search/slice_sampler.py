"""A step of a Markov chain whose stationary distribution is the law of the state given the truncation set.

States are standard normal numbers if there is no selection (see ``Law.state_obs``). The step is one of slice sampling
with shrinkage (Neal 2003, *Slice sampling*). Draw a level below the density of the present state, which the density
exceeds in an interval around zero. Propose points uniformly in that interval. A point where z is outside the truncation
set is rejected, and from then on the interval ends there, on that side of the present state; the first other point is
the next state. The step is reversible: from the next state, the same interval and rejected points lead back to the
present one with the same probability.

It has no scale to choose, and nothing in it depends on where the observed state is. Each proposal shortens the interval
by a factor, so that a truncation set a million times narrower takes a few dozen proposals more; and the first proposals
of every step lie anywhere, so that a chain finds the other intervals of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from attentest.search.problem import Indices, SearchProblem

MOST_PROPOSALS = 64
"""Most proposals in a step, after which the chain stays where it is: by then the interval is shorter by about a factor
of 1e-13, which is rounding. The paths of at most so many proposals lead forth and back with the same probability, so
the chain remains reversible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepNumbers:
    """The random numbers of one step of m chains.

    Parameters
    ----------
    direction : (m,)
        1 or -1: which end of the interval place 0 is.
    drop : (m,)
        How far the log of the level is below the log of the density: exponential with mean 1.
    place : (m, MOST_PROPOSALS)
        Places of the proposals in the intervals, from 0 to 1.
    """

    direction: NDArray[np.float64]
    drop: NDArray[np.float64]
    place: NDArray[np.float64]

    @classmethod
    def drawn(cls, rngs: Sequence[np.random.Generator], chains: int) -> Self:
        """Draw the numbers of some chains of each image, from the generator of the image."""
        return cls(
            direction=np.sign(np.concatenate([rng.standard_normal(chains) for rng in rngs])),
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
    state : (m,)
        Present states.
    numbers
        The random numbers of the step.

    Returns
    -------
    next_state : (m,)
        The next states.
    evaluations : (m,)
        Number of model evaluations of each chain.
    """
    law = problem.law
    low, high = _interval_around(state * numbers.direction, numbers.drop)
    next_state = state.copy()
    evaluations = np.zeros(len(state), dtype=np.int64)
    moving = np.arange(len(state))
    for proposal in range(MOST_PROPOSALS):
        if len(moving) == 0:
            break
        shift = low[moving] + numbers.place[moving, proposal] * (high[moving] - low[moving])
        proposed = state[moving] + shift * numbers.direction[moving]
        inside = problem.inside_at(image[moving], law.z_of(image[moving], proposed))
        evaluations[moving] += 1
        next_state[moving[inside]] = proposed[inside]
        moving, shift = moving[~inside], shift[~inside]
        low[moving] = np.where(shift < 0, shift, low[moving])
        high[moving] = np.where(shift < 0, high[moving], shift)
    return next_state, evaluations


def _interval_around(
    state: NDArray[np.float64], drop: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far (m,) one can go from states, backwards and forwards, if the log density may ``drop`` so much.

    The log density is -state^2 / 2.
    """
    # The two roots of s^2 + 2 s state = 2 drop; far from zero the nearer one would be lost in a difference.
    far = -state - np.copysign(np.sqrt(state**2 + 2 * drop), state)
    near = -2 * drop / far
    return np.minimum(far, near), np.maximum(far, near)
