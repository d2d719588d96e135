"""A gallery that holds still for whoever reads all of it, while others write."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.errors import InvalidInputError


class SteadyView:
    """The points of an engine as they are when one looks: the same ids, labels and vectors since.

    Points that are removed later are remembered here. Searches go on in the engine itself: they
    find what has come since, and no longer what has gone.

    Parameters
    ----------
    engine : Engine
        What is looked at; whoever removes points of it calls `bury` before.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._graves: dict[str | int, tuple[str | int | None, AnyArray]] = {}
        self._portions: list[Stored] = []
        self._firsts: AnyArray = np.empty(0, np.int64)

    def look(self) -> None:
        """Read ids and labels; from now on they stay."""
        self._portions = [portion for portion in self._engine.scan() if len(portion.ids)]
        if self._portions:
            self._firsts = np.concatenate([portion.ids[:1] for portion in self._portions])

    def bury(self, stored: Stored) -> None:
        """Remember points, with vectors, that are about to be removed."""
        vectors = np.asarray(stored.vectors)
        ids: list[str | int] = stored.ids.tolist()
        labels = [None] * len(ids) if stored.labels is None else stored.labels.tolist()
        for own, label, vector in zip(ids, labels, vectors, strict=True):
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
        return sum(len(portion.ids) for portion in self._portions)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The nearest points of now."""
        return self._engine.search(queries, k)

    def scan(self) -> Iterator[Stored]:
        """Ids and labels as they were."""
        return iter(self._portions)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors, also of those that are gone, and labels as they were."""
        asked = np.asarray(ids)
        stored = self._with_those_gone(asked)
        if stored.labels is None:
            return stored
        return Stored(asked, self._labels_then(asked, stored.labels), stored.vectors)

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
                # Removed between the two lines above, or by somebody else, who says nothing here.
                if gone.sum() == n_gone:
                    raise
                n_gone = gone.sum()
                continue
            places = np.argsort(np.argsort(gone, kind="stable"))
            return Stored(asked, *(_joined(*both, places) for both in _columns(rest, buried)))

    def _buried(self, ids: AnyArray) -> Stored:
        found = [self._graves[own] for own in ids.tolist()]
        labels = None if found[0][0] is None else np.array([label for label, _ in found])
        return Stored(ids, labels, np.array([vector for _, vector in found]))

    def _labels_then(self, ids: AnyArray, labels: AnyArray) -> AnyArray:
        """Labels, put back to what they were where a point was there then."""
        then = labels.tolist()
        portion_of = np.searchsorted(self._firsts, ids, side="right") - 1
        for number in np.unique(portion_of[portion_of >= 0]).tolist():
            portion = self._portions[number]
            rows = np.flatnonzero(portion_of == number)
            places = np.minimum(np.searchsorted(portion.ids, ids[rows]), len(portion.ids) - 1)
            same = portion.ids[places] == ids[rows]
            own = np.asarray(portion.labels)[places[same]].tolist()
            for row, label in zip(rows[same].tolist(), own, strict=True):
                then[row] = label
        return np.array(then, str if labels.dtype.kind == "U" else labels.dtype)


def _columns(rest: Stored, buried: Stored) -> Iterator[tuple[AnyArray | None, AnyArray | None]]:
    return zip((rest.labels, rest.vectors), (buried.labels, buried.vectors), strict=True)


def _joined(first: AnyArray | None, second: AnyArray | None, places: AnyArray) -> AnyArray | None:
    if first is None or second is None:
        return None
    joined: AnyArray = np.concatenate([first, second])[places]
    return joined


def _only_read(*_: object) -> InvalidInputError:
    return InvalidInputError("A view of a gallery can only be read. Change the gallery itself.")
