"""Stacks of signals and volumes: one array, many inputs, whatever the axes of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.images.image_source import read_member, stack_members
from command_line import Done, run_main

SHAPES = {"signal256": (256,), "volume16": (16, 16, 16)}


def run(capsys: pytest.CaptureFixture[str], model: str, *arguments: str) -> Done:
    options = ("--model", model, "--noise", "1", "--region-unit", "patches", "--no-interval")
    return run_main(capsys, "test", *arguments, *options)


def lines(done: Done) -> dict[str, dict[str, Any]]:
    return {line["image"]: line for line in map(json.loads, done.out.splitlines())}


@pytest.mark.parametrize("model", SHAPES)
def test_each_of_a_stack_is_an_input(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stack = np.random.default_rng(0).normal(size=(3, *SHAPES[model]))
    np.save("stack.npy", stack)
    np.savez("stack.npz", first=stack[:2, None], second=np.asfortranarray(stack[2:]))
    done = run(capsys, model, "stack.npy", "--stack", "--json")
    assert done.code == 0, done.err
    tested = lines(done)
    assert list(tested) == ["stack.npy[0]", "stack.npy[1]", "stack.npy[2]"]
    done = run(capsys, model, "stack.npz", "--stack", "--json")  # with an axis of channels, and in Fortran order
    assert list(lines(done)) == ["stack.npz[first,0]", "stack.npz[first,1]", "stack.npz[second,0]"]
    for number, line in enumerate(tested.values()):
        np.save("one.npy", stack[number])
        (alone,) = lines(run(capsys, model, "one.npy", "--json")).values()
        assert line["statistic"] == pytest.approx(alone["statistic"], abs=1e-9)
    without = run(capsys, model, "stack.npy")
    assert without.code == 1
    nouns = "signals" if model == "signal256" else "volumes"
    assert f"note: a file that holds several {nouns} needs --stack" in without.err
    flat = run(capsys, model, "one.npy", "--stack")
    assert flat.code == 1
    if model == "signal256":
        assert "one.npy must be a stack (k, T) or (k, C, T), got an array of shape (256,)" in flat.err
    else:
        assert "must be a stack (k, D, H, W) or (k, C, D, H, W), got an array of shape (16, 16, 16)" in flat.err
    assert "--channel is not for stacks" in run(capsys, model, "stack.npy", "--stack", "--channel", "0").err


def test_stacks_are_bounded_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:  # the header of a stack that is not there
        header = {"descr": "<f8", "fortran_order": False, "shape": (2, 4000, 4000, 8)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(InputError, match="ends before the array"):
        stack_members(path, 3)
    with path.open("r+b") as file:
        file.truncate(2 * 4000 * 4000 * 8 * 8 + 200)  # sparse
    with pytest.raises(InputError, match=r"a volume of .* has shape \(4000, 4000, 8\), more than"):
        read_member(path, None, 0, 3)
    np.save(path, np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="must hold real numbers"):
        read_member(path, None, 0, 1)
    np.save(path, np.ones((0, 5)))
    with pytest.raises(InputError, match="must be a stack"):
        stack_members(path, 1)
    np.save(path, np.ones((1_000_001, 1), dtype=np.int8))
    with pytest.raises(InputError, match="more than the 1000000 allowed"):
        stack_members(path, 1)
