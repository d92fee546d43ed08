"""All numbers of the page, computed from the files of a study, the statements that they decide, and the examples."""

from __future__ import annotations

import json
import operator
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from attentest.cohort.means import Estimate, regression
from attentest.errors import InputError
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import FailedImage
from attentest.runs.records import Row, check_numbers, check_texts, read_runs
from attentest.simulation.calibration import ALPHAS
from attentest.statistics.multiple_testing import least_differing
from attentest.studies import measures
from attentest.studies.brain.classifier import auc, has_both_classes
from attentest.studies.brain.condition import CONDITIONS, ESTIMATORS, OUR_CONDITIONS, PAPER, Condition, Split
from attentest.studies.brain.dataset import Slices
from attentest.studies.brain.study import FACTS, RUN_FIELDS, TRAINING_FIELDS, SliceTests, read_record
from attentest.studies.document import NO_DATA, Verdict, rate_text
from attentest.studies.measures import CONFIDENCE_LEVEL, LOG_P, MISSED, REJECTED, mean_of, rounded, succeeded

Summary: TypeAlias = Mapping[str, Any]

FORMAT = 1  # version of the summary's format

CLASSES: Mapping[str, bool] = {"tumour": True, "free": False}
"""Names of the classes, and whether they have a tumour."""

SPREADS = ("statistic", "log_naive", "difference", "standard_error", "region", "in_the_dark", "in_tumour")
"""Fields of rows whose quantiles are reported."""

NUMBERS_OF_ROWS = (*SPREADS, "log_p", "log_bonferroni", "p", "p_low", "p_high", "evaluations")
"""Numbers that the row of every tested slice must have."""

ROOM_CONDITIONS = tuple(condition for condition in OUR_CONDITIONS if not condition.ours)
"""Those of which the room of every slice is shown: with the paper's selection, beside which ours are."""

DIGITS = 4  # of numbers in figures
OVERLAPS = (0.0, 0.1, 0.3, 1.0)  # ends of the classes of IoU; slices without any overlap are a class of their own


def summarise(out: Path) -> dict[str, Any]:
    """Return the numbers of a study, JSON-ready, from the directory that ``attentest brain`` wrote."""
    try:
        facts: dict[str, Any] = json.loads((out / FACTS).read_text(encoding="utf-8"))
        check_texts(facts, ["command"])
        check_numbers(facts["data"]["split"]["test"], ["with_tumour", "without_tumour"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(f"{out / FACTS} cannot be read ({error}): run attentest brain first.") from None
    files = {
        condition: measures.data_file(out, condition.name).read(_check_row, _check_header) for condition in CONDITIONS
    }
    rows = {condition: [row for _, row in sorted(file.rows.items())] for condition, file in files.items()}
    if not rows[PAPER]:
        raise InputError(f"{out} holds no tested slices: run attentest brain first, or name its directory.")
    # The most slices of a class under other conditions than the paper's, all of them if it is all of the test.
    counts = [Counter(row["tumour"] for row in tested) for condition, tested in rows.items() if condition != PAPER]
    most = max((number for count in counts for number in count.values()), default=0)
    test = facts["data"]["split"]["test"]
    few = "all" if most and most >= max(test["with_tumour"], test["without_tumour"]) else f"{most}"
    record = read_record(out)
    by_patient = list(record["performance"]["by_patient"].values())  # without the names of the patients
    return {
        "format": FORMAT,
        "command": f"{facts['command']} --sensitivity-images {few}",
        "data": facts["data"],
        "noise": {
            condition.noise: file.headers[-1]["settings"]["noise"]
            for condition, file in files.items()
            if condition.noise in ESTIMATORS and file.headers
        },
        "classifier": {
            **{name: record[name] for name in TRAINING_FIELDS if name != "data"},
            "performance": {**record["performance"], "by_patient": by_patient},
        },
        "runs": read_runs(out, RUN_FIELDS, _check_run),
        "conditions": [
            {"name": condition.name, **vars(condition), **_condition(tested), "together": _together(condition, tested)}
            for condition, tested in rows.items()
            if tested
        ],
        "overlap": _overlap(rows[PAPER]),
        "slices": _points(rows[PAPER]),
        "room": [
            {"name": condition.name, **vars(condition), **_room(rows[condition])}
            for condition in ROOM_CONDITIONS
            if rows[condition]
        ],
    }


def _check_header(header: Mapping[str, Any]) -> None:
    """Check that a header says what the noise is."""
    dict(header["settings"]["noise"])


def _check_row(row: Row) -> None:
    """Check that a row has the values which the summary needs."""
    if type(row["tumour"]) is not bool or not isinstance(row["patient"], str):
        raise ValueError("it has no class or no patient")
    unbiased = "estimate" in row  # after randomised selection
    nullable = (*(measures.ENDS if "confidence_low" in row else ()), *(["noise_degrees"] if unbiased else ()))
    measures.check_trial(row, (*NUMBERS_OF_ROWS, *(["estimate"] if unbiased else ())), ("iou", "room", *nullable))
    if "error" not in row:
        check_texts(row, ["status"])
        if not (row["iou"] is None or 0 <= row["iou"] <= 1):
            raise ValueError(f"iou must lie between 0 and 1, got {row['iou']}")


def _check_run(entry: Mapping[str, Any]) -> None:
    """Check that a run has its time and place."""
    check_numbers(entry, ["seconds", "trained", "tested", "failed"])
    check_texts(entry, ["began", "device"])


def _condition(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of a condition, for each class and for both."""
    good = succeeded(rows)
    classes = {name: [row for row in rows if row["tumour"] == tumour] for name, tumour in CLASSES.items()}
    return {
        "classes": {name: _class(slices, CLASSES[name]) for name, slices in classes.items() if slices},
        "separation": _separation(good, "log_p"),
        "naive_separation": _separation(good, "log_naive"),
        "seconds": float(sum(row["seconds"] for row in rows)),
        "evaluations": mean_of(good, "evaluations"),
    }


def _together(condition: Condition, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return what slices show together, with patients as clusters; None unless all have unbiased estimates.

    ``means`` are None if slices share the noise of a reference, or are of too few patients, and leave out slices that
    could not be tested; for ``at_least``, how many truly differ, these do not.
    """
    good = succeeded(rows)
    if not good or not all("estimate" in row for row in good):
        return None
    shared = condition.contrast == "reference"
    # Upper ends of error bars are valid whatever the searches left open.
    log_p = np.log([MISSED if "error" in row else row["p_high"] for row in rows])
    tumour = np.array([row["tumour"] for row in rows])
    bounds = partial(least_differing, log_p, alpha=1 - CONFIDENCE_LEVEL, dependence="any" if shared else "positive")
    naive = {name: [row for row in good if row["tumour"] == of] for name, of in CLASSES.items()}
    return {
        "slices": len(good),
        "patients": len({row["patient"] for row in good}),
        "naive": {name: mean_of(slices, "difference") for name, slices in naive.items()},
        "means": None if shared else _means(good),
        "at_least": {name: bounds(tumour == of) for name, of in CLASSES.items()},
    }


def _means(good: Sequence[Row]) -> dict[str, Any] | None:
    """Return the mean difference of each class, and that with tumour less that without, in grey levels."""
    tumour, naive, estimate = (np.array([row[key] for row in good]) for key in ("tumour", "difference", "estimate"))
    patients, cluster = np.unique([row["patient"] for row in good], return_inverse=True)
    degrees = min(np.inf if row["noise_degrees"] is None else row["noise_degrees"] for row in good)
    if not has_both_classes(tumour) or len(patients) < 3:  # more than there are coefficients
        return None

    def fit(indicator: NDArray[np.bool_]) -> list[Estimate]:
        design = np.column_stack([np.ones(len(good)), indicator])
        return regression(design, estimate, cluster, CONFIDENCE_LEVEL, estimate - naive, degrees)

    try:
        (free, difference), (with_tumour, _) = fit(tumour), fit(~tumour)
    except InputError:  # all slices of a class are of one patient
        return None
    return {"tumour": vars(with_tumour), "free": vars(free), "difference": vars(difference)}


def _separation(good: Sequence[Row], key: str) -> float | None:
    """Return the probability that of two slices, one of each class, the one with tumour has the smaller p-value."""
    tumour = np.array([row["tumour"] for row in good], dtype=bool)
    return auc([-row[key] for row in good], tumour) if has_both_classes(tumour) else None


def _class(rows: Sequence[Row], tumour: bool) -> dict[str, Any]:
    """Return the numbers of a class.

    A slice that could not be tested counts against the claim: as rejected without tumour, as not rejected with one,
    and as not rejected by the naive test, of which the paper says that it always rejects. Likewise, if the search of a
    slice did not converge, the end of the error bar counts that is against the claim.
    """
    good = succeeded(rows)
    patients = np.array([row["patient"] for row in rows])
    failed = {"selective": MISSED if tumour else REJECTED, "naive": MISSED}
    failed["bonferroni"] = failed["selective"]

    def rates(test: str) -> dict[str, Any]:
        p = measures.pvalues(rows, test, failed[test])
        return {f"{alpha:g}": measures.clustered_rate(p <= alpha, patients) for alpha in ALPHAS}

    return {
        **measures.ending(rows),
        "patients": len(set(patients)),
        "rates": {test: rates(test) for test in ("selective", *LOG_P)},
        **measures.uniformity([row["p"] for row in good], DIGITS),
        **{name: _spread([row[name] for row in good]) for name in SPREADS},
        "room": _spread([row["room"] for row in good if row["room"] is not None]),
        "interval": measures.interval_lengths(good),
    }


def _room(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    """Return a column for each value that figures show of the room of slices.

    ``room`` is in standard errors, and ``fall`` that times the statistic: the normal density falls by exp(-fall) over
    the room.
    """
    good = [row for row in succeeded(rows) if row["room"] is not None]
    room, error, statistic, p = (
        np.array([row[key] for row in good]) for key in ("room", "standard_error", "statistic", "p")
    )
    columns = {"room": room / error, "room_in_grey_levels": room, "fall": room / error * np.abs(statistic), "p": p}
    return {name: rounded(column.tolist(), DIGITS) for name, column in columns.items()}


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the ends of the middle 90% and the extremes; None without values."""
    if not len(values):
        return None
    names = ("median", "low", "high", "least", "greatest")
    return dict(zip(names, np.quantile(values, [0.5, 0.05, 0.95, 0.0, 1.0]).tolist(), strict=True))


def _overlap(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return how p depends on the overlap of region and tumour."""
    good = [row for row in succeeded(rows) if row["iou"] is not None]
    if len(good) < 2:
        return None
    iou, log_p, patients = (np.array([row[key] for row in good]) for key in ("iou", "log_p", "patient"))
    classes: dict[str, NDArray[np.bool_]] = {"none": iou == 0}
    classes |= {f"{low:g} to {high:g}": (iou > low) & (iou <= high) for low, high in pairwise(OVERLAPS)}
    constant = np.ptp(iou) == 0 or np.ptp(log_p) == 0
    return {
        "images": len(good),
        "iou": _spread(iou.tolist()),
        "spearman": None if constant else float(spearmanr(iou, log_p).statistic),
        "by_iou": [
            {
                "iou": name,
                "images": int(members.sum()),
                "median_p": float(np.exp(np.median(log_p[members]))),
                "rate": measures.clustered_rate(log_p[members] <= np.log(0.05), patients[members]),
            }
            for name, members in classes.items()
            if members.any()
        ],
    }


def _points(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return a column for each value that figures show of every tested slice under the paper's condition."""
    good = succeeded(rows)
    return {
        "tumour": [int(row["tumour"]) for row in good],
        "log10_naive": rounded((row["log_naive"] / np.log(10) for row in good), DIGITS),
        **{name: rounded((row[name] for row in good), DIGITS) for name in ("p", "statistic", "iou", "in_the_dark")},
    }


COUNT = 12  # number of slices of each class


class Gallery(NamedTuple):
    """Slices of one class, at least one, and the result of each, None if it could not be tested."""

    slices: Slices
    results: tuple[AttentionTestResult | None, ...]


def example_galleries(tests: SliceTests, split: Split, count: int) -> dict[str, Gallery]:
    """Return, for each class, the first slices in the random order of the study, tested under the paper's condition."""
    galleries, test = {}, tests.attention_test(PAPER)
    for name, tumour in CLASSES.items():
        slices = split.slices.take(split.test_order()[tumour][:count])
        results = test.stream(list(slices.flair), on_error="row")
        if len(slices):
            known = tuple(None if isinstance(result, FailedImage) else result for result in results)
            galleries[name] = Gallery(slices, known)
    return galleries


LEVEL = "0.05"
CLASS_NAMES: Mapping[str, str] = {"tumour": "with tumour", "free": "without tumour"}

FEWEST_IMAGES = 10
FEWEST_PATIENTS = 5
"""Slices and patients of a class below which no statement about it is judged."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement about rates of rejection, one or two, and what decides on it."""

    text: str
    rule: str  # in words
    classes: Sequence[str]  # that of each rate
    holds: tuple[str, str, Any]  # end of the first rate, how it is compared, and a number or an end of the second
    test: str = "selective"
    where: str = "section 4, real data experiments"
    conditions: Sequence[Mapping[str, Any]] = ({}, {})  # how that of each rate differs from the paper's


COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {">=": operator.ge, "<=": operator.le, ">": operator.gt}

STATEMENTS = tuple(
    Statement(**entry)
    for entry in tomllib.loads(files(__package__).joinpath("statements.toml").read_text("utf-8"))["statement"]
)


def condition_of(summary: Summary, condition: Condition = PAPER) -> Summary | None:
    """Return the numbers of a condition, None if it was not tested."""
    return next((tested for tested in summary["conditions"] if tested["name"] == condition.name), None)


def class_rate(tested: Summary, name: str, test: str = "selective") -> Any:
    """Return how often a test rejects slices of a class under a condition, None if there are no such slices."""
    return tested["classes"][name]["rates"][test][LEVEL] if name in tested["classes"] else None


def findings(summary: Summary) -> list[dict[str, Any]]:
    """Return every statement with its rule, its verdict and the numbers, JSON-ready.

    Statements about our tests are left out where there are no data of them.
    """
    judged = []
    for statement in STATEMENTS:
        first = Condition(**statement.conditions[0])
        if not first.ours or condition_of(summary, first) is not None:
            outcome, numbers = _verdict(statement, summary)
            entry = {"statement": statement.text, "where": statement.where, "rule": statement.rule}
            judged.append({**entry, "verdict": outcome, "numbers": numbers})
    return judged


def _verdict(statement: Statement, summary: Summary) -> Verdict:
    enough, rates, sentences = True, [], []
    for name, changes in zip(statement.classes, statement.conditions, strict=False):
        condition = Condition(**changes)
        tested = condition_of(summary, condition)
        rate = tested and class_rate(tested, name, statement.test)
        if not tested or not rate:
            return NO_DATA
        slices = tested["classes"][name]
        enough = enough and slices["images"] >= FEWEST_IMAGES and slices["patients"] >= FEWEST_PATIENTS
        failed = f" ({slices['failed']:,} could not be tested)" if slices["failed"] else ""
        share = f"{rate['count']:,} of {slices['images']:,} slices {CLASS_NAMES[name]}"
        under = "" if condition == PAPER else f" ({condition.name})"
        sentences.append(f"{share}{under} have a {statement.test} p of at most {LEVEL}{failed}: {rate_text(rate)}.")
        rates.append(rate)
    end, compared, other = statement.holds
    holds = COMPARED[compared](rates[0][end], rates[1][other] if len(rates) > 1 else other)
    return Verdict.of(" ".join(sentences), holds=enough and holds, differs=enough)
