"""``attentest demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.options import SPECTRAL, AlphaOption, JsonOption, SearchOption, check_level, named_by_options
from attentest.cli.output import print_json, progress_bar, say

SIZE = 16
"""Side of the images in pixels, that of the bundled model."""

SIGNAL = 3.0
"""Mean of the signal, in standard deviations of the noise: clear to the test, not to the eye."""


TITLES = ("pure noise", f"signal of {SIGNAL:g} sigma")


def demo(
    out: Annotated[Path, typer.Option(help="File of the figure: .png, .svg or .pdf.", metavar="FILE")] = Path(
        "demo/demo.png"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the two images.", metavar="N", min=0)] = 0,
    search: SearchOption = SPECTRAL,
    alpha: AlphaOption = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Test an image of noise alone and one with a signal, and draw both.

    For example:

    ```
    attentest demo --out demo.png
    ```

    The naive test calls both regions significant. The selective test accounts for the model having chosen the region
    from the same image, and tells them apart.
    """
    import numpy as np

    from attentest.cli.result_table import print_table
    from attentest.presentation.figure import check_figure_path, save_figure
    from attentest.presentation.result_figure import results_figure
    from attentest.presentation.rows import row_of

    check_level(alpha)
    with named_by_options({"the file name of the figure": "--out"}):
        check_figure_path(out)
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.simulation.images import null_images, signal_images
    from attentest.training.bundled import bundled_model

    with progress_bar("testing 2 images") as progress:
        rng = np.random.default_rng(seed)
        images = [null_images(rng, 1, SIZE)[0], signal_images(rng, 1, SIZE, SIGNAL)[0][0]]
        test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, search=str(search))
        named = list(zip(TITLES, test.map(images, progress), strict=True))
    if as_json:
        for title, result in named:
            verdict = {"alpha": alpha, "reject": result.reject_at(alpha)}
            print_json({"image": title, **result.to_dict(), **verdict})
    else:
        print_table([[row_of(title, result.record())] for title, result in named], alpha)
    save_figure(results_figure([result.picture(title) for title, result in named], alpha=alpha), out)
    say(f"figure: {out}")
