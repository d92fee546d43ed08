"""The slices of a study, split by patient, and the conditions under which they are tested."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from attentest.checks import whole_number
from attentest.contrast import Background, Contrast, Neighbourhood, Reference
from attentest.errors import InputError
from attentest.noise import Averaged, FromImage, ImageNoise, NoiseModel, as_noise
from attentest.registry import NOISE_ESTIMATORS, REGION_UNITS
from attentest.studies.brain.dataset import LEAST_BRIGHT, LEAST_SHARE, Slices

NOISE_IMAGES_PER_PATIENT = 10  # most slices of one patient in the noise part, because slices of a patient are alike
LEAST_TESTED = 2  # fewest patients to test on: intervals come from how much patients differ
MOST_IMAGES = 10**8  # upper bound on numbers of images; larger ones are typing errors

PARTS = ("noise", "training", "test")

Indices = NDArray[np.int64]
Patients = list[Indices]
"""The slices of each patient."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Slices that show a brain, and the sorted indices of those in each of three parts without a common patient.

    The noise is estimated from slices without tumour; the classifier is trained on as many slices with as without. The
    digest and the ``total`` number are of all slices, including those that are left out.
    """

    slices: Slices
    noise: Indices
    training: Indices
    test: Indices
    seed: int
    sha256: str
    total: int

    def __post_init__(self) -> None:
        for name in PARTS:
            part = np.sort(getattr(self, name)).astype(np.int64, casting="safe")
            part.setflags(write=False)
            object.__setattr__(self, name, part)
        indices, counts = np.unique(np.concatenate([self.noise, self.training, self.test]), return_counts=True)
        if (counts > 1).any():
            raise InputError(f"each slice may be in one part, once, but slice {indices[counts.argmax()]} is not.")

    def facts(self) -> dict[str, Any]:
        """Return what identifies the slices and their split, JSON-ready."""
        return {
            "sha256": self.sha256,
            "slices": self.total,
            "kept": len(self.slices),
            "kept_rule": {"brighter_than": LEAST_BRIGHT, "least_share": LEAST_SHARE},
            "patients": len(np.unique(self.slices.patient)),
            "with_tumour": int(self.slices.tumour.sum()),
            "seed": self.seed,
            "split": {name: _counts(self.slices, getattr(self, name)) for name in PARTS},
        }

    def test_order(self) -> dict[bool, list[int]]:
        """Return the indices of the test slices with (True) and without tumour (False), each in a random order."""
        rng = np.random.default_rng(self.seed)
        tumour = self.slices.tumour[self.test]
        return {which: rng.permutation(self.test[tumour == which]).tolist() for which in (True, False)}


def split_by_patient(slices: Slices, *, noise_images: int = 100, training_per_class: int = 700, seed: int = 0) -> Split:
    """Leave out nearly empty slices and split the others at random so that each patient is in one part.

    Patients are put in a random order. The first of them who have slices without tumour give those for the noise, each
    at most NOISE_IMAGES_PER_PATIENT; the next ones give those for training, until both classes are full; all slices of
    the others are tested. Other slices of the patients in the first two parts are not used. The result does not depend
    on the order of the slices.
    """
    noise_images = whole_number(noise_images, "noise_images", 1, MOST_IMAGES)
    training_per_class = whole_number(training_per_class, "training_per_class", 1, MOST_IMAGES)
    rng = np.random.default_rng(whole_number(seed, "seed", 0, 2**64 - 1))
    shown = slices.take(slices.shows_brain())
    if not len(shown):
        raise InputError(
            f"all {len(slices)} slices are nearly empty: none has {LEAST_SHARE:.0%} of its pixels brighter than "
            f"{LEAST_BRIGHT} of 255. Are the intensities scaled to 0 to 255?"
        )
    order = np.lexsort((shown.number, shown.patient))  # so that the draws do not depend on the order of the slices
    by_patient = [order[shown.patient[order] == name] for name in np.unique(shown.patient)]
    patients = [by_patient[index] for index in rng.permutation(len(by_patient))]
    noise, patients = _noise_part(shown, patients, noise_images, rng)
    training, patients = _training_part(shown, patients, training_per_class, rng)
    test = _joined(patients)
    counts = _counts(shown, test)
    if not (counts["with_tumour"] and counts["without_tumour"]) or counts["patients"] < LEAST_TESTED:
        raise InputError(
            f"the test needs slices with and without tumour of at least {LEAST_TESTED} patients, but left for it are "
            f"{_words(counts)}: ask for fewer with noise_images or training_per_class, or give more patients.",
            "noise_images",
            "training_per_class",
        )
    sha256, total = slices.digest(), len(slices)
    return Split(slices=shown, noise=noise, training=training, test=test, seed=seed, sha256=sha256, total=total)


def _noise_part(slices: Slices, patients: Patients, wanted: int, rng: Generator) -> tuple[Indices, Patients]:
    """Draw the slices for the noise; return them and the patients who gave none."""
    drawn, others, missing = [], [], wanted
    for scans in patients:
        free = scans[~slices.tumour[scans]]
        if count := min(len(free), NOISE_IMAGES_PER_PATIENT, missing):
            drawn.append(rng.choice(free, count, replace=False))
            missing -= count
        else:
            others.append(scans)
    if missing:
        raise InputError(
            f"{wanted} slices without tumour are wanted for the noise, but {len(patients)} patients give "
            f"{wanted - missing} with at most {NOISE_IMAGES_PER_PATIENT} of each: ask for fewer with noise_images, or "
            "give more patients.",
            "noise_images",
        )
    return _joined(drawn), others


def _training_part(slices: Slices, patients: Patients, wanted: int, rng: Generator) -> tuple[Indices, Patients]:
    """Draw the slices for training; return them and the patients after the last who was needed."""
    labels = [slices.tumour[scans] for scans in patients]
    counts = np.array([(tumour.sum(), (~tumour).sum()) for tumour in labels]).reshape(-1, 2)
    needed = int(np.searchsorted(counts.cumsum(axis=0).min(axis=1), wanted)) + 1
    if needed > len(patients):
        left = _counts(slices, _joined(patients))
        raise InputError(
            f"{wanted} slices with and {wanted} without tumour are wanted for training, but those not in the noise "
            f"part are {_words(left)}: ask for fewer with training_per_class, or give more patients.",
            "training_per_class",
        )
    pool = _joined(patients[:needed])
    classes = (pool[slices.tumour[pool]], pool[~slices.tumour[pool]])
    return _joined([rng.choice(scans, wanted, replace=False) for scans in classes]), patients[needed:]


def _joined(patients: Patients) -> Indices:
    return np.concatenate([np.empty(0, dtype=np.int64), *patients])


def _counts(slices: Slices, indices: Indices) -> dict[str, int]:
    patients, with_tumour = len(np.unique(slices.patient[indices])), int(slices.tumour[indices].sum())
    return {"patients": patients, "with_tumour": with_tumour, "without_tumour": len(indices) - with_tumour}


def _words(counts: dict[str, int]) -> str:
    return f"{counts['with_tumour']} with and {counts['without_tumour']} without, of {counts['patients']} patients"


ESTIMATORS: Mapping[str, str] = {
    "pooled": "one variance for all pixels, independent",
    "pixel": "a variance for each pixel, independent",
    "ar1": "one variance, correlation that falls by a factor from pixel to pixel, row after row",
    "stationary": "one variance, correlation by the distance in rows and columns",
    "shrunk": "any covariance, shrunk to a multiple of the identity",
}
"""Noise models estimated from slices without tumour of other patients."""

FROM_THE_SLICE: Mapping[str, str] = {
    "sample": "one variance: that of the pixels of the tested slice",
    "wavelet": "one variance: from the finest wavelet coefficients of the tested slice",
}
"""Noise models estimated from the tested slice itself."""

NOISES = {**ESTIMATORS, **FROM_THE_SLICE}
CONTRASTS = ("background", "neighbourhood", "reference")
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8)
GAMMAS = (0.0, 0.3, 1.0)  # the first is the paper's selection

RADIUS = 5
"""Width of the neighbourhood in pixels: with one score per 8 pixels, the border of the region is not known better."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way to test a slice; the defaults are the paper's.

    The region is compared with the rest of the slice ("background"), a ring around it ("neighbourhood"), or the mean
    of the slices that the noise is estimated from ("reference"). Regions of whole patches and randomised selection, by
    its gamma, are ours.
    """

    noise: str = "pooled"
    threshold: float = 0.6
    contrast: str = "background"
    region: str = "pixels"
    randomise: float = 0.0

    def __post_init__(self) -> None:
        for name, known in {"noise": NOISES, "contrast": CONTRASTS, "region": REGION_UNITS}.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        if self.contrast == "reference" and self.noise in FROM_THE_SLICE:
            raise InputError(f"the noise of a reference is not that of one slice: {self.noise!r} does not apply.")

    @property
    def name(self) -> str:
        """The name in files and tables."""
        patches = "-patches" if self.region == "patches" else ""
        gamma = f"-gamma{self.randomise:g}" if self.randomise else ""
        return f"{self.noise}-{self.contrast}-{self.threshold:g}{patches}{gamma}"

    @property
    def ours(self) -> bool:
        """Whether the region is selected in another way than the paper's."""
        return self.region != "pixels" or self.randomise > 0


PAPER = Condition()

OUR_CONDITIONS = tuple(
    Condition(contrast=contrast, noise=noise, region=region, randomise=gamma)
    for contrast, noise, region, gamma in product(
        ("background", "reference"), ("pooled", "stationary"), REGION_UNITS, GAMMAS
    )
)
"""Ways to select the region, ours and the paper's: with independent and correlated noise, each with the paper's
contrast and with the one that allows for anatomy."""

RING_CONDITIONS = tuple(
    Condition(contrast="neighbourhood", noise="stationary", region="patches", randomise=gamma) for gamma in GAMMAS[1:]
)
"""Ours with a contrast that allows for anatomy without a noisy reference, which rules out means over patients."""

CONDITIONS = tuple(
    dict.fromkeys(
        [
            *(Condition(noise=noise, contrast=contrast) for contrast in CONTRASTS for noise in ESTIMATORS),
            *(Condition(noise=noise) for noise in FROM_THE_SLICE),
            *(Condition(threshold=threshold) for threshold in THRESHOLDS),
            *OUR_CONDITIONS,
            *RING_CONDITIONS,
        ]
    )
)
"""All that are tested, the paper's first: every noise model with every contrast, every threshold, and ours."""

NOISE_CONDITIONS = sorted(
    (condition for condition in CONDITIONS if condition.threshold == PAPER.threshold and not condition.ours),
    key=lambda condition: CONTRASTS.index(condition.contrast),
)
"""Those with the paper's threshold and selection, by contrast."""


def available() -> tuple[Condition, ...]:
    """Return the conditions that the installed packages allow: shrinking a covariance needs scikit-learn."""
    missing = {"shrunk"} if importlib.util.find_spec("sklearn") is None else set()
    return tuple(condition for condition in CONDITIONS if condition.noise not in missing)


class FittedNoise:
    """Noise models and contrasts from slices (k, H, W) without tumour, in the units of the tested slices."""

    def __init__(self, slices: NDArray[np.uint8]) -> None:
        self._slices = slices
        self.model = cache(lambda name: as_noise(NOISE_ESTIMATORS.load(name)().fit(slices)))

    def noise(self, condition: Condition) -> NoiseModel | ImageNoise:
        """Return the noise of a condition."""
        return FromImage(condition.noise) if condition.noise in FROM_THE_SLICE else self.model(condition.noise)

    def contrast(self, condition: Condition) -> Contrast:
        """Return the contrast of a condition."""
        if condition.contrast == "neighbourhood":
            return Neighbourhood(radius=RADIUS)
        if condition.contrast == "reference":
            mean = self._slices.astype(np.float64).mean(axis=0)
            return Reference(mean, Averaged(self.model(condition.noise), len(self._slices)))
        return Background()
