"""Signals in files: EDF, WFDB, WAV and columns of CSV, as channels (C, T), with bounds on their sizes."""

from __future__ import annotations

import csv
import warnings
import wave
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.images.image_file import Scan, Spacing, check_values, chosen_channels, decoding, optional_package

LARGEST_TABLE = 2**26  # most bytes of a CSV file: its texts take many times as much memory


def read_edf(path: Path, channels: Sequence[str]) -> Scan:
    """Return channels (C, T) of an EDF or BDF file in their physical units; all of them, if none is named."""
    with optional_package("EDF", "pyedflib", "signals") as pyedflib:
        with decoding(f"{path} is not an EDF file that can be read: check that it is whole"):
            if path.stat().st_size != _size_of_edf(path):
                raise ValueError("its header tells of another size")  # the library would print that
            file = pyedflib.EdfReader(str(path))
        with file:
            lengths = [int(length) for length in file.getNSamples()]
            chosen = chosen_channels(file.getSignalLabels(), channels, path)
            if len({lengths[channel] for channel in chosen}) != 1:
                raise InputError(
                    f"the channels of {path} have different numbers of samples: pick some with --channel (channels=)."
                )
            check_values(len(chosen) * lengths[chosen[0]], path)
            with decoding(f"{path} ends before its last sample or is damaged: copy it again"):
                values = np.stack([file.readSignal(channel) for channel in chosen])
                return Scan(values, _spacing(file.getSampleFrequency(chosen[0])))


def _size_of_edf(path: Path) -> int:
    """Return the size of an EDF or BDF file by its header, in bytes."""
    with path.open("rb") as file:
        head = file.read(256)
        signals = int(head[252:256])
        file.seek(256 + 216 * signals)
        samples = sum(int(file.read(8)) for _ in range(signals))
    width = 3 if path.name.lower().endswith(".bdf") else 2
    return int(head[184:192]) + int(head[236:244]) * samples * width


LARGEST_HEADER = 2**20  # most characters of a WFDB header that are searched for names of files


def samples_of(header: Path) -> list[Path]:
    """Return the files of samples that the header of a WFDB record names: the first word of each line after its first.

    None for a header that cannot be read; whether they are there is not checked.
    """
    try:
        with header.open(encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file.read(LARGEST_HEADER).splitlines() if not line.startswith("#")]
    except OSError:
        return []
    return [header.parent / name for name in dict.fromkeys(words[0] for words in list(filter(None, lines))[1:])]


def read_wfdb(path: Path, channels: Sequence[str]) -> Scan:
    """Return channels (C, T) of a WFDB record, which is given by its header, in their physical units."""
    with optional_package("WFDB", "wfdb", "signals") as wfdb:
        record = str(path.absolute().with_suffix(""))
        with decoding(f"{path} is not the header of a WFDB record that can be read: check that it is whole"):
            header = wfdb.rdheader(record)
            names, length = [str(name) for name in header.sig_name], int(header.sig_len)
        chosen = chosen_channels(names, channels, path)
        check_values(len(chosen) * length, path)
        for name in dict.fromkeys(header.file_name or ()):
            if not (path.parent / name).exists():
                raise InputError(f"{path} belongs to the samples in {name}, which is not beside it: copy it there.")
        with decoding(f"the samples of {path} end before the last one or are damaged: copy all files of the record"):
            values = np.ascontiguousarray(wfdb.rdrecord(record, channels=chosen).p_signal.T, dtype=np.float64)
        return Scan(values, _spacing(header.fs))


def read_wav(path: Path, channels: Sequence[str]) -> Scan:
    """Return channels (C, T) of a WAV file, the numbers that are stored; those of 8 bits count from their middle."""
    from scipy.io import wavfile  # here because it is slow to import

    check_values(path.stat().st_size // 8, path)
    damaged = f"{path} is not a WAV file of plain samples (PCM or floating point) that can be read, or ends early"
    with decoding(damaged, wavfile.WavFileWarning), warnings.catch_warnings():
        warnings.simplefilter("error", wavfile.WavFileWarning)
        rate, samples = wavfile.read(path)
        values = np.atleast_2d(samples.T)
    check_values(values.size, path)
    if values.dtype == np.uint8:
        values = values.astype(np.int16) - 128
    elif values.dtype == np.int32 and _bytes_of_sample(path) == 3:
        values = values >> 8  # SciPy fills the lowest of four bytes with zeros
    return Scan(np.ascontiguousarray(values[chosen_channels([""] * len(values), channels, path)]), _spacing(rate))


def _spacing(rate: Any) -> Spacing | None:
    """Return the spacing of samples that are taken at a rate, in Hz; None if that is none."""
    return Spacing.known([1 / rate], "s") if rate else None


def _bytes_of_sample(path: Path) -> int | None:
    """Return the bytes of a sample of a WAV file; None if its samples are no plain integers."""
    with suppress(wave.Error), wave.open(str(path), "rb") as file:
        return file.getsampwidth()
    return None


def read_csv(path: Path, channels: Sequence[str]) -> NDArray[np.float64]:
    """Return the columns of a CSV file that hold numbers, (C, T); the first line may have their names.

    Columns are separated by commas, semicolons or tabs, of which the first line has the most. A column without any
    number is a text and left out; one in which some are missing is an error.
    """
    if path.stat().st_size > LARGEST_TABLE:
        raise InputError(
            f"{path} has {path.stat().st_size} bytes, more than the {LARGEST_TABLE} allowed: save it as .npy."
        )
    with decoding(f"{path} is not a table of columns in UTF-8: export it again", csv.Error, quoted=True):
        with path.open(newline="", encoding="utf-8-sig") as file:
            line = file.readline()
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=max(",;\t", key=line.count)) if row]
        names = rows.pop(0) if rows and not any(_is_number(cell) for cell in rows[0]) else [""] * len(rows[0])
        if {len(row) for row in rows} != {len(names)}:
            raise ValueError("its lines have different numbers of columns, or there is none")
    columns = dict(enumerate(zip(*rows, strict=True)))
    numeric = [place for place, column in columns.items() if any(map(_is_number, column))]
    if not numeric:
        raise InputError(
            f"{path} has no column of numbers: give one with a number in each line, and a decimal point in it."
        )
    places = [numeric[channel] for channel in chosen_channels([names[place] for place in numeric], channels, path)]
    for place in places:
        missing = next((line for line, text in enumerate(columns[place], 1) if not _is_number(text)), None)
        if missing is not None:
            name = names[place].strip() or f"{place + 1}"
            raise InputError(
                f"column {name} of {path} has {columns[place][missing - 1]!r} in place of its number {missing}: fill "
                "it in, or choose other columns with --channel (channels=)."
            )
    return np.array([columns[place] for place in places], dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
