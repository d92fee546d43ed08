"""The results page, as Markdown with figures beside it and as one HTML file, both from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from attentest.presentation.words import pvalue_text
from attentest.progress import duration
from attentest.search import CONVERGED
from attentest.studies import document
from attentest.studies.document import Columns, Markdown, cell, span, table, table_head, table_row
from attentest.studies.reproduction import measures
from attentest.studies.reproduction.experiment import COUNTS, EXPERIMENTS, PRESETS
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
        f"(#{document.anchor(_heading(EXPERIMENTS[finding['experiment']].title, finding['ours']))})"
    ),
}


def _worst(setting: Setting) -> str:
    """Return the image on which float32 differs most; the recorded summary has neither bounds nor status of its p."""
    row = setting["worst"]
    p = pvalue_text(row["p"], (row.get("p_low", 0.0), row.get("p_high", 1.0)), row.get("status", CONVERGED), 4)
    return f"{row['image']}: {p}, {row['p_float64']:.4g}, {row['p_float32']:.4g}"


def _coverage(setting: Setting) -> str:
    missed = setting["missed"]
    outside = ", below" if missed["above_band"] else "" if missed["within_band"] else ", above"
    return f"{1 - missed['value']:.3f}{outside}"


OURS: Columns = {
    "share with p at most 0.05": "{rejected}",
    "coverage of the 95% interval": _coverage,
    "length of the interval over that of the naive one: median (mean)": "{length[median]} ({length[mean]})",
    "bound on that length: the longest over its bound": lambda setting: (
        "-" if (setting["length"] or {}).get("longest") is None else cell(setting, "{length[bound]}: {length[longest]}")
    ),
    "evaluations per image": "{evaluations}",
    "IoU of region and signal": "{iou}",
}
"""What the tables of our tests show, by their headings; all other tables are in the template."""


def our_tables(settings: Sequence[Setting]) -> list[Markdown]:
    """Return a table for each value of our tests, with a line per setting and a column per test; none without data."""
    by_setting: dict[str, dict[str, Setting]] = {}
    for setting in settings:
        where = f"{label(setting)}, Delta {setting['delta']:g}" if setting["delta"] else label(setting)
        by_setting.setdefault(f"{where}, {setting['images']:,} images", {})[setting["test"]] = setting
    tests = list(dict.fromkeys(setting["test"] for setting in settings))
    tables = []
    for heading, column in OURS.items():
        lines = [
            (name, *(cell(line[test], column) if test in line else "-" for test in tests))
            for name, line in by_setting.items()
        ]
        if any(shown != "-" for _, *cells in lines for shown in cells):
            tables.append(Markdown("\n".join([table_head(heading, *tests), *(table_row(*line) for line in lines)])))
    return tables


def write_report(summary: Summary, target: Path) -> Path:
    """Write the page of a summary to a directory, and return the path of its HTML."""
    document.check_can_report()
    figures, page = drawn_figures(summary), render_markdown(summary)
    return document.write_report(target, "reproduction", summary, page, figures, document.to_html(page, figures))


def render_markdown(summary: Summary) -> str:
    """Return the page as Markdown, which depends on the summary alone."""
    experiments = summary["experiments"]
    shown, without_data = document.split_by_data(findings(summary))
    drawn: dict[tuple[str, str], list[str]] = {
        (name, part): [] for name in experiments for part in ("settings", "ours")
    }
    for figure in FIGURES:
        if figure.settings(summary):
            drawn[figure.experiment, figure.part].append(figure.name)
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
                "kind": EXPERIMENTS[name].kind,
                "on_series": EXPERIMENTS[name].on_series,
                "figures": drawn[name, "settings"],
                "our_title": _heading(data["title"], ours=True),
                "our_figures": drawn[name, "ours"],
                "our_tables": our_tables(data.get("ours", [])),
                "command": document.code(command_of(name, summary)),
            }
            for name, data in experiments.items()
        ],
        "derivative_cost": DERIVATIVE_COST,
        "wall_time": _wall_time(summary["runs"]),
        "times": {
            **{experiment["title"]: experiment["time"] for experiment in experiments.values()},
            "All, each series once": summary["time"]["each_series_once"],
        },
        "classifiers": MODELS,
        "label": label,
        "worst": _worst,
        "devices": lambda setting: ", ".join(setting["devices"]),
        "published_power": lambda setting: f"{POWER[setting['noise']][setting['delta']]:.3f}",
        "published_permutation": PERMUTATION,
        "tol": f"{TOL:g}",
        "differences": _differences(experiments),
    }
    return document.render("attentest.studies.reproduction", content)


def _heading(title: str, ours: bool) -> str:
    """Return the heading of an experiment, or of our tests in it."""
    return f"{title}: our tests" if ours else title


def command_of(name: str, summary: Summary) -> str:
    """Return the command that computes the data of an experiment again."""
    experiment, (made, settings) = (
        EXPERIMENTS[name],
        (summary["experiments"][name][key] for key in ("made", "settings")),
    )
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
        images = max((setting.get("images", 0) for setting in settings), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        used, preset = set(made["models"]) & set(ALL_MODELS), PRESETS["full"]
        seed, device = made["seeds"][0], made["device_types"][0]
    if experiment.uses_several_models and used != set(getattr(preset, field)):
        words += [word for model in ALL_MODELS if model in used for word in ("--model", model)]
    authors = any(model.startswith("published") for model in made["models"])
    words += ["--seed", str(seed), "--device", str(device), *(["--published", "DIR"] if authors else [])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _wall_time(runs: Sequence[Summary]) -> str:
    """Return how long the runs took, in a sentence; empty if none was recorded."""
    if not runs:
        return ""
    training = sum(seconds for run in runs for seconds in (run.get("trained") or {}).values())
    of_it = f"; training classifiers took {duration(training)} of it" if training else ""
    by_device: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        began = datetime.fromisoformat(run["began"]).timestamp()
        by_device.setdefault(str(run["device"]), []).append((began, run["seconds"]))
    spans = ", ".join(f"{duration(_covered(times))} on {device}" for device, times in by_device.items())
    return f"Wall time of the runs, where several at once count once: {spans}{of_it}."


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds that spans (beginning, length) cover, each moment once."""
    covered, until = 0.0, float("-inf")
    for start, length in sorted(spans):
        covered += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return covered


def _differences(experiments: Mapping[str, Any]) -> list[str]:
    """Return where the numbers of images and permutations are not those of the paper."""
    lines = []
    settings = {name: experiments.get(name, {}).get("settings", []) for name in EXPERIMENTS}
    for name, count in measures.COUNTS.items():
        images = [setting["images"] for setting in settings[name]]
        if any(number != count for number in images):
            here = span(images, "{:,}".format)
            whose = "the authors' later work" if EXPERIMENTS[name].on_series else "the paper"
            lines.append(f"{EXPERIMENTS[name].title}: {here} images per setting, {count:,} in {whose}.")
    timed: dict[str, list[int]] = {}
    for setting in settings["computation-time"]:
        timed.setdefault(setting["search"], []).append(setting["images"])
    if timed:
        counts = ", ".join(f"{search} {span(images, '{:,}'.format)}" for search, images in timed.items())
        lines.append(f"Images on which searches are timed: {counts}; 200 in the paper. Up to 100 are tested together.")
    permuted = [setting["permutation"] for setting in settings["type-i-error"] if setting["permutation"]]
    permutations = sorted({test["permutations"] for test in permuted})
    if permutations and permutations != [1000]:
        lines.append(
            f"Permutations per image: {', '.join(f'{count:,}' for count in permutations)}; 1,000 in the paper."
        )
    return lines
