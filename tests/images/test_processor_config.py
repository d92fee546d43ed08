"""Settings of image processors, data configurations and presets, as published with models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.images.processor_config import CLASS_DEFAULTS
from image_processors import HALF, IMAGENET, OPENAI, PROCESSORS, image_processor, processor_class


@pytest.mark.parametrize("name", sorted(set(CLASS_DEFAULTS) - {"DINOv3ViT"}))
def test_defaults_of_named_classes_are_those_of_transformers(name: str) -> None:
    installed = Preprocessing.from_processor(image_processor(name))
    for suffix in ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"):
        assert Preprocessing.from_processor({"image_processor_type": name + suffix}) == installed
    assert Preprocessing.from_processor({"feature_extractor_type": f"{name}FeatureExtractor"}) == installed
    # An old file with one number for the size.
    square = Preprocessing.from_processor(image_processor(name, size=100, crop_size=90, do_center_crop=True))
    old = {"feature_extractor_type": f"{name}FeatureExtractor", "size": 100, "crop_size": 90, "do_center_crop": True}
    assert Preprocessing.from_processor(old) == square


def test_saved_configurations_read_as_the_processor_that_wrote_them() -> None:
    for name, settings in PROCESSORS:
        processor = image_processor(name, **settings)
        assert Preprocessing.from_processor(processor.to_dict()) == Preprocessing.from_processor(processor)


CHECKPOINTS: dict[str, tuple[dict[str, Any], Preprocessing]] = {
    "google/vit-base-patch16-224": (
        {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            **HALF,
            "image_processor_type": "ViTFeatureExtractor",
            "resample": 2,
            "rescale_factor": 0.00392156862745098,
            "size": {"height": 224, "width": 224},
        },
        Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
    ),
    "google/vit-base-patch16-224, first version": (
        {"do_normalize": True, "do_resize": True, **HALF, "size": 224},
        Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
    ),
    "facebook/deit-base-distilled-patch16-224": (
        {
            "crop_size": 224,
            "do_center_crop": True,
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "DeiTFeatureExtractor",
            **IMAGENET,
            "resample": 3,
            "size": 256,
        },
        Preprocessing(
            resize=(256, 256),
            crop=(224, 224),
            interpolation="bicubic",
            rescale=1 / 255,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        ),
    ),
    "microsoft/beit-base-patch16-224": (
        {
            "crop_size": 224,
            "do_center_crop": False,
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "BeitFeatureExtractor",
            **HALF,
            "resample": 2,
            "size": 224,
        },
        Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
    ),
    "facebook/dinov2-base": (
        {
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            **IMAGENET,
            "image_processor_type": "BitImageProcessor",
            "resample": 3,
            "rescale_factor": 0.00392156862745098,
            "size": {"shortest_edge": 256},
        },
        Preprocessing(
            resize=256,
            crop=(224, 224),
            interpolation="bicubic",
            rescale=1 / 255,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        ),
    ),
    "facebook/vit-mae-base": (
        {
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "ViTFeatureExtractor",
            **IMAGENET,
            "resample": 2,
            "size": 224,
        },
        Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ),
    "openai/clip-vit-base-patch32": (
        {
            "crop_size": 224,
            "do_center_crop": True,
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "CLIPFeatureExtractor",
            **OPENAI,
            "resample": 3,
            "size": 224,
        },
        Preprocessing(
            resize=224,
            crop=(224, 224),
            interpolation="bicubic",
            rescale=1 / 255,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
        ),
    ),
    "google/siglip-base-patch16-224": (
        {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            **HALF,
            "image_processor_type": "SiglipImageProcessor",
            "processor_class": "SiglipProcessor",
            "resample": 3,
            "rescale_factor": 0.00392156862745098,
            "size": {"height": 224, "width": 224},
        },
        Preprocessing(resize=(224, 224), interpolation="bicubic", rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
    ),
    "facebook/dinov3-vits16-pretrain-lvd1689m": (
        {
            "crop_size": None,
            "data_format": "channels_first",
            "default_to_square": True,
            "device": None,
            "disable_grouping": None,
            "do_center_crop": None,
            "do_convert_rgb": None,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            **IMAGENET,
            "image_processor_type": "DINOv3ViTImageProcessorFast",
            "input_data_format": None,
            "resample": 2,
            "rescale_factor": 0.00392156862745098,
            "return_tensors": None,
            "size": {"height": 224, "width": 224},
        },
        Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ),
}


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_configurations_of_published_models(checkpoint: str) -> None:
    config, expected = CHECKPOINTS[checkpoint]
    assert Preprocessing.from_processor(config) == expected
    assert Preprocessing.from_processor({"processor_class": "Any", "image_processor": config}) == expected


@pytest.mark.parametrize("checkpoint", [name for name in CHECKPOINTS if "dinov3" not in name and "first" not in name])
def test_transformers_reads_the_same_from_the_configurations(checkpoint: str) -> None:
    config, expected = CHECKPOINTS[checkpoint]
    named = config.get("image_processor_type") or config["feature_extractor_type"]
    family = named.removesuffix("FeatureExtractor").removesuffix("ImageProcessor")
    processor = processor_class(family).from_dict(dict(config))
    assert Preprocessing.from_processor(processor) == expected


def test_untyped_mappings_mean_what_they_say() -> None:
    read = Preprocessing.from_processor
    assert read({"do_resize": True, "size": [20, 30]}) == Preprocessing(resize=(20, 30))
    assert read({"do_resize": True, "size": 20, "default_to_square": False}) == Preprocessing(resize=20)
    assert read({"do_rescale": True}) == Preprocessing(rescale=1 / 255)
    assert read({"do_rescale": True, "rescale_factor": 1 / 127.5}) == Preprocessing(rescale=1 / 127.5)
    assert read({"do_resize": False, "size": 20, "crop_size": 10}) == Preprocessing()
    normalised = {"do_normalize": True, "image_mean": 0.5, "image_std": 0.25}
    assert read(normalised) == Preprocessing(rescale=1 / 255, mean=(0.5,), std=(0.25,))
    assert read({**normalised, "do_rescale": False}) == Preprocessing(mean=(0.5,), std=(0.25,))
    assert read({"do_resize": False, "do_reduce_labels": True, "do_convert_rgb": True}) == Preprocessing()


def test_a_processor_with_a_tokenizer_is_read_by_its_image_processor() -> None:
    inner = image_processor("CLIP")
    whole = SimpleNamespace(image_processor=inner, to_dict=dict)
    assert Preprocessing.from_processor(whole) == Preprocessing.from_processor(inner)
    ready = Preprocessing(resize=(4, 5))
    assert Preprocessing.from_processor(ready) is ready


TIMM = {
    "input_size": (3, 224, 224),
    "interpolation": "bicubic",
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "crop_pct": 0.9,
    "crop_mode": "center",
}


def test_timm_configurations() -> None:
    expected = {"interpolation": "bicubic", "rescale": 1 / 255, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    centre = Preprocessing(resize=248, crop=(224, 224), crop_rounding="even", **expected)
    assert Preprocessing.from_processor(TIMM) == centre
    assert Preprocessing.from_processor({"architecture": "vit_base_patch16_224", "pretrained_cfg": TIMM}) == centre
    wrapper = SimpleNamespace(
        to_dict=lambda: {"image_processor_type": "TimmWrapperImageProcessor", "data_config": TIMM}
    )
    assert Preprocessing.from_processor(wrapper) == centre
    squash = Preprocessing.from_processor({**TIMM, "crop_mode": "squash", "input_size": [3, 224, 112]})
    assert squash == Preprocessing(resize=(248, 124), crop=(224, 112), crop_rounding="even", **expected)


def test_torchvision_presets() -> None:
    preset = SimpleNamespace(
        crop_size=[224],
        resize_size=[256],
        interpolation=SimpleNamespace(value="bilinear"),
        antialias=True,
        mean=IMAGENET["image_mean"],
        std=IMAGENET["image_std"],
    )
    expected = Preprocessing(
        resize=256,
        crop=(224, 224),
        rescale=1 / 255,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        crop_rounding="even",
    )
    assert Preprocessing.from_processor(preset) == expected
    preset.resize_size, preset.antialias = [100, 200], False
    read = Preprocessing.from_processor(preset)
    assert read.resize == (100, 200)
    assert not read.antialias


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_resize": True}, "has do_resize on, but size is missing"),
        ({"do_center_crop": True}, "has do_center_crop on, but crop_size is missing"),
        ({"do_normalize": True}, "has do_normalize on, but image_mean is missing"),
        ({"do_resize": "yes"}, "do_resize of an image processor must be true or false, got 'yes'"),
        ({"do_resize": True, "size": {"shortest_edge": 8, "longest_edge": 9}}, "got shortest_edge, longest_edge"),
        ({"do_resize": True, "size": {"longest_edge": 9}}, "must have height and width, or shortest_edge, got longest"),
        ({"do_resize": True, "size": {}}, "or shortest_edge, got nothing"),
        ({"do_resize": True, "size": 9, "resample": 6}, "resample, .* must be at least 0 and at most 5, got 6"),
        ({"do_resize": True, "size": 0}, "size must be at least 1"),
        ({"do_center_crop": True, "crop_size": {"shortest_edge": 9}}, "must have height and width, got shortest_edge"),
        ({"do_resize": False, "do_pad": True, "pad_size": 9}, "has do_pad set to True"),
        ({"do_resize": False, "do_thumbnail": True}, "has do_thumbnail set to True"),
        ({"do_resize": False, "do_align_long_axis": True}, "has do_align_long_axis set to True"),
        ({"do_resize": False, "do_flip_channel_order": True}, "has do_flip_channel_order set to True"),
        ({"do_resize": False, "do_image_splitting": True}, "has do_image_splitting set to True"),
        ({"do_resize": False, "do_something_new": True}, "has do_something_new set to True"),
        ({"do_resize": False, "size_divisor": 32}, "has size_divisor set to 32"),
        ({"image_processor_type": "LevitImageProcessor"}, "the image processor LevitImageProcessor is not known to"),
        ({"image_processor_type": "ViT"}, "the image processor ViT is not known to"),
        ({}, r"the mapping with the keys \(none\) is neither"),
        ({"hidden_size": 4}, "the mapping with the keys hidden_size is neither"),
        ({**TIMM, "crop_mode": "border"}, "crop_mode of a timm .* must be center or squash, got 'border'"),
        ({**TIMM, "input_size": (3, 224, 112)}, r"must have a square input_size, got \(3, 224, 112\)"),
        ({**TIMM, "input_size": 224}, r"input_size .* must be \(channels, height, width\), got 224"),
        ({**TIMM, "crop_pct": 0}, "crop_pct must be positive and finite, got 0.0"),
        ({**TIMM, "interpolation": "random"}, "interpolation must be one of .*got 'random'"),
        ({**TIMM, "mean": None}, "the timm data configuration has no mean"),
    ],
)
def test_configurations_that_cannot_be_followed_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing.from_processor(config)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (None, "preprocessing must be an image processor.*got NoneType"),
        (lambda image: image, "preprocessing must be an image processor.*got function"),
        (image_processor("Levit"), "the image processor LevitImageProcessor is not known to"),
        ({**image_processor("ConvNext").to_dict(), "image_processor_type": "ViTImageProcessor"}, "has crop_pct set to"),
        (image_processor("ConvNext", size={"height": 9, "width": 9}), "must have shortest_edge alone"),
        (image_processor("MobileViT"), "has do_flip_channel_order set to True"),
        (image_processor("CLIP", size={"longest_edge": 9, "shortest_edge": 8}), "got longest_edge, shortest_edge"),
    ],
)
def test_processors_that_cannot_be_followed_are_refused(processor: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing.from_processor(processor)
