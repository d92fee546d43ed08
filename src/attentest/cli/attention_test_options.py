"""The options that define a test, and its construction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.command import generated_options
from attentest.cli.options import (
    DEFAULT_MAX_EVALUATIONS,
    DEFAULT_TOL,
    SEARCH,
    SPECTRAL,
    DeviceOption,
    SearchOption,
)
from attentest.cli.values import (
    as_aggregation,
    as_chosen_contrast,
    as_noise_model,
    noise_file,
)
from attentest.definition import COMPARED, IMAGE, MODEL, Definition
from attentest.errors import InputError
from attentest.registry import ATTENTION_MAPS, CONTRASTS, FILTERS, IMAGE_NOISE
from attentest.training.bundled import bundled_model

if TYPE_CHECKING:
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.search import Search


@dataclass(frozen=True, kw_only=True)
class AttentionTestOptions:
    """Options that define a test: model, noise, region, contrast and search.

    Those that stand for a single option of a test are generated from its definition, and are in ``defined`` by name.
    """

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
    defined: Annotated[dict[str, Any], generated_options(Definition)]

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
        as_noise_model(self.noise, self.rho)

    def attention_test(self, confidence_level: float | None = None) -> AttentionTest:
        """Return the test that the options define."""
        self.check()
        from attentest.pipeline.attention_test import AttentionTest

        return AttentionTest.from_pretrained(
            self.model or bundled_model(),
            noise=as_noise_model(self.noise, self.rho),
            attention=as_aggregation(self.attention, self.heads),
            preprocessing="saved" if self.preprocessing else None,
            contrast=as_chosen_contrast(self.contrast, self.reference_noise, self.rho, self.kernel),
            search=self._search(),
            confidence_level=confidence_level,
            device=self.device,
            local_files_only=self.offline,
            allow_pickle=self.allow_pickle,
            **self.defined,
        )
