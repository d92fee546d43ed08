"""The report of a tested image, made when it is asked for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from attentest.app.result_view import ONE_PICTURE, TestedImage
from attentest.results.batch import Results


def report_page(tested: TestedImage) -> bytes:
    """Return the report of a tested image as an HTML file that needs no other."""
    with TemporaryDirectory() as folder, ONE_PICTURE:
        path = Path(folder) / "report.html"
        Results([tested.result], [tested.image.name]).report(path, alpha=tested.alpha)
        return path.read_bytes()
