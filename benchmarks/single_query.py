"""One query at a time against the bare faiss call."""

from functools import partial
from statistics import median

import faiss

from benchmarks.gallery import K, make_gallery
from benchmarks.report import finish, say, seconds
from nearsure import NEDClassifier

ROUNDS, CALLS = 7, 40


def main() -> None:
    gallery = make_gallery()
    flat = faiss.IndexFlatL2(gallery.vectors.shape[1])
    flat.add(gallery.vectors)
    classifier = NEDClassifier(n_neighbors=K).fit(gallery.vectors, gallery.labels)
    queries = [gallery.queries[i : i + 1] for i in range(CALLS)]
    bare: list[float] = []
    ours: list[float] = []
    # In turns of many calls each, as the threads of one library spin for a while after a call
    # and would slow down the other's.
    for _ in range(ROUNDS):
        bare += [seconds(partial(flat.search, query, K)) for query in queries]
        ours += [seconds(partial(classifier.predict_with_confidence, query)) for query in queries]
    print(f"      bare faiss {1e6 * median(bare):.0f} us, nearsure {1e6 * median(ours):.0f} us")
    say(
        "one query, beyond the bare faiss call",
        1e6 * (median(ours) - median(bare)),
        100,
        unit=" us",
    )
    finish()


if __name__ == "__main__":
    main()
