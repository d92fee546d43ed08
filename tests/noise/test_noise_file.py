from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from attentest.errors import InputError
from attentest.noise import (
    AR1,
    Averaged,
    Dense,
    Diagonal,
    Estimated,
    Isotropic,
    LocallyStationary,
    NoiseModel,
    PerChannel,
    PixelVariance,
    PooledVariance,
    Scaled,
    Stationary,
    StationaryCovariance,
    from_image,
    load_noise,
    save_noise,
)
from attentest.noise.noise_file import JsonFormat

RNG = np.random.default_rng(0)
AWKWARD = np.array([0.1, 1 / 3, np.pi * 1e-300, np.nextafter(1.0, 2.0), 1e300, 5e-324])
STRIPES = np.array([[0.4, 0.1, 0.0], [0.1, 1.0, 0.1], [0.0, 0.1, 0.4]]) / 3
FACTOR = RNG.normal(size=(4, 4))
REFERENCE = RNG.normal(size=(12, 5, 6))

MODELS = {
    "isotropic": Isotropic(0.1),
    "ar1": AR1(-1 / 3, np.nextafter(1.0, 2.0)),
    "diagonal": Diagonal(AWKWARD),
    "diagonal of a shape": Diagonal(AWKWARD.reshape(1, 2, 3)),
    "dense": Dense(FACTOR @ FACTOR.T),
    "stationary": Stationary(STRIPES, (5, 6)),
    "locally stationary": LocallyStationary(AWKWARD[[0, 1, 2, 3, 0, 5]].reshape(2, 3), 3 * STRIPES),
    "per channel": PerChannel(FACTOR @ FACTOR.T),
    "colours in space": PerChannel([0.1, 0.2], Stationary(STRIPES, (5, 6))),
    "nested twice": PerChannel([0.1, 0.2], PerChannel([1.0, 2.0], Diagonal(AWKWARD))),
    "estimated stationary": StationaryCovariance().fit(REFERENCE).noise_,
    "averaged": Averaged(Isotropic(0.1), 7),
    "scaled": Scaled(Isotropic(0.1), 1 / 3),
    "from image": from_image(REFERENCE[0]),
}
SUFFIXES = [".json", ".safetensors"]


def state(noise: Any) -> Any:
    """Everything a model was made of, bit for bit."""
    arguments = {
        name: getattr(noise, name)
        for name in (
            "sigma rho variance shape covariance autocovariance channels spatial model origin count factor deviations "  # noqa: SIM905
            "autocorrelation".split()
        )
        if hasattr(noise, name)
    }
    return type(noise), {
        name: state(value)
        if isinstance(value, NoiseModel)
        else (value.tobytes(), value.shape)
        if isinstance(value, np.ndarray)
        else value
        for name, value in arguments.items()
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("noise", MODELS.values(), ids=MODELS)
def test_every_model_comes_back_bit_for_bit(noise: NoiseModel, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"noise{suffix}"
    save_noise(noise, path)
    loaded = load_noise(str(path))
    assert state(loaded) == state(noise)
    assert loaded.describe() == noise.describe()
    n = noise.size or 12
    v = RNG.normal(size=n)
    assert np.array_equal(loaded.apply(v), noise.apply(v))
    draws = (model.sample(np.random.default_rng(1), 2, n) for model in (loaded, noise))
    assert np.array_equal(*draws)
    again = tmp_path / f"again{suffix}"
    save_noise(loaded, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_estimator_leaves_its_name_and_number_of_images(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"noise{suffix}"
    estimator = PixelVariance().fit(REFERENCE)
    save_noise(estimator, path)
    loaded = load_noise(path)
    assert isinstance(loaded, Estimated)
    assert state(loaded.model) == state(estimator.noise_)
    assert loaded.record() == {"model": "diagonal", "size": 30, "estimator": "PixelVariance", "images": 12}
    loaded.check_image((1, 5, 6))


def test_a_number_is_saved_as_the_model_it_is(tmp_path: Path) -> None:
    save_noise(2, tmp_path / "noise.JSON")
    assert load_noise(tmp_path / "noise.JSON") == Isotropic(2.0)


def test_a_file_can_be_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_text(
        '{"format": "attentest noise", "version": 1, "noise": {"kind": "per channel", "channels": [1, 2, 1], '
        '"spatial": {"kind": "ar1", "rho": 0.5, "sigma": 1}}}'
    )
    loaded = load_noise(tmp_path / "noise.json")
    assert isinstance(loaded, PerChannel)
    assert loaded.channels.tolist() == np.diag([1.0, 4.0, 1.0]).tolist()
    assert loaded.spatial == AR1(0.5)


def test_only_whole_files_replace_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "noise.json"
    save_noise(1.0, path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written .*No space left"):
        save_noise(2.0, path)
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_noise(3.0, path)
    assert load_noise(path) == Isotropic(1.0)
    assert list(tmp_path.iterdir()) == [path]


def test_files_have_the_usual_permissions_and_links_stay_links(tmp_path: Path) -> None:
    plain, linked = tmp_path / "plain", tmp_path / "linked.json"
    plain.touch()
    linked.symlink_to(tmp_path / "target.json")
    save_noise(1.0, linked)
    assert linked.is_symlink()
    assert (tmp_path / "target.json").stat().st_mode == plain.stat().st_mode
    assert load_noise(linked) == Isotropic(1.0)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["nested twice", "estimated stationary"])
def test_a_single_bit_that_was_changed_never_changes_a_model_silently(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"noise{suffix}"
    save_noise(MODELS[name], path)
    content, saved = path.read_bytes(), state(load_noise(path))
    refused = 0
    for bit in np.random.default_rng(1).integers(8 * len(content), size=300).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            np.testing.assert_equal(state(load_noise(path)), saved)
        except InputError:
            refused += 1
    assert refused > 250


def test_safetensors_files_hold_arrays_as_arrays(tmp_path: Path) -> None:
    big = Diagonal(np.ones(100_000))
    save_noise(big, tmp_path / "noise.safetensors")
    assert (tmp_path / "noise.safetensors").stat().st_size < 801_000


class OwnModel:
    size = None

    def apply(self, v: np.ndarray) -> np.ndarray:
        return v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> np.ndarray:
        return rng.normal(size=(k, n or 1))

    def describe(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("noise", "name", "message"),
    [
        (1.0, "noise.pkl", "must end in .json or .safetensors, got .*noise.pkl"),
        (1.0, "noise", "must end in"),
        (1.0, "missing/noise.json", "cannot be written .*No such file"),
        (OwnModel(), "noise.json", "only the noise models of attentest.noise can be saved, got OwnModel"),
        (PerChannel([1.0], OwnModel()), "noise.json", "got OwnModel"),
        (PooledVariance(), "noise.json", "is not fitted yet"),
        ("loud", "noise.json", "got str"),
    ],
)
def test_what_cannot_be_saved_is_refused(noise: Any, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        save_noise(noise, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_path_must_be_a_path() -> None:
    with pytest.raises(InputError, match="must be a path, got int"):
        save_noise(1.0, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a path, got NoneType"):
        load_noise(None)  # type: ignore[arg-type]


def test_what_would_not_be_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonFormat, "largest_file", 1000)
    with pytest.raises(InputError, match=r"save it as \.safetensors"):
        save_noise(Diagonal(np.ones(500)), tmp_path / "noise.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "noise.json").write_text(" " * 1001)
    with pytest.raises(InputError, match=r"has 1001 bytes, but .* at most 1000"):
        load_noise(tmp_path / "noise.json")


def wrapped(noise: str) -> str:
    return f'{{"format": "attentest noise", "version": 1, "noise": {noise}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("\0\1\2", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[1, 2]", "is no noise file"),
        ("null", "is no noise file"),
        ('{"model": "vit"}', "is no noise file"),
        ('{"format": "attentest noise"}', "version None, but this attentest reads version 1"),
        ('{"format": "attentest noise", "version": 2}', "version 2, but this attentest reads version 1"),
        ('{"format": "attentest noise", "version": true}', "version True"),
        ('{"format": "attentest noise", "version": 1}', "kind of model must be isotropic, ar1"),
        (wrapped("[1]"), "kind of model must be"),
        (wrapped('{"kind": "loud"}'), "got loud"),
        (wrapped('{"kind": ["ar1"]}'), "kind of model must be"),
        (wrapped('{"kind": "isotropic"}'), "'isotropic' needs sigma, got nothing"),
        (wrapped('{"kind": "isotropic", "sigma": 1, "rho": 0}'), "needs sigma, got rho, sigma"),
        (wrapped('{"kind": "isotropic", "sigma": NaN}'), "NaN among its numbers"),
        (wrapped('{"kind": "isotropic", "sigma": -Infinity}'), "-Infinity among its numbers"),
        (wrapped('{"kind": "isotropic", "sigma": 1e999}'), "must be positive and finite"),
        (wrapped('{"kind": "isotropic", "sigma": ' + "9" * 5000 + "}"), "cannot be read"),
        (wrapped('{"kind": "isotropic", "sigma": 1, "sigma": 2}'), "gives 'sigma' more than once"),
        (wrapped("{}")[:-1] + ', "noise": {}}', "gives 'noise' more than once"),
        (wrapped('{"kind": "isotropic", "sigma": "1"}'), "cannot be used: .* must be a number"),
        (wrapped('{"kind": "isotropic", "sigma": -1}'), "cannot be used: sigma"),
        (wrapped('{"kind": "ar1", "rho": 1, "sigma": 1}'), "rho must lie strictly"),
        (wrapped('{"kind": "diagonal", "variance": [[1], [1, 2]]}'), "array of numbers"),
        (wrapped('{"kind": "diagonal", "variance": [true]}'), "real numbers"),
        (wrapped('{"kind": "diagonal", "variance": [1e999]}'), "finite"),
        (wrapped('{"kind": "diagonal", "variance": {"tensor": "variance"}}'), "array of real numbers"),
        (wrapped('{"kind": "dense", "covariance": [[1, 2], [2, 1]]}'), "positive semi-definite"),
        (wrapped('{"kind": "stationary", "autocovariance": [[1]], "shape": [1000000, 1000000]}'), "at most 67108864"),
        (wrapped('{"kind": "stationary", "autocovariance": [[0.8, 1, 0.8]], "shape": [4, 4]}'), "negative power"),
        (wrapped('{"kind": "per channel", "channels": [1], "spatial": 1}'), "kind of model must be"),
        (wrapped('{"kind": "estimated", "model": {"kind": "isotropic", "sigma": 1}, "origin": 1}'), "mapping"),
    ],
)
def test_json_that_is_no_noise_file_is_refused(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "noise.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as refused:
        load_noise(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def tensors_file(path: Path, noise: Any, version: int = 1, **tensors: np.ndarray) -> None:
    content = {"format": "attentest noise", "version": version, "noise": noise}
    save_file(tensors, path, {"attentest noise": json.dumps(content)})


DIAGONAL = {"kind": "diagonal", "variance": {"tensor": "variance"}}


def test_safetensors_that_are_no_noise_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.safetensors"
    save_noise(MODELS["colours in space"], path)
    whole = path.read_bytes()
    for length in (0, 4, 8, 50, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="cannot be read"):
            load_noise(path)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(InputError, match="cannot be read"):
        load_noise(path)
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(InputError, match="is no noise file"):
        load_noise(path)
    tensors_file(path, DIAGONAL, version=7, variance=np.ones(3))
    with pytest.raises(InputError, match="has version 7"):
        load_noise(path)
    tensors_file(path, DIAGONAL, variance=np.ones(3, dtype=np.float32))
    with pytest.raises(InputError, match="'variance' is of float32, not float64"):
        load_noise(path)
    tensors_file(path, DIAGONAL, other=np.ones(3))
    with pytest.raises(InputError, match="no array for 'variance'"):
        load_noise(path)
    tensors_file(path, DIAGONAL, variance=np.ones(3), other=np.ones(3))
    with pytest.raises(InputError, match="arrays that no model uses, 'other' first"):
        load_noise(path)
    tensors_file(path, DIAGONAL, variance=np.array([1.0, np.nan]))
    with pytest.raises(InputError, match="finite"):
        load_noise(path)
    save_file({}, path, {"attentest noise": "{"})
    with pytest.raises(InputError, match="cannot be read"):
        load_noise(path)
    save_file({}, path, {"attentest noise": '{"format": "attentest noise", "version": 1}'})
    with pytest.raises(InputError, match="kind of model must be"):
        load_noise(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_are_not_there_are_refused(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no noise file"):
        load_noise(tmp_path / f"missing{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InputError, match="there is no noise file"):
        load_noise(tmp_path / f"folder{suffix}")
    with pytest.raises(InputError, match="cannot be written"):
        save_noise(1.0, tmp_path / f"folder{suffix}")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(InputError, match="there is no noise file"):
        load_noise(tmp_path / f"pipe{suffix}")
    with pytest.raises(InputError):
        load_noise(f"nul\0{suffix}")
