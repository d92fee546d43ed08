"""Maps for a class of models of timm and torchvision, against pytorch-grad-cam where it is installed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from attentest.attention.relevance import GradCAM, HiResCAM, InputGradient
from attentest.attention.relevance_scores import RelevanceScores
from families import normal
from relevance_checks import SAME, check_model, relative

ABSENT = "timm and torchvision are neither installed nor in the folder timm of the environment (see conftest.py)"
pytest.importorskip("timm", reason=ABSENT)
pytest.importorskip("torchvision", reason=ABSENT)

from test_timm_models import TIMM, torchvision_vit, vit  # noqa: E402  # it needs both


@pytest.mark.parametrize("name", ["class token", "registers", "no class token", "distilled", "norm before the layers"])
def test_maps_of_timm(name: str) -> None:
    model = TIMM[name]()
    check_model(model, copy.deepcopy(model).double())


def test_maps_of_torchvision() -> None:
    model = torchvision_vit()
    check_model(model, copy.deepcopy(model).double())
    check_input_gradient(model, torchvision_vit().double(), (8, 8))


def test_maps_of_timm_at_another_size() -> None:
    model, other = vit(), vit().double()
    other.set_input_size(img_size=(8, 12))
    check_input_gradient(model, other, (8, 12), 1e-5)  # timm resamples positions in float32


def check_input_gradient(model: Any, reference: Any, size: tuple[int, int], same: float = SAME) -> None:
    """Check the map of input gradients against plain differentiation."""
    images = normal(2, 3, *size, seed=5).requires_grad_()
    (expected,) = torch.autograd.grad(reference(images)[:, 1].sum(), images)
    scores = RelevanceScores(model, attention=InputGradient(1, per="pixel"), image_size=size)
    assert relative(scores(images.detach()), expected.sum(dim=1)) < same


def patches_as_images(tokens: Tensor) -> Tensor:
    return tokens[:, 1:].reshape(len(tokens), 4, 4, -1).permute(0, 3, 1, 2)


@pytest.mark.parametrize("layer", [-1, 0])
def test_maps_of_tokens_are_those_of_pytorch_grad_cam(layer: int) -> None:
    theirs = pytest.importorskip("pytorch_grad_cam", reason="grad-cam, ttach and OpenCV are not installed")
    model, images, target = vit(), normal(3, 3, 8, 8, seed=1), 1
    for ours, name in ((GradCAM, "GradCAM"), (HiResCAM, "HiResCAM")):
        reference = copy.deepcopy(model).double()
        place = reference.blocks[layer].norm1
        cam = getattr(theirs, name)(reference, [place], reshape_transform=patches_as_images)
        cam.activations_and_grads(images.clone().requires_grad_())[:, target].sum().backward()
        (values,), (slopes,) = cam.activations_and_grads.activations, cam.activations_and_grads.gradients
        # The map before it is clipped, scaled and resized.
        expected = cam.get_cam_image(images, place, None, values.numpy(), slopes.numpy(), False)
        scores = RelevanceScores(model, attention=ours(layer, target))
        assert relative(scores(images), torch.from_numpy(expected)) < SAME
