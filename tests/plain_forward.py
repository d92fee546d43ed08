"""Attention weights of vision transformers in plain float64 operations, from names, shapes and numbers alone.

One transformer, written for reading: what differs between families is data. It shares no code with attentest nor with
the libraries the models come from, so that agreement means something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

Weights = Mapping[str, Tensor]

# The name of a part in each library, and in its versions: whichever is there is meant.
PATCHES = (
    "embeddings.patch_embeddings.projection",
    "embeddings.patch_embeddings",
    "embeddings.patch_embedding",
    "patch_embed.proj",
    "conv_proj",
)
CLASS = ("embeddings.cls_token", "embeddings.class_embedding", "cls_token", "class_token")
DISTILLATION = ("embeddings.distillation_token", "dist_token")
REGISTERS = ("embeddings.register_tokens", "reg_token")
POSITIONS = (
    "embeddings.position_embeddings",
    "embeddings.position_embedding.weight",
    "pos_embed",
    "encoder.pos_embedding",
)
BEFORE_LAYERS = ("pre_layrnorm", "norm_pre")
LAYERS = (
    "layers.{}.",
    "encoder.layer.{}.",
    "encoder.layers.{}.",
    "model.layer.{}.",
    "layer.{}.",
    "blocks.{}.",
    "encoder.layers.encoder_layer_{}.",
)
NORM_1 = ("layernorm_before", "norm1", "layer_norm1", "ln_1")
NORM_2 = ("layernorm_after", "norm2", "layer_norm2", "ln_2")
QUERY = ("attention.q_proj", "self_attn.q_proj", "attention.attention.query")
KEY = ("attention.k_proj", "self_attn.k_proj", "attention.attention.key")
VALUE = ("attention.v_proj", "self_attn.v_proj", "attention.attention.value")
QUERY_KEY_VALUE = ("attn.qkv", "self_attention.in_proj")
OUTPUT = ("attention.o_proj", "self_attn.out_proj", "attention.output.dense", "attn.proj", "self_attention.out_proj")
SCALE_1 = ("layer_scale1.lambda1", "lambda_1", "ls1.gamma")
SCALE_2 = ("layer_scale2.lambda1", "lambda_2", "ls2.gamma")
GATE = ("mlp.gate_proj",)
GATE_AND_UP = ("mlp.weights_in",)
UP = ("mlp.fc1", "mlp.up_proj", "mlp.0", "intermediate.dense")
DOWN = ("mlp.fc2", "mlp.down_proj", "mlp.weights_out", "mlp.3", "output.dense")
SHARED_BIAS = (
    "shared_position_bias.relative_position_bias_table",
    "encoder.relative_position_bias.relative_position_bias_table",
)
LAYER_BIAS = (
    "relative_position_bias.relative_position_bias_table",
    "attention.attention.relative_position_bias.relative_position_bias_table",
)

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_pytorch_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What the names and shapes of weights do not say.

    ``trained`` are rows and columns of patches in training, ``rotation`` the base of a rotary position embedding, and
    ``antialias`` whether position embeddings are smoothed when a grid becomes coarser.
    """

    heads: int
    epsilon: float
    trained: tuple[int, int]
    activation: str = "gelu"
    antialias: bool = False
    rotation: float | None = None


def huggingface_weights(model: Any, images: Tensor) -> list[Tensor]:
    """Return the attention weights (m, heads, N, N) of each layer of a model of Hugging Face transformers."""
    config = getattr(model.config, "vision_config", model.config)
    differences = Differences(
        heads=config.num_attention_heads,
        epsilon=config.layer_norm_eps,
        trained=_grid(config.image_size, config.patch_size),
        activation="silu" if getattr(config, "use_swiglu_ffn", False) else config.hidden_act,
        antialias=config.model_type == "dinov2_with_registers",
        rotation=config.rope_theta if config.model_type == "dinov3_vit" else None,
    )
    return attention_weights(model.state_dict(), differences, images)


def timm_weights(model: Any, images: Tensor) -> list[Tensor]:
    """Return the same of timm's ``VisionTransformer``."""
    differences = Differences(
        heads=model.blocks[0].attn.num_heads,
        epsilon=1e-6,
        trained=tuple(model.patch_embed.grid_size),
        antialias=True,
    )
    return attention_weights(model.state_dict(), differences, images)


def torchvision_weights(model: Any, images: Tensor) -> list[Tensor]:
    """Return the same of torchvision's ``VisionTransformer``."""
    state = {name.replace("in_proj_", "in_proj."): value for name, value in model.state_dict().items()}
    differences = Differences(
        heads=model.encoder.layers[0].num_heads,
        epsilon=1e-6,
        trained=_grid(model.image_size, model.patch_size),
    )
    return attention_weights(state, differences, images)


def plain_scores(model: Any, images: Tensor, class_token: bool = True) -> Tensor:
    """Return the rollout scores (m, gh, gw) of a model of Hugging Face transformers with patches of 2 x 2 pixels."""
    grid = images.shape[-2] // 2, images.shape[-1] // 2
    return rollout(huggingface_weights(model, images), grid, class_token)


def attention_weights(state: Weights, differences: Differences, images: Tensor) -> list[Tensor]:
    """Return the attention weights (m, heads, N, N) of each layer."""
    weights = _encoder_of({name: value.to(torch.float64) for name, value in state.items()})
    x, grid = _embedded(weights, differences, images.to(torch.float64))
    before = _first(weights, [f"{name}.weight" for name in BEFORE_LAYERS])
    if before is not None:
        x = _normalised(x, weights, BEFORE_LAYERS, differences.epsilon)
    shared = _relative_bias(_first(weights, SHARED_BIAS), differences.trained, grid)
    shown: list[Tensor] = []
    while layer := _layer(weights, len(shown)):
        bias = shared + _relative_bias(_first(layer, LAYER_BIAS), differences.trained, grid)
        attention, mixed = _attended(layer, differences, _normalised(x, layer, NORM_1, differences.epsilon), bias, grid)
        shown.append(attention)
        x = x + _or_one(_first(layer, SCALE_1)) * mixed
        inner = _normalised(x, layer, NORM_2, differences.epsilon)
        x = x + _or_one(_first(layer, SCALE_2)) * _multilayer(layer, differences.activation, inner)
    return shown


def rollout(weights: Sequence[Tensor], grid: tuple[int, int], class_token: bool = True, fusion: Any = "mean") -> Tensor:
    """Return the scores (m, gh, gw) of attention rollout, by the whole product of matrices."""
    count = weights[0].shape[-1]
    product = torch.eye(count, dtype=torch.float64)
    for attention in weights:
        product = (_fused(attention, fusion) + torch.eye(count, dtype=torch.float64)) @ product
    return _map(product, grid, class_token)


def one_layer(weights: Tensor, grid: tuple[int, int], class_token: bool = True, fusion: Any = "mean") -> Tensor:
    """Return the scores (m, gh, gw) of one layer's attention (m, heads, N, N)."""
    return _map(_fused(weights, fusion), grid, class_token)


def _map(matrix: Tensor, grid: tuple[int, int], class_token: bool) -> Tensor:
    patches = grid[0] * grid[1]
    rows = matrix[:, 0] if class_token else matrix[:, -patches:].mean(dim=1)
    return rows[:, -patches:].reshape(-1, *grid)


def _fused(weights: Tensor, fusion: Any) -> Tensor:
    heads = list(weights.unbind(dim=1))
    if isinstance(fusion, int):
        return heads[fusion]
    together = heads[0]
    for head in heads[1:]:
        together = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}[fusion](together, head)
    return together / (len(heads) if fusion == "mean" else together.sum(dim=-1, keepdim=True))


def _encoder_of(weights: Weights) -> dict[str, Tensor]:
    """Return the weights of the encoder, under names without what a wrapper puts before them."""
    ends = [f"{name}.weight" for name in PATCHES]
    starts = {key.removesuffix(end) for key in weights for end in ends if key == end or key.endswith(f".{end}")}
    start = min(starts, key=len)
    return {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}


def _layer(weights: Weights, index: int) -> dict[str, Tensor]:
    starts = [name.format(index) for name in LAYERS]
    return {key.removeprefix(s): value for key, value in weights.items() for s in starts if key.startswith(s)}


def _embedded(weights: Weights, differences: Differences, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return the tokens (m, N, d) with absolute positions, and rows and columns of patches."""
    kernel = _first(weights, [f"{name}.weight" for name in PATCHES])
    assert kernel is not None
    height, width = kernel.shape[-2:]
    grid = images.shape[-2] // height, images.shape[-1] // width
    cut = images[:, :, : grid[0] * height, : grid[1] * width]
    cut = cut.reshape(len(images), -1, grid[0], height, grid[1], width).permute(0, 2, 4, 1, 3, 5)
    patches = cut.reshape(len(images), grid[0] * grid[1], -1) @ kernel.flatten(1).T
    patches = patches + _or_zero(_first(weights, [f"{name}.bias" for name in PATCHES]))
    found = [_first(weights, names) for names in (CLASS, DISTILLATION, REGISTERS)]
    before = [token.reshape(-1, patches.shape[-1]) for token in found if token is not None]
    tokens = torch.cat([*(token.expand(len(images), -1, -1) for token in before), patches], dim=1)
    positions = _first(weights, POSITIONS)
    if positions is not None:
        # Positions are of the patches and, where there are more of them, of the first tokens: registers of DINOv2
        # and every token before the patches of some models of timm have none.
        prefix = tokens.shape[1] - grid[0] * grid[1]
        own, of_patches = _positions(positions.reshape(-1, patches.shape[-1]), differences, grid)
        tokens = tokens.clone()
        tokens[:, prefix:] += of_patches
        tokens[:, : len(own)] += own
    return tokens, grid


def _positions(positions: Tensor, differences: Differences, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the positions of tokens before the patches, and those of the patches on a grid."""
    rows, columns = differences.trained
    own, patches = positions[: len(positions) - rows * columns], positions[len(positions) - rows * columns :]
    if grid != differences.trained:
        square = patches.T.reshape(1, -1, rows, columns)
        square = interpolate(square, size=grid, mode="bicubic", align_corners=False, antialias=differences.antialias)
        patches = square[0].flatten(1).T
    return own, patches


def _attended(
    layer: Weights, differences: Differences, x: Tensor, bias: Tensor, grid: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the attention weights (m, heads, N, N) and what the layer makes of the tokens with them."""
    if any(f"{name}.weight" in layer for name in QUERY_KEY_VALUE):
        parts = _linear(x, layer, QUERY_KEY_VALUE).chunk(3, dim=-1)
    else:
        parts = tuple(_linear(x, layer, names) for names in (QUERY, KEY, VALUE))
    query, key, value = (part.unflatten(-1, (differences.heads, -1)).transpose(1, 2) for part in parts)
    if differences.rotation is not None:
        query, key = (_rotated(part, differences.rotation, grid) for part in (query, key))
    logits = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + bias
    attention = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    attention = attention / attention.sum(dim=-1, keepdim=True)
    return attention, _linear((attention @ value).transpose(1, 2).flatten(2), layer, OUTPUT)


def _rotated(part: Tensor, base: float, grid: tuple[int, int]) -> Tensor:
    """Turn pairs (i, i + half) of the entries of each patch: the first half of the pairs by its row, then its column.

    Patch centres lie in [-1, 1], and pair j of q turns by 2 pi times the centre over base ** (j / q).
    """
    patches, width = grid[0] * grid[1], part.shape[-1]
    quarter = width // 4
    angles = torch.zeros(patches, width // 2, dtype=torch.float64)
    for row in range(grid[0]):
        for column in range(grid[1]):
            centres = (2 * row + 1) / grid[0] - 1, (2 * column + 1) / grid[1] - 1
            for axis, centre in enumerate(centres):
                for j in range(quarter):
                    angle = 2 * math.pi * centre / base ** (j / quarter)
                    angles[row * grid[1] + column, axis * quarter + j] = angle
    before, turning = part[:, :, :-patches], part[:, :, -patches:]
    a, b = turning.chunk(2, dim=-1)
    turned = torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)
    return torch.cat([before, turned], dim=2)


def _relative_bias(table: Tensor | None, trained: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Return the bias (heads, N, N) of BEiT from its table of offsets between patches, then class token and patches."""
    if table is None:
        return torch.zeros(1, 1, 1, dtype=torch.float64)
    offsets = table[:-3].T.reshape(1, -1, 2 * trained[0] - 1, 2 * trained[1] - 1)
    offsets = interpolate(offsets, size=(2 * grid[0] - 1, 2 * grid[1] - 1), mode="bilinear", align_corners=False)[0]
    places = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    bias = torch.empty(table.shape[1], len(places) + 1, len(places) + 1, dtype=torch.float64)
    bias[:, 0, :] = table[-3][:, None]  # the class token looks at patches
    bias[:, :, 0] = table[-2][:, None]  # patches look at it
    bias[:, 0, 0] = table[-1]
    for i, (row, column) in enumerate(places):
        for j, (other_row, other_column) in enumerate(places):
            bias[:, i + 1, j + 1] = offsets[:, row - other_row + grid[0] - 1, column - other_column + grid[1] - 1]
    return bias


def _multilayer(layer: Weights, activation: str, x: Tensor) -> Tensor:
    act = ACTIVATIONS[activation]
    if any(f"{name}.weight" in layer for name in GATE_AND_UP):
        gate, up = _linear(x, layer, GATE_AND_UP).chunk(2, dim=-1)
        inner = act(gate) * up
    elif any(f"{name}.weight" in layer for name in GATE):
        inner = act(_linear(x, layer, GATE)) * _linear(x, layer, UP)
    else:
        inner = act(_linear(x, layer, UP))
    return _linear(inner, layer, DOWN)


def _linear(x: Tensor, weights: Weights, names: Sequence[str]) -> Tensor:
    weight = _first(weights, [f"{name}.weight" for name in names])
    assert weight is not None, f"none of {names} among {list(weights)}"
    return x @ weight.T + _or_zero(_first(weights, [f"{name}.bias" for name in names]))


def _normalised(x: Tensor, weights: Weights, names: Sequence[str], epsilon: float) -> Tensor:
    weight, bias = (_first(weights, [f"{name}.{what}" for name in names]) for what in ("weight", "bias"))
    assert weight is not None
    assert bias is not None
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + epsilon) * weight + bias


def _first(weights: Weights, names: Sequence[str]) -> Tensor | None:
    return next((weights[name] for name in names if name in weights), None)


def _or_zero(value: Tensor | None) -> Tensor:
    return torch.zeros((), dtype=torch.float64) if value is None else value


def _or_one(value: Tensor | None) -> Tensor:
    return torch.ones((), dtype=torch.float64) if value is None else value


def _grid(image_size: Any, patch_size: Any) -> tuple[int, int]:
    height, width = image_size if isinstance(image_size, (list, tuple)) else (image_size, image_size)
    rows, columns = patch_size if isinstance(patch_size, (list, tuple)) else (patch_size, patch_size)
    return height // rows, width // columns
