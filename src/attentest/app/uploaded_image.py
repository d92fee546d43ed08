"""Images of the page: uploaded ones and examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attentest.errors import AttentestError
from attentest.images.read import read_image

FIELDS = {
    "pick it with frame= or --frame": "choose it in the field Frame",
    "leave window (--window) out": "switch the display window off",
    "intensity_range is for preprocessing that rescales, and there is none": (
        "black and white are for models that rescale images, and this one does not"
    ),
    "intensity_range=(black, white)": "the pixel values of black and white",
    "intensity_range": "the pixel values of black and white",
    "top_fraction (q)": "the top fraction",
    "top_fraction": "top fraction",
    "threshold (tau)": "the threshold",
    "randomise": "gamma",
    "sigma (a standard deviation)": "the standard deviation of the noise",
    "resize it first, or say with preprocessing how it is to be done": "resize it first, or let the page do it",
}
"""What the page calls a parameter of the library, or what it is to be done there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UploadedImage:
    """An image with its name, as the library takes it.

    Parameters
    ----------
    name
        The name of its file, which is text that anybody may have chosen.
    pixels : (H, W) or (H, W, C)
        Values as stored.
    """

    name: str
    pixels: NDArray[Any]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[0], self.pixels.shape[1]


def read_upload(path: Path, frame: int | None = None, window: bool = False) -> UploadedImage:
    """Return the image of an uploaded file; messages name the file and not where it is kept.

    Parameters
    ----------
    path
        The file.
    frame, window
        As in ``attentest.read_image``.
    """
    with page_words({str(path): path.name}):
        return UploadedImage(name=path.name, pixels=read_image(path, frame=frame, window=window))


@contextmanager
def page_words(words: dict[str, str]) -> Iterator[None]:
    """Let the errors of the library use other words.

    Parameters
    ----------
    words
        What to write in place of what.
    """
    try:
        yield
    except AttentestError as error:
        message = str(error)
        for theirs, ours in words.items():
            message = message.replace(theirs, ours)
        raise type(error)(message) from error
