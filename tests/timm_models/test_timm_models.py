"""The vision transformers of timm and torchvision, against plain operations and what their fused attention is given."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from attentest import AttentionTest
from attentest.attention import LayerAttention, Rollout, ViTScores
from attentest.attention.forward_pass import PlainForward
from attentest.attention.vit import readable
from attentest.errors import AttentestWarning, InputError, ModelError
from attentest.images.preprocessing import Preprocessing
from attentest.search import SpectralSearch
from families import EXACT, FLOAT32, OtherDtypes, distance, normal, with_random_weights
from plain_forward import one_layer, rollout, timm_weights, torchvision_weights

ABSENT = "timm and torchvision are neither installed nor in the folder timm of the environment (see conftest.py)"
timm = pytest.importorskip("timm", reason=ABSENT)
torchvision = pytest.importorskip("torchvision", reason=ABSENT)

SIZES: dict[str, Any] = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 3}


def made(model_class: Any, **changes: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        return with_random_weights(model_class(**{**SIZES, **changes}))


def vit(**changes: Any) -> Any:
    return made(timm.models.vision_transformer.VisionTransformer, **changes)


def torchvision_vit() -> Any:
    with torch.random.fork_rng(devices=[]):
        model = torchvision.models.VisionTransformer(
            image_size=8, patch_size=2, num_layers=3, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=3
        )
    return with_random_weights(model)


TIMM: dict[str, Callable[[], Any]] = {
    "class token": vit,
    "registers": lambda: vit(reg_tokens=3),
    "registers without positions": lambda: vit(reg_tokens=3, no_embed_class=True),
    "no position of the class token": lambda: vit(no_embed_class=True),
    "no class token": lambda: vit(class_token=False, global_pool="avg"),
    "registers and no class token": lambda: vit(class_token=False, global_pool="avg", reg_tokens=2),
    "distilled": lambda: made(timm.models.deit.VisionTransformerDistilled),
    "any size": lambda: vit(dynamic_img_size=True),
    "any size, distilled": lambda: made(timm.models.deit.VisionTransformerDistilled, dynamic_img_size=True),
    "any size, registers without positions": lambda: vit(dynamic_img_size=True, reg_tokens=3, no_embed_class=True),
    "layer scale": lambda: vit(init_values=0.5),
    "norm before the layers": lambda: vit(pre_norm=True),
    "no biases of query, key and value": lambda: vit(qkv_bias=False),
    "not square": lambda: vit(img_size=(8, 12)),
}
PREFIX = {
    "registers": 4,
    "registers without positions": 4,
    "no class token": 0,
    "registers and no class token": 2,
    "distilled": 2,
    "any size, distilled": 2,
    "any size, registers without positions": 4,
}


def grid_of(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] // 2, size[1] // 2


def test_transformers_goes_on_without_a_torchvision_whose_binaries_do_not_load() -> None:
    from transformers import utils

    operators_work = hasattr(torchvision.extension, "_has_ops") and torchvision.extension._has_ops()
    if not operators_work:
        assert not utils.is_torchvision_available()
        assert not utils.is_timm_available()


@pytest.mark.parametrize("size", [(8, 8), (8, 12), (6, 4)])
@pytest.mark.parametrize("name", sorted(TIMM))
def test_scores_of_timm_are_the_rollout_of_plain_operations(name: str, size: tuple[int, int]) -> None:
    model, images = TIMM[name](), normal(3, 3, *size, seed=1)
    classy = "no class token" not in name
    scores = ViTScores(model, image_size=size)
    found = scores(images)
    assert distance(found, rollout(timm_weights(model, images), grid_of(size), classy)) < EXACT
    assert float(found.std(dim=0).max()) > 0.02  # attention that depends on the image
    told = scores.describe()
    assert told["type"] == f"timm {type(model).__name__}"
    assert told["grid"] == list(grid_of(size))
    assert told["prefix_tokens"] == PREFIX.get(name, 1)
    assert told["class_token"] is classy
    assert told["input"] == [3, *size]
    assert json.loads(json.dumps(told)) == told
    assert scores.covered == size
    assert readable(model)


@pytest.mark.parametrize("name", sorted(TIMM))
def test_timm_is_read_at_the_size_of_training_by_default(name: str) -> None:
    model = TIMM[name]()
    size = tuple(model.patch_embed.img_size)
    images = normal(2, 3, *size, seed=2)
    scores = ViTScores(model)
    assert scores.image_shape == (3, *size)
    assert torch.equal(scores(images), ViTScores(model, image_size=size)(images))


@pytest.mark.parametrize("make", [*TIMM.values(), torchvision_vit], ids=[*TIMM, "torchvision"])
def test_their_layers_are_read_as_plain_ones(make: Callable[[], Any]) -> None:
    scores = ViTScores(make())
    assert isinstance(scores._forward, PlainForward)
    images = normal(2, *scores.image_shape)
    assert distance(scores(images), scores.through_modules(images)) < EXACT


@pytest.mark.parametrize("name", ["class token", "registers", "no class token", "distilled"])
def test_aggregations_of_timm_are_those_of_plain_operations(name: str) -> None:
    model, images = TIMM[name](), normal(2, 3, 8, 12, seed=3)
    weights, classy = timm_weights(model, images), name != "no class token"
    for fusion, layer in (("max", 0), ("min", -1), (1, 1)):
        scores = ViTScores(model, attention=Rollout(fusion), image_size=(8, 12))(images)
        assert distance(scores, rollout(weights, (4, 6), classy, fusion)) < EXACT
        scores = ViTScores(model, attention=LayerAttention(layer, fusion), image_size=(8, 12))(images)
        assert distance(scores, one_layer(weights[layer], (4, 6), classy, fusion)) < EXACT


def fused_inputs(model: Any, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The attention weights of a timm model with fused attention, from what it gives to torch's fused function."""
    shown: list[Tensor] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def recorded(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        logits = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        shown.append(torch.softmax(logits if attn_mask is None else logits + attn_mask, dim=-1))
        return fused(q, k, v, attn_mask=attn_mask, **options)

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
        model.forward_features(images)
    return shown


RELATIVES: dict[str, Callable[[], Any]] = {
    "EVA": lambda: made(timm.models.eva.Eva, mlp_ratio=2.0),
    "EVA with SwiGLU and rotations": lambda: made(
        timm.models.eva.Eva, mlp_ratio=2.0, swiglu_mlp=True, use_rot_pos_emb=True, ref_feat_shape=(4, 4)
    ),
    "EVA of any size with rotations": lambda: made(
        timm.models.eva.Eva, mlp_ratio=2.0, use_rot_pos_emb=True, dynamic_img_size=True
    ),
    "BEiT": lambda: made(timm.models.beit.Beit, use_abs_pos_emb=True, use_rel_pos_bias=True, init_values=0.5),
    "BEiT with a shared bias": lambda: made(
        timm.models.beit.Beit, use_abs_pos_emb=False, use_shared_rel_pos_bias=True, init_values=0.5
    ),
    "normed queries and keys": lambda: vit(qk_norm=True),
    "relative positions": lambda: made(
        timm.models.vision_transformer_relpos.VisionTransformerRelPos, class_token=True, global_pool="token"
    ),
}


@pytest.mark.parametrize("size", [(8, 8), (8, 12)])
@pytest.mark.parametrize("name", sorted(RELATIVES))
def test_relatives_in_timm_have_the_rollout_of_what_they_fuse(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images = RELATIVES[name](), normal(2, 3, *size, seed=4)
    if size != (8, 8) and not hasattr(model, "set_input_size"):
        with pytest.raises(ModelError, match=r"takes images of .* only"):
            ViTScores(model, image_size=size)
        return
    scores = ViTScores(model, image_size=size)
    reference = copy.deepcopy(model)
    if size != (8, 8):
        reference.set_input_size(img_size=size)
    for block in reference.blocks:
        block.attn.fused_attn = True
    shown = fused_inputs(reference.double(), images, monkeypatch)
    assert len(shown) == 3
    # timm resamples position embeddings in float32.
    tolerance = EXACT if size == (8, 8) else FLOAT32
    assert distance(scores(images), rollout(shown, grid_of(size))) < tolerance
    assert float(scores(images).std(dim=0).max()) > 0.02


@pytest.mark.parametrize("size", [(8, 8), (8, 12)])
@pytest.mark.parametrize("name", [*sorted(TIMM), *sorted(RELATIVES)])
def test_everything_of_timm_is_computed_in_float64(name: str, size: tuple[int, int]) -> None:
    model = {**TIMM, **RELATIVES}[name]()
    if not hasattr(model, "set_input_size"):
        size = (8, 8)
    scores = ViTScores(model, image_size=size)
    with OtherDtypes() as recorder:
        scores(normal(2, 3, *size))
    assert recorder.seen == []


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["class token", "any size", "distilled", "EVA", "BEiT"])
def test_the_callers_timm_model_is_left_as_it_was(name: str, fused: bool) -> None:
    model = {**TIMM, **RELATIVES}[name]().train()
    for block in model.blocks:
        block.attn.fused_attn = fused
    calls: list[str] = []
    handle = model.blocks[0].attn.attn_drop.register_forward_hook(lambda *_: calls.append("hook"))
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    hooks = [dict(module._forward_hooks) for module in model.modules()]
    training = [module.training for module in model.modules()]
    size, chance = model.patch_embed.img_size, torch.get_rng_state()
    wanted = (8, 12) if hasattr(model, "set_input_size") else (8, 8)
    with pytest.warns(AttentestWarning, match="1 forward hook"):
        scores = ViTScores(model, image_size=wanted)
    scores(normal(2, 3, *wanted))
    assert [block.attn.fused_attn for block in model.blocks] == [fused] * 3
    assert [dict(module._forward_hooks) for module in model.modules()] == hooks
    assert [module.training for module in model.modules()] == training
    assert model.patch_embed.img_size == size
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(p.dtype == torch.float32 and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), chance)
    handle.remove()
    with torch.no_grad():
        assert model.eval()(normal(1, 3, 8, 8).float()).isfinite().all()


def test_hooks_of_the_caller_are_not_called_by_reading() -> None:
    # Who collects activations with a hook would find those of every image that a search tries among them.
    model = vit()
    calls: list[str] = []
    model.blocks[0].register_forward_hook(lambda *_: calls.append("hook"))
    with pytest.warns(AttentestWarning, match="the model has 1 forward hook"):
        scores = ViTScores(model)
    scores(normal(1, 3, 8, 8))
    assert calls == []


def test_fused_or_not_timm_has_the_same_scores() -> None:
    images, found = normal(2, 3, 8, 8), []
    for fused in (False, True):
        model = vit()
        for block in model.blocks:
            block.attn.fused_attn = fused
        found.append(ViTScores(model)(images))
    assert torch.equal(*found)


@pytest.mark.parametrize("make", [vit, torchvision_vit])
def test_the_derivative_along_a_line_is_that_of_differences(make: Callable[[], Any]) -> None:
    scores = ViTScores(make(), image_size=(8, 12))
    start, direction = normal(2, 3, 8, 12, seed=5), normal(2, 3, 8, 12, seed=6)

    def along(z: Tensor) -> Tensor:
        return scores(start + z * direction)

    z, step = torch.tensor(0.3, dtype=torch.float64), 1e-4
    value, slope = torch.func.jvp(along, (z,), (torch.ones_like(z),))
    assert distance(value, along(z)) < EXACT
    # Central differences of two widths, so that the third derivative drops out; roundings over the step stay.
    narrow, wide = ((along(z + d) - along(z - d)) / (2 * d) for d in (step, 2 * step))
    assert distance(slope, (4 * narrow - wide) / 3) < 1e-9


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [vit, torchvision_vit])
def test_half_precision_weights_are_taken_as_they_are_and_named(make: Callable[[], Any], dtype: str) -> None:
    half = make().to(getattr(torch, dtype))
    with pytest.warns(AttentestWarning, match=f"weights are {dtype}:"):
        scores = ViTScores(half, image_size=(8, 12))
    images = normal(2, 3, 8, 12)
    assert torch.equal(scores(images), ViTScores(half.double(), image_size=(8, 12))(images))


def test_a_timm_model_cuts_images_without_a_rest() -> None:
    with pytest.raises(ModelError, match=r"type 'timm VisionTransformer' and cuts images .* image_size is 9 x 13"):
        ViTScores(vit(), image_size=(9, 13))
    with pytest.raises(InputError, match="image_size"):
        ViTScores(vit(), image_size=1)


def test_a_timm_model_within_another_module_is_found() -> None:
    model, images = vit(), normal(2, 3, 8, 8)
    wrapped = nn.Sequential(nn.Identity(), model)
    with pytest.warns(AttentestWarning, match="within the Sequential given, and nothing around it"):
        scores = ViTScores(wrapped)
    assert torch.equal(scores(images), ViTScores(model)(images))


@pytest.mark.parametrize("size", [(8, 8), (8, 12), (6, 4)])
def test_scores_of_torchvision_are_the_rollout_of_plain_operations(size: tuple[int, int]) -> None:
    model, images = torchvision_vit(), normal(3, 3, *size, seed=7)
    scores = ViTScores(model, image_size=size)
    weights = torchvision_weights(model, images)
    assert len(weights) == 3
    assert distance(scores(images), rollout(weights, grid_of(size))) < EXACT
    assert float(scores(images).std(dim=0).max()) > 0.02
    for layer in (0, -1):
        single = ViTScores(model, attention=LayerAttention(layer, "max"), image_size=size)
        assert distance(single(images), one_layer(weights[layer], grid_of(size), fusion="max")) < EXACT
    told = scores.describe()
    assert told["type"] == "torchvision VisionTransformer"
    assert told["grid"] == list(grid_of(size))
    assert (told["prefix_tokens"], told["class_token"]) == (1, True)
    with OtherDtypes() as recorder:
        scores(images)
    assert recorder.seen == []


def test_scores_of_torchvision_are_the_rollout_of_its_own_attention() -> None:
    model, images = torchvision_vit(), normal(2, 3, 8, 8, seed=8)
    reference, shown = copy.deepcopy(model).double(), []
    for layer in reference.encoder.layers:

        def attended(x: Tensor, k: Tensor, v: Tensor, own: Any = layer.self_attention, **_: Any) -> Any:
            output, weights = type(own).forward(own, x, k, v, need_weights=True, average_attn_weights=False)
            shown.append(weights)
            return output, None

        layer.self_attention.forward = attended
    with torch.no_grad():
        reference(images)
    assert distance(ViTScores(model)(images), rollout(shown, (4, 4))) < EXACT


def test_the_callers_torchvision_model_is_left_as_it_was() -> None:
    model = torchvision_vit().train()
    weights, images = {key: value.clone() for key, value in model.state_dict().items()}, normal(2, 3, 8, 8).float()
    kinds = [type(module) for module in model.modules()]
    with torch.no_grad():
        before = model(images)
    scores = ViTScores(model, image_size=(8, 12))
    scores(normal(2, 3, 8, 12))
    with torch.no_grad():
        assert torch.equal(model(images), before)
    assert [type(module) for module in model.modules()] == kinds
    assert model.training
    assert list(model.state_dict()) == list(weights)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(p.dtype == torch.float32 and p.requires_grad for p in model.parameters())


def test_a_border_that_no_patch_of_torchvision_covers_has_no_influence() -> None:
    model, images = torchvision_vit(), normal(2, 3, 9, 13, seed=9)
    scores = ViTScores(model, image_size=(9, 13))
    assert (scores.grid_shape, scores.covered) == ((4, 6), (8, 12))
    other = images.clone()
    other[:, :, 8:] += 5.0
    other[:, :, :, 12:] -= 5.0
    assert torch.equal(scores(images), scores(other))
    assert distance(scores(images), rollout(torchvision_weights(model, images), (4, 6))) < EXACT


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "timm SwinTransformerV2Cr": lambda: timm.models.swin_transformer_v2_cr.SwinTransformerV2Cr(
        img_size=(16, 16), patch_size=2, window_size=2, embed_dim=8, depths=(1, 1), num_heads=(2, 2)
    ),
    "timm ResNet": lambda: timm.models.resnet.ResNet(
        timm.models.resnet.BasicBlock, layers=(1, 1, 1, 1), channels=(8, 8, 8, 8), stem_width=8
    ),
    "timm Hiera": lambda: timm.models.hiera.Hiera(
        img_size=(32, 32), embed_dim=8, num_heads=1, stages=(1, 1), q_pool=1, mask_unit_size=(4, 4)
    ),
    "timm VisionTransformerSAM": lambda: timm.models.vision_transformer_sam.VisionTransformerSAM(
        img_size=16, patch_size=2, embed_dim=16, depth=2, num_heads=2, window_size=2, neck_chans=8
    ),
    "torchvision SwinTransformer": lambda: torchvision.models.SwinTransformer(
        patch_size=[2, 2], embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=[2, 2]
    ),
    "torchvision ResNet": lambda: torchvision.models.ResNet(
        torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=2
    ),
}


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_another_kind_of_model_is_refused_by_its_type(kind: str) -> None:
    with torch.random.fork_rng(devices=[]):
        model = OTHERS[kind]().eval()
    with pytest.raises(ModelError, match=rf"of type '(timm |torchvision )?{kind.split()[1]}'") as caught:
        ViTScores(model)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize("block", ["ParallelScalingBlock", "ParallelThingsBlock", "DiffParallelScalingBlock"])
def test_timm_blocks_of_another_make_are_read_rightly_or_refused(block: str) -> None:
    model = vit(block_fn=getattr(timm.models.vision_transformer, block))
    with pytest.raises(ModelError, match="of type 'timm VisionTransformer'"):
        ViTScores(model)


def test_timm_attention_that_is_a_difference_of_two_is_refused() -> None:
    # It has two softmax maps a head, and weighs tokens by one less a multiple of the other: neither alone is what
    # the layer attends with.
    with pytest.raises(ModelError, match=r"of type 'timm VisionTransformer'|heads"):
        ViTScores(vit(attn_layer="diff"))


def photograph(size: tuple[int, int] = (40, 57)) -> np.ndarray:
    """A smooth 8-bit colour image in mid-range, so that neither rounding nor clipping matters much."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(rows / 9 + phase) * np.cos(columns / 11 - phase) for phase in (0.0, 1.0, 2.0)]
    return (128 + 60 * np.stack(waves, axis=-1)).round().astype(np.uint8)


@pytest.mark.parametrize("make", [vit, torchvision_vit])
def test_the_p_value_is_that_of_the_generic_path(make: Callable[[], Any]) -> None:
    model = make()
    image = np.random.default_rng(3).normal(size=(8, 12, 3))
    scores = ViTScores(model, image_size=(8, 12))
    options: dict[str, Any] = {"noise": 1.0, "search": SpectralSearch(tol=1e-9), "confidence_level": None}
    ours = AttentionTest(model, image_size=(8, 12), **options)(image)
    generic = AttentionTest(lambda images: scores(images), image_shape=(3, 8, 12), **options)(image)
    assert np.array_equal(ours.region, generic.region)
    assert ours.pvalue == pytest.approx(generic.pvalue, abs=1e-8)


@pytest.mark.parametrize(("crop_pct", "interpolation"), [(0.9, "bicubic"), (1.0, "bilinear"), (0.875, "bicubic")])
def test_preprocessing_is_that_of_timm(crop_pct: float, interpolation: str) -> None:
    settings = {
        "input_size": (3, 16, 16),
        "interpolation": interpolation,
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.25, 0.3),
        "crop_pct": crop_pct,
        "crop_mode": "center",
    }
    theirs = timm.data.create_transform(**settings)(Image.fromarray(photograph()))
    plan = Preprocessing.from_processor(settings).plan((3, 40, 57), 3, (0.0, 255.0))
    ours = plan(torch.from_numpy(photograph()).permute(2, 0, 1)[None].double())[0]
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1.5 / 255 / 0.2  # timm rounds to 8 bits twice


def test_preprocessing_is_read_off_a_timm_model() -> None:
    model = vit()
    settings = timm.data.resolve_data_config({"input_size": (3, 8, 8)}, model=model)
    result = AttentionTest(model, noise=12.0, preprocessing=settings, confidence_level=None)(photograph())
    assert result.region.shape == (40, 57)
    assert 0 < result.pvalue <= 1


def test_preprocessing_is_that_of_a_torchvision_preset() -> None:
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=16, resize_size=19, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    theirs = preset(Image.fromarray(photograph()))
    plan = Preprocessing.from_processor(preset).plan((3, 40, 57), 3, (0.0, 255.0))
    ours = plan(torch.from_numpy(photograph()).permute(2, 0, 1)[None].double())[0]
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1.5 / 255 / 0.2


def test_whole_patches_of_a_model_of_timm_are_its_scores() -> None:
    model, image = vit(img_size=(8, 12)), normal(3, 8, 12, seed=5)
    scores = ViTScores(model)(image[None])[0].numpy()
    result = AttentionTest(model, noise=1.0, region_unit="patches", confidence_level=None)(image)
    expected = np.kron((scores - scores.min()) / np.ptp(scores), np.ones((2, 2)))
    np.testing.assert_allclose(result.attention, expected, atol=1e-12)
    assert np.array_equal(result.region, expected > 0.6)
    assert result.status == "converged"
    assert result.selectable == 24
