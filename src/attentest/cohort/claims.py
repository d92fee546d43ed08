"""What can be claimed about tested images with the groups, patients and covariates of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from attentest.checks import confidence, level
from attentest.cohort.estimates import Estimates, common_effect, estimates_from_draws, unbiased_estimates
from attentest.cohort.means import Estimate, RandomEffects, patients_needed, random_effects, regression
from attentest.definition import REGION_RULES
from attentest.errors import InputError, counted, shortened, some
from attentest.record import USUAL_LEVEL, ResultNumbers, differences
from attentest.statistics import draws
from attentest.statistics.columns import Floats, Mask
from attentest.statistics.multiple_testing import Dependence, global_pvalues, least_differing
from attentest.statistics.selection_laws import RandomisedLaw

Values: TypeAlias = "Mapping[Any, Any] | Sequence[Any] | np.typing.NDArray[Any]"
"""A value of each image: in their order, or by their names, which a pandas Series with an index of its own has, too."""

MISSING = ("", "nan", "na", "n/a", "<na>", "nat", "null")
"""What tables have, in small or capital letters, where there is no value; and as Python writes it None."""

ESTIMATED = ("estimate", "standard_error", "plain_estimate")
COLUMNS = ("image", "group", "cluster", *ESTIMATED, "pvalue", "pvalue_high")
"""Columns of :meth:`Claims.table` beside the covariates."""

INTERCEPT = "intercept"
"""Name of the coefficient of a regression that is the mean of the first group."""

SAME_TEST = (*REGION_RULES, "region_unit", "channels", "contrast", "randomise", "draws", "alternative")
"""Settings in which the tests of a cohort agree, beside the noise; two models on the same images are two cohorts."""

COUNTED = (
    "images of counts have estimates of the ratio of two rates in each image, of which no mean is offered; what "
    "p-values say together holds"
)
"""Why there is no mean of counts."""

NAIVE = (
    "the model chose each region by the pixels that are compared, so that observed differences are too large and no "
    "mean of them is valid; test with randomise=0.5 (--randomise 0.5) for means, groups and regression"
)

SHARED = (
    "images of several clusters are compared with the same noisy reference, whose noise is in all of them and in no "
    "interval; make them one of the clusters, or give the reference a noise of 0 for the difference from it as it is"
)


class Claims:
    """Tested images of a study, and what can be claimed about them: all of a :class:`Cohort` but how it is shown.

    Parameters
    ----------
    named
        The images: names, with their results or the records of these, of one test on whole regions. None in place of
        the result of an image that could not be tested: it is left out.
    groups, clusters
        The group of each image; and its patient, or whatever else images have in common: clusters are independent of
        each other, and each is in one group. In the order of the images, or by their names.
    covariates
        Numbers by the name of the covariate, for a regression.
    """

    def __init__(
        self,
        named: Iterable[tuple[object, ResultNumbers | None]],
        groups: Values | None = None,
        clusters: Values | None = None,
        covariates: Mapping[str, Values] | None = None,
    ) -> None:
        images = list(named)
        self._tested = [place for place, (_, result) in enumerate(images) if result is not None]
        self.names, self.failed = [images[place][0] for place in self._tested], len(images) - len(self._tested)
        self.results = [result for _, result in images if result is not None]
        if len(set(self.names)) < max(len(self), 2):
            raise InputError(
                f"a cohort needs at least two images that were tested, each with its own name, got {len(self)}."
            )
        self._check_one_test()
        if not isinstance(covariates or {}, Mapping):
            raise InputError(f"covariates must be numbers by name, got {type(covariates).__name__}.", "covariates")
        self.groups = None if groups is None else [str(value) for value in self._column(groups, "groups")]
        self.clusters = None if clusters is None else [str(value) for value in self._column(clusters, "clusters")]
        self.covariates = {str(name): self._numbers(values, str(name)) for name, values in (covariates or {}).items()}
        self.unit = "image" if clusters is None else "cluster"
        self.group_names = sorted(set(self.groups or ()))
        """The groups in alphabetical order: differences are from the first."""
        for name in (*COLUMNS, INTERCEPT, *self.group_names):
            if name in self.covariates:
                owner = "a group" if name in self.group_names else "a coefficient or column of the study"
                raise InputError(
                    f"covariates must have other names than {shortened(name)}, which is that of {owner}.", "covariates"
                )
        if INTERCEPT in self.group_names:
            raise InputError(
                f"groups must have other names than {INTERCEPT!r}, which is that of a coefficient.", "groups"
            )
        self._cluster = np.unique(self.clusters or np.arange(len(self)), return_inverse=True)[1]
        self._check_groups()
        # Upper ends of error bars: valid whatever the searches left open.
        self._log_pvalues = np.array([result.log_pvalue_bounds[1] for result in self.results])
        self.randomised = isinstance(self.results[0].law, RandomisedLaw)
        self.own_noise = bool(self.results[0].settings["noise"].get("approximate"))
        self.noise_degrees = min(map(shared_noise_degrees, self.results))
        """Degrees of freedom of the noise that images share; infinite if it is known, or each image has its own."""
        references = [result.settings.get("noisy_reference") for result in self.results]
        pairs = [pair for pair in zip(references, self._cluster.tolist(), strict=True) if pair[0] is not None]
        noisy = len({reference for reference, _ in pairs})
        self.dependence: Dependence = "any" if noisy < len(pairs) else "positive"
        """How p-values may depend on each other: "any" if images share a noisy reference, else "positive"."""
        self.counts = self.results[0].is_of_counts
        self.why_no_mean = None if self.randomised else COUNTED if self.counts else NAIVE
        """Why there is no valid mean difference; None if there is."""
        if noisy < len(set(pairs)):
            self.why_no_mean = SHARED
        elif not self._cluster.any():
            self.why_no_mean = "all images are in one of the clusters, and two are needed to tell how much they vary"

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        clusters = [] if self.clusters is None else [counted(len(set(self.clusters)), "cluster")]
        parts = [counted(len(self), "image"), *clusters, *self.group_names, *self.covariates]
        return f"{type(self).__name__}({', '.join(parts)})"

    @cached_property
    def estimates(self) -> Estimates:
        """Unbiased estimates of the images; an error without randomised selection."""
        if not self.randomised:
            raise InputError(f"there are no unbiased estimates: {COUNTED if self.counts else NAIVE}.")
        return estimates_of(self.results)

    def mean(self, group: str | None = None, *, confidence_level: float = USUAL_LEVEL) -> Estimate:
        """Return the mean difference of all images, or of a group, each image with the same weight.

        The interval holds for true differences that vary between images and between clusters.
        """
        rows = None if group is None else self._in(group)
        return self._fit(np.ones((len(self), 1)), self._known, confidence_level, rows)[0]

    def differences(self, *, confidence_level: float = USUAL_LEVEL) -> dict[str, Estimate]:
        """Return the mean of each group less that of the first one, by its name."""
        if self.groups is None:
            raise InputError("there are no groups to compare: give the group of each image (groups=).", "groups")
        return dict(list(self._coefficients({}, confidence_level).items())[1:])

    def regression(self, *, confidence_level: float = USUAL_LEVEL) -> dict[str, Estimate]:
        """Return the coefficients of the regression of the differences on groups and covariates, by name.

        That of a group is its difference from the first one at equal covariates, that of a covariate the change with
        one unit of it, and the ``intercept`` the mean of the first group where all covariates are zero.
        """
        return self._coefficients(self.covariates, confidence_level)

    def random_effects(self, *, confidence_level: float = USUAL_LEVEL) -> RandomEffects:
        """Return how far true differences vary between clusters, or images, and their weighted mean."""
        self._check_mean()
        known, count = self.estimates, np.bincount(self._cluster)
        columns = (known.value, known.plain, known.error**2)
        value, plain, square = (np.bincount(self._cluster, column) / count for column in columns)
        # Weights from noise that was estimated from the image itself would depend on what is weighted.
        variance = np.full_like(square, square.mean()) / count if self.own_noise else square / count
        return random_effects(value, plain, variance, confidence(confidence_level))

    def paired(self, other: Claims, *, confidence_level: float = USUAL_LEVEL) -> Estimate:
        """Return the mean difference less that of another test of the same images, such as one of another model.

        Its variance is that of the differences of images: what both tests share, noise of the image and perhaps of the
        randomisation, needs no assumption.
        """
        if not isinstance(other, Claims):
            raise InputError(f"other must be a cohort of the same images, got {shortened(other)}.", "other")
        if alone := sorted(set(self.names) ^ set(other.names), key=str):
            raise InputError(f"both cohorts must have the same images, and {some(alone)} are in one of them alone.")
        places = {name: place for place, name in enumerate(other.names)}
        order = [places[name] for name in self.names]
        values, corrections = (mine - theirs[order] for mine, theirs in zip(self._known, other._known, strict=True))
        return self._fit(np.ones((len(self), 1)), (values, corrections), confidence_level)[0]

    def common_effect(self, *, confidence_level: float = USUAL_LEVEL) -> Estimate:
        """Return the difference that all images have in common, without randomised selection.

        The p-value is that of no difference anywhere; estimate and interval assume that all true ones are equal.
        """
        if self.counts:
            raise InputError(f"there is no common effect: {COUNTED}.")
        if self.randomised:
            raise InputError("a common effect is for tests without randomise=: with it, mean() assumes less.")
        statistic = np.array([result.statistic for result in self.results])
        sets = [result.truncation_set.intervals for result in self.results]
        errors = np.array([result.standard_error for result in self.results])
        return common_effect(statistic, sets, errors, confidence(confidence_level))

    def at_least(
        self, alpha: float = 0.05, subset: Sequence[Any] | Mask | None = None, dependence: Dependence | None = None
    ) -> int:
        """Return how many images truly differ at least, with a confidence of 1 - alpha, by closed testing.

        The bounds for all subsets hold together, so that a subset may be chosen after looking at the results.

        Parameters
        ----------
        alpha
            Level.
        subset
            The images to count: their names, or a mask (k,); by default all.
        dependence
            "positive" for images that are independent or positively dependent (Simes' local tests), "any" for others
            (Hommel's); by default as in the attribute.
        """
        if dependence not in (None, "positive", "any"):
            raise InputError(f"dependence must be 'positive' or 'any', got {shortened(dependence)}.", "dependence")
        chosen = np.ones(len(self), dtype=bool) if subset is None else np.asarray(subset)
        if chosen.dtype != bool:
            wanted = set(subset if subset is not None else ())
            if unknown := sorted(wanted - set(self.names), key=str):
                raise InputError(f"subset must be names of images, or a mask, and {some(unknown)} is none.", "subset")
            chosen = np.array([name in wanted for name in self.names])
        if chosen.shape != (len(self),):
            raise InputError(f"subset (as a mask) must have {len(self)} values, got {chosen.size}.", "subset")
        return least_differing(self._log_pvalues, chosen, level(alpha), dependence or self.dependence)

    def global_pvalues(self) -> dict[str, float]:
        """Return p-values of the hypothesis that no image differs: decide beforehand which is reported.

        ``simes`` holds for independent and positively dependent images, ``hommel`` under any dependence, and ``fisher``
        for independent images alone; it is the most powerful where many images differ a little.
        """
        return global_pvalues(self._log_pvalues)

    def patients_needed(self, effect: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
        """Return how many patients, or images without clusters, find an effect if they vary as those of this pilot.

        With groups, in each of two whose means differ by the effect. :func:`attentest.cohort.means.patients_needed`
        takes other numbers.
        """
        self._check_mean()
        groups = self.groups or [""] * len(self)
        of_cluster = dict(zip(self._cluster.tolist(), groups, strict=True))
        means = np.bincount(self._cluster, self.estimates.value) / np.bincount(self._cluster)
        group = np.unique([of_cluster[place] for place in range(len(means))], return_inverse=True)[1]
        rest = means - (np.bincount(group, means) / np.bincount(group))[group]
        deviation = math.sqrt(float(rest @ rest) / (len(means) - int(group.max()) - 1))
        return patients_needed(effect, deviation, groups=2 if self.groups else 1, alpha=alpha, power=power)

    def claims(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return the numbers of the study by name, intervals of level 1 - alpha; without means where none is valid."""
        at: dict[str, Any] = {"confidence_level": 1 - level(alpha)}
        groups = self.group_names
        found: dict[str, Any] = {"alpha": alpha, "images": len(self), "failed": self.failed}
        found["clusters"] = None if self.clusters is None else len(set(self.clusters))
        found["why_no_mean"] = self.why_no_mean
        if self.why_no_mean is None:
            found["mean"], found["groups"] = self.mean(**at), {group: self.mean(group, **at) for group in groups}
            found["differences"] = self.differences(**at) if groups else {}
            found["regression"] = self.regression(**at) if self.covariates else {}
            found["random_effects"] = self.random_effects(**at)
        if not self.randomised and not self.counts:
            found["common_effect"] = self.common_effect(**at)
        found["at_least"] = self.at_least(alpha)
        found["at_least_of"] = {group: self.at_least(alpha, self._in(group)) for group in groups}
        return found | {"dependence": self.dependence, "global": self.global_pvalues()}

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each image, as columns; standard errors are upper bounds, those of ``plain_estimate``."""
        of = self.estimates if self.randomised else None
        estimated = [None] * len(ESTIMATED) if of is None else [of.value, of.error, of.plain]
        high = [result.pvalue_bounds[1] for result in self.results]
        pvalues = [result.pvalue for result in self.results]
        values = [self.names, self.groups, self.clusters, *estimated, pvalues, high]
        known: dict[str, Any] = dict(zip(COLUMNS, values, strict=True)) | self.covariates
        return {name: np.asarray(values).tolist() for name, values in known.items() if values is not None}

    def _check_one_test(self) -> None:
        first = _compared(self.results[0].settings)
        for name, result in zip(self.names, self.results, strict=True):
            for path, then, now in differences(first, _compared(result.settings), ()):
                raise InputError(
                    f"a cohort takes results of one test, and {' of '.join(path)} is {shortened(then)} for "
                    f"{shortened(self.names[0])} and {shortened(now)} for {shortened(name)}: test all images alike."
                )
        if first["components"] is not None:
            raise InputError("a cohort takes whole regions, and these are components: test without components.")

    def _check_groups(self) -> None:
        pairs = sorted({*zip(self._cluster.tolist(), self.groups or (), strict=self.groups is not None)})
        for (cluster, one), (another, other) in pairwise(pairs):
            if cluster == another:
                name = shortened((self.clusters or self.names)[self._cluster.tolist().index(cluster)])
                raise InputError(
                    f"each of the clusters must be in one of the groups, and {name} is in {one!r} and {other!r}: "
                    "give what varies within clusters as covariates of 0 and 1.",
                    *("clusters", "groups", "covariates"),
                )
        sizes = [(group, sum(of == group for _, of in pairs)) for group in self.group_names]
        if self.groups is not None and (len(sizes) < 2 or min(size for _, size in sizes) < 2):
            raise InputError(
                f"there must be at least two groups, with at least two {self.unit}s each to tell how much they vary, "
                f"got {', '.join(f'{group!r} with {size}' for group, size in sizes)}.",
                "groups",
            )

    def _check_mean(self) -> None:
        if self.why_no_mean is not None:
            raise InputError(f"there is no mean difference: {self.why_no_mean}.")

    @property
    def _known(self) -> tuple[Floats, Floats]:
        return self.estimates.value, self.estimates.correction

    def _coefficients(self, covariates: Mapping[str, Floats], confidence_level: float) -> dict[str, Estimate]:
        """Return the coefficients of an intercept, the groups but for the first, and covariates."""
        columns = {INTERCEPT: np.ones(len(self)), **{name: self._in(name) * 1.0 for name in self.group_names[1:]}}
        design = np.column_stack([*columns.values(), *covariates.values()])
        names, clusters = [*columns, *covariates], int(self._cluster.max()) + 1
        scale = np.maximum(np.abs(design).max(axis=0), np.finfo(float).tiny)
        if np.linalg.matrix_rank(design / scale) < len(names) or clusters <= len(names):
            raise InputError(
                f"a regression on {', '.join(names)} needs more than {len(names)} {self.unit}s, got {clusters}, and "
                "covariates none of which follows from the others: leave one of the covariates out.",
                "covariates",
            )
        return dict(zip(names, self._fit(design, self._known, confidence_level), strict=True))

    def _fit(
        self, design: Floats, known: tuple[Floats, Floats], confidence_level: float, chosen: Mask | None = None
    ) -> list[Estimate]:
        """Return the coefficients of the regression of values, with their corrections, of some images on a design."""
        self._check_mean()
        rows = np.ones(len(self), dtype=bool) if chosen is None else chosen
        cluster = np.unique(self._cluster[rows], return_inverse=True)[1]
        values, corrections = (column[rows] for column in known)
        at = confidence(confidence_level)
        return regression(design[rows], values, cluster, at, corrections, self.noise_degrees)

    def _in(self, group: str) -> Mask:
        if group not in self.group_names:
            raise InputError(f"group must be one of {self.group_names}, got {shortened(group)}.", "group")
        return np.asarray(np.array(self.groups) == group)

    def _column(self, values: Values, what: str) -> list[Any]:
        """Return the values of images in their order; raise an error if some image has none, or an empty one."""
        count, named = len(self) + self.failed, _by_name(values, what)
        if named is not None:
            listed = [named.get(name) for name in self.names]
        elif (
            not hasattr(values, "__len__")
            or isinstance(values, str)
            or len(values) != count
            or getattr(values, "ndim", 1) != 1
        ):
            raise InputError(
                f"{what} must have a value for each of the {count} images, in their order or by name, got "
                f"{shortened(values)}.",
                what,
            )
        else:
            every = list(values)
            listed = [every[place] for place in self._tested]
        if empty := [name for name, value in zip(self.names, listed, strict=True) if is_missing(value)]:
            raise InputError(f"{what} must have a value for each image, and there is none for {some(empty)}.", what)
        return listed

    def _numbers(self, values: Values, name: str) -> Floats:
        listed = self._column(values, "covariates")
        try:
            numbers = np.array([float(value) for value in listed])
        except (TypeError, ValueError):
            numbers = np.array([math.nan])
        if not np.isfinite(numbers).all():
            raise InputError(
                f"covariates must be finite numbers, and {name} has others: use groups for what is said in words.",
                *("covariates", "groups"),
            )
        return numbers


def is_missing(value: object) -> bool:
    """Return whether a value is what tables have where there is none."""
    text = str(value).strip()
    return text == "None" or text.lower() in MISSING


def _by_name(values: Any, what: str) -> Mapping[Any, Any] | None:
    """Return values that have names; None if they are in an order. Those of a pandas Series are in its index."""
    if isinstance(values, Mapping):
        return values
    index = getattr(values, "index", None)
    if index is None or callable(index) or getattr(values, "ndim", 1) != 1 or list(index) == list(range(len(index))):
        return None
    if len(set(index)) < len(index):
        raise InputError(
            f"{what} have an index, by which they are found, with a name twice: give each one value.", what
        )
    return dict(zip(index, values, strict=True))


def estimates_of(results: Sequence[ResultNumbers]) -> Estimates:
    """Return unbiased estimates from results of one test with randomised selection."""
    drawn = [columns for result in results if (columns := _draws_of(result)) is not None]
    if drawn:  # all have them: it is one test
        return estimates_from_draws(drawn)
    laws: Any = [result.law for result in results]
    if len({type(law) for law in laws}) > 1:  # some standard errors are known
        laws = [law.with_known_error() for law in laws]
    errors = np.array([result.standard_error for result in results])
    return unbiased_estimates(type(laws[0]).concatenated(laws), [result.truncation_set for result in results], errors)


def shared_noise_degrees(result: ResultNumbers) -> float:
    """Return degrees of freedom of the noise that images share; infinite if it is known, or each image has its own."""
    return math.inf if result.settings["noise"].get("approximate") else result.degrees_of_freedom


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in which tests of a cohort agree; noise that is that of each image may have other numbers."""
    same, noise = {name: settings.get(name) for name in (*SAME_TEST, "components")}, settings["noise"]
    return same | {"noise": noise.get("model") if noise.get("approximate") else noise}


def _draws_of(result: Any) -> Mapping[str, Sequence[float]] | None:
    """Return the numbers of several draws of a result or of a record of one; None if there was one.

    Of draws that could stop when the verdict was certain only those are taken that are always there: how many there are
    depends on what they showed.
    """
    drawn = getattr(result, "draws", None)
    if not drawn:
        return None
    columns = drawn if isinstance(drawn, Mapping) else draws.draw_columns(drawn)
    if result.alpha is None:
        return columns
    always = draws.rank_of(result.settings["draws"])
    return {name: columns[name][:always] for name in draws.COLUMNS}
