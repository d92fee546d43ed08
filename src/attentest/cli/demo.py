"""``attentest demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.options import AlphaOption, JsonOption, SearchName, SearchOption, check_level
from attentest.cli.output import print_json, progress_bar, say
from attentest.cli.result_table import print_table


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the figure (png, svg or pdf).")] = Path("demo/demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the two images.", min=0)] = 0,
    search: SearchOption = SearchName.spectral,
    alpha: AlphaOption = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Test an image of pure noise and one with a signal, and draw both.

    The naive test calls both regions significant. The selective test, which knows that the model chose the region by
    looking at the image, tells them apart.
    """
    from attentest.demo import demo_panels
    from attentest.plots import check_figure_path, results_figure, save_figure
    from attentest.results import Results

    check_level(alpha)
    check_figure_path(out)
    with progress_bar("testing 2 images") as progress:
        panels = demo_panels(seed, search.value, progress)
    if as_json:
        for panel in panels:
            print_json({"image": panel.title, **panel.result.to_dict()})
    else:
        print_table(Results([panel.result for panel in panels], [panel.title for panel in panels]), alpha)
    save_figure(results_figure(panels), out)
    say(f"figure: {out}")
