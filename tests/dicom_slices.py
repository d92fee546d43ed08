"""DICOM series to test with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

STEP = 2.5
"""Distance of neighbouring slices in mm."""


def write_slice(path: Path, pixels: NDArray[Any], place: float, series: str = "1.2.3", **tags: object) -> Path:
    """Write the slice at a position, in steps, of a series; a tag that is None is left out."""
    pydicom = pytest.importorskip("pydicom")
    header = pydicom.Dataset()
    header.file_meta = pydicom.dataset.FileMetaDataset()
    header.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    header.SOPClassUID = header.file_meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    header.SOPInstanceUID = header.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    header.SeriesInstanceUID, header.Rows, header.Columns = series, *pixels.shape
    header.ImageOrientationPatient, header.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [-10, 20, STEP * place]
    header.PixelSpacing = [0.5, 0.75]
    header.BitsAllocated = header.BitsStored = 16
    header.HighBit, header.PixelRepresentation, header.SamplesPerPixel = 15, 1, 1
    header.PhotometricInterpretation = "MONOCHROME2"
    header.RescaleSlope, header.RescaleIntercept = 0.001, 0
    header.PixelData = np.round(1000 * pixels).astype("<i2").tobytes()
    for name, value in tags.items():
        if value is None:
            delattr(header, name)
        else:
            setattr(header, name, value)
    header.save_as(path, enforce_file_format=True)
    return path


def write_series(folder: Path, volume: NDArray[Any], series: str = "1.2.3", prefix: str = "IM") -> list[Path]:
    """Write a volume (D, H, W) as a series, the slices in another order than that of their names; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(len(volume)).permutation(len(volume)).tolist()
    names = [folder / f"{prefix}{number:03}" for number in range(len(volume))]
    return [write_slice(name, volume[place], place, series) for name, place in zip(names, order, strict=True)]
