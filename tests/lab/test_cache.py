"""Stages: whole files or none, computed once, taken up where they stopped."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.errors import NearsureError
from nearsure.lab.cache import CachedStep, digest


class Counted:
    """Gives rows and remembers for which ranges."""

    def __init__(self, failing: int | None = None) -> None:
        self.asked: list[range] = []
        self.failing = failing

    def __call__(self, rows: range) -> dict[str, AnyArray]:
        self.asked.append(rows)
        if rows.start == self.failing:
            raise OSError("no more")
        return {"squares": np.array([[row, row**2] for row in rows]), "names": np.array(rows)}


def assert_same(found: Mapping[str, AnyArray], expected: Mapping[str, AnyArray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def stage(root: Path, **inputs: Any) -> CachedStep:  # noqa: ANN401
    return CachedStep(root, "work", inputs)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_arrays_are_computed_once(tmp_path: Path) -> None:
    calls = []

    def compute() -> dict[str, AnyArray]:
        calls.append(1)
        return {"a": np.arange(6).reshape(2, 3).T, "b": np.array([0.5], np.float32)}

    first = stage(tmp_path, seed=1).arrays("x", compute)
    second = stage(tmp_path, seed=1).arrays("x", compute)
    assert len(calls) == 1
    for found in (first, second):
        np.testing.assert_array_equal(found["a"], [[0, 3], [1, 4], [2, 5]])
        assert found["b"].dtype == np.float32


def test_a_document_is_computed_once_and_is_the_same_from_disk(tmp_path: Path) -> None:
    calls = []

    def compute() -> dict[str, Any]:
        calls.append(1)
        return {"a": (1, 2.5), "b": None}

    first = stage(tmp_path).document("x", compute)
    assert first == stage(tmp_path).document("x", compute) == {"a": [1, 2.5], "b": None}
    assert len(calls) == 1


def test_another_input_is_another_folder(tmp_path: Path) -> None:
    folders = {
        stage(tmp_path, seed=1, loss="triplet").folder,
        stage(tmp_path, loss="triplet", seed=1).folder,  # the order does not matter
        stage(tmp_path, seed=2, loss="triplet").folder,
        CachedStep(tmp_path, "other", {"seed": 1, "loss": "triplet"}).folder,
    }
    assert len(folders) == 3
    assert digest({"a": 1}) != digest({"a": 1.5})


def test_a_stage_says_what_it_depends_on(tmp_path: Path) -> None:
    work = stage(tmp_path, seed=1)
    work.document("x", dict)
    assert json.loads((work.folder / "inputs.json").read_text()) == {"seed": 1}


def test_rows_are_those_of_one_call(tmp_path: Path) -> None:
    compute = Counted()
    rows = stage(tmp_path).rows("x", 10, compute, chunk=4)
    assert_same(rows, Counted()(range(10)))
    assert compute.asked == [range(4), range(4, 8), range(8, 10)]


def test_rows_go_on_after_a_failure_in_the_middle(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no more"):
        stage(tmp_path).rows("x", 10, Counted(failing=4), chunk=4)
    again = Counted()
    rows = stage(tmp_path).rows("x", 10, again, chunk=4)
    assert again.asked == [range(4, 8), range(8, 10)]
    assert_same(rows, Counted()(range(10)))


@pytest.mark.parametrize(
    "read",
    [
        lambda work: work.arrays("x", lambda: {"a": np.zeros(3)}),
        lambda work: work.document("x", lambda: {"a": 1}),
    ],
)
def test_a_damaged_file_is_named_and_what_to_do(
    tmp_path: Path, read: Callable[[CachedStep], object]
) -> None:
    work = stage(tmp_path)
    read(work)
    path = next(path for path in work.folder.iterdir() if path.stem == "x")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(NearsureError, match="is damaged") as caught:
        read(work)
    assert str(path) in str(caught.value)
    assert "Delete it and run again" in str(caught.value)


def test_rows_of_another_number_than_expected_are_refused(tmp_path: Path) -> None:
    work = stage(tmp_path)
    work.rows("x", 6, Counted(), chunk=6)
    with pytest.raises(NearsureError, match=r"x-0000000.safetensors must hold 4 rows. Got 6"):
        work.rows("x", 6, Counted(), chunk=4)
