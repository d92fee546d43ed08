from __future__ import annotations

import json

import numpy as np
import pytest

from attentest import AttentionTest
from attentest.errors import InputError, ModelError, SearchError
from attentest.search import SpectralSearch
from toys import SoftmaxScores, tiny_vit

TOY_IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])
SAME_NUMBER = 1e-9
"""How closely p must agree where only the order of float64 operations differs."""


def bad(**changes: object) -> AttentionTest:
    return AttentionTest(**{"model": SoftmaxScores(), "noise": 1.0, **changes})  # type: ignore[arg-type]


def numpy_softmax(images: np.ndarray) -> np.ndarray:
    exponentials = np.exp(images.reshape(len(images), -1))
    return (exponentials / exponentials.sum(axis=1, keepdims=True)).reshape(-1, 2, 2)


def test_a_plain_numpy_function_is_a_model() -> None:
    ours = AttentionTest(numpy_softmax, noise=1.0, image_shape=(1, 2, 2))(TOY_IMAGE)
    theirs = AttentionTest(SoftmaxScores(), noise=1.0)(TOY_IMAGE)
    assert ours.pvalue == pytest.approx(theirs.pvalue, abs=SAME_NUMBER)
    assert ours.status == "converged"


def test_a_numpy_function_in_float32_gets_a_wider_bar() -> None:
    def rough(images: np.ndarray) -> np.ndarray:
        return numpy_softmax(images.astype(np.float32))

    result = AttentionTest(rough, noise=1.0, image_shape=(1, 2, 2), search=SpectralSearch(tol=1e-12))(TOY_IMAGE)
    exact = AttentionTest(numpy_softmax, noise=1.0, image_shape=(1, 2, 2))(TOY_IMAGE)
    assert result.status == "precision"
    assert result.pvalue_bounds[0] <= exact.pvalue <= result.pvalue_bounds[1]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: bad(model=numpy_softmax), InputError, "with image_shape, a NumPy or torch function, got function"),
        (
            lambda: bad(model=numpy_softmax, image_shape=(2,)),
            InputError,
            "image_shape must be a tuple .channels, height",
        ),
        (
            lambda: bad(model=numpy_softmax, image_shape=(1, 0, 2)),
            InputError,
            "height of image_shape must be at least 1",
        ),
        (lambda: bad(model=numpy_softmax, image_shape=(1, 2, 2), device="cpu"), InputError, "device is for models"),
        (lambda: bad(model=tiny_vit(), image_shape=(1, 8, 8)), InputError, "image_shape is for functions"),
        (lambda: bad(image_shape=(1, 2, 2)), InputError, "belong to the score function"),
        (lambda: bad(memory_budget=100), InputError, "memory_budget must be at least"),
        (lambda: bad()(TOY_IMAGE, decide_at=1.5), InputError, "decide_at must lie strictly between 0 and 1, got 1.5"),
        (lambda: bad().map([TOY_IMAGE], decide_at="5%"), InputError, "decide_at must be a number"),
        (
            lambda: bad(model=numpy_softmax, image_shape=(1, 2, 2), search="adaptive")(TOY_IMAGE),
            ModelError,
            "a NumPy score function has no derivative",
        ),
        (
            lambda: bad(model=lambda x: x > 0, image_shape=(1, 2, 2))(TOY_IMAGE),
            ModelError,
            "must return real numbers, but it returned bool",
        ),
        (
            lambda: bad(model=lambda x: np.ones((len(x), 4)), image_shape=(1, 2, 2))(TOY_IMAGE),
            ModelError,
            r"scores of shape \(1, gh, gw\)",
        ),
    ],
)
def test_bad_functions_and_levels_end_in_one_sentence(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_function_that_fails_at_some_z_names_image_and_point() -> None:
    def breaks(images: np.ndarray) -> np.ndarray:
        if np.abs(images).max() > 4:
            raise ValueError("too bright")
        return numpy_softmax(images)

    test = AttentionTest(breaks, noise=1.0, image_shape=(1, 2, 2))
    with pytest.raises(SearchError, match=r"failed for image 1 at z = -?\d.*ValueError: too bright"):
        list(test.stream([TOY_IMAGE * 0.1, TOY_IMAGE]))


def test_a_function_may_write_into_what_it_is_given() -> None:
    def careless(images: np.ndarray) -> np.ndarray:
        images *= 0.5
        return numpy_softmax(images)

    careful = AttentionTest(lambda images: numpy_softmax(images * 0.5), noise=1.0, image_shape=(1, 2, 2))(TOY_IMAGE)
    result = AttentionTest(careless, noise=1.0, image_shape=(1, 2, 2))(TOY_IMAGE)
    assert result.statistic == careful.statistic
    assert result.pvalue == careful.pvalue


@pytest.mark.parametrize("search", ["spectral", "combination"])
def test_scores_of_another_shape_later_on_are_refused(search: str) -> None:
    test = AttentionTest(lambda images: numpy_softmax(images)[:1], noise=1.0, image_shape=(1, 2, 2), search=search)
    with pytest.raises(SearchError, match=r"returned shape \(1, 2, 2\) for \d+ images"):
        test(TOY_IMAGE)


@pytest.mark.parametrize("noise", [1e3, 1e4, 1e5])
def test_a_set_made_narrow_by_large_noise_is_resolved_or_called_sharp(noise: float) -> None:
    weights = np.random.default_rng(0).normal(size=(16, 4))

    def scores(images: np.ndarray) -> np.ndarray:
        logits = images.reshape(len(images), -1) @ weights
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return (exponentials / exponentials.sum(axis=-1, keepdims=True)).reshape(-1, 2, 2)

    image = np.random.default_rng(1).normal(size=(4, 4))
    level = 0.95 if noise == 1e5 else None
    result = AttentionTest(scores, noise=noise, image_shape=(1, 4, 4), confidence_level=level)(image)
    if noise == 1e5:  # other sets as narrow as this one could be anywhere
        assert result.status == "sharp"
        assert result.pvalue_bounds[0] <= 0.228633 <= result.pvalue_bounds[1]
    else:
        assert result.status == "converged"
        assert result.pvalue == pytest.approx(0.228633, abs=1e-4)


def test_a_pvalue_beyond_all_floats_is_still_json() -> None:
    result = AttentionTest(numpy_softmax, noise=1e-10, image_shape=(1, 2, 2))(TOY_IMAGE)
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.log_pvalue_bounds[0] <= result.log_pvalue <= result.log_pvalue_bounds[1]


def test_the_memory_budget_limits_the_calls_of_a_function() -> None:
    most = [0]

    def watched(images: np.ndarray) -> np.ndarray:
        most[0] = max(most[0], images.nbytes)
        return np.tanh(100 * images.reshape(len(images), 2, 128, 2, 128).mean((2, 4)))

    test = AttentionTest(watched, noise=1.0, image_shape=(1, 256, 256), memory_budget=2**24, confidence_level=None)
    test(np.random.default_rng(3).normal(size=(256, 256)))
    assert 0 < most[0] <= 2**23
