"""Maps of randomised models: what changes, in which order, what is said of it, and what stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from attentest import AttentionTest, bundled_model, sanity
from attentest.attention import GradCAM, GradientRollout, LayerAttention
from attentest.attention.class_scores import TextRelevance
from attentest.attention.relevance_scores import RelevanceScores
from attentest.attention.vit import ViTScores
from attentest.errors import InputError, ModelError
from attentest.results.batch import Results
from attentest.runs.engine import FailedImage
from attentest.search import SpectralSearch
from attentest.simulation.images import signal_images
from attentest.simulation.sanity import Sanity, cascade
from command_line import run_main
from families import FAMILY_MODELS, LAYERS, family_model, tiny_with_text, with_random_weights
from toys import tiny_vit

QUICK: dict[str, Any] = {"noise": 1.0, "search": SpectralSearch(tol=0.9), "confidence_level": None}
"""What is tested here is the order of things, not p."""


@pytest.fixture(scope="module")
def image() -> NDArray[np.float64]:
    return np.random.default_rng(1).normal(size=(8, 8))


@pytest.fixture(scope="module")
def checked(image: NDArray[np.float64]) -> Sanity:
    test = AttentionTest(tiny_vit(), attention=GradientRollout(0), **QUICK)
    return sanity(test, [image, -image], names=["scan", "negative"])


def unseen(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def torchvision_model() -> Any:
    torchvision = pytest.importorskip("torchvision")
    with torch.random.fork_rng(devices=[]):
        made = torchvision.models.VisionTransformer(8, 2, LAYERS, 2, 16, 32, num_classes=3)
    return with_random_weights(made)


def timm_model() -> Any:
    timm = pytest.importorskip("timm")
    sizes = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": LAYERS, "num_heads": 2, "num_classes": 3}
    with torch.random.fork_rng(devices=[]):
        return with_random_weights(timm.models.VisionTransformer(**sizes, global_pool="map"))


WITH_HEADS: dict[str, Any] = {
    "vit": (lambda: family_model("vit"), GradCAM(target=0)),
    "beit": (lambda: family_model("beit"), GradientRollout(0)),
    "clip": (lambda: tiny_with_text(hf.CLIPModel, hf.CLIPConfig), TextRelevance("a cat", tokens=(0, 5, 1))),
    "siglip": (lambda: tiny_with_text(hf.SiglipModel, hf.SiglipConfig), TextRelevance("a cat", tokens=(0, 5, 1))),
    "torchvision": (torchvision_model, GradientRollout(0)),
    "timm": (timm_model, GradientRollout(0)),
}


def swin(name: str) -> Any:
    kind, config = {
        "swin": (hf.SwinForImageClassification, hf.SwinConfig),
        "swinv2": (hf.Swinv2ForImageClassification, hf.Swinv2Config),
    }[name]
    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 2}
    with torch.random.fork_rng(devices=[]):
        return with_random_weights(kind(config(**sizes)))


WITH_HEADS |= {
    "swin": (lambda: swin("swin"), GradientRollout(0)),
    "swinv2": (lambda: swin("swinv2"), GradCAM(target=0)),
}
WITHOUT = {name: ((lambda name=name: family_model(name)), "rollout") for name in FAMILY_MODELS}
WITHOUT |= {"swin": (lambda: swin("swin"), "rollout"), "swinv2": (lambda: swin("swinv2"), "rollout")}

UNUSED = ("text_projection", "embeddings.mask_token")
UNUSED_BY_ATTENTION = ("layernorm.", "norm.", "pooler.", "post_layernorm.", "head.")
"""Beginnings of the names of weights on which no map depends, and no map of attention alone."""


@pytest.mark.parametrize("name", [*WITHOUT, *(f"{name} with its head" for name in WITH_HEADS)])
def test_each_step_randomises_one_part_more_of_a_copy(name: str) -> None:
    family, head, _ = name.partition(" with its head")
    make, chosen = (WITH_HEADS if head else WITHOUT)[family]
    model = make()
    before = unseen(model)
    scores: Any = (RelevanceScores if head else ViTScores)(model, attention=chosen)
    trained = unseen(scores.whole()[0])
    labels, previous = [], trained
    for label, copied in cascade(scores, np.random.default_rng(0)):
        weights = unseen(copied.whole()[0])
        changed = [key for key in trained if not torch.equal(weights[key], previous[key])]
        assert changed, label
        labels.append(label)
        previous = weights
    layers = ["layer 2", "layers 1 to 2", "layers 0 to 2"]
    assert labels == [*(["head", *(f"head, {layer}" for layer in layers)] if head else layers), "whole model"]
    # Temperatures stay, and what the map does not depend on; everything else differs in the end, norms by being reset.
    same = [key for key in trained if torch.equal(previous[key], trained[key]) and trained[key].ndim]
    assert not [key for key in same if not key.startswith(UNUSED if head else (*UNUSED, *UNUSED_BY_ATTENTION))]
    # Neither the caller's model nor the trained copy has changed.
    assert all(torch.equal(weights, before[key]) for key, weights in unseen(model).items())
    assert all(torch.equal(weights, trained[key]) for key, weights in unseen(scores.whole()[0]).items())


def test_the_head_is_a_step_where_the_map_depends_on_it() -> None:
    model = family_model("siglip_vision_model")
    steps = [
        next(cascade(ViTScores(model, attention=chosen), np.random.default_rng(0))) for chosen in ("rollout", "pooling")
    ]
    assert [label for label, _ in steps] == ["layer 2", "head"]


def test_norms_are_reset_and_weights_keep_their_size() -> None:
    *_, (_, copied) = cascade(ViTScores(family_model("vit")), np.random.default_rng(0))
    weights = unseen(copied.whole()[0])
    trained = unseen(family_model("vit").vit)
    for key, values in weights.items():
        if "layernorm_" in key:
            assert torch.equal(values, torch.full_like(values, 1.0 if key.endswith("weight") else 0.0))
        elif values.numel() >= 256:  # the root mean square of n normal numbers is that of their law up to 1 / sqrt(2 n)
            assert values.square().mean().sqrt() == pytest.approx(float(trained[key].square().mean().sqrt()), rel=0.2)


def test_the_map_of_the_bundled_model_depends_on_what_it_learned() -> None:
    image = signal_images(np.random.default_rng(3), 1, 16, 3.0)[0][0]
    test = AttentionTest.from_pretrained(bundled_model(), **QUICK)
    means = list(sanity(test, [image]).mean_correlations.items())
    assert means[0] == ("nothing", pytest.approx(1.0))
    assert means[-1][0] == "whole model"
    assert abs(means[-1][1]) < 0.5


def test_a_map_of_the_first_layer_does_not_depend_on_the_others(image: NDArray[np.float64]) -> None:
    model = tiny_vit()
    test = AttentionTest(model, attention=LayerAttention(0), **QUICK)
    checked = sanity(test, [image])
    assert list(checked.steps) == ["nothing", "layer 1", "layers 0 to 1", "whole model"]
    assert checked.correlations[:2, 0] == pytest.approx(1.0)
    assert checked.steps["layer 1"].pvalues == pytest.approx(checked.steps["nothing"].pvalues)
    assert checked.mean_correlations["layers 0 to 1"] < 0.7
    assert "hardly depends on what the last parts of the model learned" in checked.summary()
    assert "it stays alike with layer 1 randomised (rank correlation 1.00)" in checked.summary()


def test_the_seed_decides(checked: Sanity, image: NDArray[np.float64]) -> None:
    test = AttentionTest(tiny_vit(), attention=GradientRollout(0), **QUICK)
    again, other = sanity(test, [image]), sanity(test, [image], seed=1)
    assert again.correlations[:, 0] == pytest.approx(checked.correlations[:, 0], abs=1e-12)
    assert not np.allclose(again.correlations[1:], other.correlations[1:], atol=1e-3)
    assert (again.seed, other.seed) == (0, 1)


def test_what_is_said(checked: Sanity) -> None:
    count, images = checked.correlations.shape
    assert images == 2
    alike = replace(checked, correlations=np.full((count, images), 0.9))
    assert alike.summary() == (
        "The gradient rollout map for class 0 hardly depends on what the model learned: rank correlation 0.90 with the "
        "whole model randomised."
    )
    other = np.zeros((count, images))
    other[0] = 1.0
    summary = replace(checked, correlations=other).summary()
    assert summary.startswith(
        "The gradient rollout map for class 0 depends on what the model learned: it changes with the first"
    )
    assert "rank correlation 0.00 with head randomised" in summary
    assert repr(alike).startswith("Sanity(seed=0): The gradient rollout map for class 0 hardly")


def test_rows_and_figure(checked: Sanity, tmp_path: Path) -> None:
    rows = json.loads(json.dumps(checked.to_dict(), allow_nan=False))["rows"]
    assert [row["image"] for row in rows] == ["scan"] * 5 + ["negative"] * 5
    assert rows[0]["rank_correlation"] == pytest.approx(1.0)
    assert rows[4]["randomised"] == "whole model"
    assert rows[1]["target"]["class"] == 0
    assert all(0 < row["pvalue"] <= 1 and row["pvalue_bounds"][0] <= row["pvalue"] for row in rows)
    checked.figure().savefig(tmp_path / "sanity.png")
    with Image.open(tmp_path / "sanity.png") as picture:
        assert picture.width > 600


def test_an_image_in_which_a_randomised_model_has_no_region(checked: Sanity) -> None:
    failed = [FailedImage(number=0, reason="the map is constant."), checked.steps["head"][1]]
    correlations = checked.correlations.copy()
    correlations[1, 0] = np.nan
    steps = {**checked.steps, "head": Results(failed, checked.steps["head"].names)}
    partly = replace(checked, steps=steps, correlations=correlations)
    assert partly.mean_correlations["head"] == correlations[1, 1]
    row = json.loads(json.dumps(partly.to_dict(), allow_nan=False))["rows"][1]
    assert (row["rank_correlation"], row["pvalue"], row["error"]) == (None, None, "the map is constant.")
    assert "correlation none\np none" in [axes.get_xlabel() for axes in partly.figure().axes]
    correlations[1:] = np.nan
    assert "rank correlation none with the whole model" in replace(partly, correlations=correlations).summary()


def test_the_command(
    image: NDArray[np.float64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", image)
    tiny_vit().save_pretrained("my-vit")
    command = ["sanity", "my-vit", "scan.npy", "--noise", "1", "--tol", "0.9"]
    done = run_main(capsys, *command, "--figure", "sanity.png")
    assert done.code == 0, done.err
    assert [line.split()[1] for line in done.out.splitlines()[2:6]] == ["nothing", "layer", "layers", "whole"]
    assert "attention map" in done.out
    assert Path("sanity.png").stat().st_size > 10_000
    found = json.loads(run_main(capsys, *command, "--map", "grad-cam", "--class", "0", "--seed", "3", "--json").out)
    assert (found["seed"], len(found["rows"])) == (3, 5)
    assert found["settings"]["model"]["attention"]["name"] == "grad-cam"
    for arguments, message in [
        (["sanity", "none", "scan.npy", "--noise", "1", "--offline"], "none"),
        (["sanity", "my-vit", "none.npy", "--noise", "1"], "there is no image file none.npy."),
        ([*command, "--figure", "sanity.txt"], "--figure must end in"),
        ([*command, "--map", "grad-cam", "--class", "7"], "--class is class 7, but the model has 1 class"),
        ([*command, "--figure", "scan.npy"], "scan.npy"),
    ]:
        refused = run_main(capsys, *arguments)
        assert refused.code == 2
        assert message in refused.err
        assert len(refused.err.strip().splitlines()) == 1


def test_what_cannot_be_randomised(image: NDArray[np.float64]) -> None:
    def means(images: NDArray[np.float64]) -> NDArray[np.float64]:
        return images.reshape(len(images), 4, 2, 4, 2).mean((2, 4))

    with pytest.raises(ModelError, match="a score function has none: give a model"):
        sanity(AttentionTest(means, image_shape=(1, 8, 8), noise=1.0), [image])
    test = AttentionTest(tiny_vit(), noise=1.0)
    with pytest.raises(InputError, match="there are no images"):
        sanity(test, [])
    with pytest.raises(InputError, match="seed must be"):
        sanity(test, [image], seed=-1)
