"""A table as text, HTML and data frame: what is shown, what is cut, what is escaped."""

import re
import sys
from html import unescape

import numpy as np
import pytest

from nearsure.errors import MissingExtraError
from nearsure.table import ROWS_SHOWN, Column, Table

LABELS = np.array(["cat", "<b>dog</b>", "two\nlines", "x" * 100, "&", "emu", "fox"], object)
TABLE = Table(
    "7 predictions",
    (Column("label", LABELS), Column("p", np.linspace(0, 1, 7), "{:.2f}".format, "p <= 1")),
    ("A remark.",),
)


def test_text_has_so_many_rows_each_in_one_line() -> None:
    title, headings, *rows, rest, remark = TABLE.to_text().splitlines()
    assert (title, rest, remark) == ("7 predictions", "  ... 2 more", "A remark.")
    assert headings.split() == ["label", "p", "<=", "1"]
    assert len(rows) == ROWS_SHOWN
    assert rows[2].startswith("  two lines ")
    assert rows[3].split() == ["x" * 39 + "…", "0.50"]
    # Columns stand below each other.
    assert len({row.index(" 0.") for row in rows}) == 1


def test_text_of_all_rows_or_none_counts_no_rest() -> None:
    assert "more" not in TABLE.to_text(7)
    empty = Table("0 predictions", (Column("label", LABELS[:0]),))
    assert empty.to_text() == "0 predictions"
    assert empty.to_html() == "<div><p>0 predictions</p></div>"


def test_html_shows_labels_as_text() -> None:
    html = TABLE.to_html()
    assert "<b>" not in html
    cells = [unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", html)]
    assert cells[:4] == ["cat", "0.00", "<b>dog</b>", "0.17"]
    assert len(cells) == 2 * ROWS_SHOWN
    assert [unescape(cell) for cell in re.findall(r"<p>(.*?)</p>", html)] == [
        "7 predictions",
        "... 2 more",
        "A remark.",
    ]


def test_frame_holds_every_row_as_it_is() -> None:
    frame = TABLE.to_frame()
    assert list(frame.columns) == ["label", "p"]
    assert frame["label"].tolist() == LABELS.tolist()
    np.testing.assert_array_equal(frame["p"], np.linspace(0, 1, 7))


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"needs pandas.*: pip install pandas"):
        TABLE.to_frame()
