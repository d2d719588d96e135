"""Neighbours in shards are those of one index over everything, also leaving one out."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from partitioned_data import DIMENSION, NAMES, drawn, write_points

from nearsure import NEDClassifier, fit_confidence
from nearsure.arrays import AnyArray
from nearsure.batch import as_neighbors, leave_one_out_over_shards, search, search_shards
from nearsure.engines import Found
from nearsure.errors import (
    EmbeddingsFileError,
    GalleryMismatchError,
    InvalidInputError,
    PartitionsFailedError,
)
from nearsure.gallery import Gallery
from nearsure.index import ExactIndex, unit_vectors

K = 12


def with_ties(n: int, seed: int) -> AnyArray:
    """Points on a grid, each of them several times: most distances occur more than once."""
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 2, (n, 3)).astype(np.float32)


def write_shards(folder: Path, vectors: AnyArray, edges: list[int], **columns: AnyArray) -> Path:
    for number, (first, last) in enumerate(pairwise(edges)):
        part = {name: values[first:last] for name, values in columns.items()}
        write_points(
            folder / f"{number:03d}.parquet", vectors[first:last], **part, row_group_size=40
        )
    return folder


def assert_is_search_over_all(
    found: Found, index: ExactIndex, queries: AnyArray, k: int = K
) -> None:
    sq_distances, ids = index.search(queries, k)
    np.testing.assert_array_equal(found.sq_distances, sq_distances)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.counts, k)


@pytest.mark.parametrize("edges", [[0, 300], [0, 5, 5, 6, 150, 300], [*range(0, 301, 20)]])
@pytest.mark.parametrize("made", [with_ties, lambda n, seed: drawn(n, seed)[0]])
def test_one_index_over_everything(tmp_path: Path, edges: list[int], made: Any) -> None:  # noqa: ANN401
    """Ties and duplicates over shards, an empty shard, and shards of fewer points than k."""
    vectors, queries = made(300, 0), made(40, 1)
    labels = np.arange(300) % 7
    shards = write_shards(tmp_path / "shards", vectors, edges, labels=labels)
    if 5 in edges:
        nothing = np.empty((0, vectors.shape[1]), np.float32)
        write_points(shards / "0001.parquet", nothing, label=pa.array([], pa.int64()))
    found = search_shards(shards, queries, K, label_column="label", rows_per_shard=50)
    assert_is_search_over_all(found, ExactIndex(vectors), queries)
    np.testing.assert_array_equal(found.labels, labels[found.ids])


def test_ids_of_a_column_break_ties(tmp_path: Path) -> None:
    vectors, queries = with_ties(200, 0), with_ties(30, 1)
    ids = np.random.default_rng(2).permutation(np.arange(-100, 100))
    shards = write_shards(tmp_path / "shards", vectors, [0, 60, 61, 200], ids=ids)
    found = search_shards(shards, queries, K, id_column="id")
    assert_is_search_over_all(found, ExactIndex(vectors, ids), queries)
    assert found.labels is None


def test_text_ids_and_labels(tmp_path: Path) -> None:
    vectors, queries = with_ties(200, 0), with_ties(30, 1)
    ids = np.random.default_rng(2).permutation([f"point {i}" for i in range(200)])
    labels = NAMES[np.arange(200) % 5]
    shards = write_shards(tmp_path / "shards", vectors, [0, 60, 61, 200], ids=ids, labels=labels)
    found = search_shards(shards, queries, K, id_column="id", label_column="label")
    # Rows in the order of ids: ties by row number are ties by id.
    order = np.argsort(ids)
    index = ExactIndex(vectors[order])
    sq_distances, rows = index.search(queries, K)
    np.testing.assert_array_equal(found.sq_distances, sq_distances)
    np.testing.assert_array_equal(found.ids, ids[order][rows])
    np.testing.assert_array_equal(found.labels, labels[order][rows])
    neighbors = as_neighbors(found, NAMES)
    np.testing.assert_array_equal(NAMES[neighbors.labels], found.labels)


def test_a_shard_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few points give the same answer."""
    vectors, queries = with_ties(300, 0), with_ties(20, 1)
    write_points(tmp_path / "all.parquet", vectors)
    monkeypatch.setattr(search, "CHUNK_BYTES", 13 * 3 * 4)
    monkeypatch.setattr(search, "ROWS_READ_AT_A_TIME", 13)
    found = search_shards(tmp_path / "all.parquet", queries, K)
    assert_is_search_over_all(found, ExactIndex(vectors), queries)


def test_cosine(tmp_path: Path) -> None:
    vectors, queries = drawn(200, 0)[0], drawn(30, 1)[0]
    shards = write_shards(tmp_path / "shards", vectors, [0, 90, 200])
    found = search_shards(shards, queries, K, metric="cosine")
    assert_is_search_over_all(found, ExactIndex(unit_vectors(vectors)), unit_vectors(queries))


def test_more_than_there_are(tmp_path: Path) -> None:
    vectors, queries = drawn(9, 0)[0], drawn(3, 1)[0]
    shards = write_shards(tmp_path / "shards", vectors, [0, 4, 9], labels=np.zeros(9, int))
    found = search_shards(shards, queries, 12, label_column="label")
    assert found.sq_distances.shape == (3, 12)
    np.testing.assert_array_equal(found.counts, 9)
    first = Found(found.sq_distances[:, :9], found.ids[:, :9], found.counts)
    assert_is_search_over_all(first, ExactIndex(vectors), queries, 9)
    assert np.isinf(found.sq_distances[:, 9:]).all()
    assert (found.ids[:, 9:] == -1).all()
    assert as_neighbors(found, np.array([0])).counts.tolist() == [9, 9, 9]


def test_no_points_at_all(tmp_path: Path) -> None:
    write_points(tmp_path / "none.parquet", np.empty((0, 3), np.float32))
    found = search_shards(tmp_path / "none.parquet", np.zeros((2, 3)), 4)
    assert found.counts.tolist() == [0, 0]


def test_part_of_a_gallery_is_never_taken_for_all(tmp_path: Path) -> None:
    vectors, queries = drawn(100, 0)[0], drawn(5, 1)[0]
    shards = write_shards(tmp_path / "shards", vectors, [0, 30, 60, 100])
    write_points(shards / "001.parquet", np.zeros((3, DIMENSION + 1), np.float32))
    with pytest.raises(PartitionsFailedError, match="have 7 entries, and those of the queries 6"):
        search_shards(shards, queries, K)
    vectors[31] = np.nan
    write_points(shards / "001.parquet", vectors[30:60])
    with pytest.raises(PartitionsFailedError, match=r"001\.parquet: .* Row 1 has NaN") as caught:
        search_shards(shards, queries, K)
    assert list(caught.value.failed) == ["001.parquet"]
    write_points(shards / "002.parquet", np.zeros((3, DIMENSION + 1), np.float32))
    with pytest.raises(PartitionsFailedError, match="2 of 3 partitions failed") as caught:
        search_shards(shards, queries, K)
    assert list(caught.value.failed) == ["001.parquet", "002.parquet"]
    (shards / "001.parquet").write_bytes(b"broken")
    with pytest.raises(EmbeddingsFileError, match=r"001\.parquet cannot be read as \.parquet"):
        search_shards(shards, queries, K)


def test_a_point_in_two_shards(tmp_path: Path) -> None:
    vectors, queries = drawn(40, 0)[0], drawn(5, 1)[0]
    ids = np.arange(40) % 30
    shards = write_shards(tmp_path / "shards", vectors, [0, 20, 40], ids=ids)
    with pytest.raises(PartitionsFailedError, match="No point may be in two parts"):
        search_shards(shards, queries, 40, id_column="id")
    write_points(shards / "000.parquet", vectors[:20], ids=np.arange(20) % 19)
    with pytest.raises(PartitionsFailedError, match="ids must be distinct"):
        search_shards(shards, queries, 40, id_column="id")


def test_bad_input(tmp_path: Path) -> None:
    vectors = drawn(40, 0)[0]
    shards = write_shards(tmp_path / "shards", vectors, [0, 20, 40])
    with pytest.raises(InvalidInputError, match="k must be at least 1"):
        search_shards(shards, vectors, 0)
    with pytest.raises(InvalidInputError, match="metric must be"):
        search_shards(shards, vectors, 3, metric="dot")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="queries must be finite"):
        search_shards(shards, np.full((1, DIMENSION), np.nan), 3)
    with pytest.raises(GalleryMismatchError, match="queries must have the shape"):
        search_shards(shards, vectors[0], 3)
    with pytest.raises(PartitionsFailedError, match="must have a column 'label'"):
        search_shards(shards, vectors, 3, label_column="label")
    found = search_shards(shards, vectors, 3)
    with pytest.raises(InvalidInputError, match="found must have labels"):
        as_neighbors(found, NAMES)
    named = Found(found.sq_distances, found.ids, found.counts, np.full(found.ids.shape, "yak"))
    with pytest.raises(InvalidInputError, match="'yak' is missing"):
        as_neighbors(named, NAMES)


OWN_K = 20
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
        OWN_K,
        label_column="label",
        metric=metric,  # type: ignore[arg-type]
        max_samples=max_samples,
        rows_per_shard=100,
    )
    classifier = NEDClassifier(OWN_K, metric=metric, head=None, max_fit_samples=max_samples)  # type: ignore[arg-type]
    classifier.fit(vectors, labels)
    np.testing.assert_array_equal(own.ids, classifier.fit_indices_)
    np.testing.assert_array_equal(own.classes, classifier.classes_)
    np.testing.assert_array_equal(own.class_counts, np.bincount(codes))
    queries, _ = drawn(80, seed=1)
    found = search_shards(shards, queries, OWN_K, label_column="label", metric=metric)  # type: ignore[arg-type]
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
        shards, OWN_K, label_column="label", id_column="id", max_samples=100, random_state=5
    )
    support = Gallery.of_points(vectors, codes, ids=ids)
    expected = support.leave_one_out(own.ids, OWN_K)
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
    one = leave_one_out_over_shards(
        named, OWN_K, label_column="label", id_column="id", max_samples=60
    )
    other = leave_one_out_over_shards(numbered, OWN_K, label_column="label", max_samples=60)
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
        leave_one_out_over_shards(shards, OWN_K, label_column="label", id_column="id")
    with pytest.raises(PartitionsFailedError, match="must have a column 'name'"):
        leave_one_out_over_shards(shards, OWN_K, label_column="name")
    with pytest.raises(InvalidInputError, match="max_samples must be at least 1"):
        leave_one_out_over_shards(shards, OWN_K, label_column="label", max_samples=0)
    write_points(tmp_path / "one.parquet", vectors[:1], codes[:1])
    with pytest.raises(InvalidInputError, match="at least two points and one neighbour"):
        leave_one_out_over_shards(tmp_path / "one.parquet", OWN_K, label_column="label")
