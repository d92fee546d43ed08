"""Maps of networks that are no transformers, and tests with them: exactly, where they are linear in pieces."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from attentest import AttentionTest, bundled_model
from attentest.attention import (
    CAM,
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    NetworkScores,
    Residual,
    Segmentation,
)
from attentest.errors import AttentestError, InputError, SearchError
from attentest.pipeline.hypotheses import parts_of
from attentest.search import Certification, PiecewiseSearch, SpectralSearch

SHAPE = (1, 10, 10)


def cnn(seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = (nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), activation(), nn.MaxPool2d(2))
        last = (nn.Conv2d(4, 6, 3, padding=1), activation(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
        return nn.Sequential(*first, *last).eval()


def segmenter(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 2, 1)
        )


def autoencoder(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 1, 3, padding=1))


def images(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(count, *SHAPE[1:]))


def dense_pvalue(test: AttentionTest, image: np.ndarray[Any, Any], result: Any) -> float:
    """p from membership at points of a grid and at the middles of what the search has found, bisected at changes."""
    pipeline = test.pipeline
    observation = pipeline.observe([pipeline.inputs.one(image)])
    problem, _ = pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None)
    found = np.clip(result.truncation_set.intervals.ravel(), -9, 9)
    z = np.unique(np.concatenate([np.arange(-9, 9, 0.02), (found[1:] + found[:-1]) / 2, problem.z_obs]))
    inside = problem.inside_at(np.zeros(len(z), dtype=np.intp), z)
    change = np.flatnonzero(inside[1:] != inside[:-1])
    low, high, first = z[change], z[change + 1], inside[change]
    for _ in range(45):
        middle = (low + high) / 2
        same = problem.inside_at(np.zeros(len(middle), dtype=np.intp), middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = np.concatenate([[-np.inf] if inside[0] else [], low, [np.inf] if inside[-1] else []]).reshape(-1, 2)
    cut = abs(problem.z_obs[0])

    def mass(left: Any, right: Any) -> float:
        return float(np.sum(stats.norm.cdf(-np.minimum(left, right)) - stats.norm.cdf(-right)))

    left, right = ends.T
    extreme = mass(np.maximum(left, cut), np.maximum(right, cut)) + mass(
        np.maximum(-right, cut), np.maximum(-left, cut)
    )
    return extreme / mass(left, right)


MAPS: dict[str, tuple[Any, Any]] = {
    "Grad-CAM of an inner layer": (cnn, GradCAM("2", target=1, sign="signed")),
    "Grad-CAM for the predicted class": (cnn, GradCAM("2", sign="absolute")),
    "CAM": (cnn, CAM()),
    "HiResCAM": (cnn, HiResCAM("2", target=2, sign="signed")),
    "input gradient": (cnn, InputGradient(0, times_input=True, per="pixel")),
    "segmentation": (segmenter, Segmentation(1)),
    "residual": (autoencoder, Residual()),
    "averaged residual": (autoencoder, Residual(width=3)),
}


@pytest.mark.parametrize("name", MAPS)
def test_p_of_a_network_that_is_linear_in_pieces_is_that_of_a_dense_grid(name: str) -> None:
    make, attention = MAPS[name]
    for seed in range(1 if name == "CAM" else 3):
        test = AttentionTest(make(seed), image_shape=SHAPE, noise=1.0, attention=attention, confidence_level=None)
        image = images(1, seed)[0]
        result = test(image)
        assert isinstance(test.pipeline.search, PiecewiseSearch)
        assert result.status == "converged"
        assert result.audit is not None
        assert result.audit.contradictions == 0
        assert result.settings["search"]["name"] == "piecewise"
        low, high = result.pvalue_bounds
        assert high - low <= 1e-6
        assert low - 1e-9 <= dense_pvalue(test, image, result) <= high + 1e-9


@pytest.mark.parametrize("name", ["Grad-CAM for the predicted class", "segmentation"])
def test_intervals_of_networks_are_resolved_though_pieces_meet_at_rounded_places(name: str) -> None:
    make, attention = MAPS[name]
    for seed in range(3):
        options = {"image_shape": SHAPE, "noise": 1.0, "attention": attention}
        shown = [
            AttentionTest(make(seed), **options, search=PiecewiseSearch(tol=tol))(images(1, seed)[0])
            for tol in (1e-4, 1e-9)
        ]
        rough, fine = (result.confidence_interval() for result in shown)
        assert (rough.low, rough.high) == pytest.approx((fine.low, fine.high), rel=1e-2, abs=1e-2)
        assert max(rough.error, fine.error) < 0.01
        assert abs(shown[0].pvalue - shown[1].pvalue) < 1e-4


def test_images_together_have_the_results_of_each_alone() -> None:
    test = AttentionTest(
        cnn(1), image_shape=SHAPE, noise=1.0, attention=MAPS["HiResCAM"][1], search=PiecewiseSearch(tol=1e-9)
    )
    some = list(images(2, 7))
    together = test.map(some)
    for image, result in zip(some, together, strict=True):
        assert result.pvalue == pytest.approx(test(image).pvalue, abs=1e-9)


@pytest.mark.parametrize("name", ["Grad-CAM of an inner layer", "segmentation", "residual"])
def test_pieces_that_are_too_many_are_sampled_and_their_roughness_is_in_the_bar(name: str) -> None:
    make, attention = MAPS[name]
    for seed in range(3, 6):
        options = {"image_shape": SHAPE, "noise": 1.0, "attention": attention, "confidence_level": None}
        exact, sampled = (
            AttentionTest(make(seed), **options, search=PiecewiseSearch(max_pieces=most))(images(1, seed)[0])
            for most in (20_000, 0)
        )
        assert (exact.status, sampled.status) == ("converged", "rough")
        low, high = sampled.pvalue_bounds
        assert high - low <= 1e-6
        assert low - 1e-6 <= exact.pvalue <= high + 1e-6  # the bar of the exact one


@pytest.mark.parametrize("size", [1, 2])
def test_a_network_of_which_few_images_fit_into_memory_is_searched_in_pieces_too(size: int) -> None:
    options: dict[str, Any] = {"image_shape": SHAPE, "noise": 1.0, "attention": GradCAM("2", target=1, sign="signed")}
    assert isinstance(AttentionTest(cnn(), **options, batch_size=size).pipeline.search, PiecewiseSearch)


def test_a_narrow_first_piece_is_no_reason_to_ask_for_as_many_points_as_a_batch_has() -> None:
    options: dict[str, Any] = {"image_shape": SHAPE, "noise": 1.0, "confidence_level": None}
    attention = GradCAM("2", target=1, sign="signed")
    few, many = (
        AttentionTest(cnn(9), **options, attention=attention, batch_size=size)(images(1, 9)[0]) for size in (16, 4096)
    )
    assert many.status == "converged"
    assert many.evaluations < 1.1 * few.evaluations


def test_a_strict_search_of_pieces_is_refused() -> None:
    options = {"image_shape": SHAPE, "noise": 1.0, "attention": MAPS["HiResCAM"][1]}
    with pytest.raises(InputError, match="strict lets the spectral search look more closely, but this network"):
        AttentionTest(cnn(2), **options, search=SpectralSearch(strict=True))


def test_gradients_that_jump_are_searched_in_pieces_if_these_are_curved() -> None:
    options = {"image_shape": SHAPE, "noise": 1.0, "confidence_level": None}
    map_of_kinks = GradCAM("0.2", target=1, sign="signed")
    test = AttentionTest(nn.Sequential(cnn(1), nn.Sigmoid()), **options, attention=map_of_kinks)
    result = test(images(1, 4)[0])
    assert isinstance(test.pipeline.search, PiecewiseSearch)
    assert result.status == "converged"
    low, high = result.pvalue_bounds
    assert high - low <= 1e-6
    assert low - 1e-9 <= dense_pvalue(test, images(1, 4)[0], result) <= high + 1e-9
    hidden = nn.Sequential(*cnn(2, nn.SiLU)[:5], *cnn(2)[5:])  # kinks of something curved
    other = AttentionTest(hidden, **options, attention=GradCAM("2", target=1, sign="signed"))
    assert isinstance(other.pipeline.search, SpectralSearch)
    with pytest.raises(SearchError, match=r"kinks whose places .* \(of max_pool2d of something .* use spectral"):
        other.replace(search="piecewise")(images(1)[0])


def test_few_evaluations_give_a_wide_bar_that_holds_and_a_status() -> None:
    image, attention = images(1, 2)[0], MAPS["HiResCAM"][1]
    options = {"image_shape": SHAPE, "noise": 1.0, "attention": attention, "confidence_level": None}
    known = AttentionTest(cnn(2), **options)(image)
    stopped = AttentionTest(cnn(2), **options, search=SpectralSearch(max_evaluations=64))(image)
    assert stopped.settings["search"] == {
        **{"name": "piecewise", "tol": 1e-6, "rtol": 0.0},
        **{"max_evaluations": 64, "max_pieces": 20_000},
    }
    assert stopped.status == "max_evaluations"
    low, high = stopped.pvalue_bounds
    assert low <= known.pvalue <= high
    assert high - low > 1e-6


def test_grad_cam_is_that_of_plain_autograd() -> None:
    model, image = cnn(3).double(), torch.from_numpy(images(2, 3)).unsqueeze(1)
    kept: list[Tensor] = []
    handle = model[2].register_forward_hook(lambda module, arguments, output: kept.append(output))
    scores = model(image)
    handle.remove()
    (gradient,) = torch.autograd.grad(scores[:, 1].sum(), kept[0])
    expected = (gradient.mean(dim=(2, 3), keepdim=True) * kept[0]).sum(dim=1)
    found = NetworkScores(model, attention=GradCAM("2", target=1), image_size=SHAPE)(image)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)
    last = NetworkScores(model, attention=GradCAM(target=1), image_size=SHAPE)
    assert last.grid_shape == (5, 5)  # the last layer whose output is a map


def library_network(kind: str) -> Any:
    import transformers as hf

    sizes = {"num_channels": 1, "embedding_size": 4, "hidden_sizes": [4, 6], "depths": [1, 1], "num_labels": 3}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "ResNet":
            made: Any = hf.ResNetForImageClassification(hf.ResNetConfig(**sizes, layer_type="basic"))
        else:
            made = hf.ConvNextForImageClassification(hf.ConvNextConfig(**sizes, num_stages=2, patch_size=2))
            nn.init.normal_(made.convnext.layernorm.weight)
        return made.double().eval()


@pytest.mark.parametrize("kind", ["plain", "ResNet", "ConvNeXt"])
def test_cam_is_the_last_map_times_the_weights_of_the_class(kind: str) -> None:
    model = cnn(3).double() if kind == "plain" else library_network(kind)
    shape = SHAPE if kind == "plain" else (1, 32, 32)
    batch = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if kind == "plain":
            last, weights = model[:6](batch), model[-1].weight[1]
        elif kind == "ResNet":
            last, weights = model.resnet(batch).last_hidden_state, model.classifier[-1].weight[1]
        else:
            last, gained = model.convnext(batch).last_hidden_state, model.classifier.weight[1]
            gained = gained * model.convnext.layernorm.weight
            weights = gained - gained.mean()
        found = NetworkScores(model, attention=CAM(target=1), image_size=shape)
        expected = torch.einsum("d,mdhw->mhw", weights, last)
        assert torch.allclose(found(batch), expected, rtol=1e-12, atol=1e-14)
        assert torch.allclose(found.rough(batch), expected, rtol=1e-4, atol=1e-4)
        scores = model(batch)
        scores = getattr(scores, "logits", scores)[:, 1]
    if kind == "ConvNeXt":
        pooled = last.mean(dim=(2, 3))
        factor = (pooled.var(dim=1, correction=0) + model.convnext.layernorm.eps).sqrt()
        constant = model.classifier.weight[1] @ model.convnext.layernorm.bias + model.classifier.bias[1]
        assert torch.allclose(expected.mean(dim=(1, 2)) / factor + constant, scores)
        return
    bias = (model[-1] if kind == "plain" else model.classifier[-1]).bias[1]
    assert torch.allclose(expected.mean(dim=(1, 2)) + bias, scores)
    by_gradient = NetworkScores(model, attention=GradCAM(found._layer or "", target=1), image_size=shape)(batch)
    assert torch.allclose(by_gradient * last[0, 0].numel(), expected, rtol=1e-12, atol=1e-14)


def test_cam_follows_the_weights_of_a_changed_copy_and_is_not_for_transformers() -> None:
    def double(other: NetworkScores) -> None:
        other.whole()[0][-1].weight.mul_(2.0)  # type: ignore[index]

    scores = NetworkScores(cnn(), attention=CAM(2), image_size=SHAPE)
    batch = torch.from_numpy(images(1)).unsqueeze(1)
    assert torch.allclose(scores.changed(double)(batch), 2 * scores(batch))
    with pytest.raises(AttentestError, match="cam is for networks that end in global average pooling: use grad-cam"):
        AttentionTest.from_pretrained(bundled_model(), noise=1.0, attention="cam")
    gradient = NetworkScores(cnn(), attention=InputGradient(0), image_size=SHAPE)
    assert gradient.describe()["attention"]["per"] == "pixel"  # without patches


def test_a_smooth_network_is_searched_by_interpolation() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Conv2d(4, 2, 3)).eval()
    test = AttentionTest(model, image_shape=SHAPE, noise=1.0, attention=Segmentation(0), confidence_level=None)
    assert isinstance(test.pipeline.search, SpectralSearch)
    with pytest.raises(SearchError, match=r"kinks whose places .* \(of amax of something .* use spectral"):
        test.replace(search="piecewise")(images(1)[0])  # of two classes the greater one


class Quantised(nn.Module):
    """A network whose units take a few values each: neither smooth nor linear in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = segmenter()

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(8 * torch.tanh(self.layer(x)))


def test_a_network_that_no_search_is_for_has_a_certificate() -> None:
    options = {"search": SpectralSearch(max_evaluations=64), "confidence_level": None}
    test = AttentionTest(Quantised(), image_shape=SHAPE, noise=1.0, attention=Segmentation(0), **options)
    image = images(1, 4)[0]
    result = test(image)
    low, high = result.pvalue_bounds
    assert result.status in ("sharp", "max_evaluations")
    assert low < 0.05 < high
    assert result.verdict().endswith("more evaluations, or certify the result (certification=, --certify).")
    certified = test(image, certification=Certification(draws=9, steps=1))
    assert certified.certificate.agrees
    assert certified.verdict().endswith(f"report the certified p, {certified.certificate.pvalue:.3g}.")


class Nothing(nn.Module):
    """A network that returns no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float("nan")


class Noisy(nn.Module):
    """A network with dropout that is always active."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), training=True)


@pytest.mark.parametrize(
    ("model", "attention", "shape", "sentence"),
    [
        (cnn(), GradCAM("nowhere"), SHAPE, "layer must be the name of a layer whose output is a map, such as .* got"),
        (cnn(), GradCAM("2", target=7), SHAPE, "target is class 7, but the model has 3 classes"),
        (cnn(), GradientRollout(), SHAPE, "no attention that is read, which gradient-rollout needs"),
        (nn.Sequential(cnn(), nn.ReLU(), nn.Linear(3, 2)), CAM(), SHAPE, "global average pooling .*: use grad-cam"),
        (nn.Sequential(cnn(), nn.Sigmoid()), CAM(), SHAPE, "does not end in global average pooling"),
        (cnn(), GradCAM(), (3, 10, 10), "fails on an image of shape"),
        (cnn(), Segmentation(0), SHAPE, "needs a map with axes of its own"),
        (segmenter(), GradCAM(), SHAPE, "has no class scores"),
        (segmenter(), Segmentation(4), SHAPE, "target is class 4, but the network returns 2 at each pixel"),
        (segmenter(), Residual(), SHAPE, "needs a reconstruction of the same shape"),
        (Noisy(), Segmentation(0), SHAPE, "other values each time"),
        (
            nn.Sequential(segmenter(), nn.BatchNorm2d(2, track_running_stats=False)),
            Segmentation(0),
            SHAPE,
            "otherwise beside another",
        ),
        (Nothing(), Segmentation(0), SHAPE, "returns NaN or infinite values for an image of noise"),
    ],
)
def test_what_a_network_cannot_do_is_said(model: nn.Module, attention: Any, shape: Any, sentence: str) -> None:
    with pytest.raises(AttentestError, match=sentence):
        AttentionTest(model, image_shape=shape, noise=1.0, attention=attention)


def test_bad_maps_are_refused() -> None:
    for make, sentence in (
        (lambda: Residual("huge"), "size must be absolute, squared or signed"),  # type: ignore[arg-type]
        (lambda: Residual(width=4), "width must be odd"),
        (lambda: Segmentation(-1), "target"),
    ):
        with pytest.raises(AttentestError, match=sentence):
            make()
    with pytest.raises(AttentestError, match="give image_shape"):
        AttentionTest(segmenter(), noise=1.0, attention=Segmentation(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch advise against it
        compiled = torch.jit.trace(cnn(), torch.zeros(1, *SHAPE))
    with pytest.raises(AttentestError, match="is compiled: give the module"):
        AttentionTest(compiled, image_shape=SHAPE, noise=1.0, attention=GradCAM())


def test_rough_scores_of_what_a_network_returns_are_those_of_float32() -> None:
    """Mixed precision once took the network for a transformer here, and said that it showed no attention."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.SiLU(), nn.Conv2d(4, 1, 3, padding=1))
    options: dict[str, Any] = {"image_shape": (1, 8, 8), "noise": 1.0, "attention": Residual()}
    image = np.random.default_rng(0).normal(size=(8, 8))
    exact, mixed = (
        AttentionTest(model, search=SpectralSearch(precision=precision), **options)(image)  # type: ignore[arg-type]
        for precision in ("float64", "mixed")
    )
    low, high = mixed.pvalue_bounds
    assert low - 1e-12 <= exact.pvalue <= high + 1e-12
    scores = AttentionTest(model, **options).pipeline.scores
    images = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 1, 8, 8)))
    torch.testing.assert_close(scores.rough(images), scores(images), rtol=1e-5, atol=1e-6)  # type: ignore[attr-defined]
    assert (scores.rough(images) != scores(images)).any()  # type: ignore[attr-defined]
