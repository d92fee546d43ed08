"""The rows of a series on disk, and the numbers that every experiment takes from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.results.records import Row
from attentest.search import CONVERGED
from attentest.studies.reproduction.recorded_fields import check_header, row_check
from attentest.studies.reproduction.run import data_file
from attentest.studies.reproduction.series import Series

LOG_P = {"naive": "log_naive", "bonferroni": "log_bonferroni"}
"""Fields of a row that hold the logarithm of a p-value, by test."""


@dataclass(frozen=True, kw_only=True)
class SeriesRows:
    """The rows of one series, in the order of the images, and the headers that say how they were made."""

    series: Series
    headers: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, out: Path, series: Series, most: int | None = None) -> SeriesRows | None:
        """Return the rows of the images with numbers below ``most``, or None if there are none.

        For the permutation test the file with the most permutations is read, whatever the series says.
        """
        if series.work == "permutation":
            series = _with_most_permutations(out, series)
        check = check_header if series.work == "precision" else None
        records = data_file(out, series).read(row_check(series.work), check)
        numbers = sorted(number for number in records.rows if isinstance(number, int))
        rows = tuple(records.rows[number] for number in numbers if most is None or number < most)
        return cls(series=series, headers=tuple(records.headers), rows=rows) if rows else None

    @property
    def good(self) -> list[Row]:
        """The rows of trials that did not fail."""
        return [row for row in self.rows if "error" not in row]

    def pvalues(self, test: str, failed: float) -> NDArray[np.float64]:
        """Return the p-values (n,) of a test; that of a failed trial is ``failed``.

        A selective p-value whose search did not converge is the end of its error bar on the side of ``failed``.
        """
        field, end = LOG_P.get(test), "p_low" if failed < 0.5 else "p_high"

        def pvalue(row: Row) -> float:
            if "error" in row:
                return failed
            if field is not None:
                return float(np.exp(row[field]))
            return float(row["p"] if row.get("status", CONVERGED) == CONVERGED else row[end])

        return np.array([pvalue(row) for row in self.rows])

    def ending(self) -> dict[str, Any]:
        """Return the numbers of trials and of failed ones, and the statuses other than "converged"."""
        good = self.good
        statuses = Counter(row["status"] for row in good if row.get("status", CONVERGED) != CONVERGED)
        return {
            "images": len(self.rows),
            "failed": len(self.rows) - len(good),
            "statuses": dict(sorted(statuses.items())),
        }

    def setting(self) -> dict[str, Any]:
        """Return which setting this is, how its trials ended, and their mean cost."""
        good = self.good
        cost = {
            field: float(np.mean([row[field] for row in good])) if good else None
            for field in ("evaluations", "seconds")
        }
        series = self.series
        which = {"model": series.model, "noise": series.noise, "published": series.published}
        return {**which, **self.ending(), **cost}


def _with_most_permutations(out: Path, series: Series) -> Series:
    stem = replace(series, permutations=None).name
    folder = (out / "data" / stem).parent
    pattern = re.compile(re.escape(Path(stem).name) + r"-(\d+)\.jsonl")
    counts = [int(match[1]) for path in folder.glob("*.jsonl") if (match := pattern.fullmatch(path.name))]
    found = (replace(series, permutations=count) for count in sorted(counts, reverse=True))
    return next((one for one in found if data_file(out, one).read().rows), series)
