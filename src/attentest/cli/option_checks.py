"""Checks of options, most of them those of ``attentest test``, before anything is imported that takes long."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.options import SPECTRAL, named_by_options
from attentest.cli.values import as_saved_kinds, noise_file
from attentest.errors import InputError
from attentest.files import make_directory, same_file

if TYPE_CHECKING:
    from attentest.images.image_source import ImageSource
    from attentest.search import Certification


def check_together(
    options: AttentionTestOptions,
    components: bool,
    connectivity: int | None,
    decide: bool,
    confidence_level: float | None,
    no_interval: bool,
    sensitivity: bool,
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
    if sensitivity and decide:
        raise InputError(
            "--decide stops when the verdict for the assumed noise is certain, and --sensitivity is about other noise: "
            "leave out one of them."
        )
    if sensitivity and components:
        raise InputError("--sensitivity is of whole regions: leave out --sensitivity or --components.")
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
        each = f", or once for each of the {len(images)} images" if len(images) > 1 else ""
        raise InputError(f"--reference must be given once{each}, got it {len(references)} times.")
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
    figure: str | None,
    components: bool,
) -> None:
    """Refuse outputs that cannot be written, before anything is computed."""
    from attentest.presentation.tables import check_csv_path, check_parquet_path

    for path, option, check in ((csv, "--csv", check_csv_path), (parquet, "--parquet", check_parquet_path)):
        if path is not None:
            with named_by_options({"the file name of the table": option}):
                check(path, inputs)
    if figure is not None:
        if components:
            raise InputError("--figure shows whole regions: leave out --figure or --components.")
        _check_figure(figure, inputs, "--figure")


def check_sensitivity_figure(figure: str | None, sensitivity: bool, images: int, inputs: Collection[Path]) -> None:
    """Refuse a figure of sensitivities that are not asked for, a file for those of several images, and bad places."""
    if figure is None:
        return
    if not sensitivity:
        raise InputError("--sensitivity-figure is for --sensitivity, which is not there: add it.")
    _check_figure(figure, inputs, "--sensitivity-figure")
    if images > 1 and not is_folder(figure):
        raise InputError(
            f"--sensitivity-figure must be a folder, such as {Path(figure).stem}/, for several images, got {figure!r}."
        )


def is_folder(place: str) -> bool:
    """Return whether a text names a folder: one that is there, or any that ends with a slash."""
    return place.endswith(("/", os.sep)) or Path(place).is_dir()


def _check_figure(place: str, inputs: Collection[Path], option: str) -> None:
    """Refuse a file to which no figure can be written, and a folder that cannot be made."""
    from attentest.presentation.figure import FIGURE_SUFFIXES, check_figure_path, new_figure

    path = Path(place)
    if not place:
        raise InputError(f"{option} must be a file or a folder, got an empty text.")
    if is_folder(place):
        new_figure(1.0, 1.0)  # refuses where Matplotlib is missing
        make_directory(path)
        if not os.access(path, os.W_OK):
            raise InputError(f"{option} must be a folder that can be written to, and {path} cannot.")
    elif path.suffix.lower() not in FIGURE_SUFFIXES and not any(same_file(path, other) for other in inputs):
        raise InputError(
            f"{option} must end in {', '.join(FIGURE_SUFFIXES)}, or in / for a folder of figures, got {place!r}."
        )
    else:
        check_figure_path(path, inputs)
