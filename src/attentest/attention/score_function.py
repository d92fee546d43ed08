"""The interface between a model and the rest of attentest: raw attention scores of images."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from attentest.checks import whole_number
from attentest.errors import InputError

LARGEST_BATCH = 10**9
"""Upper bound of batch sizes, above any that fits in memory: a larger number is a mistake."""

Scores: TypeAlias = Callable[[Tensor], Tensor]
"""From images (m, C, H, W) to scores (m, gh, gw)."""


@runtime_checkable
class ScoreFunction(Protocol):
    """Raw attention scores of images: smooth in the pixels, before upsampling and normalisation.

    A score function may also have these attributes, which :func:`score_properties` reads:

    exact : bool
        Whether scores are computed in float64 throughout. If it is False, the default, rounding errors are measured,
        and they widen the error bar of p.
    covered : (height, width)
        The part of the input, from its upper left corner, that the patches cover; by default the whole input.
    describe()
        Returns what results record about the model, as a mapping of JSON-ready values; by default
        ``{"type": name of the class}``.
    rough(images)
        Returns the same scores computed with less precision, as float64. Without it every score is computed by
        calling the score function.
    rough_is_faster : bool
        Whether the spectral search should explore with ``rough`` unless told otherwise; by default False.
    """

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape (C, H, W) of its input images."""

    @property
    def device(self) -> torch.device:
        """The device it computes on."""

    @property
    def batch_size(self) -> int:
        """The number of images to pass per call, within its memory budget."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of images (m, C, H, W), in float64, each independent of the others."""


@runtime_checkable
class RoughScoreFunction(ScoreFunction, Protocol):
    """A score function that also computes less precise scores, perhaps faster."""

    @property
    def rough_is_faster(self) -> bool:
        """Whether rough scores take less time."""

    def rough(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) computed with less precision, as float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreProperties:
    """The optional attributes of a score function, checked, with their defaults.

    Parameters
    ----------
    exact
        Whether scores are computed in float64 throughout.
    covered
        Height and width of the part of the input that the patches cover.
    description
        What ``describe()`` returned, JSON-ready.
    rough
        Less precise scores; None if the score function has none.
    rough_is_faster
        Whether these take less time.
    """

    exact: bool
    covered: tuple[int, int]
    description: dict[str, Any]
    rough: Scores | None
    rough_is_faster: bool


def score_properties(scores: ScoreFunction) -> ScoreProperties:
    """Return the optional attributes of a score function with their defaults; refuse wrong types of any attribute."""
    _, height, width = _checked_shape(scores.image_shape)
    whole_number(scores.batch_size, "the score function's batch_size", 1, LARGEST_BATCH)
    if not isinstance(scores.device, torch.device):
        raise InputError(f"the score function's device must be a torch.device, got {scores.device!r}.")
    rough = getattr(scores, "rough", None)
    if rough is not None and not callable(rough):
        raise InputError(f"the score function's rough must be a method from images to scores, got {rough!r}.")
    return ScoreProperties(
        exact=_truth(scores, "exact"),
        covered=as_covered(getattr(scores, "covered", None), (height, width), "the score function's covered"),
        description=_description(scores),
        rough=rough,
        rough_is_faster=_truth(scores, "rough_is_faster") and rough is not None,
    )


def as_covered(value: Any, input_size: tuple[int, int], name: str = "covered") -> tuple[int, int]:
    """Return (height, width) of the part of an input of a size (height, width) that patches cover; None: all of it."""
    if value is None:
        return input_size
    try:
        height, width = value
    except (TypeError, ValueError):
        raise InputError(f"{name} must be (height, width) in pixels of the input, got {value!r}.") from None
    return (
        whole_number(height, f"the height of {name}", 1, input_size[0]),
        whole_number(width, f"the width of {name}", 1, input_size[1]),
    )


def as_truth(value: Any, name: str) -> bool:
    """Return True or False as a plain bool; refuse anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def _truth(scores: ScoreFunction, name: str) -> bool:
    return as_truth(getattr(scores, name, False), f"the score function's {name}")


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    if not (isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise InputError(f"the score function's image_shape must be a tuple (channels, height, width), got {shape!r}.")
    return shape[0], shape[1], shape[2]


def _description(scores: ScoreFunction) -> dict[str, Any]:
    describe = getattr(scores, "describe", None)
    if describe is None:
        return {"type": type(scores).__name__}
    description = describe() if callable(describe) else describe
    if not isinstance(description, Mapping):
        raise InputError(
            f"the score function's describe must be a method that returns a mapping, got {type(description).__name__}."
        )
    try:
        json.dumps(dict(description), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the score function's describe() must return values that JSON can hold ({error}): use numbers, texts, "
            "lists and mappings with texts as keys."
        ) from None
    return dict(description)
