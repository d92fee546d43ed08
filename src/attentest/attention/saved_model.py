"""Saved vision transformers, loaded from a directory or the Hugging Face hub without running code they contain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from attentest.attention.huggingface import Family, encoder_class, family_of_type
from attentest.attention.model_config import ModelConfig
from attentest.attention.model_files import WEIGHTS, ModelFiles, StoredWeights, no_network, quiet_transformers
from attentest.attention.model_library import refusal
from attentest.attention.stored_vit import ViTSettings, module_name, stored_vit
from attentest.errors import ModelError, counted

UNUSED_WEIGHTS = re.compile(
    r"(^|\.)(classifier|cls_classifier|distillation_classifier|pooler|head|lm_head|decoder|mask_token|text_model|"
    r"logit_scale|logit_bias|visual_projection|text_projection|layernorm|norm|post_layernorm|position_ids|"
    r"relative_position_index)(\.|$)"
)
"""Names of weights that do not affect the attention: a saved model may have them or lack them."""

ADVICE = "weights and configuration do not belong together: give those that save_pretrained wrote at one time."
"""End of the messages about weights that are not those of the configuration."""

LAYER = re.compile(r"(^|\.)(layers?|blocks)\.\d+\.")
"""Names of weights of a layer, all of which affect the attention."""


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A loaded encoder, in the dtype it was saved in, and the configuration of its image processor, if it has one."""

    encoder: nn.Module
    processor: dict[str, Any] | None

    def __repr__(self) -> str:
        processor = "None" if self.processor is None else f"<{len(self.processor)} settings>"
        return f"SavedModel(encoder=<{type(self.encoder).__name__}>, processor={processor})"


def load_model(
    source: str | Path,
    *,
    allow_pickle: bool = False,
    local_files_only: bool = False,
    revision: str | None = None,
) -> SavedModel:
    """Load the encoder of a vision transformer saved with ``save_pretrained``.

    Parameters
    ----------
    source
        Local directory, or the id of a model on the Hugging Face hub, such as "google/vit-base-patch16-224". If a
        directory of that name exists, it is used; only an id is looked up over the network.
    allow_pickle
        Whether to read pickled weights (``pytorch_model.bin``) where there is no safetensors file.
    local_files_only
        Whether to use only files downloaded before, and never the network.
    revision
        Branch, tag or commit on the hub.

    Returns
    -------
    SavedModel
        Every weight of the encoder comes from the file. It is an error if a weight is missing, because the library
        would replace it by random numbers.
    """
    files = ModelFiles(source, allow_pickle, local_files_only, revision)
    with no_network() if files.local_only else nullcontext():
        settings = files.json("config.json", needed=True)
        if settings is None:
            raise ModelError(f"{files.what} has no config.json: it is not a saved model.")
        encoder = _encoder(ModelConfig(settings, files.source), files)
        processor = files.json("preprocessor_config.json") or files.json("processor_config.json")
        return SavedModel(encoder=encoder, processor=processor or None)


def _encoder(config: ModelConfig, files: ModelFiles) -> nn.Module:
    family = family_of_type(config.model_type)
    if family is None:
        raise refusal(config.model_type, f"the model {files.where}")
    is_vit = ViTSettings.model_type in family.model_types
    config.check_dtype()
    with nullcontext() if is_vit else quiet_transformers():
        defaults = ViTSettings() if is_vit else encoder_class(family).config_class()
    least = config.least_weights(defaults)
    stored = files.weights()
    if stored is not None and least > stored.count:
        raise ModelError(
            f"the config.json of {files.source} asks for a model with at least {least} weights, but its files hold "
            f"{stored.count}; {ADVICE}"
        )
    path = files.path(WEIGHTS) if is_vit and files.directory is not None else None
    plain = None if path is None or files.path("adapter_config.json") else stored_vit(config.settings, path)
    return _load_weights(family, config, files, stored) if plain is None else plain


def _load_weights(family: Family, config: ModelConfig, files: ModelFiles, stored: StoredWeights | None) -> Any:
    from transformers.activations import ACT2FN

    config.check_activation(ACT2FN)
    options: dict[str, Any] = {"add_pooling_layer": False} if family.pooler else {}
    try:
        with quiet_transformers():
            model, info = encoder_class(family).from_pretrained(
                files.directory or files.source,
                dtype=(stored and stored.dtype) or "auto",  # as it is stored, whatever the configuration says
                use_safetensors=None if files.allow_pickle else True,
                # A configuration may name an attention kernel on the hub, which would be downloaded and run.
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # they raise an error below, with their names
                trust_remote_code=False,
                output_loading_info=True,
                **files.options,
                **options,
            )
    except Exception as error:  # noqa: BLE001  # the library may raise anything on a damaged configuration or file
        raise files.not_loaded(error) from None
    _check_matching(model, info, files.where, stored.shapes if stored else {})
    return model


def _check_matching(
    model: nn.Module, info: Mapping[str, Any], where: str, stored: Mapping[str, tuple[int, ...]]
) -> None:
    """Check that the weights of a model have the shapes that its configuration asks for, and that all are there.

    Parameters
    ----------
    model
        The model as the configuration asks for it.
    info
        What the library says of loading the model, which names the weights as its modules do.
    where
        What a message says of where the weights are.
    stored
        Shapes of the weights in the files, by their names there; none if they are not known.
    """
    # With its shapes, or, in transformers 4, without.
    keys = [entry if isinstance(entry, str) else entry[0] for entry in info["mismatched_keys"]]
    if keys:
        named = {_name_in_file(key, stored): key for key in keys}
        name = min(named)
        shape = stored.get(name, "another than the model's")
        wanted = tuple(model.state_dict()[named[name]].shape)
        others = len(named) - 1
        more = f", and {counted(others, 'more tensor')} {'do' if others > 1 else 'does'} not fit" if others else ""
        raise ModelError(
            f"the weights {where} have {name} of shape {shape}, but config.json asks for {wanted}{more}; {ADVICE}"
        )
    for reported, problem in (
        ("missing_keys", "lack {} that config.json asks for"),
        ("unexpected_keys", "have {} that config.json does not ask for"),
    ):
        if used := _used(info[reported]):
            tensors = problem.format(counted(len(used), "tensor"))
            raise ModelError(f"the weights {where} {tensors}, {used[0]} first; {ADVICE}")


def _name_in_file(key: str, stored: Iterable[str]) -> str:
    """Return the name in the files of a weight that the modules call by a key; the key itself if no name fits it.

    Models with a head prefix the names of their encoder, and the library has renamed modules since older files were
    written.
    """
    for wanted in (key, _without_prefix(key)):
        for name in stored:
            inner = _without_prefix(name)
            if wanted in (name, module_name(name), inner, module_name(inner)):
                return name
    return key


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
