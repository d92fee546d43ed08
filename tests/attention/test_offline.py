"""With --offline, and for a model in a directory, nothing is sent over the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ViTForImageClassification

WITHOUT_NETWORK = """
import socket, sys
used = []
def refuse(*arguments, **keywords):
    used.append(arguments)
    raise OSError("the network is used")
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
from attentest.cli import main
ended = []
for line in sys.stdin.read().splitlines():
    sys.argv = ["attentest", *line.split()]
    try:
        main()
    except SystemExit as end:
        ended.append(end.code)
print(ended, used)
"""
"""Runs commands, one per line of standard input, and prints their exit codes and all uses of the network."""


@pytest.fixture
def cache(tiny_model: ViTForImageClassification, tmp_path: Path) -> Path:
    """A cache of the hub's files with two models that were downloaded before, one of them pickled."""
    for name in ("tiny", "pickled"):
        folder = tmp_path / "cache" / "hub" / f"models--attentest--{name}"
        snapshot = folder / "snapshots" / ("0" * 40)
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("0" * 40)
        tiny_model.save_pretrained(snapshot)
        if name == "pickled":
            torch.save(tiny_model.state_dict(), snapshot / "pytorch_model.bin")
            (snapshot / "model.safetensors").unlink()
    return tmp_path / "cache"


def test_nothing_is_sent_for_models_on_disk(cache: Path, saved_tiny_model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(8, 8)))
    shutil.copytree(saved_tiny_model, tmp_path / "model")
    test = "test x.npy --noise 1 --tol 0.1 --no-interval --json --model"
    commands = {
        f"{test} google/vit-base-patch16-224 --offline": 2,  # not on disk
        f"{test} attentest/pickled --offline": 2,
        f"{test} attentest/pickled --offline --allow-pickle --threshold 7": 2,
        f"{test} attentest/tiny --offline --threshold 7": 2,  # refused once the model is loaded
        f"{test} model --threshold 7": 2,
        f"{test} attentest/tiny --offline": 0,
    }
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK],
        input="\n".join(commands),
        cwd=tmp_path,
        env={**settings, "HF_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{list(commands.values())} []", done.stderr
    complaints = done.stderr.splitlines()
    assert "it is not among the files downloaded before" in complaints[0]
    assert "google/vit-base-patch16-224" in complaints[0]
    assert "attentest/pickled cannot be loaded" in complaints[1]
    assert all("--threshold" in line for line in complaints[2:5])
