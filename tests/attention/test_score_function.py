"""What a score function may say about itself, and how that is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import NumpyScores, ScoreFunction, TorchScores, ViTScores
from attentest.attention.score_function import score_properties
from attentest.errors import InputError, ModelError
from toys import SoftmaxScores, tiny_vit


def patch_means(images: np.ndarray) -> np.ndarray:
    """The means of the 2 x 2 patches of the upper left 6 x 6 pixels, (m, 3, 3)."""
    return images[:, 0, :6, :6].reshape(-1, 3, 2, 3, 2).mean((2, 4))


class PatchMeans:
    """A user's own score function in NumPy, float64 throughout, whose patches leave out two rows and columns."""

    image_shape = (1, 8, 8)
    device = torch.device("cpu")
    batch_size = 16
    exact = True
    covered = (6, 6)

    def __call__(self, images: Tensor) -> Tensor:
        return torch.from_numpy(patch_means(images.numpy()))


def changed(**attributes: Any) -> ScoreFunction:
    """A score function with some other attributes."""
    scores = PatchMeans()
    for name, value in attributes.items():
        setattr(scores, name, value)
    return scores


def test_a_score_function_of_the_users_is_believed() -> None:
    found = score_properties(PatchMeans())
    assert (found.exact, found.covered, found.description) == (True, (6, 6), {"type": "PatchMeans"})
    assert found.rough is None
    assert not found.rough_is_faster
    assert score_properties(changed(describe=lambda: {"type": "mine", "sides": [1, 2]})).description["type"] == "mine"


def test_the_whole_test_believes_it() -> None:
    image = np.random.default_rng(0).normal(size=(8, 8))
    exact, measured = (AttentionTest(changed(exact=value), noise=1.0)(image) for value in (True, False))
    assert exact.seen[:6, :6].all()
    assert exact.seen.sum() == 36
    assert exact.settings["model"] == {"type": "PatchMeans"}
    # Rounding errors are measured by evaluating more points near the observed image.
    assert exact.evaluations < measured.evaluations
    assert exact.pvalue == pytest.approx(measured.pvalue, abs=1e-6)
    plain = NumpyScores(patch_means, (1, 8, 8), exact=True, covered=(6, 6))
    assert AttentionTest(plain, noise=1.0)(image).pvalue == exact.pvalue


def test_the_defaults_measure_rounding_and_cover_the_whole_input() -> None:
    found = score_properties(SoftmaxScores())
    assert (found.exact, found.covered, found.description) == (False, (2, 2), {"type": "SoftmaxScores"})


def test_rough_scores_are_found_and_used_first_only_where_they_are_faster() -> None:
    scores = changed(rough=lambda images: images[:, 0])
    assert score_properties(scores).rough is scores.rough  # type: ignore[attr-defined]
    assert not score_properties(scores).rough_is_faster
    assert score_properties(changed(rough=print, rough_is_faster=np.True_)).rough_is_faster is True
    assert not score_properties(changed(rough_is_faster=True)).rough_is_faster


def test_the_score_functions_of_attentest_say_it_too() -> None:
    vit = score_properties(ViTScores(tiny_vit(), image_size=9))
    assert (vit.exact, vit.covered) == (True, (8, 8))
    assert vit.rough is not None
    assert vit.rough_is_faster
    for scores in (
        NumpyScores(patch_means, (1, 8, 8), exact=True, covered=(6, 6)),
        TorchScores(lambda images: images[:, 0, ::3, ::3], (1, 8, 8), exact=True, covered=(6, 6)),
    ):
        assert (score_properties(scores).exact, score_properties(scores).covered) == (True, (6, 6))
    assert not score_properties(NumpyScores(patch_means, (1, 8, 8))).exact
    assert score_properties(NumpyScores(patch_means, (1, 8, 8))).covered == (8, 8)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"exact": "yes"}, "the score function's exact must be True or False, got 'yes'"),
        ({"exact": 1}, "exact must be True or False, got 1"),
        ({"covered": 6}, r"covered must be \(height, width\) in pixels of the input, got 6"),
        ({"covered": (6.5, 6)}, "the height of the score function's covered must be a whole number, got 6.5"),
        ({"covered": (6, 9)}, "the width of the score function's covered must be at least 1 and at most 8, got 9"),
        ({"describe": lambda: "mine"}, "describe must be a method that returns a mapping, got str"),
        ({"describe": lambda: {"weights": np.ones(2)}}, "must return values that JSON can hold"),
        ({"describe": lambda: {"scale": float("nan")}}, "must return values that JSON can hold"),
        ({"rough": 3}, "rough must be a method from images to scores, got 3"),
        ({"rough": print, "rough_is_faster": None}, "rough_is_faster must be True or False, got None"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"image_shape": [1, 8, 8]}, "image_shape must be a tuple"),
        ({"device": "cpu"}, "device must be a torch.device, got 'cpu'"),
    ],
)
def test_wrong_attributes_are_refused_in_one_sentence(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        score_properties(changed(**attributes))
    assert "\n" not in str(caught.value)


def test_wrong_parameters_of_plain_functions_are_refused() -> None:
    with pytest.raises(InputError, match="exact must be True or False, got 'float64'"):
        NumpyScores(patch_means, (1, 8, 8), exact="float64")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the height of covered must be at least 1 and at most 8, got 12"):
        TorchScores(torch.sum, (1, 8, 8), covered=(12, 6))


def test_a_plain_function_may_say_what_it_covers_and_that_it_is_exact() -> None:
    def means(images: np.ndarray) -> np.ndarray:
        return np.exp(images[:, 0, :6, :6].reshape(-1, 3, 2, 3, 2).mean(axis=(2, 4)))

    means.covered, means.exact = (6, 6), True  # type: ignore[attr-defined]
    test = AttentionTest(means, noise=1.0, image_shape=(1, 8, 8))
    assert test(np.random.default_rng(0).normal(size=(8, 8))).seen.sum() == 36
    means.covered = (9, 9)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="covered"):
        AttentionTest(means, noise=1.0, image_shape=(1, 8, 8))


def test_an_array_in_place_of_a_tensor_is_refused_in_a_sentence() -> None:
    class Arrays:
        image_shape, device, batch_size = (1, 8, 8), torch.device("cpu"), 4

        def __call__(self, images: torch.Tensor) -> Any:
            return np.zeros((len(images), 2, 2))

    with pytest.raises(ModelError, match="must return a torch tensor, but it returned ndarray"):
        AttentionTest(Arrays(), noise=1.0)(np.zeros((8, 8)))
