from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import ViTForImageClassification

from attentest import AttentionTest, bundled_model
from attentest.attention import load_model
from attentest.errors import InputError, ModelError
from attentest.simulation.images import null_images, signal_images
from attentest.training.bundled import BUNDLED, TrainingSettings


@pytest.fixture
def directory(tiny_model: ViTForImageClassification, tmp_path: Path) -> Path:
    tiny_model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(directory: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(directory)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_good_directory_loads_quietly(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert load_model(directory).processor is None
    assert capfd.readouterr() == ("", "")


def test_a_missing_directory(tmp_path: Path) -> None:
    assert "there is no model directory" in refusal(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="not among the files downloaded before"):
        AttentionTest.from_pretrained("attentest/there-is-no-such-model", noise=1.0, local_files_only=True)


def test_a_directory_without_configuration(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["{", "\xff", ""])
def test_a_corrupt_configuration(directory: Path, text: str) -> None:
    (directory / "config.json").write_bytes(text.encode("latin-1"))
    assert "config.json" in refusal(directory)
    assert "cannot be read" in refusal(directory)


def test_another_kind_of_model(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "swin2sr"}))
    assert "'swin2sr', which attends within windows" in refusal(directory)


@pytest.mark.parametrize(
    ("content", "kind"),
    [("null", "null"), ("[]", "a list"), ("true", "true or false"), ("1", "a number"), ("1.5", "a number"),
     ('"vit"', "a text")],
)  # fmt: skip
def test_a_configuration_that_is_no_object(directory: Path, content: str, kind: str) -> None:
    (directory / "config.json").write_text(content)
    assert refusal(directory) == (
        f"the config.json of {directory} must hold a JSON object, with names and their values in braces, but holds "
        f"{kind}: save the model again."
    )


@pytest.mark.parametrize("name", ["nonsense", None, 5, ["gelu"]])
def test_an_activation_that_transformers_does_not_know(directory: Path, name: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "hidden_act": name}))
    message = refusal(directory)
    assert message.startswith(f"the config.json of {directory} cannot be used: 'hidden_act' must be one of gelu, ")
    assert message.endswith(f", got {name!r}: use the config.json that was saved with the weights.")


@pytest.mark.parametrize("setting", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("name", ["nonsense", "", "Tensor", 5, ["float32"], {"vit": "nonsense"}])
def test_a_dtype_that_torch_does_not_have(directory: Path, setting: str, name: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, setting: name}))
    received = name["vit"] if isinstance(name, dict) else name
    assert refusal(directory) == (
        f"the config.json of {directory} cannot be used: {setting!r} must be the name of a dtype of torch, such as "
        f"float32, float16 or bfloat16, got {received!r}: correct it, or remove it, since weights are used as they are "
        "stored."
    )


def test_an_impossible_configuration(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "hidden_size": 17}))
    assert str(directory) in refusal(directory)


def test_missing_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    assert "cannot be loaded" in refusal(directory)


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_truncated_weights(directory: Path, keep: int) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "cannot be loaded" in refusal(directory)


def test_pickled_weights_are_not_read(directory: Path, tiny_model: ViTForImageClassification) -> None:
    (directory / "model.safetensors").unlink()
    torch.save(tiny_model.state_dict(), directory / "pytorch_model.bin")
    assert "model.safetensors" in refusal(directory)


def test_a_lost_tensor_is_not_replaced_by_random_numbers(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key in tensors if "layernorm_after.weight" in key)
    del tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})
    assert "lack 1 tensor" in refusal(directory)


def test_weights_of_more_layers_than_configured_are_refused(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    assert re.search(r"have \d+ tensors that config.json does not ask for", refusal(directory))


@pytest.mark.parametrize(
    "change", [{"patch_size": 0}, {"num_attention_heads": 0}, {"image_size": "8"}, {"layer_norm_eps": "x"}]
)
def test_a_nonsensical_configuration_is_refused(directory: Path, change: dict[str, object]) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **change}))
    assert str(directory) in refusal(directory)


@pytest.mark.parametrize("path", [None, 5, b"model"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ModelError, match="must be given as a path or a hub id"):
        load_model(path)  # type: ignore[arg-type]


SHAPE_REFUSAL = (
    "the weights in {directory} have vit.{name} of shape (16, 1), but config.json asks for (16,){more}; weights and "
    "configuration do not belong together: give those that save_pretrained wrote at one time."
)


@pytest.mark.parametrize(("others", "more"), [(0, ""), (1, ", and 1 more tensor does not fit"),
                                              (9, ", and 9 more tensors do not fit")])  # fmt: skip
def test_the_first_tensor_of_another_shape_is_named(directory: Path, others: int, more: str) -> None:
    """The first in the file, under its name there, although the library calls it by another and in any order."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        in_order = [name for name in file.keys() if name.startswith("vit.") and name.endswith(".bias")]  # noqa: SIM118
    for name in in_order[1 : 2 + others]:  # the first is that of a key, which the library has renamed
        tensors[name] = tensors[name].unsqueeze(-1)
    save_file(tensors, path, metadata={"format": "pt"})
    name = in_order[1].removeprefix("vit.")
    assert refusal(directory) == SHAPE_REFUSAL.format(directory=directory, name=name, more=more)


@pytest.mark.parametrize(("architecture", "size"), BUNDLED)
def test_a_bundled_model_is_the_one_its_record_describes(architecture: str, size: int, tmp_path: Path) -> None:
    directory = bundled_model(size, architecture)
    record = json.loads((directory / "training.json").read_text())
    weights = (directory / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"]
    settings = TrainingSettings(**record["settings"])
    assert settings == TrainingSettings(image_size=size, architecture=architecture)  # all else as in the paper
    assert record["command"] == settings.command()
    shutil.copytree(directory, tmp_path / "copy")
    model = ViTForImageClassification.from_pretrained(tmp_path / "copy")
    rng = np.random.default_rng(99)
    null, signal = null_images(rng, 100, size), signal_images(rng, 100, size, (1.0, 4.0))[0]
    with torch.no_grad():
        logits = [model(torch.from_numpy(x).float().unsqueeze(1)).logits[:, 0] for x in (null, signal)]
    accuracy = (float((logits[0] <= 0).double().mean()) + float((logits[1] > 0).double().mean())) / 2
    # The record's accuracy is of 2000 images and this one of 200: standard errors below 0.007 and 0.021 at 90 per cent.
    assert accuracy == pytest.approx(record["accuracy"]["held_out"], abs=0.09)


def test_a_model_that_is_not_bundled_is_named() -> None:
    with pytest.raises(InputError, match=r"bundled models are base 8, small 16, .* got base 24"):
        bundled_model(24)
