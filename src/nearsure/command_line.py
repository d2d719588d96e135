"""The `nearsure` command, without typer: finds out what is missing, and says it."""

import sys

from nearsure.errors import NearsureError
from nearsure.extras import require

INTERRUPTED = 130


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        commands = require("nearsure.commands", extra="cli", purpose="The nearsure command")
        commands.app()
    except NearsureError as error:
        sys.exit(_failed(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_failed("Interrupted; the same command goes on from here.", INTERRUPTED))


def _failed(sentence: str, code: int) -> int:
    sys.stderr.write(f"nearsure: {sentence}\n")
    return code
