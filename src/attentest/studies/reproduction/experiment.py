"""The experiments, by the names the paper gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from attentest.errors import InputError
from attentest.studies.reproduction.family import FAMILIES
from attentest.studies.reproduction.paper_model import PUBLISHED
from attentest.studies.reproduction.preset import Preset
from attentest.studies.reproduction.series import NOISES, Series

DEFAULT_MODEL = "base16"
"""Of the experiments on one image size and architecture."""

DELTAS = (1.0, 2.0, 3.0, 4.0)
DISTANCES = (0.01, 0.02, 0.03, 0.04)
PRECISION_MODEL = "base64"

EVALUATION_REPEATS = 3
"""Timings of an evaluation on the CPU, from which the time of everything there is estimated."""

SEVERAL_MODELS = ("type-i-error", "additional-trials", "computation-time", "estimated-variance")
"""Experiments on more than one classifier."""

AUTHORS = ("type-i-error", "power", "precision")
"""Experiments that are run with the authors' models too, where these are."""

Plan: TypeAlias = dict[Series, int]
"""How many images of which series."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment.

    Parameters
    ----------
    name
        On the command line.
    title
        On the page.
    where
        Figures and sections of the paper.
    series
        What it needs with a preset; the authors' models are used too where they help.
    """

    name: str
    title: str
    where: str
    series: Callable[[Preset, bool], Iterator[tuple[Series, int]]]


def _type_i_error(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for model in preset.models:
        for noise in NOISES:
            selective = Series(work="selective", model=model, noise=noise)
            yield selective, preset.null
            yield replace(selective, work="permutation", permutations=preset.permutations), preset.permuted
    # The published figures of the permutation test are those of the base models with correlated noise.
    for model in PUBLISHED if published else ():
        if model.startswith("base") and model in preset.models:
            selective = Series(work="selective", model=model, noise="correlated", published=True)
            yield selective, preset.null
            yield replace(selective, work="permutation", permutations=preset.permutations), preset.permuted


def _additional_trials(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for model in preset.models:
        for noise in NOISES:
            yield Series(work="selective", model=model, noise=noise), preset.additional


def _power(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for authors in (False, True) if published else (False,):
        for noise in NOISES:
            for delta in DELTAS:
                series = Series(work="selective", model=DEFAULT_MODEL, noise=noise, delta=delta, published=authors)
                yield series, preset.power


def _computation_time(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for model in preset.timed_models:
        for noise in NOISES:
            for search, count in preset.timed.items():
                yield Series(work="search", model=model, noise=noise, search=search), count
        yield Series(work="evaluation", model=model, device="cpu"), EVALUATION_REPEATS


def _estimated_variance(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for model in preset.models:
        yield Series(work="selective", model=model, estimated=True), preset.estimated


def _non_gaussian(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    for family in FAMILIES:
        for distance in DISTANCES:
            series = Series(work="selective", model=DEFAULT_MODEL, family=family, distance=distance)
            yield series, preset.nearly_gaussian


def _demonstration(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    yield Series(work="curves", model=DEFAULT_MODEL), preset.curves


def _precision(preset: Preset, published: bool) -> Iterator[tuple[Series, int]]:
    yield Series(work="precision", model=PRECISION_MODEL), preset.precision
    if published:
        yield Series(work="precision", model=PRECISION_MODEL, published=True), preset.precision


EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="type-i-error", title="Type I error rate", where="section 4, figures 4 and 5", series=_type_i_error
        ),
        Experiment(
            name="additional-trials",
            title="Additional trials for type I error rate",
            where="appendix E",
            series=_additional_trials,
        ),
        Experiment(name="power", title="Power", where="section 4, figure 6", series=_power),
        Experiment(
            name="computation-time",
            title="Computation time",
            where="section 4, figures 7 and 8",
            series=_computation_time,
        ),
        Experiment(
            name="estimated-variance", title="Estimated variance", where="appendix D.1", series=_estimated_variance
        ),
        Experiment(name="non-gaussian", title="Non-Gaussian noise", where="appendix D.2", series=_non_gaussian),
        Experiment(
            name="demonstration",
            title="Demonstration of the target function f_i",
            where="section 4, figure 9",
            series=_demonstration,
        ),
        Experiment(
            name="precision",
            title="float32 against float64",
            where="section 3, implementation techniques",
            series=_precision,
        ),
    )
}


def check_choice(experiments: Iterable[Experiment], models: bool, published: bool) -> None:
    """Refuse to be told of models by which no experiment that was chosen goes.

    Parameters
    ----------
    experiments
        The choice.
    models
        Whether classifiers were chosen, for experiments on several.
    published
        Whether there are models of the authors, for experiments whose figures were published.
    """
    names = {experiment.name for experiment in experiments}
    for given, what, takes in ((models, "a choice of models", SEVERAL_MODELS), (published, "authors' models", AUTHORS)):
        if given and not names & set(takes):
            raise InputError(f"{what} would change nothing for {', '.join(names)}: this is for {', '.join(takes)}.")


def chosen_experiments(names: Iterable[str] | None) -> list[Experiment]:
    """Return the experiments of some names, in order, or all."""
    wanted = list(EXPERIMENTS) if names is None else list(names)
    for name in wanted:
        if name not in EXPERIMENTS:
            raise InputError(f"an experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in wanted]


def plan_of(experiments: Iterable[Experiment], preset: Preset, published: bool) -> Plan:
    """Return how many images of which series experiments need, each series once."""
    plan: Plan = {}
    for experiment in experiments:
        for series, count in experiment.series(preset, published):
            plan[series] = max(plan.get(series, 0), count)
    return plan
