"""A view holds still while its gallery changes."""

from typing import Any

import numpy as np
import pytest
from served_examples import clusters

from nearsure import NEDClassifier
from nearsure.engines.contract import Found
from nearsure.engines.embedded import FaissEngine
from nearsure.errors import InvalidInputError
from nearsure.service.snapshot import SnapshotEngine


def test_what_is_gone_relabelled_or_new_is_as_it_was() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, labels=codes)
    view = SnapshotEngine(engine)
    view.refresh()
    gone = np.array([3, 20, 31])
    view.record_removed(engine.fetch(gone))
    engine.remove(gone)
    engine.relabel(np.array([0, 1]), np.array([7, 7]))
    view.record_changed(np.array([0, 1, 20, 100]))
    engine.add(np.full((2, 6), 9.0), np.array([20, 100]), np.array([5, 5]))
    assert (view.size(), engine.size()) == (32, 31)
    (portion,) = view.scan()
    assert (portion.ids.tolist(), np.asarray(portion.labels).tolist()) == (
        list(range(32)),
        codes.tolist(),
    )
    order = np.random.default_rng(0).permutation(32)
    for asked in (order, gone, np.array([0, 5]), order[:1]):
        stored = view.fetch(asked)
        assert stored.ids.tolist() == asked.tolist()
        assert np.asarray(stored.labels).tolist() == codes[asked].tolist()
        np.testing.assert_array_equal(np.asarray(stored.vectors), vectors[asked])
    # One that came later has what it has now.
    assert np.asarray(view.fetch(np.array([0, 100])).labels).tolist() == [codes[0], 5]
    # Removed by somebody who did not say so.
    engine.remove(np.array([6]))
    with pytest.raises(InvalidInputError):
        view.fetch(np.array([3, 6]))


def check_same(found: Found, expected: Found) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert np.asarray(found.labels).tolist() == np.asarray(expected.labels).tolist()
    np.testing.assert_array_equal(found.sq_distances, expected.sq_distances)


def test_what_has_come_is_not_found_and_labels_are_as_they_were() -> None:
    vectors, codes = clusters(8)
    queries = np.random.default_rng(2).normal(size=(9, 6))
    before = FaissEngine.from_points(vectors, labels=codes)
    engine = FaissEngine.from_points(vectors, labels=codes)
    view = SnapshotEngine(engine)
    view.refresh()
    expected = before.search(queries, 5)
    come, relabelled = np.arange(100, 104), np.arange(0, 32, 2)
    # Said already, but not done yet.
    view.record_changed(np.concatenate([come, relabelled]))
    check_same(view.search(queries, 5), expected)
    engine.add(queries[:4], come, np.full(4, 9))
    engine.relabel(relabelled, np.full(16, 9))
    check_same(view.search(queries, 5), expected)
    # No more than there were, and in the end no more than are listed.
    assert view.search(queries, 40).counts.tolist() == [32] * 9


def test_it_changes_nothing() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, labels=codes)
    view: Any = SnapshotEngine(engine)
    one = np.array([1])
    for method, given in (
        ("add", (vectors[:1], one + 100, codes[:1])),
        ("remove", (one,)),
        ("relabel", (one, codes[:1])),
    ):
        with pytest.raises(InvalidInputError, match="only be read"):
            getattr(view, method)(*given)
    view.close()
    assert view.index_type == "exact"
    assert engine.size() == 32


def test_a_classifier_takes_it_for_an_engine() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, labels=codes)
    view = SnapshotEngine(engine)
    view.refresh()
    direct = NEDClassifier(engine=engine).fit_engine()
    through = NEDClassifier(engine=view).fit_engine()
    np.testing.assert_array_equal(direct.predict_proba(vectors), through.predict_proba(vectors))
    assert through.fingerprint_ == direct.fingerprint_
