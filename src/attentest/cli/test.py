"""``attentest test``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.bundled import bundled_model
from attentest.cli.options import (
    DEFAULT_TOL,
    AlphaOption,
    AlternativeName,
    DeviceOption,
    JsonOption,
    SearchName,
    SearchOption,
    TolOption,
    check_level,
)
from attentest.cli.output import print_json, print_table, progress_bar, say
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.attention import Aggregation
    from attentest.attention_test import AttentionTest
    from attentest.contrast import Channels
    from attentest.noise import NoiseModel
    from attentest.result import AttentionTestResult

MODEL, IMAGE = "The model", "The images"
"""Panels of the help."""

MOST_PANELS = 40
"""Rows of a figure; more take minutes to draw and nobody looks at them."""


def test(
    images: Annotated[
        list[Path],
        typer.Argument(help="Image files: .npy, PNG, JPEG, TIFF, DICOM, NIfTI, ...", show_default=False),
    ],
    noise: Annotated[
        str,
        typer.Option(
            help="Standard deviation of the pixel noise, in the images' own units; for colour images also one for "
            "each channel: 3.1,2.9,4.0.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Directory of a saved Hugging Face ViT, or its id on the hub, such as google/vit-base-patch16-224.",
            show_default="the bundled 16x16 model",
            rich_help_panel=MODEL,
        ),
    ] = None,
    rho: Annotated[
        float,
        typer.Option(help="AR(1) correlation along the flattened image; of each channel, if --noise names several."),
    ] = 0.0,
    threshold: Annotated[float, typer.Option(help="The region is where the attention map exceeds this.")] = 0.6,
    attention: Annotated[
        str,
        typer.Option(
            help="How attention becomes a map: rollout (the paper's), last-layer, or layer:K, counted from 0.",
            rich_help_panel=MODEL,
        ),
    ] = "rollout",
    heads: Annotated[
        str,
        typer.Option(help="How heads are combined: mean, max, min, or the number of one.", rich_help_panel=MODEL),
    ] = "mean",
    image_size: Annotated[
        str | None,
        typer.Option(
            help="Side, or HEIGHTxWIDTH, at which the model is run; its image processor, if it has one, resizes to it.",
            show_default="the model's own",
            rich_help_panel=MODEL,
        ),
    ] = None,
    preprocessing: Annotated[
        bool,
        typer.Option(
            help="Whether to resize, crop and normalise as the image processor saved with the model says. Without, "
            "images must have the size the model takes.",
            rich_help_panel=MODEL,
        ),
    ] = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only models downloaded before.", rich_help_panel=MODEL)
    ] = False,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read pickled weights where there are no safetensors; only for models you trust.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    intensity_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            help="What images call black and white, as 0,1: needed for floating-point images and scans where the "
            "model's preprocessing rescales.",
            show_default="by dtype",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    channels: Annotated[
        str,
        typer.Option(
            help="What is compared in colour images: mean, the number of a channel, or weights: 0.3,0.59,0.11.",
            rich_help_panel=IMAGE,
        ),
    ] = "mean",
    frame: Annotated[
        int | None,
        typer.Option(
            help="Frame, page or slice of each file, counted from 0, or from the end if negative.",
            show_default="the only one",
            rich_help_panel=IMAGE,
        ),
    ] = None,
    window: Annotated[
        bool, typer.Option("--window", help="Apply the display window of DICOM files.", rich_help_panel=IMAGE)
    ] = False,
    search: SearchOption = SearchName.spectral,
    alternative: Annotated[
        AlternativeName, typer.Option(help="The region's mean differs from the background's, is greater, or is less.")
    ] = AlternativeName.two_sided,
    alpha: AlphaOption = 0.05,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide", help="Stop each search as soon as the verdict at alpha is certain, and report it: faster."
        ),
    ] = False,
    tol: TolOption = DEFAULT_TOL,
    figure: Annotated[Path | None, typer.Option(help="Also draw the results to this file.", show_default=False)] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Test whether the region a model attends to differs from the rest of each image.

    Examples:
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png

    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 --attention last-layer
    """
    from attentest import attention_test as library
    from attentest.image_file import read_image
    from attentest.plots import Panel, check_figure_path, results_figure, save_figure
    from attentest.search import SpectralSearch

    if figure is not None:
        check_figure_path(figure, inputs=images)
        if len(images) > MOST_PANELS:
            raise InputError(f"a figure shows at most {MOST_PANELS} images, got {len(images)}: leave --figure out.")
    check_level(alpha)
    if search is not SearchName.spectral and (decide or tol != DEFAULT_TOL):
        raise InputError(f"--tol and --decide belong to the spectral search, and {search.value} was asked for.")
    read = partial(read_image, frame=frame, window=window)
    attention_test = library.AttentionTest.from_pretrained(
        model or bundled_model(),
        noise=_noise(noise, rho),
        threshold=threshold,
        attention=_aggregation(attention, heads),
        preprocessing="saved" if preprocessing else None,
        image_size=_size(image_size),
        intensity_range=_range(intensity_range),
        channels=_channels(channels),
        search=SpectralSearch(tol=tol) if search is SearchName.spectral else search.value,
        alternative=alternative.value,
        device=device,
        local_files_only=offline,
        allow_pickle=allow_pickle,
    )
    _check_images(images, read, attention_test)
    with progress_bar(f"testing {len(images)} image(s)") as progress:
        results: list[AttentionTestResult] = []
        # Read again, one batch at a time: all files together may not fit in memory.
        stream = attention_test.stream(
            map(read, images), lambda done, _: progress(done, len(images)), alpha=alpha if decide else None
        )
        for path, result in zip(images, stream, strict=True):
            results.append(result)
            if as_json:
                print_json(str(path), result)
    if not as_json:
        print_table([(str(path), result) for path, result in zip(images, results, strict=True)], alpha)
    if figure is not None:
        panels = [
            Panel(title=path.name, image=read(path).squeeze(), result=result)
            for path, result in zip(images, results, strict=True)
        ]
        save_figure(results_figure(panels), figure)
        say(f"figure: {figure}")


def _check_images(images: Sequence[Path], read: Callable[[Path], Any], attention_test: AttentionTest) -> None:
    """Find a file that cannot be tested before hours of computation, not after."""
    for path in images:
        values = read(path)
        try:
            attention_test.check(values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _noise(text: str, rho: float) -> NoiseModel:
    from attentest.noise import AR1, Isotropic, PerChannel

    sigmas = _numbers(text, "--noise")
    if len(sigmas) > 1:
        return PerChannel(sigmas, AR1(rho) if rho else 1.0)
    return AR1(rho, sigmas[0]) if rho else Isotropic(sigmas[0])


def _aggregation(attention: str, heads: str) -> Aggregation:
    from attentest.attention import LayerAttention, Rollout

    fusion = int(heads) if heads.isdecimal() else heads
    if attention == "rollout":
        return Rollout(fusion)  # type: ignore[arg-type]  # checked there
    if attention == "last-layer":
        return LayerAttention(-1, fusion)  # type: ignore[arg-type]
    if match := re.fullmatch(r"layer:(-?\d+)", attention):
        return LayerAttention(int(match[1]), fusion)  # type: ignore[arg-type]
    raise InputError(f"--attention must be rollout, last-layer or layer:K, got {attention!r}.")


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match is None:
        raise InputError(f"--image-size must be a side such as 224, or HEIGHTxWIDTH such as 224x320, got {text!r}.")
    return int(match[1]), int(match[2] or match[1])


def _range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    numbers = _numbers(text, "--range")
    if len(numbers) != 2:
        raise InputError(f"--range must be black and white, such as 0,1, got {text!r}.")
    return numbers[0], numbers[1]


def _channels(text: str) -> Channels:
    if text == "mean" or text.isdecimal():
        return "mean" if text == "mean" else int(text)
    return _numbers(text, "--channels")


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a number, or several separated by commas, got {text!r}.") from None
