"""Loading a ViT from a local Hugging Face directory: safetensors only, nothing run, nothing fetched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from transformers import ViTModel

from attentest.errors import ModelError
from attentest.quiet import quiet_transformers

HEADS = ("classifier.", "pooler.", "vit.pooler.", "decoder.", "embeddings.mask_token", "vit.embeddings.mask_token")
"""Weights that a saved model may have and that play no part in its attention."""


def load_vit(directory: str | Path) -> ViTModel:
    """Load the encoder of a ViT saved with ``save_pretrained``, in float64.

    Parameters
    ----------
    directory
        Local directory with ``config.json`` and ``model.safetensors``.

    Returns
    -------
    ViTModel
        Every weight of the encoder comes from the file; a directory that lacks one is refused, because the
        library would fill it with random numbers.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise ModelError(f"a model directory must be given as a path, got {type(directory).__name__}.")
    directory = Path(directory)
    _check_config(directory)
    try:
        with quiet_transformers():
            model, info = ViTModel.from_pretrained(
                directory,
                add_pooling_layer=False,
                dtype=torch.float64,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # noqa: BLE001  # whatever a foreign configuration or file breaks in the library
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ModelError(
            f"the model directory {directory} cannot be loaded ({reason}): "
            "it needs config.json and an intact model.safetensors, as save_pretrained writes them."
        ) from None
    broken = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if broken:
        raise ModelError(
            f"the weights in {directory} lack {len(broken)} tensor(s) that config.json asks for, "
            f"{broken[0]} first: weights and configuration do not belong together."
        )
    foreign = sorted(key for key in info["unexpected_keys"] if not key.startswith(HEADS))
    if foreign:
        raise ModelError(
            f"the weights in {directory} have {len(foreign)} tensor(s) that config.json knows nothing of, "
            f"{foreign[0]} first: weights and configuration do not belong together."
        )
    return model


def _check_config(directory: Path) -> None:
    if not directory.is_dir():
        raise ModelError(
            f"there is no model directory {directory}: give a directory made by save_pretrained or `attentest train`."
        )
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"the model directory {directory} has no config.json: it is not a saved model.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"the config.json in {directory} cannot be read: {error}.") from None
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if model_type != "vit":
        raise ModelError(
            f"the model in {directory} is of type {model_type!r}, but attentest loads 'vit' models "
            "(ViTForImageClassification, ViTModel)."
        )
