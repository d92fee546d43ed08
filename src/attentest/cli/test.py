"""``attentest test``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from attentest.cli import options as shared
from attentest.cli.attention_test_options import AttentionTestOptions, check_files, noise_file
from attentest.cli.images import check_pairs, for_model, image_sources, say_other_spacing
from attentest.cli.options import EngineOptions
from attentest.cli.output import SOME_FAILED, Interruption
from attentest.cli.output_options import NOTHING, CertificateOptions, OutputOptions, RunOptions
from attentest.cli.saved_results import write_batch_report
from attentest.errors import InputError, worded
from attentest.presentation import USUAL_CARDS
from attentest.registry import IMAGE_FORMATS

PICTURES = "pictures"  # those that a report shows
MOST_PICTURES = 1000  # most images of a run whose pictures are saved without being asked for


def test(
    options: AttentionTestOptions,
    asked: RunOptions,
    certificate: CertificateOptions,
    outputs: OutputOptions,
    context: typer.Context,
    where: EngineOptions,
    images: list[Path] = typer.Argument(
        help=f"Image files ({', '.join(IMAGE_FORMATS)}, ...), folders, quoted patterns, or .txt files of paths."
    ),
) -> None:
    r"""Test whether the region that a model attends to differs from the rest of each image.

    For example:

    ```
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png
    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 \
        --map last-layer
    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 \
        --components --csv scans.csv
    attentest test after.npy --contrast reference --reference before.npy \
        --noise 1.0
    attentest test scan.npy --noise 1.0 --sensitivity \
        --sensitivity-figure noise.png
    attentest test scan.npy --noise 1.0 --certify --certify-draws 999
    attentest test scans --recursive --noise 1.0 --out tested --csv scans.csv \
        --report scans.html
    ```

    Prints for each image the size of the region, the difference with an estimate and a confidence interval, and the
    selective p-value, which are valid although the model chose the region from the same image; and the naive p-value,
    which is not valid. A narrow terminal shows fewer columns. An image that cannot be read or tested is reported with
    its reason, and the others go on; the exit code is then 1.
    """
    from attentest.images.dicom_series import series_in
    from attentest.images.image_source import SUFFIXES, ImageSource

    asked.check(options)
    kinds = outputs.saved_kinds()
    where.check()
    check_files("image", asked.reference or ())
    check_files("noise", [noise_file(options.noise), noise_file(options.reference_noise)])
    options.check()
    read: dict[str, Any] = {"frame": asked.frame, "window": asked.window, "channels": tuple(asked.channel or ())}
    sources = image_sources(images, recursive=asked.recursive, stack=asked.stack, **read)
    whole = read | {"frame": None}  # an array has no frames: it is the reference of the one that is asked for
    references = [
        ImageSource(
            path=path,
            slices=series_in(path) if path.is_dir() else (),
            **(whole if path.name.lower().endswith(SUFFIXES) else read),
        )
        for path in asked.reference or ()
    ]
    inputs = {*(path for source in (*sources, *references) for path in source.files), *options.input_files}
    outputs.check(inputs, asked.components)
    from attentest.cli.batch import BatchOutput, say_failures
    from attentest.runs.records import RunLog

    log = context.with_resource(RunLog())
    defined = options.attention_test(asked.searched_level)
    dimension = defined.pipeline.inputs.dimension
    sources = for_model(sources, dimension, asked.stack)
    check_pairs(sources, references)
    say_other_spacing(sources, getattr(defined.definition.contrast, "spacing", None))
    outputs.check_count(len(sources))
    folder = context.with_resource(records_folder(outputs.out, outputs.report, where))
    kinds, unasked = picture_kinds(kinds, outputs.save, len(sources), where)
    certification = certificate.certification()
    alpha = asked.alpha
    from attentest.cli.figures import FigureFiles, FigureOutput, SensitivityOutput
    from attentest.pipeline.file_run import BatchRun, SavedArrays
    from attentest.pipeline.run import Request

    figures = sensitivities = files = None
    if outputs.figure is not None:
        figures = FigureOutput(files=FigureFiles(outputs.figure), alpha=alpha)
    if outputs.sensitivity_figure is not None:
        files = FigureFiles(outputs.sensitivity_figure, "-sensitivity.png")
    if asked.sensitivity:
        names = [source.name for source in sources]
        sensitivities = SensitivityOutput(names=names, with_intervals=not asked.no_interval, files=files)
    run = BatchRun(
        test=defined,
        images=sources,
        references=references,
        confidence_level=asked.searched_level,
        request=Request(
            decide_at=alpha if asked.decide else None,
            certification=certification,
            connectivity=(asked.connectivity or 1) if asked.components else None,
        ),
        sensitivity=alpha if asked.sensitivity else None,
        save=SavedArrays(directory=folder, kinds=kinds, optional=unasked) if folder is not None and kinds else None,
        keep=figures.keep if figures is not None and where.engine == shared.LOCAL else None,
    )
    interruption = Interruption()
    output = BatchOutput(asked=asked, outputs=outputs, take=None if sensitivities is None else sensitivities.take)
    with log.written_to(folder, interruption.writing):
        rows = output.tested_rows(run, where.chosen(), interruption, log, folder)
    failed = [row for row in rows.all() if "error" in row]
    some = any("error" not in row for row in rows.all())
    if some or any((outputs.csv, outputs.parquet, outputs.report)):
        try:
            output.write_tables(rows)
            if figures is not None:
                figures.finish(run, rows)
            if files is not None:
                files.finish("sensitivity")
            if outputs.report is not None and folder is not None and len(rows) and interruption.error is None:
                from attentest.presentation.tested_batch import batch_of_folder

                most = USUAL_CARDS if outputs.report_cards is None else outputs.report_cards
                write_batch_report(batch_of_folder(folder, rows.names), outputs.report, alpha, most)
        finally:  # the numbers are computed, and are shown even if a file cannot be written
            if not outputs.as_json and some:
                output.print_results(rows)
                if sensitivities is not None:
                    sensitivities.print()
    say_failures(failed, len(rows), dimension, asked.stack)
    interruption.done = len(rows)  # a batch, which is what the run yields, is several images
    interruption.finish(len(sources), worded("image", dimension), kept=folder is not None)
    if failed:
        raise typer.Exit(SOME_FAILED)


@contextmanager
def records_folder(out: Path | None, report: Path | None, where: EngineOptions) -> Iterator[Path | None]:
    """Yield the folder of records: that of --out, for a report without one a temporary folder, or none."""
    if out is not None or report is None:
        yield out
        return
    if where.address is not None:
        raise InputError("--report on a cluster reads what its workers saved: add --out with a folder they share.")
    with TemporaryDirectory(prefix="attentest-") as scratch:
        yield Path(scratch)


def picture_kinds(kinds: list[str], save: str | None, images: int, where: EngineOptions) -> tuple[list[str], list[str]]:
    """Return what is saved of each image, and what of it is saved without having been asked for: its picture.

    Without being asked, pictures are saved of not too many images, and not on a cluster whose folders may be others.
    """
    if save == NOTHING or PICTURES in kinds or images > MOST_PICTURES or where.address is not None:
        return kinds, []
    return [*kinds, PICTURES], [PICTURES]
