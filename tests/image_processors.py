"""Image processors of transformers that resize, crop, rescale and normalise."""

from __future__ import annotations

from typing import Any

import transformers

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}

PROCESSORS = [
    ("ViT", {}),
    ("ViT", {"size": {"height": 48, "width": 80}, "resample": 0}),
    ("ViT", {"size": {"height": 48, "width": 80}, "resample": 1}),
    ("ViT", {"size": {"height": 48, "width": 80}, "resample": 4}),
    ("ViT", {"size": {"height": 48, "width": 80}, "resample": 5}),
    ("ViT", {"do_resize": False}),
    ("DeiT", {}),
    ("DeiT", {"size": {"height": 65, "width": 70}, "crop_size": {"height": 40, "width": 33}}),
    ("Beit", {"size": {"height": 64, "width": 64}}),
    ("Bit", {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, **IMAGENET}),
    ("CLIP", {}),
    ("CLIP", {"size": {"shortest_edge": 41}, "crop_size": {"height": 61, "width": 31}}),
    ("Siglip", {"size": {"height": 96, "width": 96}}),
    ("Blip", {"size": {"height": 96, "width": 96}}),
    ("ConvNext", {"size": {"shortest_edge": 64}, **IMAGENET}),
    ("ConvNext", {"size": {"shortest_edge": 400}}),
    ("MobileNetV2", {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}),
    ("Pvt", {"size": {"height": 96, "width": 96}}),
]
"""Names of classes, with settings."""


def image_processor(name: str, **settings: Any) -> Any:
    """An image processor of transformers that uses Pillow, such as that of "ViT"."""
    return processor_class(name)(**settings)


def processor_class(name: str) -> Any:
    """The class of image processors that use Pillow; transformers 4 has no others without a suffix."""
    return getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
