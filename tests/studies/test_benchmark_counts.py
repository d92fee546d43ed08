"""``attentest bench counts``: evaluations of fixed cases beside those that were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attentest.studies.benchmark import counts
from attentest.studies.benchmark.counts import CASES, CountedCase, read_record
from command_line import run_main


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_takes_less_than_twice_its_recorded_evaluations(case: CountedCase) -> None:
    # Far out one image takes many times the evaluations of another.
    recorded, some = read_record()[case.name], case if "far out" in case.name else replace(case, images=2)
    assert some.count() / some.images < counts.TOO_MANY * recorded, f"mend the search, or run: {counts.COMMAND}"


def test_the_record_has_every_case_and_no_other() -> None:
    assert list(read_record()) == [case.name for case in CASES]
    assert (Path(__file__).parents[2] / counts.COMMAND.split()[-1]).samefile(counts.RECORD)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of one case, whose evaluations are not counted again and again, made by the command."""
    path = tmp_path / "recorded.json"
    monkeypatch.setattr(counts, "CASES", (CountedCase(name="quick", size=8, images=1, alpha=0.05),))
    monkeypatch.setattr(CountedCase, "count", lambda self: 40)
    monkeypatch.setattr(counts, "RECORD", path)
    return path


def recorded_as(path: Path, factor: float) -> None:
    """Change a record, as if the search had taken so many times the evaluations."""
    values = json.loads(path.read_text())
    values["evaluations_per_image"]["quick"] *= factor
    path.write_text(json.dumps(values))


def test_twice_the_recorded_evaluations_fail_in_one_sentence(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(capsys, "bench", "counts", "--record", str(record)).code == 0
    done = run_main(capsys, "bench", "counts", "--json")
    (count,) = json.loads(done.out)["counts"]
    assert (done.code, done.err, count["ratio"]) == (0, "", 1.0)
    recorded_as(record, 0.5)
    done = run_main(capsys, "bench", "counts")
    assert done.code == 1
    assert done.err.startswith("attentest: at least 2 times the recorded evaluations per image: quick (")
    assert done.err.count("\n") == 1
    assert "2.00" in done.out
    recorded_as(record, 1.02)
    assert run_main(capsys, "bench", "counts").code == 0


def test_far_fewer_evaluations_ask_for_a_new_record(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_main(capsys, "bench", "counts", "--record", str(record))
    recorded_as(record, 1.5)
    done = run_main(capsys, "bench", "counts")
    assert done.code == 0
    assert done.err.startswith("less than 0.75 times the recorded evaluations, so record them again (attentest bench")


@pytest.mark.parametrize("text", ["", "{}", '{"evaluations_per_image": {"quick": -1}}', '{"evaluations_per_image": 3}'])
def test_a_damaged_record_is_refused_and_can_be_made_anew(
    text: str, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record.write_text(text)
    done = run_main(capsys, "bench", "counts")
    assert done.code == 2
    assert "is damaged (" in done.err
    assert run_main(capsys, "bench", "counts", "--record", str(record)).code == 0
    assert run_main(capsys, "bench", "counts").code == 0


def test_a_case_without_a_record_fails(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record.write_text('{"evaluations_per_image": {"another": 3}}')
    done = run_main(capsys, "bench", "counts")
    assert done.code == 1
    assert done.err.startswith("attentest: no evaluations are recorded for quick: record them (")


def test_options_of_the_times_are_refused_before_counts(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "bench", "--seed", "1", "counts")
    assert (done.code, done.err) == (2, "attentest: --seed is for measuring times: options of counts come after it.\n")
    done = run_main(capsys, "bench", "counts", "--record", "counts.txt")
    assert (done.code, done.out) == (2, "")
    assert "must end in .json, got 'counts.txt'" in done.err
