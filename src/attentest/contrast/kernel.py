"""Contrasts of a linearly filtered image: the filter moves from the image to the weights, eta' = F^T eta."""

from __future__ import annotations

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

ROUNDING = 1e-13
"""A sum smaller than this fraction of its largest terms is rounding error."""

LARGEST_KERNEL = 4096
"""Largest side of a kernel in pixels, longer than that of an image."""


def laplacian() -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.laplace``, (3, 3)."""
    return np.array([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])


def sobel_x() -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.sobel`` along rows, (3, 3)."""
    return np.array([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])


def sobel_y() -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.sobel`` along columns, (3, 3)."""
    return sobel_x().T


def gaussian(sigma: float, truncate: float = 4.0) -> NDArray[np.float64]:
    """Return the kernel of ``scipy.ndimage.gaussian_filter``, square with an odd side.

    Parameters
    ----------
    sigma
        Standard deviation in pixels.
    truncate
        Number of standard deviations from the centre to the border of the kernel.
    """
    sigma, truncate = positive_number(sigma, "sigma (of the blur)"), positive_number(truncate, "truncate")
    if sigma * truncate > LARGEST_KERNEL / 2 - 1:
        raise InputError(f"a blur of sigma {sigma:g} is larger than any image: use at most {LARGEST_KERNEL // 10}.")
    radius = int(truncate * sigma + 0.5)
    profile = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    profile /= profile.sum()
    return np.outer(profile, profile)


class Filtered:
    """A contrast of the linearly filtered image instead of the image: of its blur, its edges or another feature.

    Parameters
    ----------
    kernel
        "laplacian", "sobel-x" (along a row: vertical edges), "sobel-y", ``gaussian(sigma=2)``, or any array (h, w), no
        larger than the image. The image is correlated with it as by ``scipy.ndimage.correlate``: not mirrored,
        centred at (h // 2, w // 2).
    of
        Contrast of the filtered image; by default the region minus its background.
    border
        How the image is continued beyond its border, by SciPy's names.
    """

    def __init__(self, kernel: str | ArrayLike, of: ContrastLike | None = None, border: Border = "reflect") -> None:
        self._name = kernel if isinstance(kernel, str) and kernel in FILTERS else "array"
        self._kernel: NDArray[np.float64] = (
            FILTERS.create(kernel, "kernel", "an array (h, w)")
            if isinstance(kernel, str)
            else float_array(kernel, "kernel")
        )
        if self._kernel.ndim != 2 or self._kernel.size == 0:
            got = f"{self._kernel.dtype} of shape {self._kernel.shape}"
            raise InputError(f"kernel must be an array (h, w) of numbers, got {got}.", "kernel")
        if not np.all(np.isfinite(self._kernel)) or not np.any(self._kernel):
            raise InputError("kernel must be finite and not all zero.", "kernel")
        self.of = Background() if of is None else as_contrast(of)
        if border not in get_args(Border):
            raise InputError(f"border must be one of {', '.join(get_args(Border))}, got {border!r}.")
        self._border = border

    @property
    def reference(self) -> Reference | None:
        """The reference image of the contrast of the filtered image."""
        return self.of.reference

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the image before it is filtered."""
        return self.adjoint(self.of.weights(part, region, seen))

    def reference_weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the weight of each pixel of the reference before it is filtered."""
        return self.adjoint(self.of.reference_weights(part, region, seen))

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Check that images (C, H, W) are not smaller than the kernel."""
        if any(side > length for side, length in zip(self._kernel.shape, shape[1:], strict=True)):
            raise InputError(
                f"the filter's kernel has shape {self._kernel.shape}, larger than the image's {shape[1:]}: use a "
                "smaller kernel, or a blur of smaller sigma."
            )
        self.of.check_image(shape)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters, the kernel by its name and shape."""
        return {
            "name": "filtered",
            "kernel": self._name,
            "kernel_shape": list(self._kernel.shape),
            "border": self._border,
            "of": dict(self.of.describe()),
        }

    def __repr__(self) -> str:
        rows, columns = self._kernel.shape
        kernel = repr(self._name) if self._name != "array" else f"<{rows} x {columns} kernel>"
        return f"Filtered({kernel}, of={self.of!r}, border={self._border!r})"

    def filtered(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return F x (H, W) for an image x (H, W)."""
        from scipy.signal import correlate  # here because scipy.signal is slow to import

        return np.asarray(correlate(self._continued(image, beyond=0.0), self._kernel, mode="valid"))

    def _continued(self, image: NDArray[Any], beyond: float) -> NDArray[Any]:
        """Return an image continued beyond its border as far as the kernel reaches, by a constant if that is asked."""
        pads = [(side // 2, side - 1 - side // 2) for side in self._kernel.shape]
        if self._border == "constant":
            return np.pad(image, pads, constant_values=beyond)
        return np.pad(image, pads, mode=PADDING[self._border])  # type: ignore[call-overload,no-any-return]

    def adjoint(self, weights: Weights) -> Weights:
        """Return F^T w (..., H, W) for weights w (..., H, W) of the filtered image: the weights of the image itself."""
        from scipy.signal import convolve  # here because scipy.signal is slow to import

        height, width = weights.shape[-2:]
        came_from = self._continued(np.arange(height * width).reshape(height, width), beyond=height * width)

        def folded(plane: Weights, kernel: NDArray[np.float64]) -> Weights:
            spread = convolve(plane, kernel)
            return np.asarray(np.bincount(came_from.ravel(), spread.ravel(), height * width + 1)[:-1], dtype=np.float64)

        planes = []
        for plane in weights.reshape(-1, height, width):
            weight = folded(plane, self._kernel)
            # Weights that cancel up to rounding are set to zero, or the test would be of rounding errors.
            terms = folded(np.abs(plane), np.abs(self._kernel))
            planes.append(np.where(np.abs(weight) > ROUNDING * terms.max(), weight, 0.0))
        return np.asarray(np.reshape(planes, weights.shape))
