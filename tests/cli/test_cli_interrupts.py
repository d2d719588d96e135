"""Ctrl-C and closed pipes, in processes of their own: nothing is left half-written."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Screen, fitted_model, jsonl, points, succeeded, write_npz

from nearsure.cli import main

PATIENCE = 60.0
# Whoever runs the tests in the background may ignore Ctrl-C, and processes inherit that.
RUN = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("nearsure", run_name="__main__", alter_sys=True)
"""


def started(folder: Path, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, *map(str, words)]
    return subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    model = fitted_model(tmp_path).rename(tmp_path / "m")
    folders = tmp_path / "fit", tmp_path / "predict"
    for folder in folders:
        folder.mkdir()
    vectors, labels = points(9000)
    lines = jsonl(vectors, labels.tolist())
    # Both at once: most of the time is that of starting.
    with (
        started(folders[0], "fit", "-", "-o", "new.sqlite") as fitting,
        started(folders[1], "predict", "-", "-m", model, "-o", "new.csv") as predicting,
    ):
        try:
            for folder, running in zip(folders, (fitting, predicting), strict=True):
                interrupt(folder, running, lines)
        finally:
            fitting.kill()
            predicting.kill()


def interrupt(folder: Path, running: subprocess.Popen[bytes], lines: bytes) -> None:
    assert running.stdin is not None
    # More than a chunk, and the pipe stays open: the command has begun to write, and waits.
    running.stdin.write(lines)
    running.stdin.flush()
    wait_for(lambda: bool(names(folder)) or running.poll() is not None)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=PATIENCE)[1].decode()
    assert running.returncode == 130, said
    assert said == "nearsure: Interrupted; no partial files were left.\n"
    assert names(folder) == set()


def test_what_killed_commands_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """But never what another one is writing."""
    folder = tmp_path / "out"
    folder.mkdir()
    model = fitted_model(tmp_path)
    vectors, labels = points(9000)
    queries = write_npz(tmp_path / "q.npz", *points(5))
    with (
        started(folder, "fit", "-", "-o", "ended.sqlite") as ended,
        started(folder, "fit", "-", "-o", "killed.sqlite") as killed,
        started(folder, "predict", "-", "-m", model, "-o", "running.csv") as running,
    ):
        try:
            for process in (ended, killed, running):
                assert process.stdin is not None
                process.stdin.write(jsonl(vectors, labels.tolist()))
                process.stdin.flush()
            drafts = {"ended", "killed", "running"}
            wait_for(lambda: drafts <= {name.split(".")[1] for name in names(folder)})
            for process, end in ((ended, signal.SIGTERM), (killed, signal.SIGKILL)):
                process.send_signal(end)
                process.wait(PATIENCE)
            for left in ("ended", "killed"):
                assert any(left in name for name in names(folder))
            succeeded("predict", queries, "-m", model, "-o", folder / "next.csv")
            assert not any("ended" in name or "killed" in name for name in names(folder))
            running.communicate(timeout=PATIENCE)
            assert running.returncode == 0
        finally:
            for process in (ended, killed, running):
                process.kill()
    assert names(folder) == {"next.csv", "running.csv"}
    assert (folder / "running.csv").read_text().count("\n") == 9001


def test_who_has_read_enough_may_go(tmp_path: Path) -> None:
    model = fitted_model(tmp_path)
    # Several times what a pipe holds.
    vectors, labels = points(2000)
    queries = write_npz(tmp_path / "q.npz", vectors, labels)
    with started(tmp_path, "predict", queries, "-m", model, "--neighbors", 5) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            assert running.stdout.readline().startswith(b"row,label,confidence,neighbors")
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()


class Closed(Screen):
    """Nobody reads it."""

    def write(self, _: str, /) -> int:
        raise BrokenPipeError


def test_a_closed_pipe_is_no_error_of_a_table_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = write_npz(tmp_path / "g.npz", *points())
    said = Screen()
    monkeypatch.setattr("sys.argv", ["nearsure", "audit", str(gallery)])
    monkeypatch.setattr("sys.stdout", Closed())
    monkeypatch.setattr("sys.stderr", said)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, said.text) == (0, "")
