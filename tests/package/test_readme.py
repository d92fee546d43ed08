"""Every command and every block of Python in README and docs/ runs as printed; links lead somewhere."""

from __future__ import annotations

import glob
import json
import re
import shlex
import shutil
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib
import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf
import typer
from numpy.typing import NDArray
from PIL import Image

import attentest
from attentest import AttentionTest
from attentest.cli import app
from attentest.noise import StationaryCovariance, save_noise
from attentest.search import SpectralSearch
from command_line import run_main
from documentation import (
    NOT_RUN,
    PAGES,
    PYTHON_NOT_RUN,
    PYTHON_SUBSTITUTIONS,
    ROOT,
    SUBSTITUTIONS,
    blocks,
    commands,
    python_as_run,
    reason_not_to_run,
    substituted,
)
from families import tiny_with_text
from toys import tiny_vit

README = ROOT / "README.md"

EXIT_CODES = {"attentest brain": 2}
"""Exit codes other than 0: without data, the study says where to get them, and that it did nothing."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def images() -> NDArray[np.float64]:
    return clear_images()


def clear_images() -> NDArray[np.float64]:
    """Images with a clear signal, whose intervals take few evaluations."""
    images = np.random.default_rng(0).normal(size=(12, 16, 16))
    images[:, 4:9, 6:11] += 3
    return images


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files that the commands name, in which they are run."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    # The default model of commands is a small one, too: what is checked is that they run, and tests/cli/test_cli.py
    # tests the default. `attentest demo` runs the bundled one.
    monkeypatch.setattr("attentest.cli.attention_test_options.bundled_model", lambda: tmp_path / "my-vit")
    return tmp_path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nibabel = pytest.importorskip("nibabel")
    directory, images = tmp_path_factory.mktemp("files"), clear_images()
    with chdir(directory):
        write_files(images, nibabel)
    return directory


def write_files(images: NDArray[np.float64], nibabel: Any) -> None:
    """Write all files that the commands name into the working directory."""
    for name in ("my-vit", "rescaling-vit"):
        tiny_vit(16, 4).save_pretrained(name)
    tiny_with_text(hf.CLIPModel, hf.CLIPConfig).save_pretrained("my-clip")
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 4, 4], "depths": [1, 1, 1], "layer_type": "basic"}
    labels = {"id2label": {0: "tabby", 1: "dog"}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.ResNetForImageClassification(hf.ResNetConfig(**sizes, **labels)).save_pretrained("my-resnet")
    square = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 64}}
    Path("my-resnet", "preprocessor_config.json").write_text(json.dumps(square))
    words = {word: number for number, word in enumerate(["<start>", "<end>", "a", "photo", "of", "cat"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<end>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained("my-clip")
    processor: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_normalize": False}
    Path("rescaling-vit", "preprocessor_config.json").write_text(json.dumps(processor))
    sizes: dict[str, Any] = {"num_channels": 1, "embedding_size": 4, "hidden_sizes": [4, 4, 6], "depths": [1, 1, 1]}
    labels = {0: "tiger", 1: "tabby, tabby cat"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = hf.ResNetForImageClassification(hf.ResNetConfig(**sizes, layer_type="basic", id2label=labels))
    made.save_pretrained("my-resnet")
    processor |= {"do_resize": True, "size": {"height": 64, "width": 64}}
    Path("my-resnet", "preprocessor_config.json").write_text(json.dumps(processor))
    for name in ("scan", "before", "after"):
        np.save(f"{name}.npy", images[0])
    for directory in ("scans/inner", "controls", "templates", "photos"):
        Path(directory).mkdir(parents=True)
    for number, image in enumerate(images):
        np.save(f"controls/{number}.npy", image)
    Path("slices").mkdir()
    rows = ["image,patient,diagnosis,age"]
    for number, image in enumerate(images[:6]):
        np.save(f"slices/{number}.npy", image)
        rows.append(f"{number}.npy,{number},{('tumour', 'healthy')[number % 2]},{50 + number**2}")
    Path("patients.csv").write_text("\n".join(rows))
    for path in ("scans/first", "scans/second", "scans/inner/third", "templates/smooth"):
        np.save(f"{path}.npy", images[1])
    grey = Image.fromarray((128 + 12 * images[2]).astype(np.uint8))
    for path in ("photo.png", "photo.jpg", "photos/first.png", "photos/second.png"):
        grey.save(path)
    volume = 100 + 25 * np.repeat(images[3][..., None], 81, axis=-1)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), "head.nii.gz")
    save_noise(StationaryCovariance().fit(images), "noise.safetensors")


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(page))], ids=name_of)
def test_every_command_runs_as_printed(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is printed on several pages runs on the first of them."""
    earlier = {command for other in PAGES[: PAGES.index(page)] for command in commands(other)}
    for printed in commands(page):
        if printed in earlier:
            continue
        if reason_not_to_run(printed) is not None:
            check_that_it_could_run(printed)
            continue
        program, *words = shlex.split(substituted(printed).split(" > ")[0])
        assert program == "attentest", f"neither run nor listed: {printed}"
        arguments = [each for word in words for each in (sorted(glob.glob(word)) if "*" in word else [word])]
        done = run_main(capsys, *arguments)
        assert done.code == EXIT_CODES.get(printed, 0), (printed, done.err)


@pytest.mark.slow
def test_the_cohorts_page_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "cohorts.md"
    exec(next(block.text for block in blocks(page) if block.language == "python"), {})
    for command in list(commands(page))[:2]:
        done = run_main(capsys, *shlex.split(command)[1:])
    text = next(block.text for block in blocks(page) if block.language == "text")
    shown, printed = (" ".join(words.replace("─", "").split()) for words in (text, done.out))
    assert shown in printed


def check_that_it_could_run(printed: str) -> None:
    """Check the options of a command that is not run, without running it."""
    program, *words = shlex.split(printed)
    if program == "attentest":
        command: Any = typer.main.get_command(app)
        assert words[0] in command.commands, f"no such command: {printed}"
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
    elif program == "make":
        assert make_recipe(words[0])
    elif program == "pip":
        extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
        assert set(re.search(r"\[(.*)\]", words[-1])[1].split(",")) <= extras  # type: ignore[index]
    else:
        assert program == "ray"


def make_recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe is not None, target
    return [line.strip().replace("$(BIN)/", "") for line in recipe[1].splitlines()]


def test_nothing_is_listed_in_vain() -> None:
    every = [command for page in PAGES for command in commands(page)]
    assert not [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in every)]
    assert not [pattern for pattern in SUBSTITUTIONS if not any(re.search(pattern, command) for command in every)]
    code = "\n".join(block.text for page in PAGES for block in blocks(page) if block.language == "python")
    assert not [pattern for pattern in PYTHON_SUBSTITUTIONS if not re.search(pattern, code)]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != README and any(block.language == "python" for block in blocks(page))],
    ids=name_of,
)
def test_every_other_block_of_python_runs_and_prints_what_is_below_it(
    page: Path, folder: Path, images: NDArray[np.float64], capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_vit(16, 4)
    test = AttentionTest(model, noise=1.0, search=SpectralSearch(tol=1e-2))
    known: dict[str, Any] = {
        **{"attentest": attentest, "AttentionTest": AttentionTest, "test": test, "my_vit": model},
        **{"image": images[0], "images": images[:2], "reference_images": images},
    }
    here = blocks(page)
    with matplotlib.rc_context({"backend": "agg"}):
        for block, following in zip(here, [*here[1:], None], strict=True):
            if block.language == "python":
                code = compile(python_as_run(block.text), str(page), "exec")
                if name_of(page) in PYTHON_NOT_RUN:
                    continue
                capsys.readouterr()
                exec(code, known)
                printed = capsys.readouterr().out
                if following is not None and following.language == "text":
                    assert printed == following.text
        import matplotlib.pyplot as plt

        plt.close("all")


def test_the_first_example_says_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block.text for block in blocks(README) if block.language == "python"]
    assert len(code.strip().splitlines()) <= 10
    known: dict[str, Any] = {}
    with matplotlib.rc_context({"backend": "agg"}), patch("matplotlib.pyplot.show"):
        exec(code, known)
    first = known["results"][0]
    assert first.naive_pvalue < 0.05 < first.pvalue
    # Estimates of differences of 0 and 2 between pixels of standard deviation 1 are of that size.
    assert all(-3 < end < 3 for result in known["results"] for end in result.confidence_interval())
    assert capsys.readouterr().out.rstrip().endswith(first.verdict())


def test_every_file_that_a_page_links_to_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert len(links) > 20
    assert not [(page, target) for page, target in links if not (page.parent / target).exists()]
