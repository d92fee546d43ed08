"""CNNs saved by Hugging Face transformers: their maps in tests, on the command line, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from attentest import AttentionTest
from attentest.attention import CAM, GradCAM, HiResCAM, load_model
from attentest.errors import AttentestError, ModelError
from attentest.search import SpectralSearch
from command_line import run_main

LABELS = {0: "tiger", 1: "tabby, tabby cat", 2: "dog"}
SIZES = {"num_channels": 1, "hidden_sizes": [4, 6], "depths": [1, 1], "id2label": LABELS}

NETWORKS: dict[str, Any] = {
    "resnet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**SIZES, embedding_size=4, layer_type="basic")),
    "regnet": lambda: hf.RegNetForImageClassification(hf.RegNetConfig(**SIZES, embedding_size=4, groups_width=2)),
    "convnext": lambda: hf.ConvNextForImageClassification(
        hf.ConvNextConfig(**SIZES, num_stages=2, patch_size=2, image_size=16)
    ),
    "headless": lambda: hf.ResNetModel(hf.ResNetConfig(**SIZES, embedding_size=4, layer_type="basic")),
    "pvt": lambda: hf.PvtForImageClassification(
        hf.PvtConfig(image_size=32, depths=[1] * 4, hidden_sizes=[8] * 4, num_attention_heads=[1] * 4)
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("networks")
    for name, make in NETWORKS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            make().save_pretrained(folder / name)
    return {name: folder / name for name in NETWORKS}


IMAGE = np.random.default_rng(0).normal(size=(16, 16))


@pytest.mark.parametrize(
    ("name", "attention", "search"),
    [
        ("resnet", GradCAM("resnet.encoder.stages.0", target="tabby"), "piecewise"),
        ("regnet", HiResCAM(target="dog"), "spectral"),  # squeezed and excited by a sigmoid
        ("convnext", CAM(), "spectral"),
    ],
)
def test_a_saved_network_is_tested_as_a_live_one(name: str, attention: Any, search: str, saved: Any) -> None:
    options: dict[str, Any] = {"noise": 1.0, "attention": attention, "threshold": 0.3, "confidence_level": None}
    options["search"] = SpectralSearch(tol=0.1)  # or its exact form, where that is known
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        live = AttentionTest(NETWORKS[name](), image_shape=(1, 16, 16), **options)
    size = None if name == "convnext" else 16  # which says its size
    test = AttentionTest.from_pretrained(saved[name], image_size=size, preprocessing=None, **options)
    assert test.settings["search"]["name"] == search
    assert test.image_shape == (1, 16, 16)
    for found, expected in zip(test.attention_region(IMAGE), live.attention_region(IMAGE), strict=True):
        assert np.array_equal(found, expected)
    assert test.model_sha256 == live.model_sha256
    if attention.target == "tabby":
        result = test(IMAGE)
        assert result.target["label"] == LABELS[1]
        assert result.pvalue == live(IMAGE).pvalue


def test_a_saved_network_on_the_command_line(saved: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "image.npy", IMAGE)

    def tested(*options: str) -> Any:
        return run_main(
            capsys, "test", str(tmp_path / "image.npy"), "--noise", "1", "--no-interval", "--tol", "0.1", *options
        )

    model = "--model", str(saved["resnet"])
    layer = "--layer", "resnet.encoder.stages.0"
    done = tested(*model, "--map", "grad-cam", "--class", "tabby", *layer, "--image-size", "16", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert LABELS[1] in done.out
    assert record["settings"]["model"]["attention"]["layer"] == layer[1]
    maps = "grad-cam, hires-cam, cam, input-gradient or integrated-gradients"
    for options, sentence in (
        (model, f"is of type 'resnet', which is no transformer: --map must be {maps}."),
        ((*model, "--map", "cam"), "takes images of any size: say which with --image-size."),
        ((*model, "--map", "cam", "--layer", "a"), "--layer does not go with --map cam: leave one of them out."),
        (("--layer", "3"), "--layer is for maps for a class: choose one too, such as grad-cam."),
        ((*model, "--map", "grad-cam", "--layer", "a", "--image-size", "16"), "--layer must be the name of a layer"),
        (("--map", "grad-cam", "--layer", "99"), "--layer must be from -8 to 7 for this model, got 99."),
        (("--map", "layer:99"), "--map layer:K must be from -8 to 7 for this model, got 99."),
    ):
        refused = tested(*options)
        assert refused.code == 2
        assert sentence in " ".join(refused.err.split())


def test_saved_networks_that_cannot_be_used_are_refused(saved: Any, tmp_path: Path) -> None:
    def refused(name: str, sentence: str, **changes: Any) -> None:
        files = {path.name: path.read_bytes() for path in saved[name].iterdir()}
        files["config.json"] = json.dumps({**json.loads(files["config.json"]), **changes}).encode()
        for file, content in files.items():
            (tmp_path / file).write_bytes(content)
        with pytest.raises(ModelError, match=sentence) as caught:
            load_model(tmp_path, head="classes")
        assert "\n" not in str(caught.value)

    refused("headless", "was not saved with a classification head .*ResNetModel.: give one that was.$")
    refused("pvt", "is of type 'pvt', which is hierarchical")
    refused("resnet", "'depths' must be at most 4096, got 1000000", depths=[10**6, 1])
    refused("resnet", "'embedding_size' must be at most 1048576", embedding_size=10**9)
    refused("resnet", "asks for a model with at least .* weights", hidden_sizes=[4, 4096])
    refused("resnet", "cannot be loaded", hidden_act="nothing")
    refused("resnet", "of shape", hidden_sizes=[4, 5])
    refused("resnet", "lack .* that config.json asks for|asks for a model with at least", depths=[1, 2])


def test_a_module_that_returns_no_map_says_which_can_be_made() -> None:
    classes = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 3))
    pixels, same = torch.nn.Conv2d(1, 3, 3), torch.nn.Conv2d(1, 1, 3, padding=1)
    for model, sentence in (
        (classes, r"returns shape \(3,\) for an image, .*: attention must be grad-cam, .* or integrated-gradients.$"),
        (pixels, r"returns shape \(3, 14, 14\) for an image, .*: attention must be segmentation.$"),
        (same, "attention must be segmentation or residual.$"),
    ):
        with pytest.raises(AttentestError, match=sentence):
            AttentionTest(model, image_shape=(1, 16, 16), noise=1.0)
    squeezed = torch.nn.Sequential(same, torch.nn.Flatten(1, 2)).double()
    assert AttentionTest(squeezed, image_shape=(1, 16, 16), noise=1.0).attention_region(IMAGE)[0].shape == (16, 16)
