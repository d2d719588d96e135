"""What the environment is installed from: every pinned version has a hash, no range begins low."""

import re
from pathlib import Path

import pytest

from nearsure.extras import read_toml

ROOT = Path(__file__).parents[1]
HASH = r"--hash=sha256:[0-9a-f]{64}"
# The first releases without holes that were known when they were written down here.
MENDED = {"pillow": (12, 1, 1), "starlette": (0, 49, 1), "h11": (0, 16), "torch": (2, 8)}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_pinned_version_has_hashes() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    wanted = {canonical(name): version for name, version in pinned.items() if name != "torch"}
    locked = {}
    for requirement in re.sub(r"\\\n", "", (ROOT / "requirements.lock").read_text()).splitlines():
        found = re.fullmatch(rf"(\S+)==(\S+)((?:\s+{HASH})+)", requirement)
        assert found is not None, requirement
        locked[canonical(found[1])] = found[2]
    # After a change of constraints.txt: make lock.
    assert locked == wanted


def test_the_server_of_milvus_has_hashes() -> None:
    text = re.sub(r"\\\n", "", (ROOT / "milvus.lock").read_text()).strip()
    assert re.fullmatch(rf"milvus==2\.3\.5((?:\s+{HASH})+)", text)


@pytest.mark.parametrize("name", MENDED)
def test_no_range_begins_below_a_mended_release(name: str) -> None:
    project = read_toml((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [
        requirement
        for extra in project["optional-dependencies"].values()
        for requirement in extra
        if re.match(rf"{name}\b(?!-)", requirement)
    ]
    assert ranges
    for requirement in ranges:
        lowest = re.search(r">=([\d.]+)", requirement)
        assert lowest is not None
        assert tuple(map(int, lowest[1].split("."))) >= MENDED[name]
