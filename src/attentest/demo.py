"""The demonstration: one image of pure noise and one with a signal, tested with the bundled model."""

from __future__ import annotations

import numpy as np

from attentest.attention_test import AttentionTest, Progress
from attentest.bundled import bundled_model
from attentest.plots import Panel
from attentest.synthetic import null_images, signal_images

SIZE = 16
SIGNAL = 3.0


def demo_panels(seed: int, search: str, progress: Progress | None = None) -> list[Panel]:
    """Draw the two images, test them, and return them with their results."""
    rng = np.random.default_rng(seed)
    noise = null_images(rng, 1, SIZE)[0]
    signal = signal_images(rng, 1, SIZE, SIGNAL)[0][0]
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, search=search)
    results = test.map([noise, signal], progress)
    titles = ("pure noise", f"signal of {SIGNAL:g} sigma")
    return [
        Panel(title=title, image=image, result=result)
        for title, image, result in zip(titles, (noise, signal), results, strict=True)
    ]
