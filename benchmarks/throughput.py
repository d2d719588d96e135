"""fit and predict against the bare faiss searches that they contain, and against scikit-learn."""

from statistics import median
from typing import TYPE_CHECKING

import faiss
import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.gallery import Gallery, K, make_gallery
from benchmarks.report import finish, say, seconds
from nearsure import NEDClassifier
from nearsure.arrays import FloatArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.index import ExactIndex

if TYPE_CHECKING:
    from typing import Self

ROUNDS = 7
# What fit + predict may cost, to the bare searches, and the share of all but the search in percent.
# The default fits three parameters, a calibrator and a head where NED fits one parameter.
BOUNDS: dict[RuleChoice, tuple[float, float]] = {"ned": (1.15, 3.0), "adaptive": (1.35, 18.0)}
# What fit + predict with a head may cost, to the same without one.
HEAD_BOUND = 1.15


def main() -> None:
    gallery = make_gallery()
    flat = faiss.IndexFlatL2(gallery.vectors.shape[1])
    flat.add(gallery.vectors)
    fit_times = {rule: measure(rule, gallery, flat) for rule in BOUNDS}
    full = seconds(lambda: flat.search(gallery.vectors, K + 1))
    for rule, fit in fit_times.items():
        say(f"{rule}: fit with the default sample, to a full self-search", fit / full, 0.25)
    compare_with_neighbors_alone(gallery)
    compare_with_scikit_learn(gallery)
    finish()


def measure(rule: RuleChoice, gallery: Gallery, flat: faiss.IndexFlatL2) -> float:
    """Say what a rule adds to the search, and give back the time of a fit."""
    classifier = NEDClassifier(n_neighbors=K, rule=rule).fit(gallery.vectors, gallery.labels)
    sample = gallery.vectors[classifier.fit_indices_]
    fit_times, total_ratios, shares = [], [], []
    for _ in range(ROUNDS):
        bare_fit = seconds(lambda: flat.search(sample, K + 1))
        bare_predict = seconds(lambda: flat.search(gallery.queries, K))
        with _SearchClock() as clock:
            fit = seconds(lambda: classifier.fit(gallery.vectors, gallery.labels))
            predict = seconds(lambda: classifier.predict_with_confidence(gallery.queries))
        total_ratios.append((fit + predict) / (bare_fit + bare_predict))
        shares.append(100 * (fit + predict - clock.elapsed) / (fit + predict))
        fit_times.append(fit)
    total, share = BOUNDS[rule]
    say(f"{rule}: fit + predict, to the bare faiss searches", median(total_ratios), total)
    # The search is ExactIndex.search_rows, with the distances that it computes anew.
    say(f"{rule}: everything but the search", median(shares), share, unit="%")
    return median(fit_times)


def compare_with_neighbors_alone(gallery: Gallery) -> None:
    """Say what a head beside the neighbours costs."""

    def ask(classifier: NEDClassifier) -> None:
        classifier.fit(gallery.vectors, gallery.labels).predict_with_confidence(gallery.queries)

    with_head, alone = NEDClassifier(n_neighbors=K), NEDClassifier(n_neighbors=K, head=None)
    ask(alone)
    # One after the other, so that what else the machine does slows both.
    ratios = [seconds(lambda: ask(with_head)) / seconds(lambda: ask(alone)) for _ in range(ROUNDS)]
    say("adaptive: fit + predict with a head, to head=None", median(ratios), HEAD_BOUND)


def compare_with_scikit_learn(gallery: Gallery) -> None:
    """Say how long a peer takes with NED's weights."""
    classifier = NEDClassifier(n_neighbors=K, rule="ned").fit(gallery.vectors, gallery.labels)
    temperature = float(classifier.temperature_ or 0)

    def weights(distances: FloatArray) -> FloatArray:
        excess = distances**2 - distances[:, :1] ** 2
        return np.exp(-excess / temperature)

    peer = KNeighborsClassifier(K, weights=weights, algorithm="brute")
    peer.fit(gallery.vectors, gallery.labels)
    ours = median(
        seconds(lambda: classifier.predict_with_confidence(gallery.queries)) for _ in range(3)
    )
    theirs = median(seconds(lambda: peer.predict_proba(gallery.queries)) for _ in range(2))
    say("scikit-learn's predict_proba, to predict", theirs / ours, 3.0, at_least=True)


class _SearchClock:
    """Adds up the time that passes inside ExactIndex.search_rows."""

    def __enter__(self) -> "Self":
        self.elapsed = 0.0
        self._search = ExactIndex.search_rows
        search, clock = self._search, self

        def timed(index: ExactIndex, queries: FloatArray, k: int) -> object:
            result: list[object] = []
            clock.elapsed += seconds(lambda: result.append(search(index, queries, k)))
            return result[0]

        ExactIndex.search_rows = timed  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ExactIndex.search_rows = self._search  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
