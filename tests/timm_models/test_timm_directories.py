"""Models of timm in directories, as timm saves them: in tests, on the command line, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from attentest import AttentionTest
from attentest.attention import CAM, GradCAM, load_model
from attentest.errors import ModelError
from attentest.search import SpectralSearch
from command_line import run_main
from families import with_random_weights

timm = pytest.importorskip("timm", reason="timm is not there (see conftest.py)")

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet": ("test_resnet", {"in_chans": 1, "channels": [4, 4, 4, 4]}),
    "convnext": ("test_convnext", {"in_chans": 1, "patch_size": 1, "dims": [4, 4, 4, 4]}),
    "vit": ("test_vit", {"in_chans": 1, "img_size": 16, "patch_size": 4}),
}
LABELS = {"label_names": ["n1", "n2", "dog"], "label_descriptions": {"n2": "tabby, tabby cat"}}
IMAGE = np.random.default_rng(0).normal(size=(16, 16))


def made(name: str) -> Any:
    kind, arguments = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return with_random_weights(timm.create_model(kind, num_classes=3, **arguments))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("of_timm")
    for name, (_, arguments) in MODELS.items():
        save: Any = timm.models.save_for_hf
        save(made(name), folder / name, dict(LABELS), arguments, safe_serialization=True)
    return {name: folder / name for name in MODELS}


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("resnet", GradCAM("layer2", "tabby", "signed")),
        ("convnext", CAM(1, "signed")),
        ("vit", "rollout"),
        ("vit", GradCAM(sign="signed")),
    ],
)
def test_a_saved_model_is_tested_as_a_live_one(name: str, attention: Any, saved: Any) -> None:
    options: dict[str, Any] = {"noise": 1.0, "attention": attention, "threshold": 0.3, "confidence_level": None}
    options["search"] = SpectralSearch(tol=0.1)
    model = made(name)
    model.labels = {0: "n1", 1: "tabby, tabby cat", 2: "dog"}
    live = AttentionTest(model, **({} if name == "vit" else {"image_shape": (1, 16, 16)}), **options)
    size = None if name == "vit" else 16
    test = AttentionTest.from_pretrained(saved[name], image_size=size, preprocessing=None, **options)
    assert test.image_shape == (1, 16, 16)
    assert (test.settings["model"], test.model_sha256) == (live.settings["model"], live.model_sha256)
    for found, expected in zip(test.attention_region(IMAGE), live.attention_region(IMAGE), strict=True):
        assert np.array_equal(found, expected)
    known = test.pipeline.scores.maps  # type: ignore[attr-defined]
    assert ("layer:K" in known) == (name == "vit")
    assert "grad-cam" in known


def test_on_the_command_line_with_the_preprocessing_of_timm(saved: Any, tmp_path: Path, capsys: Any) -> None:
    np.save(tmp_path / "image.npy", np.repeat(IMAGE[..., None], 3, axis=2))
    sizes: dict[str, Any] = {"img_size": 16, "patch_size": 4}
    save: Any = timm.models.save_for_hf
    model = with_random_weights(timm.create_model("test_vit", **sizes))
    save(model, tmp_path / "colour", model_args=sizes, safe_serialization=True)
    arguments = "test", str(tmp_path / "image.npy"), "--noise", "1", "--no-interval", "--tol", "0.1", "--model"
    done = run_main(capsys, *arguments, str(tmp_path / "colour"), "--range", "0,1", "--json")
    assert done.code == 0, done.err
    preprocessing = json.loads(done.out)["settings"]["preprocessing"]
    assert preprocessing["mean"] == list(model.pretrained_cfg["mean"])
    assert preprocessing["crop"] == [16, 16]
    refused = run_main(capsys, *arguments, str(saved["resnet"]))
    assert refused.code == 2
    assert "is of type 'test_resnet', which is no transformer: --map must be grad-cam" in " ".join(refused.err.split())


def test_what_cannot_be_used_is_refused(saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = load_file(saved["resnet"] / "model.safetensors")

    def refused(sentence: str, values: Any = weights, head: Any = "classes", **changes: Any) -> None:
        config = json.loads((saved["resnet"] / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        save_file(values, tmp_path / "model.safetensors")
        with pytest.raises(ModelError, match=sentence) as caught:
            load_model(tmp_path, head=head)
        assert "\n" not in str(caught.value)

    refused("has architecture 'nothing', which timm .* does not know", architecture="nothing")
    refused("has architecture 'hf-hub:timm/resnet18', which timm", architecture="hf-hub:timm/resnet18")
    refused("have fc.bias of shape .3,., but config.json asks for .2,.", num_classes=2)
    refused("asks for a model with at least", num_classes=900_000)
    refused("'num_classes' must be at most 1048576", num_classes=10**9)
    refused("cannot be loaded .*nonsense", model_args={"in_chans": 1, "nonsense": 3})
    refused("cannot be loaded .*pretrained", model_args={"in_chans": 1, "pretrained": True})
    refused("cannot be loaded", pretrained_cfg=[1])
    renamed = {name.replace("fc.bias", "head.bias"): value for name, value in weights.items()}
    refused("lack 1 tensor that config.json asks for, fc.bias", renamed)
    refused("cannot be loaded .*Unexpected key.*more", {**weights, "more": torch.zeros(2)})
    refused("was not saved with a part for texts|is no transformer", head="text")
    without = {name: value for name, value in weights.items() if not name.startswith("fc.")}
    refused("was not saved with a classification head", without, num_classes=0)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"there is no model\.safetensors"):
        load_model(tmp_path, head="classes")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"which cannot be imported .*: pip install 'attentest\[timm\]'"):
        load_model(tmp_path, head="classes")
