"""What a report says, JSON-ready: summary in sentences, table, cards, noise, method, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from attentest.noise.model import recorded_sentence
from attentest.presentation.report.tested_batch import TestedBatch, recorded_sensitivity
from attentest.presentation.words import VERDICTS, row_notes, selection_notes, verdict_text
from attentest.progress import Progress
from attentest.results.many_pvalues import METHOD_NAMES, ManyPvalues
from attentest.results.rows import COLUMNS, Row, pvalues_of, with_adjusted
from attentest.statistics.multiple_testing import Adjustment


def adjustments(known: ManyPvalues, components: bool) -> tuple[Adjustment, ...]:
    """Return how p-values are adjusted: of components within their image; for images that share a reference, by BY."""
    if components:
        return ("holm",)
    return ("by", "holm") if known.share_a_reference else ("bh", "holm")


def counts_of(rows: Sequence[Sequence[Row]], alpha: float) -> dict[str, Any]:
    """Return how many images there are and how many of them are significant, before and after adjustment, JSON-ready.

    With components of regions, the p-values are those of components, and adjusted within each image.
    """
    tested = [some for some in rows if "error" not in some[0]]
    components = any("component" in some[0] for some in tested)
    every = [row for some in tested for row in some]
    known = pvalues_of(every)
    plain = known.decisions(alpha, None)
    adjusted: dict[str, dict[str, int]] = {}
    for method in adjustments(known, components):
        if components:
            made = [one for some in tested for one in pvalues_of(some).decisions(alpha, method)]
        else:
            made = known.decisions(alpha, method)
        adjusted[method] = _counted(made)
    return {
        "images": len(rows),
        "failed": len(rows) - len(tested),
        "tested": len(tested),
        "components": len(every) if components else None,
        **_counted(plain),
        "adjusted": adjusted,
        "naive_significant": int((known.naive <= alpha).sum()),
    }


def summary_sentences(counts: dict[str, Any], alpha: float) -> list[str]:
    """Return the counts in sentences."""
    tested, components = counts["tested"], counts["components"]
    what = f"{_number(tested, 'image')} {_was(tested)} tested"
    if components is not None:
        what += f", with {_number(components, 'connected component')} of attention regions in all"
    sentences = [f"{what}."]
    total = tested if components is None else components
    if total:
        sentences.append(
            f"{counts['significant']} of {total} {_are(counts['significant'])} significant at {alpha:g} by "
            f"{'its' if counts['significant'] == 1 else 'their'} own selective p-value{_open(counts['undecided'])}. If "
            f"no region were real, about {alpha * total:.2g} would be."
        )
        sentences += [
            f"{made['significant']} of {total} {_are(made['significant'])} significant "
            f"{_adjusted(method, components is not None)}{_open(made['undecided'])}."
            for method, made in counts["adjusted"].items()
        ]
        sentences.append(
            f"A naive test, which is not valid because the model chose the region from the same image, would call "
            f"{counts['naive_significant']} of {total} significant."
        )
    if counts["failed"]:
        sentences.append(f"{_number(counts['failed'], 'image')} could not be tested; the reasons are below.")
    return sentences


def _adjusted(method: str, components: bool) -> str:
    name = METHOD_NAMES[method]  # type: ignore[index]
    if components:
        return f"after adjustment for the number of components of each region ({name})"
    kept = {
        "bh": "which keeps the expected share of false findings among all findings at that level",
        "by": "which keeps the expected share of false findings at that level although the images share a reference",
        "holm": "which keeps the chance of any false finding at that level",
    }[method]
    return f"after adjustment for the number of images by the method of {name}, {kept}"


def _counted(decisions: Sequence[bool | None]) -> dict[str, int]:
    made = list(decisions)
    return {"significant": made.count(True), "undecided": made.count(None)}


def _open(count: int) -> str:
    return f" ({count} undecided)" if count else ""


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


Draw: TypeAlias = Callable[["Entry", Mapping[str, Any]], None]
"""Called with each result that is described in detail, and its JSON-ready values."""

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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the table: an image, or one component of its region.

    Parameters
    ----------
    number
        The number of the line, from 0.
    place
        The place of the image in the batch.
    row
        Its numbers, with adjusted p-values, or the error.
    decision
        Whether its own p-value is at most alpha; None if the search cannot tell, or there is none.
    adjusted
        The same for each way to adjust p-values.
    notes
        Footnotes.
    """

    number: int
    place: int
    row: Row
    decision: bool | None = None
    adjusted: Mapping[str, bool | None]
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        return "not tested" if "error" in self.row else VERDICTS[self.decision]

    @property
    def part(self) -> int | None:
        """Number of the component, if it is one."""
        return self.row.get("component")


def report_content(
    batch: TestedBatch, alpha: float, cards: int, progress: Progress | None = None, draw: Draw | None = None
) -> dict[str, Any]:
    """Return what a report says of a batch, JSON-ready.

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
    entries = _entries(batch, alpha)
    chosen = _smallest_first(entries)[:cards]
    details: dict[int, dict[str, Any]] = {}
    tell = progress or (lambda done, total: None)
    for done, entry in enumerate(chosen):
        tell(done, len(chosen))
        values = _values_of(batch, entry)
        details[entry.number] = _detail(batch, entry, values, alpha)
        if draw is not None:
            draw(entry, values)
    tell(len(chosen), len(chosen))
    counts = counts_of(batch.rows, alpha)
    origin = batch.origin
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "alpha": alpha,
        "counts": counts,
        "summary": summary_sentences(counts, alpha),
        "results": [
            {
                **{name: _json_ready(entry.row[name]) for name in COLUMNS if name in entry.row},
                "verdict": entry.verdict,
                "adjusted_verdicts": {name: VERDICTS[made] for name, made in entry.adjusted.items()},
                "footnotes": list(entry.notes),
                "detail": details.get(entry.number),
            }
            for entry in entries
        ],
        "in_detail": [entry.number for entry in chosen],
        "noise": recorded_sentence(origin.noise),
        "reference_noise": None if origin.reference_noise is None else recorded_sentence(origin.reference_noise),
        "method": _method(origin.settings, counts),
        "citation": CITATION,
        "settings": dict(origin.settings),
        "model_sha256": origin.model_sha256,
        "machines": list(origin.machines),
        "runs": list(origin.runs),
        "warnings": list(origin.warnings),
    }


def _method(settings: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    """Return how the numbers come about, in a few sentences."""
    more = {
        EQUAL_TAILS: settings.get("alternative") == "equal-tailed",
        TOGETHER: counts["components"] is not None and settings.get("confidence_level") is not None,
    }
    return " ".join([METHOD, *(sentence for sentence, holds in more.items() if holds)])


def _entries(batch: TestedBatch, alpha: float) -> list[Entry]:
    """Return the lines of the table, in the order of the images."""
    rows = [row for some in batch.rows for row in some]
    places = [place for place, some in enumerate(batch.rows) for _ in some]
    components = any("component" in row for row in rows)
    known = pvalues_of(rows)
    plain = iter(known.decisions(alpha, None))
    methods = adjustments(known, components)
    if components:
        every = [pvalues_of(some).decisions(alpha, "holm") for some in batch.rows if "error" not in some[0]]
        made = {"holm": iter([one for some in every for one in some])}
    else:
        rows = list(with_adjusted(rows, known))
        made = {method: iter(known.decisions(alpha, method)) for method in methods}
    searched = batch.origin.settings.get("confidence_level")
    entries = []
    for number, (place, row) in enumerate(zip(places, rows, strict=True)):
        if "error" in row:
            entries.append(Entry(number=number, place=place, row=row, adjusted={}))
            continue
        decision = next(plain)
        level = None if searched is None else row["confidence_level"]
        notes = [*row_notes(row, decision, alpha, level), *selection_notes(row)]
        adjusted = {method: next(decisions) for method, decisions in made.items()}
        entries.append(Entry(number=number, place=place, row=row, decision=decision, adjusted=adjusted, notes=notes))
    return entries


def _smallest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return the lines that have a p-value, the smallest first."""
    return sorted((entry for entry in entries if "error" not in entry.row), key=lambda entry: entry.row["log_pvalue"])


def _detail(batch: TestedBatch, entry: Entry, values: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    sensitivity = recorded_sensitivity(values, alpha)
    return {
        "verdict": verdict_text(values, alpha),
        "adjusted": _adjusted_content(entry, batch),
        "noise": recorded_sentence(values["noise"]),
        "sensitivity": None if sensitivity is None else sensitivity.to_dict(),
        "certificate": None if values["certificate"] is None else values["certificate"]["summary"],
    }


def _values_of(batch: TestedBatch, entry: Entry) -> Mapping[str, Any]:
    """Return the JSON-ready values of a result."""
    record = batch.record(entry.place)
    values: Mapping[str, Any] = record if entry.part is None else record["components"][entry.part - 1]
    return values


def _adjusted_content(entry: Entry, batch: TestedBatch) -> str | None:
    """Return the verdicts after adjustment; None where there is one hypothesis only."""
    rows = batch.rows[entry.place] if entry.part is not None else [row for some in batch.rows for row in some]
    total = sum("error" not in row for row in rows)
    if total < 2:
        return None
    of = "components of this region" if entry.part is not None else "tested images"
    texts = [
        f"{VERDICTS[made]} by {METHOD_NAMES[method]} (p = {entry.row[f'pvalue_{method}']:.3g})"  # type: ignore[index]
        for method, made in entry.adjusted.items()
    ]
    return f"Adjusted for the {total} {of}: {', '.join(texts)}."


def _json_ready(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
