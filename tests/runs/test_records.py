"""Rows of trials on disk: what an interruption, a full disk or another run does to them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from attentest import InputError
from attentest.runs.records import RecordFile

HEADER: dict[str, Any] = {"series": {"work": "selective"}, "seed": 0, "model_sha256": "ab", "settings": {"tol": 1e-4}}


def row(number: int, **values: Any) -> dict[str, Any]:
    return {"image": number, "seconds": 0.1, "p": number / 10, **values}


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    return RecordFile(tmp_path / "deep" / "rows.jsonl")


def add(file: RecordFile, *rows: dict[str, Any], header: dict[str, Any] = HEADER) -> None:
    with file.writing(header) as writer:
        writer.add(rows)


def test_rows_come_back(file: RecordFile) -> None:
    assert file.read().rows == {}
    add(file, row(0), row(1))
    add(file, row(2))
    records = file.read()
    assert records.rows == {0: row(0), 1: row(1), 2: row(2)}
    assert records.headers == [HEADER]  # not repeated while nothing in it changes


def test_what_is_kept_of_rows_is_chosen_and_the_rest_can_be_read_again(file: RecordFile) -> None:
    add(file, row(0, name="\u00e9"), row(1), row(0, name="tried again"))
    records = file.read(keep=lambda row: {"p": row["p"]})
    assert records.rows == {0: {"p": 0.0}, 1: {"p": 0.1}}
    assert list(file.rows_at([records.places[1], records.places[0]])) == [row(1), row(0, name="tried again")]
    with file.writing(HEADER, keep=lambda row: {}) as writer:
        assert writer.records.rows == {0: {}, 1: {}}
    with pytest.raises(InputError, match=r"line 2 of .* is damaged \('nothing' is missing\)"):
        file.read(keep=lambda row: {"p": row["nothing"]})


def test_another_version_is_another_header(file: RecordFile) -> None:
    add(file, row(0), header={**HEADER, "versions": {"torch": "2.11"}})
    add(file, row(1), header={**HEADER, "versions": {"torch": "2.13"}})
    assert [header["versions"]["torch"] for header in file.read().headers] == ["2.11", "2.13"]


@pytest.mark.parametrize("name", ["series", "seed", "model_sha256", "settings"])
def test_rows_that_do_not_belong_together_are_refused(file: RecordFile, name: str) -> None:
    add(file, row(0))
    with pytest.raises(InputError, match=f"made with another value of {name.replace('_', ' ')}"):
        add(file, row(1), header={**HEADER, name: "other"})
    assert file.read().rows == {0: row(0)}


def test_a_line_that_was_not_finished_does_not_count_and_is_overwritten(file: RecordFile) -> None:
    add(file, row(0))
    with open(file.path, "a") as raw:
        raw.write('{"image": 1, "p"')
    assert list(file.read().rows) == [0]
    add(file, row(2))
    assert list(file.read().rows) == [0, 2]
    for line in file.path.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("garbage", "Expecting value"),
        ("[]", "it is not an object"),
        ('{"image": -1, "seconds": 1}', "image must be a whole number from 0, or a name, got -1"),
        ('{"image": 1e999, "seconds": 1}', "must be a whole number from 0"),
        ('{"image": 0, "seconds": NaN}', "NaN is not a number"),
        ('{"image": 0, "seconds": 1, "p": null}', "p must lie between 0 and 1, got None"),
        ('{"image": 0, "p": 0.5}', "'seconds'"),
        ('{"seconds": 1}', "'image' is missing"),
        ('{"image": 0, "seconds": "1"}', "seconds must be a number, got '1'"),
        ('{"image": ' + "1" * 5000 + ', "seconds": 1}', "Exceeds the limit"),
        ("[" * 100_000, "recursion"),
        ('{"header": {"series": [], "seed": 0, "model_sha256": "", "settings": {}}}', "series must be an object"),
        ('{"header": {"series": {}, "seed": [], "model_sha256": "", "settings": {}}}', "seed must be a number"),
        ('{"header": {}}', "a header must have series, seed"),
    ],
)
def test_damage_is_named(file: RecordFile, line: str, reason: str) -> None:
    add(file, row(0), row(1))
    lines = file.path.read_text().splitlines()
    lines[1] = line
    file.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"line 2 of .*rows.jsonl is damaged \(.*{reason}"):
        file.read()


def test_rows_without_a_header_are_refused(file: RecordFile) -> None:
    add(file, row(0))
    file.path.write_text(file.path.read_text().splitlines()[1] + "\n")
    with pytest.raises(InputError, match="there is no header before it"):
        file.read()


def test_the_last_try_of_an_image_counts(file: RecordFile) -> None:
    add(file, {"image": 0, "error": "no", "seconds": 0.0}, row(1))
    add(file, row(0))
    assert file.read().rows == {0: row(0), 1: row(1)}


def test_two_runs_at_once_are_refused(file: RecordFile) -> None:
    pytest.importorskip("fcntl")
    with file.writing(HEADER) as writer:
        writer.add([row(0)])
        with pytest.raises(InputError, match="another run is writing to"), file.writing(HEADER):
            pass
        writer.add([row(1)])
    assert list(file.read().rows) == [0, 1]


def test_a_full_disk_keeps_what_was_finished(file: RecordFile, monkeypatch: pytest.MonkeyPatch) -> None:
    add(file, row(0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"No space left on device\): free some space and run again"):
            add(file, row(1))
    assert file.read().rows[0] == row(0)
    add(file, row(2))
    assert {0, 2} <= set(file.read().rows)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(InputError, match="cannot be written"),
        RecordFile(tmp_path / "taken" / "x.jsonl").writing(HEADER),
    ):
        pass
