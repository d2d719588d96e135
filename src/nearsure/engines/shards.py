"""Several engines as one: every point lives in one of them, and all are searched at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.checks import (
    checked_ids,
    checked_k,
    checked_labels,
    checked_points,
    checked_queries,
)
from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.engines.merge import merge_found
from nearsure.engines.shard_placement import Placement, shard_of
from nearsure.engines.shard_scan import merged_scan
from nearsure.engines.undoable import Result, Step, UndoableChanges, in_parallel
from nearsure.errors import GalleryMismatchError, InvalidInputError


class ShardedEngine:
    """Search over several engines as if they were one.

    A point lives in the shard that its id says, so the same engines must be given in the same
    order each time, and be filled through this class or by the same `placement`. A scan raises
    `GalleryMismatchError` where they were not.

    A change of several shards is taken back if one of them fails; until that succeeds, every call
    raises `PartialGalleryError` after trying once more. Readers may see a part of a change while
    it is made, and a process that dies meanwhile leaves that part behind: remove its ids, or
    repeat it in smaller pieces.

    Parameters
    ----------
    engines : sequence of Engine
        At least one; of one dimension, metric and kind of ids and labels. They are closed with
        this engine.
    placement : callable, optional
        The shard of each id, for shards that were divided in another way than by `shard_of`:
        takes an array of ids and the number of shards, returns numbers from 0 on.
    """

    def __init__(self, engines: Sequence[Engine], *, placement: Placement = shard_of) -> None:
        self._engines = tuple(engines)
        _check_alike(self._engines)
        self._placement = placement
        self._changes = UndoableChanges()

    def __repr__(self) -> str:
        return f"ShardedEngine([{', '.join(map(repr, self._engines))}])"

    @property
    def capabilities(self) -> Capabilities:
        """Exact if every shard is; the smallest limit of k."""
        # Asked each time: faiss decides by its first load whether it is exact.
        each = [engine.capabilities for engine in self._engines]
        limits = [own.largest_k for own in each if own.largest_k is not None]
        return replace(
            each[0], exact=all(own.exact for own in each), largest_k=min(limits, default=None)
        )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._engines[0].dimension

    @property
    def metric(self) -> Literal["euclidean", "cosine"]:
        """The metric of every shard."""
        return self._engines[0].metric

    def fingerprint(self) -> Fingerprint:
        """The fingerprints of all shards, numbered."""
        combined: dict[str, str | int | float | bool | None] = {
            "engine": "shards",
            "n_shards": len(self._engines),
        }
        for i, engine in enumerate(self._engines):
            combined |= {f"shard_{i}_{key}": value for key, value in engine.fingerprint().items()}
        return combined

    def size(self) -> int:
        """How many points all shards hold."""
        return sum(self._ask_all(lambda engine: engine.size()))

    def search(self, queries: AnyArray, k: int) -> Found:
        """The nearest of what every shard found."""
        queries = checked_queries(queries, self.dimension)
        k = checked_k(k, self.capabilities)
        parts = self._ask_all(lambda engine: engine.search(queries, k))
        try:
            return merge_found(parts, k)
        except InvalidInputError as error:
            raise GalleryMismatchError(f"Two shards must not hold one point. {error}") from error

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add each point to the shard of its id; all or none."""
        vectors, ids, labels = checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        parts = self._divided(ids)
        with self._changes.lock:
            self._changes.settle()
            steps = []
            for engine, rows in parts:
                points = Stored(ids[rows], None if labels is None else labels[rows], vectors[rows])
                # That this id is new tells later whether an addition that was cut off was made.
                if len(parts) > 1 and _holds(engine, points.ids[:1]):
                    raise InvalidInputError(
                        "ids of new points must be new. "
                        f"Got {points.ids[0]!s}, which the gallery holds already."
                    )
                steps.append(
                    Step(partial(_add, engine, points), partial(_remove_if_there, engine, points))
                )
            self._changes.make(steps)

    def remove(self, ids: AnyArray) -> None:
        """Remove each point from its shard; all or none."""
        ids = checked_ids(ids, self.capabilities)
        with self._changes.lock:
            steps = []
            for engine, _, points in self._fetched(ids):
                steps.append(
                    Step(partial(engine.remove, points.ids), partial(_add_if_gone, engine, points))
                )
            self._changes.make(steps)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Relabel each point in its shard; all or none."""
        if not self.capabilities.holds_labels:
            raise InvalidInputError("These engines hold no labels, so there are none to change.")
        ids = checked_ids(ids, self.capabilities)
        labels = checked_labels(labels, len(ids), self.capabilities)
        with self._changes.lock:
            steps = []
            for engine, rows, before in self._fetched(ids):
                if before.labels is not None:
                    steps.append(
                        Step(
                            partial(engine.relabel, ids[rows], labels[rows]),
                            partial(engine.relabel, before.ids, before.labels),
                        )
                    )
            self._changes.make(steps)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points of any shards, in the order of `ids`."""
        ids = checked_ids(ids, self.capabilities)
        if not len(ids):
            return self._engines[0].fetch(ids)
        parts = self._fetched(ids)
        order = np.argsort(np.concatenate([rows for _, rows, _ in parts]))
        labels = [points.labels for *_, points in parts if points.labels is not None]
        vectors = [points.vectors for *_, points in parts if points.vectors is not None]
        return Stored(
            ids,
            np.concatenate(labels)[order] if labels else None,
            np.concatenate(vectors)[order],
        )

    def scan(self) -> Iterator[Stored]:
        """All ids and labels of all shards, merged in the order of ids."""
        self._changes.settle()
        yield from merged_scan(self._engines, self._placement)

    def close(self) -> None:
        """Close every shard."""
        for engine in self._engines:
            engine.close()

    def _divided(self, ids: AnyArray) -> list[tuple[Engine, IntArray]]:
        """The shards that ids belong to, each with the rows of its ids."""
        shards = self._placement(ids, len(self._engines))
        if len(ids) and not 0 <= shards.min() <= shards.max() < len(self._engines):
            raise InvalidInputError(
                f"placement must return shards from 0 to {len(self._engines) - 1}. "
                f"Got {shards.min()} to {shards.max()} instead."
            )
        return [(self._engines[i], np.flatnonzero(shards == i)) for i in np.unique(shards)]

    def _fetched(self, ids: AnyArray) -> list[tuple[Engine, IntArray, Stored]]:
        """The shards that ids belong to, each with the rows of its ids and its points."""
        self._changes.settle()
        parts = self._divided(ids)
        points = in_parallel([partial(engine.fetch, ids[rows]) for engine, rows in parts])
        return [(*part, stored) for part, stored in zip(parts, points, strict=True)]

    def _ask_all(self, question: Callable[[Engine], Result]) -> list[Result]:
        self._changes.settle()
        return in_parallel([partial(question, engine) for engine in self._engines])


def _check_alike(engines: tuple[Engine, ...]) -> None:
    if not engines:
        raise InvalidInputError("engines must be at least one. Got none.")
    if len({id(engine) for engine in engines}) < len(engines):
        raise InvalidInputError("engines must be distinct. Got one of them more than once.")
    kinds = {
        (
            f"dimension {engine.dimension}",
            f"metric {engine.metric}",
            f"ids {engine.capabilities.ids}",
            f"labels {engine.capabilities.labels}",
        )
        for engine in engines
    }
    if len(kinds) > 1:
        raise GalleryMismatchError(
            "engines must be of one dimension, metric and kind of ids and labels. Got "
            + "; and ".join(", ".join(kind) for kind in sorted(kinds))
            + "."
        )


def _holds(engine: Engine, one_id: AnyArray) -> bool:
    try:
        engine.fetch(one_id)
    except InvalidInputError:
        return False
    return True


def _add(engine: Engine, points: Stored) -> None:
    if points.vectors is not None:
        engine.add(points.vectors, points.ids, points.labels)


def _remove_if_there(engine: Engine, points: Stored) -> None:
    if _holds(engine, points.ids[:1]):
        engine.remove(points.ids)


def _add_if_gone(engine: Engine, points: Stored) -> None:
    if not _holds(engine, points.ids[:1]):
        _add(engine, points)
