"""Conditions of the brain study, the row of a tested slice, and rates over patients."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attentest import AttentionTest, bundled_model
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.noise import Averaged, from_image
from attentest.runs.records import Row
from attentest.search import SpectralSearch
from attentest.studies.brain.condition import (
    CONDITIONS,
    CONTRASTS,
    ESTIMATORS,
    OUR_CONDITIONS,
    PAPER,
    THRESHOLDS,
    Condition,
    FittedNoise,
    available,
)
from attentest.studies.brain.dataset import SIDE, Slices, load_slices
from attentest.studies.brain.study import SliceWork, overlap, room_of, slice_values
from attentest.studies.brain.summary import summarise
from attentest.studies.measures import clustered_rate
from brain_data import write_study
from toys import tiny_vit


def test_every_noise_model_goes_with_every_contrast_and_every_threshold_with_the_papers() -> None:
    assert CONDITIONS[0] == PAPER
    assert len(set(CONDITIONS)) == len(CONDITIONS) == len({one.name for one in CONDITIONS})
    assert len({(one.noise, one.contrast, one.region, one.randomise) for one in OUR_CONDITIONS}) == 2 * 2 * 2 * 3
    assert set(OUR_CONDITIONS) <= set(CONDITIONS)
    assert [one.name for one in CONDITIONS if one.ours][-3] == "stationary-reference-0.6-patches-gamma1"
    assert CONDITIONS[-1].name == "stationary-neighbourhood-0.6-patches-gamma1"
    pairs = {(one.noise, one.contrast) for one in CONDITIONS if one.threshold == PAPER.threshold}
    assert {(noise, contrast) for noise in ESTIMATORS for contrast in CONTRASTS} <= pairs
    assert {one.threshold for one in CONDITIONS if (one.noise, one.contrast) == ("pooled", "background")} == set(
        THRESHOLDS
    )


def test_without_scikit_learn_the_shrunk_covariance_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sklearn" else object())
    assert {one.noise for one in CONDITIONS} - {one.noise for one in available()} == {"shrunk"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"noise": "white"}, "noise must be one of pooled, .* got 'white'"),
        ({"region": "voxels"}, "region must be one of pixels, patches, got 'voxels'"),
        ({"contrast": "elsewhere"}, "contrast must be one of background, .* got 'elsewhere'"),
        ({"noise": "sample", "contrast": "reference"}, "'sample' does not apply"),
    ],
)
def test_invalid_conditions(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Condition(**options)  # type: ignore[arg-type]


def test_the_reference_is_the_mean_slice_with_the_noise_of_a_mean() -> None:
    slices = np.random.default_rng(0).integers(0, 255, (20, 8, 8)).astype(np.uint8)
    fitted = FittedNoise(slices)
    contrast = fitted.contrast(Condition(noise="ar1", contrast="reference"))
    assert isinstance(contrast, Reference)
    mean = contrast.sample(2)
    assert mean is not None
    np.testing.assert_allclose(mean.pixels[0], slices.mean(axis=0))
    assert isinstance(contrast.noise, Averaged)
    assert contrast.noise.count == 20
    assert contrast.noise.model is fitted.model("ar1")


def test_overlap_is_intersection_over_union() -> None:
    first, second = np.zeros((2, 4, 4), dtype=bool)
    first[:2], second[1:3] = True, True
    assert overlap(first, second) == 4 / 12
    assert overlap(first, first) == 1.0
    assert overlap(first, np.zeros_like(first)) is None


def slices_of(flair: np.ndarray, tumour: list[bool]) -> Slices:
    count = len(flair)
    mask = np.zeros(flair.shape, dtype=bool)
    mask[np.array(tumour), 20:30, 20:30] = True
    return Slices(
        flair=flair,
        mask=mask,
        tumour=np.array(tumour),
        patient=np.array([f"P{index}" for index in range(count)]),
        number=np.arange(count),
    )


def rows_of(test: AttentionTest, slices: Slices) -> list[Row]:
    work = SliceWork(test=test, slices=slices)
    return [row for rows in work.run(range(len(slices))) for row in rows]


def test_a_row_says_what_the_result_says() -> None:
    flair = np.random.default_rng(1).integers(0, 40, (2, SIDE, SIDE)).astype(np.uint8)
    slices = slices_of(flair, [True, False])
    test = AttentionTest(tiny_vit(SIDE, 8), noise=11.5, search=SpectralSearch(tol=1e-3))
    first, second = rows_of(test, slices)
    result = test(flair[0])
    assert first["p"] == pytest.approx(result.pvalue, abs=1e-9)
    assert np.exp(first["log_p"]) == pytest.approx(first["p"])
    assert first["log_naive"] == result.naive_log_pvalue
    assert first["region"] == result.region.sum()
    assert first["iou"] == overlap(result.region, slices.mask[0])
    assert first["in_the_dark"] == np.mean(flair[0][result.region] <= 20)
    assert first["room"] == pytest.approx(room_of(result), abs=1e-6)
    assert first["confidence_bound"] is None
    interval = result.confidence_interval(0.95)
    assert first["confidence_low"] == pytest.approx(interval.low, abs=1e-6)
    assert (first["patient"], first["tumour"], first["image"]) == ("P0", True, 0)
    assert (second["patient"], second["tumour"], second["iou"], second["in_tumour"]) == ("P1", False, None, 0.0)
    assert "confidence_low" not in slice_values(test.replace(confidence_level=None)(flair[0]), flair[0], slices.mask[0])


def test_what_slices_show_together_is_what_a_cohort_of_their_results_shows(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    references, flair = (rng.integers(0, 90, (count, SIDE, SIDE)).astype(np.uint8) for count in (10, 12))
    flair[::2, 16:40, 16:40] += 60
    condition = Condition(region="patches", randomise=1.0)
    patients, tumour = np.array([f"P{index // 3}" for index in range(12)]), np.arange(12) % 2 == 0
    slices = replace(slices_of(flair, tumour.tolist()), patient=patients)
    test = AttentionTest(
        tiny_vit(SIDE, 8), noise=FittedNoise(references).noise(condition), region_unit="patches", randomise=1.0,
        search=SpectralSearch(tol=1e-3), confidence_level=None,
    )  # fmt: skip
    found = rows_of(test, slices)
    cohort = test.map(list(flair)).cohort(clusters=patients, covariates={"tumour": tumour})
    np.testing.assert_allclose([row["estimate"] for row in found], cohort.estimates.value)
    assert {row["noise_degrees"] for row in found} == {cohort.noise_degrees}
    together = summarise(write_study(tmp_path, {PAPER: found, condition: found}))["conditions"][1]["together"]
    expected = cohort.regression()
    for name, coefficient in (("free", "intercept"), ("difference", "tumour")):
        assert together["means"][name] == pytest.approx(vars(expected[coefficient]))
    parts = {"tumour": tumour, "free": ~tumour}
    for name, part in parts.items():  # each patient has slices of both classes: the mean of one is that of its slices
        assert together["means"][name]["value"] == pytest.approx(cohort.estimates.value[part].mean())
    assert together["at_least"] == {name: cohort.at_least(subset=part) for name, part in parts.items()}
    assert (together["slices"], together["patients"]) == (12, 4)


def test_a_slice_that_cannot_be_tested_is_a_row_with_its_error() -> None:
    flair = np.random.default_rng(1).integers(0, 40, (3, SIDE, SIDE)).astype(np.uint8)
    flair[1] = 7  # of one value: there is no noise to be estimated from it
    condition = FittedNoise(flair).noise(Condition(noise="sample"))
    test = AttentionTest.from_pretrained(
        bundled_model(64), noise=condition, search=SpectralSearch(tol=0.1), confidence_level=None
    )
    rows = rows_of(test, slices_of(flair, [True, True, False]))
    assert [row["image"] for row in rows] == [0, 1, 2]
    assert rows[1]["error"].startswith("the method 'sample' finds no noise in the image")
    assert (rows[1]["patient"], rows[1]["tumour"]) == ("P1", True)
    assert "p" in rows[0]
    assert "p" in rows[2]


def test_the_interval_of_a_rate_is_as_wide_as_patients_differ() -> None:
    rng = np.random.default_rng(0)
    patients = np.repeat([f"P{index:02d}" for index in range(40)], 25)
    alone = rng.random(1000) < 0.3
    alike = np.repeat(rng.random(40) < 0.3, 25)
    narrow, wide = clustered_rate(alone, patients), clustered_rate(alike, patients)
    assert narrow["value"] == alone.mean()
    assert narrow["count"] == alone.sum()
    # Binomial standard errors: of 1,000 slices 0.0145, of 40 patients 0.07; intervals are about 3.9 of them.
    assert narrow["high"] - narrow["low"] == pytest.approx(3.92 * 0.0145, rel=0.15)
    assert wide["high"] - wide["low"] == pytest.approx(3.92 * np.sqrt(alike.mean() * (1 - alike.mean()) / 40), rel=0.15)
    assert clustered_rate(alone, patients) == narrow


def test_wavelets_leave_out_the_dark_around_the_head(brain_data: Path) -> None:
    slices = load_slices(brain_data)
    kept = slices.take(slices.shows_brain())
    free = kept.take(np.flatnonzero(~kept.tumour)[::20])
    pooled = FittedNoise(free.flair).model("pooled").describe()["sigma"]
    found = []
    for image in free.flair:
        try:
            found.append(from_image(image, "wavelet").describe()["sigma"])
        except InputError:
            found.append(0.0)
    # More than half of the pixels lie outside the head, and their details are 0.03 of this.
    assert 0.1 * pooled < np.median(found) < pooled
