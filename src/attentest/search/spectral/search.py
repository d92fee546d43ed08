"""attentest's own search: interpolate the smooth scores, decide on the interpolant, refine what moves p.

The raw scores of an image are smooth along its line; only what follows, min-max and the threshold, has kinks. So the
scores are interpolated on pieces of the z axis (``pieces``), and where the interpolated region is the observed one is
computed without calling the model (``cells``). What the interpolation error leaves undecided is part of a table of
segments, which bounds p and knows how far each open zone can move it (``segment_table``). Each round of a run (``run``)
asks which zones to refine (``choice``, ``plan``), evaluates the model for all images together (``interpolation``), and
tells the table what came back, until the goals of every image are reached (``goals``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch

from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError
from attentest.search.outcome import Report, SearchOutcome
from attentest.search.problem import SearchProblem
from attentest.search.spectral.run import Run

POINTS_PER_IMAGE = 4
"""Points that an image needs in a late round: enough images are searched together to fill a batch then."""

LARGE_BATCH = 1024
"""Batches of this size or more are those of a GPU, where the work between model calls takes longer than the calls: as
many images are searched together as make a batch, so that it is done less often."""

Precision = Literal["auto", "float64", "mixed"]


@dataclass(frozen=True, kw_only=True)
class SpectralSearch:
    """Piecewise Chebyshev interpolation of the scores, refined until the error bar of p is narrow enough.

    The error bar covers what the interpolation error leaves undecided, what was not explored, and the tails. The
    interpolation error is an estimate, from the decay of the coefficients and from points that are not nodes. Nothing
    is concluded where the coefficients do not fall, and what was concluded is checked at random points before the
    status becomes "converged". A bump of the scores with a standard deviation below ``width / 25`` can still escape;
    far from z_obs and from zero, where an end of an interval depends on it but p does not, one of six times that.

    Parameters
    ----------
    tol
        Width of the error bar of p at which to stop.
    rtol
        The same relative to p: the search stops when either is reached. With ``tol=0`` it resolves p of any size.
    max_evaluations
        Most model evaluations per image. If they are used up before the tolerance is reached, the status says so.
    width
        Width on the z axis of the first pieces, in standard deviations of z.
    strict
        Whether to take pieces of half the width, for intervals too, and more audit points: 1.7 times the evaluations of
        p on trained models.
    precision
        "float64", or "mixed": explore with the model's fast rough scores, and use exact ones wherever a decision
        depends on them. "auto" is mixed where that is faster. A model without rough scores is evaluated in float64.
    """

    tol: float = 1e-6
    rtol: float = 0.0
    max_evaluations: int = 10_000
    width: float = 2.5
    strict: bool = False
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        for name in ("tol", "rtol"):
            value = real_number(getattr(self, name), name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be at least 0 and less than 1, got {value}.")
            object.__setattr__(self, name, value)
        if self.tol == self.rtol == 0:
            raise InputError("tol and rtol cannot both be 0: no finite number of evaluations gives p exactly.")
        object.__setattr__(self, "width", positive_number(self.width, "width"))
        budget = whole_number(self.max_evaluations, "max_evaluations", 64, 10**15)
        object.__setattr__(self, "max_evaluations", budget)
        if not isinstance(self.strict, bool):
            raise InputError(f"strict must be True or False, got {self.strict!r}.")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision must be 'auto', 'float64' or 'mixed', got {self.precision!r}.")

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters."""
        return {"name": "spectral", **{field.name: getattr(self, field.name) for field in fields(self)}}

    def images_together(self, batch_size: int) -> int:
        """Return how many images to search together: each needs some thirty points at first and few in the end."""
        return batch_size if batch_size >= LARGE_BATCH else math.ceil(batch_size / POINTS_PER_IMAGE)

    @torch.no_grad()
    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""
        run = Run(
            problem,
            tol=self.tol,
            rtol=self.rtol,
            max_evaluations=self.max_evaluations,
            width=self.width,
            strict=self.strict,
            mixed=self.precision == "mixed" or (self.precision == "auto" and problem.rough_is_faster),
        )
        return run.outcomes(report)
