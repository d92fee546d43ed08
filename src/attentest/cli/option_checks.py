"""Checks of options, most of them those of ``attentest test``, before anything is imported that takes long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.option_names import option_names
from attentest.cli.option_value import as_saved_kinds, noise_file
from attentest.cli.options import SPECTRAL
from attentest.errors import InputError
from attentest.files import same_file

if TYPE_CHECKING:
    from attentest.images.source import ImageSource
    from attentest.search import Certification

MOST_PANELS = 40
"""Largest number of images in a figure: more take minutes to draw and cannot be read."""


def check_together(
    options: AttentionTestOptions,
    components: bool,
    connectivity: int | None,
    decide: bool,
    confidence_level: float | None,
    no_interval: bool,
    references: Sequence[Path],
) -> None:
    """Refuse options that contradict each other."""
    if decide and options.search != SPECTRAL:
        raise InputError(f"--decide is for the spectral search, but --search is {options.search}.")
    if connectivity is not None and not components:
        raise InputError("--connectivity is for --components: give both or neither.")
    if decide and components:
        raise InputError(
            "--decide stops when it is known on which side of --alpha a p-value lies, but the verdict on components is "
            "by adjusted p-values: leave out --decide or --components."
        )
    if no_interval and confidence_level is not None:
        raise InputError("--no-interval leaves out the interval that --confidence-level is for: give one of them.")
    if references and options.contrast != "reference":
        raise InputError(f"--reference is for --contrast reference, but --contrast is {options.contrast}.")
    if not references and options.contrast == "reference":
        raise InputError("--contrast reference compares with another image: give it with --reference.")


def as_certification(certify: bool, **options: int | None) -> Certification | None:
    """Return how to certify the results, if they are to be; refuse options of a certificate that is not asked for."""
    given = {name: value for name, value in options.items() if value is not None}
    if not certify:
        if given:
            names = " and ".join(f"--{name}" for name in given)
            raise InputError(f"{names} {'are' if len(given) > 1 else 'is'} for --certify, which is not there: add it.")
        return None
    from attentest.search import Certification

    return Certification(**given)


def saved_kinds(save: str | None, retry: bool, out: Path | None) -> list[str]:
    """Return what to save of each image; refuse options that need a directory if there is none."""
    for option, given in (("--save", save is not None), ("--retry", retry)):
        if given and out is None:
            raise InputError(f"{option} is for --out, which is not there: add it.")
    return as_saved_kinds(save)


def check_pairs(images: Sequence[ImageSource], references: Sequence[ImageSource]) -> None:
    """Refuse a number of references that does not fit the images, and an image that would be compared with itself."""
    if len(references) not in (0, 1, len(images)):
        raise InputError(
            f"--reference must be given once, or once for each of the {len(images)} image(s), got it "
            f"{len(references)} times."
        )
    paired = references if len(references) == len(images) else [*references] * len(images)
    for image, reference in zip(images, paired, strict=False):
        if same_file(image.path, reference.path):
            raise InputError(f"{image.path} would be compared with itself: give a --reference with independent noise.")


def check_inputs(references: Sequence[Path], options: AttentionTestOptions) -> None:
    """Refuse references and noise files that are not there."""
    check_files("image", references)
    check_files("noise", [noise_file(options.noise), noise_file(options.reference_noise)])


def check_files(kind: str, paths: Iterable[Path | None]) -> None:
    """Refuse files that are not there; None is no file."""
    for path in paths:
        if path is not None and not path.exists():
            advice = ": give one that attentest noise fit or save_noise wrote" if kind == "noise" else ""
            raise InputError(f"there is no {kind} file {path}{advice}.")


def check_outputs(
    inputs: Collection[Path],
    csv: Path | None,
    parquet: Path | None,
    figure: Path | None,
    images: int,
    components: bool,
) -> None:
    """Refuse outputs that cannot be written, before anything is computed."""
    from attentest.results.figures.figure_file import check_figure_path
    from attentest.results.tables import check_csv_path, check_parquet_path

    for path, name, option, check in (
        (csv, "the table", "--csv", check_csv_path),
        (parquet, "the table", "--parquet", check_parquet_path),
        (figure, "the figure", "--figure", check_figure_path),
    ):
        if path is not None:
            with option_names({f"the file name of {name}": option}):
                check(path, inputs)
    if figure is not None:
        if images > MOST_PANELS:
            raise InputError(f"--figure shows at most {MOST_PANELS} images, got {images}: leave it out.")
        if components:
            raise InputError("--figure shows whole regions: leave out --figure or --components.")
