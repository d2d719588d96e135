"""The `nearsure` command, without typer: finds out what is missing, and says it."""

import sys
from importlib import import_module

from nearsure.errors import NearsureError
from nearsure.extras import require

INTERRUPTED = 130
GOES_ON = "Interrupted; the same command goes on from here."


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        require("typer", extra="cli", purpose="The nearsure command")
        import_module("nearsure.commands").app()
    except NearsureError as error:
        sys.exit(_failed(str(error), 2))
    except OSError as error:
        sys.exit(_failed(f"{error.filename or 'A file'}: {error.strerror or error}.", 2))
    except KeyboardInterrupt:
        sys.exit(_failed(GOES_ON, INTERRUPTED))
    except SystemExit as end:
        # What typer makes of Ctrl-C, without a word.
        if end.code == INTERRUPTED:
            _failed(GOES_ON, INTERRUPTED)
        raise


def _failed(sentence: str, code: int) -> int:
    sys.stderr.write(f"nearsure: {sentence}\n")
    return code
