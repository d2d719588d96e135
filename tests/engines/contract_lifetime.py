"""What an engine holds over time: read, restarted, shared by threads, told apart."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from contract_base import (
    N_POINTS,
    EngineTests,
    assert_same_answer,
    check_vectors,
    expected_scan,
    scanned,
)
from contract_points import DIMENSION, Points, check_answer, clusters, ids_for, points_for

from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError


class LifetimeTests(EngineTests):
    """Reading, restarts, threads, fingerprints and secrets."""

    def test_fetched_in_the_order_asked(self, engine: Engine, points: Points) -> None:
        rows = np.random.default_rng(19).permutation(len(points))[:50]
        stored = engine.fetch(points.ids[rows])
        assert stored.ids.tolist() == points.ids[rows].tolist()
        check_vectors(engine, stored.vectors, points.vectors[rows])
        assert (stored.labels is None) == (points.labels is None)
        if points.labels is not None and stored.labels is not None:
            assert stored.labels.tolist() == points.labels[rows].tolist()
        with pytest.raises(InvalidInputError):
            engine.fetch(np.append(points.ids[:3], ids_for(engine, [N_POINTS + 5])))

    def test_scanned_in_order_and_whole(self, engine: Engine, points: Points) -> None:
        assert scanned(engine) == expected_scan(points)
        for portion in engine.scan():
            assert portion.ids.dtype.kind == points.ids.dtype.kind
            assert portion.vectors is None
            assert (portion.labels is None) == (points.labels is None)

    def test_two_scans_at_once(self, engine: Engine, points: Points) -> None:
        for one, other in zip(engine.scan(), engine.scan(), strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert engine.size() == len(points)

    def test_all_is_there_after_a_restart(self, engine: Engine, points: Points) -> None:
        engine.remove(points.ids[:20])
        kept = points.take(slice(20, None))
        queries = clusters(20, seed=20)[0]
        before = engine.search(queries, 10)
        reopened = self.reopen(engine)
        if reopened is None:
            pytest.skip("the engine keeps nothing")
        try:
            assert reopened.dimension == DIMENSION
            assert reopened.fingerprint() == engine.fingerprint()
            assert reopened.capabilities == engine.capabilities
            self.check_held(reopened, kept)
            if reopened.capabilities.exact:
                assert_same_answer(before, reopened.search(queries, 10))
            assert self.check(reopened, kept, queries, 10) >= self.least_recall
            more = points_for(reopened, 10, seed=21, first=N_POINTS)
            reopened.add(more.vectors, more.ids, more.labels)
            assert self.is_unchanged(reopened, kept.and_also(more))
        finally:
            reopened.close()

    def test_readers_and_writers_at_once(self, engine: Engine, points: Points) -> None:
        parts = [points_for(engine, 10, seed=30 + i, first=1000 + 10 * i) for i in range(8)]
        ever = points
        for part in parts:
            ever = ever.and_also(part)
        queries = clusters(5, seed=22)[0]

        def write(own_parts: list[Points]) -> None:
            for part in own_parts:
                engine.add(part.vectors, part.ids, part.labels)
                engine.remove(part.ids[:3])

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, parts[i::2]) for i in range(2)]

            def read() -> int:
                n_read = 0
                while n_read < 3 or not all(writer.done() for writer in writers):
                    check_answer(
                        engine,
                        engine.search(queries, 8),
                        ever,
                        queries,
                        relative=self.relative_tolerance,
                    )
                    stored = engine.fetch(points.ids[:4])
                    check_vectors(engine, stored.vectors, points.vectors[:4])
                    ids = [own for own, _ in scanned(engine)]
                    assert ids == np.unique(np.array(ids)).tolist()
                    assert set(points.ids.tolist()) <= set(ids) <= set(ever.ids.tolist())
                    n_read += 1
                return n_read

            readers = [pool.submit(read) for _ in range(2)]
            for writer in writers:
                writer.result()
            assert all(reader.result() >= 3 for reader in readers)
        left = points
        for part in parts:
            left = left.and_also(part.take(slice(3, None)))
        assert self.is_unchanged(engine, left)
        self.check(engine, left, queries, 8)

    def test_fingerprint(self, engine: Engine) -> None:
        first = engine.fingerprint()
        text = json.dumps(dict(first))
        assert json.loads(text) == dict(first)
        points = points_for(engine, 20)
        engine.add(points.vectors, points.ids, points.labels)
        assert engine.fingerprint() == first
        twin = self.new_engine(DIMENSION)
        try:
            assert twin.fingerprint() == first
        finally:
            self.discard(twin)
        for hidden in (self.secret, self.address):
            assert hidden is None or hidden not in text
        assert "://" not in text

    def test_other_settings_have_another_fingerprint(self, engine: Engine) -> None:
        other = self.engine_of_other_settings(DIMENSION)
        if other is None:
            pytest.skip("there is nothing to set")
        try:
            assert other.fingerprint() != engine.fingerprint()
        finally:
            self.discard(other)

    def test_shows_no_secret(self, engine: Engine) -> None:
        if self.secret is None:
            pytest.skip("there is no secret")
        assert self.secret not in repr(engine) + str(engine)
        assert self.secret not in json.dumps(dict(engine.fingerprint()))

    def test_closing_twice_loses_nothing(self, engine: Engine, points: Points) -> None:
        engine.close()
        engine.close()
        reopened = self.reopen(engine)
        if reopened is None:
            pytest.skip("the engine keeps nothing, and closing it twice was no error")
        try:
            self.check_held(reopened, points)
        finally:
            reopened.close()
