"""How far a slice's statistic could go before the model chose another region: what a small p has to come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attentest.results.result import AttentionTestResult
from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.brain.gallery import Gallery, Tests, results_of_slices

ROOM_CONDITIONS = (
    PAPER,
    Condition(contrast="reference"),
    Condition(noise="stationary"),
    Condition(noise="stationary", contrast="reference"),
)
"""Independent and correlated noise, each with the paper's contrast and with the one that allows for anatomy."""


def room_of(result: AttentionTestResult) -> float:
    """Return the length of the interval around the statistic on which the region stays, in standard errors.

    Inside an interval the normal density falls like exp(-abs(z) t), so over one of length w by exp(-abs(z) w): a p can
    be small only where that product is well above 1. Where it is far below 1, p is uniform whatever the signal.
    """
    low, high = result.intervals.T
    around = (low <= result.statistic) & (result.statistic <= high)
    return float((high - low)[around].max())


def rooms_of(laboratory: Tests, galleries: Mapping[str, Gallery]) -> list[dict[str, Any]]:
    """Return the room of the slices of galleries under some conditions, JSON-ready.

    Parameters
    ----------
    laboratory
        Sets up the tests.
    galleries
        By the names of the classes.
    """
    images = [image for gallery in galleries.values() for image in gallery.flair]
    return [_room(condition, results_of_slices(laboratory, condition, images)) for condition in ROOM_CONDITIONS]


def _room(condition: Condition, results: Sequence[AttentionTestResult | None]) -> dict[str, Any]:
    """Return, by column, what was found of each slice that could be tested."""
    good = [result for result in results if result is not None]
    rooms = np.array([room_of(result) for result in good])
    errors = np.array([result.standard_error for result in good])
    statistics = np.array([result.statistic for result in good])
    columns = {
        "room": rooms,
        "room_in_grey_levels": rooms * errors,
        "fall": rooms * np.abs(statistics),
        "p": [result.pvalue for result in good],
    }
    return {
        "name": condition.name,
        **condition.describe(),
        **{name: [float(f"{value:.4g}") for value in values] for name, values in columns.items()},
    }
