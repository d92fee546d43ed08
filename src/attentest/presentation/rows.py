"""Results as rows of a table: flat views of records, one per image, that can be written as soon as they are known."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from typing import Any, TypeAlias, get_args

import numpy as np

from attentest.definition import REGION_RULES
from attentest.errors import InputError, shortened
from attentest.presentation.words import measure_text
from attentest.record import USUAL_ALPHA, ResultRecord, map_of_all
from attentest.statistics.multiple_testing import Adjustment, ManyPvalues

Row: TypeAlias = dict[str, Any]
"""Values of one image by the names of their columns; of an image that could not be tested, its name and "error"."""

CERTIFICATE = ("pvalue", "agrees", "agreement", "draws", "steps", "seed", "moved")
"""What a table has of certificates, with the prefix ``certificate_``."""

SIMULTANEOUS = tuple(f"simultaneous_{name}" for name in ("low", "high", "error", "count"))
"""Columns of the intervals of components that cover together, and of their number."""

CONTEXT = ("share", "placements", "standard_deviations", "percent_of_range")
"""What a table has of how large the difference is within the image, with the prefix ``context_``."""

MEASURES = ("part_size", "part_size_unit", "part_start", "part_end")
"""What a table has of the size of regions in the units of their files; of signals, where they begin and end."""

MASK = ("mask_use", "mask_pixels")  # what a table has of masks: what they are for, and their pixels

MAP = ("map", "class", "class_label", "class_score", "class_predicted")
"""What a table has of maps for a class or a text: the map; number, label and score of the class; if it is predicted."""

COLUMNS = (
    *("image", "component", "statistic"),
    *("pvalue", "pvalue_low", "pvalue_high", "log_pvalue", "log_pvalue_low", "log_pvalue_high"),
    *(f"pvalue_{method}" for method in get_args(Adjustment)),
    *(f"certificate_{name}" for name in CERTIFICATE),
    *("naive_pvalue", "bonferroni_pvalue"),
    *("difference", "standard_error", "estimate", "estimate_low", "estimate_high"),
    *("confidence_level", "confidence_low", "confidence_high", "confidence_error"),
    *SIMULTANEOUS,
    *(f"context_{name}" for name in CONTEXT),
    *("part_pixels", "region_pixels", "seen_pixels", *MASK, *MEASURES, *MAP, "region_unit"),
    *REGION_RULES,
    *("gamma", "draws", "significant_draws", "majority_pixels", "randomise_seed", "randomise_name"),
    *("alternative", "contrast"),
    *("noise", "approximate_noise", "reference_images", "degrees_of_freedom", "noise_doubt"),
    *("evaluations", "status", "audit_points", "audit_contradictions"),
    "error",
)
"""Columns of a table, in order; a row may hold more."""

TEXT_COLUMNS = (
    *("image", "mask_use", "part_size_unit", "map", "class_label", "region_unit", "randomise_name", "alternative"),
    *("contrast", "noise", "noise_doubt", "status", "error"),
)
TRUTH_COLUMNS = ("certificate_agrees", "class_predicted", "approximate_noise")
"""Columns of texts, and of True and False; the others are of numbers."""

COPIED = (
    *("statistic", "pvalue", "log_pvalue", "naive_pvalue", "bonferroni_pvalue", "difference", "standard_error"),
    *("estimate", "part_pixels", "region_pixels", "seen_pixels", "alternative", "evaluations", "status"),
    "reference_images",
)
"""Columns that are called the same in a record."""

DRAWS = ("draws", "significant_draws", "majority_pixels")  # what a table has of several draws of the added noise

IF_ANY = {"component", *DRAWS, *MASK, *MAP, *MEASURES, *SIMULTANEOUS, *(f"certificate_{name}" for name in CERTIFICATE)}
"""Columns that are there only if a row has them."""


def row_of(name: object, record: ResultRecord) -> Row:
    """Return the row of a result."""
    interval, together = record.confidence_interval, record.simultaneous_interval
    audit, settings = record.audit, record.settings
    row: Row = {"image": _name(name), **{column: getattr(record, column) for column in COPIED}}
    for column in ("pvalue", "log_pvalue", "estimate"):
        row[f"{column}_low"], row[f"{column}_high"] = getattr(record, f"{column}_bounds")
    if interval is not None:
        row |= {f"confidence_{end}": getattr(interval, end) for end in ("low", "high", "error")}
        row["confidence_level"] = interval.confidence_level
    if together is not None:
        row |= dict(zip(SIMULTANEOUS, (together.low, together.high, together.error, together.together), strict=True))
    if record.certificate is not None:
        row |= {f"certificate_{key}": record.certificate[key] for key in (*CERTIFICATE, "summary")}
    if record.context is not None:
        row |= {f"context_{name}": getattr(record.context, name) for name in CONTEXT}
    if record.draws is not None:
        significant, total = record.significant_draws(USUAL_ALPHA)
        row |= {"draws": total, "significant_draws": significant, "majority_pixels": record.draws["majority_pixels"]}
    if record.spacing is not None and record.spacing.unit:
        row |= {"part_size": record.spacing.size(record.part_pixels), "part_size_unit": record.spacing.size_unit}
        row["part_measure"] = measure_text(record)
        if record.dimension == 1:
            row["part_start"], row["part_end"] = (edge * record.spacing.lengths[0] for edge in record.extent[0])
    if record.target is not None:
        target = record.target
        row |= {"map": record.map_kind, "map_words": map_of_all(settings)}
        row |= dict(zip(MAP[1:], (target[name] for name in ("class", "label", "score", "predicted")), strict=True))
    if settings.get("mask"):
        row |= {"mask_use": settings["mask_use"], "mask_pixels": settings["mask"]["pixels"]}
    noise = settings["noise"]
    return row | {
        **{key: settings.get(key) for key in ("region_unit", *REGION_RULES, "noise_doubt", "noisy_reference")},
        "dimension": record.dimension,
        "gamma": settings.get("randomise", 0.0),
        "randomise_seed": settings.get("randomise_seed") if settings.get("randomise") else None,
        "randomise_name": None if settings.get("randomise_name") is None else str(settings["randomise_name"]),
        "contrast": settings["contrast"]["name"],
        "noise": noise.get("model", ""),
        "approximate_noise": record.approximate_noise,
        "assumed_preprocessing": _assumed(settings),
        "degrees_of_freedom": None if isinf(record.degrees_of_freedom) else record.degrees_of_freedom,
        "audit_points": None if audit is None else audit.points,
        "audit_contradictions": None if audit is None else audit.contradictions,
    }


def _assumed(settings: Mapping[str, Any]) -> str | None:
    """Return how an image was prepared for a model that was saved without an image processor, None for any other."""
    steps = settings.get("preprocessing") or {}
    if not steps.get("assumed"):
        return None
    height, width = steps["crop"] or steps["resize"]
    grey = "" if len(steps["mean"]) > 1 else "made grey if it is in colour, "
    return f"{steps['assumed']} prepares it by default, {grey}resized to {height} x {width} pixels and scaled"


def records_of_line(line: Mapping[str, Any]) -> list[ResultRecord]:
    """Return the records of an image that was tested, from the line of a file: one, or one for each component."""
    if not isinstance(line["results"], list) or not line["results"]:
        raise InputError(f"results must be a list of records, got {shortened(line['results'])}.")
    return [ResultRecord.from_dict(values) for values in line["results"]]


def rows_of_line(line: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an image from the line of a file; those of components with p-values adjusted within it."""
    if "error" in line:
        return [failed_row(line["image"], line["error"])]
    rows = rows_of_records(line["image"], records_of_line(line))
    untested = enumerate(line.get("untested", ()), start=len(rows) + 1)
    return [*rows, *({**failed_row(line["image"], reason), "component": number} for number, reason in untested)]


def rows_of_records(name: object, records: Sequence[ResultRecord]) -> list[Row]:
    """Return the rows of an image: one, or one for each component, with p-values adjusted within the image."""
    rows = [row_of(name, record) for record in records]
    if records[0].connectivity is None:
        return rows
    numbered = [{"component": number, **row} for number, row in enumerate(rows, start=1)]
    return list(with_adjusted(numbered, pvalues_of(numbered)))


def failed_row(name: object, reason: str) -> Row:
    """Return the row of an image that could not be tested."""
    return {"image": _name(name), "error": reason}


def pvalues_of(rows: Iterable[Row]) -> ManyPvalues:
    """Return the p-values of rows that have one; of each row only what this needs is kept."""
    known = [
        (
            *(row[name] for name in ("log_pvalue_low", "log_pvalue_high", "naive_pvalue", "status")),
            "certificate_pvalue" in row,
            row.get("noisy_reference"),
        )
        for row in rows
        if "error" not in row
    ]
    low, high, naive, statuses, certified, references = zip(*known, strict=True) if known else [()] * 6
    return ManyPvalues(
        log_low=np.array(low, dtype=np.float64),
        log_high=np.array(high, dtype=np.float64),
        naive=np.array(naive, dtype=np.float64),
        statuses=statuses,
        certified=certified,
        references=references,
    )


def with_adjusted(rows: Iterable[Row], pvalues: ManyPvalues) -> Iterator[Row]:
    """Yield rows with their p-values, which are also given as such, adjusted together, by each method in its column."""
    adjusted = {
        f"pvalue_{method}": iter(pvalues.adjusted_bounds(method)[1].tolist()) for method in get_args(Adjustment)
    }
    for row in rows:
        yield row if "error" in row else {**row, **{name: next(values) for name, values in adjusted.items()}}


def columns_of(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Return rows as columns of a table; what a row does not have is None."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    held: set[str] = set()
    for row in rows:
        held.update(row)
        for name, values in columns.items():
            values.append(row.get(name))
    return {name: values for name, values in columns.items() if name in held or name not in IF_ANY}


def _name(name: object) -> int | str:
    return name if isinstance(name, (int, str)) else str(name)


class ImageRows:
    """The rows of images, in the order of their names: one of each, or one of each component of its region.

    A row as a dictionary takes about three times the memory of its values, which is what is kept here.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._packed: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        self._columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def set(self, name: str, rows: Sequence[Row]) -> None:
        """Keep the rows of an image in place of those that it had; an image that was not named has none."""
        if name in self._packed:
            self._packed[name] = [self._values(row) for row in rows]

    @property
    def names(self) -> list[str]:
        """Names of the images that have rows, in order."""
        return [name for name, packed in self._packed.items() if packed]

    def __len__(self) -> int:
        """Return the number of images that have rows."""
        return len(self.names)

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the rows of each image that has some."""
        for packed in self._packed.values():
            if packed:
                yield [dict(zip(columns, values, strict=True)) for columns, *values in packed]

    def all(self) -> Iterator[Row]:
        """Yield the rows of all images."""
        for rows in self:
            yield from rows

    def _values(self, row: Row) -> tuple[Any, ...]:
        """Return the names of the columns and the values; equal names, and equal texts, are the same object."""
        columns = tuple(row)
        values = (sys.intern(value) if type(value) is str else value for value in row.values())
        return self._columns.setdefault(columns, columns), *values
