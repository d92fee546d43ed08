"""p of series beside si4attention, the later package of the paper's authors: the same model, the same series.

The package interpolates attention between the first and the last sample, attentest between the centres of patches. So
attentest is run twice: on scores that are interpolated as the package does it, where p must be the same, and as it is.
Half of the series have a tenth raised. The package is not a dependency; an environment to compare in:

    pip install si4attention 'sicore<3'
    python benchmarks/series.py --series 12

The authors' experiments on series themselves are ``attentest reproduce --experiment series-type-i-error``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from si4attention import test_attention_map
from torch import Tensor
from torch.nn.functional import interpolate

from attentest import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.noise import AR1, Isotropic
from attentest.search import SpectralSearch
from attentest.simulation.images import signal_images
from attentest.studies.benchmark.own_process import TheirModel
from attentest.training.bundled import BUNDLED_SERIES, model_named

NOISES = {"independent": Isotropic(1.0), "correlated": AR1(0.5)}
SHARE = 10  # of a series is raised


def between_ends(scores: ViTScores) -> Any:
    """Return scores (m, T) of series (m, 1, T), interpolated between the first and the last sample."""
    (length,) = scores.image_shape[1:]

    def interpolated(series: Tensor) -> Tensor:
        return interpolate(scores(series)[:, None], size=length, mode="linear", align_corners=True)[:, 0]

    return interpolated


def timed(work: Any, *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of a call, and what it returns."""
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def main() -> None:
    """Print a line for each series, and the greatest differences and mean seconds for each noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=BUNDLED_SERIES, help="a bundled model of series, or its directory")
    parser.add_argument("--series", type=int, default=12, help="for each noise")
    parser.add_argument("--height", type=float, default=2.0, help="of the signal, in every other series")
    parser.add_argument("--tol", type=float, default=1e-6, help="error bar of p")
    options = parser.parse_args()
    torch.set_num_threads(1)
    encoder = load_model(Path(model_named(options.model))).encoder
    scores, theirs = ViTScores(encoder), TheirModel(encoder)
    (length,) = scores.image_shape[1:]
    settings: dict[str, Any] = {"search": SpectralSearch(tol=options.tol), "confidence_level": None}
    rng = np.random.default_rng(0)
    for name, noise in NOISES.items():
        as_theirs = AttentionTest(between_ends(scores), noise=noise, image_shape=(1, length), **settings)
        as_it_is = AttentionTest(scores, noise=noise, **settings)
        covariance = torch.from_numpy(noise.apply(np.eye(length)))
        rows = []
        for number in range(options.series):
            height = options.height * (number % 2)
            series = signal_images(rng, 1, length, height, noise, axes=1, share=SHARE)[0][0]
            their_seconds, found = timed(test_attention_map, theirs, torch.from_numpy(series)[None, None], covariance)
            same_seconds, same = timed(as_theirs, series)
            seconds, own = timed(as_it_is, series)
            rows.append(
                {
                    "noise": name, "height": height, "statistic": same.statistic - found[1], "p": same.pvalue,
                    "difference": abs(same.pvalue - found[0]), "their_p": found[0], "p_between_centres": own.pvalue,
                    "their_seconds": their_seconds, "same_seconds": same_seconds, "seconds": seconds,
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
        columns = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "noise"}
        apart, theirs_mean, ours_mean = (
            columns["difference"],
            columns["their_seconds"].mean(),
            columns["seconds"].mean(),
        )
        print(
            f"{name}: {len(rows)} series; statistics differ by at most {abs(columns['statistic']).max():.1e}, p by "
            f"{apart.max():.1e}, in the median {np.median(apart):.1e}; seconds per series {theirs_mean:.2f}, attentest "
            f"{ours_mean:.3f} (ratio {theirs_mean / ours_mean:.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
