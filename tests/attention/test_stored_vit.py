"""The ViT that is read without transformers, against the class of that package, and what is left to the package."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from attentest import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.attention.stored_vit import ViTModel, ViTSettings
from attentest.errors import ModelError
from families import FAMILY_MODELS, normal


def saved(directory: Path, **changes: Any) -> Any:
    """Save a tiny ViT with random weights and return it."""
    model = FAMILY_MODELS["vit"](**changes)
    model.save_pretrained(directory)
    return model


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [{}, {"qkv_bias": False}, {"layer_norm_eps": 0.1}, {"image_size": (8, 12)}, {"patch_size": (4, 2)}],
    ids=str,
)
@pytest.mark.parametrize("size", [None, (12, 10)])
def test_scores_and_checksum_are_those_of_transformers(
    changes: dict[str, Any], size: tuple[int, int] | None, tmp_path: Path
) -> None:
    model = saved(tmp_path, **changes)
    encoder = load_model(tmp_path).encoder
    assert isinstance(encoder, ViTModel)
    read, expected = ViTScores(encoder, image_size=size), ViTScores(model, image_size=size)
    assert read.describe() == expected.describe()
    if hasattr(model.vit, "layers"):  # earlier versions of transformers have other names, which are part of it
        assert read.sha256() == expected.sha256()
    images = normal(3, *expected.image_shape, seed=2)
    assert torch.equal(read(images), expected(images))
    assert torch.equal(read.rough(images), expected.rough(images))


def test_defaults_are_those_of_transformers() -> None:
    defaults, ours = hf.ViTConfig(), asdict(ViTSettings())
    assert ours.pop("patch_margin") == 0  # which transformers does not have
    assert {name: getattr(defaults, name) for name in ours} == ours


@pytest.mark.parametrize(
    ("size", "patch", "margin"), [((16,), (4,), 2), ((8, 12), (2, 4), 1), ((4, 4, 6), (2, 2, 2), 3)]
)
def test_patches_that_overlap_see_zeros_around_the_image(
    size: tuple[int, ...], patch: tuple[int, ...], margin: int
) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    settings = ViTSettings(**sizes, num_channels=2, image_size=size, patch_size=patch, patch_margin=margin)
    torch.manual_seed(0)
    model = ViTModel(settings).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    scores, images = ViTScores(model), normal(3, 2, *size, seed=1)
    grid = tuple(side // own for side, own in zip(size, patch, strict=True))
    assert scores(images).shape[1:] == grid
    assert torch.allclose(scores(images), scores.through_modules(images), rtol=1e-12)
    # Each token is the product of a plain cut of the padded image.
    padded = torch.nn.functional.pad(images, [margin, margin] * len(size))
    projection = model.double().embeddings.patch_embeddings["projection"]
    embedded = projection(images)
    for place in np.ndindex(*grid):
        corner = [slice(at * own, at * own + own + 2 * margin) for at, own in zip(place, patch, strict=True)]
        cut = padded[(slice(None), slice(None), *corner)].flatten(1)
        expected = cut @ projection.weight.flatten(1).T + projection.bias
        assert torch.allclose(embedded[(slice(None), slice(None), *place)], expected)


@pytest.mark.parametrize(
    "changes",
    [{"hidden_act": "relu"}, {"dtype": "float64"}, {"_attn_implementation": "sdpa"}],
    ids=str,
)
def test_an_unusual_configuration_is_left_to_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path)
    edit(tmp_path / "config.json", **changes)
    assert isinstance(load_model(tmp_path).encoder, hf.ViTModel)


def test_unusual_weights_are_left_to_transformers(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    cases = {
        "of two dtypes": {**weights, "vit.layernorm.bias": weights["vit.layernorm.bias"].to(torch.float16)},
        "one unknown": {**weights, "vit.embeddings.mask_token": torch.zeros(1, 1, 16)},
        "one under two names": {**weights, "layernorm.bias": torch.zeros(16)},
        "without the last normalisation": {name: w for name, w in weights.items() if "vit.layernorm" not in name},
    }
    for case, changed in cases.items():
        save_file(changed, path, metadata={"format": "pt"})
        assert isinstance(load_model(tmp_path).encoder, hf.ViTModel), case


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("declared", [None, "float16", "float32"])
def test_weights_are_used_and_recorded_as_they_are_stored(
    stored: torch.dtype, declared: str | None, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model = saved(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = {name: weight.to(stored) for name, weight in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    edit(tmp_path / "config.json", dtype=declared)
    test = AttentionTest.from_pretrained(tmp_path, noise=1.0)
    assert test.settings["model"]["weights"] == str(stored).removeprefix("torch.")
    half = [warning for warning in recwarn if "attention is computed from them in float64" in str(warning.message)]
    assert len(half) == (stored != torch.float32)
    expected = ViTScores(model.to(stored))
    images = normal(2, *expected.image_shape, seed=2)
    assert torch.equal(ViTScores(load_model(tmp_path).encoder)(images), expected(images))


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_weights_that_are_not_plain_numbers_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("fc1.weight") or name.endswith("intermediate.dense.weight"))
    save_file({**weights, name: weights[name].to(dtype)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"tensor '{name}' of model.safetensors is stored as .*, not as one of BF16"):
        load_model(tmp_path)
