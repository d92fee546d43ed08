"""The options that define a test: from their texts to the values that the library takes."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from attentest.cli.options import (
    DEFAULT_MAX_EVALUATIONS,
    DEFAULT_TOL,
    SEARCH,
    SPECTRAL,
    device_option,
    named_by_options,
    search_option,
)
from attentest.definition import (
    LONGEST_NUMBER,
    REQUIRED,
    MapDefinition,
    PretrainedDefinition,
    compared_option,
    image_option,
    model_option,
    option,
)
from attentest.errors import NOISE_GUIDE, InputError, listed, shortened
from attentest.registry import CONTRASTS, FILTERS, IMAGE_NOISE, NOISE_FORMATS
from attentest.training.bundled import bundled_model, model_named

if TYPE_CHECKING:
    from attentest.contrast import Contrast
    from attentest.noise import ImageNoise, NoiseLike, NoiseModel
    from attentest.pipeline.attention_test import AttentionTest


KERNEL_SUFFIX = ".npy"  # suffix of a file with a kernel of the user's own


def all_or_count(text: str, option: str) -> int | None:
    """Return the number that a text says, or None for "all"."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER):
        raise InputError(f"{option} must be a whole number from 0, or all, got {shortened(text)}.")
    return int(text)


def noise_file(text: str | None) -> Path | None:
    """Return the file that a noise option names, or None if it is something else."""
    return Path(text) if text is not None and text.lower().endswith(tuple(NOISE_FORMATS)) else None


def onnx_file(text: str | None) -> Path | None:
    """Return the ONNX file that a model option names, or None if it is something else."""
    return Path(text) if text is not None and text.lower().endswith(".onnx") else None


def check_files(kind: str, paths: Iterable[Path | None]) -> None:
    """Raise an error for files that are not there; None is no file."""
    for path in paths:
        if path is not None and not path.exists():
            advice = ": give one that attentest noise fit or save_noise wrote" if kind == "noise" else ""
            raise InputError(f"there is no {kind} file {path}{advice}.")


def as_noise_model(text: str, rho: float = 0.0, option: str = "--noise") -> NoiseModel | ImageNoise:
    """Return the noise of "1.0", "3.1,2.9,4.0", "noise.json" or "sample"."""
    from attentest.noise import AR1, FromImage, Isotropic, PerChannel, Poisson, load_noise

    path = noise_file(text)
    if rho and (path is not None or text in (*IMAGE_NOISE, Poisson.name)):
        raise InputError(f"--rho goes with a number for {option}, but {shortened(text)} was given: leave --rho out.")
    if path is not None:
        return load_noise(path)
    if text in IMAGE_NOISE:
        return FromImage(text)
    if text == Poisson.name:
        return Poisson()
    try:
        sigmas = _numbers(text, option, f"a noise file ({NOISE_FORMATS.choices()})", *IMAGE_NOISE, Poisson.name)
    except InputError as error:
        raise InputError(f"{str(error).removesuffix('.')}: see {NOISE_GUIDE}.") from None
    with named_by_options({"sigma": option}):
        if len(sigmas) > 1:
            return PerChannel(sigmas, AR1(rho) if rho else 1.0)
        return AR1(rho, sigmas[0]) if rho else Isotropic(sigmas[0])


def as_true_noise(text: str | None, noise: str) -> NoiseLike | None:
    """Return the noise that images are drawn from: that of --true-noise, or None for that of --noise."""
    if text is None and noise in IMAGE_NOISE:
        raise InputError(
            f"--noise {noise} estimates the noise from each image, so images cannot be drawn from it: give the noise "
            "that they are drawn from with --true-noise."
        )
    return None if text is None else _one_noise_model(text, 0.0, "--true-noise")


def as_reference_noise(text: str | None, rho: float) -> NoiseLike | None:
    """Return the noise of a reference image: None for that of the images, 0 for none, or a noise model."""
    if text is None:
        return None
    with suppress(ValueError):
        if float(text) == 0:
            return 0.0
    # The model in a file has its own correlation.
    return _one_noise_model(text, rho if noise_file(text) is None else 0.0, "--reference-noise")


def _one_noise_model(text: str, rho: float, option: str) -> NoiseModel:
    """Return the noise of a number or of a file; what estimates it from each image raises an error."""
    if text in (*IMAGE_NOISE, "poisson"):
        raise InputError(f"{option} must be a number or a noise file, got {shortened(text)}.")
    return cast("NoiseModel", as_noise_model(text, rho, option))


def as_chosen_contrast(
    text: str, spacing: str | None, reference_noise: str | None, rho: float, kernel: str | None
) -> Contrast:
    """Return the contrast of "background" or "neighbourhood:5", of the filtered image if there is a kernel."""
    from attentest.contrast import Filtered

    if reference_noise is not None and text != "reference":
        raise InputError(f"--reference-noise is for --contrast reference, but --contrast is {text}.")
    keywords: dict[str, Any] = {"noise": as_reference_noise(reference_noise, rho)} if text == "reference" else {}
    if spacing is not None:
        if text.partition(":")[0] != "neighbourhood":
            raise InputError(f"--spacing is for --contrast neighbourhood:RADIUS, but --contrast is {text}.")
        keywords["spacing"] = tuple(_numbers(spacing, "--spacing"))
    contrast: Contrast = CONTRASTS.create(text, "--contrast", **keywords)
    if kernel is None:
        return contrast
    with named_by_options({"sigma": "--filter gaussian:SIGMA", "kernel": "--filter"}):
        return Filtered(_kernel(kernel), of=contrast)


def as_image_shape(text: str | None) -> tuple[int, ...] | None:
    """Return the (C, H, W) of "224x320" or "3x224x320"."""
    from attentest.images.sample import as_shape

    if text is None:
        return None
    if re.fullmatch(r"\d+(x\d+){1,2}", text) is None:
        raise InputError(f"--size must be HEIGHTxWIDTH such as 224x320, or 3x224x320 in colour, got {shortened(text)}.")
    return as_shape(tuple(_whole_number(side, "--size") for side in text.split("x")))


def _kernel(text: str) -> Any:
    from attentest.images.image_file import read_image

    if text.lower().endswith(KERNEL_SUFFIX):
        try:
            return read_image(text)
        except InputError as error:
            raise InputError(f"--filter: {error}") from None
    FILTERS.create(text, "--filter", f"a {KERNEL_SUFFIX} file")  # raises an error that names the option
    return text


def _numbers(text: str, option: str, *others: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        allowed = listed(("a number", "several separated by commas", *others))
        raise InputError(f"{option} must be {allowed}, got {shortened(text)}.") from None


def _whole_number(digits: str, option: str) -> int:
    """Return the number of decimal digits; more of them than any option needs raise an error."""
    if len(digits) > LONGEST_NUMBER:
        raise InputError(f"{option} must have at most {LONGEST_NUMBER} digits, got {len(digits)}.")
    return int(digits)


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
        default=REQUIRED,
        metavar="SIGMA",
    )
    rho: float = image_option(
        "AR(1) correlation of the noise along the flattened image, or each of its channels.", default=0.0
    )
    model: str | None = option(
        "Directory of a saved ViT or CNN of Hugging Face or timm, or its id on the hub; an ONNX file of any network; "
        "or a bundled model: base16, signal256, volume16.",
        metavar="DIR",
        shown_default="the bundled 16x16 model",
    )
    mapped: Annotated[dict[str, Any], MapDefinition]
    preprocessing: bool = model_option(
        "Whether to resize, crop and normalise as the image processor saved with the model does.", default=True
    )
    contrast: str = compared_option(
        f"What the mean of the region is compared with: {CONTRASTS.choices()}.", default="background"
    )
    spacing: str | None = compared_option(
        "For --contrast neighbourhood: distances of pixels along each axis (slices, rows, columns), such as "
        "2.5,0.7,0.7 in mm; RADIUS is then in the same unit.",
        metavar="LENGTHS",
        shown_default="1, so that RADIUS is in pixels",
    )
    reference_noise: str | None = compared_option(
        "Noise of the reference image, as for --noise; 0 if it has none.",
        metavar="SIGMA",
        shown_default="that of the images",
    )
    kernel: str | None = compared_option(
        f"Compare the filtered image: {FILTERS.choices('a .npy file with a kernel')}.", flag="--filter"
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
    device: str = device_option()
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
            "search": spectral if self.search == SPECTRAL else self.search,
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
