"""The interface between a model and the rest of attentest: raw attention scores of images."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention.device import default_memory, usable_device
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError
from attentest.images.resize_matrix import AXES

LARGEST_BATCH = 10**9  # upper bound of batch sizes, above any that fits in memory: a larger number is a mistake
SAME = 1e-9  # greatest difference of values that are the same up to rounding, relative to the greatest of them

Scores: TypeAlias = Callable[[Tensor], Tensor]
"""From images (m, C, *axes) to scores (m, *grid)."""

Sign: TypeAlias = Literal["signed", "positive", "absolute"]
"""Which scores make a map: all, from the least to the greatest; those above zero; or all by their absolute value."""

SIGNS = ("signed", "positive", "absolute")


@runtime_checkable
class ScoreFunction(Protocol):
    """Raw attention scores of images: smooth in the pixels, before upsampling and normalisation.

    A score function may also have these attributes:

    exact : bool
        Whether scores are computed in float64 throughout. If it is False, the default, rounding errors are measured,
        and they widen the error bar of p.
    start, covered : (*axes)
        Where along each axis the first patch begins, and sides of the part of the input that the patches cover from
        there; by default the whole input.
    overlap : (*axes)
        Pixels of the input that neighbouring patches have in common; by default none.
    describe()
        Returns what results record about the model, as a mapping of JSON-ready values; by default
        ``{"type": name of the class}``. If it has an entry "attention", which says how attention becomes scores, the
        map is called an attention map in words and figures, and otherwise a saliency map.
    rough(images)
        Returns the same scores computed with less precision, as float64. Without it every score is computed by
        calling the score function.
    sign : {"signed", "positive", "absolute"}
        Which scores make the region: all, from the least to the greatest; those above zero; or all by their absolute
        value. By default all.
    chooses : bool
        Whether the scores are those of a choice that depends on the image, such as the predicted class; by default not.
        If so, ``grid_shape`` is the shape of an image's scores, ``choose(images)`` returns the choices (m,), and
        ``given(images, choices)`` returns the scores of these, flattened, and after them values that are negative where
        the choice is made, (m, n + c); ``rough_given`` does so with less precision. The test is then conditional on the
        choice.
    describe_choice(images, choices)
        Returns a mapping of JSON-ready values for each image, which its result records as ``target``.
    rough_is_faster : bool
        Whether the spectral search should explore with ``rough`` unless told otherwise; by default False.
    kinks : bool
        Whether the scores may have kinks, as those of networks with ReLU do, so that it is worth a look whether they
        are linear between these; by default False.
    """

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of its inputs: (C, T) of signals, (C, H, W) of images, (C, D, H, W) of volumes."""

    @property
    def device(self) -> torch.device:
        """The device it computes on."""

    @property
    def batch_size(self) -> int:
        """The number of images to pass per call, within its memory budget."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes), in float64, each independent of the others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreProperties:
    """The optional attributes of a score function, checked, with their defaults: see :class:`ScoreFunction`."""

    exact: bool
    start: tuple[int, ...]
    covered: tuple[int, ...]
    overlap: tuple[int, ...]
    description: dict[str, Any]
    """What ``describe()`` returned, JSON-ready."""
    rough: Callable[..., Tensor] | None
    """Less precise scores; None if the score function has none."""
    rough_is_faster: bool
    sign: Sign
    chooses: bool
    kinks: bool


def score_properties(scores: ScoreFunction) -> ScoreProperties:
    """Return the optional attributes of a score function with their defaults, after a check of all attributes."""
    _, *sides = checked_shape(scores.image_shape, "the score function's image_shape", (tuple,))
    whole_number(scores.batch_size, "the score function's batch_size", 1, LARGEST_BATCH)
    if not isinstance(scores.device, torch.device):
        raise InputError(f"the score function's device must be a torch.device, got {scores.device!r}.")
    chooses = _truth(getattr(scores, "chooses", False), "the score function's chooses")
    sign: Any = getattr(scores, "sign", "signed")
    if sign not in SIGNS:
        raise InputError(f"the score function's sign must be {', '.join(SIGNS[:-1])} or {SIGNS[-1]}, got {sign!r}.")
    rough = getattr(scores, "rough_given" if chooses else "rough", None)
    if rough is not None and not callable(rough):
        raise InputError(f"the score function's rough must be a method from images to scores, got {rough!r}.")
    return ScoreProperties(
        exact=_truth(getattr(scores, "exact", False), "the score function's exact"),
        start=_pixels(getattr(scores, "start", None), tuple(sides), "the score function's start"),
        covered=_pixels(getattr(scores, "covered", None), tuple(sides), "the score function's covered", least=1),
        overlap=_pixels(getattr(scores, "overlap", None), tuple(sides), "the score function's overlap"),
        description=_description(scores),
        rough=rough,
        rough_is_faster=_truth(getattr(scores, "rough_is_faster", False), "the score function's rough_is_faster")
        and rough is not None,
        sign=sign,
        chooses=chooses,
        kinks=_truth(getattr(scores, "kinks", False), "the score function's kinks"),
    )


def _pixels(value: Any, most: tuple[int, ...], name: str, least: int = 0) -> tuple[int, ...]:
    """Return a number of pixels along each axis of an input of these sides; by default none, or, if least is 1, all."""
    if value is None:
        return most if least else (0,) * len(most)
    axes = AXES[len(most)]
    if not isinstance(value, (tuple, list)) or len(value) != len(most):
        raise InputError(f"{name} must be ({', '.join(axes)}) in pixels of the input, got {value!r}.")
    named = zip(value, most, axes, strict=True)
    return tuple(whole_number(side, f"the {axis} of {name}", least, limit) for side, limit, axis in named)


def _truth(value: Any, name: str) -> bool:
    """Return True or False as a plain bool; raise an error for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def checked_shape(shape: Any, name: str, types: Any = (tuple, list)) -> tuple[int, ...]:
    """Return the shape (C, *axes) of inputs; raise an error for anything else."""
    if not isinstance(shape, types) or len(shape) - 1 not in AXES:
        raise InputError(
            f"{name} must be a tuple (channels, height, width), (channels, length) of signals or (channels, depth, "
            f"height, width) of volumes, got {shape!r}."
        )
    sides = zip(shape, ("channels", *AXES[len(shape) - 1]), strict=True)
    return tuple(whole_number(side, f"{axis} of {name}", 1, 2**20) for side, axis in sides)


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


NumpyFunction: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]
TorchFunction: TypeAlias = Callable[[Tensor], Tensor]

DEFAULT_BATCH = 64  # largest default batch, which keeps the memory of an unknown function small
COPIES = 8  # arrays of the size of its input that a function is assumed to hold at a time


class _FunctionScores:
    """The scores of a function of images; the base of :class:`NumpyScores` and :class:`TorchScores`."""

    _on_any_device = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        image_shape: tuple[int, ...],
        device: torch.device | str | None = None,
        *,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        exact: bool = False,
        covered: tuple[int, ...] | None = None,
        overlap: tuple[int, ...] | None = None,
    ) -> None:
        self.image_shape = checked_shape(image_shape, "image_shape")
        if device is not None and not self._on_any_device:
            raise InputError(
                "device is for models and torch functions, and this is a NumPy function (if it also works with torch, "
                "give attentest.attention.TorchScores(function, image_shape, device))."
            )
        self.device = usable_device("cpu" if device is None else device)
        self.exact = _truth(exact, "exact")
        self.covered = _pixels(covered, self.image_shape[1:], "covered", least=1)
        self.overlap = _pixels(overlap, self.image_shape[1:], "overlap")
        self._function = function
        if batch_size is None:
            memory = default_memory(self.device) if memory_budget is None else memory_budget
            affordable = memory // 2 // (COPIES * 8 * math.prod(self.image_shape))
            self.batch_size = int(min(DEFAULT_BATCH, max(1, affordable)))
        else:
            self.batch_size = whole_number(batch_size, "batch_size", 1, LARGEST_BATCH)

    def __repr__(self) -> str:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"{type(self).__name__}({name}, image_shape={self.image_shape})"


class NumpyScores(_FunctionScores):
    """A NumPy function from images (m, C, *axes) to scores (m, *grid), smooth in the pixels.

    It is called on the CPU and has no derivative, so the adaptive search cannot use it; the others can.

    Parameters
    ----------
    function
        Computes in float64 if it can: rounding errors of narrower dtypes widen the error bar of p.
    image_shape
        The shape (C, *axes) of its inputs.
    device
        None: it is for torch functions.
    batch_size, memory_budget
        As in ``AttentionTest``.
    exact
        Whether the function computes in float64 throughout; if not, its rounding errors are measured.
    covered
        Sides of the part of the input, from its upper left corner, that the patches cover; by default the whole input.
    overlap
        Pixels along each axis that neighbouring patches have in common; by default none.
    """

    _on_any_device = False

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes), float64."""
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


class TorchScores(_FunctionScores):
    """A torch function from images (m, C, *axes), float64, to scores (m, *grid), smooth in the pixels.

    Parameters
    ----------
    function
        Computes in float64 if it can: rounding errors of narrower dtypes widen the error bar of p. The adaptive search
        needs its derivative in forward mode.
    image_shape
        The shape (C, *axes) of its inputs.
    device
        The device of its input images; by default the CPU.
    batch_size, memory_budget, exact, covered, overlap
        As in :class:`NumpyScores`.
    """

    kinks = True
    """A function may be a network with ReLU."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes), float64."""
        scores = self._function(images.to(self.device, copy=True))  # the function may write into its input
        if not isinstance(scores, Tensor) or scores.is_complex() or scores.dtype == torch.bool or scores.is_meta:
            received = f"{scores.dtype} on {scores.device}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ModelError(f"the score function must return a tensor of real numbers, but it returned {received}.")
        return scores.to(device=self.device, dtype=torch.float64)


def function_scores(
    function: Callable[[Any], Any], image_shape: tuple[int, ...], device: Any, **options: Any
) -> NumpyScores | TorchScores:
    """Return the score function of a NumPy or torch function; a call with a blank image determines which it is.

    Attributes ``exact``, ``covered`` and ``overlap`` of the function are those of its scores; ``options`` are the other
    parameters of :class:`TorchScores`.
    """
    shape = checked_shape(image_shape, "image_shape")
    takes_torch = isinstance(function, torch.nn.Module) or not _takes_numpy(function, shape)
    kind = TorchScores if takes_torch else NumpyScores
    own = {name: getattr(function, name) for name in ("exact", "covered", "overlap") if hasattr(function, name)}
    return kind(function, shape, device, **own, **options)


def _takes_numpy(function: Callable[[Any], Any], shape: tuple[int, ...]) -> bool:
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
