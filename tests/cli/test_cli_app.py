"""What is the same for every command: help, version, completion, warnings, Ctrl-C, quick starts."""

import os
import re
import subprocess
import sys
import warnings
from itertools import count
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from cli_runs import Screen, nearsure, points, refused, succeeded, write_npz

import nearsure as package
from nearsure import NEDClassifier
from nearsure.calibration import CALIBRATORS
from nearsure.cli import options
from nearsure.cli.outputs import spinner
from nearsure.errors import ManyMissesWarning, StaleFitWarning
from nearsure.forms.sharpened import SHARPENED_NAMES
from nearsure.progress import tracked
from nearsure.rules import RULE_NAMES

COMMANDS = (
    "fit",
    "predict",
    "evaluate",
    "report",
    "audit",
    "calibrate",
    "serve",
    "backup",
    "restore",
    "demo",
)
LAB = ("compare", "reproduce", "ablation", "summary", "corruptions")
# A name that is no UTF-8, as a file system may hold it.
NAME = os.fsdecode(b"\xff-owls")


def test_help_names_every_command_and_every_exit_code() -> None:
    shown = succeeded("--help").out
    for name in (*COMMANDS, *LAB):
        assert f" {name} " in shown
    codes = " ".join(shown.split("Exit codes:")[1].split())
    for code in ("0 success", "1 internal error", "2 invalid", "130 interrupted"):
        assert code in codes


@pytest.mark.parametrize("name", [*COMMANDS, *LAB])
def test_help_of_a_command_ends_with_an_example(name: str) -> None:
    shown = " ".join(succeeded(name, "--help").out.split())
    _, _, example = shown.rpartition("Example: ")
    assert f"nearsure {name}" in example
    assert "─" not in example


def test_names_that_are_typed_are_those_of_the_classifier() -> None:
    assert set(get_args(options.RuleName)) == {"auto", *RULE_NAMES, *SHARPENED_NAMES}
    assert set(get_args(options.CalibrationName)) == {"auto", *CALIBRATORS}


def test_the_version_is_that_of_the_package() -> None:
    assert succeeded("--version").out == f"nearsure {package.__version__}\n"


def test_nothing_typed_shows_what_can_be() -> None:
    run = nearsure()
    assert run.code == 2
    assert "predict" in run.out


def test_a_shell_completes_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_NEARSURE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("COMP_WORDS", "nearsure pre")
    assert nearsure().out.split() == ["predict"]
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "nearsure fit --unk")
    assert nearsure().out.split() == ["--unknown-share"]
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("COMP_WORDS", "nearsure fit --metric ")
    assert nearsure().out.split() == ["euclidean", "cosine"]


def test_completion_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "bash")
    shown = succeeded("--show-completion").out
    assert "_NEARSURE_COMPLETE=complete_bash" in shown


@pytest.mark.parametrize("command", ["", *COMMANDS, *LAB, "embed", "pairs", "recalibrate"])
def test_help_has_no_words_of_the_library_that_draws_it(command: str) -> None:
    shown = succeeded(*filter(None, [command]), "--help").out
    for internal in (
        "<bool>",
        "<str>",
        "<path>",
        "{",
        "}",
        "range",
        "9223372036854775807",
        "list[",
    ):
        assert internal not in shown


def test_quiet_leaves_out_bars_and_notices(tmp_path: Path) -> None:
    vectors, labels = points()
    gallery = write_npz(tmp_path / "g.npz", vectors, labels, ids=np.arange(90))
    words = ("fit", gallery, "-o", tmp_path / "m.safetensors", "--max-effort", 0)
    loud = succeeded(*words, on_terminal=True)
    assert "fitting 90 points" in loud.err
    assert "names its points by row number" in loud.err
    assert "wrote" in loud.out
    quiet = succeeded(*words, "--quiet", on_terminal=True)
    assert quiet.err == ""
    assert "wrote" not in quiet.out
    assert "Fitted" in quiet.out
    piped = succeeded(*words)
    assert "fitting 90 points" not in piped.err
    assert "names its points by row number" in piped.err
    # What one command was told is not for the next in the same process.
    succeeded(*words, "-q")
    assert "row number" in succeeded(*words).err


def test_bars_have_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("rich.console.monotonic", count(0, 2).__next__)
    with spinner("auditing"):
        for part in tracked("searching", range(9), 9):
            if part == 5:
                break
    assert "auditing: searching" in screen.text
    assert "5/9" in screen.text
    assert re.search(r"\d:\d\d:\d\d left", screen.text)
    # What is not known is not shown.
    assert "/?" not in screen.text


def test_warnings_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(_: list[str]) -> None:
        warnings.warn("Many points miss.", ManyMissesWarning, stacklevel=1)
        warnings.warn("The fit is old.", StaleFitWarning, stacklevel=1)

    monkeypatch.setattr("nearsure.demo.main", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        run = succeeded("demo")
    assert run.err == ("nearsure: warning: Many points miss.\nnearsure: warning: The fit is old.\n")


def test_an_internal_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("nearsure.demo.main", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        nearsure("demo")


def test_the_demonstration_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("nearsure.demo.main", asked.append)
    succeeded("demo", "-o", tmp_path)
    assert asked == [["--output", str(tmp_path)]]


@pytest.mark.parametrize(
    "error", [MemoryError(), MemoryError("Unable to allocate 9 TiB"), KeyError("a bug")]
)
def test_too_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    gallery = write_npz(tmp_path / "g.npz", *points())
    monkeypatch.setattr(NEDClassifier, "fit", fail)
    words = ["fit", gallery, "-o", tmp_path / "m.safetensors"]
    if isinstance(error, MemoryError):
        assert f"memory{f' ({error})' if str(error) else ''}." in refused(*words)
    else:
        # Other errors are bugs, and keep their traceback.
        with pytest.raises(type(error)):
            refused(*words)


def test_names_of_files_that_are_no_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_npz(folder / f"{NAME}.npz", *points())
    runs = [
        succeeded(*words)
        for words in (
            ["fit", f"{NAME}.npz", "-o", f"{NAME}.safetensors"],
            ["fit", f"{NAME}.npz", "-o", f"{NAME}.sqlite"],
            ["predict", f"{NAME}.npz", "-m", f"{NAME}.sqlite", "-o", f"{NAME}.csv"],
            ["report", "-m", f"{NAME}.safetensors", "-o", f"{NAME}.html", "--resamples", "10"],
            ["audit", "-m", f"{NAME}.sqlite", "--json"],
            ["backup", f"{NAME}.sqlite", f"{NAME}2.sqlite"],
            ["restore", f"{NAME}2.sqlite", f"{NAME}.sqlite", "--replace"],
        )
    ]
    assert [run.err for run in runs] == [""] * 7
    assert "wrote \\udcff-owls.csv" in runs[2].out
    assert runs[4].json["n_points"] == 90
    # No logs of readers are left: a backup clears them.
    assert {path.suffix for path in folder.iterdir()} == {
        *(".npz", ".safetensors", ".sqlite", ".csv", ".html")
    }


HEAVY = {
    "torch",
    "fastapi",
    "uvicorn",
    "matplotlib",
    "PIL",
    "pyarrow",
    "pandas",
    "sklearn",
    "scipy",
    "numpy",
    "faiss",
    "psycopg",
    "pymilvus",
}


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_after(
        "for words in (['--help'], ['fit', '--help'], ['--version']):\n"
        "    sys.argv = ['nearsure', *words]\n"
        "    try:\n        nearsure.cli.main()\n"
        "    except SystemExit as end:\n        assert not end.code"
    )
    assert "nearsure.cli.app" in loaded
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert not {name for name in loaded if name.startswith("nearsure.lab")}


def test_shell_completion_loads_neither_rich_nor_pydantic() -> None:
    """Which typer itself loads for help."""
    assert not {"rich", "pydantic"} & modules_after("import nearsure.cli.app")


def modules_after(program: str) -> set[str]:
    """Names of the modules that a process of its own has loaded at the end of a program."""
    listing = "sys.stderr.write('\\n'.join(sys.modules))"
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", f"import sys, nearsure.cli\n{program}\n{listing}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(ran.stderr.split("\n"))
