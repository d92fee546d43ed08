"""From a batch of images to their results, in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ScoreFunction
from attentest.attention.device import GraphedFunction, default_memory
from attentest.attention.score_function import score_properties
from attentest.checks import strictly_between_0_and_1
from attentest.contrast.context import ComparedRegion
from attentest.contrast.contrast import as_connectivity
from attentest.definition import REGION_RULES, Definition
from attentest.errors import InputError, SearchError
from attentest.images.sample import channels_last
from attentest.noise import Poisson
from attentest.noise.implausible import noise_doubts
from attentest.pipeline.hypotheses import (
    COUNTED,
    Lines,
    Parts,
    UntestedParts,
    check_counted,
    law_of_counts,
    lines_of,
    parts_of,
    seeds_of,
)
from attentest.pipeline.inputs import ARRAYS_PER_IMAGE, Input, Inputs
from attentest.pipeline.observation import Observation, expanded, observe
from attentest.region.rule import as_region_rule
from attentest.results.certificate import Certificate
from attentest.results.result import AttentionTestResult, corrected_for_all_regions
from attentest.runs.engine import FailedImage
from attentest.search import (
    CONVERGED,
    DECIDED,
    Certification,
    PiecewiseSearch,
    Report,
    Search,
    SearchOutcome,
    SearchProblem,
    SpectralSearch,
    as_search,
)
from attentest.search.breakpoints import Breakpoints, followed_along_lines
from attentest.search.certification import ExchangeableDraws
from attentest.statistics.alternative import Alternative
from attentest.statistics.draws import (
    Draw,
    combined_bounds,
    combined_logs,
    deciding_draw,
    level_of_each_draw,
    rank_of,
    share_of_each,
)
from attentest.statistics.law import Law
from attentest.statistics.multiple_testing import level_of_each
from attentest.statistics.pvalue import decision, log_pvalues, naive_log_pvalues
from attentest.statistics.selection_laws import (
    MOST_DEGREES,
    MOST_RANDOMISED_DEGREES,
    RandomisedNormal,
    RandomisedStudent,
    TruncatedNormal,
    TruncatedStudent,
)
from attentest.statistics.truncation_set import Unions

Scalar = TypeVar("Scalar", bound=np.generic)

SEARCH_SHARE = 0.05
"""Share of the progress that the search stands for where results are certified too, which takes most of the time."""


class MarginCurves(NamedTuple):
    """The margins f_i of one image along its line: at z it has the observed region where none is positive."""

    z: NDArray[np.float64]  # (m,)
    values: NDArray[np.float64]  # (m, n), and after them those of other conditions, such as the predicted class
    inside: NDArray[np.bool_]  # (n,), whether a pixel or whole patch is in the observed region
    observed: float  # the observed z
    units: str  # what the n are: "pixels" or "patches"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked about each image."""

    decide_at: float | None = None
    """Level at which to decide, if p itself is not needed."""
    connectivity: int | None = None
    """From 1 to the number of axes, to test the connected components of each region; None to test it as a whole."""
    certification: Certification | None = None
    """How to certify the results, if they are to be."""

    def __post_init__(self) -> None:
        if self.decide_at is not None:
            object.__setattr__(self, "decide_at", strictly_between_0_and_1(self.decide_at, "decide_at"))
        if self.certification is not None and not isinstance(self.certification, Certification):
            raise InputError(f"certification must be Certification(draws=99, ...) or None, got {self.certification!r}.")


class Pipeline:
    """A test at work: the model and the parts that its definition names, in the order in which an image passes them.

    Parts that do not fit each other raise an error, as far as that is known before images are.
    """

    def __init__(self, definition: Definition, scores: ScoreFunction) -> None:
        self.definition, self.scores = definition, scores
        self.properties = score_properties(scores)  # optional attributes of the model
        self.rule = as_region_rule(**{name: getattr(definition, name) for name in REGION_RULES})  # from maps to regions
        self.inputs = Inputs(definition, scores, self.properties)  # makes inputs of images
        self.contrast = self.inputs.contrast  # what the region is compared with
        self.search = self._search()  # how truncation sets are found
        self.counts = isinstance(definition.noise, Poisson)  # whether there are none, because counts are tested
        if self.counts:
            check_counted(self.contrast)

    def _search(self) -> Search:
        """Return the search of the definition, or that of networks with kinks, where it is for them."""
        asked = as_search(self.definition.search)
        if not isinstance(asked, SpectralSearch) or not self.properties.kinks:
            return asked
        seen = self.along_lines
        # A gradient jumps at the kinks of its network, which no polynomial follows.
        if seen.kind != "linear in pieces" and not (seen.kind == "smooth in pieces" and seen.torn):
            return asked
        if asked.strict:
            raise InputError(
                "strict lets the spectral search look more closely, but this network is searched piece by piece, each "
                "as a whole: leave it out.",
                "strict",
            )
        usual = asked.max_evaluations == SpectralSearch.max_evaluations  # a piece is much narrower than an interpolant
        most = PiecewiseSearch.max_evaluations if usual else asked.max_evaluations
        return PiecewiseSearch(tol=asked.tol, rtol=asked.rtol, max_evaluations=most)

    @cached_property
    def along_lines(self) -> Breakpoints:
        """What was seen of the scores along a few lines: whether they are smooth, linear in pieces, or neither."""
        scores: Any = self.scores

        def given_first(images: Tensor) -> Any:
            return scores.given(images, torch.zeros(len(images), dtype=torch.long, device=scores.device))

        function = given_first if self.properties.chooses else scores
        seen = getattr(scores, "along_lines", None)
        seen = seen or followed_along_lines(function, scores.image_shape, scores.device, scores.batch_size)
        if hasattr(scores, "along_lines"):
            scores.along_lines = seen
        return seen

    @cached_property
    def memory(self) -> int:
        """Bytes that the model and the search may use together."""
        budget = self.definition.memory_budget
        return default_memory(self.scores.device) if budget is None else budget

    def images_together(self, pixels: int) -> int:
        """Return how many images of so many pixels, over all channels, are tested together."""
        fit = self.memory // 2 // (ARRAYS_PER_IMAGE * 8 * pixels)
        return max(1, min(fit, self.search.images_together(self.scores.batch_size)))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Record of how the test is made, for results, JSON-ready."""
        search = {"search": {"name": "none"} if self.counts else dict(self.search.describe())}
        axes = {} if self.inputs.dimension == 2 else {"dimension": self.inputs.dimension}
        return {**self.definition.describe(), **search, **axes, "model": self.properties.description}

    def check(self, request: Request) -> None:
        """Raise an error if the test cannot do what is asked."""
        if request.connectivity is not None:
            as_connectivity(request.connectivity, dimension=self.inputs.dimension)
        count = self.definition.draws
        if self.counts and (count > 1 or request.certification is not None):
            raise InputError(
                "counts are divided once, and tested without a search: use draws=1, and leave certification out.",
                "draws",
                "certification",
            )
        for name, asked in (("components", request.connectivity), ("certification", request.certification)):
            if asked is not None and count > 1:
                raise InputError(f"{name} takes a single draw of the added noise, got draws {count}.", name, "draws")

    def observe(self, batch: Sequence[Input], failed: dict[int, InputError] | None = None) -> Observation:
        """Return the model output for images, as it is in a test; :func:`observe` says what ``failed`` is for."""
        return observe(batch, self.scores, self.rule, self.definition, failed)

    def statistics(self, batch: Sequence[Input]) -> NDArray[np.float64]:
        """Return the statistics (k,) of images, each with the region of its own."""
        observation = self.observe(batch)
        return lines_of(observation, parts_of(observation.regions_on_images(), None), self.contrast).statistic

    def run(
        self,
        inputs: Sequence[Input],
        request: Request,
        report: Report | None = None,
        failed: dict[int, InputError] | None = None,
    ) -> list[list[AttentionTestResult]]:
        """Return the results of images of one geometry: one per image, or one per component of its region.

        The fraction that is done is reported. An image without a region raises an error; with ``failed`` the errors are
        put there, by the indices of their images, and these have no results.
        """
        count = self.definition.draws
        if count == 1:
            return self._run(inputs, request, report, failed)
        alpha = request.decide_at
        each = request if alpha is None else replace(request, decide_at=alpha * share_of_each(count))
        together = self.images_together(inputs[0].image.pixels.size)
        drawn: list[list[AttentionTestResult]] = [[] for _ in inputs]
        # Without a level to decide at, all draws at once; otherwise as few as can decide, then one by one.
        rounds = (
            [range(count)] if alpha is None else [range(rank_of(count)), *([i] for i in range(rank_of(count), count))]
        )
        without_region: dict[int, InputError] = {}  # in one of the draws
        for draws in rounds:
            open_images = [image for image, results in enumerate(drawn) if not self._is_decided(results, alpha)]
            tasks = [(image, draw) for image in open_images for draw in draws if image not in without_region]
            for start in range(0, len(tasks), together):
                some = tasks[start : start + together]
                errors: dict[int, InputError] | None = None if failed is None else {}
                results = self._run([replace(inputs[image], draw=draw) for image, draw in some], each, None, errors)
                for (image, _), of_draw in zip(some, results, strict=True):
                    drawn[image] += of_draw
                without_region |= {some[task][0]: error for task, error in (errors or {}).items()}
                if report is not None:
                    report(sum(map(len, drawn)) / (count * len(inputs)))
        if failed is not None:
            failed |= without_region
        return [
            [] if image in without_region else [self._combined(results, alpha)] for image, results in enumerate(drawn)
        ]

    def _is_decided(self, results: Sequence[AttentionTestResult], alpha: float | None) -> bool:
        """Return whether the draws of an image, some of which may be missing, tell on which side of alpha p lies."""
        if alpha is None or not results:
            return False
        low, high = combined_bounds([result.log_pvalue_bounds for result in results], self.definition.draws)
        return decision(low, high, math.log(alpha)) is not None

    def _combined(self, results: Sequence[AttentionTestResult], alpha: float | None) -> AttentionTestResult:
        """Return the result of the draws of one image, which may have stopped early."""
        typical = results[deciding_draw([result.log_pvalue for result in results])]
        open_ended = [result.status for result in results if result.status != CONVERGED]
        return replace(
            typical,
            draws=tuple(
                Draw(**{field.name: getattr(result, field.name) for field in fields(Draw)}) for result in results
            ),
            **combined_logs(results, self.definition.draws),
            alpha=alpha,
            evaluations=sum(result.evaluations for result in results),
            status=DECIDED if self._is_decided(results, alpha) else open_ended[0] if open_ended else CONVERGED,
        )

    def _run(
        self,
        inputs: Sequence[Input],
        request: Request,
        report: Report | None = None,
        failed: dict[int, InputError] | None = None,
    ) -> list[list[AttentionTestResult]]:
        """Return the results of :meth:`run` with one draw of the added noise for each input.

        With ``failed``, components that cannot be tested follow the others as failures.
        """
        observation = self.observe(inputs, failed)
        if not observation.batch:
            return [[] for _ in inputs]
        connectivity, certification = request.connectivity, request.certification
        parts = parts_of(observation.regions_on_images(), connectivity)
        images = [channels_last(tested.image.pixels) for tested in observation.batch]
        maps, regions = _copies(observation.maps_on_images()), _copies(parts.regions)
        randomised: list[NDArray[np.float64]] | list[None] = [None] * len(images)
        settings = self.recorded(observation, connectivity)
        corners = observation.patch_grid.corners
        # As many parts at a time as there are images, which fit in memory; of components there may be many more.
        chunks = list(parts.chunks(len(images)))
        results: list[list[AttentionTestResult]] = [[] for _ in images]
        untested: list[tuple[int, str]] = []
        for number, chunk in enumerate(chunks):
            while len(chunk):
                try:
                    law, standard_errors, problem = self._hypothesis(observation, chunk, request)
                    break
                except UntestedParts as error:
                    if failed is None or connectivity is None:
                        raise
                    untested += [(image, str(error)) for image in chunk.image[error.rows].tolist()]
                    chunk = chunk.chosen(~error.rows)
            else:
                continue
            if observation.added is not None and randomised[0] is None:
                randomised = [channels_last(image + observation.added[i]) for i, image in enumerate(observation.images)]

            def between(start: float, end: float, done: int = number) -> Report | None:
                """Return the report of a part of the work on a chunk, from one share of it to another."""
                if report is None:
                    return None
                return lambda share: report((done + start + share * (end - start)) / len(chunks))

            search_share = 1.0 if certification is None else SEARCH_SHARE
            outcomes = [COUNTED] * len(chunk)
            if problem is not None:
                outcomes = self.search.find(problem, between(0.0, search_share))
            draws: Sequence[ExchangeableDraws | None] = [None] * len(chunk)
            if certification is not None and problem is not None:
                # It certifies the search, with the noise model as it is: how that was estimated is left aside.
                known = replace(problem, law=problem.law.with_known_error())
                draws = certification.draw(known, between(search_share, 1.0))
            logs = log_pvalues_of(law, self.definition.alternative, outcomes, observation.selectable, connectivity)
            masks = None if connectivity is None else chunk.masks()
            for row, (image, law_of_part, outcome) in enumerate(
                zip(chunk.image.tolist(), law.each(), outcomes, strict=True)
            ):
                tested, part = observation.batch[image], regions[image] if masks is None else masks[row].copy()
                compared = ComparedRegion(
                    contrast=self.contrast,
                    image=tested.image.pixels,
                    reference=None if tested.reference is None else tested.reference.pixels,
                    channel_weights=tested.geometry.channel_weights,
                    part=part,
                    region=regions[image],
                    seen=observation.seen,
                    corners=corners,
                    difference=float(law_of_part.statistic[0]) * standard_errors[row],
                )
                result = AttentionTestResult(
                    law=law_of_part,
                    standard_error=standard_errors[row],
                    region=regions[image],
                    part=part,
                    image=images[image],
                    attention=maps[image],
                    seen=observation.seen,
                    mask=None if tested.geometry.mask is None else tested.geometry.mask.pixels,
                    selectable=observation.selectable,
                    truncation_set=outcome.truncation_set,
                    alternative=self.definition.alternative,
                    alpha=request.decide_at,
                    evaluations=outcome.evaluations,
                    status=outcome.status,
                    settings=settings[image],
                    audit=outcome.audit,
                    spacing=tested.image.spacing,
                    randomised_image=randomised[image],
                    compared=compared if tested.geometry.compared is None else None,
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
        for image, reason in untested:
            failure: Any = FailedImage(number=len(results[image]), reason=reason)
            results[image].append(failure)
        of_observed = iter(results)
        return [[] if failed and index in failed else next(of_observed) for index in range(len(inputs))]

    def margins(self, tested: Input, distances: NDArray[np.float64]) -> MarginCurves:
        """Return the margins f_i of one image along its line, at distances (m,) from the observed point of it."""
        observation = self.observe([tested])
        problem, _ = self.problem(observation, parts_of(observation.regions_on_images(), None), None)
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

    def _hypothesis(
        self, observation: Observation, parts: Parts, request: Request
    ) -> tuple[Law, list[float], SearchProblem | None]:
        """Return the law of the statistics of parts, their standard errors (r,), and what is searched, if anything."""
        if not self.counts:
            problem, standard_errors = self.problem(observation, parts, request.decide_at)
            return problem.law, standard_errors, problem
        law, standard_errors = law_of_counts(observation, parts, self.contrast, self.definition.randomise)
        return law, standard_errors, None

    def _law(self, lines: Lines) -> Law:
        """Return the law of the statistics of lines."""
        statistic, estimated = lines.statistic, np.minimum(lines.degrees, MOST_DEGREES)
        if self.definition.randomise == 0:
            if np.all(np.isinf(lines.degrees)):
                return TruncatedNormal(statistic=statistic)
            return TruncatedStudent(statistic=statistic, degrees=estimated)
        gamma = self.definition.randomise / np.sqrt(lines.own_share)
        known = RandomisedNormal(statistic=statistic, observed_z=lines.z_obs, gamma=gamma)
        if np.all(lines.degrees > MOST_RANDOMISED_DEGREES):
            return known
        return RandomisedStudent(statistic=statistic, observed_z=lines.z_obs, gamma=gamma, degrees=estimated)

    def problem(
        self, observation: Observation, parts: Parts, decide_at: float | None, lines: Lines | None = None
    ) -> tuple[SearchProblem, list[float]]:
        """Return the search for the truncation sets of parts along their lines, and the standard errors (r,)."""
        lines = lines_of(observation, parts, self.contrast) if lines is None else lines
        law, standard_errors = self._law(lines), lines.standard_error.tolist()
        # The map from image to input is affine, so a line through an image is a line through its input.
        geometry, device = observation.batch[0].geometry, self.scores.device
        covariance_eta = torch.from_numpy(lines.covariance_eta).to(device).unflatten(1, geometry.shape)
        scale = torch.from_numpy(lines.standard_error).to(device)
        direction = geometry.inputs.linear(covariance_eta) / expanded(scale, covariance_eta)
        del lines, covariance_eta  # of the size of the images; the search needs only that of the model's inputs
        seeds = seeds_of(observation, parts)
        if parts.labels is not None:
            observation = observation.chosen(parts.image)
        numbers = [tested.number for tested in observation.batch]
        origin = torch.from_numpy(law.z_obs).to(device)
        rough, level = self.properties.rough, self.definition.confidence_level
        # Components have simultaneous intervals, whose level is higher the more of them a region has.
        levels = None
        if level is not None:
            level = level_of_each_draw(level, self.definition.draws)
            levels = np.array([level_of_each(level, int(count)) for count in parts.siblings()])
        given: Any = getattr(self.scores, "given", None)
        problem = SearchProblem(
            law=law,
            scores=observation.along(given if self.properties.chooses else self.scores, direction, origin),
            margins=observation.margins(self.rule, self.properties.sign),
            device=device,
            batch_size=self.scores.batch_size,
            image_numbers=None if None in numbers else np.array(numbers)[parts.image],
            alternative=self.definition.alternative,
            alpha=decide_at,
            confidence_level=levels,
            observed=observation.searched_scores(),
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

    def recorded(self, observation: Observation, connectivity: int | None) -> list[dict[str, Any]]:
        """Return how each image is tested."""
        batch = observation.batch
        rows, place = np.unique(observation.same_image, return_inverse=True)
        images = observation.images if len(rows) == len(batch) else observation.images[rows]
        of_images = noise_doubts(images, [batch[row].noise for row in rows.tolist()])
        doubts = [of_images[image] for image in place.tolist()]
        keys = [(id(tested.noise), doubt, tested.noisy_reference) for tested, doubt in zip(batch, doubts, strict=True)]
        records: dict[tuple[int, str | None, str | None], dict[str, Any]] = {}
        for key, tested in zip(keys, batch, strict=True):
            if key not in records:
                _, doubt, reference = key
                of_image = {"noise": dict(tested.noise.describe()), "noise_doubt": doubt, "noisy_reference": reference}
                if tested.geometry.preprocessing is None:  # it could be taken as it is
                    of_image["preprocessing"] = None
                if tested.geometry.mask is not None:
                    of_image["mask"] = tested.geometry.mask.describe()
                records[key] = {**self.settings, "components": connectivity, **of_image}
        # Each result has a record of its own, which a user may change.
        randomised = self.definition.randomise != 0
        describe: Any = getattr(self.scores, "describe_choice", None)
        targets = [{}] * len(batch) if describe is None else describe(observation.inputs, observation.choice)
        return [
            {
                **records[key],
                "noise": dict(records[key]["noise"]),
                "randomise_name": tested.identity if randomised else None,
                **({"target": dict(target)} if target else {}),
            }
            for key, tested, target in zip(keys, batch, targets, strict=True)
        ]


def log_pvalues_of(
    law: Law,
    alternative: Alternative,
    outcomes: Sequence[SearchOutcome],
    selectable: int,
    connectivity: int | None,
) -> list[dict[str, Any]]:
    """Return the logarithms of the p-values of each part, selective with bounds, naive and corrected, by name."""
    sets = [outcome.truncation_set for outcome in outcomes]
    inside = Unions.of([known.intervals for known in sets]).contain(law.z_obs)
    if not inside.all():
        raise SearchError(
            f"the search returned a truncation set without the observed statistic {law.z_obs[~inside][0]:.17g}, "
            "which lies in it by definition: the search is at fault."
        )
    best, low, high = (log.tolist() for log in log_pvalues(law, sets, alternative))
    naive = naive_log_pvalues(law, alternative)
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
