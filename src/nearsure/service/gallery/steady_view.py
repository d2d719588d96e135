"""A gallery that holds still for whoever reads all of it, while others write."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.engines.hits import Hits, found_from_hits
from nearsure.errors import InvalidInputError
from nearsure.service.gallery.names_then import NamesThen


class SteadyView:
    """The points of an engine as they are when one looks: the same ids, labels and vectors since.

    Whoever changes the engine says so before. Searches go on in the engine itself, without what
    has come since; what has gone since is not found any more, but can be asked about.

    Parameters
    ----------
    engine : Engine
        What is looked at.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._then = NamesThen([])
        self._touched: set[str | int] = set()
        self._graves: dict[str | int, tuple[str | int | None, AnyArray]] = {}

    def look(self) -> None:
        """Read ids and labels; from now on they stay."""
        self._then = NamesThen([portion for portion in self._engine.scan() if len(portion.ids)])

    def touch(self, ids: AnyArray) -> None:
        """Know of points that are about to be added or relabelled."""
        self._touched.update(ids.tolist())

    def bury(self, stored: Stored) -> None:
        """Remember points, with vectors, that are about to be removed."""
        ids: list[str | int] = stored.ids.tolist()
        labels = [None] * len(ids) if stored.labels is None else stored.labels.tolist()
        for own, label, vector in zip(ids, labels, np.asarray(stored.vectors), strict=True):
            self._graves.setdefault(own, (label, vector))

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._engine.capabilities

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._engine.dimension

    @property
    def metric(self) -> Literal["euclidean", "cosine"]:
        """How the engine compares vectors."""
        return self._engine.metric

    def fingerprint(self) -> Fingerprint:
        """That of the engine."""
        return self._engine.fingerprint()

    def size(self) -> int:
        """How many points there were."""
        return len(self._then)

    def scan(self) -> Iterator[Stored]:
        """Ids and labels as they were."""
        return iter(self._then.portions)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The nearest points of those that were there, and still are."""
        # Some more, for those that have come: twice as many at most.
        most = self._engine.capabilities.largest_k or 2 * k
        found = self._engine.search(queries, min(k + min(len(self._touched), k), max(k, most)))
        # After the search: whatever it may have found was said before.
        if found.labels is None or not self._touched:
            return found
        valid = np.arange(found.ids.shape[1]) < found.counts[:, None]
        rows = np.nonzero(valid)[0]
        ids, sq_distances = found.ids[valid], found.sq_distances[valid]
        labels, was_there = self._labels_then(ids, found.labels[valid])
        hits = Hits(
            rows[was_there],
            ids[was_there],
            labels[was_there],
            sq_distances=sq_distances[was_there],
        )
        return found_from_hits(queries, hits, k)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors, also of those that are gone, and labels as they were."""
        asked = np.asarray(ids)
        stored = self._with_those_gone(asked)
        if stored.labels is None:
            return stored
        return Stored(asked, self._labels_then(asked, stored.labels)[0], stored.vectors)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Not possible."""
        raise _only_read(vectors, ids, labels)

    def remove(self, ids: AnyArray) -> None:
        """Not possible."""
        raise _only_read(ids)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Not possible."""
        raise _only_read(ids, labels)

    def close(self) -> None:
        """Do nothing: the engine is not this one's."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - such as the pictures of an engine
        return getattr(self._engine, name)

    def _labels_then(self, ids: AnyArray, labels: AnyArray) -> tuple[AnyArray, BoolArray]:
        """Labels of points as they were; of those that have come since as they are, and which."""
        touched = [own in self._touched for own in ids.tolist()]
        was_there = np.ones(len(ids), np.bool_)
        if not any(touched):
            return labels, was_there
        rows, values = np.flatnonzero(touched), labels.tolist()
        for row, label in zip(rows.tolist(), self._then.labels_of(ids[rows]), strict=True):
            was_there[row] = label is not None
            values[row] = values[row] if label is None else label
        return np.array(values, str if labels.dtype.kind == "U" else labels.dtype), was_there

    def _with_those_gone(self, asked: AnyArray) -> Stored:
        n_gone = -1
        while True:
            gone = np.array([own in self._graves for own in asked.tolist()], np.bool_)
            try:
                if not gone.any():
                    return self._engine.fetch(asked)
                if gone.all():
                    return self._buried(asked)
                rest, buried = self._engine.fetch(asked[~gone]), self._buried(asked[gone])
            except InvalidInputError:
                # Removed since they were looked for above, or by somebody who does not say so.
                if gone.sum() == n_gone:
                    raise
                n_gone = gone.sum()
                continue
            places = np.argsort(np.argsort(gone, kind="stable"))
            labels = _joined(rest.labels, buried.labels, places)
            return Stored(asked, labels, _joined(rest.vectors, buried.vectors, places))

    def _buried(self, ids: AnyArray) -> Stored:
        found = [self._graves[own] for own in ids.tolist()]
        labels = None if found[0][0] is None else np.array([label for label, _ in found])
        return Stored(ids, labels, np.array([vector for _, vector in found]))


def _joined(first: AnyArray | None, second: AnyArray | None, places: AnyArray) -> AnyArray | None:
    if first is None or second is None:
        return None
    joined: AnyArray = np.concatenate([first, second])[places]
    return joined


def _only_read(*_: object) -> InvalidInputError:
    return InvalidInputError("A view of a gallery can only be read. Change the gallery itself.")
