"""Models that are wrapped, pickled, hooked, quantized, or come with files that ask for too much."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

from attentest import AttentionTest
from attentest.attention import Rollout, TorchScores, ViTScores, load_model
from attentest.errors import AttentestWarning, InputError, ModelError
from attentest.images.preprocessing import Preprocessing
from attentest.search import Adaptive, GridSearch
from families import FAMILY_MODELS, SIZES, tiny
from toys import SoftmaxScores, tiny_vit

IMAGE = np.random.default_rng(0).normal(size=(8, 8))
TOY_IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])


class Scaled(nn.Module):
    """A wrapper that changes images on their way in."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> Any:
        return self.model((images - 0.5) * 3)


def test_a_wrapper_of_the_callers_own_is_warned_about() -> None:
    with pytest.warns(AttentestWarning, match="reads the 'vit' within the Scaled given, and nothing around it"):
        ViTScores(Scaled(tiny_vit()))
    ViTScores(nn.DataParallel(tiny_vit()))  # passes images on as they are: no warning, which would be an error here


def test_several_vision_transformers_are_refused() -> None:
    with pytest.raises(ModelError, match="the ModuleList given holds 2 vision transformers"):
        ViTScores(nn.ModuleList([tiny_vit(seed=1), tiny_vit(seed=2)]))


@pytest.mark.parametrize("family", FAMILY_MODELS)
def test_a_test_can_be_pickled(family: str) -> None:
    test = AttentionTest(FAMILY_MODELS[family](), noise=1.0, search="combination")
    again = pickle.loads(pickle.dumps(test))  # noqa: S301  # our own
    images = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 8, 8)))
    assert torch.equal(again.pipeline.scores(images), test.pipeline.scores(images))


@pytest.mark.parametrize("name", ["Dinov2", "Dinov2WithRegisters", "DINOv3ViT", "Beit"])
def test_backbones_are_read(name: str) -> None:
    if not hasattr(hf, f"{name}Backbone"):
        pytest.skip("this version of transformers has no such backbone")
    model = tiny(getattr(hf, f"{name}Backbone"), getattr(hf, f"{name}Config"))
    assert ViTScores(model).grid_shape == (4, 4)


@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation", "_attn_implementation_internal"])
@pytest.mark.parametrize("family", ["vit", "clip"])
def test_a_configuration_cannot_ask_for_a_kernel(
    key: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if family == "vit":
        tiny_vit().save_pretrained(tmp_path)
    else:
        text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                "vocab_size": 10}  # fmt: skip
        hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=SIZES, projection_dim=8)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config[key] = "someone/evil-kernel"
    if "vision_config" in config:
        config["vision_config"][key] = "someone/evil-kernel"
    (tmp_path / "config.json").write_text(json.dumps(config))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a kernel was asked for")

    for module in (hf.modeling_utils, hf.integrations.hub_kernels):
        for name in ("load_and_register_attn_kernel", "load_and_register_kernel"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, never)
    assert ViTScores(load_model(tmp_path).encoder).grid_shape == (4, 4)


@pytest.mark.parametrize("content", ["[1]", "3", '"a"', "null"])
def test_a_processor_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    tiny_vit().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"preprocessor_config.json of .* must hold a JSON object.*remove it"):
        load_model(tmp_path)


def test_settings_of_a_processor_that_cannot_be_used_are_said_with_their_file(tmp_path: Path) -> None:
    tiny_vit().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"do_normalize": true, "image_mean": [], "size": 8}')
    words = rf"the image processor of {tmp_path} \(its preprocessor_config.json or .*\) cannot be used: "
    with pytest.raises(InputError, match=words):
        AttentionTest.from_pretrained(tmp_path, noise=1.0)


def test_a_file_is_not_looked_up_on_the_hub(tmp_path: Path) -> None:
    tiny_vit().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="is a file: give the directory"):
        load_model(tmp_path / "config.json")
    with pytest.raises(ModelError, match="there is no model directory"):
        load_model("a" * 5000)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    tiny_vit().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_channels": 3}))
    with pytest.raises(
        ModelError, match=r"projection.weight of shape \(16, 1, 2, 2\), but config.json asks for \(16, 3"
    ):
        load_model(tmp_path)


def test_quantized_weights_are_named() -> None:
    model = tiny_vit()
    linear = next(part for part in model.vit.modules() if isinstance(part, nn.Linear))
    linear.weight = nn.Parameter(linear.weight.detach().to(torch.int8), requires_grad=False)
    with pytest.raises(ModelError, match=r"weights are torch.int8: it is quantized"):
        ViTScores(model)


def test_a_head_may_be_a_numpy_number() -> None:
    assert Rollout(np.int64(1)) == Rollout(1)  # type: ignore[arg-type]


class Overwriting(SoftmaxScores):
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        scores = super().__call__(images)
        images.zero_()
        return scores


def test_a_score_function_may_write_into_its_images() -> None:
    ours, theirs = (AttentionTest(s, noise=1.0)(TOY_IMAGE).pvalue for s in (Overwriting(), SoftmaxScores()))
    assert ours == pytest.approx(theirs, abs=1e-9)


def altered(**attributes: object) -> SoftmaxScores:
    scores = SoftmaxScores()
    for name, value in attributes.items():
        setattr(scores, name, value)
    return scores


IN_FLOAT32 = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            altered(image_shape=[1, 2, 2]),
            {},
            r"image_shape must be a tuple \(channels, height, width\), .* got \[1, 2, 2\]",
        ),
        (altered(image_shape=(2,)), {}, "image_shape must be a tuple"),
        (altered(device="cpu"), {}, "device must be a torch.device, got 'cpu'"),
        (lambda x: x[:, 0, :0], {"image_shape": (1, 2, 2)}, r"shape \(1, gh, gw\)"),
        (lambda x: None, {"image_shape": (1, 2, 2)}, "but it returned None"),
        (lambda x: x[:, 0].to("meta"), {"image_shape": (1, 2, 2)}, "on meta"),
        (lambda x: 1e160 * np.asarray(x)[:, 0], {"image_shape": (1, 2, 2)}, "scores reach 2e[+]160"),
        (IN_FLOAT32.forward, {"image_shape": (1, 2, 2)}, "failed on the observed image"),
        (lambda x: x[:, 0] ** 2, {"image_shape": (1, 2, 2), "search": "adaptive"}, "attention.TorchScores"),
        (lambda x: x[:, 0] ** 2, {"image_shape": (1, 2, 2), "device": "cpu"}, "attention.TorchScores"),
    ],
)
def test_strange_functions_end_in_one_sentence(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message):
        AttentionTest(model, noise=1.0, **options)(TOY_IMAGE)


def test_a_function_of_both_kinds_can_be_said_to_be_torch() -> None:
    scores = TorchScores(lambda x: torch.softmax(x.flatten(1), 1).unflatten(1, (2, 2)), (1, 2, 2))
    search = GridSearch(step=Adaptive(eps_min=0.1))
    result = AttentionTest(scores, noise=1.0, search=search)(TOY_IMAGE)
    assert result.pvalue == pytest.approx(AttentionTest(SoftmaxScores(), noise=1.0)(TOY_IMAGE).pvalue, abs=1e-6)


def test_another_default_device_of_torch_changes_nothing() -> None:
    test = AttentionTest(tiny_vit_made, noise=1.0, preprocessing=Preprocessing(resize=(8, 8)), confidence_level=None)
    expected = test(IMAGE).pvalue
    with torch.device("meta"):
        preprocessing = Preprocessing(resize=10, crop=(8, 8))
        fresh = AttentionTest(tiny_vit_made, noise=1.0, preprocessing=preprocessing, confidence_level=None)
        assert test(IMAGE).pvalue == expected
        assert 0 < fresh(np.repeat(np.repeat(IMAGE, 2, 0), 2, 1)).pvalue <= 1


tiny_vit_made = tiny_vit()
