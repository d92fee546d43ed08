from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from attentest import AttentionTest, InputError, __version__, bundled_model

NULL = np.random.default_rng(0).normal(size=(16, 16))


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attentest", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def picture_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


@pytest.fixture(scope="module")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small8"
    done = run("train", str(directory), "--image-size", "8", "--architecture", "small", "--epochs", "1",
               "--images-per-class", "50", "--seed", "3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{directory}\n"
    assert "held-out accuracy" in done.stderr
    return directory


def test_train_records_its_command(tiny_directory: Path) -> None:
    record = json.loads((tiny_directory / "training.json").read_text())
    assert record["settings"] == {
        "image_size": 8,
        "architecture": "small",
        "seed": 3,
        "epochs": 1,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "dropout": 0.1,
        "images_per_class": 50,
    }
    repeated = record["command"].replace("DIRECTORY", str(tiny_directory.parent / "again")).split()[1:]
    assert run(*repeated).returncode == 0
    again = (tiny_directory.parent / "again" / "model.safetensors").read_bytes()
    assert again == (tiny_directory / "model.safetensors").read_bytes()


def test_test_prints_a_table_or_json_and_draws(tiny_directory: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(1).normal(size=(8, 8))
    np.save(tmp_path / "scan.npy", image)
    Image.fromarray((128 + 40 * image).clip(0, 255).astype(np.uint8)).save(tmp_path / "scan.png")
    expected = AttentionTest.from_pretrained(tiny_directory, noise=1.0, search="combination")(image)

    table = run("test", str(tmp_path / "scan.npy"), "--noise", "1.0", "--model", str(tiny_directory),
                "--search", "combination", "--figure", str(tmp_path / "out" / "figure.png"))  # fmt: skip
    assert table.returncode == 0, table.stderr
    assert f"{expected.statistic:.4f}" in table.stdout
    assert "verdict" in table.stdout
    assert "figure:" in table.stderr
    assert picture_size(tmp_path / "out" / "figure.png")[0] > 500

    lines = run("test", "scan.npy", "scan.png", "--noise", "1", "--rho", "0.3", "--model", str(tiny_directory),
                "--search", "combination", "--alternative", "greater", "--json", cwd=tmp_path)  # fmt: skip
    assert lines.returncode == 0, lines.stderr
    first, second = (json.loads(line) for line in lines.stdout.splitlines())
    assert (first["image"], second["image"]) == ("scan.npy", "scan.png")
    assert first["noise"] == {"model": "ar1", "rho": 0.3, "sigma": 1.0}
    assert first["search"]["name"] == "combination"
    assert first["alternative"] == "greater"
    assert 0 < first["pvalue"] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test", "missing.npy", "--noise", "1"], "there is no image file missing.npy"),
        (["test", "text.png", "--noise", "1"], "text.png is not an image that can be read"),
        (["test", "text.npy", "--noise", "1"], "text.npy is not a readable .npy array"),
        (["test", "pickled.npy", "--noise", "1"], "pickled.npy is not a readable .npy array"),
        (["test", "cut.png", "--noise", "1"], "cut.png"),
        (["test", "wide.npy", "--noise", "1"], "wide.npy: the model takes images of height 16, width 16 and 1 channel"),
        (["test", "null.npy", "--noise", "0"], "sigma .* must be positive"),
        (["test", "null.npy", "--noise", "1", "--rho", "2"], "rho must lie"),
        (["test", "null.npy", "--noise", "1", "--threshold", "1.5"], "threshold .tau."),
        (["test", "null.npy", "--noise", "1", "--model", "nowhere"], "there is no model directory nowhere"),
        (["test", "null.npy", "--noise", "1", "--device", "nonsense"], "device 'nonsense' cannot be used"),
        (["test", "null.npy"], "Missing option '--noise'"),
        (["test", "archive.npy", "--noise", "1"], "archive of arrays"),
        (["test", "rgba.png", "--noise", "1"], "rgba.png has mode 'RGBA', .* convert it first.$"),
        (["test", "whole.png", "--noise", "1", "--figure", "whole.png"], "would overwrite the input whole.png"),
        (["test", "null.npy", "--noise", "1", "--figure", "figure"], "must end in .png, .svg, .pdf, got 'figure'"),
        (["train", "new", "--device", "cuda:99"], "device 'cuda:99' cannot be used"),
        (["train", "text.npy/model"], "cannot be made"),
        (["train", "null.npy"], "already exists"),
        (["train", "new", "--image-size", "9"], "multiple of the patch size"),
    ],
)
def test_mistakes_end_in_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    np.save(tmp_path / "null.npy", NULL)
    np.save(tmp_path / "wide.npy", np.ones((16, 17)))
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with open(tmp_path / "archive.npy", "wb") as archive:
        np.savez(archive, a=NULL)
    Image.new("RGBA", (16, 16)).save(tmp_path / "rgba.png")
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "text.npy").write_text("hello")
    Image.fromarray(np.zeros((64, 64), dtype=np.uint8)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.search(message, done.stderr.strip()), done.stderr


def test_help_and_version_teach() -> None:
    assert run("--version").stdout.strip() == __version__
    text = run("--help").stdout
    for command in ("demo", "test", "calibrate", "noise", "bench", "train"):
        assert command in text
    assert "--noise" in run("test", "--help").stdout


def test_an_interrupt_keeps_what_was_printed(tmp_path: Path) -> None:
    np.save(tmp_path / "null.npy", NULL)
    command = [
        sys.executable,
        "-m",
        "attentest",
        "test",
        "null.npy",
        "--noise",
        "1",
        "--search",
        "fixed",
        "--json",
    ]
    # A shell that runs the tests in the background has them ignore interrupts, and children inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, preexec_fn=listening) as process:
        time.sleep(8)  # into start-up or into a search that takes minutes: both must end the same way
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.count("interrupted; ") == 1
    assert err.strip().endswith(("what was printed is complete.", "0 of 1 images were finished."))
    assert "Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_ends_in_one_sentence(tiny_directory: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.random.default_rng(1).normal(size=(8, 8)))
    (tmp_path / "figure.png").symlink_to("/dev/full")
    done = run(
        "test",
        "scan.npy",
        "--noise",
        "1",
        "--model",
        str(tiny_directory),
        "--search",
        "combination",
        "--figure",
        "figure.png",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "scan.npy" in done.stdout  # the numbers are out before the figure fails
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_cannot_be_written_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from attentest.cli import app
    from attentest.training.classifier import TrainedModel

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


def test_the_choices_are_those_of_the_library() -> None:
    from attentest.cli.options import AlternativeName, ArchitectureName, SearchName
    from attentest.search import SEARCHES
    from attentest.statistics.truncated_normal import Alternative
    from attentest.training.classifier import ARCHITECTURES

    assert set(SearchName) == set(SEARCHES)
    assert set(ArchitectureName) == set(ARCHITECTURES)
    assert set(AlternativeName) == set(get_args(Alternative))


def test_demo_tells_noise_from_signal(tmp_path: Path) -> None:
    done = run("demo", "--out", str(tmp_path / "demo.png"), "--json")
    assert done.returncode == 0, done.stderr
    noise, signal_ = (json.loads(line) for line in done.stdout.splitlines())
    assert noise["naive_pvalue"] < 0.05 < noise["pvalue"]
    assert signal_["pvalue"] < 0.05
    assert picture_size(tmp_path / "demo.png")[1] > 500
    assert bundled_model().is_dir()


def test_bench_measures_every_search_and_writes_what_it_found(tmp_path: Path) -> None:
    done = run("bench", "--size", "8", "--images", "2", "--grid-images", "1", "--fixed-images", "0",
               "--out", str(tmp_path / "bench"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "bench" / "bench.json").read_text())
    rows = {row["search"]: row for row in report["rows"]}
    assert list(rows) == ["spectral, one by one", "spectral, map of 2", "spectral and 95% interval, map of 2",
                          "spectral mixed, map of 2",
                          "adaptive", "combination", "fixed"]  # fmt: skip
    for name, row in rows.items():
        assert row["seconds"] > 0
        assert row["extrapolated"] == (name == "fixed")
        assert name.split(",")[0] in done.stdout
    assert rows["spectral, map of 2"]["evaluations"] < rows["adaptive"]["evaluations"]
    assert sum(report["stages"][stage] for stage in ("model", "roots")) <= report["stages"]["in all"]
    assert picture_size(tmp_path / "bench" / "bench.png")[0] > 500


def test_deciding_is_faster_and_a_tolerance_belongs_to_the_spectral_search(tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", NULL)
    full, quick = (
        json.loads(run("test", "scan.npy", "--noise", "1", "--json", *options, cwd=tmp_path).stdout)
        for options in ((), ("--decide", "--alpha", "0.01"))
    )
    assert quick["evaluations"] < full["evaluations"]
    assert quick["reject"] is False
    assert quick["status"] == "decided"
    refused = run("test", "scan.npy", "--noise", "1", "--tol", "1e-3", "--search", "adaptive", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--tol belongs to the spectral search" in refused.stderr
    for options, message in (
        (("--tol", "0"), "cannot both be 0"),
        (("--tol", "2"), "tol must be at least 0 and less than 1"),
    ):
        refused = run("test", "scan.npy", "--noise", "1", *options, cwd=tmp_path)
        assert refused.returncode == 2
        assert message in refused.stderr
    refused = run("bench", "--size", "24")
    assert refused.returncode == 2
    assert "no bundled model for images of side 24" in refused.stderr
