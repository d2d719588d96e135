"""Wrong labels that `nearsure.audit.suspect_labels` counts, lists and ranks first.

Some labels are made wrong: at random, by the class (to the one that it is most confused with), by
the point (to its own most probable other class), or half at random and half by the class. The sets
have wrong labels of their own, so that the true number is a little larger than what is called so.

"All" is what would be listed without an estimate: every label that has less support than another.
HWU64, TREC and digits served to choose the constants of `nearsure.wrong_labels`. Two choices were
made with an eye on the others, too: the upper end of the range, and the mean over powers.

Needs the reference embeddings, which are not part of the project: NEARSURE_DATA says where.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score

from benchmarks.promise_cases import DATASETS, is_there, load_points
from benchmarks.report import finish, say
from nearsure import Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit import confusable_classes, suspect_labels
from nearsure.errors import ManyMissesWarning
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out

CHOSEN_ON = ("HWU64", "TREC", "digits")
SEEDS = range(2)
KINDS = ("at random", "by the class", "by the point", "both")
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
# From here on the number of wrong labels should be well known.
MANY = 0.05
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
    # Average precision of the ranking, of the trust without a floor, and of p(own) - p(other).
    ours: float
    trust: float
    margin: float


def main() -> None:
    there = [name for name in DATASETS if is_there(name)]
    # With wrong labels many points miss their class: that is what is measured.
    warnings.simplefilter("ignore", ManyMissesWarning)
    print("      wrong labels: true, estimated (range); listed (all), found; average precision")
    results = [figures for name in there for figures in measure(name)]
    for name, group in (("chosen on", CHOSEN_ON), ("others", set(there) - set(CHOSEN_ON))):
        judge(name, [one for one in results if one.dataset in group])
    finish()


def measure(dataset: str) -> Iterator[Figures]:
    """All kinds and rates of wrong labels in one data set, printed as means over the seeds."""
    for kind, rate in [("none", 0.0), *((kind, rate) for kind in KINDS for rate in RATES)]:
        trials = [try_once(dataset, kind, rate, seed) for seed in SEEDS]
        mean = {
            name: float(np.mean([getattr(one, name) for one in trials]))
            for name in list(vars(trials[0]))[3:]
        }
        print(
            f"      {dataset:9}{kind:13}{rate:4.0%}  {mean['n_wrong']:5.0f} {mean['estimate']:5.0f}"
            f" ({mean['low']:.0f} to {mean['high']:.0f}); {mean['n_listed']:.0f} "
            f"({mean['n_doubted']:.0f}), {mean['n_found']:.0f}; ours {mean['ours']:.3f}, trust "
            f"{mean['trust']:.3f}, margin {mean['margin']:.3f}",
            flush=True,
        )
        yield from trials


def try_once(dataset: str, kind: str, rate: float, seed: int) -> Figures:
    rng = np.random.default_rng(seed)
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
    found = suspect_labels(neighbors, given, temperature=temperature)
    # The only members of a class are not ranked: they come last.
    order = np.concatenate([found.ids, np.setdiff1d(rows, found.ids)])
    ranks, trust, margin = np.argsort(order), np.ones(len(codes)), np.ones(len(codes))
    trust[found.ids], margin[found.ids] = found.trust, found.p_own - found.p_suggested
    listed = found.first(found.n_doubted).ids
    return Figures(
        dataset,
        kind,
        rate,
        len(codes),
        int(is_wrong.sum()),
        found.wrong.n,
        *found.wrong.between,
        len(listed),
        int(is_wrong[listed].sum()),
        int((found.trust < 0.5).sum()),  # noqa: PLR2004
        *(_average_precision(is_wrong, belief) for belief in (ranks, trust, margin)),
    )


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


def _average_precision(is_wrong: AnyArray, belief: FloatArray | IntArray) -> float:
    return float(average_precision_score(is_wrong, -belief)) if is_wrong.any() else np.nan


if __name__ == "__main__":
    main()
