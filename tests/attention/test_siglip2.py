"""SigLIP 2 of Hugging Face, which takes patches: against SigLIP with the same weights, and its own attention."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import (
    InputGradient,
    RelevanceScores,
    TextRelevance,
    ViTScores,
    load_model,
    scores_from_attentions,
)
from attentest.errors import ModelError
from families import EXACT, FLOAT32, SIZES, OtherDtypes, distance, normal, tiny

SIZES_OF_PATCHES = {name: value for name, value in SIZES.items() if name != "image_size"} | {"num_patches": 16}


def siglip2() -> Any:
    with torch.random.fork_rng(devices=[]):
        made = hf.Siglip2VisionModel(hf.Siglip2VisionConfig(**SIZES_OF_PATCHES))
    return tiny(lambda _: made, hf.Siglip2VisionConfig)


def as_siglip(model: Any) -> Any:
    """A SigLIP with the same weights, whose patches come from a convolution."""
    twin = tiny(hf.SiglipVisionModel, hf.SiglipVisionConfig)
    state = dict(model.state_dict())
    name = next(name for name in state if name.endswith("patch_embedding.weight"))
    state[name] = state[name].unflatten(1, (2, 2, 3)).permute(0, 3, 1, 2)
    twin.load_state_dict(state)
    return twin


def patchified(images: Tensor) -> Tensor:
    """Patches (m, N, 12) in the order of the library's processor: rows, columns, channels."""
    m, _, height, width = images.shape
    return torch.stack(
        [
            images[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].permute(0, 2, 3, 1).reshape(m, 12)
            for row in range(height // 2)
            for column in range(width // 2)
        ],
        dim=1,
    )


@pytest.mark.parametrize("attention", ["rollout", "layer:1", "pooling"])
def test_it_is_siglip_with_patches_from_a_linear_map(attention: str) -> None:
    model, images = siglip2(), normal(3, 3, 8, 8, seed=1)
    scores = ViTScores(model, attention=attention)
    assert scores.image_shape == (3, 8, 8)
    assert distance(scores(images), ViTScores(as_siglip(model), attention=attention)(images)) < EXACT


@pytest.mark.parametrize("size", [(8, 8), (8, 12), (6, 4)])
def test_scores_are_the_rollout_of_the_librarys_own_attention(size: tuple[int, int]) -> None:
    model, images = siglip2(), normal(2, 3, *size, seed=2)
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    grid = size[0] // 2, size[1] // 2
    mask, shapes = torch.ones(2, grid[0] * grid[1], dtype=torch.long), torch.tensor([grid, grid])
    with torch.no_grad():
        shown = twin(patchified(images).float(), mask, shapes, output_attentions=True).attentions
    expected = scores_from_attentions([part.double() for part in shown], grid, discard=0, class_token=False)
    assert distance(ViTScores(model, image_size=size)(images), expected) < FLOAT32


def test_all_operations_are_float64() -> None:
    scores = ViTScores(siglip2(), image_size=(8, 12))
    with OtherDtypes() as others:
        scores(normal(2, 3, 8, 12))
    assert others.operations > 20
    assert not others.seen


def test_a_saved_model_has_the_same_scores(tmp_path: Path) -> None:
    model, images = siglip2(), normal(2, 3, 8, 8)
    model.save_pretrained(tmp_path)
    assert torch.equal(ViTScores(load_model(tmp_path).encoder)(images), ViTScores(model)(images))
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"num_patches": 16', '"num_patches": 0'))
    with pytest.raises(ModelError, match="'num_patches' must be at least 1"):
        load_model(tmp_path)


def test_a_map_for_a_class() -> None:
    vision, text = dict(SIZES_OF_PATCHES), {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        config = hf.Siglip2Config(vision_config=vision, text_config={**text, "num_hidden_layers": 1}, num_labels=3)
        made = hf.Siglip2ForImageClassification(config)
    model = tiny(lambda _: made, hf.Siglip2VisionConfig)
    images = normal(2, 3, 8, 8, seed=3)
    scores = RelevanceScores(model, attention=InputGradient(1))
    per_pixel = RelevanceScores(model, attention=InputGradient(1, per="pixel"))(images)
    assert per_pixel.shape == (2, 8, 8)
    grey = 1e-6 * normal(2, 1, 8, 8, seed=4)  # the gradient is summed over channels
    ahead, behind = (scores.class_scores(images + sign * grey)[:, 1] for sign in (1, -1))
    slope = (per_pixel * grey[:, 0]).sum(dim=(1, 2))
    assert float((slope - (ahead - behind) / 2).abs().max()) < 1e-12


def test_relevance_for_a_text_is_of_the_models_own_similarity() -> None:
    text = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    text |= {"vocab_size": 20, "max_position_embeddings": 8, "projection_size": 16}
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    with torch.random.fork_rng(devices=[]):
        config = hf.Siglip2Config(vision_config=dict(SIZES_OF_PATCHES), text_config={**text, **special})
        made = hf.Siglip2Model(config)
    model, images = tiny(lambda _: made, hf.Siglip2VisionConfig), normal(2, 3, 8, 8, seed=6)
    scores = RelevanceScores(model, attention=TextRelevance(text="a spot", tokens=(3, 5, 7)))
    twin = copy.deepcopy(model).double()
    mask, shapes = torch.ones(2, 16, dtype=torch.long), torch.tensor([(4, 4), (4, 4)])
    with torch.no_grad():
        expected = twin(
            input_ids=torch.tensor([[3, 5, 7]]),
            pixel_values=patchified(images),
            pixel_attention_mask=mask,
            spatial_shapes=shapes,
        ).logits_per_image
    assert distance(scores.class_scores(images), expected) < 1e-5  # the library's attention is in float32
    assert scores(images).shape == (2, 4, 4)


def test_the_search_converges() -> None:
    result = AttentionTest(siglip2(), noise=1.0)(normal(3, 8, 8, seed=5))
    assert result.status == "converged"
