"""The window over recent queries: what came, what was found, and how a person recognises it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from threading import Lock

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.neighbors import Neighbors, join_scores

# Queries that are kept; a batch leaves as a whole, so that there may be nearly twice as many.
SIZE = 500
# Single queries that wait to be taken in together, which costs each of them next to nothing.
MOST_WAITING = 25
# Letters of a text that are kept.
LONGEST_TEXT = 300


@dataclass(frozen=True)
class Look:
    """How a person recognises a query.

    Parameters
    ----------
    name, text : str or None
        What the client has called it, and what it has written.
    picture : str or None
        The data: address of a small picture.
    """

    name: str | None = None
    text: str | None = None
    picture: str | None = None


@dataclass(eq=False)
class _Portion:
    """Queries that were asked together; `found` is one value, so that no reader gets half of it."""

    first_key: int
    vectors: AnyArray
    digests: list[int]
    found: tuple[int, Neighbors]


@dataclass(frozen=True, eq=False)
class WindowedQueries:
    """Queries of the window at a moment.

    Parameters
    ----------
    keys : list of int
        Of each query; a key is never used twice.
    vectors : array of shape (n, dimension)
        As they were asked.
    looks : list of Look
        Empty ones where nothing is known.
    """

    keys: list[int]
    vectors: AnyArray
    looks: list[Look]


class QueryWindow:
    """The last queries, each once however often it was asked: copies would count as evidence.

    Methods may be called from several threads; memory is bounded.

    Examples
    --------
    >>> window = QueryWindow()
    >>> found = Neighbors(sq_distances=[[0.5], [0.7]], labels=[[0], [1]])
    >>> window.add(np.array([[1.0], [2.0]]), found, model=1)
    True
    >>> window.add(np.array([[2.0]]), found.take([1]), model=1)
    False
    >>> len(window), window.read().keys
    (2, [0, 1])
    """

    def __init__(self, size: int = SIZE, first_key: int = 0) -> None:
        self._size, self._first_key = size, first_key
        self._n_single = 0
        self._proposed: dict[int, AnyArray] = {}
        self._lock = Lock()
        self._portions: deque[_Portion] = deque()
        self._keys: dict[int, int] = {}
        self._looks: dict[int, Look] = {}
        self._n_seen = 0
        self._waiting: deque[tuple[AnyArray, Neighbors, int]] = deque(maxlen=size)

    def __len__(self) -> int:
        self._take_in()
        return len(self._keys)

    @property
    def n_seen(self) -> int:
        """Different queries that were taken in so far."""
        self._take_in()
        return self._n_seen

    def add(self, vectors: AnyArray, neighbors: Neighbors, model: int) -> bool:
        """Keep queries, shape (n, dimension), with what the fit of this number has found.

        Returns
        -------
        bool
            Whether there is something new to look at; single queries are taken in some at a time.
        """
        if len(vectors) == 1:
            self._waiting.append((vectors, neighbors, model))
            # Others may take in what waits: so queries are counted, and not those that wait.
            self._n_single += 1
            return self._n_single % MOST_WAITING == 0
        self._take_in()
        self._add(vectors, _join([neighbors]), model)
        return True

    def _take_in(self) -> None:
        """Take in the single queries that wait."""
        waiting = []
        while self._waiting:
            try:
                waiting.append(self._waiting.popleft())
            except IndexError:
                # Another thread was faster.
                break
        for model, some in groupby(waiting, key=itemgetter(2)):
            vectors, found, _ = zip(*some, strict=True)
            self._add(np.concatenate(vectors), _join(found), model)

    def _add(self, vectors: AnyArray, neighbors: Neighbors, model: int) -> None:
        digests = [hash(row.tobytes()) for row in vectors]
        with self._lock:
            rows = {digest: row for row, digest in enumerate(digests) if digest not in self._keys}
            new = sorted(rows.values())[-self._size :]
            if not new:
                return
            if len(new) < len(digests):
                vectors, neighbors = vectors[new], neighbors.take(np.array(new))
                digests = [digests[row] for row in new]
            first = self._first_key + self._n_seen
            self._portions.append(_Portion(first, vectors, digests, (model, neighbors)))
            keys = range(first, first + len(new))
            self._keys.update(zip(digests, keys, strict=True))
            self._n_seen += len(new)
            while len(self._keys) - len(self._portions[0].digests) >= self._size:
                for digest in self._portions.popleft().digests:
                    self._looks.pop(self._keys.pop(digest), None)

    def describe(self, vector: AnyArray, look: Look) -> None:
        """Keep how a person recognises a query of shape (dimension,), if it is still there."""
        self._take_in()
        text = None if look.text is None else look.text[:LONGEST_TEXT]
        with self._lock:
            key = self._keys.get(hash(vector.tobytes()))
            if key is not None:
                self._looks[key] = Look(look.name, text, look.picture)

    def keep_proposed(self, keys: Sequence[int], vectors: AnyArray) -> None:
        """Keep queries that somebody is about to label, as the window moves on meanwhile."""
        with self._lock:
            self._proposed.update(zip(keys, vectors, strict=True))
            for key in list(self._proposed)[: -2 * self._size]:
                del self._proposed[key]

    def find_vectors(self) -> dict[int, AnyArray]:
        """Vectors of all queries that can be labelled, by key."""
        recent = self.read()
        with self._lock:
            return self._proposed | dict(zip(recent.keys, recent.vectors, strict=True))

    def read(self) -> WindowedQueries:
        """All queries."""
        self._take_in()
        with self._lock:
            portions, looks = list(self._portions), dict(self._looks)
        keys = [
            portion.first_key + row for portion in portions for row in range(len(portion.digests))
        ]
        vectors = [portion.vectors for portion in portions]
        return WindowedQueries(
            keys,
            np.concatenate(vectors) if vectors else np.empty((0, 0)),
            [looks.get(key, Look()) for key in keys],
        )

    def neighbors(self, model: int, search: Callable[[AnyArray], Neighbors]) -> Neighbors:
        """What was found for all queries; what another fit has found is searched again.

        Parameters
        ----------
        model : int
            Number of the fit.
        search : callable
            From vectors of shape (n, dimension) to neighbours, by that fit.
        """
        self._take_in()
        with self._lock:
            portions = list(self._portions)
        old = [portion for portion in portions if portion.found[0] != model]
        if old:
            found, start = search(np.concatenate([portion.vectors for portion in old])), 0
            for portion in old:
                end = start + len(portion.digests)
                portion.found = model, found.take(slice(start, end))
                start = end
        return _join([portion.found[1] for portion in portions])


def _join(parts: Sequence[Neighbors]) -> Neighbors:
    """Neighbours of several searches as one, without ids."""
    # The gallery may have had fewer points than k at times.
    k = min(part.k for part in parts)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    scored = [
        (slice(end - len(part), end), part.class_scores)
        for part, end in zip(parts, ends, strict=True)
        if part.class_scores is not None
    ]
    return Neighbors(
        np.concatenate([part.sq_distances[:, :k] for part in parts]),
        np.concatenate([part.labels[:, :k] for part in parts]),
        counts=np.concatenate([np.minimum(part.counts, k) for part in parts]),
        class_scores=join_scores(scored, ends[-1]) if len(scored) == len(parts) else None,
    )
