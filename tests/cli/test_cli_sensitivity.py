"""``attentest test --sensitivity``: table and sentences, records, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from attentest import AttentionTest
from attentest.cli import app
from attentest.errors import InputError
from attentest.noise import Dense, save_noise
from attentest.presentation.sensitivity import Sensitivity
from documentation import ROOT, blocks

QUICK = ("--model", "tiny", "--tol", "1e-3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    Path("tiny").symlink_to(saved_tiny_model)
    for number, image in enumerate(np.random.default_rng(4).normal(size=(2, 8, 8))):
        np.save(f"{number}.npy", image)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["test", *arguments, *QUICK])


def test_the_table_has_the_numbers_of_the_library_and_the_figure_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Sensitivity] = []
    compute = AttentionTest.sensitivity

    def kept(*given: Any, **options: Any) -> Sensitivity:
        found.append(compute(*given, **options))
        return found[-1]

    monkeypatch.setattr(AttentionTest, "sensitivity", kept)
    noise = ("--noise", "1", "--rho", "0.4", "--randomise", "1")
    done = run("0.npy", *noise, "--sensitivity", "--sensitivity-figure", "s.png")
    assert done.exit_code == 0, done.output
    assert done.stderr.endswith("sensitivity: s.png\n")
    with Image.open("s.png") as picture:
        assert picture.width > 1000
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(found[0].table()) == 10
    for what, pvalue, verdict, estimate, interval in found[0].table():
        wanted = [*what.split(), pvalue, *verdict.split(), estimate, *interval.split()]
        assert any(line[-len(wanted) :] == wanted for line in lines), wanted
    shown = " ".join(done.stdout.split())
    for sentence in found[0].summary().split("\n"):
        assert sentence in shown


def test_records_have_it_and_another_run_goes_on_from_them() -> None:
    done = run("0.npy", "--noise", "1", "--out", "tested", "--no-interval")
    assert done.exit_code == 0, done.output
    arguments = ("--noise", "1", "--no-interval", "--out", "tested", "--sensitivity", "--json")
    arguments += ("--sensitivity-figure", "figures/")
    done = run("0.npy", "1.npy", *arguments)  # the first has no sensitivity yet
    assert done.exit_code == 0, done.output
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    found = [Sensitivity.from_dict(record["sensitivity"]) for record in printed]
    assert [len(one.factors) for one in found] == [25, 25]
    assert [one.lengths.values.tolist() for one in found if one.lengths] == [[0.0, 0.5, 1.0, 2.0, 4.0]] * 2
    assert all(record["sensitivity"]["evaluations"] > 0 for record in printed)
    assert len(list(Path("figures").iterdir())) == 2
    again = run("0.npy", "1.npy", *arguments, "--report", "report.json")
    assert sorted(again.stdout.splitlines()) == sorted(done.stdout.splitlines())
    results = json.loads(Path("report.json").read_text())["results"]
    assert [len(one["detail"]["sensitivity"]["lengths"]) for one in results] == [5, 5]


def test_noise_without_a_correlation_length_says_so() -> None:
    save_noise(Dense(np.eye(64)), "noise.json")
    done = run("0.npy", "--noise", "noise.json", "--sensitivity", "--no-interval", "--report", "report.html")
    assert done.exit_code == 0, done.output
    assert "Correlation lengths are left out: the noise model Dense has no" in Path("report.html").read_text("utf-8")
    assert "Correlation lengths are left out: the noise model Dense has no" in " ".join(done.stdout.split())
    assert "interval" not in done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0.npy --sensitivity --decide", "leave out one of them"),
        ("0.npy --sensitivity --components", "leave out --sensitivity or --components"),
        ("0.npy --sensitivity-figure s.png", "--sensitivity-figure is for --sensitivity, which is not there"),
        ("0.npy 1.npy --sensitivity --sensitivity-figure s.png", "must be a folder, such as s/, for several images"),
        ("0.npy --sensitivity --sensitivity-figure s.csv", "--sensitivity-figure must end in .png"),
        ("0.npy --sensitivity --sensitivity-figure 0.npy", "would overwrite the input"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attentest.pipeline.file_run.ImageTests", None)
    done = CliRunner().invoke(app, ["test", *arguments.split(), "--noise", "1", "--model", "tiny"])
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=message):
        raise done.exception


def test_the_page_shows_what_its_command_prints() -> None:
    image = np.random.default_rng(0).normal(size=(16, 16))
    image[4:9, 6:11] += 2
    np.save("scan.npy", image)
    arguments = ["test", "scan.npy", "--noise", "1.0", "--randomise", "0.5", "--sensitivity"]
    printed = [line.rstrip() for line in CliRunner().invoke(app, arguments).stdout.splitlines()]
    shown = next(
        block.text for block in blocks(ROOT / "docs" / "sensitivity.md") if block.language == "text"
    ).splitlines()
    *table, evaluations = printed[-len(shown) :]
    assert table == shown[:-1]
    # The number of evaluations depends on rounding, and so on the machine.
    counts = [int(line.split()[-3]) for line in (evaluations, shown[-1])]
    assert counts[0] == pytest.approx(counts[1], rel=0.1)
