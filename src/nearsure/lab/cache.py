"""Steps of a run, cached on disk by a digest of their settings.

A stage is a folder whose name ends in a digest of its inputs: settings and the digests of the
stages before it. A file appears in it whole or not at all, so a run that is killed at any moment
finds, when it is started again, what was finished and does the rest.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from nearsure.arrays import AnyArray
from nearsure.atomic import atomic_write
from nearsure.errors import NearsureError

# Raised when the meaning of cached files changes, so that old ones are not taken for new ones.
FORMAT = 1


def digest(value: object) -> str:
    """Short name of anything that JSON can hold."""
    text = json.dumps([FORMAT, value], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class CachedStep:
    """One cached step.

    Parameters
    ----------
    root : Path
        Folder of all stages.
    name : str
        What it does.
    inputs : mapping
        All that its result depends on, in JSON's types.
    """

    root: Path
    name: str
    inputs: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Digest of the inputs, an input of the stages that follow."""
        return digest([self.name, dict(self.inputs)])

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.root / f"{self.name}-{self.key}"

    def describe(self) -> None:
        """Write down what the stage depends on, for people who look into the folder."""
        path = self.folder / "inputs.json"
        if not path.exists():
            with atomic_write(path, keep_suffix=True) as draft:
                draft.write_text(json.dumps(dict(self.inputs), indent=2, sort_keys=True) + "\n")

    def arrays(
        self, name: str, compute: Callable[[], Mapping[str, AnyArray]]
    ) -> dict[str, AnyArray]:
        """Arrays from the file `name`, which is computed if it is not there."""
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            self.describe()
            result = {key: np.ascontiguousarray(value) for key, value in compute().items()}
            with atomic_write(path, keep_suffix=True) as draft:
                save_file(result, draft)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise NearsureError(
                f"{path} is damaged ({error}). Delete it and run again; it will be made anew."
            ) from error

    def document(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A JSON document from the file `name`, which is computed if it is not there."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            self.describe()
            with atomic_write(path, keep_suffix=True) as draft:
                draft.write_text(json.dumps(compute(), indent=1) + "\n", encoding="utf-8")
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NearsureError(
                f"{path} is damaged ({error}). Delete it and run again; it will be made anew."
            ) from error
        return found

    def rows(
        self,
        name: str,
        n_rows: int,
        compute: Callable[[range], AnyArray],
        *,
        chunk: int,
        track: Callable[[list[range]], Iterator[range]] = iter,
    ) -> AnyArray:
        """A row for each of many images, computed and kept a chunk at a time.

        Parameters
        ----------
        name : str
            What the rows are.
        n_rows : int
            How many there are.
        compute : callable
            Gives the array of the rows in a range.
        chunk : int
            Rows that are computed, and lost if the process dies, at a time.
        track : callable
            Wraps the list of ranges, to show progress.
        """
        ranges = [range(i, min(i + chunk, n_rows)) for i in range(0, n_rows, chunk)]

        def chunk_of(part: range) -> AnyArray:
            file = f"{name}-{part.start:07d}"
            rows = self.arrays(file, lambda: {"rows": compute(part)})["rows"]
            if len(rows) != len(part):
                raise NearsureError(
                    f"{self.folder / file}.safetensors must hold {len(part)} rows. Got {len(rows)} "
                    "instead. Delete it and run again; it will be made anew."
                )
            return rows

        return np.concatenate([chunk_of(part) for part in track(ranges)])
