"""Is the test calibrated on slices like those of the brain study for which its hypothesis is true?

Null slices are the mean slice without tumour plus noise of a fitted model. They are compared with the mean slice,
so that the hypothesis is true although they look like brains. Needs a finished study:

    python benchmarks/brain_null.py --data kaggle_3m --study brain
"""

from __future__ import annotations

import argparse
from pathlib import Path

from attentest import AttentionTest, calibrate
from attentest.contrast import Reference
from attentest.noise import load_noise
from attentest.search import SpectralSearch
from attentest.studies.brain.classifier import BrainTraining
from attentest.studies.brain.dataset import load_slices
from attentest.studies.brain.study import StudySettings, model_directory, read_record


def main() -> None:
    """Print the rates at which the selective and the naive test reject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="slices of the study")
    parser.add_argument("--study", type=Path, default=Path("brain"), help="directory of its results")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    record = read_record(options.study)
    part = record["data"]["split"]
    settings = StudySettings(
        noise_images=part["noise"]["without_tumour"],
        training_per_class=part["training"]["with_tumour"],
        training=BrainTraining(**record["settings"]),
    )
    cohort = settings.cohort(load_slices(options.data))
    mean = cohort.slices.flair[cohort.noise].mean(axis=0)
    for name in ("pooled", "stationary"):
        test = AttentionTest.from_pretrained(
            model_directory(options.study),
            noise=load_noise(options.study / "noise" / f"{name}.json"),
            contrast=Reference(mean, noise=0),
            intensity_range=(0, 255),
            search=SpectralSearch(tol=1e-4),
            confidence_level=None,
            device=options.device,
        )
        found = calibrate(test, options.images, mean=mean)
        for alpha, selective, naive in zip(found.alphas, found.rates, found.naive_rates, strict=True):
            print(f"{name:10}  level {alpha:<4g}  selective {selective}  naive {naive}")


if __name__ == "__main__":
    main()
