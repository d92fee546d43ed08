"""How long the context of a difference takes: milliseconds of CPU for an image of 512x512 pixels.

The region is a fifth of the image: whole patches of 16x16 pixels, or pixels; spread over the image, so that copies
leave it on one side and come in again on the other, or in its middle.

    OMP_NUM_THREADS=1 python benchmarks/context.py [--size 512] [--repeats 15]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy import ndimage

from attentest.contrast.context import ComparedRegion
from attentest.contrast.contrast import as_contrast

PATCH = 16
SHARE = 0.2


def compared(size: int, patches: bool, middle: bool, contrast: str) -> ComparedRegion:
    """Return a region of an image of independent noise."""
    rng = np.random.default_rng(0)
    grid = size // PATCH
    attention = ndimage.gaussian_filter(rng.normal(size=(grid, grid)), 1.2)
    if middle:
        rows, columns = np.mgrid[:grid, :grid] - (grid - 1) / 2
        attention = attention - np.hypot(rows, columns)
    attention = np.kron(attention, np.ones((PATCH, PATCH))) if patches else ndimage.zoom(attention, PATCH, order=1)
    region = attention > np.quantile(attention, 1 - SHARE)
    return ComparedRegion(
        contrast=as_contrast(contrast),
        image=rng.normal(size=(1, size, size)),
        reference=None,
        channel_weights=np.ones(1),
        part=region,
        region=region,
        seen=np.ones_like(region),
        corners=(np.arange(0, size, PATCH if patches else 1),) * 2,
        difference=0.1,
    )


def main() -> None:
    """Print a row for each kind of region and contrast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    print("| compared with | region | ms of CPU | places |\n|---|---|---|---|")
    for contrast in ("background", "neighbourhood:8"):
        for patches, middle in ((True, False), (True, True), (False, False), (False, True)):
            seconds = []
            for _ in range(arguments.repeats):
                region = compared(arguments.size, patches, middle, contrast)
                start = time.process_time()
                context = region.contexts["two-sided"]
                seconds.append(time.process_time() - start)
            kind = f"{'patches' if patches else 'pixels'}, {'in the middle' if middle else 'spread'}"
            print(f"| {contrast} | {kind} | {1000 * np.median(seconds):.1f} | {context.placements} |", flush=True)


if __name__ == "__main__":
    main()
