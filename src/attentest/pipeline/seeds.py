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
    digests = {image: _digest(data.images[image], data.seen) for image in set(parts.image.tolist())}
    own = (
        hashlib.blake2b(digests[image] + int(component).to_bytes(8, "little"), digest_size=8).digest()
        for image, component in zip(parts.image, parts.component, strict=True)
    )
    return np.frombuffer(b"".join(own), dtype="<u8").astype(np.uint64)


def _digest(pixels: NDArray[np.float64], seen: NDArray[np.bool_]) -> bytes:
    """Return a digest of the pixels (C, H, W) that the model sees (H, W)."""
    found, everything = hashlib.blake2b(key=KEY, digest_size=16), bool(seen.all())
    for plane in pixels:
        add_values(found, plane if everything else plane[seen])
    return found.digest()
