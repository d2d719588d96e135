"""What users see, compared with files in `tests/surface`: a change there must be meant.

``python tests/test_surface.py`` rewrites the files.
"""

import inspect
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.main import get_command
from typer.testing import CliRunner

from nearsure import NEDClassifier
from nearsure.cli.app import app
from nearsure.engines.sqlite import SqliteEngine
from nearsure.model_file import read_model
from nearsure.report import gallery_report, report_json
from nearsure.service import ServiceSettings, create_app

STORED = Path(__file__).parent / "surface"
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"rule": "ned"},
    {"engine": "hnsw", "unknown_share": 0.1},
    {"head": "means"},
    {"head": "logistic"},
)
PACKAGES: tuple[str, ...] = ("audit", "batch", "calibration", "decisions", "displays", "drift")
PACKAGES += ("embedding_files", "encoders", "engines", "forms", "metrics", "pairs", "report")
PACKAGES += ("robustness", "service", "unknowns")


def command_help() -> str:
    """--help of every command."""
    names = sorted(get_command(app).commands)  # type: ignore[attr-defined]
    shown = [
        CliRunner().invoke(app, [*name, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
        for name in [[], *([name] for name in names)]
    ]
    return "\n".join(line.rstrip() for text in shown for line in text.splitlines())


def openapi_document() -> str:
    """What the service promises."""
    document = create_app(ServiceSettings("given")).openapi()
    return json.dumps(document, indent=1, sort_keys=True)


def public_names() -> str:
    """Every name of an `__all__`, with its signature and those of its public methods."""
    lines = []
    for name in ("nearsure", *(f"nearsure.{package}" for package in PACKAGES)):
        module = import_module(name)
        for own in sorted(module.__all__):
            lines += [f"{name}.{own}{text}" for text in _described(module, own)]
    return "\n".join(lines)


def _described(module: ModuleType, name: str) -> list[str]:
    value = getattr(module, name)
    if not callable(value):
        return [f": {type(value).__name__}"]
    lines = [_signature(value)]
    if inspect.isclass(value):
        for own, member in sorted(inspect.getmembers(value)):
            if own.startswith("_"):
                continue
            if isinstance(inspect.getattr_static(value, own), property):
                lines.append(f".{own}: property")
            elif callable(member):
                lines.append(f".{own}{_signature(member)}")
    return lines


def _signature(value: Callable[..., Any]) -> str:
    """Parameters and defaults; types may be written in many ways."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # some of C
        return "(...)"
    plain = [own.replace(annotation=own.empty) for own in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def model_file() -> str:
    """Names, kinds and shapes of what a model file holds."""
    Z, y = load_digits(return_X_y=True)
    lines = []
    for settings in MODELS:
        classifier = NEDClassifier(**settings).fit(Z[:300], y[:300].astype(str))
        with tempfile.TemporaryDirectory() as folder:
            classifier.save(Path(folder) / "model")
            manifest, arrays = read_model(Path(folder) / "model")
        lines += [f"{settings}", *_shape_of(manifest, "manifest")]
        lines += [f"{name}: {array.dtype} {array.shape}" for name, array in sorted(arrays.items())]
    return re.sub(r"(faiss_\w+: uint8) \(\d+,\)", r"\1", "\n".join(lines))


def _shape_of(document: object, name: str) -> list[str]:
    """A line for each entry of a document, without its numbers."""
    if isinstance(document, dict):
        return [line for key in document for line in _shape_of(document[key], f"{name}.{key}")]
    if isinstance(document, list):
        return [f"{name}: list", *(_shape_of(document[0], f"{name}[0]") if document else [])]
    return [f"{name}: {type(document).__name__}"]


def sqlite_schema() -> str:
    """Tables of a gallery, and how it is known as one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gallery.sqlite"
        SqliteEngine.create(path, 3).close()
        with closing(sqlite3.connect(path)) as connection:
            marks = [
                f"{name}: {connection.execute(f'PRAGMA {name}').fetchone()[0]}"
                for name in ("application_id", "user_version")
            ]
            tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOTNULL")
            return "\n".join(marks + [sql for (sql,) in tables])


def report_document() -> str:
    """Entries of a report."""
    Z, y = load_digits(return_X_y=True)
    classifier = NEDClassifier(rule="ned").fit(Z[:200], np.array(list("abcdefghij"))[y[:200]])
    document = gallery_report(classifier, title="Digits", n_resamples=20)
    return "\n".join(_shape_of(json.loads(report_json(document)), "report"))


SURFACES = {
    "commands.txt": command_help,
    "openapi.json": openapi_document,
    "names.txt": public_names,
    "model_file.txt": model_file,
    "sqlite.sql": sqlite_schema,
    "report.txt": report_document,
}


@pytest.mark.filterwarnings("ignore::nearsure.errors.FitWarning")
@pytest.mark.parametrize("name", SURFACES)
def test_the_surface_is_what_it_was(name: str) -> None:
    assert SURFACES[name]() + "\n" == (STORED / name).read_text()


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    for name, surface in SURFACES.items():
        (STORED / name).write_text(surface() + "\n")
    sys.stdout.write(f"Wrote {', '.join(SURFACES)}.\n")
