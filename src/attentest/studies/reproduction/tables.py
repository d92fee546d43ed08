"""The tables of the results page, each declared by its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attentest.presentation.words import pvalue_text
from attentest.search import CONVERGED
from attentest.studies.document import Columns, Markdown, duration, number, rate_text, table
from attentest.studies.reproduction.experiment import EXPERIMENTS
from attentest.studies.reproduction.measures import PERMUTATION, POWER, Setting, chosen, label
from attentest.training.paper_model import MODELS


def _number(key: str, digits: int = 3) -> Callable[[Setting], str]:
    return lambda setting: number(setting[key], digits)


def _rate(group: str, name: str) -> Callable[[Setting], str]:
    return lambda setting: rate_text(setting[group].get(name))


def _p(row: Mapping[str, Any]) -> str:
    """Return the p-value of a row as its search knows it; rows of the first version hold neither bounds nor status."""
    return pvalue_text(row["p"], (row.get("p_low", 0.0), row.get("p_high", 1.0)), row.get("status", CONVERGED), 4)


SETTING: Columns = {"setting": label, "images": "{images:,}"}
COST: Columns = {
    "KS p": _number("ks_pvalue"),
    "evaluations": _number("evaluations"),
    "seconds per image": _number("seconds"),
}
TYPE_I_ERROR: Columns = {
    **SETTING,
    "selective": _rate("tests", "selective"),
    "naive": _rate("tests", "naive"),
    "Bonferroni": _rate("tests", "bonferroni"),
    "permutation": _rate("tests", "permutation"),
    "band": "{tests[selective][band][0]:.3f} to {tests[selective][band][1]:.3f}",
    **COST,
}
PERMUTATION_TEST: Columns = {
    "permutation test": label,
    "published": lambda setting: f"{PERMUTATION[setting['model']]:.3f}",
    "here": _rate("tests", "permutation"),
    "permutations": "{permutation[permutations]:,}",
    "images": "{permutation[images]:,}",
}
BANDS: Columns = {"images": "{images:,}", "level": "{level}", "band": "{band[0]:.4f} to {band[1]:.4f}"}
POWER_OF_TESTS: Columns = {
    "setting": label,
    "Delta": "{delta:g}",
    "images": "{images:,}",
    "selective": _rate("tests", "selective"),
    "Bonferroni": _rate("tests", "bonferroni"),
    "selective, published": lambda setting: f"{POWER[setting['noise']][setting['delta']]:.3f}",
}
COMPUTATION_TIME: Columns = {
    "setting": label,
    "search": "{search}",
    "images": "{images:,}",
    "seconds per image": _number("seconds"),
    "seconds, ratio to spectral": _number("seconds_ratio"),
    "evaluations": _number("evaluations"),
    "evaluations, ratio to spectral": _number("evaluations_ratio"),
    "device": lambda setting: ", ".join(setting["devices"]),
}
DEMONSTRATION: Columns = {
    "image": "{image}",
    "statistic": "{statistic:.3f}",
    "steps that are not straight": "{bent[count]:,} of {bent[total]:,}",
    "smallest |f_i| close to it": _number("smallest_close"),
    "that of the median pixel": _number("median_close"),
}
DIFFERENCES: Columns = {
    "setting": lambda row: f"{label(row)}, {row['precision']}",
    "images": "{images:,}",
    "median |difference of p|": "{median:.2g}",
    "90%": "{ninety_percent:.2g}",
    "greatest": "{greatest:.2g}",
    "verdict changes": lambda row: rate_text(row["verdict_changes"]),
}
REGIONS: Columns = {
    "setting": label,
    "region differs in float32": lambda setting: rate_text(setting["region_differs"]),
    "pixels at most": "{pixels_changed[most]:,}",
    "image with the greatest difference: p, p in float64, p in float32": lambda setting: (
        "{image}: {text}, {p_float64:.4g}, {p_float32:.4g}".format(text=_p(setting["worst"]), **setting["worst"])
    ),
}
RUNS: Columns = {
    "began": "{began}",
    "preset": "{preset}",
    "experiments": lambda run: "all" if len(run["experiments"]) == len(EXPERIMENTS) else ", ".join(run["experiments"]),
    "tests": lambda run: run.get("tests", "all"),
    "seed": "{seed}",
    "device": "{device}",
    "trials": "{trials:,}",
    "failed": "{failed:,}",
    "wall time": lambda run: duration(run["seconds"]),
    "time of training": lambda run: (
        ", ".join(f"{model} {duration(seconds)}" for model, seconds in (run["trained"] or {}).items()) or "-"
    ),
    "ended": lambda run: "yes" if run["finished"] else "interrupted",
}
MODELS_USED: Columns = {
    "model": lambda model: model["model"] + ", authors'" * model["published"],
    "parameters": lambda one: "-" if one["parameters"] is None else f"{one['parameters']:,}",
    "held-out accuracy": lambda one: "-" if one["held_out_accuracy"] is None else f"{one['held_out_accuracy']:.4f}",
    "sha256 of the weights": lambda model: ", ".join(model["sha256"]),
    "trained by": lambda model: model["command"] or "-",
}
FAILURES: Columns = {
    "series": "{series}",
    "trials": "{images:,}",
    "failed": "{failed:,}",
    "not converged": lambda entry: ", ".join(f"{name}: {count}" for name, count in entry["statuses"].items()) or "-",
    "errors": lambda entry: "; ".join(f"{text} ({count})" for text, count in entry["errors"].items()) or "-",
}
MISSING: Columns = {"series": "{series}", "trials there": "{trials:,}", "asked for": "{asked:,}"}
TIMES: Columns = {
    "experiment": "{title}",
    "trials": "{trials:,}",
    "evaluations": "{evaluations:,}",
    "measured": lambda entry: duration(entry["seconds"]),
    "on the CPU, estimated": lambda entry: (
        duration(entry["cpu_seconds"])
        + (f", without {', '.join(entry['cpu_unknown'])}" if entry["cpu_unknown"] else "")
    ),
}


def _levels(settings: Sequence[Setting]) -> list[Markdown]:
    at: Columns = {f"at {alpha}": _rate("levels", alpha) for alpha in settings[0]["levels"]}
    bands = {(rate["total"], alpha): rate["band"] for setting in settings for alpha, rate in setting["levels"].items()}
    rows = [{"images": images, "level": alpha, "band": band} for (images, alpha), band in bands.items()]
    return [table(settings, {**SETTING, **at, **COST}), table(rows, BANDS)]


def _non_gaussian(settings: Sequence[Setting]) -> list[Markdown]:
    which: Columns = {"family": "{family}", "distance": "{distance:g}", "shape": _number("shape", 5)}
    at: Columns = {f"at {alpha}": _rate("levels", alpha) for alpha in settings[0]["levels"]}
    return [table(settings, {**which, "images": "{images:,}", **at, "KS p": COST["KS p"]})]


def _type_i_error(settings: Sequence[Setting]) -> list[Markdown]:
    correlated = chosen(settings, noise="correlated")
    published = [one for one in correlated if one["model"] in PERMUTATION and one["permutation"]]
    return [table(settings, TYPE_I_ERROR), table(published, PERMUTATION_TEST)]


def _precision(settings: Sequence[Setting]) -> list[Markdown]:
    rows = [{**one, **one[name], "precision": name} for one in settings for name in ("float32", "float64")]
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


def _length(text: str) -> Callable[[Setting], str]:
    """Return the lengths of intervals by a format; "-" if there are none, or none has a bound."""

    def shown(setting: Setting) -> str:
        length = setting["length"] or {"longest": None}
        absent = "longest" in text and length["longest"] is None
        return "-" if absent else text.format_map({name: number(value) for name, value in length.items()})

    return shown


OURS: Mapping[str, Callable[[Setting], str]] = {
    "share with p at most 0.05": lambda setting: rate_text(setting["rejected"]),
    "coverage of the 95% interval": _coverage,
    "length of the interval over that of the naive one: median (mean)": _length("{median} ({mean})"),
    "bound on that length: the longest over its bound": _length("{bound}: {longest}"),
    "evaluations per image": _number("evaluations"),
    "IoU of region and signal": _number("iou"),
}
"""What the tables of our tests show, by their headings."""


def our_tables(settings: Sequence[Setting]) -> list[Markdown]:
    """Return a table for each value of our tests, with a line per setting and a column per test; none without data."""
    by_setting: dict[str, dict[str, Setting]] = {}
    for one in settings:
        where = f"{label(one)}, Delta {one['delta']:g}" if one["delta"] else label(one)
        by_setting.setdefault(f"{where}, {one['images']:,} images", {})[one["test"]] = one
    tests = list(dict.fromkeys(one["test"] for one in settings))

    def cell(test: str, text: Callable[[Setting], str]) -> Callable[[tuple[str, dict[str, Setting]]], str]:
        return lambda line: text(line[1][test]) if test in line[1] else "-"

    return [
        table(by_setting.items(), {heading: lambda line: line[0], **{test: cell(test, text) for test in tests}})
        for heading, text in OURS.items()
        if any(text(one) != "-" for one in settings)
    ]


def time_tables(summary: Mapping[str, Any]) -> list[Markdown]:
    """Return the tables of what each experiment took, and of the time of one evaluation."""
    rows = [{"title": found["title"], **found["time"]} for found in summary["experiments"].values()]
    rows.append({"title": "All, each series once", **summary["time"]["each_series_once"]})
    seconds = summary["time"]["cpu_seconds_an_evaluation"]
    threads = " or ".join(str(count) for count in summary["time"]["cpu_threads"])
    evaluations = [
        {"model": model, "milliseconds": number(1000 * seconds[model])} for model in MODELS if model in seconds
    ]
    heading = f"milliseconds per evaluation on the CPU, {threads} threads"
    return [table(rows, TIMES), table(evaluations, {"model": "{model}", heading: "{milliseconds}"})]
