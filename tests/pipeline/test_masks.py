"""Masks fixed beforehand: where the map is looked at, where the contrast is made, or both."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage, stats

from attentest import AttentionTest
from attentest.attention import GradCAM, Residual
from attentest.contrast import Neighbourhood, Reference
from attentest.errors import InputError
from attentest.images.mask import as_mask
from attentest.presentation.footnotes import selection_notes
from attentest.presentation.rows import row_of
from attentest.presentation.small_picture import SmallPicture, content_digest
from attentest.record import ResultRecord
from attentest.region.attention_map import attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import TIE, Level, Threshold, TopFraction
from attentest.results.batch import Results, small_picture
from attentest.runs.engine import FailedImage
from attentest.search import PiecewiseSearch, SpectralSearch
from command_line import run_main
from dense_grid import dense_pvalue, small_autoencoder, small_cnn
from toys import tiny_vit

IMAGES = np.random.default_rng(1).normal(size=(6, 8, 8))
ROWS, COLUMNS = np.mgrid[:8, :8]
DISC = (ROWS - 3.2) ** 2 + (COLUMNS - 3.9) ** 2 < 9
TAU, TOP = 0.6, 0.25


def transformer(**options: Any) -> AttentionTest:
    defaults: dict[str, Any] = {"noise": 1.0, "confidence_level": None, "search": SpectralSearch(tol=1e-9)}
    return AttentionTest(tiny_vit(), **{**defaults, "mask": DISC, **options})


def network(**options: Any) -> AttentionTest:
    attention = GradCAM("2", target=1, sign=options.pop("sign", "signed"))
    defaults: dict[str, Any] = {"noise": 1.0, "confidence_level": None, "search": SpectralSearch(tol=1e-9)}
    return AttentionTest(
        small_cnn(), image_shape=(1, 8, 8), attention=attention, **{**defaults, "mask": DISC, **options}
    )


@pytest.mark.parametrize("use", ["map", "contrast", "both"])
@pytest.mark.parametrize(
    "case", ["transformer", "transformer, top", "network, signed", "network, positive", "network, absolute"]
)
def test_region_statistic_and_p_are_those_of_the_definition(case: str, use: str) -> None:
    """The region by hand from the map within the mask, the difference by hand, and p from a dense grid."""
    kind, _, sign = case.partition(", ")
    rule: dict[str, Any] = {"top_fraction": TOP} if sign == "top" else {}
    test = transformer(mask_use=use, **rule) if kind == "transformer" else network(mask_use=use, sign=sign)
    plain = test.replace(mask=None, mask_use="both")
    assert isinstance(test.pipeline.search, SpectralSearch if kind == "transformer" else PiecewiseSearch)
    looked = np.ones((8, 8), dtype=bool) if use == "contrast" else DISC
    compared = np.ones((8, 8), dtype=bool) if use == "map" else DISC

    def select(values: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = values.reshape(len(values), -1)[:, looked.ravel()]
        extra = []
        if sign == "top":
            order = np.argsort(-flat.round(14), axis=1, stable=True)[:, : round(TOP * looked.sum())]
            chosen = np.zeros_like(flat)
            np.put_along_axis(chosen, order, 1.0, axis=1)
            return chosen
        if sign == "positive":
            extra, flat = [flat.min(axis=1, keepdims=True) < 0], np.maximum(flat, 0)
        if sign == "absolute":
            cut = (TAU + TIE) * abs(flat).max(axis=1, keepdims=True)
            greatest = np.take_along_axis(flat, abs(flat).argmax(axis=1)[:, None], axis=1)
            return np.concatenate([(flat > cut) * 1.0 - (flat < -cut), np.sign(greatest)], axis=1)
        low, high = flat.min(axis=1, keepdims=True), flat.max(axis=1, keepdims=True)
        return np.concatenate([flat - low > (TAU + TIE) * (high - low), *extra], axis=1).astype(float)

    for image in IMAGES[:2]:
        seen_map = plain.pipeline.observe([plain.pipeline.inputs.one(image)])
        values = seen_map.patch_grid.unit_scores(seen_map.scores).detach().numpy()
        chosen = select(values)[0][: looked.sum()] != 0
        region = np.zeros((8, 8), dtype=bool)
        region[looked] = chosen
        result = test(image)
        assert np.array_equal(result.region, region)
        difference = image[region & compared].mean() - image[~region & compared].mean()
        assert result.difference == pytest.approx(difference, rel=1e-12)
        error = np.sqrt(1 / (region & compared).sum() + 1 / (~region & compared).sum())
        assert result.standard_error == pytest.approx(error, rel=1e-12)
        assert result.status == "converged"
        assert result.pvalue == pytest.approx(dense_pvalue(test, image, select), abs=1e-9)


@pytest.mark.parametrize("rule", [Threshold(0.6), Threshold(0.3), Level(0.2), TopFraction(0.3)])
@pytest.mark.parametrize("sign", ["signed", "positive", "absolute"])
@pytest.mark.parametrize("size", [(4, 4), (8, 12), (40, 40)])
def test_margins_within_a_mask_are_those_of_its_pixels(rule: Any, sign: Any, size: tuple[int, int]) -> None:
    """Brute force: regions at moved scores, looked at within the mask, equal the observed one where margins say so."""
    if isinstance(rule, TopFraction) and sign == "absolute":
        pytest.skip("a top fraction does not go with a map of absolute values")
    rng, grid = np.random.default_rng(3), (4, 4)
    mask = rng.random(size) < 0.5
    whole, masked = PatchGrid(size, grid), PatchGrid(size, grid, mask=mask)
    scores = torch.from_numpy(rng.normal(size=(8, *grid)))
    image = torch.arange(8).repeat_interleave(40)
    moved = scores[image] + torch.from_numpy(10 ** rng.uniform(-3, 0, (320, 1, 1)) * rng.normal(size=(320, *grid)))

    def select(values: torch.Tensor) -> list[tuple[Any, ...]]:
        answers = []
        for flat in whole.unit_scores(values).numpy()[:, mask]:
            shown = np.maximum(flat, 0) if sign == "positive" else abs(flat) if sign == "absolute" else flat
            if isinstance(rule, TopFraction):
                order, count = np.argsort(-shown.round(10), stable=True), round(rule.q * mask.sum())
                region = np.isin(np.arange(mask.sum()), order[:count]) & (
                    sign == "signed" or shown[order[count - 1]] > 0
                )
                answers.append((region.tobytes(),))
                continue
            low = 0.0 if sign == "absolute" else shown.min()
            cut = rule.level if isinstance(rule, Level) else low + (rule.tau + TIE) * (shown.max() - low)
            region = shown > cut
            signs = np.sign(flat[region]).tobytes() if sign == "absolute" else b""
            more: Any = None
            if not isinstance(rule, Level):
                more = (flat < 0).any() if sign == "positive" else np.sign(flat[abs(flat).argmax()])
                more = None if sign == "signed" else bool(more > 0)
            answers.append((region.tobytes(), signs, more))
        return answers

    regions = rule.regions(attention_map(scores, masked, sign), masked, sign, scores)
    observed = select(scores)
    assert [region.numpy()[mask].tobytes() for region in regions] == [answer[0] for answer in observed]
    margins = rule.margins(masked.repeated(regions & masked.looked), masked, scores, sign)
    expected = [answer == observed[row] for answer, row in zip(select(moved), image.tolist(), strict=True)]
    # An image without a region, or with nothing else, is not tested.
    share = (regions & masked.looked).flatten(1).sum(dim=1) / mask.sum()
    usable = ((share > 0) & (share < 1))[image]
    image, moved, expected = image[usable], moved[usable], [expected[i] for i in usable.nonzero().flatten()]
    assert margins.inside(image, moved).tolist() == expected
    assert (margins(image, moved) < 0).all(dim=1).tolist() == expected
    extremes, _ = margins.extremes(image, margins.pixels(image, moved))
    assert (extremes @ margins.weights.T < 0).all(dim=1).tolist() == expected
    assert 0.02 < np.mean(expected) < 0.98


def test_a_mask_of_everything_is_none() -> None:
    for use in ("map", "contrast", "both"):
        full = transformer(mask=np.ones((8, 8), dtype=bool), mask_use=use)(IMAGES[0])
        none = transformer(mask=None)(IMAGES[0])
        assert full.pvalue == pytest.approx(none.pvalue, abs=1e-9)
        assert full.bonferroni_pvalue == none.bonferroni_pvalue


def test_p_is_uniform_on_null_images_within_a_mask() -> None:
    """200 images; a Kolmogorov-Smirnov p of 1e-3 is a false alarm once in 1,000 seeds."""
    test = AttentionTest(
        small_autoencoder(), image_shape=(1, 8, 8), attention=Residual(), noise=1.0, confidence_level=None, mask=DISC,
        search=SpectralSearch(tol=1e-3),
    )  # fmt: skip
    results = list(test.map(np.random.default_rng(12).normal(size=(200, 8, 8))))
    assert not any((result.region & ~DISC).any() for result in results)
    assert stats.kstest([result.pvalue for result in results], "uniform").pvalue > 1e-3
    assert stats.kstest([result.naive_pvalue for result in results], "uniform").pvalue < 1e-6


def test_masks_go_with_the_other_options() -> None:
    image = IMAGES[0]
    patches = transformer(region_unit="patches")(image)
    assert 0 < patches.region.sum() < DISC.sum() + 8
    assert transformer(contrast=Neighbourhood(2.0), randomise=0.5)(image).status == "converged"
    referred = transformer(contrast=Reference(IMAGES[1], noise=0))(image)
    assert referred.difference == pytest.approx((image - IMAGES[1])[referred.region].mean())
    parts = transformer().components(image)
    assert sum(part.part.sum() for part in parts) == parts[0].region.sum()
    assert len(transformer(threshold=0.5).map(IMAGES[:3])) == 3
    record = ResultRecord.from_dict(transformer()(image).to_dict())
    assert record.settings["mask"]["share"] == pytest.approx(DISC.mean())


def test_the_mask_is_recorded_by_its_content() -> None:
    recorded = transformer().settings["mask"]
    assert recorded == transformer(mask=DISC.astype(np.uint8) * 255).settings["mask"]
    assert recorded["sha256"] != transformer(mask=DISC.T & (ROWS < 4)).settings["mask"]["sha256"]
    assert transformer(mask=None).settings["mask"] is None


def test_a_mask_is_read_from_a_file(tmp_path: Path) -> None:
    from PIL import Image

    np.save(tmp_path / "mask.npy", DISC)
    Image.fromarray(DISC.astype(np.uint8) * 255).save(tmp_path / "mask.png")
    for name in ("mask.npy", "mask.png"):
        assert transformer(mask=tmp_path / name).settings["mask"] == transformer().settings["mask"]
    for shape in ((40,), (4, 5, 6)):  # of a signal and of a volume
        np.save(tmp_path / "mask.npy", np.ones(shape, dtype=bool))
        assert as_mask(tmp_path / "mask.npy").pixels.shape == shape  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mask": np.zeros((8, 8), dtype=bool)}, "mask is empty: at least one pixel must be within it."),
        (
            {"mask": np.full((8, 8), np.nan)},
            "but some of it is NaN or infinite: give 0 for what is not within.",
        ),
        ({"mask": np.eye(8) / 2 + np.eye(8, k=1)}, "mask must be made of truth values or labels, but it has fractions"),
        ({"mask": "no such file.npy"}, "no such file.npy"),
        ({"mask": 3}, "mask must be an array of truth values with the axes of the image, got 3."),
        ({"mask": None, "mask_use": "map"}, "mask_use map does nothing without mask: give both, or neither."),
        ({"mask_use": "nothing"}, "mask_use must be map, contrast or both, got 'nothing'."),
    ],
)
def test_a_mask_that_is_none_is_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        transformer(**options)
    assert said in str(raised.value)


def test_what_is_0_in_a_file_is_not_within_however_it_is_stored(tmp_path: Path) -> None:
    def mask(name: str, pixels: Any) -> Any:
        np.save(tmp_path / name, pixels)
        return as_mask(tmp_path / name).pixels  # type: ignore[union-attr]

    assert np.array_equal(mask("a.npy", 3.0 * DISC + 1e-5), DISC)  # as a scale and an offset leave it
    assert np.array_equal(mask("a.npy", 1e-4 * DISC), DISC)
    assert np.array_equal(mask("a.npy", DISC / 2), DISC)
    volume = np.stack([DISC, DISC, DISC.T], axis=2)
    assert np.array_equal(mask("a.npy", volume), volume)  # slices, not colours
    Image.fromarray((volume * 255).astype(np.uint8)).save(tmp_path / "a.png")
    assert np.array_equal(as_mask(tmp_path / "a.png").pixels, DISC | DISC.T)  # type: ignore[union-attr]


def test_a_file_that_is_no_mask_is_one_sentence(tmp_path: Path) -> None:
    picture = Image.fromarray(DISC.astype(np.uint8) * 255)
    picture.save(tmp_path / "a.jpg")
    picture.resize((37, 29), Image.Resampling.BILINEAR).save(tmp_path / "a.png")
    for name in ("a.jpg", "a.png"):
        with pytest.raises(InputError, match=rf"{name} has \d+ different values, as one that was resized or saved as"):
            as_mask(tmp_path / name)
    picture.resize((40, 40), Image.Resampling.NEAREST).save(tmp_path / "a.png")
    assert as_mask(tmp_path / "a.png").pixels.sum() == 25 * DISC.sum()  # type: ignore[union-attr]
    labels = np.append(np.arange(21), 255).astype(np.uint8).repeat(2).reshape(4, 11)
    Image.fromarray(labels).save(tmp_path / "labels.png")
    assert np.array_equal(as_mask(tmp_path / "labels.png").pixels, labels != 0)  # type: ignore[union-attr]
    np.savetxt(tmp_path / "a.csv", DISC, delimiter=",")
    with pytest.raises(InputError, match=r"a\.csv has 8 channels or columns, and the mask of a signal has one"):
        as_mask(tmp_path / "a.csv")
    np.savetxt(tmp_path / "b.csv", DISC[4])
    assert np.array_equal(as_mask(tmp_path / "b.csv").pixels, DISC[4])  # type: ignore[union-attr]


@pytest.mark.parametrize("use", ["map", "contrast", "both"])
def test_the_mask_is_drawn_and_named(use: str, tmp_path: Path) -> None:
    count = int(DISC.sum())
    said = {
        "map": f"this attention region within the mask of {count} pixels differs from the rest of the image (",
        "contrast": f"this attention region differs from the rest of the image within the mask of {count} pixels (",
        "both": f"this attention region differs from the rest of the image, both within the mask of {count} pixels (",
    }
    result = transformer(mask_use=use)(IMAGES[0])
    assert said[use] in result.verdict()
    record, named = result.record(), f"dashed: mask of {count} pixels"
    assert record.part_pixels == (result.region & (DISC if use != "map" else True)).sum() <= record.seen_pixels
    assert np.array_equal(result.to_dict(arrays=True)["mask"], DISC)
    axes = result.plot()
    assert named in axes[0].get_title()
    plain = dataclasses.replace(result, mask=None)
    assert [len(panel.collections) for panel in axes[:2]] == [len(panel.collections) + 2 for panel in plain.plot()[:2]]
    assert (axes[0].get_xlim(), axes[0].get_ylim()) == ((-0.5, 7.5), (7.5, -0.5))
    small = small_picture([result])
    (tmp_path / "small.npz").write_bytes(content := small.to_bytes())
    read = SmallPicture.read(tmp_path / "small.npz", content_digest(content))
    assert read is not None
    assert np.array_equal(read.mask, DISC)
    edge = DISC.repeat(32, axis=0).repeat(32, axis=1)
    changed = (small.overlay() != small_picture([plain]).overlay()).any(axis=2)
    assert changed.sum() > 100
    assert not (changed & ~edge).any()  # the line is within the mask
    Results([result, result]).report(tmp_path / "report.html")
    assert f"Image and region; {named}" in (tmp_path / "report.html").read_text()
    assert named in result._repr_html_()
    title = Results([result, result]).plot()[0].figure.get_suptitle()
    assert "dashed: mask" in title.replace("\n", " ")
    assert max(map(len, title.splitlines())) < 70  # a longer line would be cut off
    assert Results([result]).table()["mask_pixels"] == [count]
    counts = f"pixels outside the mask do not count for the {use.replace('both', 'map and the contrast')}"
    assert counts in selection_notes(row_of("scan", record))


def test_every_image_may_have_a_mask_of_its_own(tmp_path: Path) -> None:
    """By number, by name and by file, as each by itself; a missing one, or one of another shape, fails its image."""
    masks = [DISC, DISC.T, ROWS < 5, DISC]
    alone = [transformer(mask=mask)(image) for image, mask in zip(IMAGES, masks, strict=False)]
    for number, (image, mask) in enumerate(zip(IMAGES, masks, strict=False)):
        np.save(tmp_path / f"scan{number}.npy", image)
        (tmp_path / "masks").mkdir(exist_ok=True)
        np.save(tmp_path / "masks" / f"scan{number}_mask.npy", mask)
    files = [tmp_path / f"scan{number}.npy" for number in range(4)]
    together = {
        "numbers": transformer(mask=dict(enumerate(masks))).map(IMAGES[:4]),
        "names": transformer(mask={f"a{number}": mask for number, mask in enumerate(masks)}).map(
            IMAGES[:4], names=["a0", "a1", "a2", "a3"]
        ),
        "files": transformer(mask=tmp_path / "masks" / "*_mask.npy").map(files),
    }
    for results in together.values():
        for result, expected in zip(results, alone, strict=True):
            assert np.array_equal(result.region, expected.region)
            assert result.pvalue == pytest.approx(expected.pvalue, abs=2e-9)
            assert result.settings["mask"] == expected.settings["mask"]
    (tmp_path / "masks" / "scan1_mask.npy").unlink()
    np.save(tmp_path / "masks" / "scan2_mask.npy", DISC[:7])
    np.save(tmp_path / "masks" / "scan3_mask.npy", np.zeros((8, 8)))
    test = transformer(mask=str(tmp_path / "masks" / "*_mask.npy"))
    first, *others = test.map(files, on_error="row")
    assert first.pvalue == pytest.approx(alone[0].pvalue, abs=2e-9)
    reasons = (
        "there must be one mask of the name of 'scan1.npy' in ",
        "the mask is for images of height 7, width 8 and 1 channel, but this one has height 8",
        f"mask {tmp_path / 'masks' / 'scan3_mask.npy'} is empty",
    )
    for failed, reason in zip(others, reasons, strict=True):
        assert reason in failed.reason
        assert failed.reason.count(". ") == 0
    with pytest.raises(InputError, match=r"image 1: there must be one mask of the name of 'scan1.npy'"):
        test.map(files)
    with pytest.raises(InputError, match="there must be one mask of the name of 3, but there are none"):
        transformer(mask={0: DISC})(IMAGES[0], name=3)


def test_a_component_outside_the_mask_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other components have the results that they have together; rows say which one could not be tested."""
    whole = transformer(mask=None, threshold=0.4)
    # The map, and the region, are those without a mask.
    image, parts = next((image, parts) for image in IMAGES if len(parts := whole.components(image)) > 1)
    mask = ~parts[0].part
    test = transformer(mask=mask, mask_use="contrast", threshold=0.4)
    reason = "this component of the region has no pixel within the mask"
    with pytest.raises(InputError, match=reason):
        test.components(image)
    (results,) = test.map([image], components=1, on_error="row")
    assert len(results) == len(parts)
    assert reason in results[-1].reason
    for result, part in zip(results.tested, list(parts)[1:], strict=True):
        assert np.array_equal(result.part, part.part)
        outside = mask & ~part.region
        assert result.difference == pytest.approx(image[part.part].mean() - image[outside].mean(), rel=1e-12)
    alone = [result.pvalue for result in results.tested]
    assert np.isnan(results.pvalues[-1])
    assert np.array_equal(results.adjusted_pvalues()[:-1], results.tested.adjusted_pvalues())
    assert results.labels.max() == len(alone) == len(results.confidence_intervals(0.9))
    assert "error" in results.table()

    # Of a component without a pixel of the mask around it, too; and if that is so of all, of the image.
    for noise, others in ((1.0, {}), ("poisson", {"randomise": 1.0})):
        counts = image if noise == 1.0 else np.round(100 + 9 * image)
        around = transformer(mask=None, threshold=0.4, contrast=Neighbourhood(1.0), noise=noise, **others)
        first, *rest = around.components(counts)
        mask_of_others = ~(ndimage.binary_dilation(first.part) & ~first.region)
        test = around.replace(mask=mask_of_others, mask_use="contrast")
        (results,) = test.map([counts], components=1, on_error="row")
        said = "the contrast has no pixel within the mask to compare the region with"
        assert said in results[-1].reason
        assert [len(results.tested), len(results)] == [len(rest), 1 + len(rest)]
        for result, part in zip(results.tested, rest, strict=True):
            assert np.array_equal(result.part, part.part)
            ring = ndimage.binary_dilation(part.part) & ~part.region & mask_of_others
            if noise == 1.0:
                assert result.difference == pytest.approx(image[part.part].mean() - image[ring].mean(), rel=1e-12)
        far = ~(ndimage.binary_dilation(first.region) & ~first.region)
        (failed,) = around.replace(mask=far, mask_use="contrast").map([counts], components=1, on_error="row")
        assert isinstance(failed, FailedImage)
        assert said in failed.reason

    monkeypatch.chdir(tmp_path)
    tiny_vit().save_pretrained("model")
    np.save("scan.npy", image)
    np.save("mask.npy", mask)
    arguments = ("test", "scan.npy", "--noise", "1", "--model", "model", "--tol", "1e-3", "--threshold", "0.4",
                 "--mask", "mask.npy", "--mask-use", "contrast", "--components", "--out", "out")  # fmt: skip
    for _ in range(2):  # the second time from the records
        done = run_main(capsys, *arguments, "--csv", "table.csv", "--report", "report.html")
        assert done.code == 1
        assert f"scan.npy, component {len(parts)}: {reason}" in done.err
        assert "not tested" in done.out
        assert Path("table.csv").read_text().count("\n") == 1 + len(parts)
        page = Path("report.html").read_text()
        assert f"scan.npy, component {len(parts)}</td><td>{reason}" in page
        lines = [json.loads(line) for line in run_main(capsys, *arguments, "--json").out.splitlines()]
        assert [line["component"] for line in lines] == list(range(1, len(parts) + 1))
        assert ["error" in line for line in lines] == [False] * len(alone) + [True]
        assert [line["pvalue"] for line in lines[:-1]] == pytest.approx(alone, abs=2e-3)


def test_a_run_over_files_takes_masks_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mask that is new or changed makes its image, and no other, be tested again."""
    monkeypatch.chdir(tmp_path)
    tiny_vit().save_pretrained("model")
    for number in range(2):
        np.save(f"scan{number}.npy", IMAGES[number])
    Path("masks").mkdir()
    np.save("masks/scan0.npy", DISC)
    arguments = ("test", "scan0.npy", "scan1.npy", "--noise", "1", "--model", "model", "--no-interval", "--tol", "1e-3",
                 "--mask", "masks", "--out", "out", "--json")  # fmt: skip
    done = run_main(capsys, *arguments)
    assert done.code == 1
    first, failed = map(json.loads, done.out.splitlines())
    assert first["settings"]["mask"] == transformer().settings["mask"]
    assert "there must be one mask of the name of 'scan1.npy' in 'masks/*' (*" in failed["error"]
    np.save("masks/scan1.npy", DISC.T)
    done = run_main(capsys, *arguments)
    assert done.code == 0, done.err
    again, second = map(json.loads, done.out.splitlines())
    assert again == first
    assert second["settings"]["mask"] == transformer(mask=DISC.T).settings["mask"]
    Path("empty").mkdir()
    for mask in ("model/*.png", "masks/*_*.npy", "empty"):
        with pytest.raises(InputError, match="must be a folder or a pattern with one"):
            transformer(mask=mask)
    done = run_main(capsys, *arguments[:-3], "--csv", "masks/scan1.npy")
    assert "would overwrite the input masks/scan1.npy" in done.err


def _distance(region: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the distance of each pixel from a region."""
    from scipy.ndimage import distance_transform_edt

    return np.asarray(distance_transform_edt(~region))


def test_a_mask_that_does_not_fit_the_image_or_the_region_is_one_sentence() -> None:
    region = transformer(mask=None).attention_region(IMAGES[0])[1]
    sentences = {
        "the mask is for images of": (np.ones((8, 9), dtype=bool), "both"),
        "mask 'nosuch.npy' is neither a file nor a folder": ("nosuch.npy", "both"),
        "the mask leaves no pixel outside the region to compare it with": (region, "contrast"),
        "no pixel of the region lies within the mask, so there is nothing to compare": (~region, "contrast"),
    }
    for said, (mask, use) in sentences.items():
        with pytest.raises(InputError, match=said):
            transformer(mask=mask, mask_use=use)(IMAGES[0])
    far = region.copy()
    far[np.unravel_index(np.argmax(_distance(region)), (8, 8))] = True
    with pytest.raises(InputError, match="the contrast has no pixel within the mask to compare the region with"):
        transformer(mask=far, mask_use="contrast", contrast=Neighbourhood(1.0))(IMAGES[0])
    one = np.zeros((8, 8), dtype=bool)
    one[3, 3] = True
    with pytest.raises(InputError, match="the map is constant within the mask"):
        transformer(mask=one)(IMAGES[0])
