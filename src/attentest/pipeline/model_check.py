"""How a model will be searched, and what that costs: found out in a few seconds, on images of noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import ScoreFunction, ViTScores
from attentest.definition import REGION_RULES, Definition
from attentest.errors import InputError, counted, worded
from attentest.images.mask import Mask, Masks, as_mask
from attentest.markup import definition_table
from attentest.pipeline.hypotheses import parts_of
from attentest.pipeline.inputs import Input
from attentest.pipeline.run import Pipeline, Request
from attentest.progress import duration
from attentest.search import CONVERGED, PiecewiseSearch, Report, SearchProblem, SpectralSearch
from attentest.search.breakpoints import Kind
from attentest.search.piecewise import AXIS
from attentest.search.problem import OUT_OF_EVALUATIONS, ROUGH

DRAWN, LINES = 8, 3
"""Images of noise that are drawn, of which some may have no region, and lines that are walked along."""

STARTS, KINKS = (-2.0, 0.0, 2.0), 8  # places on a line from which on kinks are counted, and how many from each

COUNTING, TESTING, LONGEST = 1.5, 4.0, 15.0
"""About how many seconds kinks are counted and an image is tested; where testing would take longest, none is."""

LEAST_EVALUATIONS, MOST_EVALUATIONS = 64, 20_000  # bounds of the evaluations of the image that is tested
USUAL_EVALUATIONS = 150  # evaluations that p takes where scores are smooth (docs/evidence/cost.md)
VISITS = 1.5  # how often a piece that matters to p is visited: about
LONG_SECONDS = 60.0  # an image that takes longer gets advice on how to take less
WIDTH, INDENT = 100, 18  # columns of the text, and of the names of its lines

KINDS: dict[Kind, str] = {
    "smooth": "smooth",
    "linear in pieces": "linear in pieces",
    "smooth in pieces": "smooth in pieces",
    "neither": "neither smooth nor linear in pieces, as far as can be seen",
}

SEARCHES = {"spectral": "interpolated between few points", "piecewise": "piece after piece, each exactly"}
"""What the searches do, in words."""


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """How a model will be searched and what that costs; images of noise are as the model sees them, of deviation 1.

    Parameters
    ----------
    model, attention, maps
        Type of the model, its map, and the names of all maps that it can give, if they are known.
    image_shape, grid_shape
        Shapes (C, *axes) of its images, and (*grid) of its map.
    classes, weights, weight_bytes
        Numbers of classes and weights, and the memory of these in float64; None if they are not known.
    device
        Where it computes.
    kind, reasons
        What the scores are along lines: "smooth", "linear in pieces", "smooth in pieces" or "neither"; then, of what.
    kinks
        Kinks per standard deviation of z, counted along a few lines; None if they cannot be counted.
    search, tol
        How p is searched, and the error bar that is asked for.
    evaluation_seconds
        Time of one evaluation, among others.
    status, tested_evaluations, bar
        How the test of one image of noise ended within a bounded number of evaluations, how many it took, and the error
        bar of p; None if none was tested.
    evaluations, seconds
        About what p of an image takes, a guess where the test of one did not converge; None if that cannot be said.
    advice
        What to do, in sentences.
    """

    model: str
    attention: str | None
    maps: tuple[str, ...]
    image_shape: tuple[int, ...]
    grid_shape: tuple[int, ...] | None
    classes: int | None
    weights: int | None
    weight_bytes: int | None
    device: str
    kind: Kind
    reasons: tuple[str, ...]
    kinks: float | None
    search: str
    tol: float
    evaluation_seconds: float | None
    status: str | None
    tested_evaluations: int | None
    bar: float | None
    evaluations: int | None
    seconds: float | None
    advice: str

    def to_dict(self) -> dict[str, Any]:
        """Return all as JSON-ready values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def in_words(self) -> dict[str, str]:
        """Return what was found, in words, by name."""
        weights = "" if self.weights is None else f", {self.weights:,} weights ({_bytes(self.weight_bytes or 0)})"
        grid = "" if self.grid_shape is None else f", a map of {_by(self.grid_shape)}"
        classes = "" if self.classes is None else f", {counted(self.classes, 'class')}"
        kinks = f", {self.kinks:.3g} kinks per standard deviation of z" if self.kinks else ""
        reasons = f" ({', '.join(self.reasons)})" if self.reasons else ""
        how = "about" if self.status in (CONVERGED, ROUGH) else "a guess of"
        cost = "not known" if self.seconds is None else f"{how} {self.evaluations:,} evaluations, {_time(self.seconds)}"
        tested = "no image of noise was tested"
        if self.status is not None:
            tried = f"{self.status} after {self.tested_evaluations:,} evaluations"
            tested = f"one of noise: {tried}, with a bar of {self.bar:.0e}"
        return {
            "model": f"{self.model} on {self.device}{weights}",
            "images": f"{_by(self.image_shape)}{grid}{classes}",
            **({} if self.attention is None else {"map": self.attention}),
            **({"maps it can give": ", ".join(self.maps)} if self.maps else {}),
            "along a line": f"{KINDS[self.kind]}{reasons}{kinks}",
            "search": f"{self.search}: {SEARCHES[self.search]}",
            **({} if self.evaluation_seconds is None else {"an evaluation": _time(self.evaluation_seconds)}),
            "p of an image": f"{cost}, for an error bar of {self.tol:.0e} ({tested})",
            "advice": self.advice,
        }

    def __str__(self) -> str:
        axes = len(self.image_shape) - 1
        paragraphs = (
            wrap(f"{name:<{INDENT}}{worded(text, axes)}", WIDTH, subsequent_indent=" " * INDENT, break_on_hyphens=False)
            for name, text in self.in_words().items()
        )
        return "\n".join(line for lines in paragraphs for line in lines)

    def _repr_html_(self) -> str:
        return definition_table("ModelCheck", self.in_words())


def check_model(definition: Definition, scores: ScoreFunction, report: Report) -> ModelCheck:
    """Return how the model of a test is searched: follow it along lines, count kinks, test an image of noise."""
    names = (*REGION_RULES, "mask_use", "region_unit", "search", "memory_budget")
    kept = {name: getattr(definition, name) for name in names} | {"mask": _mask(definition, scores.image_shape[1:])}
    pipeline = Pipeline(Definition(noise=1.0, confidence_level=None, **kept), scores)
    search = pipeline.search
    if not isinstance(search, (SpectralSearch, PiecewiseSearch)):
        name = search.describe()["name"]
        raise InputError(f"a check is of the searches spectral and piecewise, got search {name}.", "search")
    seen = pipeline.along_lines
    report(0.1)
    inputs = _with_region(pipeline)
    kinks, taken = (0.0 if seen.kind == "smooth" else None), None
    result: Any = None
    if inputs:
        observation = pipeline.observe(inputs)
        problem, _ = pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None)
        taken = _evaluation_seconds(problem, isinstance(search, PiecewiseSearch))
        report(0.2)
        if kinks is None and seen.kind != "neither":
            kinks = _kinks_per_deviation(problem)
        report(0.4)
        usual = 2 * USUAL_EVALUATIONS if 2 * USUAL_EVALUATIONS * taken <= LONGEST else LEAST_EVALUATIONS
        most = int(min(MOST_EVALUATIONS, search.max_evaluations, max(usual, TESTING / taken)))
        if most * taken <= LONGEST:
            pipeline.search = replace(search, max_evaluations=most)
            begun = monotonic()
            result = pipeline.run(inputs[:1], Request(), lambda share: report(0.4 + 0.6 * share))[0][0]
            taken = (monotonic() - begun) / result.evaluations
    evaluations = _evaluations(search, seen.kind, kinks, result)
    seconds = None if evaluations is None or taken is None else evaluations * taken
    low, high = (0.0, 0.0) if result is None else result.pvalue_bounds
    described, module = pipeline.properties.description, scores.whole()[0] if isinstance(scores, ViTScores) else None
    sizes = [(weights.numel(), weights.element_size()) for weights in module.parameters()] if module else []
    return ModelCheck(
        model=str(described.get("type", "score function")),
        attention=with_parameters(described["attention"]) if "attention" in described else None,
        maps=tuple(getattr(scores, "maps", ())),
        image_shape=scores.image_shape,
        grid_shape=None if not inputs else tuple(observation.scores.shape[1:]),
        classes=getattr(scores, "classes", None),
        weights=sum(count for count, _ in sizes) or None,
        weight_bytes=sum(count * size for count, size in sizes) or None,
        device=str(scores.device),
        kind=seen.kind,
        reasons=tuple(sorted(seen.unknown)),
        kinks=kinks,
        search=str(search.describe()["name"]),
        tol=search.tol,
        evaluation_seconds=taken,
        status=None if result is None else result.status,
        tested_evaluations=None if result is None else result.evaluations,
        bar=None if result is None else high - low,
        evaluations=evaluations,
        seconds=seconds,
        advice=_advice(seen.kind, bool(inputs), result, seconds),
    )


def _mask(definition: Definition, size: tuple[int, ...]) -> Any:
    """Return the mask, or the first of several, on the pixels of the model's input: those with a pixel within it."""
    masks = definition.mask.found("*")[:1] if isinstance(definition.mask, Masks) else [definition.mask]
    mask = as_mask(*masks or [None])
    if not isinstance(mask, Mask) or mask.pixels.ndim != len(size):
        return mask
    pixels = mask.pixels
    for axis, (side, count) in enumerate(zip(size, pixels.shape, strict=True)):
        pixels = np.logical_or.reduceat(pixels, np.arange(side) * count // side, axis=axis)
    return pixels


def _with_region(pipeline: Pipeline) -> list[Input]:
    """Return some images of noise that have a region, if there are any among those that are drawn."""
    rng = np.random.default_rng(0)
    drawn = [torch.from_numpy(rng.normal(size=pipeline.scores.image_shape)) for _ in range(DRAWN)]
    inputs = [pipeline.inputs.one(image, identity=number) for number, image in enumerate(drawn)]
    failed: dict[int, InputError] = {}
    pipeline.observe(inputs, failed)
    return [tested for number, tested in enumerate(inputs) if number not in failed][:LINES]


def _evaluation_seconds(problem: SearchProblem, pieces: bool) -> float:
    """Return the time of an evaluation among a few others, after one that is not counted."""
    count = min(problem.batch_size, 2 * LINES)
    image = np.zeros(count, dtype=np.intp)
    z: NDArray[np.float64] = problem.z_obs[0] + np.linspace(-1, 1, count)
    begun = 0.0
    for _ in range(2):
        begun = monotonic()
        if pieces:
            problem.pieces_at(image, z)
        else:
            problem.inside_at(image, z)
    return max(monotonic() - begun, 1e-6) / count


def _kinks_per_deviation(problem: SearchProblem) -> float:
    """Count kinks along the lines of a problem, one after the other from some places on."""
    image, begun = np.arange(len(problem.z_obs)).repeat(len(STARTS)), monotonic()
    z: NDArray[np.float64] = np.tile(STARTS, len(problem.z_obs))
    ends: list[NDArray[np.float64]] = []
    while len(ends) <= KINKS and (len(ends) < 2 or monotonic() - begun < COUNTING):
        *_, right, _ = problem.pieces_at(image, z)
        ends.append(right)
        z = np.where(np.isfinite(right), right + 1e-9 * np.maximum(1.0, np.abs(right)), z)
    walked = np.array(ends)
    walked = np.where(np.isfinite(walked), walked, np.nan)
    count = np.isfinite(walked[1:]).sum()
    distance = np.nansum(np.diff(walked, axis=0))
    return float(count / distance) if distance > 0 else float(np.isfinite(walked).sum() / (AXIS * len(image)))


def _evaluations(search: Any, kind: Kind, kinks: float | None, result: Any) -> int | None:
    """Return about how many evaluations p of an image takes; None where that cannot be said."""
    if result is not None and result.status in (CONVERGED, ROUGH):
        return int(result.evaluations)
    if kind == "smooth":
        return None if result is not None and result.evaluations > USUAL_EVALUATIONS else USUAL_EVALUATIONS
    unfinished = result is None or result.status == OUT_OF_EVALUATIONS
    if isinstance(search, PiecewiseSearch) and kinks is not None and unfinished:
        least = LEAST_EVALUATIONS if result is None else 2 * result.evaluations
        return int(max(least, min(VISITS * AXIS * kinks, search.max_evaluations)))
    return None


def _advice(kind: Kind, has_region: bool, result: Any, seconds: float | None) -> str:
    """Return what to do, in sentences."""
    said = []
    certify = "certify results (certification=Certification(), --certify), which depends on no search"
    if not has_region:
        said.append("None of the images of noise has a region: try one of yours, larger images, another class or sign.")
    elif result is not None and result.status == ROUGH:
        said.append(
            f"Kinks are too many to visit each, so error bars are estimates: where much depends on p, {certify}."
        )
    elif result is not None and result.status not in (CONVERGED, OUT_OF_EVALUATIONS):
        said.append(f"No search can promise an error bar for this map (status {result.status}): {certify}.")
    elif kind == "neither" or seconds is None:
        said.append(f"Error bars may stay wide, and the status says where they do: then {certify}.")
    elif result is not None and result.status == CONVERGED:
        said.append("p gets an error bar as narrow as is asked for.")
    else:
        said.append("With more evaluations than were tried here, p should get the error bar that is asked for.")
    if seconds is not None and seconds > LONG_SECONDS:
        said.append(
            "To take less time: a larger tol (--tol 1e-3), decide_at= (--decide), a GPU (device=, --device cuda), or "
            "smaller images."
        )
    return " ".join(said)


def with_parameters(described: Any) -> str:
    """Return a name and parameters as one line; parameters that are None are left out."""
    if not isinstance(described, Mapping):
        return str(described)
    parameters = {name: value for name, value in described.items() if value is not None}
    name = parameters.pop("name", None)
    listed = ", ".join(f"{key} {value}" for key, value in parameters.items())
    return ": ".join(part for part in (name, listed) if part)


def _by(sides: tuple[int, ...]) -> str:
    return " x ".join(map(str, sides))


def _time(seconds: float) -> str:
    """Return a time in a unit that suits it, from microseconds on."""
    return duration(seconds) if seconds >= 1 else _in_units(seconds, {"ms": 1e-3, "µs": 1e-6})


def _bytes(count: int) -> str:
    """Return a number of bytes in a unit that suits it."""
    return f"{count} bytes" if count < 2**10 else _in_units(count, {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10})


def _in_units(value: float, units: dict[str, float]) -> str:
    """Return a value in the largest of some units, largest first, that it has at least one of; or in the last."""
    unit = next((unit for unit, size in units.items() if value >= size), [*units][-1])
    return f"{value / units[unit]:.3g} {unit}"
