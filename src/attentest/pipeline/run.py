"""From a batch of images to their results, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ScoreFunction, ScoreProperties
from attentest.attention.cuda_graph import GraphedFunction
from attentest.contrast import Contrast
from attentest.images.sample import channels_last, stacked
from attentest.noise import ImageNoise, NoiseModel
from attentest.noise.implausible import noise_doubts
from attentest.pipeline.geometry import Geometry
from attentest.pipeline.hypotheses import ImageData, Lines, Parts, lines_of, parts_of, seeds_of
from attentest.pipeline.inputs import Input, Randomisation
from attentest.pipeline.observation import Observation, observe
from attentest.region import RegionRule
from attentest.results.compared_part import ComparedParts, certified, results_of
from attentest.results.result import AttentionTestResult
from attentest.search import Certification, Report, Search, SearchProblem
from attentest.statistics.alternative import Alternative
from attentest.statistics.law import Law
from attentest.statistics.multiple_testing import level_of_each
from attentest.statistics.randomised_law import MOST_DEGREES as MOST_RANDOMISED_DEGREES
from attentest.statistics.randomised_law import RandomisedNormal, RandomisedStudent
from attentest.statistics.truncated_law import MOST_DEGREES, TruncatedNormal, TruncatedStudent

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Pipeline:
    """The parts of a test, in the order in which an image passes them.

    Parameters
    ----------
    scores, properties
        The model, and its optional attributes.
    rule
        How an attention map becomes a region.
    contrast
        What the region is compared with.
    noise
        Noise model, or an estimator that makes one from each image.
    randomisation
        How images are randomised before the model sees them, if they are.
    search
        How truncation sets are found.
    alternative
        Which statistics are at least as extreme as the observed one.
    confidence_level
        Level of the confidence interval that the search goes for; None for p alone.
    memory
        Bytes that the model and the search may use together.
    settings
        Record of how the test is made, for results, JSON-ready.
    """

    scores: ScoreFunction
    properties: ScoreProperties
    rule: RegionRule
    contrast: Contrast
    noise: NoiseModel | ImageNoise
    randomisation: Randomisation | None
    search: Search
    alternative: Alternative
    confidence_level: float | None
    memory: int
    settings: dict[str, Any]

    def observe(self, images: NDArray[np.float64], geometry: Geometry, first_number: int | None = None) -> Observation:
        """Return the model output for images (k, C, H, W); error messages count from ``first_number``."""
        return observe(images, geometry, self.scores, self.properties.covered, self.rule, first_number)

    def statistics(self, images: NDArray[np.float64], geometry: Geometry) -> NDArray[np.float64]:
        """Return the statistics (k,) of images (k, C, H, W) without a reference, each with the region of its own."""
        observation = self.observe(images, geometry)
        own = self.noise
        noise = [own.for_image(i) for i in images] if isinstance(own, ImageNoise) else [own] * len(images)
        data = ImageData(
            images=images,
            noise=noise,
            seen=observation.patch_grid.seen.numpy(),
            channel_weights=geometry.channel_weights,
        )
        return lines_of(data, parts_of(observation.regions_on_images(), None), self.contrast).statistic

    def run(
        self,
        inputs: Sequence[Input],
        *,
        first_number: int | None = None,
        alpha: float | None = None,
        connectivity: int | None = None,
        certification: Certification | None = None,
        report: Report | None = None,
    ) -> list[list[AttentionTestResult]]:
        """Return the results of images of one geometry: one per image, or one per component of its region.

        Parameters
        ----------
        inputs
            The images.
        first_number
            Number of the first image in error messages; None for a single image.
        alpha
            Level at which to decide, if p itself is not needed.
        connectivity
            1 or 2 to test the connected components of each region; None to test it as a whole.
        certification
            How to certify the results, if they are to be.
        report
            Called with the fraction that is done.
        """
        geometry = inputs[0].geometry
        observation, data = self._observed(inputs, first_number)
        parts = parts_of(observation.regions_on_images(), connectivity)
        regions, maps = _each_its_own(parts.regions), _each_its_own(observation.maps_on_images())
        kept_images = [channels_last(each.image.pixels) for each in inputs]
        randomised: list[NDArray[np.float64]] | list[None] = [None] * len(inputs)
        settings = self._recorded(inputs, data.images, connectivity)
        # As many parts at a time as there are images, which fit in memory; of components there may be many more.
        chunks = list(parts.chunks(len(inputs)))
        by_image: list[list[AttentionTestResult]] = [[] for _ in inputs]
        for number, chunk in enumerate(chunks):
            lines = lines_of(data, chunk, self.contrast)
            law, standard_error = self._law(lines), lines.standard_error
            direction = self._direction(lines, geometry)
            del lines  # of the size of the images, while the search only needs that of the model's inputs
            if data.added is not None and number == 0:
                randomised = [channels_last(data.seen_image(i)) for i in range(len(inputs))]
            seeds = seeds_of(data, chunk)
            problem = self._problem(observation, chunk, direction, law, first_number, alpha, seeds)

            def progress(share: float, done: int = number) -> None:
                if report is not None:
                    report((done + share) / len(chunks))

            search_share = 1.0 if certification is None else SEARCH_SHARE
            outcomes = self.search.find(problem, _between(0.0, search_share, progress))
            images, masks = chunk.image.tolist(), None if connectivity is None else chunk.masks()
            compared = ComparedParts(
                region=[regions[image] for image in images],
                part=[regions[image] if masks is None else masks[row].copy() for row, image in enumerate(images)],
                image=[kept_images[image] for image in images],
                attention=[maps[image] for image in images],
                randomised_image=[randomised[image] for image in images],
                settings=[settings[image] for image in images],
                standard_error=standard_error.tolist(),
                seen=data.seen,
                selectable=observation.selectable,
            )
            results = results_of(
                law,
                outcomes,
                compared,
                alternative=self.alternative,
                alpha=alpha,
                connectivity=connectivity,
            )
            if certification is not None:
                # It certifies the search, with the noise model as it is: how that was estimated is left aside.
                known = replace(problem, law=law.with_known_error())
                draws = certification.draw(known, _between(search_share, 1.0, progress))
                results = [certified(result, own, certification) for result, own in zip(results, draws, strict=True)]
            for image, result in zip(images, results, strict=True):
                by_image[image].append(result)
        return by_image

    def margins(self, given: Input, distances: NDArray[np.float64]) -> MarginCurves:
        """Return the margins f_i of one image along its line, at distances (m,) from the observed point of it."""
        observation, data = self._observed([given], None)
        parts = parts_of(observation.regions_on_images(), None)
        lines = lines_of(data, parts, self.contrast)
        law, direction = self._law(lines), self._direction(lines, given.geometry)
        problem = self._problem(observation, parts, direction, law, None, None, seeds_of(data, parts))
        z = float(law.z_obs[0]) + distances
        batches = [z[start : start + problem.batch_size] for start in range(0, len(z), problem.batch_size)]
        found = [problem.margins_at(np.zeros(len(some), dtype=np.int64), some).cpu().numpy() for some in batches]
        return MarginCurves(
            z=z,
            values=np.concatenate(found),
            inside=observation.regions[0].flatten().cpu().numpy(),
            observed=float(law.z_obs[0]),
            units=observation.patch_grid.units,
        )

    def _observed(self, inputs: Sequence[Input], first_number: int | None) -> tuple[Observation, ImageData]:
        """Return the model output for images, after randomisation if there is one, and what hypotheses need."""
        images = stacked([each.image.pixels for each in inputs])
        added = None if self.randomisation is None else self.randomisation.added(inputs)
        seen_images = images if added is None else images + added
        observation = self.observe(seen_images, inputs[0].geometry, first_number)
        return observation, _image_data(inputs, images, added, observation)

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
        self,
        observation: Observation,
        parts: Parts,
        direction: Tensor,
        law: Law,
        first_number: int | None,
        alpha: float | None,
        seeds: NDArray[np.uint64],
    ) -> SearchProblem:
        """Return the search for the truncation sets of parts along their lines."""
        if parts.labels is not None:
            observation = observation.chosen(parts.image)
        device = self.scores.device
        origin = torch.from_numpy(law.z_obs).to(device)
        rough = self.properties.rough
        return SearchProblem(
            law=law,
            scores=observation.along(self.scores, direction, origin),
            margins=self.rule.margins(observation.regions, observation.patch_grid),
            device=device,
            batch_size=self.scores.batch_size,
            image_numbers=None if first_number is None else first_number + parts.image,
            alternative=self.alternative,
            alpha=alpha,
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

    def _levels(self, parts: Parts) -> NDArray[np.float64] | None:
        """Return the levels (r,) of the intervals that the search of parts goes for.

        Components have simultaneous intervals, whose level is higher the more of them a region has.
        """
        if self.confidence_level is None:
            return None
        return np.array([level_of_each(self.confidence_level, int(count)) for count in parts.siblings()])

    def _recorded(
        self, inputs: Sequence[Input], images: NDArray[np.float64], connectivity: int | None
    ) -> list[dict[str, Any]]:
        """Return how each of images (k, C, H, W) is tested."""
        doubts = noise_doubts(images, [each.noise for each in inputs])
        keys = [(id(each.noise), doubt, each.noisy_reference) for each, doubt in zip(inputs, doubts, strict=True)]
        records: dict[tuple[int, str | None, str | None], dict[str, Any]] = {}
        for key, each in zip(keys, inputs, strict=True):
            if key not in records:
                _, doubt, reference = key
                own = {"noise": dict(each.noise.describe()), "noise_doubt": doubt, "noisy_reference": reference}
                records[key] = {**self.settings, "components": connectivity, **own}
        # Each result has a record of its own, which a user may change.
        return [{**records[key], "noise": dict(records[key]["noise"])} for key in keys]


def _between(start: float, end: float, report: Report) -> Report:
    """Return a report of a part of the work, from one share of the whole to another."""
    return lambda share: report(start + share * (end - start))


def _image_data(
    inputs: Sequence[Input],
    images: NDArray[np.float64],
    added: NDArray[np.float64] | None,
    observation: Observation,
) -> ImageData:
    references = [each.reference.pixels for each in inputs if each.reference is not None]
    return ImageData(
        images=images,
        noise=[each.noise for each in inputs],
        seen=observation.patch_grid.seen.numpy(),
        channel_weights=inputs[0].geometry.channel_weights,
        references=stacked(references) if references else None,
        reference_noise=[each.reference_noise for each in inputs if each.reference_noise is not None],
        added=added,
        added_noise=[each.selection_noise or each.noise for each in inputs],
    )


def _each_its_own(arrays: NDArray[Scalar]) -> list[NDArray[Scalar]]:
    """Return arrays one by one, as copies if there are several, so that keeping one does not keep the whole batch."""
    return list(arrays) if len(arrays) == 1 else [array.copy() for array in arrays]
