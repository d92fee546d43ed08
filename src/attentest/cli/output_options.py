"""Groups of options of ``attentest test``, with their checks, before anything is imported that takes long."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from attentest.cli import options as shared
from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.output import is_folder
from attentest.definition import compared_option, image_option, option
from attentest.errors import InputError
from attentest.files import make_directory, same_file
from attentest.presentation import MOST_CARDS, USUAL_CARDS

if TYPE_CHECKING:
    from attentest.search import Certification


SAVED = ("regions", "masks", "maps", "pictures")
"""What can be saved of each image: its region and its map as .npy arrays, of volumes in space as NIfTI too, its \
region as a black and white .png, and small copies of image, map and region, which a report shows."""

NOTHING = "none"  # in place of these, to save nothing

DEFAULT_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is tested of which images."""

    recursive: bool = option("Look for images in the folders of folders too.", default=False)
    stack: bool = image_option(
        "Each array of a .npy or .npz file is a stack: of images (k, H, W) or (k, H, W, C), signals (k, T) or "
        "(k, C, T), volumes (k, D, H, W) or (k, C, D, H, W).",
        default=False,
    )
    frame: int | None = shared.frame_option()
    window: bool = shared.window_option()
    channel: list[str] | None = shared.channel_option()
    reference: list[Path] | None = compared_option(
        "For --contrast reference: the image to compare with; once, or once for each image in order."
    )
    components: bool = option(
        "Test each connected component of the region by itself: p-values adjusted by Holm's method, intervals that "
        "cover together.",
        default=False,
    )
    connectivity: int | None = compared_option(
        "For --components: pixels join that share an edge (1), or a corner too (2); voxels that share a face (1), an "
        "edge too (2), or a corner too (3).",
        limits=(1, 3),
        shown_default="1",
    )
    alpha: float = shared.alpha_option()
    decide: bool = option(
        "Stop each search as soon as the verdict at --alpha is certain: faster.", default=False, panel=shared.SEARCH
    )
    confidence_level: float | None = option(
        "Level of the confidence interval of the difference.", panel=shared.SEARCH, shown_default="0.95"
    )
    no_interval: bool = option(
        "Leave out the confidence interval, and search only as far as p needs: faster.",
        default=False,
        panel=shared.SEARCH,
    )
    sensitivity: bool = option(
        "Also show p and interval for other noise: 0.5 to 2 times as large, which takes no time, and with other "
        "correlation lengths, which takes four more tests of each image.",
        default=False,
    )

    def check(self, options: AttentionTestOptions) -> None:
        """Raise an error for options that contradict each other, or those of the test."""
        shared.check_level(self.alpha)
        if self.decide and options.search != shared.SPECTRAL:
            raise InputError(f"--decide is for the spectral search, but --search is {options.search}.")
        if self.connectivity is not None and not self.components:
            raise InputError("--connectivity is for --components: give both or neither.")
        if self.decide and self.components:
            raise InputError(
                "--decide stops when it is known on which side of --alpha a p-value lies, but the verdict on "
                "components is by adjusted p-values: leave out --decide or --components."
            )
        if self.no_interval and self.confidence_level is not None:
            raise InputError("--no-interval leaves out the interval that --confidence-level is for: give one of them.")
        if self.sensitivity and self.decide:
            raise InputError(
                "--decide stops when the verdict for the assumed noise is certain, and --sensitivity is about other "
                "noise: leave out one of them."
            )
        if self.sensitivity and options.defined.get("draws", 1) > 1:
            raise InputError("--sensitivity is that of one draw: leave out --sensitivity or --draws.")
        if self.sensitivity and self.components:
            raise InputError("--sensitivity is of whole regions: leave out --sensitivity or --components.")
        if self.sensitivity and options.noise == "poisson":
            raise InputError("--sensitivity is to a noise model, which --noise poisson does not need: leave it out.")
        if self.reference and options.contrast != "reference":
            raise InputError(f"--reference is for --contrast reference, but --contrast is {options.contrast}.")
        if options.contrast == "reference" and not self.reference:
            raise InputError("--contrast reference compares with another image: give it with --reference.")

    @property
    def searched_level(self) -> float | None:
        """Level of the interval that the search goes for, if it is to."""
        if self.no_interval:
            return None
        return DEFAULT_CONFIDENCE if self.confidence_level is None else self.confidence_level


@dataclass(frozen=True, kw_only=True)
class CertificateOptions:
    """Options of the certificate of each result."""

    panel: ClassVar[str] = shared.CERTIFICATE

    certify: bool = option(
        "Add a certified p-value, valid whatever the model does between the evaluations of the search; the one to "
        "report if the status is sharp. Slow.",
        default=False,
    )
    certify_draws: int | None = option(
        "For --certify: number of draws; the least possible p is 1 / (N + 1).", shown_default="99", needs="--certify"
    )
    certify_steps: int | None = option(
        "For --certify: steps behind each draw; too few cost power, never validity.",
        shown_default="6",
        needs="--certify",
    )
    certify_seed: int | None = option(
        "For --certify: seed of the draws.", shown_default="the image itself", needs="--certify"
    )

    def certification(self) -> Certification | None:
        """Return how to certify the results, if they are to be."""
        if not self.certify:
            return None
        from attentest.search import Certification

        numbers = {name: getattr(self, f"certify_{name}") for name in ("draws", "steps", "seed")}
        try:
            return Certification(**{name: value for name, value in numbers.items() if value is not None})
        except InputError as error:  # named as on the command line
            options = [f"certify_{name}" for name in error.parameters]
            raise InputError(f"certify_{error}" if options else str(error), *options) from None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options that say what is written and printed."""

    panel: ClassVar[str] = shared.OUTPUT

    out: Path | None = option(
        "Folder of the results of each image as it is tested: the same command goes on where it stopped.",
        metavar="FOLDER",
    )
    retry: bool = shared.retry_option()
    save: str | None = option(
        "For --out: also save regions and maps (.npy, and of NIfTI volumes and DICOM series as .nii), masks (.png) or "
        "pictures (for reports), separated by commas; or none.",
        metavar="NAMES",
        needs="--out",
        shown_default="pictures of up to 1000 images",
    )
    csv: Path | None = option("Also write a table of all results to this .csv file, row by row.")
    parquet: Path | None = option("Also write this table to a .parquet file.")
    figure: str | None = option(
        "Also draw the result to this .png, .svg or .pdf file, several on one sheet, or each into FOLDER/.",
        metavar="FILE",
    )
    sensitivity_figure: str | None = option(
        "For --sensitivity: also draw it to this .png, .svg or .pdf file, or that of each image into FOLDER/.",
        metavar="FILE",
        needs="--sensitivity",
    )
    report: Path | None = option(
        "Also write a report to this .html file, which needs no other, or as .json.", default=None
    )
    report_cards: int | None = option(
        "For --report: most results with pictures and details, those with the smallest p-values.",
        limits=(0, MOST_CARDS),
        needs="--report",
        shown_default=str(USUAL_CARDS),
    )
    as_json: bool = shared.image_json_option()
    in_image: bool = option(
        "Also print how large each difference is within its image: among regions of the same shape elsewhere, and in "
        "standard deviations. Descriptive; printed anyway where p is below 1e-20.",
        default=False,
        flag="--context",
    )

    def saved_kinds(self) -> list[str]:
        """Return what to save of each image."""
        asked = [] if self.save is None or self.save == NOTHING else self.save.split(",")
        kinds = dict.fromkeys(kind.strip() for kind in asked)
        if bad := [kind for kind in kinds if kind not in SAVED]:
            raise InputError(
                f"--save takes {', '.join(SAVED)}, separated by commas, or {NOTHING}, got {', '.join(map(repr, bad))}."
            )
        return list(kinds)

    def check(self, inputs: Collection[Path], components: bool) -> None:
        """Raise an error for outputs that cannot be written or overwrite an input, or not for tests of components."""
        from attentest.presentation.tables import check_table_path

        for path, kind in ((self.csv, "csv"), (self.parquet, "parquet")):
            if path is not None:
                with shared.named_by_options({"the file name of the table": f"--{kind}"}):
                    check_table_path(path, f".{kind}", inputs)
        if self.figure is not None:
            if components:
                raise InputError("--figure shows whole regions: leave out --figure or --components.")
            _check_figure(self.figure, inputs, "--figure")
        if self.sensitivity_figure is not None:
            _check_figure(self.sensitivity_figure, inputs, "--sensitivity-figure")
        if self.report is not None:
            from attentest.presentation.report import check_report_path

            check_report_path(self.report, inputs)
        if self.out is not None:
            make_directory(self.out)

    def check_count(self, images: int) -> None:
        """Raise an error for outputs of one image, if there are several."""
        figure = self.sensitivity_figure
        if figure is not None and images > 1 and not is_folder(figure):
            raise InputError(
                f"--sensitivity-figure must be a folder, such as {Path(figure).stem}/, for several images, got "
                f"{figure!r}."
            )


def _check_figure(place: str, inputs: Collection[Path], option: str) -> None:
    """Raise an error for a file to which no figure can be written, and for a folder that cannot be made."""
    from attentest.presentation.figure import FIGURE_SUFFIXES, check_figure_path, new_figure

    path = Path(place)
    if is_folder(place):
        new_figure(1.0, 1.0)  # raises an error where Matplotlib is missing
        make_directory(path)
        if not os.access(path, os.W_OK):
            raise InputError(f"{option} must be a folder that can be written to, and {path} cannot.")
    elif path.suffix.lower() not in FIGURE_SUFFIXES and not any(same_file(path, other) for other in inputs):
        raise InputError(
            f"{option} must end in {', '.join(FIGURE_SUFFIXES)}, or in / for a folder of figures, got {place!r}."
        )
    else:
        check_figure_path(path, inputs)
