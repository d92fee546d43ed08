from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import ViTForImageClassification

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.search import SpectralSearch
from attentest.studies.brain.classifier import BrainTraining, model_input, standardisation, train_brain_classifier
from attentest.studies.brain.dataset import SIDE, Slices
from attentest.training.bundled import ARCHITECTURES, Architecture
from attentest.training.classifier import TrainedModel, augmented, logits_of

QUICK = BrainTraining(epochs=2, batch_size=8)


def slices(rng: np.random.Generator, count: int = 12) -> Slices:
    """Grey discs of three patients; every other one is bright on one side, which a few steps suffice to learn."""
    y, x = np.mgrid[:SIDE, :SIDE] - 31.5
    labels = np.arange(count) % 2 == 1
    images = 70.0 * (y**2 + x**2 < 24**2) + rng.uniform(0, 20, (count, SIDE, SIDE))
    images[labels] += 140 * (y**2 + (x - 10) ** 2 < 14**2)
    return Slices(
        flair=images.astype(np.uint8),
        mask=np.zeros(images.shape, dtype=bool),
        tumour=labels,
        patient=np.array(["P", "Q", "R"] * count)[:count],
        number=np.arange(count),
    )


@pytest.fixture(scope="module")
def sample() -> Slices:
    return slices(np.random.default_rng(0))


@contextmanager
def small_classifier() -> Iterator[None]:
    """Train a small model in place of the study's, where it need not learn anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ARCHITECTURES, "small", Architecture(layers=2, hidden=16, heads=2))  # type: ignore[arg-type]
        patch.setattr("attentest.studies.brain.classifier.ARCHITECTURE", "small")
        yield


@pytest.fixture(scope="module")
@small_classifier()
def trained(sample: Slices) -> TrainedModel:
    return train_brain_classifier(sample, sample, QUICK, command="attentest brain")


def logits(model: TrainedModel, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    assert model.preprocessing is not None
    return logits_of(model.model, model_input(images, model.preprocessing)).numpy()


@small_classifier()
def test_the_same_seed_gives_the_same_weights_and_leaves_the_callers_random_state(
    trained: TrainedModel, sample: Slices
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    calls: list[tuple[float, float]] = []
    again = train_brain_classifier(sample, sample, QUICK, progress=lambda *done: calls.append(done))
    assert torch.equal(torch.rand(3), expected)
    assert calls == [(1, 2), (2, 2)]
    weights = [model.model.state_dict() for model in (trained, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    other = train_brain_classifier(sample, sample, BrainTraining(epochs=1, batch_size=8, seed=1))
    assert any(not torch.equal(weights[0][name], value) for name, value in other.model.state_dict().items())


def test_the_record_says_what_was_done(trained: TrainedModel, sample: Slices) -> None:
    record = trained.record
    assert json.loads(json.dumps(record)) == record
    assert record["command"] == "attentest brain"
    assert record["settings"]["epochs"] == 2
    assert record["images"] == {"without_tumour": 6, "with_tumour": 6}
    accuracy = ((logits(trained, sample.flair) > 0) == sample.tumour).mean()
    assert record["accuracy"]["training"] == record["performance"]["accuracy"] == accuracy
    assert list(record["performance"]["by_patient"]) == ["P", "Q", "R"]
    assert record["parameters"] == sum(parameter.numel() for parameter in trained.model.parameters())
    assert {"seconds", "device", "versions"} <= set(record)
    assert not trained.model.training


def test_a_bright_side_is_learnt() -> None:
    rng = np.random.default_rng(1)
    model = train_brain_classifier(slices(rng, 24), slices(rng, 40), BrainTraining(epochs=5, batch_size=4))
    # Half is chance, with a standard error of 0.08 on 40 slices.
    assert model.record["performance"]["accuracy"] > 0.85
    assert (model.model.config.patch_size, model.model.config.num_hidden_layers) == (8, 8)


def test_a_saved_classifier_takes_slices_as_they_are(trained: TrainedModel, sample: Slices, tmp_path: Path) -> None:
    directory = tmp_path / "brain"
    trained.save(directory)
    images = sample.flair
    options = {"confidence_level": None, "search": SpectralSearch(tol=0.1)}
    by_itself = AttentionTest.from_pretrained(directory, noise=5.0, **options)(images[0])
    assert 0 < by_itself.pvalue <= 1
    pixels = images / 255
    standardised = (pixels - pixels.mean()) / pixels.std()
    noise = 5.0 / 255 / pixels.std()
    by_hand = AttentionTest.from_pretrained(directory, noise=noise, preprocessing=None, **options)(standardised[0])
    assert np.array_equal(by_hand.region, by_itself.region)
    assert by_hand.statistic == pytest.approx(by_itself.statistic, rel=1e-9)  # in standard deviations of the noise
    saved = json.loads((directory / "preprocessor_config.json").read_text())
    seen = Preprocessing.from_processor(saved).plan((1, SIDE, SIDE), 1, (0, 255))(
        torch.from_numpy(images[:, None].astype(float))
    )
    # float64: some ten roundings of numbers below ten
    assert np.abs(seen[:, 0].numpy() - standardised).max() < 1e-14 * 10
    again = ViTForImageClassification.from_pretrained(directory).eval()
    assert np.array_equal(logits(replace(trained, model=again), images), logits(trained, images))
    assert json.loads((directory / "training.json").read_text())["weights_sha256"]


def test_an_augmentation_mirrors_moves_and_scales_each_slice_by_itself() -> None:
    rng = np.random.default_rng(0)
    black = -0.5
    options = {"shift": 3, "gain": 0.2, "black": black}
    inputs = torch.from_numpy(rng.uniform(black, 2, (40, 1, SIDE, SIDE))).float()
    before = inputs.clone()
    varied = augmented(inputs, np.random.default_rng(1), **options)
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
    assert torch.equal(augmented(inputs, np.random.default_rng(1), **options), varied)
    other = inputs.clone()
    other[1:] = 0
    alone = augmented(other, np.random.default_rng(1), **options)
    assert torch.equal(alone[0], varied[0])  # whatever the others are


def placed(image: torch.Tensor, result: torch.Tensor, shift: int) -> tuple[tuple[bool, int, int], float]:
    """How a slice was varied, found by trying all ways."""
    for mirrored in (False, True):
        source = torch.nn.functional.pad(image.flip(1) if mirrored else image, (shift,) * 4)
        for down in range(-shift, shift + 1):
            for right in range(-shift, shift + 1):
                moved = source[shift - down :, shift - right :][:SIDE, :SIDE]
                gain = float(result.sum() / moved.sum())
                if torch.allclose(moved * gain, result, atol=1e-4):
                    return (mirrored, down, right), gain
    raise AssertionError("no combination of mirroring, shift and gain gives this slice")


def test_without_shift_and_gain_slices_are_only_mirrored() -> None:
    inputs = torch.arange(2 * 64 * 64.0).reshape(2, 1, SIDE, SIDE)
    varied = augmented(inputs, np.random.default_rng(0), shift=0, gain=0.0, black=0.0)
    for image, result in zip(inputs, varied, strict=True):
        assert torch.equal(result, image) or torch.equal(result, image.flip(2))


def test_standardised_pixels_have_mean_0_and_variance_1(sample: Slices) -> None:
    settings = standardisation(sample.flair)
    inputs = model_input(sample.flair, settings)
    assert inputs.shape == (12, 1, SIDE, SIDE)
    # float32 rounding of 49152 numbers of size 1
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-6)
    assert float(inputs.std(correction=0)) == pytest.approx(1, abs=1e-6)


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


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([], "0 of 0 slices have one"),
        ([1, 3], "2 of 2 slices have one"),
        ([0, 2], "0 of 2 slices have one"),
    ],
)
def test_both_classes_are_needed(chosen: list[int], message: str, sample: Slices) -> None:
    with pytest.raises(InputError, match=f"training needs slices with and without tumour, but {message}"):
        train_brain_classifier(sample.take(chosen), sample, QUICK)


def test_slices_of_one_grey_level_are_refused(sample: Slices) -> None:
    with pytest.raises(InputError, match="must differ from pixel to pixel, but all are 0"):
        standardisation(sample.flair * 0)
