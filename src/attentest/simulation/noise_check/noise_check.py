"""The outcome of a check of a noise model: one verdict in words for each assumption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attentest.errors import counted
from attentest.markup import row_table
from attentest.noise.model import FloatArray

HOLDS, SMALL, BROKEN = "no sign against it", "found, but small", "broken"
"""What can be said about an assumption."""


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One assumption of a noise model, and what the images say about it.

    Parameters
    ----------
    name
        Its name.
    statement
        What is assumed, as a sentence.
    statistic, statistic_name
        What was measured, and what it is.
    pvalue
        Monte-Carlo p-value: the rank of the images among images drawn from the model.
    adjusted_pvalue
        The same after Holm's adjustment for all assumptions.
    verdict
        "no sign against it"; "found, but small", if the adjusted p-value is at most alpha and what was found is too
        small to change conclusions; or "broken".
    finding
        What was measured, as a sentence.
    consequence
        What it does to p-values.
    advice
        What to do, if the assumption is broken.
    """

    name: str
    statement: str
    statistic: float
    statistic_name: str
    pvalue: float
    adjusted_pvalue: float
    verdict: str
    finding: str
    consequence: str
    advice: str

    @property
    def holds(self) -> bool:
        """Whether nothing was found that matters."""
        return self.verdict != BROKEN

    def in_words(self) -> str:
        """Return what was found, what it does to p-values and what to do."""
        return " ".join(part for part in (self.finding, self.consequence, self.advice) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {
            "name": self.name,
            "statement": self.statement,
            "statistic": self.statistic,
            "statistic_name": self.statistic_name,
            "pvalue": self.pvalue,
            "adjusted_pvalue": self.adjusted_pvalue,
            "verdict": self.verdict,
            "holds": self.holds,
            "finding": self.finding,
            "consequence": self.consequence,
            "advice": self.advice,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredNoise:
    """What was measured on the images, beside what the noise model says, for pictures.

    The band of quantiles holds 95% of the sets of images drawn from the model at each point; those of images hold all
    images of 95% of the sets.

    Parameters
    ----------
    quantiles, normal_quantiles : (q,)
        Quantiles of the standardised residuals, and those of the normal distribution.
    quantile_band : (2, q)
        Band of the quantiles.
    variance_map : (H, W)
        Standard deviation of each pixel over the images divided by the model's, the mean over channels.
    correlation, model_correlation : (2P+1, 2Q+1)
        Correlation by lag, 1 in the middle: measured, and of images drawn from the model.
    image_scales, image_means : (K,)
        Standard deviation and mean of the residuals of each image, in units of the standard deviation of all.
    scale_band, mean_band : (2,)
        Bands of these.
    counts : (b,)
        Numbers of pixel values in equal parts of their range.
    edges : (b+1,)
        Ends of these parts.
    value_range
        Least and greatest pixel value.
    at_ends
        Share of the values that are exactly the least, and exactly the greatest, one.
    """

    quantiles: FloatArray
    normal_quantiles: FloatArray
    quantile_band: FloatArray
    variance_map: FloatArray
    correlation: FloatArray
    model_correlation: FloatArray
    image_scales: FloatArray
    scale_band: FloatArray
    image_means: FloatArray
    mean_band: FloatArray
    counts: FloatArray
    edges: FloatArray
    value_range: tuple[float, float]
    at_ends: tuple[float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseCheck:
    """Whether reference images agree with a noise model: a test for each assumption.

    If all assumptions hold, at least one is called broken with a probability of at most ``alpha``. This is exact for a
    noise model that was given, and approximate for one that was fitted to the same images.

    Parameters
    ----------
    assumptions
        The assumptions with their verdicts.
    alpha
        Probability, at most, that an assumption is called broken although all hold.
    simulations
        Number of sets of images that were drawn from the model.
    n_images
        Number of reference images.
    shape
        Channels, height and width of the images.
    noise
        Name and parameters of the noise model.
    fitted_to
        Name of the estimator if the model was fitted to the same images, else None.
    measured
        What was measured, for pictures: see ``attentest.plot_noise_check``.
    """

    assumptions: tuple[Assumption, ...]
    alpha: float
    simulations: int
    n_images: int
    shape: tuple[int, int, int]
    noise: dict[str, Any]
    fitted_to: str | None
    measured: MeasuredNoise

    @property
    def passed(self) -> bool:
        """Whether no assumption is broken."""
        return all(one.holds for one in self.assumptions)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the assumptions that are broken."""
        return tuple(one.name for one in self.assumptions if not one.holds)

    def __getitem__(self, name: str) -> Assumption:
        """Return the assumption of a name."""
        by_name = {one.name: one for one in self.assumptions}
        if name not in by_name:
            raise KeyError(f"the assumptions are {', '.join(by_name)}, got {name!r}")
        return by_name[name]

    def title(self) -> str:
        """Return what was compared with what, in a line."""
        channels, height, width = self.shape
        colour = "" if channels == 1 else f" and {channels} channels"
        how = "" if self.fitted_to is None else f", fitted to them by {self.fitted_to}"
        size = f"{height} x {width} pixels{colour}"
        images = counted(self.n_images, "image")
        return f"{images} of {size} against the noise model {self.noise.get('model', 'given')!r}{how}"

    def conclusion(self) -> str:
        """Return the verdict on the model in a sentence or two."""
        if self.passed:
            return (
                f"No assumption is broken (error rate {self.alpha:g} for all together, {self.simulations} simulations)."
            )
        return (
            f"Broken: {', '.join(self.broken)}. If all assumptions held, at least one would be called broken with a "
            f"probability of at most {self.alpha:g}. With {self.simulations} simulations, adjusted p-values are at "
            f"least {len(self.assumptions) / (self.simulations + 1):.2g}."
        )

    def summary(self) -> str:
        """Return the verdicts in words, one paragraph for each assumption."""
        lines = [f"{self.title()}.", ""]
        for one in self.assumptions:
            lines.append(f"{one.name}: {one.verdict} (adjusted p {one.adjusted_pvalue:.3g})")
            lines.append(f"    {one.in_words()}")
        return "\n".join([*lines, "", self.conclusion()])

    def __repr__(self) -> str:
        found = ", ".join(self.broken) or "nothing"
        return f"NoiseCheck({counted(self.n_images, 'image')}, broken: {found}, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        columns = ("assumption", "verdict", "adjusted p", "measured")
        rows = [
            (one.name, one.verdict, f"{one.adjusted_pvalue:.3g}", f"{one.statistic_name} {one.statistic:.3g}")
            for one in self.assumptions
        ]
        told = [f"{one.name}: {one.in_words()}" for one in self.assumptions if not one.holds]
        return row_table(f"NoiseCheck: {self.title()}", columns, rows, [self.conclusion(), *told])

    def to_dict(self) -> dict[str, Any]:
        """Return the verdicts and numbers as JSON-ready values, without the arrays for pictures."""
        return {
            "passed": self.passed,
            "broken": list(self.broken),
            "alpha": self.alpha,
            "simulations": self.simulations,
            "images": self.n_images,
            "shape": list(self.shape),
            "noise": self.noise,
            "fitted_to": self.fitted_to,
            "assumptions": [one.to_dict() for one in self.assumptions],
        }
