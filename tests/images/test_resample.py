from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from attentest.errors import InputError
from attentest.images.resize_matrix import INTERPOLATIONS, resize_matrix

SIZES = [(7, 7), (7, 14), (14, 7), (5, 13), (13, 5), (31, 8), (8, 31), (100, 3), (3, 100), (1, 4), (4, 1), (97, 64)]


def pixels(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).uniform(-1, 1, size=(height, width))


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_one_axis_is_pillows(interpolation: str, before: int, after: int) -> None:
    # Mode "F" is float32 with float64 weights.
    image = pixels(before, 6).astype(np.float32)
    method = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(image).resize((6, after), method))
    ours = resize_matrix(before, after, interpolation).numpy() @ image.astype(np.float64)
    np.testing.assert_allclose(ours, expected, atol=5e-7)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_two_axes_are_pillows(interpolation: str) -> None:
    image = pixels(37, 53).astype(np.float32)
    method = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(image).resize((71, 16), method))
    rows, columns = resize_matrix(37, 16, interpolation).numpy(), resize_matrix(53, 71, interpolation).numpy()
    np.testing.assert_allclose(rows @ image.astype(np.float64) @ columns.T, expected, atol=1e-6)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_one_axis_is_torchs(interpolation: str, antialias: bool, before: int, after: int) -> None:
    image = torch.from_numpy(pixels(before, 6))
    expected = interpolate(
        image[None, None], size=(after, 6), mode=interpolation, align_corners=False, antialias=antialias
    )
    ours = resize_matrix(before, after, interpolation, antialias) @ image
    torch.testing.assert_close(ours, expected[0, 0], rtol=0, atol=1e-12)


def test_nearest_takes_the_pixels_that_pillow_and_torch_take() -> None:
    for before in range(1, 40):
        image = np.arange(before, dtype=np.float64)
        for after in range(1, 40):
            pillow = np.asarray(Image.fromarray(image[None].astype(np.float32)).resize((after, 1), Image.Resampling(0)))
            assert np.array_equal(resize_matrix(before, after, "nearest").numpy() @ image, pillow[0])
            torchs = interpolate(torch.from_numpy(image)[None, None], size=after, mode="nearest")[0, 0]
            assert torch.equal(resize_matrix(before, after, "nearest", False) @ torch.from_numpy(image), torchs)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_rows_sum_to_one_and_a_kept_size_changes_nothing(interpolation: str) -> None:
    for before, after in SIZES:
        matrix = resize_matrix(before, after, interpolation)
        assert matrix.dtype == torch.float64
        assert matrix.shape == (after, before)
        torch.testing.assert_close(matrix.sum(1), torch.ones(after, dtype=torch.float64), rtol=0, atol=1e-14)
    assert torch.equal(resize_matrix(9, 9, interpolation), torch.eye(9, dtype=torch.float64))


@pytest.mark.parametrize("interpolation", ["box", "hamming", "lanczos"])
def test_filters_that_need_antialias_are_refused_without(interpolation: str) -> None:
    with pytest.raises(InputError, match=f"without antialias must be one of nearest, .*got '{interpolation}'"):
        resize_matrix(8, 4, interpolation, antialias=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4, "box"), "the size before resizing must be at least 1"),
        ((4, 0, "box"), "the size after resizing must be at least 1"),
        ((4, 2**14 + 1, "box"), "at most 16384, got 16385"),
        ((4, 2.5, "box"), "must be a whole number, got 2.5"),
        ((4, 2, "cubic"), "must be one of nearest, box, .*got 'cubic'"),
        ((4, 2, 3), "must be one of nearest, box, .*got 3"),
        ((4, 2, "box", "warn"), "antialias must be True or False, got 'warn'"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resize_matrix(*arguments)
