"""What maps for a class are made for: class scores of images and of the last tokens, and similarity to a text."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from attentest.attention.attention_reader import holding
from attentest.attention.device import reason_of
from attentest.attention.encoder import Encoder, cast_module
from attentest.attention.huggingface import image_arguments
from attentest.attention.relevance import PREDICTED, GradientRollout
from attentest.errors import InputError, ModelError, counted, shortened

LABEL = "label:"  # before a label that would otherwise be taken for a number, or for the predicted class
LONGEST_TEXT = 10_000


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """A model with its head: a float64 copy, of which an encoder is a part."""

    module: nn.Module
    """The whole model."""
    forward: Callable[[nn.Module, Tensor], Tensor]
    """From the module and images (m, C, *axes) to class scores (m, K)."""
    labels: tuple[str, ...]
    """The names of the classes, as the model has them; empty if it has none."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the class scores (m, K) of images (m, C, *axes)."""
        return self.forward(self.module, images)

    def cast(self, encoder: Encoder, dtype: torch.dtype) -> tuple[ClassScores, Encoder]:
        """Return a copy that computes in another dtype, and the encoder within it."""
        name = next(name for name, part in self.module.named_modules() if part is encoder.module)
        module = cast_module(self.module, dtype)
        return replace(self, module=module), replace(encoder, module=module.get_submodule(name))

    def target(self, asked: int | str, count: int) -> int | None:
        """Return the number of a class out of ``count`` that is asked for; None for the predicted one."""
        if asked == PREDICTED:
            return None
        if isinstance(asked, str) and (asked.startswith(LABEL) or not asked.lstrip("+-").isdecimal()):
            return self._labelled(asked.removeprefix(LABEL))
        number = int(asked)
        if not 0 <= number < count:
            labelled = f"; its label {str(number)!r} is asked for by {LABEL}{number}" * (str(number) in self.labels)
            raise InputError(
                f"target is class {number}, but the model has {counted(count, 'class')}, numbered from 0 to "
                f"{count - 1}{labelled}.",
                "target",
            )
        return number

    def _labelled(self, label: str) -> int:
        same = [number for number, text in enumerate(self.labels) if text == label]
        # Labels of ImageNet list synonyms: "tabby, tabby cat".
        named = [number for number, text in enumerate(self.labels) if label.lower() in text.lower().split(", ")]
        matching = same or named
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise InputError(
                f"target {label!r} is the label of classes {', '.join(map(str, matching[:5]))}: give the number of one "
                "of them.",
                "target",
            )
        near = get_close_matches(label, self.labels, n=3, cutoff=0.5)
        known = near or list(self.labels[:3])
        hint = f": {'nearest are' if near else 'it has'} {', '.join(map(repr, known))}" if known else ": it has none"
        raise InputError(
            f"target {shortened(label)} is not a label of the model{hint}; or give a class number.", "target"
        )

    def label(self, number: int) -> str:
        """Return the name of a class, or an empty text."""
        return self.labels[number] if number < len(self.labels) else ""


class HeadOfTokens:
    """The class scores of the tokens that the last layer returns, for a model whose layers are computed elsewhere.

    It is a copy of the model without the layers of its encoder: in their place stands one that returns those tokens.
    """

    def __init__(self, class_scores: ClassScores, encoder: Encoder, layers: Sequence[nn.Module]) -> None:
        whole = class_scores.module
        container = next(
            part
            for part in whole.modules()
            if isinstance(part, (nn.ModuleList, nn.Sequential)) and list(part) == list(layers)
        )
        self._shape = (encoder.channels, *encoder.image_size)
        given = _Given(_returns_tuple(layers[-1], lambda: class_scores(self._blank(1, next(whole.parameters())))))
        instead = type(container)(given) if isinstance(container, nn.Sequential) else nn.ModuleList([given])
        self._module = copy.deepcopy(whole, {id(container): instead})
        self._forward = class_scores.forward

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return the class scores (m, K) of tokens (m, N, d)."""
        with holding(_TOKENS, tokens):
            return self._forward(self._module, self._blank(len(tokens), tokens))

    def _blank(self, count: int, like: Tensor) -> Tensor:
        return torch.zeros(1, *self._shape, dtype=like.dtype, device=like.device).expand(count, *self._shape)


_TOKENS: ContextVar[Tensor] = ContextVar("attentest_tokens")


class _Given(nn.Module):
    """Stands for all layers: returns the tokens of this pass."""

    def __init__(self, as_tuple: bool) -> None:
        super().__init__()
        self.as_tuple = as_tuple

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the tokens as a layer does."""
        return (_TOKENS.get(),) if self.as_tuple else _TOKENS.get()


def _returns_tuple(layer: nn.Module, run: Callable[[], Any]) -> bool:
    """Return whether a layer returns a tuple, in some versions of some libraries, when a model is run."""
    seen: list[bool] = []
    with layer.register_forward_hook(lambda *call: seen.append(isinstance(call[-1], tuple))):
        run()
    if not seen:
        raise ModelError("the model does not use its last layer.")
    return seen[0]


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
    """Return the tokeniser of a model in a directory or of the hub, as a function from a text to its tokens.

    ``padded`` says whether the model was trained with texts filled up to the greatest length in ``text_settings``;
    ``options`` are those with which its files are read.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:  # noqa: BLE001  # the library may raise anything on missing or damaged files
        raise ModelError(
            f"the tokeniser of {source} cannot be loaded ({reason_of(error)}): save it in the directory of the model.",
            "text",
        ) from None
    length = text_settings.get("max_position_embeddings", 64)
    filled = {"padding": "max_length", "max_length": length} if padded else {}
    return lambda text: tuple(tokenizer(text, **filled).input_ids)
