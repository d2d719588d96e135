"""Confusable and small classes against dense recomputation."""

import numpy as np
import pytest
from made_galleries import blobs, leave_one_out_neighbors, padded

from nearsure import Neighbors, score
from nearsure.audit import confusable_classes, small_classes
from nearsure.errors import InvalidInputError


def test_mass_is_the_mean_posterior_of_each_class() -> None:
    vectors, codes = blobs(n_classes=6, per_class=10, spread=1.0, seed=0)
    codes = codes + (codes > 3)  # code 4 is nobody's
    counts = np.random.default_rng(1).integers(0, 8, len(codes))
    neighbors = padded(leave_one_out_neighbors(vectors, codes, 7), counts)
    found = confusable_classes(neighbors, codes, temperature=1.5)
    dense = score(neighbors, temperature=1.5, n_classes=7).to_csr().toarray()
    mass = np.zeros((7, 7))
    for code in np.unique(codes):
        mass[code] = dense[(codes == code) & (counts > 0)].mean(axis=0)
    np.testing.assert_allclose(found.mass.toarray(), mass, atol=1e-12)
    pairs = {
        (a, b): (mass[a, b] + mass[b, a]) / 2
        for a in range(7)
        for b in range(a + 1, 7)
        if mass[a, b] + mass[b, a] > 0
    }
    assert dict(zip(map(tuple, found.codes.tolist()), found.confusion, strict=True)) == (
        pytest.approx(pairs)
    )
    assert (np.diff(found.confusion) <= 0).all()


def test_planted_confusion_comes_first() -> None:
    vectors, codes = blobs(n_classes=12, per_class=20, spread=0.3, seed=2)
    vectors[codes == 9] += vectors[codes == 4].mean(axis=0) - vectors[codes == 9].mean(axis=0)
    neighbors = leave_one_out_neighbors(vectors, codes, 15)
    found = confusable_classes(neighbors, codes, temperature=0.5)
    assert found.codes[0].tolist() == [4, 9]
    assert found.confusion[0] > 0.3
    assert (found.confusion[1:] < 0.1).all()


def test_one_class_is_confused_with_none() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    found = confusable_classes(neighbors, [0, 0], temperature=1.0)
    assert len(found) == 0
    assert found.codes.shape == (0, 2)
    assert found.mass.toarray().tolist() == [[1.0]]


def test_many_classes_stay_sparse() -> None:
    """Dense, 300,000 classes by as many would be 700 GB."""
    n = 300_000
    partner = np.arange(n) ^ 1
    neighbors = Neighbors(np.ones((n, 1)), partner[:, None], partner[:, None])
    found = confusable_classes(neighbors, np.arange(n), temperature=1.0)
    assert found.mass.nnz == n
    assert len(found) == n // 2


def test_small_classes_are_counted() -> None:
    vectors, codes = blobs(n_classes=6, per_class=12, spread=1.2, seed=0)
    kept = np.ones(len(codes), np.bool_)
    kept[[*range(1, 12), *range(15, 24)]] = False  # leaves 1 of class 0 and 3 of class 1
    vectors, codes = vectors[kept], codes[kept]
    neighbors = leave_one_out_neighbors(vectors, codes, 3)
    predicted = score(neighbors, temperature=1.0).labels
    expected = []
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        n_missed = sum(code not in neighbors.labels[i] for i in members)
        if len(members) < 4 or n_missed / len(members) > 0.3:
            right = np.mean(predicted[members] == code)
            expected.append((len(members), -n_missed / len(members), code, n_missed, right))
    expected.sort()
    found = small_classes(neighbors, codes, temperature=1.0, min_members=4, max_miss_share=0.3)
    assert 2 < len(found) < 6  # some by their size, some by their misses, not all
    assert found.codes.tolist() == [row[2] for row in expected]
    assert found.n_members.tolist() == [row[0] for row in expected]
    assert found.n_missed.tolist() == [row[3] for row in expected]
    np.testing.assert_allclose(found.accuracy, [row[4] for row in expected])


def test_bounds_of_small_are_exclusive() -> None:
    neighbors = Neighbors([[1.0]] * 4, [[0], [0], [1], [1]])
    codes = [0, 0, 1, 0]  # class 0: 3 members, 1 missed; class 1: 1 member, none missed
    options = {"temperature": 1.0}
    assert len(small_classes(neighbors, codes, min_members=1, max_miss_share=1 / 3, **options)) == 0
    by_size = small_classes(neighbors, codes, min_members=2, max_miss_share=1 / 3, **options)
    assert by_size.codes.tolist() == [1]
    by_misses = small_classes(neighbors, codes, min_members=1, max_miss_share=0.33, **options)
    assert by_misses.codes.tolist() == [0]


def test_a_point_without_neighbours_misses_its_class() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], counts=[1, 0])
    found = small_classes(neighbors, [0, 0], temperature=1.0, min_members=0, max_miss_share=0.4)
    assert (found.n_missed.tolist(), found.accuracy.tolist()) == ([1], [0.5])


def test_bad_parameters_are_refused() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]])
    with pytest.raises(InvalidInputError, match="min_members must not be negative"):
        small_classes(neighbors, [0, 0], temperature=1.0, min_members=-1)
    for share in (-0.1, 1.1, np.nan):
        with pytest.raises(InvalidInputError, match=r"max_miss_share must lie in \[0, 1\]"):
            small_classes(neighbors, [0, 0], temperature=1.0, max_miss_share=share)
