"""The attention of pooling heads of timm (``global_pool="map"``), against what torch's attention computes with."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import PoolingAttention, ViTScores
from attentest.errors import ModelError
from families import EXACT, distance, normal, with_random_weights

ABSENT = "timm and torchvision are neither installed nor in the folder timm of the environment (see conftest.py)"
timm = pytest.importorskip("timm", reason=ABSENT)


def pooling_vit(**changes: Any) -> Any:
    sizes = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}
    with torch.random.fork_rng(devices=[]):
        model = timm.models.vision_transformer.VisionTransformer(**{**sizes, "global_pool": "map", **changes})
    return with_random_weights(model)


FORMS: dict[str, dict[str, Any]] = {
    "SigLIP": {"class_token": False},
    "class token": {},
    "class token pooled too": {"pool_include_prefix": True},
}


def pooled(model: Any, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The weights (m, heads, n) of the last call of torch's attention, in which one query attends to all tokens."""
    twin = copy.deepcopy(model).double()
    called: list[tuple[Tensor, Tensor]] = []
    own = torch.nn.functional.scaled_dot_product_attention

    def recorded(query: Tensor, key: Tensor, *values: Any, **options: Any) -> Tensor:
        called.append((query, key))
        return own(query, key, *values, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    for part in twin.modules():
        if hasattr(part, "fused_attn"):
            part.fused_attn = True
    with torch.no_grad():
        twin(images)
    monkeypatch.undo()
    query, key = called[-1]
    assert query.shape[2] == 1
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1)[:, :, 0]


@pytest.mark.parametrize("form", FORMS)
def test_the_map_is_the_attention_of_the_latent_query(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = pooling_vit(**FORMS[form]), normal(3, 3, 8, 8, seed=1)
    weights = pooled(model, images, monkeypatch)[:, :, -16:].unflatten(2, (4, 4))
    assert distance(ViTScores(model, attention="pooling")(images), weights.mean(dim=1)) < EXACT
    assert distance(ViTScores(model, attention=PoolingAttention(1))(images), weights[:, 1]) < EXACT


def test_the_search_converges() -> None:
    result = AttentionTest(pooling_vit(class_token=False), noise=1.0, attention="pooling")(normal(3, 8, 8, seed=2))
    assert result.status == "converged"


def test_a_model_without_a_pooling_head_is_refused() -> None:
    with pytest.raises(ModelError, match="has no head that pools its tokens by attention of one query"):
        ViTScores(pooling_vit(global_pool="token"), attention="pooling")
