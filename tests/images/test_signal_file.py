"""Signals and volumes in files: channels by name, whole volumes, and broken files that end in one sentence."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from attentest.errors import InputError
from attentest.images.image_file import read_image
from attentest.images.image_source import ImageSource
from attentest.images.nifti import nifti_like
from attentest.images.sample import as_sample


@pytest.fixture
def values() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((2, 50))


def test_channels_of_a_table_are_its_columns_of_numbers(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    path = tmp_path / "a.csv"
    lines = [f"t{i},{a!r},{b!r}" for i, (a, b) in enumerate(values.T.tolist())]
    path.write_text("\n".join(["time,I,II", *lines]))
    assert np.array_equal(as_sample(path, 1).pixels, values)
    assert np.array_equal(read_image(path, dimension=1, channels=["ii"]), values[1:])
    assert np.array_equal(read_image(path, dimension=1, channels=["1", "I"]), values[::-1])
    with pytest.raises(InputError, match="no channel 'V1': it has I, II; numbers count from 0"):
        read_image(path, dimension=1, channels=["V1"])
    with pytest.raises(InputError, match="CSV, which holds signals, and an image is needed"):
        read_image(path)
    path.write_text("1,2\n3\n")
    with pytest.raises(InputError, match="different numbers of columns"):
        read_image(path, dimension=1)
    path.write_bytes("Größe\n1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.csv is not a table of columns in UTF-8: export it again"):
        read_image(path, dimension=1)
    path.write_text("a,b\nx,y\n")
    with pytest.raises(InputError, match="no column of numbers"):
        read_image(path, dimension=1)


def test_sound_is_read_with_its_channels_and_not_when_it_ends_early(tmp_path: Path) -> None:
    path, sound = tmp_path / "a.wav", np.arange(80, dtype=np.int16).reshape(40, 2)
    wavfile.write(path, 100, sound)
    assert np.array_equal(read_image(path, dimension=1), sound.T)
    assert np.array_equal(read_image(path, dimension=1, channels=["1"]), sound.T[1:])
    with pytest.raises(InputError, match="2 without names"):
        read_image(path, dimension=1, channels=["2"])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match="ends early"):
        read_image(path, dimension=1)


def test_arrays_have_the_axes_of_the_model(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values)
    assert np.array_equal(as_sample(path, 1).pixels, values)
    assert as_sample(path, 2).shape == (1, 2, 50)
    with pytest.raises(InputError, match=r"one volume \(D, H, W\)"):
        as_sample(path, 3)
    with pytest.raises(InputError, match="leave channels"):
        read_image(path, dimension=2, channels=["0"])


def test_a_volume_is_read_whole_and_a_region_is_written_to_its_place(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    path, stored = tmp_path / "a.nii.gz", np.arange(60, dtype=np.int16).reshape(5, 4, 3)
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)
    volume = read_image(path, dimension=3)
    assert np.array_equal(volume, stored.T)
    assert np.array_equal(volume[1], read_image(path, frame=1))
    written = tmp_path / "region.nii"
    written.write_bytes(nifti_like(path, volume > 30))
    region = nibabel.load(written)
    assert np.array_equal(region.affine, affine)
    assert np.array_equal(np.asarray(region.dataobj), stored > 30)
    plain = tmp_path / "b.nii"
    nibabel.save(nibabel.Nifti1Image(stored, affine), plain)
    content = bytearray(plain.read_bytes())
    plain.write_bytes(content[:-20])
    with pytest.raises(InputError, match="ends before its last pixel"):
        read_image(plain, dimension=3)
    struct.pack_into("<3h", content, 42, 1000, 1000, 1000)
    plain.write_bytes(content)
    with pytest.raises(InputError, match="1000000000 values, more than"):
        read_image(plain, dimension=3)


def test_edf_channels(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    pyedflib = pytest.importorskip("pyedflib")
    path = tmp_path / "a.edf"
    headers = pyedflib.highlevel.make_signal_headers(["I", "II"], sample_frequency=50)
    pyedflib.highlevel.write_edf(str(path), 10 * values, headers)
    assert np.allclose(read_image(path, dimension=1, channels=["II"]), 10 * values[1:], atol=0.1)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="is not an EDF file that can be read"):
        read_image(path, dimension=1)


@pytest.mark.filterwarnings("ignore")  # of the packages that write the record
def test_wfdb_channels(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    wfdb = pytest.importorskip("wfdb")
    tags: dict[str, Any] = {"fs": 50, "units": ["mV"] * 2, "sig_name": ["I", "II"], "fmt": ["16"] * 2}
    wfdb.wrsamp("a", p_signal=values.T, write_dir=str(tmp_path), **tags)
    assert np.allclose(read_image(tmp_path / "a.hea", dimension=1, channels=["II"]), values[1:], atol=1e-3)
    record = ImageSource(path=tmp_path / "a.hea")
    before = record.stamp()
    (tmp_path / "a.dat").write_bytes(b"\0" * 20)
    assert record.stamp() != before  # the samples are what is tested
    assert record.files == (tmp_path / "a.hea", tmp_path / "a.dat")
    with pytest.raises(InputError, match="copy all files of the record"):
        read_image(tmp_path / "a.hea", dimension=1)


def test_a_wfdb_record_is_the_files_that_its_header_names(tmp_path: Path) -> None:
    header = tmp_path / "a.hea"
    header.write_text(
        "# two files\na 2 50 10\nfirst.dat 16 200 12 0 0 0 0 I\n\nsecond.d16 16 200 12 0 0 0 0 II\n# end\n"
    )
    for name in ("first.dat", "second.d16", "a.dat"):
        (tmp_path / name).write_bytes(bytes(20))
    record = ImageSource(path=header)
    assert record.files == (header, tmp_path / "first.dat", tmp_path / "second.d16")
    before = record.stamp()
    (tmp_path / "a.dat").write_bytes(bytes(21))  # that of another record
    assert record.stamp() == before
    (tmp_path / "second.d16").write_bytes(b"\1" * 20)
    assert record.stamp() != before
    (tmp_path / "second.d16").unlink()
    assert record.files == (header, tmp_path / "first.dat")
    header.write_bytes(b"\xff\0" * 50)  # no header at all
    assert record.files == (header,)
    header.unlink()
    assert (record.files, record.stamp()) == ((header,), None)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyedflib", None)
    (tmp_path / "a.edf").write_bytes(b"0" * 300)
    with pytest.raises(InputError, match=r"reading EDF needs pyedflib: pip install 'attentest\[signals\]'"):
        read_image(tmp_path / "a.edf", dimension=1)


def test_a_column_in_which_a_number_is_missing_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ecg.csv"
    for cell in ("", "NA", "1_000"):
        path.write_text(f"label,time,ecg\na,0,1.5\nb,1,{cell}\nc,2,2.5\n")
        with pytest.raises(InputError, match=f"column ecg of .* has '{cell}' in place of its number 2"):
            read_image(path, dimension=1)
        assert read_image(path, dimension=1, channels=["time"]).tolist() == [[0.0, 1.0, 2.0]]
    for separator in (";", "\t"):
        path.write_text(f"time{separator}ecg\n0{separator}1.5\n1{separator}2.5\n")
        assert read_image(path, dimension=1, channels=["ecg"]).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_sounds_are_the_numbers_stored(width: int, tmp_path: Path) -> None:
    stored = [-100, 3, 99]
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(100)
        offset = 128 if width == 1 else 0
        file.writeframes(b"".join((value + offset).to_bytes(width, "little", signed=width > 1) for value in stored))
    assert read_image(tmp_path / "sound.wav", dimension=1).tolist() == [stored]


def test_channels_of_an_array_are_chosen_by_number(tmp_path: Path) -> None:
    np.save(tmp_path / "leads.npy", np.arange(6.0).reshape(2, 3))
    assert read_image(tmp_path / "leads.npy", dimension=1, channels=["1"]).tolist() == [[3.0, 4.0, 5.0]]
    with pytest.raises(InputError, match="2 without names"):
        read_image(tmp_path / "leads.npy", dimension=1, channels=["2"])


def test_what_a_library_prints_about_a_file_is_no_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pyedflib = pytest.importorskip("pyedflib")
    whole, damaged = tmp_path / "whole.edf", tmp_path / "damaged.edf"
    with pyedflib.EdfWriter(str(whole), 1) as writer:
        writer.setSignalHeaders([pyedflib.highlevel.make_signal_header("II", sample_frequency=100)])
        writer.writeSamples([np.sin(np.arange(200.0))])
    damaged.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not an EDF file that can be read"):
        read_image(damaged, dimension=1)
    assert capfd.readouterr().out == ""
