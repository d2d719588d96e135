"""Files that a command names are told apart before the work: no output destroys an input."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nearsure.errors import ConfigError, NearsureError
from nearsure.whole_files import remove_dead_drafts, resolved

# A scheme with a path or with somebody's name; of a Path, which has one slash only, too.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:(/|.*@)|(postgres|postgresql|milvus):", re.IGNORECASE)


def check_files(
    inputs: Mapping[str, str | Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """An error if an output cannot be written, or is an input or another output.

    What commands that were killed have left beside an output is removed.

    Parameters
    ----------
    inputs, outputs : mapping of str to path
        By the name of the option; None and "-" (a standard stream) are no files.
    """
    taken: dict[Path, str] = {}
    for option, given in inputs.items():
        path = _file(given)
        if path is None:
            continue
        refuse_address(option, given)
        taken.setdefault(resolved(path), option)
    for option, given in outputs.items():
        path = _file(given)
        if path is None:
            continue
        check_writable(option, path)
        if path.exists() and not path.is_file():
            # What is written to a device destroys nothing.
            continue
        other = taken.setdefault(resolved(path), option)
        if other != option:
            raise ConfigError(
                f"{option} must be another file than that of {other}, which it would destroy. "
                f"Got {given} for both."
            )
        remove_dead_drafts(resolved(path).parent)


def refuse_address(option: str, given: str | Path | None) -> None:
    """An error, which does not repeat it, if an engine's address stands for a file."""
    text = str(given)
    is_sqlite = text.startswith("sqlite:") and "@" not in text
    if ADDRESS.match(text) and not is_sqlite and not Path(text).exists():
        raise ConfigError(
            f"{option} must be a file. Got an address, which is not repeated here, as it may hold "
            "a password. Engines are written postgresql://... or https://..., and --gallery says "
            "where the points of a model are."
        )


def check_suffix(option: str, path: Path | None, allowed: Sequence[str]) -> None:
    """An error unless a file is named for what it shall be; "-" is none."""
    if path is not None and str(path) != "-" and path.suffix.lower() not in allowed:
        raise ConfigError(f"{option} must end in {' or '.join(allowed)}. Got {path.name} instead.")


def check_writable(option: str, path: Path) -> None:
    """An error if it is plain already that a file cannot be written; folders will be made."""
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder: name a file in it.")
    in_place = path.exists() and not path.is_file()
    there = path if in_place else resolved(path).parent
    while not there.exists() and there != there.parent:
        there = there.parent
    if not in_place and not there.is_dir():
        raise ConfigError(f"{option}: {path} cannot be written: {there} is no folder.")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{option}: {path} cannot be written: this user may not write there.")


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Errors of the system in the block, as a sentence about the option."""
    try:
        yield
    except NearsureError:
        # Some are errors of the system, too, and sentences already.
        raise
    except OSError as error:
        raise ConfigError(
            f"{option}: {path} cannot be written: {error.strerror or error}."
        ) from error


def _file(given: str | Path | None) -> Path | None:
    return None if given is None or str(given) == "-" else Path(str(given).removeprefix("sqlite:"))
