"""Every family of Hugging Face transformers, against plain operations and against the library's own attention."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from attentest.attention import LayerAttention, Rollout, ViTScores, scores_from_attentions
from attentest.attention.vit import readable
from attentest.errors import AttentestWarning, InputError
from families import (
    EXACT,
    FAMILY_MODELS,
    FLOAT32,
    LAYERS,
    VARIANTS,
    OtherDtypes,
    distance,
    family_model,
    has_class_token,
    normal,
)
from plain_forward import huggingface_weights, one_layer, plain_scores, rollout

FAMILIES = sorted(FAMILY_MODELS)
PREFIX = {"deit": 2, "dinov2_with_registers": 4, "dinov3_vit": 4, "siglip_vision_model": 0, "ijepa": 0}
SIZES_OF_IMAGES = [(8, 8), (8, 12)]


def encoder_of(model: Any) -> Any:
    inner = getattr(model, model.base_model_prefix, model)
    return inner if hasattr(inner, "embeddings") else model


def own_attentions(model: Any, images: Tensor) -> tuple[Tensor, ...]:
    """The attention that the library itself returns, in float32, computed without fusing."""
    encoder = copy.deepcopy(encoder_of(model)).float().eval()
    encoder.set_attn_implementation("eager")
    kind = encoder.config.model_type
    options: dict[str, Any] = {}
    if kind in ("vit", "deit", "vit_mae", "vit_msn", "ijepa", "clip_vision_model", "siglip_vision_model"):
        options["interpolate_pos_encoding"] = tuple(images.shape[-2:]) != (8, 8)
    if kind == "vit_mae":  # its patches are shuffled by sorting noise, and a share of them is left out
        encoder.config.mask_ratio = 0.0
        patches = (images.shape[-2] // 2) * (images.shape[-1] // 2)
        options["noise"] = torch.arange(patches, dtype=torch.float32).expand(len(images), -1)
    with torch.no_grad():
        return tuple(encoder(images.float(), output_attentions=True, **options).attentions)


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_of_the_tiny_models_depends_on_the_image(name: str) -> None:
    scores = ViTScores(family_model(name))(normal(8, 3, 8, 8))
    flat = scores.flatten(1)
    assert float((flat.amax(dim=1) / flat.amin(dim=1)).min()) > 1.5
    assert float(flat.std(dim=0).max()) > 0.05  # not only from patch to patch, but from image to image


@pytest.mark.parametrize("size", [*SIZES_OF_IMAGES, (6, 4)])
@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_scores_are_the_rollout_of_plain_operations(name: str, size: tuple[int, int]) -> None:
    model, images = family_model(name), normal(3, 3, *size, seed=1)
    scores = ViTScores(model, image_size=size)
    assert distance(scores(images), plain_scores(model, images, has_class_token(name))) < EXACT


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_the_rollout_of_the_librarys_own_attention(name: str, size: tuple[int, int]) -> None:
    model, images = family_model(name), normal(3, 3, *size, seed=2)
    shown = own_attentions(model, images)
    if any(layer is None for layer in shown):
        pytest.skip("this version of transformers does not show the attention of this family")
    own = [layer.double() for layer in shown]
    assert len(own) == LAYERS
    scores = ViTScores(model, image_size=size)
    grid, classy = (size[0] // 2, size[1] // 2), has_class_token(name)
    assert distance(scores(images), rollout(own, grid, classy)) < FLOAT32
    # What a caller gets from the library's attention by hand is the same.
    by_hand = scores_from_attentions(own, grid, discard=PREFIX.get(name, 1), class_token=classy)
    assert distance(scores(images), by_hand) < FLOAT32


@pytest.mark.parametrize("name", ["vit", "deit"])
def test_a_model_trained_on_images_that_are_not_square(name: str) -> None:
    model = FAMILY_MODELS[name](image_size=(8, 12))
    for size in ((8, 12), (8, 8), (6, 16)):
        images = normal(2, 3, *size, seed=3)
        assert distance(ViTScores(model, image_size=size)(images), plain_scores(model, images)) < EXACT
    assert ViTScores(model).image_shape == (3, 8, 12)


@pytest.mark.parametrize("name", ["vit", "dinov2", "clip_vision_model"])
def test_one_channel_is_as_good_as_three(name: str) -> None:
    model, images = FAMILY_MODELS[name](num_channels=1), normal(2, 1, 8, 8)
    scores = ViTScores(model)
    assert scores.image_shape == (1, 8, 8)
    assert distance(scores(images), plain_scores(model, images)) < EXACT


@pytest.mark.parametrize("size", [None, (8, 12)])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_tokens_are_those_of_the_model(name: str, size: tuple[int, int] | None) -> None:
    scores = ViTScores(family_model(name), image_size=size)
    height, width = size or (8, 8)
    told = scores.describe()
    assert told["type"] == name
    assert told["weights"] == "float32"
    assert told["input"] == [3, height, width]
    assert told["grid"] == [height // 2, width // 2]
    assert told["prefix_tokens"] == PREFIX.get(name, 1)
    assert told["class_token"] is has_class_token(name)
    assert told["attention"] == {"name": "rollout", "head_fusion": "mean"}
    assert json.loads(json.dumps(told)) == told
    assert scores.grid_shape == (height // 2, width // 2)
    assert readable(family_model(name))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_callers_model_is_left_as_it_was(name: str, training: bool) -> None:
    model = FAMILY_MODELS[name]().train(training)
    images = normal(2, 3, 8, 8).float()

    def state() -> dict[str, Any]:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(5)  # dropout, and the patches that ViT-MAE leaves out
            output = model(images).to_tuple()
        return {
            "weights": {key: value.clone() for key, value in model.state_dict().items()},
            "buffers": {key: value.clone() for key, value in model.named_buffers()},
            "places": [id(parameter) for parameter in model.parameters()],
            "kinds": [(p.dtype, p.requires_grad, p.device) for p in model.parameters()],
            "attention": model.config._attn_implementation,
            "training": [module.training for module in model.modules()],
            "config": model.config.to_dict(),
            "attributes": [sorted(vars(module)) for module in model.modules()],
            "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
            "output": [part for part in output if isinstance(part, Tensor)],
        }

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, Tensor):
            return torch.equal(one, other)
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        if isinstance(one, (list, tuple)):
            return len(one) == len(other) and all(map(same, one, other))
        return bool(one == other)

    before, chance = state(), torch.get_rng_state()
    scores = ViTScores(model, image_size=(8, 12))
    scores(normal(2, 3, 8, 12))
    scores.rough(normal(2, 3, 8, 12))
    assert torch.equal(torch.get_rng_state(), chance)  # reading draws no random numbers of the caller's
    after = state()
    for part in before:
        assert same(before[part], after[part]), part


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_the_same_whatever_attention_the_model_was_set_to(name: str) -> None:
    images = normal(2, 3, 8, 8, seed=4)
    found = []
    for implementation in ("sdpa", "eager"):
        model = copy.deepcopy(family_model(name))
        model.set_attn_implementation(implementation)
        before = model.config._attn_implementation
        found.append(ViTScores(model)(images))
        assert model.config._attn_implementation == before
    asked = copy.deepcopy(family_model(name))
    asked.set_attn_implementation("eager")
    for module in asked.modules():  # encoders have configurations of their own
        if isinstance(module, hf.PreTrainedModel) and module.config._attn_implementation == "eager":
            module.config.output_attentions = True
    found.append(ViTScores(asked)(images))
    assert all(torch.equal(found[0], scores) for scores in found[1:])


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_derivative_along_a_line_is_that_of_differences(name: str, size: tuple[int, int]) -> None:
    scores = ViTScores(family_model(name), image_size=size)
    start, direction = normal(2, 3, *size, seed=5), normal(2, 3, *size, seed=6)

    def along(z: Tensor) -> Tensor:
        return scores(start + z * direction)

    z, step = torch.tensor(0.3, dtype=torch.float64), 1e-4
    value, slope = torch.func.jvp(along, (z,), (torch.ones_like(z),))
    assert distance(value, along(z)) < EXACT
    # Central differences of two widths, so that the third derivative drops out; roundings over the step stay.
    narrow, wide = ((along(z + d) - along(z - d)) / (2 * d) for d in (step, 2 * step))
    assert distance(slope, (4 * narrow - wide) / 3) < 1e-9
    assert float(slope.abs().max()) > 1e-2


@pytest.mark.parametrize("name", FAMILIES)
def test_an_images_scores_do_not_depend_on_its_company(name: str) -> None:
    images = normal(7, 3, 8, 8, seed=7)
    scores = ViTScores(family_model(name))
    together = scores(images)
    in_threes = ViTScores(family_model(name), batch_size=3)(images)
    alone = torch.cat([scores(image[None]) for image in images])
    assert distance(together, in_threes) < 1e-13
    assert distance(together, alone) < 1e-13
    assert distance(together.flip(0), scores(images.flip(0))) < 1e-13


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_everything_is_computed_in_float64(name: str, size: tuple[int, int]) -> None:
    scores, images = ViTScores(family_model(name), image_size=size), normal(2, 3, *size)
    with OtherDtypes() as recorder:
        scores(images)
    assert recorder.operations > 50
    seen = recorder.seen
    if name == "vit_mae":
        # It writes down which patches it left out, as zeros and ones in the default dtype: these are exact in any,
        # and only its decoder reads them.
        seen = [one for one in seen if not torch.isin(one[2], torch.tensor([0.0, 1.0])).all()]
    assert [one[:2] for one in seen] == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision_weights_are_taken_as_they_are_and_named(name: str, dtype: torch.dtype) -> None:
    half = copy.deepcopy(family_model(name)).to(dtype)
    with pytest.warns(AttentestWarning, match=rf"weights are {str(dtype).removeprefix('torch.')}:"):
        scores = ViTScores(half)
    assert half.dtype == dtype
    assert scores.describe()["weights"] == str(dtype).removeprefix("torch.")
    images = normal(2, 3, 8, 8, seed=8)
    assert torch.equal(scores(images), ViTScores(copy.deepcopy(half).float())(images))
    assert torch.equal(scores(images), ViTScores(copy.deepcopy(half).double())(images))


EVERY_AGGREGATION = [
    *(Rollout(fusion) for fusion in ("max", "min", 0, 1)),
    *(LayerAttention(layer, fusion) for layer in (0, 1, -1) for fusion in ("mean", "max", "min", 0, 1)),
]
SOME_AGGREGATIONS = [Rollout("max"), LayerAttention(1, "mean"), LayerAttention(-1, 1)]


@pytest.mark.parametrize("name", FAMILIES)
def test_aggregations_are_those_of_plain_operations(name: str) -> None:
    model, images = family_model(name), normal(3, 3, 8, 12, seed=9)
    weights = huggingface_weights(model, images)
    grid, classy = (4, 6), has_class_token(name)
    # They depend on the family only through its tokens: with a class token, with several, and without.
    every = name in ("vit", "deit", "siglip_vision_model")
    for aggregation in EVERY_AGGREGATION if every else SOME_AGGREGATIONS:
        fusion = aggregation.head_fusion
        if isinstance(aggregation, Rollout):
            expected = rollout(weights, grid, classy, fusion)
        else:
            expected = one_layer(weights[aggregation.layer], grid, classy, fusion)
        scores = ViTScores(model, attention=aggregation, image_size=(8, 12))
        assert distance(scores(images), expected) < EXACT, aggregation
        assert scores.describe()["attention"] == aggregation.describe()


def test_aggregations_have_names() -> None:
    model, images = family_model("vit"), normal(2, 3, 8, 8)
    for name, aggregation in (("rollout", Rollout()), ("last-layer", LayerAttention())):
        assert torch.equal(ViTScores(model, attention=name)(images), ViTScores(model, attention=aggregation)(images))
    for wrong in ("first-layer", Rollout, None, 3):
        with pytest.raises(InputError, match=r"attention must be rollout, .*residual or an aggregation"):
            ViTScores(model, attention=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_scores_are_near_those_of_float64(name: str) -> None:
    scores, images = ViTScores(family_model(name), image_size=(8, 12)), normal(2, 3, 8, 12)
    assert distance(scores(images), scores.rough(images)) < FLOAT32


@pytest.mark.parametrize("name", FAMILIES)
def test_a_border_that_no_patch_covers_has_no_influence(name: str) -> None:
    scores, images = ViTScores(family_model(name), image_size=(9, 13)), normal(2, 3, 9, 13, seed=10)
    assert scores.image_shape == (3, 9, 13)
    assert scores.grid_shape == (4, 6)
    assert scores.covered == (8, 12)
    other = images.clone()
    other[:, :, 8:] += 5.0
    other[:, :, :, 12:] -= 5.0
    assert torch.equal(scores(images), scores(other))
    assert distance(scores(images), plain_scores(family_model(name), images, has_class_token(name))) < EXACT
    inside = images.clone()
    inside[:, :, 7, 11] += 1.0  # the last pixel that is covered
    assert distance(scores(images), scores(inside)) > 1e-4


def test_plain_operations_know_the_names_of_older_weights() -> None:
    # In older versions of transformers the parts of DINOv2 have other names, and SwiGLU one matrix for gate and value.
    renamed = {"q_proj": "attention.query", "k_proj": "attention.key", "v_proj": "attention.value"}
    renamed |= {"o_proj": "output.dense", "down_proj": "weights_out"}
    model, images = VARIANTS["dinov2 with SwiGLU"](), normal(2, 3, 8, 8)
    state = dict(model.state_dict())
    for name in [key for key in state if "gate_proj" in key]:
        up = state.pop(name.replace("gate_proj", "up_proj"))
        state[name.replace("gate_proj", "weights_in")] = torch.cat([state.pop(name), up])
    for new, old in renamed.items():
        state = {re.sub(rf"\b{new}\b", old, key): value for key, value in state.items()}
    older = copy.copy(model)
    older.state_dict = lambda: state  # type: ignore[method-assign]
    for one, other in zip(huggingface_weights(model, images), huggingface_weights(older, images), strict=True):
        assert torch.equal(one, other)
