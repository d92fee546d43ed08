"""Step rules of the paper's grid searches (section 3 and appendix C.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.checks import changed_parameters, positive_number
from attentest.errors import InputError
from attentest.search.problem import Points


@runtime_checkable
class StepRule(Protocol):
    """The width of the next step.

    ``looks_ahead`` means that the width depends on z alone, so that many grid points can be evaluated together.
    """

    name: ClassVar[str]
    looks_ahead: ClassVar[bool]

    @property
    def widest(self) -> float:
        """No step is wider than this."""

    def needs_slopes(self, z: Points, z_obs: Points) -> NDArray[np.bool_]:
        """Return for which grid points (m,) the width depends on the margins' derivatives, bool."""

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step (m,) from grid points z (m,).

        ``margins`` and ``slopes`` are (m, n); both None for a rule that looks ahead, slopes None where not
        needed.
        """


@dataclass(frozen=True, kw_only=True)
class Adaptive:
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

    def __repr__(self) -> str:
        return changed_parameters(self)

    def __post_init__(self) -> None:
        _plain_numbers(self, "eps_min", "eps_max", "near", "safety")
        if self.eps_min > self.eps_max:
            raise InputError(f"steps need eps_min <= eps_max, got eps_min={self.eps_min}, eps_max={self.eps_max}.")

    @property
    def widest(self) -> float:
        """The greatest step."""
        return self.eps_max

    def needs_slopes(self, z: Points, z_obs: Points) -> NDArray[np.bool_]:
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


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """One step everywhere."""

    step: float = 1e-3

    name: ClassVar[str] = "fixed"
    looks_ahead: ClassVar[bool] = True

    def __repr__(self) -> str:
        return changed_parameters(self)

    def __post_init__(self) -> None:
        _plain_numbers(self, "step")

    @property
    def widest(self) -> float:
        """The step."""
        return self.step

    def needs_slopes(self, z: Points, z_obs: Points) -> NDArray[np.bool_]:
        """Return False everywhere."""
        return np.zeros(z.shape, dtype=np.bool_)

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step."""
        return np.full_like(z, self.step)


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A fine step near the observed statistic, a coarse one elsewhere."""

    fine: float = 1e-4
    coarse: float = 1e-2
    near: float = 0.1

    name: ClassVar[str] = "combination"
    looks_ahead: ClassVar[bool] = True

    def __repr__(self) -> str:
        return changed_parameters(self)

    def __post_init__(self) -> None:
        _plain_numbers(self, "fine", "coarse", "near")

    @property
    def widest(self) -> float:
        """The wider of the two steps."""
        return max(self.fine, self.coarse)

    def needs_slopes(self, z: Points, z_obs: Points) -> NDArray[np.bool_]:
        """Return False everywhere."""
        return np.zeros(z.shape, dtype=np.bool_)

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the fine or the coarse step."""
        return np.where(np.abs(z - z_obs) < self.near, self.fine, self.coarse)


def _plain_numbers(rule: StepRule, *names: str) -> None:
    """Replace parameters of a frozen rule by plain positive floats, which compare equal and are JSON-ready."""
    for name in names:
        object.__setattr__(rule, name, positive_number(getattr(rule, name), name))
