"""Real processes of the service, forked from one that has everything imported already.

Run as a script this is that process: it reads one command a line, and answers with one line.
"""

import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

LONGEST_WAIT = 30.0


class ServiceProcesses:
    """Starts services, and ends them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, **settings: object) -> int:
        """Start a service with these settings; its process id.

        `drain` is how many seconds it goes on answering after the signal to stop, `files` the soft
        and the hard limit of open files.
        """
        return int(self._asked({"start": settings}))

    def exit_code(self, process_id: int) -> int:
        """Wait for the end of a service; negative if a signal ended it."""
        return int(self._asked({"wait": process_id}))

    def kill(self, process_id: int) -> None:
        """End a service with SIGKILL."""
        os.kill(process_id, signal.SIGKILL)
        assert self.exit_code(process_id) == -signal.SIGKILL

    def _asked(self, command: dict[str, object]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextmanager
def service_processes(log: Path) -> Iterator[ServiceProcesses]:
    """Processes whose log lines go to a file; all have ended with the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )
        with process:
            try:
                yield ServiceProcesses(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(LONGEST_WAIT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def asked(
    connection: HTTPConnection, method: str, address: str, body: object = None
) -> tuple[int, Any]:
    """Status and document of an answer that came whole."""
    content = None if body is None else json.dumps(body)
    connection.request(method, address, content, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@contextmanager
def connected(port: int) -> Iterator[HTTPConnection]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=LONGEST_WAIT)) as connection:
        yield connection


def asked_once(port: int, method: str, address: str) -> tuple[int, Any]:
    """The same through a connection of its own."""
    with connected(port) as connection:
        return asked(connection, method, address)


def wait_until_ready(port: int) -> None:
    deadline = monotonic() + LONGEST_WAIT
    while True:
        try:
            status, _ = asked_once(port, "GET", "/readyz")
        except OSError:
            status = 0
        if status == 200:
            return
        assert monotonic() < deadline
        sleep(0.01)


def _serve(settings: dict[str, Any]) -> None:
    from nearsure.service import ServiceSettings, run_service  # noqa: PLC0415
    from nearsure.service import server as run  # noqa: PLC0415

    run.DRAIN_SECONDS = settings.pop("drain", run.DRAIN_SECONDS)
    if "files" in settings:
        resource.setrlimit(resource.RLIMIT_NOFILE, settings.pop("files"))
    logging.basicConfig(level=logging.INFO)
    run_service(ServiceSettings(**settings))


def _main() -> None:
    # What a service needs, before it is forked.
    import uvloop  # noqa: F401, PLC0415

    import nearsure.engines.sqlite  # noqa: PLC0415
    import nearsure.service  # noqa: F401, PLC0415

    started: set[int] = set()
    for line in sys.stdin:
        command = json.loads(line)
        if "start" in command:
            process_id = os.fork()
            if process_id == 0:
                # What others say to this process is not for its child.
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                try:
                    _serve(command["start"])
                except BaseException:
                    logging.getLogger(__name__).exception("The service failed.")
                    os._exit(1)
                os._exit(0)
            started.add(process_id)
            answer = process_id
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(command["wait"], 0)[1])
            started.discard(command["wait"])
        print(answer, flush=True)  # noqa: T201
    for process_id in started:
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)


if __name__ == "__main__":
    _main()
