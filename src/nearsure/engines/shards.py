"""Several engines as one: every point lives in one of them, and all are searched."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from threading import RLock
from typing import TypeAlias, TypeVar, cast

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines import checks
from nearsure.engines.contract import (
    AdjustableEngine,
    Capabilities,
    Effort,
    Engine,
    Fingerprint,
    Found,
    Metric,
    Stored,
)
from nearsure.engines.hits import arrange_points, concatenate_points, merge_found, select_points
from nearsure.errors import (
    GalleryMismatchError,
    InvalidInputError,
    NearsureError,
    PartialGalleryError,
)
from nearsure.validation import preview

Placement: TypeAlias = Callable[[AnyArray, int], IntArray]


def shard_of(ids: AnyArray, n_shards: int) -> IntArray:
    """The shard of each id: a hash of it, modulo the number of shards.

    Integers are mixed by the last steps of SplitMix64 [1]_, text is hashed as UTF-8 by BLAKE2b
    with 8 bytes, read as a little-endian number. Ids of any pattern spread evenly.

    Parameters
    ----------
    ids : array of shape (n,)
        Int64 or strings.
    n_shards : int
        At least 1.

    Returns
    -------
    array of shape (n,)
        Numbers from 0 to ``n_shards - 1``.

    References
    ----------
    .. [1] G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators",
       OOPSLA 2014.

    Examples
    --------
    >>> shard_of(np.array([0, 1, 2, 3, -1]), 3)
    array([0, 1, 1, 2, 0])
    >>> shard_of(np.array(["anna", "bert"]), 3)
    array([0, 1])
    """
    if ids.dtype.kind == "U":
        mixed = np.array([_text_hash(own) for own in ids.tolist()], np.uint64)
    else:
        mixed = ids.astype(np.int64).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed % np.uint64(n_shards)).astype(np.int64)


def _text_hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def merge_scans(engines: Sequence[Engine], placement: Placement) -> Iterator[Stored]:
    """All ids and labels, ascending; one portion of each shard is in memory at a time.

    Parameters
    ----------
    engines : sequence of Engine
        Shards, each of which scans in the order of ids.
    placement : callable
        The shard that each id belongs to; an id in another one is an error.
    """
    scans = [_check_placed(engine, i, len(engines), placement) for i, engine in enumerate(engines)]
    heads = [next(scan, None) for scan in scans]
    while waiting := [head for head in heads if head is not None]:
        # Beyond the least of the last ids, a shard may have more that comes before.
        last = min(head.ids[-1] for head in waiting)
        ready = []
        for i, head in enumerate(heads):
            if head is None:
                continue
            n_ready = int(np.searchsorted(head.ids, last, side="right"))
            ready.append(select_points(head, slice(0, n_ready)))
            rest = select_points(head, slice(n_ready, None))
            heads[i] = rest if len(rest.ids) else next(scans[i], None)
        together = concatenate_points(ready)
        yield select_points(together, np.argsort(together.ids))


def _check_placed(
    engine: Engine, shard: int, n_shards: int, placement: Placement
) -> Iterator[Stored]:
    """A shard's portions that hold anything, after a look at where their ids belong."""
    for portion in engine.scan():
        if len(portion.ids):
            strangers = portion.ids[placement(portion.ids, n_shards) != shard]
            if len(strangers):
                raise GalleryMismatchError(
                    f"Shard {shard} of {n_shards} must hold only ids that belong to it. Got "
                    f"{preview(strangers.tolist())}. Give the engines in the order in which they "
                    "were filled, with the placement that divided them."
                )
            yield portion


Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """What one place does, and what takes it back.

    `do` is whole or not at all. `undo` is called whether `do` succeeded, failed or was cut off, so
    it looks first; and it may be called again after a failure of its own.
    """

    do: Callable[[], None]
    undo: Callable[[], None]


class UndoableChanges:
    """Changes one after the other, each in all places or in none.

    While a change can be neither made nor taken back, `settle` raises `PartialGalleryError`; it
    tries again whenever it is called. What was underway when the process died is forgotten.

    Examples
    --------
    >>> shelf = []
    >>> def fail():
    ...     raise NearsureError("The second place is full.")
    >>> steps = [Step(lambda: shelf.append("book"), shelf.clear), Step(fail, lambda: None)]
    >>> UndoableChanges().make(steps)
    Traceback (most recent call last):
    nearsure.errors.NearsureError: The second place is full.
    >>> shelf
    []
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._to_undo: list[Callable[[], None]] = []

    def make(self, steps: Sequence[Step]) -> None:
        """Do all steps at once, in threads; if one fails, undo all and raise its error."""
        with self.lock:
            self.settle()
            if len(steps) == 1:
                return steps[0].do()
            try:
                in_parallel([step.do for step in steps])
            except BaseException:  # an interruption, too
                self._to_undo = [step.undo for step in steps]
                self.settle()
                raise

    def settle(self) -> None:
        """Take back what is left of a change that failed."""
        if not self._to_undo:
            return
        with self.lock:
            failures = []
            for undo in tuple(self._to_undo):
                try:
                    undo()
                except NearsureError as error:
                    failures.append(error)
                else:
                    self._to_undo.remove(undo)
            if failures:
                raise PartialGalleryError(
                    "A change failed in one shard and could not be taken back in another, so that "
                    "a part of it is there. Call again when the shard is back: what is left is "
                    f"taken back first. The error was: {failures[0]}"
                ) from failures[0]


def in_parallel(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all calls, each in a thread; the first error, after all have ended."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(max(len(calls), 1)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


class ShardedEngine:
    """Search over several engines as if they were one.

    A point lives in the shard that its id decides, so the same engines must be given in the same
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
    def metric(self) -> Metric:
        """The metric of every shard."""
        return self._engines[0].metric

    def fingerprint(self) -> Fingerprint:
        """The fingerprints of all shards, numbered."""
        own = {
            f"shard_{i}_{key}": value
            for i, engine in enumerate(self._engines)
            for key, value in engine.fingerprint().items()
        }
        return {"engine": "shards", "n_shards": len(self._engines), **own}

    def size(self) -> int:
        """How many points all shards hold."""
        return sum(self._ask_all(lambda engine: engine.size()))

    def search(self, queries: AnyArray, k: int) -> Found:
        """The nearest of what every shard found."""
        queries = checks.checked_queries(queries, self.dimension)
        k = checks.checked_k(k, self.capabilities)
        return self._merge(self._ask_all(lambda engine: engine.search(queries, k)), k)

    @property
    def effort(self) -> Effort | None:
        """The largest effort of a shard; None unless all have one of the same name."""
        each = [
            engine.effort if isinstance(engine, AdjustableEngine) else None
            for engine in self._engines
        ]
        own = [effort for effort in each if effort is not None]
        if len(own) < len(each) or len({effort.name for effort in own}) > 1:
            return None
        largest = min(effort.largest for effort in own)
        return Effort(own[0].name, min(max(effort.value for effort in own), largest), largest)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The nearest of what every shard found with this effort."""
        checks.checked_effort(effort, self.effort)
        queries = checks.checked_queries(queries, self.dimension)
        k = checks.checked_k(k, self.capabilities)
        asked = cast(
            "Callable[[Engine], Found]", lambda e: e.search_with_effort(queries, k, effort)
        )
        return self._merge(self._ask_all(asked), k)

    def _merge(self, parts: Sequence[Found], k: int) -> Found:
        try:
            return merge_found(parts, k)
        except InvalidInputError as error:
            raise GalleryMismatchError(f"Two shards must not hold one point. {error}") from error

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add each point to the shard of its id; all or none."""
        vectors, ids, labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        parts = self._divide(ids)
        with self._changes.lock:
            self._changes.settle()
            steps = []
            for engine, rows in parts:
                points = select_points(Stored(ids, labels, vectors), rows)
                # As this id is new, it shows later whether an addition that was cut off was made.
                if len(parts) > 1 and _holds(engine, points.ids[:1]):
                    checks.check_none_there(points.ids[:1].tolist())
                steps.append(
                    Step(partial(_add, engine, points), partial(_remove_if_there, engine, points))
                )
            self._changes.make(steps)

    def remove(self, ids: AnyArray) -> None:
        """Remove each point from its shard; all or none."""
        ids = checks.checked_ids(ids, self.capabilities)
        with self._changes.lock:
            steps = [
                Step(partial(engine.remove, points.ids), partial(_add_if_gone, engine, points))
                for engine, _, points in self._fetch_parts(ids)
            ]
            self._changes.make(steps)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Relabel each point in its shard; all or none."""
        if not self.capabilities.holds_labels:
            raise InvalidInputError("These engines hold no labels, so there are none to change.")
        ids = checks.checked_ids(ids, self.capabilities)
        labels = checks.checked_labels(labels, len(ids), self.capabilities)
        with self._changes.lock:
            steps = [
                Step(
                    partial(engine.relabel, before.ids, labels[rows]),
                    partial(engine.relabel, before.ids, np.asarray(before.labels)),
                )
                for engine, rows, before in self._fetch_parts(ids)
            ]
            self._changes.make(steps)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points of any shards, in the order of `ids`."""
        ids = checks.checked_ids(ids, self.capabilities)
        if not len(ids):
            return self._engines[0].fetch(ids)
        parts = [points for *_, points in self._fetch_parts(ids)]
        return arrange_points(concatenate_points(parts), ids)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels of all shards, merged in the order of ids."""
        self._changes.settle()
        yield from merge_scans(self._engines, self._placement)

    def close(self) -> None:
        """Close every shard."""
        for engine in self._engines:
            engine.close()

    def _divide(self, ids: AnyArray) -> list[tuple[Engine, IntArray]]:
        """The shards that ids belong to, each with the rows of its ids."""
        shards = self._placement(ids, len(self._engines))
        if len(ids) and not 0 <= shards.min() <= shards.max() < len(self._engines):
            raise InvalidInputError(
                f"placement must return shards from 0 to {len(self._engines) - 1}. "
                f"Got {shards.min()} to {shards.max()} instead."
            )
        return [(self._engines[i], np.flatnonzero(shards == i)) for i in np.unique(shards)]

    def _fetch_parts(self, ids: AnyArray) -> list[tuple[Engine, IntArray, Stored]]:
        """The shards that ids belong to, each with the rows of its ids and its points."""
        self._changes.settle()
        parts = self._divide(ids)
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
        f"dimension {engine.dimension}, metric {engine.metric}, ids {engine.capabilities.ids}, "
        f"labels {engine.capabilities.labels}"
        for engine in engines
    }
    if len(kinds) > 1:
        raise GalleryMismatchError(
            "engines must be of one dimension, metric and kind of ids and labels. Got "
            f"{'; and '.join(sorted(kinds))}."
        )


def _holds(engine: Engine, one_id: AnyArray) -> bool:
    try:
        engine.fetch(one_id)
    except InvalidInputError:
        return False
    return True


def _add(engine: Engine, points: Stored) -> None:
    engine.add(np.asarray(points.vectors), points.ids, points.labels)


def _remove_if_there(engine: Engine, points: Stored) -> None:
    try:
        is_there = _holds(engine, points.ids[:1])
    except PartialGalleryError:
        # The addition was cut off, and is taken back by removing the same ids.
        is_there = True
    if is_there:
        engine.remove(points.ids)


def _add_if_gone(engine: Engine, points: Stored) -> None:
    if not _holds(engine, points.ids[:1]):
        _add(engine, points)
