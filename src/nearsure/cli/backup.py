"""`nearsure backup` and `nearsure restore`: a gallery in one file, copied whole."""

from pathlib import Path
from typing import Annotated

import typer

from nearsure.atomic import Draft, resolved
from nearsure.cli.console import progress
from nearsure.cli.files import check_files, check_suffix, print_written, translate_errors
from nearsure.cli.load import check_free, place_gallery
from nearsure.cli.models import SQLITE_SUFFIXES, check_exists


def backup(
    gallery: Annotated[Path, typer.Argument(help="gallery.sqlite, which may be served meanwhile.")],
    output: Annotated[Path, typer.Argument(help="backup.sqlite, a gallery like any other.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a backup that is there already.")
    ] = False,
) -> None:
    """Copy an .sqlite gallery as it is at this moment, also while it is being served.

    A file that is open must not be copied in another way: what was written last is in its -wal.
    """
    _copy({"GALLERY": gallery}, {"OUTPUT": output}, replace=replace)


def restore(
    backup: Annotated[Path, typer.Argument(help="What nearsure backup wrote, or another copy.")],
    gallery: Annotated[
        Path, typer.Argument(help="gallery.sqlite, which no service may have open.")
    ],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a gallery that is there already.")
    ] = False,
) -> None:
    """Put a copy of a gallery in place, and remove what the gallery that was there left.

    A copy must not be put there in another way: the -wal of a gallery that crashed would ruin it.
    """
    _copy({"BACKUP": backup}, {"GALLERY": gallery}, replace=replace)


def _copy(source: dict[str, Path], target: dict[str, Path], *, replace: bool) -> None:
    """Copy one file, named as it was typed, to another."""
    from nearsure.engines.sqlite.engine import copy_gallery
    from nearsure.engines.sqlite.file import FileLock

    ((_, own),), ((option, output),) = source.items(), target.items()
    check_suffix(option, output, SQLITE_SUFFIXES)
    check_files(source, target)
    check_exists(own)
    place = resolved(output)
    check_free(place, replace=replace)
    with translate_errors(option, output):
        draft = Draft.of(place)
        try:
            # Whoever has it open is found out before the work is done.
            FileLock(place, str(output)).remove()
            draft.path.mkdir()
            copy = draft.path / place.name
            with progress("copying", own.stat().st_size) as advance:
                copy_gallery(resolved(own), copy, advance)
            place_gallery(copy, place, replace=replace)
        finally:
            draft.discard()
    print_written([output])
