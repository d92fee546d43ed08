"""The tables of the study's page: cells of text, from the numbers of the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attentest.studies.brain.condition import CONTRASTS, PAPER, THRESHOLDS, Condition
from attentest.studies.brain.figures import NOISES, Summary, class_rate, noise_condition
from attentest.studies.brain.finding import CLASS_NAMES, LEVEL, condition_of
from attentest.studies.brain.laboratory import SEARCH
from attentest.studies.document import Table, duration, number, rate_text

TEST_NAMES = {"selective": "selective", "naive": "naive", "bonferroni": "Bonferroni"}

DESCRIBED = ("sigma", "rho")
"""What is said of a fitted noise model, where it has it."""

NOISE_WORDS = {
    "pooled": "one variance for all pixels, independent",
    "pixel": "a variance for each pixel, independent",
    "ar1": "one variance, correlation that falls by a factor from pixel to pixel, row after row",
    "stationary": "one variance, correlation by the distance in rows and columns",
    "shrunk": "any covariance, shrunk to a multiple of the identity",
    "sample": "one variance: that of the pixels of the tested slice",
    "wavelet": "one variance: from the finest wavelet coefficients of the tested slice",
}

PARTS = {"noise": "to estimate the noise", "training": "to train the classifier", "test": "to test"}


def pvalue(p: float | None) -> str:
    """Return a selective p; one below the tolerance of the search is only known to be below it."""
    if p is not None and p < SEARCH.tol:
        return f"< {SEARCH.tol:.0e}"
    return number(p)


def split_table(summary: Summary) -> Table:
    """Return who is in which part."""
    rows = [
        (PARTS[name], f"{part['patients']:,}", f"{part['with_tumour']:,}", f"{part['without_tumour']:,}")
        for name, part in summary["data"]["split"].items()
    ]
    return Table(head=("part", "patients", "slices with tumour", "without"), rows=rows)


def times_table(summary: Summary) -> Table:
    """Return how long things took."""
    classifier = summary["classifier"]
    epochs = classifier["settings"]["epochs"]
    rows = [(f"training the classifier, {epochs:,} epochs", duration(classifier["seconds"]), "-", "-")]
    paper = condition_of(summary)
    if paper is not None:
        rows.append(("tests under the paper's condition", *_time([paper]), number(paper["evaluations"])))
    rows.append((f"tests under all {len(summary['conditions'])} conditions", *_time(summary["conditions"]), "-"))
    return Table(head=("what", "time", "seconds a slice", "evaluations of the model a slice"), rows=rows)


def _time(conditions: list[Mapping[str, Any]]) -> tuple[str, str]:
    seconds = sum(one["seconds"] for one in conditions)
    images = sum(found["images"] for one in conditions for found in one["classes"].values())
    return duration(seconds), number(seconds / images) if images else "-"


def runs_table(summary: Summary) -> Table:
    """Return the runs that made the data."""
    rows = [
        (
            str(run["began"]),
            str(run["device"]),
            duration(run["trained"]) if run["trained"] else "-",
            f"{run['tested']:,}",
            f"{run['failed']:,}",
            duration(run["seconds"]),
            "yes" if run["finished"] else "interrupted",
        )
        for run in summary["runs"]
    ]
    return Table(head=("began", "device", "training", "tests", "failed", "time in all", "finished"), rows=rows)


def classifier_table(summary: Summary) -> Table:
    """Return how well the classifier does on patients it has not seen."""
    found = summary["classifier"]["performance"]
    low, high = found["auc_interval"]
    rows = [
        ("slices (patients)", f"{found['slices']:,} ({found['patients']:,})"),
        ("AUC, with its 95% interval over patients", f"{found['auc']:.3f} [{low:.3f}, {high:.3f}]"),
        ("accuracy", f"{found['accuracy']:.3f}"),
        ("accuracy on the training slices", f"{summary['classifier']['accuracy']['training']:.3f}"),
        ("sensitivity", f"{found['sensitivity']:.3f}"),
        ("specificity", f"{found['specificity']:.3f}"),
        (
            f"mean of the AUCs of {found['patients_with_auc']:,} patients with slices of both classes",
            "-" if found["mean_patient_auc"] is None else f"{found['mean_patient_auc']:.3f}",
        ),
    ]
    return Table(head=("test slices", "value"), rows=rows)


def spread_over_patients(summary: Summary) -> Table:
    """Return how the classifier does from patient to patient, without naming any."""
    patients = summary["classifier"]["performance"]["by_patient"]
    rows = []
    for name, label in (("auc", "AUC"), ("accuracy", "accuracy"), ("slices", "slices"), ("with_tumour", "with tumour")):
        values = [patient[name] for patient in patients if patient[name] is not None]
        if values:
            quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
            rows.append((label, f"{len(values):,}", *(number(float(value)) for value in quartiles)))
    head = ("over patients", "patients", "least", "lower quartile", "median", "upper quartile", "greatest")
    return Table(head=head, rows=rows)


def patients_table(summary: Summary) -> Table:
    """Return how the classifier does on each patient."""
    rows = [
        (f"{place}", f"{one['slices']:,}", f"{one['with_tumour']:,}", f"{one['accuracy']:.3f}", number(one["auc"]))
        for place, one in enumerate(summary["classifier"]["performance"]["by_patient"], start=1)
    ]
    return Table(head=("patient", "slices", "with tumour", "accuracy", "AUC"), rows=rows)


def _classes(found: Mapping[str, Any] | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the classes that were tested under a condition, with tumour first."""
    classes = {} if found is None else found["classes"]
    return [(name, classes[name]) for name in CLASS_NAMES if name in classes]


def rates_table(summary: Summary) -> Table:
    """Return how often each test rejects under the paper's condition."""
    classes = _classes(condition_of(summary))
    levels = tuple(classes[0][1]["rates"]["selective"]) if classes else ()
    rows = [
        (TEST_NAMES[test], CLASS_NAMES[name], *(rate_text(one["rates"][test][level]) for level in levels))
        for test in TEST_NAMES
        for name, one in classes
    ]
    return Table(head=("test", "slices", *(f"p at most {level}" for level in levels)), rows=rows)


def distribution_table(summary: Summary) -> Table:
    """Return what was measured under the paper's condition, by class."""
    classes = _classes(condition_of(summary))
    rows: list[tuple[str, ...]] = [
        ("slices (patients)", *(f"{one['images']:,} ({one['patients']:,})" for _, one in classes)),
        (
            "median of the selective p",
            *(pvalue(one["quantiles"][50] if one["quantiles"] else None) for _, one in classes),
        ),
        ("Kolmogorov-Smirnov p of uniformity", *(number(one["ks_pvalue"]) for _, one in classes)),
        *(
            (label, *(_spread(one[key], factor) for _, one in classes))
            for key, label, factor in (
                ("statistic", "statistic", 1.0),
                ("log_naive", "log10 of the naive p", 1 / np.log(10)),
                ("difference", "difference of the means (of 255)", 1.0),
                ("standard_error", "standard error", 1.0),
                ("region", "pixels of the region (of 4,096)", 1.0),
                ("in_tumour", "share of the region that is tumour", 1.0),
                ("in_the_dark", "share of the region that is dark (at most 20 of 255)", 1.0),
            )
        ),
    ]
    head = ("median (least to greatest), unless said otherwise", *(CLASS_NAMES[name] for name, _ in classes))
    return Table(head=head, rows=rows if classes else [])


def _spread(spread: Mapping[str, float] | None, factor: float) -> str:
    if spread is None:
        return "-"
    median, least, greatest = (number(spread[name] * factor) for name in ("median", "least", "greatest"))
    return f"{median} ({least} to {greatest})"


def noise_models_table(summary: Summary) -> Table:
    """Return what each noise model is, and what was found of it."""
    rows = []
    for name in NOISES:
        found = summary["noise"].get(name)
        if found is not None:
            values = ", ".join(f"{key} {number(found[key])}" for key in DESCRIBED if key in found)
            rows.append((name, NOISE_WORDS[name], f"{found['images']:,} slices without tumour", values or "-"))
        elif any(one["noise"] == name for one in summary["conditions"]):
            rows.append((name, NOISE_WORDS[name], "the tested slice", "-"))
    return Table(head=("noise model", "what it is", "estimated from", "found"), rows=rows)


def noise_table(summary: Summary) -> Table:
    """Return what came out with each noise model and contrast."""
    rows = []
    for contrast in CONTRASTS:
        for noise in NOISES:
            condition = noise_condition(noise, contrast)
            found = None if condition is None else condition_of(summary, condition)
            if found is not None:
                rows.append((contrast, noise, *_condition_cells(found, ("standard_error", "statistic"))))
    head = ("compared with", "noise model", *_condition_head("median standard error", "median statistic"))
    return Table(head=head, rows=rows)


def threshold_table(summary: Summary) -> Table:
    """Return what came out with each threshold."""
    rows = []
    for tau in THRESHOLDS:
        found = condition_of(summary, Condition(threshold=tau))
        if found is not None:
            rows.append((f"{tau:g}", *_condition_cells(found, ("region", "statistic"))))
    return Table(head=("tau", *_condition_head("median pixels of the region", "median statistic")), rows=rows)


def _condition_head(*medians: str) -> tuple[str, ...]:
    return (
        "slices with / without tumour",
        *(f"{median}, with / without" for median in medians),
        f"p at most {LEVEL}, with tumour",
        "without tumour",
        "separation",
        f"naive p at most {LEVEL}, with / without",
        "separation of the naive p",
        "s a slice",
    )


def _condition_cells(found: Mapping[str, Any], medians: tuple[str, ...]) -> tuple[str, ...]:
    classes = [found["classes"].get(name) for name in CLASS_NAMES]
    return (
        " / ".join("-" if one is None else f"{one['images']:,}" for one in classes),
        *(
            " / ".join("-" if one is None or one[key] is None else number(one[key]["median"]) for one in classes)
            for key in medians
        ),
        *(rate_text(class_rate(found, name)) for name in CLASS_NAMES),
        number(found["separation"]),
        " / ".join("-" if one is None else f"{one['rates']['naive'][LEVEL]['value']:.3f}" for one in classes),
        number(found["naive_separation"]),
        _time([found])[1],
    )


def overlap_table(summary: Summary) -> Table:
    """Return how often slices with tumour are rejected, by the overlap of region and tumour."""
    classes = [] if summary["overlap"] is None else summary["overlap"]["by_iou"]
    rows = [(one["iou"], f"{one['images']:,}", pvalue(one["median_p"]), rate_text(one["rate"])) for one in classes]
    return Table(head=("IoU", "slices with tumour", "median p", f"p at most {LEVEL}"), rows=rows)


def room_table(summary: Summary) -> Table:
    """Return how far the statistic could go before the region changed."""
    rows = [
        (
            one["contrast"],
            one["noise"],
            f"{len(one['room']):,}",
            *(_quartiles(one[key]) for key in ("room_in_grey_levels", "room", "fall")),
        )
        for one in summary["room"]
        if one["room"]
    ]
    head = (
        "compared with",
        "noise model",
        "slices",
        "grey levels",
        "standard errors",
        "times the statistic",
    )
    return Table(head=head, rows=rows)


def _quartiles(values: Sequence[float]) -> str:
    low, median, high = (number(float(value)) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{median} ({low} to {high})"


def failures_table(summary: Summary) -> Table:
    """Return slices that could not be tested, and searches that did not converge."""
    rows = []
    for found in summary["conditions"]:
        for name, one in _classes(found):
            statuses = {status: count for status, count in one["statuses"].items() if status != "converged"}
            if one["failed"] or statuses:
                rows.append(
                    (
                        str(found["name"]),
                        CLASS_NAMES[name],
                        f"{one['images']:,}",
                        f"{one['failed']:,}",
                        "; ".join(f"{count} x {error}" for error, count in one["errors"].items()) or "-",
                        ", ".join(f"{count} x {status}" for status, count in statuses.items()) or "-",
                    )
                )
    return Table(head=("condition", "slices", "tested", "failed", "errors", "not converged"), rows=rows)


def paper_counts(summary: Summary) -> tuple[int, int]:
    """Return how many slices were tested under the paper's condition, and how many there are to test."""
    part = summary["data"]["split"]["test"]
    return sum(one["images"] for _, one in _classes(condition_of(summary, PAPER))), (
        part["with_tumour"] + part["without_tumour"]
    )
