"""Contrasts of a linearly filtered image: the filter moves from the image to the weights, eta' = F^T eta."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array, positive_number
from attentest.contrast.contrast import Background, ContrastLike, Mask, Reference, Weights, as_contrast
from attentest.errors import InputError
from attentest.registry import FILTERS

Border: TypeAlias = Literal["reflect", "nearest", "mirror", "wrap", "constant"]

PADDING = {"reflect": "symmetric", "nearest": "edge", "mirror": "reflect", "wrap": "wrap", "constant": "constant"}
"""NumPy's names of SciPy's ways to continue an image beyond its border."""

ROUNDING = 1e-13  # a sum smaller than this fraction of its largest terms is rounding error
LARGEST_KERNEL = 4096  # largest side of a kernel in pixels, longer than that of an image


def laplacian(dimension: int = 2) -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.laplace`` for so many axes, three pixels along each."""
    one, second = np.array([0.0, 1.0, 0.0]), np.array([1.0, -2.0, 1.0])
    return sum(
        (_product([second if i == axis else one for i in range(dimension)]) for axis in range(dimension)),
        np.zeros((3,) * dimension),
    )


def sobel_x(dimension: int = 2) -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.sobel`` along the last axis, the rows of an image."""
    return _product([*[np.array([1.0, 2.0, 1.0])] * (dimension - 1), np.array([-1.0, 0.0, 1.0])])


def sobel_y(dimension: int = 2) -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.sobel`` along the axis before the last, the columns of an image."""
    if dimension == 1:
        raise InputError("sobel-y is along the second axis, and a signal has one: use sobel-x.", "kernel")
    return np.swapaxes(sobel_x(dimension), -1, -2)


def gaussian(sigma: float, truncate: float = 4.0, dimension: int = 2) -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.gaussian_filter``, with sides of the same odd length.

    sigma is in pixels, and the border ``truncate`` times as far from the centre.
    """
    sigma, truncate = positive_number(sigma, "sigma (of the blur)"), positive_number(truncate, "truncate")
    if sigma * truncate > LARGEST_KERNEL / 2 - 1:
        raise InputError(f"a blur of sigma {sigma:g} is larger than any image: use at most {LARGEST_KERNEL // 10}.")
    radius = int(truncate * sigma + 0.5)
    profile = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    profile /= profile.sum()
    return _product([profile] * dimension)


def _product(profiles: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the products of profiles along each axis."""
    return np.asarray(functools.reduce(np.multiply.outer, profiles))


class Filtered:
    """A contrast of the linearly filtered image instead of the image: of its blur, its edges or another feature.

    Parameters
    ----------
    kernel
        "laplacian", "sobel-x" (along a row: vertical edges), "sobel-y", "gaussian:2" (of this standard deviation),
        or any array with the axes of the image and no larger, such as ``gaussian(sigma=2)``. The image is correlated
        with it as by ``scipy.ndimage.correlate``: not mirrored, centred at the middle of each side, rounded up.
    of
        Contrast of the filtered image; by default the region minus its background.
    border
        How the image is continued beyond its border, by SciPy's names.
    """

    def __init__(self, kernel: str | ArrayLike, of: ContrastLike | None = None, border: Border = "reflect") -> None:
        self._text = kernel if isinstance(kernel, str) else None
        self._kernels: dict[int, NDArray[np.float64]] = {}  # by their number of axes
        if self._text is not None:
            self._kernel(2)  # an error is said at once
        else:
            array = float_array(kernel, "kernel")
            if array.ndim not in (1, 2, 3) or array.size == 0:
                got = f"{array.dtype} of shape {array.shape}"
                raise InputError(
                    f"kernel must be an array of numbers with the axes of the image, (h, w), got {got}.", "kernel"
                )
            if not np.all(np.isfinite(array)) or not np.any(array):
                raise InputError("kernel must be finite and not all zero.", "kernel")
            self._kernels[array.ndim] = array
        self.of = Background() if of is None else as_contrast(of)
        if border not in get_args(Border):
            raise InputError(f"border must be one of {', '.join(get_args(Border))}, got {border!r}.")
        self._border = border

    def _kernel(self, dimension: int) -> NDArray[np.float64]:
        """Return the kernel for images with so many axes."""
        if dimension not in self._kernels and self._text is not None:
            axes = {} if dimension == 2 else {"dimension": dimension}  # a filter that was added may be of images alone
            self._kernels[dimension] = FILTERS.create(self._text, "kernel", "an array (h, w)", **axes)
        if dimension not in self._kernels:
            (own,) = self._kernels
            raise InputError(
                f"the filter's kernel is an array with {own} {'axis' if own == 1 else 'axes'}, but the image has "
                f"{dimension}: give an array with as many axes as the image, or the name of a filter.",
                "kernel",
            )
        return self._kernels[dimension]

    @property
    def reference(self) -> Reference | None:
        """The reference image of the contrast of the filtered image."""
        return self.of.reference

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the image before it is filtered."""
        return self.adjoint(self.of.weights(part, region, seen), seen.ndim)

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the reference before it is filtered."""
        return self.adjoint(self.of.reference_weights(part, region, seen), seen.ndim)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Check that images (C, *axes) are not smaller than the kernel."""
        sides = self._kernel(len(shape) - 1).shape
        if any(side > length for side, length in zip(sides, shape[1:], strict=True)):
            raise InputError(
                f"the filter's kernel has shape {sides}, larger than the image's {shape[1:]}: use a "
                "smaller kernel, or a blur of smaller sigma."
            )
        self.of.check_image(shape)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters, the kernel by its name or, of an array, by its shape and a hash of its values."""
        kernel: dict[str, Any] = {"kernel": self._text}
        if self._text is None:
            (array,) = self._kernels.values()
            digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            kernel = {"kernel": "array", "kernel_shape": list(array.shape), "kernel_sha256": digest}
        return {
            "name": "filtered",
            **kernel,
            "border": self._border,
            "of": dict(self.of.describe()),
        }

    def __repr__(self) -> str:
        sides = " x ".join(map(str, next(iter(self._kernels.values())).shape))
        kernel = repr(self._text) if self._text is not None else f"<{sides} kernel>"
        return f"Filtered({kernel}, of={self.of!r}, border={self._border!r})"

    def filtered(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return F x (*axes) for an image x (*axes)."""
        from scipy.signal import correlate  # here because scipy.signal is slow to import

        return np.asarray(correlate(self._continued(image, beyond=0.0), self._kernel(image.ndim), mode="valid"))

    def _continued(self, image: NDArray[Any], beyond: float) -> NDArray[Any]:
        """Return an image continued beyond its border as far as the kernel reaches, by a constant if that is asked."""
        pads = [(side // 2, side - 1 - side // 2) for side in self._kernel(image.ndim).shape]
        if self._border == "constant":
            return np.pad(image, pads, constant_values=beyond)
        return np.pad(image, pads, mode=PADDING[self._border])  # type: ignore[call-overload,no-any-return]

    def adjoint(self, weights: Weights, dimension: int = 2) -> Weights:
        """Return F^T w for weights w (..., *axes) of the filtered image: the weights of the image itself."""
        from scipy.signal import convolve  # here because scipy.signal is slow to import

        sides, kernel = weights.shape[-dimension:], self._kernel(dimension)
        pixels = math.prod(sides)
        came_from = self._continued(np.arange(pixels).reshape(sides), beyond=pixels)

        def folded(plane: Weights, kernel: NDArray[np.float64]) -> Weights:
            spread = convolve(plane, kernel)
            return np.asarray(np.bincount(came_from.ravel(), spread.ravel(), pixels + 1)[:-1], dtype=np.float64)

        planes = []
        for plane in weights.reshape(-1, *sides):
            weight = folded(plane, kernel)
            # Weights that cancel up to rounding are set to zero, or the test would be of rounding errors.
            terms = folded(np.abs(plane), np.abs(kernel))
            planes.append(np.where(np.abs(weight) > ROUNDING * terms.max(), weight, 0.0))
        return np.asarray(np.reshape(planes, weights.shape))
