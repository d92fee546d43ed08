from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import device as devices
from attentest.attention.device import GraphedFunction
from attentest.noise import AR1
from attentest.simulation.images import null_images
from attentest.training.bundled import bundled_model

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def both(image: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return torch.sin(z)[:, None] * image[:, None], z.exp()


@needs_cuda
def test_every_call_gets_the_values_of_its_own_points() -> None:
    graphed = GraphedFunction(both)
    kept = []
    for size in (5, 8, 3, 5, 1, 128, 129, 2):
        image = torch.randint(9, (size,), device="cuda")
        z = torch.randn(size, dtype=torch.float64, device="cuda")
        kept.append((graphed(image, z), both(image, z)))
    for found, expected in kept:  # after all calls: a later one does not change what an earlier one returned
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-14, atol=0)


@needs_cuda
def test_the_adaptive_search_finds_the_same_with_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = AR1(0.5)
    images = null_images(np.random.default_rng(3), 5, 8, noise)
    test = AttentionTest.from_pretrained(
        bundled_model(8), noise=noise, device="cuda", search="adaptive", confidence_level=None
    )
    graphed = list(test.map(images))
    monkeypatch.setattr(devices, "MOST_POINTS", 0)
    for one, other in zip(graphed, test.map(images), strict=True):
        assert one.pvalue == pytest.approx(other.pvalue, abs=1e-9)
        assert one.evaluations == pytest.approx(other.evaluations, abs=2)
