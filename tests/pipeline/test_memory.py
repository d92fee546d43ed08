"""Memory does not grow with the number of images by more than is needed to write their table."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from attentest import AttentionTest, Results
from attentest.cli import app
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1
from attentest.pipeline.file_run import BatchRun
from attentest.runs.records import RecordFile
from attentest.search import Fixed, GridSearch, Search, SpectralSearch

SIDE = 64
BATCH = 8

Returned = TypeVar("Returned")


def peak_of(function: Callable[[], Returned]) -> tuple[int, Returned]:
    """Return the most bytes in use at once while a function runs, and what it returns; NumPy counts its arrays, too."""
    seldom = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # as often as Python by itself
    tracemalloc.start()
    try:
        returned = function()
        return tracemalloc.get_traced_memory()[1], returned
    finally:
        tracemalloc.stop()
        gc.set_threshold(*seldom)


def scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increasing functions of the means of 4 x 4 parts of the first channel."""
    return np.exp(images[:, 0].reshape(len(images), 4, SIDE // 4, 4, SIDE // 4).mean(axis=(2, 4)))


@pytest.mark.parametrize(
    "search", [GridSearch(step=Fixed(step=2.0)), SpectralSearch(tol=1e-2)], ids=["grid", "spectral"]
)
def test_map_keeps_nothing_but_the_results(search: Search) -> None:
    test = AttentionTest(
        scores, noise=1.0, search=search, image_shape=(1, SIDE, SIDE), batch_size=BATCH, confidence_level=None
    )

    def mapped(count: int) -> Results:
        rng = np.random.default_rng(0)
        return test.map(rng.normal(size=(SIDE, SIDE)) for _ in range(count))

    mapped(1)  # imports
    few, _ = peak_of(lambda: mapped(BATCH))
    many, results = peak_of(lambda: mapped(4 * BATCH))
    arrays = [array for r in results for array in (r.image, r.attention, r.region, r.intervals)]
    further = 3 * BATCH
    kept = sum(array.nbytes for array in arrays) * further / len(results)
    # The other parts of a result take about 2,500 bytes, 0.08 of an image.
    assert (many - few - kept) / further < 0.5 * results[0].image.nbytes


@pytest.mark.parametrize(
    ("options", "copies"),
    [
        ({"noise": 74.0}, 5),  # image, attention map, eta, Sigma eta and the image as it was read
        ({"noise": AR1(0.5, 74.0), "randomise": 0.5}, 6),  # and the noise that is added
    ],
    ids=["plain", "randomised"],
)
def test_a_large_image_takes_a_few_times_its_own_memory(options: dict[str, Any], copies: int) -> None:
    rng = np.random.default_rng(0)
    large, small = (rng.integers(0, 256, size=(*size, 3), dtype=np.uint8) for size in ((400, 600), (30, 40)))
    test = AttentionTest(
        scores,
        preprocessing=Preprocessing(resize=(SIDE, SIDE), rescale=1 / 255),
        search=SpectralSearch(tol=1e-2),
        image_shape=(3, SIDE, SIDE),
        confidence_level=None,
        **options,
    )
    test(small)  # imports
    peak, result = peak_of(lambda: test(large))
    assert peak < (copies + 0.5) * result.image.nbytes  # 9 to 11 if all copies are kept


BYTES_PER_ROW = 4000
"""Most memory that one more row may take, of an image or a component: the row of a table takes about 1,200 bytes, a
record about 11,000."""

QUICK = ("--stack", "--noise", "1", "--tol", "1e-2", "--no-interval")


def peak_of_a_run(count: int, *options: str) -> int:
    """Return the most bytes in use at once while ``attentest test`` runs over a stack of images."""
    stack = Path(f"{count}.npy")
    if not stack.exists():
        np.save(stack, np.zeros((count, 8, 8)))
    peak, done = peak_of(lambda: CliRunner().invoke(app, ["test", str(stack), *QUICK, *options]))
    assert done.exit_code == 0, done.output
    return peak


@pytest.mark.filterwarnings("ignore:o has the results of")  # several stacks go into one folder
@pytest.mark.parametrize("options", [("--csv", "table.csv"), ("--out", "o"), ("--components", "--csv", "t.csv")])
def test_a_run_keeps_rows_and_no_records(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.random.default_rng(4).normal(size=(1, 8, 8)))
    run = ("--model", str(saved_tiny_model), *options)
    recorded = run if "--out" in run else (*run, "--out", "first")
    assert CliRunner().invoke(app, ["test", "one.npy", *QUICK, *recorded]).exit_code == 0
    (record,) = RecordFile(next(Path().glob("*/results.jsonl"))).read().rows.values()
    line = json.dumps(record)  # each row is another object

    def copies(self: BatchRun, places: Sequence[int], *_: Any) -> Iterator[list[dict[str, Any]]]:
        """Yield the record of the one image under the names of others, in place of thousands of tests."""
        images = [self.images[place] for place in places]
        for start in range(0, len(images), 50):
            some = images[start : start + 50]
            yield [{**json.loads(line), "image": image.name, "file": image.stamp()} for image in some]

    monkeypatch.setattr(BatchRun, "run", copies)
    peak_of_a_run(10, *run)  # imports
    few, many = 200, 400
    small, large = peak_of_a_run(few, *run), peak_of_a_run(many, *run)
    rows = len(record["results"])  # of an image: the components of its region, which another version may round apart
    assert large - small < (many - few) * rows * BYTES_PER_ROW
    if "--out" in run:  # all records are read from the directory, which has those of both stacks
        size = Path("o/results.jsonl").stat().st_size
        again = peak_of_a_run(many, *run)
        assert Path("o/results.jsonl").stat().st_size == size
        assert again - small < many * rows * BYTES_PER_ROW


@pytest.mark.slow
def test_two_thousand_more_images_take_a_few_megabytes(tmp_path: Path, saved_tiny_model: Path) -> None:
    script = "import resource, sys; from attentest.cli import app; app(sys.argv[1:], standalone_mode=False); "
    script += "print('KiB', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"

    def kibibytes(count: int, *options: str) -> int:
        np.save(tmp_path / "stack.npy", np.random.default_rng(0).normal(size=(count, 8, 8)))
        arguments = ["test", str(tmp_path / "stack.npy"), *QUICK, "--model", str(saved_tiny_model), *options]
        done = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
        return int(re.findall(r"KiB (\d+)", done.stdout)[0])

    assert kibibytes(2500, "--csv", str(tmp_path / "t.csv")) - kibibytes(500) < 6 * 1024
