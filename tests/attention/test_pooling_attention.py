"""The attention of pooling heads, against plain operations: SigLIP of Hugging Face."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import PoolingAttention, ViTScores, load_model, scores_from_attentions
from attentest.errors import InputError, ModelError
from families import EXACT, HEADS, OtherDtypes, distance, family_model, normal

SIGLIP = "siglip_vision_model"


def head_of(model: Any) -> Any:
    return next(part for part in model.modules() if hasattr(part, "probe"))


def pooled(model: Any, images: Tensor) -> Tensor:
    """The weights (m, heads, N) of the probe, from the last hidden states of a float64 copy with its own attention."""
    twin = copy.deepcopy(model).double()
    twin.set_attn_implementation("sdpa")  # which computes in float64, as the eager function does not
    head, size = head_of(twin), images.shape[-2:]
    with torch.no_grad():
        tokens = twin(images, interpolate_pos_encoding=tuple(size) != (8, 8)).last_hidden_state
    width = tokens.shape[2]
    state = head.attention.state_dict()
    query = head.probe[0, 0] @ state["in_proj_weight"][:width].T + state["in_proj_bias"][:width]
    keys = tokens @ state["in_proj_weight"][width : 2 * width].T + state["in_proj_bias"][width : 2 * width]
    heads = []
    for number in range(HEADS):
        part = slice(number * width // HEADS, (number + 1) * width // HEADS)
        logits = keys[..., part] @ query[part] / math.sqrt(width // HEADS)
        heads.append(torch.softmax(logits, dim=-1))
    return torch.stack(heads, dim=1).detach()


@pytest.mark.parametrize("size", [(8, 8), (8, 12)])
def test_the_map_is_the_attention_of_the_probe(size: tuple[int, int]) -> None:
    model, images = family_model(SIGLIP), normal(3, 3, *size, seed=1)
    weights = pooled(model, images).unflatten(2, (size[0] // 2, size[1] // 2))
    scores = ViTScores(model, attention="pooling", image_size=size)(images)
    assert distance(scores, weights.mean(dim=1)) < EXACT
    for number in range(HEADS):
        of_head = ViTScores(model, attention=PoolingAttention(number), image_size=size)(images)
        assert distance(of_head, weights[:, number]) < EXACT
    assert float(scores.flatten(1).std(dim=1).min()) > 1e-3  # it is no constant map


def test_it_is_the_attention_that_torch_itself_returns() -> None:
    model, images = family_model(SIGLIP), normal(2, 3, 8, 8, seed=2)
    shown: list[Tensor] = []
    twin = copy.deepcopy(model).double()
    twin.set_attn_implementation("sdpa")
    attention = head_of(twin).attention
    own = attention.forward

    def with_weights(*arguments: Any, **options: Any) -> Any:
        output, weights = own(*arguments, **{**options, "need_weights": True, "average_attn_weights": False})
        shown.append(weights)
        return output, weights

    attention.forward = with_weights
    with torch.no_grad():
        twin(images)
    scores = ViTScores(model, attention="pooling")(images)
    assert distance(scores.flatten(1), shown[0].mean(dim=1)[:, 0]) < EXACT


def test_all_operations_are_float64_and_rough_scores_are_close() -> None:
    scores, images = ViTScores(family_model(SIGLIP), attention="pooling"), normal(3, 3, 8, 8)
    with OtherDtypes() as others:
        exact = scores(images)
    assert others.operations > 20
    assert not others.seen
    assert distance(scores.rough(images), exact) < 1e-4


def test_the_search_converges() -> None:
    test = AttentionTest(family_model(SIGLIP), noise=1.0, attention="pooling")
    for result in test.map(list(normal(3, 3, 8, 8, seed=3))):
        assert result.status == "converged"
    assert result.settings["model"]["attention"] == {"name": "pooling", "head_fusion": "mean"}


def test_a_saved_model_pools_alike_and_one_without_its_probe_is_refused(tmp_path: Path) -> None:
    family_model(SIGLIP).save_pretrained(tmp_path)
    images = normal(2, 3, 8, 8)
    loaded = ViTScores(load_model(tmp_path).encoder, attention="pooling")
    assert torch.equal(loaded(images), ViTScores(family_model(SIGLIP), attention="pooling")(images))
    stored = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in stored.items() if not name.endswith("head.probe")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"head\.probe first"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["vit", "dinov2", "clip_vision_model", "ijepa"])
def test_a_model_without_a_pooling_head_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="has no head that pools its tokens by attention of one query") as caught:
        ViTScores(family_model(name), attention="pooling")
    assert "\n" not in str(caught.value)


def test_bad_input_is_one_sentence() -> None:
    model = family_model(SIGLIP)
    with pytest.raises(InputError, match="head_fusion = 7, but the model has heads 0 to 1 only"):
        ViTScores(model, attention=PoolingAttention(7))
    with pytest.raises(InputError, match="head_fusion must be 'mean'"):
        PoolingAttention("median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="pooling is the attention of a model's head, not of layers"):
        scores_from_attentions([torch.full((1, 2, 5, 5), 0.2)], (2, 2), attention="pooling")
