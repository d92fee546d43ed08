"""Networks stored as ONNX files, run in float64 as functions of torch; nothing that a file brings is executed.

A file is read within limits, checked, and its graph becomes a module with one submodule for each node, which has the
name of the node's output. Names of files are no paths: they may hold dots.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from attentest.attention.device import reason_of
from attentest.attention.encoder import by
from attentest.attention.onnx_operators import (
    BOOLEAN,
    FLOATS,
    INTEGERS,
    MOST_NUMBERS,
    NUMBERS,
    OPERATORS,
    WITHOUT_EFFECT,
    Context,
    NotSupportedError,
    Window,
)
from attentest.attention.score_function import SAME, checked_shape
from attentest.errors import InputError, ModelError, shortened
from attentest.images.image_file import optional_package
from attentest.images.resize_matrix import AXES

LARGEST_FILE = 2**31 - 1
"""Most bytes of a file, which is the format's own limit; larger networks have their weights in files beside it."""

MOST_WEIGHTS = 2**31  # most weights, which take 16 GiB in float64
MOST_VALUES = 2**30  # most values that a node may return for an image, which take 8 GiB in float64
OPSETS = range(9, 25)  # versions of the operators that are supported
DOMAINS = ("", "ai.onnx")  # names of the set of operators that the format itself defines
EXTERNAL = 1  # number in files of the place of weights that lie in another file

WINDOW = tuple(field.name for field in fields(Window))  # names of the attributes of operators with a kernel

FAILURES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError)
"""What torch and NumPy raise where shapes or values do not fit."""


class OnnxNode(nn.Module):
    """A node of the graph: an operator with its attributes, and the names of what it takes and returns."""

    def __init__(
        self, operator: str, attributes: Mapping[str, Any], inputs: Iterable[str], outputs: Iterable[str]
    ) -> None:
        super().__init__()
        parameters = inspect.signature(OPERATORS[operator]).parameters
        self.operator = operator
        self.attributes = {name: value for name, value in attributes.items() if name in parameters}
        if "window" in parameters:
            self.attributes["window"] = Window(**{name: attributes[name] for name in WINDOW if name in attributes})
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.spent: tuple[str, ...] = ()
        """Names of values that no later node takes."""
        self._in_context = "context" in parameters

    def forward(self, *inputs: Tensor | None, context: Context) -> Any:
        """Return what the operator makes of its inputs."""
        known = {"context": context} if self._in_context else {}
        return OPERATORS[self.operator](*inputs, **self.attributes, **known)

    def extra_repr(self) -> str:
        """Return the operator's name."""
        return self.operator


class OnnxNetwork(nn.Module):
    """The graph of an ONNX file as a module from images (m, C, *axes) to its first output.

    Submodules have the names of the outputs of nodes, such as "/layer4/Relu_output_0", and weights those of the file.
    ``nodes`` are in the order in which they are computed; ``constants`` are weights, and numbers such as shapes, which
    stay on the CPU. ``entry`` and ``result`` are the names of input and output; ``sides`` is the shape (N, C, *axes) of
    the input as the file states it, None for sides that are not fixed. By the SHA-256 of the file, ``digest``, networks
    with the same weights are told apart.
    """

    def __init__(
        self,
        *,
        nodes: Iterable[OnnxNode],
        constants: Mapping[str, Tensor],
        entry: str,
        result: str,
        sides: tuple[int | None, ...],
        opset: int,
        digest: bytes,
    ) -> None:
        super().__init__()
        self.entry, self.result, self.sides, self.opset = entry, result, sides, opset
        self.register_buffer("digest", torch.frombuffer(bytearray(digest), dtype=torch.uint8))
        last: dict[str, OnnxNode] = {}
        read: set[str] = set()
        for node in nodes:
            self._modules[node.outputs[0]] = node
            last.update(dict.fromkeys(node.inputs, node))
            read.update(node.inputs[1:] if node.operator in NUMBERS else ())
        self.numbers: dict[str, Tensor] = {}
        for name, value in constants.items():
            if value.is_floating_point() and name not in read:
                self._parameters[name] = nn.Parameter(value, requires_grad=False)
            else:
                self.numbers[name] = value
        for name, node in last.items():
            if name != result and name not in constants:
                node.spent += (name,)

    def get_submodule(self, target: str) -> nn.Module:
        """Return the node of the output of this name."""
        node = self._modules.get(target)
        return super().get_submodule(target) if node is None else node

    def forward(self, images: Tensor) -> Tensor:
        """Return the first output for images (m, C, *axes), in their dtype and on their device."""
        context = Context(like=images, opset=self.opset, single=self.sides[0] == 1)
        weights = {name: weight.to(images) for name, weight in self._parameters.items() if weight is not None}
        values: dict[str, Any] = {"": None, **self.numbers, **weights, self.entry: images}
        for name, module in self._modules.items():
            node = cast(OnnxNode, module)
            try:
                returned = node(*(values[taken] for taken in node.inputs), context=context)
                several = returned if isinstance(returned, (tuple, list)) else (returned,)
                if images.is_meta:
                    _check_sizes(several)
            except NotSupportedError as error:
                raise ModelError(
                    f"the operator {node.operator} (output {name[:100]!r}) has {error}, which is not supported."
                ) from None
            values.update(zip(node.outputs, several, strict=False))
            for spent in node.spent:
                values.pop(spent, None)
        result: Tensor = values[self.result]
        return result

    def shape_for(self, image_shape: Any, image_size: int | tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the shape (C, *axes) of images: the file's, with what it leaves open from a shape or a size."""
        stated, axes = self.sides[1:], len(self.sides) - 2
        if image_shape is None and image_size is not None:
            sides = (image_size,) * axes if isinstance(image_size, int) else tuple(image_size)
            image_shape = (stated[0] or 1, *sides)
        if image_shape is None:
            if None in stated:
                raise InputError(
                    f"the network leaves the shape {by(stated)} of its images open: give image_shape.",
                    "image_shape",
                )
            image_shape = stated
        shape = checked_shape(image_shape, "image_shape")
        fits = len(shape) == len(stated) and all(s in (None, side) for s, side in zip(stated, shape, strict=True))
        if not fits:
            raise InputError(
                f"image_shape is {by(shape)}, but the network takes images of {by(stated)}.", "image_shape"
            )
        return shape

    @torch.no_grad()
    def check(self, shape: tuple[int, ...]) -> None:
        """Raise an error if the network cannot compute images of a shape (C, *axes), or not several at once.

        Shapes are worked out first, without any memory for the values.
        """
        chance = torch.Generator().manual_seed(0)
        images = torch.randn(2, *shape, dtype=torch.float64, generator=chance)
        try:
            self(images[:1].to("meta"))
            alone = torch.cat([self(image) for image in images.split(1)])
        except ModelError:
            raise
        except FAILURES as error:
            raise ModelError(
                f"the network fails on an image of shape {shape} ({reason_of(error)}): check image_shape.",
                "image_shape",
            ) from None
        try:
            together = self(images)
            same = torch.allclose(together, alone, rtol=0, atol=SAME * float(alone.abs().max()), equal_nan=True)
        except FAILURES:
            same = False
        if not same:
            raise ModelError(
                "the network computes an image otherwise when there are several, as one that was exported for a single "
                "image may: export it with a dynamic batch axis."
            )


def _check_sizes(returned: Iterable[Any]) -> None:
    for value in returned:
        if value.numel() > (MOST_VALUES if value.is_floating_point() else MOST_NUMBERS):
            raise NotSupportedError(f"{value.numel():,} values")


def load_onnx(source: str | Path) -> OnnxNetwork:
    """Read a network from an ONNX file; needs the onnx package (``pip install 'attentest[onnx]'``).

    Parameters
    ----------
    source
        Path of the file. Weights may lie in files beside it, as torch's exporter writes them, and nowhere else.
    """
    with optional_package("ONNX files", "onnx", "onnx", None, "onnx.checker", "onnx.numpy_helper") as onnx:
        path, content = _content(source)
        try:
            model = onnx.load_model_from_string(content)
        except Exception as error:  # noqa: BLE001  # protobuf has errors of its own, which depend on its version
            raise _unreadable(path, error) from None
        if not model.graph.node:
            raise _unreadable(path, "it holds no graph")
        _check_weights(model, path)
        try:
            onnx.checker.check_model(os.fspath(path))
            return _network(onnx, model, path, hashlib.sha256(content).digest())
        except ModelError:
            raise
        except (onnx.checker.ValidationError, *FAILURES) as error:
            raise _unreadable(path, error) from None


def _content(source: Any) -> tuple[Path, bytes]:
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"an ONNX file must be given as a path, got {type(source).__name__}.")
    path = Path(source)
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a directory: give the path of an ONNX file.")
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ModelError(
                f"the ONNX file {path} has {size:,} bytes, more than the {LARGEST_FILE:,} allowed: export it with its "
                "weights in a file of their own (external data)."
            )
        if not path.is_file() or size == 0:
            raise ModelError(f"the ONNX file {path} is {'empty' if path.is_file() else 'no file'}: export it again.")
        return path, path.read_bytes()
    except OSError as error:
        raise ModelError(f"the ONNX file {path} cannot be read ({error.strerror}): check its path.") from None


def _unreadable(path: Path, reason: object) -> ModelError:
    return ModelError(f"{path} cannot be read as an ONNX file ({reason_of(reason)}): export it again.")


def _tensors(model: Any) -> list[Any]:
    """Return the stored tensors of a file: weights, and those that are attributes of nodes."""
    attributes = [attribute.t for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")]
    return [*model.graph.initializer, *attributes]


def _check_weights(model: Any, path: Path) -> None:
    """Check the number of weights, their types and where they are, before any is read."""
    tensors = _tensors(model)
    if model.graph.sparse_initializer:
        raise ModelError(
            f"the ONNX file {path} has sparse weights, which are not supported: export it with dense ones."
        )
    if any(side < 0 for tensor in tensors for side in tensor.dims):
        raise _unreadable(path, "a side of its weights is negative")
    count = sum(math.prod(tensor.dims) for tensor in tensors)
    if count > MOST_WEIGHTS:
        raise ModelError(f"the ONNX file {path} has {count:,} weights, more than the {MOST_WEIGHTS:,} allowed.")
    for tensor in tensors:
        if tensor.data_type not in (*FLOATS, *INTEGERS, BOOLEAN):
            raise ModelError(
                f"the weights {tensor.name[:100]!r} of {path} are stored as type {tensor.data_type}, which is not "
                f"supported: {', '.join((*FLOATS.values(), *INTEGERS.values()))} and bool are."
            )
        if tensor.data_location == EXTERNAL:
            place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            beside = path.parent / place
            if not place or Path(place).name != place or beside.is_symlink() or not beside.is_file():
                raise ModelError(
                    f"the weights of {path} are in {shortened(place)}, which is no file in the same folder: put it "
                    "there, or export the network with its weights in one file."
                )


def _network(onnx: Any, model: Any, path: Path, digest: bytes) -> OnnxNetwork:
    graph = model.graph
    opset = next((entry.version for entry in model.opset_import if entry.domain in DOMAINS), 0)
    if opset not in OPSETS:
        raise ModelError(
            f"the ONNX file {path} is of opset {opset}, but {OPSETS[0]} to {OPSETS[-1]} are supported: export it with "
            "another opset_version."
        )
    folder = os.fspath(path.parent)
    constants = {tensor.name: _stored(onnx, tensor, folder) for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        attributes = {attribute.name: _attribute(onnx, attribute, node, folder) for attribute in node.attribute}
        if node.op_type == "Constant" and node.domain in DOMAINS:
            constants[node.output[0]] = _constant(attributes)
        elif node.op_type == "Identity" and node.input[0] in constants and node.domain in DOMAINS:
            constants[node.output[0]] = constants[node.input[0]]
        else:
            nodes.append((node, attributes))
    entry, sides = _input(graph, constants)
    result = graph.output[0].name
    needed, kept = {result}, []
    for node, attributes in reversed(nodes):
        if needed.isdisjoint(node.output):
            continue
        _check_operator(node, attributes)
        if node.op_type == "Split":
            attributes["outputs"] = len(node.output)
        elif not needed.isdisjoint(node.output[1:]):
            raise ModelError(f"the operator {node.op_type} is asked for a second output, which is not supported.")
        needed.update(node.input)
        kept.append(OnnxNode(node.op_type, attributes, node.input, node.output))
    if entry not in needed:
        raise ModelError(f"the first output of {path} does not depend on its input.")
    return OnnxNetwork(
        nodes=reversed(kept),
        constants={name: value for name, value in constants.items() if name in needed},
        entry=entry,
        result=result,
        sides=sides,
        opset=opset,
        digest=digest,
    )


def _check_operator(node: Any, attributes: Mapping[str, Any]) -> None:
    name = node.op_type if node.domain in DOMAINS else f"{node.domain}::{node.op_type}"
    if name not in OPERATORS:
        raise ModelError(
            f"the operator {name[:100]!r} is not supported: {', '.join(sorted(OPERATORS))}, Constant are.",
        )
    known = WITHOUT_EFFECT.union(inspect.signature(OPERATORS[name]).parameters)
    known.update(WINDOW if "window" in known else ())
    for attribute in attributes:
        if attribute not in known:
            raise ModelError(f"the attribute {attribute[:100]!r} of the operator {name} is not supported.")


def _input(graph: Any, constants: Mapping[str, Tensor]) -> tuple[str, tuple[int | None, ...]]:
    """Return the name of the input of a graph and its shape (N, C, *axes), None for sides that are not fixed."""
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise ModelError(f"the network takes {len(inputs)} inputs, but one is needed, the images.")
    stated = inputs[0].type.tensor_type
    if stated.elem_type not in FLOATS:
        raise ModelError(
            "the images that the network takes are not floating-point numbers: export it without the conversion."
        )
    sides = tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in stated.shape.dim)
    if len(sides) - 2 not in AXES:
        raise ModelError(
            f"the input of the network has {len(sides)} axes {by(sides)}, but it needs images, channels and one to "
            "three axes."
        )
    if sides[0] not in (None, 1):
        raise ModelError(
            f"the network takes {sides[0]} images at a time: export it with a dynamic batch axis, or for one image."
        )
    return inputs[0].name, sides


def _attribute(onnx: Any, attribute: Any, node: Any, folder: str) -> Any:
    """Return the value of an attribute of a node."""
    value = onnx.helper.get_attribute_value(attribute)
    kinds = onnx.AttributeProto
    if attribute.type == kinds.FLOAT:
        return _decimal(value)
    if attribute.type == kinds.FLOATS:
        return [_decimal(number) for number in value]
    if attribute.type == kinds.STRING:
        return value.decode("utf-8", "replace")
    if attribute.type == kinds.TENSOR:
        return _stored(onnx, value, folder)
    if attribute.type in (kinds.INT, kinds.INTS):
        return list(value) if attribute.type == kinds.INTS else value
    raise ModelError(f"the attribute {attribute.name[:100]!r} of the operator {node.op_type[:100]} is not supported.")


def _decimal(value: float) -> float:
    """Return the number that was rounded to float32 in the file: 0.01 for 0.009999999776."""
    return float(str(np.float32(value)))


def _constant(attributes: Mapping[str, Any]) -> Tensor:
    (value,) = attributes.values()
    if isinstance(value, Tensor):
        return value
    if isinstance(value, str):
        raise ModelError("a constant that is a text is not supported.")
    number = torch.tensor(value)
    return number.double() if number.is_floating_point() else number


def _stored(onnx: Any, tensor: Any, folder: str) -> Tensor:
    """Return a stored tensor: floating-point numbers as they are stored, others as 64-bit whole numbers or booleans."""
    values = np.asarray(onnx.numpy_helper.to_array(tensor, base_dir=folder))
    if tensor.data_type in INTEGERS:
        values = values.astype(np.int64)
    elif tensor.data_type in FLOATS and values.dtype not in (np.float16, np.float64):
        values = values.astype(np.float32)
    return torch.from_numpy(np.array(values, order="C"))
