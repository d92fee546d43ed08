"""What a report says, JSON-ready: summary in sentences, table, cards, noise, method, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from attentest.errors import counted
from attentest.noise.model import recorded_sentence
from attentest.presentation.report.tested_batch import TestedBatch
from attentest.presentation.rows import COLUMNS, Row, pvalues_of, with_adjusted
from attentest.presentation.sensitivity import recorded_sensitivity
from attentest.presentation.words import METHOD_NAMES, VERDICTS, row_notes, selection_notes, verdict_text
from attentest.progress import Progress
from attentest.record import ResultRecord, json_ready
from attentest.statistics.multiple_testing import Adjustment

Draw: TypeAlias = Callable[[int, int, int | None, ResultRecord], None]
"""Called with the number of each result that is described in detail, the place of its image, the number of its
component if it is one, and its record."""

Decisions: TypeAlias = "list[bool | None]"
"""Whether hypotheses are rejected; None where the error bars do not tell."""

KEPT = {
    "bh": "which keeps the expected share of false findings among all findings at that level",
    "by": "which keeps the expected share of false findings at that level although the images share a reference",
    "holm": "which keeps the chance of any false finding at that level",
}
"""What each way to adjust p-values is for."""

METHOD = (
    "The region is where the attention map of the model exceeds its threshold. The compared difference is standardised "
    "by the noise, and its distribution is taken given that the model chooses this very region: the truncation set, on "
    "which it does, is searched along the line on which only the difference varies. The selective p-value is the "
    "probability, under that distribution and if there is no difference, of a difference at least as large as the "
    "observed one. Where there is nothing to find and the noise is as assumed, it is at most 0.05 one time in twenty, "
    "whatever the model. Estimate and interval come from the same distribution. The naive p-value ignores that the "
    "model chose the region, and is not valid."
)

EQUAL_TAILS = (
    "Here the selective p-value has equal tails: it is twice the probability of the smaller of the two tails that the "
    "observed difference divides the distribution into, and less than 0.05 exactly when the 95% interval excludes 0."
)

TOGETHER = (
    "Simultaneous intervals of the components of one region all cover their true differences together with the stated "
    "probability (Bonferroni), given the region."
)

CITATION = (
    "Shiraishi, T., Miwa, D., Katsuoka, T., Duy, V. N. L., Taji, K. and Takeuchi, I.: Statistical Test for Attention "
    "Map in Vision Transformer. attentest is an independent implementation of its method."
)


def report_content(
    batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None, draw: Draw | None = None
) -> dict[str, Any]:
    """Return what a report says of a batch, JSON-ready.

    With components of regions, the p-values are those of components, and adjusted within each image.

    Parameters
    ----------
    batch
        The batch.
    alpha
        Significance level.
    cards
        Largest number of results that are described in detail: those with the smallest p-values.
    progress
        Told how many of them are done.
    draw
        Draws the pictures of each of them, if there are to be any.
    """
    rows = [row for image in batch.rows for row in image]
    places = [place for place, image in enumerate(batch.rows) for _ in image]
    tested = [number for number, row in enumerate(rows) if "error" not in row]
    components = any("component" in row for row in rows)
    known = pvalues_of(rows)
    if not components:
        rows = list(with_adjusted(rows, known))
    plain, adjusted = known.decisions(alpha), _adjusted_decisions(batch, rows, components, alpha)
    order = {number: place for place, number in enumerate(tested)}
    smallest = sorted(tested, key=lambda number: rows[number]["log_pvalue"])[:cards]
    details: dict[int, dict[str, Any]] = {}
    tell = progress or (lambda done, total: None)
    for done, number in enumerate(smallest):
        tell(done, len(smallest))
        row, place = rows[number], places[number]
        part = row.get("component")
        records, sensitivity = batch.line(place)
        record = records[0 if part is None else part - 1]
        total = len(tested) if part is None else len(batch.rows[place])
        decided = {method: decisions[order[number]] for method, decisions in adjusted.items()}
        details[number] = _detail(record, sensitivity, alpha) | {"adjusted": _adjusted_text(row, decided, total)}
        if draw is not None:
            draw(number, place, part, record)
    tell(len(smallest), len(smallest))
    images = {places[number] for number in tested}
    counts: dict[str, Any] = {
        "images": len(batch.rows),
        "failed": len(batch.rows) - len(images),
        "tested": len(images),
        "components": len(tested) if components else None,
        **_counts(plain),
        "adjusted": {method: _counts(decisions) for method, decisions in adjusted.items()},
        "naive_significant": int((known.naive <= alpha).sum()),
    }
    origin = batch.origin
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "alpha": alpha,
        "counts": counts,
        "summary": summary_sentences(counts, alpha),
        "results": _results(batch, rows, dict(zip(tested, plain, strict=True)), adjusted, details, alpha),
        "in_detail": smallest,
        "noise": recorded_sentence(origin.noise),
        "reference_noise": None if origin.reference_noise is None else recorded_sentence(origin.reference_noise),
        "method": _method(origin.settings, components),
        "citation": CITATION,
        "settings": dict(origin.settings),
        "model_sha256": origin.model_sha256,
        "machines": list(origin.machines),
        "runs": list(origin.runs),
        "warnings": list(origin.warnings),
    }


def summary_sentences(counts: dict[str, Any], alpha: float) -> list[str]:
    """Return the counts in sentences."""
    tested, components = counts["tested"], counts["components"]
    what = f"{counted(tested, 'image')} {'was' if tested == 1 else 'were'} tested"
    if components is not None:
        what += f", with {counted(components, 'connected component')} of attention regions in all"
    sentences = [f"{what}."]
    total = tested if components is None else components
    if total:
        whose = "its" if counts["significant"] == 1 else "their"
        sentences.append(
            f"{_significant(counts, total)} at {alpha:g} by {whose} own selective p-value{_open(counts)}. If no "
            f"region were real, about {alpha * total:.2g} would be."
        )
        for method, made in counts["adjusted"].items():
            name = METHOD_NAMES[method]
            how = f"for the number of images by the method of {name}, {KEPT[method]}"
            if components is not None:
                how = f"for the number of components of each region ({name})"
            sentences.append(f"{_significant(made, total)} after adjustment {how}{_open(made)}.")
        sentences.append(
            f"A naive test, which is not valid because the model chose the region from the same image, would call "
            f"{counts['naive_significant']} of {total} significant."
        )
    if counts["failed"]:
        sentences.append(f"{counted(counts['failed'], 'image')} could not be tested; the reasons are below.")
    return sentences


def _adjusted_decisions(
    batch: TestedBatch, rows: Sequence[Row], components: bool, alpha: float
) -> dict[Adjustment, Decisions]:
    """Return the decisions on all tested rows by adjusted p-values, for each way to adjust them."""
    if components:
        images = [pvalues_of(image) for image in batch.rows if "error" not in image[0]]
        return {"holm": [decided for image in images for decided in image.decisions(alpha, "holm")]}
    known = pvalues_of(rows)
    methods: tuple[Adjustment, ...] = ("by", "holm") if known.share_a_reference else ("bh", "holm")
    return {method: known.decisions(alpha, method) for method in methods}


def _results(
    batch: TestedBatch,
    rows: Sequence[Row],
    plain: Mapping[int, bool | None],
    adjusted: Mapping[Adjustment, Decisions],
    details: Mapping[int, Mapping[str, Any]],
    alpha: float,
) -> list[dict[str, Any]]:
    """Return the lines of the table, in the order of the images."""
    waiting = {method: iter(decisions) for method, decisions in adjusted.items()}
    with_intervals = batch.origin.settings.get("confidence_level") is not None
    results = []
    for number, row in enumerate(rows):
        result = {name: json_ready(row[name]) for name in COLUMNS if name in row}
        result |= {"verdict": "not tested", "adjusted_verdicts": {}, "footnotes": [], "detail": details.get(number)}
        if number in plain:
            level = row["confidence_level"] if with_intervals else None
            result["verdict"] = VERDICTS[plain[number]]
            result["adjusted_verdicts"] = {method: VERDICTS[next(decisions)] for method, decisions in waiting.items()}
            result["footnotes"] = [*row_notes(row, plain[number], alpha, level), *selection_notes(row)]
        results.append(result)
    return results


def _detail(record: ResultRecord, sensitivity: Mapping[str, Any] | None, alpha: float) -> dict[str, Any]:
    """Return what the card of a result says besides its row."""
    level = record.confidence_interval.confidence_level
    return {
        "verdict": verdict_text(record, alpha),
        "noise": recorded_sentence(record.settings["noise"]),
        "sensitivity": recorded_sensitivity(record, sensitivity, alpha=alpha, confidence_level=level).to_dict(),
        "certificate": None if record.certificate is None else record.certificate["summary"],
    }


def _adjusted_text(row: Row, decided: Mapping[Adjustment, bool | None], total: int) -> str | None:
    """Return the verdicts after adjustment; None where there is one hypothesis only."""
    if total < 2:
        return None
    of = "components of this region" if "component" in row else "tested images"
    texts = [
        f"{VERDICTS[decision]} by {METHOD_NAMES[method]} (p = {row[f'pvalue_{method}']:.3g})"
        for method, decision in decided.items()
    ]
    return f"Adjusted for the {total} {of}: {', '.join(texts)}."


def _method(settings: Mapping[str, Any], components: bool) -> str:
    """Return how the numbers come about, in a few sentences."""
    equal_tails = [EQUAL_TAILS] if settings.get("alternative") == "equal-tailed" else []
    together = [TOGETHER] if components and settings.get("confidence_level") is not None else []
    return " ".join([METHOD, *equal_tails, *together])


def _counts(decisions: Decisions) -> dict[str, int]:
    return {"significant": decisions.count(True), "undecided": decisions.count(None)}


def _significant(counts: Mapping[str, int], total: int) -> str:
    return f"{counts['significant']} of {total} {'is' if counts['significant'] == 1 else 'are'} significant"


def _open(counts: Mapping[str, int]) -> str:
    return f" ({counts['undecided']} undecided)" if counts["undecided"] else ""
