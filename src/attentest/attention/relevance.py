"""Maps for a class: which parts of an image speak for a class, by the gradient of its score."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from torch import Tensor

from attentest.attention.aggregation import MOST_LAYERS, Aggregation, Described, Rollout, Tokens, as_map, layer_index
from attentest.attention.score_function import SIGNS, Sign
from attentest.checks import real_number, whole_number
from attentest.errors import InputError, shortened

PREDICTED = "predicted"  # the target that is the class of greatest score

Unit: TypeAlias = Literal["patch", "pixel"]
"""What the values of a map on the input belong to."""

MOST_STEPS = 10_000


class Relevance(Described, ABC):
    """A map for a class: made of the gradient of its score in something within the model.

    ``at`` says in what: "attention", the weights of every layer from ``first_layer`` on; "tokens", those that enter the
    attention of one layer, after the norm before it; "input", the model's input. ``sign`` says which values make the
    region: "positive", those for the class; "absolute", those for and against it; "signed", the map as it is, scaled
    from its least to its greatest value. ``head`` is what the model must have.
    """

    at: ClassVar[Literal["attention", "tokens", "input"]]
    head: ClassVar[Literal["classes", "text"]] = "classes"
    target: int | str
    sign: Sign

    def __post_init__(self) -> None:
        target = self.target
        if isinstance(target, bool) or not isinstance(target, (int, np.integer, str)) or target == "":
            raise InputError(
                f"target must be the number of a class, its label or {PREDICTED!r}, got {shortened(target)}.", "target"
            )
        object.__setattr__(self, "target", target if isinstance(target, str) else int(target))
        if self.sign not in SIGNS:
            raise InputError(
                f"sign must be {', '.join(SIGNS[:-1])} or {SIGNS[-1]}, got {shortened(self.sign)}.", "sign"
            )

    def first_layer(self, count: int) -> int:
        """Return the number of the first layer, out of ``count``, whose gradient is needed."""
        return 0

    @abstractmethod
    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return what is needed of one layer's values and the gradient in them, or of those of the input."""

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the scores (m, *grid) of what was taken of the layers, first layer first."""
        (last,) = taken[-1:]
        grid: Tensor = last.unflatten(1, tokens.grid)
        return grid


@dataclass(frozen=True)
class GradientRollout(Relevance):
    """Attention weighted by the gradient of a class score (Chefer, Gur and Wolf, ICCV 2021), multiplied as in rollout.

    For each layer, the mean over heads of the positive part of (gradient times attention); the map is the class
    token's row of the product over layers, or the mean of the patches' rows where there is no class token.

    Parameters
    ----------
    target
        Number of a class, a label of the model's own, or "predicted".
    """

    target: int | str = PREDICTED

    name, at, sign = "gradient-rollout", "attention", "signed"

    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return the weighted attention (m, N, N) of a layer."""
        return (values * gradient).relu_().mean(dim=1)

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the relevance of each patch, (m, *grid)."""
        return Rollout().scores(taken, tokens)


@dataclass(frozen=True)
class GradCAM(Relevance):
    """Grad-CAM (Selvaraju et al., ICCV 2017) of the tokens that enter the attention of a layer.

    Parameters
    ----------
    layer
        Number of the layer, counted from 0, or from the end if negative: -1 is the last. Of a network that is no
        transformer, the name of a module whose output has axes, such as "layer4"; -1 is the last of these.
    target
        As in :class:`GradientRollout`.
    sign
        "positive" (usual): the map is scaled from its least to its greatest value, negative ones taken as zero;
        "absolute": the region is where the absolute value exceeds the threshold times the greatest one; "signed": the
        map is scaled from its least to its greatest value.
    """

    layer: int | str = -1
    target: int | str = PREDICTED
    sign: Sign = "positive"

    name: ClassVar[str] = "grad-cam"
    at = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.layer, str):
            object.__setattr__(self, "layer", whole_number(self.layer, "layer", -MOST_LAYERS, MOST_LAYERS))

    def first_layer(self, count: int) -> int:
        """Return the number of the layer."""
        return layer_index(self.layer, count)

    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return the sum over features of tokens times their mean gradients, (m, patches)."""
        patches, slopes = values[:, tokens.prefix :], gradient[:, tokens.prefix :]
        return (patches @ slopes.mean(dim=1).unsqueeze(2)).squeeze(2)


@dataclass(frozen=True)
class HiResCAM(GradCAM):
    """HiResCAM (Draelos and Carin, 2020): as :class:`GradCAM`, with each patch's own gradient instead of their mean."""

    name: ClassVar[str] = "hires-cam"

    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return the sum over features of tokens times gradients, (m, patches)."""
        return (values * gradient)[:, tokens.prefix :].sum(dim=2)


class _OnInput(Relevance):
    """A map on the model's input: what the maps of input gradients have in common."""

    at = "input"
    per: Unit
    times_input: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per not in ("patch", "pixel"):
            raise InputError(f"per must be patch or pixel, got {shortened(self.per)}.", "per")

    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return the gradient (m, *axes), or its product with the input, summed over channels."""
        return (values * gradient if self.times_input else gradient).sum(dim=1)


@dataclass(frozen=True)
class InputGradient(_OnInput):
    """The gradient of a class score in the model's input (Simonyan et al., 2013), summed over channels.

    Parameters
    ----------
    target
        As in :class:`GradientRollout`.
    times_input
        Whether it is multiplied by the input, as the model sees it after preprocessing.
    per
        "patch": summed over each patch; "pixel", and of networks without patches: a value for each pixel of the model's
        input.
    sign
        As in :class:`GradCAM`; by default "absolute".
    """

    target: int | str = PREDICTED
    times_input: bool = False
    per: Unit = "patch"
    sign: Sign = "absolute"

    name: ClassVar[str] = "input-gradient"


@dataclass(frozen=True)
class IntegratedGradients(_OnInput):
    """Integrated gradients (Sundararajan, Taly and Yan, ICML 2017): times input, averaged on the way from a baseline.

    Parameters
    ----------
    baseline
        The value of every pixel of the model's input, after preprocessing, where the way begins.
    steps
        Gauss-Legendre nodes on the way, each as much work as an input gradient.
    target, per, sign
        As in :class:`InputGradient`.
    """

    baseline: float = 0.0
    steps: int = 20
    target: int | str = PREDICTED
    per: Unit = "patch"
    sign: Sign = "absolute"

    name: ClassVar[str] = "integrated-gradients"
    times_input = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "baseline", real_number(self.baseline, "baseline"))
        if not math.isfinite(self.baseline):
            raise InputError(f"baseline must be finite, got {self.baseline}.", "baseline")
        object.__setattr__(self, "steps", whole_number(self.steps, "steps", 1, MOST_STEPS))

    @property
    def nodes(self) -> Sequence[tuple[float, float]]:
        """Shares of the way from the baseline to the input at which gradients are taken, and their weights.

        They are the Gauss-Legendre nodes and weights on [0, 1].
        """
        places, weights = np.polynomial.legendre.leggauss(self.steps)
        return tuple(zip(((places + 1) / 2).tolist(), (weights / 2).tolist(), strict=True))


class OutputMap(Described, ABC):
    """A map that a network returns, or that is made of what it returns; ``sign`` is as in maps for a class."""

    sign: ClassVar[Sign] = "signed"

    @abstractmethod
    def scores(self, images: Tensor, output: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes) from the output (m, K, *grid) for them."""


def as_attention_map(value: Any) -> Aggregation | Relevance | OutputMap:
    """Return an aggregation or a map: one that is given, or that of a name, such as "gradient-rollout"."""
    kinds = (Aggregation, Relevance, OutputMap)
    chosen: Aggregation | Relevance | OutputMap = as_map(
        value, kinds, "an aggregation such as Rollout(...) or a map such as GradCAM(...)"
    )
    return chosen
