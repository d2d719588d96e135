"""What enters an engine, leaves it or changes its label, all or nothing."""

import numpy as np
import pytest
from contract_base import N_POINTS, EngineTests, check_vectors
from contract_points import Points, clusters, ids_for, labels_for, points_for

from nearsure.engines.contract import Engine
from nearsure.errors import GalleryMismatchError, InvalidInputError, NearsureError


class ChangingTests(EngineTests):
    """Adding, removing and relabelling."""

    def test_added_points_are_found_at_once(self, engine: Engine, points: Points) -> None:
        engine.search(clusters(3, seed=9)[0], 5)
        more = points_for(engine, 30, seed=10, first=N_POINTS)
        engine.add(more.vectors, more.ids, more.labels)
        together = points.and_also(more)
        assert self.is_unchanged(engine, together)
        assert self.check(engine, together, more.vectors, 5) >= self.least_recall

    def test_double_precision_points(self, engine: Engine) -> None:
        single = points_for(engine, 50)
        engine.add(single.vectors.astype(np.float64), single.ids, single.labels)
        self.check(engine, single, single.vectors[:10], 5)

    def test_an_id_that_is_there_adds_nothing(self, engine: Engine, points: Points) -> None:
        more = points_for(engine, 30, seed=11, first=N_POINTS - 1)
        assert len(set(more.ids.tolist()) & set(points.ids.tolist())) == 1
        with pytest.raises(InvalidInputError):
            engine.add(more.vectors, more.ids, more.labels)
        assert self.is_unchanged(engine, points)
        self.check(engine, points, more.vectors, 5)

    def test_an_id_twice_in_a_call_adds_nothing(self, engine: Engine, points: Points) -> None:
        more = points_for(engine, 30, seed=12, first=N_POINTS)
        twice = np.concatenate([more.ids[:-1], more.ids[:1]])
        with pytest.raises(InvalidInputError):
            engine.add(more.vectors, twice, more.labels)
        assert self.is_unchanged(engine, points)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_numbers_that_are_none(self, engine: Engine, points: Points, bad: float) -> None:
        more = points_for(engine, 5, seed=13, first=N_POINTS)
        vectors = more.vectors.copy()
        vectors[3, 2] = bad
        with pytest.raises(InvalidInputError):
            engine.add(vectors, more.ids, more.labels)
        with pytest.raises(InvalidInputError):
            engine.search(vectors, 5)
        assert self.is_unchanged(engine, points)

    def test_wrong_dimension(self, engine: Engine, points: Points) -> None:
        more = points_for(engine, 5, seed=14, first=N_POINTS)
        for vectors in (more.vectors[:, :-1], np.repeat(more.vectors, 2, axis=1), more.vectors[0]):
            with pytest.raises(GalleryMismatchError):
                engine.add(vectors, more.ids, more.labels)
            with pytest.raises(GalleryMismatchError):
                engine.search(vectors, 5)
        assert self.is_unchanged(engine, points)

    def test_ids_and_labels_of_the_wrong_kind(self, engine: Engine, points: Points) -> None:
        more = points_for(engine, 5, seed=15, first=N_POINTS)
        integers, text = np.arange(5) + 1000, np.array([f"number {i}" for i in range(5)])
        wrong_ids = text if engine.capabilities.ids == "integer" else integers
        with pytest.raises(GalleryMismatchError):
            engine.add(more.vectors, wrong_ids, more.labels)
        with pytest.raises(GalleryMismatchError):
            engine.remove(wrong_ids)
        with pytest.raises(GalleryMismatchError):
            engine.fetch(wrong_ids)
        if engine.capabilities.holds_labels:
            wrong = text if engine.capabilities.labels == "integer" else integers
            with pytest.raises(GalleryMismatchError):
                engine.add(more.vectors, more.ids, wrong)
            with pytest.raises(GalleryMismatchError):
                engine.relabel(points.ids[:5], wrong)
        assert self.is_unchanged(engine, points)

    def test_one_id_and_one_label_for_each_point(self, engine: Engine, points: Points) -> None:
        more = points_for(engine, 5, seed=16, first=N_POINTS)
        with pytest.raises(InvalidInputError):
            engine.add(more.vectors, more.ids[:-1], more.labels)
        other = np.zeros(5, np.int64) if more.labels is None else None
        with pytest.raises(InvalidInputError):
            engine.add(more.vectors, more.ids, other)
        if more.labels is not None:
            with pytest.raises(InvalidInputError):
                engine.add(more.vectors, more.ids, more.labels[:-1])
        assert self.is_unchanged(engine, points)

    def test_what_is_removed_is_never_found(self, engine: Engine, points: Points) -> None:
        removed, left = points.take(slice(0, 40)), points.take(slice(40, None))
        engine.remove(removed.ids)
        assert self.is_unchanged(engine, left)
        self.check(engine, left, removed.vectors, 10)
        with pytest.raises(InvalidInputError):
            engine.fetch(removed.ids[:1])

    def test_an_unknown_id_removes_nothing(self, engine: Engine, points: Points) -> None:
        unknown = ids_for(engine, [N_POINTS + 5])
        for ids in (np.append(points.ids[:3], unknown), np.append(points.ids[:3], points.ids[:1])):
            with pytest.raises(InvalidInputError):
                engine.remove(ids)
        assert self.is_unchanged(engine, points)
        self.check(engine, points, points.vectors[:3], 1)

    def test_an_id_may_return_with_another_vector(self, engine: Engine, points: Points) -> None:
        engine.remove(points.ids[:5])
        back = points_for(engine, 5, seed=18)
        back = Points(points.ids[:5].copy(), back.vectors, back.labels)
        engine.add(back.vectors, back.ids, back.labels)
        together = points.take(slice(5, None)).and_also(back)
        assert self.is_unchanged(engine, together)
        queries = np.concatenate([back.vectors, points.vectors[:5]])
        self.check(engine, together, queries, 10)
        check_vectors(engine, engine.fetch(back.ids).vectors, back.vectors)

    def test_all_may_be_removed(self, engine: Engine, points: Points) -> None:
        engine.remove(points.ids)
        assert engine.size() == 0
        assert engine.search(points.vectors[:2], 3).counts.tolist() == [0, 0]
        engine.add(points.vectors, points.ids, points.labels)
        self.check(engine, points, points.vectors[:5], 3)

    def test_relabelled_everywhere(self, engine: Engine, points: Points) -> None:
        if points.labels is None:
            with pytest.raises(NearsureError):
                engine.relabel(points.ids[:1], np.array([0]))
            return
        other = labels_for(engine, [91, 90, 92, 91])
        assert other is not None
        engine.relabel(points.ids[:4], other)
        labels = points.labels.tolist()
        labels[:4] = other.tolist()
        relabelled = Points(points.ids, points.vectors, np.array(labels))
        self.check_held(engine, relabelled)
        with pytest.raises(InvalidInputError):
            engine.relabel(np.append(points.ids[:3], ids_for(engine, [N_POINTS + 5])), other)
        with pytest.raises(InvalidInputError):
            engine.relabel(points.ids[:3], other)
        assert self.is_unchanged(engine, relabelled)
