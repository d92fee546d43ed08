"""``attentest bench``: ratios measured side by side, and the history of its runs."""

from __future__ import annotations

import datetime
import json
import pkgutil
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from attentest.attention.vit import read_encoder
from attentest.cli.bench import print_growths
from attentest.errors import InputError
from attentest.presentation.figure import new_figure
from attentest.registry import COMPARISONS, SEARCHES
from attentest.runs.engine import LocalEngine
from attentest.runs.record_lines import add_line
from attentest.search import Adaptive, Combination, GridSearch
from attentest.studies.benchmark import comparisons, measurement, own_process
from attentest.studies.benchmark.comparisons import STAGES
from attentest.studies.benchmark.measurement import (
    BenchSettings,
    NotMeasured,
    Quantity,
    Ratio,
    Run,
    Workload,
    changes,
    damage_note,
    history_figure,
    read_history,
    side_by_side,
)
from command_line import full_disk, run_main

SMALL = ("--size", "8", "--images", "3", "--repeats", "1", "--tol", "0.1")


@pytest.fixture
def tiny_workload(saved_tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """A workload whose model is tiny, as that of the commands becomes too."""
    monkeypatch.setattr(measurement, "bundled_model", lambda *_: saved_tiny_model)
    return Workload(BenchSettings(size=8, images=3, repeats=1, tol=1e-2))


def ratio(of: str = "p and interval", numerator: float = 4.0, denominator: float = 2.0, **others: Any) -> Ratio:
    given = {"comparison": "interval", "over": "p alone", "quantity": "seconds", **others}
    return Ratio(of=of, numerator=numerator, denominator=denominator, **given)


def run(*ratios: Ratio, **settings: Any) -> Run:
    return Run(
        date=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        machine={"device": "x86_64", "threads": 2},
        settings={"size": 8, "images": 3, "tol": 1e-2, **settings},
        ratios=ratios,
        left_out={},
    )


def test_every_comparison_that_needs_no_other_process_measures(
    tiny_workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Coarse grids in place of the paper's, which take a minute per image.
    steps = {"adaptive": Adaptive(eps_min=0.2, eps_max=0.5), "combination": Combination(fine=0.02, coarse=0.2)}
    for name, step in steps.items():
        where = SEARCHES[name].location.replace(":", ".")
        monkeypatch.setattr(
            f"attentest.{where}", lambda step=step: GridSearch(step=step, extent=1.0, boundary_tolerance=0.1)
        )
    monkeypatch.setattr(comparisons, "EXTRAPOLATED_FROM", 64)
    alone = {"authors", "large-images", "start-up", "scaling"}
    chosen = [word for name in COMPARISONS if name not in alone for word in ("--only", name)]
    history = tmp_path / "new" / "history.jsonl"
    done = run_main(capsys, "bench", *SMALL, *chosen, "--history", str(history), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {one["comparison"] for one in found["ratios"]} | set(found["left_out"]) == set(COMPARISONS) - alone
    assert set(found["left_out"]) <= {"far-out"}  # the statistics of an untrained model may all be small
    by_key = {(one["comparison"], one["of"], one["over"], one["quantity"]): one for one in found["ratios"]}
    assert len(by_key) == len(found["ratios"])
    for one in found["ratios"]:
        assert one["numerator"] > 0
        assert one["ratio"] == pytest.approx(one["numerator"] / one["denominator"])
    interval = by_key["interval", "p and 95% interval", "p alone", "evaluations"]
    assert interval["ratio"] > 1
    assert interval["goal"] == 1.8
    shares = [by_key["stages", name, "p alone", "seconds"]["ratio"] for name in (*STAGES, "the rest")]
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1)
    assert by_key["paper", "spectral", "fixed (extrapolated)", "evaluations"]["ratio"] < 1
    assert read_history(history)[0][0].as_dict() == {
        name: found[name] for name in found if name not in ("changes", "exponents")
    }
    assert found["exponents"] == []


def test_a_second_run_is_compared_with_the_first(
    tiny_workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, figure = tmp_path / "history.jsonl", tmp_path / "history.png"
    command = ("bench", *SMALL, "--only", "patches", "--history", str(history))
    first = run_main(capsys, *command)
    assert (first.code, first.err) == (0, f"history: {history}, 1 run\n")
    assert "regions of patches / pixels" in first.out
    assert "%" not in first.out.replace("95%", "")
    values = read_history(history)[0][0].as_dict()
    for one in values["ratios"]:
        one["numerator"] /= 1.2  # as if it had taken fewer evaluations, and less time
    history.unlink()
    add_line(history, values)
    add_line(history, {})
    with open(history, "a") as file:
        file.write('{"date": "cut o')
    second = run_main(capsys, *command, "--figure", str(figure))
    assert second.code == 0
    with Image.open(figure) as picture:
        assert picture.size[0] > 500
    assert "slower +20%" in second.out  # evaluations are counted, so they change by nothing else
    assert f"attentest: note: line 3 of {history} is damaged (" in second.err
    assert ") and is skipped: remove it to silence this note.\n" in second.err
    assert "slower than the last time: " in second.err
    assert "regions of patches (evaluations)" in second.err
    assert len(read_history(history)[0]) == 2


@pytest.mark.parametrize(
    ("quantity", "before", "now", "slower"),
    [
        ("seconds", (4.0, 2.0), (5.2, 2.0), True),
        ("seconds", (4.0, 2.0), (4.8, 2.0), False),  # 20% is within what times vary
        ("seconds", (4.0, 2.0), (8.0, 4.0), False),  # the machine is busy: both take twice as long
        ("seconds", (4.0, 2.0), (4.0, 1.0), False),  # only what it is compared with became faster
        ("evaluations", (100.0, 50.0), (112.0, 50.0), True),
        ("evaluations", (100.0, 50.0), (112.0, 70.0), True),  # counts do not depend on the load
        ("evaluations", (100.0, 50.0), (109.0, 50.0), False),
    ],
)
def test_what_is_called_slower(
    quantity: Quantity, before: tuple[float, float], now: tuple[float, float], slower: bool
) -> None:
    past = [run(ratio("p", *before, quantity=quantity))]
    (change,) = changes(run(ratio("p", *now, quantity=quantity)), past).values()
    assert change.slower == slower


def test_runs_are_compared_only_under_the_same_conditions() -> None:
    first, other, second = ratio(numerator=4.0), ratio("another"), ratio(numerator=6.0)
    past = [run(first), run(other), run(ratio(numerator=1.0), size=16)]
    (change,) = changes(run(second), past).values()
    assert change.before is first  # the last run that has it, and not that of another size
    elsewhere = replace(run(second), machine={"device": "aarch64", "threads": 2})
    assert not changes(elsewhere, past)


def test_runs_that_end_at_once_are_whole_lines(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    many = run(*(ratio(f"ratio {number}") for number in range(200)))
    threads = [threading.Thread(target=add_line, args=(history, many.as_dict())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_history(history) == ([many] * 8, {})


def test_a_full_disk_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    add_line(history, run(ratio()).as_dict())
    before = history.read_bytes()
    refused = r"history.jsonl cannot be written \(File too large\): free some space"
    with full_disk(len(before) + 20), pytest.raises(InputError, match=refused):
        add_line(history, run(ratio()).as_dict())
    assert history.read_bytes() == before


GOOD = run(ratio()).as_dict()


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {**GOOD, "date": "yesterday"},
        {**GOOD, "date": "2026-01-02T03:04:05"},
        {**GOOD, "machine": []},
        {**GOOD, "ratios": [{**GOOD["ratios"][0], "numerator": "4"}]},
        {**GOOD, "ratios": [{**GOOD["ratios"][0], "denominator": 0}]},
        {**GOOD, "ratios": [{**GOOD["ratios"][0], "quantity": "miles"}]},
        {**GOOD, "ratios": [{}]},
    ],
)
def test_a_damaged_line_is_reported_and_left_out(damage: dict[str, Any], tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    for values in (GOOD, damage, GOOD):
        add_line(history, values)
    runs, damaged = read_history(history)
    assert [one.as_dict() for one in runs] == [GOOD, GOOD]
    assert list(damaged) == [3]


def test_damaged_lines_are_named_in_one_note() -> None:
    reasons = {number: f"reason {number}" for number in range(1, 13)}
    few = dict(list(reasons.items())[1:3])
    assert damage_note(Path("h.jsonl"), few) == (
        "2 lines of h.jsonl are damaged (2, 3; the first: reason 2) and are skipped: remove them to silence this note."
    )
    many = damage_note(Path("h.jsonl"), reasons)
    assert many.startswith("12 lines of h.jsonl are damaged (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...; the first: reason 1)")


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "kept", "runs"),
    [
        (
            "studies.benchmark.measurement.BenchSettings.__post_init__",
            "nothing was added to {}, to which a run is added",
            0,
        ),
        (
            "studies.benchmark.measurement.Workload",
            "nothing was added to {}, to which a run is added when all of it is",
            0,
        ),
        ("runs.record_lines.os.fsync", "nothing was added to {}", 0),
        ("cli.bench.print_run", "the run was added to {}.", 1),
    ],
)
def test_an_interrupt_says_what_was_added(
    where: str,
    kept: str,
    runs: int,
    tiny_workload: Workload,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = tmp_path / "history.jsonl"
    module, _, name = f"attentest.{where}".rpartition(".")
    owner = sys.modules.get(module) or pkgutil.resolve_name(module)  # a group of commands hides the module of its name
    monkeypatch.setattr(owner, name, interrupt)
    done = run_main(capsys, "bench", *SMALL, "--only", "patches", "--history", str(history))
    assert done.code == 130
    assert done.err.startswith(f"attentest: interrupted; {kept.format(history)}")
    assert len(read_history(history)[0]) == runs
    assert not read_history(history)[1]


def test_one_image_is_one(tiny_workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = [word if word != "3" else "1" for word in SMALL]
    done = run_main(capsys, "bench", *one, "--only", "patches", "--history", str(tmp_path / "history.jsonl"))
    assert done.out.startswith("8x8 model, 1 image, tol 0.1; ")


def test_a_picture_has_a_panel_for_each_comparison() -> None:
    runs = [run(ratio(numerator=4.0 + k, goal=2.0), ratio("start", comparison="start-up")) for k in range(9)]
    figure = history_figure([run(ratio(), size=16), *runs])
    first, second = figure.axes
    assert first.lines[0].get_ydata().tolist() == [one.ratios[0].ratio for one in runs]
    assert len(first.get_xticks()) == 4
    assert first.get_ylim()[0] < 2.0  # the goal is in view
    assert second.get_title().startswith("start-up: ")


def test_works_are_run_alternately_and_the_warm_up_is_not_counted() -> None:
    calls: list[str] = []
    works = {name: (lambda name=name: calls.append(name)) for name in ("a", "b")}
    found = side_by_side(works, torch.device("cpu"), 2, warm_up=True)
    assert calls == ["a", "b"] * 3
    assert all(seconds > 0 for seconds, _ in found.values())


def test_matrix_products_are_those_of_an_evaluation(tiny_workload: Workload) -> None:
    products = comparisons.matrix_products(read_encoder(tiny_workload.model), 3, torch.float64)
    with FlopCounterMode(display=False) as counted:
        products()
    tokens, hidden, inner = 17, 16, 32  # of the tiny model, with two layers
    first = 4 * tokens * hidden**2 + 2 * tokens * hidden * inner + 2 * tokens**2 * hidden
    last = tokens * hidden**2
    assert counted.get_total_flops() == 2 * 3 * (first + last)


def test_large_images_are_measured_in_a_process_of_their_own(
    tiny_workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = own_process.measure_large_image(tiny_workload.settings, 240, 320)
    assert found["image"] == 240 * 320 * 3
    assert min(found["seconds"], found["small_seconds"]) > 0
    if sys.platform == "linux":
        assert found["memory"]["memory"] >= 0
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(own_process, "measured_alone", lambda *call: called.append(call) or found)
    monkeypatch.setattr(own_process, "SHAPES", ((240, 320),))
    first, *_ = own_process.large_images(tiny_workload)
    assert first.ratio == found["seconds"] / found["small_seconds"]
    assert called == [(own_process.measure_large_image, tiny_workload.settings, 240, 320)]


def test_starts_are_measured_in_new_interpreters(tiny_workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = {"longer": ("-c", "sum(range(10**7))"), "shorter": ("-c", "sum(range(10**6))")}
    monkeypatch.setattr(own_process, "STARTS", starts)
    (found,) = own_process.start_up(tiny_workload)
    assert found.quantity == "CPU seconds"
    assert found.ratio > 1


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 2.0])
def test_the_exponent_of_a_power_is_fitted(power: float) -> None:
    exact = own_process.fitted("tokens", "seconds", {size: 0.3 * size**power for size in (257, 17, 65)})
    assert exact.sizes == (17, 65, 257)
    # some hundred units of rounding, as logarithms of up to 6 are fitted
    assert (exact.exponent, exact.factor) == pytest.approx((power, 0.3), abs=1e-13)
    assert exact.error < 1e-13
    # Of 1, 2, 4 the middle one is off by a factor e: residuals 1/3 (-1, 2, -1), whose squares sum to 2/3, with 1 degree
    # of freedom; sizes spread by 2 log(2)^2.
    bent = own_process.fitted("draws", "seconds", {1: 1.0, 2: np.e * 2.0**power, 4: 4.0**power})
    assert bent.exponent == pytest.approx(power, abs=1e-13)
    assert bent.error == pytest.approx(np.sqrt(1 / 3) / np.log(2), rel=1e-12)


def test_costs_of_growing_sizes_have_rows_exponents_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny: dict[str, Any] = {"SIDE": 12, "IMAGES": 1, "SIDES": (12, 16, 24), "PATCHES": (6, 4, 3), "COUNTS": (1, 2, 3)}
    tiny["new_figure"] = partial(new_figure, arranged=False)  # arranging panels takes a second
    for name, value in tiny.items():
        monkeypatch.setattr(own_process, name, value)
    monkeypatch.setattr(own_process, "ProcessEngine", lambda workers: LocalEngine())  # workers take seconds to start
    monkeypatch.setattr(own_process, "measured_alone", lambda measure, settings: measure(settings))
    figure = tmp_path / "scaling.png"
    command = ("bench", *SMALL, "--only", "scaling", "--history", str(tmp_path / "history.jsonl"))
    done = run_main(capsys, *command, "--figure", str(figure), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    exponents = {(one["against"], one["quantity"]): one for one in found["exponents"]}
    sizes = {against: one["sizes"] for (against, quantity), one in exponents.items() if quantity == "seconds"}
    assert sizes == {
        "pixels": [144, 256, 576],
        "tokens": [5, 10, 17],
        "layers": [1, 2, 4],
        "images": [1, 2, 3],
        "draws": [1, 2, 4],
        "workers": [1, 2, 4],
    }
    for one in exponents.values():
        assert min(one["costs"]) > 0
        assert np.isfinite([one["exponent"], one["error"]]).all()
    with Image.open(figure) as picture:
        assert picture.size[0] > 500
    print_growths(growths := own_process.growths(Run.from_dict(found)))
    lines = capsys.readouterr().out.splitlines()
    for growth in growths:
        first = next(line for line in lines if line.startswith(growth.against))
        assert growth.power in first


def test_a_process_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "FRESH", (sys.executable, "-c", "raise SystemExit('it is broken')"))
    with pytest.raises(NotMeasured, match=r"a process of its own failed \(it is broken\)"):
        own_process.measured_alone(own_process.measure_large_image, BenchSettings(), 240, 320)


@pytest.fixture
def their_package(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """A stand-in for the authors' package, and the attention weights that it was given."""
    weights: list[torch.Tensor] = []

    def test_attention_map(model: Any, data: torch.Tensor, cov: float) -> None:
        weights.append(model.extract_weights(data))

    monkeypatch.setitem(sys.modules, "si4attention", SimpleNamespace(test_attention_map=test_attention_map))
    return weights


def test_the_authors_package_is_given_the_attention_of_all_layers(
    tiny_workload: Workload, their_package: list[torch.Tensor]
) -> None:
    found = own_process.measure_authors_package(replace(tiny_workload.settings, grid_images=2))
    assert found["si4attention"]["evaluations"] == 1
    assert found["spectral, float64"]["evaluations"] > 1
    for weights in their_package:
        assert weights.shape == (1, 2, 17, 17)
        assert weights.dtype == torch.float64
        np.testing.assert_allclose(weights.sum(dim=-1), 1, rtol=1e-14)  # some units of rounding of 17 numbers


def test_the_authors_package_is_left_out_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(own_process, "find_spec", lambda name: None)
    done = run_main(capsys, "bench", "--only", "authors", "--history", str(tmp_path / "history.jsonl"))
    assert done.code == 0
    assert "authors was left out: si4attention is not installed: pip install si4attention" in done.err


def test_the_authors_package_is_left_out_where_it_fails(
    tiny_workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "find_spec", lambda name: object())
    monkeypatch.setattr(own_process, "FRESH", (sys.executable, "-c", "raise SystemExit('no absolute')"))
    with pytest.raises(NotMeasured, match=r"failed \(no absolute\)\. si4attention 1.0.0 needs sicore older than 3"):
        next(own_process.authors_package(tiny_workload))
