from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from attentest import AttentionTest
from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean, gaussian
from attentest.contrast.contrast import as_contrast, channel_weights, labelled_components, takes_stacks
from attentest.contrast.kernel import PADDING
from attentest.errors import InputError
from attentest.images.sample import Sample
from attentest.noise import AR1, Dense, FromImage, Isotropic
from attentest.pipeline.hypotheses import Lines, Parts, lines_of, parts_of
from attentest.pipeline.inputs import Input
from toys import tiny_vit

SEEN = np.ones((7, 9), dtype=bool)
REGION = np.zeros((7, 9), dtype=bool)
REGION[1:3, 1:4] = True
REGION[5:7, 6:9] = True
IMAGE = np.random.default_rng(0).normal(size=(7, 9))


def test_background() -> None:
    weights = Background().weights(REGION, REGION, SEEN)
    assert (weights * IMAGE).sum() == pytest.approx(IMAGE[REGION].mean() - IMAGE[~REGION].mean(), rel=1e-12)


def test_a_component_leaves_the_rest_of_the_region_out() -> None:
    part = REGION & (np.arange(9) < 5)
    weights = Background().weights(part, REGION, SEEN)
    assert (weights * IMAGE).sum() == pytest.approx(IMAGE[part].mean() - IMAGE[~REGION].mean(), rel=1e-12)
    ring = Neighbourhood(30).weights(part, REGION, SEEN)
    np.testing.assert_allclose(ring, weights)  # so wide a ring is the background
    assert not Neighbourhood(30).weights(part, REGION, SEEN)[REGION & ~part].any()


@pytest.mark.parametrize("radius", [1, 1.5, 2, 3.7])
def test_the_ring_is_what_lies_within_the_radius(radius: float) -> None:
    weights = Neighbourhood(radius).weights(REGION, REGION, SEEN)
    places = np.indices(REGION.shape).reshape(2, -1).T
    distance = np.linalg.norm(places[:, None] - places[REGION.ravel()][None], axis=2).min(axis=1).reshape(REGION.shape)
    ring = (distance > 0) & (distance <= radius)
    assert np.array_equal(weights < 0, ring)
    assert (weights * IMAGE).sum() == pytest.approx(IMAGE[REGION].mean() - IMAGE[ring].mean(), rel=1e-12)


def test_the_ring_ends_where_the_model_sees_nothing_and_is_never_empty() -> None:
    seen = SEEN.copy()
    seen[:, 7:] = False
    region = seen.copy()
    region[0, 0] = False
    weights = Neighbourhood(1).weights(region, region, seen)
    assert (weights < 0).sum() == 1
    assert weights[0, 0] == -1
    assert not weights[:, 7:].any()


def test_region_mean() -> None:
    assert (RegionMean().weights(REGION, REGION, SEEN) * IMAGE).sum() == pytest.approx(IMAGE[REGION].mean())


@pytest.mark.parametrize("border", PADDING)
@pytest.mark.parametrize(
    "kernel", ["laplacian", "sobel-x", "sobel-y", gaussian(0.7), np.arange(20.0).reshape(4, 5) - 7, IMAGE], ids=str
)
def test_filtering_weights_is_filtering_images(kernel: Any, border: Any) -> None:
    filtered = Filtered(kernel, border=border)
    values = {
        "laplacian": ndimage.laplace,
        "sobel-x": lambda x, mode: ndimage.sobel(x, 1, mode=mode),
        "sobel-y": lambda x, mode: ndimage.sobel(x, 0, mode=mode),
    }
    if isinstance(kernel, str):
        image = values[kernel](IMAGE, mode=border)
    else:
        image = ndimage.correlate(IMAGE, kernel, mode=border)
    expected = image[REGION].mean() - image[~REGION].mean()
    assert (filtered.weights(REGION, REGION, SEEN) * IMAGE).sum() == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_the_blur_is_scipys() -> None:
    blurred = ndimage.gaussian_filter(IMAGE, 0.8)
    weights = Filtered(gaussian(0.8), of=RegionMean()).weights(REGION, REGION, SEEN)
    assert (weights * IMAGE).sum() == pytest.approx(blurred[REGION].mean(), rel=1e-12)


def test_filters_of_filters_and_of_references() -> None:
    twice = Filtered("laplacian", of=Filtered("sobel-x", of=Neighbourhood(2)))
    once = ndimage.sobel(ndimage.laplace(IMAGE), 1)
    ring = Neighbourhood(2).weights(REGION, REGION, SEEN)
    assert (twice.weights(REGION, REGION, SEEN) * IMAGE).sum() == pytest.approx((ring * once).sum(), rel=1e-10)
    pair = Filtered(gaussian(0.5), of=Reference(IMAGE))
    np.testing.assert_allclose(
        pair.weights(REGION, REGION, SEEN), -pair.reference_weights(REGION, REGION, SEEN), atol=1e-15
    )
    assert pair.reference is not None


class Doubled(Background):
    """A contrast of somebody's own, who knows of one mask at a time."""

    def weights(self, part: np.ndarray, region: np.ndarray, seen: np.ndarray) -> np.ndarray:
        assert part.shape == region.shape == seen.shape
        return 2 * super().weights(part, region, seen)


@pytest.mark.parametrize("connectivity", [None, 1])
@pytest.mark.parametrize("noise", [AR1(0.4, 1.3), FromImage()], ids=str)
@pytest.mark.parametrize(
    "contrast",
    [
        Background(),
        Doubled(),
        RegionMean(),
        Neighbourhood(2),
        Filtered("laplacian", of=RegionMean()),
        Reference(),
        Reference(noise=0),
        Filtered(gaussian(0.5), of=Reference(noise=Isotropic(2.0))),
        lambda region: region - 0.3,
        lambda region: np.stack([region, ~region]) if region[0, 0] else region - 0.3,
    ],
)
def test_regions_together_are_as_one_by_one(contrast: Any, noise: Any, connectivity: int | None) -> None:
    rng = np.random.default_rng(9)
    contrast = as_contrast(contrast)
    seen = SEEN.copy()
    seen[:, 8:] = False
    regions = (rng.random((6, 7, 9)) > 0.7) & seen
    regions[0, 0, 0] = True
    images, references = rng.normal(size=(2, 6, 2, 7, 9))
    models = [noise.for_image(image) if isinstance(noise, FromImage) else noise for image in images]
    has_reference = contrast.reference is not None
    exact = has_reference and contrast.reference.exact

    def of_images(some: slice) -> tuple[Parts, Lines]:
        geometry: Any = SimpleNamespace(channel_weights=np.array([0.3, 0.7]), compared=None)
        batch = [
            Input(
                image=Sample(pixels=image, levels=None),
                geometry=geometry,
                noise=model,
                reference=Sample(pixels=reference, levels=None) if has_reference else None,
                reference_noise=None if exact or not has_reference else contrast.reference.noise or AR1(0.2),
            )
            for image, model, reference in zip(images[some], models[some], references[some], strict=True)
        ]
        observation: Any = SimpleNamespace(batch=batch, images=images[some], seen=seen, added=None)
        parts = parts_of(regions[some], connectivity)
        return parts, lines_of(observation, parts, contrast)

    parts, lines = of_images(slice(None))
    alone = [of_images(slice(i, i + 1)) for i in range(6)]
    assert parts.image.tolist() == [i for i, (one, _) in enumerate(alone) for _ in range(len(one))]
    assert np.array_equal(parts.masks(), np.concatenate([one.masks() for one, _ in alone]))
    for name in ("z_obs", "standard_error", "covariance_eta"):
        expected = np.concatenate([getattr(line, name) for _, line in alone])
        np.testing.assert_allclose(getattr(lines, name), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("contrast", [Background(), RegionMean(), Reference()], ids=str)
def test_weights_of_many_masks_are_those_of_each(contrast: Any) -> None:
    regions = np.random.default_rng(10).random((2, 5, 7, 9)) > 0.6
    parts = regions & (np.arange(9) < 5)
    for weigh in (contrast.weights, contrast.reference_weights):
        many = weigh(parts, regions, SEEN)
        for index in np.ndindex(2, 5):
            assert np.array_equal(many[index], weigh(parts[index], regions[index], SEEN))
    assert takes_stacks(contrast.weights)
    assert not takes_stacks(Doubled().weights)


def test_components_are_counted_by_their_connectivity() -> None:
    touching = np.zeros((4, 4), dtype=bool)
    touching[:2, :2] = touching[2:, 2:] = True
    assert labelled_components(touching, 1)[1] == 2
    assert labelled_components(touching, 2)[1] == 1


def vit(**options: Any) -> AttentionTest:
    return AttentionTest(tiny_vit(), **{"noise": 1.0, "confidence_level": None, **options})


PICTURE = np.random.default_rng(5).normal(size=(8, 8))


def test_map_takes_every_contrast() -> None:
    pictures = np.random.default_rng(6).normal(size=(2, 8, 8))
    references = np.random.default_rng(7).normal(size=(2, 8, 8))
    for contrast in (Neighbourhood(2), Filtered("sobel-y"), lambda region: region - 0.5):
        test = vit(contrast=contrast)
        for image, result in zip(pictures, test.map(pictures), strict=True):
            assert result.pvalue == pytest.approx(test(image).pvalue, abs=2e-6)
    test = vit(contrast=Reference(noise=AR1(0.3, 2.0)))
    for image, reference, result in zip(pictures, references, test.map(pictures, references=references), strict=True):
        assert result.pvalue == pytest.approx(test(image, reference=reference).pvalue, abs=2e-6)
        difference = image[result.region].mean() - reference[result.region].mean()
        assert result.difference == pytest.approx(difference, rel=1e-10)


def test_one_reference_for_all_is_as_each_its_own() -> None:
    reference = np.random.default_rng(8).normal(size=(8, 8))
    fixed, own = vit(contrast=Reference(reference)), vit(contrast=Reference())
    assert fixed(PICTURE).pvalue == own(PICTURE, reference=reference).pvalue
    other = np.zeros((8, 8))
    assert fixed(PICTURE, reference=other).statistic == own(PICTURE, reference=other).statistic


def test_an_exact_reference_adds_no_noise() -> None:
    exact = vit(contrast=Reference(np.full((8, 8), 0.3), noise=0))(PICTURE)
    alone = vit(contrast=RegionMean())(PICTURE - 0.3)
    assert exact.standard_error == pytest.approx(1 / np.sqrt(exact.region.sum()), rel=1e-12)
    assert exact.difference == pytest.approx(PICTURE[exact.region].mean() - 0.3, rel=1e-10)
    assert alone.standard_error == pytest.approx(1 / np.sqrt(alone.region.sum()), rel=1e-12)


def test_a_reference_with_noise_of_its_own_and_one_from_the_image() -> None:
    covariance = np.diag(np.linspace(0.5, 2.0, 64))
    result = vit(contrast=Reference(np.zeros((8, 8)), noise=Dense(covariance)))(PICTURE)
    region = result.region.ravel()
    weights = region / region.sum()
    assert result.standard_error == pytest.approx(
        np.sqrt(weights @ weights + weights @ covariance @ weights), rel=1e-12
    )
    reference = np.random.default_rng(1).normal(0, 3, size=(8, 8))
    estimated = vit(noise=FromImage(), contrast=Reference(reference))(PICTURE)
    variances = PICTURE.var(ddof=1) + reference.var(ddof=1)
    assert estimated.standard_error == pytest.approx(np.sqrt(variances * (weights @ weights)), rel=1e-9)


def test_a_written_contrast_may_weigh_channels() -> None:
    model = tiny_vit(channels=3)
    image = np.random.default_rng(2).normal(size=(8, 8, 3))
    planes = np.array([0.2, 0.0, 0.8])

    def by_channel(region: np.ndarray) -> np.ndarray:
        return planes[:, None, None] * Background().weights(region, region, np.ones((8, 8), dtype=bool))

    ours = AttentionTest(model, noise=1.0, contrast=by_channel, confidence_level=None)(image)
    theirs = AttentionTest(model, noise=1.0, channels=(0.2, 0.0, 0.8), confidence_level=None)(image)
    assert ours.pvalue == pytest.approx(theirs.pvalue, abs=1e-9)
    assert channel_weights("mean", 2).tolist() == [0.5, 0.5]


def test_settings_say_what_was_compared() -> None:
    result = vit(contrast=Filtered(gaussian(0.5), of=Neighbourhood(2)))(PICTURE)
    described = result.to_dict()["settings"]["contrast"]
    assert described["of"] == {"name": "neighbourhood", "radius": 2.0}
    assert described["kernel_shape"] == [5, 5]
    assert "Neighbourhood" in repr(Filtered("laplacian", of=Neighbourhood(2)))
    assert as_contrast(Background()) == Background()
    assert as_contrast("neighbourhood:5") == Neighbourhood(5.0)


def fails(region: np.ndarray) -> np.ndarray:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: Neighbourhood(0.5), "at least 1 pixel, or the ring around the region is empty, got 0.5"),
        (lambda: Neighbourhood(0), "the ring around the region is empty"),
        (lambda: Neighbourhood(np.nan), "finite and at least 1 pixel"),
        (lambda: Neighbourhood(np.inf), "finite and at least 1 pixel"),
        (lambda: Neighbourhood("3"), "radius must be a number"),
        (
            lambda: vit(contrast=Reference(np.zeros((8, 9))))(PICTURE),
            "the reference image has the shape .1, 8, 9., channels first, but",
        ),
        (lambda: vit(contrast=Reference())(PICTURE, reference=np.zeros((4, 4))), "bring the reference to the image's"),
        (lambda: vit(contrast=Reference())(PICTURE), "there is none: give Reference.image. one"),
        (lambda: vit()(PICTURE, reference=PICTURE), "the contrast has none: use contrast=Reference"),
        (lambda: vit(contrast=Reference(np.full((8, 8), np.nan))), "finite pixel values"),
        (lambda: vit(contrast=Reference(PICTURE, noise=-1.0)), "sigma"),
        (lambda: vit(contrast=Reference(PICTURE, noise=Dense(np.eye(5))))(PICTURE), "noise of the reference: .* for 5"),
        (
            lambda: vit(contrast=Filtered(np.ones((9, 3))))(PICTURE),
            "kernel has shape .9, 3., larger than the",
        ),
        (lambda: vit(contrast=Filtered(gaussian(2.0)))(PICTURE), "a blur of smaller sigma"),
        (lambda: Filtered(np.zeros((3, 3))), "finite and not all zero"),
        (lambda: Filtered(np.full((3, 3), np.inf)), "finite and not all zero"),
        (
            lambda: Filtered(np.ones((1,) * 4)),
            r"with the axes of the image, \(h, w\), got float64 of shape \(1, 1, 1, 1\)",
        ),
        (lambda: Filtered([[1.0], [1.0, 2.0]]), "kernel must be an array of numbers"),
        (lambda: Filtered("sharpen"), "kernel must be laplacian, sobel-x, sobel-y, gaussian:SIGMA or an array"),
        (lambda: Filtered("laplacian", border="zero"), "border must be one of reflect"),
        (lambda: Filtered("laplacian", of="foreground"), "contrast must be background, neighbourhood:RADIUS"),
        (lambda: gaussian(0), "sigma .of the blur. must be positive"),
        (lambda: gaussian(1e6), "larger than any image"),
        (lambda: vit(contrast="foreground"), "contrast must be background, neighbourhood:RADIUS"),
        (lambda: vit(contrast=Background), "a contrast object from attentest.contrast"),
        (lambda: vit(contrast=fails)(PICTURE), "the contrast function failed .* RuntimeError: no idea"),
        (lambda: vit(contrast=lambda m: m[1:])(PICTURE), "returned bool of shape .7, 8"),
        (
            lambda: vit(contrast=lambda m: np.zeros((3, 8, 8)) + 1)(PICTURE),
            "weights of shape .3, 8, 8., but",
        ),
        (lambda: vit(contrast=lambda m: m * 0)(PICTURE), "finite weights that are not all zero"),
        (lambda: vit(contrast=lambda m: m * 1e200)(PICTURE), "the largest between 1e-100 and 1e.100, got 1e.200"),
        (lambda: vit(contrast=lambda m: m * np.longdouble("1e400"))(PICTURE), "got inf"),
        (lambda: vit(contrast=lambda m: np.ma.masked_array(m, mask=~m))(PICTURE), "without a mask"),
        (lambda: Filtered(np.ma.masked_array(np.ones((2, 2)), mask=[[1, 0], [0, 0]])), "without a mask"),
        (lambda: Filtered(np.full((2, 2), np.longdouble("1e400"))), "finite and not all zero"),
        (
            lambda: vit(contrast=Filtered(np.full((8, 8), 0.1), border="wrap"))(PICTURE),
            "the compared difference no variance",
        ),
        (lambda: vit(contrast=lambda m: m * np.nan)(PICTURE), "finite weights that are not all zero"),
        (lambda: vit(contrast=lambda m: m * 1j)(PICTURE), "must return real weights"),
        (lambda: vit().components(PICTURE, connectivity=3), "connectivity .* at least 1 and at most 2, got 3"),
        (lambda: vit(contrast=Reference()).map([PICTURE] * 2, references=[PICTURE]), "only images go on after 1"),
        (lambda: vit(contrast=Reference()).map([PICTURE], references=[PICTURE] * 2), "only references go on after 1"),
        (lambda: vit(contrast=Reference()).map([PICTURE], references=3), "references must be an iterable"),
        (lambda: vit(contrast=Reference()).map([PICTURE, None], references=[PICTURE] * 2), "^image 1: an image must"),
        (lambda: vit(contrast=Reference(PICTURE)).permutation_test(PICTURE), "cannot be permuted"),
    ],
)
def test_bad_input_ends_in_one_sentence(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attempt()


def test_a_record_tells_kernels_apart() -> None:
    """Or a run with another blur would go on where the first was stopped."""
    kernels: list[Any] = ["gaussian:0.5", "gaussian:0.6", gaussian(0.5), gaussian(0.6), "laplacian"]
    described = [Filtered(kernel).describe() for kernel in kernels]
    assert gaussian(0.5).shape == gaussian(0.6).shape
    assert all(one != other for i, one in enumerate(described) for other in described[:i])
    assert Filtered(gaussian(0.5)).describe() == described[2]
