"""Tests of counts: the region is chosen on a part of each count, and the rest of the counts is compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.contrast.contrast import Contrast, Reference, RegionMean, compared_means
from attentest.errors import InputError
from attentest.noise.poisson import seen_share
from attentest.pipeline.hypotheses import Parts
from attentest.pipeline.observation import Observation
from attentest.search import CONVERGED, SearchOutcome
from attentest.statistics.counts import BinomialCounts
from attentest.statistics.truncation_set import TruncationSet

EVERYWHERE = np.array([[-np.inf, np.inf]])

COUNTED = SearchOutcome(
    truncation_set=TruncationSet(intervals=EVERYWHERE, certain=EVERYWHERE, possible=EVERYWHERE),
    evaluations=1,
    status=CONVERGED,
)
"""What stands for a search: whatever the counts put aside are, the region is the same."""


def check_counted(contrast: Contrast, channel_weights: NDArray[np.float64] | None = None) -> None:
    """Raise an error for contrasts and weights of channels (C,) for which counts have no exact test."""
    if compared_means(contrast) is None or isinstance(contrast, (Reference, RegionMean)):
        raise InputError(
            f"noise='poisson' compares the counts of two parts of an image, but the contrast is {contrast!r}: use "
            "contrast='background' or Neighbourhood(radius).",
            "contrast",
        )
    if channel_weights is not None and len(set(channel_weights[channel_weights != 0].tolist())) > 1:
        raise InputError(
            "noise='poisson' adds the counts of channels up, so that they must have equal weights, got "
            f"{channel_weights.tolist()}: use channels='mean' or the number of one channel.",
            "channels",
        )


def law_of_counts(
    observation: Observation, parts: Parts, contrast: Contrast, gamma: float
) -> tuple[BinomialCounts, list[float]]:
    """Return the law of the counts of parts (r,) that the model did not see, and standard errors of differences."""
    weights, means = observation.batch[0].geometry.channel_weights, compared_means(contrast)
    check_counted(contrast, weights)
    if observation.added is None or means is None:
        raise InputError("counts are tested after randomised selection.", "randomise")
    share, used = seen_share(gamma), weights != 0
    everything = observation.images[:, used].sum(axis=1)
    seen = np.rint(share * (observation.images + observation.added)[:, used]).sum(axis=1)
    inside, outside = means.compared(parts.masks() & observation.seen, parts.per_part(parts.regions), observation.seen)
    masks = [np.asarray(mask, dtype=np.float64) for mask in (inside, outside)]

    def sums(planes: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        products = (mask * parts.per_part(planes) for mask in masks)
        return [product.reshape(len(product), -1).sum(axis=1) for product in products]

    held, every = sums(everything - seen), sums(everything)
    pixels = [used.sum() * mask.reshape(len(mask), -1).sum(axis=1) for mask in masks]
    total = held[0] + held[1]
    if not total.all():
        number = observation.batch[int(parts.image[np.argmin(total)])].number
        raise InputError(
            f"{'the image' if number is None else f'image {number}'} has no counts left to test, of "
            f"{int((every[0] + every[1])[np.argmin(total)])} in all: sum several images, or use a larger randomise."
        )
    law = BinomialCounts.of(held[0], total, pixels[0] / (pixels[0] + pixels[1]), every[0], every[0] + every[1])
    scale = np.sqrt(total * law.share * (1 - law.share)) / (1 - share)
    return law, (scale * (1 / pixels[0] + 1 / pixels[1])).tolist()
