"""Everything that can be chosen by name, on one page.

A new part is a new file and one line here. The command line, the noise files and the error messages read these
registries, and nothing else lists the names. A part is imported when it is first used, so that listing names costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from attentest.errors import InputError


@dataclass(frozen=True)
class Part:
    """A part that can be chosen by name.

    Parameters
    ----------
    location
        Where it is defined, as "module:attribute"; the module is relative to attentest.
    summary
        What it does, in a few words, for help texts.
    argument
        What follows its name after a colon on the command line, such as "RADIUS"; empty if nothing does.
    """

    location: str
    summary: str = ""
    argument: str = ""

    def load(self) -> Any:
        """Import the part and return it."""
        module, attribute = self.location.split(":")
        return getattr(import_module(f"attentest.{module}"), attribute)


class Registry(Mapping[str, Part]):
    """The parts of one kind, by name.

    Parameters
    ----------
    kind
        What messages call a part of this kind, such as "search".
    parts
        The parts by name, in the order in which messages list them.
    """

    def __init__(self, kind: str, parts: Mapping[str, Part]) -> None:
        self.kind = kind
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def load(self, name: object) -> Any:
        """Return the part of a name; refuse an unknown one with the list of those that there are."""
        if not isinstance(name, str) or name not in self._parts:
            raise InputError(f"{self.kind} must be {self.choices()}, got {name!r}.")
        return self._parts[name].load()

    def choices(self) -> str:
        """Return the names as a sentence lists them, with their arguments: "a, b:RADIUS or c"."""
        *most, last = (f"{name}:{part.argument}" if part.argument else name for name, part in self._parts.items())
        return f"{', '.join(most)} or {last}" if most else last

    def help(self) -> str:
        """Return the names with their summaries, for a help text."""
        return "; ".join(
            f"{name}{':' + part.argument if part.argument else ''} ({part.summary})" if part.summary else name
            for name, part in self._parts.items()
        )


SEARCHES = Registry(
    "search",
    {
        "spectral": Part("search.spectral.search:SpectralSearch", "attentest's own: fast, with an error bar on p"),
        "adaptive": Part("search.grid.search:adaptive", "the paper's: steps that follow the derivative"),
        "fixed": Part("search.grid.search:fixed", "the paper's: steps of 1e-3"),
        "combination": Part(
            "search.grid.search:combination", "the paper's: steps of 1e-4 near the observed statistic, 1e-2 elsewhere"
        ),
    },
)
"""Searches for the truncation set; each location is called without arguments."""

ATTENTION_MAPS = Registry(
    "attention",
    {
        "rollout": Part("attention.aggregation:Rollout", "attention rollout over all layers, as in the paper"),
        "last-layer": Part("attention.aggregation:LayerAttention", "attention of the class token in the last layer"),
        "layer": Part("attention.aggregation:LayerAttention", "the same in layer K, counted from 0", argument="K"),
    },
)
"""How the attention of layers and heads becomes one score per patch."""

CONTRASTS = Registry(
    "contrast",
    {
        "background": Part("contrast.difference:Background", "the rest of the image, as in the paper"),
        "neighbourhood": Part(
            "contrast.difference:Neighbourhood", "a ring of this many pixels around the region", argument="RADIUS"
        ),
        "reference": Part("contrast.reference:Reference", "the same pixels of another image"),
        "region-mean": Part("contrast.difference:RegionMean", "zero, for filtered images"),
    },
)
"""What the mean of the region is compared with."""

NOISE_MODELS = Registry(
    "noise model",
    {
        "isotropic": Part("noise.isotropic:Isotropic"),
        "ar1": Part("noise.ar1:AR1"),
        "diagonal": Part("noise.diagonal:Diagonal"),
        "dense": Part("noise.dense:Dense"),
        "stationary": Part("noise.stationary:Stationary"),
        "per channel": Part("noise.per_channel:PerChannel"),
        "averaged": Part("noise.averaged:Averaged"),
        "estimated": Part("noise.estimated:Estimated"),
    },
)
"""Noise models by their name in noise files."""

NOISE_ESTIMATORS = Registry(
    "estimator",
    {
        "pooled": Part("noise.estimators:PooledVariance", "independent pixels with one variance"),
        "pixel": Part("noise.estimators:PixelVariance", "independent pixels, each with its own variance"),
        "ar1": Part("noise.estimators:AR1Covariance", "pixels correlated along rows"),
        "stationary": Part(
            "noise.estimators:StationaryCovariance", "a covariance that depends on the distance between pixels"
        ),
        "shrunk": Part("noise.estimators:ShrunkCovariance", "any covariance, for small images"),
    },
)
"""Estimators of the noise from reference images."""
