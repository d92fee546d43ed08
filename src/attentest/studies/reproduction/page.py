"""The results page, as Markdown with figures beside it and as one HTML file, both from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from attentest.studies.reproduction.measures import PERMUTATION, POWER, Setting, chosen, label
from attentest.studies.reproduction.run import DERIVATIVE_COST
from attentest.studies.reproduction.statements import findings
from attentest.studies.reproduction.trial import TOL
from attentest.training.paper_model import MODELS

Summary: TypeAlias = Mapping[str, Any]

SETTING: Columns = {"setting": label, "images": "{images}"}
COST: Columns = {"KS p": "{ks_pvalue}", "evaluations": "{evaluations}", "seconds per image": "{seconds}"}
TYPE_I_ERROR: Columns = {
    **SETTING,
    "selective": "{tests[selective]}",
    "naive": "{tests[naive]}",
    "Bonferroni": "{tests[bonferroni]}",
    "permutation": "{tests[permutation]}",
    "band": "{tests[selective][band][0]:.3f} to {tests[selective][band][1]:.3f}",
    **COST,
}
PERMUTATION_TEST: Columns = {
    "permutation test": label,
    "published": lambda setting: f"{PERMUTATION[setting['model']]:.3f}",
    "here": "{tests[permutation]}",
    "permutations": "{permutation[permutations]}",
    "images": "{permutation[images]}",
}
BANDS: Columns = {"images": "{images}", "level": "{level}", "band": "{band[0]:.4f} to {band[1]:.4f}"}
POWER_OF_TESTS: Columns = {
    "setting": label,
    "Delta": "{delta:g}",
    "images": "{images}",
    "selective": "{tests[selective]}",
    "Bonferroni": "{tests[bonferroni]}",
    "selective, published": lambda setting: f"{POWER[setting['noise']][setting['delta']]:.3f}",
}
COMPUTATION_TIME: Columns = {
    "setting": label,
    "search": "{search}",
    "images": "{images}",
    "seconds per image": "{seconds}",
    "seconds, ratio to spectral": "{seconds_ratio}",
    "evaluations": "{evaluations}",
    "evaluations, ratio to spectral": "{evaluations_ratio}",
    "device": lambda setting: ", ".join(setting["devices"]),
}
DEMONSTRATION: Columns = {
    "image": "{image!s}",
    "statistic": "{statistic:.3f}",
    "steps that are not straight": "{bent[count]} of {bent[total]}",
    "smallest |f_i| close to it": "{smallest_close}",
    "that of the median pixel": "{median_close}",
}
DIFFERENCES: Columns = {
    "setting": lambda row: f"{label(row)}, {row['precision']}",
    "images": "{images}",
    "median |difference of p|": "{median:.2g}",
    "90%": "{ninety_percent:.2g}",
    "greatest": "{greatest:.2g}",
    "verdict changes": "{verdict_changes}",
}
REGIONS: Columns = {
    "setting": label,
    "region differs in float32": "{region_differs}",
    "pixels at most": "{pixels_changed[most]}",
    "image with the greatest difference: p, p in float64, p in float32": lambda setting: (
        "{image}: {text}, {p_float64:.4g}, {p_float32:.4g}".format(text=_p(setting["worst"]), **setting["worst"])
    ),
}
FINDINGS: Columns = {
    **document.FINDINGS,
    "statement": lambda finding: Markdown(
        f"[{document.markdown(finding['statement'])}]"
        f"(#{document.anchor(_heading(EXPERIMENTS[finding['experiment']].title, finding['ours']))})"
    ),
}


def _p(row: Mapping[str, Any]) -> str:
    """Return the p-value of a row as its search knows it; the recorded summary has neither bounds nor status."""
    return pvalue_text(row["p"], (row.get("p_low", 0.0), row.get("p_high", 1.0)), row.get("status", CONVERGED), 4)


def _at_levels(settings: Sequence[Setting]) -> Columns:
    return {f"at {alpha}": f"{{levels[{alpha}]}}" for alpha in settings[0]["levels"]}


def _levels(settings: Sequence[Setting]) -> list[Markdown]:
    bands = {(rate["total"], alpha): rate["band"] for setting in settings for alpha, rate in setting["levels"].items()}
    rows = [{"images": images, "level": alpha, "band": band} for (images, alpha), band in bands.items()]
    return [table(settings, {**SETTING, **_at_levels(settings), **COST}), table(rows, BANDS)]


def _non_gaussian(settings: Sequence[Setting]) -> list[Markdown]:
    which: Columns = {"family": "{family}", "distance": "{distance:g}", "shape": "{shape:.5g}", "images": "{images}"}
    return [table(settings, {**which, **_at_levels(settings), "KS p": COST["KS p"]})]


def _type_i_error(settings: Sequence[Setting]) -> list[Markdown]:
    correlated = chosen(settings, noise="correlated")
    published = [setting for setting in correlated if setting["model"] in PERMUTATION and setting["permutation"]]
    return [table(settings, TYPE_I_ERROR), table(published, PERMUTATION_TEST)]


def _precision(settings: Sequence[Setting]) -> list[Markdown]:
    rows = [{**setting, **setting[name], "precision": name} for setting in settings for name in ("float32", "float64")]
    return [table(rows, DIFFERENCES), table(settings, REGIONS)]


TABLES: Mapping[str, Callable[[Sequence[Setting]], list[Markdown]]] = {
    "type-i-error": _type_i_error,
    "additional-trials": _levels,
    "power": lambda settings: [table(settings, POWER_OF_TESTS)],
    "computation-time": lambda settings: [table(settings, COMPUTATION_TIME)],
    "estimated-variance": _levels,
    "non-gaussian": _non_gaussian,
    "demonstration": lambda settings: [table(settings, DEMONSTRATION)],
    "precision": _precision,
}
"""For each experiment, the function from its settings, at least one, to its tables."""


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
"""What the tables of our tests show, by their headings."""


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
                "figures": drawn[name, "settings"],
                "tables": TABLES[name](data["settings"]) if data["settings"] else [],
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
        "tol": f"{TOL:g}",
        "differences": _differences(experiments),
    }
    return document.render("attentest.studies.reproduction", content)


def _heading(title: str, ours: bool) -> str:
    """Return the heading of an experiment, or of our tests in it."""
    return f"{title}: our tests" if ours else title


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
        used = {model for run in runs for model in run["counts"]["models"]}
        seed, device = largest["seed"], largest["device_type"]
    else:
        # Another experiment's run, or one that was not recorded: counts and models are those of the data.
        images = max((setting.get("images", 0) for setting in settings), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        used, preset = set(made["models"]) & set(MODELS), PRESETS["full"]
        seed, device = made["seeds"][0], made["device_types"][0]
    if EXPERIMENTS[experiment].uses_several_models and used != set(preset.models):
        words += [word for model in MODELS if model in used for word in ("--model", model)]
    authors = any(name.startswith("published") for name in made["models"])
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
            lines.append(f"{EXPERIMENTS[name].title}: {here} images per setting, {count:,} in the paper.")
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
