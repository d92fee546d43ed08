"""Grey values and colours from the stored values of a DICOM file, as DICOM PS3.3 defines them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"

BIG_ENDIAN = "1.2.840.10008.1.2.2"
"""Transfer syntax whose numbers have their most significant byte first."""


@dataclass(frozen=True)
class PixelLayout:
    """How a DICOM file stores its pixels."""

    rows: int
    columns: int
    frames: int
    channels: int
    bits_allocated: int
    bits_stored: int
    signed: bool
    photometric: str
    syntax: Any

    @property
    def stored_range(self) -> tuple[float, float]:
        """The least and greatest value that the stored bits can represent."""
        if self.signed:
            return -float(2 ** (self.bits_stored - 1)), float(2 ** (self.bits_stored - 1) - 1)
        return 0.0, float(2**self.bits_stored - 1)


def grey_values(
    header: Any, stored: NDArray[Any], layout: PixelLayout, index: int, window: bool, path: Path
) -> NDArray[np.float64]:
    """Return the grey values (H, W) of one frame from its stored values (H, W)."""
    floating = stored.dtype.kind == "f"
    if floating and (window or layout.photometric == "MONOCHROME1"):
        raise InputError(
            f"{path} has floating-point pixels, whose range a window or MONOCHROME1 would need: "
            "leave window (--window) out or convert it to MONOCHROME2 first."
        )
    values, (low, high) = _modality_values(header, stored, layout, index, path)
    if window:
        values, (low, high) = _windowed(header, values, (low, high), layout, index, path)
    return low + high - values if layout.photometric == "MONOCHROME1" else values


def _modality_values(
    header: Any, stored: NDArray[Any], layout: PixelLayout, index: int, path: Path
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values (H, W) in the units of the modality, and their possible range."""
    if header.get("ModalityLUTSequence"):
        table = _table_of(header.ModalityLUTSequence[0], layout)
        return table.look_up(stored), table.value_range
    tags = _frame_tags(header, index, "PixelValueTransformationSequence")
    slope, intercept = _number(tags, "RescaleSlope", 1.0), _number(tags, "RescaleIntercept", 0.0)
    if slope == 0 or not (math.isfinite(slope) and math.isfinite(intercept)):
        raise InputError(
            f"{path} has a rescale slope of {slope} and a rescale intercept of {intercept}, but they must be finite "
            "and the slope not 0: export it again from its source."
        )
    ends = sorted(slope * end + intercept for end in layout.stored_range)
    return slope * stored.astype(np.float64) + intercept, (ends[0], ends[1])


def _windowed(
    header: Any,
    values: NDArray[np.float64],
    value_range: tuple[float, float],
    layout: PixelLayout,
    index: int,
    path: Path,
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return grey values (H, W) after the first display table or window, and their possible range."""
    tags = _frame_tags(header, index, "FrameVOILUTSequence")
    if tags.get("VOILUTSequence"):
        table = _table_of(tags.VOILUTSequence[0], layout)
        return table.look_up(values), table.value_range
    centre, width = _number(tags, "WindowCenter", math.nan), _number(tags, "WindowWidth", math.nan)
    if not (math.isfinite(centre) and math.isfinite(width)):
        raise InputError(f"{path} has no display window to apply: leave window (--window) out.")
    function = str(tags.get("VOILUTFunction") or "LINEAR").upper()
    low, high = value_range
    return low + (high - low) * _window_share(values, centre, width, function, path), value_range


def _window_share(
    values: NDArray[np.float64], centre: float, width: float, function: str, path: Path
) -> NDArray[np.float64]:
    """Return the position of values between the dark (0) and the bright (1) end of a window (DICOM PS3.3 C.11.2)."""
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise InputError(
            f"{path} has a display window of an unknown kind (LINEAR, LINEAR_EXACT and SIGMOID are known): "
            "leave window (--window) out."
        )
    if width < 1 if function == "LINEAR" else width <= 0:
        raise InputError(f"{path} has a display window without width: leave window (--window) out.")
    if function == "SIGMOID":
        # tanh is the same curve as 1 / (1 + exp(-4 (x - c) / w)), and does not overflow far from the centre.
        share: NDArray[np.float64] = (1 + np.tanh(2 * (values - centre) / width)) / 2
        return share
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1
    if width == 0:
        return (values > centre).astype(np.float64)
    return np.clip((values - centre) / width + 0.5, 0, 1)


@dataclass(frozen=True)
class _Table:
    """A lookup table of a DICOM file: values below or above those it maps get its first or last entry."""

    entries: NDArray[Any]
    first_mapped: int
    bits: int

    @property
    def value_range(self) -> tuple[float, float]:
        return 0.0, float(2**self.bits - 1)

    def look_up(self, values: NDArray[Any]) -> NDArray[np.float64]:
        positions = np.rint(values.astype(np.float64) - self.first_mapped)
        positions = np.clip(positions, 0, len(self.entries) - 1).astype(np.int64)
        return self.entries[positions].astype(np.float64)


def _table_of(item: Any, layout: PixelLayout) -> _Table:
    return _table(item.LUTDescriptor, item.LUTData, layout)


def _table(descriptor: Any, data: Any, layout: PixelLayout) -> _Table:
    count, first_mapped, bits = (int(number) for number in descriptor)
    count = (count & 0xFFFF) or 2**16  # the tag cannot hold 65536 and stands for it with 0
    if isinstance(data, bytes):
        order = ">" if layout.syntax == BIG_ENDIAN else "<"
        wide = len(data) >= 2 * count
        entries = np.frombuffer(data, dtype=f"{order}u2" if wide else "u1")
    else:
        entries = np.atleast_1d(np.asarray(data, dtype=np.int64))
    if len(entries) < count:
        raise ValueError("the table is shorter than it says")
    return _Table(entries[:count], first_mapped, bits)


def palette_colours(header: Any, stored: NDArray[Any], layout: PixelLayout, path: Path) -> NDArray[np.float64]:
    """Return the colours (H, W, 3) of one frame from its stored values (H, W), which are indices into a palette."""
    names = [f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue")]
    if "AlphaPaletteColorLookupTableData" in header or any(f"{name}Data" not in header for name in names):
        raise InputError(
            f"{path} is {PALETTE} with a segmented or transparent palette or none: convert it to RGB first, "
            "for example with dcmconv or dcmj2pnm."
        )
    tables = [_table(header[f"{name}Descriptor"].value, header[f"{name}Data"].value, layout) for name in names]
    return np.stack([table.look_up(stored) for table in tables], axis=-1)


def _frame_tags(header: Any, index: int, group: str) -> Any:
    """Return the tags of a frame: its own, those that all frames share, or those of the file."""
    per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for tags in (*per_frame[index : index + 1], *shared[:1]):
        if tags.get(group):
            return tags[group].value[0]
    return header


def _number(tags: Any, name: str, default: float) -> float:
    """Return the number of a tag, the first one if it has several."""
    value = tags.get(name)
    if value is None or value == "":
        return default
    return float(value[0] if hasattr(value, "__getitem__") else value)
