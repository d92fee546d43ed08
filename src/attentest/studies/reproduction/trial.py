"""One trial: what is done to the images of a series, and the row that each becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.api import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.noise import FromImage
from attentest.results.result import AttentionTestResult
from attentest.search import Search, SpectralSearch, as_search
from attentest.studies.records import Row, isolated_rows
from attentest.studies.reproduction.series import Series

TOL = 1e-4
"""Error bar of p in the experiments: far below what thousands of images can tell."""

SEARCH = SpectralSearch(tol=TOL, precision="float64")
"""Not mixed precision where that is faster, so that numbers are the same on every device."""

PRECISE = SpectralSearch(tol=1e-6, precision="float64")
"""The search that stands for float64 where precisions are compared."""

CURVES_INSIDE, CURVES_OUTSIDE = 10, 40
"""Pixels in the region and outside it whose f_i are drawn, as in the paper."""

CURVE_REACH, CURVE_POINTS = 10.0, 801
"""How far on either side of zero, beyond the statistic, curves are drawn, and at how many points."""

CLOSE_REACH, CLOSE_POINTS = 0.1, 201
"""The same around the observed statistic, where the paper's heuristics change."""

EVALUATED_TOGETHER = 5
"""Batches over which the time of an evaluation is taken."""


class Float32Scores:
    """The scores of a model computed in float32, as the paper's are.

    Parameters
    ----------
    scores
        The model.
    """

    def __init__(self, scores: ViTScores) -> None:
        self._scores = scores
        self.image_shape, self.device, self.batch_size = scores.image_shape, scores.device, scores.batch_size

    def __call__(self, images: Tensor) -> Tensor:
        """Return scores (m, gh, gw)."""
        return self._scores.rough(images)


class Bench:
    """A model set up for the trials of one series.

    Parameters
    ----------
    series
        What is to be done.
    directory
        Where the model is.
    device
        Where to compute.
    seed
        Of the images.
    """

    def __init__(self, series: Series, directory: Path, device: torch.device | str, seed: int) -> None:
        self._series, self._seed = series, seed
        where = torch.device(series.device or device)
        self._scores = ViTScores(load_model(directory).encoder, device=where, owned=True)
        search: Search = SEARCH if series.search == "spectral" else as_search(series.search)
        self._test = self._made(self._scores, search)

    def _made(self, scores: Any, search: Search) -> AttentionTest:
        noise = FromImage("sample") if self._series.estimated else self._series.noise_model
        return AttentionTest(scores, noise=noise, search=search, confidence_level=None)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._scores.device

    def settings(self) -> dict[str, Any]:
        """Return how the test is made, JSON-ready."""
        return self._test.settings

    def warm_up(self) -> None:
        """Do something like the work once, because the first time of anything is slow."""
        self._scores(torch.zeros(2, *self._scores.image_shape, dtype=torch.float64, device=self._scores.device))

    def rows(self, numbers: list[int]) -> list[Row]:
        """Return the rows of some images, each with its share of the seconds; a trial that fails has its error."""
        return isolated_rows(self._timed, numbers)

    def _timed(self, numbers: list[int]) -> list[Row]:
        start = time.perf_counter()
        rows = WORK[self._series.work](self, numbers)
        if self._scores.device.type == "cuda":
            torch.cuda.synchronize(self._scores.device)
        seconds = (time.perf_counter() - start) / len(numbers)
        return [{"image": number, "seconds": seconds, **row} for number, row in zip(numbers, rows, strict=True)]

    def _images(self, numbers: list[int]) -> NDArray[np.float64]:
        return self._series.images(self._seed, numbers)

    def _selective(self, numbers: list[int]) -> list[Row]:
        return [_selective_row(result) for result in self._test.map(self._images(numbers))]

    def _permutation(self, numbers: list[int]) -> list[Row]:
        rows = []
        for number, image in zip(numbers, self._images(numbers), strict=True):
            rng = self._series.generator(self._seed, number, "permutations")
            permutations = self._series.permutations or 0
            result = self._test.permutation_test(image, permutations, rng)
            rows.append(
                {
                    "statistic": result.statistic,
                    "p": result.count_pvalue,
                    "p_with_observed": result.pvalue,
                    "evaluations": permutations + 1,
                }
            )
        return rows

    def _curves(self, numbers: list[int]) -> list[Row]:
        return [
            self._curves_of(image, self._series.generator(self._seed, number, "pixels"))
            for number, image in zip(numbers, self._images(numbers), strict=True)
        ]

    def _curves_of(self, image: NDArray[np.float64], rng: np.random.Generator) -> Row:
        """Return f_i of some pixels along the line through an image, far out and close to the observed statistic."""
        result = self._test(image)
        threshold = float(result.settings["threshold"])
        eta = self._test.contrast.weights(result.part, result.region, result.seen)
        direction = self._series.noise_model.apply(eta.reshape(1, -1)).reshape(image.shape) / result.standard_error
        reach = CURVE_REACH + abs(result.statistic)
        inside = rng.permutation(np.flatnonzero(result.region))[:CURVES_INSIDE]
        outside = rng.permutation(np.flatnonzero(~result.region))[:CURVES_OUTSIDE]
        curves: Row = {
            "statistic": result.statistic,
            "intervals": [list(ends) for ends in result.intervals.tolist()],
            "evaluations": result.evaluations + CURVE_POINTS + CLOSE_POINTS,
        }
        signs = np.where(result.region.reshape(-1, 1), -1.0, 1.0)
        for name, z in (
            ("far", np.linspace(-reach, reach, CURVE_POINTS)),
            ("close", result.statistic + np.linspace(-CLOSE_REACH, CLOSE_REACH, CLOSE_POINTS)),
        ):
            maps = self._test.attention_maps(image + direction * (z - result.statistic)[:, None, None])
            functions = signs * (maps.reshape(len(z), -1).T - threshold)
            curves[name] = {
                "z": _rounded(z),
                "inside": [_rounded(curve) for curve in functions[inside]],
                "outside": [_rounded(curve) for curve in functions[outside]],
                "closest_to_zero": float(np.abs(functions).min()),
            }
        return curves

    def _precision(self, numbers: list[int]) -> list[Row]:
        images = self._images(numbers)
        exact = self._test.with_search(PRECISE).map(images)
        # The same search in both precisions, so that they alone differ.
        grid = as_search("combination")
        double = self._test.with_search(grid).map(images)
        single = self._made(Float32Scores(self._scores), grid).map(images)
        return [
            {
                "p": one.pvalue,
                "p_float64": two.pvalue,
                "p_float32": three.pvalue,
                "statistic": one.statistic,
                "statistic_float32": three.statistic,
                "region": int(one.region.sum()),
                "region_changed": int(np.sum(one.region != three.region)),
                "evaluations": one.evaluations + two.evaluations + three.evaluations,
            }
            for one, two, three in zip(exact, double, single, strict=True)
        ]

    @torch.no_grad()
    def _evaluation(self, numbers: list[int]) -> list[Row]:
        """Time an evaluation in batches as large as the search makes them."""
        scores = self._scores
        batch = torch.zeros(scores.batch_size, *scores.image_shape, dtype=torch.float64, device=scores.device)

        def seconds() -> float:
            start = time.perf_counter()
            for _ in range(EVALUATED_TOGETHER):
                float(scores(batch)[0, 0, 0])  # waits for the device
            return (time.perf_counter() - start) / (EVALUATED_TOGETHER * len(batch))

        threads = torch.get_num_threads()
        return [{"seconds_an_evaluation": seconds(), "batch": len(batch), "threads": threads} for _ in numbers]


WORK: dict[str, Callable[[Bench, list[int]], list[Row]]] = {
    "selective": Bench._selective,
    "search": Bench._selective,
    "permutation": Bench._permutation,
    "curves": Bench._curves,
    "precision": Bench._precision,
    "evaluation": Bench._evaluation,
}


def _selective_row(result: AttentionTestResult) -> Row:
    low, high = result.pvalue_bounds
    return {
        "statistic": result.statistic,
        "p": result.pvalue,
        "p_low": low,
        "p_high": high,
        "log_naive": result.naive_log_pvalue,
        "log_bonferroni": result.bonferroni_log_pvalue,
        "region": int(result.region.sum()),
        "evaluations": result.evaluations,
        "status": result.status,
    }


def _rounded(values: NDArray[np.float64]) -> list[float]:
    """Return numbers for a picture: seven digits are enough."""
    return [float(f"{value:.7g}") for value in values]
