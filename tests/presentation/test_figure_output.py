"""``attentest test --figure``: of one image, of many on a sheet, and of each in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from attentest.cli import app, figures
from attentest.errors import InputError
from attentest.pipeline.file_run import file_stem
from attentest.presentation.figure import new_figure

COUNT = 5  # images of the fixture
pytestmark = pytest.mark.usefixtures("folder_of_scans")
QUICK = ("--model", "tiny", "--noise", "1", "--tol", "1e-2", "--no-interval")
ODD = "=cmd()\n \x1b.npy"


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Any], int]]:
    """Return the pictures of each sheet that is drawn, and the number of images that it says."""
    drawn: list[tuple[list[Any], int]] = []
    draw = figures.contact_sheet

    def sheet(pictures: list[Any], *, total: int, alpha: float) -> Any:
        drawn.append((pictures, total))
        return draw(pictures, total=total, alpha=alpha)

    monkeypatch.setattr(figures, "contact_sheet", sheet)
    return drawn


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["test", *arguments, *QUICK])


def drawn_in(path: str) -> set[str]:
    return {one.name for one in Path(path).iterdir()}


def test_one_image_is_drawn_whole(sheets: list[Any]) -> None:
    done = run("scans/0.npy", "--figure", "one.png")
    assert done.exit_code == 0, done.output
    assert done.stderr.endswith("figure: one.png\n")
    assert not sheets
    with Image.open("one.png") as picture:
        assert picture.size[0] > 500


def test_a_sheet_has_the_smallest_pvalues(sheets: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST", 3)
    Path("scans/broken.npy").write_bytes(b"junk")
    done = run("scans", "--figure", "sheet.png", "--csv", "t.csv", "--out", "o")
    assert done.exit_code == 1, done.output
    assert "figure: sheet.png, the 3 smallest p-values of 5 images; a folder (--figure FOLDER/)" in done.stderr
    (pictures, total), *_ = sheets
    assert total == COUNT
    known = {line.split(",")[0][6:]: float(line.split(",")[2]) for line in Path("t.csv").read_text().splitlines()[1:6]}
    assert [picture.title for picture in pictures] == sorted(known, key=lambda name: known[name])[:3]

    again = run("scans", "--figure", "again.png", "--out", "o")  # nothing is left to test
    assert again.exit_code == 1, again.output
    assert [one.title for one in sheets[1][0]] == [one.title for one in pictures]
    assert Path("again.png").read_bytes() == Path("sheet.png").read_bytes()

    np.save("scans/z.npy", np.random.default_rng(5).normal(size=(8, 8)))  # the only one that is left to test
    known["z.npy"] = 0.0
    monkeypatch.setattr(figures, "MOST", 6)
    assert "figure: more.png; a folder" in run("scans", "--figure", "more.png", "--out", "o").stderr
    assert {one.title for one in sheets[2][0]} == set(known)


@pytest.mark.parametrize("place", ["figures/", "there"])
def test_a_folder_has_a_figure_of_each_image_and_results_are_not_kept(
    place: str, sheets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("there").mkdir()
    np.save(f"scans/{ODD}", np.load("scans/0.npy"))
    names = [f"scans/{name}" for name in (*(f"{i}.npy" for i in range(COUNT)), ODD)]
    kept: list[int] = []
    keep = figures.FigureOutput.keep

    def counted(self: Any, *arguments: Any) -> None:
        keep(self, *arguments)
        kept.append(len(self._smallest))

    monkeypatch.setattr(figures.FigureOutput, "keep", counted)
    monkeypatch.setattr(figures, "results_figure", lambda *_, **__: new_figure(1.0, 1.0))  # fast to draw
    done = run("scans", "--figure", place, "--out", "o")
    assert done.exit_code == 0, done.output
    assert drawn_in(place) == {f"{file_stem(name)}.png" for name in names}
    assert kept == [0] * len(names)
    assert not sheets
    run("scans", "--figure", "later/", "--out", "o")
    assert drawn_in("later") == drawn_in(place)


def test_numbers_are_printed_although_figures_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise InputError("the figure cannot be written.")

    monkeypatch.setattr(figures, "save_figure", full)
    done = run("scans", "--figure", "figures/")
    assert str(done.exception) == "the figure cannot be written."
    assert all(f"scans/{i}.npy" in done.stdout for i in range(COUNT))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "--figure must not be an empty text: give a value, or leave it out."),
        ("scans/0.npy/", "cannot be made a directory"),
        ("figure", "--figure must end in .png, .svg, .pdf, or in / for a folder of figures, got 'figure'."),
    ],
)
def test_places_that_cannot_be_written_are_refused(place: str, message: str) -> None:
    assert message in str(run("scans", "--figure", place).exception)
