"""Raw attention scores from a plain function of the user's, in NumPy or torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention.device import default_memory, usable_device
from attentest.attention.score_function import LARGEST_BATCH, as_covered, as_truth
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError

NumpyFunction: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]
TorchFunction: TypeAlias = Callable[[Tensor], Tensor]

DEFAULT_BATCH = 64
"""Largest default batch, which keeps the memory of an unknown function small."""

COPIES = 8
"""Arrays of the size of its input that a function is assumed to hold at a time."""


class NumpyScores:
    """A NumPy function from images (m, C, H, W) to scores (m, gh, gw), smooth in the pixels.

    It is called on the CPU and has no derivative, so the adaptive search cannot use it; the others can.

    Parameters
    ----------
    function
        Computes in float64 if it can: rounding errors of narrower dtypes widen the error bar of p.
    image_shape
        The shape (C, H, W) of its input images.
    batch_size, memory_budget
        As in ``AttentionTest``.
    exact
        Whether the function computes in float64 throughout; if not, its rounding errors are measured.
    covered
        Height and width of the part of the input, from its upper left corner, that the patches cover; by default the
        whole input.
    """

    def __init__(
        self,
        function: NumpyFunction,
        image_shape: tuple[int, int, int],
        batch_size: int | None = None,
        memory_budget: int | None = None,
        *,
        exact: bool = False,
        covered: tuple[int, int] | None = None,
    ) -> None:
        self.image_shape = _checked_shape(image_shape)
        self.device = torch.device("cpu")
        self.batch_size = _batch_size(self.image_shape, self.device, batch_size, memory_budget)
        self.exact = as_truth(exact, "exact")
        self.covered = as_covered(covered, self.image_shape[1:])
        self._function = function

    def __repr__(self) -> str:
        return f"NumpyScores({_name(self._function)}, image_shape={self.image_shape})"

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of images (m, C, H, W), float64."""
        try:
            pixels = images.numpy().copy()  # the function may write into its input
        except RuntimeError:  # torch is computing a derivative
            raise ModelError(
                "a NumPy score function has no derivative: the adaptive search cannot use it (if the function also "
                "works with torch, give attentest.attention.TorchScores(function, image_shape))."
            ) from None
        returned = self._function(pixels)
        if returned is None:
            raise ModelError("the score function must return scores (m, gh, gw), but it returned None.")
        try:
            scores = np.asarray(returned)
        except ValueError:
            raise ModelError("the score function must return an array, but it returned ragged lists.") from None
        if scores.dtype.kind not in "fiu":
            raise ModelError(f"the score function must return real numbers, but it returned {scores.dtype}.")
        return torch.from_numpy(np.array(scores, dtype=np.float64))


class TorchScores:
    """A torch function from images (m, C, H, W), float64, to scores (m, gh, gw), smooth in the pixels.

    Parameters
    ----------
    function
        Computes in float64 if it can: rounding errors of narrower dtypes widen the error bar of p. The adaptive search
        needs its derivative in forward mode.
    image_shape
        The shape (C, H, W) of its input images.
    device
        The device of its input images; by default the CPU.
    batch_size, memory_budget
        As in ``AttentionTest``.
    exact, covered
        As in :class:`NumpyScores`.
    """

    def __init__(
        self,
        function: TorchFunction,
        image_shape: tuple[int, int, int],
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        *,
        exact: bool = False,
        covered: tuple[int, int] | None = None,
    ) -> None:
        self.image_shape = _checked_shape(image_shape)
        self.device = usable_device("cpu" if device is None else device)
        self.batch_size = _batch_size(self.image_shape, self.device, batch_size, memory_budget)
        self.exact = as_truth(exact, "exact")
        self.covered = as_covered(covered, self.image_shape[1:])
        self._function = function

    def __repr__(self) -> str:
        return f"TorchScores({_name(self._function)}, image_shape={self.image_shape})"

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of images (m, C, H, W), float64."""
        scores = self._function(images.to(self.device, copy=True))  # the function may write into its input
        if not isinstance(scores, Tensor) or scores.is_complex() or scores.dtype == torch.bool or scores.is_meta:
            received = f"{scores.dtype} on {scores.device}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ModelError(f"the score function must return a tensor of real numbers, but it returned {received}.")
        return scores.to(device=self.device, dtype=torch.float64)


def function_scores(
    function: Callable[[Any], Any],
    image_shape: tuple[int, int, int],
    device: torch.device | str | None,
    batch_size: int | None,
    memory_budget: int | None,
) -> NumpyScores | TorchScores:
    """Return the score function of a NumPy or torch function; a call with a blank image determines which it is.

    Attributes ``exact`` and ``covered`` of the function are those of its scores.
    """
    shape = _checked_shape(image_shape)
    exact, covered = getattr(function, "exact", False), getattr(function, "covered", None)
    if isinstance(function, torch.nn.Module) or not _takes_numpy(function, shape):
        return TorchScores(function, shape, device, batch_size, memory_budget, exact=exact, covered=covered)
    if device is not None:
        raise InputError(
            "device is for models and torch functions, and this is a NumPy function (if it also works with torch, "
            "give attentest.attention.TorchScores(function, image_shape, device))."
        )
    return NumpyScores(function, shape, batch_size, memory_budget, exact=exact, covered=covered)


def _takes_numpy(function: Callable[[Any], Any], shape: tuple[int, int, int]) -> bool:
    """Return whether a function takes NumPy images: it returns no tensor for one, or fails on torch images."""
    blank = np.zeros((1, *shape))
    try:
        return not isinstance(function(blank), Tensor)
    except Exception:  # noqa: BLE001  # a function of the user's may raise anything
        pass
    try:
        return not isinstance(function(torch.from_numpy(blank)), Tensor)
    except Exception:  # noqa: BLE001
        return True  # it fails on both; the error for the observed image will say how


def _checked_shape(image_shape: Any) -> tuple[int, int, int]:
    try:
        channels, height, width = image_shape
    except (TypeError, ValueError):
        raise InputError(f"image_shape must be (channels, height, width), got {image_shape!r}.") from None
    return (
        whole_number(channels, "channels of image_shape", 1, 2**20),
        whole_number(height, "height of image_shape", 1, 2**20),
        whole_number(width, "width of image_shape", 1, 2**20),
    )


def _batch_size(
    shape: tuple[int, int, int], device: torch.device, batch_size: int | None, memory_budget: int | None
) -> int:
    if batch_size is not None:
        return whole_number(batch_size, "batch_size", 1, LARGEST_BATCH)
    memory = default_memory(device) if memory_budget is None else memory_budget
    return int(min(DEFAULT_BATCH, max(1, memory // 2 // (COPIES * 8 * math.prod(shape)))))


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
