from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attentest import AttentionTest, InputError, ModelError
from attentest.images.preprocessing import Preprocessing
from attentest.studies.brain.augmentation import SliceAugmentation
from attentest.studies.brain.classifier_training import BrainTraining, train_brain_classifier
from attentest.studies.brain.logits import brain_logits
from attentest.studies.brain.model_input import black_level, model_input, standardisation
from attentest.training.classifier import TrainedModel

QUICK = BrainTraining(epochs=2, batch_size=8)


def slices(rng: np.random.Generator, count: int = 12) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Grey discs on black; every other one is bright on one side, which a few steps suffice to learn."""
    y, x = np.mgrid[:64, :64] - 31.5
    labels = np.arange(count) % 2 == 1
    images = 70.0 * (y**2 + x**2 < 24**2) + rng.uniform(0, 20, (count, 64, 64))
    images[labels] += 140 * (y**2 + (x - 10) ** 2 < 14**2)
    return images.astype(np.uint8), labels


@pytest.fixture(scope="module")
def sample() -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    return slices(np.random.default_rng(0))


@pytest.fixture(scope="module")
def trained(sample: tuple[NDArray[np.uint8], NDArray[np.bool_]]) -> TrainedModel:
    return train_brain_classifier(*sample, QUICK, command="what repeats it")


def test_the_same_seed_gives_the_same_weights_and_leaves_the_callers_random_state(
    trained: TrainedModel, sample: tuple[NDArray[np.uint8], NDArray[np.bool_]]
) -> None:
    images, labels = sample[0].copy(), sample[1].copy()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    calls: list[tuple[float, float]] = []
    again = train_brain_classifier(images, labels, QUICK, progress=lambda *done: calls.append(done))
    assert torch.equal(torch.rand(3), expected)
    assert calls == [(1, 2), (2, 2)]
    weights = [model.model.state_dict() for model in (trained, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert np.array_equal(images, sample[0])
    other = train_brain_classifier(images, labels, BrainTraining(epochs=1, batch_size=8, seed=1))
    assert any(not torch.equal(weights[0][name], value) for name, value in other.model.state_dict().items())


def test_the_record_says_what_was_done(
    trained: TrainedModel, sample: tuple[NDArray[np.uint8], NDArray[np.bool_]]
) -> None:
    record = trained.record
    assert json.loads(json.dumps(record)) == record
    assert record["command"] == "what repeats it"
    assert record["settings"]["epochs"] == 2
    assert record["images"] == {"without_tumour": 6, "with_tumour": 6}
    assert record["accuracy"]["training"] == ((brain_logits(trained, sample[0]) > 0) == sample[1]).mean()
    assert record["parameters"] == sum(parameter.numel() for parameter in trained.model.parameters())
    assert {"seconds", "device", "versions"} <= set(record)
    assert (trained.model.config.patch_size, trained.model.config.num_hidden_layers) == (8, 8)
    assert not trained.model.training


def test_a_bright_side_is_learnt() -> None:
    rng = np.random.default_rng(1)
    model = train_brain_classifier(*slices(rng, 24), BrainTraining(epochs=5, batch_size=4))
    images, labels = slices(rng, 40)
    # Half is chance, with a standard error of 0.08 on 40 slices.
    assert ((brain_logits(model, images) > 0) == labels).mean() > 0.85


def test_a_saved_classifier_takes_slices_as_they_are(
    trained: TrainedModel, sample: tuple[NDArray[np.uint8], NDArray[np.bool_]], tmp_path: Path
) -> None:
    directory = tmp_path / "brain"
    trained.save(directory)
    images = sample[0]
    test = AttentionTest.from_pretrained(directory, noise=5.0, confidence_level=None)
    by_itself = test(images[0])
    assert 0 < by_itself.pvalue <= 1
    pixels = images / 255
    standardised = (pixels - pixels.mean()) / pixels.std()
    plain = AttentionTest.from_pretrained(
        directory,
        noise=5.0 / 255 / pixels.std(),
        preprocessing=None,
        confidence_level=None,
    )
    by_hand = plain(standardised[0])
    assert np.array_equal(by_hand.region, by_itself.region)
    assert by_hand.statistic == pytest.approx(by_itself.statistic, rel=1e-9)  # in standard deviations of the noise
    saved = json.loads((directory / "preprocessor_config.json").read_text())
    seen = Preprocessing.from_processor(saved).plan((1, 64, 64), 1, (0, 255))(
        torch.from_numpy(images[:, None].astype(float))
    )
    # float64: some ten roundings of numbers below ten
    assert np.abs(seen[:, 0].numpy() - standardised).max() < 1e-14 * 10
    assert np.array_equal(brain_logits(directory, images), brain_logits(trained, images))
    assert brain_logits(str(directory), images[:1]).shape == (1,)
    assert TrainedModel.read(directory).record["weights_sha256"]


def test_a_broken_directory_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    image = np.zeros((1, 64, 64), np.uint8)
    with pytest.raises(ModelError, match="no complete classifier"):
        brain_logits(tmp_path / "nowhere", image)
    trained.save(tmp_path / "brain")
    (tmp_path / "brain" / "preprocessor_config.json").unlink()
    with pytest.raises(ModelError, match="no preprocessing"):
        brain_logits(tmp_path / "brain", image)
    shutil.copy(tmp_path / "brain" / "config.json", tmp_path / "brain" / "model.safetensors")
    with pytest.raises(ModelError, match="no complete classifier"):
        brain_logits(tmp_path / "brain", image)


def test_an_augmentation_mirrors_moves_and_scales_each_slice_by_itself() -> None:
    rng = np.random.default_rng(0)
    black = -0.5
    inputs = torch.from_numpy(rng.uniform(black, 2, (40, 1, 64, 64))).float()
    before = inputs.clone()
    varied = SliceAugmentation(shift=3, gain=0.2, black=black)(inputs, np.random.default_rng(1))
    assert varied.shape == inputs.shape
    assert varied.dtype == inputs.dtype
    assert torch.equal(inputs, before)
    places = set()
    for image, result in zip((inputs - black)[:, 0], (varied - black)[:, 0], strict=True):
        place, gain = placed(image, result, shift=3)
        assert 0.8 <= gain <= 1.2
        places.add(place)
    assert {mirrored for mirrored, _, _ in places} == {False, True}
    assert {place[1] for place in places} == {place[2] for place in places} == set(range(-3, 4))
    again = SliceAugmentation(shift=3, gain=0.2, black=black)(inputs, np.random.default_rng(1))
    assert torch.equal(again, varied)
    other = inputs.clone()
    other[1:] = 0
    alone = SliceAugmentation(shift=3, gain=0.2, black=black)(other, np.random.default_rng(1))
    assert torch.equal(alone[0], varied[0])  # whatever the others are


def placed(image: torch.Tensor, result: torch.Tensor, shift: int) -> tuple[tuple[bool, int, int], float]:
    """How a slice was varied, found by trying all."""
    for mirrored in (False, True):
        source = torch.nn.functional.pad(image.flip(1) if mirrored else image, (shift,) * 4)
        for down in range(-shift, shift + 1):
            for right in range(-shift, shift + 1):
                moved = source[shift - down :, shift - right :][:64, :64]
                gain = float(result.sum() / moved.sum())
                if torch.allclose(moved * gain, result, atol=1e-4):
                    return (mirrored, down, right), gain
    raise AssertionError("no mirroring, shift and gain make this of the slice")


def test_no_augmentation_but_mirroring_leaves_the_pixels() -> None:
    inputs = torch.arange(2 * 64 * 64.0).reshape(2, 1, 64, 64)
    varied = SliceAugmentation(shift=0, gain=0.0, black=0.0)(inputs, np.random.default_rng(0))
    for image, result in zip(inputs, varied, strict=True):
        assert torch.equal(result, image) or torch.equal(result, image.flip(2))


def test_standardised_pixels_have_mean_0_and_variance_1(
    sample: tuple[NDArray[np.uint8], NDArray[np.bool_]],
) -> None:
    settings = standardisation(sample[0])
    inputs = model_input(sample[0], settings)
    assert inputs.shape == (12, 1, 64, 64)
    # float32 rounding of 49152 numbers of size 1
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-6)
    assert float(inputs.std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert black_level(settings) == pytest.approx(-settings["image_mean"][0] / settings["image_std"][0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate must lie in"),
        ({"learning_rate": float("nan")}, "learning_rate must lie in"),
        ({"weight_decay": -0.1}, "weight_decay must lie in"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"shift": 40}, "shift must be at least 0 and at most 32"),
        ({"gain": 1.0}, "gain must lie in"),
        ({"gain": "much"}, "gain must be a number"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BrainTraining(**changes)  # type: ignore[arg-type]


BLANK = np.zeros((4, 64, 64), np.uint8)
BOTH = np.array([True, False, True, False])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.full((4, 64, 64), np.nan), BOTH, "array of uint8, .* got an array of float64"),
        (BLANK.tolist(), BOTH, "array of uint8, .* got list"),
        (BLANK[:, :32], BOTH, r"shape \(m, 64, 64\) .* got \(4, 32, 64\)"),
        (BLANK[:0], BOTH[:0], "at least one slice"),
        (BLANK, BOTH, "must differ from pixel to pixel, but all are 0"),
        (BLANK, BOTH.astype(float), "labels must be an array of bool .* got float64"),
        (BLANK, BOTH[:3], r"of shape \(4,\), .* got bool of shape \(3,\)"),
        (BLANK, BOTH.tolist(), "got list"),
        (BLANK, np.ones(4, bool), "all 4 slices are with tumour"),
        (BLANK, np.zeros(4, bool), "all 4 slices are without tumour"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(images: NDArray, labels: NDArray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_brain_classifier(images, labels, QUICK)
