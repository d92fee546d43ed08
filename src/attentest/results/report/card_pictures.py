"""The pictures of the results that a report describes in detail, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attentest.results.figures.picture import Picture
from attentest.results.report.card_images import map_png, overlay_png
from attentest.results.report.content import Entry
from attentest.results.report.density_image import DensityImages
from attentest.results.report.recorded_law import recorded_law
from attentest.results.report.tested_batch import TestedBatch

NOTHING = np.zeros((1, 1), dtype=np.bool_)
"""In place of the arrays of an image, which a density does not need."""


class CardPictures:
    """Draws pictures one after the other and holds them by the number of the result in the table."""

    def __init__(self, batch: TestedBatch) -> None:
        self._batch = batch
        self._densities = DensityImages()
        self.drawn: dict[int, dict[str, bytes]] = {}

    def draw(self, entry: Entry, values: Mapping[str, Any]) -> None:
        """Draw image, map and density of a result, as far as they are known."""
        pictures: dict[str, bytes] = {}
        small = self._batch.picture(entry.place)
        if small is not None:
            pictures |= {"overlay": overlay_png(small, entry.part), "map": map_png(small)}
        law = recorded_law(values)
        if law is not None:
            shown = Picture(values=values, law=law, image=NOTHING, attention=NOTHING, region=NOTHING, part=NOTHING)
            pictures["density"] = self._densities.png(shown)
        self.drawn[entry.number] = pictures
