"""The record of a result: it comes back from JSON as it was, and damage is found when it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.record import ResultRecord
from attentest.results.components import component_records
from attentest.search import Certification
from toys import image_of_components, tiny_vit


@pytest.fixture(scope="module")
def records() -> list[ResultRecord]:
    """Records of a plain result, of a randomised and certified one, and of a component."""
    image = np.random.default_rng(2).normal(size=(8, 8))
    plain = AttentionTest(tiny_vit(), noise=1.0, confidence_level=0.9)
    randomised = AttentionTest(tiny_vit(), noise=1.0, threshold=0.5, randomise=0.5, alternative="greater")
    certified = randomised(image, certification=Certification(draws=9))
    return [
        plain(image).record(),
        certified.record(),
        component_records([list(randomised.components(image_of_components(randomised, 3)))])[0][1],
    ]


def test_it_comes_back_from_json(records: list[ResultRecord]) -> None:
    for record in records:
        again = ResultRecord.from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False)))
        assert again.to_dict() == record.to_dict()
        for field in fields(record):
            if field.name not in ("law", "truncation_set"):
                assert getattr(again, field.name) == getattr(record, field.name), field.name
        np.testing.assert_array_equal(again.truncation_set.possible, record.truncation_set.possible)
        assert type(again.law) is type(record.law)
        assert again.law.z_obs == record.law.z_obs
    assert records[1].certificate is not None
    assert records[2].simultaneous_interval is not None


def test_a_record_without_an_interval_has_none_in_json(records: list[ResultRecord]) -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, confidence_level=None)
    result = test(np.random.default_rng(2).normal(size=(8, 8)))
    values = result.to_dict()
    assert not [name for name in values if "confidence_interval" in name]
    assert ResultRecord.from_dict(values).confidence_interval is None
    assert result.record(0.9).to_dict()["confidence_interval"]["confidence_level"] == 0.9
    assert all(record.confidence_interval is not None for record in records)
    assert component_records([list(test.components(result.image))])[0][0].simultaneous_interval is None


def changed(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.update({name: value})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed("version", 7), "has version 7, and this attentest reads version 1"),
        (lambda values: values.pop("version"), "has version None"),
        (lambda values: values.pop("law"), "is incomplete: law is missing"),
        (lambda values: values["settings"].pop("noise"), "is incomplete: noise is missing"),
        (changed("settings", []), "settings must be an object"),
        (changed("statistic", "3"), "statistic must be a number, got '3' of type str"),
        (changed("statistic", 99.0), "the truncation set must contain the observed statistic"),
        (changed("standard_error", -1.0), "standard_error must be positive and finite, got -1.0"),
        (changed("standard_error", "inf"), "standard_error must be a number"),
        (changed("log_pvalue", 0.5), "log_pvalue must lie between -inf and 0, got 0.5"),
        (changed("log_pvalue", -99.0), "log_pvalue must lie within its bounds, got -99.0"),
        (changed("estimate_bounds", [2.0, 1.0]), "estimate must lie within its bounds"),
        (changed("alternative", "both"), "alternative must be 'two-sided'"),
        (changed("part_pixels", 1.5), "part_pixels must be a whole number, got 1.5"),
        (changed("part_pixels", 65), "part_pixels, region_pixels and image_pixels must not decrease"),
        (changed("evaluations", -3), "evaluations must be at least 0"),
        (
            changed("status", None),
            "status must be one of converged, decided, rough, max_evaluations, precision, sharp, got None",
        ),
        (changed("status", "finished"), "got 'finished'"),
        (changed("pvalue", "abc"), "pvalue is 'abc', and by the other values it is 0."),
        (changed("pvalue", 1e-9), "pvalue is 1e-09, and by the other values it is 0."),
        (changed("pvalue_bounds", [0.965, 0.966]), "pvalue_bounds is 0.965, and by the other values it is 0."),
        (changed("reject", True), "reject is True, and by the other values it is None"),
        (changed("difference", 1), "difference is 1, and by the other values it is "),
        (lambda values: values.pop("naive_pvalue"), "is incomplete: naive_pvalue is missing"),
        (lambda values: values.pop("confidence_interval"), "is incomplete: confidence_interval is missing"),
        (
            lambda values: values["confidence_interval"].update(confidence_level=0.5),
            "of naive_confidence_interval is",
        ),
        (changed("audit", {"points": "many", "contradictions": 0}), "points must be a whole number"),
        (lambda values: values["settings"]["contrast"].update(name=3), "name of contrast must be a text, got 3"),
        (lambda values: values["settings"].update(threshold="half"), "threshold must be a number, got 'half'"),
        (changed("law", {"name": "Cauchy"}), "is unknown"),
        (changed("alpha", 2), "alpha must lie strictly between 0 and 1, got 2"),
        (lambda values: values["truncation_set"].update(certain=[[2.0, 1.0]]), "certain must be pairs of ascending"),
        (lambda values: values["confidence_interval"].update(low=9e9), "ends of a confidence interval must not decre"),
    ],
)
def test_damage_is_found(records: list[ResultRecord], damage: Callable[[dict[str, Any]], None], message: str) -> None:
    values = json.loads(json.dumps(records[0].to_dict()))
    damage(values)
    with pytest.raises(InputError, match=r"record of a result|settings must") as raised:
        ResultRecord.from_dict(values)
    assert message in str(raised.value)
