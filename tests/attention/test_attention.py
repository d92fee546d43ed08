from __future__ import annotations

import copy
import inspect
import sys

import numpy as np
import pytest
import torch
from transformers import ViTForImageClassification, ViTModel

from attentest import bundled_model
from attentest.attention import ScoreFunction, ViTScores, load_model, scores_from_attentions
from attentest.errors import InputError, ModelError
from plain_forward import plain_scores
from toys import tiny_vit


@pytest.fixture(scope="module")
def bundled() -> ViTForImageClassification:
    return ViTForImageClassification.from_pretrained(bundled_model())


def images(count: int, size: int, channels: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(2).normal(size=(count, channels, size, size)))


def test_scores_equal_a_plain_float64_forward_pass(bundled: ViTForImageClassification) -> None:
    batch = images(4, 16)
    np.testing.assert_allclose(ViTScores(bundled)(batch), plain_scores(bundled, batch), rtol=0, atol=1e-13)


def test_scores_of_a_colour_model_equal_a_plain_float64_forward_pass() -> None:
    model = tiny_vit(channels=3)
    batch = images(3, 8, 3)
    np.testing.assert_allclose(ViTScores(model)(batch), plain_scores(model, batch), rtol=0, atol=1e-13)


def test_scores_along_a_line_carry_no_noise_above_rounding(bundled: ViTForImageClassification) -> None:
    start, direction = images(2, 16)
    direction = direction / direction.norm()  # for unit noise the directions of the test have norm one
    z = 1e-6 * torch.arange(60, dtype=torch.float64)
    scores = ViTScores(bundled)(start + direction * z[:, None, None, None])
    # Curvature adds 1e-12 times a second derivative of order 0.01 to the rounding; float32 anywhere gives 1e-10.
    assert torch.diff(scores, n=2, dim=0).abs().max() < 1e-13


def test_the_librarys_own_eager_attention_is_not_float64(bundled: ViTForImageClassification) -> None:
    """Why attentest registers an attention function of its own: most versions compute the softmax in float32."""
    if "float32" not in inspect.getsource(sys.modules[type(bundled.vit).__module__].eager_attention_forward):
        pytest.skip("this version of transformers computes in the model's dtype")
    batch = images(4, 16)
    eager = copy.deepcopy(bundled.vit).double().eval()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = eager(batch, output_attentions=True).attentions
    scores = scores_from_attentions(attentions, (8, 8))
    difference = (scores - ViTScores(bundled)(batch)).abs().max()
    assert 1e-12 < difference < 1e-5


def test_rollout_carries_only_the_class_tokens_row() -> None:
    rng = np.random.default_rng(0)
    attentions = [torch.softmax(torch.from_numpy(rng.normal(size=(3, 2, 7, 7))), dim=-1) for _ in range(5)]
    full = torch.eye(7, dtype=torch.float64)
    for attention in attentions:
        full = (attention.mean(dim=1) + torch.eye(7, dtype=torch.float64)) @ full
    scores = scores_from_attentions(attentions, (2, 3))
    torch.testing.assert_close(scores.flatten(1), full[:, 0, 1:], rtol=1e-14, atol=0)


def test_forward_mode_slopes_match_differences(tiny_model: ViTForImageClassification) -> None:
    scores = ViTScores(tiny_model)
    start, direction = images(2, 8)

    def along(z: torch.Tensor) -> torch.Tensor:
        return scores(start + direction * z[:, None, None, None])

    z = torch.linspace(-2, 2, 5, dtype=torch.float64)
    with torch.no_grad():
        value, slope = torch.func.jvp(along, (z,), (torch.ones_like(z),))
        difference = (along(z + 1e-5) - along(z - 1e-5)) / 2e-5
    assert torch.equal(value, along(z)) or torch.allclose(value, along(z), rtol=0, atol=1e-13)
    torch.testing.assert_close(slope, difference, rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:the model's weights are float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_callers_model_is_left_alone(dtype: torch.dtype) -> None:
    model = tiny_vit().to(dtype).train()
    model.set_attn_implementation("sdpa")
    before = {name: (id(p), p.detach().clone(), p.requires_grad) for name, p in model.named_parameters()}
    config = copy.deepcopy(model.config.to_dict())
    scores = ViTScores(model)(images(2, 8))
    assert scores.dtype == torch.float64
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert model.config.to_dict() == config
    for name, parameter in model.named_parameters():
        identity, value, gradient = before[name]
        assert id(parameter) == identity
        assert parameter.dtype == dtype
        assert parameter.requires_grad == gradient
        assert torch.equal(parameter, value)


def test_a_model_in_training_mode_is_read_without_dropout(tiny_model: ViTForImageClassification) -> None:
    training = copy.deepcopy(tiny_model).train()
    batch = images(3, 8)
    assert torch.equal(ViTScores(training)(batch), ViTScores(tiny_model)(batch))


def test_an_encoder_alone_gives_the_same_scores(tiny_model: ViTForImageClassification) -> None:
    encoder = ViTModel(tiny_model.config)
    encoder.load_state_dict(tiny_model.vit.state_dict(), strict=False)
    batch = images(3, 8)
    assert torch.equal(ViTScores(encoder)(batch), ViTScores(tiny_model)(batch))


def test_scores_do_not_depend_on_the_rest_of_the_batch(tiny_model: ViTForImageClassification) -> None:
    batch = images(11, 8)
    whole = ViTScores(tiny_model, batch_size=11)(batch)
    parts = ViTScores(tiny_model, batch_size=4)(batch)
    alone = torch.cat([ViTScores(tiny_model)(image[None]) for image in batch])
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-13)
    torch.testing.assert_close(whole, alone, rtol=0, atol=1e-13)


def test_no_graph_is_kept(tiny_model: ViTForImageClassification) -> None:
    assert not ViTScores(tiny_model)(images(1, 8)).requires_grad


def test_it_is_a_score_function(tiny_model: ViTForImageClassification) -> None:
    scores = ViTScores(tiny_model)
    assert isinstance(scores, ScoreFunction)
    assert scores.image_shape == (1, 8, 8)
    assert scores.grid_shape == (4, 4)
    assert scores.device == torch.device("cpu")


def test_a_loaded_directory_gives_the_models_scores(bundled: ViTForImageClassification) -> None:
    batch = images(2, 16)
    assert torch.equal(ViTScores(load_model(bundled_model()).encoder)(batch), ViTScores(bundled)(batch))


def test_cuda_agrees_with_the_cpu(bundled: ViTForImageClassification) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    batch = images(64, 16)
    gpu = ViTScores(bundled, device="cuda")
    first, second = gpu(batch), gpu(batch)
    assert torch.equal(first, second)
    torch.testing.assert_close(first.cpu(), ViTScores(bundled)(batch), rtol=0, atol=1e-12)
    assert bundled.device.type == "cpu"


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"'Linear'.*does not know: give one of these: ViT, DeiT"):
        ViTScores(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("device", ["meta", "cuda:99"])
def test_an_unusable_device_is_refused(tiny_model: ViTForImageClassification, device: str) -> None:
    message = rf"^device '{device}' cannot be used \(.*\w\): use cpu, or cuda or cuda:N where torch has it\.$"
    with pytest.raises(InputError, match=message):
        ViTScores(tiny_model, device=device)


@pytest.mark.parametrize("device", ["foo", "cuda:", "cuda:-2", "cuda:one", "", []])
def test_what_is_no_device_is_refused(tiny_model: ViTForImageClassification, device: str) -> None:
    with pytest.raises(InputError) as caught:
        ViTScores(tiny_model, device=device)
    assert str(caught.value) == f"device must be cpu, cuda, or cuda:N for the GPU of number N, got {device!r}."


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "4", True, 10**12])
def test_an_impossible_batch_size_is_refused(tiny_model: ViTForImageClassification, batch_size: int) -> None:
    with pytest.raises(InputError, match="batch_size must be"):
        ViTScores(tiny_model, batch_size=batch_size)
