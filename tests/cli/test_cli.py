"""``attentest``: the commands from end to end, and how they end."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from attentest import AttentionTest, __version__, bundled_model
from attentest.cli import app
from attentest.errors import InputError
from attentest.noise import AR1
from attentest.presentation.rows import COLUMNS
from attentest.search import SpectralSearch
from attentest.simulation.calibrate import NullImages
from attentest.training.classifier import TrainedModel
from command_line import full_disk, run_main

NULL = np.random.default_rng(0).normal(size=(16, 16))
SCAN = np.random.default_rng(1).normal(size=(8, 8))
TRAINING = ("--image-size", "8", "--architecture", "small", "--epochs", "1", "--images-per-class", "50", "--seed", "3")


def picture_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


@pytest.fixture(scope="module")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small8"
    done = CliRunner().invoke(app, ["train", str(directory), *TRAINING])
    assert done.exit_code == 0, done.exception
    assert done.stdout == f"{directory}\n"
    assert "accuracy on held-out images" in done.stderr
    return directory


def test_train_records_its_command(tiny_directory: Path) -> None:
    record = json.loads((tiny_directory / "training.json").read_text())
    assert record["settings"] == {
        "image_size": 8,
        "axes": 2,
        "architecture": "small",
        "seed": 3,
        "epochs": 1,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "dropout": 0.1,
        "images_per_class": 50,
        "series": False,
    }
    repeated = record["command"].replace("DIRECTORY", str(tiny_directory.parent / "again")).split()[1:]
    assert CliRunner().invoke(app, repeated).exit_code == 0
    again = (tiny_directory.parent / "again" / "model.safetensors").read_bytes()
    assert again == (tiny_directory / "model.safetensors").read_bytes()


def test_test_prints_a_table_or_json_and_draws(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", SCAN)
    Image.fromarray((128 + 40 * SCAN).clip(0, 255).astype(np.uint8)).save("scan.png")
    expected = AttentionTest.from_pretrained(tiny_directory, noise=1.0, search=SpectralSearch(tol=1e-3))(SCAN)
    options = ("--model", str(tiny_directory), "--tol", "1e-3")

    table = run_main(capsys, "test", "scan.npy", "--noise", "1.0", *options, "--figure", "out/figure.png")
    assert table.code == 0, table.err
    assert f"{expected.statistic:.4f}" in table.out
    assert "verdict" in table.out
    assert "figure:" in table.err
    assert picture_size(Path("out/figure.png"))[0] > 500

    lines = run_main(capsys, "test", "scan.npy", "scan.png", "--noise", "1", "--rho", "0.3", *options,
                     "--alternative", "greater", "--json")  # fmt: skip
    assert lines.code == 0, lines.err
    first, second = (json.loads(line) for line in lines.out.splitlines())
    assert (first["image"], second["image"]) == ("scan.npy", "scan.png")
    assert first["settings"]["noise"] == AR1(0.3).describe()
    assert first["settings"]["search"]["name"] == "spectral"
    assert first["alternative"] == "greater"
    assert 0 < first["pvalue"] <= 1
    assert first["verdict"].startswith(("Significant at 0.05: the mean", "Not significant at 0.05: there is no evid"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test", "missing.npy", "--noise", "1"], "there is no image file missing.npy"),
        (["test", "text.png", "--noise", "1"], "text.png is not an image that can be read"),
        (["test", "text.npy", "--noise", "1"], "text.npy is not a readable .npy array"),
        (["test", "pickled.npy", "--noise", "1"], "pickled.npy must hold real numbers"),
        (["test", "cut.png", "--noise", "1"], "cut.png"),
        (["test", "wide.npy", "--noise", "1"], "wide.npy: the model takes images of height 16, width 16 and 1 channel"),
        (
            ["test", "null.npy", "--noise", "1", "--model", "nowhere", "--offline"],
            "there is no model directory nowhere",
        ),
        (["test", "null.npy", "--noise", "1", "--model", ""], "--model must not be an empty text"),
        (
            ["test", "null.npy"],
            "^attentest: missing option '--noise'. .* \"Choosing a noise model\" of the",
        ),
        (["calibrate", "--seed", "1"], "^attentest: missing option '--noise'. .*docs/choosing-noise.md"),
        (["noise", "fit", "null.npy"], "^attentest: missing option '--out' .see .*noise fit --help..$"),
        (
            ["test", "null.npy", "--noise", "1", "--search", "random"],
            r"--search must be spectral, .* or combination, got 'random'\.",
        ),
        (["test", "archive.npy", "--noise", "1"], "archive of arrays"),
        (["test", "rgba.png", "--noise", "1"], "rgba.png has mode 'RGBA', .* flatten it onto a background first.$"),
        (["test", "whole.png", "--noise", "1", "--figure", "whole.png"], "would overwrite the input whole.png"),
        (
            ["test", "null.npy", "--noise", "1", "--figure", "figure"],
            "--figure must end in .png, .svg, .pdf, or in / for a folder of figures, got 'figure'",
        ),
        (["demo", "--out", "demo.gif"], "--out must end in .png, .svg, .pdf, got 'demo.gif'"),
        (["noise", "fit", "null.npy", "--out", "noise.txt"], "--out must end in .json, .safetensors, got 'noise.txt'"),
        (["train", "text.npy/model"], "cannot be made"),
        (["train", "null.npy"], "already exists"),
        (["test", "null.npy", "--noise", "1", "--noise=2"], "^attentest: --noise was given 2 times, and only one can"),
        (["test", "null.npy", "--noise", "1", "--preprocessing", "--no-preprocessing"], "--preprocessing was given 2"),
        (["noise", "fit", "null.npy", "--out", "a.json", "--out", "b.json"], "--out was given 2 times"),
        (["reproduce", "--seed", "1", "--seed", "2", "--seed", "3"], "--seed was given 3 times"),
        (["reproduce", "report", "--out", "a", "--out", "b"], "--out was given 2 times"),
        (["bench", "--size", "24"], "--size must be 8, 16, 32 or 64, got 24"),
        (["bench", "--only", "speed"], "--only must be interval, precision, .* start-up or scaling, got 'speed'"),
        (
            ["bench", "--images", "2", "--grid-images", "3"],
            "^attentest: --grid-images must be at most 2, the number of images, got 3.$",
        ),
        (["bench", "--history", "text.png/history.jsonl"], "the history cannot be written to text.png/history.jsonl"),
        (["bench", "--history", "history.txt"], "--history must end in .jsonl, got 'history.txt'"),
        (["bench", "--figure", "bench.txt"], "--figure must end in .png, .svg, .pdf, got 'bench.txt'"),
    ],
)
def test_mistakes_end_in_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("null.npy", NULL)
    np.save("wide.npy", np.ones((16, 17)))
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with open("archive.npy", "wb") as archive:
        np.savez(archive, a=NULL)
    Image.new("RGBA", (16, 16)).save("rgba.png")
    Path("text.png").write_text("hello")
    Path("text.npy").write_text("hello")
    Image.fromarray(np.zeros((64, 64), dtype=np.uint8)).save("whole.png")
    Path("cut.png").write_bytes(Path("whole.png").read_bytes()[:60])
    done = run_main(capsys, *arguments)
    bad_files = {"text.png", "text.npy", "pickled.npy", "cut.png", "wide.npy", "archive.npy", "rgba.png"}
    assert done.code == (1 if arguments[1] in bad_files else 2)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert re.search(message, " ".join(done.err.replace("│", "").split())), done.err


@pytest.mark.parametrize(
    ("command", "option", "value", "bounds"),
    [
        ("bench", "--images", "0", "at least 1 and at most 10000000"),
        ("bench", "--images", "10000001", "at least 1 and at most 10000000"),
        ("bench", "--grid-images", "-1", "at least 1 and at most 10000000"),
        ("bench", "--repeats", "0", "at least 1 and at most 1000"),
        ("train nowhere", "--seed", "-1", "at least 0 and at most 9223372036854775807"),
    ],
)
def test_numbers_that_the_library_refuses_are_those_of_options(
    command: str, option: str, value: str, bounds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_main(capsys, *command.split(), option, value)
    assert (done.code, done.err) == (2, f"attentest: {option} must be {bounds}, got {value}.\n")


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("bench", "--seed", "-1"),
        ("brain nowhere", "--noise-images", "9"),
        ("calibrate --noise 1", "--images", "0"),
        ("app", "--port", "65536"),
        ("noise check a.npy --noise 1", "--simulations", "18"),
        ("report nowhere", "--cards", "-1"),
        ("test a.npy --noise 1", "--connectivity", "4"),
        ("reproduce --engine processes", "--cores", "0"),
    ],
)
def test_numbers_out_of_range_are_refused_by_the_parser(
    command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_main(capsys, *command.split(), option, value)
    assert done.code == 2
    assert done.err.startswith(f"attentest: {option} must be a whole number from ")
    assert done.err.endswith(f", got '{value}'.\n")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "option", "allowed"),
    [
        ("test a.npy --noise 1", "--region-unit", "pixels or patches"),
        ("test a.npy --noise 1", "--alternative", "two-sided, equal-tailed, greater or less"),
        ("test a.npy --noise 1", "--top-fraction", "a number"),
        ("test a.npy --noise 1", "--max-evaluations", "a whole number"),
        ("test a.npy --noise 1", "--workers", "a whole number from 1 to 10000"),
        ("power --noise 1 --delta 1", "--delta", "a number"),
        ("noise fit a.npy --out b.json", "--estimator", "auto, pooled, "),
    ],
)
def test_values_that_are_not_allowed_are_refused_in_the_words_of_all_errors(
    command: str, option: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_main(capsys, *command.split(), option, "nonsense")
    assert done.code == 2
    assert done.err.startswith(f"attentest: {option} must be {allowed}")
    assert done.err.endswith(", got 'nonsense'.\n")


@pytest.mark.parametrize("tol", ["0", "-1", "1", "nan"])
def test_a_benchmark_has_a_tolerance_between_0_and_1(tol: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "bench", "--tol", tol)
    assert done.err == f"attentest: --tol must lie strictly between 0 and 1, got {float(tol)}.\n"


def test_help_and_version_teach(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(capsys, "--version").out.strip() == __version__
    text = run_main(capsys, "--help").out
    for command in ("demo", "test", "calibrate", "power", "sanity", "noise", "bench", "train", "brain", "reproduce"):
        assert command in text
    shown = run_main(capsys, "test", "--help").out
    assert "--noise" in shown
    assert "  attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png " in shown


COMMANDS = ("", "test", "demo", "cohort", "calibrate", "power", "sanity", "bench", "bench counts", "train", "brain",
            "noise", "noise fit", "noise show", "reproduce", "reproduce report", "reproduce list")  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_begins_with_examples(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run_main(capsys, *command.split(), "--help").out
    assert max(map(len, text.splitlines())) <= 80
    example = text.find("For example:")
    if command not in ("", "noise", "reproduce list"):
        assert 0 < example < text.index("\u256d\u2500 Options \u2500")
        assert len(re.split(r"\n\s*\n", text[:example].strip())) == 2  # the usage and one sentence


WRITING = {"test", "demo", "calibrate", "power", "sanity", "bench", "bench counts", "train", "brain", "noise fit",
           "noise check", "report", "cohort", "reproduce", "reproduce report"}  # fmt: skip


@pytest.mark.parametrize("command", sorted({*COMMANDS, *WRITING}))
def test_help_says_that_folders_of_outputs_are_created(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(run_main(capsys, *command.split(), "--help").out.split())
    assert bool(re.search(r"Folders [^.]* are created if they do not exist\.", text)) == (command in WRITING)


def test_folders_of_outputs_are_created(
    saved_tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    images = [f"{number}.npy" for number in range(3)]
    for number in range(3):
        np.save(images[number], np.random.default_rng(number).normal(size=(8, 8)))
    model = ("--model", str(saved_tiny_model), "--tol", "1e-2")
    outputs = {
        ("test", "0.npy", "--noise", "1", *model, "--sensitivity"): (
            ("--figure", "a/figure.png"), ("--sensitivity-figure", "b/figure.png"), ("--csv", "c/table.csv"),
            ("--parquet", "d/table.parquet"), ("--report", "e/report.json"), ("--out", "f/results"),
        ),
        ("noise", "fit", *images): (("--out", "g/noise.json"),),
        ("noise", "check", *images, "--noise", "1", "--simulations", "19", "--alpha", "0.4"): (
            ("--figure", "h/figure.png"),
        ),
        ("report", "f/results"): (("--out", "i/report.json"),),
    }  # fmt: skip
    for command, options in outputs.items():
        done = run_main(capsys, *command, *(word for option in options for word in option))
        assert done.code == 0, done.err
        for option, path in options:
            assert Path(path).exists(), option


def test_broken_examples_can_be_copied(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in run_main(capsys, "test", "--help").out.splitlines()]
    first = lines.index("attentest test after.npy --contrast reference --reference before.npy \\")
    assert lines[first + 1] == "--noise 1.0"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["test", "null.npy", "--noise", "1", "--out", ""], "--out"),
        (["test", "null.npy", "--noise", "1", "--csv="], "--csv"),
        (["test", "", "--noise", "1"], "images"),
        (["test", "null.npy", "--noise", "1", "--reference", "a.npy", "--reference", ""], "--reference"),
        (["calibrate", "--noise", "1", "--out", ""], "--out"),
        (["reproduce", "--out", ""], "--out"),
        (["train", ""], "directory"),
    ],
)
def test_an_empty_text_is_not_the_current_directory(
    arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_main(capsys, *arguments)
    assert (done.code, done.err) == (
        2,
        f"attentest: {name} must not be an empty text: give a value, or leave it out.\n",
    )


def test_no_value_is_called_as_its_option_is() -> None:
    # Some versions of Typer take the name of an option from its metavar where both are the same but for capitals.
    commands, names = [get_command(app)], []
    while commands:
        command: Any = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            called = str(parameter.metavar).split()[0].replace("_", "-").lower()
            assert called != parameter.name.replace("_", "-"), parameter.name
            names += parameter.opts
    assert "--size" in names
    assert names == [name.lower() for name in names]


@pytest.mark.parametrize(
    ("command", "where", "kept"),
    [
        ("bench counts", "studies.benchmark.counts.read_record", "what was printed is complete."),
        ("demo", "presentation.figure.check_figure_path", "what was printed is complete."),  # --out is a file
        (
            "calibrate --noise 1",
            "pipeline.attention_test.AttentionTest.from_pretrained",
            "what was printed, and what is in an --out directory, is complete.",
        ),
    ],
)
def test_an_interrupt_names_only_outputs_that_the_command_has(
    command: str, where: str, kept: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"attentest.{where}", interrupt)
    done = run_main(capsys, *command.split())
    assert (done.code, done.err) == (130, f"attentest: interrupted; {kept}\n")


def test_an_interrupt_in_the_middle_leaves_a_report(
    saved_tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    all_rows = NullImages.rows

    def two(*arguments: Any, **options: Any) -> Iterator[Any]:
        results = all_rows(*arguments, **options)
        yield next(results)
        yield next(results)
        os.kill(os.getpid(), signal.SIGINT)
        yield from results

    monkeypatch.setattr(NullImages, "rows", two)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run_main(capsys, "calibrate", "--noise", "1", "--model", str(saved_tiny_model), "--tol", "1e-3",
                        "--images", "1000000", "--json")  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130, done.err
    assert done.err.endswith("attentest: interrupted; 2 of 1,000,000 null images were finished.\n")
    assert "Traceback" not in done.err
    assert json.loads(done.out)["images"] == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_ends_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", SCAN)
    Path("figure.png").symlink_to("/dev/full")
    done = run_main(capsys, "test", "scan.npy", "--noise", "1", "--model", str(bundled_model(8)), "--tol", "1e-3",
                    "--no-interval", "--figure", "figure.png")  # fmt: skip
    assert done.code == 3
    assert "scan.npy" in done.out  # the numbers are printed although the figure fails
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err


def test_a_table_for_which_there_is_no_room_ends_in_one_sentence_after_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", SCAN)
    asked = ("test", "scan.npy", "--noise", "1", "--model", str(bundled_model(8)), "--tol", "1e-3", "--no-interval")
    with full_disk(len(",".join(COLUMNS)) + 50):
        done = run_main(capsys, *asked, "--csv", "table.csv")
    assert done.code == 3
    assert "scan.npy" in done.out
    assert "table.csv cannot be written (File too large): free some space and run again." in done.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_for_which_there_is_no_room_ends_in_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "attentest", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.startswith("attentest: standard output cannot be written (No space left on device): free")


def test_a_model_that_cannot_be_written_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    save = TrainedModel.save

    def full(self: TrainedModel, directory: Path) -> None:
        if directory == tmp_path / "model":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, directory)

    monkeypatch.setattr(TrainedModel, "save", full)
    arguments = ["train", str(tmp_path / "model"), "--image-size", "8", "--architecture", "small", "--epochs", "1",
                 "--images-per-class", "20"]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    rescued = re.search(r"the trained model is in (.*)\.$", str(result.exception))
    assert rescued
    assert (Path(rescued[1]) / "model.safetensors").is_file()


def test_demo_tells_noise_from_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "demo", "--out", str(tmp_path / "demo.png"), "--json")
    assert done.code == 0, done.err
    noise, signal_ = (json.loads(line) for line in done.out.splitlines())
    assert noise["naive_pvalue"] < 0.05 < noise["pvalue"]
    assert signal_["pvalue"] < 0.05
    assert picture_size(tmp_path / "demo.png")[1] > 500


@pytest.mark.parametrize("kind", ["signal", "volume"])
def test_demo_of_signals_and_volumes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "demo", f"--{kind}", "--out", str(tmp_path / "demo.png"))
    assert done.code == 0, done.err
    assert done.out.startswith(kind)
    assert [line.split()[-2:] == ["not", "significant"] for line in done.out.splitlines()[2:4]] == [True, False]
    assert picture_size(tmp_path / "demo.png")[1] > 500
    both = run_main(capsys, "demo", "--signal", "--volume")
    assert (both.code, "two demonstrations" in both.err) == (2, True)


def test_a_channel_of_a_recording_is_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    leads = np.random.default_rng(0).normal(size=(256, 2))
    np.savetxt("recording.csv", leads, delimiter=",", header="I,II", comments="")
    np.save("second.npy", leads[:, 1])
    options = ("--model", str(bundled_model(axes=1)), "--noise", "1", "--no-interval", "--tol", "1e-3", "--json")
    by_name = json.loads(run_main(capsys, "test", "recording.csv", "--channel", "II", *options).out)
    alone = json.loads(run_main(capsys, "test", "second.npy", *options).out)
    assert by_name["pvalue"] == pytest.approx(alone["pvalue"], abs=1e-9)
    for arguments, said in (
        (("recording.csv", "--channel", "V5"), "V5"),
        (("recording.csv",), "2 channels"),
        (("second.npy", "--channel", "0", "--connectivity", "2", "--components"), "connectivity"),
    ):
        done = run_main(capsys, "test", *arguments, *options)
        assert done.code != 0
        assert said in done.err + done.out
        assert "Traceback" not in done.err


def test_deciding_takes_fewer_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", SCAN)
    full, quick = (
        json.loads(
            run_main(
                capsys, "test", "scan.npy", "--noise", "1", "--model", str(bundled_model(8)), "--json", *options
            ).out
        )
        for options in ((), ("--decide", "--alpha", "0.01"))
    )
    assert quick["evaluations"] < full["evaluations"]
    assert quick["reject"] == (full["pvalue"] <= 0.01)
    assert quick["status"] == "decided"
