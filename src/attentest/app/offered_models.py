"""The models that the page offers, by name; nothing that a browser sends names a file."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from attentest.attention import ViTScores, load_model
from attentest.attention.device import usable_device
from attentest.errors import InputError, ModelError, shortened
from attentest.pipeline.geometry import preprocessing_and_size
from attentest.training.bundled import BUNDLED, bundled_model

MOST_REMEMBERED = 8
"""Number of images whose scores are remembered."""


class RememberedScores(ViTScores):
    """Scores of a vision transformer that are not computed again for an image that was seen just before.

    While tau is moved, the region changes at once and the model is not evaluated. Not for searches that need
    derivatives.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._remembered: OrderedDict[bytes, Tensor] = OrderedDict()
        self._lock = Lock()

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of images (m, C, H, W)."""
        if len(images) != 1:
            return super().__call__(images)
        key = hashlib.blake2b(images.detach().cpu().numpy().tobytes()).digest()
        with self._lock:
            known = self._remembered.get(key)
        if known is None:
            known = super().__call__(images)
            with self._lock:
                self._remembered[key] = known
                while len(self._remembered) > MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
        return known.clone()


@dataclass(frozen=True, kw_only=True, eq=False)
class OfferedModel:
    """A model that is ready to be used.

    Parameters
    ----------
    name
        Its name on the page.
    scores
        Its attention scores.
    preprocessing
        That of the image processor saved with it, if there is one.
    """

    name: str
    scores: RememberedScores
    preprocessing: Any


class OfferedModels:
    """The bundled models and those of some directories.

    Parameters
    ----------
    directories
        Directories of saved models; all are loaded here, so that a broken one is known before the page is.
    device
        Where to compute.
    """

    def __init__(self, directories: Iterable[Path] = (), device: str = "cpu") -> None:
        self._device = usable_device(device)
        given = [Path(directory) for directory in directories]
        for directory in given:
            if not directory.is_dir():
                raise ModelError(
                    f"there is no model directory {directory}: give one made by save_pretrained or `attentest train`; "
                    "the page downloads nothing."
                )
        self._directories = _named(given) | {_bundled_name(*kind): bundled_model(kind[1], kind[0]) for kind in BUNDLED}
        self._loaded: dict[str, OfferedModel] = {}
        self._lock = Lock()
        for name in list(self._directories)[: len(given)]:
            self.model(name)

    @property
    def names(self) -> list[str]:
        """The names, those of given directories first."""
        return list(self._directories)

    @property
    def default(self) -> str:
        """The model that is chosen at first: the first one given, else the bundled one of the demonstration."""
        return self.names[0] if len(self.names) > len(BUNDLED) else self.bundled(16)

    def bundled(self, size: int) -> str:
        """Return the name of the bundled model for images of a size."""
        return _bundled_name("base", size)

    def model(self, name: object) -> OfferedModel:
        """Return the model of a name; refuse anything that is not offered."""
        if not isinstance(name, str) or name not in self._directories:
            raise InputError(f"the model must be one of {', '.join(self.names)}, got {shortened(name)}.")
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = _loaded(name, self._directories[name], self._device)
            return self._loaded[name]


def _loaded(name: str, directory: Path, device: torch.device) -> OfferedModel:
    saved = load_model(directory, local_files_only=True)
    preprocessing, image_size = preprocessing_and_size(saved.processor, None)
    scores = RememberedScores(saved.encoder, image_size=image_size, device=device, owned=True)
    return OfferedModel(name=name, scores=scores, preprocessing=preprocessing)


def _bundled_name(architecture: str, size: int) -> str:
    return f"bundled {size} × {size}" if architecture == "base" else f"bundled {size} × {size}, {architecture}"


def _named(directories: list[Path]) -> dict[str, Path]:
    """Return directories by their last names; the second of a name is followed by its number."""
    named: dict[str, Path] = {}
    for directory in directories:
        own = directory.resolve().name
        count = sum(1 for other in named.values() if other.resolve().name == own)
        named[own if count == 0 else f"{own} ({count + 1})"] = directory
    return named
