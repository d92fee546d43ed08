"""The options that say which test is made, and the making of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.option_value import (
    as_aggregation,
    as_chosen_channels,
    as_chosen_contrast,
    as_noise_model,
    as_range,
    as_size,
    noise_file,
)
from attentest.cli.options import (
    COMPARED,
    DEFAULT_TOL,
    IMAGE,
    MODEL,
    SEARCH,
    AlternativeName,
    DeviceOption,
    SearchName,
    SearchOption,
)
from attentest.errors import InputError
from attentest.training.bundled import bundled_model

if TYPE_CHECKING:
    from attentest.api import AttentionTest


@dataclass(frozen=True, kw_only=True)
class AttentionTestOptions:
    """Which test is made: what the command line says of model, noise, region, contrast and search."""

    noise: Annotated[
        str,
        typer.Option(
            help="Standard deviation of the pixel noise, in the images' own units; for colour images also one for "
            "each channel: 3.1,2.9,4.0. Or a file that attentest noise fit wrote. Or sample or wavelet, which take it "
            "from each image itself: approximate.",
            show_default=False,
        ),
    ]
    rho: Annotated[
        float,
        typer.Option(help="AR(1) correlation along the flattened image; of each channel, if --noise names several."),
    ] = 0.0
    model: Annotated[
        str | None,
        typer.Option(
            help="Directory of a saved Hugging Face ViT, or its id on the hub, such as google/vit-base-patch16-224.",
            show_default="the bundled 16x16 model",
            rich_help_panel=MODEL,
        ),
    ] = None
    attention: Annotated[
        str,
        typer.Option(
            help="How attention becomes a map: rollout (the paper's), last-layer, or layer:K, counted from 0.",
            rich_help_panel=MODEL,
        ),
    ] = "rollout"
    heads: Annotated[
        str,
        typer.Option(help="How heads are combined: mean, max, min, or the number of one.", rich_help_panel=MODEL),
    ] = "mean"
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Side, or HEIGHTxWIDTH, at which the model is run; its image processor, if it has one, resizes to it.",
            show_default="the model's own",
            rich_help_panel=MODEL,
        ),
    ] = None
    preprocessing: Annotated[
        bool,
        typer.Option(
            help="Whether to resize, crop and normalise as the image processor saved with the model says. Without, "
            "images must have the size the model takes.",
            rich_help_panel=MODEL,
        ),
    ] = True
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only models downloaded before.", rich_help_panel=MODEL)
    ] = False
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read pickled weights where there are no safetensors; only for models you trust.",
            rich_help_panel=MODEL,
        ),
    ] = False
    intensity_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            help="What images call black and white, as 0,1: needed for floating-point images and scans where the "
            "model's preprocessing rescales.",
            show_default="by dtype",
            rich_help_panel=IMAGE,
        ),
    ] = None
    channels: Annotated[
        str,
        typer.Option(
            help="What is compared in colour images: mean, the number of a channel, or weights: 0.3,0.59,0.11.",
            rich_help_panel=IMAGE,
        ),
    ] = "mean"
    threshold: Annotated[
        float | None,
        typer.Option(
            help="The region is where the attention map, from 0 to 1, exceeds this.",
            show_default="0.6",
            rich_help_panel=COMPARED,
        ),
    ] = None
    top_fraction: Annotated[
        float | None,
        typer.Option(
            help="Instead of a threshold: the region is this share of the pixels, those of greatest attention.",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None
    contrast: Annotated[
        str,
        typer.Option(
            help="What the region's mean is compared with: background (the rest of the image, as in the paper), "
            "neighbourhood:RADIUS (a ring of so many pixels around it), reference (the same pixels of another image), "
            "or region-mean (zero, for filtered images).",
            rich_help_panel=COMPARED,
        ),
    ] = "background"
    reference_noise: Annotated[
        str | None,
        typer.Option(
            help="Noise of the reference, a number (with the same --rho) or a file as for --noise; 0 for a reference "
            "known exactly.",
            show_default="that of the images",
            rich_help_panel=COMPARED,
        ),
    ] = None
    kernel: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="Compare in the filtered image, not in the image: laplacian, sobel-x, sobel-y, gaussian:SIGMA, or a "
            ".npy file with a kernel. The model sees the image as it is.",
            show_default="none",
            rich_help_panel=COMPARED,
        ),
    ] = None
    alternative: Annotated[
        AlternativeName,
        typer.Option(
            help="The region's mean differs from what it is compared with, is greater, or is less.",
            rich_help_panel=COMPARED,
        ),
    ] = AlternativeName.two_sided
    search: SearchOption = SearchName.spectral
    tol: Annotated[
        float,
        typer.Option(help="Width of the error bar of p at which the spectral search stops.", rich_help_panel=SEARCH),
    ] = DEFAULT_TOL
    device: DeviceOption = "cpu"

    @property
    def input_files(self) -> list[Path]:
        """Files besides images that are read, and must not be overwritten."""
        found = [
            noise_file(self.noise),
            noise_file(self.reference_noise),
            None if self.kernel is None else Path(self.kernel),
        ]
        return [path for path in found if path is not None]

    def attention_test(self, confidence_level: float | None = None) -> AttentionTest:
        """Return the test."""
        from attentest import api as library
        from attentest.search import SpectralSearch

        if self.model == "":
            raise InputError("--model must be a directory or the id of a model, got nothing.")
        if self.threshold is not None and self.top_fraction is not None:
            raise InputError("--threshold and --top-fraction are two ways to choose the region: give one of them.")
        if self.search is not SearchName.spectral and self.tol != DEFAULT_TOL:
            raise InputError(f"--tol belongs to the spectral search, and {self.search.value} was asked for.")
        return library.AttentionTest.from_pretrained(
            self.model or bundled_model(),
            noise=as_noise_model(self.noise, self.rho),
            threshold=self.threshold,
            top_fraction=self.top_fraction,
            attention=as_aggregation(self.attention, self.heads),
            preprocessing="saved" if self.preprocessing else None,
            image_size=as_size(self.image_size),
            intensity_range=as_range(self.intensity_range),
            channels=as_chosen_channels(self.channels),
            contrast=as_chosen_contrast(self.contrast, self.reference_noise, self.rho, self.kernel),
            search=SpectralSearch(tol=self.tol) if self.search is SearchName.spectral else self.search.value,
            alternative=self.alternative.value,
            confidence_level=confidence_level,
            device=self.device,
            local_files_only=self.offline,
            allow_pickle=self.allow_pickle,
        )
