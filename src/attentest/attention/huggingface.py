"""Transformers over the patches of images, spectrograms, videos and signals, of Hugging Face transformers."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention import encoder as encoders
from attentest.attention.aggregation import Tokens, Windows, windows_of_stages
from attentest.attention.attention_reader import (
    ATTENTION_NAME,
    pass_input_to_reader,
    plain_attention,
    resampled_positions,
    set_constant_method,
)
from attentest.attention.stored_vit import ViTModel
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError
from attentest.images.resize_matrix import AXES


def _allow_any_size(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Allow images of another size than in training, which is an error in some families unless they are told so."""
    return arguments, {**named, "interpolate_pos_encoding": True}


def _forward_unmasked(encoder: nn.Module, images: Tensor) -> Any:
    """Pass all patches in their order: ViT-MAE chooses and orders the patches it uses by sorting a noise tensor."""
    embeddings: Any = encoder.embeddings
    patches = embeddings.interpolate_pos_encoding().shape[1] - 1
    order = torch.arange(patches, device=images.device, dtype=images.dtype).expand(len(images), -1)
    return encoder(images, noise=order)


def _forward_spectrograms(encoder: nn.Module, images: Tensor) -> Any:
    """Pass spectrograms (m, 1, frequencies, times), the order of patches; the model takes (m, times, frequencies)."""
    return encoder(images.squeeze(1).mT)


def _forward_videos(encoder: nn.Module, images: Tensor) -> Any:
    """Pass videos (m, C, frames, H, W), whose channels the model takes after the frames."""
    return encoder(images.transpose(1, 2))


def _forward_signals(encoder: nn.Module, images: Tensor) -> Any:
    """Pass signals (m, C, T), whose channels the model takes last."""
    return encoder(images.mT)


def image_arguments(model: nn.Module, images: Tensor) -> tuple[Any, ...]:
    """Return images (m, C, H, W) as a model takes them: SigLIP 2 as patches (m, N, p * p * C), a mask and grids.

    It takes patches of images of several sizes, filled up to one length; here all images have one size.
    """
    parts: list[Any] = list(model.modules())
    side = next((int(part.patch_size) for part in parts if hasattr(part, "position_embedding_size")), None)
    if side is None:
        return (images,)
    cut = images.unfold(2, side, side).unfold(3, side, side)  # (m, C, gh, gw, p, p)
    patches = cut.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
    return patches, None, torch.tensor(cut.shape[2:4]).expand(len(images), -1)


def _forward_patches(encoder: nn.Module, images: Tensor) -> Any:
    return encoder(*image_arguments(encoder, images))


@dataclass(frozen=True)
class Family:
    """One kind of model, and how it differs from others."""

    name: str
    """What messages and documentation call it."""
    model_types: tuple[str, ...]
    """Its ``model_type`` in configurations."""
    encoder: str
    """The class of transformers that is its encoder. A class that ends in "Backbone" instead of "Model" may be the same
    encoder with another output, and one that ends in "Transformer" the encoder within it (transformers 4)."""
    prefix: int = 1
    """Number of tokens before the patches besides registers: a class token, if there are any, and distillation tokens;
    ``use_cls_token`` of a configuration may add a class token."""
    antialias: bool = False
    resampling: str = "bicubic"
    """Whether its position embeddings are smoothed when they are resampled to a coarser grid, and how they are."""
    pooler: bool = False
    """Whether its encoder has a pooling layer by default, which is no part of the attention."""
    processor: str = "ViTImageProcessor"
    """Its image processor in transformers, whose defaults hold where none was saved with a model. Empty where the input
    is no single image: arrays are then given as the model takes them."""
    forward: Callable[[nn.Module, Tensor], Any] | None = None
    """Passes images through the encoder, where that takes more than calling it."""
    image_size: tuple[str, ...] = ("image_size",)
    patch_size: tuple[str, ...] = ("patch_size",)
    stride: tuple[str, ...] = ()
    """Settings of its configuration that are together the sides of the input, those of a patch, and the steps from
    patch to patch where they differ from those."""
    channels: str = "num_channels"
    mlp_width: str = "intermediate_size"
    """Settings of the number of channels, which is one where there is no such setting, and of the width within
    layers."""
    any_size: bool = True
    """Whether it is read at images of other sizes than that of training; videos and signals never are."""
    windows: bool = False
    """Whether its layers attend within windows, in stages with ``depths`` layers and ``num_heads`` heads, of which the
    first has the width ``embed_dim``, and each other twice that of the one before it."""


FAMILIES = (
    Family("ViT", ("vit",), "ViTModel", pooler=True),
    Family("DeiT", ("deit",), "DeiTModel", prefix=2, pooler=True, processor="DeiTImageProcessor"),
    Family("BEiT", ("beit",), "BeitModel", pooler=True, processor="BeitImageProcessor"),
    Family("DINOv2", ("dinov2",), "Dinov2Model", processor="BitImageProcessor"),
    Family(
        "DINOv2 with registers",
        ("dinov2_with_registers",),
        "Dinov2WithRegistersModel",
        antialias=True,
        processor="BitImageProcessor",
    ),
    Family("DINOv3 ViT", ("dinov3_vit",), "DINOv3ViTModel", processor="DINOv3ViTImageProcessor"),
    Family("ViT-MAE", ("vit_mae",), "ViTMAEModel", forward=_forward_unmasked),
    Family("ViT-MSN", ("vit_msn",), "ViTMSNModel"),
    Family("I-JEPA", ("ijepa",), "IJepaModel", prefix=0),
    Family("Swin", ("swin",), "SwinModel", prefix=0, pooler=True, windows=True),
    Family("Swin V2", ("swinv2",), "Swinv2Model", prefix=0, pooler=True, windows=True),
    Family("CLIP vision", ("clip", "clip_vision_model"), "CLIPVisionModel", processor="CLIPImageProcessor"),
    Family(
        "SigLIP vision",
        ("siglip", "siglip_vision_model"),
        "SiglipVisionModel",
        prefix=0,
        processor="SiglipImageProcessor",
    ),
    Family(
        "SigLIP 2 vision",
        ("siglip2", "siglip2_vision_model"),
        "Siglip2VisionModel",
        prefix=0,
        antialias=True,
        resampling="bilinear",
        processor="",  # it chooses the size of each image by its shape
        forward=_forward_patches,
        image_size=("num_patches",),
    ),
    Family(
        "Audio Spectrogram Transformer",
        ("audio-spectrogram-transformer",),
        "ASTModel",
        prefix=2,
        processor="",
        forward=_forward_spectrograms,
        image_size=("num_mel_bins", "max_length"),
        stride=("frequency_stride", "time_stride"),
        any_size=False,
    ),
    Family(
        "VideoMAE",
        ("videomae",),
        "VideoMAEModel",
        prefix=0,
        processor="",
        forward=_forward_videos,
        image_size=("num_frames", "image_size"),
        patch_size=("tubelet_size", "patch_size"),
    ),
    Family(
        "ViViT",
        ("vivit",),
        "VivitModel",
        pooler=True,
        processor="",
        forward=_forward_videos,
        image_size=("num_frames", "image_size"),
        patch_size=("tubelet_size",),
    ),
    Family(
        "PatchTST",
        ("patchtst",),
        "PatchTSTModel",
        prefix=0,
        processor="",
        forward=_forward_signals,
        image_size=("context_length",),
        patch_size=("patch_length",),
        stride=("patch_stride",),
        channels="num_input_channels",
        mlp_width="ffn_dim",
    ),
)
"""The families that are read, in the order in which messages list them."""


DEFINED_IN = ("transformers.", ViTModel.__module__)
"""Beginnings of the names of modules whose classes are encoders of these families."""


def family_of(module: nn.Module) -> Family | None:
    """Return the family of an encoder, None for any other module."""
    if not (hasattr(module, "embeddings") or hasattr(module, "patchifier")):  # such as a backbone that holds an encoder
        return None
    bases = {base.__name__ for base in type(module).__mro__ if base.__module__.startswith(DEFINED_IN)}
    names = {re.sub("(Backbone|Transformer)$", "Model", name) for name in bases}
    return next((family for family in FAMILIES if family.encoder in names), None)


def family_of_type(model_type: object) -> Family | None:
    """Return the family of a ``model_type`` of configurations, None for any other value."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)


def encoder_class(family: Family) -> Any:
    """Return the class of a family's encoder; only the file of transformers that defines it is imported, in seconds."""
    import transformers

    try:
        return getattr(transformers, family.encoder)
    except AttributeError:
        raise ModelError(
            f"transformers {transformers.__version__} has no {family.name}: install a newer version of it."
        ) from None


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> encoders.Encoder:
    """Return a float64 copy of an encoder that exposes its attention, for one size of image."""
    family = family_of(module)
    assert family is not None
    config: Any = module.config
    kind = str(config.model_type)
    trained, patch_size = _sides(config, family.image_size), _sides(config, family.patch_size)
    stride = _sides(config, family.stride) or patch_size
    size = encoders.checked_size(trained if image_size is None else image_size, patch_size, stride)
    any_size = family.any_size and len(trained) == 2  # positions are resampled on images
    if not any_size:
        encoders.check_same_size(kind, trained, size)
    if getattr(config, "channel_attention", False):
        raise ModelError(
            f"the model is of type {kind!r} with channel_attention, so that layers attend along time and across "
            "channels in turn, and their attention is no map over time: give a score function of your own."
        )
    if family.windows:
        encoders.check_whole_patches(kind, patch_size, size)
    grid = encoders.patches_along(size, patch_size, stride)
    encoder, weights = encoders.float64_copy(module, device, kind, owned)
    if not isinstance(encoder, ViTModel):
        _expose_attention(encoder)
    if hasattr(encoder.config, "mask_ratio"):
        encoder.config.mask_ratio = 0.0  # no patch is left out
    if hasattr(encoder, "do_mask_input"):
        encoder.do_mask_input, encoder.masking = False, nn.Identity()  # nor is one here
    if any_size:
        _fix_positions(encoder, family, (grid[0], grid[1]))
    if "interpolate_pos_encoding" in inspect.signature(encoder.forward).parameters:
        encoder.register_forward_pre_hook(_allow_any_size, with_kwargs=True)
    registers = int(getattr(config, "num_register_tokens", 0) or 0)
    class_token = bool(getattr(config, "use_cls_token", False))
    channels = int(getattr(config, family.channels, 1))
    patchifier = getattr(encoder, "patchifier", None)  # of PatchTST, each of whose channels is a sequence
    windows = _windows(encoder, (grid[0], grid[1])) if family.windows else ()
    width = int(config.embed_dim if windows else config.hidden_size)
    return encoders.Encoder(
        module=encoder,
        forward=family.forward or nn.Module.__call__,
        kind=kind,
        channels=channels,
        image_size=size,
        patch_size=patch_size,
        stride=stride,
        start=(int(patchifier.sequence_start),) if patchifier else (),
        tokens=Tokens(
            grid=grid,
            prefix=family.prefix + registers + class_token,
            class_token=family.prefix > 0 or class_token,
            windows=windows,
        ),
        sequences=channels if patchifier else 1,
        layers=len(windows) or int(config.num_hidden_layers),
        heads=max(layer.heads for layer in windows) if windows else int(config.num_attention_heads),
        width=width,
        mlp_width=int(getattr(config, family.mlp_width, 0) or 4 * width),
        weights=weights,
    )


def _windows(encoder: Any, grid: tuple[int, int]) -> tuple[Windows, ...]:
    """Return the windows of the layers of Swin or Swin V2, for a grid of patches."""
    stages, sides = [list(stage.blocks) for stage in encoder.encoder.layers], grid
    for layers in stages:
        for layer in layers:
            if hasattr(layer, "set_shift_and_window_size"):  # otherwise done when first called
                layer.set_shift_and_window_size(sides)
        sides = (sides[0] + 1) // 2, (sides[1] + 1) // 2
    return windows_of_stages(stages, encoder.config.num_heads, grid, next(encoder.parameters()).device, pads_first=True)


PER_IMAGE = ("image_size", "patch_size")  # settings in which one number stands for height and width
LARGEST_WIDTH = 2**20  # far more than any model has: a larger number is a mistake


def sides_in(settings: tuple[str, ...], value_of: Callable[[str], Any], axes: Collection[int]) -> tuple[int, ...]:
    """Return the sides that settings of a configuration are together, of images with one of some numbers of axes."""
    sides: list[int] = []
    for name in settings:
        value = value_of(name)
        if name == "num_patches":  # of a square
            patch_size = whole_number(value_of("patch_size"), "'patch_size'", 1, LARGEST_WIDTH)
            patches = whole_number(value, repr(name), 1, encoders.MOST_PATCHES)
            value = (math.isqrt(patches) * patch_size,) * 2
        several = value if isinstance(value, (list, tuple)) else [value] * (2 if name in PER_IMAGE else 1)
        if name in PER_IMAGE and len(several) not in axes:
            raise InputError(f"{name!r} must be a side or a height and a width, got {len(several)} numbers.")
        sides += [whole_number(side, repr(name), 1, LARGEST_WIDTH) for side in several]
    return tuple(sides)


def _sides(config: Any, settings: tuple[str, ...]) -> tuple[int, ...]:
    return sides_in(settings, partial(getattr, config), AXES)


EAGER_ATTENTION = ("BeitSelfAttention", "SwinSelfAttention", "Swinv2SelfAttention")
"""Classes of attention that do not call the function a configuration names."""


def _expose_attention(encoder: Any) -> None:
    """Let all layers of a copy compute their attention by our function, or pass their weights to the reader."""
    from transformers.modeling_utils import AttentionInterface  # slow to import, and here imported by the model before

    AttentionInterface.register(ATTENTION_NAME, plain_attention)
    encoder.config.output_attentions = False  # the model's output is not used, and would need another function
    encoder.config._attn_implementation = ATTENTION_NAME
    for module in encoder.modules():
        # Swin V2 has attention of its own, whose eager version computes in the model's dtype, and so have BEiT and Swin
        # before transformers 5.10.
        eager = next((base for base in type(module).__mro__ if base.__name__ in EAGER_ATTENTION), None)
        if eager is not None:
            module.__class__ = eager
            module.dropout.register_forward_hook(pass_input_to_reader)


def _fix_positions(encoder: Any, family: Family, grid: tuple[int, int]) -> None:
    """Replace what depends on the size of the image alone by constants, computed in float64.

    The library computes it again for each batch, some of it in float32, and assumes that training images were square.
    """
    config = encoder.config
    height, width = _sides(config, family.image_size)
    patch_height, patch_width = encoders.pair(config.patch_size)
    trained = height // patch_height, width // patch_width
    positions = _positions(encoder.embeddings)
    if positions is not None:
        resampled = resampled_positions(positions, trained, grid, family.antialias, family.resampling)
        for method in ("interpolate_pos_encoding", "resize_positional_embeddings"):
            if hasattr(encoder.embeddings, method):
                set_constant_method(encoder.embeddings, method, resampled)
    if hasattr(encoder, "rope_embeddings"):
        set_constant_method(encoder.rope_embeddings, "forward", *_rotations(encoder.rope_embeddings, grid))
    for module in encoder.modules():
        if type(module).__name__ == "BeitRelativePositionBias":
            set_constant_method(module, "forward", module(grid))


def _positions(embeddings: Any) -> Tensor | None:
    """Return the position embeddings (1, n, d) as trained, None for a model without."""
    if getattr(embeddings, "position_embedding", None) is not None:
        return torch.as_tensor(embeddings.position_embedding.weight.unsqueeze(0))
    positions: Tensor | None = getattr(embeddings, "position_embeddings", None)
    return positions


def _rotations(rope: Any, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary position embedding, each (gh * gw, head_dim), in float64."""
    device = rope.inv_freq.device
    frequencies = 1 / rope.base ** torch.arange(0, 1, 4 / rope.head_dim, dtype=torch.float64, device=device)
    centres = [2 * (torch.arange(n, dtype=torch.float64, device=device) + 0.5) / n - 1 for n in grid]
    places = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)
    angles = (2 * torch.pi * places[:, :, None] * frequencies).flatten(1, 2).tile(2)
    return torch.cos(angles), torch.sin(angles)


def _class_scores(model: nn.Module, images: Tensor) -> Any:
    """Return the logits (m, K) of a model with a head, or what one without returns."""
    if hasattr(model, "text_model") or hasattr(model, "decoder"):
        return None  # it compares images with texts, or restores them
    family = next(filter(None, map(family_of, model.modules())))
    output = (family.forward or nn.Module.__call__)(model, images)
    return getattr(output, "logits", getattr(output, "prediction_logits", output))


LIBRARY = encoders.ModelLibrary(
    models=tuple(family.name for family in FAMILIES),
    package="transformers",
    recognises=lambda module: family_of(module) is not None,
    read=_read,
    class_scores=_class_scores,
)
