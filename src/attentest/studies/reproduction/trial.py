"""Trials in chunks: what is computed on the images of a series, the row of each image, and what a row must hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ViTScores, load_model
from attentest.noise import FromImage
from attentest.pipeline.attention_test import AttentionTest
from attentest.progress import Progress
from attentest.runs.records import Row, check_numbers
from attentest.search import Search, SpectralSearch, as_search
from attentest.statistics.inference import confidence_intervals_of
from attentest.studies.measures import CONFIDENCE_LEVEL, ENDS, check_trial, result_values, rounded
from attentest.studies.reproduction.experiment import Series

CHUNK_SECONDS = 20.0  # about what a chunk takes
FIRST_CHUNK = {"cpu": 4, "cuda": 500}  # images, before anything has been timed
LARGEST_CHUNK = 2000  # images, however fast they are
TOL = 1e-4  # error bar of p in the experiments: far below the Monte-Carlo error of thousands of images

SEARCH = SpectralSearch(tol=TOL, precision="float64")
"""The search of the experiments; not in mixed precision, so that numbers are the same on every device."""

PRECISE = SpectralSearch(tol=1e-6, precision="float64")  # gives the exact p where precisions are compared
CURVES_INSIDE, CURVES_OUTSIDE = 10, 40  # pixels in the region and outside it whose f_i are drawn, as in the paper
CURVE_REACH, CURVE_POINTS = 10.0, 801  # curves go this far beyond the statistic on either side of zero
CLOSE_REACH, CLOSE_POINTS = 0.1, 201  # and this far around it, where the paper's heuristics change
TIMED_TOGETHER = {"cpu": 2, "cuda": 100}  # images on which a search is timed; on a GPU as in one trial of the paper
TIMED_BATCHES = 5  # over which the time of an evaluation is averaged


class Float32Scores:
    """The scores of a model computed in float32, as in the paper."""

    def __init__(self, scores: ViTScores) -> None:
        self._scores = scores
        self.image_shape, self.device, self.batch_size = scores.image_shape, scores.device, scores.batch_size

    def __call__(self, images: Tensor) -> Tensor:
        """Return scores (m, gh, gw)."""
        return self._scores.rough(images)


class Trials:
    """The trials of one series, with their model on a device and the seed of the images: work for an engine."""

    def __init__(self, series: Series, directory: Path, device: torch.device | str, seed: int) -> None:
        self._series, self._seed = series, seed
        where = torch.device(series.device or device)
        self._scores = ViTScores(load_model(directory).encoder, device=where, owned=True)
        search: Search = SEARCH if series.search == "spectral" else as_search(series.search)
        self._test = self._test_with(self._scores, search)
        self.device, self.settings = self._scores.device, self._test.settings  # JSON-ready settings of the test

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the rows of images by their numbers, each with its share of the seconds; a failed trial has its error.

        A chunk takes about CHUNK_SECONDS; searches whose times are compared are given the same number of images at a
        time in every run.
        """
        self._scores(self._blank(2))  # because the first evaluation is slow
        together = TIMED_TOGETHER[self.device.type] if self._series.work == "search" else None
        chunk, waiting = together or FIRST_CHUNK[self.device.type], list(tasks)
        while waiting:
            batch, waiting = waiting[:chunk], waiting[chunk:]
            start = time.perf_counter()
            rows = self._rows(batch)
            seconds = max(time.perf_counter() - start, 1e-3)
            chunk = together or min(LARGEST_CHUNK, max(1, int(len(batch) * CHUNK_SECONDS / seconds)))
            yield rows
            if progress is not None:
                progress(len(tasks) - len(waiting), len(tasks))

    def lost(self, task: int, reason: str) -> Row:
        """Return the row of an image, by its number, whose trial failed."""
        return {"image": task, "error": reason, "seconds": 0.0}

    def _rows(self, numbers: list[int]) -> list[Row]:
        """Return the rows of images; failing work is repeated on halves, down to the image whose row is its error."""
        start = time.perf_counter()
        try:
            rows = getattr(self, f"_{self._series.work}")(numbers)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except Exception as error:  # noqa: BLE001  # whatever the error is, the other images have their rows
            if len(numbers) == 1:
                return [self.lost(numbers[0], f"{type(error).__name__}: {error}")]
            half = len(numbers) // 2
            return self._rows(numbers[:half]) + self._rows(numbers[half:])
        seconds = (time.perf_counter() - start) / len(numbers)
        return [{"image": number, "seconds": seconds, **row} for number, row in zip(numbers, rows, strict=True)]

    def _test_with(self, scores: Any, search: Search) -> AttentionTest:
        return AttentionTest(
            scores,
            noise=FromImage("sample") if self._series.estimated else self._series.noise_model,
            region_unit=self._series.region,
            randomise=self._series.randomise,
            search=search,
            confidence_level=CONFIDENCE_LEVEL if self._series.work == "interval" else None,
        )

    def _images(self, numbers: list[int]) -> NDArray[np.float64]:
        return self._series.images(self._seed, numbers)

    def _blank(self, count: int) -> Tensor:
        return torch.zeros(count, *self._scores.image_shape, dtype=torch.float64, device=self.device)

    def _selective(self, numbers: list[int]) -> list[Row]:
        return [result_values(result) for result in self._test.map(self._images(numbers), names=numbers)]

    _search = _selective

    def _interval(self, numbers: list[int]) -> list[Row]:
        images, squares = self._series.images_and_squares(self._seed, numbers)
        results = list(self._test.map(images, names=numbers))
        intervals = confidence_intervals_of(results, CONFIDENCE_LEVEL)
        rows = []
        for result, interval, square in zip(results, intervals, squares, strict=True):
            weights = self._test.contrast.weights(result.part, result.region, result.seen).reshape(square.shape)
            truth = {"true_difference": self._series.delta * float(weights[square].sum())}
            if self._series.delta:
                truth["iou"] = float((result.region & square).sum() / (result.region | square).sum())
            rows.append(result_values(result, interval) | truth)
        return rows

    def _permutation(self, numbers: list[int]) -> list[Row]:
        permutations, rows = self._series.permutations or 0, []
        for number, image in zip(numbers, self._images(numbers), strict=True):
            rng = self._series.generator(self._seed, number, "permutations")
            result = self._test.permutation_test(image, permutations, rng)
            values = {"statistic": result.statistic, "p": result.count_pvalue, "p_with_observed": result.pvalue}
            rows.append({**values, "evaluations": permutations + 1})
        return rows

    def _curves(self, numbers: list[int]) -> list[Row]:
        return [self._curve(number, image) for number, image in zip(numbers, self._images(numbers), strict=True)]

    def _curve(self, number: int, image: NDArray[np.float64]) -> Row:
        """Return f_i of some pixels along the line through an image, far out and close to the observed statistic."""
        result, rng = self._test(image), self._series.generator(self._seed, number, "pixels")
        reach = CURVE_REACH + abs(result.statistic)
        pixels = {
            "inside": rng.permutation(np.flatnonzero(result.region))[:CURVES_INSIDE],
            "outside": rng.permutation(np.flatnonzero(~result.region))[:CURVES_OUTSIDE],
        }
        row: Row = {
            "statistic": result.statistic,
            "intervals": [list(ends) for ends in result.intervals.tolist()],
            "evaluations": result.evaluations + CURVE_POINTS + CLOSE_POINTS,
        }
        for name, distances in (
            ("far", np.linspace(-reach, reach, CURVE_POINTS) - result.statistic),
            ("close", np.linspace(-CLOSE_REACH, CLOSE_REACH, CLOSE_POINTS)),
        ):
            curves = self._test.margins(image, distances)
            drawn = {
                group: [rounded(curve, 7) for curve in curves.values.T[places]] for group, places in pixels.items()
            }
            closest = float(np.abs(curves.values).min())
            row[name] = {"z": rounded(curves.z, 7), **drawn, "closest_to_zero": closest}
        return row

    def _precision(self, numbers: list[int]) -> list[Row]:
        images = self._images(numbers)
        exact = self._test.replace(search=PRECISE).map(images)
        # The same search in both precisions, so that nothing else differs.
        grid = as_search("combination")
        double = self._test.replace(search=grid).map(images)
        single = self._test_with(Float32Scores(self._scores), grid).map(images)
        return [
            {
                **result_values(best),
                "p_float64": in_double.pvalue,
                "p_float32": in_single.pvalue,
                "statistic_float32": in_single.statistic,
                "region_changed": int(np.sum(best.region != in_single.region)),
                "evaluations": best.evaluations + in_double.evaluations + in_single.evaluations,
            }
            for best, in_double, in_single in zip(exact, double, single, strict=True)
        ]

    @torch.no_grad()
    def _evaluation(self, numbers: list[int]) -> list[Row]:
        """Time an evaluation in batches as large as those of the search."""
        batch = self._blank(self._scores.batch_size)
        rows = []
        for _ in numbers:
            start = time.perf_counter()
            for _ in range(TIMED_BATCHES):
                float(self._scores(batch)[0, 0, 0])  # waits for the device
            seconds = (time.perf_counter() - start) / (TIMED_BATCHES * len(batch))
            rows.append({"seconds_an_evaluation": seconds, "batch": len(batch), "threads": torch.get_num_threads()})
        return rows


TEST = ("p", "log_naive", "log_bonferroni", "evaluations")

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "selective": TEST,
    "search": TEST,
    "interval": (*TEST, "standard_error", "true_difference"),
    "permutation": ("p", "evaluations"),
    "curves": ("statistic", "evaluations"),
    "precision": ("p", "p_float64", "p_float32", "region_changed", "evaluations"),
    "evaluation": ("seconds_an_evaluation", "threads"),
}
"""Numbers that every row of a kind of work has, unless its trial failed."""


def check_row(work: str, row: Row) -> None:
    """Raise a ValueError or KeyError unless a row has the values of its kind of work, or the error of its trial."""
    check_trial(row, NUMBERS[work], ENDS if work == "interval" else ())
    check_numbers(row, [name for name in ("iou", "batch") if name in row])
    for name in ("far", "close") if work == "curves" and "error" not in row else ():
        part = row[name]
        if not isinstance(part, dict):
            raise ValueError(f"{name} must be an object, got {type(part).__name__}")
        check_numbers(part, ["closest_to_zero"])
        points, *curves = (np.array(part[where], dtype=np.float64) for where in ("z", "inside", "outside"))
        if points.ndim != 1 or len(points) < 2 or not any(curve.size for curve in curves):
            raise ValueError(f"{name} must have two or more points z, and curves")
        if any(curve.size and curve.shape != (len(curve), len(points)) for curve in curves):
            raise ValueError(f"the curves of {name} must have a value at each of its {len(points)} points")
