"""Draws from the law of a statistic given its truncation set, for a p-value that does not depend on any search.

This is the parallel method of Besag and Clifford (1989, *Generalized Monte Carlo significance tests*). A chain that is
reversible for the law runs from the observed state to a hub, and then independent chains of the same length run from
the hub. Under the hypothesis the observed state is a draw from the law. By reversibility it is then, seen from the hub,
the end of one more chain, so that the observed state and the ends are exchangeable, whatever the length of the chains
and however badly they mix.

States are standard normal numbers if there is no selection (see ``Law.state_obs``). A step of a chain is one of slice
sampling with shrinkage (Neal 2003, *Slice sampling*). Draw a level below the density of the present state, which the
density exceeds in an interval around zero. Propose points uniformly in that interval. A point where z is outside the
truncation set is rejected, and from then on the interval ends there, on that side of the present state; the first other
point is the next state. The step is reversible: from the next state, the same interval and rejected points lead back to
the present one with the same probability.

It has no scale to choose, and nothing in it depends on where the observed state is. Each proposal shortens the interval
by a factor, so that a truncation set a million times narrower takes a few dozen proposals more; and the first proposals
of every step lie anywhere, so that a chain finds the other intervals of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attentest.checks import whole_number
from attentest.search.problem import Indices, Report, SearchProblem
from attentest.statistics.columns import Floats, Integers

MOST_PROPOSALS = 64
"""Most proposals in a step, after which the chain stays where it is: by then the interval is shorter by about a factor
of 1e-13, which is rounding. The paths of at most so many proposals lead forth and back with the same probability, so
the chain remains reversible."""

MOST_DRAWS = 100_000
MOST_STEPS = 10_000
"""Upper limits, against typing errors."""

STREAM = int.from_bytes(b"certificate", "big")  # name of the random numbers that are drawn here

BATCHES_TOGETHER = 8
"""Batches of the model that the chains of all images together fill, so that few batches are half empty."""


def slice_step(
    problem: SearchProblem, image: Indices, state: Floats, rngs: Sequence[np.random.Generator]
) -> tuple[Floats, Integers]:
    """Return the next states (m,) of m chains, and the number of model evaluations (m,) of each.

    Each image, which has a random generator, has as many chains, one after the other.
    """
    chains = len(image) // len(rngs)
    # Which end of the interval place 0 is, how far the log of the level is below that of the density, and the places.
    direction = np.sign(np.concatenate([rng.standard_normal(chains) for rng in rngs]))
    drop = np.concatenate([rng.standard_exponential(chains) for rng in rngs])
    place = np.concatenate([rng.random((chains, MOST_PROPOSALS)) for rng in rngs])
    low, high = _interval_around(state * direction, drop)
    next_state = state.copy()
    evaluations = np.zeros(len(state), dtype=np.int64)
    moving = np.arange(len(state))
    for proposal in range(MOST_PROPOSALS):
        if len(moving) == 0:
            break
        shift = low[moving] + place[moving, proposal] * (high[moving] - low[moving])
        proposed = state[moving] + shift * direction[moving]
        inside = problem.inside_at(image[moving], problem.law.z_of(image[moving], proposed))
        evaluations[moving] += 1
        next_state[moving[inside]] = proposed[inside]
        moving, shift = moving[~inside], shift[~inside]
        low[moving] = np.where(shift < 0, shift, low[moving])
        high[moving] = np.where(shift < 0, high[moving], shift)
    return next_state, evaluations


def _interval_around(state: Floats, drop: Floats) -> tuple[Floats, Floats]:
    """Return how far (m,) one can go from states, backwards and forwards, if the log density may ``drop`` so much.

    The log density is -state^2 / 2.
    """
    # The two roots of s^2 + 2 s state = 2 drop; far from zero the nearer one would be lost in a difference.
    far = -state - np.copysign(np.sqrt(state**2 + 2 * drop), state)
    near = -2 * drop / far
    return np.minimum(far, near), np.maximum(far, near)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeableDraws:
    """The draws for one image."""

    statistics: Floats
    """(n,). Statistics at the ends of the chains: under the hypothesis exchangeable with the observed one."""
    moved: float
    """Share of the chains that left the observed point."""
    evaluations: int
    """Number of model evaluations."""


@dataclass(frozen=True, kw_only=True)
class Certification:
    """How to certify results: by a p-value that is exactly valid whatever a search found.

    Parameters
    ----------
    draws
        Number n of draws: the least possible p-value is 1 / (n + 1).
    steps
        Steps of each chain. Too few cost power, never validity.
    seed
        By default the random numbers of an image are a function of its pixels. A seed draws others.
    """

    draws: int = 99
    steps: int = 6
    seed: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "draws", whole_number(self.draws, "draws", 1, MOST_DRAWS))
        object.__setattr__(self, "steps", whole_number(self.steps, "steps", 1, MOST_STEPS))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number(self.seed, "seed", 0, 2**63 - 1))

    def images_together(self, batch_size: int) -> int:
        """Return how many images are best certified together when the model evaluates ``batch_size`` at a time."""
        return max(1, BATCHES_TOGETHER * batch_size // self.draws)

    def draw(self, problem: SearchProblem, report: Report | None = None) -> list[ExchangeableDraws]:
        """Return the draws for each image of a problem, in order."""
        count, law = len(problem.law), problem.law
        together = max(1, problem.memory // (2 * 8 * MOST_PROPOSALS * self.draws))
        draws = []
        for start in range(0, count, together):
            images = np.arange(start, min(start + together, count))
            stream = (STREAM,) if self.seed is None else (STREAM, self.seed)
            rngs = [problem.generator(int(image), *stream) for image in images]
            states, evaluations = law.state_obs[images], np.zeros(len(images), dtype=np.int64)
            for _ in range(self.steps):
                states, evaluated = slice_step(problem, images, states, rngs)
                evaluations += evaluated
            shape = len(images), self.draws
            chains, states = np.repeat(images, self.draws), np.repeat(states, self.draws)
            for step in range(self.steps):
                states, evaluated = slice_step(problem, chains, states, rngs)
                evaluations += evaluated.reshape(shape).sum(axis=1)
                if report is not None:
                    report((start + (step + 1) / self.steps * len(images)) / count)
            # Given z, T depends on nothing else, for the observed one as for the draws: so they remain exchangeable.
            chance = np.concatenate([rng.standard_normal(self.draws) for rng in rngs])
            statistics = law.statistic_of(chains, law.z_of(chains, states), chance).reshape(shape)
            moved = (states != law.state_obs[chains]).reshape(shape).mean(axis=1)
            draws += [
                ExchangeableDraws(statistics=row.copy(), moved=float(share), evaluations=int(evaluated))
                for row, share, evaluated in zip(statistics, moved, evaluations, strict=True)
            ]
        return draws
