"""Synthetic results of the brain study, made without a model, with known rates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attentest.runs.record_lines import add_line
from attentest.runs.records import RUNS
from attentest.studies.brain.classifier import performance
from attentest.studies.brain.condition import CONDITIONS, PAPER, Condition
from attentest.studies.brain.study import FACTS, model_directory
from attentest.studies.measures import data_file

Row = dict[str, Any]

VERSIONS = {"attentest": "0.1.0", "python": "3.11.7"}


def row(number: int, tumour: bool, p: float, *, patient: str | None = None, naive: float = -800.0) -> Row:
    """A tested slice; ten patients take turns."""
    return {
        "image": number,
        "seconds": 0.5,
        "patient": patient or f"P{number % 10}",
        "slice": number,
        "tumour": tumour,
        "p": p,
        "p_low": p,
        "p_high": p,
        "log_p": float(np.log(p)),
        "statistic": 40.0 + number % 7,
        "log_naive": naive,
        "log_bonferroni": 0.0,
        "difference": 30.0,
        "standard_error": 0.75,
        "room": 15.0,
        "region": 1000 + number,
        "iou": (number % 50) / 100 if tumour else None,
        "in_tumour": 0.1 if tumour else 0.0,
        "in_the_dark": 0.05,
        "evaluations": 200,
        "status": "converged",
    }


def rows(images: int, *, with_tumour: float = 0.8, without: float = 0.05, naive: float = 1.0) -> list[Row]:
    """Slices of each class, with given shares of p at most 0.05, and without tumour of naive p at most 0.05."""
    place = (np.random.default_rng(0).permutation(images) + 0.5) / images
    found = []
    for tumour, rate in ((True, with_tumour), (False, without)):
        for index, at in enumerate(place):
            p = 1e-9 if at < rate / 2 else 0.01 if at < rate else 0.5
            small = tumour or at < naive
            found.append(row(index + images * tumour, tumour, p, naive=-800.0 if small else -1.0))
    return found


def estimated(found: Iterable[Row]) -> list[Row]:
    """Slices after randomised selection: with tumour estimates are 8 greater, and patients differ by 0 to 9."""
    degrees = {"noise_degrees": 40.0}
    return [{**one, "estimate": 12.0 + 8 * one["tumour"] + one["image"] % 10, **degrees} for one in found]


NOISE = {
    "pooled": {"model": "isotropic", "images": 100, "sigma": 24.9},
    "ar1": {"model": "ar1", "images": 100, "sigma": 24.9, "rho": 0.728},
}


def failed_row(number: int, tumour: bool, error: str = "InputError: no") -> Row:
    return {"image": number, "patient": "P0", "slice": 0, "tumour": tumour, "error": error, "seconds": 0.0}


def write_condition(out: Path, condition: Condition, found: Iterable[Row]) -> None:
    header = {
        "series": vars(condition),
        "seed": 0,
        "model_sha256": "ab" * 32,
        "settings": {"noise": NOISE.get(condition.noise, {"model": "dense", "images": 100})},
        "device": "some GPU",
        "device_type": "cuda",
        "versions": VERSIONS,
    }
    with data_file(out, condition.name).writing(header) as writer:
        writer.add(list(found))


def write_study(
    out: Path,
    conditions: Mapping[Condition, list[Row]],
    *,
    patient: str = "P0",
    command: str = "attentest brain --data DIR",
) -> Path:
    """Write a directory as the study leaves it, and return it."""
    for condition, found in conditions.items():
        write_condition(out, condition, found)
    facts = {
        "command": command,
        "data": {
            "sha256": "cd" * 32,
            "slices": 3929,
            "kept": 3213,
            "kept_rule": {"brighter_than": 20, "least_share": 0.2},
            "patients": 109,
            "with_tumour": 1311,
            "seed": 0,
            "split": {
                "noise": {"patients": 10, "with_tumour": 0, "without_tumour": 100},
                "training": {"patients": 60, "with_tumour": 700, "without_tumour": 700},
                "test": {"patients": 39, "with_tumour": 480, "without_tumour": 610},
            },
        },
    }
    (out / FACTS).write_text(json.dumps(facts))
    logits, labels = np.array([2.0, -1.0, 1.0, -2.0, 0.5, -0.5]), np.array([True, False, True, False, False, True])
    judged = performance(logits, labels, np.array([patient, patient, "P1", "P1", "P2", "P2"]), draws=20)
    record = {
        "data": facts["data"],
        "settings": {"epochs": 120},
        "accuracy": {"training": 0.975},
        "parameters": 408449,
        "seconds": 300.0,
        "device": "some GPU",
        "versions": VERSIONS,
        "weights_sha256": "ab" * 32,
        "performance": judged,
    }
    model_directory(out).mkdir(parents=True)
    (model_directory(out) / "training.json").write_text(json.dumps(record))
    run = {"began": "2026-01-01T00:00:00+00:00", "seconds": 7200.0, "trained": 300.0, "tested": 1000, "failed": 0}
    add_line(out / RUNS, {**run, "finished": True, "sensitivity_images": 100, "device": "some GPU"})
    return out


def write_everything(out: Path) -> Path:
    """Write data of every condition; ours have intervals of twice the length of the naive ones, and estimates."""
    found = {one: rows(100 if one == PAPER else 20) for one in CONDITIONS}
    for condition in (one for one in CONDITIONS if one.ours):
        half = 2 * 1.959963984540054 * 0.75
        bound = float(np.sqrt(1 + 1 / condition.randomise**2)) if condition.randomise else None
        ends = {"confidence_low": 30 - half, "confidence_high": 30 + half, "confidence_error": 0.0}
        found[condition] = [{**one, **ends, "confidence_bound": bound} for one in found[condition]]
        if condition.randomise:
            found[condition] = estimated(found[condition])
    return write_study(out, found)
