"""The files of a saved model, in a directory or on the Hugging Face hub, and what they hold; nothing in them is run."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from safetensors import SafetensorError, safe_open

from attentest.attention.device import reason_of
from attentest.errors import ModelError

LONGEST_ID = 96  # most characters of a model id on the hub, its own limit

LARGEST_JSON = 2**24  # most bytes of a JSON file of a model, which names its classes at most

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
"""Names of the files with weights, or, with ".index.json", of the list of several such files."""

JSON_KINDS = {
    type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list",
}  # fmt: skip
"""What JSON has instead of an object, by the type that Python reads it as."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
"""Dtypes of weights that are used as they are stored. Others are whole numbers or so narrow that they need scales."""


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


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """What the files with the weights of a model hold."""

    count: int
    """Number of weights."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the tensors, by their names."""
    dtypes: frozenset[str] = frozenset()
    """Dtypes of the tensors that are weights or biases."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that holds all of them as they are stored; None if theirs are not known."""
        return reduce(torch.promote_types, (DTYPES[name] for name in self.dtypes)) if self.dtypes else None


class ModelFiles:
    """The files of a saved model: of a directory or, if there is none of that name, of the model on the hub of that id.

    ``allow_pickle`` says whether pickled weights may be read where there is no safetensors file, ``local_files_only``
    whether only files downloaded before are used, and never the network; the revision is a branch, tag or commit.
    """

    def __init__(self, source: str | Path, allow_pickle: bool, local_files_only: bool, revision: str | None) -> None:
        if not isinstance(source, (str, os.PathLike)):
            raise ModelError(f"a model must be given as a path or a hub id, got {type(source).__name__}.")
        if os.path.isfile(source):
            raise ModelError(
                f"{source} is a file: give the directory of the saved model it belongs to, or an ONNX file "
                "(AttentionTest.from_onnx, --model model.onnx)."
            )
        self.source, self.allow_pickle = os.fspath(source), allow_pickle
        self.directory = Path(source) if os.path.isdir(source) else None
        is_id = isinstance(source, str) and len(source) <= LONGEST_ID and HUB_ID.fullmatch(source)
        if self.directory is None and not is_id:
            raise ModelError(
                f"there is no model directory {source}: give a directory made by save_pretrained or "
                "`attentest train`, or a hub id such as google/vit-base-patch16-224."
            )
        self.where = f"in {source}" if self.directory else f"{source} of the hub"
        self.what = f"the model directory {source}" if self.directory else f"the hub's model {source}"
        self.local_only = bool(local_files_only) or self.directory is not None
        self.options: dict[str, Any] = {"local_files_only": self.local_only, "revision": revision or "main"}

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
                f"the {name} of {self.source} cannot be read ({reason_of(error)}): save the model again."
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
                cached = cached_file(self.source, name, _raise_exceptions_for_missing_entries=needed, **self.options)
        except (OSError, ValueError) as error:
            how = "it is not among the files downloaded before" if self.local_only else reason_of(error)
            raise ModelError(
                f"there is no model directory {self.source}, and the hub's model of that name cannot be loaded "
                f"({how}): give the path of a saved model, or an id on the hub while there is a network."
            ) from None
        return None if cached is None else Path(cached)

    def weights(self) -> StoredWeights | None:
        """Return what the files with weights hold; of pickled ones only a bound of the number of weights.

        None for a model of the hub without safetensors, for which the library looks for a conversion on the hub.
        """
        try:
            for name in (WEIGHTS, PICKLED_WEIGHTS) if self.allow_pickle else (WEIGHTS,):
                names = [name]
                if self.path(name) is None:
                    parts = (self.json(f"{name}.index.json") or {}).get("weight_map")
                    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
                        continue
                    names = sorted(set(parts.values()))
                paths = [path for path in map(self.path, names) if path is not None]
                if len(paths) < len(names):
                    raise ValueError(
                        f"{len(names) - len(paths)} of the {len(names)} files with its weights are missing"
                    )
                if name == PICKLED_WEIGHTS:
                    return StoredWeights(count=sum(path.stat().st_size for path in paths))
                return _weights_in(paths)
            if self.directory is not None:
                raise ValueError(f"there is no {WEIGHTS}")
            return None
        except (OSError, ValueError, SafetensorError) as error:
            raise self.not_loaded(error) from None

    def not_loaded(self, error: Exception) -> ModelError:
        """Return the error for a model that cannot be loaded for a reason, which may be an error of any library."""
        return ModelError(
            f"{self.what} cannot be loaded ({reason_of(error)}): it needs config.json and an intact {WEIGHTS}, "
            f"as save_pretrained writes them{self._pickle_hint()}.",
            "allow_pickle",
        )

    def _pickle_hint(self) -> str:
        if self.directory is None or self.allow_pickle or any(self.directory.glob("*.safetensors")):
            return ""
        if not any(self.directory.glob("pytorch_model*.bin")):
            return ""
        return "; it has pickled weights, which can run code when they are read: if you trust them, set allow_pickle"


def _weights_in(paths: list[Path]) -> StoredWeights:
    """Return what safetensors files hold; only their headers are read, which that library checks."""
    shapes, dtypes = {}, set()
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # it is no mapping
                tensor = file.get_slice(name)
                shapes[name] = tuple(tensor.get_shape())
                if name.endswith((".weight", ".bias")):  # whole numbers beside them are indices
                    dtype = str(tensor.get_dtype())
                    if dtype not in DTYPES:
                        raise ValueError(
                            f"tensor {name[:100]!r} of {path.name} is stored as {dtype}, not as one of "
                            f"{', '.join(DTYPES)}"
                        )
                    dtypes.add(dtype)
    return StoredWeights(count=sum(map(math.prod, shapes.values())), shapes=shapes, dtypes=frozenset(dtypes))
