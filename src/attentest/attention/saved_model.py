"""Saved vision transformers and CNNs, loaded from a directory or the hub without running code that they contain.

What the config.json of a model declares is checked before the model is built.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import torch
from safetensors.torch import load_file
from torch import nn

from attentest.attention.class_scores import tokeniser
from attentest.attention.encoder import checked_size, pair, unreadable
from attentest.attention.huggingface import LARGEST_WIDTH, Family, encoder_class, family_of_type, sides_in
from attentest.attention.model_files import WEIGHTS, ModelFiles, StoredWeights, no_network, quiet_transformers
from attentest.attention.network import network_maps
from attentest.attention.onnx_model import OnnxNetwork, load_onnx
from attentest.attention.stored_vit import ViTSettings, module_name, stored_vit
from attentest.attention.vit import readable
from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import AttentestWarning, InputError, ModelError, counted, listed, shortened
from attentest.images.resize_matrix import AXES

UNUSED_WEIGHTS = re.compile(
    r"(^|\.)(classifier|cls_classifier|distillation_classifier|pooler|head|lm_head|decoder|mask_token|text_model|"
    r"logit_scale|logit_bias|visual_projection|text_projection|layernorm|norm|post_layernorm|position_ids|"
    r"relative_position_index|encoder_to_decoder|fc_norm)(\.|$)"
)
"""Names of weights that do not affect the attention: a saved model may have them or lack them."""

ADVICE = "weights and configuration do not belong together: give those that save_pretrained wrote at one time."
"""End of the messages about weights that are not those of the configuration."""

MOST_LAYERS = MOST_CHANNELS = MOST_REGISTERS = 2**12
"""Far more than any model has: a larger number is a mistake."""

MOST_STAGES = 16  # most stages: each merges four tokens to one
MOST_LABELS = 10**6  # most classes: the library makes a name for each of them
DTYPE_SETTINGS = ("dtype", "torch_dtype")  # names of the setting of the dtype, new and old

LAYER = re.compile(r"(^|\.)((layers?|blocks)\.\d+\.|embeddings\.norm\.|head\.probe|head\.attention\.in_proj)")
"""Names of weights of a layer, of the norm before the first of Swin, and of a pooling query and its attention, all of
which affect maps."""


@contextmanager
def _checking(source: str) -> Iterator[None]:
    """Let errors about settings say of which model they are."""
    try:
        yield
    except InputError as error:
        raise ModelError(f"the config.json of {source} cannot be used: {error}") from None


class ModelConfig:
    """The configuration of a saved model: the content of config.json."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        vision = settings.get("vision_config")
        # A model of images and texts nests the settings of its vision transformer.
        self._vision = vision if isinstance(vision, Mapping) else settings
        self._sections = (settings,) if self._vision is settings else (settings, self._vision)

    @property
    def model_type(self) -> Any:
        """The type of the model, as transformers names it."""
        return self.settings.get("model_type")

    def check_dtype(self) -> None:
        """Check that torch has the dtype; a model of several parts may name a dtype for each of them."""
        for setting, value in ((name, section.get(name)) for section in self._sections for name in DTYPE_SETTINGS):
            for name in value.values() if isinstance(value, Mapping) else (value,):
                known = isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)
                if name is not None and not known:
                    raise InputError(
                        f"{setting!r} must be the name of a dtype of torch, such as float32, float16 or bfloat16, "
                        f"got {shortened(name)}: correct it, or remove it, since weights are used as they are "
                        "stored."
                    )

    def check_activation(self, known: Collection[str]) -> None:
        """Check that the activation is among those that transformers knows; if it is left out, it has its default."""
        for name in (section["hidden_act"] for section in self._sections if "hidden_act" in section):
            if not (isinstance(name, str) and name in known):
                raise InputError(
                    f"'hidden_act' must be one of {', '.join(sorted(known))}, got {shortened(name)}: use the "
                    "config.json that was saved with the weights."
                )

    def check_numbers(self) -> None:
        """Check that no number is larger than that of any model, where it is not known what each stands for."""
        for name, value in self.settings.items():
            most = MOST_LAYERS if re.search("depth|repeat|layers|blocks", name) else LARGEST_WIDTH
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, (int, float)) and not abs(number) <= most:
                    raise InputError(f"{name!r} must be at most {most}, got {shortened(number)}.")

    def least_weights(self, defaults: Any, family: Family) -> int:
        """Return the least number of weights of such a model: those of its projections, which every family has.

        Its family names the settings, and a configuration of the library has the values of what is left out.
        """
        for section in self._sections:
            if section.get("num_labels") is not None:
                whole_number(section["num_labels"], "'num_labels'", 0, MOST_LABELS)
        # The ViT that is read without transformers is also one of signals and of volumes.
        axes = AXES if isinstance(defaults, ViTSettings) else (2,)
        size, patch_size, stride = (
            sides_in(settings, lambda name: self._value(name, defaults), axes)
            for settings in (family.image_size, family.patch_size, family.stride)
        )
        if len(patch_size) != len(size):
            named = " and ".join(map(repr, family.patch_size))
            raise InputError(f"{named} must be {counted(len(size), 'number')}, got {len(patch_size)}.")
        checked_size(size, patch_size, stride)
        stages = self._stages(defaults, family)
        width = stages[0][0]
        real_number(self._value("layer_norm_eps", defaults, 0.0), "'layer_norm_eps'")
        channels = self._number(family.channels, defaults, 1, MOST_CHANNELS, 1)
        registers = self._number("num_register_tokens", defaults, 0, MOST_REGISTERS, 0)
        if self._value(family.mlp_width, defaults) is None:
            ratio = positive_number(self._value("mlp_ratio", defaults, 4), "'mlp_ratio'")
            mlp_width = int(width * min(ratio, LARGEST_WIDTH))
        else:
            mlp_width = self._number(family.mlp_width, defaults, 1, LARGEST_WIDTH)
        layer = 4 * width**2 + 2 * width * mlp_width  # of the first stage: those of others grow with the square
        layers = sum(count * layer * (wide // width) ** 2 for wide, count in stages)
        embedded = 1 if self._value("share_embedding", defaults, False) else channels
        return layers + width * (math.prod(patch_size) * embedded + registers)

    def _stages(self, defaults: Any, family: Family) -> list[tuple[int, int]]:
        """Return the width and the number of layers of each stage; a family without windows has one."""
        if not family.windows:
            width = self._number("hidden_size", defaults, 1, LARGEST_WIDTH)
            self._number("num_attention_heads", defaults, 1, width)
            return [(width, self._number("num_hidden_layers", defaults, 1, MOST_LAYERS))]
        width = self._number("embed_dim", defaults, 1, LARGEST_WIDTH)
        self._number("window_size", defaults, 1, LARGEST_WIDTH)
        depths, heads = self._value("depths", defaults), self._value("num_heads", defaults)
        lists = all(isinstance(counts, (list, tuple)) for counts in (depths, heads))
        if not lists or not 1 <= len(depths) == len(heads) <= MOST_STAGES:
            raise InputError(
                f"'depths' and 'num_heads' must be lists of a number for each of at most {MOST_STAGES} stages, got "
                f"{shortened(depths)} and {shortened(heads)}."
            )
        widths = [width * 2**stage for stage in range(len(depths))]
        for wide, count in zip(widths, heads, strict=True):
            whole_number(count, "'num_heads'", 1, wide)
        return [(w, whole_number(count, "'depths'", 1, MOST_LAYERS)) for w, count in zip(widths, depths, strict=True)]

    def _value(self, name: str, defaults: Any, otherwise: Any = None) -> Any:
        value = self._vision.get(getattr(defaults, "attribute_map", {}).get(name, name))
        return getattr(defaults, name, otherwise) if value is None else value

    def _number(self, name: str, defaults: Any, least: int, most: int, otherwise: Any = None) -> int:
        return whole_number(self._value(name, defaults, otherwise), repr(name), least, most)


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A loaded encoder, in the dtype it was saved in, and the configuration of its image processor, if it has one.

    ``usual_processor`` is the name of the image processor of its family, whose defaults hold otherwise, or empty. If a
    head was asked for, the encoder is a part of the model with it; ``tokeniser`` is that of a model with texts. With
    ``is_network`` it is a network without attention, such as a CNN, with its head. ``heads`` are those that it was
    saved with.
    """

    encoder: nn.Module
    processor: dict[str, Any] | None
    usual_processor: str
    tokeniser: Callable[[str], tuple[int, ...]] | None = None
    is_network: bool = False
    heads: tuple[str, ...] = ()

    def shape_for(self, image_size: Any) -> tuple[int, ...] | None:
        """Return the shape (C, H, W) of a network's images, of this size or its own; None for a transformer."""
        if not self.is_network:
            return None
        if isinstance(self.encoder, OnnxNetwork):
            shape = self.encoder.shape_for(None, image_size)
            self.encoder.check(shape)
            return shape
        config: Any = self.encoder.config
        size = getattr(config, "image_size", None) if image_size is None else image_size
        if size is None:
            raise ModelError(
                f"the model is of type {config.model_type!r} and takes images of any size: say which with image_size.",
                "image_size",
            )
        return int(getattr(config, "num_channels", 3)), *pair(size)

    def __repr__(self) -> str:
        processor = "None" if self.processor is None else f"<{len(self.processor)} settings>"
        return f"SavedModel(encoder=<{type(self.encoder).__name__}>, processor={processor})"


PROCESSORS = {
    **dict.fromkeys(("resnet", "regnet", "convnext", "convnextv2"), "ConvNextImageProcessor"),
    "mobilenet_v1": "MobileNetV1ImageProcessor",
    "mobilenet_v2": "MobileNetV2ImageProcessor",
    "bit": "BitImageProcessor",
}
"""Image processors of networks without attention, by type, where their defaults are known."""


def load_model(
    source: str | Path,
    *,
    allow_pickle: bool = False,
    local_files_only: bool = False,
    revision: str | None = None,
    head: Literal["", "classes", "text"] = "",
) -> SavedModel:
    """Load the encoder of a vision transformer, or a CNN with its head, saved with ``save_pretrained`` or by timm.

    Parameters
    ----------
    source
        Local directory, an ONNX file, or the id of a model on the Hugging Face hub, such as
        "google/vit-base-patch16-224". If a directory of that name exists, it is used; only an id is looked up over the
        network.
    allow_pickle
        Whether to read pickled weights (``pytorch_model.bin``) where there is no safetensors file.
    local_files_only
        Whether to use only files downloaded before, and never the network.
    revision
        Branch, tag or commit on the hub.
    head
        "classes" to load the model with its classification head, "text" with its part for texts and their tokeniser.

    Returns
    -------
    SavedModel
        Every weight of the encoder comes from the file. It is an error if a weight is missing, because the library
        would replace it by random numbers.
    """
    if str(source).lower().endswith(".onnx") and not os.path.isdir(source):
        return SavedModel(encoder=load_onnx(source), processor=None, usual_processor="", is_network=True)
    files = ModelFiles(source, allow_pickle, local_files_only, revision)
    with _checking(files.source), no_network() if files.local_only else nullcontext():
        settings = files.json("config.json", needed=True)
        if settings is None:
            raise ModelError(f"{files.what} has no config.json: it is not a saved model.")
        config = ModelConfig(settings)
        family = family_of_type(config.model_type)
        usual_processor = PROCESSORS.get(str(config.model_type), "") if family is None else family.processor
        encoder: Any
        if family is not None:
            encoder = _encoder(family, config, files, head)
        else:
            encoder = (_network if "architecture" not in settings else _of_timm)(config, files, head)
        tokens = None
        if head == "text":
            part = settings.get("text_config")
            padded = str(config.model_type).startswith("siglip")
            tokens = tokeniser(
                files.directory or files.source,
                dict(part) if isinstance(part, Mapping) else {},
                padded,
                **files.options,
            )
        processor = files.json("preprocessor_config.json") or files.json("processor_config.json")
        processor = processor or getattr(encoder, "pretrained_cfg", None)  # of timm
        if processor and family is not None and not family.processor:
            warnings.warn(
                f"the processor saved with the model of type {config.model_type!r} is not applied: give arrays as the "
                "model takes them.",
                AttentestWarning,
                stacklevel=2,
            )
            processor = None
        return SavedModel(
            encoder=encoder,
            processor=processor or None,
            usual_processor=usual_processor,
            tokeniser=tokens,
            is_network=family is None and not readable(encoder),
            heads=("classes",) * bool(getattr(encoder, "num_classes", 0))  # of timm
            or tuple(kind for kind, names in WITH_HEAD.items() if any(map(names.search, _architectures(config)))),
        )


def _encoder(family: Family, config: ModelConfig, files: ModelFiles, head: str) -> nn.Module:
    is_vit = ViTSettings.model_type in family.model_types
    config.check_dtype()
    with nullcontext() if is_vit else quiet_transformers():
        defaults = ViTSettings() if is_vit else encoder_class(family).config_class()
    stored = _stored(files, config.least_weights(defaults, family))
    path = files.path(WEIGHTS) if is_vit and files.directory is not None else None
    is_plain = path is not None and not files.path("adapter_config.json") and head != "text"
    plain = stored_vit(config.settings, path, bool(head)) if path is not None and is_plain else None
    if plain is not None:
        return plain
    loaded = _class_with_head(family.model_types, config, files, head) if head else encoder_class(family)
    options: dict[str, Any] = {"add_pooling_layer": False} if family.pooler and not head else {}
    return _load_weights(loaded, config, files, stored, bool(head), options)


def _stored(files: ModelFiles, least: int) -> StoredWeights | None:
    """Return what the files with weights hold; raise an error if that is less than the configuration asks for."""
    stored = files.weights()
    if stored is not None and least > stored.count:
        raise ModelError(
            f"the config.json of {files.source} asks for a model with at least {least} weights, but its files hold "
            f"{stored.count}; {ADVICE}"
        )
    return stored


def _network(config: ModelConfig, files: ModelFiles, head: str) -> nn.Module:
    """Return a classifier of transformers without attention, such as a ResNet; raise an error for any other model."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS

    kind = config.model_type
    name = CLASSIFIERS.get(kind) if isinstance(kind, str) else None
    if not isinstance(name, str) or not hasattr(transformers, name):
        raise unreadable(kind, f"the model {files.where}")
    config.check_dtype()
    config.check_numbers()
    classifier: Any = getattr(transformers, name)
    try:
        with quiet_transformers(), torch.device("meta"):  # without values, which may take more memory than there is
            built = classifier(classifier.config_class.from_dict(dict(config.settings)))
    except Exception as error:  # noqa: BLE001  # the library may raise anything on a damaged configuration
        raise files.not_loaded(error) from None
    if any("attention" in type(part).__name__.lower() for part in built.modules()):
        raise unreadable(kind, f"the model {files.where}")
    _check_map(kind, files, head)
    stored = _stored(files, sum(weights.numel() for weights in built.parameters()))
    return _load_weights(_class_with_head((kind,), config, files, head), config, files, stored, True, {})


def _check_map(kind: Any, files: ModelFiles, head: str) -> None:
    """Raise an error for a map of a network without attention that is not for a class."""
    if head != "classes":
        raise ModelError(
            f"the model {files.where} is of type {kind!r}, which is no transformer: attention must be "
            f"{listed(network_maps('classes'))}.",
            "attention",
        )


def _of_timm(config: ModelConfig, files: ModelFiles, head: str) -> nn.Module:
    """Return a model that timm makes, with the weights of the files, and as its ``config`` what config.json says."""
    try:
        import timm
    except Exception as error:  # noqa: BLE001  # without torchvision, or with that of another torch, it raises others
        raise ModelError(
            f"the model {files.where} is one of timm, which cannot be imported ({shortened(error)}): pip install "
            "'attentest[timm]'."
        ) from None
    kind = config.settings["architecture"]
    if not isinstance(kind, str) or not timm.is_model(kind):
        raise ModelError(
            f"the model {files.where} has architecture {shortened(kind)}, which timm {timm.__version__} does not know: "
            "use the version of timm that it was saved with."
        )
    try:
        arguments = dict(config.settings.get("model_args") or {})
        said = {**(config.settings.get("pretrained_cfg") or {}), **config.settings}
        stated = {known.name: said[known.name] for known in fields(timm.models.PretrainedCfg) if known.name in said}
        channels, *size = stated.get("input_size", (3, 224, 224))
        channels, size = arguments.get("in_chans", channels), pair(arguments.get("img_size", size))
        stated["input_size"] = (channels, *size)
        names, words = said.get("label_names") or (), said.get("label_descriptions") or {}
        numbered = names.items() if isinstance(names, dict) else enumerate(names)
        labels = {number: words.get(name, name) for number, name in numbered}
        ModelConfig({**stated, **arguments}).check_numbers()

        def made() -> Any:
            return timm.models.model_entrypoint(kind)(pretrained=False, pretrained_cfg={**stated}, **arguments)

        with torch.device("meta"):  # without values, which may take more memory than there is
            weights = made().state_dict()
        needed = {name: tuple(weight.shape) for name, weight in weights.items() if "num_batches" not in name}
        stored, path = _stored(files, sum(map(math.prod, needed.values()))), files.path(WEIGHTS)
        if stored is None or path is None:
            raise ValueError(f"there is no {WEIGHTS}")
        info = {
            "missing_keys": needed.keys() - stored.shapes.keys(),
            "unexpected_keys": (),  # which timm names below
            "mismatched_keys": [name for name, shape in needed.items() if stored.shapes.get(name, shape) != shape],
        }
        model = made()
        _check_matching(model, info, files.where, stored.shapes, head=True)
        model.load_state_dict(load_file(path), assign=True)  # in the dtype in which they are stored
    except (InputError, ModelError):
        raise
    except Exception as error:  # noqa: BLE001  # timm may raise anything on a damaged configuration
        raise files.not_loaded(error) from None
    if not readable(model):
        _check_map(kind, files, head)
    if head == "text" or (head and not getattr(model, "num_classes", 0)):
        _class_with_head((), config, files, head)  # raises the error
    model.config = SimpleNamespace(model_type=kind, num_channels=channels, image_size=size, id2label=labels)
    return cast("nn.Module", model)


WITH_HEAD = {
    "classes": re.compile(r"For(Image|Video|Audio)?Classification(WithTeacher)?$"),
    "text": re.compile(r"^(CLIP|Siglip|Siglip2)Model$"),
}
"""Names of the classes of transformers that have a head of each kind."""


def _architectures(config: ModelConfig) -> list[str]:
    """Return the names of classes of transformers that a configuration states."""
    names = config.settings.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _class_with_head(model_types: tuple[str, ...], config: ModelConfig, files: ModelFiles, head: str) -> Any:
    """Return the class of transformers that a configuration names for a model with a head."""
    import transformers

    stated = _architectures(config)
    for name in filter(WITH_HEAD[head].search, stated):
        model = getattr(transformers, name, None)
        if getattr(getattr(model, "config_class", None), "model_type", None) in model_types:
            return model
    needed = "a classification head" if head == "classes" else "a part for texts"
    raise ModelError(
        f"the model {files.where} was not saved with {needed} (its config.json names {', '.join(stated) or 'none'}): "
        f"give one that was{'' if family_of_type(config.model_type) is None else ', or use rollout'}.",
        *(["target"] if head == "classes" else []),
    )


def _load_weights(
    loaded: Any,
    config: ModelConfig,
    files: ModelFiles,
    stored: StoredWeights | None,
    head: bool,
    options: Mapping[str, Any],
) -> nn.Module:
    """Return a model of a class of transformers with the weights of the files."""
    from transformers.activations import ACT2FN

    config.check_activation(ACT2FN)
    try:
        with quiet_transformers():
            model, info = loaded.from_pretrained(
                files.directory or files.source,
                dtype=(stored and stored.dtype) or "auto",  # as it is stored, whatever the configuration says
                use_safetensors=None if files.allow_pickle else True,
                # A configuration may name an attention kernel on the hub, which would be downloaded and run.
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # they raise an error below, with their names
                trust_remote_code=False,
                output_loading_info=True,
                **files.options,
                **options,
            )
    except Exception as error:  # noqa: BLE001  # the library may raise anything on a damaged configuration or file
        raise files.not_loaded(error) from None
    _check_matching(model, info, files.where, stored.shapes if stored else {}, head)
    return cast("nn.Module", model)


def _check_matching(
    model: nn.Module, info: Mapping[str, Any], where: str, stored: Mapping[str, tuple[int, ...]], head: bool
) -> None:
    """Check that the weights of a model have the shapes that its configuration asks for, and that all are there.

    ``info`` is what the library says of loading, which names weights as modules do; ``where`` is what a message says of
    where they are; ``stored`` are the shapes in the files by the names there, none if they are not known; ``head`` says
    whether the weights of the head are needed too.
    """
    # With its shapes, or, in transformers 4, without.
    keys = [entry if isinstance(entry, str) else entry[0] for entry in info["mismatched_keys"]]
    if keys:
        named = {_name_in_file(key, stored): key for key in keys}
        name = min(named)
        shape = stored.get(name, "another than the model's")
        wanted = tuple(model.state_dict()[named[name]].shape)
        others = len(named) - 1
        more = f", and {counted(others, 'more tensor')} {'do' if others > 1 else 'does'} not fit" if others else ""
        raise ModelError(
            f"the weights {where} have {name} of shape {shape}, but config.json asks for {wanted}{more}; {ADVICE}"
        )
    for reported, problem in (
        ("missing_keys", "lack {} that config.json asks for"),
        ("unexpected_keys", "have {} that config.json does not ask for"),
    ):
        if used := sorted(info[reported]) if head and reported == "missing_keys" else _used(info[reported]):
            tensors = problem.format(counted(len(used), "tensor"))
            raise ModelError(f"the weights {where} {tensors}, {used[0]} first; {ADVICE}")


def _name_in_file(key: str, stored: Iterable[str]) -> str:
    """Return the name in the files of a weight that the modules call by a key; the key itself if no name fits it.

    Models with a head prefix the names of their encoder, and the library has renamed modules since older files were
    written.
    """
    for wanted in (key, _without_prefix(key)):
        for name in stored:
            inner = _without_prefix(name)
            if wanted in (name, module_name(name), inner, module_name(inner)):
                return name
    return key


def _without_prefix(name: str) -> str:
    return name.partition(".")[2]


def _used(keys: Iterable[str]) -> list[str]:
    """Return those that affect the attention, sorted: no classification heads, poolers, decoders or text."""
    return sorted(
        key
        for key in keys
        if not key.startswith(("decoder.", "text_model."))
        and (LAYER.search(key) is not None or UNUSED_WEIGHTS.search(key) is None)
    )
