"""The numbers of each experiment, one entry per setting, from the rows of its series."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest.runs.records import Row
from attentest.simulation.calibration import ALPHAS
from attentest.studies import measures as shared
from attentest.studies.paper_model import model_name
from attentest.studies.reproduction.experiment import EXPERIMENTS, Series
from attentest.studies.reproduction.trial import check_row


@dataclass(frozen=True, kw_only=True)
class SeriesRows:
    """The rows of one series, in the order of the images, and the headers that say how they were made."""

    series: Series
    headers: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, out: Path, series: Series) -> SeriesRows | None:
        """Return the rows of a series, or None if there are none.

        For the permutation test the file with the most permutations is read, whatever the series says.
        """
        if series.work == "permutation":
            series = _with_most_permutations(out, series)
        check = _check_header if series.work == "precision" else None
        records = shared.data_file(out, series.name).read(partial(check_row, series.work), check)
        numbers = sorted(number for number in records.rows if isinstance(number, int))
        rows = tuple(records.rows[number] for number in numbers)
        return cls(series=series, headers=tuple(records.headers), rows=rows) if rows else None

    def below(self, most: int) -> SeriesRows | None:
        """Return the rows of the images with numbers below ``most``, or None if there are none."""
        rows = tuple(row for row in self.rows if row["image"] < most)
        return replace(self, rows=rows) if rows else None

    @property
    def good(self) -> list[Row]:
        """The rows of trials that did not fail."""
        return shared.succeeded(self.rows)

    def rejections(self, test: str, failed: float, level: float) -> NDArray[np.bool_]:
        """Return for each image (n,) whether a test rejects at a level; a failed trial has the p-value ``failed``."""
        return shared.pvalues(self.rows, test, failed) <= level

    def setting(self) -> dict[str, Any]:
        """Return which setting this is, how its trials ended, and their mean cost."""
        series, good = self.series, self.good
        which = {"model": series.model, "noise": series.noise, "published": series.published}
        ended = {name: value for name, value in shared.ending(self.rows).items() if name != "errors"}
        return {**which, **ended, **{field: shared.mean_of(good, field) for field in ("evaluations", "seconds")}}

    def uniformity(self) -> dict[str, Any]:
        """Return how the selective p-values of null images compare with the uniform distribution."""
        return shared.uniformity(shared.pvalues(self.rows, "selective", shared.REJECTED), DIGITS)


def _check_header(header: Mapping[str, Any]) -> None:
    """Check that the settings in a header of rows say what the model takes."""
    shape = header["settings"]["model"]["input"]
    if not isinstance(shape, list) or len(shape) != 3:
        raise ValueError("the input in the settings of the model must be three numbers")


def _with_most_permutations(out: Path, series: Series) -> Series:
    stem = replace(series, permutations=None).name
    folder = (out / "data" / stem).parent
    pattern = re.compile(re.escape(Path(stem).name) + r"-(\d+)\.jsonl")
    counts = [int(match[1]) for path in folder.glob("*.jsonl") if (match := pattern.fullmatch(path.name))]
    others = (replace(series, permutations=count) for count in sorted(counts, reverse=True))
    return next((other for other in others if shared.data_file(out, other.name).read().rows), series)


POWER: Mapping[str, Mapping[float, float]] = {
    "independent": {1.0: 0.145, 2.0: 0.574, 3.0: 0.882, 4.0: 0.936},
    "correlated": {1.0: 0.102, 2.0: 0.345, 3.0: 0.689, 4.0: 0.832},
}
"""Power of the selective test, by strength of the signal (figure 6)."""

PERMUTATION: Mapping[str, float] = {"base8": 0.171, "base16": 0.220, "base32": 0.428, "base64": 0.669}
"""Type I error of the permutation test with correlated noise, by model (figure 4)."""

SECONDS = {"adaptive": (46.0, 81.0), "combination": (206.0, 1450.0), "fixed": (1500.0, 8080.0)}
"""Least and most seconds per image of each search on the authors' machine (figures 7 and 8)."""

IMAGES = 1000  # of each published rate

COUNTS = {
    **{"type-i-error": 1000, "additional-trials": 10_000, "estimated-variance": 10_000, "non-gaussian": 10_000},
    **{"power": 1000, "series-type-i-error": 10_000, "series-power": 10_000},
}
"""Images per setting in the paper, by experiment."""

Setting: TypeAlias = dict[str, Any]  # the numbers of one setting of an experiment, JSON-ready
LEVEL = 0.05  # significance level of the paper's main text
TOGETHER = 0.95  # probability with which a valid test stays in the band in all settings
DIGITS = 5  # of numbers in figures
STEP = 0.2  # the paper's largest grid width, over which f_i is taken for linear
NEAR = 0.1  # distance from the statistic within which f_i is not taken for linear
BEND = 0.1  # a curve is bent where it leaves its chord by more than this share of its change...
SMALLEST_CHANGE = 0.01  # ...which counts as at least this; attention lies between 0 and 1
CURVE_POINTS = 120  # of a curve in a figure
PAIRS = 1000  # most pairs of p-values in a figure


def label(setting: Setting) -> str:
    """Return a setting in words: "base 16x16, independent noise"."""
    authors = ", authors' model" if setting["published"] else ""
    return f"{model_name(setting['model'])}{authors}, {setting['noise']} noise"


def chosen(settings: Iterable[Setting], **wanted: Any) -> list[Setting]:
    """Return the settings whose fields have the wanted values."""
    return [setting for setting in settings if all(setting[name] == value for name, value in wanted.items())]


def band(settings: int, level: float, images: int) -> tuple[float, float]:
    """Return the rates between which a test with exactly this level stays in all settings together.

    Each binomial tail is 0.05 / settings / 2, so that the probability is at least 0.95 whatever the dependence.
    """
    tail = (1 - TOGETHER) / settings / 2
    law = stats.binom(images, level)
    return float(law.ppf(tail)) / images, float(law.isf(tail)) / images


def judged_rate(hits: NDArray[np.bool_], settings: int, level: float) -> dict[str, Any]:
    """Return a rate with the band of its level, and whether it is within or above it."""
    share = shared.rate(hits)
    low, high = band(settings, level, len(hits))
    inside, above = low <= share["value"] <= high, share["value"] > high
    return {**share, "level": level, "band": [low, high], "within_band": inside, "above_band": above}


def permutation_level(alpha: float, permutations: int) -> float:
    """Return how often count / B is at most alpha for exchangeable pixels, where all ranks are equally likely."""
    # Up to a rounding of alpha * B, for which 0.05 * 1000 must be 50.
    return (int(alpha * permutations + 1e-9) + 1) / (permutations + 1)


def type_i_error(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return the rates of all four tests at 0.05."""
    together = _together(rows, series)
    tests = {
        test: judged_rate(rows.rejections(test, shared.REJECTED, LEVEL), together, LEVEL)
        for test in ("selective", "naive", "bonferroni")
    }
    entry = {**rows.setting(), **rows.uniformity(), "tests": tests, "permutation": None}
    for other in series:
        if other is not rows and replace(other.series, work="selective", permutations=None) == rows.series:
            count = other.series.permutations or 1
            hits = other.rejections("permutation", shared.REJECTED, LEVEL)
            tests["permutation"] = judged_rate(hits, together, permutation_level(LEVEL, count))
            entry["permutation"] = {**other.setting(), "permutations": count}
    return [entry]


def _together(rows: SeriesRows, series: Sequence[SeriesRows]) -> int:
    """Return the number of settings with which a setting shares its band: those with attentest's models, or others."""
    which = (rows.series.work, rows.series.published)
    return sum((other.series.work, other.series.published) == which for other in series)


def null_levels(rows: SeriesRows, series: Sequence[SeriesRows], alphas: Sequence[float] = ALPHAS) -> list[Setting]:
    """Return the rates of the selective test at several levels."""
    together = len(series) * len(alphas)
    levels = {
        f"{alpha:g}": judged_rate(rows.rejections("selective", shared.REJECTED, alpha), together, alpha)
        for alpha in alphas
    }
    entry = {**rows.setting(), **rows.uniformity(), "levels": levels}
    if rows.series.family is not None:
        shape = rows.headers[0]["series"]["family_shape"]
        entry |= {"family": rows.series.family, "distance": rows.series.distance, "shape": shape}
    return [entry]


def power(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return how often the selective and the Bonferroni test find a signal, at 0.05."""
    tests = {test: shared.rate(rows.rejections(test, shared.MISSED, LEVEL)) for test in ("selective", "bonferroni")}
    return [{**rows.setting(), "delta": rows.series.delta, "tests": tests}]


def our_tests(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return the share rejected at 0.05, and what 95% intervals cover and how long they are: ours and the paper's."""
    test, good, together = rows.series, rows.good, _together(rows, series)
    rejected = rows.rejections("selective", shared.MISSED if test.delta else shared.REJECTED, LEVEL)
    missed = np.array([_misses(row) for row in rows.rows])
    entry = {
        **rows.setting(),
        **{name: getattr(test, name) for name in ("test", "region", "randomise", "delta")},
        "rejected": shared.rate(rejected) if test.delta else judged_rate(rejected, together, LEVEL),
        "missed": judged_rate(missed, together, LEVEL),
        "length": shared.interval_lengths(good),
        "iou": shared.mean_of([row for row in good if "iou" in row], "iou"),
    }
    return [entry]


def _misses(row: Mapping[str, Any]) -> bool:
    """Return whether an interval misses the true difference, or there is none because the trial failed."""
    if "error" in row:
        return True
    low, high, truth = (row[name] for name in ("confidence_low", "confidence_high", "true_difference"))
    return (low is not None and truth < low) or (high is not None and truth > high)


def search_times(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return seconds and evaluations per image of a search, and their ratios to those of the spectral search."""
    devices = list(dict.fromkeys(header["device"] for header in rows.headers))
    entry = {**rows.setting(), "search": rows.series.search, "devices": devices}
    spectral = replace(rows.series, search="spectral")
    reference = next((other.setting() for other in series if other.series == spectral), {})
    for name in ("seconds", "evaluations"):
        known = entry[name] is not None and reference.get(name)
        entry[f"{name}_ratio"] = entry[name] / reference[name] if known else None
    return [entry]


def demonstration(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return, for each image, how straight its f_i are, how close to zero, and the curves thinned for a figure."""
    settings = []
    for row in rows.good:
        far, close = ({name: np.array(values) for name, values in row[part].items()} for part in ("far", "close"))
        curves, near = (
            np.vstack([part[name] for name in ("inside", "outside") if part[name].size]) for part in (far, close)
        )
        entry = {
            "image": row["image"],
            "statistic": row["statistic"],
            "bent": shared.rate(bent_steps(far["z"], curves, row["statistic"])),
            "smallest_close": float(close["closest_to_zero"]),
            "median_close": float(np.median(np.abs(near).min(axis=1))),
        }
        for name, part in (("far", far), ("close", close)):
            count = len(part["z"])
            points = np.unique(np.linspace(0, count - 1, min(CURVE_POINTS, count)).round().astype(int))
            thinned = {
                group: [shared.rounded(curve[points], 4) for curve in part[group]] for group in ("inside", "outside")
            }
            entry[name] = {"z": shared.rounded(part["z"][points], DIGITS), **thinned}
        settings.append(entry)
    return settings


def bent_steps(z: NDArray[np.float64], curves: NDArray[np.float64], statistic: float) -> NDArray[np.bool_]:
    """Return, for each step of 0.2 and each curve, whether it leaves its chord by more than a tenth of its change.

    The points z (m,) of the curves (k, m) are equally spaced. Steps within 0.1 of the statistic do not count.
    """
    width = max(2, int(STEP / (z[1] - z[0]) + 1e-6))
    bent = []
    for start in range(0, len(z) - width, width):
        at = slice(start, start + width + 1)
        if z[at][0] < statistic + NEAR and z[at][-1] > statistic - NEAR:
            continue
        first, last = curves[:, start], curves[:, start + width]
        chord = first[:, None] + (last - first)[:, None] * (np.arange(width + 1) / width)
        bend = np.abs(curves[:, at] - chord).max(axis=1)
        bent.append(bend > BEND * np.maximum(np.abs(last - first), SMALLEST_CHANGE))
    return np.concatenate(bent)


def precision(rows: SeriesRows, series: Sequence[SeriesRows]) -> list[Setting]:
    """Return how regions and p-values in float32 and float64 differ, if a trial succeeded."""
    if not (good := rows.good):
        return []
    p, double, single = (np.array([row[name] for row in good]) for name in ("p", "p_float64", "p_float32"))
    changed = np.array([row["region_changed"] for row in good])
    worst = good[int(np.argmax(np.abs(single - p)))]
    names = ("image", "p", "p_low", "p_high", "status", "p_float64", "p_float32", "region_changed")
    entry = {
        **rows.setting(),
        "region_differs": shared.rate(changed > 0),
        "pixels_changed": {"mean": float(changed.mean()), "most": int(changed.max())},
        "pixels": rows.headers[0]["settings"]["model"]["input"][-2:],
        "float32": _distances(single, p),
        "float64": _distances(double, p),
        "worst": {name: worst[name] for name in names if name in worst},
        "pairs": [[*shared.rounded((p[i], single[i]), DIGITS), bool(changed[i])] for i in range(min(PAIRS, len(good)))],
    }
    return [entry]


def _distances(p: NDArray[np.float64], exact: NDArray[np.float64]) -> dict[str, Any]:
    gaps = np.quantile(np.abs(p - exact), [0.5, 0.9, 1.0]).tolist()
    changes = shared.rate((p <= LEVEL) != (exact <= LEVEL))
    return {**dict(zip(("median", "ninety_percent", "greatest"), gaps, strict=True)), "verdict_changes": changes}


MEASURES: Mapping[str, Callable[[SeriesRows, Sequence[SeriesRows]], list[Setting]]] = {
    "type-i-error": type_i_error,
    "additional-trials": null_levels,
    "power": power,
    "computation-time": search_times,
    "estimated-variance": null_levels,
    "non-gaussian": partial(null_levels, alphas=(0.05, 0.01)),
    "demonstration": demonstration,
    "precision": precision,
}
"""For each kind of experiment, the function from the rows of a series, and of all its series, to settings."""


def measured(experiment: str, series: Sequence[SeriesRows]) -> dict[str, list[Setting]]:
    """Return the numbers of an experiment, one entry per setting: those of the paper's tests, and of ours."""
    paper, ours = ([rows for rows in series if rows.series.ours == which] for which in (False, True))
    main = [rows for rows in paper if rows.series.work not in ("permutation", "evaluation")]  # which are beside others
    return {
        "settings": [setting for rows in main for setting in MEASURES[EXPERIMENTS[experiment].kind](rows, paper)],
        "ours": [setting for rows in ours for setting in our_tests(rows, ours)],
    }
