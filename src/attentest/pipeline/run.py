"""From a batch of images to their results, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ScoreFunction, ScoreProperties, score_properties
from attentest.attention.cuda_graph import GraphedFunction
from attentest.attention.device import default_memory
from attentest.checks import strictly_between_0_and_1
from attentest.contrast import Contrast, as_connectivity
from attentest.definition import Definition
from attentest.errors import InputError, SearchError
from attentest.images.sample import channels_last
from attentest.noise.implausible import noise_doubts
from attentest.pipeline.geometry import Geometries, Geometry, contrast_of
from attentest.pipeline.hypotheses import Lines, Parts, lines_of, parts_of, seeds_of
from attentest.pipeline.inputs import Input, Inputs, Randomisation, randomisation_of
from attentest.pipeline.observation import Observation, observe
from attentest.region import RegionRule, as_region_rule
from attentest.results.certificate import Certificate
from attentest.results.result import AttentionTestResult, corrected_for_all_regions
from attentest.search import Certification, ExchangeableDraws, Report, Search, SearchOutcome, SearchProblem, as_search
from attentest.statistics.law import Law
from attentest.statistics.multiple_testing import level_of_each
from attentest.statistics.pvalue import log_pvalues, naive_log_pvalue
from attentest.statistics.randomised_law import MOST_DEGREES as MOST_RANDOMISED_DEGREES
from attentest.statistics.randomised_law import RandomisedNormal, RandomisedStudent
from attentest.statistics.truncated_law import MOST_DEGREES, TruncatedNormal, TruncatedStudent
from attentest.statistics.truncation_set import Unions

Scalar = TypeVar("Scalar", bound=np.generic)

SEARCH_SHARE = 0.05
"""Share of the progress that the search stands for where results are certified too, which takes most of the time."""


class MarginCurves(NamedTuple):
    """The margins f_i of one image along its line: at z it has the observed region where none is positive."""

    z: NDArray[np.float64]  # (m,)
    values: NDArray[np.float64]  # (m, n)
    inside: NDArray[np.bool_]  # (n,), whether a pixel or whole patch is in the observed region
    observed: float  # the observed z
    units: str  # what the n are: "pixels" or "patches"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked about each image.

    Parameters
    ----------
    decide_at
        Level at which to decide, if p itself is not needed.
    connectivity
        1 or 2 to test the connected components of each region; None to test it as a whole.
    certification
        How to certify the results, if they are to be.
    """

    decide_at: float | None = None
    connectivity: int | None = None
    certification: Certification | None = None

    def __post_init__(self) -> None:
        if self.decide_at is not None:
            object.__setattr__(self, "decide_at", strictly_between_0_and_1(self.decide_at, "decide_at"))
        if self.connectivity is not None:
            object.__setattr__(self, "connectivity", as_connectivity(self.connectivity))
        if self.certification is not None and not isinstance(self.certification, Certification):
            raise InputError(f"certification must be Certification(draws=99, ...) or None, got {self.certification!r}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pipeline:
    """A test at work: the parts that its definition names, in the order in which an image passes them.

    Parameters
    ----------
    definition
        The test.
    scores
        The model.
    """

    definition: Definition
    scores: ScoreFunction

    @cached_property
    def properties(self) -> ScoreProperties:
        """Optional attributes of the model."""
        return score_properties(self.scores)

    @cached_property
    def inputs(self) -> Inputs:
        """Makes inputs of images."""
        return Inputs(definition=self.definition, geometries=Geometries(self.definition, self.scores))

    @cached_property
    def rule(self) -> RegionRule:
        """How an attention map becomes a region."""
        return as_region_rule(self.definition.threshold, self.definition.top_fraction)

    @cached_property
    def contrast(self) -> Contrast:
        """What the region is compared with."""
        return contrast_of(self.definition)

    @cached_property
    def randomisation(self) -> Randomisation | None:
        """How images are randomised before the model sees them, if they are."""
        return randomisation_of(self.definition)

    @cached_property
    def search(self) -> Search:
        """How truncation sets are found."""
        return as_search(self.definition.search)

    @cached_property
    def memory(self) -> int:
        """Bytes that the model and the search may use together."""
        budget = self.definition.memory_budget
        return default_memory(self.scores.device) if budget is None else budget

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Record of how the test is made, for results, JSON-ready."""
        return {**self.definition.describe(), "model": self.properties.description}

    def check(self) -> None:
        """Raise an error if the parts of the test do not fit each other, as far as that is known before images are."""
        _ = self.properties, self.rule, self.inputs

    def observe(self, batch: Sequence[Input], first_number: int | None = None) -> Observation:
        """Return the model output for images, as it is in a test; error messages count from ``first_number``."""
        return observe(batch, self.scores, self.properties.covered, self.rule, self.randomisation, first_number)

    def statistics(self, batch: Sequence[Input]) -> NDArray[np.float64]:
        """Return the statistics (k,) of images, each with the region of its own."""
        observation = self.observe(batch)
        return lines_of(observation, parts_of(observation.regions_on_images(), None), self.contrast).statistic

    def run(
        self,
        inputs: Sequence[Input],
        request: Request,
        first_number: int | None = None,
        report: Report | None = None,
    ) -> list[list[AttentionTestResult]]:
        """Return the results of images of one geometry: one per image, or one per component of its region.

        Parameters
        ----------
        inputs
            The images.
        request
            What is asked about each of them.
        first_number
            Number of the first image in error messages; None for a single image.
        report
            Called with the fraction that is done.
        """
        connectivity, certification = request.connectivity, request.certification
        observation = self.observe(inputs, first_number)
        parts = parts_of(observation.regions_on_images(), connectivity)
        images = [channels_last(tested.image.pixels) for tested in inputs]
        maps, regions = _copies(observation.maps_on_images()), _copies(parts.regions)
        randomised: list[NDArray[np.float64]] | list[None] = [None] * len(inputs)
        settings = self._recorded(observation, connectivity)
        # As many parts at a time as there are images, which fit in memory; of components there may be many more.
        chunks = list(parts.chunks(len(inputs)))
        results: list[list[AttentionTestResult]] = [[] for _ in inputs]
        for number, chunk in enumerate(chunks):
            problem, standard_errors = self._problem(observation, chunk, first_number, request.decide_at)
            if observation.added is not None and number == 0:
                randomised = [channels_last(observation.seen_image(i)) for i in range(len(inputs))]

            def progress(share: float, done: int = number) -> None:
                if report is not None:
                    report((done + share) / len(chunks))

            search_share = 1.0 if certification is None else SEARCH_SHARE
            outcomes = self.search.find(problem, _between(0.0, search_share, progress))
            draws: Sequence[ExchangeableDraws | None] = [None] * len(chunk)
            if certification is not None:
                # It certifies the search, with the noise model as it is: how that was estimated is left aside.
                known = replace(problem, law=problem.law.with_known_error())
                draws = certification.draw(known, _between(search_share, 1.0, progress))
            logs = _log_pvalues(problem, outcomes, observation.selectable, connectivity)
            masks = None if connectivity is None else chunk.masks()
            for row, (image, law, outcome) in enumerate(
                zip(chunk.image.tolist(), problem.law.each(), outcomes, strict=True)
            ):
                result = AttentionTestResult(
                    law=law,
                    standard_error=standard_errors[row],
                    region=regions[image],
                    part=regions[image] if masks is None else masks[row].copy(),
                    image=images[image],
                    attention=maps[image],
                    seen=observation.seen,
                    selectable=observation.selectable,
                    truncation_set=outcome.truncation_set,
                    alternative=self.definition.alternative,
                    alpha=request.decide_at,
                    evaluations=outcome.evaluations,
                    status=outcome.status,
                    settings=settings[image],
                    audit=outcome.audit,
                    randomised_image=randomised[image],
                    **logs[row],
                )
                drawn = draws[row]
                if drawn is not None and certification is not None:
                    result = replace(result, certificate=_certificate(result, drawn, certification))
                results[image].append(result)
        for result in chain.from_iterable(results):
            arrays = (result.seen, result.region, result.part, result.attention, result.image, result.randomised_image)
            for array in (*arrays, *vars(result.truncation_set).values()):
                if array is not None:
                    array.setflags(write=False)
        return results

    def margins(self, tested: Input, distances: NDArray[np.float64]) -> MarginCurves:
        """Return the margins f_i of one image along its line, at distances (m,) from the observed point of it."""
        observation = self.observe([tested])
        problem, _ = self._problem(observation, parts_of(observation.regions_on_images(), None), None, None)
        observed = float(problem.law.z_obs[0])
        z = observed + distances
        batches = [z[start : start + problem.batch_size] for start in range(0, len(z), problem.batch_size)]
        values = [problem.margins_at(np.zeros(len(batch), dtype=np.int64), batch).cpu().numpy() for batch in batches]
        return MarginCurves(
            z=z,
            values=np.concatenate(values),
            inside=observation.regions[0].flatten().cpu().numpy(),
            observed=observed,
            units=observation.patch_grid.units,
        )

    def _law(self, lines: Lines) -> Law:
        """Return the law of the statistics of lines."""
        statistic, estimated = lines.statistic, np.minimum(lines.degrees, MOST_DEGREES)
        if self.randomisation is None:
            if np.all(np.isinf(lines.degrees)):
                return TruncatedNormal(statistic=statistic)
            return TruncatedStudent(statistic=statistic, degrees=estimated)
        gamma = self.randomisation.gamma / np.sqrt(lines.own_share)
        known = RandomisedNormal(statistic=statistic, observed_z=lines.z_obs, gamma=gamma)
        if np.all(lines.degrees > MOST_RANDOMISED_DEGREES):
            return known
        return RandomisedStudent(statistic=statistic, observed_z=lines.z_obs, gamma=gamma, degrees=estimated)

    def _direction(self, lines: Lines, geometry: Geometry) -> Tensor:
        """Return the directions (r, C, h, w) of lines in the model's inputs.

        The map from image to input is affine, so a line through an image is a line through its input.
        """
        covariance_eta, scale = (
            torch.from_numpy(values).to(self.scores.device) for values in (lines.covariance_eta, lines.standard_error)
        )
        return geometry.inputs.linear(covariance_eta.unflatten(1, geometry.shape)) / scale[:, None, None, None]

    def _problem(
        self, observation: Observation, parts: Parts, first_number: int | None, decide_at: float | None
    ) -> tuple[SearchProblem, list[float]]:
        """Return the search for the truncation sets of parts along their lines, and the standard errors (r,)."""
        lines = lines_of(observation, parts, self.contrast)
        law, standard_errors = self._law(lines), lines.standard_error.tolist()
        direction = self._direction(lines, observation.batch[0].geometry)
        del lines  # of the size of the images, while the search only needs that of the model's inputs
        seeds = seeds_of(observation, parts)
        if parts.labels is not None:
            observation = observation.chosen(parts.image)
        device = self.scores.device
        origin = torch.from_numpy(law.z_obs).to(device)
        rough = self.properties.rough
        problem = SearchProblem(
            law=law,
            scores=observation.along(self.scores, direction, origin),
            margins=self.rule.margins(observation.regions, observation.patch_grid),
            device=device,
            batch_size=self.scores.batch_size,
            image_numbers=None if first_number is None else first_number + parts.image,
            alternative=self.definition.alternative,
            alpha=decide_at,
            confidence_level=self._levels(parts),
            observed=observation.scores,
            rough_scores=None if rough is None else observation.along(rough, direction, origin),
            rough_is_faster=self.properties.rough_is_faster,
            exact=self.properties.exact,
            memory=self.memory // 2,
            count=observation.selectable,
            # A function of the caller's may wait for the device, which a graph cannot capture.
            accelerate=GraphedFunction if self.properties.exact and device.type == "cuda" else None,
            seeds=seeds,
        )
        return problem, standard_errors

    def _levels(self, parts: Parts) -> NDArray[np.float64] | None:
        """Return the levels (r,) of the intervals that the search of parts goes for.

        Components have simultaneous intervals, whose level is higher the more of them a region has.
        """
        level = self.definition.confidence_level
        return None if level is None else np.array([level_of_each(level, int(count)) for count in parts.siblings()])

    def _recorded(self, observation: Observation, connectivity: int | None) -> list[dict[str, Any]]:
        """Return how each image is tested."""
        batch = observation.batch
        doubts = noise_doubts(observation.images, [tested.noise for tested in batch])
        keys = [(id(tested.noise), doubt, tested.noisy_reference) for tested, doubt in zip(batch, doubts, strict=True)]
        records: dict[tuple[int, str | None, str | None], dict[str, Any]] = {}
        for key, tested in zip(keys, batch, strict=True):
            if key not in records:
                _, doubt, reference = key
                of_image = {"noise": dict(tested.noise.describe()), "noise_doubt": doubt, "noisy_reference": reference}
                records[key] = {**self.settings, "components": connectivity, **of_image}
        # Each result has a record of its own, which a user may change.
        return [{**records[key], "noise": dict(records[key]["noise"])} for key in keys]


def _between(start: float, end: float, report: Report) -> Report:
    """Return a report of a part of the work, from one share of the whole to another."""
    return lambda share: report(start + share * (end - start))


def _log_pvalues(
    problem: SearchProblem, outcomes: Sequence[SearchOutcome], selectable: int, connectivity: int | None
) -> list[dict[str, Any]]:
    """Return the logarithms of the p-values of each part, selective with bounds, naive and corrected, by name."""
    law, alternative = problem.law, problem.alternative
    sets = [outcome.truncation_set for outcome in outcomes]
    inside = Unions.of([known.intervals for known in sets]).contain(law.z_obs)
    if not inside.all():
        raise SearchError(
            f"the search returned a truncation set without the observed statistic {law.z_obs[~inside][0]:.17g}, "
            "which lies in it by definition: the search is at fault."
        )
    best, low, high = (log.tolist() for log in log_pvalues(law, sets, alternative))
    naive = naive_log_pvalue(law.statistic, alternative)
    corrected = corrected_for_all_regions(naive, selectable, connectivity)
    return [
        {
            "log_pvalue": best[row],
            "log_pvalue_bounds": (low[row], high[row]),
            "naive_log_pvalue": float(naive[row]),
            "bonferroni_log_pvalue": float(corrected[row]),
        }
        for row in range(len(outcomes))
    ]


def _certificate(result: AttentionTestResult, draws: ExchangeableDraws, certification: Certification) -> Certificate:
    """Return the certificate of a result.

    The draws are of the law with a known standard error, and so are the bounds on p that they are compared with.
    """
    draws.statistics.setflags(write=False)
    return Certificate(
        observed=result.statistic,
        statistics=draws.statistics,
        alternative=result.alternative,
        pvalue_bounds=result.with_known_noise().pvalue_bounds,
        moved=draws.moved,
        steps=certification.steps,
        seed=certification.seed,
        evaluations=draws.evaluations,
    )


def _copies(arrays: NDArray[Scalar]) -> list[NDArray[Scalar]]:
    """Return arrays one by one, as copies if there are several, so that keeping one does not keep the whole batch."""
    return list(arrays) if len(arrays) == 1 else [array.copy() for array in arrays]
