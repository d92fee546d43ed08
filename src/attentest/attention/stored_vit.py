"""The ViT of Hugging Face transformers, read from its files without that package, which takes seconds to import.

With one or three sides in place of two it is the same model of signals or volumes, which that package does not have,
nor patches that overlap: ``patch_margin`` is how far each reaches beyond its ``patch_size`` on every side, into zeros
at the ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from attentest.attention.attention_reader import plain_attention

UNUSED_SETTINGS = {
    "_name_or_path", "architectures", "attention_probs_dropout_prob", "dtype", "encoder_stride", "hidden_dropout_prob",
    "id2label", "initializer_range", "label2id", "num_labels", "pooler_act", "pooler_output_size", "problem_type",
    "torch_dtype", "transformers_version",
}  # fmt: skip
"""Settings in config.json without effect on the attention of a model whose weights are all stored in one dtype."""

CLASSIFIER = "classifier."  # beginning of the names of the weights of the classification head
UNUSED_WEIGHTS = "pooler."  # beginning of the names of weights that affect neither attention nor class scores

RENAMED = (
    (re.compile(r"^vit\."), ""),
    (re.compile(r"^encoder\.layer\."), "layers."),
    (re.compile(r"\.attention\.attention\.(q|k|v)(?:uery|ey|alue)\."), r".attention.\1_proj."),
    (re.compile(r"\.attention\.output\.dense\."), ".attention.o_proj."),
    (re.compile(r"\.intermediate\.dense\."), ".mlp.fc1."),
    (re.compile(r"\.output\.dense\."), ".mlp.fc2."),
)
"""From the names of weights in files to those in the modules of transformers, which are also the ones here."""


@dataclass(frozen=True, kw_only=True)
class ViTSettings:
    """The settings of a ViT that affect its attention, under the names and with the defaults of transformers."""

    model_type: str = "vit"
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    image_size: int | tuple[int, ...] = 224
    patch_size: int | tuple[int, ...] = 16
    patch_margin: int = 0
    num_channels: int = 3
    qkv_bias: bool = True


def stored_vit(config: Mapping[str, Any], weights: Path, head: bool = False) -> nn.Module | None:
    """Return the encoder in a safetensors file, None if there is anything unusual: transformers then decides on it.

    The sizes in the content of config.json, and the header of the file, have been checked. ``head`` says whether the
    encoder is returned with its classification head.
    """
    settings = _settings(config)
    if settings is None:
        return None
    with torch.device("meta"):
        encoder = ViTModel(settings)
    try:
        stored = _stored(weights)
    except (OSError, SafetensorError):
        return None
    classifier = {name: stored.pop(name) for name in list(stored) if name.startswith(CLASSIFIER)}
    needed = encoder.state_dict()
    dtypes = {str(weight.dtype).removeprefix("torch.") for weight in stored.values()}
    declared = config.get("dtype", config.get("torch_dtype"))
    if stored.keys() != needed.keys() or any(stored[name].shape != needed[name].shape for name in needed):
        return None
    if len(dtypes) != 1 or declared not in (None, *dtypes) or not stored["layernorm.weight"].is_floating_point():
        return None
    encoder.load_state_dict(stored, assign=True)
    if not head:
        return encoder.eval()
    weight, bias = (classifier.get(f"{CLASSIFIER}{name}") for name in ("weight", "bias"))
    if weight is None or bias is None or weight.shape != (len(bias), settings.hidden_size):
        return None
    return ViTClassifier(encoder, weight, bias, config.get("id2label")).eval()


def _settings(config: Mapping[str, Any]) -> ViTSettings | None:
    """Return the settings in a configuration, None if it has one that is not known here."""
    known = {field.name: type(field.default) for field in fields(ViTSettings)}
    stated = {name: value for name, value in config.items() if name not in UNUSED_SETTINGS}
    for name in {"image_size", "patch_size"} & stated.keys():
        if isinstance(stated[name], list) and {type(side) for side in stated[name]} == {int}:
            stated[name] = tuple(stated[name])
    if any(name not in known or type(value) not in (known[name], tuple) for name, value in stated.items()):
        return None
    settings = ViTSettings(**stated)
    divides = settings.hidden_size % settings.num_attention_heads == 0
    same_axes = len(sides_of(settings.image_size)) == len(sides_of(settings.patch_size)) in (1, 2, 3)
    known_parts = settings.hidden_act == "gelu" and settings.patch_margin >= 0
    return settings if divides and same_axes and known_parts else None


def sides_of(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the sides of a size, which may be one number for both sides of an image."""
    return size if isinstance(size, tuple) else (size, size)


def module_name(name: str) -> str:
    """Return the name in the modules of a weight that has this name in a file."""
    for pattern, replacement in RENAMED:
        name = pattern.sub(replacement, name)
    return name


def _stored(weights: Path) -> dict[str, Tensor]:
    """Return the weights in a file that affect the attention, by the names that they have here."""
    names: dict[str, str] = {}
    with safe_open(weights, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # it is no mapping
            renamed = module_name(name)
            if renamed in names:
                return {}  # under two names
            if not renamed.startswith(UNUSED_WEIGHTS):
                names[renamed] = name
        return {renamed: file.get_tensor(name) for renamed, name in names.items()}


class ViTModel(nn.Module):
    """The encoder, with the modules and the names of weights of the class of the same name in transformers."""

    def __init__(self, settings: ViTSettings) -> None:
        super().__init__()
        self.config = settings
        self.embeddings = _Embeddings(settings)
        self.layers = nn.ModuleList(_Layer(settings) for _ in range(settings.num_hidden_layers))
        self.layernorm = nn.LayerNorm(settings.hidden_size, eps=settings.layer_norm_eps)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens (m, N, d) of images (m, C, *axes)."""
        tokens = self.embeddings(images)
        for layer in self.layers:
            tokens = layer(tokens)
        return torch.as_tensor(self.layernorm(tokens))


class ViTClassifier(nn.Module):
    """The encoder with a linear head over its class token; ``labels`` are the names of the classes, by number."""

    def __init__(self, encoder: ViTModel, weight: Tensor, bias: Tensor, labels: Any) -> None:
        super().__init__()
        self.vit, self.labels = encoder, labels
        self.classifier = nn.Linear(weight.shape[1], len(weight), device="meta")
        self.classifier.load_state_dict({"weight": weight, "bias": bias}, assign=True)

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores (m, K) of images (m, C, *axes)."""
        return torch.as_tensor(self.classifier(self.vit(images)[:, 0]))


CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class _Embeddings(nn.Module):
    def __init__(self, settings: ViTSettings) -> None:
        super().__init__()
        width, patch, image = settings.hidden_size, sides_of(settings.patch_size), sides_of(settings.image_size)
        margin = settings.patch_margin
        patches = math.prod(side // own for side, own in zip(image, patch, strict=True))
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.position_embeddings = nn.Parameter(torch.empty(1, 1 + patches, width))
        reach = tuple(side + 2 * margin for side in patch)
        projection = CONVOLUTIONS[len(patch)](settings.num_channels, width, reach, patch, margin)
        self.patch_embeddings = nn.ModuleDict({"projection": projection})

    def interpolate_pos_encoding(self) -> Tensor:
        """Return the position embeddings (1, N, d); ``attentest.attention.huggingface`` sets those of other sizes."""
        return self.position_embeddings

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embeddings["projection"](images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1)
        return tokens + self.interpolate_pos_encoding()


class _Attention(nn.ModuleDict):
    def __init__(self, settings: ViTSettings) -> None:
        width = settings.hidden_size
        projections = {f"{name}_proj": nn.Linear(width, width, bias=settings.qkv_bias) for name in "qkv"}
        super().__init__({**projections, "o_proj": nn.Linear(width, width)})
        self.heads = settings.num_attention_heads

    def forward(self, tokens: Tensor) -> Tensor:
        parts = (self[f"{name}_proj"](tokens) for name in "qkv")
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return torch.as_tensor(self["o_proj"](plain_attention(self, query, key, value)[0].flatten(2)))


class _Layer(nn.Module):
    def __init__(self, settings: ViTSettings) -> None:
        super().__init__()
        width = settings.hidden_size
        self.attention = _Attention(settings)
        self.layernorm_before = nn.LayerNorm(width, eps=settings.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(width, eps=settings.layer_norm_eps)
        inner = settings.intermediate_size
        up, down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.mlp = nn.ModuleDict({"fc1": up, "activation_fn": nn.GELU(), "fc2": down})

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.attention(self.layernorm_before(tokens)) + tokens
        inner = self.mlp["activation_fn"](self.mlp["fc1"](self.layernorm_after(tokens)))
        return torch.as_tensor(self.mlp["fc2"](inner) + tokens)
