"""Confidence fitted on a gallery in shards is the classifier's on the whole gallery."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from partitioned_data import NAMES, drawn, write_points

from nearsure import NEDClassifier, fit_confidence
from nearsure.arrays import AnyArray
from nearsure.batch import as_neighbors, leave_one_out_over_shards, search_shards
from nearsure.errors import InvalidInputError, PartitionsFailedError
from nearsure.gallery import Gallery

K = 20
EDGES = [0, 1, 90, 260, 400]


@pytest.fixture(scope="module")
def gallery() -> tuple[AnyArray, AnyArray]:
    """Some points are there twice, in different shards."""
    vectors, codes = drawn(400, seed=0)
    vectors[300:310], codes[300:310] = vectors[20:30], codes[20:30]
    return vectors, codes


def write_gallery(
    folder: Path, vectors: AnyArray, labels: AnyArray, ids: AnyArray | None = None
) -> Path:
    for number, (first, last) in enumerate(pairwise(EDGES)):
        write_points(
            folder / f"{number}.parquet",
            vectors[first:last],
            labels[first:last],
            None if ids is None else ids[first:last],
            row_group_size=32,
        )
    return folder


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("max_samples", [None, 250])
def test_confidence_of_the_classifier(
    tmp_path: Path,
    gallery: tuple[AnyArray, AnyArray],
    metric: str,
    max_samples: int | None,
) -> None:
    vectors, codes = gallery
    labels = NAMES[codes]
    shards = write_gallery(tmp_path / "shards", vectors, labels)
    own = leave_one_out_over_shards(
        shards,
        K,
        label_column="label",
        metric=metric,  # type: ignore[arg-type]
        max_samples=max_samples,
        rows_per_shard=100,
    )
    classifier = NEDClassifier(K, metric=metric, max_fit_samples=max_samples)  # type: ignore[arg-type]
    classifier.fit(vectors, labels)
    np.testing.assert_array_equal(own.ids, classifier.fit_indices_)
    np.testing.assert_array_equal(own.classes, classifier.classes_)
    np.testing.assert_array_equal(own.class_counts, np.bincount(codes))
    queries, _ = drawn(80, seed=1)
    found = search_shards(shards, queries, K, label_column="label", metric=metric)  # type: ignore[arg-type]
    fitted = fit_confidence(own.neighbors, own.codes, class_counts=own.class_counts)
    posterior = fitted.posterior(as_neighbors(found, own.classes), n_classes=len(own.classes))
    expected = classifier.predict_posterior(queries)
    np.testing.assert_array_equal(posterior.indptr, expected.indptr)
    np.testing.assert_array_equal(posterior.codes, expected.codes)
    np.testing.assert_array_equal(posterior.probabilities, expected.probabilities)


def test_neighbors_of_one_support_set(tmp_path: Path, gallery: tuple[AnyArray, AnyArray]) -> None:
    """With ids of a column that are not in the order of rows, and duplicates as neighbours."""
    vectors, codes = gallery
    ids = np.random.default_rng(3).permutation(400) + 1000
    shards = write_gallery(tmp_path / "shards", vectors, codes, ids)
    own = leave_one_out_over_shards(
        shards, K, label_column="label", id_column="id", max_samples=100, random_state=5
    )
    support = Gallery.of_points(vectors, codes, ids=ids)
    expected = support.leave_one_out(own.ids, K)
    np.testing.assert_array_equal(own.neighbors.ids, expected.ids)
    np.testing.assert_array_equal(own.neighbors.sq_distances, expected.sq_distances)
    np.testing.assert_array_equal(own.neighbors.labels, expected.labels)
    np.testing.assert_array_equal(own.codes, support.codes_of(own.ids))
    drawn_places = np.random.RandomState(5).choice(400, 100, replace=False)
    np.testing.assert_array_equal(own.ids, support.ids_at(np.sort(drawn_places)))
    assert not (np.asarray(own.neighbors.ids) == own.ids[:, None]).any()


def test_text_ids(tmp_path: Path, gallery: tuple[AnyArray, AnyArray]) -> None:
    vectors, codes = gallery
    names = np.array([f"{number:04d}" for number in range(400)])
    numbered = write_gallery(tmp_path / "numbered", vectors, codes)
    named = write_gallery(tmp_path / "named", vectors, codes, names)
    one = leave_one_out_over_shards(named, K, label_column="label", id_column="id", max_samples=60)
    other = leave_one_out_over_shards(numbered, K, label_column="label", max_samples=60)
    np.testing.assert_array_equal(one.ids, names[other.ids])
    np.testing.assert_array_equal(one.neighbors.ids, names[np.asarray(other.neighbors.ids)])


def test_fewer_points_than_neighbors(tmp_path: Path) -> None:
    write_points(tmp_path / "small.parquet", *drawn(5, seed=0))
    own = leave_one_out_over_shards(tmp_path / "small.parquet", 20, label_column="label")
    assert own.neighbors.k == 4
    assert own.neighbors.is_full


def test_bad_galleries(tmp_path: Path, gallery: tuple[AnyArray, AnyArray]) -> None:
    vectors, codes = gallery
    shards = write_gallery(tmp_path / "shards", vectors, codes, np.arange(400) % 399)
    with pytest.raises(InvalidInputError, match=r"distinct over all shards\. Got 0"):
        leave_one_out_over_shards(shards, K, label_column="label", id_column="id")
    with pytest.raises(PartitionsFailedError, match="must have a column 'name'"):
        leave_one_out_over_shards(shards, K, label_column="name")
    with pytest.raises(InvalidInputError, match="max_samples must be at least 1"):
        leave_one_out_over_shards(shards, K, label_column="label", max_samples=0)
    write_points(tmp_path / "one.parquet", vectors[:1], codes[:1])
    with pytest.raises(InvalidInputError, match="at least two points and one neighbour"):
        leave_one_out_over_shards(tmp_path / "one.parquet", K, label_column="label")
