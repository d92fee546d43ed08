"""What the page does when something on it is used; nothing here knows of Gradio."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from html import escape
from pathlib import Path
from threading import Lock

from attentest.app.examples import Example, examples
from attentest.app.form import Form, optional_number
from attentest.app.offered_models import OfferedModels
from attentest.app.region_preview import data_address, region_picture
from attentest.app.report_page import report_page
from attentest.app.result_view import TestedImage, message_html, result_html
from attentest.app.session import Replaced, Session, Stop, progress_of
from attentest.app.uploaded_image import FIELDS, page_words, read_upload
from attentest.checks import level
from attentest.errors import AttentestError, InputError

MOST_REPORTS = 20
"""Number of results, the newest, of which a report can be had."""

NO_IMAGE = "Upload an image, or take one of the examples."


class Actions:
    """What the page does when something on it is used.

    Parameters
    ----------
    models
        The models that it offers.
    """

    def __init__(self, models: OfferedModels) -> None:
        self.models = models
        self.examples = examples()
        self.stop = Stop()
        self._tested: OrderedDict[str, TestedImage] = OrderedDict()
        self._lock = Lock()

    def take_upload(self, session: Session, path: str, frame: str | None, window: bool) -> str:
        """Make an uploaded file the image of a session; return what is wrong with it as HTML, or nothing.

        Parameters
        ----------
        session
            The session.
        path
            The file.
        frame
            Number of a frame as a text; empty for the only one.
        window
            Whether to apply the display window of a DICOM file.
        """
        session.image, session.problem = None, ""
        try:
            with page_words(FIELDS):
                number = optional_number(frame, "frame")
                if number is not None and not number.is_integer():
                    raise InputError(f"frame must be a whole number, or empty, got {number:g}.")
                session.image = read_upload(Path(path), None if number is None else int(number), window)
        except AttentestError as error:
            session.problem = str(error)
            return message_html(session.problem, "error")
        return ""

    def take_example(self, session: Session, label: str) -> Example:
        """Make an example the image of a session."""
        example = self.examples[label]
        session.image = example.image
        return example

    def preview(self, session: Session, model: str, form: Form) -> str:
        """Return the image with its region as HTML, from the attention map and without a search."""
        if session.image is None:
            return ""
        try:
            with page_words(FIELDS):
                chosen = self.models.model(model)
                # Without randomised selection the region does not depend on the noise, which may not be known yet.
                noise = session.noise(form if form.randomise else Form())
                _, region = form.attention_test(chosen, session.image, noise).attention_region(session.image.pixels)
        except AttentestError as error:
            return message_html(str(error), "error")
        height, width = region.shape
        address = data_address(region_picture(session.image.pixels, region))
        size = f"<strong>{int(region.sum()):,}</strong> of {height * width:,} pixels"
        where = " of the image plus noise" if form.randomise else ""
        return (
            f'<figure class="preview"><img src="{address}" alt="The image with the outline of the region">'
            f"<figcaption>{escape(session.image.name)}, {width} × {height}. "
            f'Region: <span id="region-size">{size}</span>{where}.</figcaption></figure>'
        )

    def test(
        self, session: Session, number: int, model: str, form: Form, dark: bool, show: Callable[[float], None]
    ) -> str | None:
        """Test the image of a session and return the result as HTML; None if a newer test replaced this one.

        Parameters
        ----------
        session
            The session.
        number
            Number of the test in the session.
        model, form
            Name of the model, and the other fields.
        dark
            Whether the page is dark.
        show
            Called with the share that is done.
        """
        try:
            with page_words(FIELDS):
                tested = self._tested_image(session, model, form, progress_of(session, number, self.stop, show))
        except Replaced:
            return None
        except AttentestError as error:
            return message_html(str(error), "error")
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._tested[key] = tested
            while len(self._tested) > MOST_REPORTS:
                self._tested.popitem(last=False)
        return result_html(tested, key=key, dark=dark)

    def report(self, key: str) -> bytes | None:
        """Return the report of a result that is still known, by its key."""
        with self._lock:
            tested = self._tested.get(key)
        return None if tested is None else report_page(tested)

    def _tested_image(
        self, session: Session, model: str, form: Form, progress: Callable[[float, int | None], None]
    ) -> TestedImage:
        image = session.image
        if image is None:
            raise InputError(session.problem or NO_IMAGE)
        progress(0.0, None)
        alpha = level(form.alpha)
        chosen = self.models.model(model)
        result = form.attention_test(chosen, image, session.noise(form))(image.pixels, progress=progress)
        return TestedImage(
            image=image,
            form=form,
            model=chosen,
            result=result,
            alpha=alpha,
            settings_tried=session.count_settings(image, result),
        )
