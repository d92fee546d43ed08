"""Scores from attention weights that the caller has."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attentest.attention import LayerAttention, Rollout, scores_from_attentions
from attentest.errors import InputError, ModelError
from families import EXACT, HEADS, LAYERS, distance, family_model, normal
from plain_forward import one_layer, rollout


def made_attentions(images: int = 2, tokens: int = 7, layers: int = LAYERS) -> list[Tensor]:
    return [torch.softmax(normal(images, HEADS, tokens, tokens, seed=layer), dim=-1) for layer in range(layers)]


def test_attentions_of_the_caller_give_the_scores_of_plain_operations() -> None:
    given = made_attentions()
    for discard, grid, classy in ((1, (2, 3), True), (3, (1, 4), True), (0, (1, 7), False), (1, (3, 2), False)):
        for fusion in ("mean", "max", "min", 1):
            options: dict[str, Any] = {"discard": discard, "class_token": classy}
            found = scores_from_attentions(given, grid, attention=Rollout(fusion), **options)
            if classy or discard == 0:
                assert distance(found, rollout(given, grid, classy, fusion)) < EXACT
            found = scores_from_attentions(tuple(given), grid, attention=LayerAttention(1, fusion), **options)
            assert distance(found, one_layer(given[1], grid, classy, fusion)) < EXACT


@pytest.mark.parametrize("missing", [(), None, (None, None), [None]])
def test_attention_that_a_fused_model_did_not_write_down_is_refused(missing: Any) -> None:
    with pytest.raises(ModelError, match=r"the model returned no attention weights .* attn_implementation='eager'"):
        scores_from_attentions(missing, (2, 3))


def test_attention_of_a_fused_model_of_the_library_is_refused() -> None:
    model = copy.deepcopy(family_model("vit"))
    model.set_attn_implementation("sdpa")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        attentions = model(normal(1, 3, 8, 8).float()).attentions
    with pytest.raises(ModelError, match="the model returned no attention weights"):
        scores_from_attentions(attentions, (4, 4))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a: [*a[:2], a[2][:, 0]], r"attention of layer 2 has shape \(2, 7, 7\), expected \(2, heads, 7, 7\)"),
        (lambda a: [*a[:2], a[2][:1]], r"attention of layer 2 has shape \(1, 2, 7, 7\), expected \(2, heads, 7, 7\)"),
        (lambda a: [a[0], a[1][..., :6], a[2]], "attention of layer 1 has shape"),
        (lambda a: [a[0], None, a[2]], "returned no attention weights"),
        (lambda a: [a[0], 2 * a[1], a[2]], "rows of layer 1's attention should sum to one, but one is off by 1"),
        (lambda a: [a[0].log(), a[1], a[2]], "rows of layer 0's attention should sum to one"),
        (lambda a: [a[0] * float("nan"), a[1], a[2]], "rows of layer 0's attention should sum to one"),
    ],
)
def test_attention_that_cannot_be_is_refused(spoil: Callable[[list[Any]], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        scores_from_attentions(spoil(made_attentions()), (2, 3))
    assert "\n" not in str(caught.value)


def test_layers_of_unlike_heads_cannot_be_read_by_a_head_that_one_lacks() -> None:
    given = made_attentions()
    given[2] = given[2][:, :1]
    with pytest.raises(InputError, match="head"):
        scores_from_attentions(given, (2, 3), attention=Rollout(1))


@pytest.mark.parametrize("discard", [0, 2, 5])
def test_how_many_tokens_come_before_the_patches_is_not_guessed(discard: int) -> None:
    with pytest.raises(ModelError, match=rf"{discard} tokens before 2 x 3 = 6 patches"):
        scores_from_attentions(made_attentions(), (2, 3), discard=discard)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discard": -1}, "discard"),
        ({"discard": 1.5}, "discard"),
        ({"discard": "1"}, "discard"),
        ({"grid": 6}, "grid must be"),
        ({"grid": (2, 3, 1)}, "grid must be"),
        ({"grid": (0, 6)}, "rows of the grid"),
        ({"grid": (2, 3.5)}, "columns of the grid"),
        ({"attention": Rollout(HEADS)}, "but the model has heads 0 to"),
        ({"attention": LayerAttention(0, HEADS)}, "but the model has heads 0 to"),
        ({"attention": LayerAttention(LAYERS)}, f"layer must be from -{LAYERS} to {LAYERS - 1}"),
        ({"attention": LayerAttention(-LAYERS - 1)}, f"layer must be from -{LAYERS} to {LAYERS - 1}"),
        ({"attention": "middle"}, "attention must be"),
    ],
)
def test_what_is_asked_of_attention_must_be_there(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        scores_from_attentions(made_attentions(), **{"grid": (2, 3), **changes})
    assert "\n" not in str(caught.value)
