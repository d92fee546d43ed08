"""Maps for a class, against captum and against their formulas written out with plain reverse-mode differentiation."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from attentest.attention.network import NetworkScores
from attentest.attention.relevance import GradCAM, GradientRollout, HiResCAM, InputGradient, IntegratedGradients
from attentest.attention.relevance_scores import PlainRelevance, RelevanceScores
from families import LAYERS, layers_of, normal, tiny
from relevance_checks import MAPS, SAME, check_model, relative

CLASSES = 4
TARGETS = torch.tensor([2, 0, 3])
SIZES = [(8, 8), (6, 12)]


def vit(**changes: Any) -> Any:
    return tiny(hf.ViTForImageClassification, hf.ViTConfig, num_labels=CLASSES, **changes)


def in_float64(model: nn.Module) -> Any:
    """A copy whose attention is computed in its own dtype: torch's own function does so, the library's does not."""
    reference = copy.deepcopy(model).double().eval()
    reference.set_attn_implementation("sdpa")  # type: ignore[operator]
    return reference


class Logits(nn.Module):
    """The class scores of a model of Hugging Face, as other libraries want them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images, interpolate_pos_encoding=True).logits  # type: ignore[no-any-return]


class Patches(nn.Module):
    """A norm whose result for patches passes through a module of its own, with features before patches."""

    def __init__(self, norm: nn.Module, prefix: int) -> None:
        super().__init__()
        self.norm, self.prefix, self.seen = norm, prefix, nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.norm(tokens)
        return torch.cat([normed[:, : self.prefix], self.seen(normed[:, self.prefix :].mT).mT], dim=1)


def each_class(scores: RelevanceScores, images: Tensor) -> Tensor:
    """The map (m, *grid) of each image for its class among ``TARGETS``."""
    count = len(scores.grid_shape)
    values = scores.given(images, TARGETS)
    return values[:, : int(np.prod(scores.grid_shape))].reshape(len(images), *scores.grid_shape[:count])


def in_patches(values: Tensor, side: int = 2) -> Tensor:
    """The sums (m, rows, columns) over patches of values (m, H, W), patch by patch."""
    rows, columns = values.shape[1] // side, values.shape[2] // side
    sums = torch.zeros(len(values), rows, columns, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            sums[:, row, column] = values[:, side * row : side * (row + 1), side * column : side * (column + 1)].sum(
                dim=(1, 2)
            )
    return sums


@pytest.fixture(scope="module")
def attributions() -> Any:
    return pytest.importorskip("captum.attr", reason="captum is not installed (tests/independent_requirements.txt)")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_maps_on_the_input_are_those_of_captum(
    attributions: Any, size: tuple[int, int], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = vit(num_channels=channels)
    images, logits = normal(3, channels, *size, seed=1), Logits(in_float64(model))
    leaf = images.clone().requires_grad_()
    plain = attributions.Saliency(logits).attribute(leaf, target=TARGETS, abs=False).detach()
    times = attributions.InputXGradient(logits).attribute(leaf, target=TARGETS).detach()
    for steps, baseline in ((1, 0.0), (7, 0.3)):
        with monkeypatch.context() as patch:  # captum rounds the weights of steps to float32
            patch.setattr(Tensor, "float", Tensor.double)
            patch.setattr(torch, "tensor", partial(torch.tensor, dtype=torch.float64))
            integrated = attributions.IntegratedGradients(logits).attribute(
                images, baselines=baseline, target=TARGETS, n_steps=steps, method="gausslegendre"
            )
        for per in ("patch", "pixel"):
            made = IntegratedGradients(steps=steps, baseline=baseline, per=per)  # type: ignore[arg-type]
            scores = RelevanceScores(model, attention=made, image_size=size)
            expected = integrated.sum(dim=1) if per == "pixel" else in_patches(integrated.sum(dim=1))
            assert relative(each_class(scores, images), expected) < SAME
    for values, times_input in ((plain, False), (times, True)):
        for per in ("patch", "pixel"):
            made = InputGradient(times_input=times_input, per=per)  # type: ignore[arg-type]
            scores = RelevanceScores(model, attention=made, image_size=size)
            assert scores.grid_shape == (size if per == "pixel" else (size[0] // 2, size[1] // 2))
            expected = values.sum(dim=1) if per == "pixel" else in_patches(values.sum(dim=1))
            assert relative(each_class(scores, images), expected) < SAME


@pytest.mark.parametrize("layer", [-1, 0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_maps_of_tokens_are_those_of_captum(attributions: Any, size: tuple[int, int], layer: int) -> None:
    model = vit()
    reference = in_float64(model)
    block = layers_of(reference)[layer]
    block.layernorm_before = Patches(block.layernorm_before, prefix=1)
    seen, logits, images = block.layernorm_before.seen, Logits(reference), normal(3, 3, *size, seed=1)
    grid = size[0] // 2, size[1] // 2
    cam = attributions.LayerGradCam(logits, seen).attribute(images, target=TARGETS).detach()
    scores = RelevanceScores(model, attention=GradCAM(layer), image_size=size)
    assert relative(each_class(scores, images), cam.reshape(3, *grid)) < SAME
    products = attributions.LayerGradientXActivation(logits, seen).attribute(images, target=TARGETS).detach()
    scores = RelevanceScores(model, attention=HiResCAM(layer), image_size=size)
    assert relative(each_class(scores, images), products.sum(dim=1).reshape(3, *grid)) < SAME


def slow_gradient_rollout(model: Any, image: Tensor, target: int, prefix: int, class_token: bool) -> Tensor:
    """The relevance of Chefer, Gur and Wolf (equations 5 and 6, self-attention) of one image, entry by entry."""
    shown = model(image[None], output_attentions=True)
    gradients = torch.autograd.grad(shown.logits[0, target], shown.attentions)
    count = shown.attentions[0].shape[-1]
    relevance = np.eye(count)
    for attention, gradient in zip(shown.attentions, gradients, strict=True):
        weights, slopes = attention[0].detach().numpy(), gradient[0].numpy()
        weighted = np.zeros((count, count))
        for row in range(count):
            for column in range(count):
                products = [float(w * s) for w, s in zip(weights[:, row, column], slopes[:, row, column], strict=True)]
                weighted[row, column] = sum(max(product, 0.0) for product in products) / len(products)
        relevance = relevance + weighted @ relevance
    rows = relevance[:1] if class_token else relevance[prefix:]
    return torch.from_numpy(rows.mean(axis=0)[prefix:].reshape(4, 4))


@pytest.mark.parametrize("name", ["vit", "dinov2_with_registers", "siglip"])
def test_weighted_rollout_is_that_of_its_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = {"vit": 1, "dinov2_with_registers": 4, "siglip": 0}[name]
    model = HEADS[name]()
    reference = copy.deepcopy(model).double().eval()
    reference.set_attn_implementation("eager")
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: torch.softmax(x, dim))
    images = normal(3, 3, 8, 8, seed=2)
    pairs = zip(images, TARGETS.tolist(), strict=True)
    expected = torch.stack([slow_gradient_rollout(reference, *pair, prefix, prefix > 0) for pair in pairs])
    monkeypatch.undo()
    scores = RelevanceScores(model, attention=GradientRollout())
    assert relative(each_class(scores, images), expected) < SAME


HEADS: dict[str, Any] = {
    "vit": vit,
    "vit without biases": lambda: vit(qkv_bias=False),
    "vit with another activation": lambda: vit(hidden_act="silu"),
    "deit": lambda: tiny(hf.DeiTForImageClassification, hf.DeiTConfig, num_labels=CLASSES),
    "deit with teacher": lambda: tiny(hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig, num_labels=CLASSES),
    "beit": lambda: tiny(
        hf.BeitForImageClassification,
        hf.BeitConfig,
        num_labels=CLASSES,
        use_relative_position_bias=True,
        layer_scale_init_value=0.5,
    ),
    "beit with absolute positions": lambda: tiny(
        hf.BeitForImageClassification,
        hf.BeitConfig,
        num_labels=CLASSES,
        use_absolute_position_embeddings=True,
        layer_scale_init_value=0.0,
    ),
    "dinov2": lambda: tiny(hf.Dinov2ForImageClassification, hf.Dinov2Config, num_labels=CLASSES, mlp_ratio=2),
    "dinov2 with SwiGLU": lambda: tiny(
        hf.Dinov2ForImageClassification, hf.Dinov2Config, num_labels=CLASSES, use_swiglu_ffn=True
    ),
    "dinov2_with_registers": lambda: tiny(
        hf.Dinov2WithRegistersForImageClassification,
        hf.Dinov2WithRegistersConfig,
        num_labels=CLASSES,
        mlp_ratio=2,
        num_register_tokens=3,
    ),
    "clip": lambda: tiny(hf.CLIPForImageClassification, clip_config),
    "siglip": lambda: tiny(hf.SiglipForImageClassification, siglip_config),
}
"""Models with heads, by family."""

THROUGH_MODULES = ("beit", "dinov2 with SwiGLU")
"""Those whose layers are not plain."""

EACH_KIND = ("gradient rollout", "HiResCAM", "integrated gradients of pixels")
"""A map of attention, one of tokens and one of pixels: enough where only the layers of a family differ."""

TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 20,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def clip_config(**sizes: Any) -> Any:
    return hf.CLIPConfig(vision_config=sizes, text_config=TEXT, num_labels=CLASSES)


def siglip_config(**sizes: Any) -> Any:
    return hf.SiglipConfig(vision_config=sizes, text_config=TEXT, num_labels=CLASSES)


@pytest.mark.parametrize("name", HEADS)
def test_class_scores_are_the_models_own_and_both_passes_agree(name: str) -> None:
    model = HEADS[name]()
    reference = in_float64(model)
    maps = EACH_KIND if " with" in name else tuple(MAPS)
    check_model(model, lambda images: reference(images).logits, plain=name not in THROUGH_MODULES, maps=maps)


@pytest.mark.parametrize("name", ["vit", "beit", "clip", "siglip"])
def test_other_sizes_of_images(name: str) -> None:
    model = HEADS[name]()
    reference = in_float64(model)
    for size in ((8, 12), (6, 4)):
        # Some families resample positions in float32 themselves.
        check_model(
            model,
            lambda images: reference(images, interpolate_pos_encoding=True).logits,
            image_size=size,
            plain=name not in THROUGH_MODULES,
            same=1e-5,
            maps=EACH_KIND,
        )


def test_a_model_within_another_is_asked_as_a_whole() -> None:
    """The scores of a class are those of the module given, and the attention that of the transformer in it."""

    class Sharper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = vit()

        def forward(self, images: Tensor) -> Tensor:
            return 3 * self.model(images).logits

    images = normal(2, 3, 8, 8)
    inner, outer = RelevanceScores(vit(), attention=GradientRollout(1)), None
    outer = RelevanceScores(Sharper(), attention=GradientRollout(1))
    assert relative(outer.class_scores(images), 3 * inner.class_scores(images)) < SAME
    assert type(outer._forward) is PlainRelevance
    single = RelevanceScores(Sharper(), attention=GradCAM(target=1))
    assert relative(single(images), 3 * RelevanceScores(vit(), attention=GradCAM(target=1))(images)) < SAME


def test_the_layer_is_counted_from_either_end() -> None:
    images = normal(2, 3, 8, 8)
    for layer in range(LAYERS):
        first, last = (RelevanceScores(vit(), attention=GradCAM(n, target=1)) for n in (layer, layer - LAYERS))
        assert torch.equal(first(images), last(images))


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = (nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 6, 3), nn.GELU())
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES))


@pytest.mark.parametrize(
    "new_scores",
    [
        lambda: RelevanceScores(vit(), attention=GradCAM()),
        lambda: RelevanceScores(HEADS["beit"](), attention=GradCAM()),
        lambda: NetworkScores(network(), attention=GradCAM("2"), image_size=(3, 8, 8)),
    ],
    ids=["plain layers", "modules", "network"],
)
def test_threads_that_share_scores_do_not_share_images(new_scores: Any) -> None:
    scores = new_scores()
    images = normal(8, *scores.image_shape)
    expected = [scores(image[None]) for image in images]

    def computed(number: int) -> bool:
        return all(torch.equal(scores(images[number : number + 1]), expected[number]) for _ in range(20))

    with ThreadPoolExecutor(len(images)) as threads:
        assert all(threads.map(computed, range(len(images))))
