"""p and time beside si4attention, the later package of the paper's authors: the same models, images and series.

The package interpolates attention between the outermost pixels, or samples, attentest between the centres of patches.
So attentest is run on scores that are interpolated as the package does it, where p must be the same, one by one and
all together, on one thread. Half of the inputs have a signal. The package is not a dependency; an environment to
compare in:

    pip install si4attention 'sicore<3'
    python benchmarks/beside_si4attention.py --count 4

The authors' experiments on series themselves are ``attentest reproduce --experiment series-type-i-error``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import table
from si4attention import test_attention_map
from torch import Tensor
from torch.nn.functional import interpolate

from attentest import AttentionTest, bundled_model
from attentest.attention import ViTScores, load_model
from attentest.noise import AR1, Isotropic
from attentest.search import SpectralSearch
from attentest.simulation.images import signal_images
from attentest.studies.benchmark.own_process import TheirModel
from attentest.training.bundled import BUNDLED_SERIES, model_named

NOISES = {"independent": Isotropic(1.0), "AR(1), 0.5": AR1(0.5)}
HEIGHT, SHARE = 2.0, {1: 10, 2: 3}  # of the signal, and of which part of each side it takes, by the number of axes


def between_ends(scores: ViTScores) -> Any:
    """Return scores of inputs (m, 1, *sides), interpolated between the outermost pixels."""
    sides = scores.image_shape[1:]
    mode = {1: "linear", 2: "bilinear"}[len(sides)]

    def interpolated(inputs: Tensor) -> Tensor:
        return interpolate(scores(inputs)[:, None], size=sides, mode=mode, align_corners=True)[:, 0]

    return interpolated


def timed(work: Any, *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of a call, and what it returns."""
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def rows(count: int, tol: float) -> Iterator[list[str]]:
    """Yield a row for each model and noise."""
    settings: dict[str, Any] = {"search": SpectralSearch(tol=tol), "confidence_level": None}
    rng = np.random.default_rng(0)
    for label, name in (("images", bundled_model()), ("series", BUNDLED_SERIES)):
        encoder = load_model(Path(model_named(name))).encoder
        scores, theirs = ViTScores(encoder), TheirModel(encoder)
        channels, *sides = scores.image_shape
        for noise_name, noise in NOISES.items():
            test = AttentionTest(
                between_ends(scores), noise=noise, image_shape=(channels, *sides), batch_size=64, **settings
            )
            covariance = torch.from_numpy(noise.apply(np.eye(int(np.prod(sides)))))
            axes = {"axes": len(sides), "share": SHARE[len(sides)]}
            inputs = [
                signal_images(rng, 1, sides[0], HEIGHT * (number % 2), noise, **axes)[0][0] for number in range(count)
            ]
            test(inputs[0])  # what is compiled or read once does not count
            found = [
                timed(test_attention_map, theirs, torch.from_numpy(each)[None, None], covariance) for each in inputs
            ]
            own = [timed(test, each) for each in inputs]
            together, _ = timed(test.map, inputs)
            apart = np.array([abs(result.pvalue - p) for (_, (p, *_)), (_, result) in zip(found, own, strict=True)])
            statistics = [abs(result.statistic - z) for (_, (_, z, *_)), (_, result) in zip(found, own, strict=True)]
            their_seconds, seconds = (np.mean([taken for taken, _ in each]) for each in (found, own))
            yield [
                f"{label}, {' x '.join(map(str, sides))}",
                noise_name,
                str(count),
                f"{max(statistics):.0e}",
                f"{np.median(apart):.1e}",
                f"{apart.max():.1e}",
                f"{their_seconds:.2f}",
                f"{seconds:.3f}",
                f"{their_seconds / seconds:.0f}",
                f"{together / count:.3f}",
                f"{their_seconds * count / together:.0f}",
            ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12, help="images, or series, for each noise")
    parser.add_argument("--tol", type=float, default=1e-6, help="error bar of p")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    header = ["input", "noise", "number", "statistics differ by", "p differ by: median", "p: at most"]
    timing = ["si4attention, s", "attentest, s", "ratio", "together, s", "ratio together"]
    table([*header, *timing], rows(asked.count, asked.tol))


if __name__ == "__main__":
    main()
