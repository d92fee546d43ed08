"""The results page, as Markdown with figures beside it and as one HTML file, both from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from attentest.presentation.words import pvalue_text
from attentest.search import CONVERGED
from attentest.studies import document
from attentest.studies.document import Columns, Markdown, cell, span, table
from attentest.studies.reproduction import measures
from attentest.studies.reproduction.experiment import COUNTS, EXPERIMENTS, PRESETS, series_words
from attentest.studies.reproduction.figures import FIGURES, drawn_figures
from attentest.studies.reproduction.measures import PERMUTATION, POWER, Setting, label
from attentest.studies.reproduction.run import DERIVATIVE_COST
from attentest.studies.reproduction.statements import findings
from attentest.studies.reproduction.trial import TOL
from attentest.training.paper_model import ALL_MODELS, MODELS

Summary: TypeAlias = Mapping[str, Any]

FINDINGS: Columns = {
    **document.FINDINGS,
    "statement": lambda finding: Markdown(
        f"[{document.markdown(finding['statement'])}]"
        f"(#{document.anchor(EXPERIMENTS[finding['experiment']].title + ': our tests' * finding['ours'])})"
    ),
}


def _worst(setting: Setting) -> str:
    """Return the image on which float32 differs most; the recorded summary has neither bounds nor status of its p."""
    row = setting["worst"]
    p = pvalue_text(row["p"], (row.get("p_low", 0.0), row.get("p_high", 1.0)), row.get("status", CONVERGED), 4)
    return f"{row['image']}: {p}, {row['p_float64']:.4g}, {row['p_float32']:.4g}"


def _published_power(setting: Setting) -> str:
    return f"{POWER[setting['noise']][setting['delta']]:.3f}"


def _coverage(setting: Setting) -> str:
    missed = setting["missed"]
    outside = ", below" if missed["above_band"] else "" if missed["within_band"] else ", above"
    return f"{1 - missed['value']:.3f}{outside}"


def _longest(setting: Setting) -> str:
    known = (setting["length"] or {}).get("longest") is not None
    return cell(setting, "{length[bound]}: {length[longest]}") if known else "-"


def write_report(summary: Summary, target: Path) -> Path:
    """Write the page of a summary to a directory, and return the path of its HTML."""
    document.check_can_report()
    figures, page = drawn_figures(summary), render_markdown(summary)
    return document.write_report(target, "reproduction", summary, page, figures, document.to_html(page, figures))


def render_markdown(summary: Summary) -> str:
    """Return the page as Markdown, which depends on the summary alone."""
    experiments = summary["experiments"]
    shown, without_data = document.split_by_data(findings(summary))
    drawn = [figure for figure in FIGURES if figure.settings(summary)]
    content = {
        **summary,
        "absent": [experiment.title for name, experiment in EXPERIMENTS.items() if name not in experiments],
        "papers": [finding for finding in shown if not finding["ours"]],
        "ours": [finding for finding in shown if finding["ours"]],
        "findings": table(shown, FINDINGS),
        "without_data": without_data,
        "trials": summary["time"]["each_series_once"]["trials"],
        "failed": sum(series["failed"] for series in summary["failures"]),
        "experiments": [
            {
                **data,
                "name": name,
                "kind": EXPERIMENTS[name].kind,
                "on_series": EXPERIMENTS[name].on_series,
                "figures": [figure for figure in drawn if figure.experiment == name],
                "ours": data.get("ours", []),
                "command": document.code(command_of(name, summary)),
            }
            for name, data in experiments.items()
        ],
        "derivative_cost": DERIVATIVE_COST,
        "wall_seconds": _wall_seconds(summary["runs"]),
        "times": {
            **{experiment["title"]: experiment["time"] for experiment in experiments.values()},
            "All, each series once": summary["time"]["each_series_once"],
        },
        "classifiers": MODELS,
        "paper_counts": measures.COUNTS,
        "published_permutation": PERMUTATION,
        "tol": f"{TOL:g}",
        **{"cell": cell, "span": span, "label": label, "series_words": series_words},
        **{"worst": _worst, "coverage": _coverage, "longest": _longest, "published_power": _published_power},
    }
    return document.render("attentest.studies.reproduction", content)


def command_of(name: str, summary: Summary) -> str:
    """Return the command that computes the data of an experiment again."""
    experiment, data = EXPERIMENTS[name], summary["experiments"][name]
    made = data["made"]
    field = "series_models" if experiment.on_series else "models"
    runs = [run for run in summary["runs"] if name in (run.get("experiments") or ())]
    words = ["attentest", "reproduce", "--experiment", name]
    if runs:
        names = [count for count in COUNTS if all(count in run["counts"] for run in runs)]  # earlier ones know fewer
        largest = max(runs, key=lambda run: sum(run["counts"][count] for count in names))
        preset, counts = PRESETS[largest["preset"]], largest["counts"]
        words += ["--preset", largest["preset"]]
        if any(counts[count] < getattr(preset, count) for count in names):
            words += ["--images", str(max(counts[count] for count in names))]
        tests = {run.get("tests", "all") for run in runs}
        words += ["--tests", *tests] if len(tests) == 1 and tests != {"all"} else []
        if experiment.kind == "type-i-error" and counts["permutations"] < preset.permutations:
            words += ["--permutations", str(counts["permutations"])]
        used = {model for run in runs for model in run["counts"][field]}
        seed, device = largest["seed"], largest["device_type"]
    else:
        # Another experiment's run, or one that was not recorded: counts and models are those of the data.
        images = max((setting.get("images", 0) for setting in data["settings"]), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        used, preset = set(made["models"]) & set(ALL_MODELS), PRESETS["full"]
        seed, device = made["seeds"][0], made["device_types"][0]
    if experiment.uses_several_models and used != set(getattr(preset, field)):
        words += [word for model in ALL_MODELS if model in used for word in ("--model", model)]
    authors = any(model.startswith("published") for model in made["models"])
    words += ["--seed", str(seed), "--device", str(device), *(["--published", "DIR"] if authors else [])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _wall_seconds(runs: Sequence[Summary]) -> dict[str, float]:
    """Return the seconds of runs by device, each moment once: several runs may share a device."""
    covered: dict[str, float] = {}
    until: dict[str, float] = {}
    for run in sorted(runs, key=lambda run: datetime.fromisoformat(run["began"])):
        start, device = datetime.fromisoformat(run["began"]).timestamp(), str(run["device"])
        end = max(until.get(device, start), start + run["seconds"])
        covered[device] = covered.get(device, 0.0) + end - max(start, until.get(device, start))
        until[device] = end
    return {str(run["device"]): covered[str(run["device"])] for run in runs}
