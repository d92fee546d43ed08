"""Networks in ONNX files: against the modules they were exported from and onnxruntime, and files that are refused."""

from __future__ import annotations

import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attentest import AttentionTest
from attentest.attention import CAM, GradCAM, InputGradient, Residual, Segmentation
from attentest.attention import onnx_model as reading
from attentest.attention.onnx_model import load_onnx
from attentest.attention.onnx_operators import OPERATORS
from attentest.errors import AttentestError, InputError, ModelError
from command_line import Done, run_main

onnx = pytest.importorskip("onnx")
helper, TensorProto = onnx.helper, onnx.TensorProto

SHAPE = (1, 12, 12)


class Block(nn.Module):
    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(wider)
        self.second = nn.Conv2d(wider, wider, 3, 1, 1)
        self.skip = nn.Conv2d(channels, wider, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.norm(self.first(x)))) + self.skip(x))


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 4, 3, 1, 1), nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = Block(4, 4, 1), Block(4, 6, 2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.pool(functional.relu(self.conv(x)))))
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class SmallUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        self.up, self.wide = nn.ConvTranspose2d(4, 3, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.out = nn.Conv2d(10, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = functional.leaky_relu(self.down(x), 0.01)
        coarse = functional.relu(self.deep(functional.max_pool2d(fine, 2)))
        return self.out(torch.cat([fine, self.up(coarse), self.wide(coarse)], dim=1))


class SmallViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.token = nn.Conv2d(1, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 10, 8))
        self.before, self.after = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mixed, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        count, tokens, width = x.shape
        parts = self.mixed(self.before(x)).reshape(count, tokens, 3, 2, 4).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts.unbind(0))
        x = x + self.out(attended.transpose(1, 2).reshape(count, tokens, width))
        return self.head((x + self.mlp(self.after(x)))[:, 0])


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 3, 3, 2, 1), nn.ConvTranspose2d(3, 1, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(functional.relu(self.down(x)))


NETWORKS: dict[str, type[nn.Module]] = {"resnet": SmallResNet, "unet": SmallUNet, "vit": SmallViT}


def network(kind: type[nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind().eval().to(dtype)


def export(module: nn.Module, path: Path, dynamo: bool = False, batch: bool = True) -> Path:
    """Write a module with torch's own exporter, for any number of images or for one."""
    dtype = next(module.parameters()).dtype
    options: dict[str, Any] = {"dynamic_axes": {"image": {0: "images"}} if batch else None}
    if dynamo:
        pytest.importorskip("onnxscript")
        options = {"dynamic_shapes": ({0: torch.export.Dim("images")},) if batch else None, "verbose": False}
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            images = torch.zeros(2 if dynamo and batch else 1, *SHAPE, dtype=dtype)
            torch.onnx.export(module, (images,), path, dynamo=dynamo, input_names=["image"], **options)
    finally:
        logging.disable(disabled)
    return path


def images(count: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(count, *shape)))


@torch.no_grad()
@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_the_module_does(name: str, batch: bool, tmp_path: Path) -> None:
    module = network(NETWORKS[name])
    read = load_onnx(export(module, tmp_path / "model.onnx", batch=batch))
    read.check(read.shape_for(None, None))
    np.testing.assert_allclose(read(images(5)), module(images(5)), rtol=0, atol=1e-12)
    assert torch.equal(pickle.loads(pickle.dumps(read))(images(2)), read(images(2)))  # noqa: S301  # our own


@torch.no_grad()
@pytest.mark.parametrize(("name", "batch"), [("resnet", False), ("unet", True), ("vit", False)])
def test_of_the_newer_exporter_with_its_weights_in_another_file(name: str, batch: bool, tmp_path: Path) -> None:
    module = network(NETWORKS[name])
    path = export(module, tmp_path / "model.onnx", dynamo=True, batch=batch)
    assert (tmp_path / "model.onnx.data").exists()
    read = load_onnx(path)
    read.check(read.shape_for(None, None))
    np.testing.assert_allclose(read(images(5)), module(images(5)), rtol=0, atol=1e-12)
    (tmp_path / "model.onnx.data").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"'model.onnx.data', which is no file in the same folder: put it there"):
        load_onnx(path)


@torch.no_grad()
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = export(network(NETWORKS[name], torch.float32), tmp_path / "model.onnx")
    values = images(3).float()
    (expected,) = runtime.InferenceSession(path).run(None, {"image": values.numpy()})
    np.testing.assert_allclose(load_onnx(path)(values.double()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "here", "there"),
    [
        ("resnet", GradCAM("layer2", target=1), GradCAM("/layer2/Relu_1_output_0", target=1)),
        ("resnet", CAM("predicted"), CAM("predicted")),
        ("resnet", InputGradient(target="predicted", per="pixel"), InputGradient(target="predicted")),
        ("unet", Segmentation(1), Segmentation(1)),
        ("vit", GradCAM("embed", target=0), GradCAM("/embed/Conv_output_0", target=0)),
    ],
)
def test_p_is_that_of_the_module(name: str, here: Any, there: Any, tmp_path: Path) -> None:
    module = network(NETWORKS[name])
    path = export(module, tmp_path / "model.onnx")
    image = images(1)[0].numpy()[0]
    expected = AttentionTest(
        module, image_shape=SHAPE, attention=here, noise=1.0, threshold=0.5, confidence_level=None
    )(image)
    result = AttentionTest.from_onnx(path, attention=there, noise=1.0, threshold=0.5, confidence_level=None)(image)
    assert result.pvalue == pytest.approx(expected.pvalue, abs=1e-10)
    assert result.settings["model"]["type"] == "OnnxNetwork"
    assert np.array_equal(result.region, expected.region)


def test_the_digest_tells_networks_of_the_same_weights_apart(tmp_path: Path) -> None:
    def digest(kind: str) -> str | None:
        path = save(tmp_path, [helper.make_node(kind, ["x", "w"], ["y"])], weights={"w": np.ones((1, 1, 1, 1))})
        return AttentionTest.from_onnx(path, attention=Residual(), noise=1.0).model_sha256

    assert digest("Add") != digest("Mul")


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "image.npy", images(1)[0, 0].numpy())
    export(network(SmallResNet), tmp_path / "classes.onnx")
    export(network(SmallUNet), tmp_path / "pixels.onnx")
    export(network(Autoencoder), tmp_path / "same.onnx")

    def tested(model: str, *options: str) -> Done:
        return run_main(
            capsys,
            "test",
            str(tmp_path / "image.npy"),
            "--noise",
            "1",
            "--model",
            str(tmp_path / model),
            "--no-interval",
            *options,
        )

    for model, *options in (
        ("classes.onnx", "--map", "cam", "--class", "1"),
        ("pixels.onnx", "--map", "segmentation", "--class", "1"),
        ("same.onnx", "--map", "residual"),
    ):
        done = tested(model, *options)
        assert done.code == 0, done.err
    refused = tested("classes.onnx")
    assert refused.code == 2
    listed = "grad-cam, hires-cam, cam, input-gradient, integrated-gradients, segmentation and residual"
    assert listed in " ".join(refused.err.split())


def save(
    folder: Path,
    nodes: list[Any],
    weights: dict[str, np.ndarray] | None = None,
    sides: tuple[Any, ...] = ("m", *SHAPE),
    opset: int = 18,
    kind: int | None = None,
) -> Path:
    """Write a file of some nodes from x to y."""
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    kind = TensorProto.DOUBLE if kind is None else kind
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, sides)],
        [helper.make_tensor_value_info("y", kind, None)],
        stored,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("their.own", 1)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    if not model.graph.output[0].type.tensor_type.HasField("shape"):  # where it cannot be inferred, any will do
        model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


RNG = np.random.default_rng(1)


def chosen(kind: str, *inputs: Any, shape: tuple[int, ...] = (4, 6, 6), opset: int = 18, **attributes: Any) -> Any:
    return pytest.param(kind, inputs, shape, opset, attributes, id=f"{kind} {opset} {attributes}")


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


UNARY = (
    *("Abs", "Ceil", "Cos", "Dropout", "Elu", "Erf", "Exp", "Floor", "GlobalAveragePool", "GlobalMaxPool"),
    *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu"),
    *("Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Softsign", "Tanh", "Transpose"),
)

SINGLE = [
    *map(chosen, UNARY),
    *(chosen(kind, weights(4, 1, 1)) for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Sum")),
    *(chosen(kind, axis=1, opset=opset) for kind in ("Softmax", "LogSoftmax") for opset in (11, 18)),
    *(chosen(kind, numbers(2, 3)) for kind in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSum")),
    chosen("ReduceMean", axes=[1], keepdims=0, opset=13),
    chosen("Gelu", opset=20),
    chosen("Gelu", opset=20, approximate="tanh"),
    chosen("Clip", np.float32(-0.5), np.float32(0.7)),
    chosen("Clip", min=-0.5, max=0.7, opset=9),
    chosen("Conv", weights(5, 4, 3, 3), weights(5), pads=[1, 0, 2, 1], strides=[2, 1]),
    chosen("Conv", weights(4, 1, 2, 3), group=4, auto_pad="SAME_UPPER", strides=[2, 2]),
    chosen("Conv", weights(2, 4, 4), shape=(4, 9), auto_pad="SAME_LOWER"),
    chosen("Conv", weights(2, 4, 3), shape=(4, 9), dilations=[2]),
    chosen("Conv", weights(2, 3, 2, 2, 2), shape=(3, 4, 5, 4)),
    chosen("ConvTranspose", weights(4, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    chosen("ConvTranspose", weights(4, 3, 3, 3), strides=[2, 2], pads=[0, 1, 1, 2]),
    chosen("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    chosen("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    chosen("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    chosen("AveragePool", kernel_shape=[2, 2], pads=[0, 1, 1, 0]),
    chosen("AveragePool", kernel_shape=[2, 2], pads=[0, 1, 1, 0], count_include_pad=1),
    chosen("BatchNormalization", weights(4), weights(4), weights(4), weights(4) ** 2),
    chosen("InstanceNormalization", weights(4), weights(4)),
    chosen("LayerNormalization", weights(6), weights(6)),
    chosen("LayerNormalization", weights(6, 6), axis=2),
    chosen("GroupNormalization", weights(4), weights(4), num_groups=2, opset=21),
    chosen("MatMul", weights(6, 3)),
    chosen("Einsum", equation="bchw->bhc"),
    chosen("Flatten", axis=2),
    chosen("Reshape", numbers(0, -1, 12)),
    chosen("Slice", numbers(-1, 0), numbers(-9, 5), numbers(2, 3), numbers(-2, 2)),
    chosen("Slice", starts=[1], ends=[3], axes=[1], opset=9),
    chosen("Squeeze", numbers(1), shape=(1, 6, 6)),
    chosen("Unsqueeze", numbers(1, -1)),
    chosen("Gather", np.array([[0, -1], [2, 1]]), axis=2),
    chosen("Expand", numbers(1, 4, 3, 6), shape=(4, 1, 6)),
    chosen("Tile", numbers(1, 2, 1, 3)),
    chosen("Pad", numbers(0, 0, 1, 2, 0, 0, 0, 1), np.float32(0.5)),
    chosen("Pad", numbers(0, 0, 1, 2, 0, 0, 0, 1), mode="reflect"),
    chosen("Pad", numbers(0, 0, 1, 2, 0, 0, 0, 1), mode="edge"),
    chosen("DepthToSpace", blocksize=2),
    chosen("DepthToSpace", blocksize=2, mode="CRD"),
    chosen("SpaceToDepth", blocksize=2),
    chosen("Upsample", np.float32([1, 1, 2, 3]), opset=9),
    *(
        chosen("Resize", None, np.float32([1, 1, 2.5, 0.5]), mode=mode, coordinate_transformation_mode=rule)
        for mode in ("nearest", "linear", "cubic")
        for rule in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    ),
    chosen("Resize", None, None, numbers(2, 4, 9, 4), mode="linear"),
    chosen("Resize", None, np.float32([1, 1, 2, 2]), mode="nearest", nearest_mode="floor"),
    chosen("Resize", None, np.float32([1, 1, 2, 2]), mode="cubic", cubic_coeff_a=-0.5),
    chosen("ScatterND", np.array([[0, 1], [1, 3]]), weights(2, 6, 6)),
    chosen("ScatterND", np.array([[0, 1], [0, 1]]), weights(2, 6, 6), reduction="add"),
    chosen("Attention", weights(2, 4, 7, 6), weights(2, 4, 7, 5), opset=23),
    chosen("Attention", weights(2, 2, 6, 6), weights(2, 2, 6, 5), weights(6, 6), opset=23, is_causal=1, scale=0.3),
    chosen("Attention", weights(2, 6, 4), weights(2, 6, 8), shape=(6, 8), opset=23, q_num_heads=4, kv_num_heads=2),
    chosen("Attention", weights(2, 4, 6, 6), weights(2, 4, 6, 6), weights(6, 6) > -1, opset=23),
]  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize(("kind", "inputs", "shape", "opset", "attributes"), SINGLE)
def test_each_operator_computes_what_onnxruntime_does(
    kind: str, inputs: Any, shape: tuple[int, ...], opset: int, attributes: Any, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    names = [f"w{place}" if value is not None else "" for place, value in enumerate(inputs)]
    stored = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
    path = save(tmp_path, [node], stored, ("m", *shape), opset, TensorProto.FLOAT)
    values = images(2, shape).float()
    (expected,) = runtime.InferenceSession(path).run(None, {"x": values.numpy()})
    result = load_onnx(path)(values.double())
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_shapes_are_computed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["count"]),
        helper.make_node("Concat", ["count", "rest"], ["wanted"], axis=0),
        helper.make_node("ConstantOfShape", ["wanted"], ["ones"], value=onnx.numpy_helper.from_array(np.ones(1))),
        helper.make_node("Split", ["x", "sizes"], ["top", "bottom"], axis=2),
        helper.make_node("Greater", ["top", "limit"], ["high"]),
        helper.make_node("Where", ["high", "bottom", "top"], ["some"]),
        helper.make_node("Concat", ["some", "ones"], ["y"], axis=2),
    ]
    stored = {"zero": numbers(0), "rest": numbers(1, 1, 12), "sizes": numbers(6, 6), "limit": np.array(0.5)}
    read = load_onnx(save(tmp_path, nodes, stored))
    read.check(SHAPE)
    top, bottom = images(3).split(6, dim=2)
    expected = torch.cat([torch.where(top > 0.5, bottom, top), torch.ones(3, 1, 1, 12)], dim=2)
    assert torch.equal(read(images(3)), expected)


def test_products_with_factors() -> None:
    a, b, c = images(1)[0, 0, :2, :7], images(1)[0, 0, :5, :7], images(1)[0, 0, 0, :5]
    result = OPERATORS["Gemm"](a, b, c, alpha=0.5, beta=2.0, transB=1)
    np.testing.assert_allclose(result, 0.5 * a @ b.T + 2 * c, rtol=1e-13)


RELU = [helper.make_node("Relu", ["x"], ["y"])]


class TestRefused:
    """One sentence each."""

    def refused(self, path: Any, sentence: str, error: type[AttentestError] = ModelError, **options: Any) -> None:
        with pytest.raises(error, match=sentence) as caught:
            AttentionTest.from_onnx(path, noise=1.0, **{"attention": Residual(), **options})
        assert "\n" not in str(caught.value)

    def test_what_is_no_file_of_the_format(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused(tmp_path, "is a directory: give the path of an ONNX file")
        self.refused(tmp_path / "none.onnx", r"cannot be read \(No such file or directory\): check its path")
        self.refused(3, "must be given as a path, got int")
        path = tmp_path / "model.onnx"
        for content, sentence in (
            (b"", "is empty: export it again"),
            (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "cannot be read as an ONNX file"),
            (b"not a network", "cannot be read as an ONNX file"),
            (save(tmp_path, RELU).read_bytes()[:-20], "cannot be read as an ONNX file"),
        ):
            path.write_bytes(content)
            self.refused(path, sentence)
        save(tmp_path, RELU)
        monkeypatch.setattr(reading, "LARGEST_FILE", 10)
        self.refused(path, r"bytes, more than the 10 allowed: export it with its weights in a file of their own")

    def test_operators_and_opsets(self, tmp_path: Path) -> None:
        self.refused(
            save(tmp_path, [helper.make_node("Det", ["x"], ["y"])]), "the operator 'Det' is not supported: Abs"
        )
        theirs = helper.make_node("Relu", ["x"], ["y"], domain="their.own")
        self.refused(save(tmp_path, [theirs]), "the operator 'their.own::Relu' is not supported")
        self.refused(save(tmp_path, RELU, opset=7), "is of opset 7, but 9 to 24 are supported")
        cubic = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic", exclude_outside=1)
        stored = {"s": np.float32([1, 1, 2, 2])}
        self.refused(save(tmp_path, [cubic], stored), r"the operator Resize \(output 'y'\) has mode 'cubic'")
        both = helper.make_node("MaxPool", ["x"], ["z", "places"], kernel_shape=[1, 1])
        used = helper.make_node("Cast", ["places"], ["y"], to=11)
        self.refused(save(tmp_path, [both, used]), "MaxPool is asked for a second output")

    @pytest.mark.parametrize(
        ("sides", "sentence"),
        [
            ((4, *SHAPE), "takes 4 images at a time: export it with a dynamic batch axis"),
            (("m", 12), "has 2 axes any x 12, but it needs images, channels and one to three axes"),
            (("m", 1, 2, 2, 2, 2), "has 6 axes"),
        ],
    )
    def test_inputs(self, sides: tuple[Any, ...], sentence: str, tmp_path: Path) -> None:
        self.refused(save(tmp_path, RELU, sides=sides), sentence)

    def test_shapes(self, tmp_path: Path) -> None:
        path = save(tmp_path, RELU, sides=("m", 1, "h", 12))
        self.refused(path, "leaves the shape 1 x any x 12 of its images open: give image_shape", InputError)
        self.refused(
            path, "image_shape is 1 x 8 x 8, but the network takes images of", InputError, image_shape=(1, 8, 8)
        )
        reshaped = [helper.make_node("Reshape", ["x", "s"], ["y"])]
        self.refused(save(tmp_path, reshaped, {"s": numbers(0, 5)}), r"fails on an image of shape \(1, 12, 12\)")
        together = save(
            tmp_path, [helper.make_node("ReduceMax", ["x"], ["z"]), helper.make_node("Add", ["x", "z"], ["y"])]
        )
        self.refused(together, "computes an image otherwise when there are several")

    def test_sizes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tiled = [helper.make_node("Tile", ["x", "times"], ["y"])]
        huge = save(tmp_path, tiled, {"times": numbers(1, 1, 2**20, 2**20)})
        self.refused(huge, r"the operator Tile \(output 'y'\) has 158,329,674,399,744 values")
        filled = [helper.make_node("ConstantOfShape", ["s"], ["z"]), helper.make_node("Add", ["x", "z"], ["y"])]
        self.refused(save(tmp_path, filled, {"s": numbers(2**20, 2**20)}), "ConstantOfShape .* has a tensor of")
        added = [helper.make_node("Add", ["x", "w"], ["y"])]
        path = save(tmp_path, added, {"w": np.ones((12, 12))})
        monkeypatch.setattr(reading, "MOST_WEIGHTS", 100)
        self.refused(path, "has 144 weights, more than the 100 allowed")

    @pytest.mark.parametrize("place", ["../weights", "/etc/hostname", "folder/weights", "link", ""])
    def test_weights_in_other_folders(self, place: str, tmp_path: Path) -> None:
        folder = tmp_path / "model"
        (folder / "folder").mkdir(parents=True)
        for name in ("weights", "model/folder/weights"):
            (tmp_path / name).write_bytes(bytes(8 * 144))
        (folder / "link").symlink_to(tmp_path / "weights")
        path = save(folder, [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones((12, 12))})
        model = onnx.load(path)
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
        path.write_bytes(model.SerializeToString())
        self.refused(path, "which is no file in the same folder")

    def test_maps_that_it_does_not_have(self, tmp_path: Path) -> None:
        path = save(tmp_path, [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones((12, 12))})
        for attention in ("rollout", "last-layer", "gradient-rollout"):
            self.refused(path, "the maps of such networks are grad-cam, hires-cam, ", attention=attention)


def test_every_operator_is_one_of_the_format() -> None:
    assert [name for name in OPERATORS if not onnx.defs.has(name)] == []
