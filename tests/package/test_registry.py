"""The registries: every part can be loaded, and a new part is one line in a registry and nothing else."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

import attentest
from attentest import registry
from attentest.attention.aggregation import Aggregation
from attentest.attention.encoder import ModelLibrary
from attentest.attention.relevance import OutputMap, Relevance
from attentest.contrast import Background, Contrast, Filtered
from attentest.errors import InputError
from attentest.images.image_file import read_image
from attentest.noise import FromImage, Isotropic, NoiseEstimator, NoiseModel, PooledVariance, load_noise, save_noise
from attentest.noise.model import BaseNoise, FloatArray
from attentest.noise.noise_file import JsonFormat
from attentest.region.patch_grid import PatchAxis
from attentest.registry import ImageFormat, Part, Registry
from attentest.runs.engine import Engine, as_engine
from attentest.search import Search, SpectralSearch, as_search

REGISTRIES = {name: value for name, value in vars(registry).items() if isinstance(value, Registry)}

IMAGE = np.random.default_rng(0).normal(size=(1, 8, 8))

ARGUMENT = "2"
"""An argument that every part takes which takes one."""


def spelled(name: str, part: Part) -> str:
    return f"{name}:{ARGUMENT}" if part.argument else name


def test_every_kind_of_part_is_tested_below() -> None:
    assert set(REGISTRIES) == {
        "ATTENTION_MAPS",
        "COMPARISONS",
        "CONTRASTS",
        "ENGINES",
        "FILTERS",
        "IMAGE_FORMATS",
        "IMAGE_NOISE",
        "MODEL_LIBRARIES",
        "NOISE_ESTIMATORS",
        "NOISE_FORMATS",
        "NOISE_MODELS",
        "REGION_UNITS",
        "SEARCHES",
    }


@pytest.mark.parametrize("name", registry.SEARCHES)
def test_searches(name: str) -> None:
    assert isinstance(as_search(name), Search)


@pytest.mark.parametrize("name", registry.COMPARISONS)
def test_comparisons(name: str) -> None:
    assert list(inspect.signature(registry.COMPARISONS.load(name)).parameters) == ["workload"]
    assert registry.COMPARISONS[name].summary


@pytest.mark.parametrize("name", registry.ENGINES)
def test_engines(name: str) -> None:
    assert isinstance(as_engine(name), Engine)


def test_what_is_no_engine() -> None:
    with pytest.raises(InputError, match="engine must be local, processes or ray, got 'spark'"):
        as_engine("spark")
    with pytest.raises(InputError, match=r"a name or an engine such as ProcessEngine\(workers=4\), got 3"):
        as_engine(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", registry.ATTENTION_MAPS)
def test_attention_maps(name: str) -> None:
    part = registry.ATTENTION_MAPS[name]
    values = {"head_fusion": "max", "target": 3, "sign": "signed", "layer": "layer4"}
    chosen = {parameter: values[parameter] for parameter in part.takes}
    made = registry.ATTENTION_MAPS.create(spelled(name, part), **chosen)
    kind = Relevance if part.transformers or "sign" in chosen else OutputMap
    assert isinstance(made, Aggregation if "head_fusion" in chosen else kind)
    assert {parameter: getattr(made, parameter) for parameter in chosen} == chosen


@pytest.mark.parametrize("name", registry.REGION_UNITS)
def test_units_of_regions(name: str) -> None:
    axis = PatchAxis.of(9, 4, 8.0, 0.0, 1.0, 0.0, registry.REGION_UNITS.load(name))
    assert len(axis.unit) == axis.stop - axis.start == 8
    assert len(axis.cell) == len(axis.matrix) == int(axis.unit.max()) + 1


@pytest.mark.parametrize("name", registry.CONTRASTS)
def test_contrasts(name: str) -> None:
    assert isinstance(registry.CONTRASTS.create(spelled(name, registry.CONTRASTS[name])), Contrast)


@pytest.mark.parametrize("name", registry.FILTERS)
def test_filters(name: str) -> None:
    text = spelled(name, registry.FILTERS[name])
    kernel = registry.FILTERS.create(text)
    assert (kernel.ndim, kernel.dtype) == (2, np.float64)
    assert Filtered(text).describe()["kernel"] == text


@pytest.mark.parametrize("name", registry.NOISE_MODELS)
def test_noise_models_save_every_argument_of_their_constructor(name: str) -> None:
    model = registry.NOISE_MODELS.load(name)
    assert issubclass(model, BaseNoise)
    assert model.name == name
    assert list(model.parameters) == list(inspect.signature(model).parameters)
    for method in ("apply", "sample", "describe"):
        assert callable(getattr(model, method))


@pytest.mark.parametrize("suffix", registry.NOISE_FORMATS)
def test_noise_formats(suffix: str, tmp_path: Path) -> None:
    assert registry.NOISE_FORMATS.load(suffix).largest_file > 0
    save_noise(2.0, tmp_path / f"noise{suffix}")
    assert load_noise(tmp_path / f"noise{suffix}") == Isotropic(2.0)


@pytest.mark.parametrize("name", registry.NOISE_ESTIMATORS)
def test_noise_estimators(name: str) -> None:
    images = np.random.default_rng(1).normal(size=(12, 3, 3))
    fitted = registry.NOISE_ESTIMATORS.load(name)().fit(images)
    assert isinstance(fitted, NoiseEstimator)
    assert isinstance(fitted.noise_, NoiseModel)


@pytest.mark.parametrize("name", registry.IMAGE_NOISE)
def test_noise_from_the_image(name: str) -> None:
    assert isinstance(FromImage(name).for_image(IMAGE), NoiseModel)
    assert registry.IMAGE_NOISE.load(name)(IMAGE).shape == (1, 1)


@pytest.mark.parametrize("name", registry.IMAGE_FORMATS)
def test_image_formats(name: str) -> None:
    parameters = list(inspect.signature(registry.IMAGE_FORMATS.load(name)).parameters)
    known = registry.IMAGE_FORMATS[name]
    assert len(parameters) == 2 + known.has_window + (len(known.dimensions) > 1)  # path, frame, window and dimension


@pytest.mark.parametrize("name", registry.MODEL_LIBRARIES)
def test_model_libraries(name: str) -> None:
    assert isinstance(registry.MODEL_LIBRARIES.load(name), ModelLibrary)


def test_a_registry_lists_parses_and_refuses_names() -> None:
    kinds = Registry("kind", {"plain": Part("errors:InputError", "it is plain"), "round": Part("x:y", argument="K")})
    assert kinds.choices() == "plain or round:K"
    assert kinds.choices("a file") == "plain, round:K or a file"
    assert Registry("kind", {"only": Part("x:y")}).choices() == "only"
    assert kinds.help() == "plain (it is plain); round:K"
    assert isinstance(kinds.create("plain"), InputError)
    for text in ("none", "plain:3", "round", ""):
        with pytest.raises(InputError, match=f"^--kind must be plain, round:K or a file, got '{text}'.$"):
            kinds.create(text, "--kind", "a file")
    with pytest.raises(InputError, match=r"^kind must be plain or round:K, got 3\.$"):
        kinds.load(3)
    whole = Registry("kind", {"layer": Part("attention.aggregation:LayerAttention", argument="K", argument_type=int)})
    assert whole.create("layer:-2").layer == -2
    with pytest.raises(InputError, match=r"^kind layer:K needs a whole number after the colon, got '1\.5'"):
        whole.create("layer:1.5")


def help_text(app: Any, *command: str) -> str:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "250"}).stdout
    return " ".join(re.sub("[│╭╰─╮╯]", " ", shown).split())


SHOWN = {
    "ATTENTION_MAPS": ("test",),
    "CONTRASTS": ("calibrate",),
    "FILTERS": ("test",),
    "IMAGE_NOISE": ("test",),
    "NOISE_ESTIMATORS": ("noise", "fit"),
    "NOISE_FORMATS": ("noise", "fit"),
    "SEARCHES": ("demo",),
}
"""Commands whose help lists the parts of a registry; noise models are only named in files."""


@pytest.mark.parametrize(("name", "command"), SHOWN.items())
def test_the_help_lists_the_registry(name: str, command: tuple[str, ...]) -> None:
    from attentest.cli import app

    assert f"{REGISTRIES[name].help()}" in help_text(app, *command)


@dataclass(frozen=True)
class Striped(BaseNoise):
    """A new noise model: independent noise of two standard deviations in turn."""

    name: ClassVar = "striped"
    parameters: ClassVar = {"sigmas": np.ndarray, "base": NoiseModel}

    sigmas: Any
    base: Any

    size: ClassVar = None

    def apply(self, v: FloatArray) -> FloatArray:
        return np.resize(np.square(self.sigmas), v.shape[-1]) * v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        return self.base.sample(rng, k, n) * np.resize(self.sigmas, n or 1)

    def describe(self) -> dict[str, Any]:
        return {"model": "striped"}


class PickyVariance(PooledVariance):
    """A new estimator."""


class Reversed(Background):
    """A new contrast with an argument."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def describe(self) -> dict[str, Any]:
        return {"name": "reversed", "strength": self.strength}


class IndentedFormat(JsonFormat):
    """A new format of noise files."""

    def encode(self, tree: dict[str, Any]) -> bytes:
        return b"\n\n" + super().encode(tree)


def quick_search() -> SpectralSearch:
    return SpectralSearch(tol=0.5)


def box() -> FloatArray:
    return np.ones((3, 3))


def range_covariance(pixels: FloatArray) -> FloatArray:
    return np.full((1, 1), np.ptp(pixels) ** 2)


NEW = {
    "ATTENTION_MAPS": ("first-layer", "FirstLayer", ""),
    "CONTRASTS": ("reversed", "Reversed", "STRENGTH"),
    "FILTERS": ("box", "box", ""),
    "IMAGE_NOISE": ("range", "range_covariance", ""),
    "NOISE_ESTIMATORS": ("picky", "PickyVariance", ""),
    "NOISE_FORMATS": (".noise", "IndentedFormat", ""),
    "NOISE_MODELS": ("striped", "Striped", ""),
    "SEARCHES": ("quick", "quick_search", ""),
}
"""A new part of each kind: its name, what defines it here, and its argument."""


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register a new part of each kind, defined in a new module, and return the command line that starts then."""
    from attentest.attention import LayerAttention

    module = ModuleType("attentest.new_parts")
    module.FirstLayer = lambda head_fusion="mean": LayerAttention(0, head_fusion)  # type: ignore[attr-defined]
    for _, attribute, _ in NEW.values():
        if attribute in globals():
            setattr(module, attribute, globals()[attribute])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, (part, attribute, argument) in NEW.items():
        line = Part(f"new_parts:{attribute}", f"the new {part}", argument)
        monkeypatch.setitem(REGISTRIES[name], part, line)
    import attentest.cli

    monkeypatch.setattr(attentest, "cli", attentest.cli)
    for loaded in [name for name in sys.modules if name.startswith("attentest.cli")]:
        monkeypatch.delitem(sys.modules, loaded)
    from attentest.cli import app

    return app


def test_a_new_part_is_in_the_library(extended: Any, tmp_path: Path) -> None:
    assert as_search("quick") == quick_search()
    assert Filtered("box").describe()["kernel"] == "box"
    assert FromImage("range").describe()["method"] == "range"
    with pytest.raises(InputError, match="piecewise, adaptive, fixed, combination or quick, got 'slow'"):
        as_search("slow")
    with pytest.raises(InputError, match="method must be sample, wavelet or range, got 'none'"):
        FromImage("none")
    with pytest.raises(InputError, match=r"kernel must be .* gaussian:SIGMA, box or an array \(h, w\), got 'none'"):
        Filtered("none")


def read_raw(path: Path, frame: int | None) -> FloatArray:
    return np.fromfile(path).reshape(2, -1)


def test_a_new_image_format_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("attentest.new_format")
    module.read_raw = read_raw  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    line = ImageFormat("new_format:read_raw", suffixes=(".raw",))
    monkeypatch.setitem(registry.IMAGE_FORMATS, "raw", line)
    np.arange(6.0).tofile(tmp_path / "scan.raw")
    assert read_image(tmp_path / "scan.raw").tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(InputError, match="NIfTI or raw"):
        read_image(tmp_path / "text.png")


def test_a_new_noise_model_and_a_new_format_are_saved_and_loaded(extended: Any, tmp_path: Path) -> None:
    model = Striped(np.array([1.0, 2.0]), Isotropic(1.0))
    for suffix in registry.NOISE_FORMATS:
        save_noise(model, tmp_path / f"noise{suffix}")
        loaded = load_noise(tmp_path / f"noise{suffix}")
        assert isinstance(loaded, Striped)
        assert loaded.base == Isotropic(1.0)
        assert np.array_equal(loaded.sigmas, [1.0, 2.0])
    assert (tmp_path / "noise.noise").read_bytes().startswith(b"\n\n")
    with pytest.raises(InputError, match=r"must end in .json, .safetensors or .noise, got"):
        save_noise(1.0, tmp_path / "noise.txt")
    (tmp_path / "noise.json").write_text('{"format": "attentest noise", "version": 1, "noise": {"kind": "loud"}}')
    with pytest.raises(InputError, match=r"kind of model must be isotropic, .* estimated or striped, got loud"):
        load_noise(tmp_path / "noise.json")


@pytest.mark.parametrize(("name", "command"), SHOWN.items())
def test_a_new_part_is_in_the_help(extended: Any, name: str, command: tuple[str, ...]) -> None:
    part, _, argument = NEW[name]
    assert f"{part}{':' + argument if argument else ''} (the new {part})" in help_text(extended, *command)


def test_a_new_part_can_be_chosen_on_the_command_line(
    extended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [f"{number}.npy" for number in range(3)]
    for number, file in enumerate(files):
        np.save(file, np.random.default_rng(number).normal(size=(8, 8)))
    fitted = CliRunner().invoke(extended, ["noise", "fit", *files, "--estimator", "picky", "--out", "picky.noise"])
    assert fitted.exit_code == 0, fitted.exception
    assert load_noise("picky.noise").describe()["estimator"] == "PickyVariance"

    received: dict[str, Any] = {}

    def from_pretrained(_: Any, **options: Any) -> None:
        received.update(options)
        raise InputError("nothing is computed here")

    monkeypatch.setattr(attentest.AttentionTest, "from_pretrained", from_pretrained)
    arguments = ["test", "0.npy", "--map", "first-layer", "--contrast", "reversed:2", "--filter", "box",
                 "--search", "quick"]  # fmt: skip
    for noise in ("picky.noise", "range"):
        done = CliRunner().invoke(extended, [*arguments, "--noise", noise])
        assert str(done.exception) == "nothing is computed here", done.output
        assert received["attention"].layer == 0
        assert received["contrast"].describe()["of"] == {"name": "reversed", "strength": 2.0}
        assert received["contrast"].describe()["kernel"] == "box"
        assert received["search"] == "quick"
        described = received["noise"].describe()
        assert described.get("estimator", described.get("method")) == {"picky.noise": "PickyVariance"}.get(noise, noise)
    for option, message in (
        (
            "--map",
            "--map must be .* residual or first-layer, got 'none'.",
        ),
        ("--contrast", "--contrast must be .* region-mean or reversed:STRENGTH, got 'none'."),
        ("--filter", "--filter must be .* gaussian:SIGMA, box or a .npy file, got 'none'."),
        (
            "--noise",
            "--noise must be .* a noise file .*, sample, wavelet, range or poisson, got 'none': see the page .*",
        ),
    ):
        noise_option = [] if option == "--noise" else ["--noise", "1"]
        done = CliRunner().invoke(extended, ["test", "0.npy", *noise_option, option, "none"])
        assert re.fullmatch(message, str(done.exception))
