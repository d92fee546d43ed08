from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from attentest.errors import InputError
from attentest.studies.brain.condition import NOISE_IMAGES_PER_PATIENT, PARTS, Split, split_by_patient
from attentest.studies.brain.dataset import LEAST_BRIGHT, LEAST_SHARE, SIDE, Slices, load_slices
from brain_folder import write_brain_folder


def slices_of(patients: list[tuple[int, int]]) -> Slices:
    """Bright slices of patients with these numbers of slices with and without tumour."""
    tumour = [has for counts in patients for has in [True] * counts[0] + [False] * counts[1]]
    bright = np.full((len(tumour), SIDE, SIDE), 100, dtype=np.uint8)
    names = [f"P{index}" for index, counts in enumerate(patients) for _ in range(sum(counts))]
    return Slices(
        flair=bright,
        mask=bright == 0,
        tumour=np.array(tumour, dtype=bool),
        patient=np.array(names, dtype=np.str_),
        number=np.arange(len(tumour)),
    )


def names(split: Split) -> list[set[str]]:
    return [set(split.slices.take(getattr(split, part)).names) for part in PARTS]


EVEN = [(8, 15)] * 30


@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 14)), min_size=8, max_size=12),
    st.integers(1, 25),
    st.integers(1, 8),
    st.integers(0, 2**64 - 1),
)
def test_properties_of_every_split(patients: list[tuple[int, int]], noise: int, training: int, seed: int) -> None:
    slices = slices_of(patients)
    options = {"noise_images": noise, "training_per_class": training, "seed": seed}
    try:
        split = split_by_patient(slices, **options)
    except InputError:
        reject()
    taken = [slices.take(part) for part in (split.noise, split.training, split.test)]
    owners = [set(part.patient.tolist()) for part in taken]
    assert not owners[0] & owners[1]
    assert not (owners[0] | owners[1]) & owners[2]
    assert len(split.noise) == noise
    assert not taken[0].tumour.any()
    assert max(np.unique(taken[0].patient, return_counts=True)[1]) <= NOISE_IMAGES_PER_PATIENT
    assert taken[1].tumour.sum() == (~taken[1].tumour).sum() == training
    assert set(taken[2].tumour.tolist()) == {True, False}
    assert np.array_equal(split.test, np.flatnonzero(np.isin(slices.patient, list(owners[2]))))  # all of theirs
    for part in (split.noise, split.training, split.test):
        assert (np.diff(part) > 0).all()
        assert not part.flags.writeable
    order = np.random.default_rng(seed).permutation(len(slices))
    assert names(split_by_patient(slices.take(order), **options)) == names(split)


def test_no_more_patients_are_used_than_needed() -> None:
    slices = slices_of(EVEN)
    split = split_by_patient(slices, noise_images=45, training_per_class=40)
    facts = split.facts()
    assert facts["split"] == {
        "noise": {"patients": 5, "with_tumour": 0, "without_tumour": 45},
        "training": {"patients": 5, "with_tumour": 40, "without_tumour": 40},
        "test": {"patients": 20, "with_tumour": 160, "without_tumour": 300},
    }
    counts = np.unique(slices.take(split.noise).patient, return_counts=True)[1]
    assert sorted(counts.tolist()) == [5, 10, 10, 10, 10]
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["sha256"], facts["slices"], facts["kept"]) == (slices.digest(), 690, 690)


def test_the_seed_decides() -> None:
    slices = slices_of(EVEN)
    drawn = [split_by_patient(slices, noise_images=20, training_per_class=16, seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0].training, drawn[1].training)
    assert np.array_equal(drawn[0].noise, drawn[1].noise)
    assert drawn[0].test_order() == drawn[1].test_order()
    assert set(slices.patient[drawn[0].test]) != set(slices.patient[drawn[2].test])


def test_every_slice_is_as_likely_to_be_drawn() -> None:
    slices = slices_of([(2, 20)] * 6)
    counts = np.zeros(len(slices))
    for seed in range(80):
        counts[split_by_patient(slices, noise_images=15, training_per_class=2, seed=seed).noise] += 1
    free = counts[~slices.tumour]
    # 15 of 120: 10 expected each, with a standard deviation below 3; no patient or place in one is preferred.
    assert free.mean() == 10
    assert (abs(free - 10) < 5 * 3).all()
    # 200 of each patient: 10, 5 or 0 per split, with chances 1/6, 1/6 and 2/3, so a standard deviation below 35.
    assert (abs(free.reshape(6, 20).sum(axis=1) - 200) < 4 * 35).all()


@pytest.mark.parametrize(
    ("patients", "options", "message"),
    [
        (
            [(3, 12), (3, 4)],
            {"noise_images": 15},
            "15 slices without tumour are wanted for the noise, but 2 patients give 14 with at most 10 of each: "
            "ask for fewer with noise_images",
        ),
        (
            [(3, 5)] * 4,
            {"noise_images": 5, "training_per_class": 12},
            "12 slices with and 12 without tumour are wanted for training, but those not in the noise part are 9 with "
            "and 15 without, of 3 patients: ask for fewer with training_per_class",
        ),
        ([(3, 5)], {"noise_images": 5, "training_per_class": 1}, "are 0 with and 0 without, of 0 patients:"),
        (
            [(3, 5)] * 4,
            {"noise_images": 5, "training_per_class": 9},
            "at least 2 patients, but left for it are 0 with and 0 without, of 0 patients:",
        ),
        ([(0, 5)] * 4 + [(2, 0)], {"noise_images": 5, "training_per_class": 2}, "but left for it are 0 with and"),
        (EVEN, {"noise_images": 0}, "noise_images must be at least 1"),
        (EVEN, {"training_per_class": 1.5}, "training_per_class must be a whole number"),
        (EVEN, {"seed": -1}, "seed must be at least 0"),
    ],
)
def test_impossible_splits(patients: list[tuple[int, int]], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        split_by_patient(slices_of(patients), **options)
    assert message in str(caught.value)


def test_patients_without_free_slices_are_left_for_training() -> None:
    slices = slices_of([(4, 0)] * 5 + [(0, 4)] * 5)
    for seed in range(20):
        with pytest.raises(InputError, match="not in the noise part are 20 with and 16 without, of 9 patients"):
            split_by_patient(slices, noise_images=4, training_per_class=1000, seed=seed)


@pytest.mark.parametrize("noise", [[1, 1], [2]])
def test_a_slice_is_in_one_part(noise: list[int]) -> None:
    with pytest.raises(InputError, match=f"each slice may be in one part, once, but slice {noise[-1]} is not"):
        Split(
            slices=slices_of(EVEN[:1]),
            noise=np.array(noise),
            training=np.array([2]),
            test=np.array([3]),
            seed=0,
            sha256="",
            total=23,
        )


def test_a_fifth_of_the_pixels_must_be_bright(tmp_path: Path) -> None:
    slices = slices_of([(1, 2)])
    flair = np.full(slices.flair.shape, LEAST_BRIGHT, dtype=np.uint8)
    flair[1].flat[:819] = flair[2].flat[:820] = LEAST_BRIGHT + 1  # of 4096
    dark = Slices(flair=flair, mask=slices.mask, tumour=slices.tumour, patient=slices.patient, number=slices.number)
    assert LEAST_SHARE == 0.2
    assert dark.shows_brain().tolist() == [False, False, True]
    message = "all 2 slices are nearly empty: none has 20% of its pixels brighter than 20"
    with pytest.raises(InputError, match=message):
        split_by_patient(dark.take([0, 1]))


def test_the_synthetic_data_can_be_split(tmp_path: Path) -> None:
    slices = load_slices(write_brain_folder(tmp_path))
    assert np.array_equal(slices.shows_brain(), slices.number > 1)
    assert slices.tumour.sum() == 24
    facts = split_by_patient(slices, noise_images=8, training_per_class=8).facts()
    found = facts["split"]
    assert found["test"]["patients"] == 12 - found["noise"]["patients"] - found["training"]["patients"]
    assert (facts["slices"], facts["kept"]) == (72, 60)


def test_the_real_data_suffice(brain_data: Path) -> None:
    slices = load_slices(brain_data)
    for seed in range(2):
        found = split_by_patient(slices, seed=seed).facts()["split"]
        assert found["noise"]["without_tumour"] == 100
        assert found["training"]["with_tumour"] == found["training"]["without_tumour"] == 700
        assert min(found["test"]["with_tumour"], found["test"]["without_tumour"]) > 300
