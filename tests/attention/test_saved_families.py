"""Saved models of every family: what is loaded, what is refused, and that nothing is downloaded or run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from attentest.attention import ViTScores, load_model
from attentest.errors import AttentestWarning, ModelError
from families import EXACT, FAMILY_MODELS, VARIANTS, distance, family_model, normal, tiny_with_text
from plain_forward import plain_scores

FAMILIES = sorted(FAMILY_MODELS)


def saved(model: Any, directory: Path) -> Path:
    model.save_pretrained(directory)
    return directory


def refusal_of(source: Any, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(source, **options)
    return one_sentence(caught.value)


def one_sentence(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    assert message.endswith(".")
    assert error.__suppress_context__ or error.__context__ is None  # the error of the library is not shown as well
    return message


@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_a_saved_model_has_the_same_scores_and_loads_quietly(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved(family_model(name), tmp_path / "model")
    capfd.readouterr()
    loaded = load_model(tmp_path / "model")
    assert capfd.readouterr() == ("", "")
    assert loaded.processor is None
    images = normal(2, 3, 8, 12, seed=11)
    scores = ViTScores(loaded.encoder, image_size=(8, 12), owned=True)(images)
    assert torch.equal(scores, ViTScores(family_model(name), image_size=(8, 12))(images))


@pytest.mark.parametrize(
    ("model_class", "config_class"), [(hf.CLIPModel, hf.CLIPConfig), (hf.SiglipModel, hf.SiglipConfig)]
)
def test_a_saved_model_of_images_and_texts_gives_its_vision_part(
    model_class: type, config_class: type, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny_with_text(model_class, config_class)
    saved(model, tmp_path / "model")
    capfd.readouterr()
    loaded = load_model(tmp_path / "model")
    assert capfd.readouterr() == ("", "")
    images, classy = normal(2, 3, 8, 8), model_class is hf.CLIPModel
    scores = ViTScores(loaded.encoder)(images)
    assert distance(scores, plain_scores(model.vision_model, images, classy)) < EXACT
    # The whole model, as a live module, is read likewise.
    assert torch.equal(scores, ViTScores(model)(images))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["vit", "beit", "dinov3_vit", "siglip_vision_model"])
def test_weights_saved_in_half_precision_are_loaded_as_they_are(name: str, dtype: str, tmp_path: Path) -> None:
    half = FAMILY_MODELS[name]().to(getattr(torch, dtype))
    encoder = load_model(saved(half, tmp_path / "model")).encoder
    assert next(encoder.parameters()).dtype == getattr(torch, dtype)
    with pytest.warns(AttentestWarning, match=dtype):
        scores = ViTScores(encoder)
    images = normal(2, 3, 8, 8)
    assert torch.equal(scores(images), ViTScores(half.float())(images))


def test_pickled_weights_are_read_only_on_request(tmp_path: Path) -> None:
    model = FAMILY_MODELS["vit"]()
    directory = saved(model, tmp_path / "model")
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    message = refusal_of(directory)
    assert "set allow_pickle" in message
    assert str(directory) in message
    images = normal(2, 3, 8, 8)
    scores = ViTScores(load_model(directory, allow_pickle=True).encoder)(images)
    assert torch.equal(scores, ViTScores(model)(images))


def test_pickled_weights_do_not_run_code_even_on_request(tmp_path: Path) -> None:
    directory = saved(FAMILY_MODELS["vit"](), tmp_path / "model")
    (directory / "model.safetensors").unlink()
    torch.save({"harm": Harm(tmp_path / "ran")}, directory / "pytorch_model.bin")
    refusal_of(directory, allow_pickle=True)
    assert not (tmp_path / "ran").exists()


class Harm:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of downloads; the library looked up the place of the real one when it was imported."""
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(cache), raising=False)  # of transformers 4
    return cache


@pytest.mark.parametrize("source", ["someone/some-vit", "some-vit"])
def test_a_model_that_was_never_downloaded(source: str, empty_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refusal_of(source, local_files_only=True)
    assert source in message
    assert "not among the files downloaded before" in message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("revision", [None, "v2"])
@pytest.mark.parametrize("name", ["vit", "clip_vision_model"])
def test_a_model_downloaded_before_needs_no_network(
    name: str,
    revision: str | None,
    empty_cache: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    repository, commit = empty_cache / "models--someone--some-model", "0" * 40
    saved(family_model(name), repository / "snapshots" / commit)
    processor = {"do_rescale": True, "image_mean": [0.5, 0.5, 0.5]}
    (repository / "snapshots" / commit / "preprocessor_config.json").write_text(json.dumps(processor))
    (repository / "refs").mkdir()
    (repository / "refs" / (revision or "main")).write_text(commit)
    capfd.readouterr()
    loaded = load_model("someone/some-model", local_files_only=True, revision=revision)
    assert capfd.readouterr() == ("", "")
    assert loaded.processor == processor
    images = normal(2, 3, 8, 8)
    assert torch.equal(ViTScores(loaded.encoder)(images), ViTScores(family_model(name))(images))
    assert "other-model" in refusal_of("someone/other-model", local_files_only=True)


@pytest.mark.parametrize("name", ["x" * 200, "a/b/c", "-x/y", "someone/..", "someone/a--b", "someone/a.git", ""])
def test_what_can_be_no_id_is_refused(name: str, empty_cache: Path, tmp_path: Path) -> None:
    if name:  # the empty name is the current directory, which is no saved model
        assert name in refusal_of(name, local_files_only=True)
    else:
        refusal_of(name, local_files_only=True)


@pytest.mark.parametrize("model_type", ["vit", "made_up"])
def test_code_that_comes_with_a_model_never_runs(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory, ran = saved(family_model("vit"), tmp_path / "model"), tmp_path / "ran"
    (directory / "code.py").write_text(
        f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
        "from transformers import ViTConfig as Config, ViTModel as Model\n"
    )
    config = json.loads((directory / "config.json").read_text())
    auto_map = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoImageProcessor": "code.Model"}
    config |= {"model_type": model_type, "auto_map": auto_map}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "preprocessor_config.json").write_text(json.dumps({"auto_map": auto_map}))
    if model_type == "vit":
        images = normal(2, 3, 8, 8)
        scores = ViTScores(load_model(directory).encoder)(images)
        assert torch.equal(scores, ViTScores(family_model("vit"))(images))
    else:
        assert "'made_up'" in refusal_of(directory)
    assert not ran.exists()


def test_another_kind_of_saved_model_is_refused_by_its_type(tmp_path: Path) -> None:
    config = hf.MaskFormerSwinConfig(
        image_size=8, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=2
    )
    with torch.random.fork_rng(devices=[]):
        directory = saved(hf.MaskFormerSwinModel(config), tmp_path / "model")
    message = refusal_of(directory)
    assert "is of type 'maskformer-swin', which attends within windows" in message
    assert str(directory) in message


@pytest.mark.parametrize("model_type", ["null", "[]", '{"a": 1}', '"bert"', '"sam"'])
def test_any_other_type_of_saved_model_is_refused(model_type: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": {model_type}}}')
    assert str(tmp_path) in refusal_of(tmp_path)
