"""What is said of an image file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from attentest.errors import InputError
from attentest.images.image_file import read_image

PATIENT = "Doe^Jane"
"""The patient of every DICOM file here: no message may name her."""


def refusal(path: Path, **options: object) -> str:
    """Return the error for an image file: one sentence."""
    with pytest.raises(InputError) as caught:
        read_image(path, **options)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert PATIENT not in sentence
    return sentence
