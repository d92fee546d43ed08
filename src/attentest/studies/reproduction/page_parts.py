"""The parts of the page around the experiments: commands, runs, time, failures, and what differs from the paper."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from attentest.studies.document import Table, duration, number
from attentest.studies.reproduction.cost import DERIVATIVE_COST
from attentest.studies.reproduction.experiment import EXPERIMENTS, SEVERAL_MODELS
from attentest.studies.reproduction.paper_model import MODELS
from attentest.studies.reproduction.preset import PRESETS, Preset
from attentest.studies.reproduction.trial import TOL

Summary = Mapping[str, Any]

PAPER_COUNTS = {
    "type-i-error": 1000,
    "additional-trials": 10_000,
    "estimated-variance": 10_000,
    "non-gaussian": 10_000,
    "power": 1000,
}
"""Images of a setting in the paper."""

COUNTS = ("null", "permuted", "additional", "power", "estimated", "nearly_gaussian")
"""Of a preset, those that ``--images`` limits and that tell its size."""


READING = (
    "Rates have 95% Wilson intervals. A test rejects where p is at most the level.",
    "A failed trial is never dropped. It counts as a rejection in the type I error, and as a miss in the power. Where "
    "nothing is counted (times, curves, precision) it is left out of the means, and listed below.",
    "The band of a level is the range in which the rates of one test, over all settings and levels of an experiment "
    "with attentest's models (or with the authors'), lie together with probability 95% if the test has exactly this "
    'level (binomial, Bonferroni). "Above" and "below" mean outside it. A test keeps its level if no rate is above.',
    "The permutation test counts permutations with a greater statistic. With B of them, exchangeable pixels are "
    "rejected at 0.05 with probability (0.05 B + 1) / (B + 1): its band is that of this level.",
    "With independent noise pixels are exchangeable, and the region is chosen anew in every permutation. There the "
    "permutation test is exact, whatever the model.",
    "A published rate agrees with ours if their difference is within Monte-Carlo error: published ones are of 1,000 "
    "images, and the 5% are shared by all comparisons of a statement.",
    "A level is judged where a valid test would reject at least ten images.",
)
"""How to read the findings."""

READING_TIMES = (
    "Measured: the sum of the seconds of the trials, on the device named above; where several runs shared it, each of "
    "them took longer. An experiment that shares images with another counts them too; the last line counts each once. "
    f"On the CPU: evaluations times the median time of one evaluation there, and {DERIVATIVE_COST} times that for the "
    "adaptive search, whose evaluations take a derivative (docs/measurements.md: that is for 32 images together; for "
    "single ones it is more)."
)


def command_of(experiment: str, summary: Summary) -> str:
    """Return the command that makes the data of an experiment anew."""
    found = summary["experiments"][experiment]
    runs = [run for run in summary["runs"] if experiment in (run.get("experiments") or ())]
    words = ["attentest", "reproduce", "--experiment", experiment]
    if runs:
        largest = max(runs, key=_size)
        words += _counts(experiment, largest, runs)
        seed, device = largest["seed"], largest["device_type"]
    else:
        # It was another experiment's run, or one that left no word: counts and models are those of the data.
        images = max((setting.get("images", 0) for setting in found["settings"]), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        words += _models(experiment, {name for name in found["made"]["models"] if name in MODELS}, PRESETS["full"])
        seed, device = found["made"]["seeds"][0], found["made"]["device_types"][0]
    published = any(name.startswith("published") for name in found["made"]["models"])
    words += ["--seed", str(seed), "--device", str(device), *(["--published", "DIR"] if published else [])]
    return " ".join(shlex.quote(word) for word in words)


def _size(run: Mapping[str, Any]) -> int:
    return sum(run["counts"][name] for name in COUNTS)


def _counts(experiment: str, largest: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the options that say how many images an experiment had in its largest run, and of which models in all."""
    words = ["--preset", str(largest["preset"])]
    preset, counts = PRESETS[str(largest["preset"])], largest["counts"]
    if any(counts[name] < getattr(preset, name) for name in COUNTS):
        words += ["--images", str(max(counts[name] for name in COUNTS))]
    if experiment == "type-i-error" and counts["permutations"] < preset.permutations:
        words += ["--permutations", str(counts["permutations"])]
    return words + _models(experiment, {model for run in runs for model in run["counts"]["models"]}, preset)


def _models(experiment: str, used: set[str], preset: Preset) -> list[str]:
    """Return the options that say which models were used, where a preset has others."""
    if experiment not in SEVERAL_MODELS or used == set(preset.models):
        return []
    return [word for model in MODELS if model in used for word in ("--model", model)]


def runs_table(summary: Summary) -> Table:
    """Return the runs that made the data."""
    rows = []
    for run in summary["runs"]:
        trained = run.get("trained") or {}
        training = ", ".join(f"{model} {duration(seconds)}" for model, seconds in trained.items())
        rows.append(
            (
                str(run["began"]),
                str(run["preset"]),
                ", ".join(run["experiments"]) if len(run["experiments"]) < len(EXPERIMENTS) else "all",
                f"{run['seed']}",
                str(run["device"]),
                f"{run['trials']:,}",
                f"{run['failed']:,}",
                duration(run["seconds"]),
                training or "-",
                "yes" if run["finished"] else "interrupted",
            )
        )
    head = (
        "began",
        "preset",
        "experiments",
        "seed",
        "device",
        "trials",
        "failed",
        "wall time",
        "of it training",
        "ended",
    )
    return Table(head=head, rows=rows)


def models_table(summary: Summary) -> Table:
    """Return the models that were used."""
    rows = [
        (
            model["model"] + (", authors'" if model["published"] else ""),
            "-" if model["parameters"] is None else f"{model['parameters']:,}",
            "-" if model["held_out_accuracy"] is None else f"{model['held_out_accuracy']:.4f}",
            ", ".join(model["sha256"]),
            model["command"] or "-",
        )
        for model in summary["models"]
    ]
    return Table(head=("model", "parameters", "held-out accuracy", "sha256 of the weights", "trained by"), rows=rows)


def wall_time(summary: Summary) -> str | None:
    """Return how long the runs took, in a sentence, if they are known."""
    runs = summary["runs"]
    if not runs:
        return None
    training = sum(seconds for run in runs for seconds in (run.get("trained") or {}).values())
    of_it = f"; training classifiers took {duration(training)} of it" if training else ""
    by_device: dict[str, list[tuple[datetime, float]]] = {}
    for run in runs:
        by_device.setdefault(str(run["device"]), []).append((datetime.fromisoformat(run["began"]), run["seconds"]))
    spans = ", ".join(f"{duration(_covered(found))} on {device}" for device, found in by_device.items())
    return f"Wall time of the runs, where several at once count once: {spans}{of_it}."


def _covered(spans: Iterable[tuple[datetime, float]]) -> float:
    """Return the seconds that spans (beginning, length) cover, each moment once."""
    covered, until = 0.0, float("-inf")
    for start, length in sorted((began.timestamp(), seconds) for began, seconds in spans):
        covered += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return covered


def time_tables(summary: Summary) -> list[Table]:
    """Return what each experiment took, and what one evaluation takes."""
    entries = {found["title"]: found["time"] for found in summary["experiments"].values()}
    entries["All, each series once"] = summary["time"]["each_series_once"]
    rows = [
        (
            title,
            f"{time['trials']:,}",
            f"{time['evaluations']:,}",
            duration(time["seconds"]),
            duration(time["cpu_seconds"])
            + (f", without {', '.join(time['cpu_unknown'])}" if time["cpu_unknown"] else ""),
        )
        for title, time in entries.items()
    ]
    tables = [Table(head=("experiment", "trials", "evaluations", "measured", "on the CPU, estimated"), rows=rows)]
    seconds = summary["time"]["cpu_seconds_an_evaluation"]
    if seconds:
        rows_of = [(model, number(1000 * seconds[model])) for model in MODELS if model in seconds]
        threads = " or ".join(str(count) for count in summary["time"]["cpu_threads"])
        tables.append(Table(head=("model", f"ms of one evaluation on the CPU, {threads} threads"), rows=rows_of))
    return tables


def failures_table(summary: Summary) -> Table:
    """Return the trials that failed or did not converge."""
    rows = [
        (
            entry["series"],
            f"{entry['images']:,}",
            f"{entry['failed']:,}",
            ", ".join(f"{status}: {count}" for status, count in entry["statuses"].items()) or "-",
            "; ".join(f"{text} ({count})" for text, count in entry["errors"].items()) or "-",
        )
        for entry in summary["failures"]
    ]
    return Table(head=("series", "trials", "failed", "not converged", "errors"), rows=rows)


def missing_table(summary: Summary) -> Table:
    """Return what was asked for and is not there yet."""
    rows = [(entry["series"], f"{entry['trials']:,}", f"{entry['asked']:,}") for entry in summary["missing"]]
    return Table(head=("series", "trials there", "asked for"), rows=rows)


def differences(summary: Summary) -> Iterator[str]:
    """Yield what was done otherwise than in the paper, with the numbers of the data."""
    yield (
        f"p-values come from the spectral search with an error bar of {TOL:g}, not from the adaptive search. The "
        "adaptive, combination and fixed searches are run for their cost alone."
    )
    authors = [model["model"] for model in summary["models"] if model["published"]]
    used = f" The authors' {', '.join(authors)} were run as well, where the tables say so." if authors else ""
    yield f"The classifiers are attentest's own, trained as the paper describes.{used}"
    experiments = summary["experiments"]
    for name, paper in PAPER_COUNTS.items():
        counts = sorted({setting["images"] for setting in experiments.get(name, {}).get("settings", [])})
        if counts and (counts[0] != paper or counts[-1] != paper):
            here = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
            yield f"{experiments[name]['title']}: {here} images a setting, {paper:,} in the paper."
    timed: dict[str, set[int]] = {}
    for setting in experiments.get("computation-time", {}).get("settings", []):
        timed.setdefault(setting["search"], set()).add(setting["images"])
    if timed:
        counts_of = ", ".join(
            f"{search} {min(counts):,}" + (f" to {max(counts):,}" if len(counts) > 1 else "")
            for search, counts in timed.items()
        )
        yield f"Images on which searches are timed: {counts_of}; 200 in the paper. Up to 100 are tested together."
    permutations = sorted(
        {
            setting["permutation"]["permutations"]
            for setting in experiments.get("type-i-error", {}).get("settings", [])
            if setting["permutation"]
        }
    )
    if permutations and permutations != [1000]:
        yield f"Permutations of an image: {', '.join(f'{count:,}' for count in permutations)}; 1,000 in the paper."
    yield "Attention and p-values are computed in float64; the paper's code uses float32."
