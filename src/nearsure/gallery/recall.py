"""How many of the true neighbours an approximate engine finds, and the effort that finds enough."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.engines.contract import AdjustableEngine, Effort, Engine, Fingerprint, Found
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import InvalidInputError
from nearsure.gallery.gallery import Gallery
from nearsure.index.exact import ExactIndex, unit_vectors
from nearsure.progress import tracked
from nearsure.schema import COUNT, TEXT, Document, integer, nullable, number

log = logging.getLogger("nearsure.engines")
# The share of the true neighbours that is enough.
TARGET = 0.99
N_SAMPLED = 300
SEED = 0
# Unless another limit is given, the effort is raised to this many times what the engine is set to.
MOST_TIMES = 32
# Neighbours that are looked for: the first of "all" tell enough.
MOST_NEIGHBORS = 1000
# Points whose vectors are read at a time, and numbers that are read of engines elsewhere.
READ_AT_ONCE = 32_768
MOST_NUMBERS = 2**28
# A point that is so little farther than the last true neighbour is as good as that: engines round,
# their distances and, in single precision, what these are differences of.
ROUNDING, ROUNDING_OF_SQUARES = 1e-5, 1e-6


@dataclass(frozen=True)
class Recall(Document):
    """How many of the true neighbours an engine finds.

    Parameters
    ----------
    share : float or None
        The share of the true k nearest that is found; None if it was not measured.
    n_points, k : int
        Points that were searched among the others, and how many neighbours of each.
    effort_name, effort : str, int or None
        What decides how much of the index is searched, and the number that was chosen; None if
        the engine has no such parameter.
    """

    share: float | None
    n_points: int
    k: int
    effort_name: str | None = None
    effort: int | None = None

    _owner: ClassVar[str] = "The recall of the engine"
    _table: ClassVar = {
        "share": nullable(number("a number in [0, 1]", 0.0, 1.0)),
        "n_points": COUNT,
        "k": COUNT,
        "effort_name": nullable(TEXT),
        "effort": nullable(integer(1, 2**31 - 1)),
    }

    def __str__(self) -> str:
        if self.share is None:
            return "How many of the true neighbours the engine finds was not measured"
        effort = "" if self.effort is None else f", with {self.effort_name} {self.effort}"
        return (
            f"The engine finds {self.share:.1%} of the true {self.k} nearest neighbours{effort}, "
            f"measured on {self.n_points} points"
        )

    @property
    def is_enough(self) -> bool:
        """Whether as many are found as should be, or nothing is known."""
        return self.share is None or self.share >= TARGET

    def mark(self, fingerprint: Fingerprint) -> Fingerprint:
        """An engine's fingerprint with the effort that was chosen, and what it finds."""
        effort = {} if self.effort_name is None else {self.effort_name: self.effort}
        share = None if self.share is None else round(self.share, 4)
        return {**fingerprint, **effort, "recall": share}

    def fits(self, engine: Engine, fitted: Fingerprint) -> bool:
        """Whether an engine is the one that was measured, whatever effort it is opened with."""
        chosen = {self.effort_name or "recall": None, "recall": None}
        return {**fitted, **chosen} == {**engine.fingerprint(), **chosen}


def measure_recall(gallery: Gallery, k: int, max_effort: int | None = None) -> Recall | None:
    """Compare what the engine finds with every point, and raise its effort until that is enough.

    Some points are searched among the others. All vectors are read once, in portions, unless the
    engine is outside of this process and holds more than 2^28 numbers.

    Parameters
    ----------
    gallery : Gallery
        The points.
    k : int
        How many neighbours are going to be asked for.
    max_effort : int, optional
        The largest effort that may be chosen; by default 32 times that of the engine, and 0 if
        nothing shall be measured.

    Returns
    -------
    Recall or None
        None if the engine is exact, or nothing shall be measured.
    """
    engine = gallery.engine
    if engine.capabilities.exact or max_effort == 0 or len(gallery) == 1:
        return None
    k = min(k, MOST_NEIGHBORS, len(gallery) - 1, (engine.capabilities.largest_k or k + 1) - 1)
    is_here = isinstance(engine, FaissEngine | SqliteEngine)
    if k < 1 or (not is_here and len(gallery) * engine.dimension > MOST_NUMBERS):
        log.warning("Recall was not measured: to read %d vectors takes too long.", len(gallery))
        return Recall(None, 0, k)
    drawn = np.random.default_rng(SEED).choice(
        len(gallery), min(N_SAMPLED, len(gallery)), replace=False
    )
    ids = gallery.ids_at(np.sort(drawn))
    queries = _comparable(np.asarray(engine.fetch(ids).vectors), engine)
    farthest = _farthest_neighbors(engine, queries, k, len(gallery))
    spread = 1.0 if engine.metric == "cosine" else float(queries.var(axis=0).sum())
    reach = farthest * (1 + ROUNDING) + ROUNDING_OF_SQUARES * spread
    own = engine.effort if isinstance(engine, AdjustableEngine) else None
    if own is None or not isinstance(engine, AdjustableEngine):
        share = _share_found(engine.search(queries, k + 1), ids, reach, k)
        recall = Recall(share, len(ids), k)
    else:
        effort, largest = own.value, _limit(own, max_effort)
        while True:
            found = engine.search_with_effort(queries, k + 1, effort)
            recall = Recall(_share_found(found, ids, reach, k), len(ids), k, own.name, effort)
            if recall.is_enough or effort >= largest:
                break
            effort = min(2 * effort, largest)
    log.info("%s.", recall)
    return recall


def _limit(own: Effort, max_effort: int | None) -> int:
    limit = MOST_TIMES * own.value if max_effort is None else max_effort
    return int(min(limit, own.largest))


def _farthest_neighbors(engine: Engine, queries: FloatArray, k: int, n_points: int) -> FloatArray:
    """Squared distances of the k-th nearest of all other points, each query being a point."""
    nearest = np.full((len(queries), k + 1), np.inf)
    blocks = (
        portion.ids[start : start + READ_AT_ONCE]
        for portion in engine.scan()
        for start in range(0, len(portion.ids), READ_AT_ONCE)
    )
    for ids in tracked("measuring recall", blocks, n_points, len):
        for stored in _vectors_of(engine, ids):
            vectors = _comparable(stored, engine)
            here, _ = ExactIndex(vectors).search(queries, min(k + 1, len(vectors)))
            nearest = np.sort(np.concatenate([nearest, here], axis=1), axis=1)[:, : k + 1]
    # The first is the point itself, or a copy of it.
    return nearest[:, -1]


def _vectors_of(engine: Engine, ids: AnyArray) -> list[AnyArray]:
    """The vectors of those ids that are still there; others may remove some meanwhile."""
    try:
        return [np.asarray(engine.fetch(ids).vectors)]
    except InvalidInputError:
        if len(ids) == 1:
            return []
        middle = len(ids) // 2
        return _vectors_of(engine, ids[:middle]) + _vectors_of(engine, ids[middle:])


def _share_found(found: Found, ids: AnyArray, reach: FloatArray, k: int) -> float:
    others = np.sort(np.where(found.ids == ids[:, None], np.inf, found.sq_distances), axis=1)
    return float((others[:, :k] <= reach[:, None]).mean())


def _comparable(vectors: AnyArray, engine: Engine) -> FloatArray:
    own = vectors.astype(np.float64)
    return unit_vectors(own) if engine.metric == "cosine" else own
