"""Regions and attention maps of tested images as files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from attentest.files import make_directory, write_complete
from attentest.images.source import ImageSource
from attentest.results.result import AttentionTestResult


@dataclass(frozen=True, kw_only=True)
class SavedArrays:
    """Saves regions and attention maps of images in folders of a directory."""

    directory: Path
    kinds: Sequence[str]

    def has(self, saved: Any) -> bool:
        """Return whether all that is asked for was saved, given the files by their kinds, if there are any."""
        return isinstance(saved, dict) and set(self.kinds) <= set(saved)

    def save(self, image: ImageSource, result: AttentionTestResult) -> dict[str, str]:
        """Save what was asked for of an image, and return the files by their kinds, relative to the directory."""
        saved = {}
        for kind in self.kinds:
            path = Path(kind) / f"{file_stem(image.name)}{'.png' if kind == 'masks' else '.npy'}"
            make_directory(self.directory / kind)
            array = result.attention if kind == "maps" else result.region
            write_complete(self.directory / path, _picture(array) if kind == "masks" else _array(array), f"the {kind}")
            saved[kind] = str(path)
        return saved


def file_stem(name: str) -> str:
    """Return a file name for an image: the end of its own name in safe characters, and a digest of all of it."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    readable = quote(name.encode("utf-8", "surrogateescape").split(b"/")[-1], safe="")[-60:]
    return f"{readable}-{digest}"


def _array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _picture(mask: Any) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()
