"""What the paper says of noise that is not Gaussian, judged by intervals of the rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attentest.statistics.multiplicity import rate_of
from attentest.studies.reproduction.verdict import Setting, enough
from attentest.studies.verdict import NO_DATA, Outcome, Verdict

SLIGHTLY = 1.5
"""A level is exceeded slightly by rates up to this many times it."""

PAPER_IMAGES = 10_000
"""Of each family and distance in the paper; with fewer, a level that seems kept may not be."""

SIGNIFICANCE = 0.05
"""Of all intervals of a family together."""


def conservative(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are below the levels: some intervals are, and none is above."""
    return _judged(settings, lambda above, below, far: "differs" if above else "holds" if below else "not enough data")


def slightly_above(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are at the levels or slightly above: no interval is above 1.5 times its level."""
    return _judged(settings, lambda above, below, far: "differs" if far else "holds")


def out_of_control(settings: Sequence[Setting]) -> Verdict:
    """Judge that rates are above the levels: some intervals are."""
    as_many = all(setting["images"] >= PAPER_IMAGES for setting in settings)
    otherwise: Outcome = "differs" if as_many else "not enough data"
    return _judged(settings, lambda above, below, far: "holds" if above else otherwise)


def _judged(settings: Sequence[Setting], judge: Callable[[list[str], list[str], list[str]], Outcome]) -> Verdict:
    """Judge by the rates whose intervals, 95% together, lie above their level, below it, and far above it."""
    rates = [
        (f"{setting['distance']:g} at level {alpha}", float(alpha), rate)
        for setting in settings
        for alpha, rate in setting["levels"].items()
    ]
    if not rates:
        return NO_DATA
    above, below, far = [], [], []
    for name, alpha, rate in rates:
        interval = rate_of(np.arange(rate["total"]) < rate["count"], 1 - SIGNIFICANCE / len(rates))
        if interval.low > alpha:
            above.append(name)
        if interval.low > SLIGHTLY * alpha:
            far.append(name)
        if interval.high < alpha:
            below.append(name)
    shown = ", ".join(
        f"{setting['distance']:g}: " + " and ".join(f"{rate['value']:.3f}" for rate in setting["levels"].values())
        for setting in settings
    )
    sentence = (
        f"Rates at levels {' and '.join(settings[0]['levels'])} by distance: {shown}. "
        f"Above the level: {'; '.join(above) or 'none'}. Below it: {'; '.join(below) or 'none'}. "
        f"Above {SLIGHTLY:g} times the level: {'; '.join(far) or 'none'}."
    )
    # Intervals of so few images are wide, and not to be trusted.
    if not all(enough(rate) for _, _, rate in rates):
        return Verdict(outcome="not enough data", numbers=sentence)
    return Verdict(outcome=judge(above, below, far), numbers=sentence)
