"""Pictures and tables of the guide "Choosing a noise model" (docs/choosing-noise.md).

    python benchmarks/noise_guide.py --parts tree
    python benchmarks/noise_guide.py --parts image                 # a real image: a minute
    python benchmarks/noise_guide.py --parts rates --images 2000   # rejection rates of wrong models

The pictures go to docs/figures/, the tables are printed. Needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray
from skimage import data

from attentest import AttentionTest, bundled_model, calibrate
from attentest.images.preprocessing import Preprocessing
from attentest.noise import (
    AR1Covariance,
    FromImage,
    ImageNoise,
    Isotropic,
    LocallyStationary,
    LocallyStationaryCovariance,
    NoiseModel,
    PixelVariance,
    PooledVariance,
    StationaryCovariance,
    as_noise,
)
from attentest.presentation.figure import BLUE, GREEN, GREY, SKY, VERMILION
from attentest.presentation.number_texts import number_text, with_sign
from attentest.search import SpectralSearch
from attentest.statistics.multiple_testing import Rate

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SEED = 1
SIGMA, LENGTH = 15.0, 2.0
"""True noise of the real image: standard deviation in grey levels, and length of the correlation in pixels."""

REFERENCES, FEW = 20, 3
"""Numbers of reference images."""

NULL_SIDE, NULL_LENGTH, NULL_REFERENCES = 16, 1.5, 200
"""Null images: their side, the length of their correlation, and the number of images that models are fitted to."""

TREE = (
    (
        "Is the noise known\nfrom elsewhere?",
        "yes",
        "a number:  --noise 8\nper channel:  --noise 3.1,2.9,4.0\nalong rows:  --noise 12 --rho 0.5",
    ),
    (
        "Are there other images\nof the same scene?",
        "no",
        "--noise wavelet\napproximate, and blind to correlation:\nreport it as that",
    ),
    (
        "Do they differ in\nexposure or units?",
        "yes: add",
        "attentest noise fit IMAGES\n--gain per-image",
    ),
    (
        "Is the noise stronger in\nsome parts of the image?",
        "yes",
        "--estimator locally-stationary\ndark surround: pixels without noise\nare left out by themselves",
    ),
    (
        "May neighbours be\ncorrelated?",
        "yes, or not known",
        "--estimator stationary\ndark surround:  --ignore-constant",
    ),
    (
        "Pixels are independent",
        "",
        "--estimator pooled\ndark surround:  --ignore-constant",
    ),
)
"""Decision tree: a question, the answer that leads to the right, and the choice there; the other answer goes down."""


def true_noise(side: int, sigma: float, length: float) -> LocallyStationary:
    """Return noise that is four times as strong in the corners as in the middle, and correlated over some pixels."""
    axis = np.linspace(-1, 1, side)
    field = 0.5 + 0.75 * (axis[:, None] ** 2 + axis**2)
    lags = np.arange(-48, 49)
    correlation = np.exp(-np.hypot(lags[:, None], lags) / length)
    return LocallyStationary(sigma * field / np.sqrt((field**2).mean()), correlation)


def draw_tree() -> None:
    """Draw the decision tree."""
    figure = Figure(figsize=(7.2, 7.4))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 72), ylim=(0, 74), xticks=[], yticks=[])
    ax.axis("off")
    height, left, right = 8.0, (1.5, 25.0), (40.0, 30.5)
    for place, (question, answer, choice) in enumerate(TREE):
        y = 64.5 - 11.3 * place
        _box(ax, left[0], y, left[1], height, question, SKY if answer else "#ffffff", weight="bold")
        _box(ax, right[0], y, right[1], height, choice, "#ffffff", edge=GREEN)
        _arrow(ax, (left[0] + left[1], y + height / 2), (right[0], y + height / 2))
        ax.text(33.2, y + height / 2 + 0.6, answer, ha="center", va="bottom", fontsize=8.5)
        if place + 1 < len(TREE):
            down = {"no": "yes", "yes: add": "go on"}.get(answer, "no")
            middle = left[0] + left[1] / 2
            _arrow(ax, (middle, y), (middle, y - 11.3 + height))
            ax.text(middle + 0.8, y - 1.7, down, ha="left", va="center", fontsize=8.5)
    ax.text(
        1.5,
        3.2,
        "Colour images: the same estimators.  Few images: the test allows for it, and the interval is longer.\n"
        "Then check the choice (attentest noise check) and vary it (attentest test --sensitivity).",
        fontsize=8.5,
        va="center",
    )
    figure.savefig(FIGURES / "noise-tree.png", dpi=160)


def _box(
    ax: Axes, x: float, y: float, width: float, height: float, text: str, fill: str, edge: str = BLUE, weight: str = ""
) -> None:
    ax.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=1", fc=fill, ec=edge, lw=1.3)
    )
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9, weight=weight or "normal")


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.3", "lw": 1.2, "shrinkA": 0, "shrinkB": 0})


def choices(
    truth: LocallyStationary, reference: NDArray[np.float64], few: NDArray[np.float64]
) -> dict[str, NoiseModel | ImageNoise]:
    """Return a noise model for each choice, by what it is called."""
    middle = float(truth.deviations[len(truth.deviations) // 2, len(truth.deviations) // 2])
    return {
        "the true noise": truth,
        "locally-stationary": as_noise(LocallyStationaryCovariance().fit(reference)),
        f"the same, {len(few)} images": as_noise(LocallyStationaryCovariance().fit(few)),
        "stationary": as_noise(StationaryCovariance().fit(reference)),
        "ar1": as_noise(AR1Covariance().fit(reference)),
        "pixel": as_noise(PixelVariance().fit(reference)),
        "pooled": as_noise(PooledVariance().fit(reference)),
        f"a number, {middle:.2g}": Isotropic(float(f"{middle:.2g}")),
        "sample": FromImage("sample"),
        "wavelet": FromImage("wavelet"),
    }


def draw_image() -> None:
    """Test one exposure of a photograph with each noise model; draw the picture and print the table."""
    scene = data.microaneurysms().astype(np.float64)
    side = len(scene)
    truth = true_noise(side, SIGMA, LENGTH)
    exposures = scene + truth.sample(np.random.default_rng(SEED), 1 + REFERENCES).reshape(-1, side, side)
    image, reference = exposures[0], exposures[1:]
    models = choices(truth, reference, reference[:FEW])
    # The bundled model was trained on images of mean 0; 10 is the standard deviation of the photograph itself.
    preprocessing = Preprocessing(resize=(32, 32), mean=(99.0,), std=(10.0,))

    figure = Figure(figsize=(7.2, 0.86 * (len(models) + 2) + 0.5))
    grid = figure.add_gridspec(
        len(models) + 3, 5, width_ratios=(1, 1, 1.75, 0.001, 3.4), height_ratios=[1, 1, 0.25] + [1] * len(models),
        left=0.02, right=0.98, top=0.97, bottom=0.05, hspace=0.1, wspace=0.06,
    )  # fmt: skip
    shown = [
        ("photograph", scene, "gray"),
        ("tested exposure", image, "gray"),
        (f"true noise: sd {truth.deviations.min():.0f} to {truth.deviations.max():.0f}", truth.deviations, "viridis"),
    ]
    for (title, pixels, colours), place in zip(shown, (grid[:2, :2], grid[:2, 2], grid[:2, 4]), strict=True):
        ax = figure.add_subplot(place)
        ax.imshow(pixels, cmap=colours, **({"vmin": 40, "vmax": 160} if colours == "gray" else {}))
        ax.set_title(title, fontsize=8.5, pad=3)
        ax.axis("off")

    first = None
    print("| noise model | standard error | p | estimate | 95% interval | true difference |\n|---|---|---|---|---|---|")
    for row, (name, noise) in enumerate(models.items(), start=3):
        test = AttentionTest.from_pretrained(
            bundled_model(32), noise=noise, randomise=1.0, preprocessing=preprocessing, search=SpectralSearch(tol=1e-5)
        )
        result = test(image)
        assert result.status == "converged"
        pvalue = number_text(result.pvalue, 2)
        low, high = result.confidence_interval()
        difference = scene[result.region].mean() - scene[~result.region].mean()
        numbers = [f"{result.standard_error:.2g}", pvalue, f"{result.estimate:.1f}", f"{low:.1f} to {high:.1f}"]
        print("|", " | ".join([name, *numbers, f"{difference:.1f}"]), "|")
        drawn = noise.for_image(image[None]) if isinstance(noise, ImageNoise) else noise
        sample = drawn.sample(np.random.default_rng(SEED), 1, side * side).reshape(side, side)
        for column, pixels, span in ((0, sample, (-40, 40)), (1, image, (40, 160))):
            ax = figure.add_subplot(grid[row, column])
            ax.imshow(pixels, cmap="gray", vmin=span[0], vmax=span[1])
            ax.axis("off")
            if column:
                ax.contour(result.region, [0.5], colors=VERMILION, linewidths=1)
            if row == 3:
                ax.set_title(("its noise", "region")[column], fontsize=8.5, pad=3)
        ax = figure.add_subplot(grid[row, 2])
        ax.axis("off")
        ax.text(0.04, 0.5, f"{name}\np {with_sign(pvalue)}", fontsize=8.5, va="center")
        first = ax = figure.add_subplot(grid[row, 4], sharex=first)
        inside = low <= difference <= high
        ax.plot([low, high], [0, 0], color=BLUE if inside else VERMILION, lw=4, solid_capstyle="butt")
        ax.plot(difference, 0, "D", color="black", ms=5, zorder=3)
        ax.axvline(0, color=GREY, lw=0.8)
        ax.set(ylim=(-1, 1), yticks=[])
        ax.spines[["left", "right", "top"]].set_visible(False)
        last = row == len(models) + 2
        ax.tick_params(axis="x", labelsize=7.5, labelbottom=last, length=3 * last)
        ax.spines["bottom"].set_visible(last)
        if row == 3:
            ax.set_title("95% interval; diamond: the true difference", fontsize=8.5, pad=3)
        if last:
            ax.set_xlabel("region minus the rest, grey levels", fontsize=8)
    figure.savefig(FIGURES / "noise-choices.png", dpi=160)


def draw_rates(images: int, device: str | None) -> None:
    """Count rejections of null images by tests with each noise model; draw the bars and print the table."""
    truth = true_noise(NULL_SIDE, 1.0, NULL_LENGTH)
    reference = truth.sample(np.random.default_rng(0), NULL_REFERENCES).reshape(-1, NULL_SIDE, NULL_SIDE)
    models: Mapping[str, NoiseModel | ImageNoise] = {
        "locally-stationary": as_noise(LocallyStationaryCovariance().fit(reference)),
        "stationary": as_noise(StationaryCovariance().fit(reference)),
        "ar1": as_noise(AR1Covariance().fit(reference)),
        "pixel": as_noise(PixelVariance().fit(reference)),
        "a number, 1": Isotropic(1.0),
        "sample": FromImage("sample"),
        "wavelet": FromImage("wavelet"),
        "a number, 0.5": Isotropic(0.5),
    }
    rates: dict[str, Rate] = {}
    print("| noise model | p at most 0.05 |\n|---|---|")
    for name, noise in models.items():
        test = AttentionTest.from_pretrained(
            bundled_model(),
            noise=noise,
            randomise=1.0,
            confidence_level=None,
            search=SpectralSearch(tol=1e-3),
            device=device,
        )
        (rates[name],) = calibrate(test, images, 0, true_noise=truth, alphas=(0.05,)).rates
        print(f"| {name} | {rates[name].value:.3f} ({rates[name].low:.3f} to {rates[name].high:.3f}) |", flush=True)
    draw_bars(rates)


def draw_bars(rates: Mapping[str, Rate]) -> None:
    """Draw a bar for the rejection rate of each noise model."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    ax = figure.add_subplot()
    for place, rate in enumerate(rates.values()):
        valid = rate.low <= 0.05
        ax.barh(place, rate.value, color=BLUE if valid else VERMILION, height=0.65)
        ax.plot([rate.low, rate.high], [place, place], color="black", lw=1)
        ax.text(rate.high + 0.012, place, f"{rate.value:.2f}", va="center", fontsize=8.5)
    ax.axvline(0.05, color="black", ls="--", lw=1)
    ax.text(0.055, -0.75, "0.05, as it should be", fontsize=8.5, va="center")
    ax.set_yticks(range(len(rates)), list(rates), fontsize=8.5)
    ax.set(xlim=(0, 1), ylim=(len(rates) - 0.4, -1.2))
    ax.tick_params(axis="x", labelsize=8.5)
    ax.set_xlabel("share of images of pure noise with p at most 0.05", fontsize=8.5)
    ax.spines[["right", "top"]].set_visible(False)
    figure.savefig(FIGURES / "noise-rates.png", dpi=160)


def main() -> None:
    """Read the command line and make the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="tree,image", help="any of tree, image and rates")
    parser.add_argument("--images", type=int, default=200, help="null images for each noise model")
    parser.add_argument("--device", default=None, help="where null images are tested, such as cuda")
    options = parser.parse_args()
    parts = {"tree": draw_tree, "image": draw_image, "rates": lambda: draw_rates(options.images, options.device)}
    for part in options.parts.split(","):
        parts[part]()


if __name__ == "__main__":
    main()
