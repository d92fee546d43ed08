"""Every family of Hugging Face transformers, against plain operations and against the library's own attention."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attentest.attention import LayerAttention, Rollout, ViTScores, load_model, readable, scores_from_attentions
from attentest.errors import AttentestError, AttentestWarning, InputError, ModelError
from families import FAMILY_MODELS, HEADS, LAYERS, VARIANTS, tiny_with_text
from plain_forward import huggingface_weights, one_layer, rollout

FAMILIES = sorted(FAMILY_MODELS)
PREFIX = {"deit": 2, "dinov2_with_registers": 4, "dinov3_vit": 4, "siglip_vision_model": 0}
SIZES_OF_IMAGES = [(8, 8), (8, 12)]

EXACT = 1e-12
"""Two ways of computing in float64: scores are of order one, so this is a few thousand roundings."""

FLOAT32 = 2e-5
"""The same in float32, after three layers."""


@pytest.fixture(scope="module")
def models() -> Callable[[str], Any]:
    """Models by name, made once: no test changes them, and one test sees to it that reading does not either."""
    made: dict[str, Any] = {}

    def model(name: str) -> Any:
        if name not in made:
            made[name] = {**FAMILY_MODELS, **VARIANTS}[name]()
        return made[name]

    return model


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def has_class_token(name: str) -> bool:
    return not name.startswith("siglip")


def plain_scores(model: Any, images: Tensor, class_token: bool = True) -> Tensor:
    grid = images.shape[-2] // 2, images.shape[-1] // 2
    return rollout(huggingface_weights(model, images), grid, class_token)


def distance(first: Tensor, second: Tensor) -> float:
    assert first.shape == second.shape
    assert first.dtype == second.dtype == torch.float64
    return float((first - second).abs().max())


def encoder_of(model: Any) -> Any:
    inner = getattr(model, model.base_model_prefix, model)
    return inner if hasattr(inner, "embeddings") else model


def own_attentions(model: Any, images: Tensor) -> tuple[Tensor, ...]:
    """The attention that the library itself returns, in float32, computed without fusing."""
    encoder = copy.deepcopy(encoder_of(model)).float().eval()
    encoder.set_attn_implementation("eager")
    kind = encoder.config.model_type
    options: dict[str, Any] = {}
    if kind in ("vit", "deit", "vit_mae", "clip_vision_model", "siglip_vision_model"):
        options["interpolate_pos_encoding"] = tuple(images.shape[-2:]) != (8, 8)
    if kind == "vit_mae":  # its patches are shuffled by sorting noise, and a share of them is left out
        encoder.config.mask_ratio = 0.0
        patches = (images.shape[-2] // 2) * (images.shape[-1] // 2)
        options["noise"] = torch.arange(patches, dtype=torch.float32).expand(len(images), -1)
    with torch.no_grad():
        return tuple(encoder(images.float(), output_attentions=True, **options).attentions)


# The families themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_of_the_tiny_models_depends_on_the_image(models: Callable[[str], Any], name: str) -> None:
    scores = ViTScores(models(name))(normal(8, 3, 8, 8))
    flat = scores.flatten(1)
    assert float((flat.amax(dim=1) / flat.amin(dim=1)).min()) > 1.5
    assert float(flat.std(dim=0).max()) > 0.05  # not only from patch to patch, but from image to image


@pytest.mark.parametrize("size", [*SIZES_OF_IMAGES, (6, 4)])
@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_scores_are_the_rollout_of_plain_operations(
    models: Callable[[str], Any], name: str, size: tuple[int, int]
) -> None:
    model, images = models(name), normal(3, 3, *size, seed=1)
    scores = ViTScores(model, image_size=size)
    assert distance(scores(images), plain_scores(model, images, has_class_token(name))) < EXACT


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_the_rollout_of_the_librarys_own_attention(
    models: Callable[[str], Any], name: str, size: tuple[int, int]
) -> None:
    model, images = models(name), normal(3, 3, *size, seed=2)
    own = [layer.double() for layer in own_attentions(model, images)]
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
def test_the_tokens_are_those_of_the_model(
    models: Callable[[str], Any], name: str, size: tuple[int, int] | None
) -> None:
    scores = ViTScores(models(name), image_size=size)
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
    assert readable(models(name))


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
def test_scores_are_the_same_whatever_attention_the_model_was_set_to(models: Callable[[str], Any], name: str) -> None:
    images = normal(2, 3, 8, 8, seed=4)
    found = []
    for implementation in ("sdpa", "eager"):
        model = copy.deepcopy(models(name))
        model.set_attn_implementation(implementation)
        found.append(ViTScores(model)(images))
        assert model.config._attn_implementation == implementation
    asked = copy.deepcopy(models(name))
    asked.set_attn_implementation("eager")
    for module in asked.modules():  # encoders have configurations of their own
        if isinstance(module, hf.PreTrainedModel):
            module.config.output_attentions = True
    found.append(ViTScores(asked)(images))
    assert all(torch.equal(found[0], scores) for scores in found[1:])


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_derivative_along_a_line_is_that_of_differences(
    models: Callable[[str], Any], name: str, size: tuple[int, int]
) -> None:
    scores = ViTScores(models(name), image_size=size)
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
def test_an_images_scores_do_not_depend_on_its_company(models: Callable[[str], Any], name: str) -> None:
    images = normal(7, 3, 8, 8, seed=7)
    together = ViTScores(models(name))(images)
    in_threes = ViTScores(models(name), batch_size=3)(images)
    alone = torch.cat([ViTScores(models(name))(image[None]) for image in images])
    assert distance(together, in_threes) < 1e-13
    assert distance(together, alone) < 1e-13
    assert distance(together.flip(0), ViTScores(models(name))(images.flip(0))) < 1e-13


class OtherDtypes(TorchDispatchMode):
    """Records what is computed in floating point other than float64."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype, Tensor]] = []
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor) and value.is_floating_point():
                self.operations += 1
                if value.dtype != torch.float64:
                    self.seen.append((str(function), value.dtype, value.detach().clone()))
        return result


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_everything_is_computed_in_float64(models: Callable[[str], Any], name: str, size: tuple[int, int]) -> None:
    scores, images = ViTScores(models(name), image_size=size), normal(2, 3, *size)
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
def test_half_precision_weights_are_taken_as_they_are_and_named(
    models: Callable[[str], Any], name: str, dtype: torch.dtype
) -> None:
    half = copy.deepcopy(models(name)).to(dtype)
    with pytest.warns(AttentestWarning, match=rf"weights are {str(dtype).removeprefix('torch.')}:"):
        scores = ViTScores(half)
    assert half.dtype == dtype
    assert scores.describe()["weights"] == str(dtype).removeprefix("torch.")
    images = normal(2, 3, 8, 8, seed=8)
    assert torch.equal(scores(images), ViTScores(copy.deepcopy(half).float())(images))
    assert torch.equal(scores(images), ViTScores(copy.deepcopy(half).double())(images))


AGGREGATIONS = [
    *(Rollout(fusion) for fusion in ("max", "min", 0, 1)),
    *(LayerAttention(layer, fusion) for layer in (0, 1, -1) for fusion in ("mean", "max", "min", 0, 1)),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_aggregation_is_that_of_plain_operations(models: Callable[[str], Any], name: str) -> None:
    model, images = models(name), normal(3, 3, 8, 12, seed=9)
    weights = huggingface_weights(model, images)
    grid, classy = (4, 6), has_class_token(name)
    for aggregation in AGGREGATIONS:
        fusion = aggregation.head_fusion
        if isinstance(aggregation, Rollout):
            expected = rollout(weights, grid, classy, fusion)
        else:
            expected = one_layer(weights[aggregation.layer], grid, classy, fusion)
        scores = ViTScores(model, attention=aggregation, image_size=(8, 12))
        assert distance(scores(images), expected) < EXACT, aggregation
        assert scores.describe()["attention"] == aggregation.describe()


def test_aggregations_have_names() -> None:
    model, images = FAMILY_MODELS["vit"](), normal(2, 3, 8, 8)
    for name, aggregation in (("rollout", Rollout()), ("last-layer", LayerAttention())):
        assert torch.equal(ViTScores(model, attention=name)(images), ViTScores(model, attention=aggregation)(images))
    for wrong in ("first-layer", Rollout, None, 3):
        with pytest.raises(InputError, match="attention must be rollout, last-layer, layer:K or an aggregation"):
            ViTScores(model, attention=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_scores_are_near_those_of_float64(models: Callable[[str], Any], name: str) -> None:
    scores, images = ViTScores(models(name), image_size=(8, 12)), normal(2, 3, 8, 12)
    assert distance(scores(images), scores.rough(images)) < FLOAT32


@pytest.mark.parametrize("name", FAMILIES)
def test_a_border_that_no_patch_covers_has_no_influence(models: Callable[[str], Any], name: str) -> None:
    scores, images = ViTScores(models(name), image_size=(9, 13)), normal(2, 3, 9, 13, seed=10)
    assert scores.image_shape == (3, 9, 13)
    assert scores.grid_shape == (4, 6)
    assert scores.covered == (8, 12)
    other = images.clone()
    other[:, :, 8:] += 5.0
    other[:, :, :, 12:] -= 5.0
    assert torch.equal(scores(images), scores(other))
    assert distance(scores(images), plain_scores(models(name), images, has_class_token(name))) < EXACT
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


# Saved models -----------------------------------------------------------------------------------------------------


def saved(model: Any, directory: Path) -> Path:
    model.save_pretrained(directory)
    return directory


def refusal_of(source: Any, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(source, **options)
    return one_sentence(caught.value)


def one_sentence(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    assert message.endswith(".")
    assert (
        error.__suppress_context__ or error.__context__ is None
    )  # what a foreign library raised is not shown below it
    return message


@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_a_saved_model_has_the_same_scores_and_loads_quietly(
    models: Callable[[str], Any], name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved(models(name), tmp_path / "model")
    capfd.readouterr()
    loaded = load_model(tmp_path / "model")
    assert capfd.readouterr() == ("", "")
    assert loaded.processor is None
    images = normal(2, 3, 8, 12, seed=11)
    scores = ViTScores(loaded.encoder, image_size=(8, 12), owned=True)(images)
    assert torch.equal(scores, ViTScores(models(name), image_size=(8, 12))(images))


@pytest.mark.parametrize(
    ("model_class", "config_class"), [(hf.CLIPModel, hf.CLIPConfig), (hf.SiglipModel, hf.SiglipConfig)]
)
def test_a_saved_model_of_images_and_texts_gives_its_vision_part(
    model_class: type, config_class: type, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny_with_text(model_class, config_class)
    saved(model, tmp_path / "model")
    capfd.readouterr()
    loaded = load_model(tmp_path / "model")
    assert capfd.readouterr() == ("", "")
    images, classy = normal(2, 3, 8, 8), model_class is hf.CLIPModel
    scores = ViTScores(loaded.encoder)(images)
    assert distance(scores, plain_scores(model.vision_model, images, classy)) < EXACT
    # The whole model, as a live module, is read likewise.
    assert torch.equal(scores, ViTScores(model)(images))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["vit", "beit", "dinov3_vit", "siglip_vision_model"])
def test_weights_saved_in_half_precision_are_loaded_as_they_are(name: str, dtype: str, tmp_path: Path) -> None:
    half = FAMILY_MODELS[name]().to(getattr(torch, dtype))
    encoder = load_model(saved(half, tmp_path / "model")).encoder
    assert encoder.dtype == getattr(torch, dtype)
    with pytest.warns(AttentestWarning, match=dtype):
        scores = ViTScores(encoder)
    images = normal(2, 3, 8, 8)
    assert torch.equal(scores(images), ViTScores(half.float())(images))


def test_pickled_weights_are_read_only_on_request(tmp_path: Path) -> None:
    model = FAMILY_MODELS["vit"]()
    directory = saved(model, tmp_path / "model")
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    message = refusal_of(directory)
    assert "allow_pickle=True" in message
    assert str(directory) in message
    images = normal(2, 3, 8, 8)
    scores = ViTScores(load_model(directory, allow_pickle=True).encoder)(images)
    assert torch.equal(scores, ViTScores(model)(images))


def test_pickled_weights_do_not_run_code_even_on_request(tmp_path: Path) -> None:
    directory = saved(FAMILY_MODELS["vit"](), tmp_path / "model")
    (directory / "model.safetensors").unlink()
    torch.save({"harm": Harm(tmp_path / "ran")}, directory / "pytorch_model.bin")
    refusal_of(directory, allow_pickle=True)
    assert not (tmp_path / "ran").exists()


class Harm:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of downloads; the library looked up the place of the real one when it was imported."""
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache))
    return cache


@pytest.mark.parametrize("source", ["someone/some-vit", "some-vit"])
def test_a_model_that_was_never_downloaded(source: str, empty_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refusal_of(source, local_files_only=True)
    assert source in message
    assert "not among the files downloaded before" in message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("revision", [None, "v2"])
@pytest.mark.parametrize("name", ["vit", "clip_vision_model"])
def test_a_model_downloaded_before_needs_no_network(
    models: Callable[[str], Any],
    name: str,
    revision: str | None,
    empty_cache: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    repository, commit = empty_cache / "models--someone--some-model", "0" * 40
    saved(models(name), repository / "snapshots" / commit)
    processor = {"do_rescale": True, "image_mean": [0.5, 0.5, 0.5]}
    (repository / "snapshots" / commit / "preprocessor_config.json").write_text(json.dumps(processor))
    (repository / "refs").mkdir()
    (repository / "refs" / (revision or "main")).write_text(commit)
    capfd.readouterr()
    loaded = load_model("someone/some-model", local_files_only=True, revision=revision)
    assert capfd.readouterr() == ("", "")
    assert loaded.processor == processor
    images = normal(2, 3, 8, 8)
    assert torch.equal(ViTScores(loaded.encoder)(images), ViTScores(models(name))(images))
    assert "other-model" in refusal_of("someone/other-model", local_files_only=True)


@pytest.mark.parametrize("name", ["x" * 200, "a/b/c", "-x/y", "someone/..", "someone/a--b", "someone/a.git", ""])
def test_what_can_be_no_id_is_refused(name: str, empty_cache: Path, tmp_path: Path) -> None:
    if name:  # the empty name is the current directory, which is no saved model
        assert name in refusal_of(name, local_files_only=True)
    else:
        refusal_of(name, local_files_only=True)


@pytest.mark.parametrize("model_type", ["vit", "made_up"])
def test_code_that_comes_with_a_model_never_runs(
    models: Callable[[str], Any], model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory, ran = saved(models("vit"), tmp_path / "model"), tmp_path / "ran"
    (directory / "code.py").write_text(
        f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
        "from transformers import ViTConfig as Config, ViTModel as Model\n"
    )
    config = json.loads((directory / "config.json").read_text())
    auto_map = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoImageProcessor": "code.Model"}
    config |= {"model_type": model_type, "auto_map": auto_map}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "preprocessor_config.json").write_text(json.dumps({"auto_map": auto_map}))
    if model_type == "vit":
        images = normal(2, 3, 8, 8)
        scores = ViTScores(load_model(directory).encoder)(images)
        assert torch.equal(scores, ViTScores(models("vit"))(images))
    else:
        assert "'made_up'" in refusal_of(directory)
    assert not ran.exists()


# Refusals ---------------------------------------------------------------------------------------------------------


def tiny_swin() -> Any:
    return hf.SwinModel(
        hf.SwinConfig(image_size=8, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=2)
    )


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "swin": tiny_swin,
    "swinv2": lambda: hf.Swinv2Model(
        hf.Swinv2Config(image_size=8, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=2)
    ),
    "hiera": lambda: hf.HieraModel(
        hf.HieraConfig(
            embed_dim=8,
            image_size=[32, 32],
            patch_stride=[2, 2],
            patch_size=[3, 3],
            patch_padding=[1, 1],
            depths=[1, 1],
            num_heads=[1, 2],
            num_layers=2,
            masked_unit_size=[8, 8],
            masked_unit_attention=[True, False],
            query_stride=[2, 2],
            num_query_pool=1,
        )
    ),
    "pvt": lambda: hf.PvtModel(
        hf.PvtConfig(image_size=32, depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 1, 1])
    ),
    "segformer": lambda: hf.SegformerModel(
        hf.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 1, 1])
    ),
    "convnext": lambda: hf.ConvNextModel(hf.ConvNextConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8])),
    "resnet": lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])),
}

REASONS = {
    "swin": "attends within windows",
    "swinv2": "attends within windows",
    "hiera": "is hierarchical",
    "pvt": "is hierarchical",
    "segformer": "is hierarchical",
    "convnext": "has no self-attention over patches",
    "resnet": "has no self-attention over patches",
}


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_another_kind_of_model_is_refused_by_its_type(kind: str) -> None:
    with torch.random.fork_rng(devices=[]):
        model = OTHERS[kind]()
    assert not readable(model)
    with pytest.raises(ModelError, match=f"the model is of type '{kind}', which {REASONS[kind]}") as caught:
        ViTScores(model)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert "AttentionTest(function, image_shape=...)" in message  # what to do instead


def test_another_kind_of_saved_model_is_refused_by_its_type(tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        directory = saved(tiny_swin(), tmp_path / "model")
    message = refusal_of(directory)
    assert "is of type 'swin', which attends within windows" in message
    assert str(directory) in message


@pytest.mark.parametrize("model_type", ["null", "5", "[]", '{"a": 1}', '"bert"', '"sam"', '"vitdet"'])
def test_any_other_type_of_saved_model_is_refused(model_type: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": {model_type}}}')
    assert str(tmp_path) in refusal_of(tmp_path)


def test_a_module_that_is_no_vision_transformer_is_refused_by_its_class() -> None:
    for module in (nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3))):
        assert not readable(module)
        with pytest.raises(ModelError, match=f"the model is of type '{type(module).__name__}', which attentest does"):
            ViTScores(module)


def test_a_model_of_texts_is_refused_by_its_type() -> None:
    with torch.random.fork_rng(devices=[]):
        model = hf.CLIPTextModel(hf.CLIPTextConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(ModelError, match="the model is of type 'clip_text_model'"):
        ViTScores(model)


class PassThrough(nn.Module):
    """A layer without attention."""

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
        return hidden_states


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_model_that_does_not_show_the_attention_of_a_layer_is_refused(left: int) -> None:
    model = FAMILY_MODELS["vit"]()
    for index in range(left, LAYERS):
        model.vit.layers[index] = PassThrough()
    with pytest.raises(ModelError, match=f"showed attention for {left} of its {LAYERS} layers") as caught:
        ViTScores(model)
    assert "\n" not in str(caught.value)
    # The same after it was read: attention that vanishes later is not taken for attention of before.
    scores = ViTScores(FAMILY_MODELS["vit"]())
    layers: Any = scores._encoder.module.layers
    for index in range(left, LAYERS):
        layers[index] = PassThrough()
    with pytest.raises(ModelError, match=f"showed attention for {left} of its {LAYERS} layers"):
        scores(normal(1, 3, 8, 8))


def test_a_model_that_overflows_is_refused() -> None:
    model = FAMILY_MODELS["vit"]()
    model.vit.layers[0].attention.q_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match="rows of layer 0's attention should sum to one"):
        ViTScores(model)


def test_a_model_on_the_meta_device_is_refused() -> None:
    with pytest.raises(AttentestError, match="meta") as caught:
        ViTScores(FAMILY_MODELS["vit"]().to("meta"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [1, (8, 1), (8, 8, 8), (8.5, 8), "8", 0, -8, (), 2**20, True])
def test_an_impossible_size_of_image_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match="image_size") as caught:
        ViTScores(FAMILY_MODELS["vit"](), image_size=size)
    assert "\n" not in str(caught.value)


def test_a_head_or_a_layer_that_is_not_there_is_refused() -> None:
    model = FAMILY_MODELS["vit"]()
    for aggregation in (Rollout(HEADS), LayerAttention(head_fusion=HEADS)):
        with pytest.raises(InputError, match=f"head_fusion = {HEADS}, but the model has heads 0 to"):
            ViTScores(model, attention=aggregation)
    for layer in (LAYERS, -LAYERS - 1):
        with pytest.raises(InputError, match=f"layer must be from -{LAYERS} to {LAYERS - 1} for this model"):
            ViTScores(model, attention=LayerAttention(layer))
    for fusion in ("median", -1, True, 1.0, None, ["mean"]):
        for aggregation_class in (Rollout, LayerAttention):
            with pytest.raises(InputError, match="head_fusion must be 'mean', 'max', 'min' or the number of a head"):
                aggregation_class(head_fusion=fusion)
    for wrong in (1.5, "last", None):
        with pytest.raises(InputError, match="layer"):
            LayerAttention(wrong)


# Attention that the caller has ------------------------------------------------------------------------------------


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


def test_attention_of_a_fused_model_of_the_library_is_refused(models: Callable[[str], Any]) -> None:
    model = copy.deepcopy(models("vit"))
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
    with pytest.raises(ModelError, match=rf"{discard} token\(s\) before 2 x 3 = 6 patches"):
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
