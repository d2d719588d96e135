"""Embeddings to figures: every protocol that fits, each step cached where a cache is given."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files import EmbeddingSet
from nearsure.lab.cache import CachedStep, to_plain
from nearsure.lab.default_rule import nearsure_posteriors
from nearsure.lab.evaluation import (
    Evaluation,
    Sweep,
    curve_ks,
    evaluate,
    neighbor_curve,
    temperature_and_k_sweep,
)
from nearsure.lab.protocols import (
    ProtocolName,
    ProtocolNeighbors,
    ProtocolPoints,
    all_against_others,
    encode_labels,
    gallery_and_queries,
    gallery_half,
    given_gallery,
)
from nearsure.neighbors import Neighbors

SWEPT_KS = (10, 20, 50, 100)
# What the cache holds of neighbours, in the order of the class.
STORED = ("sq_distances", "labels", "ids", "counts")
# Raised when an evaluation holds more or other numbers than before.
VERSION = 3


@dataclass(frozen=True)
class EvaluationSettings:
    """How embeddings are evaluated.

    Parameters
    ----------
    k : int
        Neighbours of the tables.
    k_most : int
        Largest k of the curves; `k`, if that is larger.
    seed : int
        Of the bootstrap and of the half that is the gallery.
    n_resamples : int
        Of every interval.
    """

    k: int = 50
    k_most: int = 200
    seed: int = 0
    n_resamples: int = 1000

    @property
    def n_searched(self) -> int:
        """Neighbours to search for each point, if there are so many."""
        return max(self.k, self.k_most)


@dataclass(frozen=True)
class Experiment:
    """What was found with one set of embeddings.

    Parameters
    ----------
    name : str
        Of the run: its loss, or the file.
    seed : int
        Of its training; 0 where there was none.
    evaluations, sweeps : mapping of protocol to Evaluation, Sweep
        The figures.
    details : mapping
        Settings and training, for the JSON.
    """

    name: str
    evaluations: Mapping[ProtocolName, Evaluation]
    sweeps: Mapping[ProtocolName, Sweep]
    details: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            **self.details,
            "evaluations": to_plain(self.evaluations),
            "sweeps": to_plain(self.sweeps),
        }


def run_experiment(
    name: str,
    queries: EmbeddingSet,
    gallery: EmbeddingSet | None,
    settings: EvaluationSettings,
    *,
    seen: Callable[[], EmbeddingSet] | None = None,
    cache: Path | None = None,
    key: str = "",
    details: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Experiment:
    """Evaluate embeddings by every protocol that they allow.

    Parameters
    ----------
    name : str
        Of the run.
    queries : EmbeddingSet
        Points of the unseen classes.
    gallery : EmbeddingSet, optional
        What they are searched among. None: among each other, by the paper's protocol (every
        point against all others) and by the strict one (half gallery, half queries).
    settings : EvaluationSettings
        k, seed and the like.
    seen : callable, optional
        Gives the points of the classes that the embedding was trained on, from which each rule's
        own k is chosen.
    cache : Path, optional
        Folder of stages.
    key : str
        What the embeddings are, for the cache, which needs it.
    details : mapping, optional
        Kept with the result.
    seed : int
        Of the training, to tell several trainings apart.
    """
    seen_ks: dict[str, int] = {}
    if seen is not None:
        inputs = {"embeddings": key, "version": VERSION, **asdict(settings)}
        step = CachedStep(cache, "seen-ks", inputs)
        seen_ks = step.document("seen-ks", partial(best_ks, seen, settings))
    points = protocol_points(queries, gallery, settings)
    evaluations: dict[ProtocolName, Evaluation] = {}
    sweeps: dict[ProtocolName, Sweep] = {}
    for protocol, search in _searches(queries, gallery, settings).items():
        inputs = {"embeddings": key, "protocol": protocol, **asdict(settings)}

        def cached_step(name: str, inputs: Mapping[str, Any] = inputs) -> CachedStep:
            return CachedStep(cache, name, inputs)

        stored = cached_step("neighbors").arrays("neighbors", partial(_to_arrays, search))
        found = _from_arrays(protocol, stored)
        version = {"version": VERSION, "seen": seen is not None}
        evaluations[protocol] = cached_step("evaluation", inputs | version).result(
            Evaluation,
            "evaluation",
            partial(_evaluate, found, points[protocol], settings, seen_ks),
        )
        sweeps[protocol] = cached_step("sweep").result(Sweep, "sweep", partial(_sweep, found))
    return Experiment(name, evaluations, sweeps, dict(details or {}), seed)


def best_ks(seen: Callable[[], EmbeddingSet], settings: EvaluationSettings) -> dict[str, int]:
    """The k at which each rule is right most often on seen classes, every point against the rest.

    Parameters
    ----------
    seen : callable
        Gives the points.
    settings : EvaluationSettings
        Of k, how many are searched.

    Returns
    -------
    dict of str to int
        By name of the rule, nearsure's own among them.
    """
    points = seen()
    codes, _ = encode_labels(points.labels)
    found = all_against_others(points.vectors, codes, k=min(settings.n_searched, len(points) - 1))
    others = partial(nearsure_posteriors, ProtocolPoints(points.vectors, codes))
    k = min(settings.k, found.k)
    curve = neighbor_curve(found, curve_ks(found, k), k=k, others=others, seed=settings.seed)
    return {rule: curve.best_k(rule) for rule in curve.accuracy}


def _evaluate(
    found: ProtocolNeighbors,
    points: ProtocolPoints,
    settings: EvaluationSettings,
    seen_ks: Mapping[str, int],
) -> Evaluation:
    return evaluate(
        found,
        k=min(settings.k, found.k),
        seed=settings.seed,
        n_resamples=settings.n_resamples,
        others=partial(nearsure_posteriors, points),
        seen_ks=seen_ks,
    )


def _sweep(found: ProtocolNeighbors) -> Sweep:
    return temperature_and_k_sweep(found, ks=[k for k in SWEPT_KS if k <= found.k] or [found.k])


def protocol_points(
    queries: EmbeddingSet, gallery: EmbeddingSet | None, settings: EvaluationSettings
) -> dict[ProtocolName, ProtocolPoints]:
    """The vectors that each protocol compares, as the searches have them."""
    if gallery is not None:
        codes, _ = encode_labels(gallery.labels, queries.labels)
        return {"given_gallery": ProtocolPoints(gallery.vectors, codes, queries.vectors)}
    codes, _ = encode_labels(queries.labels)
    half = gallery_half(codes, seed=settings.seed)
    vectors = queries.vectors
    return {
        "all_against_others": ProtocolPoints(vectors, codes),
        "gallery_and_queries": ProtocolPoints(vectors[half], codes[half], vectors[~half]),
    }


def _searches(
    queries: EmbeddingSet, gallery: EmbeddingSet | None, settings: EvaluationSettings
) -> dict[ProtocolName, Callable[[], ProtocolNeighbors]]:
    """The searches that the embeddings allow, not yet done."""
    if gallery is not None:
        gallery_codes, query_codes = encode_labels(gallery.labels, queries.labels)
        k = min(settings.n_searched, len(gallery) - 1)
        return {
            "given_gallery": lambda: given_gallery(
                gallery.vectors, gallery_codes, queries.vectors, query_codes, k=k
            )
        }
    codes, _ = encode_labels(queries.labels)
    k, k_half = (min(settings.n_searched, n - 1) for n in (len(queries), len(queries) // 2))
    return {
        "all_against_others": lambda: all_against_others(queries.vectors, codes, k=k),
        "gallery_and_queries": lambda: gallery_and_queries(
            queries.vectors, codes, k=k_half, seed=settings.seed
        ),
    }


def _to_arrays(search: Callable[[], ProtocolNeighbors]) -> dict[str, AnyArray]:
    found = search()
    arrays: dict[str, AnyArray] = {"own_codes": found.own_codes, "query_codes": found.query_codes}
    for part, neighbors in (("own", found.own), ("queries", found.queries)):
        arrays |= {f"{part}.{name}": np.asarray(getattr(neighbors, name)) for name in STORED}
    return arrays | {"n_classes": np.array([found.n_classes])}


def _from_arrays(protocol: ProtocolName, stored: Mapping[str, AnyArray]) -> ProtocolNeighbors:
    own, queries = (
        Neighbors(
            stored[f"{part}.sq_distances"],
            stored[f"{part}.labels"],
            stored[f"{part}.ids"],
            stored[f"{part}.counts"],
        )
        for part in ("own", "queries")
    )
    codes, query_codes = stored["own_codes"], stored["query_codes"]
    n_classes = int(stored["n_classes"][0])
    return ProtocolNeighbors(protocol, own, codes, queries, query_codes, n_classes)
