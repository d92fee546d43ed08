"""The record of a result: its numbers, its truncation set and the settings of the test, which JSON can hold.

Everything that is shown or saved of a result is read from its record: JSON, rows of tables, figures, reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

from attentest.checks import confidence, level, positive_number, real_number, whole_number
from attentest.contrast.context import Context
from attentest.definition import REGION_RULES
from attentest.errors import InputError, shortened
from attentest.images.image_file import Spacing
from attentest.search import Audit
from attentest.search.problem import STATUSES
from attentest.statistics.alternative import as_alternative
from attentest.statistics.draws import COLUMNS, combined_bounds
from attentest.statistics.inference import (
    ConfidenceInterval,
    Inference,
    confidence_intervals_of,
    naive_confidence_interval,
)
from attentest.statistics.interval_mass import probability
from attentest.statistics.pvalue import decision
from attentest.statistics.selection_laws import BinomialCounts, law_from_values, law_values
from attentest.statistics.truncation_set import Intervals, TruncationSet

T = TypeVar("T")

VERSION = 1  # version of the record; it changes when an earlier attentest could no longer read it rightly
USUAL_LEVEL = 0.95  # confidence level of a result whose test went for p alone
USUAL_ALPHA = 0.05  # level at which the draws of a result are counted where no other one is asked for
LARGEST_COUNT = 2**53  # no number of pixels or evaluations is larger; a larger one in a file is damage

ROUNDING = 1e-9
"""Relative; numbers that follow from others, or are fitted to data, differ in their last digits between machines."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ResultNumbers(Inference):
    """The numbers of the test of one region, or of one connected component of it."""

    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    """Natural logarithms of the selective p-value and of the bounds on it, for p too small for a float. They are as
    exact as the search was asked to be: with a tolerance of 1e-6 the search does not distinguish p-values below it;
    ``SpectralSearch(tol=0, rtol=1e-3)`` resolves any p."""
    naive_log_pvalue: float
    bonferroni_log_pvalue: float
    """Logarithms of the p-value that ignores the selection, and of the one that corrects for all regions that could
    have been chosen."""
    alpha: float | None
    """Level at which the test was asked to decide, if it was."""
    selectable: int
    """Number of pixels seen, or of patches in which they lie if the region consists of whole patches: those from which
    the model chose the region."""
    evaluations: int
    """Number of model evaluations that the search used for this image."""
    status: str
    """"converged"; "decided" if the search stopped when it knew on which side of ``alpha`` p lies; or the reason for
    which it stopped early: "max_evaluations"; "precision" where rounding or noise of the scores hides the rest; or
    "sharp" where the scores change so abruptly somewhere that looking for all such places would take more than
    ``max_evaluations``. P is then only a guess with a wide error bar: certify the result
    (``certification=`` in calling the test), or search with a larger ``max_evaluations``."""
    settings: Mapping[str, Any]
    """How the test was made: region, contrast, alternative, search and noise, JSON-ready."""
    audit: Audit | None = None
    """How many random ``points`` the search compared with its conclusions before it ended, and how many
    ``contradictions`` it found and mended; None for the grid searches, which have no audit."""
    spacing: Spacing | None = None
    """How far apart the pixels are (:class:`~attentest.images.image_file.Spacing`), where the image file tells."""

    @property
    def pvalue(self) -> float:
        """Selective p-value: valid although the model chose the region. Never zero; see ``log_pvalue``."""
        return probability(self.log_pvalue)

    @property
    def pvalue_bounds(self) -> tuple[float, float]:
        """Least and greatest p-value compatible with what the search knows."""
        low, high = self.log_pvalue_bounds
        return probability(low), probability(high)

    @property
    def reject(self) -> bool | None:
        """Whether p is at most ``alpha``; None if no alpha was given or the search could not tell."""
        return None if self.alpha is None else self.reject_at(self.alpha)

    def reject_at(self, alpha: float) -> bool | None:
        """Return whether p is at most alpha; None if the error bar contains alpha, so that the search cannot tell."""
        return decision(*self.pvalue_bounds, level(alpha))

    @property
    def naive_pvalue(self) -> float:
        """P-value of a plain z-test on the region: not valid, shown for comparison."""
        return probability(self.naive_log_pvalue)

    @property
    def bonferroni_pvalue(self) -> float:
        """P-value corrected for every possible region: valid, but of hardly any power."""
        return probability(self.bonferroni_log_pvalue)

    def naive_confidence_interval(self, confidence_level: float | None = None) -> ConfidenceInterval:
        """Return the interval of a plain z-test: not valid, shown for comparison.

        The level is by default that of the test, or 0.95 if it went for p alone.
        """
        asked = self.interval_level(confidence_level)
        if isinstance(self.law, BinomialCounts):
            return confidence_intervals_of([replace(self, law=self.law.naive())], asked)[0]
        return naive_confidence_interval(self.difference, self.standard_error, self.alternative, asked)

    @property
    def confidence_level(self) -> float | None:
        """Level of the confidence interval that the search went for; None if it went for p alone."""
        searched: float | None = self.settings["confidence_level"]
        return searched

    def interval_level(self, asked: float | None = None) -> float:
        """Return the level of a confidence interval: the one asked for, that of the test, or 0.95 if it has none."""
        return self.confidence_level or USUAL_LEVEL if asked is None else asked

    @property
    def dimension(self) -> int:
        """Number of axes: 1 of a signal, 2 of an image, 3 of a volume or a video."""
        return dimension_of(self.settings)

    @property
    def connectivity(self) -> int | None:
        """1 or 2 if the compared part is a connected component, None if the region was compared as a whole."""
        connectivity: int | None = self.settings["components"]
        return connectivity

    @property
    def reference_images(self) -> int | None:
        """Number of reference images that the noise was estimated from; None if it is known, or known otherwise."""
        images = self.settings["noise"].get("images")
        return images if isinstance(images, int) else None

    @property
    def is_of_counts(self) -> bool:
        """Whether counts were tested: estimates and intervals are of the ratio of mean rates, 1 if they are equal."""
        return isinstance(self.law, BinomialCounts)

    @property
    def map_kind(self) -> str:
        """What the map shows, for words and figures, such as "attention" or "Grad-CAM"."""
        return map_kind(self.settings)

    @property
    def target(self) -> Mapping[str, Any] | None:
        """Of a map for a class or a text: "class", "label" and "score", and whether the class was "predicted".

        The test is then conditional on the prediction. None for maps of attention alone.
        """
        target: Mapping[str, Any] | None = self.settings.get("target")
        return target

    @property
    def approximate_noise(self) -> bool:
        """Whether the noise was estimated from the tested image, so that p is approximate."""
        return bool(self.settings["noise"].get("approximate", False))

    @property
    def noise_doubt(self) -> str | None:
        """Why the image can hardly have the noise of the noise model, by its finest details; None if it can."""
        doubt: str | None = self.settings.get("noise_doubt")
        return doubt


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ResultRecord(ResultNumbers):
    """The numbers of a result with estimate and confidence interval, without its images."""

    estimate: float
    estimate_bounds: tuple[float, float]
    """Median-unbiased estimate of the difference, and the bounds on it."""
    confidence_interval: ConfidenceInterval | None = None
    """Confidence interval of the difference; None if the search went for p alone and none was asked for."""
    simultaneous_interval: ConfidenceInterval | None = None
    """Of a component of a region: the interval that covers together with those of the other components."""
    region_pixels: int
    part_pixels: int
    seen_pixels: int
    image_pixels: int
    """Number of pixels of the region, of its compared part, of what the model sees, and of the image."""
    certificate: Mapping[str, Any] | None = None
    """The values of the certificate (:meth:`~attentest.results.certificate.Certificate.to_dict`), if there is one."""
    context: Context | None = None
    """How large the difference is within the image, if that is known."""
    draws: Mapping[str, Any] | None = None
    """Of several draws of the added noise, the numbers of each (:func:`~attentest.statistics.draws.draws_values`): p,
    estimate and interval of the record are those of all."""
    extent: tuple[tuple[int, int], ...] = ()
    """Where along each axis the compared part begins and ends, in pixels; the end is that of Python's slices."""

    def significant_draws(self, alpha: float) -> tuple[int, int]:
        """Return how many draws have a p-value of their own of at most alpha, and how many draws there were."""
        logs = [self.log_pvalue] if self.draws is None else self.draws["log_pvalue"]
        return sum(float(log) <= math.log(alpha) for log in logs), len(logs)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready values; infinite numbers become "inf" and "-inf"."""
        values: dict[str, Any] = {
            "law": law_values(self.law),
            "truncation_set": asdict(self.truncation_set),
            "audit": None if self.audit is None else asdict(self.audit),
            "certificate": self.certificate,
            "context": None if self.context is None else self.context.to_dict(),
            "draws": self.draws,
            "settings": self.settings,
        }
        if self.spacing is not None:
            values |= {"spacing": asdict(self.spacing), "extent": self.extent}
        ready: dict[str, Any] = self._numbers() | json_ready(values)
        return ready

    def _numbers(self) -> dict[str, Any]:
        """Return its numbers and those that follow from them as JSON-ready values."""
        interval, together = self.confidence_interval, self.simultaneous_interval
        values = {
            "version": VERSION,
            **{name: getattr(self, name) for name in NUMBERS},
            "degrees_of_freedom": None if math.isinf(self.degrees_of_freedom) else self.degrees_of_freedom,
        }
        if interval is not None:
            naive = self.naive_confidence_interval(interval.confidence_level)
            values["confidence_interval"] = interval_values(interval)
            values["naive_confidence_interval"] = interval_values(naive)
        if together is not None:
            values["simultaneous_interval"] = {**interval_values(together), "count": together.together}
        ready: dict[str, Any] = json_ready(values)
        return ready

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ResultRecord:
        """Return the record whose :meth:`to_dict` this is; raise an error that names the first value that is not.

        Values that follow from others, such as p from its logarithm, must be those that follow.
        """
        if values.get("version") != VERSION:
            raise InputError(
                f"the record of a result has version {shortened(values.get('version'))}, and this attentest reads "
                f"version {VERSION}: use the attentest that wrote it, or test the image again."
            )
        try:
            record = cls._read(values)
            for name, value in record._numbers().items():
                for path, then, now in differences(values[name], value, (name,)):
                    raise ValueError(
                        f"{' of '.join(path)} is {shortened(then)}, and by the other values it is {shortened(now)}"
                    )
            return record
        except KeyError as error:
            raise InputError(f"the record of a result is incomplete: {error.args[0]} is missing.") from None
        except (TypeError, AttributeError, OverflowError):
            raise InputError("the record of a result is damaged: a value is not of the kind that it must be.") from None
        except ValueError as error:
            raise InputError(f"the record of a result is damaged: {str(error).rstrip('.')}.") from None

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> ResultRecord:
        settings = _of_kind(Mapping, values["settings"], "settings")
        for name in ("noise", "contrast", "search"):
            _of_kind(Mapping, settings[name], name)
        _of_kind(str, settings["contrast"]["name"], "name of contrast")
        for name in ("region_unit", "noise_doubt"):
            _of_kind(str, settings.get(name) or "", name)
        for name in (*REGION_RULES, "randomise"):
            real_number(settings.get(name) or 0.0, name)
        whole_number(dimension_of(settings), "dimension", 1, 3)
        searched, _ = settings["confidence_level"], settings["components"]
        if searched is not None:
            confidence(searched)
            _of_kind(Mapping, values["confidence_interval"], "confidence_interval")
        if values["status"] not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {shortened(values['status'])}")
        law = law_from_values(_real(values, "statistic"), values["law"])
        if law is None:
            raise ValueError(f"law {shortened(values['law'])} is unknown")
        counts = {name: _count(values, name) for name in COUNTS}
        if not counts["part_pixels"] <= counts["region_pixels"] <= counts["image_pixels"]:
            raise ValueError("part_pixels, region_pixels and image_pixels must not decrease")
        sets = {name: _union(values["truncation_set"][name], name) for name in ("intervals", "certain", "possible")}
        if not ((sets["intervals"][:, 0] <= law.z_obs) & (law.z_obs <= sets["intervals"][:, 1])).any():
            raise ValueError("the truncation set must contain the observed statistic")
        log_pvalue, log_bounds = _with_bounds(values, "log_pvalue", most=0.0)
        estimate, estimate_bounds = _with_bounds(values, "estimate")
        if (certificate := values["certificate"]) is not None:
            _real(_of_kind(Mapping, certificate, "certificate"), "pvalue", 0.0, 1.0)
            for name in ("draws", "steps"):
                _count(certificate, name)
        if (spacing := values.get("spacing")) is not None:
            spacing = Spacing(tuple(_of_kind(Mapping, spacing, "spacing")["lengths"]), spacing["unit"])
            if not len(spacing.lengths) == len(values["extent"]) == dimension_of(settings):
                raise ValueError("spacing and extent must have one value for each axis")
        if (draws := values["draws"]) is not None:
            count = whole_number(settings["draws"], "draws", 2, LARGEST_COUNT)
            _check_draws(_of_kind(Mapping, draws, "draws"), count, log_bounds)

        return cls(
            law=law,
            truncation_set=TruncationSet(**sets),
            standard_error=positive_number(values["standard_error"], "standard_error"),
            alternative=as_alternative(values["alternative"]),
            log_pvalue=log_pvalue,
            log_pvalue_bounds=log_bounds,
            naive_log_pvalue=_real(values, "naive_log_pvalue", most=0.0),
            bonferroni_log_pvalue=_real(values, "bonferroni_log_pvalue", most=0.0),
            alpha=_if_any(level, values["alpha"]),
            status=values["status"],
            settings=settings,
            audit=_if_any(_audit, values["audit"]),
            estimate=estimate,
            estimate_bounds=estimate_bounds,
            confidence_interval=_if_any(interval_from_values, values.get("confidence_interval")),
            simultaneous_interval=_if_any(interval_from_values, values.get("simultaneous_interval")),
            certificate=certificate,
            context=_if_any(lambda it: Context.from_dict(_of_kind(Mapping, it, "context")), values["context"]),
            draws=draws,
            spacing=spacing,
            extent=tuple(_range(ends) for ends in values.get("extent", ())),
            **counts,
        )


COUNTS = ("region_pixels", "part_pixels", "seen_pixels", "selectable", "image_pixels", "evaluations")
"""Values of a record that are whole numbers."""

NUMBERS = (
    *("statistic", "pvalue", "pvalue_bounds", "log_pvalue", "log_pvalue_bounds", "alpha", "reject", "alternative"),
    *("difference", "standard_error", "reference_images", "estimate", "estimate_bounds", "interval_bound"),
    *("naive_pvalue", "naive_log_pvalue", "bonferroni_pvalue", "bonferroni_log_pvalue", "status", *COUNTS),
)
"""Values of a record that have the same name in JSON."""


def _check_draws(draws: Mapping[str, Any], count: int, log_bounds: tuple[float, float]) -> None:
    """Raise an error unless draws, of which so many were asked for, have their numbers and the bounds on p follow."""
    pairs = zip(draws["log_pvalue"], draws["log_pvalue_bounds"], strict=True)
    bounds = [
        _with_bounds({"log_pvalue": p, "log_pvalue_bounds": ends}, "log_pvalue", most=0.0)[1] for p, ends in pairs
    ]
    for name in (*COLUMNS, "estimate", "region_pixels"):
        if [_real({name: value}, name) for value in draws[name]][len(bounds) :] or len(draws[name]) < len(bounds):
            raise ValueError(f"draws must have one {name} each, got {len(draws[name])} for {len(bounds)}")
    for now, then in zip(combined_bounds(bounds, count), log_bounds, strict=True):
        if now != then and abs(now - then) > ROUNDING * (1 + abs(then)):
            raise ValueError(f"log_pvalue_bounds have {then!r}, and by the draws it is {now!r}")


def map_title(settings: Mapping[str, Any]) -> str:
    """Return what the map of a result shows: of several draws, how often each pixel was chosen."""
    count = settings.get("draws") or 1
    if count > 1:
        return f"how often chosen in {count} draws"
    target, kind = settings.get("target"), map_kind(settings)
    if not target:
        return f"{kind} map"
    label = target["label"]
    named = f"“{label}”" if kind == TEXT_MAP else f"class {target['class']}" + (f" ({label})" if label else "")
    return f"{kind} map for {named}"


def map_of_all(settings: Mapping[str, Any]) -> str:
    """Return what the maps of all images of a test show, from the settings of one result."""
    if (settings.get("target") or {}).get("predicted"):
        return f"{map_kind(settings)} map for the predicted class"
    return map_title({**settings, "draws": 1})


def predicted_class(target: Mapping[str, Any] | None) -> str:
    """Return "class 2, ", where pictures of several images name it: if it is what the model predicts for this one."""
    return f"class {target['class']}, " if target and target["predicted"] else ""


TEXT_MAP = "text relevance"

MAPS_FOR_A_CLASS = {
    "gradient-rollout": "gradient rollout",
    "grad-cam": "Grad-CAM",
    "hires-cam": "HiResCAM",
    "cam": "class activation",
    "input-gradient": "input gradient",
    "integrated-gradients": "integrated gradients",
    "text-relevance": TEXT_MAP,
    "segmentation": "segmentation",
    "residual": "residual",
}
"""What words and figures call the maps that are not of attention alone, by their recorded names."""


def map_kind(settings: Mapping[str, Any]) -> str:
    """Return "attention" or the name of a map for a class, and "saliency" of scores that do not say what they are."""
    attention = (settings.get("model") or {}).get("attention")
    name = attention.get("name") if isinstance(attention, Mapping) else None
    return "saliency" if attention is None else MAPS_FOR_A_CLASS.get(str(name), "attention")


def region_words(settings: Mapping[str, Any]) -> str:
    """Return what a region is, by the rule of the settings."""
    kind, unit = map_kind(settings), settings["region_unit"]
    if settings.get("top_fraction") is not None:
        return f"{settings['top_fraction']:.3g} of the {unit}, those of greatest {kind}"
    if settings.get("level") is not None:
        return f"{unit} with {kind} above the level {settings['level']:g}, not scaled"
    return f"{unit} with {kind} above {settings['threshold']:g}"


def dimension_of(settings: Mapping[str, Any]) -> int:
    """Return the number of axes of what was tested, from the settings, which say it where it is not two."""
    dimension: int = settings.get("dimension", 2)
    return dimension


def json_ready(value: Any) -> Any:
    """Return a copy of a value as JSON has it: arrays as lists, infinite numbers and NaN as texts."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: json_ready(part) for name, part in value.items()}
    return [json_ready(part) for part in value] if isinstance(value, (list, tuple)) else value


def interval_values(interval: ConfidenceInterval) -> dict[str, Any]:
    """Return a confidence interval as JSON-ready values."""
    names = ("low", "high", "confidence_level", "error")
    return {name: json_ready(getattr(interval, name)) for name in names}


def interval_from_values(values: Mapping[str, Any]) -> ConfidenceInterval:
    """Return a confidence interval from its JSON-ready values; raise an error if they are not those of one."""
    low, high = _real(values, "low"), _real(values, "high")
    if low > high:
        raise ValueError(f"the ends of a confidence interval must not decrease, got {low:g} and {high:g}")
    return ConfidenceInterval(
        low=low,
        high=high,
        confidence_level=confidence(values["confidence_level"]),
        error=_real(values, "error", least=0.0),
        together=whole_number(values.get("count", 1), "count", 1, LARGEST_COUNT),
    )


def _real(values: Mapping[str, Any], name: str, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a number, infinite ones included, within a range."""
    value = values[name]
    number = float(value) if value in ("inf", "-inf") else real_number(value, name)
    if not least <= number <= most:
        raise ValueError(f"{name} must lie between {least:g} and {most:g}, got {number!r}")
    return number


def _with_bounds(values: Mapping[str, Any], name: str, most: float = math.inf) -> tuple[float, tuple[float, float]]:
    """Return a number and the bounds on it, between which it lies up to rounding."""
    low, high = values[f"{name}_bounds"]
    best, low, high = (_real({name: number}, name, most=most) for number in (values[name], low, high))
    room = ROUNDING * (1 + abs(best)) if math.isfinite(best) else 0.0
    if not (low <= high and low - room <= best <= high + room):
        raise ValueError(f"{name} must lie within its bounds, got {best!r} and {low!r} to {high!r}")
    return best, (low, high)


def _union(pairs: Sequence[Sequence[Any]], name: str) -> Intervals:
    """Return a union of intervals (n, 2), sorted and without overlap."""
    ends = np.array([[float(end) for end in ends] for ends in pairs], dtype=np.float64).reshape(-1, 2)
    if np.isnan(ends).any() or (np.diff(ends.ravel()) < 0).any():
        raise ValueError(f"{name} must be pairs of ascending numbers")
    return ends


def differences(before: Any, now: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield where two JSON values differ by more than rounding, the innermost name first, and both values there."""
    if isinstance(before, dict) and isinstance(now, dict):
        # What a noise model says of itself in words follows from its numbers.
        names = dict.fromkeys(name for name in (*before, *now) if name != "sentence")
        parts = [(before.get(name), now.get(name), (name, *path)) for name in names]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        parts = [(a, b, path) for a, b in zip(before, now, strict=True)]
    elif isinstance(before, float) and isinstance(now, float) and math.isclose(before, now, rel_tol=ROUNDING):
        return
    else:
        if before != now:
            yield path, before, now
        return
    for part in parts:
        yield from differences(*part)


def _range(ends: Sequence[Any]) -> tuple[int, int]:
    start, stop = (whole_number(end, "extent", 0, LARGEST_COUNT) for end in ends)
    if start > stop:
        raise ValueError(f"the ends of extent must not decrease, got {start} and {stop}")
    return start, stop


def _if_any(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


def _audit(values: Mapping[str, Any]) -> Audit:
    return Audit(points=_count(values, "points"), contradictions=_count(values, "contradictions"))


def _count(values: Mapping[str, Any], name: str) -> int:
    return whole_number(values[name], name, 0, LARGEST_COUNT)


def _of_kind(kind: type, value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {'a text' if kind is str else 'an object'}, got {shortened(value)}")
    return value
