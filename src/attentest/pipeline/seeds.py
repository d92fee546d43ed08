"""Seeds that are a function of the image: the same image draws the same random numbers, alone or in any batch."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from attentest.pipeline.hypotheses import Parts

KEY = b"attentest 1"
"""Changes with every change of how random numbers are drawn."""


def seeds_of(images: NDArray[np.float64], parts: Parts) -> NDArray[np.uint64]:
    """Return a seed (r,) for each part of images (k, C, H, W), from the bytes of its image and its component."""
    digests = {
        image: hashlib.blake2b(images[image].tobytes(), key=KEY, digest_size=16).digest()
        for image in set(parts.image.tolist())
    }
    own = (
        hashlib.blake2b(digests[image] + int(component).to_bytes(8, "little"), digest_size=8).digest()
        for image, component in zip(parts.image, parts.component, strict=True)
    )
    return np.frombuffer(b"".join(own), dtype="<u8").astype(np.uint64)
