"""Paths of images that a file of embeddings names, which must not reach every file there is."""

import os
from pathlib import Path

from nearsure.cli.input_files import folder_of
from nearsure.cli.saying import tell

NAMES_SHOWN = 3


class ImagePaths:
    """Where images are; what lies outside their folder is left out.

    Parameters
    ----------
    source : str
        The file that names them, or "-".
    root : path or None
        Folder that they must lie in, and that paths start from; by default that of the file.
    """

    def __init__(self, source: str, root: Path | None) -> None:
        folder = folder_of(source)
        self._root = _absolute(folder if root is None else root)
        self._starts = (folder,) if root is None else (root, folder)
        self._refused: dict[str, None] = {}

    def of(self, written: str | None) -> Path | None:
        """The path of an image; None if there is none, or it may not be read."""
        if not written:
            return None
        try:
            path = self._found(written)
        except (OSError, RuntimeError):
            # Too long, without a right to look, or a link to itself.
            path = None
        if path is None:
            self._refused[written] = None
        return path

    def tell(self) -> None:
        """Say what was left out."""
        if not self._refused:
            return
        names = ", ".join(map(repr, list(self._refused)[:NAMES_SHOWN]))
        more = ", ..." if len(self._refused) > NAMES_SHOWN else ""
        tell(
            f"left out {len(self._refused)} images that are no files below {self._root}: {names}"
            f"{more}. --images-root names the folder that images may be in."
        )

    def _found(self, written: str) -> Path | None:
        places = [_absolute(start / written) for start in self._starts]
        allowed = [path for path in places if self._is_below(path)]
        for path in allowed:
            if path.is_file():
                return path
        # What is missing is told by whoever tries to read it.
        missing = [path for path in allowed if not path.exists()]
        return missing[0] if missing else None

    def _is_below(self, path: Path) -> bool:
        # A link below the folder is its owner's wish; and so is a folder that is itself a link.
        return path.is_relative_to(self._root) or path.resolve().is_relative_to(
            self._root.resolve()
        )


def _absolute(path: Path) -> Path:
    """Without "..", unlike that of Path."""
    return Path(os.path.abspath(path))  # noqa: PTH100
