"""The examples of README and docs are run as they stand, each page in a folder of its own.

A block of ``python`` or ``sh`` that cannot run in tests says why in a comment above it:
``<!-- not run: takes 12 minutes -->``. One below ``<!-- needs: module -->`` is skipped where
the module is not installed. What a ``sh`` block leaves running is stopped with its page.
What a page needs and nobody should read stands in ``<!--- invisible-code-block: python ... --->``,
where `before` is the folder of the repository. The environment is put back after each page.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import SkipTest

from hypothesis import settings
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from nearsure import errors

# Some virtual machines show AMX and refuse it, and then torch fails in half precision; no test
# needs it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# How long an example takes says nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

NEEDS = re.compile(r"<!-- needs: (\w+) -->\s*\Z")
REASON = re.compile(r"<!-- not run: ([^>]+) -->\s*\Z")
SECONDS = 120
PAGE = "_page"


def reason_not_to_run(example: Example) -> str | None:
    """What the comment above a block says."""
    found = REASON.search(example.document.text[: example.region.start])
    return found and found[1]


class PythonBlocks(CodeBlockParser):
    """Python, as Sybil runs it."""

    language = "python"

    def __init__(self) -> None:
        super().__init__()
        self._run = PythonEvaluator()

    def evaluate(self, example: Example) -> str | None:
        """Run a block in the page's namespace; warnings that it names are no errors."""
        _skip_if_said(example)
        with warnings.catch_warnings():
            for name in re.findall(r"\w+Warning", example.parsed):
                warnings.simplefilter("ignore", getattr(errors, name))
            return self._run(example)


class ShellBlocks(CodeBlockParser):
    """Commands, as a user would type them with the environment activated."""

    language = "sh"

    def evaluate(self, example: Example) -> str | None:
        """Run a block; any command that fails fails it."""
        _skip_if_said(example)
        # Through a file: what goes on in the background would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(  # noqa: S603 - our own pages
                ["bash", "-euo", "pipefail", "-c", example.parsed],  # noqa: S607
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            )
            example.namespace[PAGE]["sessions"].append(process.pid)
            code = process.wait(SECONDS)
            output.seek(0)
            printed = output.read().decode(errors="replace")
        if code:
            raise AssertionError(f"exit code {code} of\n{example.parsed}\n{printed}")
        return None


def _skip_if_said(example: Example) -> None:
    reason = reason_not_to_run(example)
    if reason:
        raise SkipTest(reason)
    needed = NEEDS.search(example.document.text[: example.region.start])
    if needed and find_spec(needed[1]) is None:
        raise SkipTest(f"{needed[1]} is not installed")


def enter_folder(namespace: dict[str, Any]) -> None:
    """Every page starts in an empty folder."""
    before, folder = Path.cwd(), tempfile.mkdtemp()
    # A page may use these names for something else, so what is needed later is kept apart.
    namespace["before"] = before
    namespace[PAGE] = {
        "before": before,
        "folder": folder,
        "sessions": [],
        "environ": dict(os.environ),
        "path": [*sys.path],
    }
    os.chdir(folder)


def leave_folder(namespace: dict[str, Any]) -> None:
    """Stop what the page started, and tidy up."""
    page = namespace[PAGE]
    for session in page["sessions"]:
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGTERM)
    os.environ.clear()
    os.environ.update(page["environ"])
    sys.path[:] = page["path"]
    os.chdir(page["before"])
    shutil.rmtree(page["folder"], ignore_errors=True)


pytest_collect_file = Sybil(
    parsers=[PythonBlocks(), ShellBlocks()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    setup=enter_folder,
    teardown=leave_folder,
).pytest()
