"""Maps for a class of models of MONAI, plain torch, one and three axes, and of spectrograms, videos and signals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers as hf
from test_monai import ViT
from test_other_axes import CONFIGS, INTO_MODEL, SignalTransformer
from torch import Tensor, nn

from attentest.attention import TorchTransformer
from attentest.attention.relevance import GradCAM, HiResCAM
from attentest.attention.relevance_scores import RelevanceScores
from attentest.attention.stored_vit import ViTClassifier, ViTModel, ViTSettings
from families import normal, with_random_weights
from relevance_checks import SAME, check_model, relative


class MonaiClassifier(ViT):
    """MONAI's model returns the scores of its head and the tokens after each layer."""

    def __init__(self, size: tuple[int, ...], patch: tuple[int, ...]) -> None:
        super().__init__(size, patch, classification=True, perceptron=False, save=False)
        self.classification_head = nn.Sequential(nn.Linear(12, 4), nn.Tanh())

    def forward(self, images: Tensor) -> Any:
        tokens, hidden = super().forward(images)
        return self.classification_head(tokens[:, 0]), hidden


@pytest.mark.parametrize(("size", "patch"), [((8, 12), (4, 2)), ((4, 6, 4), (2, 3, 2))])
def test_maps_of_monai(size: tuple[int, ...], patch: tuple[int, ...]) -> None:
    model = with_random_weights(MonaiClassifier(size, patch))
    reference = copy.deepcopy(model).double()
    check_model(model, lambda images: reference(images)[0], image_size=size)


TORCH: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "norms after": (5, True, {}),
    "norms before": (5, False, {"norm_first": True, "activation": "gelu"}),
    "sequences first, patches that overlap": (3, True, {"batch_first": False, "bias": False}),
}


@pytest.mark.parametrize("name", TORCH)
def test_maps_of_layers_of_torch(name: str) -> None:
    stride, class_token, layer = TORCH[name]
    layer = {"activation": "gelu", "dropout": 0.0, **layer}
    own = with_random_weights(SignalTransformer(stride, class_token, **layer))
    model = TorchTransformer(own, image_shape=(2, 40), patch_size=5, stride=stride, prefix=int(class_token))
    reference = copy.deepcopy(own).double()
    check_model(model, reference, plain=False)
    # The gradient in the tokens that enter the attention, whatever comes before it and passes beside it.
    signals, target = normal(3, 2, 40, seed=4), 1
    for number in (0, 1):
        entered: list[Tensor] = []
        attention = reference.layers.layers[number].self_attn

        def recorded(_: Any, given: Any, kept: list[Tensor] = entered) -> Any:
            kept.append(given[0].clone())
            return (kept[0], kept[0], kept[0], *given[3:])

        handle = attention.register_forward_pre_hook(recorded)
        scores = reference.train()(signals)
        handle.remove()
        (slopes,) = torch.autograd.grad(scores[:, target].sum(), entered)
        tokens = entered[0].detach()
        if not layer.get("batch_first", True):
            tokens, slopes = tokens.transpose(0, 1), slopes.transpose(0, 1)
        tokens, slopes = tokens[:, int(class_token) :], slopes[:, int(class_token) :]
        cam = (tokens * slopes.mean(dim=1, keepdim=True)).sum(dim=2)
        assert relative(RelevanceScores(model, attention=GradCAM(number, target))(signals), cam) < SAME
        high = (tokens * slopes).sum(dim=2)
        assert relative(RelevanceScores(model, attention=HiResCAM(number, target))(signals), high) < SAME


@pytest.mark.parametrize(("shape", "patch"), [((2, 24), (4,)), ((1, 8, 6), (2, 3)), ((1, 4, 6, 4), (2, 3, 2))])
def test_maps_of_our_own_models(shape: tuple[int, ...], patch: tuple[int, ...]) -> None:
    settings = ViTSettings(
        image_size=shape[1:],
        patch_size=patch,
        num_channels=shape[0],
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
    )
    model = ViTClassifier(ViTModel(settings), torch.zeros(3, 16), torch.zeros(3), {})
    reference = copy.deepcopy(with_random_weights(model)).double()
    check_model(model, reference)


HEADS = {
    "ASTModel": "ASTForAudioClassification",
    "VideoMAEModel": "VideoMAEForVideoClassification",
    "VivitModel": "VivitForVideoClassification",
    "PatchTSTModel": "PatchTSTForClassification",
}


@pytest.mark.parametrize("name", HEADS)
def test_maps_of_spectrograms_videos_and_signals(name: str) -> None:
    changes = {"num_targets": 3, "use_cls_token": True} if name == "PatchTSTModel" else {"num_labels": 3}
    with torch.random.fork_rng(devices=[]):
        model = with_random_weights(getattr(hf, HEADS[name])(CONFIGS[name](**changes)))
    reference = copy.deepcopy(model).double()
    reference.set_attn_implementation("sdpa")

    def logits(images: Tensor) -> Tensor:
        output = reference(INTO_MODEL[name](images))
        return output.logits if hasattr(output, "logits") else output.prediction_logits

    # The fixed positions of VideoMAE are rounded to float32.
    check_model(model, logits, plain=name not in ("PatchTSTModel",), float64=name != "VideoMAEModel")
