"""Saved vision transformers, loaded from a directory or the Hugging Face hub without running code they contain."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from torch import nn

from attentest.attention.declared_model import (
    ADVICE,
    AnnouncedSize,
    StoredWeights,
    check_activation,
    check_dtype,
    check_matching,
    weights_in,
)
from attentest.attention.huggingface import Family, family_of_type
from attentest.attention.model_library import refusal_of_type
from attentest.attention.stored_vit import ViTSettings, stored_vit
from attentest.errors import InputError, ModelError, counted


@contextmanager
def no_network() -> Iterator[None]:
    """Let every request to the hub fail, then restore the settings.

    To load local files only does not suffice: for the name that it would give itself in a request, the library
    looks up a list on the hub, and it asks there for other formats of pickled weights.
    """
    before = constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_OFFLINE = constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY = before


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the output of the library while it loads or saves a model, then restore its settings."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging as transformers_logging  # here because transformers is slow to import

    verbosity, hub_verbosity = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bar:
            transformers_logging.enable_progress_bar()


LONGEST_ID, LONGEST_REASON = 96, 300
"""Most characters of a model id on the hub (its own limit), and of an error of the library that is quoted."""

LARGEST_JSON = 2**24
"""Most bytes of a JSON file of a model, which names its classes at most."""

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
"""Names of the files with weights, or, with ".index.json", of the list of several such files."""

JSON_KINDS = {
    type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list",
}  # fmt: skip
"""What JSON has instead of an object, by the type that Python reads it as."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


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
        Every weight of the encoder comes from the file. A model that lacks one is refused, because the library would
        replace it by random numbers.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"a model must be given as a path or a hub id, got {type(source).__name__}.")
    files = _Files(source, local_files_only, revision)
    with no_network() if files.options["local_files_only"] else nullcontext():
        return _load(files, allow_pickle)


def _load(files: _Files, allow_pickle: bool) -> SavedModel:
    config = files.json("config.json", needed=True)
    if config is None:
        raise ModelError(f"{files.what} has no config.json: it is not a saved model.")
    model_type = config.get("model_type")
    family = family_of_type(model_type)
    if family is None:
        raise refusal_of_type(model_type, files.where)
    stored = _checked_weights(family, config, files, allow_pickle)
    encoder = _load_plainly(config, files) or _load_weights(family, config, files, allow_pickle, stored)
    return SavedModel(encoder=encoder, processor=_processor(files))


def _load_plainly(config: dict[str, Any], files: _Files) -> nn.Module | None:
    """Return the encoder of a ViT in a directory, without importing transformers; None for anything else."""
    path = None if files.directory is None else files.path(WEIGHTS)
    if config["model_type"] != ViTSettings.model_type or path is None or files.path("adapter_config.json") is not None:
        return None
    return stored_vit(config, path)


def _processor(files: _Files) -> dict[str, Any] | None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        settings = files.json(name)
        if settings:
            return settings
    return None


class _Files:
    """The files of a saved model, in a directory or on the hub."""

    def __init__(self, source: str | Path, local_files_only: bool, revision: str | None) -> None:
        self.directory: Path | None = Path(source)
        self.source = os.fspath(source)
        if os.path.isfile(source):
            raise ModelError(f"{source} is a file: give the directory of the saved model it belongs to.")
        if not os.path.isdir(source):
            if not (isinstance(source, str) and len(source) <= LONGEST_ID and HUB_ID.fullmatch(source)):
                raise ModelError(
                    f"there is no model directory {source}: give a directory made by save_pretrained or "
                    "`attentest train`, or a hub id such as google/vit-base-patch16-224."
                )
            self.directory = None
        self.where = f"in {source}" if self.directory else f"{source} of the hub"
        self.what = f"the model directory {source}" if self.directory else f"the hub's model {source}"
        self.options: dict[str, Any] = {
            "local_files_only": bool(local_files_only) or self.directory is not None,
            "revision": revision or "main",
        }

    def json(self, name: str, needed: bool = False) -> dict[str, Any] | None:
        """Return the object in a JSON file, None if there is no such file."""
        path = self.path(name, needed)
        if path is None:
            return None
        try:
            if path.stat().st_size > LARGEST_JSON:
                raise ValueError(f"it has {path.stat().st_size} bytes, more than the {LARGEST_JSON} allowed")
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(
                f"the {name} of {self.source} cannot be read ({_short(error)}): save the model again."
            ) from None
        if not isinstance(content, dict):
            raise ModelError(
                f"the {name} of {self.source} must hold a JSON object, with names and their values in braces, but "
                f"holds {JSON_KINDS[type(content)]}: {'save the model again' if needed else 'repair or remove it'}."
            )
        return content

    def path(self, name: str, needed: bool = False) -> Path | None:
        """Return the path of a file, None if there is no such file."""
        if self.directory is not None:
            path = self.directory / name
            return path if path.is_file() else None
        from transformers.utils import cached_file

        try:
            with quiet_transformers():
                found = cached_file(self.source, name, _raise_exceptions_for_missing_entries=needed, **self.options)
        except (OSError, ValueError) as error:
            how = "it is not among the files downloaded before" if self.options["local_files_only"] else _short(error)
            raise ModelError(
                f"there is no model directory {self.source}, and the hub's model of that name cannot be loaded "
                f"({how}): give the path of a saved model, or an id on the hub while there is a network."
            ) from None
        return None if found is None else Path(found)


@contextmanager
def _refusing_config(files: _Files) -> Iterator[None]:
    """Say of what is wrong with a setting that it is in config.json."""
    try:
        yield
    except InputError as error:
        raise ModelError(f"the config.json of {files.source} cannot be used: {error}") from None


def _checked_weights(family: Family, config: dict[str, Any], files: _Files, allow_pickle: bool) -> StoredWeights | None:
    """Return what is stored; refuse a configuration of a larger model than that, before the library builds it."""
    with _refusing_config(files):
        check_dtype(config)
        announced = AnnouncedSize.of(config, _default_settings(family))
    try:
        stored = _stored_weights(files, allow_pickle)
    except (OSError, ValueError) as error:
        raise _not_loaded(files, allow_pickle, error) from None
    if stored is not None and announced.least_weights > stored.count:
        raise ModelError(
            f"the config.json of {files.source} asks for a model with at least {announced.least_weights} weights "
            f"({counted(announced.layers, 'layer')} of width {announced.width}), but its files hold {stored.count}; "
            f"{ADVICE}"
        )
    return stored


def _default_settings(family: Family) -> Any:
    if ViTSettings.model_type in family.model_types:
        return ViTSettings()
    with quiet_transformers():
        return _encoder_class(family).config_class()


def _stored_weights(files: _Files, allow_pickle: bool) -> StoredWeights | None:
    """Return the number of weights in the files of a model and their dtypes; at most their number if they are pickled.

    None for a model of the hub without safetensors, for which the library looks for a conversion on the hub.
    """
    for name in (WEIGHTS, *([PICKLED_WEIGHTS] if allow_pickle else [])):
        paths = [files.path(name)]
        if paths == [None]:
            parts = (files.json(f"{name}.index.json") or {}).get("weight_map")
            if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
                continue
            paths = [files.path(part) for part in sorted(set(parts.values()))]
        found = [path for path in paths if path is not None]
        if len(found) < len(paths):
            raise ValueError(f"{len(paths) - len(found)} of the {len(paths)} files with its weights are missing")
        if name == PICKLED_WEIGHTS:
            return StoredWeights(count=sum(path.stat().st_size for path in found))
        return StoredWeights.together([weights_in(path) for path in found])
    if files.directory is not None:
        raise ValueError(f"there is no {WEIGHTS}")
    return None


def _encoder_class(family: Family) -> Any:
    """Return the class of a family's encoder; only the file of transformers that defines it is imported, in seconds."""
    import transformers

    return getattr(transformers, family.encoder)


def _load_weights(
    family: Family, config: dict[str, Any], files: _Files, allow_pickle: bool, stored: StoredWeights | None
) -> Any:
    from transformers.activations import ACT2FN

    with _refusing_config(files):
        check_activation(config, ACT2FN)
    model_class = _encoder_class(family)
    options: dict[str, Any] = {"add_pooling_layer": False} if family.pooler else {}
    try:
        with quiet_transformers():
            model, info = model_class.from_pretrained(
                files.directory or files.source,
                dtype=(stored and stored.dtype) or "auto",  # as it is stored, whatever the configuration says
                use_safetensors=None if allow_pickle else True,
                # A configuration may name an attention kernel on the hub, which would be downloaded and run.
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # they are refused below, with their names
                trust_remote_code=False,
                output_loading_info=True,
                **files.options,
                **options,
            )
    except Exception as error:  # noqa: BLE001  # the library may raise anything on a damaged configuration or file
        raise _not_loaded(files, allow_pickle, error) from None
    check_matching(info, files.where, stored.names if stored else ())
    return model


def _not_loaded(files: _Files, allow_pickle: bool, error: Exception) -> ModelError:
    return ModelError(
        f"{files.what} cannot be loaded ({_short(error)}): it needs config.json and an intact {WEIGHTS}, "
        f"as save_pretrained writes them{_pickle_hint(files, allow_pickle)}."
    )


def _pickle_hint(files: _Files, allow_pickle: bool) -> str:
    pickled = files.directory is not None and any(files.directory.glob("pytorch_model*.bin"))
    if not pickled or allow_pickle or any(files.directory.glob("*.safetensors")):  # type: ignore[union-attr]
        return ""
    return "; it has pickled weights, which can run code when they are read: if you trust them, allow_pickle=True"


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ...").rstrip(".")
