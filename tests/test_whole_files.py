"""A file is there whole, or as it was before."""

import errno
import os
from pathlib import Path

import pytest

from nearsure.whole_files import remove_drafts, write_text_whole, written_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    with written_whole(path) as draft:
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
        with written_whole(path) as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == ([] if old is None else ["a.txt"])
    assert old is None or path.read_text() == old


def test_a_draft_ends_like_its_file_only_if_asked_to(tmp_path: Path) -> None:
    for keep, suffix in ((True, ".npz"), (False, ".nearsure-draft")):
        with written_whole(tmp_path / "a.npz", keep_suffix=keep) as draft:
            draft.touch()
            assert draft.suffix == suffix


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    for keep in (True, False):
        with written_whole(tmp_path / "deep" / "a.npz", keep_suffix=keep) as draft:
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
        with written_whole(path) as draft:
            name = (str(draft),) if with_name else ()
            raise OSError(errno.ENOSPC, "No space left on device", *name)

    for with_name in (True, False):
        with pytest.raises(OSError, match="No space left") as caught:
            fill_the_disk(with_name=with_name)
        assert caught.value.filename == str(path)
