"""Seeds that are a function of the image: the same image draws the same random numbers, alone or in any batch."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from attentest.images.sample import add_values
from attentest.pipeline.hypotheses import ImageData, Parts

KEY = b"attentest 1"
"""Changes with every change of how random numbers are drawn."""


def seeds_of(data: ImageData, parts: Parts) -> NDArray[np.uint64]:
    """Return a seed (r,) for each part, from the bytes of the pixels that the model sees and from its component."""
    seen = None if data.seen.all() else data.seen
    digests = {image: _digest(data.images[image], seen) for image in set(parts.image.tolist())}
    own = (
        hashlib.blake2b(digests[image] + component.to_bytes(8, "little"), digest_size=8).digest()
        for image, component in zip(parts.image.tolist(), parts.component.tolist(), strict=True)
    )
    return np.frombuffer(b"".join(own), dtype="<u8").astype(np.uint64)


def _digest(pixels: NDArray[np.float64], seen: NDArray[np.bool_] | None) -> bytes:
    """Return a digest of the pixels (C, H, W) that the model sees (H, W), None for all."""
    found = hashlib.blake2b(key=KEY, digest_size=16)
    for plane in pixels:
        add_values(found, plane if seen is None else plane[seen])
    return found.digest()
