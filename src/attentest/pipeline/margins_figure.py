"""The paper's figure of the functions f_i, whose signs say at which z the model would choose the observed region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attentest.checks import positive_number, whole_number
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.presentation.figure import EXTREME_COLOUR, GREY, ORANGE, REGION_COLOUR, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_POINTS = 100_000

SAME = "the model chooses the observed region"
OTHERS = "signs of the map, or the predicted class"


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

    f_i is positive where pixel i is on the other side of the threshold than observed. At z the model chooses the
    observed region where every f_i is negative: this is the truncation set, which is shaded, as far as the points show
    it. Where the signs of a map or the predicted class are conditions too, their functions are drawn if they decide.
    Needs Matplotlib (``pip install 'attentest[plots]'``).

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
        Largest number of pixels (or whole patches) in the region and outside it that are drawn, chosen at random,
        beside those that decide: whose f_i is the greatest somewhere.
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
    same = curves.values.max(axis=1) < 0
    deciding = np.zeros(curves.values.shape[1], dtype=np.bool_)
    deciding[np.unique(curves.values.argmax(axis=1))] = True  # the greatest somewhere: these end the truncation set
    deciding, of_others = np.split(deciding, [len(curves.inside)])
    axes.fill_between(
        curves.z, 0, 1, where=same, transform=axes.get_xaxis_transform(), color=GREY, alpha=0.25, lw=0, label=SAME
    )
    for limit, (members, where, colour) in zip(most, groups, strict=True):
        others = rng.permutation(np.flatnonzero(members & ~deciding))[:limit]
        drawn = np.concatenate([np.flatnonzero(members & deciding), others])
        label = f"{len(drawn)} of {int(members.sum())} {curves.units} {where} the region"
        for number, which in enumerate(drawn):
            name = None if number else label
            axes.plot(curves.z, curves.values[:, which], color=colour, lw=0.8, alpha=0.75, label=name)
    for number, which in enumerate(len(deciding) + np.flatnonzero(of_others)):
        axes.plot(curves.z, curves.values[:, which], color=GREY, lw=0.8, label=None if number else OTHERS)
    axes.axhline(0.0, color=GREY, lw=1)
    whose = "randomised image" if test.definition.randomise else "image, its statistic T"
    axes.axvline(curves.observed, color=REGION_COLOUR, lw=1.4, label=f"z of the {whose} = {curves.observed:.4g}")
    axes.set(xlim=(curves.z[0], curves.z[-1]), xlabel="z", ylabel="f_i: above 0 if the pixel changes sides")
    axes.legend(fontsize="small", framealpha=0.85, loc="upper right")
    return axes
