"""Milvus for tests: files of milvus-lite, and a standalone server where one is installed.

The server is the PyPI package ``milvus``, in an environment of its own (``make milvus-server``),
which the variable ``NEARSURE_MILVUS_SERVER`` may name instead.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = Path(
    os.environ.get("NEARSURE_MILVUS_SERVER", Path(__file__).parents[2] / ".venv-milvus")
)
PROGRAMS = ENVIRONMENT / "nearsure-server"
ANSWERING_SECONDS, STOPPING_SECONDS = 120, 30
RUNNER = Path(__file__).with_name("milvus_runner.py")


class StandaloneServer:
    """A Milvus server with data and ports of its own, which may be killed and started again."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self._runner = subprocess.Popen(  # noqa: S603
            [
                ENVIRONMENT / "bin" / "python",
                RUNNER,
                folder,
                PROGRAMS,
                json.dumps(settings or {}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.uri = f"http://127.0.0.1:{self._answer()}"
        except BaseException:
            self.stop()
            raise

    def unpack_and_start(self) -> None:
        """The programs are unpacked at the first start: one worker at a time."""
        with PROGRAMS.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.start()

    def start(self) -> None:
        self._order("start")

    def kill(self) -> None:
        """As if the power went."""
        self._order("kill")

    def stop(self) -> None:
        """For good."""
        if self._runner.stdin and self._runner.stdout:
            try:
                self._runner.stdin.close()
                self._runner.wait(timeout=STOPPING_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                # The runner leads a group of its own, with the server in it.
                with suppress(ProcessLookupError):
                    os.killpg(self._runner.pid, signal.SIGKILL)
                self._runner.wait()
            self._runner.stdout.close()

    def _order(self, order: str) -> None:
        assert self._runner.stdin is not None
        self._runner.stdin.write(f"{order}\n")
        self._runner.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        """One line, or an error once the time is up. The runner writes lines as a whole."""
        stdout = self._runner.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], ANSWERING_SECONDS)[0]:
            raise TimeoutError(f"The Milvus server said nothing for {ANSWERING_SECONDS} s.")
        return stdout.readline().strip()


@contextmanager
def standalone_server(
    folder: Path, settings: dict[str, Any] | None = None
) -> Iterator[StandaloneServer]:
    """Run a server, or skip the test if none is installed."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        pytest.skip(f"no Milvus server in {ENVIRONMENT.name}: make milvus-server")
    server = StandaloneServer(folder, settings)
    try:
        server.unpack_and_start()
        yield server
    finally:
        server.stop()
