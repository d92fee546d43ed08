"""The page itself: fields on the left, the result on the right, and what happens when one is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from attentest.app.actions import Actions, Session
from attentest.app.fields import Fields, new_fields
from attentest.app.form import NUMBER, Form
from attentest.app.result_view import message_html

MOST_WAITING = 16
"""Most tests that wait at a time, of all open pages."""

IS_DARK = "(...values) => [...values.slice(0, -1), document.body.classList.contains('dark')]"
"""Says, as the last value of a question, whether the page is dark."""

CHANGED = """() => document.querySelector('#result .verdict')
    ? '<div class="message changed" role="status">The settings have changed since this test: press Test again.</div>'
    : ''"""
"""Says that a result on the page is no longer that of its fields."""

TITLE = """<header class="top"><h1>attentest</h1>
<p>Is the region that a Vision Transformer attends to statistically real?</p></header>"""

WELCOME = (
    "Upload an image, or click an example. The result appears here: the region that the model attends to, whether it "
    "differs from the rest of the image by more than chance, and by how much."
)

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Of every event: it is for the page alone."""

AT_ONCE: dict[str, Any] = {**PRIVATE, "queue": False, "show_progress": "hidden", "trigger_mode": "always_last"}
"""Of events that take no time to speak of; of several, the last one counts."""


def new_page(actions: Actions) -> gr.Blocks:
    """Return the page."""
    with gr.Blocks(title="attentest", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(TITLE, padding=False)
        with gr.Row(equal_height=False, elem_id="columns"):
            with gr.Column(scale=4, min_width=320, elem_id="fields"):
                fields = new_fields(actions)
            with gr.Column(scale=7, min_width=320, elem_id="answers"):
                changed = gr.HTML(elem_id="changed", padding=False)
                result = gr.HTML(message_html(WELCOME, "welcome"), elem_id="result", min_height=200, padding=False)
        _connect(actions, fields, changed, result)
    page.queue(max_size=MOST_WAITING, default_concurrency_limit=1)
    return page


def _connect(actions: Actions, fields: Fields, changed: gr.HTML, result: gr.HTML) -> None:
    """Say what happens when a field is used."""
    session = gr.State(Session())
    number, dark = gr.Number(visible=False), gr.Checkbox(visible=False)
    asked = [fields.model, *fields.form.values()]

    def form_of(values: Sequence[Any]) -> Form:
        return Form.of(**dict(zip(fields.form, values, strict=True)))

    def take_upload(known: Session, path: str | None, frame: str | None, window: bool) -> Any:
        if path is None:  # a frame was chosen while an example is shown
            return gr.skip()
        return actions.take_upload(known, path, frame, window), *no_result(known)

    def take_example(label: str, known: Session) -> tuple[Any, ...]:
        return None, "", actions.take_example(known, label), NUMBER, 1.0, 0.0

    def forget_image(known: Session) -> tuple[str, str, str]:
        return known.forget_image(), *no_result(known)

    def no_result(known: Session) -> tuple[str, str]:
        """Show the result of no image beside another one: neither the last one nor one that is being computed."""
        known.ask()
        return message_html(WELCOME, "welcome"), ""

    def preview(known: Session, model: str, *values: Any) -> str:
        return actions.preview(known, model, form_of(values))

    def run(known: Session, asked_number: float, model: str, *values: Any, progress: Any = gr.Progress()) -> Any:  # noqa: B008
        *answers, is_dark = values

        def show(share: float) -> None:
            progress(share, desc="Testing" if share < 1 else "Drawing")

        html = actions.test(known, int(asked_number), model, form_of(answers), is_dark, show)
        return gr.skip() if html is None else (html, "")

    def then_preview(event: Any) -> Any:
        return event.then(preview, [session, *asked], fields.preview, **AT_ONCE)

    def then_test(event: Any) -> None:
        """Let a test follow, which replaces one that runs: it is announced at once, and waits in the queue."""
        event.then(Session.ask, session, number, **AT_ONCE).then(
            run,
            [session, number, *asked, dark],
            [result, changed],
            js=IS_DARK,
            show_progress_on=result,
            trigger_mode="multiple",
            concurrency_id="test",
            concurrency_limit=1,
            **PRIVATE,
        )

    read = gr.on(
        [fields.file.upload, fields.frame.change, fields.window.change],
        take_upload,
        [session, fields.file, fields.frame, fields.window],
        [fields.problem, result, changed],
        **AT_ONCE,
    )
    then_preview(read)
    then_preview(fields.file.clear(forget_image, session, [fields.problem, result, changed], **AT_ONCE))
    gr.on([each.change for each in fields.of_region], preview, [session, *asked], fields.preview, **AT_ONCE)
    for slider in fields.sliders:
        then_test(slider.release(None, **PRIVATE))
    then_test(fields.test.click(None, **PRIVATE))
    for label, button in fields.examples.items():
        outputs = [fields.file, fields.problem, *fields.set_by_examples]
        then_test(then_preview(button.click(partial(take_example, label), session, outputs, **AT_ONCE)))
    quiet = [each.input for each in asked if each not in fields.sliders and hasattr(each, "input")]
    gr.on(quiet, None, None, changed, js=CHANGED, **PRIVATE)
