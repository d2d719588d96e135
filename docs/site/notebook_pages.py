"""A page of a notebook: its text, its code, and what is stored of what it printed."""

import json
from collections.abc import Iterator
from pathlib import Path


def notebook_page(path: Path) -> str:
    """The page, in Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *rest = (part for cell in cells for part in _parts(cell))
    return "\n\n".join([title, f"[Download the notebook]({path.name})", *rest]) + "\n"


def _parts(cell: dict[str, object]) -> Iterator[str]:
    text = _joined(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
    else:
        yield f"```python\n{text}\n```"
        for output in cell["outputs"]:  # type: ignore[attr-defined]
            yield f"```text\n{_joined(output['text']).rstrip()}\n```"


def _joined(source: object) -> str:
    return source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]
