"""Libraries of vision transformers: how their models are recognised and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attentest.attention.encoder import Encoder
from attentest.registry import MODEL_LIBRARIES


@dataclass(frozen=True, kw_only=True)
class ModelLibrary:
    """How the models of one library are recognised and read.

    Parameters
    ----------
    models
        The models that are read, as error messages list them, such as ("ViT", "DeiT").
    package
        Name of the library's package. Its modules pass images unchanged to the vision transformer within them.
    recognises
        Returns whether a module is a vision transformer of this library that can be read.
    read
        Called with such a module, the size of the input (a side, (height, width), or None for that of training), the
        device (None: where the model is) and whether the module may be changed instead of copied; returns an encoder
        that computes in float64.
    """

    models: tuple[str, ...]
    package: str
    recognises: Callable[[nn.Module], bool]
    read: Callable[[nn.Module, Any, torch.device | str | None, bool], Encoder]


def model_libraries() -> dict[str, ModelLibrary]:
    """Return the registered libraries by name."""
    return {name: part.load() for name, part in MODEL_LIBRARIES.items()}


def readable_models() -> str:
    """Return the models that can be read as error messages list them: "ViT or DeiT of Hugging Face, ViT of timm"."""
    return ", ".join(f"{_listed(library.models)} of {name}" for name, library in model_libraries().items())


def _listed(names: tuple[str, ...]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
