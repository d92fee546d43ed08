"""What studies share: running series of trials, their rows on disk, rates of rejection, and lengths of intervals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from attentest.errors import InputError
from attentest.progress import LabelledProgress
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, Work
from attentest.runs.record_lines import add_line
from attentest.runs.records import RUNS, RecordFile, Row, RowCheck, check_numbers, check_texts, described_machine
from attentest.search import CONVERGED
from attentest.statistics.inference import ConfidenceInterval
from attentest.statistics.multiple_testing import rate_of

CONFIDENCE_LEVEL = 0.95

LOG_P = {"naive": "log_naive", "bonferroni": "log_bonferroni"}
"""Fields of a row that hold the logarithm of a p-value, by test."""

REJECTED, MISSED = 0.0, 1.0
"""p-value of a failed trial: a rejection where there is nothing to find, a miss where there is."""

ENDS = ("confidence_low", "confidence_high", "confidence_error", "confidence_bound")
"""Numbers of an interval in a row, None where it is infinite."""

QUANTILES = np.linspace(0.0, 1.0, 101)  # probabilities at which the quantiles of p-values are drawn
BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 0
INTERVAL = (2.5, 97.5)  # percentiles of a 95% interval
ROUNDING = 1e-9  # relative, by which an interval may exceed its bound
ERRORS_SHOWN, ERROR_LENGTH = 5, 300  # kinds of errors that are listed, and characters of each


@dataclass(frozen=True, kw_only=True)
class PlannedSeries:
    """Trials to be made under one setting, whose rows go to a file of their own."""

    file: RecordFile
    numbers: Iterable[int]  # of the images
    identity: Mapping[str, Any]  # fields of the header that all rows of the file must share, known before the work is
    work: Callable[[], tuple[Work[int, Row], Mapping[str, Any]]]  # what makes the rows, and the rest of the header
    engine: Engine  # does the work
    label: str  # for progress
    cost: float = 1  # of a trial, in any unit
    check: RowCheck | None = None  # of the rows that the file has

    def missing(self, retry: bool) -> list[int]:
        """Return the images without a row, with ``retry`` also those whose trial failed; other data are an error."""
        records = self.file.read(self.check)
        self.file.check_same(records, self.identity)
        return records.missing(self.numbers, retry)

    def rows(self, numbers: list[int], retry: bool) -> Iterator[list[Row]]:
        """Yield the rows of images as they reach the disk, in any order; only this process writes.

        Images that another run has made by now are left out. The header has this machine and the engine, which may
        differ within a file.
        """
        work, rest = self.work()
        header = {**self.identity, **rest, **described_machine(work.device), **self.engine.describe()}
        with self.file.writing(header) as writer:
            for _, rows in self.engine.run(work, writer.records.missing(numbers, retry)):
                writer.add(rows)
                yield rows


def data_file(out: Path, name: str) -> RecordFile:
    """Return the file of the rows of a series in the directory of a study."""
    return RecordFile(out / "data" / f"{name}.jsonl")


def run_series(
    planned: Sequence[PlannedSeries], record: dict[str, Any], counter: str, retry: bool, progress: LabelledProgress
) -> None:
    """Make the rows that the files of series lack, and add how many there were and failed to the record of the run.

    ``counter`` is the field of the record for the number of trials.
    """
    todo = [series.missing(retry) for series in planned]
    total = sum(series.cost * len(numbers) for series, numbers in zip(planned, todo, strict=True))
    done = 0.0
    for series, numbers in zip(planned, todo, strict=True):
        for rows in series.rows(numbers, retry) if numbers else ():
            record[counter] += len(rows)
            record["failed"] += len(rows) - len(succeeded(rows))
            done += series.cost * len(rows)
            progress(done, total, series.label)


@contextmanager
def recorded_run(out: Path, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of a run, for the caller to change, and add them to the runs of a directory when it ends.

    A run that has trained and tried nothing is not recorded.
    """
    start = time.perf_counter()
    values |= {"began": datetime.now(UTC).isoformat(timespec="seconds"), "failed": 0, "finished": False}
    try:
        yield values
        values["finished"] = True
    finally:
        values["seconds"] = round(time.perf_counter() - start, 3)
        if any(values.get(name) for name in ("trained", "trials", "tested")):
            # What stopped a run matters more than that it cannot be recorded.
            with nullcontext() if values["finished"] else suppress(InputError):
                add_line(out / RUNS, values)


def result_values(result: AttentionTestResult, interval: ConfidenceInterval | None = None) -> Row:
    """Return the values of a result, and of its interval if there is one, that rows hold; None for infinite ends."""
    row: Row = {
        "statistic": result.statistic,
        "p": result.pvalue,
        "p_low": result.pvalue_bounds[0],
        "p_high": result.pvalue_bounds[1],
        "log_naive": result.naive_log_pvalue,
        "log_bonferroni": result.bonferroni_log_pvalue,
        "region": int(result.region.sum()),
        "evaluations": result.evaluations,
        "status": result.status,
    }
    if interval is not None:
        row["standard_error"] = result.standard_error
        values = (interval.low, interval.high, interval.error, result.interval_bound)
        row |= {name: float(value) if np.isfinite(value) else None for name, value in zip(ENDS, values, strict=True)}
    return row


def check_trial(row: Row, numbers: Iterable[str], nullable: Iterable[str] = ()) -> None:
    """Raise a ValueError or KeyError unless a row has its numbers or an error; some of them may be None."""
    check_numbers(row, ["image"])
    if "error" in row:
        return
    check_numbers(row, numbers)
    check_numbers(row, [name for name in nullable if row[name] is not None])
    if row.get("status", CONVERGED) != CONVERGED:
        check_texts(row, ["status"])
        check_numbers(row, ["p_low", "p_high"])


def succeeded(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of trials that did not fail."""
    return [row for row in rows if "error" not in row]


def ending(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of trials and of failed ones, the most frequent errors, and statuses but "converged"."""
    good = succeeded(rows)
    errors = Counter(str(row["error"])[:ERROR_LENGTH] for row in rows if "error" in row)
    statuses = Counter(row["status"] for row in good if row.get("status", CONVERGED) != CONVERGED)
    return {
        "images": len(rows),
        "failed": len(rows) - len(good),
        "errors": dict(errors.most_common(ERRORS_SHOWN)),
        "statuses": dict(sorted(statuses.items())),
    }


def pvalues(rows: Sequence[Row], test: str, failed: float) -> NDArray[np.float64]:
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

    return np.array([pvalue(row) for row in rows])


def uniformity(values: Sequence[float] | NDArray[np.float64], digits: int) -> dict[str, Any]:
    """Return how p-values compare with the uniform distribution: the Kolmogorov-Smirnov p, and their quantiles."""
    if not len(values):
        return {"ks_pvalue": None, "quantiles": []}
    ks_pvalue = float(kstest(values, "uniform").pvalue)
    return {"ks_pvalue": ks_pvalue, "quantiles": rounded(np.quantile(values, QUANTILES), digits)}


def mean_of(rows: Sequence[Row], field: str) -> float | None:
    """Return the mean of a field of rows, None if there are no rows."""
    return float(np.mean([row[field] for row in rows])) if rows else None


def rounded(values: Iterable[float | None], digits: int) -> list[Any]:
    """Return numbers with as many digits as a figure needs."""
    return [None if value is None else float(f"{value:.{digits}g}") for value in values]


def rate(hits: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the share of images (n,) that are hits with its Wilson interval, JSON-ready."""
    share = rate_of(hits)
    values = asdict(share)
    del values["confidence_level"]
    return {"value": share.value, **values}


def clustered_rate(hits: NDArray[np.bool_], patients: NDArray[np.str_]) -> dict[str, Any]:
    """Return the share of slices (m,) that are hits, with a 95% interval from drawing patients with replacement."""
    names, owner = np.unique(patients, return_inverse=True)
    slices = np.bincount(owner)
    hits_of_patient = np.bincount(owner, weights=hits)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), BOOTSTRAP_DRAWS)
    low, high = np.percentile(drawn @ hits_of_patient / (drawn @ slices), INTERVAL)
    return {"value": float(hits.mean()), "low": float(low), "high": float(high), "count": int(hits.sum())}


def interval_lengths(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Return how long the intervals of rows are, in units of the naive ones, and how many exceed their bounds.

    None if no row has an interval. There are bounds after randomised selection; each end may lie outside that of the
    exact interval by what its search left open, and this does not count.
    """
    rows = [row for row in rows if "confidence_low" in row]
    if not rows:
        return None
    low, high, error, bound = (np.array([row[name] for row in rows], dtype=float) for name in ENDS)  # None is nan
    naive = 2 * norm.ppf((1 + CONFIDENCE_LEVEL) / 2) * np.array([row["standard_error"] for row in rows])
    length = high - low
    ratio = np.sort(np.where(np.isnan(length), np.inf, length) / naive)
    over = (length - 2 * error) / (bound * naive)
    over = over[np.isfinite(over)]
    return {
        "median": float(ratio[len(ratio) // 2]) if np.isfinite(ratio[len(ratio) // 2]) else None,
        "mean": float(ratio.mean()) if np.isfinite(ratio[-1]) else None,
        "infinite": int(np.isinf(ratio).sum()),
        "bound": float(np.nanmax(bound)) if np.isfinite(bound).any() else None,
        "bounded": len(over),
        "over_bound": int((over > 1 + ROUNDING).sum()),
        "longest": float(over.max()) if len(over) else None,
    }
