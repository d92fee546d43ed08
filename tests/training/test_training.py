from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file
from transformers import ViTForImageClassification

from attentest import AttentionTest
from attentest.cli import app
from attentest.errors import InputError
from attentest.simulation.images import null_images, signal_images
from attentest.training.bundled import (
    ARCHITECTURES,
    BUNDLED_SERIES,
    FOLDER,
    TrainingSettings,
    bundled_model,
    check_target,
)
from attentest.training.classifier import GraphedGradients, TrainedModel, classifier_config, set_gradients
from attentest.training.signal_classifier import train


def small(**changes: object) -> TrainingSettings:
    settings = {
        "image_size": 8,
        "architecture": "small",
        "epochs": 2,
        "images_per_class": 20,
        "learning_rate": 1e-3,
    }
    return TrainingSettings(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def epochs() -> list[tuple[float, float]]:
    """The calls of progress while the model below was trained."""
    return []


@pytest.fixture(scope="module")
def trained(epochs: list[tuple[float, float]]) -> TrainedModel:
    return train(small(), progress=lambda done, total: epochs.append((done, total)))


@pytest.mark.parametrize(
    ("architecture", "parameters"), [("small", 53.2e3), ("base", 405e3), ("large", 2.39e6), ("huge", 12.7e6)]
)
def test_architectures_have_the_papers_sizes(architecture: str, parameters: float) -> None:
    with torch.device("meta"):
        model = ViTForImageClassification(classifier_config(architecture, 16, 0.1))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == pytest.approx(parameters, rel=0.005)
    assert model.config.intermediate_size == 4 * ARCHITECTURES[architecture].hidden


@pytest.mark.parametrize(("size", "patch"), [(8, 2), (16, 2), (32, 4), (64, 8)])
def test_patch_size_is_the_papers(size: int, patch: int) -> None:
    assert classifier_config("base", size, 0.1).patch_size == patch


def test_training_learns_and_is_repeatable(trained: TrainedModel) -> None:
    again = train(small())
    for first, second in zip(trained.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(first, second)
    assert trained.record == again.record
    other = train(small(seed=1))
    assert any(not torch.equal(a, b) for a, b in zip(trained.model.parameters(), other.model.parameters(), strict=True))
    longer = train(small(epochs=5, images_per_class=300, batch_size=64))
    # Half is chance, with a standard error of 0.02 on 600 images; other seeds reach 0.74 to 0.82.
    assert longer.record["accuracy"]["held_out"] > 0.62


@pytest.mark.parametrize(("axes", "size", "patch"), [(1, 64, 2), (3, 8, 2)])
def test_signals_and_volumes_have_models_of_their_own(axes: int, size: int, patch: int, tmp_path: Path) -> None:
    settings = small(axes=axes, image_size=size)
    model = train(settings)
    assert f"--axes {axes}" in model.record["command"]
    model.save(tmp_path / "model")
    test = AttentionTest.from_pretrained(tmp_path / "model", noise=1.0, confidence_level=None, randomise=0.5)
    assert test.image_shape == (1, *[size] * axes)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["patch_size"] == [patch] * axes
    image = null_images(np.random.default_rng(0), 1, size, axes=axes)[0]
    assert 0 < test(image).pvalue <= 1
    # The scores are those of the classifier's own layers.
    scores = test.pipeline.scores
    inputs = torch.from_numpy(image)[None, None]
    assert torch.allclose(scores(inputs), scores.through_modules(inputs), rtol=1e-12)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="at most 3"):
        small(axes=4)


@pytest.mark.parametrize(
    ("directory", "axes"),
    [(bundled_model(axes=1), 1), (bundled_model(axes=3), 3), (FOLDER / BUNDLED_SERIES, 1)],
    ids=["signals", "volumes", "series"],
)
def test_bundled_models_of_signals_and_volumes_are_those_of_their_records(directory: Path, axes: int) -> None:
    record = json.loads((directory / "training.json").read_text())
    settings = TrainingSettings(**record["settings"])
    assert (settings.axes, record["command"]) == (axes, settings.command())
    assert record["accuracy"]["held_out"] > 0.9
    assert hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest() == record["weights_sha256"]
    assert AttentionTest.from_pretrained(directory, noise=1.0).image_shape == (1, *[settings.image_size] * axes)


def test_training_leaves_the_callers_random_state(trained: TrainedModel) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(small(epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_a_saved_model_loads_into_a_test_with_its_record(trained: TrainedModel, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "model"
    trained.save(directory)
    record = json.loads((directory / "training.json").read_text())
    assert record["settings"]["seed"] == 0
    assert record["command"].startswith("attentest train DIRECTORY --image-size 8 --architecture small")
    assert 0 <= record["accuracy"]["held_out"] <= 1
    weights = load_file(directory / "model.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) == record["parameters"]
    result = AttentionTest.from_pretrained(directory, noise=1.0, confidence_level=None)(
        null_images(np.random.default_rng(0), 1, 8)[0]
    )
    assert 0 < result.pvalue <= 1
    with pytest.raises(InputError, match="already exists"):
        trained.save(directory)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name.startswith(".")) == []


@pytest.mark.usefixtures("trained")
def test_progress_counts_epochs(epochs: list[tuple[float, float]]) -> None:
    assert epochs == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "giant"}, "small, base, large, huge, got 'giant'"),
        ({"image_size": 9}, "multiple of the patch size, .* which is 2, got 9"),
        ({"image_size": 2}, "at least 4"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 10**20}, "seed must be at least 0 and at most 9223372036854775807"),
        ({"image_size": 10**6}, "image_size must be at least 4 and at most 1024, got 1000000"),
        ({"epochs": 10**9}, "epochs must be at least 1 and at most 1000000, got 1000000000"),
        ({"batch_size": 10**4000}, "batch_size must be .* at most 1000000, got a number of 4001 digits"),
        ({"images_per_class": 10**9}, "images_per_class must be at least 1 and at most 1000000"),
        ({"images_per_class": 10**6, "image_size": 64}, "makes 8192000000 pixels in all, but at most 268435456"),
        ({"dropout": 1.0}, "dropout"),
        ({"series": True}, "series are signals whose length is a multiple of 128, .* got image_size 8 with axes 2"),
        ({"series": True, "axes": 1, "image_size": 192}, "multiple of 128, .* got image_size 192 with axes 1"),
        ({"learning_rate": 0.0}, "learning_rate must lie in"),
        ({"learning_rate": 1e30}, "learning_rate must lie in"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_a_target_that_cannot_be_made_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be made: .*file cannot be written to \(Not a directory\)"):
        check_target(tmp_path / "file" / "model")
    (tmp_path / "empty").mkdir()
    original = tempfile.TemporaryFile

    def full(dir: Path) -> Any:
        if dir == tmp_path / "empty":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return original(dir=dir)

    monkeypatch.setattr("attentest.training.bundled.TemporaryFile", full)
    with pytest.raises(
        InputError, match=r"empty cannot be made: .*empty cannot be written to \(Read-only file system\)"
    ):
        check_target(tmp_path / "empty")


def test_an_empty_directory_is_a_good_target(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained.save(Path("."))
    assert (tmp_path / "model.safetensors").is_file()


def test_signal_images_are_noise_plus_a_square() -> None:
    images, squares = signal_images(np.random.default_rng(0), 500, 16, 50.0)
    assert (squares.sum(axis=(1, 2)) == 25).all()
    means = images[squares].mean(), images[~squares].mean()
    # standard errors 1 / sqrt(12500) = 0.009 and 1 / sqrt(115500) = 0.003
    assert means[0] == pytest.approx(50, abs=0.04)
    assert means[1] == pytest.approx(0, abs=0.013)
    rows = squares.any(axis=2)
    assert {int(row.argmax()) for row in rows} == set(range(12))
    strengths = signal_images(np.random.default_rng(0), 500, 16, (1.0, 4.0))[0].max(axis=(1, 2))
    assert strengths.std() > 0.5
    with pytest.raises(InputError, match="size >= 3"):
        signal_images(np.random.default_rng(0), 1, 2, 1.0)
    with pytest.raises(InputError, match="at least 1"):
        null_images(np.random.default_rng(0), 0, 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_computes_the_gradients_of_each_batch() -> None:
    model = ViTForImageClassification(classifier_config("small", 8, 0.0)).cuda().train()
    graphed, eager = GraphedGradients(model), partial(set_gradients, model)
    for size in (8, 5, 8, 5):  # what one graph computes is not what another one left
        inputs, labels = torch.randn(size, 1, 8, 8, device="cuda"), torch.ones(size, device="cuda")
        found = []
        for gradients in (graphed, eager):
            gradients(inputs, labels)
            found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        assert len(found[0]) == len(list(model.parameters()))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FOLDER.glob("*/training.json")))
def test_the_command_in_the_record_of_a_bundled_model_is_one(name: str) -> None:
    command = json.loads((FOLDER / name / "training.json").read_text(encoding="utf-8"))["command"]
    _, _, *arguments = shlex.split(command)
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    taken = train.make_context("train", arguments).params
    assert taken["series"] == name.startswith("series-")
