"""Maps of networks whose attention is not read: CNNs, U-Nets, autoencoders, any module that takes images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import holding
from attentest.attention.class_scores import ClassScores
from attentest.attention.device import reason_of
from attentest.attention.encoder import Encoder, by, cast_module, float64_copy, image_of_noise
from attentest.attention.relevance import PREDICTED, GradCAM, OutputMap, Relevance
from attentest.attention.relevance_scores import RelevanceScores, labels_of
from attentest.attention.score_function import SAME, Sign, checked_shape
from attentest.attention.vit import ViTScores
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError, listed, shortened
from attentest.registry import ATTENTION_MAPS

COPIES = 6  # copies of a network's activations that are held at a time: values, slopes, gradients and workspace

Size: TypeAlias = Literal["absolute", "squared", "signed"]


@dataclass(frozen=True)
class Segmentation(OutputMap):
    """The score of a class at each pixel, from a network that returns scores (m, K, *grid).

    Of several classes, it is by how much the class exceeds all others: positive where it is the one that the network
    assigns. Of one, it is the score itself, before any sigmoid.

    Parameters
    ----------
    target
        Number of the class.
    """

    target: int = 0

    name = "segmentation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", whole_number(self.target, "target", 0, 2**20))

    def scores(self, images: Tensor, output: Tensor) -> Tensor:
        """Return the scores (m, *grid) of the class."""
        count = output.shape[1]
        if self.target >= count:
            raise InputError(
                f"target is class {self.target}, but the network returns {count} at each pixel, numbered from 0.",
                "target",
            )
        if count == 1:
            return output[:, 0]
        others = [number for number in range(count) if number != self.target]
        return output[:, self.target] - output[:, others].amax(dim=1)


@dataclass(frozen=True)
class Residual(OutputMap):
    """The image less its reconstruction, from a network that returns one (m, C, *axes): where is it anomalous?

    Parameters
    ----------
    size
        "absolute" (usual) or "squared", averaged over channels; or "signed", the sum over channels as it is.
    width
        Side in pixels of the square, or cube, over which the map is averaged; 1 for none.
    """

    size: Size = "absolute"
    width: int = 1

    name = "residual"

    def __post_init__(self) -> None:
        if self.size not in ("absolute", "squared", "signed"):
            raise InputError(f"size must be absolute, squared or signed, got {shortened(self.size)}.", "size")
        width = whole_number(self.width, "width", 1, 2**10)
        if width % 2 == 0:
            raise InputError(f"width must be odd, so that a pixel has a middle, got {width}.", "width")
        object.__setattr__(self, "width", width)

    def scores(self, images: Tensor, output: Tensor) -> Tensor:
        """Return the residuals (m, *axes)."""
        if output.shape != images.shape:
            raise ModelError(
                f"the network returns {by(tuple(output.shape[1:]))} for an image of {by(tuple(images.shape[1:]))}, but "
                "residual needs a reconstruction of the same shape."
            )
        difference = images - output
        if self.size == "absolute":
            difference = difference.abs()
        elif self.size == "squared":
            difference = difference * difference
        values = difference.mean(dim=1, keepdim=True)
        if self.width > 1:
            pool = getattr(nn.functional, f"avg_pool{images.ndim - 2}d")
            values = pool(values, self.width, stride=1, padding=self.width // 2, count_include_pad=False)
        return values[:, 0]


@dataclass(frozen=True)
class CAM(Relevance):
    """Class activation map (Zhou et al., CVPR 2016): the last map times a class's weights in the last linear layer.

    It is for networks that end in global average pooling and one linear layer. If there is a layer norm between them,
    as in ConvNeXt, its gain and its centring join the weights. The mean of the map is the score of the class, but for
    a constant and, with a norm, a positive factor.

    Parameters
    ----------
    target, sign
        As in :class:`GradCAM`.
    """

    target: int | str = PREDICTED
    sign: Sign = "positive"

    name, at = "cam", "tokens"

    def first_layer(self, count: int) -> int:
        """Raise an error: a transformer has no such end."""
        raise InputError("cam is for networks that end in global average pooling: use grad-cam.", "attention")

    def take(self, values: Tensor, gradient: Tensor, tokens: Tokens) -> Tensor:
        """Return the sum over features (m, places, d) times weights (m, 1, d)."""
        return (values @ gradient.mT).squeeze(2)


class _Network(ViTScores):
    """A network, with the map that is made of it; the base of :class:`NetworkScores` and :class:`OutputScores`."""

    kinks = True
    """It may be linear in pieces, which a search asks about."""
    along_lines: Any = None
    """What was seen of it along lines, for all tests of it: to look takes seconds."""
    rough_is_faster = False

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the maps that the network can give."""
        return self._maps

    def _read(self, model: nn.Module, attention: Any, image_size: Any, device: Any, owned: bool) -> Encoder:
        """Return what is known of the network, in the form in which that of transformers is."""
        kind = type(model).__name__
        self._set_map(attention, kind)
        whole, stored = float64_copy(model, device, kind, owned)
        shape = checked_shape(image_size, "image_shape")
        self._class_scores = ClassScores(module=whole, forward=output_of, labels=labels_of(model))
        seen = _seen(whole, kind, shape)
        self._activations, self._maps = seen.activations, _maps_of(seen, kind)
        grid = self._grid(seen, kind)
        return Encoder(
            module=whole,
            kind=kind,
            channels=shape[0],
            image_size=shape[1:],
            patch_size=(1,) * len(grid),
            tokens=Tokens(grid=grid, prefix=0, class_token=False),
            weights=stored,
        )

    def _set_map(self, attention: Any, kind: str) -> None:
        self._map = attention

    def _grid(self, seen: _Seen, kind: str) -> tuple[int, ...]:
        """Return the sides of the map."""
        raise NotImplementedError

    def _place(self) -> None:
        """Let the map cover the whole input, whatever the sides of its cells are."""
        sides = self.image_shape[1:]
        self.start, self.covered, self.overlap = (0,) * len(sides), sides, (0,) * len(sides)
        self._at_once = self.batch_size

    def describe(self) -> dict[str, Any]:
        """Return type, input, grid and map of the network, JSON-ready."""
        encoder = self._encoder
        return {
            "type": encoder.kind,
            "weights": encoder.weights,
            "input": list(self.image_shape),
            "grid": list(self.grid_shape),
            "attention": self._map.describe(),
        }

    def _bytes_per_image(self) -> int:
        return 8 * COPIES * self._activations


class OutputScores(_Network):
    """The map that a network returns, in float64; parameters are those of :class:`NetworkScores`."""

    def _grid(self, seen: _Seen, kind: str) -> tuple[int, ...]:
        if not isinstance(seen.output, Tensor) or seen.output.ndim != seen.images.ndim:
            raise ModelError(
                f"the network of type {kind!r} returns {_shape(seen.output)} for an image, but {self._map.name} needs "
                "a map with axes of its own.",
                "attention",
            )
        return tuple(self._map.scores(seen.images, seen.output).shape[1:])

    def _probed(self) -> Any:
        self._place()
        return partial(self._outputs, self._encoder.module)

    def _in_float32(self) -> Any:
        return partial(self._outputs, self._encoder.cast(torch.float32).module)

    def _outputs(self, module: nn.Module, images: Tensor) -> Tensor:
        scores: Tensor = self._map.scores(images, output_of(module, images))
        return scores


class NetworkScores(_Network, RelevanceScores):
    """The map of a network for a class, in float64: Grad-CAM, HiResCAM, maps of input gradients.

    Parameters
    ----------
    model
        Any module from images (m, C, *axes) to class scores (m, K). A float64 copy is made; the model does not change.
    attention
        ``GradCAM("layer4", target=...)``, ``HiResCAM``, ``InputGradient`` or ``IntegratedGradients``.
    image_size
        Shape (C, *axes) of its images.
    device, batch_size, memory_budget, owned
        As in :class:`~attentest.attention.ViTScores`.
    """

    def _set_map(self, attention: Any, kind: str) -> None:
        # Without patches, a map on the input has a value for each pixel.
        self._map = replace(attention, per="pixel") if hasattr(attention, "per") else attention
        if not isinstance(attention, Relevance) or attention.at == "attention" or attention.head == "text":
            raise ModelError(
                f"the network of type {kind!r} has no attention that is read, which {attention.describe()['name']} "
                f"needs: the maps of such networks are {listed(network_maps(), 'and')}."
            )

    def _grid(self, seen: _Seen, kind: str) -> tuple[int, ...]:
        self._layer: str | None = None
        if isinstance(self._map, GradCAM):
            self._layer = _layer(seen.maps, self._map.layer, kind)
        elif isinstance(self._map, CAM):
            self._layer, _ = _linear_head(seen, kind)
        return tuple(seen.images.shape[2:] if self._layer is None else seen.maps[self._layer][2:])

    @torch.no_grad()
    def _probed(self) -> Any:
        self._set_target()
        self._place()
        weights, module = None, self._class_scores.module
        if isinstance(self._map, CAM):
            _, weights = _linear_head(_seen(module, self._encoder.kind, self.image_shape), self._encoder.kind)
        return _ClassMaps(self._class_scores, self._map, self._layer, self._encoder.tokens, weights)

    def _in_float32(self) -> Any:
        maps: _ClassMaps = self._forward
        class_scores = replace(maps.class_scores, module=cast_module(maps.class_scores.module, torch.float32))
        return replace(maps, class_scores=class_scores, weights=None if maps.weights is None else maps.weights.float())


@dataclass(frozen=True)
class _ClassMaps:
    """Maps made of the output of a layer, or the input, and the gradient of class scores in it; or weights (K, d)."""

    class_scores: ClassScores
    relevance: Relevance
    layer: str | None
    tokens: Tokens
    weights: Tensor | None

    def __post_init__(self) -> None:
        if self.layer is not None:
            layer = self.class_scores.module.get_submodule(self.layer)
            if _keep not in layer._forward_hooks.values():
                layer.register_forward_hook(_keep)

    def __call__(self, images: Tensor, target: Tensor, way: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return maps (m, *grid) and class scores (m, K); differentiable in forward mode."""
        values: list[Tensor] = []
        with torch.enable_grad(), holding(_KEPT, (values, self.weights is None)):
            scores = self.class_scores(_keep(None, None, images.clone()) if self.layer is None else images)
            if self.weights is None:
                gradient = torch.autograd.grad(scores.gather(1, target.unsqueeze(1)).sum(), values)[-1]
            else:
                gradient = self.weights[target].unsqueeze(2)
        value = values[-1] if way is None else way
        if self.layer is None:
            maps = self.relevance.take(value, gradient, self.tokens)
        else:
            # The places of a layer's output are tokens, its channels their features.
            value, gradient = value.flatten(2).mT, gradient.flatten(2).mT
            maps = self.relevance.take(value, gradient, self.tokens).unflatten(1, self.tokens.grid)
        return maps, scores + 0  # not recorded any more


_KEPT: ContextVar[tuple[list[Tensor], bool] | None] = ContextVar("attentest_kept", default=None)


def _keep(module: Any, arguments: Any, output: Any) -> Any:
    """Add what a layer returns to a list, with its derivative recorded if that is wanted."""
    kept = _KEPT.get()
    if kept is None:
        return None
    values, is_recorded = kept
    values.append(output.requires_grad_(is_recorded))
    return output.clone()  # what follows may change it in place


class _Call(NamedTuple):
    """A call of a layer: means over the axes of what it was given and of what it returned, (m, d), and another call."""

    name: str
    layer: nn.Module
    given: Tensor
    returned: Tensor
    again: Callable[[Tensor], Any]


@dataclass(kw_only=True)
class _Seen:
    """What was seen of a network with one image."""

    images: Tensor
    output: Any = None
    maps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the outputs of layers that have as many axes as images, in the order in which they were computed."""
    activations: int = 0
    """Number of all values that layers returned."""
    calls: list[_Call] = field(default_factory=list)
    """Calls of layers that take and return tensors, in their order."""

    def add(self, name: str, module: nn.Module, arguments: Any, named: Any, output: Any) -> None:
        """Add a call of a layer; a forward hook."""
        given = arguments[0] if arguments else None
        if not isinstance(output, Tensor):
            return
        self.activations += output.numel()
        if isinstance(given, Tensor) and min(given.ndim, output.ndim) > 1:
            before, after = (value.unsqueeze(-1).flatten(2).mean(dim=2) for value in (given, output))
            self.calls.append(_Call(name, module, before, after, lambda x: module(x, *arguments[1:], **named)))
        if output.ndim == self.images.ndim and output[0, 0].numel() > 1:
            self.maps.pop(name, None)  # the last time counts
            self.maps[name] = tuple(output.shape)


@torch.no_grad()
def _seen(whole: nn.Module, kind: str, shape: tuple[int, ...]) -> _Seen:
    """Pass an image of noise through a network; raise an error if it fails, or returns something else each time."""
    images = image_of_noise(shape, next(whole.parameters()).device)
    seen = _Seen(images=images)
    with ExitStack() as hooks:
        for name, module in whole.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(partial(seen.add, name), with_kwargs=True))
        try:
            output, again = output_of(whole, images.clone()), output_of(whole, images.clone())
        except Exception as error:  # noqa: BLE001  # a model may raise anything
            raise ModelError(
                f"the network of type {kind!r} fails on an image of shape {shape} ({reason_of(error)}): check that "
                "image_shape is that of its images.",
                "image_shape",
            ) from None
    seen.output, seen.activations = output, (images.numel() + seen.activations) // 2  # of two passes
    if not isinstance(output, Tensor):
        return seen
    if not bool(torch.isfinite(output).all()):
        raise ModelError(
            f"the network of type {kind!r} returns NaN or infinite values for an image of noise: check its weights."
        )
    if not torch.equal(output, again):
        raise ModelError(
            f"the network of type {kind!r} returns other values each time for the same image, as one with dropout that "
            "is always active does: turn that off, since the region must be a function of the image."
        )
    if not _same_beside_another(whole, images, output):
        raise ModelError(
            f"the network of type {kind!r} computes an image otherwise beside another, as one that normalises over "
            "images does (batch normalisation without stored means): the region must be a function of one image."
        )
    return seen


def _same_beside_another(whole: nn.Module, images: Tensor, output: Tensor) -> bool:
    """Return whether the output for an image (1, C, *axes) is that for it and another together."""
    try:
        beside = output_of(whole, torch.cat([images, images.flip(-1)]))
    except Exception:  # noqa: BLE001  # a model may raise anything
        return False
    return torch.allclose(beside[:1], output, rtol=0, atol=SAME * float(output.abs().max()))


def _layer(maps: Mapping[str, tuple[int, ...]], asked: int | str, kind: str) -> str:
    """Return the name of the layer that is asked for; -1 is the last one whose output is a map."""
    names = list(maps)
    if not names:
        raise ModelError(f"no layer of the network of type {kind!r} returns a map with axes.", "layer")
    if asked == -1:
        return names[-1]
    if str(asked) in maps:
        return str(asked)
    raise InputError(
        f"layer must be the name of a layer whose output is a map, such as {', '.join(map(repr, names[-3:]))}, got "
        f"{shortened(asked)}.",
        "layer",
    )


@torch.no_grad()
def _linear_head(seen: _Seen, kind: str) -> tuple[str, Tensor]:
    """Return the layer whose map (m, d, *grid) is averaged before the last linear layer, and that one's weights (K, d).

    They are found by what the network computes, however its parts are named.
    """
    maps = [call for call in reversed(seen.calls) if call.name in seen.maps]
    others = [call for call in seen.calls if call.name not in seen.maps]
    for linear in (call for call in others if _same(call.returned, seen.output)):
        pooled = linear.given
        try:
            offset = linear.again(torch.zeros_like(pooled))
            weights = (linear.again(torch.eye(pooled.shape[1]).to(pooled)) - offset).mT
        except (RuntimeError, IndexError):  # it takes no vectors
            continue
        if not _same(pooled @ weights.mT + offset, seen.output):
            continue
        norm = next((c for c in others if isinstance(c.layer, nn.LayerNorm) and _same(c.returned, pooled)), None)
        if norm is not None:
            gained = weights if norm.layer.weight is None else weights * norm.layer.weight
            weights, pooled = gained - gained.mean(dim=1, keepdim=True), norm.given
        averaged = next((call for call in maps if _same(call.returned, pooled)), None)
        if averaged is not None:
            return averaged.name, weights
    raise ModelError(
        f"the network of type {kind!r} does not end in global average pooling of a layer's output and one linear "
        "layer, which cam needs: use grad-cam.",
        "attention",
    )


def _same(first: Any, second: Any) -> bool:
    """Return whether both are tensors of the same values up to rounding."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or first.shape != second.shape:
        return False
    return bool((first - second).abs().amax() <= SAME * second.abs().amax())


def network_maps(*returned: str) -> list[str]:
    """Return the names of the maps of networks, all or those of networks that return "classes", "pixels", "image"."""
    asked = returned or ("classes", "pixels", "image")
    return [name for name, part in ATTENTION_MAPS.items() if part.networks in asked]


def _returned(output: Any, images: Tensor) -> list[str]:
    """Return what the output of a network for images (m, C, *axes) can be."""
    if not isinstance(output, Tensor):
        return []
    returned = {2: ["classes"], images.ndim: ["pixels"]}.get(output.ndim, [])
    return [*returned, *(["image"] if output.shape == images.shape else [])]


def _maps_of(seen: _Seen, kind: str) -> tuple[str, ...]:
    """Return the names of the maps that a network can give."""
    returned = _returned(seen.output, seen.images)
    maps = network_maps(*returned) if returned else []
    try:
        _linear_head(seen, kind)
    except ModelError:
        maps = [name for name in maps if name != CAM.name]
    return tuple(maps)


@torch.no_grad()
def check_returns_map(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise an error if a module, which is to return a map of images (C, *axes), returns what maps are made of."""
    try:
        device = next(model.parameters(), torch.zeros(1)).device
        images = torch.zeros(1, *shape, dtype=torch.float64, device=device)
        output = output_of(model, images)
    except Exception:  # noqa: BLE001  # whatever it is, the first image will say it
        return
    returned = _returned(output, images)
    if returned and output.ndim != images.ndim - 1:
        raise ModelError(
            f"the network of type {type(model).__name__!r} returns {_shape(output)} for an image, which is no map of "
            f"it: attention must be {listed(network_maps(*returned))}.",
            "attention",
        )


def output_of(module: nn.Module, images: Tensor) -> Any:
    """Return the output of a network, where libraries return it with others: logits, the first, or that named "out"."""
    output = module(images)
    if isinstance(output, Mapping):
        output = output.get("logits", output.get("out", output))
    output = getattr(output, "logits", output)
    return output[0] if isinstance(output, (tuple, list)) and output else output


def _shape(output: Any) -> str:
    return f"shape {tuple(output.shape[1:])}" if isinstance(output, Tensor) else type(output).__name__
