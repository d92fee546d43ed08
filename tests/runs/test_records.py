"""Rows of trials on disk: what an interruption, a full disk or another run does to them."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attentest.errors import InputError, OutputError
from attentest.files import GrowingFile, write_complete
from attentest.runs import record_lines
from attentest.runs.record_lines import FIRST, FIRST_LENGTH, add_line, alone_in
from attentest.runs.records import RecordFile, RunLog, read_runs

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
    with pytest.raises(InputError, match=r"lines 3, 4, 5 of .* are damaged \(the first: 'nothing' is missing\)"):
        file.read(keep=lambda row: {"p": row["nothing"]})


def test_another_version_is_another_header(file: RecordFile) -> None:
    add(file, row(0), header={**HEADER, "versions": {"torch": "2.11"}})
    add(file, row(1), header={**HEADER, "versions": {"torch": "2.13"}})
    assert [header["versions"]["torch"] for header in file.read().headers] == ["2.11", "2.13"]


@pytest.mark.parametrize("name", ["series", "seed", "model_sha256", "settings"])
def test_rows_that_do_not_belong_together_are_refused(file: RecordFile, name: str) -> None:
    add(file, row(0))
    with pytest.raises(InputError, match=rf"other values of {name} \(.*, now 'other'\) made .*rows.jsonl: use another"):
        add(file, row(1), header={**HEADER, name: "other"})
    assert file.read().rows == {0: row(0)}


def test_another_noise_is_named_once(file: RecordFile) -> None:
    before, now = ({**HEADER, "settings": {"noise": {"sigma": sigma}}} for sigma in (1.0, 2.0))
    add(file, row(0), header=before)
    with pytest.raises(InputError) as refused:
        add(file, row(1), header=now)
    said = str(refused.value.naming({"noise": "--noise", "sigma": "--noise"}))
    assert said.startswith("other values of sigma of --noise (1.0, now 2.0) made ")


def test_a_line_that_was_not_finished_does_not_count_and_is_overwritten(file: RecordFile) -> None:
    add(file, row(0))
    with open(file.path, "a") as raw:
        raw.write('{"image": 1, "p"')
    assert list(file.read().rows) == [0]
    add(file, row(2))
    assert list(file.read().rows) == [0, 2]
    for line in file.path.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize("line", ["garbage", "[]", "{}", '{"image": 1, "seconds": 1}', "[" * 100_000, "\u00e9" * 99])
def test_a_line_without_its_checksum_is_damage(file: RecordFile, line: str) -> None:
    add(file, row(0), row(1))
    lines = file.path.read_text().splitlines()
    lines[2] = line
    file.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(
        InputError, match=r"line 3 of .*rows.jsonl is damaged \(its checksum .*: remove it, and its row"
    ):
        file.read()
    file.path.write_text("\n".join(lines[:2] + lines[3:]) + "\n")
    assert list(file.read().rows) == [1]
    add(file, row(0))
    assert list(file.read().rows) == [1, 0]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"image": -1, "seconds": 1}, "image must be a whole number from 0, or a name, got -1"),
        ({"image": 1e300, "seconds": 1}, "must be a whole number from 0"),
        ({"image": 0, "seconds": 1, "p": None}, "p must lie between 0 and 1, got None"),
        ({"image": 0, "p": 0.5}, "'seconds'"),
        ({"seconds": 1}, "'image' is missing"),
        ({"image": 0, "seconds": "1"}, "seconds must be a number, got '1'"),
        ({"header": {"series": [], "seed": 0, "model_sha256": "", "settings": {}}}, "series must be an object"),
        ({"header": {"series": {}, "seed": [], "model_sha256": "", "settings": {}}}, "seed must be a number"),
        ({"header": {}}, "a header must have series, seed"),
        ({"line": "x", "image": 0}, "it was written as line x and is not in its place"),
        ({"image": 0, "seconds": 1, "p": "1", "results": 3}, "p must lie between 0 and 1, got '1'"),
    ],
)
def test_a_field_that_is_not_what_it_should_be_is_named(file: RecordFile, values: Any, reason: str) -> None:
    add(file, row(0), row(1))
    add_line(file.path, values)
    with pytest.raises(InputError, match=rf"line 5 of .*rows.jsonl is damaged \(.*{reason}"):
        file.read()


def test_lines_that_are_copied_or_exchanged_are_damage(file: RecordFile) -> None:
    add(file, {"image": 0, "error": "no", "seconds": 0.0}, row(1))
    add(file, row(0))
    lines = file.path.read_bytes().splitlines(keepends=True)
    for copied in ([*lines, lines[2]], [*lines[:2], lines[4], lines[3], lines[2]]):  # the first try would count
        file.path.write_bytes(b"".join(copied))
        with pytest.raises(InputError, match=r"(is|are) damaged \(.*it was written as line \d and is not in its place"):
            file.read()


def test_lines_of_another_file_are_damage(file: RecordFile, tmp_path: Path) -> None:
    other = RecordFile(tmp_path / "other" / "rows.jsonl")
    for rows, number in ((file, 0), (other, 1)):
        add(rows, row(number))
        add_line(rows.path.with_name("runs.jsonl"), {"command": str(number)})
    for path, words in (
        (file.path, r"line 3 of .* is damaged \(its checksum .*: it was changed, or is of another file\)"),
        (file.path.with_name("runs.jsonl"), r"line 2 of .* is damaged \(its checksum "),
    ):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[-1] = (other.path.parent / path.name).read_bytes().splitlines(keepends=True)[-1]
        path.write_bytes(b"".join(lines))
        with pytest.raises(InputError, match=words):
            file.read() if path == file.path else read_runs(path.parent, ["command"])


def test_rows_without_a_header_are_refused(file: RecordFile) -> None:
    add(file, row(0), row(1))
    lines = file.path.read_bytes().splitlines(keepends=True)
    for rest in ([lines[0], *lines[2:]], [lines[0], b"damaged\n", *lines[2:]]):
        file.path.write_bytes(b"".join(rest))
        # Removing one line after the other would lead nowhere.
        with pytest.raises(InputError, match=r"line 2, which says how all rows .*; put back a copy of the file"):
            file.read()


FOREIGN = [
    b"mine",
    b"mine\n",
    b'{"image": 0}',
    b'{"attentest": "records", "format": 2}\n',
    FIRST.replace(b"1", b"2"),
    FIRST.ljust(FIRST_LENGTH - 1, b"0") + b"\n",
]


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_of_others_is_left_as_it_is(file: RecordFile, tmp_path: Path, content: bytes, linked: bool) -> None:
    runs = file.path.with_name("runs.jsonl")
    file.path.parent.mkdir()
    for path in (file.path, runs):
        other = tmp_path / path.name if linked else path
        other.write_bytes(content)
        if linked:
            path.symlink_to(other)
    left = r"is not a file of records of this attentest, .* and is left as it is: name another place"
    with pytest.raises(InputError, match=left), file.writing(HEADER):
        pass
    with pytest.raises(InputError, match=left):
        add_line(runs, {})
    with pytest.raises(InputError, match=left), RunLog().written_to(runs.parent):  # before anything is computed
        raise AssertionError
    assert file.path.read_bytes() == runs.read_bytes() == content


def test_what_is_no_regular_file_is_refused(file: RecordFile) -> None:
    file.path.parent.mkdir()
    os.mkfifo(file.path)
    with pytest.raises(InputError, match="is not a regular file"), file.writing(HEADER):
        pass
    os.mkfifo(file.path.with_name(".lock"))
    with pytest.raises(InputError, match=r"\.lock is not a regular file: move it away"), alone_in(file.path.parent):
        pass


def test_a_first_line_that_was_not_finished_is_begun_again(file: RecordFile) -> None:
    add(file, row(0))
    first = file.path.read_bytes()[:FIRST_LENGTH]
    for length in range(FIRST_LENGTH):
        file.path.write_bytes(first[:length])
        assert not file.read().rows
        add(file, row(0))
        assert list(file.read().rows) == [0]


def remove(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


def replace(path: Path) -> None:
    path.with_name("other").write_text("other")
    path.with_name("other").replace(path)


def lengthen(path: Path) -> None:
    with open(path, "a") as other:
        other.write("other\n")


@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (remove, "removed"),
        (replace, "replaced by another file"),
        (lengthen, "written to by another process"),
    ],
)
def test_a_file_that_is_taken_away_ends_the_run_and_its_rows_are_kept(
    file: RecordFile, change: Any, words: str, at_the_end: bool
) -> None:
    add(file, row(0))
    ended = rf"rows.jsonl was {words} while the run wrote to it, so the run has ended"
    with pytest.raises(OutputError, match=ended), file.writing(HEADER) as writer:  # noqa: PT012
        writer.add([row(1)])
        change(file.path)
        changed = file.path.read_bytes() if file.path.exists() else None
        if not at_the_end:
            writer.add([row(2)])
    (kept,) = file.path.parent.glob("rows*.jsonl") if changed is None else file.path.parent.glob("rows-*.jsonl")
    assert (kept == file.path) == (changed is None)
    assert list(RecordFile(kept).read().rows) == [0, 1, 2][: 2 + (not at_the_end)]
    assert changed in (None, file.path.read_bytes())


@pytest.mark.parametrize(("keep", "left"), [(0.9, [0]), (0.0, [])])
def test_a_file_that_is_cut_off_ends_the_run_and_what_is_left_of_it_is_gone_on_from(
    file: RecordFile, keep: float, left: list[int]
) -> None:
    add(file, row(0))
    ended = "rows.jsonl was cut off while the run wrote to it, so the run has ended; the same command goes on"
    with pytest.raises(OutputError, match=ended), file.writing(HEADER) as writer:  # noqa: PT012
        writer.add([row(1)])
        os.truncate(file.path, int(keep * file.path.stat().st_size))
        writer.add([row(2)])
    assert list(file.path.parent.iterdir()) == [file.path]
    add(file, row(3))
    assert list(file.read().rows) == [*left, 3]


def test_an_interrupted_write_is_no_change_of_others(file: RecordFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with file.writing(HEADER) as writer, monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.add([row(0)])
    assert list(file.read().rows) == [0]


def test_new_files_and_directories_are_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    original = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), original(fd)))
    write_complete(tmp_path / "whole.txt", b"content", "the text")
    assert synced[-1] == tmp_path
    synced.clear()
    add(RecordFile(tmp_path / "a" / "b" / "rows.jsonl"), row(0))
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "rows.jsonl"} <= set(synced)
    synced.clear()
    add_line(tmp_path / "runs.jsonl", {"command": "x"})
    assert {tmp_path, tmp_path / "runs.jsonl"} == set(synced)
    assert read_runs(tmp_path, ["command"]) == [{"command": "x"}]


def test_the_holder_of_a_lock_is_named(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".lock").write_text("of another program")
    held = (
        rf"another run \(process {os.getpid()} on {re.escape(platform.node())}\) is writing to .*: wait for it to end"
    )
    with alone_in(tmp_path), pytest.raises(InputError, match=held), alone_in(tmp_path):
        pass
    with alone_in(tmp_path / "other"), pytest.raises(InputError, match="another run is"), alone_in(tmp_path / "other"):
        pass
    assert (tmp_path / "other" / ".lock").read_text() == "of another program"


def test_without_flock_bytes_are_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: set[int] = set()

    def locking(descriptor: int, _: int, count: int) -> None:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        if place in held:
            raise PermissionError(errno.EACCES, "Permission denied")
        held.update(range(place, place + count))

    monkeypatch.setattr(record_lines, "fcntl", None)
    monkeypatch.setattr(record_lines, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2), raising=False)
    with alone_in(tmp_path), pytest.raises(InputError, match=f"another run .process {os.getpid()}"), alone_in(tmp_path):
        pass


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
        with pytest.raises(InputError, match=r"the masks .* \(No space left on device\): free some space and run"):
            write_complete(file.path.with_name("mask.png"), b"", "the masks")
    assert file.read().rows[0] == row(0)
    add(file, row(2))
    assert {0, 2} <= set(file.read().rows)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(InputError, match="taken cannot be made a directory"),
        RecordFile(tmp_path / "taken" / "x.jsonl").writing(HEADER),
    ):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no /dev/fd here")
def test_a_device_and_a_pipe_stay_what_they_are(tmp_path: Path) -> None:
    nothing, through = tmp_path / "nothing.csv", tmp_path / "through.png"
    nothing.symlink_to(os.devnull)
    write_complete(nothing, b"gone", "the table")
    with open(nothing, "wb") as file:
        growing = GrowingFile(nothing, file)
        growing.append(b"gone")
        assert growing.change() is None
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    end, start = os.pipe()
    through.symlink_to(f"/dev/fd/{start}")
    write_complete(through, [b"a pic", b"ture"], "the figure")
    assert os.read(end, 99) == b"a picture"
    os.close(start)
    os.close(end)
