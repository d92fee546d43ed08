"""The options that define a test, and its construction."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attentest.cli.options import (
    DEFAULT_MAX_EVALUATIONS,
    DEFAULT_TOL,
    SEARCH,
    SPECTRAL,
    DeviceOption,
    named_by_options,
    search_option,
)
from attentest.cli.values import as_chosen_contrast, as_noise_model, noise_file, onnx_file
from attentest.definition import COMPARED, IMAGE, MODEL, MapDefinition, PretrainedDefinition, option
from attentest.errors import InputError
from attentest.registry import CONTRASTS, FILTERS, IMAGE_NOISE
from attentest.training.bundled import bundled_model, model_named

if TYPE_CHECKING:
    from attentest.pipeline.attention_test import AttentionTest


@dataclass(frozen=True, kw_only=True)
class AttentionTestOptions:
    """Options that define a test: model, noise, region, contrast and search.

    Those that stand for a single option of a test, or of its map, are generated from the definitions, and are in
    ``defined`` and ``mapped`` by name.
    """

    noise: str = option(
        "Standard deviation of the pixel noise, or one per channel (3.1,2.9,4.0); a file of attentest noise fit; or, "
        f"approximate, from each image: {IMAGE_NOISE.choices()}; or poisson, for images of counts. See "
        "docs/choosing-noise.md.",
        metavar="SIGMA",
    )
    rho: float = option(
        "AR(1) correlation of the noise along the flattened image, or each of its channels.", default=0.0, panel=IMAGE
    )
    model: str | None = option(
        "Directory of a saved ViT or CNN of Hugging Face or timm, or its id on the hub; an ONNX file of any network; "
        "or a bundled model: base16, signal256, volume16.",
        default=None,
        metavar="DIR",
        shown_default="the bundled 16x16 model",
    )
    mapped: Annotated[dict[str, Any], MapDefinition]
    preprocessing: bool = option(
        "Whether to resize, crop and normalise as the image processor saved with the model does.",
        default=True,
        panel=MODEL,
    )
    contrast: str = option(
        f"What the mean of the region is compared with: {CONTRASTS.choices()}.", default="background", panel=COMPARED
    )
    spacing: str | None = option(
        "For --contrast neighbourhood: distances of pixels along each axis, such as 2.5,0.7,0.7 in mm; RADIUS is then "
        "in the same unit.",
        default=None,
        metavar="LENGTHS",
        panel=COMPARED,
        shown_default="1, so that RADIUS is in pixels",
    )
    reference_noise: str | None = option(
        "Noise of the reference image, as for --noise; 0 if it has none.",
        default=None,
        metavar="SIGMA",
        panel=COMPARED,
        shown_default="that of the images",
    )
    kernel: str | None = option(
        f"Compare the filtered image: {FILTERS.choices('a .npy file with a kernel')}.",
        default=None,
        flag="--filter",
        panel=COMPARED,
    )
    search: str = search_option()
    tol: float = option(
        "Width of the error bar of p at which the search stops, spectral or piecewise.",
        default=DEFAULT_TOL,
        panel=SEARCH,
    )
    max_evaluations: int = option(
        "Most model evaluations per image of the spectral search; unless given, networks with kinks may take more.",
        default=DEFAULT_MAX_EVALUATIONS,
        panel=SEARCH,
    )
    strict: bool = option(
        "Let the spectral search look twice as closely, and check itself at more points.", default=False, panel=SEARCH
    )
    device: DeviceOption = "cpu"
    defined: Annotated[dict[str, Any], PretrainedDefinition]

    @property
    def input_files(self) -> list[Path]:
        """Files other than images that are read and must not be overwritten."""
        mask = self.defined.get("mask") or ""
        masks = glob.glob(os.path.join(mask, "*") if os.path.isdir(mask) else mask) or [mask]
        named = [Path(name) for name in (self.kernel, *masks) if name]
        others = (noise_file(self.noise), noise_file(self.reference_noise), onnx_file(self.model))
        return [*named, *(path for path in others if path is not None)]

    def check(self) -> None:
        """Raise an error for what is known to be wrong before anything is imported that takes long."""
        changed = {
            "--tol": self.tol != DEFAULT_TOL,
            "--max-evaluations": self.max_evaluations != DEFAULT_MAX_EVALUATIONS,
            "--strict": self.strict,
        }
        for name, is_changed in changed.items():
            if self.search != SPECTRAL and is_changed:
                raise InputError(f"{name} is for the spectral search, but --search is {self.search}.")
        if not 0 < self.tol < 1:
            raise InputError(f"--tol must be positive and less than 1, got {self.tol}: it is an error bar of p.")
        as_noise_model(self.noise, self.rho)

    def attention_test(self, confidence_level: float | None = None) -> AttentionTest:
        """Return the test that the options define."""
        self.check()
        from attentest.pipeline.attention_test import AttentionTest
        from attentest.search import SpectralSearch

        spectral = SpectralSearch(tol=self.tol, max_evaluations=self.max_evaluations, strict=self.strict)
        options: dict[str, Any] = {
            "noise": as_noise_model(self.noise, self.rho),
            "attention": MapDefinition(**self.mapped).attention(),
            "contrast": as_chosen_contrast(self.contrast, self.spacing, self.reference_noise, self.rho, self.kernel),
            "search": spectral if self.search == SPECTRAL else str(self.search),
            "confidence_level": confidence_level,
            "device": self.device,
            **self.defined,
        }
        of_layer = str(self.mapped["map_name"]).startswith("layer:")
        with named_by_options({"layer": "--map layer:K"} if of_layer else {}):
            return AttentionTest.from_pretrained(
                model_named(self.model) if self.model else bundled_model(),
                preprocessing="saved" if self.preprocessing else None,
                **options,
            )
