"""What the page can answer: a question is compared with the fields it is about, before anything is computed.

Gradio itself finds out while it answers, and then says "500" to the browser and writes a stack trace to the log.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attentest.app.guard import Refusal
from attentest.errors import shortened
from attentest.progress import duration

if TYPE_CHECKING:
    import gradio as gr

MOST_WAITING = 100
"""Most tests that wait at a time, of all open pages."""

LONGEST_SESSION = 64
"""Most characters of the name of a session, which the page draws at random."""

TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int, float), "a finite number"),
    "number": ((int, float), "a finite number"),
    "string": ((str,), "a text"),
}
"""Types of values by their names in the fields' own descriptions, and how messages call them."""


class Questions:
    """The questions of a page.

    Parameters
    ----------
    page
        The page.
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def knows(self, session: str) -> bool:
        """Return whether a session waits for answers."""
        return session in self._page._queue.pending_messages_per_session

    def checked(self, question: Any) -> dict[str, Any] | Refusal:
        """Return a question, with that alone in it which is needed; or why it is refused."""
        if not isinstance(question, dict):
            return Refusal(400, f"a question must be a JSON object, got {shortened(question)}.")
        number, session, values = (question.get(name) for name in ("fn_index", "session_hash", "data"))
        function = self._page.fns.get(number) if type(number) is int else None
        if function is None or function.fn is None:
            return Refusal(404, f"the page has no function {shortened(number)}: load it again.")
        if not isinstance(session, str) or not session.isalnum() or len(session) > LONGEST_SESSION:
            return Refusal(
                400,
                f"session_hash must be 1 to {LONGEST_SESSION} letters and digits, got {shortened(session)}.",
            )
        if not isinstance(values, list) or len(values) != len(function.inputs):
            count = f"{len(values)} values" if isinstance(values, list) else shortened(values)
            return Refusal(400, f"data must be a list of {len(function.inputs)} values, got {count}.")
        for field, value in zip(function.inputs, values, strict=True):
            expected = _expected(field, value)
            if expected:
                name = getattr(field, "label", None) or field.get_block_name()
                return Refusal(400, f"the field {name!r} must be {expected}, got {shortened(value)}.")
        if function.queue and len(self._page._queue) >= MOST_WAITING:
            return Refusal(429, self._full())
        return {"data": values, "fn_index": number, "session_hash": session}

    def _full(self) -> str:
        """Return how many tests wait and how long that takes, from the tests that were made."""
        times = self._page._queue.process_time_per_fn.values()
        count, waiting = sum(time.count for time in times), len(self._page._queue)
        if not count:
            return f"{waiting} tests wait already: try again when the first are done."
        seconds = waiting * sum(time.process_time for time in times) / count
        return f"{waiting} tests wait already, which takes about {duration(seconds, 0)}: try again then."


def _expected(field: Any, value: Any) -> str | None:
    """Return what the value of a field must be if it is something else."""
    if field.stateful:  # the server has its value
        return None
    if field.data_model is not None:
        return None if value is None or _is_valid(field.data_model, value) else "uploaded files"
    described = field.api_info()
    types, words = TYPES[described["type"]]
    least, most = getattr(field, "minimum", None), getattr(field, "maximum", None)
    if value is None and bool not in types and least is None:  # an empty field: what needs it says so
        return None
    if "enum" in described:
        return None if value in described["enum"] else f"one of {', '.join(described['enum'])}"
    if type(value) not in types or (float in types and not _is_finite(value)):
        return words
    return None if least is None or least <= value <= most else f"from {least:g} to {most:g}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _is_valid(model: Any, value: Any) -> bool:
    try:
        model.model_validate(value, context={"validate_meta": True})
    except (ValueError, TypeError):
        return False
    return True
