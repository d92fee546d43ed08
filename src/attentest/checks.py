"""Checks of single parameters, whose error messages name the parameter and the value received; parameters as text."""

from __future__ import annotations

import dataclasses
import numbers
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError, shortened

CONFIDENCE_MARGIN = 1e-12
"""Least distance of a confidence level from 0 and 1: beyond it, quantiles are lost to rounding."""


def parameter_error(name: str, problem: str) -> InputError:
    """Return the error that a parameter has a value it must not have.

    Its name may have an explanation in brackets, "sigma (a standard deviation)"; the problem is the rest of the
    sentence: "must be positive, got -1.0".
    """
    return InputError(f"{name} {problem}.", name.partition(" (")[0])


def real_number(value: Any, name: str) -> float:
    """Return a real number as a plain float; raise an error for anything else, booleans and arrays included."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise parameter_error(name, f"must be a number, got {shortened(value)} of type {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise parameter_error(name, f"must be a number that fits a float64, got {shortened(value)}") from None


def positive_number(value: Any, name: str) -> float:
    """Return a positive finite number as a plain float."""
    number = real_number(value, name)
    if not 0 < number < np.inf:
        raise parameter_error(name, f"must be positive and finite, got {number}")
    return number


def whole_number(value: Any, name: str, least: int, most: int) -> int:
    """Return a whole number between two bounds as a plain int."""
    if isinstance(value, (bool, np.bool_)):
        raise parameter_error(name, f"must be a whole number, got {shortened(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise parameter_error(name, f"must be a whole number, got {shortened(value)}") from None
    if not least <= number <= most:
        raise parameter_error(name, f"must be at least {least} and at most {most}, got {shortened(number)}")
    return number


def as_generator(rng: Any) -> np.random.Generator:
    """Return a random generator as it is, or a new one from a seed."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise parameter_error(
            "rng", f"must be a numpy.random.Generator or a seed ({error}), got {shortened(rng)}"
        ) from None


def level(alpha: Any) -> float:
    """Return a significance level, strictly between 0 and 1, as a plain float."""
    return strictly_between_0_and_1(alpha, "alpha")


def optional_confidence(value: Any) -> float | None:
    """Return a confidence level as a plain float, or None if it is None."""
    return None if value is None else confidence(value)


def confidence(value: Any) -> float:
    """Return a confidence level, strictly between 0 and 1 by more than rounding, as a plain float."""
    number = strictly_between_0_and_1(value, "confidence_level")
    if not CONFIDENCE_MARGIN <= number <= 1 - CONFIDENCE_MARGIN:
        raise parameter_error(
            "confidence_level", f"must be at least {CONFIDENCE_MARGIN:g} from 0 and from 1, got {number!r}"
        )
    return number


def strictly_between_0_and_1(value: Any, name: str) -> float:
    """Return a number strictly between 0 and 1 as a plain float."""
    number = real_number(value, name)
    if not 0 < number < 1:
        raise parameter_error(name, f"must lie strictly between 0 and 1, got {number}")
    return number


def float_array(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return numbers as a new float64 array."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise parameter_error(name, f"must be an array of numbers ({str(error).rstrip('.')})") from None
    if array.dtype.kind not in "fiu" or np.ma.is_masked(values):
        raise parameter_error(name, f"must be an array of real numbers without a mask, got {array.dtype}")
    with np.errstate(over="ignore"):  # a long double that is too large becomes infinite; callers check for that
        return array.astype(np.float64)


def changed_parameters(part: Any) -> str:
    """Return a dataclass as Python writes it, without the parameters that have their default values."""
    values = {field.name: (getattr(part, field.name), field.default) for field in dataclasses.fields(part)}
    changed = (f"{name}={value!r}" for name, (value, default) in values.items() if value != default)
    return f"{type(part).__name__}({', '.join(changed)})"
