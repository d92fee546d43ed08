"""``attentest check``, ``compare`` and ``sanity``: what a map of a model is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from attentest.cli import options as shared
from attentest.cli.attention_test_options import AttentionTestOptions, check_files
from attentest.cli.command import Without
from attentest.cli.images import for_model, image_sources
from attentest.cli.options import DEFAULT_TOL, alpha_option, check_level, device_option, json_option, output_option
from attentest.cli.output import check_figure, print_columns, print_json, progress_bar, write_figure
from attentest.definition import REGION_RULES, MapDefinition, PretrainedDefinition, option
from attentest.errors import InputError

CHECKED = (*REGION_RULES, "mask", "mask_use", "region_unit", "image_size", "allow_pickle", "local_files_only")
"""Options of a test on which it depends how a model is searched."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The map that is checked, and what its search depends on."""

    mapped: Annotated[dict[str, Any], MapDefinition]
    defined: Annotated[dict[str, Any], PretrainedDefinition, CHECKED]
    tol: float = option("Width of the error bar of p at which a search stops.", default=DEFAULT_TOL)
    device: str = device_option()


def check(
    options: CheckOptions,
    model: str = typer.Argument(
        help="Directory of a saved model, its id on the hub, an ONNX file, or a bundled model."
    ),
    as_json: bool = json_option(),
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
    asked = AttentionTestOptions(noise="1", model=model, **vars(options))
    with progress_bar("checking") as progress:
        checked = asked.attention_test().check(progress)
    if as_json:
        print_json(checked.to_dict())
    else:
        typer.echo(str(checked))


ANOTHER_MAP = {"map_name": "rollout", "target": None, "layer": None, "sign": None, "text": None}
"""Options of a map that is made in another way than the first, unless they are given."""


@dataclass(frozen=True, kw_only=True)
class OtherOptions:
    """The other map; what is not given is as in the first."""

    panel: ClassVar[str] = "The other map"

    with_map: str | None = option("How it is made, as for --map.", metavar="MAP")
    with_class: str | None = option("Its class, as for --class.", metavar="CLASS")
    with_text: str | None = option("Its text, as for --text.", metavar="TEXT")
    with_model: str | None = option("Its model, as for --model.", metavar="DIR")

    def of(self, options: AttentionTestOptions) -> AttentionTestOptions:
        """Return the options of the other test."""
        if all(value is None for value in vars(self).values()):
            raise InputError(
                "nothing says what the other map is: give --with-map, --with-class, --with-text or --with-model."
            )
        another = self.with_map is not None or self.with_text is not None
        changes: dict[str, Any] = dict(ANOTHER_MAP) if another else {}
        given = {"map_name": self.with_map, "target": self.with_class, "text": self.with_text}
        changes |= {name: value for name, value in given.items() if value is not None}
        return replace(options, mapped={**options.mapped, **changes}, model=self.with_model or options.model)


def compare(
    options: AttentionTestOptions,
    other: OtherOptions,
    image: Path = typer.Argument(help="Image file."),
    alpha: float = alpha_option(),
    figure: Path | None = output_option("Also draw both maps.", metavar="<path>"),
    as_json: bool = json_option(),
) -> None:
    """Compare two maps of one image: is one region's difference another than that of the other region?

    For example:

    ```
    attentest compare scan.npy --noise 1.0 --model my-vit --with-map grad-cam
    attentest compare scan.npy --noise 1.0 --model my-vit --with-model another-vit
    attentest compare cat.jpg --noise 8 --model my-vit --map grad-cam --class tabby --with-class tiger
    ```

    The test is conditional on both regions, so that p is valid although both were chosen from the same image.
    """
    check_level(alpha)
    second = other.of(options)
    check_files("image", [image])
    options.check()
    from attentest.pipeline.comparison import compare as compared
    from attentest.presentation.number_texts import interval_name, interval_text

    check_figure(figure, [image])
    tests = [asked.attention_test(1 - alpha) for asked in (options, second)]
    comparison = compared(tests[0], tests[1], image)
    if as_json:
        print_json(comparison.to_dict())
    else:
        interval = comparison.confidence_interval()
        typer.echo(comparison.verdict(alpha))
        typer.echo(
            f"Estimate of the difference between both differences: {comparison.estimate:.4g}, "
            f"{interval_name(1 - alpha)} {interval_text(interval.low, interval.high)}."
        )
    write_figure(figure, comparison.plot)


@dataclass(frozen=True, kw_only=True)
class SanityOptions:
    """Options of the random weights and of the images."""

    seed: int = option("Seed of the random weights.", default=0, limits=(0, None))
    frame: int | None = shared.frame_option()
    window: bool = shared.window_option()
    channel: list[str] | None = shared.channel_option()
    figure: Path | None = shared.output_option("Also draw it to this .png, .svg or .pdf file.")
    as_json: bool = shared.json_option()


def sanity(
    options: Annotated[AttentionTestOptions, Without(["model"])],
    asked: SanityOptions,
    model: str = typer.Argument(help="Directory of a saved ViT, its id on the hub, or a bundled model."),
    images: list[Path] = typer.Argument(help="Image files, folders, quoted patterns, or .txt files of paths."),
) -> None:
    r"""Check that a map depends on what the model learned: does it change when the model is randomised?

    For example:

    ```
    attentest sanity my-vit scan.npy --noise 1.0 --figure sanity.png
    attentest sanity my-vit scans/*.npy --noise 1.0 --map grad-cam --class 0
    ```

    Weights are drawn anew in a copy of the model: those of the head, where the map is for a class or a text, then those
    of one layer more at a time, from the last to the first, then all (Adebayo et al., NeurIPS 2018). The table shows
    the rank correlation of each map with that of the trained model, and the selective p of its region. Maps that stay
    alike show the image, not what the model learned.
    """
    options.check()
    sources = image_sources(images, frame=asked.frame, window=asked.window, channels=asked.channel or ())
    check_figure(asked.figure, [*(path for source in sources for path in source.files), *options.input_files])
    from attentest.presentation.tables import print_notes
    from attentest.simulation.sanity import correlation_text, row_pvalue
    from attentest.simulation.sanity import sanity as check

    test = replace(options, model=model).attention_test()
    dimension = test.pipeline.inputs.dimension
    sources = for_model(sources, dimension)
    with progress_bar("testing models with random weights") as progress:
        read, names = [source.read(dimension) for source in sources], [source.name for source in sources]
        checked = check(test, read, seed=asked.seed, names=names, progress=progress)
    if asked.as_json:
        print_json({**checked.to_dict(), "settings": test.settings})
    else:
        rows, texts = checked.rows(), ("image", "randomised")
        columns = {name: [row[name] for row in rows] for name in texts}
        columns["rank correlation"] = [correlation_text(row["rank_correlation"]) for row in rows]
        print_columns(columns | {"selective p": [row_pvalue(row) for row in rows]}, texts)
        print_notes([checked.summary()])
    write_figure(asked.figure, checked.figure)
