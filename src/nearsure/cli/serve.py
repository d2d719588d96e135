"""`nearsure serve`, and the tokens of the service."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from nearsure.cli import options
from nearsure.cli.outputs import tell
from nearsure.errors import ConfigError
from nearsure.extras import read_toml, require

limit_option = partial(Option, rich_help_panel="Limits")
READ_VARIABLE, WRITE_VARIABLE = "NEARSURE_READ_TOKENS", "NEARSURE_WRITE_TOKENS"
OTHERS_MAY_READ = 0o077
MAKE_ONE = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'


def serve(
    gallery: Annotated[
        str,
        Argument(
            help="gallery.sqlite, postgresql://..., https://..., qdrant:URL, chroma:FOLDER, "
            "lance:FOLDER, or postgres, milvus, qdrant, chroma or lance, with the address in the "
            "environment."
        ),
    ],
    *,
    model: Annotated[
        Path | None,
        options.engine_option(
            "--model",
            "-m",
            help="File that keeps the fit beside an engine; an .sqlite gallery keeps its own.",
        ),
    ] = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    host: Annotated[
        str, Option(help="Address to listen on; other machines can connect only with tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    tokens_file: Annotated[
        Path | None,
        Option(
            help='TOML: read = ["..."], write = ["..."]. In addition, or instead: '
            "NEARSURE_READ_TOKENS and NEARSURE_WRITE_TOKENS, separated by commas."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        Option(
            help="image, text or module:attribute: lets the page and the API take images or text. "
            "By default the one that the gallery was fitted with."
        ),
    ] = None,
    precision: options.Precision = None,
    cors_origins: Annotated[
        list[str] | None,
        Option(
            "--cors-origin",
            help="Origin of another page that may call the service; can be repeated.",
        ),
    ] = None,
    requests_per_second: Annotated[
        float | None, limit_option(min=0.001, help="Limit for one client.")
    ] = None,
    largest_body: Annotated[int, limit_option(min=1024, help="Largest request, in bytes.")] = 8
    * 2**20,
    largest_batch: Annotated[
        int, limit_option(min=1, help="Most vectors or items in a request.")
    ] = 1024,
    largest_queue: Annotated[int, limit_option(min=1, help="Most queries that may wait.")] = 2048,
    patience: Annotated[
        float, limit_option(min=0.1, help="Longest time that a request may take, in seconds.")
    ] = 30.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(help="Log level, on standard error."),
    ] = "info",
) -> None:
    """Serve a gallery: REST API, metrics, and a web page at /.

    Tokens are not given as options, where others could see them. Without tokens, only this machine
    can connect.

    Example: nearsure serve birds.sqlite --precision 0.99

    Example: export NEARSURE_READ_TOKENS=$(python -c 'import secrets;
    print(secrets.token_hex(32))'); nearsure serve birds.sqlite --host 0.0.0.0

    Example: nearsure serve postgres --table birds --model birds.safetensors
    """
    require("fastapi", extra="serve", purpose="The service")
    # The level is that of nearsure's own log; of libraries, warnings are logged.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("nearsure").setLevel(log_level.upper())
    from nearsure.cli.inputs import check_exists, engine_options, is_sqlite
    from nearsure.service import ServiceSettings, run_service

    if is_sqlite(gallery):
        check_exists(gallery)
    options.check_precision(precision)
    tokens = read_tokens(tokens_file)
    run_service(
        ServiceSettings(
            gallery=gallery,
            engine_options=engine_options(engine_option, table=table, collection=collection),
            model=model,
            host=host,
            port=port,
            read_tokens=tokens.read,
            write_tokens=tokens.write,
            encoder=encoder,
            precision=precision,
            largest_body=largest_body,
            largest_batch=largest_batch,
            requests_per_second=requests_per_second,
            largest_queue=largest_queue,
            patience=patience,
            cors_origins=tuple(cors_origins or ()),
        )
    )


@dataclass(frozen=True)
class Tokens:
    """Tokens of those who may ask, and of those who may also change the gallery."""

    read: tuple[str, ...] = field(default=(), repr=False)
    write: tuple[str, ...] = field(default=(), repr=False)


def read_tokens(file: Path | None, environment: Mapping[str, str] = os.environ) -> Tokens:
    """The tokens of the environment and of a file together.

    Parameters
    ----------
    file : path or None
        TOML: ``read = ["..."]`` and ``write = ["..."]``, or either.
    environment : mapping
        ``NEARSURE_READ_TOKENS`` and ``NEARSURE_WRITE_TOKENS``, separated by commas.

    Raises
    ------
    ConfigError
        If the file, or a variable that is set, holds no token.

    Examples
    --------
    >>> read_tokens(None, {"NEARSURE_READ_TOKENS": "one, two"}).read
    ('one', 'two')
    """
    stored = {} if file is None else _read_file(file)
    return Tokens(
        read=(*_split_variable(READ_VARIABLE, environment), *stored.get("read", ())),
        write=(*_split_variable(WRITE_VARIABLE, environment), *stored.get("write", ())),
    )


def _split_variable(name: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    if name not in environment:
        return ()
    tokens = tuple(token.strip() for token in environment[name].split(",") if token.strip())
    if not tokens:
        # A variable that is set by mistake must not turn authentication off.
        raise ConfigError(
            f"{name} must hold tokens, separated by commas. It is empty: {MAKE_ONE}, or unset it."
        )
    return tokens


def _read_file(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        stored = read_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        # The reason is left out, as it may quote a token.
        raise ConfigError(
            f'{path} must be TOML, such as read = ["..."] and write = ["..."]. It is not.'
        ) from error
    for name, tokens in stored.items():
        are_tokens = isinstance(tokens, list) and all(
            isinstance(token, str) and token.strip() for token in tokens
        )
        if name not in {"read", "write"} or not are_tokens:
            raise ConfigError(
                f"{path} must hold lists of tokens called read and write, and nothing else."
            )
    if not any(stored.values()):
        raise ConfigError(f"{path} must hold a token, as read or write. It holds none: {MAKE_ONE}.")
    if path.stat().st_mode & OTHERS_MAY_READ:
        tell(f"warning: others may read the tokens in {path}: chmod 600 {path}")
    return {name: tuple(token.strip() for token in tokens) for name, tokens in stored.items()}
