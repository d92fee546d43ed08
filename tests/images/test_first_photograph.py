"""Photographs for models that were saved without an image processor: the defaults of their family, said in a note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from attentest import AttentionTest, bundled_model
from attentest.attention.huggingface import FAMILIES
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.search import SpectralSearch
from command_line import run_main
from families import FAMILY_MODELS

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(256, size=(20, 27, 3)).astype(np.uint8)
GREY = RNG.integers(256, size=(20, 27)).astype(np.uint8)
NULL = RNG.normal(size=(16, 16))
COARSE = SpectralSearch(tol=0.1)
NOTE = "the model was saved without an image processor: it saw the image as ViTImageProcessor prepares it by default"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What save_pretrained writes of a model, and photographs beside it."""
    folder = tmp_path_factory.mktemp("plain")
    FAMILY_MODELS["vit"]().save_pretrained(folder / "my-vit")
    Image.fromarray(COLOUR).save(folder / "photo.png")
    Image.fromarray(GREY).save(folder / "grey.png")
    np.save(folder / "null.npy", NULL)
    np.save(folder / "other.npy", RNG.normal(size=(20, 20)))
    return folder


def test_a_photograph_and_a_plain_saved_model(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(plain)
    done = run_main(capsys, "test", "photo.png", "grey.png", "--noise", "8", "--model", "my-vit", "--no-interval")
    assert not done.code, done.err
    assert f"a: {NOTE}, resized to 8 x 8 pixels and scaled" in done.out
    by_hand = {"do_resize": True, "size": {"height": 8, "width": 8}, "resample": 2, "do_normalize": True,
               "image_mean": [0.5] * 3, "image_std": [0.5] * 3}  # fmt: skip
    wanted = AttentionTest.from_pretrained("my-vit", noise=8.0, preprocessing=by_hand, confidence_level=None)
    assumed = AttentionTest.from_pretrained("my-vit", noise=8.0, confidence_level=None)
    for image in (COLOUR, GREY, COLOUR[:8, :8]):
        assert assumed(image).log_pvalue == wanted(image).log_pvalue


def test_the_bundled_model_takes_photographs_and_null_images_as_before(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(plain)
    quick = ("--no-interval", "--tol", "0.1")
    done = run_main(capsys, "test", "photo.png", "grey.png", "null.npy", "--noise", "8", *quick)
    assert not done.code, done.err
    assert f"{NOTE}, made grey if it is in colour, resized to 16 x 16 pixels and scaled" in done.out
    (marked,) = (line for line in done.out.splitlines() if "null.npy" in line)
    assert not marked.rstrip().endswith("a")
    done = run_main(capsys, "test", "null.npy", "--noise", "1", "--json", *quick)
    settings = json.loads(done.out)["settings"]
    assert settings["preprocessing"] is None


@pytest.mark.parametrize("image", [NULL, (NULL > 0), (100 + 20 * NULL).astype(np.uint8)])
def test_images_that_fit_a_model_of_one_channel_are_taken_as_they_are(image: NDArray[Any]) -> None:
    assumed, untouched = (
        AttentionTest.from_pretrained(bundled_model(), noise=1.0, confidence_level=None, search=COARSE, **options)(
            image
        )
        for options in ({}, {"preprocessing": None})
    )
    assert assumed.log_pvalue == untouched.log_pvalue
    assert assumed.settings == untouched.settings


def test_colours_become_grey_as_in_pillow_and_noise_stays_that_of_the_colours() -> None:
    inputs = Preprocessing.usual("ViTImageProcessor", (1, 20, 27)).plan((3, 20, 27), 1, (0.0, 255.0))
    pixels = torch.from_numpy(np.moveaxis(COLOUR, -1, 0).astype(np.float64))[None]
    pillow = np.asarray(Image.fromarray(COLOUR).convert("L")) / 255
    assert np.abs(inputs(pixels)[0, 0].numpy() - (pillow - 0.5) / 0.5).max() < 1.01 / 255  # Pillow rounds
    result = AttentionTest.from_pretrained(bundled_model(), noise=8.0, confidence_level=None, search=COARSE)(COLOUR)
    region = result.region[:, :, None]
    eta = np.where(region, 1 / region.sum(), -1 / (~region).sum()) / 3 * np.ones(COLOUR.shape)
    assert result.statistic == pytest.approx((eta * COLOUR).sum() / (8.0 * np.sqrt((eta**2).sum())))


@pytest.mark.parametrize("family", [one for one in FAMILIES if one.processor], ids=lambda family: family.name)
def test_every_family_of_images_has_the_image_processor_of_transformers(family: Any) -> None:
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    # Models with registers are saved with the image processor of those without.
    known = IMAGE_PROCESSOR_MAPPING_NAMES[family.model_types[0].removesuffix("_with_registers")]
    names = known.values() if isinstance(known, dict) else known
    assert family.processor.removesuffix("Fast") in {str(name).removesuffix("Fast") for name in names}
    usual = Preprocessing.usual(family.processor, (3, 112, 84))
    assert usual.plan((3, 300, 200), 3, (0.0, 255.0)).input_shape == (3, 112, 84)
    usual = Preprocessing.usual(family.processor, (3, 224, 224))
    assert Preprocessing.from_processor({"image_processor_type": family.processor}).describe() == {
        **usual.describe(), "grey": False, "assumed": ""
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"resize": "crop"}, {"resize": 16, "crop": (16, 16), "rescale": 1 / 255, "mean": (0.5,)}),
        ({"resize": "stretch", "scale": "unit"}, {"resize": (16, 16), "crop": None, "rescale": 1 / 255, "mean": None}),
        ({"scale": "none"}, {"resize": (16, 16), "rescale": None, "std": None, "assumed": ""}),
        ({"preprocessing": None, "resize": "stretch"}, {"resize": (16, 16), "rescale": None}),
        ({"image_size": (32, 24)}, {"resize": (32, 24), "assumed": "ViTImageProcessor"}),
    ],
)
def test_what_is_assumed_can_be_chosen(options: dict[str, Any], steps: dict[str, Any]) -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, confidence_level=None, search=COARSE, **options)
    assert test.preprocessing is not None
    assert {name: getattr(test.preprocessing, name) for name in steps} == steps
    assert 0 < test(GREY).pvalue <= 1


def test_other_choices_and_images_without_black_and_white_end_in_a_sentence(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="scale must be processor, unit or none, got 'half'"):
        AttentionTest.from_pretrained(bundled_model(), noise=1.0, scale="half")
    monkeypatch.chdir(plain)
    done = run_main(capsys, "test", "other.npy", "--noise", "1")
    assert "takes images of height 16, width 16 and 1 channel, but this one has height 20, width 20" in done.err
    assert "--range 0,1" in done.err
    assert "--scale none" in done.err
    for options in (("--scale", "none"), ("--range", "-3,3")):
        quick = ("--no-interval", "--tol", "0.1")
        assert not run_main(capsys, "test", "other.npy", "--noise", "1", *quick, *options).code
    done = run_main(capsys, "test", "photo.png", "--noise", "1", "--resize", "none")
    assert "--resize stretch" in done.err


@pytest.mark.parametrize(
    ("image", "advice"),
    [
        (np.zeros((1, 16, 16)), r"arrays are \(H, W, C\), .*channels come first.*numpy.moveaxis\(image, 0, -1\)"),
        (np.zeros((3, 16, 16), np.uint8), r"numpy.moveaxis\(image, 0, -1\)"),
        (torch.zeros(16, 16, 1), r"tensors \(C, H, W\); if its channels come last.*image.movedim\(-1, 0\)"),
        (np.zeros((16, 16, 16)), r"16 channels \(arrays are \(H, W, C\), tensors \(C, H, W\)\)"),
    ],
)
@pytest.mark.parametrize("preprocessing", ["saved", None])
def test_an_image_of_another_order_of_axes_is_told_how_to_transpose_it(
    image: Any, advice: str, preprocessing: str | None
) -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, preprocessing=preprocessing)
    with pytest.raises(InputError, match=advice):
        test(image)
