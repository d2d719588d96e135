"""A number for each id: looked up, added, removed, changed; against a dictionary."""

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError
from nearsure.gallery import IdTable


def _ids(kind: str, numbers: AnyArray) -> AnyArray:
    return numbers if kind == "integer" else np.array([f"id-{n}" for n in numbers.tolist()])


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_agrees_with_a_dictionary_through_many_changes(kind: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(60)[:30] - 20
    table = IdTable(_ids(kind, numbers), numbers * 7)
    expected = dict(zip(_ids(kind, numbers).tolist(), (numbers * 7).tolist(), strict=True))
    for step in range(20):
        new = np.arange(100 + 3 * step, 103 + 3 * step)
        table.add(_ids(kind, new), new)
        expected |= dict(zip(_ids(kind, new).tolist(), new.tolist(), strict=True))
        gone = np.array(rng.choice(list(expected), 2, replace=False))
        table.remove(gone)
        for own in gone.tolist():
            del expected[own]
        changed = np.array(rng.choice(list(expected), 4, replace=False))
        table.put(changed, np.arange(4) + step)
        expected |= dict(zip(changed.tolist(), range(step, step + 4), strict=True))
        asked = np.array(list(expected))[rng.integers(0, len(expected), (5, 3))]
        assert table.of(asked).tolist() == [[expected[own] for own in row] for row in asked]
    assert len(table) == len(expected)
    assert table.ids.tolist() == sorted(expected)


def test_an_unknown_id_is_an_error_that_names_it() -> None:
    table = IdTable(np.array([1, 2]), np.array([0, 0]))
    with pytest.raises(InvalidInputError, match="7"):
        table.of(np.array([1, 7]))
    with pytest.raises(InvalidInputError):
        IdTable(np.empty(0, np.int64), np.empty(0, np.int64)).of(np.array([1]))


def test_values_that_somebody_holds_stay_as_they_were() -> None:
    table = IdTable(np.array([3, 7]), np.array([30, 70]))
    held = table.values
    table.put(np.array([7]), np.array([71]))
    assert held.tolist() == [30, 70]
    assert table.values.tolist() == [30, 71]
