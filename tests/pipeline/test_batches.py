"""Batches of image files: nothing that was computed is lost, and a broken file stops nothing."""

from __future__ import annotations

import copy
import csv
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from attentest import AttentionTest
from attentest.cli import app
from attentest.errors import InputError
from attentest.images.image_source import ImageSource
from attentest.noise import Diagonal, save_noise
from attentest.pipeline.file_run import BatchRun
from attentest.pipeline.run import Pipeline
from attentest.runs.engine import FailedImage
from attentest.search import SpectralSearch
from command_line import full_disk, kill_at_random
from shuffled_engine import ShuffledEngine
from toys import SoftmaxScores

MODEL = "tiny"
QUICK = ("--model", MODEL, "--noise", "1", "--tol", "1e-2", "--no-interval")
COUNT = 7


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(MODEL).symlink_to(saved_tiny_model)
    Path("scans").mkdir()
    for number, image in enumerate(np.random.default_rng(4).normal(size=(COUNT, 8, 8))):
        np.save(f"scans/{number}.npy", image)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["test", *arguments, *QUICK])


def table(path: str = "table.csv") -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8", errors="strict") as file:
        return list(csv.DictReader(file))


def pvalues(path: str = "table.csv") -> list[float]:
    return [float(row["pvalue"]) for row in table(path)]


def break_some() -> list[str]:
    """Break files in several ways, and return their names in order."""
    Path("scans/1.npy").write_bytes(b"junk")
    np.save("scans/3.npy", np.full((8, 8), np.nan))
    np.save("scans/5.npy", np.zeros((9, 9)))
    Path("scans/6.png").write_bytes(b"\x89PNG")
    return ["scans/1.npy", "scans/3.npy", "scans/5.npy", "scans/6.png"]


def test_broken_files_are_rows_with_their_reasons_and_the_others_are_tested() -> None:
    whole = run("scans", "--csv", "whole.csv")
    assert whole.exit_code == 0, whole.output
    broken = break_some()
    done = run("scans", "--csv", "table.csv", "--parquet", "table.parquet")
    assert done.exit_code == 1, done.output
    rows = table()
    assert [row["image"] for row in rows if row["error"]] == broken
    assert [row["pvalue"] for row in rows if row["image"] in broken] == [""] * len(broken)
    good = {row["image"]: row["pvalue"] for row in table("whole.csv") if row["image"] not in broken}
    assert {row["image"]: row["pvalue"] for row in rows if not row["error"]} == good
    for name in broken:
        assert f"attentest: {name}" in done.stderr
    assert "4 of 8 images could not be tested" in done.stderr
    assert len(re.findall(r"not tested *$", done.stdout, re.M)) == len(broken)
    assert f"{COUNT - 3} images" in done.stdout

    import pyarrow.parquet as pq

    assert pq.read_table("table.parquet").column("error").to_pylist()[1] == rows[1]["error"]


def test_json_has_a_line_for_every_image() -> None:
    broken = break_some()
    done = run("scans", "--json")
    assert done.exit_code == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["image"] for line in lines if "error" in line] == broken
    assert len(lines) == COUNT + 1


def test_a_broken_image_fails_by_itself_in_components_too() -> None:
    broken = break_some()
    done = run("scans", "--components", "--csv", "table.csv")
    assert done.exit_code == 1, done.output
    rows = table()
    assert [row["image"] for row in rows if row["error"]] == broken
    assert {row["component"] for row in rows if not row["error"]} >= {"1"}


def test_where_images_come_from() -> None:
    def images(*arguments: str) -> list[str]:
        done = run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line)["image"] for line in done.stdout.splitlines()]

    Path("scans/deep").mkdir()
    np.save("scans/deep/9.npy", np.load("scans/0.npy"))
    Path("scans/.hidden.npy").write_bytes(b"")
    Path("scans/notes.md").write_text("notes")
    flat = [f"scans/{number}.npy" for number in range(COUNT)]
    assert images("scans") == flat
    assert images("scans", "--recursive") == [*flat, "scans/deep/9.npy"]
    assert images("scans/[01].npy") == flat[:2]
    assert images("scans/**/9.npy") == ["scans/deep/9.npy"]
    Path("list.txt").write_text("# two\nscans/2.npy\n\n  scans/0.npy\n")
    assert images("list.txt") == ["scans/2.npy", "scans/0.npy"]
    assert images("scans/0.npy", "scans") == flat  # each once
    Path("list.txt").write_text("scans/2.npy\nscans/gone.npy\n")
    done = run("list.txt", "--json")
    assert done.exit_code == 1
    assert "there is no image file scans/gone.npy" in done.stdout


@pytest.mark.parametrize(("times", "words"), [(2, "1 image is given more than once, and counts once."),
                                              (3, "2 images are given more than once, and count once.")])  # fmt: skip
def test_images_that_are_given_again_are_counted(times: int, words: str) -> None:
    assert f"attentest: note: {words}\n" in run(*["scans/0.npy"] * times).stderr


def test_stacks() -> None:
    stack = np.stack([np.load(f"scans/{number}.npy") for number in range(3)])
    np.save("stack.npy", stack)
    np.savez("stack.npz", first=stack[:2], second=np.asfortranarray(stack[2:]))
    np.savez_compressed("small.npz", only=stack)
    expected = [json.loads(line)["pvalue"] for line in run("scans", "--json").stdout.splitlines()[:3]]
    for file, names in (
        ("stack.npy", ["stack.npy[0]", "stack.npy[1]", "stack.npy[2]"]),
        ("stack.npz", ["stack.npz[first,0]", "stack.npz[first,1]", "stack.npz[second,0]"]),
        ("small.npz", ["small.npz[only,0]", "small.npz[only,1]", "small.npz[only,2]"]),
    ):
        done = run(file, "--stack", "--json")
        assert done.exit_code == 0, done.output
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["image"] for line in lines] == names
        assert [line["pvalue"] for line in lines] == pytest.approx(expected, abs=1e-9)
    assert "a file that holds several images needs --stack" in run("stack.npy").stderr
    flat = run("scans/0.npy", "--stack")
    assert flat.exit_code == 1
    assert "must be a stack (k, H, W) or (k, H, W, C), got an array of shape (8, 8)" in flat.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "there is no image file nowhere"),
        (("*.gif",), "there is no file that matches '*.gif'"),
        (("empty",), "there is no image file in the folder empty; --recursive"),
        (("empty.txt",), "the list of images empty.txt is empty"),
        (("scans", "--save", "maps"), "--save is for --out"),
        (("scans", "--retry"), "--retry is for --out"),
        (("scans", "--out", "o", "--save", "all"), "masks, maps, pictures, separated by commas, or none, got 'all'"),
        (("scans", "--stack", "--frame", "1"), "--frame and --window are not for stacks"),
    ],
)
def test_what_cannot_be_a_batch(arguments: tuple[str, ...], message: str) -> None:
    Path("empty").mkdir()
    Path("empty.txt").write_text("# nothing\n")
    done = run(*arguments)
    assert isinstance(done.exception, InputError), done.output
    assert message in str(done.exception)


def test_a_directory_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("scans", "--csv", "whole.csv", "--out", "first").exit_code == 0
    asked: list[int] = []
    original = BatchRun.run
    monkeypatch.setattr(
        BatchRun, "run", lambda self, places, *rest: (asked.append(len(places)), original(self, places, *rest))[1]
    )
    content = Path("first/results.jsonl").read_bytes()
    draw = random.Random(1)
    for cut in [0, len(content), *(draw.randrange(len(content)) for _ in range(5))]:  # what a kill leaves
        Path("again").mkdir(exist_ok=True)
        Path("again/results.jsonl").write_bytes(content[:cut])
        done = run("scans", "--csv", "table.csv", "--out", "again")
        assert done.exit_code == 0, done.output
        assert pvalues() == pytest.approx(pvalues("whole.csv"))
        whole = [json.loads(line) for line in Path("again/results.jsonl").read_text().splitlines()]
        assert sorted(row["image"] for row in whole if "image" in row) == [f"scans/{n}.npy" for n in range(COUNT)]
    assert run("scans", "--out", "again").exit_code == 0
    assert asked[-1:] != [0]  # nothing to do asks nothing
    np.save("scans/2.npy", np.load("scans/3.npy"))  # another image of the same name
    asked.clear()
    assert run("scans", "--csv", "table.csv", "--out", "again").exit_code == 0
    assert asked == [1]
    assert pvalues()[2] == pytest.approx(pvalues()[3])


def test_failures_are_tried_again_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ImageSource.scan

    def scan(self: ImageSource, dimension: int) -> Any:
        if self.name == "scans/1.npy":
            raise OSError("the network is down")
        return original(self, dimension)

    with monkeypatch.context() as patched:
        patched.setattr(ImageSource, "scan", scan)
        assert run("scans", "--out", "o").exit_code == 1
    assert run("scans", "--out", "o").exit_code == 1  # the record of the failure
    assert run("scans", "--out", "o", "--retry", "--csv", "table.csv").exit_code == 0
    assert not any(row["error"] for row in table())


def test_another_test_in_the_same_directory_is_refused_with_the_difference() -> None:
    assert run("scans", "--out", "o").exit_code == 0
    for options, message in (
        (("--threshold", "0.5"), "other values of --threshold (0.6, now 0.5) made o/results.jsonl: use another"),
        (("--decide",), "other values of --decide (None, now 0.05) made"),
    ):
        done = run("scans", "--out", "o", *options)
        assert isinstance(done.exception, InputError), done.output
        assert message in str(done.exception)


def test_another_noise_of_the_same_kind_and_size_is_refused() -> None:
    for name, scale in (("one", 1.0), ("two", 2.0)):
        save_noise(Diagonal(np.full((8, 8), scale)), f"{name}.json")
    command = ["test", "scans/0.npy", "--out", "o", *QUICK]
    codes = []
    for name in ("one", "one", "two"):
        command[command.index("--noise") + 1] = f"{name}.json"
        done = CliRunner().invoke(app, command)
        codes.append(done.exit_code == 0)
    assert codes == [True, True, False]
    assert "other values of checksum of --noise (" in str(done.exception)


def test_what_is_to_be_saved_is_made_for_images_that_were_tested_without_it() -> None:
    assert run("scans/0.npy", "scans/1.npy", "--out", "o").exit_code == 0
    assert run("scans/0.npy", "scans/1.npy", "--out", "o", "--save", "masks").exit_code == 0
    assert len(list(Path("o/masks").iterdir())) == 2


def test_names_that_are_not_text_and_files_that_are_no_files() -> None:
    odd = Path(os.fsdecode(b"scans/odd\xff\x1b.npy"))
    np.save(odd, np.load("scans/0.npy"))
    os.mkfifo("scans/pipe.npy")
    done = run(str(odd), "scans/pipe.npy", "--csv", "t.csv", "--parquet", "t.parquet", "--figure", "f.png")
    assert done.exit_code == 1, done.output
    assert "scans/pipe.npy is not a regular file" in done.stderr
    assert r"scans/odd\udcff\x1b.npy" in done.stdout
    assert Path("t.csv").read_text().splitlines()[1].startswith("scans/odd\\udcff\x1b.npy,")
    assert Path("t.parquet").exists()
    assert Path("f.png").exists()
    stacked = run("scans/pipe.npy", "--stack")
    assert "scans/pipe.npy is not a regular file" in stacked.stderr


def test_an_archive_with_an_array_that_is_no_stack() -> None:
    np.savez("stack.npz", good=np.random.default_rng(1).normal(size=(2, 8, 8)), bad=np.zeros((2, 3)))
    done = run("stack.npz", "--stack", "--csv", "table.csv")
    assert done.exit_code == 1, done.output
    assert [bool(row["error"]) for row in table()] == [False, False, True]
    assert "bad in stack.npz must be a stack" in table()[2]["error"]


def test_regions_and_maps_are_saved_on_request() -> None:
    from PIL import Image

    done = run("scans/0.npy", "--out", "o", "--save", "regions,maps,masks")
    assert done.exit_code == 0, done.output
    record = json.loads(Path("o/results.jsonl").read_text().splitlines()[2])
    saved = {kind: Path("o", file["file"]) for kind, file in record["saved"].items()}
    result = AttentionTest.from_pretrained(MODEL, noise=1.0, search=SpectralSearch(tol=1e-2), confidence_level=None)(
        "scans/0.npy"
    )
    np.testing.assert_array_equal(np.load(saved["regions"]), result.region)
    np.testing.assert_array_equal(np.load(saved["maps"]), result.attention)
    with Image.open(saved["masks"]) as mask:
        np.testing.assert_array_equal(np.asarray(mask) == 255, result.region)


def test_a_name_that_is_not_text() -> None:
    raw = b"scans/\xff.npy"
    with open(raw, "wb") as file:
        file.write(Path("scans/0.npy").read_bytes())
    done = run("scans", "--csv", "table.csv", "--out", "o", "--save", "maps")
    assert done.exit_code == 0, done.output
    assert "\\udcff.npy" in done.stdout
    assert b"scans/\\udcff.npy," in Path("table.csv").read_bytes()
    assert run("scans", "--csv", "again.csv", "--out", "o").exit_code == 0
    assert Path("again.csv").read_bytes() == Path("table.csv").read_bytes()


def test_the_csv_file_grows_during_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    original = BatchRun.run
    seen = []

    def one_by_one(self: BatchRun, places: list[int], *rest: Any) -> Iterator[Any]:
        for place in places:
            yield from original(self, [place], *rest)
            seen.append(len(table()))
            if place == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(BatchRun, "run", one_by_one)
    done = run("scans", "--csv", "table.csv", "--out", "o")
    assert "4 of 7 images were finished" in str(done.exception)
    assert seen == [1, 2, 3, 4]
    assert [row["image"] for row in table() if row["pvalue_bh"]] == [f"scans/{number}.npy" for number in range(4)]


def test_a_full_disk_loses_nothing_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("scans/0.npy", "scans/1.npy", "--out", "o").exit_code == 0
    before = Path("o/results.jsonl").stat().st_size
    with full_disk(before + 500):
        done = run("scans", "--out", "o")
    assert isinstance(done.exception, InputError), done.output
    assert "free some space and run again, earlier rows are safe" in str(done.exception)
    assert run("scans", "--out", "o", "--csv", "table.csv").exit_code == 0
    assert len(table()) == COUNT
    assert not any(row["error"] for row in table())


# The library.


class Fragile(SoftmaxScores):
    """A model that fails for images with a pixel above ten."""

    batch_size = 64

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if float(images.max()) > 10:
            raise RuntimeError("the model does not like this image")
        return super().__call__(images)


@pytest.fixture
def fragile() -> AttentionTest:
    return AttentionTest(Fragile(), noise=1.0, search=SpectralSearch(tol=1e-2), confidence_level=None)


def test_failures_are_in_their_places(fragile: AttentionTest) -> None:
    images: list[Any] = list(np.random.default_rng(0).normal(size=(9, 2, 2)))
    expected = fragile.map(images)
    images[2], images[5], images[8] = np.full((2, 2), 50.0), np.zeros((3, 3)), "nowhere.npy"
    found = fragile.map(images, on_error="row")
    assert list(found.failures) == [2, 5, 8]
    assert found.failures[2].endswith("RuntimeError: the model does not like this image")
    assert "there is no image file nowhere.npy" in found.failures[8]
    kept = [0, 1, 3, 4, 6, 7]
    assert len(found) == len(images) == len(found.names)
    assert found.tested.names == tuple(kept)
    for number, (result, same) in enumerate(zip(found, expected, strict=True)):
        assert isinstance(result, FailedImage) is (number not in kept)
        assert found[number] is result
        assert isinstance(result, FailedImage) or result.image.tolist() == same.image.tolist()
    with pytest.raises(AttributeError, match=r"image 2 has no pvalue: it could not be tested, because the score"):
        _ = found[2].pvalue
    assert copy.copy(found[2]) == found[2]
    for values, close in ((found.pvalues, expected.pvalues), (found.naive_pvalues, expected.naive_pvalues)):
        assert np.isnan(values).tolist() == [number not in kept for number in range(9)]
        np.testing.assert_allclose(values[kept], close[kept], atol=1e-2)
    assert found[3:6].failures.keys() == {5}
    tested = found.tested
    for method in (None, "holm"):  # what could not be tested is no hypothesis
        assert [found.decisions(0.5, method)[number] for number in kept] == tested.decisions(0.5, method)  # type: ignore[arg-type]
        assert {found.decisions(0.5, method)[number] for number in (2, 5, 8)} == {None}  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.adjusted_pvalues()[kept], tested.adjusted_pvalues())
    assert tested.adjusted_pvalues().tolist() == [p for p in found.table()["pvalue_bh"] if p is not None]
    assert found.rejection_rate(0.5).total == len(tested) == 6
    rows = found.table()
    assert [bool(reason) for reason in rows["error"]] == [number not in kept for number in range(9)]
    assert "3 more could not be tested" in found.summary()
    with pytest.raises(InputError, match="image 5"):
        fragile.map(images)
    with pytest.raises(InputError, match=r"components .* must be a whole number, got True"):
        fragile.map(images, components=True)
    with pytest.raises(InputError, match="on_error must be 'raise' or 'row', got 'skip'"):
        fragile.map(images, on_error="skip")  # type: ignore[arg-type]


class SometimesConstant(SoftmaxScores):
    """Scores that are all the same where the image has a pixel far below zero."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        constant = images.flatten(1).amin(dim=1) < -100
        return torch.where(constant[:, None, None], 0.25, super().__call__(images))


@pytest.mark.parametrize("engine", ["local", ShuffledEngine(seed=0)], ids=["local", "shuffled"])
@pytest.mark.parametrize("options", [{}, {"randomise": 0.5, "draws": 3}], ids=["one", "draws"])
def test_images_without_a_region_fail_alone(options: Any, engine: Any) -> None:
    test = AttentionTest(SometimesConstant(), noise=1.0, confidence_level=None, **options)
    images = np.random.default_rng(0).normal(size=(9, 2, 2))
    expected = test.map(images)
    without = [2, 3, 8]
    images[without, 0, 0] = -1000.0
    sizes = []
    original = Pipeline.run

    def counted(self: Pipeline, inputs: Any, *arguments: Any) -> Any:
        sizes.append(len(inputs))
        return original(self, inputs, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipeline, "run", counted)
        found = test.map(images, on_error="row", engine=engine)
    assert sum(sizes) == len(images)  # no image was tested again
    assert list(found.failures) == without
    assert all("there is no region to test" in reason for reason in found.failures.values())
    kept = [number for number in range(9) if number not in without]
    np.testing.assert_allclose(found.pvalues[kept], expected.pvalues[kept], rtol=1e-9)
    with pytest.raises(InputError, match=r"image 2: the attention map is constant"):
        test.map(images)


def test_images_that_all_have_no_region() -> None:
    test = AttentionTest(SometimesConstant(), noise=1.0, confidence_level=None)
    found = test.map(np.full((3, 2, 2), -1000.0), on_error="row")
    assert list(found.failures) == [0, 1, 2]


@pytest.mark.parametrize("on_error", ["raise", "row"])
def test_a_batch_that_does_not_fit_in_memory_is_halved(fragile: AttentionTest, on_error: Any) -> None:
    images = np.random.default_rng(0).normal(size=(7, 2, 2))
    expected = fragile.map(images)
    pipeline = fragile.pipeline
    original = type(pipeline).run
    sizes = []

    def scarce(self: Any, inputs: Any, *options: Any) -> Any:
        sizes.append(len(inputs))
        if len(inputs) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, inputs, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pipeline), "run", scarce)
        found = fragile.map(images, on_error=on_error)
    assert max(sizes) > 2
    np.testing.assert_allclose(found.pvalues, expected.pvalues, atol=1e-2)
    assert not found.failures


def test_paths_are_images(fragile: AttentionTest) -> None:
    image = np.random.default_rng(0).normal(size=(2, 2))
    np.save("one.npy", image)
    np.save("two.npy", np.stack([image, image]))
    expected = fragile(image).pvalue
    assert fragile("one.npy").pvalue == expected
    assert fragile(Path("one.npy")).pvalue == expected
    assert fragile(ImageSource(path=Path("two.npy"), member=(None, 1))).pvalue == expected
    assert fragile.map(["one.npy", Path("one.npy")]).pvalues == pytest.approx([expected] * 2)
    with pytest.raises(InputError, match="images must be an iterable of images, got str: for one, call the test"):
        fragile.map("one.npy")


@pytest.mark.slow
def test_a_thousand_files_of_which_ten_are_broken() -> None:
    Path("many").mkdir()
    rng = np.random.default_rng(1)
    for number in range(1000):
        np.save(f"many/{number:04}.npy", rng.normal(size=(8, 8)))
    for number in range(5, 1000, 100):
        Path(f"many/{number:04}.npy").write_bytes(b"junk")
    done = run("many", "--csv", "table.csv", "--out", "o")
    assert done.exit_code == 1, done.output
    assert sum(bool(row["error"]) for row in table()) == 10
    assert sum(bool(row["pvalue"]) for row in table()) == 990


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_exact_table() -> None:
    for number, image in enumerate(np.random.default_rng(5).normal(size=(200, 8, 8))):
        np.save(f"scans/{number:03}.npy", image)
    assert run("scans", "--csv", "whole.csv").exit_code == 0

    def finished() -> None:
        assert [row["image"] for row in table()] == [row["image"] for row in table("whole.csv")]
        np.testing.assert_allclose(
            [float(row["pvalue"]) for row in table()],
            [float(row["pvalue"]) for row in table("whole.csv")],
            rtol=0,
            atol=1e-9,
        )
        shutil.rmtree("o")

    command = [sys.executable, "-m", "attentest", "test", "scans", "--out", "o", "--csv", "table.csv", *QUICK]
    kill_at_random(command, 12.0, finished)


def test_names_that_a_spreadsheet_would_run_are_texts_in_csv_files_alone() -> None:
    import pyarrow.parquet as pq

    images = np.random.default_rng(4).normal(size=(4, 8, 8))
    names = ["=cmd|' C calc'!A0.npy", "+1.npy", "@SUM(A1).npy", "plain,=x.npy"]
    for name, image in zip(names, images, strict=True):
        np.save(name, image)
    done = run(*names, "--out", "o", "--csv", "table.csv", "--parquet", "t.parquet", "--json")
    assert done.exit_code == 0, done.output
    written = [f"'{name}" for name in names[:3]] + names[3:]
    assert [row["image"] for row in table()] == written
    assert all(float(row["statistic"]) and float(row["log_pvalue"]) < 0 for row in table())
    assert pq.read_table("t.parquet").column("image").to_pylist() == names
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == names
    again = run(*names, "--out", "o", "--csv", "again.csv", "--json")
    assert again.stdout == done.stdout  # all of them were known
    assert [row["image"] for row in table("again.csv")] == written


def test_rows_are_written_as_texts_before_the_run_ends(tmp_path: Path) -> None:
    from attentest.cli.batch import BatchOutput
    from attentest.cli.output_options import OutputOptions, RunOptions
    from attentest.presentation.rows import failed_row

    output = BatchOutput(asked=RunOptions(), outputs=OutputOptions(csv=tmp_path / "rows.csv"))
    output.write_rows([failed_row("-x.npy", "\tno"), {"image": "b.npy", "statistic": -1.5}])
    rows = table(str(tmp_path / "rows.csv"))
    output.close()
    assert [(row["image"], row["statistic"], row["error"]) for row in rows] == [
        ("'-x.npy", "", "'\tno"),
        ("b.npy", "-1.5", ""),
    ]


def test_a_changed_record_of_one_result_leaves_the_others_as_they_are() -> None:
    test = AttentionTest(SoftmaxScores(), noise=1.0, search="fixed")
    first, second = test.map(np.random.default_rng(0).normal(size=(2, 2, 2)))
    first.settings["threshold"] = first.settings["noise"]["sigma"] = "changed"
    assert second.settings["threshold"] != "changed"
    assert second.settings["noise"]["sigma"] == 1.0
    assert test.settings["threshold"] != "changed"
