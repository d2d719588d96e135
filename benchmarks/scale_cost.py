"""What a gallery of one size costs through one index, beside the bare index."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import faiss
import numpy as np

from benchmarks.large_gallery import K, LargeGallery, make_large_gallery
from benchmarks.peak_memory import peak_kib, reset_peak
from benchmarks.report import seconds
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.embedded import FaissEngine
from nearsure.metrics import accuracy, expected_calibration_error

ROUNDS, SINGLE_ROUNDS, SINGLE_CALLS = 5, 5, 100
# Exact search of all queries among a million points would take minutes.
EXACT_COMPARISONS = 10**9
# Share of neighbours that the bare search may have in another order.
SAME = 0.01
# Queries whose true neighbours are looked up.
N_RECALLED = 500


@dataclass(frozen=True)
class Cost:
    """What one index costs at one size, and what it answers; times in seconds, memory in bytes."""

    index: str
    n_points: int
    build: float
    fit: float
    bare_rate: float
    ned_rate: float
    added: float
    added_by_default: float
    bare_p50: float
    bare_p99: float
    ned_p50: float
    ned_p99: float
    vectors_and_index: int
    memory: int
    recall: float
    accuracy: float
    ece: float
    default_accuracy: float
    default_ece: float


def measure(index: str, n_points: int) -> Cost:
    """All figures of one index at one size."""
    gallery = make_large_gallery(n_points)
    n_asked = len(gallery.queries) if index == "hnsw" else EXACT_COMPARISONS // n_points
    queries = gallery.queries[:n_asked]
    before = reset_peak()
    engines: list[FaissEngine] = []
    build = seconds(
        lambda: engines.append(
            FaissEngine.from_points(gallery.vectors, labels=gallery.labels, index=index)
        )
    )
    engine = engines[0]
    classifier = NEDClassifier(n_neighbors=K, rule="ned", engine=engine)
    fit = seconds(classifier.fit_engine)
    prediction = classifier.predict_with_confidence(queries)
    memory = 1024 * (peak_kib() - before)
    bare = bare_search(engine, gallery, classifier)
    rates, added = throughput(bare, classifier, queries)
    default = NEDClassifier(n_neighbors=K, engine=engine).fit_engine()
    _, added_by_default = throughput(bare, default, queries)
    bare_times, ned_times = single_queries(bare, classifier, gallery.queries)
    by_default = default.predict_with_confidence(queries)
    asked = gallery.query_labels[: len(queries)]
    right, right_by_default = prediction.labels == asked, by_default.labels == asked
    return Cost(
        index=index,
        n_points=n_points,
        build=build,
        fit=fit,
        bare_rate=rates[0],
        ned_rate=rates[1],
        added=added,
        added_by_default=added_by_default,
        bare_p50=float(np.quantile(bare_times, 0.5)),
        bare_p99=float(np.quantile(bare_times, 0.99)),
        ned_p50=float(np.quantile(ned_times, 0.5)),
        ned_p99=float(np.quantile(ned_times, 0.99)),
        vectors_and_index=gallery.vectors.nbytes + link_bytes(engine),
        memory=memory,
        recall=recall(classifier, gallery),
        accuracy=accuracy(right),
        ece=expected_calibration_error(prediction.confidence, right),
        default_accuracy=accuracy(right_by_default),
        default_ece=expected_calibration_error(by_default.confidence, right_by_default),
    )


def bare_search(
    engine: FaissEngine, gallery: LargeGallery, classifier: NEDClassifier
) -> Callable[[AnyArray], object]:
    """The search of faiss alone, on the same index, with the same effort."""
    if engine.index_type == "exact":
        flat = faiss.IndexFlatL2(gallery.vectors.shape[1])
        flat.add(gallery.vectors)
        return lambda queries: flat.search(queries, K)
    graph = graph_of(engine)
    chosen = classifier.recall_
    ef_search = engine.settings.hnsw_ef_search
    if chosen is not None and chosen.effort is not None:
        ef_search = chosen.effort
    graph.hnsw.efSearch = ef_search
    # These vectors lie about the origin, so that the engine holds them as they are.
    few = gallery.queries[:100]
    if (graph.search(few, K)[1] != engine.search_with_effort(few, K, ef_search).ids).mean() > SAME:
        sys.exit("The bare search does not answer as the engine does: nothing can be compared.")
    return lambda queries: graph.search(queries, K)


def throughput(
    bare: Callable[[AnyArray], object], classifier: NEDClassifier, queries: AnyArray
) -> tuple[tuple[float, float], float]:
    """Queries a second of both, and the share of time that the classifier adds; medians."""
    bare_times, ned_times, added = [], [], []
    for _ in range(ROUNDS):
        bare_times.append(seconds(lambda: bare(queries)))
        ned_times.append(seconds(lambda: classifier.predict_with_confidence(queries)))
        added.append(ned_times[-1] / bare_times[-1] - 1.0)
    rates = len(queries) / median(bare_times), len(queries) / median(ned_times)
    return rates, median(added)


def single_queries(
    bare: Callable[[AnyArray], object], classifier: NEDClassifier, queries: AnyArray
) -> tuple[list[float], list[float]]:
    """Times of one query at a time, in turns of many calls each."""
    singles = [queries[i : i + 1] for i in range(SINGLE_CALLS)]
    bare_times: list[float] = []
    ned_times: list[float] = []
    for _ in range(SINGLE_ROUNDS):
        bare_times += [seconds(partial(bare, query)) for query in singles]
        ned_times += [seconds(partial(classifier.predict_with_confidence, q)) for q in singles]
    return bare_times, ned_times


def link_bytes(engine: FaissEngine) -> int:
    """What a graph holds beside the vectors."""
    if engine.index_type == "exact":
        return 0
    graph = graph_of(engine).hnsw
    sizes = (4 * graph.neighbors.size(), 8 * graph.offsets.size(), 4 * graph.levels.size())
    return int(sum(sizes))


def graph_of(engine: FaissEngine) -> Any:  # noqa: ANN401
    """The index of faiss inside an engine of index type "hnsw"."""
    return engine._storage._rows.index  # type: ignore[union-attr] # noqa: SLF001


def recall(classifier: NEDClassifier, gallery: LargeGallery) -> float:
    """Share of the true nearest neighbours that are found."""
    queries = gallery.queries[:N_RECALLED]
    _, true = faiss.knn(queries, gallery.vectors, K)
    found = np.asarray(classifier.kneighbors(queries).ids)
    hits = [len(np.intersect1d(own, other)) for own, other in zip(found, true, strict=True)]
    return float(np.mean(hits)) / K
