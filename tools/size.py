"""Files and lines of code of the package: ``make size``.

A line of code holds a token; docstrings, comments and blank lines do not count.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path
from statistics import mean, median

SMALL, LARGE = 40, 650
EXEMPTED = re.compile(r"# noqa:[^#\n]*SLF001")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def lines_of_code(source: str) -> tuple[int, int]:
    """Lines of code, and lines of docstrings."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documented), len(documented)


def main() -> None:
    """Print the figures of a folder, by default src."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    counts = {path: lines_of_code(source) for path, source in sources.items()}
    code = {path: count for path, (count, _) in counts.items()}
    largest = max(code, key=code.__getitem__)
    exempted = sum(len(EXEMPTED.findall(source)) for source in sources.values())
    sys.stdout.write(
        f"files                {len(code):7,}\n"
        f"lines of code        {sum(code.values()):7,}\n"
        f"lines of docstrings  {sum(count for _, count in counts.values()):7,}\n"
        f"mean, median         {mean(code.values()):7.1f} {median(code.values()):g}\n"
        f"files under {SMALL}       {sum(count < SMALL for count in code.values()):7,}\n"
        f"files over {LARGE}       {sum(count > LARGE for count in code.values()):7,}\n"
        f"largest              {code[largest]:7,} {largest}\n"
        f"noqa: SLF001         "
        f"{exempted:7,}\n"
    )


if __name__ == "__main__":
    main()
