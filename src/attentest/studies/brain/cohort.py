"""The slices of a study: those that show a brain, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attentest.errors import InputError
from attentest.studies.brain.emptiness import LEAST_BRIGHT, LEAST_SHARE, shows_brain
from attentest.studies.brain.slices import Slices
from attentest.studies.brain.split import Split, split_by_patient


@dataclass(frozen=True, kw_only=True, eq=False)
class Cohort:
    """Slices that show a brain, split by patient.

    Parameters
    ----------
    slices
        Those that are kept.
    split
        Which of them are for what.
    seed
        Of the split.
    sha256, given
        Of all slices there were: what identifies them, and their number.
    """

    slices: Slices
    split: Split
    seed: int
    sha256: str
    given: int

    def facts(self) -> dict[str, Any]:
        """Return what they are, JSON-ready."""
        return {
            "sha256": self.sha256,
            "slices": self.given,
            "kept": len(self.slices),
            "kept_rule": {"brighter_than": LEAST_BRIGHT, "least_share": LEAST_SHARE},
            "patients": len(np.unique(self.slices.patient)),
            "with_tumour": int(self.slices.tumour.sum()),
            "seed": self.seed,
            "split": self.split.describe(self.slices),
        }

    def test_order(self) -> dict[bool, list[int]]:
        """Return the numbers of the test slices with (True) and without tumour (False), in a random order each."""
        rng = np.random.default_rng(self.seed)
        numbers = self.split.test
        return {
            tumour: [int(number) for number in rng.permutation(numbers[self.slices.tumour[numbers] == tumour])]
            for tumour in (True, False)
        }


def cohort_of(slices: Slices, *, noise_images: int, training_per_class: int, seed: int) -> Cohort:
    """Leave out nearly empty slices and split the others by patient.

    Parameters
    ----------
    slices
        All there are.
    noise_images, training_per_class, seed
        See `split_by_patient`.
    """
    shown = shows_brain(slices.flair)
    if not shown.any():
        raise InputError(
            f"all {len(slices)} slices are nearly empty: none has {LEAST_SHARE:.0%} of its pixels brighter than "
            f"{LEAST_BRIGHT} of 255. Are the intensities scaled to 0 to 255?"
        )
    kept = slices.take(shown)
    split = split_by_patient(kept, noise_images=noise_images, training_per_class=training_per_class, seed=seed)
    return Cohort(slices=kept, split=split, seed=seed, sha256=slices.digest(), given=len(slices))
