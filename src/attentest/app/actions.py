"""What the page does when something on it is used, and what it remembers; nothing here knows of Gradio."""

from __future__ import annotations

import hashlib
import json
import secrets
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import numpy as np

from attentest.app import offered as offers
from attentest.app.form import CONTROLS, COUNTS, Form, number_in, optional_number, takes_class
from attentest.app.result_view import ONE_PICTURE, TestedImage, message_html, preview_html, result_html
from attentest.attention.relevance import PREDICTED
from attentest.checks import level
from attentest.errors import AttentestError, InputError, worded
from attentest.images.image_source import ImageSource
from attentest.noise import ImageNoise, Isotropic, NoiseModel
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.observation import model_inputs
from attentest.progress import Progress
from attentest.registry import ATTENTION_MAPS
from attentest.results.batch import Results
from attentest.results.result import AttentionTestResult


class Replaced(Exception):  # not an error
    """Ends a test whose result nobody waits for, because a newer one was asked for or the server ends."""


@dataclass(eq=False)
class Session:
    """What the server remembers of one open page."""

    newest: int = 0
    """Number of the newest test that was asked for; an older one ends when it next reports its progress."""
    source: ImageSource | None = None
    """The file that was uploaded last, and what of it is read."""
    image: offers.UploadedImage | None = None
    problem: str = ""
    """The image that is shown, or what is wrong with the file."""
    example: bool = False
    """Whether the image is an example, whose noise is known."""
    tried: dict[bytes, set[str]] = field(default_factory=dict)
    """For the digest of each image, the settings that it was tested with."""
    fitted: tuple[tuple[str, tuple[str, ...], int], NoiseModel | ImageNoise] | None = None
    """The noise that was estimated last, after the fields that it was estimated from."""

    def ask(self) -> int:
        """Return the number of a new test, which replaces all before it."""
        self.newest += 1
        return self.newest

    def forget_image(self) -> str:
        """Show no image, and no message about one."""
        self.source, self.image, self.problem, self.example = None, None, "", False
        return ""

    def noise(self, form: Form, dimension: int = 2) -> NoiseModel | ImageNoise:
        """Return the noise that a form describes; control images, of so many axes, are read once."""
        if form.noise != CONTROLS:
            return form.noise_model()
        key = form.estimator, tuple(form.controls or ()), dimension
        if self.fitted is None or self.fitted[0] != key:
            self.fitted = key, form.noise_model(dimension)
        return self.fitted[1]

    def count_settings(self, image: offers.UploadedImage, result: AttentionTestResult) -> int:
        """Return with how many different settings an image was tested, this time included."""
        tried = self.tried.setdefault(hashlib.blake2b(image.pixels.tobytes()).digest(), set())
        tried.add(json.dumps(result.settings, sort_keys=True))
        return len(tried)


MOST_REPORTS = 20  # number of results, the newest, of which a report can be had

NO_IMAGE = "Upload an image, or take one of the examples."

MAP_LABELS = {
    **{name: f"{name}: {part.summary}" for name, part in ATTENTION_MAPS.items() if not part.argument},
    offers.TEXT: "text: what makes the image similar to a text",
}
"""What the page calls maps."""

LONGEST_NAME = 255  # most characters of the name of a file
LONGEST_LABEL = 60  # most characters of the label of a class in the menu


def fault_html(error: Exception) -> str:
    """Return as HTML that attentest itself failed; the terminal has the details."""
    traceback.print_exception(error)
    problem = f"attentest failed ({type(error).__name__}). This is a fault of its own: the terminal has the details."
    return message_html(f"{problem} Please report them with the file and the settings.", "error")


def _is_randomised(form: Form) -> bool:
    """Return whether the region depends on the noise."""
    return bool(form.options["randomise"]) or form.noise == COUNTS


class Actions:
    """What the page, with the models that it offers, does when something on it is used.

    When the server ends it is ``stopped``, and tests that run then end with it.
    """

    def __init__(self, models: offers.OfferedModels) -> None:
        self.models = models
        self.examples = offers.examples()
        self.stopped = False
        self._tested: OrderedDict[str, TestedImage] = OrderedDict()
        self._lock = Lock()

    def take_upload(
        self,
        session: Session,
        model: str,
        path: str,
        frame: str | None,
        window: bool,
        channels: str | None = "",
        name: str = "",
    ) -> str:
        """Make an uploaded file the image of a session; return what is wrong with it as HTML, or nothing.

        The name is that of the file where it comes from; by default it is the one under which it is stored.
        The number of a frame is a text, empty for the only one, ``window`` is that of a DICOM file, and channels of a
        recording are separated by commas.
        """
        session.forget_image()
        try:
            number = optional_number(frame, "frame")
            if number is not None and not number.is_integer():
                raise InputError(f"frame must be a whole number, or empty, got {number:g}.")
        except AttentestError as error:
            session.problem = str(error)
        else:
            names = tuple(name.strip() for name in (channels or "").split(",") if name.strip())
            place = None if number is None else int(number)
            source = ImageSource(path=Path(path), frame=place, window=window, channels=names)
            own = name.rpartition("/")[2][:LONGEST_NAME] or source.path.name
            session.source = replace(source, known_as=own + source.identity.removeprefix(source.path.name))
        return self.take_model(session, model)

    def take_model(self, session: Session, model: str) -> str:
        """Read an uploaded file again if a model takes it with other axes; return what is wrong with it as HTML."""
        image, source = session.image, session.source
        try:
            with offers.page_words(offers.FIELDS):
                dimension = self.models.model(model).dimension
                if source is not None and (image is None or image.dimension != dimension):
                    session.image, session.problem = None, ""
                    session.image = offers.read_upload(source, dimension)
        except AttentestError as error:
            session.problem = str(error)
        return message_html(session.problem, "error") if session.problem else ""

    def take_example(self, session: Session, label: str) -> str:
        """Make an example the image of a session; return the name of the bundled model that takes it."""
        session.forget_image()
        session.image, session.example = self.examples[label], True
        return self.models.bundled(session.image.size)

    def preview(self, session: Session, model: str, form: Form) -> str:
        """Return the image with its region as HTML, from the attention map and without a search."""
        if session.image is None:
            return ""
        try:
            with offers.page_words(offers.FIELDS):
                chosen, randomised = self.models.model(model), _is_randomised(form)
                test = self._test_without_noise(session, session.image, chosen, form)
                _, region = test.attention_region(session.image.sample, name=session.image.name)
        except AttentestError as error:
            return message_html(str(error), "error")
        of = {COUNTS: " of part of the counts"}.get(form.noise, " of the image plus noise")
        return preview_html(session.image, region, worded(of, chosen.dimension) if randomised else "")

    def maps(self, model: str) -> list[tuple[str, str]]:
        """Return the maps that a model can give, each after what the page calls it."""
        try:
            offered = self.models.model(model).maps
        except AttentestError:
            offered = ()
        return [(MAP_LABELS[name], name) for name in offered]

    def classes(self, session: Session, model: str, form: Form) -> list[tuple[str, str]]:
        """Return the classes that are listed for the image of a session, each after what the page calls it.

        The predicted one comes first, then those of greatest score, by their numbers, and the one that was chosen.
        """
        image, target = session.image, form.options["target"]
        usual = [("the predicted class", PREDICTED)] + ([(f"class {target}", target)] if target != PREDICTED else [])
        if image is None or not takes_class(form.options["map_name"]):
            return usual
        try:
            predicted = replace(form, other_class=None, options={**form.options, "target": PREDICTED})
            pipeline = self._test_without_noise(session, image, self.models.model(model), predicted).pipeline
            seen = pipeline.inputs.one(image.sample, identity=image.name)
            scores: Any = pipeline.scores
            if not hasattr(scores, "ranked"):  # of a class at each pixel
                return usual
            inputs = model_inputs([seen], pipeline.definition, scores.device)[-1]
            ranked = scores.ranked(inputs, offers.MOST_CLASSES)
        except AttentestError:  # the preview says what is wrong
            return usual
        named = [
            (f"{number}{f': {label[:LONGEST_LABEL]}' if label else ''} (score {score:.3g})", str(number))
            for number, label, score in ranked
        ]
        chosen = [choice for choice in usual[1:] if all(number != target for _, number in named)]
        return [(f"predicted: {named[0][0]}", PREDICTED), *named, *chosen]

    def _test_without_noise(
        self, session: Session, image: offers.UploadedImage, model: offers.OfferedModel, form: Form
    ) -> AttentionTest:
        """Return the test of an image; without randomised selection, with any noise: it may not be known yet."""
        if _is_randomised(form):
            noise = session.noise(form, model.dimension)
        else:
            pixels = image.pixels[np.isfinite(image.pixels)].astype(float)
            noise = Isotropic(float(np.abs(pixels).max(initial=0.0)) or 1.0)  # one that float64 resolves
        return form.attention_test(model, image, noise)

    def test(
        self, session: Session, number: int, model: str, form: Form, dark: bool, show: Callable[[float], None]
    ) -> str | None:
        """Test the image of a session and return the result as HTML; None if a newer test replaced this one.

        Tests of a session are numbered; ``dark`` says how the page looks, and ``show`` is called with the share done.
        """

        def progress(done: float, total: int | None) -> None:
            if self.stopped or session.newest != number:
                raise Replaced
            show(done / (total or 1))

        try:
            with offers.page_words(offers.FIELDS):
                tested = self._tested_image(session, model, form, progress)
            return result_html(tested, key=self._kept(tested), dark=dark)
        except Replaced:
            return None
        except AttentestError as error:
            return message_html(str(error), "error")
        except Exception as error:  # noqa: BLE001  # whatever it is, the page has an answer
            return fault_html(error)

    def _kept(self, tested: TestedImage) -> str:
        """Keep a result for its report, and return its key."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._tested[key] = tested
            while len(self._tested) > MOST_REPORTS:
                self._tested.popitem(last=False)
        return key

    def report(self, key: str) -> bytes | None:
        """Return the report of a result that is still known, by its key, as an HTML file that needs no other."""
        with self._lock:
            tested = self._tested.get(key)
        if tested is None:
            return None
        with TemporaryDirectory() as folder, ONE_PICTURE:
            path = Path(folder) / "report.html"
            Results([tested.result], [tested.image.name]).report(path, alpha=tested.alpha)
            return path.read_bytes()

    def _tested_image(self, session: Session, model: str, form: Form, progress: Progress) -> TestedImage:
        image = session.image
        if image is None:
            raise InputError(session.problem or NO_IMAGE)
        progress(0.0, None)
        alpha = level(number_in(form.alpha, "alpha"))
        chosen = self.models.model(model)
        result = form.attention_test(chosen, image, session.noise(form, chosen.dimension))(
            image.sample, name=image.name, progress=progress
        )
        tried = session.count_settings(image, result)
        return TestedImage(image=image, form=form, model=chosen, result=result, alpha=alpha, settings_tried=tried)
