"""The check of any noise model, given in any form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attentest.noise.check.noise_check import NoiseCheck
from attentest.noise.check.run import Progress, checked
from attentest.noise.conversion import NoiseLike, as_noise
from attentest.noise.protocol import FitsNoise

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike


def check_assumptions(
    noise: NoiseLike,
    images: Iterable[ImageLike],
    *,
    alpha: float = 0.05,
    simulations: int = 199,
    rng: Any = 0,
    progress: Progress | None = None,
) -> NoiseCheck:
    """Test whether independent images of the same mean agree with a noise model, assumption by assumption.

    The residuals of the images against their mean are compared with those of images drawn from the model: each
    assumption has a measure, and its p-value is the rank of the images among the drawn ones. Holm's adjustment makes
    ``alpha`` the error rate of all assumptions together. It is exact for a given model, and approximate for an
    estimator.

    Parameters
    ----------
    noise
        A noise model, of attentest or of your own, or a standard deviation. An estimator, fitted or not, is fitted to
        these images, and again to each set of drawn images, so that the error rate allows for it. A model that was
        fitted to these same images is judged too mildly if it is given as a model: give its estimator.
    images
        At least three images of one shape with at least 4 x 4 pixels.
    alpha
        Probability, at most, that an assumption is called broken although all hold.
    simulations
        Number of sets of images that are drawn from the model; at least 8 / alpha.
    rng
        Random generator, or seed, of the drawn images.
    progress
        Function that is called with (sets drawn, their number).
    """
    given = noise if isinstance(noise, FitsNoise) and not isinstance(noise, type) else as_noise(noise)
    return checked(given, images, alpha=alpha, simulations=simulations, rng=rng, progress=progress)
