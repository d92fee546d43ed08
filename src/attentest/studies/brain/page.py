"""The study's page: HTML that stands alone, and Markdown that holds nothing of the data's images, from the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attentest.studies.brain.condition import CONDITIONS, RADIUS
from attentest.studies.brain.figures import FIGURES, available_figures, drawn
from attentest.studies.brain.finding import CLASS_NAMES, FEWEST_IMAGES, FEWEST_PATIENTS, findings
from attentest.studies.brain.gallery import Gallery, gallery_counts, gallery_figure, maps_figure
from attentest.studies.brain.laboratory import SEARCH, SENSITIVITY_SEARCH
from attentest.studies.brain.page_tables import (
    classifier_table,
    distribution_table,
    failures_table,
    noise_models_table,
    noise_table,
    overlap_table,
    paper_counts,
    patients_table,
    rates_table,
    room_table,
    runs_table,
    split_table,
    spread_over_patients,
    threshold_table,
    times_table,
)
from attentest.studies.document import (
    check_can_report,
    embedded,
    number,
    png,
    summary_text,
    template_environment,
    write_pages,
)
from attentest.studies.verdict import OUTCOMES

PACKAGE = "attentest.studies.brain"
"""Where the templates are."""

READING = (
    "The null hypothesis is that the mean intensity inside the region and that of what it is compared with are equal; "
    "not that there is no tumour. Anatomy is not of constant mean: skull, grey and white matter and the dark around "
    "the head differ, so a region in a slice without tumour may well violate the hypothesis, and be rejected rightly.",
    "With the contrast background the region is compared with all the rest of the slice; with neighbourhood, with a "
    f"ring of {RADIUS} pixels around it; with reference, with the same place of the mean tumour-free slice: there the "
    "hypothesis is that this slice equals the mean one in the region, on average.",
    "Noise models are fitted to what slices differ by from their mean slice, so they hold how people differ as well as "
    "what the scanner adds. One that keeps correlations, such as stationary or shrunk, lets noise stand for anatomy "
    "too; one with independent pixels takes anatomy for very many independent errors, and its standard error is small.",
    "Rates have 95% intervals from drawing patients with replacement, since slices of one patient are alike. Where no "
    "slice is rejected, or every one, the bootstrap knows nothing else, and the interval has no width.",
    "A slice that could not be tested is never dropped. It counts against what is claimed: as rejected without tumour, "
    "as missed with one, and with the naive test as not rejected. A search that did not converge counts with the "
    "p-value it gave.",
    f"p is searched for to within {SEARCH.tol:.0e} under the paper's condition and {SENSITIVITY_SEARCH.tol:.0e} under "
    "the others. A p below that is only known to be below it, so medians of such p are bounds.",
    "The room of a slice is how far its statistic could go, all else equal, before the model chose a region that "
    "differs in at least one pixel: p is the share of what is more extreme within it (and within other intervals with "
    "the same region, where there are any). The normal density falls over "
    "the room by a factor of exp(-room times statistic), so that p can be small only where this product, the last "
    "column of its table, is well above 1; where it is far below 1, p is uniform whatever the slice shows.",
    "Separation is the probability that of two slices, one with tumour and one without, the one with tumour has the "
    "smaller p: 0.5 if p says nothing about tumours.",
    "The region is where the attention map, scaled to go from 0 to 1, exceeds tau. IoU is the number of pixels in both "
    "region and tumour over that in either.",
)
"""How to read the page; nothing here depends on what came out."""


def write_report(
    summary: Mapping[str, Any],
    target: Path,
    galleries: Mapping[str, Gallery] | None = None,
    rooms: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write the page of a study, and return where its HTML is.

    Parameters
    ----------
    summary
        The numbers, from `attentest.studies.brain.summary.summarise`.
    target
        Directory for ``index.html``, ``brain.md``, ``figures`` and ``summary.json``; made if it is not there. All but
        ``index.html`` may be passed on: that one shows slices, if there are galleries.
    galleries
        By the names of the classes, from ``gallery_results``; without them there are no pictures of slices.
        How many they show goes into the summary that is written.
    rooms
        How far their statistics could go, from `attentest.studies.brain.room.rooms_of`; goes into the summary too.
    """
    check_can_report()
    galleries = galleries or {}
    summary = {**summary, "gallery": gallery_counts(galleries), "room": list(rooms)}
    shared = {figure.name: drawn(figure, summary) for figure in available_figures(summary)}
    shared |= {f"maps-{name}": png(maps_figure(gallery)) for name, gallery in galleries.items()}
    own = {f"gallery-{name}": png(gallery_figure(gallery)) for name, gallery in galleries.items()}
    pages = {
        "summary.json": summary_text(summary),
        "brain.md": render_markdown(summary),
        "index.html": render_html(summary, shared | own),
    }
    write_pages(target, pages, shared)
    return target / "index.html"


def render_markdown(summary: Mapping[str, Any]) -> str:
    """Return the page as Markdown, which depends on the summary alone."""
    return template_environment(PACKAGE, html=False).get_template("page.md.j2").render(_content(summary))


def render_html(summary: Mapping[str, Any], images: Mapping[str, bytes]) -> str:
    """Return the page as HTML with its images in it.

    Parameters
    ----------
    summary
        The numbers.
    images
        PNGs by the names of the figures; "gallery-" and the name of a class for pictures of slices.
    """
    template = template_environment(PACKAGE, html=True).get_template("page.html.j2")
    return template.render(_content(summary), images=embedded(images), patients=patients_table(summary))


def _content(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both templates show."""
    judged = findings(summary)
    shown = {figure.name for figure in available_figures(summary)}
    summary = {"gallery": {}, "room": [], **summary}
    present = {one["name"] for one in summary["conditions"]}
    counts = paper_counts(summary)
    spearman = None if summary["overlap"] is None else summary["overlap"]["spearman"]
    return {
        "facts": _facts(summary),
        # In one line and without backticks nothing ends the block of code that it is shown in.
        "command": " ".join(str(summary["command"]).replace("`", "'").split()),
        "split": split_table(summary),
        "times": times_table(summary),
        "runs": runs_table(summary),
        "tested": f"{counts[0]:,} of {counts[1]:,}",
        "classifier": classifier_table(summary),
        "over_patients": spread_over_patients(summary),
        "findings": judged,
        "fewest": FEWEST_IMAGES,
        "fewest_patients": FEWEST_PATIENTS,
        "counts": {outcome: sum(one["verdict"] == outcome for one in judged) for outcome in OUTCOMES},
        "figures": {figure.name: figure for figure in FIGURES if figure.name in shown},
        "rates": rates_table(summary),
        "distribution": distribution_table(summary),
        "noise_models": noise_models_table(summary),
        "noise": noise_table(summary),
        "threshold": threshold_table(summary),
        "overlap": overlap_table(summary),
        "spearman": None if spearman is None else number(spearman),
        "galleries": [
            {"name": name, "title": CLASS_NAMES[name], "count": summary["gallery"][name]}
            for name in CLASS_NAMES
            if name in summary["gallery"]
        ],
        "room": room_table(summary),
        "failures": failures_table(summary),
        "absent": [condition.name for condition in CONDITIONS if condition.name not in present],
        "reading": READING,
    }


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    data, classifier = summary["data"], summary["classifier"]
    devices = dict.fromkeys([str(classifier["device"]), *(str(run["device"]) for run in summary["runs"])])
    rule = data["kept_rule"]
    return {
        "slices": f"{data['slices']:,}",
        "kept": f"{data['kept']:,}",
        "rule": f"at least {rule['least_share']:.0%} of the pixels are brighter than {rule['brighter_than']} of 255",
        "left_out": f"{data['slices'] - data['kept']:,}",
        "patients": f"{data['patients']:,}",
        "with_tumour": f"{data['with_tumour']:,}",
        "without_tumour": f"{data['kept'] - data['with_tumour']:,}",
        "sha256": str(data["sha256"]),
        "seed": f"{data['seed']}",
        "devices": ", ".join(devices),
        "versions": ", ".join(f"{name} {version}" for name, version in classifier["versions"].items()),
        "parameters": f"{classifier['parameters']:,}",
        "weights": str(classifier["weights_sha256"]),
    }
