"""A run knows its own files: what others do to them is noticed, and nothing else is read or written."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attentest.errors import AttentestWarning, InputError
from attentest.files import GrowingFile
from attentest.images import image_source
from attentest.images.image_source import ImageSource
from attentest.pipeline.file_run import BatchRun
from attentest.presentation.tables import csv_lines, write_csv
from attentest.presentation.tested_batch import batch_of_folder
from attentest.runs.record_lines import add_line
from attentest.runs.records import RecordFile
from attentest.search import SpectralSearch
from command_line import Done, run_main

COUNT = 5  # images of the fixture
pytestmark = pytest.mark.usefixtures("folder_of_scans")
QUICK = ("--model", "tiny", "--noise", "1", "--tol", "1e-2", "--no-interval")
RESULTS = Path("o/results.jsonl")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        without_pictures = ("--save", "none") if "--out" in arguments else ()
        return run_main(capsys, "test", *arguments, *QUICK, *without_pictures)

    return run


@pytest.fixture
def run_with_pictures(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return lambda *arguments: run_main(capsys, "test", *arguments, *QUICK, "--out", "o")


@pytest.fixture
def while_it_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Do something after the second image is written; returns the images that are asked for."""

    def patch(do: Callable[[], object]) -> list[int]:
        original, asked = BatchRun.run, []

        def one_by_one(self: BatchRun, places: list[int], *rest: Any) -> Iterator[Any]:
            for number, place in enumerate(places):
                asked.append(place)
                yield from original(self, [place], *rest)
                if number == 1:
                    do()

        monkeypatch.setattr(BatchRun, "run", one_by_one)
        return asked

    return patch


def table(path: str) -> list[list[str]]:
    """Return names and p-values of a table; those of other batches are equal to rounding."""
    with open(path, newline="", encoding="utf-8") as file:
        return [[row["image"], f"{float(row['pvalue']):.9g}"] for row in csv.DictReader(file)]


def replace_results() -> None:
    Path("other").write_text("other")
    Path("other").replace(RESULTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: shutil.rmtree("o"), "was removed"),
        (replace_results, "was replaced by another file"),
    ],
)
def test_records_that_are_taken_away_end_the_run_and_are_not_lost(
    run: Callable[..., Done], while_it_runs: Any, change: Callable[[], object], words: str
) -> None:
    assert run("scans", "--csv", "whole.csv").code == 0
    asked = while_it_runs(change)
    done = run("scans", "--out", "o", "--csv", "table.csv")
    assert done.code == 3, done.err
    assert f"attentest: o/results.jsonl {words} while the run wrote to it, so the run has ended; all its " in done.err
    assert "Traceback" not in done.err
    assert "scans/2.npy" in done.out  # what was computed is shown
    assert table("table.csv") == table("whole.csv")[:3]
    (kept,) = [RESULTS] if words == "was removed" else Path("o").glob("results-*.jsonl")
    shutil.move(kept, RESULTS)
    asked.clear()
    while_it_runs(lambda: None)
    again = run("scans", "--out", "o", "--csv", "table.csv")
    assert (again.code, asked) == (0, [3, 4])
    assert table("table.csv") == table("whole.csv")


def test_a_directory_that_is_removed_after_the_last_image_is_noticed(
    run: Callable[..., Done], while_it_runs: Any
) -> None:
    while_it_runs(lambda: shutil.rmtree("o"))
    done = run("scans/0.npy", "scans/1.npy", "--out", "o")
    assert done.code == 3
    assert "all its records are there again" in done.err
    assert len(RESULTS.read_text().splitlines()) == 4


def replace_folder(name: str) -> None:
    shutil.rmtree(name)
    Path(name).write_text("other")


def test_a_directory_that_is_replaced_by_a_file_ends_the_run_and_the_records_are_beside_it(
    run_with_pictures: Callable[..., Done], while_it_runs: Any
) -> None:
    while_it_runs(lambda: replace_folder("o"))
    done = run_with_pictures("scans")
    assert done.code == 3, done.err
    assert "o/results.jsonl was removed while the run wrote to it, so the run has ended; all its records" in done.err
    assert "scans/2.npy" in done.out  # what was computed is shown
    (kept,) = Path().glob("o-*/results.jsonl")
    assert f"are in {kept}: move that file to its place" in done.err
    assert len(RecordFile(kept).read().rows) == 3
    assert Path("o").read_text() == "other"


@pytest.mark.filterwarnings("default::attentest.errors.AttentestWarning")
def test_pictures_that_cannot_be_saved_cost_no_image_unless_they_are_asked_for(
    run_with_pictures: Callable[..., Done], while_it_runs: Any
) -> None:
    asked = while_it_runs(lambda: replace_folder("o/pictures"))
    done = run_with_pictures("scans")
    assert done.code == 0, done.err
    assert "3 images without a picture in reports: o/pictures cannot be made a directory" in done.err
    assert len(RecordFile(RESULTS).read().rows) == COUNT
    asked.clear()
    done = run_with_pictures("scans", "--save", "pictures")
    assert done.code == 2
    assert "o/pictures cannot be made a directory (File exists): give another path." in done.err
    assert "scans/0.npy" in done.out  # what was computed is shown, and recorded
    assert asked == [0]
    assert RecordFile(RESULTS).read().end.lines == 2 + COUNT + 1


@pytest.mark.filterwarnings("default::attentest.errors.AttentestWarning")
def test_pictures_are_known_by_their_content(
    run_with_pictures: Callable[..., Done], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with_pictures("scans/0.npy", "scans/1.npy").code == 0
    first, second = sorted(Path("o/pictures").iterdir())
    assert all(batch_of_folder(Path("o")).picture(place) is not None for place in (0, 1))
    shutil.copy(second, first)
    with pytest.warns(AttentestWarning, match=f"{first.name} is not the picture that was saved there"):
        assert batch_of_folder(Path("o")).picture(0) is None
    first.unlink()
    os.mkfifo(first)  # which would never end
    done = run_main(capsys, "report", "o", "--out", "report.html")
    assert done.code == 0, done.err
    assert "is not the picture that was saved there, and is left out" in done.err


@pytest.mark.parametrize("replaced", [False, True])
def test_a_table_that_is_taken_away_ends_the_run_and_is_written_again(
    run: Callable[..., Done], while_it_runs: Any, replaced: bool
) -> None:
    assert run("scans", "--csv", "whole.csv").code == 0

    def change() -> None:
        Path("table.csv").unlink()
        if replaced:
            Path("table.csv").write_text("other")

    while_it_runs(change)
    done = run("scans", "--csv", "table.csv")
    assert done.code == 3
    assert "the table table.csv was " in done.err
    (kept,) = Path().glob("table-*.csv") if replaced else [Path("table.csv")]
    assert f"its rows are {'in ' + str(kept) if replaced else 'there again'}." in done.err
    assert table(str(kept)) == table("whole.csv")[:3]
    assert not replaced or Path("table.csv").read_text() == "other"


def test_the_output_of_a_run_among_the_images_is_not_tested(run: Callable[..., Done]) -> None:
    Path("scans/tested").mkdir()
    assert run("scans", "--recursive", "--out", "scans/tested").code == 0
    np.save("scans/tested/map.npy", np.zeros((2, 2)))  # as one that was saved
    done = run("scans", "--recursive", "--out", "scans/tested")
    assert done.code == 0, done.err
    assert "note: scans/tested holds the output of a run, and is left out." in done.err
    assert RecordFile(Path("scans/tested/results.jsonl")).read().rows.keys() == {
        f"scans/{number}.npy" for number in range(COUNT)
    }


def test_a_record_for_which_there_is_no_room_is_not_reported_as_a_line(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = GrowingFile.append

    def full(self: GrowingFile, content: bytes) -> None:
        if self.path == RESULTS and b"3.npy" in content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, content)

    monkeypatch.setattr(GrowingFile, "append", full)
    monkeypatch.setattr(SpectralSearch, "images_together", lambda *_: 1)
    done = run("scans", "--out", "o", "--json")
    assert done.code == 3, done.err
    assert "o/results.jsonl cannot be written (No space left on device): free some space and run again" in done.err
    assert [json.loads(line)["image"] for line in done.out.splitlines()] == [f"scans/{n}.npy" for n in range(3)]
    assert len(RecordFile(RESULTS).read().rows) == 3


@pytest.mark.parametrize("name", ["results.jsonl", "runs.jsonl"])
def test_files_of_others_in_the_directory_are_left_as_they_are(run: Callable[..., Done], name: str) -> None:
    Path("o").mkdir()
    Path("mine.txt").write_text("mine")  # without a line break at its end
    Path("o", name).symlink_to(Path("mine.txt").absolute())
    done = run("scans", "--out", "o")
    assert done.code == 2
    assert f"attentest: o/{name} is not a file of records of this attentest" in done.err
    assert Path("mine.txt").read_text() == "mine"


def test_images_are_known_by_their_content(run: Callable[..., Done], while_it_runs: Any) -> None:
    for number in (0, 1):
        shutil.copy(f"scans/{number}.npy", f"reference{number}.npy")
    with_reference = ("--contrast", "reference", "--reference", "reference0.npy")
    assert run("scans/2.npy", "scans/3.npy", "--out", "o", *with_reference).code == 0
    asked = while_it_runs(lambda: None)

    def rewrite(path: str, source: str) -> None:
        status = os.stat(path)
        Path(path).write_bytes(Path(source).read_bytes())
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert os.stat(path).st_size == status.st_size

    for path, source, expected in (
        ("scans/2.npy", "scans/2.npy", []),
        ("scans/2.npy", "scans/4.npy", [0]),
        ("reference0.npy", "reference1.npy", [0, 1]),
    ):
        rewrite(path, source)
        asked.clear()
        assert run("scans/2.npy", "scans/3.npy", "--out", "o", *with_reference).code == 0
        assert asked == expected


@pytest.mark.filterwarnings("ignore:o has the results of 1 other image")
def test_another_frame_of_a_file_is_another_image(run: Callable[..., Done]) -> None:
    from PIL import Image

    first, second = (Image.fromarray(np.load(f"scans/{number}.npy").astype(np.float32)) for number in (0, 1))
    first.save("frames.tiff", save_all=True, append_images=[second])
    pvalues = []
    for frame in ("0", "1", "0"):
        done = run("frames.tiff", "--frame", frame, "--out", "o", "--json")
        assert done.code == 0, done.err
        pvalues.append(json.loads(done.out)["pvalue"])
    assert pvalues[0] == pvalues[2] != pvalues[1]
    assert {*RecordFile(Path("o/results.jsonl")).read().rows} == {"frames.tiff[frame 0]", "frames.tiff[frame 1]"}


def test_a_large_file_that_is_no_image_is_refused_without_reading_it(
    run: Callable[..., Done], while_it_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small_only(file: Any, _: Any) -> Any:
        assert os.fstat(file.fileno()).st_size < image_source.SMALL_FILE
        return image_source.hashlib.blake2b(file.read())

    monkeypatch.setattr(image_source.hashlib, "file_digest", small_only)
    Path("x.png").touch()
    os.truncate("x.png", 3 * 2**30)  # a hole: takes no room on the disk
    asked = while_it_runs(lambda: None)
    for expected in ([0, 1], [], [0]):
        asked.clear()
        done = run("x.png", "scans/0.npy", "--out", "o")
        assert done.code == 1
        assert "x.png is not an image that can be read" in done.err
        assert asked == expected
        if not expected:
            os.utime("x.png", (1, 1))  # for all that is known it is another file then


def test_an_image_that_changes_while_it_is_tested_is_tested_again(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = BatchRun._values

    def changing(self: BatchRun, batch: Any) -> Any:
        np.save("scans/0.npy", np.random.default_rng(9).normal(size=(8, 8)))
        return original(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(BatchRun, "_values", changing)
        first = run("scans/0.npy", "--out", "o", "--json")
    second = run("scans/0.npy", "--out", "o", "--json")
    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["pvalue"] != json.loads(second.out)["pvalue"]


def test_a_stack_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("stack.npy", np.zeros((50, 8, 8)))
    original, hashed = image_source.hashlib.file_digest, []
    monkeypatch.setattr(
        image_source.hashlib, "file_digest", lambda file, kind: (hashed.append(file), original(file, kind))[1]
    )
    members = [ImageSource(path=Path("stack.npy"), member=(None, number)) for number in range(50)]
    assert len({str(member.stamp()) for member in members}) == len(hashed) == 1
    np.save("stack.npy", np.ones((50, 8, 8)))
    assert members[0].stamp() != members[1].stamp() or len(hashed) == 2


def test_arrays_that_were_removed_are_saved_again(run: Callable[..., Done], capsys: pytest.CaptureFixture[str]) -> None:
    command = ("test", "scans/0.npy", *QUICK, "--save", "masks", "--out", "o")
    assert run_main(capsys, *command).code == 0
    (mask,) = Path("o/masks").iterdir()
    mask.unlink()
    assert run_main(capsys, *command).code == 0
    assert mask.is_file()


def test_without_an_interval_there_is_none_in_json_and_tables(run: Callable[..., Done]) -> None:
    for components in ((), ("--components",)):
        done = run("scans/0.npy", "--csv", "table.csv", "--json", *components)
        assert done.code == 0, done.err
        values = json.loads(done.out.splitlines()[0])
        assert not [name for name in values if "interval" in name and name != "interval_bound"]
        with open("table.csv", newline="") as file:
            row = next(csv.DictReader(file))
        assert {row[name] for name in row if "confidence" in name or "simultaneous" in name} == {""}


def test_the_report_of_a_folder_that_is_not_there_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "report", "nowhere")
    assert (done.code, Path("nowhere").exists()) == (2, False)
    assert "attentest: nowhere has no results.jsonl" in done.err


@pytest.mark.filterwarnings("always::attentest.errors.AttentestWarning")
def test_a_report_says_that_records_are_missing(run: Callable[..., Done], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scans", "--out", "o").code == 0
    RESULTS.write_bytes(b"".join(RESULTS.read_bytes().splitlines(keepends=True)[:-2]))
    done = run_main(capsys, "report", "o", "--json")
    note = "results.jsonl has 5 lines, and had 7 when a run last wrote to it: records are missing"
    assert note in done.err
    assert note in " ".join(json.loads(done.out)["warnings"])
    assert run("scans", "--out", "o").code == 0
    assert "missing" not in run_main(capsys, "report", "o", "--json").err


FLIPS = 200
CUTS = 60


def test_damage_at_random_is_refused_or_changes_nothing(run: Callable[..., Done]) -> None:
    assert run("scans", "--out", "o").code == 0
    whole = batch_of_folder(Path("o"))
    draw = random.Random(7)
    refused = said = 0
    for name, flips, cuts in (("results.jsonl", FLIPS, CUTS), ("runs.jsonl", FLIPS // 4, CUTS // 4)):
        path = Path("o", name)
        content = path.read_bytes()
        for trial in range(flips + cuts):
            if trial < flips:
                damaged = bytearray(content)
                damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            else:
                damaged = bytearray(content[: draw.randrange(len(content))])
            path.write_bytes(damaged)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    found = batch_of_folder(Path("o"))
                except InputError:
                    refused += 1
                    continue
            # What is read is what was there, and what is not is missing, so that a resumed run makes it.
            assert list(found.rows) == list(whole.rows)[: len(found.rows)]
            if len(found.rows) < len(whole.rows):
                assert any("records are missing" in str(one.message) for one in caught)
                said += 1
        path.write_bytes(content)
    assert refused > FLIPS
    assert said > CUTS // 2
    assert batch_of_folder(Path("o")).rows == whole.rows


def test_a_damaged_file_is_neither_continued_nor_changed(run: Callable[..., Done]) -> None:
    assert run("scans", "--out", "o").code == 0
    content = RESULTS.read_bytes()
    draw = random.Random(8)
    for _ in range(5):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content) - 1)] ^= 1 << draw.randrange(8)
        RESULTS.write_bytes(damaged)
        done = run("scans", "--out", "o")
        assert done.code == 2
        assert "is damaged" in done.err or "is not a file of records" in done.err
        assert RESULTS.read_bytes() == damaged


def test_values_that_contradict_each_other_are_refused_with_their_line(run: Callable[..., Done]) -> None:
    assert run("scans/0.npy", "--out", "o").code == 0
    line = json.loads(RESULTS.read_text().splitlines()[-1])
    del line["line"], line["checksum"]
    settings = line["results"][0]["settings"]
    noise = {**settings["noise"], "sigma": 2.0}
    for change, words in (
        ({"pvalue": "abc"}, "pvalue is 'abc', and by the other values it is"),
        ({"log_pvalue": -20.0}, "log_pvalue must lie within its bounds"),
        ({"status": "fine"}, "status must be one of converged, "),
        ({"truncation_set": {"intervals": [[0, None]]}}, "a value is not of the kind that it must be)"),
        ({"settings": {**settings, "threshold": 0.5}}, "threshold is 0.5, and by the header it is 0.6)"),
        ({"settings": {**settings, "noise": noise}}, "sigma of noise is 2.0, and by the header it is 1.0)"),
    ):
        add_line(RESULTS, {**line, "results": [{**line["results"][0], **change}]})
        done = run("scans/0.npy", "--out", "o")
        assert done.code == 2
        assert "line 4 of o/results.jsonl is damaged (" in done.err
        assert words in done.err
        with pytest.raises(InputError, match="line 4"):
            batch_of_folder(Path("o"))
        RESULTS.write_bytes(b"".join(RESULTS.read_bytes().splitlines(keepends=True)[:-1]))


BREAKS = [
    "a\rb",
    "a\nb",
    "a\r\nb",
    "a\r=1+1",
    "a\n+1",
    "\r=x",
    "a\n\r-2",
    'quoted "\r" and, comma',
    "\t=1",
    "a\r'",
    "plain",
]
GUARDED = ["a\rb", "a\nb", "a\r\nb", "a\r'=1+1", "a\n'+1", "'\r'=x", "a\n\r'-2", BREAKS[7], "'\t=1", "a\r'", "plain"]


def test_line_breaks_in_cells_are_quoted_and_hide_no_formula(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_csv({"image": BREAKS, "statistic": [-float(number) for number in range(len(BREAKS))]}, tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_bytes()
    rows = list(csv.reader(StringIO(content.decode(), newline="")))
    assert [row[0] for row in rows[1:]] == GUARDED
    assert [float(row[1]) for row in rows[1:]] == [-float(number) for number in range(len(BREAKS))]
    read = pandas.read_csv(tmp_path / "t.csv")
    assert read["image"].tolist() == GUARDED
    cells = [["image", "statistic"], *([name, -float(number)] for number, name in enumerate(BREAKS))]
    assert b"".join(csv_lines(cells)) == content


def test_a_name_with_line_breaks_is_one_row_of_the_growing_table(run: Callable[..., Done]) -> None:
    name = "scans/a\r=cmd|calc\n@x.npy"
    shutil.copy("scans/0.npy", name)
    done = run(name, "scans/1.npy", "--csv", "table.csv")
    assert done.code == 0, done.err
    assert [row[0] for row in table("table.csv")] == ["scans/a\r'=cmd|calc\n'@x.npy", "scans/1.npy"]


@pytest.mark.filterwarnings("default::attentest.errors.AttentestWarning")
def test_images_that_are_added_to_others_are_said_to_be(run: Callable[..., Done]) -> None:
    first, *others = sorted(map(str, Path("scans").glob("*.npy")))
    assert "note" not in run(first, "--out", "o").err
    said = "attentest: note: o has the results of 1 other image, and those of 2 images are added: a report or a cohort"
    assert said in run(*others[:2], "--out", "o").err
    assert "are added" not in run(*others[:2], "--out", "o").err
    assert "are added" not in run(first, *others, "--out", "o").err
