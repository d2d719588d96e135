"""What is written of a fit can be read again, whatever happened in between."""

import json
from pathlib import Path
from typing import Any

import pytest

from nearsure.service.answers import ThresholdInUse, make_fixed_threshold
from nearsure.service.store import (
    MODEL,
    NUMBER,
    THRESHOLD,
    FileStore,
    Fit,
    keep,
    read_kept,
)

BY_HAND = make_fixed_threshold(0.77, 4)


class Model:
    """Of a classifier, only its bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def to_bytes(self) -> bytes:
        return self.content


def fit_of(number: int, content: bytes, last_change: int | None = None) -> Fit:
    model: Any = Model(content)
    threshold = ThresholdInUse(0.1 * number, 0.9, f"of {number}", number)
    return Fit(model, number, threshold, last_change=last_change)


def test_a_fit_comes_back() -> None:
    notes: dict[str, bytes] = {}
    assert read_kept(notes, None) is None
    keep(fit_of(4, b"four", 17), notes)
    kept = read_kept(notes, None)
    assert kept is not None
    assert (kept.model, kept.number, kept.last_change) == (b"four", 4, 17)
    assert kept.threshold == fit_of(4, b"four").threshold


class Killed(BaseException):
    """The end of a process."""


class CutOff(FileStore):
    """Files, of which only so many are written."""

    left = 0

    def update(self, notes: Any, /) -> None:  # noqa: ANN401
        for name, content in notes.items():
            if not self.left:
                raise Killed
            self.left -= 1
            super().update({name: content})


@pytest.mark.parametrize(
    ("n_written", "content", "number"),
    [(0, b"four", 4), (1, b"four", 6), (2, b"five", 5), (3, b"five", 5)],
)
def test_a_kill_between_files_does_no_harm(
    tmp_path: Path, n_written: int, content: bytes, number: int
) -> None:
    notes = CutOff(tmp_path / "fit")
    notes.left = 3
    keep(fit_of(4, b"four"), notes)
    notes.left = n_written
    if n_written < 3:
        with pytest.raises(Killed):
            keep(fit_of(5, b"five"), notes)
    else:
        keep(fit_of(5, b"five"), notes)
    for _ in range(2):
        kept = read_kept(FileStore(tmp_path / "fit"), None)
        assert kept is not None
        # A number that was given to one fit is never that of another.
        assert (kept.model, kept.number) == (content, number)
        # One of another fit is chosen anew when it starts.
        assert kept.threshold is not None
        assert kept.threshold.model == (5 if n_written == 3 else 4)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}x",
        b"[1]",
        b"null",
        b"7",
        b"\xff",
        b'{"x": 1}',
        b'{"threshold": "x", "number": "x"}',
        b'{"number": 1e400, "threshold": 1e400}',
        b"[" * 100_000,
    ],
)
def test_damaged_notes_are_given_up(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    notes: dict[str, bytes] = {}
    keep(fit_of(4, b"four"), notes)
    notes.update({THRESHOLD: damaged})
    kept = read_kept(notes, None)
    assert kept is not None
    assert (kept.number, kept.threshold) == (4, None)
    assert "threshold that was kept cannot be read" in caplog.text
    notes.update({THRESHOLD: BY_HAND.to_bytes(), NUMBER: damaged})
    for _ in range(2):
        kept = read_kept(notes, None)
        assert kept is not None
        assert (kept.number, kept.threshold) == (5, BY_HAND)
    assert json.loads(notes.get(NUMBER) or b"")["number"] == 5


@pytest.mark.parametrize("number", [2.0, -0.1, float("nan"), "0.5", [1]])
def test_what_is_no_threshold_is_not_read(number: object) -> None:
    for name, value in (
        ("threshold", number),
        ("precision", number),
        ("sentence", 1),
        ("model", "x"),
    ):
        with pytest.raises(ValueError, match="no threshold"):
            ThresholdInUse.from_bytes(json.dumps({name: value}).encode())


def test_a_fit_from_elsewhere_is_numbered_for_good() -> None:
    class Changes:
        n_changes = 30

        def last(self) -> int:
            return self.n_changes

    changes: Any = Changes()
    notes: dict[str, bytes] = {}
    keep(fit_of(4, b"four", 17), notes)
    notes.update({MODEL: b"another"})
    kept = read_kept(notes, changes)
    assert kept is not None
    assert (kept.number, kept.last_change) == (5, None)
    changes.n_changes = 40
    kept = read_kept(notes, changes)
    assert kept is not None
    assert (kept.number, kept.last_change) == (5, 30)
