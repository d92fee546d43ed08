"""The tested hypotheses: which parts of the regions are compared, and along which lines X(z) = a + b z (section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attentest.contrast.contrast import (
    Contrast,
    Reference,
    RegionMean,
    compared_means,
    labelled_components,
    per_pixel,
    takes_stacks,
)
from attentest.errors import InputError
from attentest.images.sample import add_values, stacked
from attentest.noise import NoiseModel
from attentest.noise.model import complete, solved
from attentest.noise.tested_image import seen_share
from attentest.pipeline.observation import Observation
from attentest.search import CONVERGED, SearchOutcome
from attentest.statistics.selection_laws import BinomialCounts
from attentest.statistics.truncation_set import TruncationSet

PRODUCTS_TOGETHER = 2**18  # products that are added at a time


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One line for each of k images: the part of it that does not depend on the image that the model sees."""

    covariance_eta: NDArray[np.float64]
    """(k, n). Sigma eta."""
    statistic: NDArray[np.float64]
    """(k,). Observed statistics T(X) = eta' X / sqrt(eta' Sigma eta)."""
    z_obs: NDArray[np.float64]
    """(k,). Coordinates of the images that the model sees: the statistics, unless noise was added to the images."""
    standard_error: NDArray[np.float64]
    """(k,). sqrt(eta' Sigma eta), in the units of the pixels; with a reference, that of both together."""
    own_share: NDArray[np.float64]
    """(k,). Share of the image's own noise in the variance of the contrast: 1, unless there is a noisy reference. If
    noise of another covariance was added to the image, b' times its inverse times b, which is the same for its own."""
    degrees: NDArray[np.float64]
    """(k,). Degrees of freedom of the estimates of that variance: infinite for noise that is known."""


def lines_through(
    images: NDArray[np.float64],
    eta: NDArray[np.float64],
    noise: Sequence[NoiseModel],
    references: tuple[NDArray[np.float64], NDArray[np.float64], Sequence[NoiseModel]] | None = None,
    added: NDArray[np.float64] | None = None,
    added_noise: Sequence[NoiseModel] | None = None,
) -> Lines:
    """Return the lines through images along which only the tested contrast varies.

    Parameters
    ----------
    images : (k, n)
        Observed images, flattened.
    eta : (k, n)
        Contrast of each image.
    noise
        Noise model of each image.
    references
        Observed references R (k, n), the contrast (k, n) of each, and their noise models, none if they are exact. Image
        and reference form one vector with independent noise, and the line passes through both; what is returned is its
        projection on the image, which is all that the model sees.
    added : (k, n)
        Noise W that was added to the images before the model saw them, and to no reference. The contrast of X and that
        of W move X + W in the same direction, but X moves less where a reference takes its share of the noise. The
        coordinate of X + W counts W accordingly.
    added_noise
        Noise model Sigma_W, up to a factor, of the added noise of each image; by default ``noise``. What is left of
        X + W beside its coordinate z = T + v' W must depend on neither, so that Sigma_W v must point along the line:
        v = x / b' x with Sigma_W x = b. For Sigma_W = Sigma this is eta up to a factor.
    """
    error = _variance_errors(noise, eta)
    covariance_eta = covariance_times(noise, eta)
    variance = np.einsum("ki,ki->k", eta, covariance_eta)
    floor = eta.shape[1] * np.finfo(np.float64).eps * _sums_of_absolute_products(eta, covariance_eta)
    floor = np.maximum(floor, by_model(_rounding_of_variances, noise, eta))  # below it, a variance is zero
    values = np.einsum("ki,ki->k", eta, images)
    own = variance
    reference_error: NDArray[np.float64] | float = 0.0
    if references is not None:
        pixels, reference_eta, reference_noise = references
        values = values + np.einsum("ki,ki->k", reference_eta, pixels)
        if reference_noise:
            covariances = covariance_times(reference_noise, reference_eta)
            variance = variance + np.einsum("ki,ki->k", reference_eta, covariances)
            reference_error = _variance_errors(reference_noise, reference_eta)
    if not np.all(np.isfinite(variance)):
        raise InputError("the variance of the compared difference overflows: use smaller units for contrast and noise.")
    if np.any(variance <= floor):
        raise InputError(
            f"the noise model gives the compared difference no variance ({float(variance.min()):.3g}): there is no "
            "noise to test it against."
        )
    scale = np.sqrt(variance)
    statistic, own_share = values / scale, own / variance
    if references is not None:
        # Both may be the same estimate: their errors are added as if they were.
        error = own_share * error + (1 - own_share) * reference_error
    with np.errstate(divide="ignore"):
        degrees = np.asarray(2 / error**2)
    z_obs = statistic
    if added is not None:
        if np.any(own <= floor):
            raise InputError(
                "the noise model gives the pixels that are compared no variance, so that nothing can be randomised: "
                "use randomise=0.",
                "randomise",
            )
        moved = np.einsum("ki,ki->k", eta, added) / scale
        for row, (model, own_model) in enumerate(zip(added_noise or noise, noise, strict=True)):
            if model is not own_model:
                direction = covariance_eta[row] / scale[row]
                dual = solved(model, direction)  # x in the explanation of added_noise; otherwise it is eta / scale
                own_share[row], moved[row] = direction @ dual, dual @ added[row]
        z_obs = statistic + moved / own_share
    return Lines(
        covariance_eta=covariance_eta,
        statistic=statistic,
        z_obs=z_obs,
        standard_error=scale,
        own_share=own_share,
        degrees=degrees,
    )


def _rounding_of_variances(noise: NoiseModel, eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about how large eta' Sigma eta (k,) is computed for contrasts (k, n) whose variance is zero.

    Elements of Sigma are at most s_i s_j, with the standard deviations s of the pixels. So Sigma eta is computed with
    an error of about sqrt(n) eps s_i sum_j s_j |eta_j|, because n rounding errors add up like independent ones, and
    the variance with one of sqrt(n) eps (sum_j s_j |eta_j|)^2; this is four times as much. Independent noise of equal
    variance has at least the share 1 / n of that square, which is far more. Zero for a model that does not know its
    variances.
    """
    if not hasattr(noise, "variances"):
        return np.zeros(len(eta))
    n = eta.shape[1]
    largest = _sums_of_absolute_products(eta, np.sqrt(noise.variances(n))[None])
    with np.errstate(over="ignore"):  # where it overflows, the variance does too
        return np.asarray(4 * np.sqrt(n) * np.finfo(np.float64).eps * largest**2)


def _sums_of_absolute_products(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums (k,) of the absolute products of values (k, n) and (k or 1, n), a few at a time."""
    sums = np.zeros(len(first))
    step = max(1, PRODUCTS_TOGETHER // max(1, len(first)))
    for start in range(0, first.shape[1], step):
        products = first[:, start : start + step] * second[:, start : start + step]
        sums += np.abs(products, out=products).sum(axis=1)
    return sums


def covariance_times(noise: Sequence[NoiseModel], eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Sigma eta (k, n) of contrasts (k, n) with the noise model of each."""
    for model in noise:
        if model.size not in (None, eta.shape[1]):
            raise InputError(f"the noise model is for {model.size} pixels, but the image has {eta.shape[1]}.")
    return by_model(lambda model, rows: model.apply(rows), noise, eta)


def by_model(
    function: Callable[[NoiseModel, NDArray[np.float64]], NDArray[np.float64]],
    noise: Sequence[NoiseModel],
    eta: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a function of noise models and contrasts (k, n) for contrasts with the noise model of each."""
    if all(model is noise[0] for model in noise):
        return function(noise[0], eta)
    return np.concatenate([function(model, row[None]) for model, row in zip(noise, eta, strict=True)])


def _variance_errors(noise: Sequence[NoiseModel], eta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the relative standard errors (k,) of estimated variances of contrasts (k, n), 0 for known noise."""
    degrees = by_model(lambda model, rows: complete(model).degrees_of_freedom(rows), noise, eta)
    return np.asarray(np.sqrt(2 / degrees))


Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The compared parts (r,) of the regions of k images: whole regions, or components of them."""

    image: NDArray[np.int64]
    """(r,). Index of the image of each part."""
    regions: NDArray[np.bool_]
    """(k, *axes) bool. The regions of the images."""
    labels: NDArray[np.int32] | None
    """(k, *axes). Component labels of the regions; None to compare whole regions."""
    component: NDArray[np.int64]
    """(r,). Label of the component of each part."""

    def __len__(self) -> int:
        return len(self.image)

    def masks(self) -> NDArray[np.bool_]:
        """Return the pixels (r, *axes) of each part; computed when needed, because there may be hundreds per image."""
        if self.labels is None:
            return self.per_part(self.regions)
        return np.asarray(self.per_part(self.labels) == self.component.reshape(-1, *[1] * (self.labels.ndim - 1)))

    def per_part(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Repeat per-image values (k, ...) once per part, (r, ...).

        It is not a copy where whole regions are compared, or there is one image.
        """
        if len(values) == 1:
            return np.broadcast_to(values, (len(self), *values.shape[1:]))
        whole = self.labels is None and len(self) == len(values)
        return values if whole else values[self.image]

    def within(self, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether each part (r,) has one of some pixels (*axes)."""
        if self.labels is None:
            return np.asarray(self.regions[:, seen].any(axis=1))[self.image]
        pairs = zip(self.image.tolist(), self.component.tolist(), strict=True)
        present = [set(labels[seen].tolist()) for labels in self.labels]
        return np.array([component in present[image] for image, component in pairs], dtype=np.bool_)

    def siblings(self) -> NDArray[np.int64]:
        """Return the number (r,) of parts of the region of each part, itself among them."""
        if self.labels is None:
            return np.ones(len(self), dtype=np.int64)
        counts: NDArray[np.int64] = self.labels.reshape(len(self.labels), -1).max(axis=1).astype(np.int64)
        return counts[self.image]

    def chosen(self, rows: slice | NDArray[np.bool_]) -> Parts:
        """Return some of the parts."""
        return replace(self, image=self.image[rows], component=self.component[rows])

    def chunks(self, size: int) -> Iterator[Parts]:
        """Yield the parts, ``size`` at a time."""
        return (self.chosen(slice(start, start + size)) for start in range(0, len(self), size))


def parts_of(regions: NDArray[np.bool_], connectivity: int | None) -> Parts:
    """Return the compared parts of regions (k, *axes): each as a whole, or its components of a connectivity."""
    if connectivity is None:
        images = np.arange(len(regions))
        return Parts(image=images, regions=regions, labels=None, component=np.zeros_like(images))
    labelled = [labelled_components(region, connectivity) for region in regions]
    counts = [count for _, count in labelled]
    return Parts(
        image=np.repeat(np.arange(len(regions)), counts),
        regions=regions,
        labels=np.stack([labels for labels, _ in labelled]),
        component=np.concatenate([np.arange(1, count + 1) for count in counts]),
    )


def lines_of(observation: Observation, parts: Parts, contrast: Contrast) -> Lines:
    """Return the lines (r,) along which only the contrast of each part varies."""
    tested = [observation.batch[image] for image in parts.image]

    def vectors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return parts.per_part(values.reshape(len(values), -1))

    references = None
    if tested[0].reference is not None:
        references = (
            vectors(stacked([item.reference.pixels for item in observation.batch if item.reference is not None])),
            _eta(contrast.reference_weights, observation, parts),
            [item.reference_noise for item in tested if item.reference_noise is not None],
        )
    return lines_through(
        vectors(observation.images),
        _eta(contrast.weights, observation, parts),
        [item.noise for item in tested],
        references,
        None if observation.added is None else vectors(observation.added),
        [item.selection_noise or item.noise for item in tested],
    )


def weights_of(contrast: Contrast, observation: Observation) -> NDArray[np.float64]:
    """Return the contrasts (k, n) of whole regions."""
    return _eta(contrast.weights, observation, parts_of(observation.regions_on_images(), None))


class UntestedParts(InputError):
    """Parts that have nothing to compare within the mask."""

    rows: NDArray[np.bool_]
    """(r,). Which of the parts they are."""


OUTSIDE_THE_MASK = (
    "this component of the region has no pixel within the mask: use mask_use='both', which chooses the region within "
    "it."
)
NOTHING_AROUND = (
    "the contrast has no pixel within the mask to compare the region with: use a larger mask, a larger radius, or "
    "contrast='background'."
)


def _check_parts(compared: NDArray[np.bool_], reason: str) -> None:
    """Raise an error for a reason if some parts (r,) cannot be compared."""
    if not compared.all():
        error = UntestedParts(reason, "mask_use" if reason == OUTSIDE_THE_MASK else "mask")
        error.rows = ~compared
        raise error


def _eta(weigh: Callable[..., NDArray[np.float64]], observation: Observation, parts: Parts) -> NDArray[np.float64]:
    """Return the contrasts (r, n) of parts, all at once where the contrast supports it."""
    masks, regions, shape = parts.masks(), parts.per_part(parts.regions), observation.images.shape[1:]
    seen, channel_weights = observation.seen, observation.batch[0].geometry.channel_weights
    if observation.batch[0].geometry.compared is not None:
        masks = masks & seen
        _check_parts(parts.within(seen), OUTSIDE_THE_MASK)
    with np.errstate(divide="ignore", invalid="ignore"):  # of a mean over no pixels, below
        if takes_stacks(weigh):
            eta = per_pixel(weigh(masks, regions, seen), channel_weights, shape)
        else:
            weights = (weigh(mask, region, seen) for mask, region in zip(masks, regions, strict=True))
            eta = np.concatenate([per_pixel(part_weights[None], channel_weights, shape) for part_weights in weights])
    if observation.batch[0].geometry.compared is not None:
        _check_parts(np.asarray(np.isfinite(eta).all(axis=1)), NOTHING_AROUND)
    return eta


KEY = b"attentest 1"  # changes with every change of how random numbers are drawn


def seeds_of(observation: Observation, parts: Parts) -> NDArray[np.uint64]:
    """Return a seed (r,) for each part, from the bytes of the pixels that the model sees and from its component."""
    seen = None if observation.seen.all() else observation.seen
    images = observation.same_image[parts.image].tolist()
    digests = {image: _digest(observation.images[image], seen) for image in set(images)}
    seeds = (
        hashlib.blake2b(digests[image] + component.to_bytes(8, "little"), digest_size=8).digest()
        for image, component in zip(images, parts.component.tolist(), strict=True)
    )
    return np.frombuffer(b"".join(seeds), dtype="<u8").astype(np.uint64)


def _digest(pixels: NDArray[np.float64], seen: NDArray[np.bool_] | None) -> bytes:
    """Return a digest of the pixels (C, *axes) that the model sees (*axes), None for all."""
    digest = hashlib.blake2b(key=KEY, digest_size=16)
    for plane in pixels:
        add_values(digest, plane if seen is None else plane[seen])
    return digest.digest()


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
    for counts, reason in zip(pixels, (OUTSIDE_THE_MASK, NOTHING_AROUND), strict=True):
        _check_parts(counts > 0, reason)
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
