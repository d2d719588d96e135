"""Settings of the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearsure.errors import ConfigError

# Origins that pages of any host can have; a page in a sandboxed frame is called null.
ANYBODY = frozenset({"*", "null"})


@dataclass(frozen=True)
class ServiceSettings:
    """Where the gallery is, who may ask, and how much.

    Parameters
    ----------
    gallery : str
        Path of an .sqlite file, or what `open_engine` takes.
    engine_options : mapping
        Options of `open_engine`: table, collection, columns, index.
    model : path, optional
        File that keeps the fit; needed beside an engine, while an .sqlite file keeps its own.
    host, port : str, int
        Where to listen.
    read_tokens, write_tokens : tuple of str
        A request with either may read; only one with a write token may change anything. Without
        tokens every program on this machine may do everything, and no other may connect.
    encoder : str, optional
        What turns images or text into vectors; see `nearsure.encoders.open_encoder`. By default
        what made the gallery's vectors, if its fit says so.
    precision : float, optional
        Target of the threshold in use, if none was set before.
    largest_body : int
        Bytes of a request.
    largest_batch : int
        Vectors or items of a request.
    requests_per_second : float, optional
        Of one client, with short bursts of ten seconds' worth.
    largest_queue : int
        Queries that may wait; the next is answered with 503.
    patience : float
        Seconds that a client may take to send a request or to take some more of its answer, and
        that a request may take.
    cors_origins : tuple of str
        Pages of other hosts that may call the service; ``"*"`` for all, where tokens protect it.

    Raises
    ------
    ConfigError
        If pages of any host may ask and no token is needed.
    """

    gallery: str
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    model: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    read_tokens: tuple[str, ...] = field(default=(), repr=False)
    write_tokens: tuple[str, ...] = field(default=(), repr=False)
    encoder: str | None = None
    precision: float | None = None
    largest_body: int = 8 * 2**20
    largest_batch: int = 1024
    requests_per_second: float | None = None
    largest_queue: int = 2048
    patience: float = 30.0
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        open_to = ANYBODY.intersection(self.cors_origins)
        if open_to and not (self.read_tokens or self.write_tokens):
            raise ConfigError(
                "Without tokens cors_origins must name the pages that may call the service, such "
                f"as https://tools.example.org. Got {min(open_to)!r} instead, with which every "
                "page that a browser on this machine has open could read the gallery. Name the "
                "pages, or set a read or write token."
            )
