"""What the rows of a series say as numbers: rates, quantiles, how the trials ended and how they were made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest.statistics.multiplicity import rate_of
from attentest.studies.records import Records, Row
from attentest.studies.reproduction.run import data_file
from attentest.studies.reproduction.series import Series

TOGETHER = 0.95
"""Probability with which a valid test stays in the band in all settings."""

QUANTILES = np.linspace(0.0, 1.0, 101)

LOG_P = {"naive": "log_naive", "bonferroni": "log_bonferroni"}
"""Fields of a row that hold the log of a p-value, by test."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The rows of one series.

    Parameters
    ----------
    series
        What was done.
    headers
        How the rows were made.
    rows
        In the order of the images.
    """

    series: Series
    headers: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, out: Path, series: Series, most: int | None = None) -> Tally | None:
        """Return the rows of a series whose images have numbers below ``most``, or None if there are none.

        Of the permutation test those with the most permutations are taken, whatever the series says.
        """
        if series.work == "permutation":
            found = _most_permutations(out, series)
            if found is None:
                return None
            series = found
        records: Records = data_file(out, series).read()
        numbers = [number for number in sorted(records.rows) if most is None or number < most]
        if not numbers:
            return None
        return cls(
            series=series, headers=tuple(records.headers), rows=tuple(records.rows[number] for number in numbers)
        )

    @property
    def good(self) -> list[Row]:
        """The rows of trials that did not fail."""
        return [row for row in self.rows if "error" not in row]

    def pvalues(self, test: str, failed: float) -> NDArray[np.float64]:
        """Return the p-values (n,) of a test; that of a failed trial is ``failed``."""
        field = LOG_P.get(test)
        return np.array(
            [
                failed if "error" in row else float(row["p"]) if field is None else float(np.exp(row[field]))
                for row in self.rows
            ]
        )

    def mean(self, field: str) -> float | None:
        """Return the mean of a field over the trials that did not fail."""
        values = [row[field] for row in self.good]
        return float(np.mean(values)) if values else None

    def ending(self) -> dict[str, Any]:
        """Return how many trials there were, how many failed, and the statuses other than "converged"."""
        statuses = Counter(row["status"] for row in self.good if row.get("status", "converged") != "converged")
        return {
            "images": len(self.rows),
            "failed": len(self.rows) - len(self.good),
            "statuses": dict(sorted(statuses.items())),
        }

    def setting(self) -> dict[str, Any]:
        """Return which setting this is, how its trials ended, and what they cost."""
        series = self.series
        return {
            "model": series.model,
            "noise": series.noise,
            "published": series.published,
            **self.ending(),
            "evaluations": self.mean("evaluations"),
            "seconds": self.mean("seconds"),
        }


def _most_permutations(out: Path, series: Series) -> Series | None:
    stem = replace(series, permutations=None).name
    folder = (out / "data" / stem).parent
    pattern = re.compile(re.escape(Path(stem).name) + r"-(\d+)\.jsonl")
    counts = [int(match[1]) for path in folder.glob("*.jsonl") if (match := pattern.fullmatch(path.name))]
    for count in sorted(counts, reverse=True):
        found = replace(series, permutations=count)
        if data_file(out, found).read().rows:
            return found
    return None


def described_rate(hits: NDArray[np.bool_]) -> dict[str, Any]:
    """Return a rate and its Wilson interval, JSON-ready."""
    rate = rate_of(hits)
    values = asdict(rate)
    del values["confidence_level"]
    return {"value": rate.value, **values}


def band(settings: int, level: float, images: int) -> tuple[float, float]:
    """Return the rates that a test with exactly this level stays between in all settings together.

    Each binomial tail is 0.05 / settings / 2, so that the probability is at least 0.95 however they depend.

    Parameters
    ----------
    settings
        How many rates are judged together.
    level
        Probability of a rejection.
    images
        Of each setting.
    """
    tail = (1 - TOGETHER) / settings / 2
    law = stats.binom(images, level)
    return float(law.ppf(tail)) / images, float(law.isf(tail)) / images


def judged_rate(hits: NDArray[np.bool_], settings: int, level: float) -> dict[str, Any]:
    """Return a rate with the band of its level, and whether it is within or above it."""
    rate = described_rate(hits)
    low, high = band(settings, level, len(hits))
    return {
        **rate,
        "level": level,
        "band": [low, high],
        "within_band": low <= rate["value"] <= high,
        "above_band": rate["value"] > high,
    }


def uniformity(pvalues: NDArray[np.float64]) -> dict[str, Any]:
    """Return how null p-values (n,) are spread: Kolmogorov-Smirnov p against uniform, and quantiles for a picture."""
    return {
        "ks_pvalue": float(stats.kstest(pvalues, "uniform").pvalue),
        "quantiles": rounded(np.quantile(pvalues, QUANTILES)),
    }


def rounded(values: Iterable[float], digits: int = 5) -> list[float]:
    """Return numbers with as many digits as a picture or table needs."""
    return [float(f"{value:.{digits}g}") for value in values]


def origin(tallies: Iterable[Tally]) -> dict[str, Any]:
    """Return how rows were made: seeds, devices, versions, and the hash of each model."""
    headers = [(tally.series, header) for tally in tallies for header in tally.headers]
    versions: dict[str, list[str]] = {}
    for _, header in headers:
        for package, version in header.get("versions", {}).items():
            known = versions.setdefault(package, [])
            if version not in known:
                known.append(version)
    return {
        "seeds": list(dict.fromkeys(header["seed"] for _, header in headers)),
        "devices": list(dict.fromkeys(header.get("device", "unknown") for _, header in headers)),
        "device_types": list(dict.fromkeys(header.get("device_type", "cpu") for _, header in headers)),
        "versions": versions,
        "models": {
            "published " * series.published + series.model: header["model_sha256"] for series, header in headers
        },
    }
