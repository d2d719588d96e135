"""fit and predict against the bare faiss searches that they contain, and against scikit-learn."""

from statistics import median
from typing import Self

import faiss
import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.gallery import K, make_gallery
from benchmarks.report import finish, say, seconds
from nearsure import NEDClassifier
from nearsure.arrays import FloatArray
from nearsure.index import ExactIndex

ROUNDS = 7


def main() -> None:
    gallery = make_gallery()
    flat = faiss.IndexFlatL2(gallery.vectors.shape[1])
    flat.add(gallery.vectors)
    classifier = NEDClassifier(n_neighbors=K).fit(gallery.vectors, gallery.labels)
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
    say("fit + predict, to the bare faiss searches they contain", median(total_ratios), 1.15)
    # The search is ExactIndex.search, with the distances that it computes anew.
    say("everything but the search", median(shares), 3.0, unit="%")

    full = seconds(lambda: flat.search(gallery.vectors, K + 1))
    say("fit with the default sample, to a full self-search", median(fit_times) / full, 0.25)

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
    finish()


class _SearchClock:
    """Adds up the time that passes inside ExactIndex.search."""

    def __enter__(self) -> Self:
        self.elapsed = 0.0
        self._search = ExactIndex.search
        search, clock = self._search, self

        def timed(index: ExactIndex, queries: FloatArray, k: int) -> object:
            result: list[object] = []
            clock.elapsed += seconds(lambda: result.append(search(index, queries, k)))
            return result[0]

        ExactIndex.search = timed  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ExactIndex.search = self._search  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
