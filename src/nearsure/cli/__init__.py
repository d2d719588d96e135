"""The `nearsure` command: one file a command, and `main`, which turns errors into sentences.

Commands import what is heavy inside their functions, so that help and shell completion are quick.
"""

import os
import sys
from io import TextIOWrapper
from pathlib import Path

from nearsure.errors import NearsureError

MISTAKE, INTERRUPTED = 2, 130
LESS_MEMORY = (
    "A gallery that is fitted into an .sqlite file or an engine is streamed, and so are queries of "
    "predict and evaluate."
)


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2, never a traceback."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the very end
    if sys.stdout is None:
        # The next file that is opened would get its number, and be written to.
        sys.exit(_report("Standard output is closed: > /dev/null keeps it quiet.", MISTAKE))
    if isinstance(sys.stdout, TextIOWrapper):
        # Names of files may hold bytes that are not characters; these are printed as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Here, so that an interrupted import ends in a sentence, too.
        from nearsure.cli.app import app

        app(prog_name="nearsure")
    except NearsureError as error:
        sys.exit(_report(str(error), MISTAKE))
    except OSError as error:
        sys.exit(_report(_describe(error), MISTAKE))
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        sys.exit(_report(f"There is not enough memory{reason}. {LESS_MEMORY}", MISTAKE))
    except UnicodeEncodeError as error:
        part = error.object[error.start : error.end]
        sys.exit(_report(f"{part!r} cannot be written as {error.encoding}: rename it.", MISTAKE))
    except KeyboardInterrupt:
        # While the commands are being imported.
        sys.exit(_report("Interrupted.", INTERRUPTED))


def _describe(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return f"{error.filename or 'A file'}: {error.strerror}."


def _report(sentence: str, code: int) -> int:
    sys.stderr.write(f"nearsure: {sentence}\n")
    return code
