"""The image of a result with its attention map and the outline of its region, on axes and as pixels."""

from __future__ import annotations

import io
import textwrap
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import worded
from attentest.images.image_file import Spacing
from attentest.markup import plain
from attentest.presentation.figure import OTHER_COLOUR, REGION_COLOUR, fitting_size, new_figure, width_of
from attentest.presentation.plane import Plane, channels_of, extremes, lanes
from attentest.record import ResultRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A tested image with its attention map and region, and the numbers of its result."""

    record: ResultRecord
    """The numbers."""
    image: NDArray[Any]
    """(H, W) or (H, W, C). The tested image; a signal is (T,) or (C, T), a volume (D, H, W) or (C, D, H, W)."""
    attention: NDArray[Any]
    """(*axes). The attention map, from 0 to 1."""
    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    """(*axes) bool. The attention region, and the part of it that was compared."""
    randomised_image: NDArray[Any] | None = None
    """as the image. What the model saw, and chose the region on, if that was the image plus noise."""
    mask: NDArray[np.bool_] | None = None
    """(*axes) bool. The mask within which the map was looked at, or the contrast made, if there was one."""
    title: str = ""
    """Name of the image."""
    caption: str = ""
    """Which slices of a volume are shown."""

    def on_plane(self) -> Picture:
        """Return the picture of an image that shows this one: traces of a signal, or slices of a volume."""
        if self.region.ndim == 2:
            return self
        plane, seen = Plane.through(self.part, self.image, self.record.spacing), self.randomised_image
        return replace(
            self,
            image=plane.image(self.image),
            attention=plane.values(self.attention),
            region=plane.values(self.region),
            part=plane.values(self.part),
            randomised_image=None if seen is None else plane.image(seen),
            mask=None if self.mask is None else plane.values(self.mask),
            caption=plane.caption,
        )


def seen_name(counts: bool, dimension: int = 2) -> str:
    """Return the name of the randomised image, wherever it is shown."""
    return worded(f"what the model saw: {'part of the counts' if counts else 'image plus noise'}", dimension)


def seen_lines(picture: Picture) -> str:
    """Return the same in two lines."""
    return seen_name(picture.record.is_of_counts, picture.record.dimension).replace(": ", ":\n")


MAP_COLOURS = "viridis"  # colours of attention: even in lightness, and told apart with any colour vision

MOST_OPAQUE = 0.55
"""Opacity of the overlay where the attention is greatest; where it is zero, the image is seen as it is."""

CLIPPED = 0.5
"""Percent of the pixels at either end that are shown black or white, so that a few extreme ones hide nothing."""


def draw_overlay(axes: Axes, picture: Picture, *, outline_width: float = 1.6) -> None:
    """Draw the tested image, grey ones with the attention over them, and the outline of the region.

    A colour image is shown without: the colours of the map would be taken for its own. The traces of a signal are drawn
    over its attention.
    """
    if picture.region.ndim == 1:
        draw_map(axes, picture, outline_width=outline_width, alpha=_opacity(picture.attention[None]))
        _draw_traces(axes, picture.image)
        return
    picture = picture.on_plane()
    shown = displayed(picture.image)
    if shown.ndim == 2:
        axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        draw_map(axes, picture, outline_width=outline_width, alpha=_opacity(picture.attention))
    else:
        _draw_outlined(axes, picture, shown, outline_width)


def draw_seen(axes: Axes, picture: Picture, *, outline_width: float = 0.9) -> None:
    """Draw the randomised image, which must be there, with the outline of the region that was chosen on it."""
    if picture.region.ndim == 1:
        _draw_outlined(axes, picture, np.zeros_like(picture.attention), outline_width, alpha=0.0)
        _draw_traces(axes, np.asarray(picture.randomised_image))
        return
    picture = picture.on_plane()
    _draw_outlined(axes, picture, displayed(np.asarray(picture.randomised_image)), outline_width)


def draw_map(axes: Axes, picture: Picture, *, outline_width: float = 0.9, alpha: Any = None) -> AxesImage:
    """Draw the attention map with the outline of the region; return what a colour bar needs.

    ``alpha`` is the opacity of the map.
    """
    if picture.region.ndim == 3:
        picture = picture.on_plane()
    return _draw_outlined(axes, picture, picture.attention, outline_width, cmap=MAP_COLOURS, alpha=alpha)


def _opacity(attention: NDArray[Any]) -> NDArray[np.float64]:
    """Return the opacity of the overlay where there is so much attention."""
    return np.asarray(MOST_OPAQUE * np.clip(np.nan_to_num(attention), 0.0, 1.0))


FEW, NARROWEST_NAMED = 3, 40.0
"""Up to so many channels have their ranges beside their numbers; axes of less than so many mm have neither."""

MOST_POINTS = 2000  # a longer trace is drawn by its extremes in half as many columns


def _draw_traces(axes: Axes, signal: NDArray[Any]) -> None:
    """Draw the channels of a signal (T,) or (C, T) below each other, each with its number and its range."""
    import matplotlib as mpl

    channels, length, size = channels_of(signal), signal.shape[-1], fitting_size(axes, 60, 7.0)
    for number, (heights, values) in enumerate(zip(lanes(channels), channels, strict=True)):
        places = np.arange(length, dtype=np.float64)
        if length > MOST_POINTS:
            heights = np.stack(extremes(heights, MOST_POINTS // 2), axis=1).ravel()
            places = (np.arange(MOST_POINTS) + 0.5) * length / MOST_POINTS - 0.5
        axes.plot(places, heights - 0.5, color=mpl.rcParams["text.color"], lw=0.4 if length > MOST_POINTS else 0.7)
        if width_of(axes) > NARROWEST_NAMED:
            extent = f"{values.min():.3g} to {values.max():.3g}" if len(channels) <= FEW else ""
            text = ": ".join(filter(None, [str(number) if len(channels) > 1 else "", extent]))
            at = (number + 0.04) / len(channels) - 0.5
            box = {"color": mpl.rcParams["axes.facecolor"], "alpha": 0.7, "pad": 0.4}
            axes.text(0.006, at, text, size=size, va="top", transform=axes.get_yaxis_transform(), bbox=box)


def label_axes(axes: Axes, picture: Picture, size: float) -> None:
    """Number the samples of a signal below it, or their times, or say which slices of a volume are shown.

    The size is in points.
    """
    from matplotlib.ticker import AutoLocator

    spacing, text = picture.record.spacing, picture.on_plane().caption
    if picture.region.ndim == 1:
        axes.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
        if spacing is None or not spacing.unit:
            axes.xaxis.set_major_locator(AutoLocator())
            text = worded("pixel", 1)
        else:
            (step,), length = spacing.lengths, picture.region.size
            times = [time for time in AutoLocator().tick_values(0, length * step) if 0 <= time <= length * step]
            # A sample lasts from half a place before its own to half a place after it.
            axes.set_xticks([time / step - 0.5 for time in times], [f"{time:g}" for time in times])
            text = f"time ({spacing.unit})"
    axes.set_xlabel(text, size=fitting_size(axes, max(map(len, text.split("\n"))), size), labelpad=1.5)


def _draw_outlined(
    axes: Axes, picture: Picture, values: NDArray[Any], outline_width: float, *, cmap: str = "gray", alpha: Any = None
) -> AxesImage:
    """Draw values (H, W) or (H, W, 3) from 0 to 1, or those of a signal (T,), and the outline of the compared part.

    That of the rest of the region is thinner and grey, and that of a mask thin and dashed.
    """
    signal = values.ndim == 1
    part, region, values = (np.atleast_2d(array) for array in (picture.part, picture.region, values))
    shown = axes.imshow(values, cmap=cmap, vmin=0, vmax=1, alpha=alpha, interpolation="nearest")
    if signal:
        axes.set_aspect("auto")
    if picture.mask is not None:
        _draw_mask(axes, np.atleast_2d(picture.mask), outline_width / 2)
    if not np.array_equal(part, region):
        draw_outline(axes, region & ~part, OTHER_COLOUR, width=outline_width / 2)
    draw_outline(axes, part, width=outline_width)
    axes.set(xticks=[], yticks=[])
    return shown


def draw_outline(axes: Axes, region: NDArray[np.bool_], colour: str = REGION_COLOUR, width: float = 2.5) -> None:
    """Draw the border of a region (H, W) along pixel edges, with a white rim for dark images; width in points."""
    from matplotlib.collections import LineCollection

    padded = np.pad(region, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    horizontal = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    vertical = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in zip(rows, columns, strict=True)]
    for line_colour, line_width in (("white", 1.8 * width), (colour, width)):
        axes.add_collection(
            LineCollection(horizontal + vertical, colors=line_colour, linewidths=line_width, capstyle="round")
        )


def _draw_mask(axes: Axes, mask: NDArray[np.bool_], width: float) -> None:
    """Draw the border of a mask (H, W) as a dashed line, white on black, of a width in points."""
    fine = max(1, SHARP_SIDE // max(mask.shape))  # pixels are divided, so that the line follows their edges
    padded = np.pad(mask.repeat(fine, axis=0).repeat(fine, axis=1), 1)
    y, x = ((np.arange(count) - 0.5) / fine - 0.5 for count in padded.shape)
    limits = axes.get_xlim(), axes.get_ylim()
    for colour, style in (("black", "solid"), ("white", (0, (3, 3)))):
        axes.contour(x, y, padded, levels=[0.5], colors=colour, linewidths=width, linestyles=[style])
    axes.set(xlim=limits[0], ylim=limits[1])


def two_maps_figure(
    image: NDArray[Any],
    maps: NDArray[np.float64],
    regions: NDArray[np.bool_],
    names: Sequence[str],
    title: str,
) -> Figure:
    """Return a figure of two maps (2, *axes) of an image, each with its own region, and the other one thinner."""
    figure = new_figure(8.0, 4.2)
    plane = None if regions.ndim == 3 else Plane.through(np.logical_or(*regions), image)
    shown = displayed(image if plane is None else plane.image(image))
    on_plane = [[array if plane is None else plane.values(array) for array in pair] for pair in (maps, regions)]
    for number, panel in enumerate(figure.subplots(1, 2)):
        panel.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        attention = on_plane[0][number]
        panel.imshow(attention, cmap=MAP_COLOURS, alpha=_opacity(attention), interpolation="nearest")
        draw_outline(panel, on_plane[1][1 - number], OTHER_COLOUR, 1.2)
        draw_outline(panel, on_plane[1][number], width=2.0)
        name = f"{names[number][:1].upper()}{names[number][1:]}"
        panel.set(xticks=[], yticks=[], title=textwrap.fill(plain(name), 40))
    figure.suptitle(title)
    return figure


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
        opacity = _opacity(attention)[..., None]
        shown = np.rint((1 - opacity) * shown + opacity * map_pixels(attention)).astype(np.uint8)
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
