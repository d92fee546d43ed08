"""The image files given to a command, and their reference images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.api import AttentionTest


@dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """Image files, read one at a time: all together may not fit in memory.

    Parameters
    ----------
    images
        The files.
    references
        Files of reference images: none, one for all images, or one per image.
    frame, window
        Which frame of each file is read, and whether its display window is applied.
    """

    images: Sequence[Path]
    references: Sequence[Path] = ()
    frame: int | None = None
    window: bool = False

    def __post_init__(self) -> None:
        count = len(self.images)
        if len(self.references) not in (0, 1, count):
            raise InputError(
                f"--reference must be given once, or once for each of the {count} image(s), got it "
                f"{len(self.references)} times."
            )
        paired = self.references if len(self.references) == count else [*self.references] * count
        for image, reference in zip(self.images, paired, strict=False):
            if image.resolve() == reference.resolve():
                raise InputError(f"{image} would be compared with itself: give a --reference with independent noise.")

    @property
    def names(self) -> list[str]:
        """Names of the images in tables: their paths."""
        return [str(path) for path in self.images]

    def read(self, path: Path) -> Any:
        """Return the pixels of a file."""
        from attentest.images.read import read_image

        return read_image(path, frame=self.frame, window=self.window)

    def pixels(self) -> Iterator[Any]:
        """Yield the pixels of each image."""
        return map(self.read, self.images)

    def reference_pixels(self) -> Iterator[Any] | None:
        """Yield the pixels of each image's reference; None if there are no references."""
        if not self.references:
            return None
        if len(self.references) == 1:
            return repeat(self.read(self.references[0]), len(self.images))
        return map(self.read, self.references)

    def check(self, attention_test: AttentionTest) -> None:
        """Refuse a file that cannot be tested, before anything is computed."""
        references = self.reference_pixels()
        for path, values in zip(self.images, self.pixels(), strict=True):
            try:
                attention_test.check(values, reference=None if references is None else next(references))
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
