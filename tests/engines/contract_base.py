"""What the contract's tests stand on: an engine, its points, and what it must answer."""

from collections.abc import Iterator

import numpy as np
import pytest
from contract_points import DIMENSION, Points, check_answer, points_for

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine, Found
from nearsure.index import unit_vectors

N_POINTS = 320


class EngineTests:
    """The contract as tests. A subclass sets what differs and makes engines.

    Fixtures of a server go into an autouse fixture of the subclass that stores them on ``self``;
    it runs before `engine`.
    """

    least_recall = 0.9
    """What an engine that is not exact must reach with k = 10."""
    relative_tolerance = 1e-6
    """How far distances may be off, for engines that cannot compute them from the vectors."""
    takes_negative_ids = True
    """False for engines that refuse negative ids."""
    longest_text = 200
    """How many characters an id and a label must hold."""
    secret: str | None = None
    """A password or token that engines are made with and must show nowhere."""
    address: str | None = None
    """A host, path or URI that engines are made with and must not put into a fingerprint."""

    def new_engine(self, dimension: int) -> Engine:
        """Make an engine that holds nothing."""
        raise NotImplementedError

    def reopen(self, engine: Engine) -> Engine | None:
        """Close an engine and open what it held as another; None if it keeps nothing."""
        del engine
        return None

    def engine_of_other_settings(self, dimension: int) -> Engine | None:
        """Make an empty engine that may find other neighbours; None if there is no such setting."""
        del dimension
        return None

    def discard(self, engine: Engine) -> None:
        """Close an engine, and clear away what it held if that must be."""
        engine.close()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = self.new_engine(DIMENSION)
        yield engine
        self.discard(engine)

    @pytest.fixture
    def points(self, engine: Engine) -> Points:
        """Points that the engine holds."""
        points = points_for(engine, N_POINTS)
        engine.add(points.vectors, points.ids, points.labels)
        return points

    def check(self, engine: Engine, points: Points, queries: AnyArray, k: int) -> float:
        """Search, and assert that the answer is as right as the engine promises."""
        found = engine.search(queries, k)
        assert found.ids.shape == (len(queries), k)
        recall = check_answer(engine, found, points, queries, relative=self.relative_tolerance)
        if engine.capabilities.exact:
            assert recall == 1
            assert (found.counts == min(k, len(points))).all()
        return recall

    def is_unchanged(self, engine: Engine, points: Points) -> bool:
        """Whether the engine holds exactly these ids and labels."""
        return engine.size() == len(points) and scanned(engine) == expected_scan(points)

    def check_held(self, engine: Engine, points: Points) -> None:
        """Size, scan, fetch and search all say the same."""
        assert self.is_unchanged(engine, points)
        stored = engine.fetch(points.ids)
        check_vectors(engine, stored.vectors, points.vectors)
        assert stored.ids.tolist() == points.ids.tolist()
        if points.labels is not None:
            assert stored.labels is not None
            assert stored.labels.tolist() == points.labels.tolist()
        self.check(engine, points, points.vectors, min(3, len(points)))


def scanned(engine: Engine) -> list[tuple[object, object]]:
    """All ids with their labels, in the order of the scan."""
    pairs: list[tuple[object, object]] = []
    for portion in engine.scan():
        labels = [None] * len(portion.ids) if portion.labels is None else portion.labels.tolist()
        pairs.extend(zip(portion.ids.tolist(), labels, strict=True))
    return pairs


def expected_scan(points: Points) -> list[tuple[object, object]]:
    """What `scanned` gives if the engine holds these points."""
    order = np.argsort(points.ids)
    labels = [None] * len(order) if points.labels is None else points.labels[order].tolist()
    return list(zip(points.ids[order].tolist(), labels, strict=True))


def check_vectors(engine: Engine, fetched: AnyArray | None, added: AnyArray) -> None:
    """Equal in single precision; under cosine, length does not matter."""
    assert fetched is not None
    if engine.metric == "cosine":
        np.testing.assert_allclose(
            unit_vectors(np.asarray(fetched, np.float64)),
            unit_vectors(np.asarray(added, np.float64)),
            atol=3e-7,
        )
    else:
        np.testing.assert_array_equal(np.asarray(fetched, np.float32), added.astype(np.float32))


def assert_same_answer(one: Found, other: Found) -> None:
    np.testing.assert_allclose(one.sq_distances, other.sq_distances, rtol=1e-12)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.counts, other.counts)
    if one.labels is not None and other.labels is not None:
        np.testing.assert_array_equal(one.labels, other.labels)
