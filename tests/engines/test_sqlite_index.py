"""The index beside a gallery saves time, and never decides what is found."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from contract_base import assert_same_answer
from contract_points import DIMENSION, clusters

from nearsure.arrays import AnyArray
from nearsure.engines.embedded import IndexSettings
from nearsure.engines.sqlite import SqliteEngine
from nearsure.engines.sqlite import index as memory
from nearsure.engines.sqlite.index import CHECKSUM, CommittedIndex
from nearsure.model_file import read_model, write_model

N_POINTS = 200
QUERIES = clusters(20, seed=1)[0]


def batch(n: int, seed: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    vectors, classes = clusters(n, seed=seed)
    ids = np.array([f"{seed} {i}" for i in range(n)])
    return vectors, ids, classes.astype(str)


@pytest.fixture(params=["hnsw", "ivf"])
def gallery(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A closed gallery with an index beside it."""
    path = tmp_path / "gallery.sqlite"
    with SqliteEngine.create(path, DIMENSION, index=request.param) as engine:
        engine.add(*batch(N_POINTS, 0))
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many points each index had that was built anew."""
    counted: list[int] = []
    build = memory._build

    def counting(
        empty: CommittedIndex, rows: AnyArray, vectors: AnyArray, shown: str
    ) -> CommittedIndex:
        counted.append(len(rows))
        return build(empty, rows, vectors, shown)

    monkeypatch.setattr(memory, "_build", counting)
    return counted


def cache_of(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def test_taken_as_it_is(gallery: Path, builds: list[int]) -> None:
    with SqliteEngine(gallery) as engine:
        before = engine.search(QUERIES, 10)
        assert engine.size() == N_POINTS
    # Labels are not in it, so a change of them alone does not write it again.
    written = cache_of(gallery).stat().st_mtime_ns
    with SqliteEngine(gallery) as engine:
        assert_same_answer(engine.search(QUERIES, 10), before)
        ids = batch(N_POINTS, 0)[1]
        engine.relabel(ids[:5], np.full(5, "other"))
    assert cache_of(gallery).stat().st_mtime_ns == written
    assert builds == []
    with SqliteEngine(gallery) as engine:
        assert engine.count("other") == 5


def test_brought_up_to_date_after_a_crash(gallery: Path, builds: list[int]) -> None:
    """Rows that came, went, and came again under the same ids since the index was kept."""
    engine = SqliteEngine(gallery)
    vectors, ids, labels = batch(N_POINTS, 0)
    engine.remove(ids[:20])
    engine.add(vectors[20:40] + 1, np.array([f"new {i}" for i in range(20)]), labels[:20])
    engine.add(vectors[:10] - 1, ids[:10], labels[:10])
    engine._file.close()
    with SqliteEngine(gallery) as again:
        assert builds == []
        assert again.size() == N_POINTS + 10
        check_points(again)
    with SqliteEngine(gallery) as again:
        assert again.size() == N_POINTS + 10
        check_points(again)


def test_built_anew_when_little_is_left_of_it(gallery: Path, builds: list[int]) -> None:
    engine = SqliteEngine(gallery)
    ids = batch(N_POINTS, 0)[1]
    engine.remove(ids[: N_POINTS - 20])
    engine._file.close()
    with SqliteEngine(gallery) as again:
        assert builds == [20]
        check_points(again)
        again.remove(ids[N_POINTS - 20 :])
    with SqliteEngine(gallery) as again:
        assert again.size() == 0
        again.add(*batch(10, 3))
        check_points(again)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-500] ^= 255
    path.write_bytes(bytes(content))


def no_model(path: Path) -> None:
    path.write_bytes(b"nothing of the kind")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def gone(path: Path) -> None:
    path.unlink()


def without_state(path: Path) -> None:
    write_model(path, {"state": {"settings": 3}}, read_model(path)[1])
    with closing(sqlite3.connect(path.with_suffix(""))) as gallery, gallery:
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        gallery.execute("UPDATE settings SET value = ? WHERE name = ?", (checksum, CHECKSUM))


def of_another_gallery(path: Path) -> None:
    """It knows what this gallery knows of its own cache."""
    other = path.with_name("other.sqlite")
    with SqliteEngine(path.with_suffix("")) as engine:
        index = engine.index_type
    with SqliteEngine.create(other, DIMENSION, index=index) as engine:
        engine.add(*batch(N_POINTS, 9))
    manifest, arrays = read_model(cache_of(other))
    with closing(sqlite3.connect(path.with_suffix(""))) as gallery:
        known = gallery.execute("SELECT value FROM settings WHERE name = ?", (CHECKSUM,))
        write_model(path, {**manifest, "mark": known.fetchone()[0]}, arrays)


@pytest.mark.parametrize(
    "spoil", [cut, altered, no_model, a_folder, gone, without_state, of_another_gallery]
)
def test_whatever_is_wrong_with_it_is_no_error(
    gallery: Path, builds: list[int], spoil: Callable[[Path], None]
) -> None:
    spoil(cache_of(gallery))
    with SqliteEngine(gallery) as engine:
        assert builds == [N_POINTS]
        check_points(engine)
        engine.add(*batch(5, 4))
    with SqliteEngine(gallery) as engine:
        assert engine.size() == N_POINTS + 5


def test_nothing_of_another_gallery_reaches_faiss(
    gallery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_another_gallery(cache_of(gallery))
    monkeypatch.setattr(CommittedIndex, "from_state", lambda *_: pytest.fail("it was read"))
    with SqliteEngine(gallery) as engine:
        assert engine.size() == N_POINTS


def test_other_settings_are_not_taken_from_it(gallery: Path, builds: list[int]) -> None:
    settings = IndexSettings(hnsw_ef_search=64, ivf_probes=3)
    with SqliteEngine(gallery, settings=settings) as engine:
        assert builds == [N_POINTS]
        assert engine._memory is not None
        assert engine._memory.index.settings == settings


def test_an_older_copy_of_the_gallery_does_not_take_a_later_index(
    gallery: Path, builds: list[int]
) -> None:
    copy = gallery.with_name("copy")
    shutil.copy(gallery, copy)
    with SqliteEngine(gallery) as engine:
        engine.add(*batch(10, 5))
    shutil.copy(copy, gallery)
    engine = SqliteEngine(gallery)
    assert builds == [N_POINTS]
    engine.add(*batch(10, 6))
    engine._file.close()
    with SqliteEngine(gallery) as again:
        check_points(again)


def check_points(engine: SqliteEngine) -> None:
    """Each point is found at its place, under its own name."""
    (page,) = engine.scan()
    stored = engine.fetch(page.ids)
    assert stored.vectors is not None
    # All are asked for: among fewer, a graph may miss a point even at its own place.
    found = engine.search(stored.vectors, engine.size())
    assert found.ids[:, 0].tolist() == page.ids.tolist()
    assert np.asarray(found.labels)[:, 0].tolist() == np.asarray(page.labels).tolist()
    assert found.sq_distances[:, 0].max() < 1e-9
    assert (np.sort(found.ids, axis=1) == page.ids).all()
