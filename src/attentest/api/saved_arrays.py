"""Regions, attention maps and small pictures of tested images as files."""

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
from attentest.results.report.small_picture import SmallPicture
from attentest.results.report.tested_batch import PICTURES
from attentest.results.result import AttentionTestResult

SUFFIXES = {"masks": ".png", "regions": ".npy", "maps": ".npy", PICTURES: ".npz"}
"""What can be saved of an image, and the suffix of its file."""


@dataclass(frozen=True, kw_only=True)
class SavedArrays:
    """Saves regions, attention maps and small pictures of images in folders of a directory.

    Parameters
    ----------
    directory
        The directory.
    kinds
        What is saved, from ``SUFFIXES``.
    optional
        Kinds that are saved of images that are tested, and for whose sake no image is tested again.
    """

    directory: Path
    kinds: Sequence[str]
    optional: Sequence[str] = ()

    def has(self, saved: Any) -> bool:
        """Return whether all that must be there was saved, given the files by their kinds, if there are any."""
        needed = set(self.kinds) - set(self.optional)
        return not needed or (isinstance(saved, dict) and needed <= set(saved))

    def save(self, image: ImageSource, results: Sequence[AttentionTestResult]) -> dict[str, str]:
        """Save what was asked for of an image, and return the files by their kinds, relative to the directory.

        ``results`` are those of its region, or of the components of it.
        """
        saved = {}
        for kind in self.kinds:
            path = Path(kind) / f"{file_stem(image.name)}{SUFFIXES[kind]}"
            make_directory(self.directory / kind)
            write_complete(self.directory / path, _content(kind, results), f"the {kind}")
            saved[kind] = str(path)
        return saved


def file_stem(name: str) -> str:
    """Return a file name for an image: the end of its own name in safe characters, and a digest of all of it."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    readable = quote(name.encode("utf-8", "surrogateescape").split(b"/")[-1], safe="")[-60:]
    return f"{readable}-{digest}"


def _content(kind: str, results: Sequence[AttentionTestResult]) -> bytes:
    if kind == PICTURES:
        return SmallPicture.of_results(results).to_bytes()
    if kind == "masks":
        return _picture(results[0].region)
    return _array(results[0].attention if kind == "maps" else results[0].region)


def _array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _picture(mask: Any) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()
