"""What is imported when: what takes seconds to import is imported where it is first used, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from test_layers import rooms

NUMBERS = {"numpy", "scipy", "torch"}
"""Neither ``import attentest`` nor a help page needs them."""

TRANSFORMERS = {"transformers", "torch._dynamo", "torch.distributed.tensor", "sympy"}
"""The package that takes longest, and what it imports of torch."""

RARELY_USED = {"scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.sparse", "scipy.stats"}

OPTIONAL = {"gradio", "matplotlib", "nibabel", "pandas", "pydicom", "ray", "skimage", "sklearn", "timm", "torchvision"}

COMMAND = """
def attentest_command(*arguments):
    import contextlib, io, sys
    from unittest.mock import patch
    from attentest.cli import main
    shown = io.StringIO()
    with patch.object(sys, 'argv', ['attentest', *arguments]):
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                main()
            except SystemExit as end:
                return end.code, shown.getvalue()
"""


def modules_after(*commands: str) -> list[set[str]]:
    """Return the modules loaded after each of some statements, run one after another in a new interpreter."""
    script = "import sys\n" + "".join(f"{command}\nprint(*sys.modules)\n" for command in commands)
    run = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [set(line.split()) for line in run.stdout.splitlines()]


def test_the_library_and_the_command_line_import_what_they_need(tmp_path: Path) -> None:
    """One test, because every interpreter that is started imports torch, which takes seconds."""
    check_the_library(check_the_command_line(tmp_path))


def check_the_library(slow_to_import: set[str]) -> None:
    package, noise, core, function, other, bundled = modules_after(
        "import attentest",
        "import attentest.noise",
        "from attentest import AttentionTest, bundled_model\nfrom attentest.errors import ModelError",
        "def means(images):\n"
        "    return images.reshape(len(images), 4, 2, 4, 2).mean((2, 4))\n"
        "test = AttentionTest(means, image_shape=(1, 8, 8), noise=1.0)\n"
        "import numpy\n"
        "result = test(numpy.random.default_rng(0).normal(size=(8, 8)))\n"
        "assert 0 < result.pvalue < 1 and result.confidence_interval(0.9).high > 0",
        "import torch\n"
        "try:\n"
        "    AttentionTest(torch.nn.Linear(2, 2), noise=1.0)\n"
        "except ModelError as error:\n"
        "    assert 'ViT' in str(error)",
        "test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)",
    )
    assert not package & {*NUMBERS, "typer"}
    assert not noise & {"torch", "safetensors", *slow_to_import.intersection(RARELY_USED)}
    assert "attentest.pipeline.attention_test" in core
    for loaded in (core, function, other, bundled):
        assert not loaded & {"PIL", "typer", *slow_to_import}
        assert not rooms(loaded) & {"simulation", "studies", "app", "cli"}


def check_the_command_line(tmp_path: Path) -> set[str]:
    """Return what attentest must not import, but for what torch and SciPy import by themselves in some versions."""
    image = tmp_path / "image.npy"
    np.save(image, np.random.default_rng(0).normal(size=(16, 16)))
    package, help_page, wrong, libraries, tested = modules_after(
        "import attentest.cli",
        COMMAND + "code, text = attentest_command('test', '--help')\nassert code == 0 and '--noise' in text",
        f"code, text = attentest_command('test', {str(image)!r}, '--nose', '1')\n"
        "assert code == 2 and 'no such option: --nose' in text",
        "import scipy.special, torch",
        f"code, text = attentest_command('test', {str(image)!r}, '--noise', '1', '--no-interval')\n"
        "assert code == 0 and '10 of 256' in text",
    )
    for loaded in (package, help_page, wrong):
        assert not loaded & {*NUMBERS, *TRANSFORMERS, *OPTIONAL}
        assert not rooms(loaded) & {"attention", "pipeline", "studies", "app"}
    slow_to_import = {*TRANSFORMERS, *RARELY_USED, *OPTIONAL} - libraries
    assert "attentest.attention.stored_vit" in tested
    assert not tested & slow_to_import
    assert not rooms(tested) & {"simulation", "studies", "app"}
    return slow_to_import
