"""Data of the experiments made up without a model, with rates that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import ViTForImageClassification

from attentest import bundled_model
from attentest.studies.measures import data_file
from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS, Preset, Series, plan_of
from attentest.studies.reproduction.measures import PERMUTATION, POWER

Row = dict[str, Any]

EVALUATIONS = {"spectral": 60, "adaptive": 300, "combination": 4400, "fixed": 25_000}
SECONDS = {"spectral": 0.01, "adaptive": 0.4, "combination": 1.5, "fixed": 8.0}


@pytest.fixture(scope="session", name="small_directory")
def small_directory_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layer of the 8x8 base model: an eighth of its work, and as smooth."""
    directory = tmp_path_factory.mktemp("small")
    ViTForImageClassification.from_pretrained(bundled_model(8), num_hidden_layers=1).save_pretrained(directory)
    return directory


@pytest.fixture(name="small_base8")
def small_base8_fixture(small_directory: Path) -> Iterator[Path]:
    """A small model in the place of the bundled ones, for images of 8x8 pixels."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("attentest.studies.paper_model.bundled_model", lambda *_: small_directory)
        yield small_directory


def spread_out(images: int) -> np.ndarray:
    """P-values as even as they can be, in no order: at most alpha in a share alpha, to one image."""
    return np.random.default_rng(0).permutation((np.arange(images) + 0.5) / images)


def with_rate(images: int, rate: float) -> np.ndarray:
    """P-values of which this share is at most 0.05."""
    even = spread_out(images)
    return np.where(even <= rate, even * 0.05 / rate, 0.05 + (even - rate) / (1 - rate) * 0.95)


def selective_rows(series: Series, images: int) -> list[Row]:
    p = spread_out(images)
    if series.delta:
        p = with_rate(images, POWER[series.noise][series.delta])
    elif series.family is not None:
        factor = {"exponnorm": 2.5, "gennormflat": 0.6}.get(series.family, 1.1)
        p = np.minimum(p / (1 + (factor - 1) * (series.distance or 0) / 0.04), 1.0)
    return [selective_row(number, float(value), series.search) for number, value in enumerate(p)]


def selective_row(number: int, p: float, search: str = "spectral") -> Row:
    return {
        "image": number,
        "seconds": SECONDS[search],
        "statistic": 2.0,
        "p": p,
        "p_low": p,
        "p_high": p,
        "log_naive": -8.0 if p < 0.8 else -1.0,
        "log_bonferroni": 0.0,
        "evaluations": EVALUATIONS[search],
        "status": "converged",
    }


def interval_rows(series: Series, images: int) -> list[Row]:
    """Intervals of which 4% miss the true difference; the longest are as long as their bounds, but for an error."""
    rate = min(0.99, POWER[series.noise][series.delta] * (1 + series.randomise)) if series.delta else 0.05
    bound = float(np.sqrt(1 + 1 / series.randomise**2)) if series.randomise else None
    half = 10.0 if bound is None else bound
    rows = []
    for number, p in enumerate(with_rate(images, rate)):
        centre = series.delta if number % 25 else series.delta + 1.5 * half
        interval = {"confidence_low": centre - half, "confidence_high": centre + half + 1e-3, "confidence_error": 1e-3}
        row = {
            **selective_row(number, float(p)),
            **interval,
            "confidence_bound": bound,
            "true_difference": series.delta,
        }
        row["standard_error"] = 1 / 1.959963984540054  # the naive interval has length 2
        row["evaluations"] = 100 - int(10 * series.randomise)
        rows.append(row | ({"iou": 0.5} if series.delta else {}))
    return rows


def permutation_rows(series: Series, images: int) -> list[Row]:
    rate = PERMUTATION.get(series.model, 0.2) if series.noise == "correlated" else 0.05
    cost = {"seconds": 0.02, "statistic": 2.0, "evaluations": 1001}
    return [
        {"image": i, "p": float(p), "p_with_observed": float(p), **cost} for i, p in enumerate(with_rate(images, rate))
    ]


def curve_row(number: int, bent: bool = False, close: float = 0.01) -> Row:
    """Curves that are straight lines, or sines that are not."""
    statistic = 2.5 + number / 10
    row: Row = {"image": number, "seconds": 1.0, "statistic": statistic, "evaluations": 1000}
    reach = 10 + statistic
    for name, z in (("far", np.linspace(-reach, reach, 801)), ("close", statistic + np.linspace(-0.1, 0.1, 201))):
        shape = np.sin(25 * z) / 4 if bent else (z - statistic) / 20
        inside = [shape - close - k / 40 for k in range(4)]
        outside = [shape * (0.2 + k / 10) - close - k / 20 for k in range(6)]
        row[name] = {
            "z": z.tolist(),
            "inside": [curve.tolist() for curve in inside],
            "outside": [curve.tolist() for curve in outside],
            "closest_to_zero": float(np.abs([*inside, *outside]).min()),
        }
    return row


def curve_rows(series: Series, images: int) -> list[Row]:
    return [curve_row(number) for number in range(images)]


def precision_rows(series: Series, images: int) -> list[Row]:
    p = spread_out(images)
    return [
        {
            "image": i,
            "seconds": 0.5,
            "p": float(p[i]),
            "p_float64": float(p[i]),
            "p_float32": float(min(1.0, p[i] + (0.2 if i == 1 else 1e-4))),
            "region_changed": int(i == 1) * 3,
            "evaluations": 9000,
        }
        for i in range(images)
    ]


def evaluation_rows(series: Series, images: int) -> list[Row]:
    return [{"image": i, "seconds": 1.0, "seconds_an_evaluation": 0.005, "threads": 2} for i in range(images)]


ROWS: dict[str, Callable[[Series, int], list[Row]]] = {
    "selective": selective_rows,
    "interval": interval_rows,
    "search": selective_rows,
    "permutation": permutation_rows,
    "curves": curve_rows,
    "precision": precision_rows,
    "evaluation": evaluation_rows,
}


def header_of(series: Series) -> dict[str, Any]:
    return {
        "series": {"work": series.work, "family_shape": None},
        "seed": 7,
        "model_sha256": f"{len(series.model)}abc{'f' * 60}",
        "settings": {"model": {"input": [1, 64, 64]}},
        "device": "some GPU",
        "device_type": "cuda",
        "versions": {"attentest": "0.1.0", "python": "3.11.7"},
    }


def write_series(out: Path, series: Series, rows: Iterable[Row]) -> None:
    header = header_of(series)
    with data_file(out, series.name).writing(header) as writer:
        writer.add(list(rows))


def write_everything(out: Path, images: int = 200, preset: Preset = PRESETS["full"]) -> None:
    """Write data of every experiment, with the authors' models too."""
    limited = preset.limited(images, None)
    for series, count in plan_of(EXPERIMENTS.values(), limited, True).items():
        write_series(out, series, ROWS[series.work](series, count))
