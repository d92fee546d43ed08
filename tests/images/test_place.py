"""Where images, masks and references lie in space, as their files tell."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_dicom_file import enhanced

from attentest.errors import InputError
from attentest.images.image_file import Scan, read_scan
from attentest.images.mask import Masks, as_mask
from attentest.images.sample import Sample, check_place
from dicom_slices import STEP, write_series, write_slice

PLACE = np.array([[0.0, 0.0, 4.0, 1.0], [0.8, 0.0, 0.0, 2.0], [0.0, 0.5, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]])


def scan(path: Path, dimension: int = 2, frame: int | None = None) -> Scan:
    return read_scan(path, frame=frame, window=False, dimension=dimension, channels=())


def nifti(path: Path, values: NDArray[Any], affine: NDArray[np.float64] = PLACE) -> Path:
    """Write values (slices, rows, columns)."""
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(values.T, affine), path)
    return path


def lies_with(image: Scan, other: NDArray[np.float64] | None) -> bool:
    """Return whether what has an affine is taken for a mask of the image."""
    try:
        check_place(Sample(pixels=image.values[None], levels=None, affine=image.affine), other, "mask")
    except InputError:
        return False
    return True


def test_a_frame_of_a_nifti_volume_lies_where_it_does_in_the_volume(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    volume = nifti(tmp_path / "a.nii", np.arange(60.0).reshape(5, 4, 3))
    for number in range(5):
        cut = tmp_path / "cut.nii"
        nibabel.save(nibabel.load(volume).slicer[:, :, number : number + 1], cut)
        frame, alone = scan(volume, frame=number), scan(cut)
        assert np.array_equal(frame.values, alone.values)
        assert alone.affine is not None
        assert np.allclose(frame.affine @ [2, 1, 0, 1], nibabel.load(volume).affine @ [2, 1, number, 1])
        assert [lies_with(scan(volume, frame=other), alone.affine) for other in range(5)] == [
            other == number for other in range(5)
        ]
    assert np.allclose(scan(volume, 3).affine, PLACE)


def test_a_frame_of_a_dicom_file_lies_where_its_position_is(tmp_path: Path) -> None:
    path = enhanced(tmp_path / "a.dcm", [5.0, 0.0, 2.5, 7.5])
    # Positions are (-height, 7, 1), rows go along y and columns against z; left and back are negative in NIfTI.
    whole = np.array([[0, 0, 2.5, 0], [-0.75, 0, 0, -7], [0, -0.5, 0, 1], [0, 0, 0, 1]])
    assert np.allclose(scan(path, 3).affine, whole)
    for stored, place in enumerate([2, 0, 1, 3]):
        own = scan(path, frame=stored).affine
        assert own is not None
        assert np.allclose(own[:, [0, 1, 3]], np.stack([*whole.T[:2], whole @ [0, 0, place, 1]], axis=1))
    for without in ([None] * 3, [0.0, None, 5.0]):
        assert scan(enhanced(path, without), frame=1).affine is None
    plain = write_slice(tmp_path / "plain.dcm", np.zeros((4, 3)), 0)
    assert scan(plain).affine is not None
    for tag in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing"):
        assert scan(write_slice(plain, np.zeros((4, 3)), 0, **{tag: None})).affine is None


def test_a_dicom_slice_lies_where_it_does_in_its_series(tmp_path: Path) -> None:
    files = write_series(tmp_path / "head", np.random.default_rng(0).normal(size=(4, 5, 3)))
    volume = scan(tmp_path / "head", 3)
    assert volume.affine is not None
    for path in files:
        own = scan(path)
        assert own.affine is not None
        (number,) = (k for k in range(4) if np.array_equal(volume.values[k], own.values))
        assert own.affine[2, 3] == STEP * number
        assert np.allclose(own.affine @ [2, 1, 0, 1], volume.affine @ [2, 1, number, 1])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_corners_a_tenth_of_a_pixel_away_are_elsewhere(scale: float, tmp_path: Path) -> None:
    """In pixels, so that it does not matter how small they are; the smallest of them counts, along each axis."""
    image = scan(nifti(tmp_path / "a.nii", np.zeros((5, 4, 3)), PLACE * [scale, scale, scale, 1]), 3)
    assert image.affine is not None
    for axis, side in enumerate((3, 4, 5)):
        for turned in (0.09, 0.11):  # the last corner moves by so many pixels, the first not
            other = image.affine.copy()
            other[0, axis] += turned * 0.5 * scale / (side - 1)
            assert lies_with(image, other) == (turned < 0.1)
    moved = image.affine.copy()
    moved[1, 3] += 2 * 0.5 * scale
    with pytest.raises(InputError) as raised:
        check_place(Sample(pixels=image.values[None], levels=None, affine=image.affine), moved, "reference")
    assert str(raised.value) == (
        "the reference lies elsewhere in space than its image by 2 pixels (their affines differ), and pixels are "
        "compared by their numbers: resample it onto the image or, if it has the pixels of the image in their order "
        "(slices, rows, columns), give it as an array or .npy file."
    )


def test_the_thickness_of_a_slice_is_no_place(tmp_path: Path) -> None:
    thick = PLACE * [1, 1, 3, 1]
    image = scan(nifti(tmp_path / "a.nii", np.zeros((1, 4, 3))))
    assert lies_with(image, scan(nifti(tmp_path / "b.nii", np.zeros((1, 4, 3)), thick)).affine)
    assert not lies_with(image, PLACE @ np.diag([1, -1, 1, 1]))


MASKS = {
    "scan1.dcm": ["scan1.nii.gz"],
    "SCAN2.NII.GZ": ["SCAN2.png"],
    "scan3.nii[frame -2]": ["scan3.npy"],
    "scan3.npz[t1,4]": ["scan3.npy"],
    "IM01[frame 3]": ["IM01.nii"],
    "study[IM001]": ["study[IM001].npy"],
    "p1.npy": ["p1.npy"],  # not p1.follow.npy, nor p1.json
    "p1.follow.npy": ["p1.follow.npy"],
    "1.2.840.5": [],  # that of 1.2.840.6 is not its own
    "1.2.840.6": ["1.2.840.6.npy"],
    "twice.png": ["twice.npy", "twice.png"],
    "scan4.npy": [],  # one in a folder is that of an image in such a folder
    "patient1/scan4.npy": ["patient1/scan4.npy"],
}


def test_a_mask_is_known_by_the_whole_name_of_its_image(tmp_path: Path) -> None:
    for name in (*chain(*MASKS.values()), "p1.json", "scan4.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    masks = as_mask(tmp_path)
    assert isinstance(masks, Masks)
    found = {name: [str(Path(path).relative_to(tmp_path)) for path in masks.found(name)] for name in MASKS}
    assert found == MASKS
    everything = {str(tmp_path / name) for name in chain(*MASKS.values())}
    assert set(masks.found("*")) == everything
    with pytest.raises(InputError, match=r"one mask of the name of 'twice.png' in .* are 'twice.npy', 'twice.png'"):
        masks.of("twice.png")
    with pytest.raises(InputError, match="must be a folder or a pattern"):
        as_mask(tmp_path / "*_mask.png")
    (tmp_path / "patient1" / "scan4_mask.png").touch()
    masks = as_mask(tmp_path / "*_mask.png")
    assert isinstance(masks, Masks)
    assert masks.found("patient1/scan4.npy") == [str(tmp_path / "patient1" / "scan4_mask.png")]
    assert masks.found("scan4.npy") == []
