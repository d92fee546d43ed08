"""The image of a result with its attention map and the outline of its region, on Matplotlib's axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import worded
from attentest.markup import plain
from attentest.presentation.figure import OTHER_COLOUR, REGION_COLOUR, fitting_size, new_figure, width_of
from attentest.presentation.plane import Plane, channels_of, extremes, lanes
from attentest.presentation.small_picture import SHARP_SIDE, displayed, opacity
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


def draw_overlay(axes: Axes, picture: Picture, *, outline_width: float = 1.6) -> None:
    """Draw the tested image, grey ones with the attention over them, and the outline of the region.

    A colour image is shown without: the colours of the map would be taken for its own. The traces of a signal are drawn
    over its attention.
    """
    if picture.region.ndim == 1:
        draw_map(axes, picture, outline_width=outline_width, alpha=opacity(picture.attention[None]))
        _draw_traces(axes, picture.image)
        return
    picture = picture.on_plane()
    shown = displayed(picture.image)
    if shown.ndim == 2:
        axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        draw_map(axes, picture, outline_width=outline_width, alpha=opacity(picture.attention))
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
        panel.imshow(attention, cmap=MAP_COLOURS, alpha=opacity(attention), interpolation="nearest")
        draw_outline(panel, on_plane[1][1 - number], OTHER_COLOUR, 1.2)
        draw_outline(panel, on_plane[1][number], width=2.0)
        name = f"{names[number][:1].upper()}{names[number][1:]}"
        panel.set(xticks=[], yticks=[], title=textwrap.fill(plain(name), 40))
    figure.suptitle(title)
    return figure
