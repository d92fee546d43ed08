from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ViTForImageClassification

from attentest import AttentionTest, InputError, ModelError, bundled_model
from attentest.attention import load_model
from attentest.simulation.synthetic_images import null_images, signal_images
from attentest.training.bundled import BUNDLED
from attentest.training.training_settings import TrainingSettings


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
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "swin"}))
    assert "'swin', which attends within windows" in refusal(directory)
    (directory / "config.json").write_text("[]")
    assert "None" in refusal(directory)


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
    assert "tensor(s) that config.json does not ask for" in refusal(directory)


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


def test_a_tensor_of_another_shape_is_refused(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key in tensors if key.endswith("cls_token"))
    tensors[name] = torch.zeros(1, 1, 17)
    save_file(tensors, path, metadata={"format": "pt"})
    refusal(directory)


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
