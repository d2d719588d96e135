"""All commands together, and what is the same for each: warnings, Ctrl-C, a closed pipe."""

import inspect
import os
import re
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from nearsure.cli import (
    audit,
    backup,
    calibrate,
    embed,
    evaluate,
    fit,
    lab,
    pairs,
    predict,
    recalibrate,
    report,
    serve,
)
from nearsure.cli.outputs import set_quiet, tell
from nearsure.errors import NearsureError

if TYPE_CHECKING:
    from typer import Context

INTERRUPTED = 130
RESUMABLE = ("embed", "reproduce", "ablation")
GOES_ON = "Interrupted; run the same command again to resume."
NOTHING_LEFT = "Interrupted; no partial files were left."

EPILOG = """Exit codes: 0 success; 1 internal error, with a traceback, or images that cannot be
decoded, which are listed and left out; 2 invalid arguments or files, or too little memory,
explained in one sentence; 130 interrupted.

Example: nearsure fit gallery.npz -o model.safetensors
"""


# What typer calls the types of options, for people.
TYPES = {"str": "TEXT", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}


def _name_types(params: list[Any], ctx: "Context") -> list[Any]:
    """Name arguments in capitals, without types, and types of options as people do."""
    for param in params:
        if param.metavar is None and isinstance(param, TyperOption):
            param.metavar = "" if param.is_flag else _type_of(param, ctx)
        elif not isinstance(param, TyperOption):
            if param.metavar is None and param.name is not None:
                param.metavar = param.name.upper()
            # Newer versions of typer write <str> behind the name.
            param.display_type_rich = lambda **_: None
    return params


def _type_of(param: TyperOption, ctx: "Context") -> str | None:
    # Older versions of typer name types in capitals already.
    if not hasattr(param, "display_type"):
        return None
    kind = str(param.display_type(ctx)).strip("<>").removesuffix(" range")
    kind = kind.removeprefix("list[").removesuffix("]")
    return TYPES.get(kind, kind)


class OneCommand(TyperCommand):
    """A command whose help has no words of the library that draws it."""

    def get_params(self, ctx: "Context") -> list[Any]:  # type: ignore[override]
        """Arguments and options."""
        return _name_types(super().get_params(ctx), ctx)

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:  # type: ignore[override]
        """The words of the line "Usage: ...", arguments in capitals."""
        return [re.sub("[{}]", "", piece).upper() for piece in super().collect_usage_pieces(ctx)]


class Commands(TyperGroup):
    """Ends every command in the same ways."""

    def get_params(self, ctx: "Context") -> list[Any]:  # type: ignore[override]
        """Options before a command."""
        return _name_types(super().get_params(ctx), ctx)

    def invoke(self, ctx: "Context") -> Any:  # type: ignore[override]  # noqa: ANN401
        """Run the command that was named."""
        set_quiet(False)  # until the command's own option says otherwise
        try:
            with warnings.catch_warnings():
                # Print sentences, without the source lines that raised the warnings.
                warnings.showwarning = lambda message, *_, **__: tell(f"warning: {message}")
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except NearsureError as error:
            error.args = (_with_options(str(error), ctx),)
            raise
        except KeyboardInterrupt:
            tell(GOES_ON if ctx.invoked_subcommand in RESUMABLE else NOTHING_LEFT)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader has closed the pipe. What is still buffered must not fail again at exit.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _with_options(message: str, ctx: "Context") -> str:
    """A message of the library, and in brackets the options of the parameters that it names."""
    command = cast("TyperGroup", ctx.command).get_command(ctx, ctx.invoked_subcommand or "")
    options = [
        parameter.opts[0]
        for parameter in (command.params if command else ())
        if "_" in (parameter.name or "") and re.search(rf"\b{parameter.name}\b", message)
    ]
    return f"{message} ({', '.join(options)})" if options else message


def join_lines(text: str) -> str:
    r"""Join each paragraph into one line, so that the terminal decides where lines break.

    Examples
    --------
    >>> join_lines("one\ntwo\n\nthree")
    'one two\n\nthree'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


app = typer.Typer(
    cls=Commands,
    help="Calibrated confidence for nearest-neighbour search results.",
    epilog=join_lines(EPILOG),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
MAIN = (
    embed.embed,
    fit.fit,
    predict.predict,
    evaluate.evaluate,
    recalibrate.recalibrate,
    report.report,
    audit.audit,
    calibrate.calibrate,
    pairs.pairs,
    serve.serve,
    backup.backup,
    backup.restore,
    lab.demo,
)
LAB = (lab.compare, lab.reproduce, lab.ablation, lab.corruptions, lab.summary)
for command in MAIN + LAB:
    # A docstring is the help of its command; the examples at its end become the epilog.
    text, begin, examples = join_lines(inspect.getdoc(command) or "").partition("Example: ")
    app.command(
        cls=OneCommand,
        help=text.strip(),
        epilog=begin + examples,
        rich_help_panel="The lab" if command in LAB else None,
    )(command)


def _show_version(asked: bool) -> None:  # noqa: FBT001
    if asked:
        from nearsure import __version__

        typer.echo(f"nearsure {__version__}")
        raise typer.Exit


@app.callback()
def _nearsure(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options before a command."""
    del version
