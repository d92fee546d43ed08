"""``attentest reproduce``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from test_reproduction import coarse
from typer.testing import CliRunner, Result

from attentest.cli import app
from attentest.cli.options import EngineOptions
from attentest.cli.output import Interrupted, Move, print_findings
from attentest.errors import InputError
from attentest.studies.document import NO_DATA
from attentest.studies.paper_model import ALL_MODELS
from attentest.studies.reproduction import trial
from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS, TESTS
from attentest.studies.reproduction.page import FIGURES
from command_line import full_disk
from plain_figures import figures_not_drawn
from reproduction_data import small_base8_fixture, small_directory_fixture  # noqa: F401
from shuffled_engine import ShuffledEngine

TINY = ("--preset", "quick", "--model", "base8", "--images", "1", "--permutations", "5")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, small_base8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *arguments])


def test_statements_without_data_are_counted_and_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    finding = {"statement": "It is so.", "where": "here", "verdict": "holds", "numbers": "7 of 7."}
    nothing = {**finding, "statement": "It is not.", "verdict": NO_DATA.outcome, "numbers": NO_DATA.numbers}
    print_findings({}, [finding, nothing, nothing], as_json=False)
    shown = capsys.readouterr()
    assert "It is so." in shown.out
    assert "It is not." not in shown.out
    assert shown.err == "2 other statements: no data\n"
    print_findings({}, [finding, nothing], as_json=True)
    assert json.loads(capsys.readouterr().out)["findings"] == [finding, nothing]


def test_every_experiment_runs_at_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse(monkeypatch)
    for name in ("DEFAULT_MODEL", "LARGE_MODEL", "PRECISION_MODEL"):
        monkeypatch.setattr(f"attentest.studies.reproduction.experiment.{name}", "base8")
    few: dict[str, tuple[float, ...]] = {"DELTAS": (1.0,), "GAMMAS": (0.0, 1.0), "NULL_GAMMAS": (0.0, 1.0)}
    for name, values in few.items():  # as many as needed
        monkeypatch.setattr(f"attentest.studies.reproduction.experiment.{name}", values)
    with figures_not_drawn():
        done = run(*TINY, "--model", "series-small256", "--json")
    assert done.exit_code == 0, done.exception
    summary = json.loads(done.stdout)
    assert list(summary["experiments"]) == list(EXPERIMENTS)
    assert summary["failures"] == []
    assert len(summary["findings"]) > 15
    report = Path("reproduction/report")
    assert (report / "index.html").stat().st_size > 10_000
    # Two covariances, one strength of the signal: the paper's test, randomised, of patches, and both.
    assert [len(summary["experiments"][name]["ours"]) for name in ("type-i-error", "power", "series-power")] == [8] * 3
    assert "Power: our tests" in (report / "reproduction.md").read_text()
    assert "## Findings" in (report / "reproduction.md").read_text()
    drawn = {path.stem for path in (report / "figures").glob("*.png")}
    # Images are those of one size, and series of one length and no base model, on which our tests are run.
    absent = {"series-type-i-error-length", "series-type-i-error-ours"}
    absent |= {figure.name for figure in FIGURES if figure.name.endswith("architecture")} - {
        "series-type-i-error-architecture"
    }
    assert drawn == {figure.name for figure in FIGURES} - absent
    # Everything is there: the same command has nothing left to do.
    monkeypatch.setattr("attentest.studies.reproduction.page.write_report", lambda summary, target: target)
    again = run(*TINY, "--model", "series-small256")
    assert again.exit_code == 0, again.exception
    assert "0 trials in" in again.stderr
    assert "in the paper" in again.stdout


def test_one_experiment_alone_and_the_page_made_anew() -> None:
    done = run(*TINY, "--experiment", "estimated-variance", "--out", "here", "--seed", "3")
    assert done.exit_code == 0, done.exception
    assert [path.name for path in Path("here/data/selective").iterdir()] == ["base8-independent-estimated.jsonl"]
    before = json.loads(Path("here/report/summary.json").read_text())
    assert list(before["experiments"]) == ["estimated-variance"]
    Path("here/report/index.html").unlink()
    done = run("report", "--out", "here")
    assert done.exit_code == 0, done.exception
    assert Path("here/report/index.html").exists()
    assert json.loads(Path("here/report/summary.json").read_text()) == before
    command = "attentest reproduce --experiment estimated-variance --preset quick --images 1 --model base8 --seed 3"
    assert command in Path("here/report/reproduction.md").read_text()


def test_the_list_counts_trials() -> None:
    done = run("list")
    assert done.exit_code == 0, done.exception
    for name in EXPERIMENTS:
        assert name in done.stdout
    assert "112,000" in done.stdout  # type I error: 14 settings, 1,000 images, selective, permuted and six of ours


def test_names_on_the_command_line_are_those_of_the_library() -> None:
    named = sys.modules["attentest.cli.studies"]
    assert tuple(EXPERIMENTS) == named.EXPERIMENTS
    assert tuple(PRESETS) == named.PRESETS
    assert tuple(ALL_MODELS) == named.CLASSIFIERS
    assert tuple(TESTS) == named.TESTS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "paper", "report"), "--preset is for running experiments: options of report come after it"),
        (("--json", "list"), "--json is for running experiments"),
        (("report", "--out", "nothing"), "nothing holds no results of experiments"),
        (("--published", "nowhere", "--experiment", "power"), "holds no complete model"),
        (
            (*TINY, "--experiment", "power"),
            "a choice of models would change nothing for power: this is for type-i-error",
        ),
        (
            (*TINY, "--experiment", "series-type-i-error"),
            "series-type-i-error has no use for base8: leave --model out, or name another.",
        ),
        (("--published", ".", "--experiment", "estimated-variance"), "authors' models would change nothing for"),
        (
            ("--tests", "ours", "--experiment", "precision"),
            "there are no tests of ours in precision: they are in type-i-error, power",
        ),
        ((*TINY, "--device", "cuda:99"), "cuda:99"),
        ((*TINY, "--workers", "2"), "--workers is for --engine processes or ray, which is not there: add it"),
        ((*TINY, "--address", "auto"), "--address is for --engine ray, which is not there: add it"),
        ((*TINY, "--engine", "processes", "--address", "auto"), "--address is for --engine ray, not for --engine proc"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert isinstance(done.exception, InputError), done.output
    assert message in str(done.exception)


def test_without_matplotlib_the_experiments_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run(*TINY, "--experiment", "estimated-variance")
    assert done.exit_code == 0, done.exception
    assert "no page was made" in done.stderr
    assert "attentest reproduce report --out reproduction" in done.stderr
    assert Path("reproduction/data/selective/base8-independent-estimated.jsonl").exists()


def test_what_takes_hours_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attentest.studies.reproduction.run.run", interrupted)
    done = run("--preset", "paper", "--experiment", "type-i-error", "--tests", "paper")
    assert "28,000 trials in 28 series" in done.stderr
    done = run("--preset", "paper", "--experiment", "type-i-error")
    assert isinstance(done.exception, Interrupted)
    assert "112,000 trials in 112 series" in done.stderr
    assert "to be trained first: large16, huge16; this takes hours without a GPU" in done.stderr
    assert "the same command goes on from there" in str(done.exception)


def test_an_interrupted_command_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupted(_: str) -> Iterator[Move]:
        def stop(done: float, total: float | None, label: str | None = None, /) -> None:
            raise KeyboardInterrupt

        yield stop

    command = (*TINY[:-4], "--images", "4", "--permutations", "2", "--experiment", "type-i-error")
    command += ("--tests", "paper")
    data = Path("reproduction/data/selective/base8-independent.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["attentest.cli.studies"], "progress_bar", interrupted)
        patched.setitem(trial.FIRST_CHUNK, "cpu", 2)
        stopped = run(*command)
    assert isinstance(stopped.exception, Interrupted)
    assert "the same command goes on from there" in str(stopped.exception)
    assert images_in(data) == [0, 1]
    done = run(*command)
    assert done.exit_code == 0, done.exception
    assert "14 trials in" in done.stderr
    assert images_in(data) == [0, 1, 2, 3]


def test_a_full_disk_loses_nothing_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trial.FIRST_CHUNK, "cpu", 2)
    monkeypatch.setattr(trial, "LARGEST_CHUNK", 2)
    monkeypatch.setattr("attentest.studies.reproduction.page.write_report", lambda summary, target: target)
    command = ("--experiment", "estimated-variance", "--model", "base8", "--images")
    data = Path("reproduction/data/selective/base8-independent-estimated.jsonl")
    assert run(*command, "1").exit_code == 0
    first = data.read_bytes()
    with full_disk(len(first) + 4 * 400):  # a row has some 350 bytes
        stopped = run(*command, "8")
    assert isinstance(stopped.exception, InputError), stopped.output
    assert "free some space and run again, earlier rows are safe" in str(stopped.exception)
    written = data.read_bytes()
    assert written.startswith(first)
    complete = written[: written.rfind(b"\n") + 1]
    assert 1 < len(images_in(data)) < 8
    done = run(*command, "8")
    assert done.exit_code == 0, done.exception
    assert data.read_bytes().startswith(complete)
    assert images_in(data) == list(range(8))


def test_the_engine_of_the_command_line_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ShuffledEngine()
    monkeypatch.setattr("attentest.studies.reproduction.page.write_report", lambda summary, target: target)
    monkeypatch.setattr(EngineOptions, "chosen", lambda self: engine)
    done = run(*TINY, "--experiment", "estimated-variance", "--engine", "processes", "--workers", "2")
    assert done.exit_code == 0, done.exception
    assert len(engine.works) == 1


def images_in(data: Path) -> list[int]:
    complete, _, _ = data.read_text().rpartition("\n")
    return [json.loads(line)["image"] for line in complete.splitlines() if '"image"' in line]


@pytest.mark.slow
def test_ctrl_c_in_a_process_of_its_own_leaves_what_was_finished() -> None:
    command = [sys.executable, "-m", "attentest", "reproduce", "--preset", "paper", "--experiment", "type-i-error"]
    command += ["--model", "base8", "--images", "200", "--permutations", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    data = Path("reproduction/data/selective/base8-independent.jsonl")
    # A shell that runs the tests in the background has them ignore interrupts, and children inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stderr=pipe, text=True, env=environment, preexec_fn=listening) as process:
        until = time.monotonic() + 120
        while not (data.exists() and data.stat().st_size) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "the same command goes on from there" in stderr
    assert stderr.count("interrupted; ") == 1
    assert "Traceback" not in stderr
    assert 0 < len(images_in(data)) < 200
