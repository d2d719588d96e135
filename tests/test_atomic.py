"""A file is there whole, or as it was before."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nearsure.atomic import (
    Draft,
    atomic_write,
    remove_dead_drafts,
    remove_drafts,
    resolved,
    write_text_whole,
)

# Writes a draft, says so, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from nearsure.atomic import Draft
for name in sys.argv[1:]:
    draft = Draft.of(Path(name), keep_suffix=True)
    if name.endswith(".sqlite"):
        draft.path.mkdir()
        (draft.path / "part").touch()
    else:
        draft.path.touch()
print("written", flush=True)
time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    with atomic_write(path) as draft:
        draft.write_text("half")
        assert not path.exists()
        assert draft.parent == path.parent  # on the same file system
        draft.write_text("whole")
    assert path.read_text() == "whole"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("old", [None, "old"])
def test_an_exception_leaves_neither_file_nor_draft(tmp_path: Path, old: str | None) -> None:
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_text(old)

    def interrupted() -> None:
        with atomic_write(path) as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == ([] if old is None else ["a.txt"])
    assert old is None or path.read_text() == old


def test_a_draft_ends_like_its_file_only_if_asked_to(tmp_path: Path) -> None:
    for keep, suffix in ((True, ".npz"), (False, ".nearsure-draft")):
        with atomic_write(tmp_path / "a.npz", keep_suffix=keep) as draft:
            draft.touch()
            assert draft.suffix == suffix


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    for keep in (True, False):
        with atomic_write(tmp_path / "deep" / "a.npz", keep_suffix=keep) as draft:
            draft.touch()
        draft.touch()
    remove_drafts(tmp_path)
    assert names(tmp_path) == ["a.npz"]


def test_text_is_utf_8(tmp_path: Path) -> None:
    write_text_whole(tmp_path / "a.txt", "é")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa9"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "deep" / "a.txt")
    write_text_whole(tmp_path / "link.txt", "whole")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "deep" / "a.txt").read_text() == "whole"


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text_whole(pipe, "whole")
        assert os.read(reader, 100) == b"whole"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_errors_name_the_file_and_not_its_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    def fill_the_disk(*, with_name: bool) -> None:
        with atomic_write(path) as draft:
            name = (str(draft),) if with_name else ()
            raise OSError(errno.ENOSPC, "No space left on device", *name)

    for with_name in (True, False):
        with pytest.raises(OSError, match="No space left") as caught:
            fill_the_disk(with_name=with_name)
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_only_drafts_of_processes_that_are_gone_are_removed(
    tmp_path: Path, end: signal.Signals
) -> None:
    (tmp_path / ".hidden").touch()
    command = [sys.executable, "-c", WRITER, "a.npz", "b.sqlite"]
    with (
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as running,  # noqa: S603
        atomic_write(tmp_path / "own.txt") as own,
    ):
        own.write_text("whole")
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"written\n"
            before = names(tmp_path)
            assert len(before) == 7  # a draft and a lock each
            remove_dead_drafts(tmp_path)
            assert names(tmp_path) == before
        finally:
            running.send_signal(end)
            running.wait()
        remove_dead_drafts(tmp_path)
        assert names(tmp_path) == sorted([".hidden", own.name, f"{own.name}-lock"])
    assert names(tmp_path) == [".hidden", "own.txt"]
    assert not list(tmp_path.glob(".b*"))


def test_a_lock_that_is_taken_for_one_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes drafts may come between making a lock and holding it."""
    flock, tries = fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        tries.append(descriptor)
        if len(tries) == 1:
            monkeypatch.setattr(fcntl, "flock", flock)
            remove_dead_drafts(tmp_path)
            monkeypatch.setattr(fcntl, "flock", late)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    draft = Draft.of(tmp_path / "a.txt")
    draft.path.touch()
    monkeypatch.undo()
    remove_dead_drafts(tmp_path)
    assert draft.path.exists()
    draft.commit()
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_came_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    if not links:

        def link(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
    path = tmp_path / "a.txt"

    def write(text: str, *, meanwhile: str | None = None) -> None:
        with atomic_write(path, replace=False) as draft:
            draft.write_text(text)
            if meanwhile is not None:
                path.write_text(meanwhile)

    with pytest.raises(FileExistsError) as caught:
        write("late", meanwhile="first")
    assert caught.value.filename == str(path)
    assert path.read_text() == "first"
    path.unlink()
    write("alone")
    assert path.read_text() == "alone"
    assert names(tmp_path) == ["a.txt"]


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path in (tmp_path / "a", tmp_path / "a" / "c.txt"):
        with pytest.raises(OSError, match="symbolic links") as caught:
            resolved(path)
        assert caught.value.errno == errno.ELOOP
    assert resolved(tmp_path / "missing" / ".." / "c") == tmp_path / "c"


def test_a_folder_that_may_not_be_written() -> None:
    path = Path("/sys/a.txt")
    with pytest.raises(OSError, match=r"a\.txt") as caught:
        write_text_whole(path, "whole")
    assert caught.value.filename == str(path)
