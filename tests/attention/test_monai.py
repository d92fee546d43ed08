"""MONAI's vision transformer of images and volumes: importing MONAI takes long, so most tests use one built like it."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attentest import AttentionTest
from attentest.attention import ViTScores
from attentest.attention.forward_pass import PlainForward
from attentest.attention.vit import readable
from attentest.errors import InputError, ModelError
from attentest.search import SpectralSearch
from families import EXACT, FLOAT32, OtherDtypes, distance, normal, with_random_weights

CONVOLUTIONS = {2: nn.Conv2d, 3: nn.Conv3d}


class Rearrange(nn.Module):
    """Pixels of patches in the order of MONAI's einops layer: first the axes, then the channels."""

    def __init__(self, patch: tuple[int, ...]) -> None:
        super().__init__()
        self.axes_lengths = {f"p{number}": side for number, side in enumerate(patch, start=1)}

    def forward(self, images: Tensor) -> Tensor:
        axes = len(self.axes_lengths)
        for axis, side in enumerate(self.axes_lengths.values(), start=2):
            images = images.unfold(axis, side, side)
        return images.movedim(1, -1).flatten(1 + axes).flatten(1, axes)


class Embedding(nn.Module):
    def __init__(self, channels: int, size: tuple[int, ...], patch: tuple[int, ...], perceptron: bool) -> None:
        super().__init__()
        patches = math.prod(side // step for side, step in zip(size, patch, strict=True))
        self.patch_embeddings: nn.Module = CONVOLUTIONS[len(size)](channels, 12, patch, patch)
        if perceptron:
            self.patch_embeddings = nn.Sequential(Rearrange(patch), nn.Linear(channels * math.prod(patch), 12))
        self.position_embeddings = nn.Parameter(torch.zeros(1, patches, 12))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embeddings(images)
        if patches.ndim > 3:
            patches = patches.flatten(2).mT
        return patches + self.position_embeddings


class SelfAttention(nn.Module):
    num_heads = 3

    def __init__(self, save: bool) -> None:
        super().__init__()
        self.qkv, self.out_proj = nn.Linear(12, 36, bias=False), nn.Linear(12, 12)
        self.drop_weights, self.save_attn = nn.Dropout(0.1), save

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * 0.5).softmax(dim=-1)
        if self.save_attn:
            self.att_mat = weights.detach()
        return self.out_proj((self.drop_weights(weights) @ v).transpose(1, 2).flatten(2))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.fn = nn.Linear(12, 20), nn.Linear(20, 12), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.fn(self.linear1(x)))


class Block(nn.Module):
    def __init__(self, save: bool) -> None:
        super().__init__()
        self.mlp, self.norm1, self.attn, self.norm2 = Network(), nn.LayerNorm(12), SelfAttention(save), nn.LayerNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(
        self, img_size: tuple[int, ...], patch: tuple[int, ...], classification: bool, perceptron: bool, save: bool
    ) -> None:
        super().__init__()
        self.patch_embedding = Embedding(2, img_size, patch, perceptron)
        self.blocks = nn.ModuleList(Block(save) for _ in range(3))
        self.norm = nn.LayerNorm(12)
        if classification:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, 12))

    def forward(self, images: Tensor) -> Any:
        x = self.patch_embedding(images)
        if hasattr(self, "cls_token"):
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.norm(x), []


ViT.__module__ = "monai.networks.nets.vit"


def check_scores(model: Any, size: tuple[int, ...], patch: tuple[int, ...], classification: bool) -> None:
    """Check the scores of a model that saves its attention against the rollout of what it saved."""
    model = with_random_weights(model).train()
    reference = copy.deepcopy(model).double().eval()
    scores = ViTScores(model, image_size=size)
    grid = tuple(side // step for side, step in zip(size, patch, strict=True))
    assert (scores.image_shape, scores.grid_shape) == ((2, *size), grid)
    images = normal(3, 2, *size)
    with torch.no_grad():
        reference(images)
    unit = torch.eye(math.prod(grid) + classification, dtype=torch.float64)
    product = unit
    for block in reference.blocks:
        product = (block.attn.att_mat.mean(dim=1) + unit) @ product
    rows = product[:, 0, 1:] if classification else product.mean(dim=1)
    assert distance(scores(images), rows.reshape(3, *grid)) < EXACT
    assert float(scores(images).std(dim=0).max()) > 0.02
    assert distance(scores.rough(images), scores(images)) < FLOAT32
    with OtherDtypes() as recorder:
        scores(images)
    assert recorder.seen == []
    assert scores.describe()["type"] == "MONAI ViT"
    assert not any(part._forward_hooks for part in model.modules())


@pytest.mark.parametrize("perceptron", [False, True])
@pytest.mark.parametrize("classification", [False, True])
@pytest.mark.parametrize(("size", "patch"), [((8, 12), (4, 2)), ((4, 6, 4), (2, 3, 2))])
def test_scores_are_the_rollout_of_saved_attention(
    size: tuple[int, ...], patch: tuple[int, ...], classification: bool, perceptron: bool
) -> None:
    model = ViT(size, patch, classification, perceptron, save=True)
    check_scores(model, size, patch, classification)
    assert isinstance(ViTScores(model, image_size=size)._forward, PlainForward) == (not perceptron)
    test = AttentionTest(model, noise=1.0, image_size=size, search=SpectralSearch(tol=1e-2), confidence_level=None)
    image = np.random.default_rng(0).normal(size=(2, *size))
    result = test(np.moveaxis(image, 0, -1) if len(size) == 2 else image)
    assert 0 < result.pvalue <= 1


def test_the_size_must_be_given_and_fit() -> None:
    model = ViT((4, 4, 8), (2, 2, 2), classification=False, perceptron=False, save=False)
    assert readable(model)
    with pytest.raises(ModelError, match="'MONAI ViT' and does not store the size of its input: say which it is with"):
        ViTScores(model)
    with pytest.raises(ModelError, match=r"takes 16 patches of 2 x 2 x 2 pixels, but image_size is 4 x 4 x 4, which m"):
        ViTScores(model, image_size=4)
    with pytest.raises(InputError, match=r"image_size must be a side or \(depth, height, width\)"):
        ViTScores(model, image_size=(4, 4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv", "perceptron"])
@pytest.mark.parametrize("classification", [False, True])
@pytest.mark.parametrize(("size", "patch"), [((8, 12), (4, 2)), ((4, 6, 4), (2, 3, 2))])
def test_scores_of_monai_itself(size: tuple[int, ...], patch: tuple[int, ...], classification: bool, kind: str) -> None:
    pytest.importorskip("einops", reason="einops, which MONAI's ViT needs, is not installed")
    nets = pytest.importorskip("monai.networks.nets", reason="MONAI is not installed")
    options = {
        "hidden_size": 12,
        "mlp_dim": 20,
        "num_layers": 3,
        "num_heads": 3,
        "dropout_rate": 0.1,
        "save_attn": True,
    }
    shape = {"img_size": size, "patch_size": patch, "spatial_dims": len(size)}
    model = nets.ViT(2, **options, **shape, classification=classification, proj_type=kind)
    check_scores(model, size, patch, classification)
