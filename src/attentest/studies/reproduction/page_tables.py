"""The tables of the page: cells of text, from the numbers of the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attentest.studies.document import Table, number, rate_text
from attentest.studies.reproduction.published_figure import PERMUTATION, POWER
from attentest.studies.reproduction.verdict import Setting, label


def _type_i_error(settings: Sequence[Setting]) -> list[Table]:
    head = ("setting", "images", "selective", "naive", "Bonferroni", "permutation", "band", "KS p", "evaluations", "s")
    rows = []
    for setting in settings:
        tests = setting["tests"]
        low, high = tests["selective"]["band"]
        rows.append(
            (
                label(setting),
                f"{setting['images']:,}",
                *(rate_text(tests.get(test)) for test in ("selective", "naive", "bonferroni", "permutation")),
                f"{low:.3f} to {high:.3f}",
                number(setting["ks_pvalue"]),
                number(setting["evaluations"]),
                number(setting["seconds"]),
            )
        )
    published = [
        (
            label(setting),
            f"{PERMUTATION[setting['model']]:.3f}",
            rate_text(setting["tests"]["permutation"]),
            f"{setting['permutation']['permutations']:,}",
            f"{setting['permutation']['images']:,}",
        )
        for setting in settings
        if setting["noise"] == "correlated" and setting["model"] in PERMUTATION and setting["permutation"]
    ]
    tables = [Table(head=head, rows=rows)]
    if published:
        tables.append(Table(head=("permutation test", "published", "here", "permutations", "images"), rows=published))
    return tables


def _levels(settings: Sequence[Setting]) -> list[Table]:
    alphas = tuple(settings[0]["levels"]) if settings else ()
    rows = [
        (
            label(setting),
            f"{setting['images']:,}",
            *(rate_text(setting["levels"][alpha]) for alpha in alphas),
            number(setting["ks_pvalue"]),
            number(setting["evaluations"]),
            number(setting["seconds"]),
        )
        for setting in settings
    ]
    bands = {(rate["total"], alpha): rate["band"] for setting in settings for alpha, rate in setting["levels"].items()}
    return [
        Table(head=("setting", "images", *(f"at {alpha}" for alpha in alphas), "KS p", "evaluations", "s"), rows=rows),
        Table(
            head=("images", "level", "band"),
            rows=[(f"{total:,}", alpha, f"{low:.4f} to {high:.4f}") for (total, alpha), (low, high) in bands.items()],
        ),
    ]


def _non_gaussian(settings: Sequence[Setting]) -> list[Table]:
    alphas = tuple(settings[0]["levels"]) if settings else ()
    rows = [
        (
            setting["family"],
            f"{setting['distance']:g}",
            number(setting["shape"], 5),
            f"{setting['images']:,}",
            *(rate_text(setting["levels"][alpha]) for alpha in alphas),
            number(setting["ks_pvalue"]),
        )
        for setting in settings
    ]
    return [
        Table(head=("family", "distance", "shape", "images", *(f"at {alpha}" for alpha in alphas), "KS p"), rows=rows)
    ]


def _power(settings: Sequence[Setting]) -> list[Table]:
    rows = [
        (
            label(setting),
            f"{setting['delta']:g}",
            f"{setting['images']:,}",
            rate_text(setting["tests"]["selective"]),
            rate_text(setting["tests"]["bonferroni"]),
            f"{POWER[setting['noise']][setting['delta']]:.3f}",
        )
        for setting in settings
    ]
    return [Table(head=("setting", "Delta", "images", "selective", "Bonferroni", "selective, published"), rows=rows)]


def _computation_time(settings: Sequence[Setting]) -> list[Table]:
    rows = [
        (
            label(setting),
            setting["search"],
            f"{setting['images']:,}",
            number(setting["seconds"]),
            number(setting["seconds_ratio"]),
            number(setting["evaluations"]),
            number(setting["evaluations_ratio"]),
            ", ".join(setting["devices"]),
        )
        for setting in settings
    ]
    head = ("setting", "search", "images", "s an image", "to spectral", "evaluations", "to spectral", "device")
    return [Table(head=head, rows=rows)]


def _demonstration(settings: Sequence[Setting]) -> list[Table]:
    rows = [
        (
            f"{setting['image']}",
            f"{setting['statistic']:.3f}",
            f"{setting['bent']['count']:,} of {setting['bent']['total']:,}",
            number(setting["smallest_close"]),
            number(setting["median_close"]),
        )
        for setting in settings
    ]
    head = (
        "image",
        "statistic",
        "steps that are not straight",
        "smallest |f_i| close to it",
        "that of the median pixel",
    )
    return [Table(head=head, rows=rows)]


def _precision(settings: Sequence[Setting]) -> list[Table]:
    gaps, regions = [], []
    for setting in settings:
        for name in ("float32", "float64"):
            found = setting[name]
            gaps.append(
                (
                    f"{label(setting)}, {name}",
                    f"{setting['images']:,}",
                    *(f"{found[part]:.2g}" for part in ("median", "ninety_percent", "greatest")),
                    rate_text(found["verdict_changes"]),
                )
            )
        worst = setting["worst"]
        regions.append(
            (
                label(setting),
                rate_text(setting["region_differs"]),
                f"{setting['pixels_changed']['most']:,}",
                f"{worst['image']}: {worst['p']:.4g}, {worst['p_float64']:.4g}, {worst['p_float32']:.4g}",
            )
        )
    worst_head = "image with the greatest difference: p, p in float64, p in float32"
    return [
        Table(head=("setting", "images", "median |difference of p|", "90%", "greatest", "verdict changes"), rows=gaps),
        Table(head=("setting", "region differs in float32", "pixels at most", worst_head), rows=regions),
    ]


TABLES: Mapping[str, Callable[[Sequence[Setting]], list[Table]]] = {
    "type-i-error": _type_i_error,
    "additional-trials": _levels,
    "power": _power,
    "computation-time": _computation_time,
    "estimated-variance": _levels,
    "non-gaussian": _non_gaussian,
    "demonstration": _demonstration,
    "precision": _precision,
}
"""Of each experiment, from its settings."""
