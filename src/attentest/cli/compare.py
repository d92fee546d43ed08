"""``attentest compare``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.options import OUTPUT, AlphaOption, ReportJsonOption, check_level
from attentest.cli.output import print_json, say
from attentest.cli.values import check_files
from attentest.definition import option
from attentest.errors import InputError

ANOTHER_MAP = {"map_name": "rollout", "target": None, "layer": None, "sign": None, "text": None}
"""Options of a map that is made in another way than the first, unless they are given."""


@dataclass(frozen=True, kw_only=True)
class OtherOptions:
    """The other map; what is not given is as in the first."""

    panel: ClassVar[str] = "The other map"

    with_map: str | None = option("How it is made, as for --map.", default=None, metavar="MAP")
    with_class: str | None = option("Its class, as for --class.", default=None, metavar="CLASS")
    with_text: str | None = option("Its text, as for --text.", default=None, metavar="TEXT")
    with_model: str | None = option("Its model, as for --model.", default=None, metavar="DIR")

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


@with_options_of(OtherOptions)
@with_options_of(AttentionTestOptions)
def compare(
    image: Annotated[Path, typer.Argument(help="Image file.")],
    options: AttentionTestOptions,
    other: OtherOptions,
    alpha: AlphaOption = 0.05,
    figure: Annotated[Path | None, typer.Option(help="Also draw both maps.", rich_help_panel=OUTPUT)] = None,
    as_json: ReportJsonOption = False,
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
    from attentest.presentation.figure import check_figure_path, save_figure

    if figure is not None:
        check_figure_path(figure, [image])
    tests = [asked.attention_test(1 - alpha) for asked in (options, second)]
    comparison = compared(tests[0], tests[1], image)
    if as_json:
        print_json(comparison.to_dict())
    else:
        interval = comparison.confidence_interval()
        typer.echo(comparison.verdict(alpha))
        typer.echo(
            f"Estimate of the difference between both differences: {comparison.estimate:.4g}, "
            f"{1 - alpha:.0%} interval {interval.low:.4g} to {interval.high:.4g}."
        )
    if figure is not None:
        save_figure(comparison.plot(), figure)
        say(f"figure: {figure}")
