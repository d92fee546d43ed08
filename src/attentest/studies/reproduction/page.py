"""The results page: HTML that stands alone, and Markdown with figures beside it, both from the summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attentest.studies.document import check_can_report, embedded, summary_text, template_environment, write_pages
from attentest.studies.reproduction.experiment import EXPERIMENTS
from attentest.studies.reproduction.figures import available_figures, drawn
from attentest.studies.reproduction.finding import findings
from attentest.studies.reproduction.page_parts import (
    READING,
    READING_TIMES,
    command_of,
    differences,
    failures_table,
    missing_table,
    models_table,
    runs_table,
    time_tables,
    wall_time,
)
from attentest.studies.reproduction.page_tables import TABLES
from attentest.studies.reproduction.summary import summarise
from attentest.studies.verdict import OUTCOMES

PACKAGE = "attentest.studies.reproduction"
"""Where the templates are."""


def write_report(out: Path, target: Path) -> Path:
    """Write the page of a directory of data, and return where its HTML is.

    Parameters
    ----------
    out
        Where ``attentest reproduce`` put its data.
    target
        Directory for ``index.html``, ``reproduction.md``, ``figures`` and ``summary.json``; made if it is not there.
    """
    check_can_report()
    summary = summarise(out)
    images = {figure.name: drawn(figure, summary) for figure in available_figures(summary)}
    pages = {
        "summary.json": summary_text(summary),
        "reproduction.md": render_markdown(summary),
        "index.html": render_html(summary, images),
    }
    write_pages(target, pages, images)
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
        PNGs by the names of the figures.
    """
    template = template_environment(PACKAGE, html=True).get_template("page.html.j2")
    return template.render(_content(summary), images=embedded(images))


def _content(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both templates show."""
    judged = findings(summary)
    figures = available_figures(summary)
    present = [name for name in EXPERIMENTS if name in summary["experiments"]]
    made = summary["made"]
    return {
        "facts": {
            "presets": ", ".join(dict.fromkeys(str(run["preset"]) for run in summary["runs"])) or "unknown",
            "seeds": ", ".join(str(seed) for seed in made["seeds"]),
            "devices": ", ".join(made["devices"]),
            "versions": ", ".join(f"{name} {' and '.join(found)}" for name, found in made["versions"].items()),
        },
        "runs": runs_table(summary),
        "models": models_table(summary),
        "findings": [{**finding, "title": _title(finding["experiment"])} for finding in judged],
        "counts": {verdict: sum(finding["verdict"] == verdict for finding in judged) for verdict in OUTCOMES},
        "experiments": [
            {
                "name": name,
                "title": summary["experiments"][name]["title"],
                "where": summary["experiments"][name]["where"],
                "figures": [figure for figure in figures if figure.experiment == name],
                "findings": [finding for finding in judged if finding["experiment"] == name],
                "tables": TABLES[name](summary["experiments"][name]["settings"]),
                "command": command_of(name, summary),
            }
            for name in present
        ],
        "absent": [_title(name) for name in EXPERIMENTS if name not in present],
        "time": time_tables(summary),
        "wall_time": wall_time(summary),
        "reading": READING,
        "reading_times": READING_TIMES,
        "failures": failures_table(summary),
        "missing": missing_table(summary),
        "differences": list(differences(summary)),
    }


def _title(experiment: str) -> str:
    return EXPERIMENTS[experiment].title
