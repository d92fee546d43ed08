"""The p-values of many images in order, with the line below which Benjamini and Hochberg's method rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attentest.errors import counted
from attentest.results.figures.palette import EXTREME_COLOUR, GREY, NAIVE_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_POINTS = 100
"""Up to this many p-values are drawn as points."""


def draw_pvalues(
    axes: Axes, pvalues: NDArray[np.float64], naive: NDArray[np.float64], adjusted: NDArray[np.float64], alpha: float
) -> None:
    """Draw sorted p-values against their ranks.

    Without any true difference the selective ones follow the diagonal. Those below the line of Benjamini and Hochberg,
    up to the last one below it, are rejected.

    Parameters
    ----------
    axes
        Where to draw.
    pvalues, naive, adjusted : (n,)
        Selective p-values, those that ignore the selection, and the selective ones adjusted by Benjamini and Hochberg.
    alpha
        Significance level, and false discovery rate of the line.
    """
    count = len(pvalues)
    ranks = np.arange(1, count + 1)
    marker = {"marker": "o", "ms": 4.0} if count <= FEW_POINTS else {}
    axes.plot([0, count], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)), label="no true difference anywhere")
    axes.plot(ranks, np.sort(naive), color=NAIVE_COLOUR, lw=1, alpha=0.8, label="naive (not valid)", **marker)  # type: ignore[arg-type]
    axes.plot(ranks, np.sort(pvalues), color=EXTREME_COLOUR, lw=1.6, label="selective", **marker)  # type: ignore[arg-type]
    axes.plot([0, count], [0, alpha], color=GREY, lw=1, label=f"Benjamini-Hochberg at {alpha:g}")
    axes.set(xlim=(0, count + 0.5), ylim=(-0.02, 1.02), xlabel="rank", ylabel="p-value")
    axes.set_title(
        f"{counted(count, 'image')}: {int(np.sum(pvalues <= alpha))} with p at most {alpha:g}, "
        f"{int(np.sum(adjusted <= alpha))} after adjustment",
        size="medium",
    )
    axes.legend(fontsize="small", loc="upper left", framealpha=0.85)
