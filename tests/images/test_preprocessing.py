"""The affine map from images to the model's input, against transformers, loops and its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing, identity_map
from image_processors import IMAGENET, PROCESSORS, image_processor

EIGHT_BITS = (0.0, 255.0)


def smooth_image(height: int, width: int, channels: int) -> np.ndarray:
    """Eight bits, mid-range: interpolation cannot overshoot into clipping."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(y / height * (5 + c)) * np.cos(x / width * (7 - c)) for c in range(channels)]
    return np.round(128 + 60 * np.stack(waves, axis=-1)).astype(np.uint8)


def tensor_of(image: np.ndarray) -> Tensor:
    return torch.from_numpy(np.moveaxis(image.astype(np.float64), -1, 0))[None]


def random_images(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).uniform(0, 255, size=shape))


@pytest.mark.parametrize("size", [(83, 131), (131, 83), (301, 97)])
@pytest.mark.parametrize(("name", "settings"), PROCESSORS)
def test_input_is_that_of_transformers(name: str, settings: dict[str, Any], size: tuple[int, int]) -> None:
    processor = image_processor(name, **settings)
    image = smooth_image(*size, 3)
    expected = torch.as_tensor(processor(Image.fromarray(image), return_tensors="pt")["pixel_values"]).double()
    plan = Preprocessing.from_processor(processor).plan((3, *size), 3, EIGHT_BITS)
    ours = plan(tensor_of(image))
    assert ours.dtype == torch.float64
    assert plan.input_shape == tuple(expected.shape[1:])
    # Pillow rounds to 8 bits after each of two passes.
    tolerance = 1.5 / 255 / min(processor.image_std)
    torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["CLIP", "Siglip", "Bit"])
def test_grey_image_is_repeated_as_in_transformers(name: str) -> None:
    processor = image_processor(name)
    image = smooth_image(83, 131, 1)
    expected = processor(Image.fromarray(image[..., 0]), return_tensors="pt")["pixel_values"].double()
    ours = Preprocessing.from_processor(processor).plan((1, 83, 131), 3, EIGHT_BITS)(tensor_of(image))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1.5 / 255 / min(processor.image_std))


@pytest.mark.parametrize("crop", [(50, 70), (51, 71), (50, 20)])
def test_padding_is_that_of_transformers_up_to_the_odd_pixel(crop: tuple[int, int]) -> None:
    settings = {"do_resize": False, "crop_size": {"height": crop[0], "width": crop[1]}}
    processor = image_processor("CLIP", **settings)
    image = smooth_image(40, 60, 3)
    expected = processor(Image.fromarray(image), return_tensors="pt")["pixel_values"].double()
    ours = Preprocessing.from_processor(processor).plan((3, 40, 60), 3, EIGHT_BITS)(tensor_of(image))
    # The Pillow backend puts an odd row and column of zeros first, the torchvision backend last.
    odd = (crop[0] % 2, crop[1] % 2) if crop[1] > 60 else (0, 0)
    torch.testing.assert_close(torch.roll(ours, odd, dims=(2, 3)), expected, rtol=0, atol=1e-5)


def loop_weights(before: int, after: int) -> np.ndarray:
    """Triangle filter, widened when shrinking, pixel by pixel."""
    scale = before / after
    width = max(scale, 1.0)
    matrix = np.zeros((after, before))
    for i in range(after):
        for j in range(before):
            matrix[i, j] = max(0.0, 1 - abs((j + 0.5) - (i + 0.5) * scale) / width)
        matrix[i] /= matrix[i].sum()
    return matrix


@pytest.mark.parametrize("crop", [(16, 21), (29, 51), (16, 51)])
def test_input_is_exactly_the_formula(crop: tuple[int, int]) -> None:
    mean, std, black, white = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 100.0, 4100.0
    image = random_images(1, 3, 33, 57).numpy()[0]
    resized = np.stack([loop_weights(33, 24) @ c @ loop_weights(57, 41).T for c in (image - black) / (white - black)])
    expected = np.zeros((3, *crop))
    for y in range(crop[0]):
        for x in range(crop[1]):
            row = y + (24 - crop[0]) // 2 if crop[0] <= 24 else y - (crop[0] - 24) // 2
            column = x + (41 - crop[1]) // 2 if crop[1] <= 41 else x - (crop[1] - 41) // 2
            if 0 <= row < 24 and 0 <= column < 41:
                expected[:, y, x] = resized[:, row, column]
    expected = (expected - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    preprocessing = Preprocessing(resize=24, crop=crop, rescale=1 / 255, mean=mean, std=std)
    ours = preprocessing.plan((3, 33, 57), 3, (black, white))(torch.from_numpy(image)[None])
    np.testing.assert_allclose(ours[0].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rounding", "start"), [("down", 3), ("even", 4)])
def test_odd_crops_round_as_transformers_or_as_torchvision(rounding: str, start: int) -> None:
    image = random_images(1, 1, 17, 17)
    plan = Preprocessing(crop=(10, 10), crop_rounding=rounding).plan((1, 17, 17), 1, None)
    assert torch.equal(plan(image), image[..., start : start + 10, start : start + 10])


def test_dinov3_resizes_without_rounding_as_torchvision_does() -> None:
    # Its image processor needs torchvision: rescaled to floats first, then resized by torch.
    images = random_images(1, 3, 83, 131)
    resized = interpolate(images / 255, size=(224, 224), mode="bilinear", align_corners=False, antialias=True)
    mean, std = (torch.tensor(IMAGENET[key], dtype=torch.float64)[:, None, None] for key in ("image_mean", "image_std"))
    plan = Preprocessing.from_processor({"image_processor_type": "DINOv3ViTImageProcessor"}).plan(
        (3, 83, 131), 3, EIGHT_BITS
    )
    torch.testing.assert_close(plan(images), (resized - mean) / std, rtol=0, atol=1e-12)


CASES = [
    Preprocessing(),
    Preprocessing(resize=24, crop=(20, 20), rescale=1 / 255, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3)),
    Preprocessing(resize=(24, 20), crop=(30, 30), rescale=1 / 255, mean=(0.5,), std=(0.5,), interpolation="bicubic"),
    Preprocessing(resize=(50, 20), interpolation="bicubic", antialias=False),
    Preprocessing(mean=(1.0, 2.0, 3.0), std=(1.0, 2.0, 3.0)),
]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("preprocessing", CASES)
def test_map_is_affine(preprocessing: Preprocessing, channels: int) -> None:
    plan = preprocessing.plan((channels, 33, 57), 3, (20.0, 220.0))
    a, b = random_images(2, channels, 33, 57), random_images(2, channels, 33, 57).flip(-1)
    for t in (-1.3, 0.2, 5.0):
        torch.testing.assert_close(plan(a + t * b), plan(a) + t * plan.linear(b), rtol=1e-12, atol=1e-12)
    value, slope = torch.func.jvp(plan, (a,), (b,))
    assert value.shape == (2, *plan.input_shape)
    torch.testing.assert_close(value, plan(a), rtol=0, atol=0)
    torch.testing.assert_close(slope, plan.linear(b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("preprocessing", "scale"),
    [
        (Preprocessing(), (1, 1)),
        (Preprocessing(resize=(66, 171)), (2, 3)),
        (Preprocessing(resize=66, crop=(41, 60)), (2, 114 / 57)),
        (Preprocessing(resize=20), (20 / 33, 34 / 57)),
        (Preprocessing(resize=(40, 80), crop=(101, 60), crop_rounding="even"), (40 / 33, 80 / 57)),
        (Preprocessing(crop=(101, 40)), (1, 1)),
    ],
)
def test_placement_is_where_a_pixel_lands(preprocessing: Preprocessing, scale: tuple[float, float]) -> None:
    plan = preprocessing.plan((1, 33, 57), 1, None)
    assert (plan.placement[0][0], plan.placement[1][0]) == scale
    marked = torch.zeros(1, 1, 33, 57, dtype=torch.float64)
    marked[..., 15, 30] = 1
    landed = plan.linear(marked)[0, 0]
    for axis, pixel in enumerate((15, 30)):
        mass = landed.sum(dim=1 - axis)
        centre = float((mass * (torch.arange(len(mass)) + 0.5)).sum() / mass.sum())
        factor, offset = plan.placement[axis]
        assert centre == pytest.approx(
            (pixel + 0.5) * factor + offset, abs=0.3 if factor < 1.5 and factor != 1 else 1e-9
        )


def test_identity_map_only_repeats_grey() -> None:
    image = random_images(2, 3, 5, 7)
    plan = identity_map((3, 5, 7), 3)
    assert plan.axes == (None, None)
    assert torch.equal(plan(image), image)
    assert torch.equal(identity_map((1, 5, 7), 3)(image[:, :1]), image[:, :1].expand(2, 3, 5, 7))
    assert plan.placement == ((1.0, 0.0), (1.0, 0.0))


def test_levels_only_matter_where_the_model_rescales() -> None:
    image = random_images(1, 1, 5, 7)
    rescaled = Preprocessing(rescale=1 / 255, mean=(0.5,), std=(0.5,))
    eight = rescaled.plan((1, 5, 7), 1, EIGHT_BITS)(image)
    sixteen = rescaled.plan((1, 5, 7), 1, (0, 65535))(image * 257)
    floating = rescaled.plan((1, 5, 7), 1, (-1, 1))(image / 127.5 - 1)
    torch.testing.assert_close(sixteen, eight, rtol=0, atol=1e-12)
    torch.testing.assert_close(floating, eight, rtol=0, atol=1e-12)
    plain = Preprocessing(mean=(0.5,), std=(0.5,))
    assert torch.equal(plain.plan((1, 5, 7), 1, None)(image), plain.plan((1, 5, 7), 1, EIGHT_BITS)(image))


def test_copies_on_a_device_share_the_plan() -> None:
    plan = CASES[1].plan((3, 33, 57), 3, EIGHT_BITS).to("meta")
    assert None not in plan.axes
    blocks = [block for matrix in plan.axes if matrix is not None for _, block in matrix.blocks]
    assert all(t.is_meta for t in (*blocks, plan.gain, plan.shift))
    assert plan(torch.zeros(2, 3, 33, 57, dtype=torch.float64, device="meta")).shape == (2, 3, 20, 20)
    assert identity_map((3, 5, 7), 3).to("meta").axes == (None, None)


def test_with_size_resizes_straight() -> None:
    changed = CASES[1].with_size((48, 64))
    assert changed == Preprocessing(resize=(48, 64), rescale=1 / 255, mean=CASES[1].mean, std=CASES[1].std)
    assert changed.plan((3, 33, 57), 3, EIGHT_BITS).input_shape == (3, 48, 64)


def test_a_large_image_that_is_only_cropped_needs_no_large_matrix() -> None:
    plan = Preprocessing(crop=(8, 8)).plan((1, 2**17, 16), 1, None)
    assert plan.axes[0] is not None
    assert [tuple(block.shape) for _, block in plan.axes[0].blocks] == [(8, 8)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resize": 0}, "resize must be at least 1 and at most 16384, got 0"),
        ({"resize": 2**14 + 1}, "resize must be at least 1 and at most 16384, got 16385"),
        ({"resize": True}, "resize must be a whole number, got True"),
        ({"resize": "224"}, r"resize must be a pair \(height, width\), or one or three sides, got '224'"),
        (
            {"resize": (1, 2, 3, 4)},
            r"resize must be a pair \(height, width\), or one or three sides, got \(1, 2, 3, 4\)",
        ),
        ({"resize": (1.5, 2)}, "the height of resize must be a whole number, got 1.5"),
        ({"crop": 224}, r"crop must be a pair \(height, width\), or one or three sides, got 224"),
        ({"crop": (4, -1)}, "the width of crop must be at least 1 and at most 16384, got -1"),
        ({"interpolation": "area"}, "interpolation must be one of nearest, .*got 'area'"),
        ({"interpolation": "lanczos", "antialias": False}, "without antialias must be one of nearest"),
        ({"antialias": None}, "antialias must be True or False, got None"),
        ({"rescale": 0}, "rescale must be positive and finite, got 0.0"),
        ({"rescale": float("nan")}, "rescale must be positive and finite, got nan"),
        ({"mean": (0.5,)}, "mean and std must be given together, but std is missing"),
        ({"std": (0.5,)}, "mean and std must be given together, but mean is missing"),
        ({"mean": (np.inf,), "std": (1,)}, "mean must be finite, got inf"),
        ({"mean": ("a",), "std": (1,)}, "mean must be a number, got 'a'"),
        ({"mean": 0.5, "std": 0.5}, "mean must be a sequence of numbers, one per channel, got 0.5"),
        ({"mean": (), "std": ()}, "mean must be a sequence of numbers"),
        ({"mean": (0.5,), "std": (0,)}, "std must be positive and finite, got 0.0"),
        ({"crop_rounding": "up"}, "crop_rounding must be one of down, even, got 'up'"),
    ],
)
def test_impossible_preprocessing_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing(**fields)


RESCALED = Preprocessing(rescale=1 / 255)


@pytest.mark.parametrize(
    ("preprocessing", "arguments", "message"),
    [
        (
            RESCALED,
            ((1, 5, 7), 1, None),
            r"does not define black and white: give intensity_range=\(black, white\)",
        ),
        (RESCALED, ((1, 5, 7), 1, (1, 1)), r"with black below white, got \(1.0, 1.0\)"),
        (RESCALED, ((1, 5, 7), 1, (0, np.inf)), "intensity_range must be finite, got inf"),
        (RESCALED, ((1, 5, 7), 1, 255), r"intensity_range must be a pair \(black, white\), got 255"),
        (
            Preprocessing(),
            ((3, 5, 7), 1, None),
            "images with 1 channel, but this one has .* 3 channels: convert it to grey first",
        ),
        (Preprocessing(), ((4, 5, 7), 3, None), "images with 1 or 3 channels, but this one has .* 4 channels"),
        (Preprocessing(), ((5,), 3, None), r"must be \(channels, height, width\), got \(5,\)"),
        (Preprocessing(), ((1, 0, 7), 3, None), "each size of an image must be at least 1"),
        (Preprocessing(), ((1, 5, 7), 0, None), "the number of channels of the model must be at least 1"),
        (Preprocessing(resize=224), ((1, 2, 999), 1, None), "would be resized to 224 by 111888 pixels"),
        (Preprocessing(mean=(1, 2), std=(1,)), ((1, 5, 7), 3, None), "has 2 values of mean, but the model takes 3"),
        (Preprocessing(mean=(1,), std=(1, 2, 3)), ((1, 5, 7), 1, None), "has 3 values of std, but the model takes 1"),
    ],
)
def test_images_that_do_not_fit_are_refused(
    preprocessing: Preprocessing, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        preprocessing.plan(*arguments)
    if message.startswith("intensity_range must"):  # which the command line calls --range
        assert refused.value.parameters == ("intensity_range",)


def test_other_shapes_than_planned_are_refused() -> None:
    with pytest.raises(InputError, match=r"this map is for images of shape \(1, 5, 7\), got \(2, 1, 7, 5\)"):
        identity_map((1, 5, 7), 1)(torch.zeros(2, 1, 7, 5, dtype=torch.float64))
