"""The service as a process: start, drain, stop, and limits for slow clients."""

import gc
import logging
import resource
import signal
import socket
import sys
from asyncio import get_running_loop
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_info, threadpool_limits

from nearsure.errors import ConfigError
from nearsure.service.app import create_app
from nearsure.service.auth import Tokens, check_listening
from nearsure.service.service import open_gallery
from nearsure.service.settings import ServiceSettings
from nearsure.service.slow_clients import LimitedProtocol

log = logging.getLogger("nearsure.service")

# Seconds between the signal to stop and the stop. Requests are still answered, but /readyz is 503,
# so that a load balancer sends them elsewhere.
DRAIN_SECONDS = 0.5
BACKLOG = 2048
MOST_CONNECTIONS = 10_000
# For the gallery, the engine's connections, the listener, the log.
OTHER_FILES = 200
NO_LIMIT = 2**63
# How long the thread that answers waits for the one that talks to clients, and the other way
# round; with Python's 5 ms a batch of queries would mostly wait.
SWITCH_SECONDS = 0.0001
# Seconds that a connection may be silent between two requests.
KEPT_ALIVE = 30


def run_service(settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT, then end what is under way and close the gallery.

    Parameters
    ----------
    settings : ServiceSettings
        Without tokens, `host` must be this machine alone.

    Raises
    ------
    NearsureError
        If it cannot start: the gallery cannot be opened, the address is taken or not allowed.
    """
    tokens = Tokens(settings.read_tokens, settings.write_tokens)
    check_listening(settings.host, tokens)
    if not tokens:
        log.warning("Authentication is off: every program here may read and change the gallery.")
    listener = _listener(settings.host, settings.port)
    with listener:
        app = create_app(settings, opened=open_gallery(settings))
        server = _Server(app, settings)
        log.info("Serving on %s", _address(listener))
        sys.setswitchinterval(SWITCH_SECONDS)
        # One core is left to talk to clients: threads of a matrix product wait busily. No library
        # gets more threads than it has, with which some versions of OpenBLAS crash.
        fewer = {pool["prefix"]: max(1, pool["num_threads"] - 1) for pool in threadpool_info()}
        with threadpool_limits(fewer):
            server.run(sockets=[listener])
    log.info("Stopped.")


class _Server(uvicorn.Server):
    """uvicorn's server, with a drain time between the signal and the stop."""

    def __init__(self, app: FastAPI, settings: ServiceSettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=partial(LimitedProtocol, settings.patience, raise_file_limit()),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEPT_ALIVE,
                timeout_graceful_shutdown=max(1, round(settings.patience)),
            )
        )
        self._app = app
        self._is_signalled = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; what is there then is there to stay.

        A full collection of garbage would look through all libraries, some 80 ms every two seconds
        under load, in which nobody is answered.
        """
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        """Stop soon; at once after a second signal.

        The signal is not raised again afterwards, as by uvicorn: stopping is no failure.
        """
        if self._is_signalled or not self.started:
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True
            return
        self._is_signalled = True
        self._app.state.status = "stopping"
        # Signals are handled in the thread of the loop.
        loop = get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, DRAIN_SECONDS, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def raise_file_limit() -> int:
    """Raise the number of files that may be open as far as it is needed and allowed.

    Returns
    -------
    int
        Connections for which there is room. Without room even a refusal could not be sent: the
        client would wait until another leaves.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (NO_LIMIT if own == resource.RLIM_INFINITY else own for own in limits)
    n_files = min(MOST_CONNECTIONS + OTHER_FILES, hard)
    if soft < n_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, limits[1]))
    # A process with very few files gets along with fewer others.
    return max(n_files - OTHER_FILES, n_files // 2)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"The service cannot listen on {host}, port {port}: {error.strerror}. "
            "Choose another port, or stop what uses it."
        ) from error
    listener.set_inheritable(False)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
