"""Who the noise is estimated on, who the model is trained on, and who it is tested on: never the same patient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.studies.brain.slices import Slices

NOISE_IMAGES_PER_PATIENT = 10
"""Most slices of one patient that the noise is estimated on: they resemble each other, so many patients tell more."""

LEAST_TESTED = 2
"""Patients to test on: how much they differ is what intervals come from."""

MOST_IMAGES = 10**8
"""More images than this are a slip of the keyboard."""

PARTS = ("noise", "training", "test")


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Indices of slices, sorted, no two parts sharing any; read-only.

    Parameters
    ----------
    noise : (k,) int64
        Slices without tumour that the noise is estimated on.
    training : (l,) int64
        Slices that the model is trained on, as many with as without tumour.
    test : (m,) int64
        Slices that are tested.
    """

    noise: NDArray[np.int64]
    training: NDArray[np.int64]
    test: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in PARTS:
            part = np.asarray(getattr(self, name))
            if part.ndim != 1 or part.dtype.kind not in "iu" or (len(part) and part.min() < 0):
                raise InputError(f"{name} must be indices (k,), whole and from 0, got {part.dtype} {part.shape}.")
            part = np.sort(part.astype(np.int64))
            part.setflags(write=False)
            object.__setattr__(self, name, part)
        indices, counts = np.unique(np.concatenate([self.noise, self.training, self.test]), return_counts=True)
        if (counts > 1).any():
            raise InputError(f"every slice may be in one part only, once, but slice {indices[counts.argmax()]} is not.")

    def describe(self, slices: Slices) -> dict[str, dict[str, int]]:
        """Return, for each part, how many patients and images with and without tumour it has, ready for JSON."""
        return {name: _counts(slices.take(getattr(self, name))) for name in PARTS}


def split_by_patient(slices: Slices, *, noise_images: int = 100, training_per_class: int = 700, seed: int = 0) -> Split:
    """Split slices at random so that each patient is in one part.

    Patients are put in a random order. The first of them, with slices free of tumour, give those for the noise; the
    next ones those for training, until both classes are full; all slices of the others are tested. Whatever else the
    patients of the first two parts have is left out.

    Parameters
    ----------
    slices
        What to split; the result does not depend on their order.
    noise_images
        How many slices without tumour to estimate the noise on, at most ``NOISE_IMAGES_PER_PATIENT`` of a patient.
    training_per_class
        How many slices with tumour, and as many without, to train on.
    seed
        Source of randomness.
    """
    noise_images = whole_number(noise_images, "noise_images", 1, MOST_IMAGES)
    training_per_class = whole_number(training_per_class, "training_per_class", 1, MOST_IMAGES)
    rng = np.random.default_rng(whole_number(seed, "seed", 0, 2**64 - 1))
    order = np.lexsort((slices.number, slices.patient))  # draws must not depend on how the slices are given
    by_patient = [order[slices.patient[order] == name] for name in np.unique(slices.patient)]
    patients = [by_patient[index] for index in rng.permutation(len(by_patient))]
    noise, patients = _noise(slices, patients, noise_images, rng)
    training, patients = _training(slices, patients, training_per_class, rng)
    test = np.concatenate(patients) if patients else np.empty(0, dtype=np.int64)
    found = _counts(slices.take(test))
    if not (found["with_tumour"] and found["without_tumour"]) or found["patients"] < LEAST_TESTED:
        raise InputError(
            f"the test needs slices with and without tumour of at least {LEAST_TESTED} patients, but left for it are "
            f"{_words(found)}: ask for fewer with noise_images or training_per_class, or give more patients."
        )
    return Split(noise=noise, training=training, test=test)


Patients = list[NDArray[np.int64]]


def _noise(
    slices: Slices, patients: Patients, wanted: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Patients]:
    """Draw the slices for the noise; return them and the patients who gave none."""
    drawn: Patients = []
    others: Patients = []
    missing = wanted
    for own in patients:
        free = own[~slices.tumour[own]]
        count = min(len(free), NOISE_IMAGES_PER_PATIENT, missing)
        if not count:
            others.append(own)
            continue
        drawn.append(rng.choice(free, count, replace=False))
        missing -= count
    if missing:
        raise InputError(
            f"{wanted} slices without tumour are wanted for the noise, but {len(patients)} patients give "
            f"{wanted - missing} with at most {NOISE_IMAGES_PER_PATIENT} of each: ask for fewer with noise_images, or "
            "give more patients."
        )
    return np.concatenate(drawn), others


def _training(
    slices: Slices, patients: Patients, wanted: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Patients]:
    """Draw the slices for training; return them and the patients after the last who was needed."""
    tumours = np.cumsum([slices.tumour[own].sum() for own in patients], dtype=np.int64)
    frees = np.cumsum([(~slices.tumour[own]).sum() for own in patients], dtype=np.int64)
    needed = int(np.searchsorted(np.minimum(tumours, frees), wanted)) + 1
    if needed > len(patients):
        found = _counts(slices.take(np.concatenate(patients) if patients else []))
        raise InputError(
            f"{wanted} slices with and {wanted} without tumour are wanted for training, but those not in the noise "
            f"part are {_words(found)}: ask for fewer with training_per_class, or give more patients."
        )
    pool = np.concatenate(patients[:needed])
    classes = (pool[slices.tumour[pool]], pool[~slices.tumour[pool]])
    return np.concatenate([rng.choice(own, wanted, replace=False) for own in classes]), patients[needed:]


def _counts(slices: Slices) -> dict[str, int]:
    tumours = int(slices.tumour.sum())
    return {
        "patients": len(np.unique(slices.patient)),
        "with_tumour": tumours,
        "without_tumour": len(slices) - tumours,
    }


def _words(found: dict[str, int]) -> str:
    return f"{found['with_tumour']} with and {found['without_tumour']} without, of {found['patients']} patients"
