"""The paper's figure of the functions f_i, whose signs say at which z the model would choose the observed region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attentest.api.attention_test import AttentionTest
from attentest.checks import positive_number, whole_number
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.results.figures.palette import EXTREME_COLOUR, GREY, ORANGE, REGION_COLOUR
from attentest.results.figures.shown_figure import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 100_000


def plot_margins(
    test: AttentionTest,
    image: ImageLike,
    ax: Axes | None = None,
    *,
    reference: ImageLike | None = None,
    reach: float = 10.0,
    points: int = 401,
    inside: int = 10,
    outside: int = 40,
    seed: int = 0,
) -> Axes:
    """Draw the functions f_i of pixels along the line through an image, as in figure 9 of the paper.

    At z the model chooses the observed region where every f_i is negative: there the truncation set is. Needs
    Matplotlib (``pip install 'attentest[plots]'``).

    Parameters
    ----------
    test
        The test; its line, region rule and model are those of the figure.
    image, reference
        As in calling the test.
    ax
        Where to draw; by default on a new figure.
    reach
        How far beyond the observed z the line is followed, on both sides.
    points
        Number of points on it, each a model evaluation.
    inside, outside
        Largest number of pixels (or whole patches) in the region and outside it that are drawn, chosen at random.
    seed
        Seed of that choice.
    """
    if not isinstance(test, AttentionTest):
        raise InputError(f"plot_margins takes an AttentionTest and an image, got {type(test).__name__} first.")
    far = positive_number(reach, "reach")
    count = whole_number(points, "points", 2, MOST_POINTS)
    most = [whole_number(number, name, 0, 10_000) for number, name in ((outside, "outside"), (inside, "inside"))]
    rng = np.random.default_rng(whole_number(seed, "seed", 0, 2**63 - 1))
    axes = axes_or_new(ax, 6.0, 3.6)
    curves = test.margins(image, np.linspace(-far, far, count), reference=reference)
    groups = ((~curves.inside, "outside", ORANGE), (curves.inside, "inside", EXTREME_COLOUR))
    for limit, (members, where, colour) in zip(most, groups, strict=True):
        chosen = rng.permutation(np.flatnonzero(members))[:limit]
        label = f"{len(chosen)} of {int(members.sum())} {curves.units} {where} the region"
        for number, which in enumerate(chosen):
            name = None if number else label
            axes.plot(curves.z, curves.values[:, which], color=colour, lw=0.8, alpha=0.75, label=name)
    axes.axhline(0.0, color=GREY, lw=1, label="below it everywhere: the same region")
    axes.axvline(curves.observed, color=REGION_COLOUR, lw=1.4, label=f"observed z = {curves.observed:.4g}")
    axes.set(xlim=(curves.z[0], curves.z[-1]), xlabel="z", ylabel="f_i")
    axes.legend(fontsize="small", framealpha=0.85)
    return axes
