"""Brain slices: FLAIR images of 64 x 64 pixels with tumour masks and patients, as Buda et al. (2019) publish them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError
from attentest.images.image_file import decoding, read_image
from attentest.progress import Progress

SIDE = 64  # side of a slice in pixels, as in the paper

WHITE = 255

LEAST_BRIGHT = 20
"""Grey level that brain tissue exceeds: 99% of the pixels in the corners, outside the head, are below 10."""

LEAST_SHARE = 0.2
"""Share of the pixels that must exceed it, or the slice is nearly empty; in the median slice a third of them do.

On the data of Buda et al. (2019) this leaves 1,311 of the 1,373 slices with a tumour and 1,902 of the 2,556 without.
All 88 slices of one patient are left out, 37 of them with a tumour: that scan is dark, with nothing above 70.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """n slices of several patients, each slice once, as read-only copies of the arrays.

    ``flair`` (n, 64, 64) uint8 are the images and ``mask`` (n, 64, 64) bool the pixels of the tumour. ``tumour`` (n,)
    says whether there is one; it counts even if it is too small to leave a pixel in the mask at this size. ``patient``
    (n,) str and ``number`` (n,) int64 identify a slice.
    """

    flair: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    tumour: NDArray[np.bool_]
    patient: NDArray[np.str_]
    number: NDArray[np.int64]

    def __post_init__(self) -> None:
        count = len(self.flair) if np.ndim(self.flair) else 0
        kinds = {"flair": np.uint8, "mask": np.bool_, "tumour": np.bool_, "patient": np.str_, "number": np.integer}
        for name, kind in kinds.items():
            shape = (count, SIDE, SIDE) if name in ("flair", "mask") else (count,)
            values = checked_array(getattr(self, name), name, kind, shape)
            copy = values.astype(np.int64 if name == "number" else values.dtype)
            if name == "number" and (wrong := copy < 0).any():  # also numbers that do not fit
                raise InputError(f"{name} must be at least 0 and below 2**63, got {values[wrong][0]}.")
            copy.setflags(write=False)
            object.__setattr__(self, name, copy)
        if (self.patient == "").any():
            raise InputError(f"patient must not be empty, but that of slice {np.argmax(self.patient == '')} is.")
        for (patient, number), times in Counter(self._keys()).items():
            if times > 1:
                raise InputError(f"slice {number} of patient {patient} is there twice: leave one of them out.")
        if (wrong := self.mask.any(axis=(1, 2)) & ~self.tumour).any():
            name = self.names[wrong.argmax()]
            raise InputError(f"slice {name} has pixels in its mask but no tumour: correct one of the two.")

    def __len__(self) -> int:
        return len(self.flair)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each slice: its patient and its number."""
        return tuple(f"{patient}_{number}" for patient, number in self._keys())

    def take(self, indices: ArrayLike) -> Slices:
        """Return some of the slices: by indices (k,), each at most once, or by booleans (n,)."""
        places = np.asarray(indices)
        if not places.size:
            places = places.astype(np.int64)  # an empty list becomes an array of floats
        return Slices(**{field.name: getattr(self, field.name)[places] for field in fields(self)})

    def shows_brain(self) -> NDArray[np.bool_]:
        """Return for each slice whether at least LEAST_SHARE of its pixels exceed LEAST_BRIGHT."""
        return np.asarray((self.flair > LEAST_BRIGHT).mean(axis=(1, 2)) >= LEAST_SHARE)

    def digest(self) -> str:
        """Return a SHA-256 of the slices in their order, the same on every machine."""
        content = hashlib.sha256(json.dumps([SIDE, self.patient.tolist(), self.number.tolist()]).encode())
        for values in (self.flair, self.mask, self.tumour):
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()

    def _keys(self) -> list[tuple[str, int]]:
        return list(zip(self.patient.tolist(), self.number.tolist(), strict=True))


def checked_array(values: Any, name: str, kind: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array; raise an error if it has another kind of dtype or another shape."""
    dtype = values.dtype if isinstance(values, np.ndarray) else None
    if dtype is None or not np.issubdtype(dtype, kind):
        expected = kind.__name__.rstrip("_")
        raise InputError(f"{name} must be an array of {expected}, got {dtype or type(values).__name__}.")
    if values.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {values.shape}.")
    return np.asarray(values)


HOW_TO_GET = """\
The study needs the dataset "LGG MRI Segmentation" (3,929 slices of 110 patients):
  1. download it from https://www.kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation
  2. unpack the archive
  3. give its folder: attentest brain --data kaggle_3m
The dataset is that of Buda, Saha & Mazurowski (2019), "Association of genomic subtypes of lower-grade gliomas with
shape features automatically extracted by a deep learning algorithm", Computers in Biology and Medicine 109; the images
are from The Cancer Imaging Archive (TCGA-LGG). Its licence is CC BY-NC-SA 4.0: not for commercial use."""
"""How to get the data, for users who have none."""

PLACES = ("", "kaggle_3m", "lgg-mri-segmentation/kaggle_3m")
"""Where in a folder the patients may be: the archive unpacks to the last two, which are copies of each other."""

FLAIR_CHANNEL = 1  # the channels are: before contrast agent, FLAIR, after contrast agent

PACKED: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "flair": (np.uint8, (SIDE, SIDE)),
    "mask": (np.uint8, (SIDE * SIDE // 8,)),
    "mask_pixels_256": (np.integer, ()),
    "patient": (np.str_, ()),
    "slice": (np.integer, ()),
}
"""The arrays of a packed file: their dtype, and their shape after (n,).

``mask`` has the 64 rows of each mask with 8 pixels per byte, the first in the highest bit, and ``mask_pixels_256`` the
number of pixels that it had at its original size.
"""

LARGEST = 2**31
"""Most bytes that a packed file may unpack to, about 450,000 slices; more is an accident or an attack."""

MOST_MASK_PIXELS = 256 * 256  # pixels of a mask at its original size


class Pair(NamedTuple):
    """A slice: the name of its patient, its number, and the files of its image and its mask."""

    patient: str
    number: int
    image: Path
    mask: Path


def load_slices(path: str | os.PathLike[str], progress: Progress = lambda done, total: None) -> Slices:
    """Return the slices at a path, sorted by patient and then by number.

    The path is one of: the folder ``kaggle_3m`` of the download, or a folder that has it; a folder of own data in the
    same layout, with a folder per patient that has ``<patient>_<number>.tif`` and ``<patient>_<number>_mask.tif`` for
    each slice; a packed .npz file, or a folder with one. TIFF files have 8 bits and are square, with sides a multiple
    of 64. Of three channels the second is FLAIR. Pixels of a mask that are not zero are tumour. ``progress`` is called
    with the number of slices read and of all.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"brain data must be given as a path, got {type(path).__name__}.")
    source = Path(path)
    try:
        data = _data_at(source)
    except OSError as error:
        raise InputError(f"{source} cannot be searched ({error.strerror or error}): make it readable.") from None
    slices = _read_packed(data) if isinstance(data, Path) else _read_pairs(data, progress)
    progress(len(slices), len(slices))
    return slices.take(np.lexsort((slices.number, slices.patient)))


def _data_at(source: Path) -> Path | list[Pair]:
    """Return the packed file at a path or in the folder there, or the files of the patients in the folder."""
    if source.is_file():
        if source.suffix.lower() == ".zip":
            raise InputError(f"{source} is an archive: unpack it and give the folder kaggle_3m that is in it.")
        if source.suffix.lower() != ".npz":
            raise InputError(f"{source} is neither a folder of patients nor a packed .npz file.\n{HOW_TO_GET}")
        return source
    if not source.is_dir():
        raise InputError(f"there are no brain data at {source}.\n{HOW_TO_GET}")
    roots = [source / place for place in PLACES]
    pairs: list[Pair] = next(filter(None, (_pairs_in(root) for root in roots if root.is_dir())), [])
    packed = sorted(entry for entry in source.iterdir() if entry.suffix.lower() == ".npz" and entry.is_file())
    if len(packed) + bool(pairs) > 1:
        names = [str(entry) for entry in packed] + [str(pair.image.parents[1]) for pair in pairs[:1]]
        raise InputError(f"{source} holds data more than once: give the one to use, {' or '.join(names)}.")
    if not packed and not pairs:
        raise InputError(f"{source} holds neither folders of patients nor a packed .npz file.\n{HOW_TO_GET}")
    return packed[0] if packed else pairs


def _pairs_in(root: Path) -> list[Pair]:
    """Return the slices in the folders of a folder, none if no folder has TIFF files."""

    def visible(folder: Path) -> list[Path]:  # without the entries that archives and file systems add
        return sorted(entry for entry in folder.iterdir() if entry.name[0] != "." and entry.name != "__MACOSX")

    pictures = {
        folder: [entry for entry in visible(folder) if entry.suffix.lower() in (".tif", ".tiff")]
        for folder in visible(root)
        if folder.is_dir()
    }
    patients = pictures.items() if any(pictures.values()) else ()
    return [pair for folder, paths in patients for pair in _pairs_of_patient(folder, paths)]


def _pairs_of_patient(folder: Path, pictures: list[Path]) -> list[Pair]:
    """Return the slices of a patient by number, each with its mask."""
    name = folder.name
    if not pictures:
        raise InputError(f"{folder} holds no TIFF files, though the folders beside it do: add its slices or remove it.")
    files: dict[str, dict[int, Path]] = {"": {}, "_mask": {}}
    for path in pictures:
        match = re.fullmatch(rf"{re.escape(name)}_([0-9]{{1,18}})(_mask)?", path.stem, re.IGNORECASE)
        if match is None:
            raise InputError(
                f"{path} is neither {name}_<number>.tif nor {name}_<number>_mask.tif: rename or remove it."
            )
        number, kind = int(match[1]), files["_mask" if match[2] else ""]
        if number in kind:
            twice = f"{kind[number].name} and {path.name}"
            raise InputError(f"slice {number} of patient {name} is there twice, as {twice}: remove one of them.")
        kind[number] = path
    for there, missing, what in (("", "_mask", "mask"), ("_mask", "", "image")):
        if alone := sorted(files[there].keys() - files[missing].keys()):
            raise InputError(
                f"{files[there][alone[0]]} has no {what} {name}_{alone[0]}{missing}.tif beside it; files missing in "
                f"that folder: {len(alone)}. Add them, or unpack the download again."
            )
    return [Pair(name, number, path, files["_mask"][number]) for number, path in sorted(files[""].items())]


def _read_pairs(pairs: list[Pair], progress: Progress) -> Slices:
    """Read slices and their masks, in the order given."""
    flair, masks, tumour = [], [], []
    for done, pair in enumerate(pairs):
        progress(done, len(pairs))
        image, mask = _pixels(pair.image), _pixels(pair.mask, is_mask=True)
        if image.shape != mask.shape:
            raise InputError(f"{pair.image} has {_size(image)} pixels but its mask {_size(mask)}: resize one of them.")
        flair.append(block_means(image))
        masks.append(block_majorities(mask != 0))
        tumour.append(mask.any())
    patient, number = np.array([pair.patient for pair in pairs]), np.array([pair.number for pair in pairs])
    return Slices(flair=np.array(flair), mask=np.array(masks), tumour=np.array(tumour), patient=patient, number=number)


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


def _pixels(path: Path, *, is_mask: bool = False) -> NDArray[Any]:
    """Return the pixels (64 k, 64 k) of a slice or of a mask."""
    pixels = read_image(path)
    if is_mask and (pixels.dtype not in (np.uint8, np.bool_) or pixels.ndim != 2):
        raise InputError(
            f"{path} has pixels of {pixels.dtype} and shape {pixels.shape}, but a mask is one channel of 8 bits: "
            "save it in grey, 0 where there is no tumour and 255 where there is."
        )
    if not is_mask and pixels.dtype != np.uint8:
        raise InputError(f"{path} has pixels of {pixels.dtype}, but 8 bits are needed: scale it to 0 to 255 (uint8).")
    if pixels.ndim == 3:
        pixels = pixels[..., FLAIR_CHANNEL]
    if pixels.shape[0] != pixels.shape[1] or len(pixels) % SIDE:
        raise InputError(
            f"{path} has {_size(pixels)} pixels, but a slice must be square with sides a multiple of {SIDE}: "
            "pad it with zeros, or crop or resample it, and its mask with it."
        )
    return pixels


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"


def _read_packed(path: Path) -> Slices:
    """Read slices from a packed file, in its order; nothing in the file is ever executed."""
    with decoding(f"{path} is not a readable packed file of slices: make it again", quoted=True):
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise InputError(f"{path} unpacks to {size} bytes, more than the {LARGEST} allowed: is it something else?")
        with np.load(path, allow_pickle=False) as saved:
            if missing := [repr(name) for name in PACKED if name not in saved.files]:
                expected = f"a packed file of slices has the arrays {', '.join(PACKED)}"
                raise InputError(f"{path} lacks {', '.join(missing)}: {expected}.")
            arrays: dict[str, Any] = {name: saved[name] for name in PACKED}
    count = len(arrays["flair"]) if np.ndim(arrays["flair"]) else 0
    for name, (kind, shape) in PACKED.items():
        checked_array(arrays[name], f"{name!r} in {path}", kind, (count, *shape))
    flair, mask, pixels, patient, number = arrays.values()
    if not ((pixels >= 0) & (pixels <= MOST_MASK_PIXELS)).all():
        raise InputError(f"'mask_pixels_256' in {path} must be counts from 0 to {MOST_MASK_PIXELS}.")
    if not count:
        raise InputError(f"{path} holds no slices: give a packed file with some.")
    mask = np.unpackbits(mask.reshape(count, SIDE, SIDE // 8), axis=2).astype(bool)
    try:
        return Slices(flair=flair, mask=mask, tumour=pixels > 0, patient=patient, number=number)
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from None
