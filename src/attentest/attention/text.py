"""Maps for a text: which parts of an image make it similar to a text, by models of images and texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from attentest.attention.huggingface import image_arguments
from attentest.attention.relevance import GradientRollout
from attentest.errors import InputError, ModelError, counted, shortened

LONGEST_TEXT = 10_000


@dataclass(frozen=True)
class TextRelevance(GradientRollout):
    """Attention weighted by the gradient of the similarity of image and text, as in :class:`GradientRollout`.

    For CLIP, SigLIP and models like them. The features of the text are computed once.

    Parameters
    ----------
    text
        The text, such as "a photo of a tumour".
    tokens
        Numbers of its tokens. By default the tokeniser in the directory of a saved model makes them; a model that is
        not loaded by ``AttentionTest.from_pretrained`` needs them: ``tuple(tokenizer(text).input_ids)``.
    """

    target: ClassVar[int] = 0  # type: ignore[misc]  # the only text
    text: str = ""
    tokens: tuple[int, ...] | None = None

    name: ClassVar[str] = "text-relevance"
    head = "text"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip() or len(self.text) > LONGEST_TEXT:
            raise InputError(
                f"text must be a text of at most {LONGEST_TEXT} characters, such as 'a photo of a tumour', got "
                f"{shortened(self.text)}.",
                "text",
            )
        if self.tokens is not None:
            object.__setattr__(self, "tokens", tuple(int(token) for token in self.tokens))

    def tokenised(self, tokeniser: Callable[[str], tuple[int, ...]]) -> TextRelevance:
        """Return the map with the tokens of its text."""
        return self if self.tokens is not None else replace(self, tokens=tokeniser(self.text))

    def describe(self) -> dict[str, Any]:
        """Return name and text as JSON-ready values."""
        return {"name": self.name, "text": self.text}


def similarity(model: nn.Module, relevance: TextRelevance) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return the function from a model of images and texts, and images (m, C, H, W), to similarities (m, 1).

    They are the model's own: the cosine of both features, times its scale and plus its bias. The model, a copy, loses
    the part for texts, which is needed only once.
    """
    whole: Any = model
    if not all(hasattr(whole, name) for name in ("get_text_features", "get_image_features", "text_model")):
        raise ModelError(
            f"the model of class {type(model).__name__} has no part for texts: give a CLIP or SigLIP model of images "
            "and texts.",
            "text",
        )
    if relevance.tokens is None:
        raise InputError(
            "the text has no tokens, since the model was not loaded with a tokeniser: use "
            "AttentionTest.from_pretrained, or TextRelevance(text, tokens=tuple(tokenizer(text).input_ids)).",
            "text",
        )
    limits = whole.config.text_config
    if len(relevance.tokens) > limits.max_position_embeddings:
        raise InputError(
            f"text has {counted(len(relevance.tokens), 'token')}, but the model takes at most "
            f"{limits.max_position_embeddings}: use a shorter one.",
            "text",
        )
    if not all(0 <= token < limits.vocab_size for token in relevance.tokens):
        raise InputError(f"tokens must be from 0 to {limits.vocab_size - 1}, those that the model knows.", "text")
    parameter = next(model.parameters())
    with torch.no_grad():
        ids = torch.tensor([relevance.tokens], device=parameter.device)
        features = normalize(_features(whole.get_text_features(input_ids=ids)), dim=-1)
        whole.register_buffer("text_features", features, persistent=False)
    whole.text_model = nn.Identity()
    return _similarity


def _similarity(model: nn.Module, images: Tensor) -> Tensor:
    whole: Any = model
    features = normalize(_features(whole.get_image_features(*image_arguments(model, images))), dim=-1)
    bias = getattr(whole, "logit_bias", None)
    scaled: Tensor = features @ whole.text_features.T * whole.logit_scale.exp()
    return scaled if bias is None else torch.add(scaled, bias)


def _features(returned: Any) -> Tensor:
    """Return features (m, d), which versions of the library return by themselves or in an object."""
    return torch.as_tensor(getattr(returned, "pooler_output", returned))


def tokeniser(
    source: Any, text_settings: dict[str, Any], padded: bool, **options: Any
) -> Callable[[str], tuple[int, ...]]:
    """Return the tokeniser saved with a model, as a function from a text to its tokens.

    Parameters
    ----------
    source
        Directory of the model, or its id on the hub.
    text_settings
        Configuration of its part for texts.
    padded
        Whether the model was trained with texts filled up to its greatest length.
    options
        Those with which its files are read.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:  # noqa: BLE001  # the library may raise anything on missing or damaged files
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ModelError(
            f"the tokeniser of {source} cannot be loaded ({reason}): save it in the directory of the model.", "text"
        ) from None
    length = text_settings.get("max_position_embeddings", 64)
    filled = {"padding": "max_length", "max_length": length} if padded else {}
    return lambda text: tuple(tokenizer(text, **filled).input_ids)
