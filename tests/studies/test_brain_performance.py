from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from attentest.errors import InputError
from attentest.studies.brain.classifier import auc, performance


def counted(logits: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The definition: pairs of a slice with and one without tumour, ties counted as one half."""
    difference = logits[labels][:, None] - logits[~labels][None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def judged(rng: np.random.Generator, count: int = 120, patients: int = 6) -> tuple[NDArray, NDArray, NDArray]:
    owner = rng.integers(0, patients, count)
    labels = rng.random(count) < 0.4
    logits = labels + rng.standard_normal(count) + rng.standard_normal(patients)[owner]
    return logits, labels, np.char.add("patient", owner.astype(str))


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_auc_counts_pairs(decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    for _ in range(20):
        logits, labels, _ = judged(rng, 50)
        logits = logits.round(decimals)  # few decimals make ties
        assert auc(logits, labels) == pytest.approx(counted(logits, labels), rel=1e-14)
        assert auc(logits, labels) == pytest.approx(roc_auc_score(labels, logits), rel=1e-14)


def test_auc_of_a_perfect_a_reversed_and_a_constant_classifier() -> None:
    labels = np.array([False, True, True, False, True])
    assert auc(labels * 2.0 - 1, labels) == 1
    assert auc(1 - labels * 2.0, labels) == 0
    assert auc(np.zeros(5), labels) == 0.5


def test_auc_depends_on_the_order_alone() -> None:
    logits, labels, _ = judged(np.random.default_rng(1))
    assert auc(np.exp(logits), labels) == auc(logits, labels)
    assert auc(-logits, ~labels) == auc(logits, labels)


def test_every_number_is_what_its_name_says() -> None:
    logits = np.array([1.0, -1.0, 2.0, 0.0, -3.0, 1.0])
    labels = np.array([True, True, True, False, False, False])
    patients = np.array(["a", "a", "b", "a", "c", "c"])
    found = performance(logits, labels, patients, draws=200)
    assert json.loads(json.dumps(found)) == found
    assert found["accuracy"] == pytest.approx(4 / 6)  # a logit of 0 is no tumour
    assert found["sensitivity"] == pytest.approx(2 / 3)
    assert found["specificity"] == pytest.approx(2 / 3)
    assert found["auc"] == pytest.approx((2.5 + 1 + 3) / 9)
    assert (found["slices"], found["with_tumour"], found["patients"]) == (6, 3, 3)
    assert found["by_patient"]["a"] == {"slices": 3, "with_tumour": 2, "accuracy": pytest.approx(2 / 3), "auc": 0.5}
    assert found["by_patient"]["b"]["auc"] is None
    assert found["by_patient"]["c"] == {"slices": 2, "with_tumour": 0, "accuracy": 0.5, "auc": None}
    assert (found["mean_patient_auc"], found["patients_with_auc"]) == (0.5, 1)
    assert found["bootstrap"]["drawn_again"] > 0  # b, b, b and c, c, c: 2 draws of 27
    split = performance(logits, labels, np.array(["a", "a", "a", "b", "b", "b"]), draws=20)
    assert (split["mean_patient_auc"], split["patients_with_auc"]) == (None, 0)
    assert split["auc_interval"] == [found["auc"]] * 2  # the only draws with both classes are those of both patients


def test_the_interval_is_reproducible_and_contains_the_auc() -> None:
    sample = judged(np.random.default_rng(2))
    first = performance(*sample, draws=300)
    assert performance(*sample, draws=300) == first
    low, high = first["auc_interval"]
    assert low < first["auc"] < high


def test_slices_of_a_patient_are_drawn_together() -> None:
    logits, labels, patients = judged(np.random.default_rng(3))
    # Copies of a patient's slices tell nothing new, and an interval that took slices for independent would shrink to
    # a third. Counts of copies cancel in every draw, so the AUCs are the same to rounding.
    copied = performance(np.repeat(logits, 9), np.repeat(labels, 9), np.repeat(patients, 9), draws=200)
    once = performance(logits, labels, patients, draws=200)
    assert copied["auc_interval"] == pytest.approx(once["auc_interval"], rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": np.array([1.0, np.nan, 0.0, 1.0])}, "1 that are not finite"),
        ({"logits": np.zeros((4, 1))}, r"shape \(4, 1\)"),
        ({"labels": np.array([0, 1, 0, 1])}, "labels must be an array of bool, got int64"),
        ({"labels": np.array([True, False])}, r"labels must have shape \(4,\), got \(2,\)"),
        ({"labels": np.ones(4, bool)}, "with and without tumour, got 4 with among 4"),
        ({"patients": np.array([1, 2, 3, 4])}, "patients must be an array of str, got int64"),
        ({"patients": np.array(["a", "b"])}, r"patients must have shape \(4,\), got \(2,\)"),
        ({"patients": np.array(["a"] * 4)}, "at least two, got 1"),
        ({"draws": 0}, "draws must be at least 1"),
    ],
)
def test_what_cannot_be_judged_is_refused(changes: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "logits": np.array([1.0, -1.0, 0.0, 1.0]),
        "labels": np.array([True, False, False, True]),
        "patients": np.array(["a", "a", "b", "b"]),
    }
    with pytest.raises(InputError, match=message):
        performance(**{**given, **changes})  # type: ignore[arg-type]
