"""What a command prints and writes: sentences, progress, tables, JSON, records and files."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import typer

from nearsure.atomic import remove_dead_drafts, resolved
from nearsure.errors import ConfigError, NearsureError
from nearsure.progress import watching

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

Advance = Callable[[int], None]
Format = Literal["csv", "jsonl", "json", "parquet"]
RECORD_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
# A scheme with a path or a user name; also as a Path, which keeps one slash only.
ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*:(/|.*@)|(postgres|postgresql|milvus|qdrant|chroma|lance):", re.IGNORECASE
)
# Options of engines whose values are secret.
SECRET = re.compile("password|passwd|token|secret|key", re.IGNORECASE)


# Of one command, as its option --quiet says.
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def set_quiet(quiet: bool) -> None:  # noqa: FBT001 - what an option calls
    """Leave out bars and notices from now on, or not; warnings and errors stay."""
    _quiet.set(quiet)


def tell(sentence: str) -> None:
    """Write a sentence to standard error."""
    sys.stderr.write(f"nearsure: {sentence}\n")


def notice(sentence: str) -> None:
    """Write a sentence that --quiet leaves out."""
    if not _quiet.get():
        tell(sentence)


def print_written(*files: Path) -> None:
    """Print the names of files that were written, unless --quiet."""
    for path in () if _quiet.get() else files:
        typer.echo(f"wrote {path}")


def _draws_bars() -> bool:
    return sys.stderr.isatty() and not _quiet.get()


@contextmanager
def progress(work: str, total: int | None, *, part: str | None = "encoding") -> Iterator[Advance]:
    """Show a bar on standard error, if that is a terminal; yields the function that advances it.

    Parameters
    ----------
    work : str
        What is being done.
    total : int or None
        How many rows there are; None if that is not known.
    part : str or None
        The part of the work that has a bar of its own while it goes on; None for every part.
    """
    if not _draws_bars():
        yield lambda _: None
        return
    with _bar() as shown:
        whole = shown.add_task(work, total=total)
        own = shown.add_task("", total=None, visible=False)

        def show(name: str, done: int, size: int) -> None:
            if part not in (None, name):
                return
            if done == 0:
                shown.reset(own)
            title = name if name == work else f"{work}: {name}"
            shown.update(own, description=title, completed=done, total=size, visible=done < size)
            shown.update(whole, visible=done == size)

        with watching(show):
            yield lambda rows: shown.advance(whole, rows)


@contextmanager
def spinner(work: str) -> Iterator[None]:
    """Show that work goes on, and its parts as bars, as `progress` does."""
    with progress(work, None, part=None):
        yield


def _bar() -> "Progress":
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Count(bars.MofNCompleteColumn):
        def render(self, task: bars.Task) -> Text:
            return Text() if task.total is None else super().render(task)

    class TimeLeft(bars.TimeRemainingColumn):
        def render(self, task: bars.Task) -> Text:
            return Text() if task.time_remaining is None else super().render(task).append(" left")

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), Count(), TimeLeft())
    return bars.Progress(*columns, console=Console(stderr=True), transient=True)


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """Print names and values."""
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    _show(title, table, list(facts.items()))


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows beneath a header, if there are any; None is shown as a dash."""
    from rich.table import Table

    table = Table()
    for name in header:
        table.add_column(mask_controls(name), overflow="fold")
    _show(title, table, rows)


def show_records(title: str, columns: Mapping[str, Sequence[Any]], n_rows: int) -> None:
    """Print the first rows of records as a table."""
    rows = list(zip(*columns.values(), strict=True))[:n_rows]
    show_table(title, list(columns), [[_format_cell(value) for value in row] for row in rows])


def mask_controls(text: str) -> str:
    r"""Replace what could move the cursor or change colours, whatever a label holds.

    Examples
    --------
    >>> mask_controls("red\x1b[31m owl")
    'red?[31m owl'
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def _show(title: str, table: "Table", rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to the command, as for everything else that is written."""
            raise BrokenPipeError

    output = Output(markup=False, highlight=False, emoji=False)
    output.print(title, style="bold")
    for row in rows:
        table.add_row(*("-" if cell is None else mask_controls(str(cell)) for cell in row))
    if rows:
        output.print(table)


def _format_cell(value: object) -> str:
    plain = cast("Any", value)
    if hasattr(plain, "item"):
        plain = plain.item()
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, float):
        return f"{plain:.4f}"
    if isinstance(plain, list):
        return "\n".join(map(_format_entry, plain))
    return "-" if plain is None else str(plain)


def _format_entry(entry: object) -> str:
    """A class with its probability, or a neighbour, on one line."""
    if not isinstance(entry, dict):
        return json.dumps(entry)
    return "  ".join(_format_cell(value) for value in entry.values())


def show_json(document: object) -> None:
    """Print a document of dicts, lists, strings, numbers and None."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def choose_format(
    output: Path | None, asked: Format | None, *, as_json: bool = False, guard_formulas: bool
) -> Format | None:
    """The format of records that options name; None is a table of the first rows."""
    if as_json and (output is not None or asked not in {None, "json"}):
        raise ConfigError("--json writes to standard output: leave out --output and --format.")
    chosen = "json" if as_json else asked
    if output is not None:
        check_writable("--output", output)
        chosen = chosen or RECORD_SUFFIXES.get(output.suffix.lower())
        if chosen is None:
            raise ConfigError(
                "--output must end in .csv, .jsonl, .json or .parquet, or --format must say "
                f"what it shall be. Got {output.name} instead."
            )
    elif not sys.stdout.isatty():
        chosen = chosen or "csv"
    if guard_formulas and chosen != "csv":
        raise ConfigError(
            "--guard-formulas applies only to csv: give -o FILE.csv or --format csv, or omit it."
        )
    return chosen


def write_records(
    parts: Iterable[Mapping[str, Sequence[Any]]],
    output: Path | None,
    chosen: Format,
    *,
    guard_formulas: bool,
    quiet: bool = False,
) -> None:
    """Write records to a file or to standard output.

    Parameters
    ----------
    parts : iterable of mappings
        Columns by name, of some rows at a time.
    output : path or None
        None is standard output.
    chosen : {"csv", "jsonl", "json", "parquet"}
        The format.
    guard_formulas : bool
        Whether texts in csv that a spreadsheet would compute are guarded against that.
    quiet : bool
        Whether a file that was written is not named.
    """
    from nearsure.embedding_files import open_records

    with open_records(output, chosen, guard_formulas=guard_formulas) as writer:
        for columns in parts:
            writer.write(columns)
            if not writer.is_wanted:
                return
    if output is not None and not quiet:
        print_written(output)


def check_files(
    inputs: Mapping[str, str | Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """Raise an error if an output cannot be written, or is an input or another output.

    Drafts that killed commands left beside an output are removed.

    Parameters
    ----------
    inputs, outputs : mapping of str to path
        By the name of the option; None and "-" (a standard stream) are not files.
    """
    taken: dict[Path, str] = {}
    for option, given in inputs.items():
        if given is not None and str(given) != "-":
            refuse_address(option, given)
            taken.setdefault(resolved(Path(str(given).removeprefix("sqlite:"))), option)
    for option, output in outputs.items():
        if output is None or str(output) == "-":
            continue
        path = Path(str(output).removeprefix("sqlite:"))
        check_writable(option, path)
        if path.exists() and not path.is_file():
            # Writing to a device destroys nothing.
            continue
        other = taken.setdefault(resolved(path), option)
        if other != option:
            raise ConfigError(
                f"{option} must be another file than that of {other}, which it would destroy. "
                f"Got {output} for both."
            )
        remove_dead_drafts(resolved(path).parent)


def refuse_address(option: str, given: str | Path) -> None:
    """Raise an error, which does not quote it, if an engine's address stands for a file."""
    text = str(given)
    is_sqlite = text.startswith("sqlite:") and "@" not in text
    if ADDRESS.match(text) and not is_sqlite and not Path(text).exists():
        raise ConfigError(
            f"{option} must be a file. Got an address, which is not repeated here, as it may hold "
            "a password. Engines are written postgresql://... or https://..., and --gallery says "
            "where the points of a model are."
        )


def check_suffix(option: str, path: Path | None, allowed: Sequence[str]) -> None:
    """Raise an error unless a file has an allowed suffix; "-" is a standard stream."""
    if path is not None and str(path) != "-" and path.suffix.lower() not in allowed:
        raise ConfigError(f"{option} must end in {' or '.join(allowed)}. Got {path.name} instead.")


def check_writable(option: str, path: Path) -> None:
    """Raise an error if a file can certainly not be written; missing folders are made later."""
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder: name a file in it.")
    in_place = path.exists() and not path.is_file()
    there = path if in_place else resolved(path).parent
    while not there.exists() and there != there.parent:
        there = there.parent
    if not in_place and not there.is_dir():
        raise ConfigError(f"{option}: {path} cannot be written: {there} is not a folder.")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{option}: {path} cannot be written: this user may not write there.")


@contextmanager
def translate_errors(option: str, path: Path) -> Iterator[None]:
    """Turn the system's errors in the block into a sentence that names the option."""
    try:
        yield
    except NearsureError:
        # Some of these are OSErrors, too, with sentences already.
        raise
    except OSError as error:
        raise ConfigError(
            f"{option}: {path} cannot be written: {error.strerror or error}."
        ) from error


def command_line() -> str:
    """The command as it was typed, without the folders of this machine and without passwords."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        name, _, secret = value.partition("=")
        public = f"{name}=..." if secret and SECRET.search(name) else _redact(value)
        words.append(f"{option}{equals}{public}")
    return shlex.join(["nearsure", *words])


def _redact(value: str) -> str:
    scheme, slashes, _ = value.partition("://")
    if slashes:
        return f"{scheme}://..."
    if ADDRESS.match(value):
        return f"{value.partition(':')[0]}:..."
    path = Path(value)
    return path.name if path.is_absolute() or ".." in path.parts else value
