"""What holds of the maps for a class of every model."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from attentest.attention.relevance import (
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    IntegratedGradients,
    Relevance,
)
from attentest.attention.relevance_scores import ModuleRelevance, PlainRelevance, RelevanceScores
from families import FLOAT32, OtherDtypes, normal

SAME = 1e-10
"""Greatest difference, as a fraction of the greatest value."""

MAPS: dict[str, Relevance] = {
    "gradient rollout": GradientRollout(),
    "Grad-CAM": GradCAM(),
    "Grad-CAM of the first layer": GradCAM(0),
    "HiResCAM": HiResCAM(1),
    "input gradient": InputGradient(times_input=True),
    "integrated gradients of pixels": IntegratedGradients(baseline=0.2, steps=2, per="pixel"),
}


def check_model(
    model: Any,
    own_logits: Any,
    image_size: Any = None,
    plain: bool = True,
    same: float = 1e-12,
    float64: bool = True,
    maps: Iterable[str] = tuple(MAPS),
) -> None:
    """Check class scores, and that all maps are the same through modules and through plain layers, if these are."""
    state = copy.deepcopy(model.state_dict())
    for name in maps:
        relevance = MAPS[name]
        scores = RelevanceScores(model, attention=relevance, image_size=image_size)
        images = normal(3, *scores.image_shape, seed=3)
        with torch.no_grad():
            logits = own_logits(images)
        assert relative(scores.class_scores(images), logits) < same
        assert scores.classes == logits.shape[1]
        choice = scores.choose(images)
        assert torch.equal(choice, logits.argmax(dim=1))
        through_modules = copy.copy(scores)
        through_modules._forward = ModuleRelevance(scores._encoder, scores._class_scores, relevance)
        with OtherDtypes() as recorder:
            predicted = scores(images)
        assert not float64 or [operation for operation, *_ in recorder.seen if "detach" not in operation] == []
        count = predicted[0].numel()
        values = scores.given(images, choice)
        assert relative(values, through_modules.given(images, choice)) < SAME
        assert float(values[:, :count].std(dim=0).max()) > 1e-3 * float(values[:, :count].abs().max())
        # By how much others lead.
        leads = logits - logits.gather(1, choice[:, None])
        expected = torch.stack([row[torch.arange(len(row)) != own] for row, own in zip(leads, choice, strict=True)])
        assert float((values[:, count:] - expected).abs().max()) < 1e-9
        assert isinstance(scores._forward, PlainRelevance) == plain
        # An image by itself, and in float32.
        assert relative(scores(images[1:2]), predicted[1:2]) < SAME
        assert relative(scores.rough(images), predicted) < 50 * FLOAT32
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def relative(first: Tensor, second: Tensor) -> float:
    assert first.shape == second.shape
    assert first.dtype == second.dtype == torch.float64
    return float((first - second).abs().max() / second.abs().max())
