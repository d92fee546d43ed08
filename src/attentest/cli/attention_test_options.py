"""The options that define a test, and its construction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.options import (
    COMPARED,
    DEFAULT_MAX_EVALUATIONS,
    DEFAULT_TOL,
    IMAGE,
    MODEL,
    PIXELS,
    RANDOMISED,
    SEARCH,
    SPECTRAL,
    AlternativeName,
    DeviceOption,
    RegionUnitsName,
    SearchOption,
)
from attentest.cli.values import (
    as_aggregation,
    as_chosen_channels,
    as_chosen_contrast,
    as_noise_model,
    as_range,
    as_size,
    noise_file,
)
from attentest.errors import InputError
from attentest.registry import ATTENTION_MAPS, CONTRASTS, FILTERS, IMAGE_NOISE, REGION_UNITS
from attentest.training.bundled import bundled_model

if TYPE_CHECKING:
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.search import Search


@dataclass(frozen=True, kw_only=True)
class AttentionTestOptions:
    """Options that define a test: model, noise, region, contrast and search."""

    noise: Annotated[
        str,
        typer.Option(
            help="Standard deviation of the pixel noise, or one per channel (3.1,2.9,4.0); a file of attentest noise "
            f"fit; or, approximate, from each image: {IMAGE_NOISE.choices()}. See docs/choosing-noise.md.",
            metavar="SIGMA",
            show_default=False,
        ),
    ]
    rho: Annotated[
        float,
        typer.Option(
            help="AR(1) correlation of the noise along the flattened image, or each of its channels.",
            rich_help_panel=IMAGE,
        ),
    ] = 0.0
    model: Annotated[
        str | None,
        typer.Option(
            help="Directory of a saved Hugging Face ViT, or its id on the hub.",
            metavar="DIR",
            show_default="the bundled 16x16 model",
        ),
    ] = None
    attention: Annotated[
        str,
        typer.Option(
            help=f"How attention becomes a map: {ATTENTION_MAPS.choices()}.",
            metavar="NAME",
        ),
    ] = "rollout"
    heads: Annotated[
        str,
        typer.Option(
            help="How heads are combined: mean, max, min, or the number of a single head.",
            metavar="NAME",
            rich_help_panel=MODEL,
        ),
    ] = "mean"
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Side, or HEIGHTxWIDTH, of the model's input, to which images are resized.",
            metavar="SIZE",
            show_default="the model's own",
            rich_help_panel=MODEL,
        ),
    ] = None
    preprocessing: Annotated[
        bool,
        typer.Option(
            help="Whether to resize, crop and normalise as the image processor saved with the model does.",
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
            help="Values of black and white (0,1), where preprocessing rescales floating-point images or scans.",
            metavar="LOW,HIGH",
            show_default="by dtype",
            rich_help_panel=IMAGE,
        ),
    ] = None
    channels: Annotated[
        str,
        typer.Option(
            help="What is compared in colour images: mean, the number of a channel, or weights (0.3,0.59,0.11).",
            metavar="NAME",
            rich_help_panel=IMAGE,
        ),
    ] = "mean"
    threshold: Annotated[
        float | None,
        typer.Option(
            help="The region is where the attention map, scaled from 0 to 1, exceeds this.",
            metavar="TAU",
            show_default="0.6",
        ),
    ] = None
    top_fraction: Annotated[
        float | None,
        typer.Option(
            help="Instead of a threshold: the region is this fraction of the pixels, or patches.",
            metavar="Q",
            show_default=False,
        ),
    ] = None
    region: Annotated[
        RegionUnitsName,
        typer.Option(
            help=f"What the region consists of: {REGION_UNITS.choices()}.",
            metavar="NAME",
            rich_help_panel=COMPARED,
        ),
    ] = PIXELS
    contrast: Annotated[
        str,
        typer.Option(
            help=f"What the mean of the region is compared with: {CONTRASTS.choices()}.",
            metavar="NAME",
            rich_help_panel=COMPARED,
        ),
    ] = "background"
    reference_noise: Annotated[
        str | None,
        typer.Option(
            help="Noise of the reference image, as for --noise; 0 if it has none.",
            metavar="SIGMA",
            show_default="that of the images",
            rich_help_panel=COMPARED,
        ),
    ] = None
    kernel: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help=f"Compare the filtered image: {FILTERS.choices('a .npy file with a kernel')}.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None
    alternative: Annotated[
        AlternativeName,
        typer.Option(
            help="The mean of the region differs (two-sided, the paper's p; equal-tailed: twice the smaller tail, "
            "below 0.05 exactly when the 95% interval excludes 0), is greater, or is less.",
            metavar="NAME",
            rich_help_panel=COMPARED,
        ),
    ] = AlternativeName.two_sided
    randomise: Annotated[
        float,
        typer.Option(
            help="Choose regions on the images plus this many times their noise: 0.3 to 1 finds far more than the "
            "paper's 0. Set it before looking at the data.",
            metavar="GAMMA",
            rich_help_panel=RANDOMISED,
        ),
    ] = 0.0
    randomise_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the noise that --randomise adds.",
            metavar="N",
            show_default="a function of the image",
            rich_help_panel=RANDOMISED,
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
            help="Let the spectral search look twice as closely, and check itself at more points.",
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
        from attentest.pipeline.attention_test import AttentionTest

        return AttentionTest.from_pretrained(
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
