"""``attentest check``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.options import DEFAULT_TOL, DeviceOption, ReportJsonOption
from attentest.cli.output import print_json, progress_bar
from attentest.definition import REGION_RULES, MapDefinition, PretrainedDefinition, option

CHECKED = (*REGION_RULES, "mask", "mask_use", "region_unit", "image_size", "allow_pickle", "local_files_only")
"""Options of a test on which it depends how a model is searched."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The map that is checked, and what its search depends on."""

    mapped: Annotated[dict[str, Any], MapDefinition]
    defined: Annotated[dict[str, Any], PretrainedDefinition]
    tol: float = option("Width of the error bar of p at which a search stops.", default=DEFAULT_TOL)
    device: DeviceOption = "cpu"


@with_options_of(CheckOptions, leave_out={field.name for field in fields(PretrainedDefinition)} - {*CHECKED})
def check(
    model: Annotated[
        str,
        typer.Argument(help="Directory of a saved model, its id on the hub, an ONNX file, or a bundled model."),
    ],
    options: CheckOptions,
    as_json: ReportJsonOption = False,
) -> None:
    """Say in a few seconds how a model will be searched, and what p of an image will cost.

    For example:

    ```
    attentest check my-vit
    attentest check my-resnet --map grad-cam --class tabby --image-size 224
    attentest check model.onnx --map segmentation --class 1 --json
    ```

    The scores of the map are followed along a few lines through images of noise. Where they are smooth, as those of
    transformers, they are interpolated (search spectral). Where they are linear in pieces, as those of networks with
    ReLU, every piece that matters is visited (search piecewise), so kinks are counted: the more per standard deviation
    of z, the longer it takes. Then one image of noise, of standard deviation 1 as the model sees it, is tested with a
    bounded number of evaluations; a mask is used in the size of these images, and of several the first. Where no search
    can promise an error bar, the advice says so.
    """
    asked = AttentionTestOptions(
        noise="1",
        model=model,
        mapped=options.mapped,
        defined=options.defined,
        tol=options.tol,
        device=options.device,
    )
    with progress_bar("checking") as progress:
        checked = asked.attention_test().check(progress)
    if as_json:
        print_json(checked.to_dict())
    else:
        typer.echo(str(checked))
