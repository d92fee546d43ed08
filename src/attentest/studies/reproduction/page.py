"""The results page, as Markdown with figures beside it and as one HTML file, both from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from attentest.studies import document
from attentest.studies.document import Markdown, duration, table, to_html
from attentest.studies.reproduction import measures, tables
from attentest.studies.reproduction.experiment import COUNTS, EXPERIMENTS, PRESETS, Preset
from attentest.studies.reproduction.figures import FIGURES, drawn_figures
from attentest.studies.reproduction.finding import findings
from attentest.studies.reproduction.rules import span
from attentest.studies.reproduction.summary import DERIVATIVE_COST, summarise
from attentest.studies.reproduction.trial import TOL
from attentest.training.paper_model import MODELS

Summary: TypeAlias = Mapping[str, Any]


def write_report(out: Path, target: Path) -> Path:
    """Write the page of the data in a directory to another directory, and return the path of its HTML."""
    document.check_can_report()
    return write_page(summarise(out), target)


def write_page(summary: Summary, target: Path) -> Path:
    """Write the page of a summary to a directory, and return the path of its HTML."""
    figures, text = drawn_figures(summary), render_markdown(summary)
    pages = {
        "summary.json": document.summary_text(summary),
        "reproduction.md": text,
        "index.html": to_html(text, figures),
    }
    document.write_pages(target, pages, figures)
    return target / "index.html"


def render_markdown(summary: Summary) -> str:
    """Return the page as Markdown, which depends on the summary alone."""
    experiments = summary["experiments"]
    shown, without_data = document.split_by_data(findings(summary))
    content = {
        **summary,
        "absent": [one.title for name, one in EXPERIMENTS.items() if name not in experiments],
        "run_table": table(summary["runs"], tables.RUNS),
        "model_table": table(summary["models"], tables.MODELS_USED),
        "papers": [one for one in shown if not one["ours"]],
        "ours": [one for one in shown if one["ours"]],
        "findings": table(shown, FINDING),
        "without_data": without_data,
        "trials": summary["time"]["each_series_once"]["trials"],
        "failed": sum(one["failed"] for one in summary["failures"]),
        "experiments": [
            {
                **found,
                "figures": _pictures(summary, name, found["title"], "settings"),
                "tables": tables.TABLES[name](found["settings"]) if found["settings"] else [],
                "our_title": _our_title(found["title"]),
                "our_figures": _pictures(summary, name, f"{found['title']}, our tests", "ours"),
                "our_tables": tables.our_tables(found.get("ours", [])),
                "command": document.code(command_of(name, summary)),
            }
            for name, found in experiments.items()
        ],
        "derivative_cost": DERIVATIVE_COST,
        "wall_time": _wall_time(summary["runs"]),
        "times": tables.time_tables(summary),
        "failures_table": table(summary["failures"], tables.FAILURES),
        "missing_table": table(summary["missing"], tables.MISSING),
        "tol": f"{TOL:g}",
        "differences": _differences(experiments),
    }
    return document.render("attentest.studies.reproduction", content)


def _our_title(title: str) -> str:
    """Return the heading of our tests in an experiment."""
    return f"{title}: our tests"


FINDING: document.Columns = {
    "statement": lambda one: document.link_to(
        _our_title(EXPERIMENTS[one["experiment"]].title) if one["ours"] else EXPERIMENTS[one["experiment"]].title,
        one["statement"],
    ),
    "in the paper": "{where}",
    "verdict": lambda one: Markdown(f"**{one['verdict']}**"),
    "numbers": "{numbers}",
}


def _pictures(summary: Summary, experiment: str, title: str, part: str) -> list[Markdown]:
    """Return the figures of a part of an experiment that have data."""
    return [
        document.picture(figure.name, title, figure.caption)
        for figure in FIGURES
        if (figure.experiment, figure.part) == (experiment, part) and figure.settings(summary)
    ]


def command_of(experiment: str, summary: Summary) -> str:
    """Return the command that computes the data of an experiment again."""
    made, settings = summary["experiments"][experiment]["made"], summary["experiments"][experiment]["settings"]
    runs = [run for run in summary["runs"] if experiment in (run.get("experiments") or ())]
    words = ["attentest", "reproduce", "--experiment", experiment]
    if runs:
        names = [name for name in COUNTS if all(name in run["counts"] for run in runs)]  # earlier ones know fewer
        largest = max(runs, key=lambda run: sum(run["counts"][name] for name in names))
        preset, counts = PRESETS[largest["preset"]], largest["counts"]
        words += ["--preset", largest["preset"]]
        if any(counts[name] < getattr(preset, name) for name in names):
            words += ["--images", str(max(counts[name] for name in names))]
        tests = {run.get("tests", "all") for run in runs}
        words += ["--tests", *tests] if len(tests) == 1 and tests != {"all"} else []
        if experiment == "type-i-error" and counts["permutations"] < preset.permutations:
            words += ["--permutations", str(counts["permutations"])]
        words += _model_options(experiment, {model for run in runs for model in run["counts"]["models"]}, preset)
        seed, device = largest["seed"], largest["device_type"]
    else:
        # Another experiment's run, or one that was not recorded: counts and models are those of the data.
        images = max((setting.get("images", 0) for setting in settings), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        words += _model_options(experiment, set(made["models"]) & set(MODELS), PRESETS["full"])
        seed, device = made["seeds"][0], made["device_types"][0]
    authors = any(name.startswith("published") for name in made["models"])
    words += ["--seed", str(seed), "--device", str(device), *(["--published", "DIR"] if authors else [])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _model_options(experiment: str, used: set[str], preset: Preset) -> list[str]:
    """Return the options for the models that were used, where they are not those of the preset."""
    if not EXPERIMENTS[experiment].uses_several_models or used == set(preset.models):
        return []
    return [word for model in MODELS if model in used for word in ("--model", model)]


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
    spans = ", ".join(f"{duration(_covered(found))} on {device}" for device, found in by_device.items())
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
    found = []
    settings = {name: experiments.get(name, {}).get("settings", []) for name in EXPERIMENTS}
    for name, count in measures.COUNTS.items():
        images = [setting["images"] for setting in settings[name]]
        if any(number != count for number in images):
            here = span(images, "{:,}".format)
            found.append(f"{EXPERIMENTS[name].title}: {here} images per setting, {count:,} in the paper.")
    timed: dict[str, list[int]] = {}
    for setting in settings["computation-time"]:
        timed.setdefault(setting["search"], []).append(setting["images"])
    if timed:
        counts = ", ".join(f"{search} {span(images, '{:,}'.format)}" for search, images in timed.items())
        found.append(f"Images on which searches are timed: {counts}; 200 in the paper. Up to 100 are tested together.")
    permuted = [setting["permutation"] for setting in settings["type-i-error"] if setting["permutation"]]
    permutations = sorted({one["permutations"] for one in permuted})
    if permutations and permutations != [1000]:
        found.append(
            f"Permutations per image: {', '.join(f'{count:,}' for count in permutations)}; 1,000 in the paper."
        )
    return found
