"""Images that are still in files: each is read when it is needed, because all together may not fit in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from attentest.images.read import read_image

PathLike: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True, kw_only=True)
class ImageSource:
    """One image in a file.

    Parameters
    ----------
    path
        The file.
    frame, window
        Which frame of the file is read, and whether its display window is applied.
    member
        Which image of a stack: its index in the array of a .npy file, after the name of the array in an archive (.npz).
        None if the file is one image.
    """

    path: Path
    frame: int | None = None
    window: bool = False
    member: tuple[str | None, int] | None = None

    @property
    def name(self) -> str:
        """The path, followed for an image of a stack by its place: ``scans.npy[3]``, ``scans.npz[t1,3]``."""
        if self.member is None:
            return str(self.path)
        array, index = self.member
        return f"{self.path}[{index}]" if array is None else f"{self.path}[{array},{index}]"

    def read(self) -> NDArray[Any]:
        """Return the pixels: (H, W) or (H, W, C)."""
        if self.member is None:
            return read_image(self.path, frame=self.frame, window=self.window)
        from attentest.images.stack import read_member

        return read_member(self.path, *self.member)

    def stamp(self) -> list[int]:
        """Return size and time of change of the file: with another stamp it is another image."""
        status = self.path.stat()
        return [status.st_size, status.st_mtime_ns]


def loaded(image: Any) -> Any:
    """Return the pixels of an image that is given as a file, and any other image as it is."""
    if isinstance(image, ImageSource):
        return image.read()
    return read_image(image) if isinstance(image, (str, os.PathLike)) else image
