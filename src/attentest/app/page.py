"""The page itself: fields on the left, the result on the right, and what happens when one is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import floor, log10
from time import monotonic
from typing import Any

import gradio as gr
from gradio.data_classes import ListFiles

from attentest.app.actions import MAP_LABELS, Actions, Session
from attentest.app.form import (
    CONTROLS,
    COUNTS,
    IMAGE,
    LEVEL,
    NO_FILTER,
    NUMBER,
    THRESHOLD,
    TOP_FRACTION,
    Form,
    proposed_options,
    questions,
    takes_class,
)
from attentest.app.offered import TEXT
from attentest.app.result_view import message_html
from attentest.attention.relevance import PREDICTED
from attentest.definition import COMPARED, REGION_RULES, MapDefinition, Option
from attentest.progress import Forecast, remaining_text
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS

CHOICE_LABELS = {
    NUMBER: "a number",
    CONTROLS: "from control images",
    IMAGE: "from this image, approximate",
    COUNTS: "counts (Poisson)",
    THRESHOLD: "attention above a threshold",
    TOP_FRACTION: "the part of greatest attention",
    LEVEL: "a map above a level, not scaled",
    "pixels": "pixels, as in the paper",
    "patches": "whole patches",
    "background": "the rest of the image",
    "neighbourhood": "a ring around it",
    "region-mean": "zero, for filtered images",
    NO_FILTER: "brightness",
    "laplacian": "second derivatives",
    "sobel-x": "vertical edges",
    "sobel-y": "horizontal edges",
    "gaussian": "blurred brightness",
    "map": "choosing the region",
    "contrast": "the comparison",
    "both": "both",
    "two-sided": "different",
    "equal-tailed": "different, p as twice the smaller tail",
    "greater": "brighter",
    "less": "darker",
    **{name: f"{name}: {part.summary}" for name, part in (*NOISE_ESTIMATORS.items(), *IMAGE_NOISE.items())},
}
"""What the page calls that which can be chosen."""

MOST_BUTTONS = 4  # more choices than this are a list to open


def new_fields(actions: Actions) -> tuple[dict[str, Any], dict[str, Any], dict[str, gr.Button]]:
    """Add the fields to the page, and return those of the page itself, those of a test, and the buttons of examples.

    Those of a test are by their names in ``questions()``, and the buttons by the labels of the examples.
    """
    form: dict[str, Any] = {}

    def add(*names: str, visible: bool = True) -> None:
        form.update({name: _field(name, *asked[name], visible=visible) for name in names})

    def add_options(panel: str | None) -> None:
        """Add the options of a test under a heading, as far as they are not on the page yet."""
        add(*(name for name, (option, _) in asked.items() if option.panel == panel and name not in form))

    asked = questions()
    file = gr.File(label="Image", height=140, elem_id="upload")
    vars(file)["preprocess"] = partial(_with_own_name, file.preprocess)
    gr.HTML(
        '<p class="hint">PNG, JPEG, TIFF, .npy, DICOM or NIfTI; signals as EDF, WAV or CSV; or an example:</p>',
        padding=False,
    )
    with gr.Row(elem_id="examples"):
        examples = {label: gr.Button(label, size="sm", min_width=115) for label in actions.examples}
    problem = gr.HTML(elem_id="problem", padding=False)
    preview = gr.HTML(elem_id="preview", padding=False)
    with gr.Group():
        add(THRESHOLD)
        add(TOP_FRACTION, LEVEL, visible=False)
    with gr.Group():
        model = gr.Dropdown(actions.models.names, value=actions.models.default, label="Model", elem_id="model")
        add("map_name")
        with gr.Column(visible=False) as of_class:
            add("target", "other_class")
        add("text", visible=False)
    _shown_for(form["map_name"], {tuple(filter(takes_class, MAP_LABELS)): of_class, TEXT: form["text"]})
    with gr.Group():
        add("noise")
        with gr.Column() as image:
            add("method")
        with gr.Column(visible=False) as controls:
            add("controls", "estimator")
        with gr.Row(visible=False) as number:
            add("sigma", "rho")
    _shown_for(form["noise"], {IMAGE: image, CONTROLS: controls, NUMBER: number})
    test = gr.Button("Test", variant="primary", elem_id="test")
    with gr.Accordion("Region", open=False):
        add("rule", "region_unit")
    _shown_for(form["rule"], {rule: form[rule] for rule in REGION_RULES})
    with gr.Accordion(COMPARED, open=False):
        add("contrast")
        add("radius", visible=False)
        add("filtered")
        add("blur", visible=False)
        add_options(COMPARED)
        add("alpha")
    _shown_for(form["contrast"], {"neighbourhood": form["radius"]})
    _shown_for(form["filtered"], {"gaussian": form["blur"]})
    with gr.Accordion("Image", open=False):
        # Fields that may stay empty are texts, because an empty number becomes 0 when it is first shown.
        frame = gr.Textbox(
            label="Frame", info="Slice or page of a volume, from 0.", placeholder="the only one", elem_id="frame"
        )
        channels = gr.Textbox(
            label="Channels",
            info="Of a recording: names, or numbers from 0, separated by commas.",
            placeholder="all",
            elem_id="recorded-channels",
        )
        window = gr.Checkbox(False, label="Apply the display window of a DICOM file")
        with gr.Row():
            add("black", "white")
        gr.HTML(
            '<p class="hint">The pixel values of black and white, which images of real numbers and scans do not say, '
            "if the model expects 0 to 255.</p>"
        )
        add("resize")
    for panel in dict.fromkeys(option.panel for name, (option, _) in asked.items() if name not in form):
        with gr.Accordion(panel or "More", open=False):
            add_options(panel)
    fields = {"file": file, "frame": frame, "window": window, "channels": channels, "problem": problem}
    return fields | {"preview": preview, "model": model, "test": test}, form, examples


def _with_own_name(stored: Callable[[Any], Any], upload: Any) -> tuple[Any, str] | None:
    """Return where an uploaded file is stored, and its user's name for it, of which the stored one lacks characters."""
    path, named = stored(upload), upload[0] if isinstance(upload, ListFiles) else upload
    return None if path is None else (path, named.orig_name or "")


def _field(name: str, option: Option, proposed: Any, visible: bool) -> Any:
    """Return the field of a question, by what can be answered."""
    known: dict[str, Any] = {"label": option.label, "elem_id": name.replace("_", "-"), "visible": visible}
    if name in ("controls", "mask"):
        return gr.File(file_count="multiple" if name == "controls" else "single", height=140, **known)
    advice = " Choose it before looking at p." if name in REGION_RULES else ""
    known |= {"info": f"{option.help}{advice}" or None, "value": proposed}
    if name == "map_name":  # of which the page then shows those that the model can give
        return gr.Dropdown([(label, value) for value, label in MAP_LABELS.items()], **known | {"info": None})
    if name == "target":
        # What is typed to filter a list would choose another class that has it in its label or score.
        menu = gr.Dropdown([proposed], filterable=False, **known | {"info": None})
        menu.lists_follow_the_image = True
        return menu
    if option.slider is not None:
        least, most, step = option.slider
        return gr.Slider(least, most, step=step, **known)
    if option.choices:
        choices = [(CHOICE_LABELS.get(choice, choice), choice) for choice in option.choices]
        return (gr.Dropdown if len(choices) > MOST_BUTTONS else gr.Radio)(choices, **known)
    if isinstance(proposed, bool):
        return gr.Checkbox(**known)
    if isinstance(proposed, (int, float)):
        is_whole = isinstance(proposed, int)
        step = 1 if is_whole else 10.0 ** floor(log10(proposed)) if proposed else 0.1  # the first digit of a proposal
        return gr.Number(precision=0 if is_whole else None, step=step, min_width=120, **known)
    return gr.Textbox(placeholder=option.shown_default or None, min_width=100, **known)


def _shown_for(choice: Any, parts: dict[str | tuple[str, ...], Any]) -> None:
    """Show each part of the page only while a choice has its value, or one of its values."""
    shown = [(names,) if isinstance(names, str) else names for names in parts]

    def updates(value: Any) -> Any:
        made = [gr.update(visible=value in names) for names in shown]
        return made if len(made) > 1 else made[0]  # a list would be the value of the only part

    choice.change(
        updates,
        choice,
        list(parts.values()),
        **PRIVATE,
        queue=False,
        show_progress="hidden",
    )


IS_DARK = "(...values) => [...values.slice(0, -1), document.body.classList.contains('dark')]"
"""Says, as the last value of a question, whether the page is dark."""

CHANGED = """() =>
    '<div class="message changed" role="status">The settings have changed since this test: press Test again.</div>'"""
"""Says that a result on the page, or one that is being computed, is no longer that of its fields: the style sheet shows
it beside a result."""

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
        known: Session,
        model: str,
        upload: tuple[str, str] | None,
        frame: str | None,
        window: bool,
        channels: str | None,
    ) -> Any:
        if upload is None:  # a frame was chosen while an example is shown
            return gr.skip()
        path, name = upload
        # The noise of an example, which is known, is that of no other image.
        noise = noise_at_first if known.example else [gr.skip()] * len(NOISE_FIELDS)
        return actions.take_upload(known, model, path, frame, window, channels, name), *no_result(known), *noise

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
        return gr.skip() if html is None else html

    def ask(known: Session) -> tuple[int, str]:
        return known.ask(), ""  # what is changed from now on is not in the result

    def then_preview(event: Any) -> Any:
        return event.then(preview, [session, *asked], of_image, **AT_ONCE)

    def then_test(event: Any) -> None:
        """Let a test follow, which replaces one that runs: it is announced at once, and waits in the queue."""
        event.then(ask, session, [number, changed], **AT_ONCE).then(
            run,
            [session, number, *asked, dark],
            result,
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
    of_noise = (*NOISE_FIELDS, "controls", "estimator", "method")  # which randomised selection adds
    others = ("rule", "resize", "black", "white", "other_class", *proposed_options())
    of_region = [form[name] for name in (*of_noise, *others)]
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
