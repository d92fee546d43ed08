"""Does attention of the brain study's classifier find more in slices with a tumour, with patients as clusters?

Trains the classifier of ``attentest brain`` if the study's directory has none, tests all test slices with randomised
selection and whole patches, and prints what they show together. A patient has slices with and without tumour, so that
the tumour is a covariate of 0 and 1 and not a group.

    python benchmarks/brain_cohort.py --data kaggle_3m --study brain --device cuda
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from attentest.attention.device import usable_device
from attentest.studies.brain.classifier import BrainTraining
from attentest.studies.brain.condition import Condition
from attentest.studies.brain.dataset import load_slices
from attentest.studies.brain.study import SliceTests, StudySettings, prepare_classifier

CONDITIONS = [
    Condition(noise="stationary", contrast=contrast, region="patches", randomise=gamma)
    for contrast in ("background", "neighbourhood")
    for gamma in (0.3, 1.0)
]


def main() -> None:
    """Print the claims of each condition, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="slices of the study")
    parser.add_argument("--study", type=Path, default=Path("brain"), help="directory of its classifier")
    parser.add_argument("--out", type=Path, help="file for the numbers as JSON")
    parser.add_argument("--slices", type=int, help="test only so many slices")
    parser.add_argument("--epochs", type=int, default=BrainTraining().epochs, help="of a training that is not done yet")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    settings = StudySettings(training=BrainTraining(epochs=options.epochs))
    slices = settings.cohort(load_slices(options.data))
    prepare_classifier(slices, settings, options.study, usable_device(options.device), lambda done, total, label: None)
    tests = SliceTests(slices, options.study, options.device)
    tested = slices.slices.take(np.random.default_rng(0).permutation(slices.test)[: options.slices])
    tumour = tested.tumour
    found = {}
    for condition in CONDITIONS:
        results = tests.attention_test(condition).map(tested.flair)
        cohort = results.cohort(clusters=tested.patient, covariates={"tumour": tumour.astype(float)})
        claims = cohort.to_dict()
        claims["at_least_of"] = {
            name: [cohort.at_least(subset=chosen), int(chosen.sum())]
            for name, chosen in (("tumour", tumour), ("no tumour", ~tumour))
        }
        naive = np.array([result.difference for result in results])
        claims["naive"] = {"tumour": float(naive[tumour].mean()), "no tumour": float(naive[~tumour].mean())}
        del claims["table"]
        found[condition.name] = claims
        print(f"\n{condition.name}\n{cohort.summary()}\nat least: {claims['at_least_of']}, naive: {claims['naive']}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
