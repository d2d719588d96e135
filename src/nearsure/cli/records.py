"""Records of a command: to a file, to a pipe, or the first ones as a table on a terminal."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from nearsure.cli.checked_files import check_writable
from nearsure.cli.showing import show_table
from nearsure.cli.typed_command import say_files
from nearsure.embedding_files import open_records
from nearsure.errors import ConfigError

Format = Literal["csv", "jsonl", "json", "parquet"]
Columns = Mapping[str, Sequence[Any]]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


@dataclass(frozen=True)
class Destination:
    """Where records go.

    Parameters
    ----------
    path : path or None
        None is standard output.
    format : str or None
        None is a table of the first `rows`.
    guard_formulas : bool
        Whether texts in csv that a spreadsheet would compute are guarded against that.
    """

    path: Path | None
    format: Format | None
    rows: int
    guard_formulas: bool = False

    @classmethod
    def chosen(
        cls,
        output: Path | None,
        output_format: Format | None,
        *,
        as_json: bool,
        rows: int,
        guard_formulas: bool = False,
    ) -> Self:
        """What options stand for."""
        own = cls._chosen(output, output_format, as_json=as_json, rows=rows)
        if guard_formulas and own.format != "csv":
            raise ConfigError(
                "--guard-formulas is of csv: give -o FILE.csv or --format csv, or leave it out."
            )
        return replace(own, guard_formulas=guard_formulas)

    @classmethod
    def _chosen(
        cls, output: Path | None, output_format: Format | None, *, as_json: bool, rows: int
    ) -> Self:
        if as_json and (output is not None or output_format not in {None, "json"}):
            raise ConfigError("--json is of standard output: leave out --output and --format.")
        if output is not None:
            check_writable("--output", output)
            named = SUFFIXES.get(output.suffix.lower())
            if output_format is None and named is None:
                raise ConfigError(
                    "--output must end in .csv, .jsonl, .json or .parquet, or --format must say "
                    f"what it shall be. Got {output.name} instead."
                )
            return cls(output, output_format or named, rows)
        if as_json:
            return cls(None, "json", rows)
        return cls(None, output_format or (None if sys.stdout.isatty() else "csv"), rows)

    @property
    def is_table(self) -> bool:
        """Whether only the first rows are wanted."""
        return self.format is None

    def put(self, title: str, parts: Iterable[Columns], *, say: bool = True) -> None:
        """Write records, columns of some rows at a time.

        Parameters
        ----------
        title : str
            Of a table.
        parts : iterable of mappings
            Columns by name.
        say : bool
            Whether a file that was written is named.
        """
        if self.format is None:
            _show_first(title, parts, self.rows)
            return
        with open_records(self.path, self.format, guard_formulas=self.guard_formulas) as writer:
            for columns in parts:
                writer.write(columns)
                if not writer.is_wanted:
                    return
        if self.path is not None and say:
            say_files([self.path])


def _show_first(title: str, parts: Iterable[Columns], n_rows: int) -> None:
    header: list[str] = []
    rows: list[list[str]] = []
    for columns in parts:
        header = list(columns)
        rows += [
            [_cell(value) for value in values] for values in zip(*columns.values(), strict=True)
        ]
        if len(rows) >= n_rows:
            break
    show_table(title, header, rows[:n_rows])


def _cell(value: object) -> str:
    plain = cast("Any", value)
    if hasattr(plain, "item"):
        plain = plain.item()
    if plain is None:
        return "-"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, float):
        return f"{plain:.4f}"
    if isinstance(plain, list):
        return "\n".join(_entry(entry) for entry in plain)
    return str(plain)


def _entry(entry: object) -> str:
    """A class with its probability, or a neighbour, on one line."""
    if not isinstance(entry, dict):
        return json.dumps(entry)
    return "  ".join(_cell(value) for value in entry.values())
