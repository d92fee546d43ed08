"""The study's page: HTML that needs no other file, and Markdown without images of the dataset, from the summary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attentest.search import CONVERGED
from attentest.simulation.calibration.calibration import ALPHAS
from attentest.studies import document
from attentest.studies.brain import statements
from attentest.studies.brain.condition import (
    CONDITIONS,
    NOISE_CONDITIONS,
    NOISES,
    OUR_CONDITIONS,
    RADIUS,
    THRESHOLDS,
    Condition,
)
from attentest.studies.brain.figures import drawn_charts, gallery_figure
from attentest.studies.brain.slice_tests import SEARCH, SENSITIVITY_SEARCH
from attentest.studies.brain.statements import CLASS_NAMES, Summary
from attentest.studies.brain.summary import Gallery
from attentest.studies.document import Markdown, number, to_html

SLICE_VALUES = {
    "statistic": "statistic",
    "log_naive": "log10 of the naive p",
    "difference": "difference of the means (of 255)",
    "standard_error": "standard error",
    "region": "pixels of the region (of 4,096)",
    "in_tumour": "share of the region that is tumour",
    "in_the_dark": "share of the region that is dark (at most 20 of 255)",
}


def write_report(
    summary: Summary,
    target: Path,
    galleries: Mapping[str, Gallery] | None = None,
) -> Path:
    """Write the page of a study to a directory, and return the path of its HTML.

    Galleries are from `attentest.studies.brain.summary`. The directory gets ``index.html``, ``brain.md``,
    ``figures`` and ``summary.json``. All but ``index.html`` may be shared: with galleries it shows slices of the
    dataset.
    """
    document.check_can_report()
    galleries = galleries or {}
    counts = {name: len(gallery.results) for name, gallery in galleries.items()}
    summary = {**summary, "gallery": counts}
    shared, own = drawn_charts(summary), {}
    for name, gallery in galleries.items():
        shared[f"maps-{name}"] = document.png(gallery_figure(gallery, maps_only=True))
        own[f"gallery-{name}"] = document.png(gallery_figure(gallery, maps_only=False))
    pages = {
        "summary.json": document.summary_text(summary),
        "brain.md": render_markdown(summary, shared),
        "index.html": to_html(render_markdown(summary, shared | own, html=True), shared | own),
    }
    document.write_pages(target, pages, shared)
    return target / "index.html"


def render_markdown(summary: Summary, figures: Collection[str], *, html: bool = False) -> str:
    """Return the page, for HTML with the slices of the dataset, from the summary and the names of its figures."""
    return document.render("attentest.studies.brain", {**_content(summary, figures), "html": html})


def _content(summary: Summary, figures: Collection[str]) -> dict[str, Any]:
    """Return the values and functions of the template."""
    findings = statements.findings(summary)
    shown, without_data = document.split_by_data(findings)
    tested = {one["name"]: one for one in summary["conditions"]}
    has_ours = any(one.ours and one.name in tested for one in OUR_CONDITIONS)
    noises = {one["noise"] for one in tested.values()}
    taus = [Condition(threshold=tau).name for tau in THRESHOLDS]
    paper = statements.condition_of(summary) or {"classes": {}}
    classes = {title: paper["classes"][name] for name, title in CLASS_NAMES.items() if name in paper["classes"]}

    def figure(name: str, title: str, caption: str) -> Markdown:
        return document.picture(name, title, caption) if name in figures else Markdown()

    return {
        "gallery": {},
        **summary,
        "figure": figure,
        "row": _row,
        "head": lambda *names: Markdown(f"{_row(*names)}\n|{'---|' * len(names)}"),
        "bold": lambda text: Markdown(f"**{text}**"),
        "text": text,
        "range_of": range_text,
        "quantiles": lambda values, *levels: np.quantile(values, levels).tolist(),
        "times": _times,
        "both": _both,
        "document": document,
        "statements": statements,
        "command": document.code(summary["command"]),
        "paper": paper,
        "classes": classes,
        "findings": findings,
        "papers": [one for one in shown if document.NOT_IN_THE_PAPER not in one["where"]],
        "added": [one for one in shown if document.NOT_IN_THE_PAPER in one["where"]],
        "without_data": without_data,
        "levels": [f"p at most {alpha:g}" for alpha in ALPHAS],
        "distribution": _distribution(list(classes.values())),
        "noise_models": [(name, what, *_fitted(summary, name)) for name, what in NOISES.items() if name in noises],
        "noise_conditions": [tested[one.name] for one in NOISE_CONDITIONS if one.name in tested],
        "threshold_conditions": [tested[name] for name in taus if name in tested],
        "our_conditions": [tested[one.name] for one in OUR_CONDITIONS if has_ours and one.name in tested],
        "slacks": [one for one in summary.get("room", ()) if one["room"]],
        "failures": list(_failures(summary)),
        "not_tested": [one.name for one in CONDITIONS if one.name not in tested],
        "radius": RADIUS,
        "tol": SEARCH.tol,
        "other_tol": SENSITIVITY_SEARCH.tol,
    }


def text(value: Any, tol: float = 0.0) -> str:
    """Return a value of the summary as the page shows it.

    Whole numbers are shown in full, other numbers with three digits, rates with their intervals, and None as "-". A
    number below the tolerance of its computation is only known to be below it.
    """
    if isinstance(value, float):
        return f"< {tol:.0e}" if 0 <= value < tol else number(value)
    if isinstance(value, Mapping):
        return document.rate_text(value)
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def range_text(low: float, median: float, high: float) -> str:
    """Return a median with the ends of a range."""
    return f"{number(median)} ({number(low)} to {number(high)})"


def _row(*cells: Any) -> Markdown:
    shown = (document.markdown(cell if isinstance(cell, Markdown) else text(cell)) for cell in cells)
    return Markdown(f"| {' | '.join(shown)} |")


def _both(condition: Summary, *keys: str) -> str:
    """Return a value of both classes, with and without tumour, by the keys that lead to it."""
    found = [condition["classes"].get(name) for name in CLASS_NAMES]
    for key in keys:
        found = [one and one.get(key) for one in found]
    return " / ".join(text(one) for one in found)


def _times(*conditions: Summary) -> tuple[str, float | None]:
    """Return the time of the tests under some conditions, and the seconds per slice."""
    seconds = sum(one["seconds"] for one in conditions)
    images = sum(own["images"] for one in conditions for own in one["classes"].values())
    return document.duration(seconds), seconds / images if images else None


def _distribution(classes: Sequence[Summary]) -> list[tuple[str, ...]]:
    """Return the name of each value of slices, and its distribution in each class."""
    medians = [one["quantiles"][50] if one["quantiles"] else None for one in classes]
    return [
        ("slices (patients)", *(f"{one['images']:,} ({one['patients']:,})" for one in classes)),
        ("median of the selective p", *(text(median, SEARCH.tol) for median in medians)),
        ("Kolmogorov-Smirnov p of uniformity", *(text(one["ks_pvalue"]) for one in classes)),
        *((name, *(_spread_text(one[key], key) for one in classes)) for key, name in SLICE_VALUES.items()),
    ]


def _spread_text(spread: Mapping[str, float] | None, key: str) -> str:
    if spread is None:
        return "-"
    factor = 1 / np.log(10) if key == "log_naive" else 1.0
    return range_text(*(factor * spread[name] for name in ("least", "median", "greatest")))


def _fitted(summary: Summary, noise: str) -> tuple[str, str]:
    """Return what a noise model is estimated from, and its parameters if it has few."""
    model = summary["noise"].get(noise)
    if model is None:
        return "the tested slice", "-"
    values = ", ".join(f"{key} {number(model[key])}" for key in ("sigma", "rho") if key in model)
    return f"{model['images']:,} slices without tumour", values or "-"


def _failures(summary: Summary) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of each condition and class with tests that failed or searches that did not converge."""
    for condition in summary["conditions"]:
        for name, one in condition["classes"].items():
            errors = [f"{count} x {error}" for error, count in one["errors"].items()]
            others = [f"{count} x {status}" for status, count in one["statuses"].items() if status != CONVERGED]
            if errors or others:
                cells = (condition["name"], CLASS_NAMES[name], one["images"], one["failed"])
                yield (*cells, "; ".join(errors) or "-", ", ".join(others) or "-")
