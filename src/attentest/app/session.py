"""What the server remembers of one open page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from attentest.app.form import CONTROLS, Form
from attentest.app.uploaded_image import UploadedImage
from attentest.noise import ImageNoise, NoiseModel
from attentest.results.result import AttentionTestResult


class Replaced(Exception):  # not an error
    """Ends a test whose result nobody waits for, because a newer one was asked for or the server ends."""


@dataclass(eq=False)
class Session:
    """What the server remembers of one open page.

    Parameters
    ----------
    newest
        Number of the newest test that was asked for; an older one ends when it next reports its progress.
    image, problem
        The image that is shown, or what is wrong with the file that was uploaded last.
    tried
        For the digest of each image, the settings that it was tested with.
    fitted
        The noise that was estimated last, after the fields that it was estimated from.
    """

    newest: int = 0
    image: UploadedImage | None = None
    problem: str = ""
    tried: dict[bytes, set[str]] = field(default_factory=dict)
    fitted: tuple[tuple[str, tuple[str, ...]], NoiseModel | ImageNoise] | None = None

    def ask(self) -> int:
        """Return the number of a new test, which replaces all before it."""
        self.newest += 1
        return self.newest

    def forget_image(self) -> str:
        """Show no image, and no message about one."""
        self.image, self.problem = None, ""
        return ""

    def noise(self, form: Form) -> NoiseModel | ImageNoise:
        """Return the noise that a form describes; control images are read once."""
        if form.noise != CONTROLS:
            return form.noise_model()
        key = form.estimator, tuple(form.controls or ())
        if self.fitted is None or self.fitted[0] != key:
            self.fitted = key, form.noise_model()
        return self.fitted[1]

    def count_settings(self, image: UploadedImage, result: AttentionTestResult) -> int:
        """Return with how many different settings an image was tested, this time included."""
        tried = self.tried.setdefault(hashlib.blake2b(image.pixels.tobytes()).digest(), set())
        tried.add(json.dumps(result.settings, sort_keys=True))
        return len(tried)


@dataclass(eq=False)
class Stop:
    """Whether the server ends: tests that run then end with it."""

    asked: bool = False


def progress_of(session: Session, number: int, stop: Stop, show: Callable[[float], None]) -> Callable[..., None]:
    """Return a progress callback for test ``number`` of a session, which ends the test once it is replaced.

    Parameters
    ----------
    session, number
        The session, and the number of the test in it.
    stop
        Whether the server ends.
    show
        Called with the share that is done.
    """

    def progress(done: float, total: int | None) -> None:
        if stop.asked or session.newest != number:
            raise Replaced
        show(done / (total or 1))

    return progress
