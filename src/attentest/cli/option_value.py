"""What the texts of options mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.attention import Aggregation
    from attentest.contrast import Channels, Contrast
    from attentest.noise import ImageNoise, NoiseLike, NoiseModel

NOISE_FILES = (".json", ".safetensors")
LONGEST_NUMBER = 18
"""Digits."""

FROM_IMAGE = ("sample", "wavelet")


def all_or_count(text: str, option: str) -> int | None:
    """Return the number that a text says, or None for "all"."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER):
        raise InputError(f"{option} must be a whole number from 0, or all, got {text[:LONGEST_NUMBER]!r}.")
    return int(text)


def noise_file(text: str | None) -> Path | None:
    """Return the file that a noise option names, if it names one."""
    return Path(text) if text is not None and text.lower().endswith(NOISE_FILES) else None


def as_noise_model(text: str, rho: float = 0.0, option: str = "--noise") -> NoiseModel | ImageNoise:
    """Return the noise of "1.0", "3.1,2.9,4.0", "noise.json", "sample" or "wavelet"."""
    from attentest.noise import AR1, FromImage, Isotropic, PerChannel, load_noise

    path = noise_file(text)
    if rho and (path is not None or text in FROM_IMAGE):
        raise InputError(f"--rho goes with a number for {option}, and {text!r} was given: leave --rho out.")
    if path is not None:
        return load_noise(path)
    if text in FROM_IMAGE:
        return FromImage(text)  # type: ignore[arg-type]  # checked there
    sigmas = _numbers(text, option, f"a noise file ({' or '.join(NOISE_FILES)}), {' or '.join(FROM_IMAGE)}")
    if len(sigmas) > 1:
        return PerChannel(sigmas, AR1(rho) if rho else 1.0)
    return AR1(rho, sigmas[0]) if rho else Isotropic(sigmas[0])


def as_reference_noise(text: str | None, rho: float) -> NoiseLike | None:
    """Return the noise of a reference image: None for that of the image, 0 for none, or as of an image."""
    if text is None:
        return None
    if text in FROM_IMAGE:
        raise InputError(f"--reference-noise must be a number or a noise file, got {text!r}.")
    try:
        if float(text) == 0:
            return 0.0
    except ValueError:
        pass
    own_rho = rho if noise_file(text) is None else 0.0  # a file says itself how its noise is correlated
    model: NoiseLike = as_noise_model(text, own_rho, "--reference-noise")  # type: ignore[assignment]  # not of the image
    return model


def as_chosen_contrast(text: str, reference_noise: str | None, rho: float, kernel: str | None) -> Contrast:
    """Return the contrast of "background", "neighbourhood:5", "reference" or "region-mean", filtered or not."""
    from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean

    if reference_noise is not None and text != "reference":
        raise InputError(f"--reference-noise belongs to --contrast reference, and {text} was asked for.")
    contrast: Contrast
    if text == "background":
        contrast = Background()
    elif text == "region-mean":
        contrast = RegionMean()
    elif text == "reference":
        contrast = Reference(noise=as_reference_noise(reference_noise, rho))
    elif text.startswith("neighbourhood:"):
        contrast = Neighbourhood(_number(text.partition(":")[2], "--contrast neighbourhood:RADIUS"))
    else:
        raise InputError(
            f"--contrast must be background, neighbourhood:RADIUS, reference or region-mean, got {text!r}."
        )
    return contrast if kernel is None else Filtered(_kernel(kernel), of=contrast)


def as_aggregation(attention: str, heads: str) -> Aggregation:
    """Return the aggregation of "rollout", "last-layer" or "layer:3", and of "mean", "max", "min" or a head."""
    from attentest.attention import LayerAttention, Rollout

    fusion = int(heads) if heads.isdecimal() else heads
    if attention == "rollout":
        return Rollout(fusion)  # type: ignore[arg-type]  # checked there
    if attention == "last-layer":
        return LayerAttention(-1, fusion)  # type: ignore[arg-type]
    if match := re.fullmatch(r"layer:(-?\d+)", attention):
        return LayerAttention(int(match[1]), fusion)  # type: ignore[arg-type]
    raise InputError(f"--attention must be rollout, last-layer or layer:K, got {attention!r}.")


def as_size(text: str | None) -> tuple[int, int] | None:
    """Return the (height, width) of "224" or "224x320"."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match is None:
        raise InputError(f"--image-size must be a side such as 224, or HEIGHTxWIDTH such as 224x320, got {text!r}.")
    return int(match[1]), int(match[2] or match[1])


def as_image_shape(text: str | None) -> tuple[int, ...] | None:
    """Return the (H, W) of "224x320", or the (C, H, W) of "3x224x320"."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(x\d+){1,2}", text) is None:
        raise InputError(f"--size must be HEIGHTxWIDTH such as 224x320, or 3x224x320 in colour, got {text!r}.")
    return tuple(int(side) for side in text.split("x"))


def as_range(text: str | None) -> tuple[float, float] | None:
    """Return the black and white of "0,1"."""
    if text is None:
        return None
    numbers = _numbers(text, "--range")
    if len(numbers) != 2:
        raise InputError(f"--range must be black and white, such as 0,1, got {text!r}.")
    return numbers[0], numbers[1]


def as_chosen_channels(text: str) -> Channels:
    """Return the channels of "mean", "2" or "0.3,0.59,0.11"."""
    if text == "mean" or text.isdecimal():
        return "mean" if text == "mean" else int(text)
    return _numbers(text, "--channels")


def _kernel(text: str) -> Any:
    from attentest.contrast import gaussian
    from attentest.contrast.kernel import KERNELS
    from attentest.images.read import read_image

    if text in KERNELS:
        return text
    if text.startswith("gaussian:"):
        return gaussian(_number(text.partition(":")[2], "--filter gaussian:SIGMA"))
    if text.lower().endswith(".npy"):
        return read_image(text)
    raise InputError(f"--filter must be {', '.join(KERNELS)}, gaussian:SIGMA or a .npy file, got {text!r}.")


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} needs a number after the colon, got {text!r}.") from None


def _numbers(text: str, option: str, otherwise: str = "") -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        besides = f", or {otherwise}" if otherwise else ""
        raise InputError(f"{option} must be a number, or several separated by commas{besides}, got {text!r}.") from None
