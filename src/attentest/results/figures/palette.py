"""The colours of figures: those of Okabe and Ito, which readers with colour vision deficiencies tell apart."""

from __future__ import annotations

BLUE = "#0072b2"
SKY = "#8fc7ea"
VERMILION = "#d55e00"
ORANGE = "#e69f00"
GREEN = "#009e73"
PURPLE = "#b5568f"
GREY = "0.5"
"""Grey that can be read on white and on black."""

REGION_COLOUR = VERMILION
OTHER_COLOUR = GREY
"""Colour of the parts of a region that are not compared."""

EXTREME_COLOUR = BLUE
ORDINARY_COLOUR = SKY
NAIVE_COLOUR = VERMILION
