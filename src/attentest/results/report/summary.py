"""What a batch shows, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attentest.results.many_pvalues import METHOD_NAMES, ManyPvalues
from attentest.results.rows import Row, pvalues_of
from attentest.statistics.multiplicity import Adjustment


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
