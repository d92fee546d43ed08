"""Type I error and power on series: lengths, architectures, noise and signals of the authors' later experiments.

Lengths 128 to 1,024 with the base architecture, and small, large and huge ones at 256; independent noise and
0.5^|i - j|; a tenth of the series raised by 1 to 4 (Shiraishi et al., statistical_test_for_attention_in_transformers).
Models are trained as ``attentest train --axes 1`` trains them, on a third of the series raised; their patches, a
thirty-second of the series, do not overlap, where the authors' do.

    python benchmarks/series.py --device cuda --out series.jsonl
    python benchmarks/series.py --length 128 --images 200
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from attentest import AttentionTest
from attentest.noise import AR1, Isotropic
from attentest.search import SpectralSearch
from attentest.training.paper_model import train
from attentest.training.settings import TrainingSettings

NOISES = {"independent": Isotropic(1.0), "correlated": AR1(0.5)}
LENGTHS, OTHERS = (128, 256, 512, 1024), ("small", "large", "huge")
MODELS = [*((length, "base") for length in LENGTHS), *((256, name) for name in OTHERS)]
TESTS: dict[str, dict[str, Any]] = {"the paper's": {}, "gamma 0.5": {"randomise": 0.5}}


def main() -> None:
    """Train the models, and print the shares with p at most 0.05."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, help="only models of this length")
    parser.add_argument("--architecture", help="only this architecture")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="file for the rows as JSON lines")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for length, architecture in MODELS:
        if options.length not in (None, length) or options.architecture not in (None, architecture):
            continue
        settings = TrainingSettings(image_size=length, axes=1, architecture=architecture, epochs=options.epochs)
        start = time.perf_counter()
        trained = train(settings, options.device)
        seconds = time.perf_counter() - start
        with tempfile.TemporaryDirectory() as folder:
            trained.save(Path(folder) / "model")
            model = AttentionTest.from_pretrained(Path(folder) / "model", noise=1.0, device=options.device)
        heights = (0.0, 1.0, 2.0, 3.0, 4.0) if (length, architecture) == (256, "base") else (0.0,)
        for noise, law in NOISES.items():
            for height in heights:
                series = law.sample(rng, options.images, length)
                places = rng.integers(0, length - length // 10, options.images)
                raised = np.arange(length) - places[:, None]
                series += height * ((raised >= 0) & (raised < length // 10))
                for name, chosen in TESTS.items():
                    search = SpectralSearch(tol=1e-4)
                    test = model.replace(noise=law, search=search, confidence_level=None, **chosen)
                    start = time.perf_counter()
                    results = test.map(list(series))
                    p = np.array([result.pvalue for result in results])
                    share = float((p <= 0.05).mean())
                    row = {
                        "length": length, "architecture": architecture, "noise": noise, "signal": height, "test": name,
                        "rejected": share, "error": math.sqrt(share * (1 - share) / len(p)),
                        "naive": float(np.mean([result.naive_pvalue <= 0.05 for result in results])),
                        "ks": float(stats.kstest(p, "uniform").pvalue),
                        "seconds": time.perf_counter() - start, "training": seconds,
                        "accuracy": trained.record["accuracy"]["held_out"],
                    }  # fmt: skip
                    print(json.dumps(row), flush=True)
                    if options.out is not None:
                        with options.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
