"""Loading the slices of the study, from the download or from one packed file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from attentest.errors import InputError
from attentest.studies.brain.packed_file import read_packed
from attentest.studies.brain.patient_folders import Pair, Progress, find_pairs, read_pairs
from attentest.studies.brain.slices import Slices

HOW_TO_GET = """\
The study needs the dataset "LGG MRI Segmentation" (3,929 slices of 110 patients):
  1. download it from https://www.kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation
  2. unpack the archive
  3. give its folder: attentest brain --data kaggle_3m
It is that of Buda, Saha & Mazurowski (2019), "Association of genomic subtypes of lower-grade gliomas with shape
features automatically extracted by a deep learning algorithm", Computers in Biology and Medicine 109; the images are
from The Cancer Imaging Archive (TCGA-LGG). Its licence is CC BY-NC-SA 4.0: not for commercial use."""
"""Where the data are and what to do with them, to be shown to whoever has none."""

PLACES = ("", "kaggle_3m", "lgg-mri-segmentation/kaggle_3m")
"""Where in a folder the patients may be: the archive unpacks to the latter two, which are the same."""


def load_slices(path: str | os.PathLike[str], progress: Progress | None = None) -> Slices:
    """Load brain slices, sorted by patient and then by number.

    Parameters
    ----------
    path
        The folder ``kaggle_3m`` of the download, or one that holds it; own data in the same layout (see
        :mod:`attentest.studies.brain.patient_folders`); or a packed .npz file, or a folder with just one (see
        :func:`attentest.studies.brain.packed_file.read_packed`).
    progress
        Called with the number of slices loaded and of all.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"brain data must be given as a path, got {type(path).__name__}.")
    source = Path(path)
    try:
        found = _find(source)
    except OSError as error:
        raise InputError(
            f"{source} cannot be looked through ({error.strerror or error}): make it readable, or give another place."
        ) from None
    if isinstance(found, Path):
        slices = read_packed(found)
        if progress is not None:
            progress(len(slices), len(slices))
    else:
        slices = read_pairs(found, progress)
    return slices.take(np.lexsort((slices.number, slices.patient)))


def _find(source: Path) -> Path | list[Pair]:
    """Return the packed file that is meant, or the files of the slices."""
    if source.is_dir():
        return _find_in(source)
    if not source.is_file():
        raise InputError(f"there are no brain data at {source}.\n{HOW_TO_GET}")
    if source.suffix.lower() == ".zip":
        raise InputError(f"{source} is an archive: unpack it and give the folder kaggle_3m that is in it.")
    if source.suffix.lower() != ".npz":
        raise InputError(f"{source} is neither a folder of patients nor a packed .npz file.\n{HOW_TO_GET}")
    return source


def _find_in(source: Path) -> Path | list[Pair]:
    roots = [source / place for place in PLACES]
    pairs: list[Pair] = next(filter(None, (find_pairs(root) for root in roots if root.is_dir())), [])
    packed = sorted(entry for entry in source.iterdir() if entry.suffix.lower() == ".npz" and entry.is_file())
    if len(packed) + bool(pairs) > 1:
        names = [str(entry) for entry in packed] + [str(pair.image.parents[1]) for pair in pairs[:1]]
        raise InputError(f"{source} holds data more than once: give the one to use, {' or '.join(names)}.")
    if not packed and not pairs:
        raise InputError(f"{source} holds neither folders of patients nor a packed .npz file.\n{HOW_TO_GET}")
    return packed[0] if packed else pairs
