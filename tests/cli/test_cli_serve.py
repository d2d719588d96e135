"""`nearsure serve`: what is typed becomes settings, and tokens are never typed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import nearsure, refused, succeeded

from nearsure import service
from nearsure.cli.serve import read_tokens, serve
from nearsure.service import ServiceSettings
from nearsure.service.auth import Tokens, check_listening

EXAMPLES = [
    " ".join(paragraph.split()).removeprefix("Example: ")
    for paragraph in str(serve.__doc__).split("\n\n")
    if paragraph.strip().startswith("Example: ")
]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ServiceSettings]:
    """What would be served, in a folder with a gallery."""
    settings: list[ServiceSettings] = []
    monkeypatch.setattr(service, "run_service", settings.append)
    monkeypatch.delenv("NEARSURE_READ_TOKENS", raising=False)
    monkeypatch.delenv("NEARSURE_WRITE_TOKENS", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("g.sqlite").write_bytes(b"")
    return settings


def test_settings_are_the_defaults_of_the_service(served: list[ServiceSettings]) -> None:
    succeeded("serve", "g.sqlite")
    assert served == [ServiceSettings("g.sqlite")]


def test_every_option_becomes_a_setting(served: list[ServiceSettings]) -> None:
    words = ["--table", "birds", "--engine-option", "ef_search=200", "--model", "m.safetensors"]
    words += ["--host", "::1", "--port", "9000", "--encoder", "image", "--precision", "0.99"]
    words += ["--cors-origin", "https://a", "--cors-origin", "https://b"]
    words += ["--requests-per-second", "5", "--largest-body", "2048", "--largest-batch", "7"]
    words += ["--largest-queue", "9", "--patience", "3"]
    succeeded("serve", "postgres", *words)
    assert served == [
        ServiceSettings(
            gallery="postgres",
            engine_options={"ef_search": 200, "table": "birds"},
            model=Path("m.safetensors"),
            host="::1",
            port=9000,
            encoder="image",
            precision=0.99,
            cors_origins=("https://a", "https://b"),
            requests_per_second=5.0,
            largest_body=2048,
            largest_batch=7,
            largest_queue=9,
            patience=3.0,
        )
    ]


def test_tokens_come_from_the_environment_and_from_a_file(
    served: list[ServiceSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARSURE_READ_TOKENS", "one, two,")
    monkeypatch.setenv("NEARSURE_WRITE_TOKENS", "three")
    file = Path("tokens.toml")
    file.write_text('write = ["four"]\nread = ["five"]\n')
    file.chmod(0o600)
    run = succeeded("serve", "g.sqlite", "--tokens-file", file)
    assert run.err == ""
    assert served[0].read_tokens == ("one", "two", "five")
    assert served[0].write_tokens == ("three", "four")
    file.chmod(0o644)
    assert "chmod 600" in succeeded("serve", "g.sqlite", "--tokens-file", file).err


@pytest.mark.parametrize("content", ["", "read = []", "read = []\nwrite = []"])
def test_a_file_without_a_token_does_not_turn_authentication_off(
    served: list[ServiceSettings], content: str
) -> None:
    Path("tokens.toml").write_text(content)
    said = refused("serve", "g.sqlite", "--tokens-file", "tokens.toml")
    assert "tokens.toml must hold a token" in said
    assert served == []


@pytest.mark.parametrize("name", ["NEARSURE_READ_TOKENS", "NEARSURE_WRITE_TOKENS"])
@pytest.mark.parametrize("content", ["", " , "])
def test_neither_does_an_empty_variable(
    served: list[ServiceSettings], monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.setenv(name, content)
    assert f"{name} must hold tokens" in refused("serve", "g.sqlite")
    assert served == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_help_work_as_typed(
    served: list[ServiceSettings], monkeypatch: pytest.MonkeyPatch, example: str, tmp_path: Path
) -> None:
    Path("birds.sqlite").write_bytes(b"")
    stand_in = tmp_path / "nearsure"
    stand_in.write_text('#!/bin/sh\nprintf \'%s\\n\' "$NEARSURE_READ_TOKENS" "$@"\n')
    stand_in.chmod(0o700)
    folders = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = subprocess.run(  # noqa: S603 - ours
        ["/bin/sh", "-c", example],
        env={"PATH": folders},
        capture_output=True,
        text=True,
        check=True,
    )
    token, *words = typed.stdout.splitlines()
    if token:
        monkeypatch.setenv("NEARSURE_READ_TOKENS", token)
    succeeded(*words)
    check_listening(served[0].host, Tokens(served[0].read_tokens))


def test_no_token_is_shown() -> None:
    assert "secret" not in repr(read_tokens(None, {"NEARSURE_WRITE_TOKENS": "secret"}))


@pytest.mark.parametrize(
    "content",
    [
        'read = ["secret"',
        'read = "secret"',
        'admin = ["secret"]',
        'read = ["secret", ""]',
        "read = [1]",
        'read = ["secret"]\nread = ["secret"]',
    ],
)
def test_a_broken_file_of_tokens_is_refused_without_quoting_it(
    served: list[ServiceSettings], content: str
) -> None:
    Path("tokens.toml").write_text(content)
    said = refused("serve", "g.sqlite", "--tokens-file", "tokens.toml")
    assert "tokens.toml must" in said
    assert "secret" not in said
    assert served == []


def test_there_is_no_option_for_a_token(served: list[ServiceSettings]) -> None:
    for option in ("--token", "--read-token", "--write-tokens"):
        assert nearsure("serve", "g.sqlite", option, "x").code == 2
    assert served == []


def test_pages_of_any_host_need_tokens(
    served: list[ServiceSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused("serve", "g.sqlite", "--cors-origin", "*")
    assert "Without tokens cors_origins must name the pages" in said
    assert said.endswith("(--cors-origin)\n")
    assert served == []
    monkeypatch.setenv("NEARSURE_READ_TOKENS", "one")
    succeeded("serve", "g.sqlite", "--cors-origin", "*")
    assert served[0].cors_origins == ("*",)


def test_a_gallery_that_is_not_there_is_not_made(served: list[ServiceSettings]) -> None:
    assert "There is no gallery at no.sqlite" in refused("serve", "no.sqlite")
    assert "tokens" in refused("serve", "g.sqlite", "--tokens-file", "no-tokens.toml")
    assert served == []
    assert not Path("no.sqlite").exists()
