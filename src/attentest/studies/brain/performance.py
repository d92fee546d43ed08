"""How well a classifier does on patients it has not seen, and rates with intervals over patients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from attentest.checks import float_array, whole_number
from attentest.errors import InputError
from attentest.studies.brain.slices import checked_array

BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 0
INTERVAL = (2.5, 97.5)
"""Percentiles of a 95% interval."""


def clustered_rate(hits: NDArray[np.bool_], patients: NDArray[np.str_]) -> dict[str, Any]:
    """Return the share of slices (m,) that are hits, with a 95% interval from drawing patients with replacement."""
    names, owner = np.unique(patients, return_inverse=True)
    slices = np.bincount(owner)
    found = np.bincount(owner, weights=hits)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), BOOTSTRAP_DRAWS)
    low, high = np.percentile(drawn @ found / (drawn @ slices), INTERVAL)
    return {"value": float(hits.mean()), "low": float(low), "high": float(high), "count": int(hits.sum())}


def auc(scores: ArrayLike, labels: NDArray[np.bool_]) -> float:
    """Return the probability that of two slices, one of each class, the one with tumour has the greater score.

    This is Mann and Whitney's statistic of scores (m,) and labels (m,); ties count as one half.
    """
    values = float_array(scores, "scores")
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InputError(
            f"scores must be a row of at least one finite number, got shape {values.shape} with "
            f"{(~np.isfinite(values)).sum()} that are not finite: leave those slices out."
        )
    truth = checked_array(labels, "labels", np.bool_, values.shape)
    if not has_both_classes(truth):
        raise InputError(f"an AUC needs slices with and without tumour, got {truth.sum()} with among {truth.size}.")
    return _auc(values, truth)


def performance(
    logits: NDArray[Any], labels: NDArray[np.bool_], patients: NDArray[np.str_], draws: int = BOOTSTRAP_DRAWS
) -> dict[str, Any]:
    """Judge a classifier by slices (m,) of at least two patients it was not trained on, JSON-ready.

    It predicts a tumour where a logit is positive. ``auc_interval`` is a 95% interval from drawing patients with
    replacement, each with all slices; ``bootstrap`` counts the draws with slices of one class only, which have no AUC
    and are repeated. The AUC of a patient with one class is None, and so is the mean over patients if all are.
    """
    overall = auc(logits, labels)
    names, owner = np.unique(checked_array(patients, "patients", np.str_, labels.shape), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"patients must be at least two, got {len(names)}: one says nothing about others.")
    draws = whole_number(draws, "draws", 1, 10**7)
    right = (logits > 0) == labels
    slices = [np.flatnonzero(owner == index) for index in range(len(names))]
    by_patient = {
        str(name): {
            "slices": len(own),
            "with_tumour": int(labels[own].sum()),
            "accuracy": float(right[own].mean()),
            "auc": _auc(logits[own], labels[own]) if has_both_classes(labels[own]) else None,
        }
        for name, own in zip(names, slices, strict=True)
    }
    aucs = [patient["auc"] for patient in by_patient.values() if patient["auc"] is not None]
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    replicates: list[float] = []
    repeated = 0
    while len(replicates) < draws:
        chosen = np.concatenate([slices[index] for index in rng.integers(0, len(slices), len(slices))])
        if has_both_classes(labels[chosen]):
            replicates.append(_auc(logits[chosen], labels[chosen]))
        else:
            repeated += 1
    return {
        "slices": labels.size,
        "with_tumour": int(labels.sum()),
        "patients": len(names),
        "accuracy": float(right.mean()),
        "sensitivity": float(right[labels].mean()),
        "specificity": float(right[~labels].mean()),
        "auc": overall,
        "auc_interval": np.percentile(replicates, INTERVAL).tolist(),
        "bootstrap": {"over": "patients", "draws": draws, "seed": BOOTSTRAP_SEED, "drawn_again": repeated},
        "mean_patient_auc": float(np.mean(aucs)) if aucs else None,
        "patients_with_auc": len(aucs),
        "by_patient": by_patient,
    }


def has_both_classes(labels: NDArray[np.bool_]) -> bool:
    """Return whether some labels are true and some false."""
    return bool(labels.any() and not labels.all())


def _auc(scores: NDArray[Any], labels: NDArray[np.bool_]) -> float:
    with_tumour = int(labels.sum())
    greater = rankdata(scores)[labels].sum() - with_tumour * (with_tumour + 1) / 2
    return float(greater / (with_tumour * (labels.size - with_tumour)))
