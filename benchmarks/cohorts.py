"""What do the claims about cohorts keep: type I errors, coverage, power, and bounds on how many images differ?

1,000 simulated cohorts for each row. An image is the means of eight patches; the region is the patch whose mean, with
the added noise, is the greatest, so that the truncation set is an interval in closed form. In half of the images, or in
all, a patch carries a signal whose height varies. The truth of a mean is that of 400,000 images. The last tables
are of images that the bundled model looks at.

    python benchmarks/cohorts.py
    python benchmarks/cohorts.py --only model --pool 300
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest, bundled_model
from attentest.cohort.estimates import Estimates, common_effect, unbiased_estimates
from attentest.cohort.means import Estimate, patients_needed, random_effects, regression
from attentest.search import SpectralSearch
from attentest.statistics.multiple_testing import global_pvalues, least_differing
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import RandomisedLaw, RandomisedNormal, RandomisedStudent
from attentest.statistics.truncation_set import TruncationSet

PATCHES, ALPHA, TRUTH = 8, 0.05, 400_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How images are drawn.

    ``share`` of them have a signal, of mean ``height`` and standard deviation ``spread``, of which ``between`` is the
    share of variance between patients. ``correlation`` is that of neighbouring patches. ``degrees`` are those of the
    estimated noise, of each image or of a cohort as a whole (``shared``). ``references`` compares all images of a
    cohort with one reference that has their noise.
    """

    share: float = 0.0
    height: float = 0.0
    spread: float = 0.0
    between: float = 0.0
    correlation: float = 0.0
    gamma: float = 0.5
    degrees: float = np.inf
    shared: bool = False
    references: bool = False


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Images: true differences, laws, truncation sets, standard errors, and patients."""

    theta: Floats
    law: RandomisedLaw
    sets: list[TruncationSet]
    error: Floats
    patient: NDArray[np.int64]

    def estimates(self) -> Estimates:
        """Return their unbiased estimates."""
        return unbiased_estimates(self.law, self.sets, self.error)

    def log_pvalues(self) -> Floats:
        """Return the logs of their p-values, in parts."""
        parts = np.array_split(np.arange(len(self.theta)), max(len(self.theta) // 5000, 1))
        found = [log_pvalues(self.law.take(rows), [self.sets[i] for i in rows], "two-sided").high for rows in parts]
        return np.concatenate(found)


def drawn(setting: Setting, patient: NDArray[np.int64], cohort: NDArray[np.int64], rng: np.random.Generator) -> Drawn:
    """Return images of patients (n,) in cohorts (n,)."""
    n, rows = len(patient), np.arange(len(patient))
    places = np.arange(PATCHES)
    covariance = setting.correlation ** np.abs(places[:, None] - places)
    factor = np.linalg.cholesky(covariance)
    common = rng.normal(size=int(patient.max()) + 1)[patient]
    height = setting.height + setting.spread * (
        np.sqrt(setting.between) * common + np.sqrt(1 - setting.between) * rng.normal(size=n)
    )
    mu = np.zeros((n, PATCHES))
    mu[rows, rng.integers(PATCHES, size=n)] = height * (rng.uniform(size=n) < setting.share)
    scale = np.ones(n)  # the estimated standard deviation over the true one
    if np.isfinite(setting.degrees):
        count = int(cohort.max()) + 1 if setting.shared else n
        squares = rng.chisquare(setting.degrees, count) / setting.degrees
        scale = np.sqrt(squares[cohort] if setting.shared else squares)
    x = mu + rng.normal(size=(n, PATCHES)) @ factor.T
    w = setting.gamma * scale[:, None] * (rng.normal(size=(n, PATCHES)) @ factor.T)
    seen = x + w
    chosen = seen.argmax(axis=1)
    eta = np.full((n, PATCHES), -1 / (PATCHES - 1))
    eta[rows, chosen] = 1.0
    own = scale**2 * np.einsum("ni,ij,nj->n", eta, covariance, eta)
    reference = np.zeros_like(x)
    if setting.references:
        reference = (rng.normal(size=(int(cohort.max()) + 1, PATCHES)) @ factor.T)[cohort]
    error = np.sqrt(own * (2 if setting.references else 1))
    rho = own / error**2
    t = np.einsum("ni,ni->n", eta, x - reference) / error
    z = t + np.einsum("ni,ni->n", eta, w) / error / rho
    b = scale[:, None] ** 2 * (eta @ covariance) / error[:, None]
    # The region stays where seen_j + b_j (z - z_obs) is the greatest.
    gap, slope = (v[rows, chosen][:, None] - v for v in (seen, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = z[:, None] - gap / slope
    low = np.where(slope > 1e-12, ends, -np.inf).max(axis=1)
    high = np.where(slope < -1e-12, ends, np.inf).min(axis=1)
    sets = [TruncationSet(intervals=i, certain=i, possible=i) for i in np.column_stack([low, high])[:, None, :]]
    columns = {"statistic": t, "observed_z": z, "gamma": setting.gamma / np.sqrt(rho)}
    law: RandomisedLaw = RandomisedNormal(**columns)
    if np.isfinite(setting.degrees):
        law = RandomisedStudent(**columns, degrees=np.full(n, setting.degrees))
    theta = np.einsum("ni,ni->n", eta, mu)
    return Drawn(theta=theta, law=law, sets=sets, error=error, patient=patient)


def rate(hits: list[bool] | NDArray[np.bool_]) -> str:
    """Return a proportion with its Monte-Carlo error."""
    value = float(np.mean(hits))
    return f"{value:.3f} ({np.sqrt(max(value * (1 - value), 1e-4) / len(hits)):.3f})"


def cohorts(options: argparse.Namespace, images: int, largest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the patient and the cohort of each image: patients with 1 to ``largest`` images."""
    rng = np.random.default_rng(options.seed + 1)
    patient, cohort, first = [], [], 0
    for number in range(options.cohorts):
        sizes: list[int] = []
        while sum(sizes) < images:
            sizes.append(min(int(rng.integers(1, largest + 1)), images - sum(sizes)))
        patient.append(first + np.repeat(np.arange(len(sizes)), sizes))
        cohort.append(np.full(images, number))
        first += len(sizes)
    return np.concatenate(patient), np.concatenate(cohort)


@cache
def truth(setting: Setting, seed: int) -> float:
    """Return the mean true difference of the regions chosen."""
    if setting.share == 0:
        return 0.0
    rng, image = np.random.default_rng(seed + 2), np.arange(TRUTH)
    known = replace(setting, degrees=np.inf, between=0.0, references=False)
    return float(np.mean(drawn(known, image, image, rng).theta))


def fitted(
    estimates: Estimates, rows: NDArray[np.int64], cluster: NDArray[np.int64], degrees: float = np.inf
) -> Estimate:
    """Return the mean of some images."""
    number = np.unique(cluster[rows], return_inverse=True)[1]
    values, correction = estimates.value[rows], estimates.correction[rows]
    return regression(np.ones((len(rows), 1)), values, number, 1 - ALPHA, correction, degrees)[0]


def means(options: argparse.Namespace) -> None:
    """Print coverage, rejection of zero, and bounds on how many differ."""
    print("| images | patients of | setting | mean covers | mean 0 rejected | random effects cover | Simes global | "
          "bound above the truth | bound, of truly different | own interval covers |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    mixed = Setting(share=0.5, height=2.0, spread=0.7)
    settings = {
        "null": Setting(),
        "half with signal": mixed,
        "all with signal": replace(mixed, share=1.0),
        "half, correlated noise": replace(mixed, correlation=0.5),
        "half, effects of patients": replace(mixed, between=0.8),
        "null, noise of each image with 20 degrees": Setting(degrees=20),
        "half, noise of each image with 20 degrees": replace(mixed, degrees=20),
    }
    for images in (10, 30, 100):
        for largest in (1, 10):
            patient, cohort = cohorts(options, images, largest)
            for name, setting in settings.items():
                if ("patients" in name) != (largest > 1) and name not in ("null", "half with signal"):
                    continue
                if options.setting not in name:
                    continue
                data = drawn(setting, patient, cohort, np.random.default_rng(options.seed))
                estimates, logs, wanted = data.estimates(), data.log_pvalues(), truth(setting, options.seed)
                found: dict[str, list[float]] = {key: [] for key in ("covers", "rejects", "effects", "global", "above")}
                shares = []
                for number in range(options.cohorts):
                    rows = np.arange(number * images, (number + 1) * images)
                    if len(np.unique(patient[rows])) < 2:
                        continue
                    mean = fitted(estimates, rows, patient)
                    found["covers"].append(mean.low <= wanted <= mean.high)
                    found["rejects"].append(mean.pvalue <= ALPHA)
                    if largest == 1:
                        # As in a cohort, weights do not depend on noise that was estimated from the image itself.
                        square = estimates.error[rows] ** 2
                        variance = square if np.isinf(setting.degrees) else np.full(images, square.mean())
                        effects = random_effects(estimates.value[rows], estimates.plain[rows], variance, 1 - ALPHA)
                        found["effects"].append(effects.mean.low <= wanted <= effects.mean.high)
                    bound = least_differing(logs[rows], np.ones(images, dtype=bool), ALPHA, "positive")
                    true = int(np.sum(data.theta[rows] != 0))
                    found["global"].append(global_pvalues(logs[rows])["simes"] <= ALPHA)
                    # The bound for a subset that was chosen by its p-values counts as well.
                    small = logs[rows] < np.median(logs[rows])
                    some = least_differing(logs[rows], small, ALPHA, "positive")
                    found["above"].append(bound > true or some > int(np.sum(data.theta[rows][small] != 0)))
                    shares.append((bound, true))
                half = stats.norm.isf(ALPHA / 2) * estimates.error
                cells = [rate(np.array(hits)) if hits else "" for hits in found.values()]
                bounds = " of ".join(f"{value:.1f}" for value in np.mean(shares, axis=0))
                own = rate(np.abs(estimates.value - data.theta) <= half)
                print(f"| {images} | 1 to {largest} | {name} | {' | '.join(cells)} | {bounds} | {own} |", flush=True)


def clusters(options: argparse.Namespace) -> None:
    """Print coverage with patients as clusters by CR2, by CR1 with G - 1 degrees, and without clusters."""
    print("| images | patients of 1 to | CR2, Satterthwaite | CR1, G - 1 | patients ignored |")
    print("|---|---|---|---|---|")
    setting = Setting(share=1.0, height=2.0, spread=1.5, between=0.8)
    wanted = truth(setting, options.seed)
    for images, largest in ((20, 10), (30, 10), (100, 10), (30, 3)):
        patient, cohort = cohorts(options, images, largest)
        data = drawn(setting, patient, cohort, np.random.default_rng(options.seed))
        estimates, kinds = data.estimates(), [[], [], []]  # type: tuple[Estimates, list[list[bool]]]
        for number in range(options.cohorts):
            rows = np.arange(number * images, (number + 1) * images)
            groups = np.unique(patient[rows], return_inverse=True)[1]
            count = groups.max() + 1
            if count < 2:
                continue
            value = estimates.value[rows]
            totals = np.bincount(groups, value - value.mean())
            usual = np.sqrt(totals @ totals * count / (count - 1)) / images * stats.t.isf(ALPHA / 2, count - 1)
            robust, ignoring = fitted(estimates, rows, patient), fitted(estimates, rows, np.arange(len(patient)))
            kinds[0].append(robust.low <= wanted <= robust.high)
            kinds[1].append(bool(abs(value.mean() - wanted) <= usual))
            kinds[2].append(ignoring.low <= wanted <= ignoring.high)
        print(f"| {images} | {largest} | {' | '.join(rate(hits) for hits in kinds)} |", flush=True)


def estimated_noise(options: argparse.Namespace) -> None:
    """Print coverage if the noise of a cohort is estimated once, with and without allowing for it."""
    print("| images | degrees | setting | covers, allowed for | covers, ignored |")
    print("|---|---|---|---|---|")
    for images in (10, 30, 100):
        patient, cohort = cohorts(options, images, 1)
        for degrees in (20, 100, 1000):
            for name, share in (("null", 0.0), ("half with signal", 0.5)):
                setting = Setting(share=share, height=2.0, spread=0.7, degrees=degrees, shared=True)
                wanted = truth(setting, options.seed)
                estimates = drawn(setting, patient, cohort, np.random.default_rng(options.seed)).estimates()
                rows = [np.arange(number * images, (number + 1) * images) for number in range(options.cohorts)]
                hits = [
                    [found.low <= wanted <= found.high for found in (fitted(estimates, r, patient, d) for r in rows)]
                    for d in (degrees, np.inf)
                ]
                print(f"| {images} | {degrees} | {name} | {' | '.join(map(rate, hits))} |", flush=True)


def groups(options: argparse.Namespace) -> None:
    """Print how often two groups of equal and of different effects are told apart, and sample sizes hold."""
    print("| images | patients of 1 to | groups equal: rejected | 2 against 3: rejected | covers |")
    print("|---|---|---|---|---|")
    base = Setting(share=1.0, height=2.0, spread=0.7, between=0.5)
    for images, largest in ((12, 1), (30, 1), (30, 5), (100, 10)):
        patient, cohort = cohorts(options, images, largest)
        rng = np.random.default_rng(options.seed)
        sides = [drawn(replace(base, height=height), patient, cohort, rng) for height in (2.0, 2.0, 3.0)]
        known, wanted = [side.estimates() for side in sides], truth(replace(base, height=3.0), options.seed)
        wanted -= truth(base, options.seed)
        cells: list[list[bool]] = [[], [], []]
        for number in range(options.cohorts):
            rows = np.arange(number * images, (number + 1) * images)
            if len(np.unique(patient[rows])) < 2:
                continue
            for place, other in ((0, 1), (1, 2)):
                values = np.concatenate([known[0].value[rows], known[other].value[rows]])
                second = np.repeat([0.0, 1.0], images)
                both = np.unique(np.concatenate([patient[rows], -1 - patient[rows]]), return_inverse=True)[1]
                design = np.column_stack([np.ones(2 * images), second])
                difference = regression(design, values, both, 1 - ALPHA)[1]
                cells[place].append(difference.pvalue <= ALPHA)
                if other == 2:
                    cells[2].append(difference.low <= wanted <= difference.high)
        print(f"| {images} | {largest} | {' | '.join(map(rate, cells))} |", flush=True)
    image = np.arange(TRUTH // 4)
    many = drawn(base, image, image, np.random.default_rng(options.seed)).estimates()
    effect, deviation = float(many.value.mean()), float(many.value.std())
    needed = patients_needed(effect, deviation)
    patient, cohort = cohorts(options, needed, 1)
    some = drawn(base, patient, cohort, np.random.default_rng(options.seed + 5)).estimates()
    rows = [np.arange(number * needed, (number + 1) * needed) for number in range(options.cohorts)]
    found = rate([fitted(some, r, patient).pvalue <= ALPHA for r in rows])
    print(f"\nplan for power 0.8: {needed} images, mean 0 rejected in {found}")


def without_randomisation(options: argparse.Namespace) -> None:
    """Print level and coverage of the common effect, and the coverage of a mean of naive differences."""
    print("| images | common effect | 0 rejected | interval covers | naive mean covers |")
    print("|---|---|---|---|---|")
    rng = np.random.default_rng(options.seed)
    for images in (2, 10, 30):
        for theta in (0.0, 0.5):
            hits: list[list[bool]] = [[], [], []]
            for _ in range(options.cohorts):
                s = rng.uniform(0.5, 1.5, images)
                t, sets = np.empty(images), []
                for i in range(images):  # a set of two pieces, or one that is open above
                    set_ = np.array([[-1.0, -0.5], [0.8, 2.0]]) if i % 2 else np.array([[1.0, np.inf]])
                    while True:
                        draws = theta / s[i] + rng.normal(size=64)
                        inside = draws[((set_[:, :1] <= draws) & (draws <= set_[:, 1:])).any(axis=0)]
                        if len(inside):
                            break
                    t[i] = inside[0]
                    sets.append(set_)
                found, naive = common_effect(t, sets, s, 1 - ALPHA), stats.ttest_1samp(t * s, theta).pvalue
                hits[0].append(found.pvalue <= ALPHA)
                hits[1].append(found.low <= theta <= found.high)
                hits[2].append(bool(naive > ALPHA))
            print(f"| {images} | {theta:g} | {' | '.join(map(rate, hits))} |", flush=True)


def shared_reference(options: argparse.Namespace) -> None:
    """Print how often bounds exceed the truth if all images of a cohort are compared with one noisy reference."""
    print("| images | setting | Simes | Hommel | bound by Simes, Hommel, of truly different |")
    print("|---|---|---|---|---|")
    for images in (10, 30, 100):
        patient, cohort = cohorts(options, images, 1)
        for name, share in (("null", 0.0), ("half with signal", 0.5)):
            setting = Setting(share=share, height=4.0, spread=0.7, references=True)
            data = drawn(setting, patient, cohort, np.random.default_rng(options.seed))
            logs, true = data.log_pvalues().reshape(-1, images), (data.theta != 0).reshape(-1, images).sum(axis=1)
            every = np.ones(images, dtype=bool)
            bounds = [
                np.array([least_differing(row, every, ALPHA, kind) for row in logs]) for kind in ("positive", "any")
            ]
            numbers = ", ".join(f"{bound.mean():.1f}" for bound in bounds) + f" of {true.mean():.1f}"
            above = " | ".join(rate(bound > true) for bound in bounds)
            print(f"| {images} | {name} | {above} | {numbers} |", flush=True)


def model(options: argparse.Namespace) -> None:
    """Print the same for images that the bundled 16 x 16 model looks at: U of many, and estimates of a tested pool."""
    rng, square = np.random.default_rng(options.seed), np.pad(np.ones((5, 5)), ((4, 7), (6, 5)))
    plain = AttentionTest.from_pretrained(bundled_model(16), noise=1.0)
    print("| signal | images | cohorts | bias of U (se), of naive differences | mean covers | mean 0 rejected |")
    print("|---|---|---|---|---|---|")
    for name, most in (("none", 0.0), ("U(0, 2) in half", 2.0)):
        for images in (10, 30):
            rows = []
            for _ in range(options.model_cohorts):  # U needs the region, and no search
                mu = (rng.uniform(0, most, images) * (np.arange(images) % 2))[:, None, None] * square
                x, w = mu + rng.normal(size=mu.shape), 0.5 * rng.normal(size=mu.shape)
                regions = plain.attention_maps(x + w) > plain.definition.threshold
                for a, b, m, r in zip(x, w, mu, regions, strict=True):
                    difference, added, true = (v[r].mean() - v[~r].mean() for v in (a, b, m))
                    rows.append((difference - added / 0.25, difference, true))
            u, naive, theta = np.array(rows).reshape(-1, images, 3).transpose(2, 0, 1)
            found = [regression(np.ones((images, 1)), row, np.arange(images), 1 - ALPHA)[0] for row in u]
            covers = rate([mean.low <= theta.mean() <= mean.high for mean in found])
            error = np.std(u - theta) / np.sqrt(u.size)
            bias = f"{np.mean(u - theta):+.3f} ({error:.3f}), {np.mean(naive - theta):+.2f}"
            rejected = rate([mean.pvalue <= ALPHA for mean in found])
            print(f"| {name} | {images} | {len(u)} | {bias} | {covers} | {rejected} |", flush=True)
    print("\n| signal | tested images | bias of estimates (se), of U (se), of naive differences | p <= 0.05 |")
    print("|---|---|---|---|")
    search = SpectralSearch(tol=1e-4)
    test = plain.replace(randomise=0.5, randomise_seed=options.seed, search=search)
    for name, most in (("none", 0.0), ("U(0, 2) in half", 2.0)):
        mu = (rng.uniform(0, most, options.pool) * (np.arange(options.pool) % 2))[:, None, None] * square
        results = test.map(mu + rng.normal(size=mu.shape))
        theta = np.array([image[r.part].mean() - image[~r.part].mean() for image, r in zip(mu, results, strict=True)])
        estimates = results.cohort().estimates
        errors = [values - theta for values in (estimates.value, estimates.plain)]
        bias = ", ".join(f"{np.mean(e):+.3f} ({np.std(e) / np.sqrt(len(e)):.3f})" for e in errors)
        naive = np.mean([result.difference for result in results] - theta)
        rejected = rate(np.array([result.pvalue_bounds[1] <= ALPHA for result in results]))
        print(f"| {name} | {len(results)} | {bias}, {naive:+.2f} | {rejected} |", flush=True)


STUDIES: dict[str, Callable[[argparse.Namespace], None]] = {
    "means": means,
    "clusters": clusters,
    "noise": estimated_noise,
    "groups": groups,
    "unrandomised": without_randomisation,
    "reference": shared_reference,
    "model": model,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=STUDIES)
    parser.add_argument("--cohorts", type=int, default=1000)
    parser.add_argument("--setting", default="", help="for means: only settings whose names contain this")
    parser.add_argument("--model-cohorts", type=int, default=200, help="cohorts that the bundled model looks at")
    parser.add_argument("--pool", type=int, default=300, help="images that the bundled model is tested on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, study in STUDIES.items():
        if options.only in (None, name):
            print(f"\n{name}: {study.__doc__}\n")
            study(options)


if __name__ == "__main__":
    main()
