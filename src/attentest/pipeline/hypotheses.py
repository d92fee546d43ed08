"""The tested hypotheses: which parts of the regions are compared, and along which lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attentest.contrast import Contrast, labelled_components, takes_stacks
from attentest.errors import InputError
from attentest.noise import NoiseModel, degrees_of_freedom
from attentest.pipeline.line import Lines, ReferenceTerms, by_model, covariance_times, lines_through

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The compared parts (r,) of the regions of k images: whole regions, or components of them.

    Parameters
    ----------
    image : (r,)
        Index of the image of each part.
    regions : (k, H, W) bool
        The regions of the images.
    labels : (k, H, W)
        Component labels of the regions; None to compare whole regions.
    component : (r,)
        Label of the component of each part.
    """

    image: NDArray[np.int64]
    regions: NDArray[np.bool_]
    labels: NDArray[np.int32] | None
    component: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.image)

    def masks(self) -> NDArray[np.bool_]:
        """Return the pixels (r, H, W) of each part; computed when needed, because there may be hundreds per image."""
        if self.labels is None:
            return self.per_part(self.regions)
        return np.asarray(self.per_part(self.labels) == self.component[:, None, None])

    def per_part(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Repeat per-image values (k, ...) once per part, (r, ...).

        It is not a copy where whole regions are compared, or there is one image.
        """
        if len(values) == 1:
            return np.broadcast_to(values, (len(self), *values.shape[1:]))
        whole = self.labels is None and len(self) == len(values)
        return values if whole else values[self.image]

    def siblings(self) -> NDArray[np.int64]:
        """Return the number (r,) of parts of the region of each part, itself among them."""
        if self.labels is None:
            return np.ones(len(self), dtype=np.int64)
        counts: NDArray[np.int64] = self.labels.reshape(len(self.labels), -1).max(axis=1).astype(np.int64)
        return counts[self.image]

    def chunks(self, size: int) -> Iterator[Parts]:
        """Yield the parts, ``size`` at a time."""
        for start in range(0, len(self), size):
            some = slice(start, start + size)
            yield replace(self, image=self.image[some], component=self.component[some])


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageData:
    """What hypotheses about k images of one shape need to know of them.

    Parameters
    ----------
    images : (k, C, H, W)
        The images.
    noise
        Noise model of each image.
    seen : (H, W) bool
        The pixels that the model sees.
    channel_weights : (C,)
        Weight of each channel.
    references : (k, C, H, W)
        Reference images, where the contrast has one.
    reference_noise
        Noise model of each reference; empty if references are exact.
    added : (k, C, H, W)
        Noise that was added to the images before the model saw them, if any was.
    added_noise
        Noise model, up to a factor, that the added noise of each image was drawn from; empty if it is that of the
        image.
    """

    images: NDArray[np.float64]
    noise: Sequence[NoiseModel]
    seen: NDArray[np.bool_]
    channel_weights: NDArray[np.float64]
    references: NDArray[np.float64] | None = None
    reference_noise: Sequence[NoiseModel] = ()
    added: NDArray[np.float64] | None = None
    added_noise: Sequence[NoiseModel] = ()

    def seen_image(self, number: int) -> NDArray[np.float64]:
        """Return an image (C, H, W) as the model saw it: with the added noise, if there is any."""
        image: NDArray[np.float64] = self.images[number]
        return image if self.added is None else image + self.added[number]


def parts_of(regions: NDArray[np.bool_], connectivity: int | None) -> Parts:
    """Return the compared parts of regions (k, H, W): each as a whole, or its components of a connectivity."""
    if connectivity is None:
        each = np.arange(len(regions))
        return Parts(image=each, regions=regions, labels=None, component=np.zeros_like(each))
    labelled = [labelled_components(region, connectivity) for region in regions]
    counts = [count for _, count in labelled]
    return Parts(
        image=np.repeat(np.arange(len(regions)), counts),
        regions=regions,
        labels=np.stack([labels for labels, _ in labelled]),
        component=np.concatenate([np.arange(1, count + 1) for count in counts]),
    )


def lines_of(data: ImageData, parts: Parts, contrast: Contrast) -> Lines:
    """Return the lines (r,) along which only the contrast of each part varies."""
    noise = [data.noise[image] for image in parts.image]
    terms = None
    if data.references is not None:
        reference_eta = _eta(contrast.reference_weights, data, parts)
        references = parts.per_part(data.references.reshape(len(data.references), -1))
        values = np.einsum("ki,ki->k", reference_eta, references)
        variances, degrees = np.zeros(len(parts)), np.full(len(parts), np.inf)
        if data.reference_noise:
            own = [data.reference_noise[image] for image in parts.image]
            variances = np.einsum("ki,ki->k", reference_eta, covariance_times(own, reference_eta))
            degrees = by_model(degrees_of_freedom, own, reference_eta)
        terms = ReferenceTerms(values=values, variances=variances, degrees=degrees)
        del reference_eta, references
    images = parts.per_part(data.images.reshape(len(data.images), -1))
    added = None if data.added is None else parts.per_part(data.added.reshape(len(data.added), -1))
    added_noise = [data.added_noise[image] for image in parts.image] if data.added_noise else noise
    return lines_through(images, _eta(contrast.weights, data, parts), noise, terms, added, added_noise)


def _eta(weigh: Callable[..., NDArray[np.float64]], data: ImageData, parts: Parts) -> NDArray[np.float64]:
    """Return the contrasts (r, n) of parts, all at once where the contrast supports it."""
    masks, regions, shape = parts.masks(), parts.per_part(parts.regions), data.images.shape[1:]
    if takes_stacks(weigh):
        return _per_pixel(weigh(masks, regions, data.seen), data.channel_weights, shape)
    one_by_one = (weigh(mask, region, data.seen) for mask, region in zip(masks, regions, strict=True))
    return np.concatenate([_per_pixel(weights[None], data.channel_weights, shape) for weights in one_by_one])


def _per_pixel(
    weights: NDArray[np.float64], channel_weights: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return weights (m, H, W) or (m, C, H, W) as contrasts (m, n) of images (C, H, W)."""
    if weights.ndim == 3:
        weights = channel_weights[:, None, None] * weights[:, None]
    if weights.shape[1:] != shape:
        raise InputError(
            f"the contrast gives weights of shape {weights.shape[1:]}, but the image has (C, H, W) = {shape}: give "
            "(H, W) for all channels together, or one plane for each."
        )
    return weights.reshape(len(weights), -1)
