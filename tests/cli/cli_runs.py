"""Commands typed in this process, and small files to type them on."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.cli import main


@dataclass(frozen=True)
class Run:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))


class Screen(io.TextIOWrapper):
    """A stream that says whether it is a terminal."""

    def __init__(self, content: bytes = b"", *, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


def nearsure(*words: object, stdin: bytes = b"", on_terminal: bool = False) -> Run:
    """Type a command."""
    out, err = Screen(is_terminal=on_terminal), Screen(is_terminal=on_terminal)
    with (
        patch.object(sys, "argv", ["nearsure", *map(str, words)]),
        patch.object(sys, "stdin", Screen(stdin)),
        patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Run(code, out.text, err.text)


def succeeded(*words: object, stdin: bytes = b"", on_terminal: bool = False) -> Run:
    """Type a command that must end well."""
    run = nearsure(*words, stdin=stdin, on_terminal=on_terminal)
    assert run.code == 0, run.err
    return run


def refused(*words: object, stdin: bytes = b"") -> str:
    """Type a command that must end with one sentence about a mistake; gives the sentence."""
    run = nearsure(*words, stdin=stdin)
    assert run.code == 2, (run.code, run.out, run.err)
    assert run.err.startswith("nearsure: ")
    assert run.err.count("\n") == 1, run.err
    assert "Traceback" not in run.err
    return run.err


def points(n: int = 90, seed: int = 0) -> tuple[FloatArray, AnyArray]:
    """Three overlapping classes in four dimensions."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((3, 4)) * 1.5
    codes = np.arange(n) % 3
    vectors = centres[codes] + rng.standard_normal((n, 4))
    return vectors.astype(np.float32), np.array(["owl", "wren", "crow"])[codes]


def write_npz(path: Path, vectors: AnyArray, labels: AnyArray, **more: AnyArray) -> Path:
    arrays: dict[str, Any] = {"embeddings": vectors, "labels": labels, **more}
    np.savez(path, **arrays)
    return path


def jsonl(
    vectors: AnyArray, labels: Sequence[object] | None = None, ids: Sequence[object] | None = None
) -> bytes:
    """Lines of JSON."""
    lines = []
    for row, vector in enumerate(vectors.tolist()):
        line: dict[str, object] = {"vector": vector}
        if labels is not None:
            line["label"] = labels[row]
        if ids is not None:
            line["id"] = ids[row]
        lines.append(json.dumps(line))
    return ("\n".join(lines) + "\n").encode()


def fitted_model(folder: Path, *words: object) -> Path:
    """A model of 90 points, typed."""
    gallery = write_npz(folder / "gallery.npz", *points())
    succeeded("fit", gallery, "-o", folder / "model.safetensors", *words)
    return folder / "model.safetensors"
