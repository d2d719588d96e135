"""A consistent view of a gallery while others write to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.engines.hits import Hits, found_from_hits
from nearsure.errors import InvalidInputError
from nearsure.service.thresholds import DEFAULT_CERTAINTY, ThresholdInUse, chosen_for


class LabelSnapshot:
    """What a scan gave, to be looked up by id.

    Parameters
    ----------
    portions : sequence of Stored
        Of which none is empty, ids ascending.

    Examples
    --------
    >>> then = LabelSnapshot([Stored(np.array([2, 5]), np.array(["cat", "dog"]))])
    >>> len(then), then.labels_of(np.array([5, 3]))
    (2, ['dog', None])
    """

    def __init__(self, portions: Sequence[Stored]) -> None:
        self.portions = portions
        firsts = [portion.ids[:1] for portion in portions]
        self._firsts = np.concatenate(firsts) if firsts else np.empty(0, np.int64)

    def __len__(self) -> int:
        return sum(len(portion.ids) for portion in self.portions)

    def labels_of(self, ids: AnyArray) -> list[str | int | None]:
        """The labels of points, shape (n,); None for one that was not there."""
        labels: list[str | int | None] = [None] * len(ids)
        if not self.portions:
            return labels
        portion_of = np.searchsorted(self._firsts, ids, side="right") - 1
        for number in np.unique(portion_of[portion_of >= 0]).tolist():
            portion = self.portions[number]
            rows = np.flatnonzero(portion_of == number)
            places = np.minimum(np.searchsorted(portion.ids, ids[rows]), len(portion.ids) - 1)
            same = portion.ids[places] == ids[rows]
            found = np.asarray(portion.labels)[places[same]].tolist()
            for row, label in zip(rows[same].tolist(), found, strict=True):
                labels[row] = label
        return labels


class SnapshotEngine:
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
        self._then = LabelSnapshot([])
        self._touched: set[str | int] = set()
        self._removed: dict[str | int, tuple[str | int | None, AnyArray]] = {}

    def refresh(self) -> None:
        """Read ids and labels; from now on they stay."""
        self._then = LabelSnapshot([portion for portion in self._engine.scan() if len(portion.ids)])

    def record_changed(self, ids: AnyArray) -> None:
        """Know of points that are about to be added or relabelled."""
        self._touched.update(ids.tolist())

    def record_removed(self, stored: Stored) -> None:
        """Remember points, with vectors, that are about to be removed."""
        ids: list[str | int] = stored.ids.tolist()
        labels = [None] * len(ids) if stored.labels is None else stored.labels.tolist()
        for own, label, vector in zip(ids, labels, np.asarray(stored.vectors), strict=True):
            self._removed.setdefault(own, (label, vector))

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
            gone = np.array([own in self._removed for own in asked.tolist()], np.bool_)
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
        found = [self._removed[own] for own in ids.tolist()]
        labels = None if found[0][0] is None else np.array([label for label, _ in found])
        return Stored(ids, labels, np.array([vector for _, vector in found]))


def _joined(first: AnyArray | None, second: AnyArray | None, places: AnyArray) -> AnyArray | None:
    if first is None or second is None:
        return None
    joined: AnyArray = np.concatenate([first, second])[places]
    return joined


def _only_read(*_: object) -> InvalidInputError:
    return InvalidInputError("A view of a gallery can only be read. Change the gallery itself.")


# Thresholds that are remembered; whoever moves a slider asks for the same ones again.
MOST_THRESHOLDS = 256


@dataclass(frozen=True, eq=False)
class ClassifierSnapshot:
    """A classifier on a `SnapshotEngine`, and what was worked out with it.

    Parameters
    ----------
    classifier : NEDClassifier
        Which nobody changes.
    number : int
        Of its fit.
    """

    classifier: NEDClassifier
    number: int
    _chosen: dict[tuple[float, float], ThresholdInUse] = field(default_factory=dict)

    def threshold_for(
        self, precision: float, certainty: float = DEFAULT_CERTAINTY
    ) -> ThresholdInUse:
        """The threshold that a precision needs; worked out once, however many ask."""
        known = self._chosen.get((precision, certainty))
        if known is None:
            known = chosen_for(self.classifier, precision, self.number, certainty=certainty)
            if len(self._chosen) >= MOST_THRESHOLDS:
                self._chosen.clear()
            self._chosen[precision, certainty] = known
        return known

    def threshold_like(self, in_use: ThresholdInUse) -> ThresholdInUse:
        """The threshold of this fit: set by hand it stays, for a precision it is chosen anew."""
        if in_use.precision is None:
            return replace(in_use, model=self.number)
        return replace(self.threshold_for(in_use.precision), is_set=in_use.is_set)
