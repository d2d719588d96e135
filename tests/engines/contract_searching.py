"""What an engine finds, and how it says so."""

from collections.abc import Callable

import numpy as np
import pytest
from contract_base import N_POINTS, EngineTests, scanned
from contract_points import DIMENSION, Points, check_form, clusters, ids_for, points_for

from nearsure.engines.contract import AdjustableEngine, Engine
from nearsure.errors import InvalidInputError


class SearchingTests(EngineTests):
    """Neighbours, order, counts and the queries that are refused."""

    def test_is_an_engine(self, engine: Engine) -> None:
        assert isinstance(engine, Engine)
        assert engine.dimension == DIMENSION
        assert engine.metric in {"euclidean", "cosine"}
        assert engine.capabilities.holds_labels == (engine.capabilities.labels is not None)

    @pytest.mark.parametrize("k", [1, 10, 60])
    def test_neighbours_are_those_of_naive_search(
        self,
        engine: Engine,
        points: Points,
        k: int,
        record_property: Callable[[str, object], None],
    ) -> None:
        recall = self.check(engine, points, clusters(40, seed=1)[0], k)
        record_property(f"recall at {k}", recall)
        assert recall >= self.least_recall

    def test_far_from_the_origin(self, engine: Engine) -> None:
        points = points_for(engine, N_POINTS, offset=100.0)
        engine.add(points.vectors, points.ids, points.labels)
        recall = self.check(engine, points, clusters(40, seed=1, offset=100.0)[0], 10)
        assert recall >= self.least_recall

    def test_a_point_finds_itself(self, engine: Engine, points: Points) -> None:
        assert self.check(engine, points, points.vectors[:20], 1) >= self.least_recall

    def test_double_precision_queries(self, engine: Engine, points: Points) -> None:
        queries = clusters(20, seed=2)[0] + np.random.default_rng(3).normal(
            scale=1e-5, size=(20, DIMENSION)
        )
        assert queries.dtype == np.float64
        assert self.check(engine, points, queries, 10) >= self.least_recall

    def test_single_query(self, engine: Engine, points: Points) -> None:
        self.check(engine, points, clusters(1, seed=4)[0], 10)

    def test_many_queries_are_divided(self, engine: Engine, points: Points) -> None:
        queries = clusters(300, seed=5)[0]
        assert self.check(engine, points, queries, 10) >= self.least_recall

    def test_queries_in_any_layout_and_unchanged(self, engine: Engine, points: Points) -> None:
        queries = np.asfortranarray(clusters(20, seed=6)[0])[::2]
        queries.setflags(write=False)
        before = queries.copy()
        self.check(engine, points, queries, 5)
        np.testing.assert_array_equal(queries, before)

    def test_k_beyond_the_points_gives_them_all(self, engine: Engine) -> None:
        points = points_for(engine, 7)
        engine.add(points.vectors, points.ids, points.labels)
        self.check(engine, points, clusters(3, seed=7)[0], 20)

    def test_nothing_is_found_in_nothing(self, engine: Engine) -> None:
        found = engine.search(clusters(3, seed=8)[0], 5)
        check_form(engine, found, 3)
        assert found.sq_distances.shape == (3, 5)
        assert found.counts.tolist() == [0, 0, 0]
        assert engine.size() == 0
        assert scanned(engine) == []

    def test_exact_duplicates_are_in_the_order_of_ids(self, engine: Engine) -> None:
        points = points_for(engine, 60)
        copies = Points(
            ids_for(engine, [900, 500, 700, 300]),
            np.repeat(points.vectors[:1], 4, axis=0),
            None if points.labels is None else points.labels[[5, 6, 7, 8]],
        )
        engine.add(points.vectors, points.ids, points.labels)
        engine.add(copies.vectors, copies.ids, copies.labels)
        together = points.and_also(copies)
        for k in (3, 5, 12):
            self.check(engine, together, points.vectors[:1], k)
        if engine.capabilities.exact:
            five = engine.search(points.vectors[:1], 5).ids[0].tolist()
            assert five == sorted([points.ids[0].item(), *copies.ids.tolist()])

    def test_more_effort_finds_no_less(self, engine: Engine, points: Points) -> None:
        effort = engine.effort if isinstance(engine, AdjustableEngine) else None
        if effort is None or not isinstance(engine, AdjustableEngine):
            pytest.skip("there is no effort to choose")
        assert engine.fingerprint()[effort.name] == effort.value
        queries = clusters(40, seed=1)[0]
        usual = engine.search(queries, 10)
        same = engine.search_with_effort(queries, 10, effort.value)
        np.testing.assert_array_equal(same.ids, usual.ids)
        little = engine.search_with_effort(queries, 10, 1)
        much = engine.search_with_effort(queries, 10, min(32 * effort.value, effort.largest))
        check_form(engine, much, 40)
        assert set(much.ids.ravel().tolist()) <= set(points.ids.tolist())
        assert much.sq_distances.sum() <= little.sq_distances.sum() * (1 + 1e-6)
        for wrong in (0, -1, effort.largest + 1):
            with pytest.raises(InvalidInputError, match=effort.name):
                engine.search_with_effort(queries, 10, wrong)

    def test_k_out_of_range(self, engine: Engine, points: Points) -> None:
        largest = engine.capabilities.largest_k
        for k in (0, -1, *([] if largest is None else [largest + 1])):
            with pytest.raises(InvalidInputError):
                engine.search(points.vectors[:2], k)
        if largest is not None:
            self.check(engine, points, points.vectors[:2], largest)
