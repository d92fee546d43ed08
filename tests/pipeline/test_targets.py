"""Tests of maps for a class: what they are conditional on, and that they go with everything else of a test."""

from __future__ import annotations

import json
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from numpy.typing import NDArray

from attentest import AttentionTest, plot_margins
from attentest.attention import TorchTransformer
from attentest.attention.class_scores import ClassScores
from attentest.attention.relevance import (
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    IntegratedGradients,
    Relevance,
)
from attentest.attention.relevance_scores import RelevanceScores
from attentest.errors import AttentestError, InputError, ModelError
from attentest.runs.engine import FailedImage
from attentest.search import Adaptive, Certification, Fixed, GridSearch, SpectralSearch
from families import tiny

SIZES: dict[str, Any] = {"num_channels": 1, "num_hidden_layers": 2, "seed": 4}
LABELS = {0: "background", 1: "tabby, tabby cat", 2: "lynx", 3: "lynx"}
IMAGES = np.random.default_rng(7).normal(size=(4, 8, 8))
TAU = 0.6

MAPS: dict[str, Relevance] = {
    "gradient rollout": GradientRollout(),
    "Grad-CAM": GradCAM(),
    "Grad-CAM, signed": GradCAM(0, sign="signed"),
    "HiResCAM, absolute": HiResCAM(sign="absolute"),
    "input gradient": InputGradient(),
    "times input, of pixels, positive": InputGradient(times_input=True, per="pixel", sign="positive"),
    "integrated gradients": IntegratedGradients(steps=3),
}


@cache
def model() -> Any:
    return tiny(hf.ViTForImageClassification, hf.ViTConfig, id2label=LABELS, label2id={}, **SIZES)


def a_test(attention: Any, **options: Any) -> AttentionTest:
    defaults = {"noise": 1.0, "confidence_level": None, "search": SpectralSearch(tol=1e-3)}
    return AttentionTest(model(), attention=attention, **{**defaults, **options})


@cache
def logits() -> Any:
    reference = tiny(hf.ViTForImageClassification, hf.ViTConfig, id2label=LABELS, label2id={}, **SIZES).double()
    reference.set_attn_implementation("sdpa")
    return lambda images: reference(images).logits.detach()


def upsampled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maps (m, g, g) on pixels (m, 8, 8), bilinearly, by torch."""
    grid = torch.from_numpy(values)[:, None]
    return torch.nn.functional.interpolate(grid, size=(8, 8), mode="bilinear", align_corners=False)[:, 0].numpy()


def selected(values: NDArray[np.float64], sign: str) -> tuple[Any, ...]:
    """What is selected of a map (8, 8): the region, and the signs on which it depends."""
    if sign == "absolute":
        region = abs(values) > TAU * abs(values).max()
        greatest = values.ravel()[abs(values).argmax()]
        return region.tobytes(), np.sign(values[region]).tobytes(), np.sign(greatest)
    clipped = np.maximum(values, 0) if sign == "positive" else values
    region = clipped - clipped.min() > TAU * (clipped.max() - clipped.min())
    return region.tobytes(), sign == "positive" and bool((values < 0).any())


@pytest.mark.parametrize("name", MAPS)
def test_the_set_is_where_class_region_and_signs_are_the_observed_ones(name: str) -> None:
    """The line, the class and the region are computed here, point by point; images give the same together as alone."""
    relevance, points, classes, changes = MAPS[name], 200, set(), 0
    test, scores = a_test(relevance), RelevanceScores(model(), attention=relevance)
    alone = [found for image in IMAGES[:2] for found in test.map([image], on_error="row")]
    together = test.map(IMAGES, on_error="row")
    for image, result, other in zip(IMAGES, [*alone, *together[2:]], together, strict=True):
        assert type(result) is type(other)
        if isinstance(result, FailedImage) or isinstance(other, FailedImage):
            assert "no value of the map is positive" in result.reason
            continue
        region = result.region
        eta = np.where(region, 1 / region.sum(), -1 / (~region).sum())
        direction = eta / np.linalg.norm(eta)
        observed = float((direction * image).sum())
        assert abs(result.statistic - observed) < 1e-10
        z = np.linspace(-6, 6, points) + observed
        images = torch.from_numpy(image + (z - observed)[:, None, None] * direction)[:, None]
        predicted = logits()(images).argmax(dim=1)
        chosen = int(logits()(torch.from_numpy(image)[None, None]).argmax())
        target = torch.full((points,), chosen)
        maps = scores.given(images, target)[:, : int(np.prod(scores.grid_shape))].reshape(points, *scores.grid_shape)
        own = scores(torch.from_numpy(image)[None, None]).numpy()
        told = selected(upsampled(own)[0], relevance.sign)
        assert told[0] == region.tobytes()
        same = [selected(values, relevance.sign) == told for values in upsampled(maps.numpy())]
        expected = np.array(same) & (predicted == chosen).numpy()
        known = result.truncation_set
        certain, possible = (
            ((z[:, None] >= ends[:, 0]) & (z[:, None] <= ends[:, 1])).any(axis=1)
            for ends in (known.certain, known.possible)
        )
        assert not (certain & ~expected).any()
        assert not (expected & ~possible).any()
        classes.add(chosen)
        changes += int((predicted != chosen).any())
        record = result.settings["target"]
        assert record["class"] == chosen
        assert record["label"] == LABELS[chosen]
        assert record["predicted"] is True
        assert abs(record["score"] - float(logits()(torch.from_numpy(image)[None, None])[0, chosen])) < 1e-10
        assert json.loads(json.dumps(record)) == record
        low, high = result.pvalue_bounds
        assert low - 1e-9 <= other.pvalue <= high + 1e-9
        assert other.settings["target"]["class"] == chosen
        assert abs(other.settings["target"]["score"] - record["score"]) < 1e-10
    assert len(classes) > 1  # the images are of several classes,
    assert changes > 1  # and along their lines the class changes


def test_a_class_is_a_number_or_a_label() -> None:
    image = IMAGES[0]
    by_number = a_test(GradientRollout(1))(image)
    targets: tuple[Any, ...] = ("tabby, tabby cat", "tabby", "Tabby Cat", "1", np.int64(1))
    for target in targets:
        result = a_test(GradientRollout(target), search=SpectralSearch(tol=0.5))(image)
        assert result.settings["target"] == by_number.settings["target"]
        assert np.array_equal(result.region, by_number.region)
    assert by_number.settings["target"]["label"] == "tabby, tabby cat"
    assert by_number.settings["target"]["predicted"] is False
    # A condition more is a smaller set, where the class that is asked for is the predicted one.
    predicted = a_test("gradient-rollout")(image)
    fixed = a_test(GradientRollout(predicted.settings["target"]["class"]))(image)
    assert np.array_equal(predicted.region, fixed.region)
    width = [np.diff(result.truncation_set.intervals, axis=1).sum() for result in (predicted, fixed)]
    assert width[0] <= width[1] + 1e-6


@pytest.mark.parametrize("attention", [GradientRollout(), GradCAM(sign="absolute"), HiResCAM(target=1)])
def test_they_go_with_everything_else_of_a_test(attention: Relevance) -> None:
    image = IMAGES[1]
    result = a_test(attention)(image)
    decided = a_test(attention)(image, decide_at=0.05)
    assert (decided.pvalue_bounds[1] <= 0.05) == (result.pvalue <= 0.05)
    assert decided.evaluations <= result.evaluations
    certified = a_test(attention)(image, certification=Certification(draws=5))
    assert certified.certificate is not None
    assert certified.certificate.statistics.shape == (5,)
    for component in a_test(attention).components(image):
        assert 0 <= component.pvalue <= 1
        assert component.settings["target"] == result.settings["target"]
    randomised = a_test(attention, randomise=0.5)(image)
    drawn = a_test(attention, randomise=0.5, draws=3)(image)
    for other in (randomised, drawn, a_test(attention, region_unit="patches")(image)):
        assert 0 < other.pvalue <= 1
        assert other.status == "converged"
        assert other.settings["target"]["predicted"] is (attention.target == "predicted")
    low, high = a_test(attention, confidence_level=0.9)(image).confidence_interval()
    assert low < high


@pytest.mark.parametrize("name", ["gradient rollout", "Grad-CAM, signed", "input gradient"])
def test_searches_and_precisions_agree(name: str) -> None:
    image = IMAGES[1]
    exact, mixed = (
        a_test(MAPS[name], search=SpectralSearch(tol=1e-5, precision=precision))(image)
        for precision in ("float64", "mixed")
    )
    for one, other in ((exact, mixed), (mixed, exact)):
        low, high = one.pvalue_bounds
        assert low - 1e-5 <= other.pvalue <= high + 1e-5
    grid = a_test(MAPS[name], search=GridSearch(step=Fixed(step=2e-2), extent=5.0, boundary_tolerance=1e-6))(image)
    assert abs(grid.pvalue - exact.pvalue) < 0.01


def test_the_adaptive_step_follows_maps_through_plain_layers() -> None:
    image = IMAGES[1]
    search = GridSearch(step=Adaptive(eps_min=0.2, eps_max=0.5), extent=4.0, boundary_tolerance=1e-6)
    for attention in (GradientRollout(), GradCAM(), InputGradient(1)):
        found = a_test(attention, search=search)(image)
        assert abs(found.pvalue - a_test(attention)(image).pvalue) < 0.01
    swish = tiny(
        hf.Dinov2ForImageClassification, hf.Dinov2Config, num_labels=2, use_swiglu_ffn=True, **SIZES
    )  # whose layers are not plain
    test = AttentionTest(swish, noise=1.0, confidence_level=None, attention=GradCAM(target=1, sign="signed"))
    assert 0 < test(image).pvalue <= 1
    test = AttentionTest(
        swish, noise=1.0, confidence_level=None, attention=GradCAM(target=1, sign="signed"), search=search
    )
    with pytest.raises(ModelError, match="has no derivative of its map, which the adaptive search needs"):
        test(image)


def test_the_figure_of_margins_has_the_other_conditions() -> None:
    pytest.importorskip("matplotlib")
    for attention in (GradientRollout(), GradCAM(sign="absolute"), HiResCAM(sign="positive", target=2)):
        axes = plot_margins(a_test(attention), IMAGES[2], reach=6.0, points=101)
        assert axes.get_legend() is not None


def test_a_model_of_one_class_has_only_that_to_predict() -> None:
    single = tiny(hf.ViTForImageClassification, hf.ViTConfig, num_labels=1, **SIZES)
    options: dict[str, Any] = {"noise": 1.0, "confidence_level": None}
    for image in IMAGES[:2]:
        predicted = AttentionTest(single, attention="gradient-rollout", **options)(image)
        fixed = AttentionTest(single, attention=GradientRollout(0), **options)(image)
        low, high = fixed.pvalue_bounds
        assert low - 1e-9 <= predicted.pvalue <= high + 1e-9
        assert predicted.settings["target"]["class"] == 0


WITHOUT_ATTENTION = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))

WRONG: list[tuple[Any, str]] = [
    (lambda: a_test(GradCAM(target=4)), "target is class 4, but the model has 4 classes, numbered from 0 to 3"),
    (lambda: a_test(GradCAM(target=-1)), "target is class -1, but the model has 4 classes"),
    (lambda: a_test(GradCAM(target="-2")), "target is class -2, but the model has 4 classes"),
    (lambda: a_test(GradCAM(target="tabbi")), "'tabbi' is not a label of the model: .*; or give a class number"),
    (lambda: a_test(GradCAM(target="lynx")), "'lynx' is the label of classes 2, 3: give the number of one of them"),
    (lambda: GradCAM(target=True), "target must be the number of a class, its label or 'predicted', got True"),
    (lambda: GradientRollout(1.0), "target must be the number of a class, its label or 'predicted', got 1.0"),
    (lambda: InputGradient(None), "target must be the number of a class, its label or 'predicted', got None"),
    (lambda: InputGradient(""), "target must be the number of a class"),
    (lambda: GradCAM(sign="both"), "sign must be signed, positive or absolute, got 'both'"),
    (lambda: InputGradient(per="voxel"), "per must be patch or pixel, got 'voxel'"),
    (lambda: IntegratedGradients(steps=0), "steps must be .* got 0"),
    (lambda: IntegratedGradients(steps=2.5), "steps must be .* got 2.5"),
    (lambda: IntegratedGradients(float("nan")), "baseline must be .* got nan"),
    (lambda: IntegratedGradients("black"), "baseline must be .* got 'black'"),
    (lambda: a_test(GradCAM(2)), "layer must be from -2 to 1 for this model, got 2"),
    (lambda: a_test(HiResCAM(-3)), "layer must be from -2 to 1 for this model, got -3"),
    (lambda: a_test(GradCAM("last")), "layer must be from -2 to 1 for this model, got 'last'"),
    (lambda: a_test("grad-kam"), "attention must be .*'grad-kam'"),
    (lambda: a_test(GradCAM), "attention must be .* or a map such as GradCAM"),
    (
        lambda: AttentionTest(tiny(hf.ViTModel, hf.ViTConfig, **SIZES), noise=1.0, attention="grad-cam"),
        "of type 'vit' has no class scores, which grad-cam needs: give a model with a classification head, or use",
    ),
    (
        lambda: AttentionTest(tiny(hf.Dinov2Model, hf.Dinov2Config, **SIZES), noise=1.0, attention="gradient-rollout"),
        "of type 'dinov2' has no class scores, which gradient-rollout needs",
    ),
    (
        lambda: AttentionTest(WITHOUT_ATTENTION, noise=1.0, attention="grad-cam"),
        "the model is of type 'Sequential', which attentest does not know: give one of these",
    ),
    (
        lambda: AttentionTest(
            TorchTransformer(WITHOUT_ATTENTION, image_shape=(1, 8, 8), patch_size=2), noise=1.0, attention="grad-cam"
        ),
        "has no layer of torch.nn.MultiheadAttention",
    ),
    (
        lambda: AttentionTest(lambda images: images[:, 0], image_shape=(1, 8, 8), noise=1.0, attention="grad-cam"),
        "attention is for models",
    ),
    (lambda: a_test(InputGradient(), top_fraction=0.2)(IMAGES[0]), "top_fraction does not go with a map of absolute"),
]


@pytest.mark.parametrize(("attempt", "sentence"), WRONG, ids=[sentence[:40] for _, sentence in WRONG])
def test_a_mistake_is_answered_in_one_sentence(attempt: Any, sentence: str) -> None:
    with pytest.raises(AttentestError, match=sentence) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    assert message.count(". ") == 0
    assert message.endswith(".")


def test_a_map_without_a_region_is_said() -> None:
    from attentest.attention import TorchScores

    class Signed(TorchScores):
        sign = "positive"

    negative = Signed(lambda images: -1 - images[:, 0] ** 2, (1, 8, 8))
    with pytest.raises(InputError, match="no value of the map is positive, so nothing in the image speaks for the cl"):
        AttentionTest(negative, noise=1.0)(IMAGES[0])
    negative.sign = "absolute"
    with pytest.raises(InputError, match="every value of the map exceeds the threshold, so nothing is left to compare"):
        AttentionTest(negative, noise=1.0, threshold=0.01)(IMAGES[0])
    negative.sign = "both"
    with pytest.raises(InputError, match="the score function's sign must be signed, positive or absolute, got 'both'"):
        AttentionTest(negative, noise=1.0)


def test_an_image_that_fails_is_a_row_among_the_results() -> None:
    images = np.stack([IMAGES[0], np.full((8, 8), 1e200), IMAGES[1]])
    results = a_test(GradCAM(sign="signed")).map(images, on_error="row")
    assert [isinstance(result, FailedImage) for result in results] == [False, True, False]


def test_a_table_has_the_map_and_the_class() -> None:
    from attentest.presentation.rows import columns_of, row_of

    result = a_test(InputGradient(1))(IMAGES[0])
    row = row_of("scan", result.record())
    assert (row["map"], row["class"], row["class_label"]) == ("input gradient", 1, "tabby, tabby cat")
    assert row["class_score"] == pytest.approx(float(logits()(torch.from_numpy(IMAGES[:1, None]))[0, 1]))
    assert "class" in columns_of([row])
    assert "class" not in columns_of([row_of("scan", a_test("rollout")(IMAGES[0]).record())])


def test_tables_reports_and_sheets_name_the_map_and_the_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from attentest.cli.batch import json_lines, print_table
    from attentest.presentation.rows import row_of

    for target, said in (("tabby", "class 1 (tabby, tabby cat)"), ("predicted", "the predicted class")):
        results = a_test(GradCAM(target=target)).map(IMAGES[:2])
        records = [result.record() for result in results]
        print_table([[row_of("scan", record)] for record in records], 0.05, None)
        printed = " ".join(capsys.readouterr().out.split())
        assert f"regions are those of the Grad-CAM map for {said}" in printed
        results.report(tmp_path / "report.html")
        page = unescape((tmp_path / "report.html").read_text())
        assert f"Regions are those of the Grad-CAM map for {said}." in page
        classes = [(record.target or {})["class"] for record in records]
        assert all(f"<figcaption>Grad-CAM map for class {n} ({LABELS[n]})</figcaption>" in page for n in classes)
        labels = {axes.get_xlabel()[: len("class 1, ")] for axes in results.plot()}
        for number in classes if target == "predicted" else ():
            assert f" {number} ({LABELS[number]}) " in printed
            assert f'<td class="class">{number} ({LABELS[number]})</td>' in page
            assert f"class {number}, " in labels
        (line,) = json_lines({"image": "scan", "results": [results[0].to_dict()]}, 0.05)
        assert line["verdict"] == results[0].verdict()
        assert f"The map is for class {classes[0]} ({LABELS[classes[0]]}, score" in line["verdict"]
    (failed,) = json_lines({"image": "scan", "error": "There is none."}, 0.05)
    assert failed["verdict"] is failed["reject"] is None


def test_a_label_that_is_a_number_is_asked_for_as_a_label() -> None:
    scores = ClassScores(module=torch.nn.Identity(), forward=lambda *_: torch.zeros(1), labels=("8", "7", "0", "lynx"))
    asked = {"label:7": 1, "label:0": 2, "label:lynx": 3, "lynx": 3, "0": 0, 2: 2, "predicted": None}
    assert {target: scores.target(target, 4) for target in asked} == asked
    with pytest.raises(InputError, match=r"is class 8, but the model has 4 .* 0 to 3; its label '8' is asked for by "):
        scores.target("8", 4)
    with pytest.raises(InputError, match="'predicted' is not a label of the model"):
        scores.target("label:predicted", 4)
