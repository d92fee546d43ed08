"""What the files of a saved model declare, checked before the model is built."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from attentest.attention.encoder import checked_size
from attentest.attention.stored_vit import module_name
from attentest.checks import positive_number, whole_number
from attentest.errors import InputError, ModelError, counted, shortened

LARGEST_HEADER = 100_000_000
"""Most bytes of a header, the format's own limit."""

MOST_WEIGHTS_A_BYTE = 2
"""Of the narrowest dtype, of four bits."""

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
"""Dtypes of weights that are used as they are stored. Others are whole numbers or so narrow that they need scales."""


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """The number of weights in files, their tensors in order, and the dtypes of those named weight or bias."""

    count: int
    names: tuple[str, ...] = ()
    dtypes: frozenset[str] = frozenset()

    @classmethod
    def together(cls, files: Sequence[StoredWeights]) -> StoredWeights:
        """Return what several files hold."""
        return cls(
            count=sum(each.count for each in files),
            names=tuple(name for each in files for name in each.names),
            dtypes=frozenset(dtype for each in files for dtype in each.dtypes),
        )

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that holds all of them as they are stored; None if theirs are not known."""
        return reduce(torch.promote_types, (DTYPES[name] for name in self.dtypes)) if self.dtypes else None


def weights_in(path: Path) -> StoredWeights:
    """Return what a safetensors file holds; a header that cannot be true, or quantized weights, raise a ValueError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise ValueError(f"{path.name} has {size} bytes, too few for a header of {length}, or too long a header")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ValueError(f"the header of {path.name} is damaged") from None
    if not isinstance(header, dict):
        raise ValueError(f"the header of {path.name} is damaged")
    tensors = {name: _extent(entry, name, path) for name, entry in header.items() if name != "__metadata__"}
    if sum(taken for _, taken in tensors.values()) > size - 8 - length:
        raise ValueError(f"the tensors in the header of {path.name} take more bytes than the file has")
    dtypes = {
        name: str(entry.get("dtype"))
        for name, entry in header.items()
        if name.endswith((".weight", ".bias"))  # whole numbers beside them are indices
    }
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise ValueError(
                f"tensor {name[:100]!r} of {path.name} is stored as {dtype[:20]}, not as one of {', '.join(DTYPES)}"
            )
    return StoredWeights(
        count=sum(weights for weights, _ in tensors.values()),
        names=tuple(sorted(tensors, key=lambda name: header[name]["data_offsets"])),
        dtypes=frozenset(dtypes.values()),
    )


def _extent(entry: Any, name: str, path: Path) -> tuple[int, int]:
    """Return the number of weights of a tensor and the bytes they take."""
    fields = entry if isinstance(entry, Mapping) else {}
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        raise ValueError(f"the header of {path.name} gives tensor {name[:100]!r} no valid shape or place")
    weights, taken = math.prod(shape), offsets[1] - offsets[0]
    if weights > MOST_WEIGHTS_A_BYTE * taken:
        raise ValueError(f"the header of {path.name} gives tensor {name[:100]!r} more weights than bytes")
    return weights, taken


def _are_sizes(values: Any) -> bool:
    """Return whether a value of the header is a list of whole numbers from 0 that fit in 64 bits."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


UNUSED_WEIGHTS = re.compile(
    r"(^|\.)(classifier|cls_classifier|distillation_classifier|pooler|head|lm_head|decoder|mask_token|text_model|"
    r"logit_scale|logit_bias|visual_projection|text_projection|layernorm|norm|post_layernorm|position_ids|"
    r"relative_position_index)(\.|$)"
)
"""Names of weights that do not affect the attention: a saved model may have them or lack them."""

LAYER = re.compile(r"(^|\.)(layers?|blocks)\.\d+\.")
"""Names of weights of a layer, all of which affect the attention."""

ADVICE = "weights and configuration do not belong together: give those that save_pretrained wrote at one time."
"""End of the messages about weights that are not those of the configuration."""


def check_matching(info: Mapping[str, Any], where: str, stored: Sequence[str]) -> None:
    """Refuse a model with weights of another shape than its configuration asks for, with other weights or with fewer.

    Parameters
    ----------
    info
        What the library says of loading the model, which names the weights as its modules do.
    where
        What a message says of where the weights are.
    stored
        Names of the weights in the files, in their order there; none if it is not known.
    """
    mismatched = {key: (tuple(found), tuple(wanted)) for key, found, wanted in info["mismatched_keys"]}
    if mismatched:
        named = _in_file_order(mismatched, stored)
        key, name = next(iter(named.items()))
        found, wanted = mismatched[key]
        others = len(named) - 1
        more = f", and {counted(others, 'more tensor')} {'do' if others > 1 else 'does'} not fit" if others else ""
        raise ModelError(
            f"the weights {where} have {name} of shape {found}, but config.json asks for {wanted}{more}; {ADVICE}"
        )
    if missing := _used(info["missing_keys"]):
        raise ModelError(
            f"the weights {where} lack {counted(len(missing), 'tensor')} that config.json asks for, "
            f"{missing[0]} first; {ADVICE}"
        )
    if unknown := _used(info["unexpected_keys"]):
        raise ModelError(
            f"the weights {where} have {counted(len(unknown), 'tensor')} that config.json does not ask for, "
            f"{unknown[0]} first; {ADVICE}"
        )


def _in_file_order(keys: Iterable[str], stored: Sequence[str]) -> dict[str, str]:
    """Return the names in the files of weights that the modules call by these keys, in the order of the files.

    Models with a head prefix the names of their encoder, and the library has renamed modules since older files were
    written. A key that no name of the files fits stays as it is, and comes last.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(stored):
        for own in (name, _without_prefix(name)):
            places.setdefault(own, place)
            places.setdefault(module_name(own), place)

    def place_of(key: str) -> int:
        return places.get(key, places.get(_without_prefix(key), len(stored)))

    ordered = sorted(keys, key=lambda key: (place_of(key), key))
    return {key: stored[place_of(key)] if place_of(key) < len(stored) else key for key in ordered}


def _without_prefix(name: str) -> str:
    return name.partition(".")[2]


def _used(keys: Iterable[str]) -> list[str]:
    """Return those that affect the attention, sorted: no classification heads, poolers, decoders or text."""
    return sorted(
        key
        for key in keys
        if not key.startswith(("decoder.", "text_model."))
        and (LAYER.search(key) is not None or UNUSED_WEIGHTS.search(key) is None)
    )


MOST_LAYERS, MOST_CHANNELS, LARGEST_WIDTH, MOST_REGISTERS = 2**12, 2**12, 2**20, 2**12
"""Far more than any model has: a larger number is a mistake."""

MOST_LABELS = 10**6
"""Most classes: the library makes a name for each of them."""


@dataclass(frozen=True, kw_only=True)
class AnnouncedSize:
    """The sizes in a configuration that determine what building the model takes."""

    layers: int
    width: int
    mlp_width: int
    channels: int
    patch_size: tuple[int, int]
    registers: int

    @classmethod
    def of(cls, config: Mapping[str, Any], defaults: Any) -> AnnouncedSize:
        """Read the sizes in a configuration; refuse one that no model has.

        Parameters
        ----------
        config
            The content of config.json.
        defaults
            Configuration of the library with the values of what is left out.
        """
        vision = config.get("vision_config")
        sizes = vision if isinstance(vision, Mapping) else config

        def value(name: str, otherwise: Any = None) -> Any:
            given = sizes.get(name)
            return getattr(defaults, name, otherwise) if given is None else given

        def number(name: str, most: int, least: int = 1, otherwise: Any = None) -> int:
            return whole_number(value(name, otherwise), repr(name), least, most)

        for each in (config, sizes):
            if each.get("num_labels") is not None:
                whole_number(each["num_labels"], "'num_labels'", 0, MOST_LABELS)
        patch_size = _sides(value("patch_size"), "patch_size")
        checked_size(_sides(value("image_size"), "image_size"), patch_size)
        width = number("hidden_size", LARGEST_WIDTH)
        number("num_attention_heads", width)
        if value("intermediate_size") is None:
            mlp_width = int(width * min(positive_number(value("mlp_ratio", 4), "'mlp_ratio'"), LARGEST_WIDTH))
        else:
            mlp_width = number("intermediate_size", LARGEST_WIDTH)
        return cls(
            layers=number("num_hidden_layers", MOST_LAYERS),
            width=width,
            mlp_width=mlp_width,
            channels=number("num_channels", MOST_CHANNELS),
            patch_size=patch_size,
            registers=number("num_register_tokens", MOST_REGISTERS, 0, 0),
        )

    @property
    def least_weights(self) -> int:
        """Least number of weights of such a model: those of its projections, which every family has."""
        layer = 4 * self.width**2 + 2 * self.width * self.mlp_width
        patch = self.patch_size[0] * self.patch_size[1] * self.channels
        return self.layers * layer + self.width * (patch + self.registers)


def _sides(size: Any, name: str) -> tuple[int, int]:
    sides = size if isinstance(size, (list, tuple)) else [size, size]
    if len(sides) != 2:
        raise InputError(f"{name!r} must be a side or a height and a width, got {len(sides)} numbers.")
    height, width = (whole_number(side, repr(name), 1, LARGEST_WIDTH) for side in sides)
    return height, width


NAMED_SETTINGS_DTYPES = ("dtype", "torch_dtype")
"""Names of the setting in configurations, new and old."""

ACTIVATION = "hidden_act"


def check_dtype(config: Mapping[str, Any]) -> None:
    """Refuse a dtype that torch does not have; a model of several parts may name one for each.

    Parameters
    ----------
    config
        The content of config.json.
    """
    for each in _with_vision(config):
        for setting in NAMED_SETTINGS_DTYPES:
            given = each.get(setting)
            for name in given.values() if isinstance(given, Mapping) else (given,):
                if name is not None and not _is_dtype(name):
                    raise InputError(
                        f"{setting!r} must be the name of a dtype of torch, such as float32, float16 or bfloat16, got "
                        f"{shortened(name)}: correct it, or remove it, since weights are used as they are stored."
                    )


def check_activation(config: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse an activation that is not among those that are known; one that is left out has its default.

    Parameters
    ----------
    config
        The content of config.json.
    known
        The names of the activations of transformers.
    """
    for each in _with_vision(config):
        if ACTIVATION in each and not (isinstance(each[ACTIVATION], str) and each[ACTIVATION] in known):
            raise InputError(
                f"{ACTIVATION!r} must be one of {', '.join(sorted(known))}, got {shortened(each[ACTIVATION])}: use the "
                "config.json that was saved with the weights."
            )


def _with_vision(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a configuration, and the one of its vision transformer if the model has others beside it."""
    vision = config.get("vision_config")
    return [config, vision] if isinstance(vision, Mapping) else [config]


def _is_dtype(name: object) -> bool:
    return isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)
