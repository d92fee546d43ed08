"""The definition of a test: one field is an option everywhere, and a test has one noise model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from attentest import AttentionTest, Preprocessing
from attentest.cli.command import with_options
from attentest.definition import ModelDefinition, PretrainedDefinition, documentation, option
from attentest.errors import InputError
from attentest.noise import Diagonal
from toys import SoftmaxScores, tiny_vit


def small_number(value: Any) -> int:
    """Return a number from 0 to 9."""
    if not isinstance(value, int) or not 0 <= value <= 9:
        raise InputError(f"dummy must be from 0 to 9, got {value!r}.")
    return value


@dataclass(frozen=True, kw_only=True)
class Extended(ModelDefinition):
    """A definition with one more option: one field."""

    dummy: int = option(
        "A number that does nothing.", default=3, check=small_number, text=int, metavar="N", limits="0<=x<=9"
    )


class ExtendedTest(AttentionTest):
    definition_class = Extended


def extended(**options: Any) -> AttentionTest:
    return ExtendedTest(SoftmaxScores(), noise=1.0, **options)


def test_a_new_option_is_one_field() -> None:
    assert extended().settings["dummy"] == 3
    test = extended(dummy=7)
    assert test.settings["dummy"] == test.definition.describe()["dummy"] == 7  # what a resumed run compares
    assert test.replace(dummy=2, noise=2.0).settings["dummy"] == 2
    with pytest.raises(InputError, match="dummy must be from 0 to 9, got 10"):
        extended(dummy=10)
    assert "dummy\n        A number that does nothing." in documentation(Extended, 4)


def test_a_new_option_is_on_the_command_line() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Options:
        defined: Annotated[dict[str, Any], Extended]

    app, seen = typer.Typer(), []

    def command(options: Options) -> None:
        seen.append(options.defined)

    command.__annotations__ = {"options": Options, "return": None}
    app.command()(with_options(command))
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "A number that does nothing." in shown
    assert "N [0<=x<=9]" in shown
    assert CliRunner().invoke(app, ["--dummy", "4", "--range", "0,1", "--image-size", "8x6"]).exit_code == 0
    (values,) = seen
    assert (values["dummy"], values["intensity_range"], values["image_size"]) == (4, (0.0, 1.0), (8, 6))
    assert values["threshold"] is None


def test_the_signatures_are_the_fields() -> None:
    for called, definition in ((AttentionTest, ModelDefinition), (AttentionTest.from_pretrained, PretrainedDefinition)):
        parameters = inspect.signature(called).parameters
        assert list(parameters)[1:] == [field.name for field in fields(definition)]
        for field in fields(definition):
            assert field.name in [line.strip() for line in (called.__doc__ or "").splitlines()]
    assert "{options}" not in (AttentionTest.__doc__ or "") + (AttentionTest.from_pretrained.__doc__ or "")
    test = AttentionTest(SoftmaxScores(), noise=1.0)
    for change in (partial(AttentionTest, SoftmaxScores(), noise=1.0), test.replace):  # both answer in the same way
        with pytest.raises(TypeError, match="a test has no option nose: it has noise, threshold"):
            change(nose=2.0)


def test_another_noise_model_replaces_the_first_one_everywhere() -> None:
    """The noise of a test has one home, so that what was known of the first model does not stay behind."""
    model = tiny_vit(16, 4)
    test = AttentionTest(model, noise=1.0, confidence_level=None)
    with pytest.raises(InputError, match="8"):
        test.replace(noise=Diagonal(np.ones((8, 32))))(np.zeros((16, 16)))
    resized = Preprocessing(resize=(16, 16))
    own_size = AttentionTest(model, noise=Diagonal(np.ones((20, 20))), preprocessing=resized, confidence_level=None)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError):
        own_size(rng.normal(size=(24, 24)))
    assert own_size.replace(noise=1.0)(rng.normal(size=(24, 24))).pvalue <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "last-layer"}, "attention is a fact of the model"),
        ({"randomise": 0.0, "randomise_seed": 3}, "randomise_seed 3 does nothing without randomise"),
        ({"draws": 21}, "draws 21 does nothing without randomise"),
        ({"threshold": 0.3, "top_fraction": 0.2}, "two ways to choose the region"),
    ],
)
def test_bad_changes_end_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extended().replace(**changes)


def test_changes_take_along_what_goes_with_them() -> None:
    seeded = extended(randomise=0.5, randomise_seed=3)
    without = seeded.replace(draws=3).replace(randomise=0).definition
    assert (without.randomise_seed, without.draws) == (0, 1)
    assert seeded.replace(randomise=1.0).definition.randomise_seed == 3
    by_fraction = seeded.replace(top_fraction=0.2).definition
    assert (by_fraction.threshold, by_fraction.top_fraction) == (None, 0.2)
