"""Saving noise models to files and loading them, exactly to the last bit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attentest.errors import InputError
from attentest.files import write_complete
from attentest.noise.conversion import NoiseLike, as_noise
from attentest.noise.model import FloatArray, NoiseModel, SaveableNoise
from attentest.noise.noise_format import FORMAT, VERSION, NoiseFormat
from attentest.registry import NOISE_FORMATS, NOISE_MODELS

LONGEST_REASON = 200
"""Characters of a file's own text that an error message repeats."""


def save_noise(noise: NoiseLike, path: str | os.PathLike[str]) -> None:
    """Save a noise model of this package, or that of a fitted estimator.

    The file is written under another name and renamed when it is complete, so an existing file is replaced completely
    or not at all.

    Parameters
    ----------
    noise
        Noise model or fitted estimator; the file also holds the estimator's name and number of images.
    path
        Name of the file, with the suffix .json or .safetensors.
    """
    target, suffix, file_format = _path_and_format(path)
    content = file_format.encode(_tree(as_noise(noise)))
    if len(content) > file_format.largest_file:
        larger = [name for name in NOISE_FORMATS if NOISE_FORMATS.load(name).largest_file > file_format.largest_file]
        raise InputError(
            f"the noise model takes {len(content)} bytes as {suffix}, but files of at most {file_format.largest_file} "
            f"are read: {f'save it as {larger[0]}' if larger else 'use a model with fewer parameters'}."
        )
    write_complete(target, content, "the noise file")


def load_noise(path: str | os.PathLike[str]) -> NoiseModel:
    """Load a noise model saved by :func:`save_noise`; its parameters are checked again."""
    source, suffix, file_format = _path_and_format(path)
    try:
        if not source.is_file():
            raise InputError(f"there is no noise file {source}: give one that attentest noise fit or save_noise wrote.")
        size = source.stat().st_size
        if size > file_format.largest_file:
            raise InputError(
                f"the noise file {source} has {size} bytes, but one ending in {suffix} may have at most "
                f"{file_format.largest_file}: is it something else?"
            )
        content, tensors = file_format.read(source)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the noise file {source} cannot be read ({_shortened(error)}): save the noise model again."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{source} is no noise file: give one that attentest noise fit or save_noise wrote.")
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise InputError(
            f"the noise file {source} has version {str(content.get('version'))[:LONGEST_REASON]}, but this attentest "
            f"reads version {VERSION}: save the noise model again, or use the attentest that wrote it."
        )
    try:
        model = _model(content.get("noise"), tensors)
        if tensors:
            raise InputError(f"it has arrays that no model uses, {min(tensors)!r} first.")
    except (InputError, RecursionError) as error:
        raise InputError(f"the noise file {source} cannot be used: {_shortened(error)}.") from None
    return model


def _path_and_format(path: Any) -> tuple[Path, str, NoiseFormat]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the name of a noise file must be a path, got {type(path).__name__}.")
    chosen = Path(path)
    suffix = chosen.suffix.lower()
    if suffix not in NOISE_FORMATS:
        raise InputError(f"a noise file must end in {NOISE_FORMATS.choices()}, got {chosen}.")
    return chosen, suffix, NOISE_FORMATS.load(suffix)()


def _tree(noise: NoiseModel) -> dict[str, Any]:
    """Return a model as nested dictionaries with JSON values and arrays as leaves."""
    for kind, part in NOISE_MODELS.items():
        if isinstance(noise, SaveableNoise) and type(noise) is part.load():
            arguments = noise.saved_arguments()
            nested = {name: _tree(value) for name, value in arguments.items() if isinstance(value, NoiseModel)}
            return {"kind": kind, **arguments, **nested}
    raise InputError(
        f"only the noise models of attentest.noise can be saved, got {type(noise).__name__}: save its parameters "
        "in your own way, or a Dense of its covariance."
    )


def _model(tree: Any, tensors: dict[str, FloatArray]) -> NoiseModel:
    """Return the model of nested dictionaries, and remove its arrays from ``tensors``."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not isinstance(kind, str) or kind not in NOISE_MODELS:
        raise InputError(f"its kind of model must be {NOISE_MODELS.choices()}, got {str(kind)[:LONGEST_REASON]}.")
    given = {name: value for name, value in tree.items() if name != "kind"}
    model = NOISE_MODELS.load(kind)
    if set(given) != set(model.saved):
        got = ", ".join(sorted(given))[:LONGEST_REASON] or "nothing"
        raise InputError(f"the model {kind!r} needs {', '.join(model.saved)}, got {got}.")
    loaded: NoiseModel = model(**{name: _argument(name, given[name], model.saved[name], tensors) for name in given})
    return loaded


def _argument(name: str, value: Any, kind: type, tensors: dict[str, FloatArray]) -> Any:
    """Return the argument that a file's value stands for, by the type that the model declares for it."""
    if kind is NoiseModel:
        return _model(value, tensors)
    if kind is not np.ndarray or not isinstance(value, Mapping):
        return value
    where = value.get("tensor")
    if not isinstance(where, str) or where not in tensors:
        raise InputError(f"it has no array for {name!r}.")
    return tensors.pop(where)


def _shortened(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ...").rstrip(".")
