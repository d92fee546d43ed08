"""Transformers over spectrograms, videos and signals: of Hugging Face, and of plain torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from attentest import AttentionTest
from attentest.attention import LayerAttention, TorchTransformer, ViTScores, load_model
from attentest.attention.forward_pass import PlainForward
from attentest.errors import AttentestWarning, InputError, ModelError
from attentest.search import SpectralSearch
from families import EXACT, FLOAT32, OtherDtypes, distance, normal, with_random_weights

LAYERS: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2}
SIZES: dict[str, Any] = {**LAYERS, "hidden_size": 16, "intermediate_size": 32}
SIGNALS: dict[str, Any] = {**LAYERS, "d_model": 16, "ffn_dim": 32, "context_length": 32, "num_input_channels": 2}
PATCHES = {"patch_length": 6, "patch_stride": 4}
VIDEOS: dict[str, Any] = {**SIZES, "num_frames": 4, "image_size": (8, 6), "num_channels": 1}
SPECTROGRAMS = {"patch_size": 4, "frequency_stride": 3, "time_stride": 2, "num_mel_bins": 10, "max_length": 15}

CONFIGS: dict[str, Callable[..., Any]] = {
    "ASTModel": lambda **changes: hf.ASTConfig(**{**SIZES, **SPECTROGRAMS, **changes}),
    "VideoMAEModel": lambda **changes: hf.VideoMAEConfig(**{**VIDEOS, "patch_size": 2, "tubelet_size": 2, **changes}),
    "VivitModel": lambda **changes: hf.VivitConfig(**{**VIDEOS, "image_size": 8, "tubelet_size": [2, 4, 2], **changes}),
    "PatchTSTModel": lambda **changes: hf.PatchTSTConfig(**{**SIGNALS, **PATCHES, **changes}),
}
"""By the class of the model; each takes changes."""

INTO_MODEL: dict[str, Callable[[Tensor], Tensor]] = {
    "ASTModel": lambda images: images[:, 0].permute(0, 2, 1),  # (m, frequencies, times) to (m, times, frequencies)
    "VideoMAEModel": lambda images: images.permute(0, 2, 1, 3, 4),
    "VivitModel": lambda images: images.permute(0, 2, 1, 3, 4),
    "PatchTSTModel": lambda images: images.permute(0, 2, 1),
}
SHAPES = {
    "ASTModel": ((1, 10, 15), (3, 6), (0, 0), (10, 14), (1, 2)),
    "VideoMAEModel": ((1, 4, 8, 6), (2, 4, 3), (0, 0, 0), (4, 8, 6), (0, 0, 0)),
    "VivitModel": ((1, 4, 8, 8), (2, 2, 4), (0, 0, 0), (4, 8, 8), (0, 0, 0)),
    "PatchTSTModel": ((2, 32), (7,), (2,), (30,), (2,)),
}
"""Shape of the input, grid, start, covered and overlap."""

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CONFIGS),
    ("PatchTSTModel", {"use_cls_token": True, "scaling": "mean", "norm_type": "layernorm", "pre_norm": False}),
    ("PatchTSTModel", {"scaling": None, "num_input_channels": 3, "share_embedding": False}),
    ("PatchTSTModel", {"do_mask_input": True}),
    ("VideoMAEModel", {"num_channels": 3, "qkv_bias": False}),
]
PREFIX = {"ASTModel": 2, "VivitModel": 1}


@cache
def made(name: str, changes: tuple[tuple[str, Any], ...] = ()) -> Any:
    with torch.random.fork_rng(devices=[]):
        model = getattr(hf, name)(CONFIGS[name](**dict(changes)))
    return with_random_weights(model)


def own_attentions(model: Any, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, ...]:
    """The attention that the library returns in float64; the softmax of some families would be in float32."""
    reference = copy.deepcopy(model).double().eval()
    reference.set_attn_implementation("eager")
    if getattr(reference, "do_mask_input", False):
        reference.do_mask_input, reference.masking = False, nn.Identity()
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: torch.softmax(x, dim))
    with torch.no_grad():
        shown = reference(INTO_MODEL[type(model).__name__](images), output_attentions=True).attentions
    monkeypatch.undo()
    return tuple(shown)


def rollout(weights: Sequence[Tensor], grid: tuple[int, ...], class_token: bool) -> Tensor:
    """The whole product of matrices, whose rows are averaged without a class token."""
    unit = torch.eye(weights[0].shape[-1], dtype=torch.float64)
    product = unit
    for attention in weights:
        product = (attention.mean(dim=1) + unit) @ product
    patches = math.prod(grid)
    row = product[:, 0] if class_token else product[:, -patches:].mean(dim=1)
    return row[:, -patches:].reshape(-1, *grid)


@pytest.mark.parametrize(("name", "changes"), VARIANTS, ids=str)
def test_scores_are_the_rollout_of_the_librarys_own_attention(
    name: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(name, tuple(changes.items()))
    scores = ViTScores(model)
    images = normal(3, *scores.image_shape, seed=1)
    class_token = name in PREFIX or "use_cls_token" in changes
    weights = own_attentions(model, images, monkeypatch)
    expected = rollout(weights, scores.grid_shape, class_token)
    if name == "PatchTSTModel":  # each channel has a map over time, and the scores are their mean
        expected = expected.unflatten(0, (3, -1)).mean(dim=1)
    assert distance(scores(images), expected) < EXACT
    assert float(scores(images).std(dim=0).max()) > 0.02
    assert distance(scores.rough(images), expected) < FLOAT32
    told = scores.describe()
    assert told["class_token"] is class_token
    assert told["prefix_tokens"] == PREFIX.get(name, int(class_token))
    # Layers of PatchTST have batch norms, and those of VideoMAE biases beside their linear maps in transformers 4.
    assert isinstance(scores._forward, PlainForward) or name in ("PatchTSTModel", "VideoMAEModel")


@pytest.mark.parametrize("name", CONFIGS)
def test_shapes_and_patches_are_those_of_the_configuration(name: str) -> None:
    scores = ViTScores(made(name))
    read = scores.image_shape, scores.grid_shape, scores.start, scores.covered, scores.overlap
    assert read == SHAPES[name]
    with OtherDtypes() as recorder:
        scores(normal(2, *scores.image_shape))
    # The fixed positions of VideoMAE are stored in float32.
    assert [operation for operation, *_ in recorder.seen if operation != "aten.detach.default"] == []


@pytest.mark.parametrize("name", CONFIGS)
def test_patches_lie_where_their_pixels_are(name: str) -> None:
    """The first layer's keys show it: a change of pixels changes the tokens of the patches that hold them."""
    model = copy.deepcopy(made(name))
    scores = ViTScores(model)
    shape, grid, start, covered, overlap = SHAPES[name]
    tokens: list[Tensor] = []
    layer = next(part for part in scores._encoder.module.modules() if isinstance(part, nn.ModuleList))[0]
    layer.register_forward_pre_hook(
        lambda _, given, named: tokens.append(given[0] if given else named["hidden_state"]), with_kwargs=True
    )
    step = [(side - shared) // count for side, shared, count in zip(covered, overlap, grid, strict=True)]
    place = tuple(first + width for first, width in zip(start, step, strict=True))  # where the second patches begin
    images = torch.zeros(2, *shape, dtype=torch.float64)
    images[1][(slice(None), *(slice(p, p + 1) for p in place))] = 1.0
    if name == "PatchTSTModel":
        scores._encoder.module.scaler.scaler = NoScaling()
    scores.through_modules(images)
    first, second = tokens[0].flatten(0, -3).unflatten(0, (2, -1))
    changed = (first - second).abs().amax(dim=(0, 2))[-math.prod(grid) :].reshape(grid) > 1e-6
    expected = torch.zeros(grid, dtype=torch.bool)
    holding = [
        [index for index in range(count) if 0 <= p - f - index * w < w + shared]
        for p, f, w, shared, count in zip(place, start, step, overlap, grid, strict=True)
    ]
    expected[torch.meshgrid(*map(torch.tensor, holding), indexing="ij")] = True
    assert torch.equal(changed, expected)


class NoScaling(nn.Module):
    def forward(self, data: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return data, data, data


@pytest.mark.parametrize("name", CONFIGS)
def test_p_is_computed_for_these_arrays(name: str) -> None:
    test = AttentionTest(made(name), noise=1.0, search=SpectralSearch(tol=1e-2), confidence_level=None)
    shape = SHAPES[name][0]
    image = np.random.default_rng(1).normal(size=shape[1:] if name == "ASTModel" else shape)
    result = test(image)
    assert 0 < result.pvalue <= 1
    if name == "PatchTSTModel":
        assert result.seen.tolist() == [False] * 2 + [True] * 30


@pytest.mark.parametrize("name", CONFIGS)
def test_other_sizes_than_in_training_are_refused_in_one_sentence(name: str) -> None:
    sides = SHAPES[name][0][1:]
    longer = (sides[0] + 8, *sides[1:])
    stated = " x ".join(map(str, sides))
    with pytest.raises(ModelError, match=f"takes images of {stated} only, but image_size is "):
        ViTScores(made(name), image_size=longer)
    with pytest.raises(InputError, match=r"image_size must be a side or \("):
        ViTScores(made(name), image_size=(8, 8, 8, 8))


def test_channels_that_attend_to_each_other_are_refused() -> None:
    with pytest.raises(ModelError, match="with channel_attention, so that layers attend along time and across"):
        ViTScores(made("PatchTSTModel", (("channel_attention", True),)))


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_models_are_those_that_were_saved(name: str, tmp_path: Path) -> None:
    model = made(name)
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    images = normal(2, *SHAPES[name][0])
    assert torch.equal(ViTScores(loaded.encoder)(images), ViTScores(model)(images))
    (tmp_path / "preprocessor_config.json").write_text('{"do_normalize": true}')
    with pytest.warns(AttentestWarning, match="the processor saved with the model of type .* is not applied: give arr"):
        test = AttentionTest.from_pretrained(tmp_path, noise=1.0)
    assert test.image_shape == SHAPES[name][0]


def test_saved_models_within_others_and_wrong_settings(tmp_path: Path) -> None:
    config = CONFIGS["VideoMAEModel"](decoder_hidden_size=8, decoder_num_attention_heads=2, decoder_num_hidden_layers=1)
    pretrained = with_random_weights(hf.VideoMAEForPreTraining(config))
    pretrained.save_pretrained(tmp_path)
    images = normal(2, *SHAPES["VideoMAEModel"][0])
    assert torch.equal(ViTScores(load_model(tmp_path).encoder)(images), ViTScores(pretrained)(images))
    settings = (tmp_path / "config.json").read_text()
    for wrong, sentence in (
        (settings.replace('"num_frames": 4', '"num_frames": [4, 4]'), "'tubelet_size' and 'patch_size' must be 4 numb"),
        (settings.replace('"num_frames": 4', '"num_frames": 1'), r"image_size \(the depth\) must be .* got 1"),
    ):
        (tmp_path / "config.json").write_text(wrong)
        with pytest.raises(ModelError, match=sentence):
            load_model(tmp_path)


class SignalTransformer(nn.Module):
    """A convolution into patches, a class token, positions, and layers of torch."""

    def __init__(self, stride: int = 5, class_token: bool = True, **layer: Any) -> None:
        super().__init__()
        self.patches = nn.Conv1d(2, 12, 5, stride)
        self.token = nn.Parameter(torch.zeros(1, 1, 12)) if class_token else None
        self.positions = nn.Parameter(torch.zeros(1, (40 - 5) // stride + 1 + class_token, 12))
        self.batch_first = layer.setdefault("batch_first", True)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(12, 3, 24, **layer), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(12, 2)

    def forward(self, signals: Tensor) -> Tensor:
        tokens = self.patches(signals).mT
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(signals), -1, -1), tokens], dim=1)
        tokens = tokens + self.positions
        encoded = self.layers(tokens) if self.batch_first else self.layers(tokens.transpose(0, 1)).transpose(0, 1)
        return self.head(encoded[:, 0])


def own_torch_attentions(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The weights that torch's own modules return where they are asked for them."""
    reference, shown = copy.deepcopy(model).double().train(), []  # training mode, which computes nothing fused
    for part in reference.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0

            def attended(x: Tensor, k: Tensor, v: Tensor, own: Any = part, **_: Any) -> Any:
                output, weights = nn.MultiheadAttention.forward(own, x, k, v, average_attn_weights=False)
                shown.append(weights)
                return output, weights

            part.forward = attended  # type: ignore[method-assign]
    with torch.no_grad():
        reference(images)
    return shown


@pytest.mark.parametrize(
    ("stride", "class_token", "layer"),
    [
        (5, True, {}),
        (5, False, {"norm_first": True, "activation": "gelu"}),
        (3, True, {"batch_first": False, "bias": False}),
    ],
    ids=str,
)
def test_layers_of_torch_are_read_as_they_compute(stride: int, class_token: bool, layer: dict[str, Any]) -> None:
    model = with_random_weights(SignalTransformer(stride, class_token, **layer)).train()
    kinds, state = [type(part) for part in model.modules()], copy.deepcopy(model.state_dict())
    described = TorchTransformer(model, image_shape=(2, 40), patch_size=5, stride=stride, prefix=int(class_token))
    scores = ViTScores(described)
    grid = ((40 - 5) // stride + 1,)
    signals = normal(4, 2, 40)
    weights = own_torch_attentions(model, signals)
    assert len(weights) == 2
    assert distance(scores(signals), rollout(weights, grid, class_token)) < EXACT
    assert float(scores(signals).std(dim=0).max()) > 0.02
    single = ViTScores(described, attention=LayerAttention(0))
    expected = weights[0].mean(dim=1)
    row = expected[:, 0, 1:] if class_token else expected.mean(dim=1)
    assert distance(single(signals), row) < EXACT
    assert distance(scores.rough(signals), scores(signals)) < FLOAT32
    assert (scores.covered, scores.overlap) == (((grid[0] - 1) * stride + 5,), (5 - stride,))
    assert scores.describe()["type"] == "torch SignalTransformer"
    # Derivatives along a line, which the adaptive search asks for.
    value, slope = torch.func.jvp(scores, (signals,), (normal(4, 2, 40, seed=1),))
    assert distance(value, scores(signals)) < EXACT
    assert float(slope.abs().max()) > 1e-3
    # The model itself is as it was.
    assert [type(part) for part in model.modules()] == kinds
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    test = AttentionTest(described, noise=1.0, search=SpectralSearch(tol=1e-2), confidence_level=None)
    assert 0 <= test(np.random.default_rng(0).normal(size=(2, 40))).pvalue <= 1


class CrossAttention(nn.Module):
    def __init__(self, masked: bool, **options: Any) -> None:
        super().__init__()
        self.patches, self.masked = nn.Conv2d(1, 8, 2, 2), masked
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, images: Tensor) -> Any:
        tokens = self.patches(images).flatten(2).mT
        mask = torch.zeros(4, 4, dtype=tokens.dtype) if self.masked else None
        return self.attention(tokens, tokens, tokens if self.masked else tokens + 1, attn_mask=mask)


IMAGES: dict[str, Any] = {"image_shape": (1, 4, 4), "patch_size": 2, "prefix": 0}


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (CrossAttention(True), IMAGES, "attends to another sequence than its own, or with a mask"),
        (CrossAttention(False), IMAGES, "attends to another sequence than its own, or with a mask"),
        (CrossAttention(True, add_zero_attn=True), IMAGES, r"is not a plain torch.nn.MultiheadAttention"),
        (CrossAttention(True, kdim=4), IMAGES, r"is not a plain torch.nn.MultiheadAttention"),
        (nn.Conv1d(1, 2, 3), IMAGES, "of type 'torch Conv1d' and has no layer of torch.nn.MultiheadAttention"),
        (SignalTransformer(), {**IMAGES, "image_shape": (2, 40), "patch_size": 8}, "expected .* before 5 = 5 patches"),
        (SignalTransformer(), {**IMAGES, "image_shape": (40,)}, "image_shape must be a tuple"),
        (SignalTransformer(), {**IMAGES, "patch_size": 5}, "patch_size must be .* got 5"),
        (SignalTransformer(), {**IMAGES, "patch_size": (2, 2, 2)}, "a number or one for each of 2 axes"),
        (SignalTransformer(), {**IMAGES, "stride": 3}, "stride must be .* got 3"),
        (SignalTransformer(), {**IMAGES, "class_token": True}, "one of the tokens before the patches, but prefix is 0"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(model: nn.Module, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ModelError, InputError), match=sentence):
        ViTScores(TorchTransformer(model, **options))


def test_size_of_a_torch_transformer_is_its_own() -> None:
    described = TorchTransformer(SignalTransformer(), image_shape=(2, 40), patch_size=5)
    assert ViTScores(described, image_size=40).image_shape == (2, 40)
    with pytest.raises(ModelError, match="takes images of 40 only, but image_size is 45"):
        ViTScores(described, image_size=45)
