"""How well a classifier does on slices of patients it has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from attentest.checks import float_array, whole_number
from attentest.errors import InputError
from attentest.studies.brain.clustered_rate import BOOTSTRAP_DRAWS, INTERVAL


def auc(logits: ArrayLike, labels: NDArray[np.bool_]) -> float:
    """Return the probability that a slice with tumour has the greater logit of two, ties counted as one half.

    Parameters
    ----------
    logits : (m,)
        What the classifier says.
    labels : (m,) bool
        Which slices have a tumour; both classes are needed.

    Notes
    -----
    Mann and Whitney's statistic, from the ranks: m log m, where counting pairs is m^2.
    """
    scores, truth = _checked(logits, labels)
    if truth.all() or not truth.any():
        raise InputError(f"an AUC needs slices with and without tumour, got {truth.sum()} with among {truth.size}.")
    return _auc(scores, truth)


def performance(
    logits: ArrayLike,
    labels: NDArray[np.bool_],
    patients: ArrayLike,
    *,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = 0,
) -> dict[str, Any]:
    """Judge a classifier by slices of patients it was not trained on.

    Parameters
    ----------
    logits : (m,)
        What the classifier says: tumour where positive.
    labels : (m,) bool
        Which slices have a tumour; both classes are needed.
    patients : (m,) str
        Whose slices they are; at least two patients.
    draws, seed
        Of the bootstrap.

    Returns
    -------
    dict
        JSON-ready: ``slices``, ``with_tumour``, ``patients``, ``accuracy``, ``sensitivity``, ``specificity``, ``auc``,
        ``auc_interval`` (95%), ``bootstrap`` (how it was drawn), ``mean_patient_auc`` over the ``patients_with_auc``
        patients that have slices of both classes, None where there are none, and ``by_patient``: for each, ``slices``,
        ``with_tumour``, ``accuracy`` and ``auc``, None where the patient has one class only.

    Notes
    -----
    Slices of one patient are alike, so the interval draws patients with replacement, each with all its slices. A draw
    without slices of both classes has no AUC: it is drawn again, and ``bootstrap`` says how often that was so.
    """
    scores, truth = _checked(logits, labels)
    names, owner = _checked_patients(patients, truth.size)
    draws, seed = whole_number(draws, "draws", 1, 10**7), whole_number(seed, "seed", 0, 2**63 - 1)
    overall = auc(scores, truth)
    right = (scores > 0) == truth
    by_patient = {}
    for index, name in enumerate(names):
        own = owner == index
        by_patient[name] = {
            "slices": int(own.sum()),
            "with_tumour": int(truth[own].sum()),
            "accuracy": float(right[own].mean()),
            "auc": None if truth[own].all() or not truth[own].any() else _auc(scores[own], truth[own]),
        }
    aucs = [row["auc"] for row in by_patient.values() if row["auc"] is not None]
    replicates, again = _bootstrapped_aucs(scores, truth, owner, draws, np.random.default_rng(seed))
    low, high = np.percentile(replicates, INTERVAL)
    return {
        "slices": truth.size,
        "with_tumour": int(truth.sum()),
        "patients": len(names),
        "accuracy": float(right.mean()),
        "sensitivity": float(right[truth].mean()),
        "specificity": float(right[~truth].mean()),
        "auc": overall,
        "auc_interval": [float(low), float(high)],
        "bootstrap": {"over": "patients", "draws": draws, "seed": seed, "drawn_again": again},
        "mean_patient_auc": float(np.mean(aucs)) if aucs else None,
        "patients_with_auc": len(aucs),
        "by_patient": by_patient,
    }


def _auc(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    ranks = rankdata(scores)
    with_tumour = int(truth.sum())
    greater = ranks[truth].sum() - with_tumour * (with_tumour + 1) / 2
    return float(greater / (with_tumour * (truth.size - with_tumour)))


def _bootstrapped_aucs(
    scores: NDArray[np.float64],
    truth: NDArray[np.bool_],
    owner: NDArray[np.intp],
    draws: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], int]:
    """Return the AUCs (draws,) of patients drawn with replacement, and how many draws had one class only."""
    slices = [np.flatnonzero(owner == index) for index in range(owner.max() + 1)]
    found: list[float] = []
    again = 0
    while len(found) < draws:
        chosen = np.concatenate([slices[index] for index in rng.integers(0, len(slices), len(slices))])
        if truth[chosen].all() or not truth[chosen].any():
            again += 1
        else:
            found.append(_auc(scores[chosen], truth[chosen]))
    return np.array(found), again


def _checked(logits: ArrayLike, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    scores, truth = float_array(logits, "logits"), np.asarray(labels)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise InputError(
            f"logits must be a row of at least one finite number, got shape {scores.shape} with "
            f"{(~np.isfinite(scores)).sum()} that are not finite: leave those slices out."
        )
    if truth.dtype != np.bool_ or truth.shape != scores.shape:
        raise InputError(
            f"labels must be an array of bool of shape {scores.shape}, one for each logit, got {truth.dtype} of shape "
            f"{truth.shape}."
        )
    return scores, truth


def _checked_patients(patients: ArrayLike, count: int) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of the patients and, for each slice, the place of its patient among them."""
    given = np.asarray(patients)
    if given.dtype.kind != "U" or given.shape != (count,):
        raise InputError(
            f"patients must be an array of names of shape ({count},), one for each logit, got {given.dtype} of shape "
            f"{given.shape}."
        )
    names, owner = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"patients must be at least two, got {len(names)}: one says nothing about others.")
    return [str(name) for name in names], owner
