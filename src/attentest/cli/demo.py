"""``attentest demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attentest.cli.command import with_options_of
from attentest.cli.options import AlphaOption, JsonOption, check_level, search_option
from attentest.cli.output import print_json, progress_bar, say
from attentest.definition import option
from attentest.errors import InputError

SIZES = {1: 256, 2: 16, 3: 16}  # side of what is tested, that of the bundled model, by the number of axes

HEIGHTS = {1: 1.5, 2: 3.0, 3: 1.5}
"""Mean of the signal, in standard deviations of the noise: clear to the test, not to the eye."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What is shown, and where it goes."""

    out: Path = option("File of the figure: .png, .svg or .pdf.", default=Path("demo/demo.png"))
    signal: bool = option("Signals of 256 samples in place of images.", default=False)
    volume: bool = option("Volumes of 16 x 16 x 16 voxels in place of images.", default=False)
    seed: int = option("Seed of the two images.", default=0, limits=(0, None))
    search: str = search_option()
    alpha: AlphaOption = 0.05
    as_json: JsonOption = False


@with_options_of(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Test an image of noise alone and one with a signal, and draw both.

    For example:

    ```
    attentest demo --out demo.png
    attentest demo --signal --out signal.png
    ```

    The naive test calls both regions of the images significant. The selective test accounts for the model having chosen
    the region from the same image, and tells them apart. Volumes are tested with --randomise 0.5 and --region-unit
    patches: given the exact outline of a region among thousands of voxels, little is left to find.
    """
    import numpy as np

    from attentest.cli.result_table import print_table
    from attentest.presentation.figure import check_figure_path, save_figure
    from attentest.presentation.result_figure import results_figure
    from attentest.presentation.rows import row_of

    signal, volume, alpha, out = options.signal, options.volume, options.alpha, options.out
    check_level(alpha)
    if signal and volume:
        raise InputError("--signal and --volume are two demonstrations: give one of them.")
    check_figure_path(out)
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.simulation.images import null_images, signal_images
    from attentest.training.bundled import bundled_model

    axes = 1 if signal else 3 if volume else 2
    size, height = SIZES[axes], HEIGHTS[axes]
    with progress_bar(f"testing 2 {'signals' if signal else 'volumes' if volume else 'images'}") as progress:
        rng = np.random.default_rng(options.seed)
        images = [null_images(rng, 1, size, axes=axes)[0], signal_images(rng, 1, size, height, axes=axes)[0][0]]
        chosen: dict[str, Any] = {"randomise": 0.5, "region_unit": "patches"} if volume else {}
        test = AttentionTest.from_pretrained(bundled_model(axes=axes), noise=1.0, search=str(options.search), **chosen)
        titles = "pure noise", f"signal of {height:g} sigma"
        named = list(zip(titles, test.map(images, progress), strict=True))
    if options.as_json:
        for title, result in named:
            verdict = {"alpha": alpha, "reject": result.reject_at(alpha)}
            print_json({"image": title, **result.to_dict(), **verdict})
    else:
        print_table([[row_of(title, result.record())] for title, result in named], alpha)
    save_figure(results_figure([result.picture(title) for title, result in named], alpha=alpha), out)
    say(f"figure: {out}")
