"""Linear systems with a covariance that is known as an operator only."""

from __future__ import annotations

import numpy as np

from attentest.errors import InputError
from attentest.noise.model import FloatArray, NoiseModel

TOLERANCE = 1e-8
"""Largest residual, relative to the right-hand side: far below what changes a p-value visibly."""

MOST_STEPS = 1000
"""Most steps: a covariance that takes more is nearly singular."""


class NearlySingularError(InputError):
    """A covariance with which no linear system can be solved."""


def solved(noise: NoiseModel, target: FloatArray) -> FloatArray:
    """Return x (n,) with ``Sigma x = target`` (n,), by conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg

    operator = LinearOperator((target.size, target.size), matvec=noise.apply, dtype=np.float64)
    found, steps = cg(operator, target, rtol=TOLERANCE, maxiter=MOST_STEPS)
    if steps:
        raise NearlySingularError(
            "the noise that randomised selection added is too smooth to compare with noise of this correlation length "
            "(its covariance is nearly singular): choose other correlation lengths, or randomise=0."
        )
    return np.asarray(found, dtype=np.float64)
