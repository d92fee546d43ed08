"""From an image of the user's own size, colour and depth to a p-value, for every kind of model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import CAM, GradCAM, InputGradient, LayerAttention, Rollout, ViTScores
from attentest.errors import InputError, ModelError
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, Dense, Diagonal, Isotropic, PerChannel
from attentest.search import Adaptive, GridSearch, SpectralSearch
from families import FAMILY_MODELS
from toys import tiny_vit

SAME_NUMBER = 1e-8
"""How closely p must agree where only the order of float64 operations differs."""

PROCESSOR = Preprocessing(
    resize=10, crop=(8, 8), interpolation="bicubic", rescale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25)
)


def picture(channels: int, seed: int = 0, size: tuple[int, int] = (20, 27)) -> NDArray[np.uint8]:
    """An 8-bit image with some structure and noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    scene = 120 + 60 * np.exp(-((rows - 7) ** 2 + (columns - 15) ** 2) / 20)
    values = scene[:, :, None] + rng.normal(scale=12, size=(*size, channels))
    return values.clip(0, 255).astype(np.uint8).squeeze()


def as_function(model: Any, preprocessing: Preprocessing, shape: tuple[int, int, int], **options: Any) -> Any:
    """A plain torch function from the user's pixels to scores on a grid that spans the image, whatever the crop.

    The scores are written on a grid of one cell a pixel: what attention_map would interpolate is interpolated here,
    independently of it.
    """
    scores = ViTScores(model, **options)
    inputs = preprocessing.plan(shape, 3, (0.0, 255.0))
    (scale_y, offset_y), (scale_x, offset_x) = inputs.placement
    height, width = shape[1:]
    gh, gw = scores.grid_shape
    y = ((np.arange(height) + 0.5) * scale_y + offset_y) / scores.covered[0] * gh - 0.5
    x = ((np.arange(width) + 0.5) * scale_x + offset_x) / scores.covered[1] * gw - 0.5
    assert y.min() >= -0.5  # these tests use no crop, so every pixel is seen
    assert x.max() <= gw - 0.5

    def weights(places: NDArray[np.float64], count: int) -> Tensor:
        places = places.clip(0, count - 1)
        return torch.from_numpy(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(count))))

    rows, columns = weights(y, gh), weights(x, gw)
    return lambda images: rows @ scores(inputs(images)) @ columns.T


@pytest.mark.parametrize("family", FAMILY_MODELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_family_gives_the_p_value_of_the_generic_path(family: str, channels: int) -> None:
    model = FAMILY_MODELS[family]()
    image = picture(channels, seed=3, size=(12, 18))
    preprocessing = PROCESSOR.with_size((8, 12))
    options = {"noise": 12.0, "search": SpectralSearch(tol=1e-9), "confidence_level": None}
    ours = AttentionTest(model, preprocessing=PROCESSOR, image_size=(8, 12), **options)(image)
    shape = (channels, 12, 18)
    generic = AttentionTest(as_function(model, preprocessing, shape, image_size=(8, 12)), image_shape=shape, **options)(
        image.astype(np.float64)
    )
    assert ours.statistic == pytest.approx(generic.statistic, abs=1e-9)
    assert np.array_equal(ours.region, generic.region)
    assert ours.pvalue == pytest.approx(generic.pvalue, abs=SAME_NUMBER)
    assert ours.status == "converged"


@pytest.mark.parametrize("search", ["spectral", "combination"])
def test_every_search_agrees_on_a_cropped_image(search: str) -> None:
    exact = AttentionTest(
        tiny_vit(channels=3),
        noise=12.0,
        preprocessing=PROCESSOR,
        search=SpectralSearch(tol=1e-9),
        confidence_level=None,
    )
    image = picture(3)
    assert exact.replace(search=search)(image).pvalue == pytest.approx(
        exact(image).pvalue, abs=2e-3 if search == "combination" else 1e-6
    )


def test_what_is_outside_the_crop_takes_no_part() -> None:
    test = AttentionTest(tiny_vit(channels=3), noise=12.0, preprocessing=PROCESSOR, confidence_level=None)
    image = picture(3)
    result = test(image)
    # Resized to 10 x 13, then 8 x 8 from the centre: pixels 2 to 17 of the rows, and 5 to 20 of the columns.
    assert result.seen.shape == image.shape[:2]
    assert result.seen.sum() < image.shape[0] * image.shape[1]
    rows = np.nonzero(result.seen)[0]
    assert (rows.min(), rows.max()) == (2, 17)
    assert not (result.region & ~result.seen).any()
    assert (result.attention[~result.seen] == 0).all()
    assert result.attention[result.seen].min() == 0
    assert result.attention.max() == 1
    inside, outside = image[result.region].mean(), image[result.seen & ~result.region].mean()
    scale = 12.0 * np.sqrt((1 / result.region.sum() + 1 / (result.seen & ~result.region).sum()) / 3)
    assert result.statistic == pytest.approx((inside - outside) / scale)
    altered = image.copy()
    altered[0, 0] = 255  # a corner that neither crop nor interpolation reaches
    assert test(altered).pvalue == result.pvalue
    assert result.to_dict()["seen_pixels"] == result.seen.sum()


def test_a_border_that_the_patches_leave_is_not_seen() -> None:
    model = FAMILY_MODELS["vit"]()
    test = AttentionTest(model, noise=12.0, image_size=(9, 11), confidence_level=None)
    result = test(picture(3, size=(9, 11)).astype(float))
    assert result.seen[:8, :10].all()
    assert not result.seen[8:].any()
    assert not result.seen[:, 10:].any()


def test_a_grey_image_for_a_colour_model_stays_one_channel() -> None:
    model = tiny_vit(channels=3)
    grey = picture(1)
    options = {"preprocessing": PROCESSOR, "confidence_level": None}
    test = AttentionTest(model, noise=12.0, **options)
    result = test(grey)
    background = result.seen & ~result.region
    scale = 12.0 * np.sqrt(1 / result.region.sum() + 1 / background.sum())
    assert result.statistic == pytest.approx((grey[result.region].mean() - grey[background].mean()) / scale)
    colour = test(np.repeat(grey[:, :, None], 3, axis=2))  # three independent channels that happen to be equal
    assert np.array_equal(colour.region, result.region)
    assert colour.statistic == pytest.approx(np.sqrt(3) * result.statistic)
    perfectly_correlated = AttentionTest(model, noise=PerChannel(np.ones((3, 3)), 12.0), **options)(
        np.repeat(grey[:, :, None], 3, axis=2)
    )
    assert perfectly_correlated.statistic == pytest.approx(result.statistic)
    assert perfectly_correlated.pvalue == pytest.approx(result.pvalue, abs=2e-6)


@pytest.mark.parametrize(
    ("channels", "weights"),
    [("mean", [1 / 3, 1 / 3, 1 / 3]), (1, [0.0, 1.0, 0.0]), ((0.3, 0.59, 0.11), [0.3, 0.59, 0.11]),
     (np.array([1.0, -1.0, 0.0]), [1.0, -1.0, 0.0])],
)  # fmt: skip
def test_the_contrast_weighs_channels(channels: Any, weights: list[float]) -> None:
    model = tiny_vit(channels=3)
    image = picture(3, size=(8, 8)).astype(float)
    noise = PerChannel([10.0, 12.0, 14.0])
    result = AttentionTest(model, noise=noise, channels=channels, confidence_level=None)(image / 100)
    difference = (image[result.region].mean(axis=0) - image[~result.region].mean(axis=0)) / 100
    spread = np.array([10.0, 12.0, 14.0]) * np.sqrt(1 / result.region.sum() + 1 / (~result.region).sum())
    expected = difference @ np.array(weights) / np.sqrt(((spread * weights) ** 2).sum())
    assert result.statistic == pytest.approx(expected)
    assert 0 < result.pvalue <= 1


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (3, "channels = 3 is no channel of the image, which has 0 to 2"),
        (-1, "must be at least 0"),
        ((1.0, 2.0), "gives 2 weights, but the image has 3"),
        ((0.0, 0.0, 0.0), "finite and not all zero"),
        ((1.0, np.nan, 0.0), "finite and not all zero"),
        ((1e200, 0.0, 0.0), "neither huge nor tiny"),
        ((-1.0, 0.0, -0.5), "must have a positive one, got .*sign of the difference"),
        ("red", "channels must be 'mean'"),
        (True, "channels must be 'mean'"),
        (1.5, "channels must be 'mean'"),
    ],
)
def test_impossible_channels_are_refused(channels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        AttentionTest(tiny_vit(channels=3), noise=1.0, channels=channels)(np.ones((8, 8, 3)))


def test_noise_per_channel_is_the_kronecker_product() -> None:
    mixing = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 1.5]])
    spatial = AR1(0.4, 2.0)
    noise = PerChannel(mixing, spatial)
    dense = np.kron(mixing, 4.0 * 0.4 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))))
    v = np.random.default_rng(0).normal(size=(2, 15))
    np.testing.assert_allclose(noise.apply(v), v @ dense, rtol=1e-12)
    drawn = noise.sample(np.random.default_rng(1), 40_000, 15)
    # Standard errors of sample covariances: at most sqrt(2) * 8 / sqrt(40000) = 0.057.
    np.testing.assert_allclose(np.cov(drawn.T), dense, atol=0.25)
    assert noise.size is None
    assert PerChannel([1.0, 2.0], Diagonal([1.0, 2.0, 3.0])).size == 6
    assert noise.describe()["spatial"] == {"model": "ar1", "rho": 0.4, "sigma": 2.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PerChannel([1.0, -1.0]), "sigma .* must be positive"),
        (lambda: PerChannel([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite"),
        (lambda: PerChannel(np.ones((2, 3))), "square"),
        (lambda: PerChannel([1.0, 2.0], "loud"), "noise must be a standard deviation"),
        (lambda: PerChannel([1.0, 2.0]).apply(np.ones(5)), "but 5 values were given"),
        (lambda: PerChannel([1.0, 2.0]).sample(np.random.default_rng(0), 1), "say how many pixels"),
    ],
)
def test_impossible_noise_per_channel_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("noise", "image", "message"),
    [
        (PerChannel([10.0, 40.0]), picture(3), "images of 2 channels, but the image has 3"),
        (PerChannel([10.0, 20.0, 40.0]), picture(1, size=(12, 12)), "images of 3 channels, but the image has 1"),
        (PerChannel([1.0, 2.0, 3.0], Diagonal(np.ones((27, 20)))), picture(3), r"images of shape \(27, 20\)"),
        (Diagonal(np.ones((20, 27, 3))), picture(3), r"images of shape \(20, 27, 3\), but the image is"),
        (Diagonal(np.ones((27, 20))), picture(1), r"images of shape \(27, 20\)"),
    ],
)
def test_noise_of_another_shape_is_refused(noise: Any, image: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        AttentionTest(tiny_vit(channels=3), noise=noise, preprocessing=PROCESSOR)(image)


def test_noise_of_the_right_shape_is_taken() -> None:
    by_place, by_number = (
        AttentionTest(tiny_vit(channels=3), noise=Diagonal(variance), preprocessing=PROCESSOR, confidence_level=None)
        for variance in (np.full((20, 27), 144.0), np.full(540, 144.0))
    )
    assert by_place(picture(1)).pvalue == pytest.approx(by_number(picture(1)).pvalue, abs=SAME_NUMBER)


@pytest.mark.parametrize("preprocessing", [Preprocessing(resize=(8, 8)), Preprocessing(resize=(80, 80), crop=(8, 8))])
def test_an_image_of_which_one_pixel_is_seen_has_no_region(preprocessing: Preprocessing) -> None:
    size = 1 if preprocessing.crop is None else 9
    image = np.random.default_rng(0).normal(size=(size, size))
    test = AttentionTest(tiny_vit(channels=3), noise=1.0, preprocessing=preprocessing)
    with pytest.raises(InputError, match="constant on the 1 x 1 pixels of the image that the model sees"):
        test(image)


def test_depths_of_the_same_picture_give_the_same_p_value() -> None:
    model = tiny_vit(channels=3)
    image = picture(1)

    def tested(pixels: Any, scale: float, **options: Any) -> Any:
        options = {"noise": 12.0 * scale, "preprocessing": PROCESSOR, "confidence_level": None, **options}
        return AttentionTest(model, **options)(pixels)

    results = [
        tested(image, 1.0),
        tested(image.astype(np.uint16) * 257, 257.0),
        tested(image / 255, 1 / 255, intensity_range=(0, 1)),
        tested(2.0 * image - 1000, 2.0, intensity_range=(-1000, -490)),
        tested(torch.from_numpy(image), 1.0),
    ]
    for result in results[1:]:
        assert result.pvalue == pytest.approx(results[0].pvalue, abs=2e-6)
        assert result.statistic == pytest.approx(results[0].statistic)


def test_map_takes_images_of_different_sizes_and_colours() -> None:
    test = AttentionTest(tiny_vit(channels=3), noise=12.0, preprocessing=PROCESSOR, confidence_level=None)
    images = [picture(3), picture(1, 1), picture(3, 2), picture(1, 3, (31, 16)), picture(1, 4, (31, 16))]
    together = test.map(images)
    for image, result in zip(images, together, strict=True):
        assert result.region.shape == image.shape[:2]
        assert result.pvalue == pytest.approx(test(image).pvalue, abs=SAME_NUMBER)


def test_preprocessing_is_read_from_a_processor_and_recorded() -> None:
    from transformers import ViTImageProcessor

    processor = ViTImageProcessor(size={"height": 8, "width": 8}, image_mean=[0.5] * 3, image_std=[0.2] * 3)
    test = AttentionTest(tiny_vit(channels=3), noise=12.0, preprocessing=processor, confidence_level=None)
    result = test(picture(3))
    assert result.settings["preprocessing"]["resize"] == [8, 8]
    assert result.settings["model"]["type"] == "vit"
    assert result.settings["model"]["input"] == [3, 8, 8]
    assert result.settings["model"]["attention"] == {"name": "rollout", "head_fusion": "mean"}


def test_the_saved_processor_is_part_of_a_saved_model(tmp_path: Any) -> None:
    from transformers import BitImageProcessor

    model = FAMILY_MODELS["dinov2"]()  # trained at 8 x 8, but its processor makes images of 12 x 12
    model.save_pretrained(tmp_path / "model")
    processor = BitImageProcessor(size={"shortest_edge": 14}, crop_size={"height": 12, "width": 12})
    processor.save_pretrained(tmp_path / "model")
    test = AttentionTest.from_pretrained(tmp_path / "model", noise=12.0, confidence_level=None)
    assert test.image_shape == (3, 12, 12)
    live = AttentionTest(model, noise=12.0, preprocessing=processor, confidence_level=None)
    assert test(picture(3)).pvalue == pytest.approx(live(picture(3)).pvalue, abs=SAME_NUMBER)
    without = AttentionTest.from_pretrained(tmp_path / "model", noise=12.0, preprocessing=None)
    assert without.image_shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("options", "image", "message"),
    [
        ({}, picture(3), "takes images of height 8, width 8 and 3 channel.* has height 20, width 27 and 3 channel"),
        ({"preprocessing": PROCESSOR}, picture(3) / 255, "give intensity_range"),
        ({"intensity_range": (0, 1)}, picture(3), "intensity_range is for preprocessing that rescales"),
        ({"preprocessing": PROCESSOR, "intensity_range": 5}, picture(3), "must be a pair"),
        ({"preprocessing": PROCESSOR, "intensity_range": (1, 0)}, picture(3), "black below white"),
        ({"preprocessing": Preprocessing(resize=10)}, picture(3), "give image_size"),
        ({"preprocessing": "fast"}, picture(3), "preprocessing must be an image processor.*got str"),
        ({"preprocessing": PROCESSOR, "noise": Dense(np.eye(4))}, picture(3), "noise model is for 4 pixels"),
        ({"noise": Dense(np.eye(4))}, picture(3), "the model's images have 192"),
        ({"image_size": 1}, picture(3), "image_size .the height. must be at least 2"),
        ({"image_size": (8, 8, 8)}, picture(3), "image_size must be a side or"),
        ({"image_size": 10**6}, picture(3), "at most 16384"),
        (
            {"preprocessing": PROCESSOR},
            np.ones((20, 20, 2), dtype=np.uint8),
            "1 or 3 channels, but this one has .* 2 channels",
        ),
        ({"preprocessing": PROCESSOR}, np.ones((0, 20), dtype=np.uint8), r"has shape \(1, 0, 20\)"),
    ],
)
def test_what_does_not_fit_ends_in_one_sentence(options: dict[str, Any], image: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        AttentionTest(tiny_vit(channels=3), **{"noise": 1.0, **options})(image)
    assert "\n" not in str(caught.value)


def test_a_colour_image_for_a_grey_model_is_refused() -> None:
    grey_model = AttentionTest(tiny_vit(), noise=1.0, preprocessing=Preprocessing(resize=(8, 8)))
    with pytest.raises(InputError, match="convert it to grey first"):
        grey_model(picture(3))


def torch_softmax(images: Tensor) -> Tensor:
    return torch.softmax(images.flatten(1), dim=1).unflatten(1, (2, 2))


class SoftmaxModule(torch.nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch_softmax(images)


@pytest.mark.parametrize("function", [torch_softmax, SoftmaxModule()])
@pytest.mark.parametrize("search", [SpectralSearch(), GridSearch(step=Adaptive(eps_min=0.1))])
def test_a_torch_function_is_a_model(function: Any, search: Any) -> None:
    from toys import SoftmaxScores

    image = np.array([[2.0, 0.3], [-0.4, 0.9]])
    options = {"noise": 1.0, "search": search, "confidence_level": None}
    ours = AttentionTest(function, image_shape=(1, 2, 2), **options)(image)
    theirs = AttentionTest(SoftmaxScores(), **options)(image)
    assert ours.pvalue == pytest.approx(theirs.pvalue, abs=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda images: images.mean(dim=1) > 0, "a tensor of real numbers, but it returned torch.bool"),
        (lambda images: torch.ones(3), r"scores of shape \(1, gh, gw\)"),
    ],
)
def test_a_bad_torch_function_ends_in_one_sentence(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionTest(function, noise=1.0, image_shape=(1, 2, 2))(np.array([[2.0, 0.3], [-0.4, 0.9]]))


def test_a_function_can_be_preprocessed_for_too() -> None:
    test = AttentionTest(
        torch_softmax, noise=Isotropic(12.0), image_shape=(1, 2, 2), preprocessing=Preprocessing(resize=(2, 2))
    )
    result = test(picture(1) / 50)
    assert result.region.shape == (20, 27)
    assert 0 < result.pvalue <= 1


def test_attention_belongs_to_models() -> None:
    with pytest.raises(InputError, match="attention is for models"):
        AttentionTest(torch_softmax, noise=1.0, image_shape=(1, 2, 2), attention="last-layer")
    with pytest.raises(InputError, match="image_size is for vision transformers and preprocessing"):
        AttentionTest(torch_softmax, noise=1.0, image_shape=(1, 2, 2), image_size=4)
    for attention in ("rollout", Rollout(), LayerAttention(), GradCAM(), InputGradient(), CAM()):
        with pytest.raises(InputError, match="image_shape is for functions and networks"):
            AttentionTest(tiny_vit(), noise=1.0, image_shape=(1, 8, 8), attention=attention)
    with pytest.raises(InputError, match="attention must be rollout"):
        AttentionTest(tiny_vit(), noise=1.0, attention="gradient")


class Blurred(torch.nn.Module):
    """A map of an image, from layers that change when they train."""

    def __init__(self) -> None:
        super().__init__()
        layers = (torch.nn.Conv2d(1, 1, 3, padding=1), torch.nn.BatchNorm2d(1), torch.nn.Dropout(0.5))
        self.layers = torch.nn.Sequential(*layers)
        self.seen: list[torch.Tensor] = []
        self.layers[0].register_forward_hook(self.keep)

    def keep(self, _: Any, __: Any, output: torch.Tensor) -> None:
        self.seen[:] = [output.detach()]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.layers(images)
        return torch.softmax(self.layers[1:](self.seen[0]).flatten(1), dim=1).reshape(images[:, 0].shape)


@pytest.mark.parametrize("attention", ["rollout", Rollout()])
def test_a_module_that_is_a_function_is_copied_to_float64(attention: Any) -> None:
    torch.manual_seed(0)
    model = Blurred()
    before = copy.deepcopy(model.state_dict())
    tests = [AttentionTest(model, noise=1.0, image_shape=(1, 6, 6), attention=attention) for _ in range(2)]
    image = np.random.default_rng(0).normal(size=(6, 6))
    first, second = (test(image) for test in tests)
    assert first.pvalue == second.pvalue
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    exact = copy.deepcopy(model).double().eval()
    scores = exact(torch.from_numpy(image)[None, None])[0].detach().numpy()
    np.testing.assert_allclose(first.attention, (scores - scores.min()) / np.ptp(scores), rtol=1e-12, atol=1e-12)
    assert not model.seen  # hooks, of which a map may be made, are those of the copy
    model.layers[0].register_forward_hook(lambda *_: model.eval())
    with pytest.raises(ModelError, match=r"has a hook that is a closure, .* or give TorchScores"):
        AttentionTest(model, noise=1.0, image_shape=(1, 6, 6), attention=attention)


def test_a_module_that_is_a_function_may_take_gradients_of_its_own() -> None:
    class Sensitivity(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, padding=1), torch.nn.Tanh())

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                features = self.layers(images)
                (slopes,) = torch.autograd.grad(features.square().sum(), features)
            return (slopes * features).detach().sum(1)

    torch.manual_seed(0)
    model, image = Sensitivity(), np.random.default_rng(0).normal(size=(6, 6))
    result = AttentionTest(model, noise=1.0, image_shape=(1, 6, 6))(image)
    exact = copy.deepcopy(model).double()
    assert result.pvalue == AttentionTest(lambda images: exact(images), noise=1.0, image_shape=(1, 6, 6))(image).pvalue


def test_a_module_without_weights_is_a_function_too() -> None:
    class Squares(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, 0] ** 2

    assert 0 < AttentionTest(Squares(), noise=1.0, image_shape=(1, 4, 4))(np.eye(4)).pvalue <= 1


def test_a_size_beside_the_shape_of_a_network_is_refused() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    with pytest.raises(InputError, match="a network that of image_shape"):
        AttentionTest(network, noise=1.0, image_shape=(1, 8, 8), image_size=16, attention=GradCAM())


@pytest.mark.parametrize("search", ["spectral", "combination"])
@pytest.mark.parametrize("family", FAMILY_MODELS)
def test_cuda_agrees_with_the_cpu(family: str, search: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    model = FAMILY_MODELS[family]()
    images = [picture(3, 1), picture(1, 2), picture(3, 3, (31, 16))]
    tests = {
        device: AttentionTest(model, noise=12.0, preprocessing=PROCESSOR, search=search, device=device)
        for device in ("cpu", "cuda")
    }
    on_cpu = tests["cpu"].map(images)
    for ours, theirs in zip(tests["cuda"].map(images), on_cpu, strict=True):
        assert np.array_equal(ours.region, theirs.region)
        assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-9)
        assert ours.pvalue == pytest.approx(theirs.pvalue, abs=2e-6)
    assert next(model.parameters()).device.type == "cpu"


@pytest.mark.parametrize(
    "noise",
    [2.0, AR1(0.5, 2.0), Dense(4 * np.eye(64)), Diagonal(np.full(64, 4.0))],
    ids=["number", "ar1", "dense", "d"],
)
def test_pixels_too_large_for_their_noise_are_refused(noise: Any) -> None:
    test = AttentionTest(tiny_vit(), noise=noise, search=SpectralSearch(tol=1e-2), confidence_level=None)
    image = np.random.default_rng(0).normal(scale=2.0, size=(8, 8))
    far = image - 1e12
    message = "a pixel of -1e.12, whose noise has the standard deviation 2, and float64 does not resolve it"
    with pytest.raises(InputError, match=message):
        test(far)
    with pytest.raises(InputError, match=f"image 1: an image has {message}.*subtract a constant"):
        list(test.map([image, far]))
    assert test(far - far.mean()).status == "converged"


def test_a_scan_of_16_bits_is_not_too_large_for_a_noise_below_its_last_digit() -> None:
    scan = np.random.default_rng(0).integers(0, 2**16, (8, 8)).astype(np.uint16)
    assert AttentionTest(tiny_vit(), noise=1e-3).validate(scan) is None
