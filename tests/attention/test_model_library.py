"""A new library of models, or a new attention map, is one line of a registry."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attentest.attention import LayerAttention, ViTScores
from attentest.attention.aggregation import HeadFusion, Tokens
from attentest.attention.attention_reader import plain_attention
from attentest.attention.encoder import Encoder, ModelLibrary, checked_size, float64_copy
from attentest.attention.huggingface import FAMILIES
from attentest.attention.vit import readable
from attentest.errors import InputError, ModelError
from attentest.registry import ATTENTION_MAPS, MODEL_LIBRARIES, Part
from toys import tiny_vit

DOCS = Path(__file__).parents[2] / "docs"


class ToyTransformer(nn.Module):
    """One layer of attention over patches of 2 x 2 pixels, without a class token."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embed = nn.Parameter(torch.randn(4, 6, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        tokens = nn.functional.unfold(images, 2, stride=2).mT @ self.embed
        heads = tokens.unsqueeze(1)
        return plain_attention(self, heads, heads, heads)[0]


def read_toy(module: nn.Module, image_size: Any, device: Any, owned: bool) -> Encoder:
    size = checked_size(8 if image_size is None else image_size, (2, 2))
    grid = size[0] // 2, size[1] // 2
    copied, weights = float64_copy(module, device, "toy", owned)
    return Encoder(
        module=copied,
        forward=lambda model, images: model(images),
        kind="toy",
        channels=1,
        image_size=size,
        patch_size=(2, 2),
        tokens=Tokens(grid=grid, prefix=0, class_token=False),
        layers=1,
        heads=1,
        width=6,
        mlp_width=6,
        weights=weights,
    )


@pytest.fixture
def toy_library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("attentest.attention.toy")
    module.LIBRARY = ModelLibrary(  # type: ignore[attr-defined]
        models=("Toy ViT",), package="toy", recognises=lambda one: isinstance(one, ToyTransformer), read=read_toy
    )
    monkeypatch.setitem(sys.modules, "attentest.attention.toy", module)
    monkeypatch.setitem(MODEL_LIBRARIES, "the toy library", Part("attention.toy:LIBRARY"))


@pytest.mark.usefixtures("toy_library")
def test_a_new_library_is_one_line_of_the_registry() -> None:
    model = ToyTransformer()
    assert readable(model)
    scores = ViTScores(model)
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens = images.unfold(2, 2, 2).unfold(3, 2, 2).reshape(3, 16, 4) @ model.embed.detach().double()
    attention = torch.softmax(tokens @ tokens.mT / 6**0.5, dim=-1)
    expected = (attention.mean(dim=1) + 1 / 16).unflatten(1, (4, 4))  # rollout: (A + I), averaged over the patches
    torch.testing.assert_close(scores(images), expected, rtol=1e-13, atol=0)
    assert scores.describe()["type"] == "toy"
    with pytest.raises(ModelError, match=r"ViT of torchvision, Toy ViT of the toy library, a network .* or a function"):
        ViTScores(nn.Linear(2, 2))


def test_without_its_line_the_library_is_unknown() -> None:
    assert not readable(ToyTransformer())
    with pytest.raises(ModelError, match="'ToyTransformer', which attentest does not know"):
        ViTScores(ToyTransformer())


def listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_messages_and_documentation_name_every_family() -> None:
    with pytest.raises(ModelError) as caught:
        ViTScores(nn.Linear(2, 2))
    table = (DOCS / "models.md").read_text()
    for family in FAMILIES:
        assert family.name in str(caught.value)
        assert f"| {family.name} ({listed(family.model_types)}) |" in table


class FirstLayer(LayerAttention):
    """The attention of the first layer."""

    def __init__(self, head_fusion: HeadFusion = "mean") -> None:
        super().__init__(0, head_fusion)


def test_a_new_attention_map_is_one_line_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("attentest.attention.toy")
    module.FirstLayer = FirstLayer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "attentest.attention.toy", module)
    monkeypatch.setitem(ATTENTION_MAPS, "first-layer", Part("attention.toy:FirstLayer"))
    model, images = tiny_vit(), torch.randn(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = ViTScores(model, attention=LayerAttention(0))(images)
    assert torch.equal(ViTScores(model, attention="first-layer")(images), expected)
    assert torch.equal(ViTScores(model, attention="layer:0")(images), expected)
    with pytest.raises(InputError, match="residual, first-layer or an aggregation such as"):
        ViTScores(model, attention="middle")
