"""Wrong labels that `NEDClassifier.audit` counts, lists and ranks first.

Some labels are made wrong: at random, by the class (to the one that it is most confused with), by
the point (to its own most probable other class), or half at random and half by the class. The sets
have wrong labels of their own, so that the true number is a little larger than what is called so.

"All" is what would be listed without an estimate: every label that has less support than another.
HWU64, TREC and digits served to choose the constants of `nearsure.wrong_labels`, and HWU64 and TREC
the part of the head in `nearsure.audit`. Two choices were made with an eye on the others, too: the
upper end of the range, and the mean over powers.

The probe is logistic regression, asked out of fold. Its labels are ranked by the scores of cleanlab
(Northcutt et al., JAIR 70, 2021): p(own label), and p(own label) - p(other).

Needs the reference embeddings, which are not part of the project: NEARSURE_DATA says where.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from benchmarks.promise_cases import DATASETS, is_there, load_points
from benchmarks.report import finish, say
from nearsure import NEDClassifier, Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit import confusable_classes, suspect_labels
from nearsure.errors import ManyMissesWarning, NearCopiesWarning
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out

CHOSEN_ON = ("HWU64", "TREC", "digits")
KINDS = ("at random", "by the class", "by the point", "both")
RATES = (0.02, 0.05, 0.1, 0.2)
# From here on the number of wrong labels should be well known.
MANY = 0.05
# The probe takes long: it is asked at one rate.
PROBED = 0.1
N_FOLDS, N_STEPS = 5, 100
SEED = 0
K = 50


@dataclass(frozen=True)
class Figures:
    """Of one gallery with some wrong labels."""

    dataset: str
    kind: str
    rate: float
    n_points: int
    n_wrong: int
    estimate: int
    low: int
    high: int
    n_listed: int
    n_found: int
    n_doubted: int
    # Average precision of the ranking, of the trust without a floor, of p(own) - p(other), of the
    # ranking by neighbours alone, and of a probe's p(own) and p(own) - p(other).
    ours: float
    trust: float
    margin: float
    alone: float
    probe: float
    probe_margin: float

    def __str__(self) -> str:
        return (
            f"{self.dataset:9}{self.kind:13}{self.rate:4.0%}  {self.n_wrong:5} {self.estimate:5} "
            f"({self.low} to {self.high}); {self.n_listed} ({self.n_doubted}), {self.n_found}; "
            f"ours {self.ours:.3f}, trust {self.trust:.3f}, margin {self.margin:.3f}, neighbours "
            f"alone {self.alone:.3f}, probe {self.probe:.3f}, its margin {self.probe_margin:.3f}"
        )


def main() -> None:
    there = [name for name in DATASETS if is_there(name)]
    # With wrong labels many points miss their class: that is what is measured. Recordings of one
    # source stand in ESC-50 as they are.
    warnings.simplefilter("ignore", ManyMissesWarning)
    warnings.simplefilter("ignore", NearCopiesWarning)
    print("      wrong labels: true, estimated (range); listed (all), found; average precision")
    results = [figures for name in there for figures in measure(name)]
    for name, group in (("chosen on", CHOSEN_ON), ("others", set(there) - set(CHOSEN_ON))):
        judge(name, [one for one in results if one.dataset in group])
    finish()


def measure(dataset: str) -> Iterator[Figures]:
    """All kinds and rates of wrong labels in one data set."""
    for kind, rate in [("none", 0.0), *((kind, rate) for kind in KINDS for rate in RATES)]:
        figures = try_once(dataset, kind, rate)
        print(f"      {figures}", flush=True)
        yield figures


def try_once(dataset: str, kind: str, rate: float) -> Figures:
    rng = np.random.default_rng(SEED)
    points = load_points(dataset).sample(rng)
    codes = np.unique(points.codes, return_inverse=True)[1]
    rows = np.arange(len(codes))
    own = search_leaving_one_out(ExactIndex(points.vectors), points.vectors, rows, codes, k=K)
    is_wrong = np.zeros(len(codes), np.bool_)
    is_wrong[rng.choice(len(codes), round(rate * len(codes)), replace=False)] = True
    given = np.where(is_wrong, make_wrong(own, codes, kind, rng), codes)
    ids = np.asarray(own.ids)
    neighbors = Neighbors(own.sq_distances, given[ids], ids, own.counts)
    temperature = fit_temperature(neighbors, given).temperature
    alone = suspect_labels(neighbors, given, temperature=temperature)
    found = NEDClassifier().fit(points.vectors, given).audit().suspects
    # The only members of a class are not ranked: they come last.
    ranks, ranks_alone = (
        np.argsort(np.concatenate([each.ids, np.setdiff1d(rows, each.ids)]))
        for each in (found, alone)
    )
    trust, margin = np.ones(len(codes)), np.ones(len(codes))
    trust[found.ids], margin[found.ids] = found.trust, found.p_own - found.p_suggested
    listed = found.first(found.n_doubted).ids
    probe, probe_margin = ask_probe(points.vectors, given, is_wrong, rate)
    return Figures(
        dataset,
        kind,
        rate,
        n_points=len(codes),
        n_wrong=int(is_wrong.sum()),
        estimate=found.wrong.n,
        low=found.wrong.between[0],
        high=found.wrong.between[1],
        n_listed=len(listed),
        n_found=int(is_wrong[listed].sum()),
        n_doubted=int((found.trust < 0.5).sum()),  # noqa: PLR2004
        ours=_average_precision(is_wrong, ranks),
        trust=_average_precision(is_wrong, trust),
        margin=_average_precision(is_wrong, margin),
        alone=_average_precision(is_wrong, ranks_alone),
        probe=probe,
        probe_margin=probe_margin,
    )


def ask_probe(
    vectors: AnyArray, given: IntArray, is_wrong: AnyArray, rate: float
) -> tuple[float, float]:
    """Average precision of a probe's p(own label), and of that less p(other)."""
    if rate != PROBED:
        return np.nan, np.nan
    shares, rows = np.zeros((len(given), int(given.max()) + 1)), np.arange(len(given))
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        # Classes of fewer members than folds, and few steps.
        warnings.simplefilter("ignore")
        for seen, asked in folds.split(vectors, given):
            probe = LogisticRegression(max_iter=N_STEPS).fit(vectors[seen], given[seen])
            shares[np.ix_(asked, probe.classes_)] = probe.predict_proba(vectors[asked])
    own = shares[rows, given]
    shares[rows, given] = -1.0
    margin = own - shares.max(axis=1)
    return _average_precision(is_wrong, own), _average_precision(is_wrong, margin)


def make_wrong(
    neighbors: Neighbors, codes: IntArray, kind: str, rng: np.random.Generator
) -> IntArray:
    """A wrong label for each point."""
    n_points, n_classes = len(codes), int(codes.max()) + 1
    at_random = (codes + rng.integers(1, n_classes, n_points)) % n_classes
    if kind in ("none", "at random"):
        return at_random
    temperature = fit_temperature(neighbors, codes).temperature
    if kind == "by the point":
        best = score(neighbors, temperature=temperature).top(2)[0]
        other = np.where(best[:, 0] == codes, best[:, 1], best[:, 0])
        return np.where(other >= 0, other, at_random)
    mass = confusable_classes(neighbors, codes, temperature=temperature).mass.toarray()
    confusion = mass + mass.T
    np.fill_diagonal(confusion, -1)
    by_class: IntArray = confusion.argmax(axis=1)[codes]
    if kind == "by the class":
        return by_class
    return np.where(rng.integers(0, 2, n_points) == 0, at_random, by_class)


def judge(name: str, results: list[Figures]) -> None:
    """Compare the figures with what they should be."""
    if not results:
        return
    many = [one for one in results if one.rate >= MANY]
    lengths = np.array([one.n_listed / one.n_wrong for one in many])
    everything = np.array([one.n_doubted / one.n_wrong for one in many])
    print(f"\n      {name}: {len(many)} galleries with 5% of wrong labels or more")
    say("listed, times the true number, median", float(np.median(lengths)), 2.0)
    say("listed, times the true number, largest", float(lengths.max()), 3.5)
    print(f"      all: median {np.median(everything):.2f}, largest {everything.max():.2f}")
    hidden = np.array([(one.n_wrong - one.n_found) / one.n_listed for one in many])
    say("galleries that hide more than they list", float(np.mean(hidden > 1)), 0.05, unit="")
    print(f"      hidden, times those listed: largest {hidden.max():.2f}")
    recall = np.mean([one.n_found / one.n_wrong for one in many])
    print(f"      found: {recall:.1%} of the wrong labels")
    clean = max(one.n_listed / one.n_points for one in results if one.rate == 0)
    say("listed where nothing was made wrong, share of points", clean, 0.08, unit="")
    lost = [one.trust - one.ours for one in many if one.kind == "at random"]
    say("average precision lost to trust, at random", float(np.mean(lost)), 0.01, unit="")
    confused = [one for one in many if one.kind in ("by the class", "by the point")]
    lost = [one.margin - one.ours for one in confused]
    say("average precision lost to the margin, confusable", float(np.mean(lost)), 0.02, unit="")
    gained = np.mean([one.ours - one.trust for one in confused])
    print(f"      average precision gained on trust, confusable: {gained:.3f}")
    for title, kinds in (("at random", KINDS[:1]), ("confusable", KINDS[1:3])):
        asked = [one for one in results if one.rate == PROBED and one.kind in kinds]
        lost = [max(one.probe, one.probe_margin) - one.ours for one in asked]
        say(f"average precision lost to a probe, {title}", float(np.mean(lost)), 0.0, unit="")
        print(f"      largest {max(lost):.3f}; to neighbours alone ", end="")
        print(f"{np.mean([one.alone - one.ours for one in asked]):.3f}")


def _average_precision(is_wrong: AnyArray, belief: FloatArray | IntArray) -> float:
    return float(average_precision_score(is_wrong, -belief)) if is_wrong.any() else np.nan


if __name__ == "__main__":
    main()
