"""The web page: the functions behind it, and the command that opens it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf
from PIL import Image
from scipy.io import wavfile

if find_spec("gradio") is None:  # it takes seconds to import, and these tests do not use it themselves
    pytest.skip("the page needs attentest[app]", allow_module_level=True)

from attentest import AttentionTest, bundled_model, read_image
from attentest.app.actions import Actions, Session
from attentest.app.form import CONTROLS, COUNTS, IMAGE, NUMBER, TOP_FRACTION, Form, questions
from attentest.app.offered import MOST_CLASSES, MOST_MAPS, OfferedModels, UploadedImage
from attentest.app.result_view import PREVIEW_SIDE, region_picture
from attentest.app.server import listening_socket
from attentest.attention import GradCAM, GradientRollout, Segmentation, TextRelevance
from attentest.definition import ModelDefinition, option
from attentest.errors import InputError, ModelError
from attentest.images.image_source import ImageSource
from attentest.noise import StationaryCovariance
from attentest.registry import ATTENTION_MAPS
from command_line import run_main
from toys import tiny_vit


@pytest.fixture(scope="module")
def actions(saved_tiny_model: Path) -> Actions:
    return Actions(OfferedModels([saved_tiny_model]))


@pytest.fixture
def session(tiny_images: np.ndarray) -> Session:
    return Session(image=UploadedImage(name="<b>&.npy", pixels=tiny_images[0]))


def cell(html: str, key: str) -> str:
    """Return a number of a result."""
    found = re.search(rf'<td id="{key}">([^<]*)</td>', html)
    assert found, html
    return found[1]


def html_of(actions: Actions, session: Session, form: Form, model: str = "tiny") -> str:
    """Test the image of a session and return what the page shows."""
    html = actions.test(session, session.ask(), model, form, False, lambda share: None)
    assert html is not None
    return html


class TestModels:
    def test_only_offered_names_are_models(self, actions: Actions, saved_tiny_model: Path) -> None:
        assert actions.models.names[:2] == ["tiny", "bundled 8 × 8"]
        for name in (str(saved_tiny_model), "../tiny", "", None, 1, "google/vit-base-patch16-224"):
            with pytest.raises(InputError, match="the model must be one of tiny, bundled"):
                actions.models.model(name)

    def test_directories_of_one_name_are_told_apart(self, saved_tiny_model: Path, tmp_path: Path) -> None:
        shutil.copytree(saved_tiny_model, tmp_path / "tiny")
        assert OfferedModels([saved_tiny_model, tmp_path / "tiny"]).names[:2] == ["tiny", "tiny (2)"]

    def test_a_broken_model_is_known_before_the_page(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"has no config\.json"):
            OfferedModels([tmp_path])


class TestActions:
    def test_the_result_is_that_of_the_library(
        self, actions: Actions, session: Session, saved_tiny_model: Path
    ) -> None:
        html = html_of(
            actions,
            session,
            Form.of(noise=NUMBER, sigma="2", threshold=0.5, region_unit="patches", alternative="greater"),
        )
        test = AttentionTest.from_pretrained(
            saved_tiny_model, noise=2.0, threshold=0.5, region_unit="patches", alternative="greater"
        )
        result = test(session.image.pixels)  # type: ignore[union-attr]
        assert cell(html, "selective-p") == result.pvalue_text()
        assert cell(html, "naive-p") == f"{result.naive_pvalue:.3g}"
        assert cell(html, "region") == f"{result.region.sum()} of {result.region.size} pixels"
        interval = result.confidence_interval()
        assert cell(html, "interval") == f"{interval.low:.3g} or more"
        assert result.verdict(0.05) in html.replace("&#39;", "'")
        assert "not valid: it ignores that the model chose the region" in html

    def test_a_mask_is_that_of_the_library(
        self, actions: Actions, session: Session, saved_tiny_model: Path, tmp_path: Path
    ) -> None:
        image = session.image.pixels  # type: ignore[union-attr]
        within = np.hypot(*(np.mgrid[:8, :8] - 3.6)) < 3.3
        Image.fromarray(np.stack([within * np.uint8(255)] * 3, axis=2)).save(tmp_path / "a*.png")
        form = Form.of(noise=NUMBER, sigma="1", mask=str(tmp_path / "a*.png"), mask_use="map")
        html = html_of(actions, session, form)
        result = AttentionTest.from_pretrained(saved_tiny_model, noise=1.0, mask=within, mask_use="map")(image)
        assert cell(html, "selective-p") == result.pvalue_text()
        assert result.verdict(0.05) in unescape(html)
        assert f"outline of the region; dashed: mask of {within.sum()} pixels" in html
        assert f"<strong>{result.region.sum()}</strong> of 64 pixels" in actions.preview(session, "tiny", form)
        for wrong, said in (
            (np.ones((8, 9)), "the mask is for images of"),
            (np.zeros((8, 8)), "mask wrong.npy is empty"),
            (np.ones((2, 8, 8, 8)), "of the image, got wrong.npy."),
        ):
            np.save(tmp_path / "wrong.npy", wrong)
            for shown in (html_of, lambda actions, session, form: actions.preview(session, "tiny", form)):
                html = shown(actions, session, Form.of(noise=NUMBER, sigma="1", mask=str(tmp_path / "wrong.npy")))
                assert said in html
                assert str(tmp_path) not in html
        (tmp_path / "text.png").write_text("no image")
        html = html_of(actions, session, Form.of(noise=NUMBER, sigma="1", mask=str(tmp_path / "text.png")))
        assert "text.png" in html
        assert str(tmp_path) not in html

    def test_the_rule_of_the_region_is_named(self, actions: Actions, session: Session) -> None:
        assert "threshold 0.6 of pixels" in html_of(actions, session, Form())
        top = Form.of(rule=TOP_FRACTION, top_fraction=0.2, region_unit="patches")
        assert "top fraction 0.2 of patches" in html_of(actions, session, top)

    def test_names_are_text(self, actions: Actions, session: Session) -> None:
        html = html_of(actions, session, Form())
        assert "&lt;b&gt;&amp;.npy" in html
        assert "<b>" not in html
        assert "&lt;b&gt;&amp;.npy" in actions.preview(session, "tiny", Form())

    @pytest.mark.parametrize(
        "form",
        [
            Form.of(threshold=0.3),
            Form.of(rule=TOP_FRACTION, top_fraction=0.2),
            Form.of(randomise=0.5),
            Form.of(region_unit="patches"),
        ],
    )
    def test_the_preview_is_the_region_of_the_test(self, actions: Actions, session: Session, form: Form) -> None:
        html = actions.preview(session, "tiny", form)
        assert session.image is not None
        result = form.attention_test(actions.models.model("tiny"), session.image, form.noise_model())(
            session.image.pixels, name=session.image.name
        )
        assert f"<strong>{result.region.sum()}</strong> of 64 pixels" in html

    def test_counts_are_divided_before_the_preview_and_the_test(self, actions: Actions) -> None:
        counts = UploadedImage(name="photons.npy", pixels=np.random.default_rng(0).poisson(5.0, size=(8, 8)))
        session, form = Session(image=counts), Form.of(noise=COUNTS)
        result = form.attention_test(actions.models.model("tiny"), counts, form.noise_model())(
            counts.pixels, name=counts.name
        )
        size = f"<strong>{result.region.sum()}</strong> of 64 pixels</span> of part of the counts."
        assert size in actions.preview(session, "tiny", form)
        html = html_of(actions, session, form)
        assert cell(html, "selective-p") == result.pvalue_text()
        assert "What the model saw: part of the counts" in html
        assert "If the noise were different" not in html

    def test_the_model_is_evaluated_once_while_tau_moves(
        self, actions: Actions, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        actions.preview(session, "tiny", Form())
        scores = actions.models.model("tiny").scores
        monkeypatch.setattr(scores, "_scores", None)  # an evaluation would fail
        shown = {actions.preview(session, "tiny", Form.of(threshold=tau)) for tau in (0.2, 0.4, 0.8)}
        assert len(shown) == 3

    def test_noise_fitted_to_controls(self, actions: Actions, session: Session, tmp_path: Path) -> None:
        controls = np.random.default_rng(5).normal(size=(12, 8, 8)) * 1.5
        paths = [str(tmp_path / f"{i}.npy") for i in range(len(controls))]
        for path, control in zip(paths, controls, strict=True):
            np.save(path, control)
        form = Form.of(noise=CONTROLS, controls=paths, estimator="stationary")
        html = html_of(actions, session, form)
        fitted = StationaryCovariance().fit(controls)
        scores = actions.models.model("tiny").scores
        assert session.image is not None
        assert cell(html, "selective-p") == AttentionTest(scores, noise=fitted)(session.image.pixels).pvalue_text()
        assert "estimated from 12 reference images" in html
        Path(paths[0]).unlink()
        assert session.noise(form) is session.noise(form)  # they are read once
        assert "there are no control images" in html_of(actions, session, replace(form, controls=None))

    def test_what_needs_a_note_has_one(self, actions: Actions, session: Session) -> None:
        html = html_of(actions, session, Form.of(noise=IMAGE, method="sample", randomise=0.5))
        assert "approximate" in html
        assert "the image plus noise of 0.5 times its own" in html
        captions = re.findall("<figcaption>(.*?)</figcaption>", html)
        assert captions[:2] == ["The image and the outline of the region", "What the model saw: image plus noise"]
        assert captions[2] == "The attention map, from 0 to 1"
        assert len(captions) == 4
        assert "different settings" not in html
        several = html_of(
            actions, Session(image=session.image), Form.of(noise=NUMBER, sigma="1", randomise=0.5, draws=3)
        )
        assert "outline of the pixels that most draws chose" in several
        assert "the dark share is the p of the draw with the median p" in several
        assert "tested with 2 different settings on this page" in html_of(actions, session, Form.of(threshold=0.4))
        session.image = UploadedImage(name="large", pixels=np.random.default_rng(0).normal(size=(12, 10)))
        assert "so it saw this one resized" in html_of(actions, session, Form())
        session.image = UploadedImage(
            name="photo", pixels=np.random.default_rng(0).integers(256, size=(9, 10, 3)).astype(np.uint8)
        )
        html = html_of(actions, session, Form.of(sigma=8.0))
        assert "ViTImageProcessor prepares it by default, made grey if it is in colour, resized to 8 x 8" in html
        session.image = UploadedImage(name="large", pixels=np.random.default_rng(0).normal(size=(12, 10)))
        assert "the model takes images of height 8" in html_of(actions, session, Form.of(resize=False))

    @pytest.mark.parametrize(
        ("form", "message"),
        [
            (Form.of(noise=NUMBER), "the standard deviation of the noise is not given"),
            (Form.of(noise=NUMBER, sigma="x"), "the standard deviation of the noise must be a number"),
            (Form.of(noise=NUMBER, sigma="-1"), "the standard deviation of the noise must be positive"),
            (Form.of(noise=CONTROLS, controls=["x"], estimator=None), "estimator must be"),
            (Form.of(method=None), "method must be"),
            (Form.of(filtered=None), "kernel must be"),
            (Form.of(region_unit=None), "region_unit must be"),
            (Form.of(alternative=None), "alternative must be"),
            (Form.of(contrast="neighbourhood", radius=None), "the width of the ring must be a number"),
            (Form.of(filtered="gaussian", blur=None), "the standard deviation of the blur must be a number"),
            (Form.of(noise=NUMBER, sigma="1", rho=2.0), "the correlation must"),
            (Form.of(threshold=2.0), "the threshold must lie strictly between 0 and 1"),
            (Form.of(alpha=None), "the significance level must be"),
            (Form.of(black="0"), "only one of black and white is given"),
            (Form.of(black="0", white="x"), "white must be a number, or empty, got &#x27;x&#x27;"),
            (Form.of(black="0", white="1", resize=False), "black and white are for models that rescale images"),
            (Form.of(contrast="reference"), "contrast must be background, neighbourhood or region-mean"),
            (Form.of(contrast="neighbourhood", radius=0.0), "radius must be"),
            (Form.of(filtered="../x"), "kernel must be"),
            (Form.of(noise="file"), "noise must be image, controls, number or poisson, got"),
        ],
    )
    def test_a_bad_field_is_one_sentence(self, actions: Actions, session: Session, form: Form, message: str) -> None:
        html = html_of(actions, session, form)
        assert 'role="alert"' in html
        assert message in html

    def test_a_bad_file_is_one_sentence_without_its_folder(self, actions: Actions, tmp_path: Path) -> None:
        path = tmp_path / "scan<i>.png"
        path.write_bytes(b"no image")
        session = Session()
        html = actions.take_upload(session, "tiny", str(path), "", False)
        assert "scan&lt;i&gt;.png is not an image that can be read" in html
        assert str(tmp_path) not in html
        assert "is not an image that can be read" in html_of(actions, session, Form())
        assert "Upload an image" in html_of(actions, Session(), Form())

    def test_an_image_is_called_as_its_user_calls_it(self, actions: Actions, tmp_path: Path) -> None:
        """The noise of randomised selection follows from the name, here as on the command line."""
        stored, session = tmp_path / "patient3.npy", Session()
        np.save(stored, np.eye(8))
        for own, known in (("patient{3}!.npy", "patient{3}!.npy"), ("../x/$a$.npy", "$a$.npy"), ("", "patient3.npy")):
            assert actions.take_upload(session, "tiny", str(stored), "", False, name=own) == ""
            assert session.image is not None
            assert session.image.name == known
        html = actions.take_upload(session, "tiny", str(stored), "7", False, name="a{1}.npy")
        assert "a{1}.npy" in html
        assert "patient3" not in html

    def test_a_frame_is_asked_for_by_its_field(self, actions: Actions, tmp_path: Path) -> None:
        pages = [Image.fromarray(np.full((8, 8), i, dtype=np.uint8)) for i in range(3)]
        pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
        session = Session()
        html = actions.take_upload(session, "tiny", str(tmp_path / "pages.tif"), "", False)
        assert "pages.tif has 3 frames and one is needed: choose it in the field Frame, from 0 to 2" in html
        assert actions.take_upload(session, "tiny", str(tmp_path / "pages.tif"), "2", False) == ""
        assert session.image is not None
        assert session.image.pixels.max() == 2
        assert session.image.name == ImageSource(path=tmp_path / "pages.tif", frame=2).identity == "pages.tif[frame 2]"
        assert "frame must be" in actions.take_upload(session, "tiny", str(tmp_path / "pages.tif"), "1.5", False)

    def test_a_newer_test_replaces_an_older_one(self, actions: Actions, session: Session) -> None:
        shares: list[float] = []

        def show(share: float) -> None:
            shares.append(share)
            session.ask()

        assert actions.test(session, session.ask(), "tiny", Form(), False, show) is None
        assert len(shares) == 1  # it ended when it next reported its progress
        assert actions.test(session, 1, "tiny", Form(), False, shares.append) is None  # one that had to wait
        assert len(shares) == 1

    def test_examples_fit_bundled_models(self, actions: Actions) -> None:
        session = Session()
        for label in actions.examples:
            assert "Region" in actions.preview(session, actions.take_example(session, label), Form.of(resize=False))

    def test_noise_that_nobody_gave_is_estimated_and_called_approximate(self, actions: Actions) -> None:
        rng = np.random.default_rng(3)
        smooth = 100 + 50 * np.sin(np.linspace(0, 3, 64))[:, None] * np.ones(64)
        photograph = np.clip(smooth + rng.normal(scale=6, size=(64, 64)), 0, 255).astype(np.uint8)
        session = Session(image=UploadedImage(name="photo.png", pixels=photograph))
        html = html_of(actions, session, Form())
        noise = re.search(r"a standard deviation of ([\d.]+); estimated from the tested image itself", html)
        assert noise
        assert float(noise[1]) == pytest.approx(6, abs=1)  # the median of half numbers: steps of 0.74, an error of 4%
        assert "significant at 0.05, approximate" in html
        assert "given, not estimated" not in html
        assert questions()["sigma"][1] is None


LABELS = {number: f"kind {number}" for number in range(30)} | {3: "tabby, tabby cat", 7: "<img src=x onerror=alert(1)>"}


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of thirty classes, one of whose labels is HTML."""
    folder = tmp_path_factory.mktemp("models") / "classes"
    model = tiny_vit()
    model.classifier = torch.nn.Linear(16, len(LABELS))
    torch.nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(0))
    model.config.id2label, model.config.label2id = LABELS, {label: number for number, label in LABELS.items()}
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def of_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of images and texts, with its tokeniser."""
    folder = tmp_path_factory.mktemp("models") / "texts"
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    text = sizes | {"vocab_size": 8, "max_position_embeddings": 8, "eos_token_id": 1, "bos_token_id": 0}
    vision = sizes | {"image_size": 8, "patch_size": 2, "num_channels": 1}
    hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).save_pretrained(folder)
    words = {word: number for number, word in enumerate(("<start>", "<end>", "a", "cat"))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<end>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def mapped(of_classes: Path, of_texts: Path) -> Actions:
    return Actions(OfferedModels([of_classes, of_texts]))


class TestMaps:
    """The map and its class or text, chosen on the page."""

    def test_a_model_offers_the_maps_that_it_can_give(self, mapped: Actions) -> None:
        maps = {model: [name for _, name in mapped.maps(model)] for model in ("classes", "texts")}
        assert maps["classes"] == [
            name for name, part in ATTENTION_MAPS.items() if part.transformers and name not in ("layer", "pooling")
        ]
        assert maps["texts"] == ["rollout", "last-layer", "text"]
        assert mapped.maps("another") == []
        for model, name in (("classes", "text"), ("texts", "grad-cam"), ("classes", "layer:0"), ("classes", None)):
            with pytest.raises(InputError, match="the map must be one of rollout, last-layer, "):
                Form.of(map_name=name).scores(mapped.models.model(model))

    def test_classes_are_listed_with_their_scores(self, mapped: Actions, session: Session, of_classes: Path) -> None:
        form = Form.of(map_name="grad-cam", target="3")
        listed = mapped.classes(session, "classes", form)
        test = AttentionTest.from_pretrained(of_classes, noise=1.0, attention=GradCAM(sign="signed"))
        target = test(session.image.pixels).target  # type: ignore[union-attr]
        assert target is not None
        called = f"{target['class']}: {target['label']} (score {target['score']:.3g})"
        assert listed[:2] == [(f"predicted: {called}", "predicted"), (called, str(target["class"]))]
        listed = mapped.classes(session, "classes", Form.of(map_name="grad-cam", other_class="nothing"))
        assert len(listed) == 1 + MOST_CLASSES
        unlisted = next(str(number) for number in LABELS if str(number) not in dict(listed).values())
        scores = [float(label.rpartition("score ")[2][:-1]) for label, _ in listed[1:]]
        assert scores == sorted(scores, reverse=True)
        assert mapped.classes(session, "classes", Form.of(map_name="grad-cam", target=unlisted))[-1][1] == unlisted
        usual = [("the predicted class", "predicted"), ("class 3", "3")]
        assert mapped.classes(session, "classes", Form()) == usual[:1]  # of no class
        assert mapped.classes(Session(), "classes", form) == usual
        assert mapped.classes(session, "texts", form) == usual

    @pytest.mark.parametrize(("target", "number"), [("predicted", None), ("7", 7), ("tabby", 3)])
    def test_the_result_is_that_of_the_library_and_names_map_and_class(
        self, mapped: Actions, session: Session, of_classes: Path, target: str, number: int | None
    ) -> None:
        field = {"target": target} if number is None else {"target": "5", "other_class": f" {target} "}
        form = Form.of(noise=NUMBER, sigma="1", map_name="gradient-rollout", **field)
        attention = GradientRollout() if number is None else GradientRollout(number)
        test = AttentionTest.from_pretrained(of_classes, noise=1.0, attention=attention)
        result = test(session.image.pixels)  # type: ignore[union-attr]
        assert result.target is not None
        shown = mapped.test(session, session.ask(), "classes", form, False, lambda share: None)
        assert shown is not None
        assert f"<strong>{result.region.sum()}</strong> of 64 pixels" in mapped.preview(session, "classes", form)
        assert cell(shown, "selective-p") == result.pvalue_text()
        assert result.verdict(0.05) in unescape(shown)
        assert f"The map is for class {result.target['class']} ({result.target['label']}, score" in unescape(shown)
        named = f"class {result.target['class']} ({result.target['label']})"
        assert f"The gradient rollout map for {named}, from 0 to 1" in unescape(shown)
        assert f"gradient rollout map for {named} (gradient-rollout), " in unescape(shown)
        assert "<img src=x" not in shown
        key = re.search(r'key=([^"]+)"', shown)
        assert key
        assert b"<img src=x" not in (mapped.report(key[1]) or b"<img src=x")

    def test_a_text(self, mapped: Actions, session: Session, of_texts: Path) -> None:
        form = Form.of(noise=NUMBER, sigma="1", map_name="text", text="a cat")
        shown = mapped.test(session, session.ask(), "texts", form, False, lambda share: None)
        assert shown is not None
        test = AttentionTest.from_pretrained(of_texts, noise=1.0, attention=TextRelevance("a cat"), resize="none")
        assert cell(shown, "selective-p") == test(session.image.pixels).pvalue_text()  # type: ignore[union-attr]
        assert "The map is for the text “a cat” (similarity" in shown
        assert "the text must be a text of at most" in mapped.preview(session, "texts", Form.of(map_name="text"))

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("30", "the class is class 30, but the model has 30 classes, numbered from 0 to 29"),
            ("kind 300", "the class 'kind 300' is not a label of the model: nearest are 'kind "),
            ("9" * 30, "the class must have at most 18 digits, got 30"),
        ],
    )
    def test_a_class_that_there_is_not_is_one_sentence(
        self, mapped: Actions, session: Session, target: str, message: str
    ) -> None:
        html = mapped.preview(session, "classes", Form.of(map_name="grad-cam", other_class=target))
        assert 'role="alert"' in html
        assert message in unescape(html)

    def test_the_model_is_evaluated_once_while_tau_moves(
        self, mapped: Actions, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        form = Form.of(map_name="gradient-rollout")
        mapped.preview(session, "classes", form)
        mapped.classes(session, "classes", form)
        monkeypatch.setattr(form.scores(mapped.models.model("classes")), "_forward", None)  # an evaluation would fail
        taus = (0.2, 0.4, 0.8)
        shown = {
            mapped.preview(session, "classes", Form.of(map_name="gradient-rollout", threshold=tau)) for tau in taus
        }
        assert len(shown) == 3

    def test_few_models_are_kept(self, mapped: Actions, session: Session) -> None:
        for number in range(MOST_MAPS + 2):
            mapped.preview(session, "classes", Form.of(map_name="gradient-rollout", target=str(number)))
        assert len(mapped.models._of_maps) == MOST_MAPS


def test_a_network_offers_its_maps_and_the_result_is_that_of_the_library(tmp_path: Path, session: Session) -> None:
    folder = tmp_path / "resnet"
    sizes = {"num_channels": 1, "embedding_size": 4, "hidden_sizes": [4, 6], "depths": [1, 1]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        labels = {0: "tiger", 1: "tabby", 2: "dog"}
        made = hf.ResNetForImageClassification(hf.ResNetConfig(**sizes, layer_type="basic", id2label=labels))
    made.save_pretrained(folder)
    with pytest.raises(ModelError, match="takes images of any size: say which with image_size"):
        OfferedModels([folder])
    actions = Actions(OfferedModels([folder], image_size=(8, 8)))
    maps = [name for _, name in actions.maps("resnet")]
    assert maps[0] == "grad-cam"
    assert not {"rollout", "segmentation", "residual"} & {*maps}
    form = Form.of(noise=NUMBER, sigma="1", map_name="grad-cam", target="2")
    test = AttentionTest.from_pretrained(folder, noise=1.0, attention=GradCAM(target=2), image_size=8)
    image, model = session.image, actions.models.model("resnet")
    assert image is not None
    result = form.attention_test(model, image, form.noise_model())(image.sample)
    assert result.pvalue == test(image.pixels).pvalue
    assert f"<strong>{result.region.sum()}</strong> of 64 pixels" in actions.preview(session, "resnet", form)
    assert {value: label for label, value in actions.classes(session, "resnet", form)}["2"].startswith("2: dog (")
    assert "the map must be one of grad-cam, hires-cam" in actions.preview(session, "resnet", Form())  # of rollout


def test_a_network_of_an_onnx_file_that_segments(tmp_path: Path, session: Session) -> None:
    onnx = pytest.importorskip("onnx")
    kind, kernel = onnx.TensorProto.DOUBLE, np.random.default_rng(0).normal(size=(3, 1, 3, 3))
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "network",
        [onnx.helper.make_tensor_value_info("x", kind, ["n", 1, 8, 8])],
        [onnx.helper.make_tensor_value_info("y", kind, ["n", 3, 8, 8])],
        [onnx.numpy_helper.from_array(kernel, "w")],
    )
    path = tmp_path / "pixels.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    actions = Actions(OfferedModels([path]))
    assert [name for _, name in actions.maps("pixels.onnx")] == ["segmentation"]
    assert actions.classes(session, "pixels.onnx", Form.of(map_name="segmentation"))[0][1] == "predicted"
    assert session.image is not None
    for target, number in (("predicted", 0), ("2", 2)):
        form = Form.of(map_name="segmentation", target=target, level=0.0, rule="level")
        options = {"noise": 1.0, "attention": Segmentation(number), "level": 0.0}
        for test in (AttentionTest.from_pretrained(path, **options), AttentionTest.from_onnx(path, **options)):
            region = test.attention_region(session.image.pixels)[1]
            assert f"<strong>{region.sum()}</strong> of 64 pixels" in actions.preview(session, "pixels.onnx", form)


SIGNALS, VOLUMES = "bundled, signals of 256 samples", "bundled, volumes of 16 × 16 × 16"


class TestOtherAxes:
    """Signals and volumes, whose models are chosen on the page."""

    @pytest.fixture
    def recording(self, tmp_path: Path) -> Path:
        values = np.random.default_rng(0).normal(size=(256, 2))
        values[100:185] += 2.0
        wavfile.write(tmp_path / "ecg.wav", 128, values)
        return tmp_path / "ecg.wav"

    @pytest.fixture
    def volume(self, tmp_path: Path) -> Path:
        nibabel = pytest.importorskip("nibabel")
        values = np.random.default_rng(0).normal(size=(16, 16, 16))
        values[3:9, 3:9, 3:9] += 1.5
        image = nibabel.Nifti1Image(values.T, np.diag([0.8, 0.8, 2.0, 1.0]))
        image.header.set_xyzt_units("mm")
        nibabel.save(image, tmp_path / "head.nii.gz")
        return tmp_path / "head.nii.gz"

    def test_a_recording(self, actions: Actions, recording: Path) -> None:
        session, form = Session(), Form.of(noise=NUMBER, sigma="1", region_unit="patches", randomise=0.5)
        html = actions.take_upload(session, "tiny", str(recording), "", False)
        assert "ecg.wav is taken for WAV, which holds signals, and an image is needed: give one, or a model of" in html
        assert str(recording.parent) not in html
        assert "Upload" not in html_of(actions, session, form)
        assert actions.take_model(session, SIGNALS) == ""
        assert "2 channels: choose one in the field Channels" in actions.preview(session, SIGNALS, form)
        assert actions.take_upload(session, SIGNALS, str(recording), "", False, " 1, ") == ""
        preview = actions.preview(session, SIGNALS, form)
        result = AttentionTest.from_pretrained(bundled_model(axes=1), noise=1.0, region_unit="patches", randomise=0.5)(
            read_image(recording, dimension=1, channels=["1"]), name="ecg.wav"
        )
        assert f"<strong>{result.region.sum()}</strong> of 256 samples</span> of the signal plus noise." in preview
        html = actions.test(session, session.ask(), SIGNALS, form, False, lambda share: None)
        assert html is not None
        assert cell(html, "selective-p") == result.pvalue_text()
        assert cell(html, "region") == f"{result.region.sum()} of 256 samples"
        assert re.search(r"of what the model sees; [^<]* s", html)
        assert "no channel &#x27;V1&#x27;" in actions.take_upload(session, SIGNALS, str(recording), "", False, "V1")
        assert "leave the field Frame empty" in actions.take_upload(session, SIGNALS, str(recording), "1", False)

    def test_a_volume(self, actions: Actions, volume: Path) -> None:
        session, form = Session(), Form.of(noise=NUMBER, sigma="1", region_unit="patches", randomise=0.5)
        assert "has 16 frames and one is needed" in actions.take_upload(session, "tiny", str(volume), "", False)
        assert "holds volumes" not in actions.take_model(session, VOLUMES)
        preview = actions.preview(session, VOLUMES, form)
        assert "head.nii.gz, 16 × 16 × 16." in preview
        assert re.search(
            r"of 4,096 voxels</span> of the volume plus noise\. Shown: slice \d+, column \d+, row", preview
        )
        html = actions.test(session, session.ask(), VOLUMES, form, False, lambda share: None)
        assert html is not None
        result = AttentionTest.from_pretrained(bundled_model(axes=3), noise=1.0, region_unit="patches", randomise=0.5)(
            volume
        )
        assert cell(html, "selective-p") == result.pvalue_text()
        assert "mm3" in html
        assert result.verdict() in unescape(html)
        report = re.search(r'key=([^"]+)"', html)
        assert report
        assert b"head.nii.gz" in (actions.report(report[1]) or b"")
        assert "or a model of images or volumes" in actions.take_model(session, SIGNALS)
        assert actions.preview(session, SIGNALS, form) == ""
        assert "and a signal is needed" in html_of(actions, session, form)

    def test_another_length_is_resized_or_refused(self, actions: Actions, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=300))
        session = Session()
        assert actions.take_upload(session, SIGNALS, str(tmp_path / "a.npy"), "", False) == ""
        assert "of 300 samples" in actions.preview(session, SIGNALS, Form.of(noise=NUMBER, sigma="1"))
        html = html_of(actions, session, Form.of(noise=NUMBER, sigma="1"), SIGNALS)
        assert "The model takes signals of 256 samples and says nothing about others" in html
        refused = actions.preview(session, SIGNALS, Form.of(noise=NUMBER, sigma="1", resize=False))
        assert "the model takes signals of length 256" in refused
        np.save(tmp_path / "b.npy", np.random.default_rng(0).normal(size=(18, 16, 16)))
        assert actions.take_upload(session, VOLUMES, str(tmp_path / "b.npy"), "", False) == ""
        blurred = Form.of(noise=NUMBER, sigma="1", filtered="gaussian", blur=1.0, contrast="region-mean")
        html = html_of(actions, session, blurred, VOLUMES)
        assert "The model takes volumes of 16 × 16 × 16 voxels" in html
        session = Session()
        actions.take_upload(session, SIGNALS, str(tmp_path / "a.npy"), "", False)
        assert "one volume (D, H, W) or (C, D, H, W), got an array" in actions.take_model(session, VOLUMES)

    def test_a_fault_is_said(
        self, actions: Actions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        session = Session()
        actions.take_example(session, "A recording")
        monkeypatch.setattr("attentest.app.actions.result_html", lambda *values, **named: 1 / 0)
        html = html_of(actions, session, Form.of(noise=NUMBER, sigma="1"), SIGNALS)
        assert "attentest failed (ZeroDivisionError)" in html
        assert "Traceback" not in html
        assert "ZeroDivisionError: division by zero" in capsys.readouterr().err

    def test_noise_of_control_recordings(self, actions: Actions, tmp_path: Path) -> None:
        controls = np.random.default_rng(5).normal(size=(6, 256))
        paths = [str(tmp_path / f"{i}.npy") for i in range(len(controls))]
        for path, control in zip(paths, controls, strict=True):
            np.save(path, control)
        session = Session()
        actions.take_upload(session, SIGNALS, paths[0], "", False)
        form = Form.of(noise=CONTROLS, controls=paths, estimator="ar1")
        html = actions.test(session, session.ask(), SIGNALS, form, False, lambda share: None)
        assert html is not None
        assert "estimated from 6 reference signals" in html
        assert session.noise(form, 1) is session.noise(form, 1)
        with pytest.raises(InputError, match="must hold one image"):  # to a model of images they are none
            session.noise(form, 2)

    def test_examples_are_of_one_kind(self, actions: Actions) -> None:
        session = Session()
        assert actions.take_example(session, "A volume") == VOLUMES
        form = Form.of(noise=NUMBER, sigma="1")
        assert "of 4,096 voxels" in actions.preview(session, VOLUMES, form)
        wrong = actions.preview(session, SIGNALS, form)
        assert "takes signals, and this is a volume: choose a model of volumes." in wrong
        assert 'role="alert"' in wrong
        assert actions.take_model(session, SIGNALS) == ""  # there is no file to read

    def test_a_large_file_is_refused_before_memory_is_taken(self, actions: Actions, tmp_path: Path) -> None:
        with (tmp_path / "a.npy").open("wb") as file:
            header = {"descr": "<f8", "fortran_order": False, "shape": (1000, 1000, 1000)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(8_000_000_200)  # sparse
        html = actions.take_upload(Session(), VOLUMES, str(tmp_path / "a.npy"), "", False)
        assert "a.npy holds 1000000000 values, more than the 64000000 allowed" in html


@dataclass(frozen=True, kw_only=True)
class Extended(ModelDefinition):
    """A definition with one more option, which the page offers."""

    dummy: int = option("A number that does nothing.", default=3, label="A new number", panel="New")


def test_an_option_with_a_label_reaches_the_test(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionTest, "definition_class", Extended, raising=False)
    image = UploadedImage(name="", pixels=np.zeros((8, 8)))
    form = Form.of(dummy=4, threshold=0.5)
    test = form.attention_test(actions.models.model("tiny"), image, form.noise_model())
    assert (test.settings["dummy"], test.settings["threshold"]) == (4, 0.5)


class TestPreview:
    def test_outline_surrounds_the_region(self) -> None:
        region = np.zeros((8, 8), dtype=bool)
        region[2:5, 3:6] = True
        picture = region_picture(np.zeros((8, 8)), region)
        assert picture.shape == (PREVIEW_SIDE, PREVIEW_SIDE, 3)
        coloured = np.argwhere(picture.any(axis=2))
        side = PREVIEW_SIDE // 8
        assert coloured.min(axis=0).tolist() == [2 * side, 3 * side]
        assert coloured.max(axis=0).tolist() == [5 * side - 1, 6 * side - 1]
        assert not picture[3 * side, 4 * side].any()

    def test_large_and_colour_images_fit(self) -> None:
        picture = region_picture(np.zeros((30, 1000, 3), dtype=np.uint8), np.ones((30, 1000), dtype=bool))
        assert picture.shape == (14, PREVIEW_SIDE, 3)


class TestCommand:
    def test_a_port_in_use_is_one_sentence(self, capsys: pytest.CaptureFixture[str]) -> None:
        with listening_socket(0) as bound:
            port = bound.getsockname()[1]
            done = run_main(capsys, "app", "--port", str(port), "--no-open")
        assert done.code == 2
        assert done.err == (
            f"attentest: port {port} is in use: end what uses it, or take another, such as {port + 1}.\n"
        )

    def test_without_gradio_it_says_how_to_install_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        done = run_main(capsys, "app")
        assert (done.code, done.err) == (2, "attentest: the page needs Gradio: pip install 'attentest[app]'.\n")

    def test_a_model_is_a_directory(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_main(capsys, "app", "--model", "google/vit-base-patch16-224")
        assert done.code == 2
        assert "the page downloads nothing" in done.err

    def test_help_has_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_main(capsys, "app", "--help")
        assert done.code == 0
        assert "attentest app --model my-vit" in done.out

    def test_the_browser_gets_the_address_of_one_visit(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def serve(bound: object, *, ready: Callable[[str, str], None], **options: object) -> None:
            ready("printed", "of one visit")

        opened: list[str] = []
        monkeypatch.setattr("attentest.app.server.serve", serve)
        monkeypatch.setattr("webbrowser.open", opened.append)
        assert run_main(capsys, "app", "--port", "0").out == "printed\n"
        assert run_main(capsys, "app", "--port", "0", "--no-open").out == "printed\n"
        assert opened == ["of one visit"]
