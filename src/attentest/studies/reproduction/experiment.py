"""The experiments, by the names the paper gives them, and their series of trials: one setting, one row per image.

What the authors' later work tests in place of images are series, too: there a "series" is also a time series.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.registry import REGION_UNITS
from attentest.simulation.images import FAMILIES, nearly_gaussian, null_images, signal_images
from attentest.studies import paper_model
from attentest.training.bundled import BUNDLED_SERIES
from attentest.training.signal_classifier import SERIES_SHARE

Work: TypeAlias = Literal["selective", "interval", "permutation", "search", "curves", "precision", "evaluation"]

NOISES: dict[str, NoiseModel] = {"independent": Isotropic(1.0), "correlated": AR1(0.5)}
"""The paper's two covariances: the identity, and 0.5^|i-j| over the flattened index."""

PAPERS = "the paper's"  # how tables call its test, where others are ours


@dataclass(frozen=True, kw_only=True)
class Series:
    """What is computed on which images.

    "selective" computes the selective, the naive and the Bonferroni p-value; "interval" the selective p-value with its
    confidence interval, for our ways to select the region and the paper's; "permutation" the permutation test; "search"
    the selective p-value with a given search, for its time; "curves" the functions f_i; "precision" the same test in
    float32 and float64; "evaluation" the time of one evaluation of the model.
    """

    work: Work
    model: str  # one of the classifiers, such as "base16" or "series-base256"
    published: bool = False  # whether it is the authors' model rather than attentest's
    noise: str = "independent"  # or "correlated"
    delta: float = 0.0  # strength of the signal; 0 for null images
    family: str | None = None  # family of noise that is not Gaussian
    distance: float | None = None  # its distance from the Gaussian
    estimated: bool = False  # whether the variance is estimated from the tested image rather than known
    search: str = "spectral"  # name of the search for the truncation set
    permutations: int | None = None  # of the permutation test
    device: str | None = None  # where an evaluation is timed: "cpu" or "cuda"
    region: str = "pixels"  # what regions consist of; or "patches"
    randomise: float = 0.0  # gamma of the randomised selection; 0 for none

    @property
    def name(self) -> str:
        """Name of its file without the ending, unique to the series."""
        parts = [
            "published-" * self.published + self.model,
            self.device or self.family or self.noise,
            "" if self.distance is None else f"{self.distance:g}",
            f"delta{self.delta:g}" if self.delta else "",
            "estimated" if self.estimated else "",
            self.search if self.work == "search" else "",
            "" if self.permutations is None else f"{self.permutations}",
            *(way.replace(" ", "") for way in self._selection),
        ]
        return f"{self.work}/" + "-".join(part for part in parts if part)

    @property
    def test(self) -> str:
        """Which of our tests it is, or "the paper's"."""
        return f"ours: {', '.join(self._selection)}" if self._selection else PAPERS

    @property
    def _selection(self) -> list[str]:
        """How the region is selected otherwise than in the paper."""
        return ["patches"] * (self.region == "patches") + [f"gamma {self.randomise:g}"] * bool(self.randomise)

    @property
    def ours(self) -> bool:
        """Whether it is one of our tests, or the paper's beside them, rather than an experiment of the paper."""
        return self.work == "interval"

    @property
    def timed(self) -> bool:
        """Whether times are what it is for: they would be wrong on workers that compute beside each other."""
        return self.work in ("search", "evaluation")

    @property
    def noise_model(self) -> NoiseModel:
        """The covariance that the test assumes."""
        return NOISES[self.noise]

    def generator(self, seed: int, number: int, purpose: str = "image") -> np.random.Generator:
        """Return the random generator of one trial, a different one for each purpose.

        It depends neither on the other trials nor on the device. Series that are compared see the same images.
        """
        source = "published " * self.published + self.model
        stream = f"{source}, {self.noise} noise, delta {self.delta:g}, {self.family} at {self.distance}, {purpose}"
        key = zlib.crc32(stream.encode()), number
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

    def images(self, seed: int, numbers: list[int]) -> NDArray[np.float64]:
        """Draw the images (k, *axes) of given numbers, each (size, size) or a series (size,)."""
        return self.images_and_squares(seed, numbers)[0]

    def images_and_squares(self, seed: int, numbers: list[int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Draw the images (k, *axes) of given numbers, and the pixels of each that have the signal."""
        size, axes, family = paper_model.side_of(self.model), paper_model.axes_of(self.model), self._family
        share = SERIES_SHARE if axes == 1 else 3
        images = np.empty((len(numbers), *[size] * axes))
        squares = np.zeros(images.shape, dtype=bool)
        for place, number in enumerate(numbers):
            rng = self.generator(seed, number)
            if self.delta:
                drawn, raised = signal_images(rng, 1, size, self.delta, self.noise_model, axes, share)
                images[place], squares[place] = drawn[0], raised[0]
            elif family is not None:
                images[place] = family.rvs(size=images.shape[1:], random_state=rng)
            else:
                images[place] = null_images(rng, 1, size, self.noise_model, axes)[0]
        return images, squares

    def describe(self) -> dict[str, Any]:
        """Return all fields and what follows from them, JSON-ready."""
        shape = None if self._family is None else self._family.args[0]
        return {**asdict(self), "noise_model": dict(self.noise_model.describe()), "family_shape": shape}

    @property
    def _family(self) -> Any:
        return self.family and self.distance and nearly_gaussian(self.family, self.distance)


DEFAULT_MODEL = "base16"  # of the experiments on one image size and architecture
PRECISION_MODEL = "base64"  # of the experiment on float32
LARGE_MODEL, LARGE_DELTA = "base64", 1.0  # a larger image, in which our tests are compared with the paper's too
DELTAS = (1.0, 2.0, 3.0, 4.0)
GAMMAS: Sequence[float] = (0.0, 0.3, 0.5, 1.0)  # of the randomised selection; 0 with pixels is the paper's test
NULL_GAMMAS: Sequence[float] = (0.0, 0.3, 1.0)
SERIES_GAMMAS: Sequence[float] = (0.0, 0.5)
TESTS = ("all", "paper", "ours")  # which tests of an experiment are run
DISTANCES = (0.01, 0.02, 0.03, 0.04)
EVALUATION_REPEATS = 3  # timings of an evaluation on the CPU, from which the time of all experiments is estimated
MOST_IMAGES = 10**6  # largest number of images per series; more can only be a typing error

COUNTS = ("null", "permuted", "additional", "power", "estimated", "nearly_gaussian", "ours", "series")
"""Numbers of images of the experiments that count rejections."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Numbers of images per series."""

    models: Sequence[str] = paper_model.MODELS  # experiments on one image size always use the 16x16 base model
    null: int = 1000  # null images for the type I error of all tests
    permuted: int = 1000  # how many of them the permutation test gets
    permutations: int = 1000  # per image
    additional: int = 1000  # null images for the selective test alone (appendix E)
    power: int = 1000  # images of each signal strength
    # In the paper every search gets 200 images; the cost of a grid hardly varies, so a few are enough.
    timed: Mapping[str, int]
    timed_models: Sequence[str] = paper_model.MODELS
    estimated: int = 1000  # null images for the two checks of robustness (appendix D)
    nearly_gaussian: int = 1000
    curves: int = 3  # images whose f_i are drawn
    precision: int = 200  # images that are tested in float32 and float64
    ours: int = 1000  # images for each of our tests
    series_models: Sequence[str] = paper_model.SERIES_MODELS
    series_model: str = "series-base256"  # of the experiment on one length and architecture
    series: int = 1000  # series without a signal, and with each strength of it

    def __post_init__(self) -> None:
        for name in (*COUNTS, "permutations", "curves", "precision"):
            whole_number(getattr(self, name), name, 0, MOST_IMAGES)
        for search, count in self.timed.items():
            whole_number(count, f"the number of images of {search}", 0, MOST_IMAGES)

    def limited(self, images: int | None, permutations: int | None) -> Preset:
        """Return the preset with at most these numbers of images per series and of permutations."""
        most = MOST_IMAGES if images is None else whole_number(images, "images", 1, MOST_IMAGES)
        shuffles = MOST_IMAGES if permutations is None else whole_number(permutations, "permutations", 1, MOST_IMAGES)
        return replace(
            self,
            permutations=min(self.permutations, shuffles),
            timed={search: min(count, most) for search, count in self.timed.items()},
            **{name: min(getattr(self, name), most) for name in (*COUNTS, "curves", "precision")},
        )

    def with_models(self, models: Sequence[str] | None) -> Preset:
        """Return the preset with other classifiers."""
        if models is None:
            return self
        for model in models:
            if model not in paper_model.ALL_MODELS:
                raise InputError(f"a model must be one of {', '.join(paper_model.ALL_MODELS)}, got {model!r}.")
        images = tuple(model for model in paper_model.MODELS if model in models)
        series = tuple(model for model in paper_model.SERIES_MODELS if model in models)
        return replace(self, models=images, timed_models=images, series_models=series)


PRESETS: Mapping[str, Preset] = {
    "quick": Preset(
        models=tuple(model for model in paper_model.MODELS if paper_model.is_bundled(model)),
        null=40,
        permuted=20,
        permutations=100,
        additional=40,
        power=20,
        timed={"spectral": 4, "adaptive": 2, "combination": 1, "fixed": 1},
        timed_models=("base8",),
        estimated=40,
        nearly_gaussian=10,
        precision=2,
        ours=1,
        series_models=(BUNDLED_SERIES,),
        series_model=BUNDLED_SERIES,
        series=20,
    ),
    "paper": Preset(timed={"spectral": 200, "adaptive": 100, "combination": 20, "fixed": 10}),
    "full": Preset(
        additional=10_000,
        timed=dict.fromkeys(("spectral", "adaptive", "combination", "fixed"), 200),
        estimated=10_000,
        nearly_gaussian=10_000,
        precision=1000,
        series=10_000,
    ),
}
"""Some minutes on two cores; the counts of the paper's main text; those of its appendices."""

Counted: TypeAlias = list[tuple[Series, int]]  # series, each with its number of images

Plan: TypeAlias = Callable[[Preset, bool], Counted]
"""From a preset, and whether the authors' models are run too, to series."""


def _series(count: int, **choices: Iterable[Any]) -> Counted:
    """Return a series for each combination of choices, all with the same number of images."""
    return [(Series(**dict(zip(choices, values, strict=True))), count) for values in product(*choices.values())]


def _plan(count: str, work: Work = "selective", one: Callable[[], str] | None = None, **choices: Iterable[Any]) -> Plan:
    """Return a plan for ``one`` model, or all of a preset, of which the field ``count`` has the number of images."""
    return lambda preset, _: _series(
        getattr(preset, count), work=[work], model=[one()] if one else preset.models, **choices
    )


def _type_i_error(preset: Preset, published: bool, on_series: bool = False) -> Counted:
    models, count, gammas = preset.models, preset.null, NULL_GAMMAS
    if on_series:
        models, count, gammas = preset.series_models, preset.series, SERIES_GAMMAS
    base = [model for model in models if paper_model.architecture_of(model) == "base"]
    counted = _series(count, work=["selective"], model=models, noise=NOISES)
    if published and not on_series:
        # The published figures of the permutation test are those of the base models with correlated noise.
        counted += _series(count, work=["selective"], model=base, noise=["correlated"], published=[True])
    permuted = partial(replace, work="permutation", permutations=preset.permutations)
    paper = [pair for series, count in counted for pair in ((series, count), (permuted(series), preset.permuted))]
    # Our tests, with the paper's among them: the tests of a setting are next to each other.
    ours: dict[str, Iterable[Any]] = {"noise": NOISES, "region": REGION_UNITS, "randomise": gammas}
    return paper + _series(preset.ours, work=["interval"], model=base if on_series else models, **ours)


def _power(preset: Preset, published: bool, on_series: bool = False) -> Counted:
    count, model, large_models, gammas = preset.power, DEFAULT_MODEL, [LARGE_MODEL], GAMMAS
    if on_series:
        count, model, large_models, gammas = preset.series, preset.series_model, [], SERIES_GAMMAS
    whose = [False, True] if published and not on_series else [False]
    choices: dict[str, Iterable[Any]] = {"model": [model], "published": whose, "noise": NOISES, "delta": DELTAS}
    large: dict[str, Iterable[Any]] = {"model": large_models, "published": whose, "delta": [LARGE_DELTA]}
    ours = {"region": REGION_UNITS, "randomise": gammas}
    paper = _series(count, work=["selective"], **choices)
    return paper + [pair for at in (choices, large) for pair in _series(preset.ours, work=["interval"], **at, **ours)]


def _precision(preset: Preset, published: bool) -> Counted:
    whose = (False, True)[: 1 + published]
    return _series(preset.precision, work=["precision"], model=[PRECISION_MODEL], published=whose)


def _computation_time(preset: Preset, published: bool) -> Counted:
    counted: Counted = []
    for model in preset.timed_models:
        for noise, (search, count) in product(NOISES, preset.timed.items()):
            counted.append((Series(work="search", model=model, noise=noise, search=search), count))
        counted.append((Series(work="evaluation", model=model, device="cpu"), EVALUATION_REPEATS))
    return counted


def series_words(text: str, on_series: bool) -> str:
    """Return a text about images in the words of what an experiment is run on."""
    words = {"image size": "length", "images": "series", "image": "series", "pixels": "samples"} if on_series else {}
    for word, other in words.items():
        text = text.replace(word, other)
    return text


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str  # on the command line
    title: str  # on the page
    where: str  # figures and sections of the paper
    series: Plan

    @property
    def on_series(self) -> bool:
        """Whether it is one of the authors' later work, on series in place of images."""
        return self.name.startswith("series-")

    @property
    def kind(self) -> str:
        """Name of the experiment on images that is the same otherwise."""
        return self.name.removeprefix("series-")

    @property
    def uses_several_models(self) -> bool:
        """Whether it is run on the classifiers that a preset names."""
        full = PRESETS["full"]
        return self.series(full, False) != self.series(full.with_models(full.models[:1]), False)

    def has(self, attribute: str) -> bool:
        """Return whether some of its series are ``published``, with the authors' models, or ``ours``."""
        return any(getattr(series, attribute) for series, _ in self.series(PRESETS["full"], True))


EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment("type-i-error", "Type I error rate", "section 4, figures 4 and 5", _type_i_error),
        Experiment(
            "additional-trials",
            "Additional trials for type I error rate",
            "appendix E",
            _plan("additional", noise=NOISES),
        ),
        Experiment("power", "Power", "section 4, figure 6", _power),
        Experiment("computation-time", "Computation time", "section 4, figures 7 and 8", _computation_time),
        Experiment("estimated-variance", "Estimated variance", "appendix D.1", _plan("estimated", estimated=[True])),
        Experiment(
            "non-gaussian",
            "Non-Gaussian noise",
            "appendix D.2",
            _plan("nearly_gaussian", one=lambda: DEFAULT_MODEL, family=FAMILIES, distance=DISTANCES),
        ),
        Experiment(
            "demonstration",
            "Demonstration of the target function f_i",
            "section 4, figure 9",
            _plan("curves", "curves", one=lambda: DEFAULT_MODEL),
        ),
        Experiment(
            "precision",
            "float32 against float64",
            "section 3, implementation techniques",
            _precision,
        ),
        Experiment(
            "series-type-i-error",
            "Type I error rate on series",
            "later work, figures 4 and 5",
            partial(_type_i_error, on_series=True),
        ),
        Experiment("series-power", "Power on series", "later work, figure 6", partial(_power, on_series=True)),
    )
}
"""The experiments of the paper, and those of its authors' later work on series, which are the last two."""


def check_choice(experiments: Iterable[Experiment], models: bool, published: bool, tests: str = "all") -> None:
    """Check that a chosen experiment has a use for a choice of classifiers, for authors' models and for our tests."""
    names = {experiment.name for experiment in experiments}
    asked_for = ", ".join(name for name in EXPERIMENTS if name in names)
    several = [name for name, experiment in EXPERIMENTS.items() if experiment.uses_several_models]
    authors, ours = ([name for name in EXPERIMENTS if EXPERIMENTS[name].has(what)] for what in ("published", "ours"))
    for asked, what, users in ((models, "a choice of models", several), (published, "authors' models", authors)):
        if asked and not names & set(users):
            raise InputError(f"{what} would change nothing for {asked_for}: this is for {', '.join(users)}.")
    if tests == "ours" and not names & set(ours):
        raise InputError(f"there are no tests of ours in {asked_for}: they are in {', '.join(ours)}.")


def chosen_experiments(names: Iterable[str] | None) -> list[Experiment]:
    """Return the experiments of some names, in the paper's order, or all."""
    wanted = list(EXPERIMENTS) if names is None else list(names)
    for name in wanted:
        if name not in EXPERIMENTS:
            raise InputError(f"an experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in wanted]


def plan_of(
    experiments: Iterable[Experiment], preset: Preset, published: bool, tests: str = "all"
) -> dict[Series, int]:
    """Return the series that experiments need, each once, with the number of images; all, the paper's or ours."""
    plan: dict[Series, int] = {}
    for experiment in experiments:
        for series, count in experiment.series(preset, published):
            if tests == "all" or series.ours == (tests == "ours"):
                plan[series] = max(plan.get(series, 0), count)
    return plan
