"""Whether a map depends on what a model learned: the maps of the model with more and more of it randomised."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from attentest.attention.forward_pass import SAME
from attentest.attention.vit import ViTScores
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError
from attentest.images.sample import ImageLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.run import Pipeline
from attentest.presentation.figure import new_figure, shown_name, wrapped
from attentest.presentation.number_texts import pvalue_text
from attentest.presentation.picture import draw_map, draw_overlay
from attentest.progress import ProgressLike, progress_reports
from attentest.record import map_of_all, predicted_class
from attentest.results.batch import Results
from attentest.results.result import AttentionTestResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINED = "nothing"  # what is randomised of the model as it was trained

ALIKE = 0.7
"""Maps whose rank correlation, the mean of all images, is at least this are called alike: half of the variance of their
ranks is then common to both. That of maps of unrelated models is 0 on average."""

MOST_IMAGES, MOST_COLUMNS = 6, 8  # most images in a figure, and most panels beside each other

CELL, LINE = (1.25, 1.75), 0.15
"""Width and height of a panel with its texts, and height of a line of the title, in inches."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sanity:
    """How the maps of images change when a model is randomised from its head to its input: see :func:`sanity`."""

    steps: dict[str, Results]
    """The results of the images, by what is randomised of the model: "nothing", "head", "head, layer 3", "head, layers
    2 to 3", ..., "whole model". Layers are numbered from 0, as in ``attention="layer:3"``. An image in which a
    randomised model has no region is a :class:`FailedImage`."""
    correlations: NDArray[np.float64]
    """(steps, images). Rank correlations of the maps with those of the trained model; NaN where there is no map."""
    seed: int
    """Seed of the random weights."""

    @property
    def mean_correlations(self) -> dict[str, float]:
        """Mean of the rank correlations of all images that have a map, by what is randomised; NaN if none has."""
        known = [row[np.isfinite(row)] for row in self.correlations]
        means = [float(row.mean()) if row.size else math.nan for row in known]
        return dict(zip(self.steps, means, strict=True))

    def summary(self) -> str:
        """Return in a sentence whether the maps depend on what the model learned."""
        steps, shown = list(self.mean_correlations.items()), map_of_all(self.steps[TRAINED][0].settings)
        end = f"rank correlation {correlation_text(steps[-1][1])} with the whole model randomised"
        if steps[-1][1] >= ALIKE:
            return f"The {shown} hardly depends on what the model learned: {end}."
        first = next(place for place, (_, mean) in enumerate(steps) if not mean >= ALIKE)
        (before, stays), (after, changes) = steps[first - 1 : first + 1]
        if before == TRAINED:
            return (
                f"The {shown} depends on what the model learned: it changes with the first step (rank correlation "
                f"{correlation_text(changes)} with {after} randomised; {end})."
            )
        return (
            f"The {shown} hardly depends on what the last parts of the model learned: it stays alike with {before} "
            f"randomised (rank correlation {correlation_text(stays)}) and changes with {after} "
            f"({correlation_text(changes)}; {end})."
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each image and step: what is randomised, rank correlation, p, its bounds, and the class."""
        return [
            {"image": str(name), "randomised": randomised, "rank_correlation": correlation, **_numbers(results[place])}
            for place, name in enumerate(self.steps[TRAINED].names)
            for (randomised, results), correlation in zip(
                self.steps.items(), self.correlations[:, place].tolist(), strict=True
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything JSON-ready; numbers that are not there are None."""
        means, rows = self.mean_correlations, self.rows()
        for values in (means, *rows):
            values.update({name: None for name, value in values.items() if value != value})  # NaN
        return {"seed": self.seed, "summary": self.summary(), "rank_correlations": means, "rows": rows}

    def __repr__(self) -> str:
        return f"Sanity(seed={self.seed}): {self.summary()}"

    def figure(self) -> Figure:
        """Draw each image, and its maps of the trained model and of the randomised ones; needs Matplotlib.

        Below each map is its rank correlation with that of the trained model, the class where that is the predicted
        one, and the selective p of its region. Of more than six images the first six are shown.
        """
        count, rows = len(self.steps), self.rows()
        lines = math.ceil((count + 1) / MOST_COLUMNS)
        columns = math.ceil((count + 1) / lines)
        words, images = wrapped(self.summary(), 19 * columns), min(len(self.steps[TRAINED]), MOST_IMAGES)
        figure = new_figure(columns * CELL[0], images * lines * CELL[1] + LINE * (2 + words.count("\n")))
        figure.suptitle(words, size=8)
        panels = figure.subplots(images * lines, columns, squeeze=False).reshape(images, -1)
        for place, (axes, *others) in enumerate(panels):
            trained = self.steps[TRAINED][place].picture()
            draw_overlay(axes, replace(trained, attention=np.zeros_like(trained.attention)), outline_width=1.0)
            title = shown_name(rows[place * count]["image"], 20)
            axes.set_title(title.pop("s"), size=7, pad=3, **title)
            for panel, row in zip(others, rows[place * count : (place + 1) * count], strict=False):
                result, what = self.steps[row["randomised"]][place], row["randomised"]
                panel.set_title("trained model" if what == TRAINED else f"{what}\nrandomised", size=6.5, pad=3)
                if isinstance(result, AttentionTestResult):
                    draw_map(panel, result.picture(), outline_width=0.8)
                else:
                    panel.set_box_aspect(axes.get_data_ratio())
                    panel.text(0.5, 0.5, "no region", size=6.5, ha="center", va="center", transform=panel.transAxes)
                below = "" if what == TRAINED else f"correlation {correlation_text(row['rank_correlation'])}\n"
                below += f"{predicted_class(row.get('target'))}p {row_pvalue(row)}"
                panel.set(xticks=[], yticks=[])
                panel.set_xlabel(below, size=6.5, labelpad=3)
            for panel in others[count:]:
                panel.set_axis_off()
        return figure


def sanity(
    test: AttentionTest,
    images: Iterable[ImageLike],
    *,
    seed: int = 0,
    names: Sequence[str | int] | None = None,
    progress: ProgressLike = None,
) -> Sanity:
    """Randomise the model of a test from its head to its input, and see whether its maps change.

    This is the cascading randomisation of Adebayo et al. (Sanity checks for saliency maps, NeurIPS 2018). A map that
    stays the same shows the image, not what the model learned. Each step randomises one part more: the head, where the
    map is for a class or a text, then layer after layer from the last to the first, then the embedding of patches.
    Copies of the model are randomised, never the caller's own. The region of each randomised model is tested too: its p
    is as valid as any, since the weights do not depend on the image.

    Parameters
    ----------
    test
        The test, whose model is one that attentest reads. Where its map is for the "predicted" class, each randomised
        model explains the class that it predicts itself.
    images
        As in :meth:`AttentionTest.map`.
    seed
        Seed of the random weights.
    names
        A name or number for each image; by default their numbers from 0.
    progress
        True for a progress bar; or a function, which is called with (models done, None).
    """
    scores, shown = test.pipeline.scores, list(images)
    if not isinstance(scores, ViTScores):
        raise ModelError("sanity randomises the weights of a model, and a score function has none: give a model.")
    if not shown:
        raise InputError("there are no images to look at: the iterable is empty.")
    rng = np.random.default_rng(whole_number(seed, "seed", 0, 2**63 - 1))
    other = test.replace(confidence_level=None)
    with progress_reports(progress, None, unit="model") as report:
        steps = {TRAINED: other.map(shown, names=names)}
        for randomised, copied in cascade(scores, rng):
            report(len(steps), None)
            other = copy.copy(other)
            other.pipeline = Pipeline(other.definition, copied)
            steps[randomised] = other.map(shown, names=names, on_error="row")
    trained = steps[TRAINED]
    maps = [[_correlation(*pair) for pair in zip(results, trained, strict=True)] for results in steps.values()]
    return Sanity(steps=steps, correlations=np.array(maps), seed=seed)


def _correlation(result: Any, trained: AttentionTestResult) -> float:
    """Return Spearman's rank correlation of two maps where the model sees the image; NaN if there is no result."""
    if not isinstance(result, AttentionTestResult):
        return math.nan
    return float(stats.spearmanr(*(each.shown()["attention"][trained.seen] for each in (result, trained))).statistic)


def _numbers(result: Any) -> dict[str, Any]:
    """Return what a row says of the region of an image; of one that could not be tested, why."""
    if not isinstance(result, AttentionTestResult):
        return {"pvalue": math.nan, "error": result.reason}
    record, names = result.record(), ("pvalue", "pvalue_bounds", "status", "region_pixels", "target")
    return {name: getattr(record, name) for name in names}


def correlation_text(value: float) -> str:
    """Return a rank correlation as tables and figures show it."""
    return "none" if math.isnan(value) else f"{value:.2f}"


def row_pvalue(row: Mapping[str, Any]) -> str:
    """Return the selective p-value of a row of :meth:`Sanity.rows`."""
    return "none" if "error" in row else pvalue_text(row["pvalue"], row["pvalue_bounds"], row["status"])


def cascade(scores: ViTScores, rng: np.random.Generator) -> Iterator[tuple[str, ViTScores]]:
    """Yield what is randomised, and the scores of a copy of the model in which it is: each time one part more.

    The head comes first, where the map depends on it; then the layers, from the last to the first; then what makes
    tokens of patches. Weights become normal numbers of the mean square that they had, so that no signal grows or fades
    by their size alone; norms have weights of one and biases of zero again; single numbers, such as temperatures, stay.
    """
    head = scores.changed(partial(_randomise, 0, rng))
    image = torch.from_numpy(np.random.default_rng(0).normal(size=(1, *scores.image_shape)))
    has_head, count = not torch.allclose(scores(image), head(image), rtol=SAME, atol=0.0), len(_parts(scores)) - 2
    if has_head:
        yield "head", head
    last = count - 1
    layers = [f"layers {first} to {last}" if first < last else f"layer {last}" for first in range(last, -1, -1)]
    labels = [*(f"head, {label}" if has_head else label for label in layers), "whole model"]
    scores = head
    for number, label in enumerate(labels, start=1):
        scores = scores.changed(partial(_randomise, number, rng))
        yield label, scores


def _parts(scores: ViTScores) -> list[list[nn.Module]]:
    """Return the modules of the head, those of each layer, last layer first, and those before the first layer.

    A module between two layers belongs to the one before it. Modules that the model does not use are in no part.
    """
    model, run = scores.whole()
    order: dict[nn.Module, None] = {}
    hooks = [part.register_forward_pre_hook(lambda entered, _: order.setdefault(entered)) for part in model.modules()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    lists = [part for part in model.modules() if isinstance(part, (nn.ModuleList, nn.Sequential))]
    with_norms = {part for listed in lists for part in listed if any(map(_is_norm, [*part.modules()][1:]))}
    layers = [part for part in order if part in with_norms and not with_norms.intersection([*part.modules()][1:])]
    around = [part for part in model.modules() if set(layers).intersection([*part.modules()][1:])]
    number_of = {part: number for number, layer in enumerate(layers, start=1) for part in layer.modules()}
    parts: list[list[nn.Module]] = [around, *([] for _ in layers), []]
    reached = 0
    for part in order:
        reached = max(reached, number_of.get(part, 0))
        if part in layers:
            parts[reached] += part.modules()
        elif part not in number_of and part not in around:
            # Some modules use the weights of those within them without calling them.
            parts[-1 if reached == len(layers) else reached] += part.modules()
    return parts[::-1]


def _randomise(number: int, rng: np.random.Generator, scores: ViTScores) -> None:
    """Randomise the part of a model that has a number among :func:`_parts`."""
    for module in dict.fromkeys(_parts(scores)[number]):
        for name, weight in module.named_parameters(recurse=False):
            if _is_norm(module):
                weight.data.fill_(1.0 if name == "weight" else 0.0)
            elif weight.ndim:
                scale = float(weight.data.square().mean().sqrt())
                weight.data.copy_(torch.from_numpy(rng.normal(scale=scale, size=tuple(weight.shape))))


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not [*module.children()]
