"""The study's page: HTML that needs no other file, and Markdown without images of the dataset, from the summary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from attentest.cohort.means import Estimate
from attentest.cohort.shown import CHOSEN
from attentest.progress import duration
from attentest.search import CONVERGED
from attentest.simulation.calibration import ALPHAS
from attentest.studies import document
from attentest.studies.brain.condition import (
    CONDITIONS,
    NOISE_CONDITIONS,
    NOISES,
    OUR_CONDITIONS,
    RADIUS,
    RING_CONDITIONS,
    THRESHOLDS,
    Condition,
)
from attentest.studies.brain.figures import drawn_charts, gallery_figure
from attentest.studies.brain.study import SEARCH, SENSITIVITY_SEARCH
from attentest.studies.brain.summary import (
    CLASS_NAMES,
    FEWEST_IMAGES,
    FEWEST_PATIENTS,
    LEVEL,
    Gallery,
    Summary,
    condition_of,
    findings,
)
from attentest.studies.document import Markdown, text


def _both(*keys: str) -> str:
    """Return the column with a value of both classes, with and without tumour, by the keys that lead to it."""
    return " / ".join("{classes" + "".join(f"[{key}]" for key in (name, *keys)) + "}" for name in CLASS_NAMES)


def _times(*conditions: Summary) -> tuple[str, float | None]:
    """Return the time of the tests under some conditions, and the seconds per slice."""
    seconds = sum(condition["seconds"] for condition in conditions)
    images = sum(slices["images"] for condition in conditions for slices in condition["classes"].values())
    return duration(seconds), seconds / images if images else None


def _range(low: float, median: float, high: float) -> str:
    """Return a median with the ends of a range."""
    return f"{text(median)} ({text(low)} to {text(high)})"


def _quartiles(key: str) -> Callable[[Summary], str]:
    """Return the column with the median and the quartiles of a list of values."""
    return lambda row: _range(*np.quantile(row[key], [0.25, 0.5, 0.75]).tolist())


def _spread(key: str, factor: float = 1.0) -> Callable[[Summary], str | None]:
    """Return the column with the median, the least and the greatest of a value of slices, times a factor."""
    ends = ("least", "median", "greatest")
    return lambda slices: slices[key] and _range(*(factor * slices[key][end] for end in ends))


def _bound(condition: Summary) -> float | None:
    """Return the bound on the length of the intervals of a condition, None if there is none."""
    lengths = [slices["interval"] for slices in condition["classes"].values() if slices["interval"]]
    return max((length["bound"] for length in lengths if length["bound"] is not None), default=None)


def _mean(name: str) -> Callable[[Summary], str | None]:
    """Return the column with a mean over slices, its interval and its p."""
    return lambda condition: (means := condition["together"]["means"]) and str(Estimate(**means[name]))


def _over_bound(condition: Summary) -> str | None:
    """Return how many intervals of both classes are longer than their bound, None if there is none."""
    return None if _bound(condition) is None else document.cell(condition, _both("interval", "over_bound"))


def write_report(summary: Summary, target: Path, galleries: Mapping[str, Gallery] | None = None) -> Path:
    """Write the page of a study to a directory, and return the path of its HTML.

    Galleries are from `attentest.studies.brain.summary`. The directory gets ``index.html``, ``brain.md``,
    ``figures`` and ``summary.json``. All but ``index.html`` may be shared: with galleries it shows slices of the
    dataset.
    """
    document.check_can_report()
    galleries = galleries or {}
    counts = {name: len(gallery.results) for name, gallery in galleries.items()}
    summary = {**summary, "gallery": counts}
    shared, private = drawn_charts(summary), {}
    for name, gallery in galleries.items():
        shared[f"maps-{name}"] = document.png(gallery_figure(gallery, maps_only=True))
        private[f"gallery-{name}"] = document.png(gallery_figure(gallery, maps_only=False))
    page = render_markdown(summary, shared)
    html = document.to_html(render_markdown(summary, shared | private, html=True), shared | private)
    return document.write_report(target, "brain", summary, page, shared, html)


def render_markdown(summary: Summary, figures: Collection[str], *, html: bool = False) -> str:
    """Return the page, for HTML with the slices of the dataset, from the summary and the names of its figures."""
    judged = findings(summary)
    shown, without_data = document.split_by_data(judged)
    added = [finding for finding in shown if document.NOT_IN_THE_PAPER in finding["where"]]
    papers = [finding for finding in shown if finding not in added]
    tested = {condition["name"]: condition for condition in summary["conditions"]}
    has_ours = any(condition.ours and condition.name in tested for condition in CONDITIONS)
    thresholds = [Condition(threshold=tau) for tau in THRESHOLDS]
    paper = condition_of(summary) or {"classes": {}}
    classes = {title: paper["classes"][name] for name, title in CLASS_NAMES.items() if name in paper["classes"]}

    def figure(name: str, title: str, caption: str) -> Markdown:
        return document.picture(name, title, caption) if name in figures else Markdown()

    def numbers(conditions: Collection[Condition]) -> list[Summary]:
        return [tested[condition.name] for condition in conditions if condition.name in tested]

    content = {
        "gallery": {},
        **summary,
        "html": html,
        "figure": figure,
        "quantiles": lambda values, *levels: np.quantile(values, levels).tolist(),
        "times": _times,
        "fewest": (FEWEST_IMAGES, FEWEST_PATIENTS),
        "class_names": CLASS_NAMES,
        "command": document.code(summary["command"]),
        "paper": paper,
        "classes": classes,
        "papers": papers,
        "added": added,
        "findings": document.table(papers + added, document.FINDINGS),
        "without_data": without_data,
        "rules": document.table(judged, {"statement": "{statement}", "holds if": "{rule}"}),
        "levels": [f"p at most {alpha:g}" for alpha in ALPHAS],
        "noise_models": _noise_models(summary),
        "by_noise": numbers(NOISE_CONDITIONS),
        "by_threshold": numbers(thresholds),
        "ours": numbers((*OUR_CONDITIONS, *RING_CONDITIONS)) if has_ours else [],
        "chosen": CHOSEN,
        "level": LEVEL,
        "log10": 1 / np.log(10),
        "slack_count": lambda slack: len(slack["room"]),
        **{"cell": document.cell, "both": _both, "spread": _spread, "quartiles": _quartiles, "mean": _mean},
        **{"bound": _bound, "over_bound": _over_bound, "seconds": lambda condition: _times(condition)[1]},
        "median_p": lambda group: text(group["median_p"], SEARCH.tol),
        "median_of_p": lambda slices: text(slices["quantiles"][50], SEARCH.tol) if slices["quantiles"] else None,
        "failures": list(_failures(summary)),
        "not_tested": [condition.name for condition in CONDITIONS if condition.name not in tested],
        "radius": RADIUS,
        "tol": SEARCH.tol,
        "other_tol": SENSITIVITY_SEARCH.tol,
    }
    return document.render("attentest.studies.brain", content)


def _noise_models(summary: Summary) -> Iterator[tuple[object, ...]]:
    """Yield each noise model that was tested: what it is, what it is estimated from, and its parameters if few."""
    tested = {condition["noise"] for condition in summary["conditions"]}
    for name, what in NOISES.items():
        if name in tested:
            model = summary["noise"].get(name, {})
            origin = f"{model['images']:,} slices without tumour" if model else "the tested slice"
            values = ", ".join(f"{key} {text(model[key])}" for key in ("sigma", "rho") if key in model)
            yield name, what, origin, values or None


def _failures(summary: Summary) -> Iterator[tuple[object, ...]]:
    """Yield the cells of each condition and class with tests that failed or searches that did not converge."""
    for condition in summary["conditions"]:
        for name, slices in condition["classes"].items():
            errors = [f"{count} x {error}" for error, count in slices["errors"].items()]
            others = [f"{count} x {status}" for status, count in slices["statuses"].items() if status != CONVERGED]
            if errors or others:
                cells = (condition["name"], CLASS_NAMES[name], slices["images"], slices["failed"])
                yield (*cells, "; ".join(errors) or None, ", ".join(others) or None)
