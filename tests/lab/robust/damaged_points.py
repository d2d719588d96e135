"""Gaussian classes whose queries are moved by noise: damage whose truth is known."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.index import ExactIndex
from nearsure.lab.protocols import ProtocolNeighbors, given_gallery
from nearsure.lab.robust.evaluation import RobustEvaluation, evaluate_variants
from nearsure.lab.robust.methods import FrozenMethods
from nearsure.lab.robust.settings import Variant
from nearsure.neighbors import Neighbors

K = 15
N_CLASSES = 6
CORRUPTIONS = ("fog", "gaussian_noise", "snow")
N_RESAMPLES = 60


@cache
def points() -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """A gallery of 180 points and 150 queries in 4 dimensions, with their classes."""
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.standard_normal((N_CLASSES, 4))
    gallery_codes = np.repeat(np.arange(N_CLASSES), 30)
    query_codes = np.repeat(np.arange(N_CLASSES), 25)
    gallery = centres[gallery_codes] + 0.8 * rng.standard_normal((180, 4))
    queries = centres[query_codes] + 0.8 * rng.standard_normal((150, 4))
    return gallery, gallery_codes, queries, query_codes


@cache
def _searched() -> ProtocolNeighbors:
    gallery, gallery_codes, queries, query_codes = points()
    return given_gallery(gallery, gallery_codes, queries, query_codes, k=K + 5)


@cache
def frozen() -> FrozenMethods:
    return FrozenMethods.fit(_searched().own.first(K), _searched().own_codes, points()[0])


@cache
def clean() -> ProtocolNeighbors:
    found, (gallery, _, queries, _) = _searched(), points()
    return replace(
        found,
        own=with_class_scores(found.own, gallery, np.arange(len(gallery))),
        queries=with_class_scores(found.queries, queries),
    )


def with_class_scores(
    neighbors: Neighbors, vectors: FloatArray, rows: IntArray | None = None
) -> Neighbors:
    """What the head says of queries, or of gallery points by their rows, beside neighbours."""
    rows = np.full(len(vectors), -1) if rows is None else rows
    return frozen().classifier.add_class_scores(neighbors, vectors, rows)


def damaged_queries(noise: float, seed: int = 1) -> FloatArray:
    queries = points()[2]
    return queries + noise * np.random.default_rng(seed).standard_normal(queries.shape)


def moved(noise: float, seed: int = 1) -> Neighbors:
    """Neighbours of the queries after noise moved them."""
    gallery, gallery_codes, *_ = points()
    queries = damaged_queries(noise, seed)
    sq_distances, ids = ExactIndex(gallery).search(queries, K + 5)
    return with_class_scores(Neighbors(sq_distances, gallery_codes[ids], ids), queries)


def corrupted() -> Iterator[tuple[Variant, Neighbors, IntArray]]:
    for place, name in enumerate(CORRUPTIONS):
        for severity in range(1, 6):
            noise = 0.2 * severity * (1 + place)
            yield Variant("corruption", name, severity), moved(noise, place), clean().query_codes


def attacked() -> Iterator[tuple[Variant, Neighbors, IntArray]]:
    small = [1 / 255, 2 / 255, 4 / 255, 8 / 255]
    plan = [(name, epsilon) for name in ("fgsm", "bim", "pgd") for epsilon in (0.1, 0.3)]
    plan += [(name, epsilon) for name in ("pgd", "confidence") for epsilon in small]
    for place, (name, epsilon) in enumerate(plan):
        variant = Variant(
            "attack",
            name,
            epsilon=epsilon,
            mean_distance=0.9 * epsilon,
            max_distance=epsilon,
            n_without_gradient=7 if name == "fgsm" else 0,
        )
        yield variant, moved(5 * epsilon, place), clean().query_codes


@cache
def corruption_evaluation() -> RobustEvaluation:
    return _evaluated("clean-trained", corrupted())


@cache
def attack_evaluation(model: str = "clean-trained") -> RobustEvaluation:
    return _evaluated(model, attacked())


def _evaluated(
    model: str, variants: Iterator[tuple[Variant, Neighbors, IntArray]]
) -> RobustEvaluation:
    return evaluate_variants(
        model,
        "given_gallery",
        frozen(),
        clean=(clean().queries, clean().query_codes),
        variants=variants,
        seed=3,
        n_resamples=N_RESAMPLES,
    )
