"""The page itself: fields on the left, the result on the right, and what happens when one is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

import gradio as gr

from attentest.app.actions import Actions, Session
from attentest.app.fields import new_fields
from attentest.app.form import NUMBER, Form, proposed_options, questions
from attentest.app.result_view import message_html
from attentest.attention.relevance import PREDICTED
from attentest.definition import REGION_RULES, MapDefinition
from attentest.progress import Forecast, remaining_text

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

USUAL_MAP = MapDefinition().map_name  # the map that is chosen at first

NOISE_FIELDS = ("noise", "sigma", "rho")
NOISE_OF_EXAMPLES = (NUMBER, "1", 0.0)
"""Fields that say what the noise is, and what it is in the examples."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}  # of every event: it is for the page alone

AT_ONCE: dict[str, Any] = {**PRIVATE, "queue": False, "show_progress": "hidden", "trigger_mode": "always_last"}
"""Of events that take no time to speak of; of several, the last one counts."""


def new_page(actions: Actions) -> gr.Blocks:
    """Return the page."""
    with gr.Blocks(title="attentest", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(TITLE, padding=False)
        with gr.Row(equal_height=False, elem_id="columns"):
            with gr.Column(scale=4, min_width=320, elem_id="fields"):
                fields, form, examples = new_fields(actions)
            with gr.Column(scale=7, min_width=320, elem_id="answers"):
                changed = gr.HTML(elem_id="changed", padding=False)
                result = gr.HTML(message_html(WELCOME, "welcome"), elem_id="result", min_height=200, padding=False)
        _connect(page, actions, fields, form, examples, changed, result)
    page.queue(default_concurrency_limit=1)
    return page


def _connect(
    page: gr.Blocks,
    actions: Actions,
    fields: dict[str, Any],
    form: dict[str, Any],
    examples: dict[str, gr.Button],
    changed: gr.HTML,
    result: gr.HTML,
) -> None:
    """Say what happens when a field is used."""
    session = gr.State(Session())
    number, dark = gr.Number(visible=False), gr.Checkbox(visible=False)
    file, problem, shown_region, model_field = (fields[name] for name in ("file", "problem", "preview", "model"))
    asked, of_image = [model_field, *form.values()], [shown_region, form["target"]]
    proposed = questions()
    noise_at_first = [proposed[name][1] for name in NOISE_FIELDS]
    sliders = [form[rule] for rule in REGION_RULES if proposed[rule][0].slider]  # let go, they start a test

    def form_of(values: Sequence[Any]) -> Form:
        return Form.of(**dict(zip(form, values, strict=True)))

    def take_upload(
        known: Session, model: str, path: str | None, frame: str | None, window: bool, channels: str | None
    ) -> Any:
        if path is None:  # a frame was chosen while an example is shown
            return gr.skip()
        # The noise of an example, which is known, is that of no other image.
        noise = noise_at_first if known.example else [gr.skip()] * len(NOISE_FIELDS)
        return actions.take_upload(known, model, path, frame, window, channels), *no_result(known), *noise

    def take_example(label: str, known: Session) -> tuple[Any, ...]:
        return None, "", actions.take_example(known, label), *NOISE_OF_EXAMPLES

    def forget_image(known: Session) -> tuple[str, str, str]:
        return known.forget_image(), *no_result(known)

    def no_result(known: Session) -> tuple[str, str]:
        """Show the result of no image beside another one: neither the last one nor one that is being computed."""
        known.ask()
        return message_html(WELCOME, "welcome"), ""

    def preview(known: Session, model: str, *values: Any) -> tuple[str, Any]:
        answers = form_of(values)
        return actions.preview(known, model, answers), gr.update(choices=actions.classes(known, model, answers))

    def offer_maps(model: str, map_name: str) -> tuple[Any, ...]:
        """Offer the maps of a model; one that it cannot give, and the class of another model, are given up."""
        choices = actions.maps(model)
        names = [value for _, value in choices]
        kept = map_name if map_name in names else (names or [USUAL_MAP])[0]
        return gr.update(choices=choices, value=kept), PREDICTED, ""

    def take_model(known: Session, model: str, map_name: str) -> tuple[Any, ...]:
        return actions.take_model(known, model), *offer_maps(model, map_name)

    def run(known: Session, asked_number: float, model: str, *values: Any, progress: Any = gr.Progress()) -> Any:  # noqa: B008
        *answers, is_dark = values
        forecast = Forecast()

        def show(share: float) -> None:
            left = remaining_text(forecast.seconds_left(share, 1.0, monotonic()))
            testing = ", ".join(filter(None, ["Testing", left]))
            progress(share, desc=testing if share < 1 else "Drawing")

        html = actions.test(known, int(asked_number or 0), model, form_of(answers), is_dark, show)
        return gr.skip() if html is None else (html, "")

    def then_preview(event: Any) -> Any:
        return event.then(preview, [session, *asked], of_image, **AT_ONCE)

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

    of_map = [form[name] for name in ("map_name", "target", "other_class")]
    page.load(offer_maps, [model_field, form["map_name"]], of_map, **AT_ONCE)
    part = [fields["frame"], fields["window"], fields["channels"]]
    changes = [file.upload, *(field.change for field in part)]
    shown = [problem, result, changed, *(form[name] for name in NOISE_FIELDS)]
    # Gradio shows a refusal, as of a file that is deleted, for questions of its queue alone; this one waits for none.
    shown_if_refused = AT_ONCE | {"queue": True, "concurrency_limit": None}
    then_preview(gr.on(changes, take_upload, [session, model_field, file, *part], shown, **shown_if_refused))
    then_preview(file.clear(forget_image, session, [problem, result, changed], **AT_ONCE))
    of_region = [form[name] for name in ("rule", "resize", "black", "white", "other_class", *proposed_options())]
    taken = [session, model_field, form["map_name"]]
    then_preview(model_field.change(take_model, taken, [problem, *of_map], **AT_ONCE))
    gr.on([field.change for field in of_region], preview, [session, *asked], of_image, **AT_ONCE)
    for slider in sliders:
        then_test(slider.release(None, **PRIVATE))
    then_test(fields["test"].click(None, **PRIVATE))
    set_by_examples = [model_field, *(form[name] for name in NOISE_FIELDS)]
    for label, button in examples.items():
        outputs = [file, problem, *set_by_examples]
        then_test(then_preview(button.click(partial(take_example, label), session, outputs, **AT_ONCE)))
    quiet = [field.input for field in asked if field not in sliders and hasattr(field, "input")]
    quiet.append(form["mask"].change)
    gr.on(quiet, None, None, changed, js=CHANGED, **PRIVATE)
