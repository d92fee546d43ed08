"""The study's page: HTML that needs no other file, and Markdown without images of the dataset, from the summary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attentest.cohort.cohort import CHOSEN
from attentest.cohort.means import Estimate
from attentest.presentation.figure import (
    BLUE,
    GREEN,
    ORANGE,
    REGION_COLOUR,
    VERMILION,
    draw_grid,
    make_logarithmic,
    new_figure,
    png_of,
)
from attentest.presentation.number_texts import number_text, with_sign
from attentest.presentation.picture import MAP_COLOURS, draw_outline
from attentest.progress import duration
from attentest.results.result import AttentionTestResult
from attentest.search import CONVERGED
from attentest.simulation.calibration import ALPHAS
from attentest.studies import document
from attentest.studies.brain import condition as planned
from attentest.studies.brain.condition import NOISE_CONDITIONS, OUR_CONDITIONS, PAPER, THRESHOLDS, Condition
from attentest.studies.brain.study import SEARCH, SENSITIVITY_SEARCH
from attentest.studies.brain.summary import (
    CLASS_NAMES,
    FEWEST_IMAGES,
    FEWEST_PATIENTS,
    LEVEL,
    Gallery,
    Summary,
    class_rate,
    condition_of,
    findings,
)
from attentest.studies.document import Markdown, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

CLASS_STYLES = {"tumour": (VERMILION, "o"), "free": (BLUE, "s")}
TUMOUR_COLOUR = "#f0e442"
"""Yellow of the same palette, for the outline of a tumour on a dark slice."""

SLACK_STYLES = ((VERMILION, "o", "-"), (ORANGE, "s", "--"), (BLUE, "^", "-."), (GREEN, "D", ":"))
REJECTED = f"share of slices with p at most {LEVEL}"
INTERVALS = "(bars: 95% intervals over patients)"

CONTRAST_TITLES = {
    "background": "region against background",
    "neighbourhood": "region against its neighbourhood",
    "reference": "region against the mean slice",
}

IOU = "overlap of region and tumour (IoU: intersection over union)"

SMALLEST_SHOWN = 1e-6  # p-values below lie at the edge of the figure: the search does not resolve them

COLUMNS = 6
CELL = 1.9
"""Pictures of slices per row, and the side of one in inches."""

KEY = 0.9  # height of the key below the pictures in inches


def pvalues_figure(summary: Summary) -> Figure | None:
    """Draw distribution functions of the selective p and histograms of the naive p, by class."""
    points = summary["slices"]
    if not points["p"]:
        return None
    tumour = np.array(points["tumour"], dtype=bool)
    p, naive = np.array(points["p"]), np.array(points["log10_naive"])
    figure, (left, right) = document.titled_panels(11.0, 5.4, ("selective p", "naive p"), sharey=False)
    document.draw_diagonal(left, "uniform distribution")
    bins = np.linspace(naive.min() if naive.min() < 0 else -1.0, 0.0, 41).tolist()
    for (name, (colour, _)), line in zip(CLASS_STYLES.items(), ("-", "-."), strict=True):
        slices = tumour == (name == "tumour")
        if slices.any():
            count = slices.sum()
            left.ecdf(p[slices], color=colour, lw=1.8, ls=line, label=f"{CLASS_NAMES[name]} ({count:,} slices)")
            share = np.full(count, 1 / count)
            right.hist(naive[slices], bins, weights=share, histtype="stepfilled", alpha=0.25, color=colour)
            right.hist(naive[slices], bins, weights=share, histtype="step", lw=1.6, ls=line, color=colour)
    left.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="selective p", ylabel="share of slices with at most p")
    right.set(xlabel="log10 of the naive p", ylabel="share of slices")
    return document.legend_below(figure, 3)


def rows_figure(
    summary: Summary, conditions: Sequence[Condition], row: Callable[[Condition], str], height: float, ylabel: str
) -> Figure | None:
    """Draw the shares rejected, with a panel for each contrast and a named row for each of its conditions.

    Rows that a panel lacks were not tested. Among conditions of ours, the rows of the paper's selection are shaded.
    """
    if not _others_tested(summary, conditions):
        return None
    has_ours = any(condition.ours for condition in conditions)
    names = list(dict.fromkeys(row(condition) for condition in conditions))
    contrasts = list(dict.fromkeys(condition.contrast for condition in conditions))
    figure, panels = document.titled_panels(11.0, height, [CONTRAST_TITLES[contrast] for contrast in contrasts])
    for axes, contrast in zip(panels, contrasts, strict=True):
        shown: dict[float, Condition] = {
            names.index(row(condition)): condition for condition in conditions if condition.contrast == contrast
        }
        _draw_classes(axes, summary, shown, 0.16, horizontal=True)
        document.draw_level(axes, float(LEVEL), f"level {LEVEL}", vertical=True)
        for place in range(len(names)):
            if place not in shown:
                axes.text(0.5, place, "not tested", color="0.55", fontsize=8.5, ha="center", va="center")
            elif has_ours and not shown[place].ours:
                axes.axhspan(place - 0.5, place + 0.5, color="0.4", label="the paper's selection", **document.SHADE)
            if place and not has_ours:
                axes.axhline(place - 0.5, color="0.5", alpha=0.18, lw=1)
        axes.title.set_fontsize(10.5)
        axes.set(xlim=(-0.04, 1.04), ylim=(len(names) - 0.5, -0.5), xlabel=f"{REJECTED}\n{INTERVALS}")
        axes.set_yticks(range(len(names)), names)
    return document.legend_below(figure, 4, ylabel)


def _selection(condition: Condition) -> str:
    """Return the noise model and the way to select the region."""
    way = f"{condition.region}, gamma {condition.randomise:g}" if condition.ours else "the paper's"
    return f"{condition.noise}: {way}"


def threshold_figure(summary: Summary) -> Figure | None:
    """Draw the shares rejected and the size of the region against tau."""
    conditions = {tau: Condition(threshold=tau) for tau in THRESHOLDS}
    if not _others_tested(summary, conditions.values()):
        return None
    figure, (left, right) = document.titled_panels(11.0, 4.4, ("rejections", "median size of the region"), sharey=False)
    _draw_classes(left, summary, conditions, 0.008)
    document.draw_level(left, float(LEVEL), f"level {LEVEL}")
    left.set_ylim(-0.04, 1.04)
    _draw_classes(right, summary, conditions, 0.008, value=_region_size)
    right.set_ylim(bottom=0)
    right.set_ylabel("pixels of the region, of 4,096\n(bars: middle 90% of the slices)")
    right.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        axes.set(xticks=THRESHOLDS, xlim=(THRESHOLDS[0] - 0.04, THRESHOLDS[-1] + 0.04))
        axes.set_xlabel("threshold tau on the attention, 0 to 1")
        draw_grid(axes)
    return document.legend_below(figure, 3, f"{REJECTED}\n{INTERVALS}")


def overlap_figure(summary: Summary) -> Figure | None:
    """Draw p against the overlap of region and tumour, and shares rejected by classes of overlap."""
    if summary["overlap"] is None:
        return None
    points, classes = summary["slices"], summary["overlap"]["by_iou"]
    pairs = [(iou, p) for iou, p in zip(points["iou"], points["p"], strict=True) if iou is not None]
    iou, p = np.array(pairs).T
    titles = ("slices with tumour, one point each", "rejections by overlap")
    figure, (left, right) = document.titled_panels(11.0, 5.0, titles, sharey=False)
    colour, marker = CLASS_STYLES["tumour"]
    left.plot(iou, np.maximum(p, SMALLEST_SHOWN), marker, color=colour, ms=4, alpha=0.45, mew=0)
    left.set(yscale="log", ylim=(SMALLEST_SHOWN / 2, 2.0), xlabel=IOU)
    names = ("0.000001 or less", "0.00001", "0.0001", "0.001", "0.01", "0.1", "1")
    left.set_yticks([10.0**power for power in range(-6, 1)], names)
    left.set_yticks([], minor=True)
    left.set_xlim(left=-0.01)
    document.draw_rates(right, enumerate(group["rate"] for group in classes), CLASS_STYLES["tumour"], None)
    right.set_xticks(range(len(classes)), [f"{group['iou']}\n{group['images']:,} slices" for group in classes])
    right.set(xlim=(-0.6, len(classes) - 0.4), ylim=(-0.04, 1.04), xlabel=IOU, ylabel=f"{REJECTED}\n{INTERVALS}")
    for axes in (left, right):
        document.draw_level(axes, float(LEVEL), f"level {LEVEL}")
        draw_grid(axes)
    return document.legend_below(figure, 1, "selective p")


def slack_figure(summary: Summary) -> Figure | None:
    """Draw p against the product of slack and statistic, and the distribution of the slack."""
    slacks = [slack for slack in summary["room"] if slack["room"]]
    if not slacks:
        return None
    titles = ("p can be small where the density falls", "how far the statistic can move before the region changes")
    figure, (left, right) = document.titled_panels(11.0, 5.0, titles, sharey=False)
    for slack, (colour, marker, line) in zip(slacks, SLACK_STYLES, strict=False):
        name = f"{slack['noise']} noise, {slack['contrast']}"
        left.plot(slack["fall"], slack["p"], marker, color=colour, ms=3, alpha=0.5, mew=0, label=name)
        right.ecdf(slack["room_in_grey_levels"], color=colour, ls=line, lw=1.8, label=name)
    document.draw_level(left, 1.0, "the density falls by a factor of e", vertical=True)
    left.set(ylim=(-0.03, 1.03), xlabel="slack times statistic (no unit)", ylabel="selective p")
    right.set(ylim=(0, 1), xlabel="slack in grey levels (of 255)", ylabel="share of slices with at most this slack")
    for axes in (left, right):
        make_logarithmic(axes, "x")
        draw_grid(axes)
        axes.grid(axis="x", color="0.5", alpha=0.18)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=9, frameon=False)
    return figure


OURS = "noise model: region of pixels or of whole patches, gamma"

FIGURES: Mapping[str, Callable[[Summary], Figure | None]] = {
    "pvalues": pvalues_figure,
    "noise": lambda summary: rows_figure(summary, NOISE_CONDITIONS, attrgetter("noise"), 5.0, "noise model"),
    "ours": lambda summary: rows_figure(summary, OUR_CONDITIONS, _selection, 6.0, OURS),
    "threshold": threshold_figure,
    "overlap": overlap_figure,
    "slack": slack_figure,
}
"""Charts by the names of their files; None if the summary lacks the numbers."""


def drawn_charts(summary: Summary) -> dict[str, bytes]:
    """Return the charts that the summary has the numbers for, as PNGs by name."""
    drawn = {name: draw(summary) for name, draw in FIGURES.items()}
    return {name: png_of(figure, document.DPI) for name, figure in drawn.items() if figure is not None}


def gallery_figure(gallery: Gallery, *, maps_only: bool) -> Figure:
    """Draw for each slice: the slice, its attention map, and the slice with the outlines of region and tumour.

    With ``maps_only`` it is the attention map with the outline of the region alone, which may be shared.
    """
    columns = min(len(gallery.results), COLUMNS)
    rows, height = -(-len(gallery.results) // columns), 1 if maps_only else 3
    tall = height * CELL + 0.6
    figure = new_figure(CELL * columns + 0.2, tall * rows + KEY)
    *parts, key = np.ravel(figure.subfigures(rows + 1, 1, squeeze=False, height_ratios=[*rows * [tall], KEY]))
    _draw_key(key, {"region": REGION_COLOUR} | ({} if maps_only else {"tumour": TUMOUR_COLOUR}))
    panels = np.concatenate([part.subplots(height, columns, squeeze=False).T for part in parts])
    for axes in panels.flat:
        axes.set_axis_off()
    slices = zip(gallery.slices.flair, gallery.slices.mask, gallery.results, strict=True)
    for column, (flair, mask, result) in zip(panels, slices, strict=False):  # the last row may have gaps
        column[0].set_title(_title(result), fontsize=8.5)
        if not maps_only:
            for axes in (column[0], column[-1]):
                axes.imshow(flair, cmap="gray", vmin=0, vmax=max(1, int(flair.max())), interpolation="nearest")
            draw_outline(column[-1], mask, TUMOUR_COLOUR, 1.5)
        if result is not None:
            column[height // 2].imshow(result.attention, cmap=MAP_COLOURS, vmin=0, vmax=1, interpolation="nearest")
            draw_outline(column[-1], result.region, REGION_COLOUR, 1.5)
    return figure


def _draw_key(part: SubFigure, outlines: Mapping[str, str]) -> None:
    """Draw what the outlines and the colours of the maps mean."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, lw=2, label=name) for name, colour in outlines.items()]
    part.legend(handles=handles, loc="upper center", ncols=2, handlelength=1.5, fontsize=8.5, frameon=False)
    wide = min(0.8, 3.0 / float(part.bbox.width / part.dpi))
    bar = part.add_axes((0.5 - wide / 2, 0.45, wide, 0.12))
    part.colorbar(ScalarMappable(cmap=MAP_COLOURS), cax=bar, orientation="horizontal", ticks=[0, 0.5, 1])
    bar.tick_params(labelsize=8.5)
    bar.set_xlabel("attention", fontsize=8.5)


def _title(result: AttentionTestResult | None) -> str:
    if result is None:
        return "could not\nbe tested"
    known = result.status != CONVERGED or result.pvalue >= SEARCH.tol
    selective = with_sign(result.pvalue_text()) if known else f"< {SEARCH.tol:.0e}"
    return f"naive p {with_sign(number_text(result.naive_pvalue))}\nselective p {selective}"


def _others_tested(summary: Summary, conditions: Iterable[Condition]) -> bool:
    """Return whether conditions other than the paper's were tested."""
    return any(condition != PAPER and condition_of(summary, condition) is not None for condition in conditions)


def _draw_classes(
    axes: Axes,
    summary: Summary,
    conditions: Mapping[float, Condition],
    apart: float,
    value: Callable[[Summary, str], Summary | None] = class_rate,
    **style: bool,
) -> None:
    """Draw a value of both classes with its interval, side by side, at the place of each condition that was tested."""
    for offset, (name, look) in zip((-apart, apart), CLASS_STYLES.items(), strict=True):
        rates = [
            (place + offset, rate)
            for place, condition in conditions.items()
            if (tested := condition_of(summary, condition)) and (rate := value(tested, name))
        ]
        document.draw_rates(axes, rates, look, CLASS_NAMES[name], **style)


def _region_size(tested: Summary, name: str) -> Summary | None:
    """Return the median size of the region and its middle 90%."""
    size = tested["classes"].get(name, {}).get("region")
    return size and {**size, "value": size["median"]}


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
        shared[f"maps-{name}"] = png_of(gallery_figure(gallery, maps_only=True), document.DPI)
        private[f"gallery-{name}"] = png_of(gallery_figure(gallery, maps_only=False), document.DPI)
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
    has_ours = any(condition.ours and condition.name in tested for condition in planned.CONDITIONS)
    thresholds = [Condition(threshold=tau) for tau in THRESHOLDS]
    paper = condition_of(summary) or {"classes": {}}
    classes = {title: paper["classes"][name] for name, title in CLASS_NAMES.items() if name in paper["classes"]}

    def numbers(conditions: Collection[Condition]) -> list[Summary]:
        return [tested[condition.name] for condition in conditions if condition.name in tested]

    content = {
        "gallery": {},
        **summary,
        "html": html,
        "figure": lambda name, *words: document.picture(name, *words) if name in figures else Markdown(),
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
        "ours": numbers((*OUR_CONDITIONS, *planned.RING_CONDITIONS)) if has_ours else [],
        "chosen": CHOSEN,
        "level": LEVEL,
        "log10": 1 / np.log(10),
        "slack_count": lambda slack: len(slack["room"]),
        **{"both": _both, "spread": _spread, "quartiles": _quartiles, "mean": _mean},
        **{"bound": _bound, "over_bound": _over_bound, "seconds": lambda condition: _times(condition)[1]},
        "median_p": lambda group: text(group["median_p"], SEARCH.tol),
        "median_of_p": lambda slices: text(slices["quantiles"][50], SEARCH.tol) if slices["quantiles"] else None,
        "failures": list(_failures(summary)),
        "not_tested": [condition.name for condition in planned.CONDITIONS if condition.name not in tested],
        "radius": planned.RADIUS,
        "tol": SEARCH.tol,
        "other_tol": SENSITIVITY_SEARCH.tol,
    }
    return document.render("attentest.studies.brain", content)


def _noise_models(summary: Summary) -> Iterator[tuple[object, ...]]:
    """Yield each noise model that was tested: what it is, what it is estimated from, and its parameters if few."""
    tested = {condition["noise"] for condition in summary["conditions"]}
    for name, what in planned.NOISES.items():
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
