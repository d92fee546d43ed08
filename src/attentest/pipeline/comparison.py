"""Two maps of one image: is the difference that one region shows another than that of the other region?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.checks import level
from attentest.errors import InputError
from attentest.images.sample import ImageLike, channels_last
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.hypotheses import lines_through, parts_of, weights_of
from attentest.pipeline.run import log_pvalues_of
from attentest.presentation.number_texts import pvalue_text
from attentest.presentation.picture import two_maps_figure
from attentest.record import ResultNumbers, interval_values, json_ready, map_title
from attentest.region.attention_map import JointMargins
from attentest.search import SearchProblem
from attentest.statistics.inference import ConfidenceInterval, confidence_intervals_of, estimates_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED_OPTIONS = ("randomise", "randomise_seed", "alternative", "channels", "confidence_level")
"""Options that both tests must have in common: they say what is compared on the image itself."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparison(ResultNumbers):
    """The difference between the differences of two regions of one image, tested given that both were chosen.

    P, bounds, statistic, estimate and confidence interval are those of (first region minus what it is compared with)
    minus (second region minus what that is compared with), in the units of the pixels.
    """

    names: tuple[str, str]
    """What each map is."""
    regions: NDArray[np.bool_]
    """(2, H, W) bool. Both regions."""
    maps: NDArray[np.float64]
    """(2, H, W). Both maps, from 0 to 1."""
    image: NDArray[np.float64]
    """(H, W) or (H, W, C). The image."""
    differences: tuple[float, float]
    """The observed difference of each region, biased away from zero, because it selected the region."""

    def __repr__(self) -> str:
        return f"Comparison({self.names[0]!r}, {self.names[1]!r}, p={self.pvalue_text()}, overlap={self.overlap:.2f})"

    @property
    def overlap(self) -> float:
        """Share of the pixels of either region that belong to both."""
        first, second = self.regions
        return float((first & second).sum() / (first | second).sum())

    @property
    def estimate(self) -> float:
        """Median-unbiased estimate of the difference between the differences."""
        return float(estimates_of([self]).best[0])

    def confidence_interval(self, confidence_level: float | None = None) -> ConfidenceInterval:
        """Return a confidence interval for it; by default at the level of the tests."""
        return confidence_intervals_of([self], self.interval_level(confidence_level))[0]

    def pvalue_text(self, digits: int = 3) -> str:
        """Return p as text; if the search did not converge, the bounds on p and the status."""
        return pvalue_text(self.pvalue, self.pvalue_bounds, self.status, digits)

    def verdict(self, alpha: float = 0.05) -> str:
        """Return in words what the p-value says at a significance level."""
        rejected = self.reject_at(level(alpha))
        first, second = self.names
        shared = f"The regions of the {first} and of the {second} share {self.overlap:.0%} of their pixels."
        p = f"(selective p {self.pvalue_text()})"
        if rejected is None:
            return f"{shared} Undecided at {alpha:g}: allow the search more evaluations {p}."
        given = (
            "It is the share of as unequal ones among images with equal differences in which both have these regions"
        )
        if rejected:
            return f"{shared} Significant at {alpha:g}: their differences are unequal {p}. {given}."
        return (
            f"{shared} Not significant at {alpha:g}: there is no evidence that their differences are unequal {p}. "
            f"{given}. This does not show that they are equal."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON-ready values."""
        interval = None if self.confidence_level is None else interval_values(self.confidence_interval())
        counts = [int(region.sum()) for region in self.regions]
        return {
            "maps": list(self.names),
            "region_pixels": counts,
            "overlap": self.overlap,
            "differences": list(self.differences),
            "difference": self.difference,
            "statistic": self.statistic,
            "pvalue": self.pvalue,
            "pvalue_bounds": list(self.pvalue_bounds),
            "naive_pvalue": self.naive_pvalue,
            "estimate": json_ready(self.estimate),
            "confidence_interval": interval,
            "status": self.status,
            "evaluations": self.evaluations,
            "settings": json_ready(dict(self.settings)),
        }

    def plot(self) -> Figure:
        """Draw both maps with both regions; needs Matplotlib (``pip install 'attentest[plots]'``)."""
        return two_maps_figure(self.image, self.maps, self.regions, self.names, f"p = {self.pvalue_text()}")


def compare(
    first: AttentionTest, second: AttentionTest, image: ImageLike | Path, *, name: str | int | None = None
) -> Comparison:
    """Test whether the regions of two maps of one image differ unequally from what they are compared with.

    Both tests may have other models, maps, classes, thresholds and contrasts; noise, randomised selection and
    alternative are the same. The test is conditional on both regions.

    Parameters
    ----------
    first, second
        Two tests.
    image
        An image that both take.
    name
        As in calling a test: the noise that randomised selection adds comes from it.
    """
    tests = (first, second)
    for part in SHARED_OPTIONS:
        values = [getattr(test.definition, part) for test in tests]
        if values[0] != values[1]:
            raise InputError(
                f"the two tests have {part} {values[0]!r} and {values[1]!r}: both must have the same.", part
            )
    if first.definition.draws > 1 or second.definition.draws > 1:
        raise InputError("two maps are compared with one draw of the added noise: use draws=1.", "draws")
    if first.pipeline.counts or second.pipeline.counts:
        raise InputError("maps of counts are not compared: give a noise model.", "noise")
    if any(test.contrast.reference is not None for test in tests):
        raise InputError("maps are not compared where the contrast has a reference image: use another contrast.")
    if first.device != second.device:
        raise InputError(f"the two tests compute on {first.device} and {second.device}: use one device.", "device")
    inputs = [test.pipeline.inputs.one(image, identity=name) for test in tests]
    if inputs[0].noise.describe() != inputs[1].noise.describe():
        raise InputError("the two tests assume different noise of the image: give both the same.", "noise")
    observations = [test.pipeline.observe([tested]) for test, tested in zip(tests, inputs, strict=True)]
    one, other = observations
    if one.images.shape != other.images.shape:
        raise InputError(
            f"the two tests take images of different shapes, {one.images.shape[1:]} and {other.images.shape[1:]}."
        )
    etas = [weights_of(test.contrast, observation) for test, observation in zip(tests, observations, strict=True)]
    if np.array_equal(etas[0], etas[1]):
        raise InputError("both maps have the same region, so that there is no difference between them to test.")
    lines = lines_through(
        one.images.reshape(1, -1),
        etas[0] - etas[1],
        [inputs[0].noise],
        added=None if one.added is None else one.added.reshape(1, -1),
        added_noise=[inputs[0].selection_noise or inputs[0].noise],
    )
    problems = [
        test.pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None, lines)[0]
        for test, observation in zip(tests, observations, strict=True)
    ]
    problem = _joint(*problems)
    (outcome,) = first.pipeline.search.find(problem)
    selectable = sum(observation.selectable for observation in observations)
    (logs,) = log_pvalues_of(problem.law, problem.alternative, [outcome], selectable, None)
    recorded = [
        test.pipeline.recorded(observation, None)[0] for test, observation in zip(tests, observations, strict=True)
    ]
    differences = [float(eta[0] @ one.images.reshape(-1)) for eta in etas]
    names = [map_title(settings) for settings in recorded]
    if names[0] == names[1]:
        names = [f"{title} of the {which} test" for title, which in zip(names, ("first", "second"), strict=True)]
    return Comparison(
        law=problem.law,
        truncation_set=outcome.truncation_set,
        standard_error=float(lines.standard_error[0]),
        alternative=problem.alternative,
        alpha=None,
        selectable=selectable,
        evaluations=outcome.evaluations,
        status=outcome.status,
        audit=outcome.audit,
        settings={**recorded[0], "compared_with": recorded[1]},
        names=(names[0], names[1]),
        regions=np.concatenate([observation.regions_on_images() for observation in observations]),
        maps=np.concatenate([observation.maps_on_images() for observation in observations]),
        image=channels_last(inputs[0].image.pixels),
        differences=(differences[0], differences[1]),
        **logs,
    )


def _joint(first: SearchProblem, second: SearchProblem) -> SearchProblem:
    """Return the search for the points of one line at which two maps have their observed regions."""
    observed = [problem.observed for problem in (first, second) if problem.observed is not None]
    spans = [values.amax() - values.amin() for values in observed]
    factor = spans[0] / spans[1]  # one error bounds those of both

    def together(of_first: Callable[..., Tensor], of_second: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda image, z: torch.cat(
            [of_first(image, z).flatten(1), factor * of_second(image, z).flatten(1)], dim=1
        )

    rough = None
    if first.rough_scores is not None and second.rough_scores is not None:
        rough = together(first.rough_scores, second.rough_scores)
    shapes = [tuple(values.shape[1:]) for values in observed]
    return replace(
        first,
        scores=together(first.scores, second.scores),
        margins=JointMargins([(first.margins, shapes[0]), (second.margins, shapes[1])]),
        batch_size=min(first.batch_size, second.batch_size),
        observed=torch.cat([observed[0].flatten(1), factor * observed[1].flatten(1)], dim=1),
        rough_scores=rough,
        rough_is_faster=first.rough_is_faster and second.rough_is_faster and rough is not None,
        exact=first.exact and second.exact,
        count=first.count + second.count,
        accelerate=first.accelerate if second.accelerate is not None else None,
    )
