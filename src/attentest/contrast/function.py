"""Contrasts given as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attentest.contrast.channels import LARGEST_WEIGHT, SMALLEST_WEIGHT
from attentest.contrast.difference import WithinImage
from attentest.contrast.protocol import Contrast, ContrastLike, Mask, Weights
from attentest.errors import InputError
from attentest.registry import CONTRASTS


class FunctionContrast(WithinImage):
    """A contrast given as a function from a region (H, W) to weights (H, W) or (C, H, W)."""

    def __init__(self, function: Callable[[Mask], Any]) -> None:
        self._function = function

    def weights(self, part: Mask, region: Mask, seen: Mask) -> Weights:
        """Return the function's weights for the part of the region that is compared."""
        try:
            returned = self._function(part.copy())
            weights = np.asarray(returned)
        except Exception as error:  # whatever the caller's own function raises
            raise InputError(
                f"the contrast function failed on a region of shape {part.shape}: {type(error).__name__}: {error}"
            ) from error
        masked = np.ma.is_masked(returned)
        if masked or weights.dtype.kind not in "fiub" or weights.shape[-2:] != part.shape or weights.ndim not in (2, 3):
            raise InputError(
                "the contrast function must return real weights of shape (H, W) or (C, H, W), without a mask, for a "
                f"region (H, W) = {part.shape}, but it returned {'a masked array' if masked else weights.dtype} of "
                f"shape {weights.shape}."
            )
        with np.errstate(over="ignore"):  # a long double that is too large is refused below
            weights = weights.astype(np.float64)
        largest = np.abs(weights).max(initial=0.0)
        if not SMALLEST_WEIGHT < largest < LARGEST_WEIGHT:
            raise InputError(
                "the contrast function must return finite weights that are not all zero, the largest between "
                f"{SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, got {largest:g}."
            )
        return weights

    def __repr__(self) -> str:
        return f"FunctionContrast({self.describe()['function']})"

    def describe(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"name": "function", "function": getattr(self._function, "__name__", type(self._function).__name__)}


def as_contrast(contrast: ContrastLike) -> Contrast:
    """Return a contrast as it is, that of a name ("neighbourhood:5"), or that of a function."""
    if isinstance(contrast, str):
        named: Contrast = CONTRASTS.create(contrast)
        return named
    if isinstance(contrast, Contrast) and not isinstance(contrast, type):
        return contrast
    if callable(contrast) and not isinstance(contrast, type):
        return FunctionContrast(contrast)
    raise InputError(
        f"contrast must be a name ({CONTRASTS.choices()}), a contrast object from attentest.contrast with all methods "
        f"of Contrast, or a function from a region to weights, got {contrast!r}."
    )
