"""The content that a page of the brain study must show, whatever its wording and order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from attentest.cohort.means import Estimate
from attentest.studies.brain.summary import findings


def plain(page: str) -> str:
    """The text of a Markdown page without escapes and line breaks."""
    return " ".join(re.sub(r"\\(.)", r"\1", page).split())


def figures_of(page: str) -> set[str]:
    """The names of the figures that a Markdown page shows."""
    return set(re.findall(r"\]\(figures/([^)]+)\.png\)", page))


def expected(summary: dict[str, Any]) -> Iterator[str]:
    """Yield texts with the numbers of a summary: of every statement, table and fact."""
    for finding in findings(summary):
        yield from (finding[name] for name in ("statement", "where", "rule", "verdict", "numbers"))
    data, classifier = summary["data"], summary["classifier"]
    yield from (data["sha256"], classifier["weights_sha256"], f"{classifier['parameters']:,}", summary["command"])
    yield from (f"{data[name]:,}" for name in ("slices", "kept", "patients", "with_tumour"))
    yield from (f"{part[name]:,}" for part in data["split"].values() for name in part)
    yield from (f"{name} {version}" for name, version in classifier["versions"].items())
    for run in summary["runs"]:
        yield from (run["began"], run["device"], f"{run['tested']:,}", f"{run['failed']:,}")
    judged = classifier["performance"]
    low, high = judged["auc_interval"]
    yield f"{judged['auc']:.3f} [{low:.3f}, {high:.3f}]"
    yield from (number(judged[name]) for name in ("accuracy", "sensitivity", "specificity", "mean_patient_auc"))
    for key in ("auc", "accuracy", "slices", "with_tumour"):
        values = [one[key] for one in judged["by_patient"] if one[key] is not None]
        yield from map(number, np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
    for condition in summary["conditions"]:
        yield from (condition["noise"], condition["contrast"], number(condition["threshold"]))
        if "region" in condition:  # earlier summaries have neither
            yield from (condition["region"], number(condition["randomise"]))
        yield from (number(condition[name]) for name in ("separation", "naive_separation"))
        yield " / ".join(f"{one['images']:,}" for one in condition["classes"].values())
        for one in condition["classes"].values():
            yield rate(one["rates"]["selective"]["0.05"])
            yield from (number(one["rates"]["naive"]["0.05"]["value"]), number(one["statistic"]["median"]))
            yield from (f"{count} x {error}" for error, count in one["errors"].items())
        if together := condition.get("together"):  # earlier summaries have none
            yield from (str(Estimate(**mean)) for mean in (together["means"] or {}).values())
            for name, bound in together["at_least"].items():
                yield f"{bound:,} of {condition['classes'][name]['images']:,}"
    for one in summary["conditions"][0]["classes"].values():
        yield from (rate(at) for test in one["rates"].values() for at in test.values())
        yield from (number(one["ks_pvalue"]), f"{one['images']:,} ({one['patients']:,})")
        for name in ("statistic", "difference", "standard_error", "region", "in_tumour", "in_the_dark"):
            yield "{} ({} to {})".format(*(number(one[name][key]) for key in ("median", "least", "greatest")))
    for fitted in summary["noise"].values():
        yield from (f"{key} {number(fitted[key])}" for key in ("sigma", "rho") if key in fitted)
    for one in summary["overlap"]["by_iou"]:
        yield from (one["iou"], rate(one["rate"]))
    yield number(summary["overlap"]["spearman"])
    for one in summary["room"]:
        for key in ("room", "room_in_grey_levels", "fall"):
            low, median, high = np.quantile(one[key], [0.25, 0.5, 0.75])
            yield f"{number(median)} ({number(low)} to {number(high)})"


def rate(one: dict[str, float]) -> str:
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
