"""The image of a result with its map and region as pixels, made without Matplotlib, and the file that holds them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.images.image_file import Spacing
from attentest.presentation.figure import REGION_COLOUR
from attentest.presentation.plane import Plane

MOST_OPAQUE = 0.55
"""Opacity of the overlay where the attention is greatest; where it is zero, the image is seen as it is."""

CLIPPED = 0.5
"""Percent of the pixels at either end that are shown black or white, so that a few extreme ones hide nothing."""


def opacity(attention: NDArray[Any]) -> NDArray[np.float64]:
    """Return the opacity of the overlay where there is so much attention."""
    return np.asarray(MOST_OPAQUE * np.clip(np.nan_to_num(attention), 0.0, 1.0))


def displayed(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return an image (H, W), (H, W, 1) or (H, W, C) with values from 0 to 1: grey, or the first three channels.

    NaN, where there is nothing, becomes 1.
    """
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values[..., :3] if values.shape[2] > 3 else values.mean(axis=2)
    shown = values[np.isfinite(values)]
    low, high = np.percentile(shown, [CLIPPED, 100 - CLIPPED])
    if high <= low:
        low, high = float(shown.min()), float(shown.max())
    return np.asarray(np.nan_to_num(np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0), nan=1.0))


VIRIDIS = (
    "440154 47186a 472c7b 424085 3a528b 32628d 2c728e 26818e 20908c "
    "1e9e88 27ad80 3dbb74 5bc862 81d34c aadb32 d4e11a fde724"
)
ATTENTION_COLOURS = np.frombuffer(bytes.fromhex(VIRIDIS), dtype=np.uint8).reshape(-1, 3)
"""Colours (17, 3) of MAP_COLOURS at equal steps of attention, for pixels that are coloured without Matplotlib."""

RIM, DASH = 1, 4
"""Width in pixels of the white rim around an outline, for dark images, and length of the dashes of a mask's."""


def overlay_pixels(
    image: NDArray[np.uint8],
    attention: NDArray[np.float64] | None,
    region: NDArray[np.bool_],
    part: NDArray[np.bool_],
    side: int,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Return an image with the outline of its region as pixels (h, w, 3); a grey one is tinted by attention.

    The image is (H, W) or (H, W, 3), and all that lies on it (H, W): the attention map, from 0 to 1, which a colour
    image is shown without; the region, and its compared part, whose outline is thicker; and a mask, whose outline is
    dashed. The longer side gets so many pixels.
    """
    shown = image if image.ndim == 3 else np.stack([image] * 3, axis=2)
    if attention is not None and image.ndim == 2:
        share = opacity(attention)[..., None]
        shown = np.rint((1 - share) * shown + share * map_pixels(attention)).astype(np.uint8)
    pixels: NDArray[np.uint8] = resized(shown, side)
    thin = max(1, side // 200)
    if mask is not None:
        outline_pixels(pixels, mask, 1, dash=DASH)
    if not np.array_equal(region, part):
        outline_pixels(pixels, region, thin)
    outline_pixels(pixels, part, thin + 1, RIM)
    return pixels


def map_pixels(attention: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the colours (H, W, 3) of an attention map (H, W); NaN, where there is nothing, is white."""
    steps = np.linspace(0.0, 1.0, len(ATTENTION_COLOURS))
    channels = [np.rint(np.interp(attention, steps, channel)) for channel in ATTENTION_COLOURS.T]
    return np.asarray(np.nan_to_num(np.stack(channels, axis=-1), nan=255.0), dtype=np.uint8)


def outline_pixels(
    pixels: NDArray[np.uint8], region: NDArray[np.bool_], thickness: int, rim: int = 0, dash: int = 0
) -> None:
    """Draw the border of a region (H, W) within it on pixels (h, w, 3), with a white rim, or in two colours."""
    from scipy.ndimage import binary_dilation, binary_erosion  # here because scipy.ndimage is slow to import

    square = np.ones((3, 3), dtype=np.bool_)  # lines are as wide around corners as along edges
    inside = resized(region, max(pixels.shape))
    if rim:
        pixels[binary_dilation(inside, square, rim) & ~inside] = 255
    rows, columns = np.nonzero(inside & ~binary_erosion(inside, square, thickness))
    dashes = (rows + columns)[:, None] // dash % 2 * 255 if dash else tuple(bytes.fromhex(REGION_COLOUR[1:]))
    pixels[rows, columns] = dashes


def resized(pixels: NDArray[Any], side: int) -> NDArray[Any]:
    """Return a picture (H, W) or (H, W, 3) whose longer side has so many pixels; those of masks are not mixed."""
    from PIL import Image

    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = max(1, round(scale * width)), max(1, round(scale * height))
    method = Image.Resampling.NEAREST if pixels.dtype == np.bool_ else Image.Resampling.BOX
    return np.array(Image.fromarray(pixels).resize(size, method))


def eight_bits(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return values from 0 to 1 as whole numbers from 0 to 255."""
    return np.asarray(np.rint(255 * values), dtype=np.uint8)


LONGEST_SIDE = 512  # most pixels of a small picture on a side; a larger image is shown smaller
LARGEST_FILE = 2**24  # most bytes of the file of a small picture; its arrays take less

SHARP_SIDE = 256
"""Small images are enlarged to so many pixels, so that the outline of the region is finer than they are."""

LONGEST_CAPTION = 1000  # most characters of what is said of the slices of a volume
MOST_PLANES = 12  # components of a volume, the largest ones, that have pictures of the slices through them
MOST_PARTS = 65_535  # most components of a region whose numbers are kept: what 16 bits can hold


def content_digest(content: bytes) -> str:
    """Return the digest by which the content of a saved file is known again."""
    return blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallPicture:
    """A tested image with its attention map and the compared parts of its region, all of one small size."""

    image: NDArray[np.uint8]
    """(h, w) or (h, w, 3) uint8. The image, as it is shown."""
    attention: NDArray[np.uint8]
    """(h, w) uint8. The attention map: 255 is its maximum."""
    parts: NDArray[np.uint16]
    """(h, w) uint16. The number of the compared part at each pixel, from 1, and 0 outside of the region."""
    randomised_image: NDArray[np.uint8] | None = None
    """(h, w) or (h, w, 3) uint8. What the model saw, if that was the image plus noise."""
    mask: NDArray[np.bool_] | None = None
    """(h, w) bool. The mask, if there was one."""
    nothing: NDArray[np.bool_] | None = None
    """(h, w) bool. Where there is nothing: between the slices of a volume."""
    caption: str = ""
    """Which slices of a volume these are."""
    through: Mapping[int, SmallPicture] = field(default_factory=dict)
    """The pictures of slices of a volume through its compared parts, by their numbers; other parts have none."""

    def __post_init__(self) -> None:
        shape, seen = self.attention.shape, self.image if self.randomised_image is None else self.randomised_image
        masks = [mask for mask in (self.mask, self.nothing) if mask is not None]
        if not (
            len(shape) == 2
            and 1 <= max(shape) <= LONGEST_SIDE
            and self.parts.shape == shape
            and self.image.shape in (shape, (*shape, 3))
            and seen.shape == self.image.shape
            and [array.dtype.name for array in (self.image, seen, self.attention)] == ["uint8"] * 3
            and self.parts.dtype.name == "uint16"
            and all(mask.shape == shape and mask.dtype == np.bool_ for mask in masks)
            and len(self.caption) <= LONGEST_CAPTION
        ):
            raise ValueError("the arrays of a small picture do not go together")

    @classmethod
    def of(
        cls,
        image: NDArray[np.float64],
        attention: NDArray[np.float64],
        parts: Sequence[NDArray[np.bool_]],
        randomised_image: NDArray[np.float64] | None = None,
        spacing: Spacing | None = None,
        mask: NDArray[np.bool_] | None = None,
    ) -> SmallPicture:
        """Return the picture of an image (H, W) or (H, W, C), its map (H, W), its compared parts and what was seen.

        Of a signal or a volume it is that of its plane, which is blank where there is nothing. Of a volume with several
        parts it has also the pictures of the slices through each part, or through the largest ones of many.
        """
        shown = (image, attention, parts, randomised_image, spacing, mask)
        whole = cls._through(np.any(parts, axis=0), *shown)
        if attention.ndim != 3 or len(parts) < 2:
            return whole
        most = min(MOST_PLANES, LARGEST_FILE // whole._bytes - 1)
        largest = sorted(range(min(len(parts), MOST_PARTS)), key=lambda place: -np.count_nonzero(parts[place]))[:most]
        return replace(whole, through={place + 1: cls._through(parts[place], *shown) for place in sorted(largest)})

    @classmethod
    def _through(
        cls,
        region: NDArray[np.bool_],
        image: NDArray[np.float64],
        attention: NDArray[np.float64],
        parts: Sequence[NDArray[np.bool_]],
        randomised_image: NDArray[np.float64] | None,
        spacing: Spacing | None,
        mask: NDArray[np.bool_] | None,
    ) -> SmallPicture:
        """Return the picture of an image, as ``of`` does; of a signal or a volume on the plane through a region."""
        nothing, caption = None, ""
        if attention.ndim != 2:
            plane = Plane.through(region, image, spacing)
            image, attention = plane.image(image), np.nan_to_num(plane.values(attention))
            caption = plane.caption.replace("\n", " ")
            nothing = plane.places < 0 if caption else None
            parts = [plane.values(part) for part in parts]
            randomised_image = None if randomised_image is None else plane.image(randomised_image)
            mask = None if mask is None else plane.values(mask)
        numbers = np.zeros(attention.shape, dtype=np.uint16)
        for number, part in enumerate(parts[:MOST_PARTS], start=1):
            numbers[part] = number
        side = min(max(numbers.shape), LONGEST_SIDE)
        small: NDArray[np.uint8] = resized(eight_bits(np.clip(attention, 0.0, 1.0)), side)

        def small_image(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
            return np.asarray(resized(eight_bits(displayed(pixels)), side))

        # Of the pixels that become one, the number is that of the one in the middle.
        rows, columns = (
            (2 * np.arange(count) + 1) * numbers.shape[axis] // (2 * count) for axis, count in enumerate(small.shape)
        )
        return cls(
            image=small_image(image),
            attention=small,
            parts=numbers[np.ix_(rows, columns)],
            randomised_image=None if randomised_image is None else small_image(randomised_image),
            mask=None if mask is None else mask[np.ix_(rows, columns)],
            nothing=None if nothing is None else nothing[np.ix_(rows, columns)],
            caption=caption,
        )

    @classmethod
    def read(cls, path: Path, digest: str) -> SmallPicture | None:
        """Return the picture in a file; None if it is not a regular file with this digest that can be read."""
        try:
            if not path.is_file() or path.stat().st_size > LARGEST_FILE:
                return None
            content = path.read_bytes()
            if content_digest(content) != digest:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as saved:
                numbers = {int(name.split("_")[1]) for name in saved if name.startswith("through_")}
                through = {number: cls._of_arrays(saved, f"through_{number}_") for number in sorted(numbers)}
                return replace(cls._of_arrays(saved), through=through)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    @classmethod
    def _of_arrays(cls, saved: Mapping[str, Any], prefix: str = "") -> SmallPicture:
        """Return the picture that a file has under names with a prefix, without those through its parts."""
        names = [name for name in ARRAYS if prefix + name in saved or name not in OPTIONAL]
        caption = str(saved[f"{prefix}caption"]) if f"{prefix}caption" in saved else ""
        return cls(**{name: saved[prefix + name] for name in names}, caption=caption)

    def to_bytes(self) -> bytes:
        """Return the content of a file."""
        content = io.BytesIO()
        arrays: dict[str, Any] = dict(self._arrays())
        for number, picture in self.through.items():
            arrays |= {f"through_{number}_{name}": array for name, array in picture._arrays().items()}
        np.savez_compressed(content, **arrays)
        return content.getvalue()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a file has of the picture, without those through its parts."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays["caption"] = np.array(self.caption) if self.caption else None
        return {name: array for name, array in arrays.items() if array is not None}

    @property
    def _bytes(self) -> int:
        """Return the size of the arrays, those through parts not counted."""
        return sum(array.nbytes for array in self._arrays().values())

    def overlay(self, part: int | None = None) -> NDArray[np.uint8]:
        """Return the image, a grey one with the attention over it, and the outline of its region or one part thick."""
        return self._outlined(self.image, self._shown_attention, part)

    def seen(self, part: int | None = None) -> NDArray[np.uint8] | None:
        """Return the randomised image with the same outline; None if there is none."""
        return None if self.randomised_image is None else self._outlined(self.randomised_image, None, part)

    def _outlined(
        self, image: NDArray[np.uint8], attention: NDArray[np.float64] | None, part: int | None
    ) -> NDArray[np.uint8]:
        region = self.parts > 0
        compared = region if part is None else self.parts == part
        return overlay_pixels(image, attention, region, compared, self._side, self.mask)

    def map(self) -> NDArray[np.uint8]:
        """Return the attention map with a thin outline of the region."""
        pixels = resized(map_pixels(self._shown_attention), self._side)
        if self.mask is not None:
            outline_pixels(pixels, self.mask, 1, dash=DASH)
        outline_pixels(pixels, self.parts > 0, max(1, self._side // 200))
        return pixels

    @property
    def _shown_attention(self) -> NDArray[np.float64]:
        """Return the attention (h, w) from 0 to 1, NaN where there is nothing."""
        shown = self.attention / 255.0
        return shown if self.nothing is None else np.where(self.nothing, np.nan, shown)

    @property
    def _side(self) -> int:
        return int(max(SHARP_SIDE, *self.parts.shape))


ARRAYS = tuple(name for name in SmallPicture.__dataclass_fields__ if name not in ("caption", "through"))
OPTIONAL = ("randomised_image", "mask", "nothing")
"""Names of what a file of a small picture has, and of what it has only if there is one."""
