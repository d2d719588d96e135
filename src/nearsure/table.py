"""A result as a few lines of text, as HTML and as a data frame, from one list of columns."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# Rows that are shown: with title, headings and remarks they make ten lines at most.
ROWS_SHOWN = 5
# A label may be anything; what is longer than this is cut where it is shown.
LONGEST_CELL = 40


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        In a data frame.
    entries : array of shape (n,)
        One for each row.
    write : callable
        How an entry is shown to people.
    heading : str, optional
        Shown above it; by default the name.
    """

    name: str
    entries: AnyArray
    write: Callable[[Any], str] = str
    heading: str = ""

    def cells(self, n_rows: int) -> list[str]:
        """The heading and the first entries, each in one line."""
        shown = (" ".join(self.write(entry).split()) for entry in self.entries[:n_rows])
        cut = (
            cell if len(cell) <= LONGEST_CELL else f"{cell[: LONGEST_CELL - 1]}…" for cell in shown
        )
        return [self.heading or self.name, *cut]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length beneath a title.

    Examples
    --------
    >>> labels = Column("label", np.array(["cat", "dog", "dog"]))
    >>> p = Column("confidence", np.array([0.5, 0.9, 0.75]), "{:.2f}".format)
    >>> print(Table("3 predictions", (labels, p)).to_text(n_rows=2))
    3 predictions
      label  confidence
      cat    0.50
      dog    0.90
      ... 1 more
    """

    title: str
    columns: tuple[Column, ...]
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0].entries)

    def to_text(self, n_rows: int = ROWS_SHOWN, *, count_rest: bool = True) -> str:
        """The title, the first rows beneath headings unless there are none, and the remarks."""
        lines = [self.title]
        if n_rows and len(self):
            cells = [column.cells(n_rows) for column in self.columns]
            widths = [max(map(len, column)) for column in cells]
            lines += (
                "  " + "  ".join(map(str.ljust, row, widths)).rstrip()
                for row in zip(*cells, strict=True)
            )
        if count_rest and len(self) > n_rows:
            lines.append(f"  ... {len(self) - n_rows:,} more")
        return "\n".join([*lines, *self.remarks])

    def to_html(self, n_rows: int = ROWS_SHOWN) -> str:
        """The same for a notebook; whatever a label holds, it is shown as text."""
        rows = zip(*(column.cells(n_rows) for column in self.columns), strict=True)
        headings = "".join(f"<th>{escape(cell)}</th>" for cell in next(rows))
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        rest = [f"... {len(self) - n_rows:,} more"] if len(self) > n_rows else []
        below = "".join(f"<p>{escape(text)}</p>" for text in [*rest, *self.remarks])
        table = f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p>{escape(self.title)}</p>{table if len(self) else ''}{below}</div>"

    def to_frame(self) -> "pd.DataFrame":
        """All rows as a data frame of pandas."""
        return make_frame({column.name: column.entries for column in self.columns})


def make_frame(columns: dict[str, Any]) -> "pd.DataFrame":
    """A data frame of pandas, which is imported only here.

    Raises
    ------
    MissingExtraError
        If pandas is not installed; nothing else here needs it, so that no extra brings it.
    """
    try:
        import pandas as pd  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "to_frame needs pandas, which is not installed: pip install pandas"
        ) from error
    return pd.DataFrame(columns)


def html_paragraphs(text: str) -> str:
    """Lines of text as paragraphs of a notebook."""
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())


def plain(entry: object) -> object:
    """A number or string of numpy as Python's; anything else as it is."""
    return entry.item() if isinstance(entry, np.number | np.bool_ | np.str_) else entry
