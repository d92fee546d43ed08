"""Step rules of the paper's grid searches (section 3 and appendix C.1)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attentest.checks import changed_parameters, positive_number
from attentest.errors import InputError
from attentest.search.problem import Points
from attentest.statistics.columns import Mask


@dataclass(frozen=True, kw_only=True, repr=False)
class StepRule(ABC):
    """The width of the next step: a frozen dataclass whose parameters are positive numbers.

    ``looks_ahead`` means that the width depends on z alone, so that many grid points can be evaluated together.
    """

    name: ClassVar[str]
    looks_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, positive_number(getattr(self, field.name), field.name))

    def __repr__(self) -> str:
        return changed_parameters(self)

    @property
    @abstractmethod
    def widest(self) -> float:
        """No step is wider than this."""

    def needs_slopes(self, z: Points, z_obs: Points) -> Mask:
        """Return for which grid points (m,) the width depends on the margins' derivatives, bool: here for none."""
        return np.zeros(z.shape, dtype=np.bool_)

    @abstractmethod
    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step (m,) from grid points z (m,).

        ``margins`` and ``slopes`` are (m, n); both None for a rule that looks ahead, slopes None where not
        needed.
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class Adaptive(StepRule):
    """The paper's adaptive width: margin over an estimated Lipschitz constant (theorem 2 and its heuristics).

    Parameters
    ----------
    eps_min, eps_max
        Least and greatest step.
    near
        Within this distance of the observed statistic the Lipschitz constant is taken to be one.
    safety
        Farther away it is taken to be this many times the derivative, and only margins that move towards zero
        are considered.
    """

    eps_min: float = 1e-4
    eps_max: float = 0.2
    near: float = 0.1
    safety: float = 10.0

    name: ClassVar[str] = "adaptive"
    looks_ahead: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps_min > self.eps_max:
            raise InputError(f"steps need eps_min <= eps_max, got eps_min={self.eps_min}, eps_max={self.eps_max}.")

    @property
    def widest(self) -> float:
        """The greatest step."""
        return self.eps_max

    def needs_slopes(self, z: Points, z_obs: Points) -> Mask:
        """Return where the linear heuristic is used."""
        return np.abs(z - z_obs) >= self.near

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return min(eps_max, max(d(z), eps_min))."""
        if margins is None:
            raise InputError("the adaptive step needs the margins at the grid point.")
        if slopes is None:
            distance, considered = margins.abs(), torch.ones_like(margins, dtype=torch.bool)
        else:
            distance, considered = (margins / (self.safety * slopes)).abs(), margins * slopes < 0
        # Inside, Z is left when the first margin reaches zero; outside, it is entered only after the last positive
        # margin has. If no margin moves towards zero, nothing limits the step.
        first = distance.masked_fill(~considered, math.inf).amin(dim=1)
        blocking = considered & (margins >= 0)
        last = distance.masked_fill(~blocking, -math.inf).amax(dim=1)
        last = torch.where(blocking.any(dim=1), last, math.inf)
        inside = margins.amax(dim=1) < 0
        width = torch.where(inside, first, last).clamp(self.eps_min, self.eps_max)
        return np.asarray(width.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Fixed(StepRule):
    """One step everywhere."""

    step: float = 1e-3

    name: ClassVar[str] = "fixed"

    @property
    def widest(self) -> float:
        """The step."""
        return self.step

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step."""
        return np.full_like(z, self.step)


@dataclass(frozen=True, kw_only=True, repr=False)
class Combination(StepRule):
    """A fine step near the observed statistic, a coarse one elsewhere."""

    fine: float = 1e-4
    coarse: float = 1e-2
    near: float = 0.1

    name: ClassVar[str] = "combination"

    @property
    def widest(self) -> float:
        """The wider of the two steps."""
        return max(self.fine, self.coarse)

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the fine or the coarse step."""
        return np.where(np.abs(z - z_obs) < self.near, self.fine, self.coarse)
