from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from attentest.errors import InputError
from attentest.studies.brain.dataset import (
    HOW_TO_GET,
    LEAST_BRIGHT,
    SIDE,
    Slices,
    block_majorities,
    block_means,
    load_slices,
)
from brain_folder import packed_arrays, write_brain_folder, write_packed


def some_slices(count: int = 4) -> Slices:
    rng = np.random.default_rng(0)
    tumour = np.arange(count) % 2 == 1
    return Slices(
        flair=rng.integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8),
        mask=(rng.random((count, SIDE, SIDE)) < 0.1) & tumour[:, None, None],
        tumour=tumour,
        patient=np.array(["P", "Q"] * count)[:count],
        number=np.arange(count) + 1,
    )


def assert_same(left: Slices, right: Slices) -> None:
    for field in fields(Slices):
        assert np.array_equal(getattr(left, field.name), getattr(right, field.name)), field.name
    assert left.digest() == right.digest()


def refusal(path: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_slices(path)
    return str(caught.value)


def test_slices_are_read_only_and_their_own() -> None:
    flair = np.zeros((1, SIDE, SIDE), dtype=np.uint8)
    slices = replace(some_slices(1), flair=flair)
    flair[:] = 7
    assert not slices.flair.any()
    for field in fields(Slices):
        assert not getattr(slices, field.name).flags.writeable


def test_some_are_taken_by_index_or_boolean() -> None:
    slices = some_slices()
    assert slices.names == ("P_1", "Q_2", "P_3", "Q_4")
    assert slices.take([3, 0]).names == ("Q_4", "P_1")
    assert slices.take(slices.tumour).names == ("Q_2", "Q_4")
    assert np.array_equal(slices.take([3, 0]).flair, slices.flair[[3, 0]])
    assert len(slices.take([])) == 0
    for wrong in ([4], [True], [0.5]):
        with pytest.raises(IndexError):
            slices.take(wrong)
    with pytest.raises(InputError, match="slice 2 of patient Q is there twice"):
        slices.take([1, 1])


def test_the_digest_sees_everything_but_how_it_is_stored() -> None:
    slices = some_slices()
    other = {
        "flair": slices.flair ^ 1,
        "mask": slices.mask & (np.arange(SIDE) > 30),
        "tumour": slices.tumour | True,
        "patient": np.array(["P", "Q", "P", "R"]),
        "number": slices.number + 1,
    }
    digests = {replace(slices, **{name: values}).digest() for name, values in other.items()}  # type: ignore[arg-type]
    assert len(digests | {slices.digest(), slices.take([1, 0, 2, 3]).digest()}) == 7
    stored = replace(slices, patient=slices.patient.astype("<U40"), number=slices.number.astype(">i2"))  # type: ignore[arg-type]
    assert stored.digest() == slices.digest()


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("flair", np.zeros((4, 64, 64)), "flair must be an array of uint8, got float64"),
        ("flair", np.zeros((4, 64, 64), dtype=np.uint16), "flair must be an array of uint8, got uint16"),
        ("flair", np.zeros((4, 32, 64), dtype=np.uint8), r"must have shape \(4, 64, 64\)"),
        ("flair", np.uint8(1) * np.ones((), dtype=np.uint8), "flair must be an array of uint8|flair must have shape"),
        ("mask", np.zeros((4, 64, 64), dtype=np.uint8), "mask must be an array of bool, got uint8"),
        ("mask", np.zeros((3, 64, 64), dtype=bool), r"mask must have shape \(4, 64, 64\).* got \(3, 64, 64\)"),
        ("mask", np.ones((4, 64, 64), dtype=bool), "slice P_1 has pixels in its mask but no tumour"),
        ("tumour", [True] * 4, "tumour must be an array of bool, got list"),
        ("patient", np.array([b"a"] * 4), "patient must be an array of str"),
        ("patient", np.array(["P", "", "Q", "Q"]), "patient must not be empty, but that of slice 1 is"),
        ("number", np.ones(4), "number must be an array of integer, got float64"),
        ("number", np.array([1, 2, 1, 2]), "slice 1 of patient P is there twice"),
        ("number", np.array([1, 2, -3, 2]), "number must be at least 0 and below .* got -3"),
        ("number", np.array([1, 2, 2**63, 2], dtype=np.uint64), "number must be at least 0"),
    ],
)
def test_slices_that_do_not_fit(name: str, values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(some_slices(), **{name: values})


@settings(deadline=None, derandomize=True)
@given(arrays(np.uint8, (2 * SIDE, 2 * SIDE), elements=st.integers(0, 255), fill=st.integers(0, 255)))
def test_means_are_those_of_blocks_to_the_nearest(image: np.ndarray) -> None:
    exact = sum(image[row::2, column::2].astype(float) for row in (0, 1) for column in (0, 1)) / 4
    assert np.array_equal(block_means(image), np.floor(exact + 0.5))


def test_a_mask_pixel_needs_half_of_its_block() -> None:
    mask = np.zeros((256, 256), dtype=bool)
    mask[0:4, 0:2] = True  # 8 of 16
    mask[0, 4:8] = mask[1, 4:7] = True  # 7 of 16
    mask[252:, 248:] = True
    assert np.argwhere(block_majorities(mask)).tolist() == [[0, 0], [63, 62], [63, 63]]


def test_full_size_blocks_do_not_overflow() -> None:
    assert (block_means(np.full((4096, 4096), 255, dtype=np.uint8)) == 255).all()


def test_the_download_is_read_from_each_place_it_may_be_in(tmp_path: Path) -> None:
    top = write_brain_folder(tmp_path / "archive", patients=2, slices=11)
    slices = load_slices(top)
    assert len(slices) == 22
    assert slices.number.tolist() == 2 * list(range(1, 12))  # 10 after 9, not after 1
    assert slices.patient.tolist() == sorted(slices.patient)
    path = top / slices.patient[4] / f"{slices.names[4]}.tif"
    assert np.array_equal(slices.flair[4], np.array(Image.open(path))[..., 1])
    assert np.array_equal(slices.mask[4], np.array(Image.open(path.with_name(f"{path.stem}_mask.tif"))) == 255)
    assert slices.tumour[4]
    assert_same(load_slices(tmp_path / "archive"), slices)
    shutil.move(top, tmp_path / "other" / "lgg-mri-segmentation" / "kaggle_3m")
    assert_same(load_slices(str(tmp_path / "other")), slices)
    assert_same(load_slices(tmp_path / "other" / "lgg-mri-segmentation"), slices)


def test_full_size_slices_are_reduced(tmp_path: Path) -> None:
    top = write_brain_folder(tmp_path, patients=1, slices=3, side=256)
    calls: list[tuple[int, int]] = []
    slices = load_slices(top, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
    (patient,) = set(slices.patient)
    full = np.array(Image.open(top / patient / f"{patient}_3.tif"))[..., 1]
    assert np.array_equal(slices.flair[2], block_means(full))


def test_a_tumour_of_one_pixel_is_one(tmp_path: Path) -> None:
    mask = np.zeros((256, 256), dtype=np.uint8)
    mask[100, 100] = 255
    write_pair(tmp_path, np.zeros((256, 256), dtype=np.uint8), mask)
    slices = load_slices(tmp_path)
    assert slices.tumour.tolist() == [True]
    assert not slices.mask.any()


def write_pair(root: Path, image: np.ndarray, mask: np.ndarray, patient: str = "A", suffix: str = ".tif") -> None:
    (root / patient).mkdir(exist_ok=True)
    Image.fromarray(image).save(root / patient / f"{patient}_1{suffix}")
    Image.fromarray(mask).save(root / patient / f"{patient}_1_mask{suffix}")


@pytest.mark.parametrize("mask_type", [np.uint8, bool])
def test_own_data_may_be_grey(mask_type: type, tmp_path: Path) -> None:
    slices = some_slices(2)
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / ".hidden").mkdir()
    write_pair(tmp_path, slices.flair[1], slices.mask[1].astype(mask_type), "my patient (1)", ".TIFF")
    (tmp_path / "my patient (1)" / "._my patient (1)_1.tif").write_bytes(b"resource fork")
    (tmp_path / "my patient (1)" / "notes.txt").write_text("ignored")
    read = load_slices(tmp_path)
    assert read.names == ("my patient (1)_1",)
    assert np.array_equal(read.flair[0], slices.flair[1])
    assert np.array_equal(read.mask[0], slices.mask[1])


BLACK = np.zeros((64, 64), dtype=np.uint8)


@pytest.mark.parametrize(
    ("image", "mask", "message"),
    [
        (np.zeros((100, 100), dtype=np.uint8), BLACK, "A_1.tif has 100 x 100 pixels, but a slice must be square"),
        (np.zeros((64, 128), dtype=np.uint8), BLACK, "A_1.tif has 128 x 64 pixels, but a slice must be square"),
        (BLACK, np.zeros((65, 64), dtype=np.uint8), "A_1_mask.tif has 64 x 65 pixels"),
        (BLACK, np.zeros((128, 128), dtype=np.uint8), "has 64 x 64 pixels but its mask 128 x 128"),
        (BLACK.astype(np.uint16), BLACK, "has pixels of uint16, but 8 bits are needed: scale it"),
        (BLACK.astype(np.float32), BLACK, "has pixels of float32, but 8 bits are needed"),
        (BLACK > 0, BLACK, "has pixels of bool, but 8 bits are needed"),
        (BLACK, BLACK.astype(np.uint16), "a mask is one channel of 8 bits"),
        (BLACK, np.zeros((64, 64, 3), dtype=np.uint8), "a mask is one channel of 8 bits"),
    ],
)
def test_pictures_that_cannot_be_used(image: np.ndarray, mask: np.ndarray, message: str, tmp_path: Path) -> None:
    write_pair(tmp_path, image, mask)
    assert message in refusal(tmp_path)


def remove(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            remove("A_2_mask.tif", "A_10_mask.tif"),
            "A_2.tif has no mask A_2_mask.tif beside it; files missing in that folder: 2.",
        ),
        (remove("A_10.tif"), "A_10_mask.tif has no image A_10.tif beside it; files missing in that folder: 1."),
        (lambda folder: shutil.copy(folder / "A_2.tif", folder / "A_02.tif"), "slice 2 of patient A is there twice"),
        (lambda folder: shutil.copy(folder / "A_2.tif", folder / "B_2.tif"), "B_2.tif is neither A_<number>.tif nor"),
        (lambda folder: (folder / "A_2.tif").write_bytes(b"II*\0broken"), "A_2.tif"),
        (lambda folder: (folder / "A_2.tif").write_bytes(b""), "A_2.tif is empty"),
        (lambda folder: (folder.parent / "B").mkdir(), "B holds no TIFF files, though the folders beside it do"),
        (
            lambda folder: (remove("A_2.tif")(folder), (folder / "A_2.tif").symlink_to(folder / "nowhere")),
            "there is no image file",
        ),
    ],
)
def test_folders_that_cannot_be_used(spoil: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "A"
    folder.mkdir()
    for name in ("A_2", "A_2_mask", "A_10", "A_10_mask"):
        Image.fromarray(BLACK).save(folder / f"{name}.tif")
    assert len(load_slices(tmp_path)) == 2
    spoil(folder)
    assert message in refusal(tmp_path)


def test_both_forms_give_the_same(tmp_path: Path) -> None:
    slices = load_slices(write_brain_folder(tmp_path, side=128, patients=3))
    shuffled = slices.take(np.random.default_rng(0).permutation(len(slices)))
    (tmp_path / "packed").mkdir()
    packed = write_packed(tmp_path / "packed" / "slices.npz", shuffled)
    calls: list[tuple[int, int]] = []
    assert_same(load_slices(packed, progress=lambda done, total: calls.append((done, total))), slices)
    assert calls == [(18, 18)]
    assert_same(load_slices(tmp_path / "packed"), slices)


def test_the_bits_of_a_packed_mask(tmp_path: Path) -> None:
    content = packed_arrays(some_slices(1))
    bits = np.zeros((1, 512), dtype=np.uint8)
    bits[0, 8] = 0b10000001  # first and last pixel of the first byte of the second row
    bits[0, -1] = 1
    np.savez(tmp_path / "a.npz", **{**content, "mask": bits, "mask_pixels_256": np.array([48])})  # type: ignore[arg-type]
    assert np.argwhere(load_slices(tmp_path).mask[0]).tolist() == [[1, 0], [1, 7], [63, 63]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mask": None, "slice": None}, "lacks 'mask', 'slice': a packed file of slices has the arrays flair,"),
        ({"flair": np.zeros((4, 64, 64))}, "'flair' in .* must be an array of uint8, got float64"),
        ({"flair": np.zeros((4, 64, 63), dtype=np.uint8)}, r"must have shape \(4, 64, 64\)"),
        ({"flair": np.uint8(0)}, "must have shape"),
        ({"mask": np.zeros((4, 64, 64), dtype=np.uint8)}, r"must have shape \(4, 512\).* got \(4, 64, 64\)"),
        ({"mask": np.zeros((4, 512), dtype=bool)}, "must be an array of uint8, got bool"),
        ({"mask": np.ones((4, 512), dtype=np.uint8)}, "cannot be used: slice P_1 has pixels in its mask but no tumour"),
        ({"mask_pixels_256": np.zeros(4)}, "must be an array of integer, got float64"),
        ({"mask_pixels_256": np.array([0, 9, 0, 70000])}, "must be counts from 0 to 65536"),
        ({"patient": np.array(["P"] * 3)}, r"must have shape \(4,\)"),
        ({"patient": np.array([1, 2, 3, 4])}, "must be an array of str, got int64"),
        ({"patient": np.array(["P", "Q", "P", "Q"], dtype=object)}, "is not a readable packed file .*allow_pickle"),
        ({"slice": np.array([1, 2, 1, 4])}, "cannot be used: slice 1 of patient P is there twice"),
    ],
)
def test_packed_files_that_cannot_be_used(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = {**packed_arrays(some_slices()), **changed}
    np.savez(tmp_path / "a.npz", **{name: values for name, values in content.items() if values is not None})
    with pytest.raises(InputError, match=message):
        load_slices(tmp_path / "a.npz")


def test_broken_packed_files(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.npz", some_slices())
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF
    for content in (b"", b"no archive", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(content)
        assert "a.npz is not a readable packed file of slices: make it again (" in refusal(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    shutil.copy(tmp_path / "one.npy", path)
    assert "is not a readable packed file" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name in packed_arrays(some_slices()):
            archive.writestr(f"{name}.npy", b"text")
    assert "a.npz must be an array of uint8, got bytes" in refusal(path)
    write_packed(path, some_slices().take([]))
    assert "holds no slices" in refusal(path)


def test_a_packed_file_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_packed(tmp_path / "a.npz", some_slices())
    monkeypatch.setattr("attentest.studies.brain.dataset.LARGEST", 1000)
    assert "more than the 1000 allowed" in refusal(path)


def test_who_has_no_data_is_told_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, message in (
        ("nowhere", "there are no brain data at"),
        ("loop", "there are no brain data at"),
        ("empty", "holds neither folders of patients nor a packed .npz file"),
        ("", "holds neither folders of patients nor a packed .npz file"),
        ("data.csv", "is neither a folder of patients nor a packed .npz file"),
    ):
        sentence = refusal(tmp_path / name)
        assert message in sentence
        assert sentence.endswith(f"\n{HOW_TO_GET}")
    assert "https://www.kaggle.com/datasets/mateuszbuda/lgg-mri-segmentation" in HOW_TO_GET
    assert "attentest brain --data kaggle_3m" in HOW_TO_GET
    assert "must be given as a path, got int" in refusal(3)
    (tmp_path / "archive.zip").write_bytes(b"PK")
    assert "archive.zip is an archive: unpack it" in refusal(tmp_path / "archive.zip")


def test_data_that_are_there_twice_are_not_chosen_from(tmp_path: Path) -> None:
    slices = load_slices(write_brain_folder(tmp_path, patients=1))
    write_packed(tmp_path / "a.npz", slices)
    assert "holds data more than once: give the one to use" in refusal(tmp_path)
    shutil.move(tmp_path / "kaggle_3m", tmp_path / "elsewhere" / "kaggle_3m")
    assert len(load_slices(tmp_path)) == 6
    write_packed(tmp_path / "b.npz", slices)
    assert "a.npz or " in refusal(tmp_path)


def test_the_real_data(brain_data: Path) -> None:
    slices = load_slices(brain_data)
    assert (len(slices), len(set(slices.patient))) == (3929, 110)
    shown = slices.shows_brain()
    assert (slices.tumour.sum(), (slices.tumour & shown).sum()) == (1373, 1311)
    assert ((~slices.tumour).sum(), (~slices.tumour & shown).sum()) == (2556, 1902)
    (dark,) = set(slices.patient.tolist()) - set(slices.patient[shown].tolist())
    scan = slices.take(slices.patient == dark)
    assert (len(scan), scan.tumour.sum(), scan.flair.max()) == (88, 37, 70)
    corners = slices.flair[:, :4, :4]
    assert (corners < 10).mean() > 0.99  # the reason for LEAST_BRIGHT
    assert np.median((slices.flair > LEAST_BRIGHT).mean(axis=(1, 2))) == pytest.approx(1 / 3, abs=0.01)
