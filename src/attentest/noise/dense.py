"""Noise with a full covariance matrix, and linear systems with a covariance that is an operator."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError
from attentest.noise.model import BaseNoise, FloatArray, NoiseModel, deviations_text, finite_array, sample_shape

SYMMETRY_TOLERANCE = 1e-10
"""Largest ``|Sigma - Sigma'|`` allowed, relative to the largest entry: above rounding, below any real asymmetry."""

DEFINITENESS_TOLERANCE = 1e-10
"""Most negative eigenvalue allowed, relative to the largest variance: a singular covariance passes."""


class Dense(BaseNoise):
    """Noise with a full covariance matrix, for small images.

    Parameters
    ----------
    covariance : array of shape (n, n)
        Symmetric positive semi-definite; checked here, in O(n^3).
    """

    name: ClassVar = "dense"
    parameters: ClassVar = {"covariance": np.ndarray}
    estimator: ClassVar = "shrunk"

    def __init__(self, covariance: ArrayLike) -> None:
        matrix = finite_array(covariance, "covariance")
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise InputError(f"covariance must be a square (n, n) matrix, got shape {matrix.shape}.")
        asymmetry = np.abs(matrix - matrix.T).max()
        if asymmetry > SYMMETRY_TOLERANCE * np.abs(matrix).max():
            raise InputError(f"covariance must be symmetric, but it differs from its transpose by {asymmetry:.3g}.")
        matrix = matrix / 2 + matrix.T / 2
        matrix.setflags(write=False)
        self.covariance: FloatArray = matrix
        self.factor: FloatArray = _cholesky_factor(matrix)

    def __repr__(self) -> str:
        return f"Dense(<{self.size} x {self.size} covariance, sd {deviations_text(np.diag(self.covariance))}>)"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return int(self.covariance.shape[0])

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``covariance @ v`` along the last axis."""
        return v @ self.covariance

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return rng.standard_normal(sample_shape(k, n, self.size)) @ self.factor.T

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.diag(self.covariance)

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return np.asarray(self.covariance[np.ix_(places, places)])

    def words(self) -> str:
        """Return the model in words."""
        variances = np.diag(self.covariance)
        scale = np.sqrt(np.outer(variances, variances))
        correlations = np.divide(self.covariance, scale, out=np.zeros_like(scale), where=scale > 0)
        np.fill_diagonal(correlations, 0.0)
        strongest = correlations.flat[np.abs(correlations).argmax()]
        return (
            f"A covariance matrix of all {self.size:,} pixel values, with the standard deviations "
            f"{deviations_text(variances)} and {strongest:z.2f} as the strongest correlation"
        )


def _cholesky_factor(covariance: FloatArray) -> FloatArray:
    """Return the lower Cholesky factor (n, n) of a covariance plus a tiny diagonal, which a singular one needs."""
    from scipy.linalg import cholesky  # here because scipy.linalg is slow to import

    largest = float(np.diag(covariance).max())
    regular = covariance + DEFINITENESS_TOLERANCE * largest * np.eye(len(covariance))
    try:
        if largest <= 0:
            raise np.linalg.LinAlgError("no positive variance")
        return np.asarray(cholesky(regular, lower=True, check_finite=False), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(covariance)[0])
        raise InputError(
            "covariance must be positive semi-definite with some variance, "
            f"but its smallest eigenvalue is {smallest:.3g} and its largest variance {largest:.3g}."
        ) from None


TOLERANCE = 1e-8  # largest residual, relative to the right-hand side: far below what changes a p-value visibly
MOST_STEPS = 1000  # most steps: a covariance that takes more is nearly singular

TOO_SMOOTH = (
    "the noise that randomised selection added is too smooth to compare with noise of this correlation length (its "
    "covariance is nearly singular)"
)


class NearlySingularError(InputError):
    """A covariance with which no linear system can be solved."""


def solved(noise: NoiseModel, target: FloatArray) -> FloatArray:
    """Return x (n,) with ``Sigma x = target`` (n,), by conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg

    operator = LinearOperator((target.size, target.size), matvec=noise.apply, dtype=np.float64)
    solution, steps = cg(operator, target, rtol=TOLERANCE, maxiter=MOST_STEPS)
    if steps:
        raise NearlySingularError(f"{TOO_SMOOTH}: choose other correlation lengths, or randomise=0.")
    return np.asarray(solution, dtype=np.float64)
