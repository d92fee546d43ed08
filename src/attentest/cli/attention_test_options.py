"""The options that define a test, and its construction."""

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
    DEFAULT_MAX_EVALUATIONS,
    DEFAULT_TOL,
    IMAGE,
    MODEL,
    PIXELS,
    SEARCH,
    SPECTRAL,
    AlternativeName,
    DeviceOption,
    RegionUnitsName,
    SearchOption,
)
from attentest.errors import InputError
from attentest.registry import ATTENTION_MAPS, CONTRASTS, FILTERS, IMAGE_NOISE, REGION_UNITS
from attentest.training.bundled import bundled_model

if TYPE_CHECKING:
    from attentest.api import AttentionTest
    from attentest.search import Search


@dataclass(frozen=True, kw_only=True)
class AttentionTestOptions:
    """Options that define a test: model, noise, region, contrast and search."""

    noise: Annotated[
        str,
        typer.Option(
            help="Standard deviation of the pixel noise, in the units of the images; for colour images also one per "
            "channel: 3.1,2.9,4.0. Or a file written by attentest noise fit. Or an approximate estimate from each "
            f"image itself: {IMAGE_NOISE.help()}.",
            show_default=False,
        ),
    ]
    rho: Annotated[
        float,
        typer.Option(
            help="AR(1) correlation of the noise along the flattened image, or along each channel of a colour image."
        ),
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
            help=f"How attention becomes a map: {ATTENTION_MAPS.help()}.",
            rich_help_panel=MODEL,
        ),
    ] = "rollout"
    heads: Annotated[
        str,
        typer.Option(
            help="How heads are combined: mean, max, min, or the number of a single head.", rich_help_panel=MODEL
        ),
    ] = "mean"
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Side, or HEIGHTxWIDTH, of the model's input; its image processor, if it has one, resizes to it.",
            show_default="the model's own",
            rich_help_panel=MODEL,
        ),
    ] = None
    preprocessing: Annotated[
        bool,
        typer.Option(
            help="Whether to resize, crop and normalise as the image processor saved with the model does. If not, "
            "images must have the size of the model's input.",
            rich_help_panel=MODEL,
        ),
    ] = True
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use only models that are on disk; download nothing.", rich_help_panel=MODEL),
    ] = False
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read pickled weights if there are no safetensors; only for models you trust.",
            rich_help_panel=MODEL,
        ),
    ] = False
    intensity_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            help="Values of black and white, such as 0,1: needed for floating-point images and scans if the model's "
            "preprocessing rescales.",
            show_default="by dtype",
            rich_help_panel=IMAGE,
        ),
    ] = None
    channels: Annotated[
        str,
        typer.Option(
            help="What is compared in colour images: mean (of the channels), the number of a channel, or weights: "
            "0.3,0.59,0.11.",
            rich_help_panel=IMAGE,
        ),
    ] = "mean"
    threshold: Annotated[
        float | None,
        typer.Option(
            help="The region is where the attention map, scaled from 0 to 1, exceeds this.",
            show_default="0.6",
            rich_help_panel=COMPARED,
        ),
    ] = None
    top_fraction: Annotated[
        float | None,
        typer.Option(
            help="Instead of a threshold: the region is this fraction of the pixels (with --region patches, of the "
            "patches), those of greatest attention.",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None
    region: Annotated[
        RegionUnitsName,
        typer.Option(
            help=f"What the region consists of: {REGION_UNITS.help()}.",
            rich_help_panel=COMPARED,
        ),
    ] = PIXELS
    contrast: Annotated[
        str,
        typer.Option(
            help=f"What the mean of the region is compared with: {CONTRASTS.help()}.",
            rich_help_panel=COMPARED,
        ),
    ] = "background"
    reference_noise: Annotated[
        str | None,
        typer.Option(
            help="Noise of the reference image: a number (with the same --rho) or a file as for --noise; 0 for a "
            "reference without noise.",
            show_default="that of the images",
            rich_help_panel=COMPARED,
        ),
    ] = None
    kernel: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help=f"Compare the filtered image, not the image itself: {FILTERS.help()}; or a .npy file with a kernel. "
            "The model sees the image as it is.",
            show_default="none",
            rich_help_panel=COMPARED,
        ),
    ] = None
    alternative: Annotated[
        AlternativeName,
        typer.Option(
            help="Alternative hypothesis: the mean of the region differs from what it is compared with, is greater, or "
            "is less.",
            rich_help_panel=COMPARED,
        ),
    ] = AlternativeName.two_sided
    randomise: Annotated[
        float,
        typer.Option(
            help="Let the model choose the region on the image plus noise, this many times that of the image, and test "
            "the image itself: 0 is the paper's test, 0.3 to 1 finds far more. Choose it before looking at the data.",
            rich_help_panel=COMPARED,
        ),
    ] = 0.0
    randomise_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the noise that --randomise adds.",
            show_default="a function of the image",
            rich_help_panel=COMPARED,
        ),
    ] = None
    search: SearchOption = SPECTRAL
    tol: Annotated[
        float,
        typer.Option(help="Width of the error bar of p at which the spectral search stops.", rich_help_panel=SEARCH),
    ] = DEFAULT_TOL
    max_evaluations: Annotated[
        int, typer.Option(help="Most model evaluations per image of the spectral search.", rich_help_panel=SEARCH)
    ] = DEFAULT_MAX_EVALUATIONS
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Let the spectral search look twice as closely, and check its conclusions at more points.",
            rich_help_panel=SEARCH,
        ),
    ] = False
    device: DeviceOption = "cpu"

    @property
    def input_files(self) -> list[Path]:
        """Files other than images that are read and must not be overwritten."""
        found = [
            noise_file(self.noise),
            noise_file(self.reference_noise),
            None if self.kernel is None else Path(self.kernel),
        ]
        return [path for path in found if path is not None]

    def _search(self) -> str | Search:
        from attentest.search import SpectralSearch

        if self.search != SPECTRAL:
            return str(self.search)
        return SpectralSearch(tol=self.tol, max_evaluations=self.max_evaluations, strict=self.strict)

    def check(self) -> None:
        """Refuse what can be refused before anything is imported that takes long."""
        if self.model == "":
            raise InputError("--model must be a directory or the id of a model, got an empty text.")
        if self.threshold is not None and self.top_fraction is not None:
            raise InputError("--threshold and --top-fraction are two ways to choose the region: give one of them.")
        changed = {
            "--tol": self.tol != DEFAULT_TOL,
            "--max-evaluations": self.max_evaluations != DEFAULT_MAX_EVALUATIONS,
            "--strict": self.strict,
        }
        for option, given in changed.items():
            if self.search != SPECTRAL and given:
                raise InputError(f"{option} is for the spectral search, but --search is {self.search}.")
        if not 0 < self.tol < 1:
            raise InputError(f"--tol must be positive and less than 1, got {self.tol}: it is an error bar of p.")
        for name, value in (("--threshold (tau)", self.threshold), ("--top-fraction (q)", self.top_fraction)):
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name} must lie strictly between 0 and 1, got {value}.")
        if not 0 <= self.randomise < float("inf"):
            raise InputError(f"--randomise must be 0 or a positive number, got {self.randomise}.")
        as_noise_model(self.noise, self.rho)

    def attention_test(self, confidence_level: float | None = None) -> AttentionTest:
        """Return the test that the options define."""
        self.check()
        from attentest import api as library

        return library.AttentionTest.from_pretrained(
            self.model or bundled_model(),
            noise=as_noise_model(self.noise, self.rho),
            threshold=self.threshold,
            top_fraction=self.top_fraction,
            region=str(self.region),
            attention=as_aggregation(self.attention, self.heads),
            preprocessing="saved" if self.preprocessing else None,
            image_size=as_size(self.image_size),
            intensity_range=as_range(self.intensity_range),
            channels=as_chosen_channels(self.channels),
            contrast=as_chosen_contrast(self.contrast, self.reference_noise, self.rho, self.kernel),
            randomise=self.randomise,
            randomise_seed=self.randomise_seed,
            search=self._search(),
            alternative=self.alternative.value,
            confidence_level=confidence_level,
            device=self.device,
            local_files_only=self.offline,
            allow_pickle=self.allow_pickle,
        )
