"""The check of a noise model: images are compared with images drawn from it, assumption by assumption."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attentest.checks import as_generator, strictly_between_0_and_1, whole_number
from attentest.errors import InputError, counted, worded
from attentest.markup import row_table
from attentest.noise.derived import NoiseLike, as_noise
from attentest.noise.estimators import EQUAL_GAIN, NoiseEstimator
from attentest.noise.model import FitsNoise, FloatArray, NoiseModel, check_shape, complete
from attentest.noise.reference_images import ReferenceImages, reference_images
from attentest.progress import ProgressLike, progress_reports
from attentest.simulation.noise_check.assumptions import CRITERIA, Assumption, undecided, verdicts
from attentest.simulation.noise_check.measures import (
    CLIPPING,
    MeasuredNoise,
    Measures,
    ResidualImages,
    bin_edges,
    grey_step,
    on_grid,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attentest.images.sample import ImageLike

LEAST_IMAGES = 3
LEAST_REASON = "because the residuals of two images are the same up to their sign"

LEAST_SIDES = (2, 4, 4)
"""Least sides of the images in pixels, from the shortest to the longest; of images with fewer axes, the last ones."""

FEWEST, MOST = 19, 100_000  # limits of the number of simulated sets of images

FIRST = 100
"""Simulated sets of images on which all is measured, for pictures and for what is expected; on later ones, that whose
verdict is still open."""

STEP = 20
"""After every so many further sets it is asked which verdicts are still open. So many are drawn at once, if small."""

DRAWN_AT_ONCE = 2**21
"""Most values that are drawn at once, which bounds the memory of models that draw more than they return."""

SMALLEST_SHARE = 1e-6
"""Standard deviations below this share of the greatest count as this: a model may say that pixels have no noise."""

QUICK_IMAGES, QUICK_PIXELS, QUICK_SIMULATIONS = 20, 32**2, 159
"""Images, pixels in their middle, and simulations of a quick check: seconds for images of any size, and as
few simulations as adjusted p-values of 0.05 need."""

BAND = (0.025, 0.975)  # probabilities between which the bands of pictures lie


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseCheck:
    """Whether reference images agree with a noise model: a test for each assumption.

    If all assumptions hold, at least one is called broken with a probability of at most ``alpha``. This is exact for a
    noise model that was given, and approximate for one that was fitted to the same images.
    """

    assumptions: tuple[Assumption, ...]
    """The assumptions with their verdicts."""
    alpha: float
    """Probability, at most, that an assumption is called broken although all hold."""
    simulations: int
    """Number of sets of images that were drawn from the model."""
    n_images: int
    """Number of reference images."""
    shape: tuple[int, ...]
    """Channels and sides of the images."""
    noise: dict[str, Any]
    """Name and parameters of the noise model."""
    fitted_to: str | None
    """Name of the estimator if the model was fitted to the same images, else None."""
    measured: MeasuredNoise
    """What was measured, for pictures: see :meth:`plot`."""

    @property
    def passed(self) -> bool:
        """Whether no assumption is broken."""
        return all(assumption.holds for assumption in self.assumptions)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the assumptions that are broken."""
        return tuple(assumption.name for assumption in self.assumptions if not assumption.holds)

    def __getitem__(self, name: str) -> Assumption:
        """Return the assumption of a name."""
        by_name = {assumption.name: assumption for assumption in self.assumptions}
        if name not in by_name:
            raise KeyError(f"the assumptions are {', '.join(by_name)}, got {name!r}")
        return by_name[name]

    def title(self) -> str:
        """Return what was compared with what, in a line."""
        channels, *sides = self.shape
        colour = "" if channels == 1 else f" and {channels} channels"
        how = "" if self.fitted_to is None else f", fitted to them by {self.fitted_to}"
        size = f"{' x '.join(map(str, sides))} pixels{colour}"
        images = counted(self.n_images, "image")
        return self._worded(f"{images} of {size} against the noise model {self.noise.get('model', 'given')!r}{how}")

    def _worded(self, text: str) -> str:
        return worded(text, len(self.shape) - 1)

    def conclusion(self) -> str:
        """Return the verdict on the model in a sentence or two."""
        if self.passed:
            return (
                f"No assumption is broken (error rate {self.alpha:g} for all together, {self.simulations} simulations)."
            )
        return (
            f"Broken: {self._worded(', '.join(self.broken))}. If all assumptions held, at least one would be called "
            f"broken with a probability of at most {self.alpha:g}. With {self.simulations} simulations, adjusted "
            f"p-values are at least {len(self.assumptions) / (self.simulations + 1):.2g}."
        )

    def objection(self) -> str:
        """Return in a sentence which assumptions are broken, with what was found about the first; empty if none is."""
        if self.passed:
            return ""
        finding = self[self.broken[0]].finding
        clause = finding[:1].lower() + finding[1:]
        return self._worded(f"the images do not fit this noise model (broken: {', '.join(self.broken)}): {clause}")

    def summary(self) -> str:
        """Return the verdicts in words, one paragraph for each assumption."""
        lines = [f"{self.title()}.", ""]
        for assumption in self.assumptions:
            lines.append(
                f"{self._worded(assumption.name)}: {assumption.verdict} (adjusted p {assumption.adjusted_text})"
            )
            lines.append(f"    {assumption.in_words()}")
        return "\n".join([*lines, "", self.conclusion()])

    def __repr__(self) -> str:
        broken = ", ".join(self.broken) or "nothing"
        return f"NoiseCheck({self._worded(counted(self.n_images, 'image'))}, broken: {broken}, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        columns = ("assumption", "verdict", "adjusted p", "measured")
        rows = [
            (self._worded(part.name), part.verdict, part.adjusted_text, f"{part.statistic_name} {part.statistic:.3g}")
            for part in self.assumptions
        ]
        broken = [f"{self._worded(name)}: {self[name].in_words()}" for name in self.broken]
        return row_table(f"NoiseCheck: {self.title()}", columns, rows, [self.conclusion(), *broken])

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw the check on a page: quantiles, variance map, correlations, values, images, and the verdicts.

        An empty figure to draw on gets the size of the page; by default it is a new one of pyplot. Needs Matplotlib
        (``pip install 'attentest[plots]'``).
        """
        from attentest.presentation.figure import shown_figure  # here because figures are optional
        from attentest.simulation.noise_check.figure import draw

        page = shown_figure(1.0, 1.0) if figure is None else figure
        draw(page, self.title(), self.conclusion(), self.assumptions, self.measured)
        return page

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
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
        }


def noise_check(
    noise: NoiseLike,
    images: Iterable[ImageLike],
    *,
    alpha: float = 0.05,
    simulations: int = 999,
    rng: Any = 0,
    progress: ProgressLike = None,
    dimension: int | None = None,
) -> NoiseCheck:
    """Test whether independent images of the same mean agree with a noise model, assumption by assumption.

    The residuals of the images against their mean are compared with those of images drawn from the model: each
    assumption has a measure, and its p-value is the rank of the images among the drawn ones. Holm's adjustment makes
    ``alpha`` the error rate of all assumptions together. It is exact for a given model, and approximate for an
    estimator.

    Parameters
    ----------
    noise
        A noise model, of attentest or of your own, or a standard deviation. An estimator, fitted or not, is fitted to
        these images, and again to each set of drawn images, so that the error rate allows for it. A model that was
        fitted to these same images is judged too mildly if it is given as a model: give its estimator.
    images
        At least three images of one shape with at least 4 x 4 pixels: signals with 4, volumes with 2 x 4 x 4.
    alpha
        Probability, at most, that an assumption is called broken although all hold.
    simulations
        Most sets of images that are drawn from the model, at least 8 / alpha. Fewer are where no more can change a
        verdict: if nothing is conspicuous, 100 are enough.
    rng
        Random generator, or seed, of the drawn images.
    progress
        True shows a bar; a function is called with (sets drawn, their number).
    dimension
        Number of axes of the images, as in ``fit`` of the estimators.
    """
    estimator = noise if isinstance(noise, FitsNoise) and not isinstance(noise, type) else None
    if estimator is None:
        as_noise(noise)  # raises an error, before images are read
    level = strictly_between_0_and_1(alpha, "alpha")
    count = whole_number(simulations, "simulations", FEWEST, MOST)
    if (len(CRITERIA) / (count + 1)) > level:
        raise InputError(
            f"simulations must be at least {int(np.ceil(len(CRITERIA) / level)) - 1} for alpha = {level:g}, because "
            f"fewer never give an adjusted p-value as small as that, got {count}.",
            "simulations",
        )
    generator = as_generator(rng)
    with progress_reports(progress, count, "simulation", "simulating images") as report:
        reference = reference_images(images, LEAST_IMAGES, LEAST_REASON, dimension=dimension)
        _, *sides = shape = reference.mean.shape
        least = LEAST_SIDES[-len(sides) :]
        if any(side < needed for side, needed in zip(sorted(sides), least, strict=True)):
            needed, got = (" x ".join(map(str, numbers)) for numbers in (least, sides))
            raise InputError(worded(f"images must have at least {needed} pixels for a check, got {got}.", len(sides)))
        model = as_noise(noise) if estimator is None else _fitted(estimator, reference)
        check_shape(model, shape)
        values = reference.mean + reference.residuals
        step = grey_step(values)
        deviations = deviations_drawn = _deviations(model, shape)
        measures = ResidualImages(reference.residuals, deviations, values).measures()
        drawn: list[Measures] = []
        tested = {name: [numbers] for name, numbers in measures.tested.items()}
        names, variance = list(tested), np.square(reference.residuals).mean()
        for done, images_drawn in enumerate(_drawn(model, generator, reference, count)):
            if report is not None:
                report(done, count)
            if estimator is not None:
                deviations_drawn = _deviations(_fitted(estimator, images_drawn), shape)
            values_drawn = images_drawn.residuals
            if CLIPPING in names:  # as they would be without: with the variance and on the grid of the images
                factor = np.sqrt(variance / np.square(values_drawn).mean())
                values_drawn = on_grid(reference.mean + factor * values_drawn, step)
            sample = ResidualImages(images_drawn.residuals, deviations_drawn, values_drawn)
            if done < FIRST:
                drawn.append(sample.measures())
            for name in names:
                tested[name].append(drawn[done].tested[name] if done < FIRST else sample.numbers(name)[0])
            drawn_sets = done + 1
            if drawn_sets >= FIRST and drawn_sets % STEP == 0:
                names = undecided(tested, count, level)
                if not names:
                    break
        if report is not None:
            report(count, count)
    counts, edges = np.histogram(values, bins=bin_edges(*measures.value_range, step))
    return NoiseCheck(
        assumptions=verdicts(measures, drawn, level, tested),
        alpha=level,
        simulations=drawn_sets,
        n_images=reference.count,
        shape=shape,
        noise=dict(model.describe()),
        fitted_to=None if estimator is None else type(estimator).__name__,
        measured=MeasuredNoise(
            **vars(measures),
            quantile_band=np.quantile([sample.quantiles for sample in drawn], BAND, axis=0),
            variance_map=np.asarray((np.sqrt(reference.pixel_variance) / deviations).mean(axis=0)),
            model_correlation=np.mean([sample.correlation for sample in drawn], axis=0),
            scale_band=_whole_band([sample.image_scales for sample in drawn]),
            mean_band=_whole_band([sample.image_means for sample in drawn]),
            counts=counts.astype(np.float64),
            edges=edges,
        ),
    )


def quick_check(estimator: NoiseEstimator, images: Iterable[ImageLike], *, progress: ProgressLike = None) -> NoiseCheck:
    """Check how well an estimator fits the images that it was fitted to, on the middle of at most 20 of them."""
    from attentest.images.sample import Sample, as_sample  # here because torch is slow to import

    dimension = estimator.mean_.ndim - 1
    longest, middles = round(QUICK_PIXELS ** (1 / dimension)), []
    for image, gain in zip(islice(images, QUICK_IMAGES), estimator.gains_, strict=False):
        pixels = as_sample(image, dimension).pixels / gain
        starts = [max(0, side - longest) // 2 for side in pixels.shape[1:]]
        middle = (slice(None), *(slice(start, start + longest) for start in starts))
        middles.append(Sample(pixels=pixels[middle], levels=None))
    evened = copy.copy(estimator)
    evened.gain = EQUAL_GAIN  # the images have been divided by their gains
    return noise_check(evened, middles, simulations=QUICK_SIMULATIONS, progress=progress)


def _fitted(estimator: FitsNoise, reference: ReferenceImages) -> NoiseModel:
    """Return the noise model that a copy of an estimator finds in images, so that the caller's stays as it is."""
    from attentest.images.sample import Sample  # here because torch is slow to import and noise models do without

    copied = copy.deepcopy(estimator)
    copied.fit([Sample(pixels=pixels, levels=None) for pixels in reference.mean + reference.residuals])
    model = getattr(copied, "noise_", None)
    if not isinstance(model, NoiseModel):
        raise InputError(f"the noise_ of a fitted {type(estimator).__name__} must be a noise model, got {model!r:.60}.")
    return model


def _deviations(noise: NoiseModel, shape: tuple[int, ...]) -> FloatArray:
    """Return the standard deviations (C, *axes) of a noise model."""
    deviations = np.sqrt(complete(noise).variances(int(np.prod(shape)))).reshape(shape)
    return np.asarray(np.maximum(deviations, SMALLEST_SHARE * deviations.max()))


def _drawn(
    noise: NoiseModel, rng: np.random.Generator, reference: ReferenceImages, count: int
) -> Iterator[ReferenceImages]:
    """Yield sets of as many images as there are, drawn from a noise model, around the same mean."""
    size = reference.mean.size
    at_once = max(1, DRAWN_AT_ONCE // size)
    sets = min(STEP, max(1, at_once // reference.count))
    for done in range(0, count, sets):
        drawn = np.empty((min(sets, count - done) * reference.count, size))
        for start in range(0, len(drawn), at_once):
            part = drawn[start : start + at_once]
            part[:] = noise.sample(rng, len(part), size)
        for images in drawn.reshape(-1, *reference.residuals.shape):
            yield replace(reference, residuals=images - images.mean(axis=0))


def _whole_band(sets: Sequence[FloatArray]) -> FloatArray:
    """Return the band (2,) that holds all values of about 95% of sets."""
    ends = [[values.min() for values in sets], [values.max() for values in sets]]
    return np.array([np.quantile(end, share) for end, share in zip(ends, BAND, strict=True)])
