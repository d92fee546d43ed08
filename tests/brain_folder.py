"""Small synthetic brain data in the layout of the download, and the packed form of any slices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter

from attentest.studies.brain.dataset import SIDE, Slices


def write_brain_folder(root: Path, *, patients: int = 12, slices: int = 6, seed: int = 0, side: int = SIDE) -> Path:
    """Write ``kaggle_3m`` under a folder and return it.

    The first slice of each patient is nearly empty; of the others every second one has a tumour, from the third on.
    """
    rng = np.random.default_rng(seed)
    top = root / "kaggle_3m"
    top.mkdir(parents=True)
    (top / "data.csv").write_text("Patient,tumor_tissue_site\n")
    (top / "README.md").write_text("This is made up.\n")
    for index in range(patients):
        patient = f"TCGA_XX_{index:04d}_19990101"
        (top / patient).mkdir()
        for number in range(1, slices + 1):
            has_tumour = number > 1 and number % 2 == 1
            flair, mask = brain_slice(rng, side, size=0.12 if number == 1 else 0.37, has_tumour=has_tumour)
            channels = np.stack([flair // 2, flair, 255 - flair], axis=-1)
            Image.fromarray(channels).save(top / patient / f"{patient}_{number}.tif")
            Image.fromarray(mask * np.uint8(255)).save(top / patient / f"{patient}_{number}_mask.tif")
    return top


def brain_slice(
    rng: np.random.Generator, side: int, *, size: float, has_tumour: bool
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Draw an ellipse with texture on a dark background, with a bright spot if asked for, and the mask of that."""
    y, x = (np.mgrid[:side, :side] + 0.5) / side - 0.5
    radius = size * rng.uniform(0.95, 1.05, 2)
    head = (y / radius[0]) ** 2 + (x / radius[1]) ** 2 <= 1
    texture = gaussian_filter(rng.normal(size=(side, side)), side / 16)
    image = np.where(head, 90 + 12 * texture / texture.std(), 4.0)
    mask = np.zeros((side, side), dtype=bool)
    if has_tumour:
        centre = rng.uniform(-0.4, 0.4, 2) * radius
        mask = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 <= rng.uniform(0.06, 0.12) ** 2
        image[mask] += 70
    noise = rng.normal(scale=np.where(head, 6.0, 1.5))
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8), mask


def packed_arrays(slices: Slices) -> dict[str, NDArray[np.generic]]:
    """The arrays of the packed form; original sizes of masks are not known, so at least 1 where there is a tumour."""
    return {
        "flair": slices.flair,
        "mask": np.packbits(slices.mask, axis=2).reshape(len(slices), SIDE * SIDE // 8),
        "mask_pixels_256": np.maximum(slices.mask.sum(axis=(1, 2)) * 16, slices.tumour).astype(np.int32),
        "patient": slices.patient,
        "slice": slices.number,
    }


def write_packed(path: Path, slices: Slices) -> Path:
    """Write the packed form of slices and return its path."""
    np.savez_compressed(path, **packed_arrays(slices))  # type: ignore[arg-type]
    return path
