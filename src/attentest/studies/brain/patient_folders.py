"""Slices in one folder a patient, as Buda et al. (2019) publish them, and own data in that layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.read import read_image
from attentest.studies.brain.slices import SIDE, Slices

Progress = Callable[[int, int], None]

FLAIR_CHANNEL = 1
"""Of the three: before contrast agent, FLAIR, after contrast agent."""

SUFFIXES = (".tif", ".tiff")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Where a slice and its mask lie."""

    patient: str
    number: int
    image: Path
    mask: Path


def find_pairs(root: Path) -> list[Pair]:
    """Return the slices in the folders of a folder, none if no folder in it holds TIFF files.

    Parameters
    ----------
    root
        Has one folder a patient, and named so, with ``<patient>_<number>.tif`` and ``<patient>_<number>_mask.tif``
        for each slice. Other files are ignored.
    """
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and _is_shown(entry))
    if not any(_pictures(folder) for folder in folders):
        return []
    return [pair for folder in folders for pair in _pairs(folder)]


def read_pairs(pairs: list[Pair], progress: Progress | None = None) -> Slices:
    """Read slices and their masks, in the order given.

    Parameters
    ----------
    pairs
        Where they lie. Files have 8 bits and are square, with sides a multiple of 64. Of three channels the second
        is FLAIR; a grey image is taken as it is. What is not zero in a mask is tumour.
    progress
        Called with the number of slices read and of all.
    """
    flair = np.empty((len(pairs), SIDE, SIDE), dtype=np.uint8)
    mask = np.empty((len(pairs), SIDE, SIDE), dtype=bool)
    tumour = np.empty(len(pairs), dtype=bool)
    for index, pair in enumerate(pairs):
        image, marked = _flair(pair.image), _marked(pair.mask)
        if image.shape != marked.shape:
            raise InputError(
                f"{pair.image} has {_size(image)} pixels but its mask {_size(marked)}: make them of one size."
            )
        flair[index], mask[index], tumour[index] = block_means(image), block_majorities(marked), marked.any()
        if progress is not None:
            progress(index + 1, len(pairs))
    return Slices(
        flair=flair,
        mask=mask,
        tumour=tumour,
        patient=np.array([pair.patient for pair in pairs], dtype=np.str_),
        number=np.array([pair.number for pair in pairs], dtype=np.int64),
    )


def block_means(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Reduce an image (64 k, 64 k) to (64, 64) by the means of k x k blocks, rounded to the nearest, halves up."""
    block = (len(image) // SIDE) ** 2
    return ((2 * _block_sums(image) + block) // (2 * block)).astype(np.uint8)


def block_majorities(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Reduce a mask (64 k, 64 k) to (64, 64): set where at least half of the k x k block is."""
    return np.asarray(2 * _block_sums(mask) >= (len(mask) // SIDE) ** 2)


def _block_sums(pixels: NDArray[Any]) -> NDArray[np.int64]:
    side = len(pixels) // SIDE
    return np.asarray(pixels.reshape(SIDE, side, SIDE, side).sum(axis=(1, 3), dtype=np.int64))


def _pairs(folder: Path) -> list[Pair]:
    """Return the slices of a patient by number, each with its mask."""
    pattern = re.compile(rf"{re.escape(folder.name)}_([0-9]{{1,18}})(_mask)?", re.IGNORECASE)
    images: dict[int, Path] = {}
    masks: dict[int, Path] = {}
    pictures = _pictures(folder)
    if not pictures:
        raise InputError(
            f"the folder {folder} holds no TIFF files, though those beside it do: put the patient's slices there or "
            "remove it."
        )
    for path in pictures:
        found = pattern.fullmatch(path.stem)
        if found is None:
            raise InputError(
                f"{path} is neither {folder.name}_<number>.tif nor {folder.name}_<number>_mask.tif: "
                "rename or remove it."
            )
        number, files = int(found[1]), masks if found[2] else images
        if number in files:
            raise InputError(
                f"slice {number} of patient {folder.name} is there twice, as {files[number].name} and {path.name}: "
                "remove one of them."
            )
        files[number] = path
    _check_partners(folder, images, masks)
    return [
        Pair(patient=folder.name, number=number, image=images[number], mask=masks[number]) for number in sorted(images)
    ]


def _check_partners(folder: Path, images: dict[int, Path], masks: dict[int, Path]) -> None:
    for files, others, ending, what in ((images, masks, "_mask", "mask"), (masks, images, "", "image")):
        alone = sorted(files.keys() - others.keys())
        if alone:
            raise InputError(
                f"{files[alone[0]]} has no {what} {folder.name}_{alone[0]}{ending}.tif beside it, and {len(alone)} "
                f"such {'file is' if len(alone) == 1 else 'files are'} missing in that folder: add what is missing, "
                "or unpack the download again."
            )


def _flair(path: Path) -> NDArray[np.uint8]:
    pixels = read_image(path)
    if pixels.dtype != np.uint8:
        raise InputError(
            f"{path} has pixels of {pixels.dtype}, but 8 bits are needed: scale it to 0 to 255 and save it as uint8."
        )
    if pixels.ndim == 3:
        pixels = pixels[..., FLAIR_CHANNEL]
    _check_size(pixels, path)
    return pixels


def _marked(path: Path) -> NDArray[np.bool_]:
    pixels = read_image(path)
    if pixels.dtype not in (np.uint8, np.bool_) or pixels.ndim != 2:
        raise InputError(
            f"{path} has pixels of {pixels.dtype} and shape {pixels.shape}, but a mask is one channel of 8 bits: "
            "save it in grey, 0 where there is no tumour and 255 where there is."
        )
    _check_size(pixels, path)
    return np.asarray(pixels != 0)


def _check_size(pixels: NDArray[Any], path: Path) -> None:
    height, width = pixels.shape
    if height != width or height % SIDE:
        raise InputError(
            f"{path} has {_size(pixels)} pixels, but a slice must be square with sides a multiple of {SIDE}: "
            "pad it with zeros, or crop or resample it, and its mask with it."
        )


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and _is_shown(path))


def _is_shown(path: Path) -> bool:
    """Tell whether an entry is meant to be seen, unlike what systems leave in archives."""
    return not path.name.startswith(".") and path.name != "__MACOSX"
