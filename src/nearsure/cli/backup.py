"""`nearsure backup` and `nearsure restore`, and how an .sqlite gallery gets its name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nearsure.atomic import Draft, resolved
from nearsure.cli import options, outputs
from nearsure.cli.inputs import SQLITE_SUFFIXES, check_exists
from nearsure.cli.outputs import (
    check_files,
    check_suffix,
    print_written,
    progress,
    translate_errors,
)
from nearsure.errors import ConfigError

# The first bytes of every SQLite database; the application id is at byte 68.
SQLITE_HEADER = b"SQLite format 3\0"


def backup(
    gallery: Annotated[Path, Argument(help="gallery.sqlite; it may be in use by a service.")],
    output: Annotated[Path, Argument(help="backup.sqlite, an ordinary gallery.")],
    *,
    replace: Annotated[bool, Option("--replace", help="Replace an existing backup.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Copy an .sqlite gallery, even while it is being served.

    Do not copy an open gallery in any other way: its latest changes are in its -wal file.

    Example: nearsure backup birds.sqlite backups/birds.sqlite
    """
    outputs.set_quiet(quiet)
    _copy(gallery, output, names=("GALLERY", "OUTPUT"), replace=replace)


def restore(
    backup: Annotated[Path, Argument(help="A copy made by nearsure backup.")],
    gallery: Annotated[Path, Argument(help="gallery.sqlite; no service may have it open.")],
    *,
    replace: Annotated[bool, Option("--replace", help="Replace an existing gallery.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Restore a gallery from a copy, and remove leftover files of the old one.

    Do not restore a copy in any other way: a -wal file left by a crash would corrupt it.

    Example: nearsure restore backups/birds.sqlite birds.sqlite --replace
    """
    outputs.set_quiet(quiet)
    _copy(backup, gallery, names=("BACKUP", "GALLERY"), replace=replace)


def _copy(source: Path, output: Path, *, names: tuple[str, str], replace: bool) -> None:
    """Copy one file to another; `names` are those of the arguments."""
    from nearsure.engines.sqlite.engine import copy_gallery
    from nearsure.engines.sqlite.file import FileLock

    check_suffix(names[1], output, SQLITE_SUFFIXES)
    check_files({names[0]: source}, {names[1]: output})
    check_exists(source)
    place = resolved(output)
    check_free(place, replace=replace)
    with translate_errors(names[1], output), gallery_draft(place, replace=replace) as copy:
        # Fail before the work is done if another process has it open.
        FileLock(place, str(output)).remove()
        with progress("copying", source.stat().st_size) as advance:
            copy_gallery(resolved(source), copy, advance)
    print_written(output)


@contextmanager
def gallery_draft(path: Path, *, replace: bool) -> Iterator[Path]:
    """A path to make a gallery at, which is moved to `path` if the block ends without an error."""
    draft = Draft.of(path)
    made = draft.path / path.name
    try:
        draft.path.mkdir()
        yield made
        place_gallery(made, path, replace=replace)
    finally:
        draft.discard()


def place_gallery(made: Path, path: Path, *, replace: bool) -> None:
    """Move a finished gallery to its place, unless something there must not be replaced.

    Parameters
    ----------
    made : path
        The gallery, closed, perhaps with its index beside it.
    path : path
        Its place.
    replace : bool
        Whether to replace a gallery that is there, if no process has it open.
    """
    from nearsure.engines.sqlite.engine import put_in_place
    from nearsure.engines.sqlite.file import FileLock, beside
    from nearsure.engines.sqlite.index import CACHE_SUFFIX

    lock = FileLock(path, str(path))
    try:
        check_free(path, replace=replace)
        put_in_place(made, path)
        index = beside(made, CACHE_SUFFIX)
        if index.is_file():
            index.replace(beside(path, CACHE_SUFFIX))
    finally:
        lock.remove()


def check_free(path: Path, *, replace: bool) -> None:
    """Raise an error if something is there: any file, or with `replace` all but a gallery."""
    if path.exists() and not replace:
        raise ConfigError(
            f"{path} already exists, or another command has just made it. --replace replaces it."
        )
    check_replaceable(path)


def check_replaceable(path: Path) -> None:
    """Raise an error if something is there that is not a gallery, which --replace never removes."""
    from nearsure.engines.sqlite.schema import APPLICATION_ID

    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER) + 56)
        if header.startswith(SQLITE_HEADER) and header[-4:] == APPLICATION_ID.to_bytes(4, "big"):
            return
    raise ConfigError(f"--replace replaces galleries only, and {path} is none: move it away.")
