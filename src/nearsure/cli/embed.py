"""`nearsure embed`: images or texts to vectors, for those who have none yet."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import typer

from nearsure.cli.options import OUTPUT
from nearsure.cli.saying import Advance, progress, tell
from nearsure.embedding_files import open_records
from nearsure.errors import BrokenImageError, ConfigError

# Encoded together; a bar moves on after each.
PORTION = 32
FORMATS = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(embed)


def embed(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images, a folder for each class; or txt, csv or jsonl file of texts."
        ),
    ],
    *,
    encoder: Annotated[
        str, typer.Option(help="image, text, or module:attribute for one of your own.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="npz, jsonl, csv or parquet file.", rich_help_panel=OUTPUT
        ),
    ],
    skip_broken_images: Annotated[
        bool, typer.Option("--skip-broken-images", help="Leave out images that cannot be decoded.")
    ] = False,
) -> None:
    """Turn images or texts into vectors, with ids and labels.

    An image's label is the folder that it lies in, its id the path below SOURCE. Texts are lines,
    or the column "text" beside "label" and "id".

    Example: nearsure embed photos --encoder image -o gallery.npz
    """
    from nearsure.encoders import open_encoder  # noqa: PLC0415
    from nearsure.encoders.inputs import image_inputs, text_inputs  # noqa: PLC0415

    suffix = output.suffix.lower()
    if suffix not in {".npz", *FORMATS}:
        raise ConfigError(
            f"--output must end in .npz, {', '.join(FORMATS)}. Got {output.name} instead."
        )
    opened = open_encoder(encoder)
    inputs = image_inputs(source) if opened.kind == "image" else text_inputs(source)
    broken = 0
    with ExitStack() as stack:
        advance: Advance = stack.enter_context(progress("Encoding", len(inputs)))
        writer = stack.enter_context(
            _NpzRecords(output) if suffix == ".npz" else open_records(output, FORMATS[suffix])
        )
        for start in range(0, len(inputs), PORTION):
            portion = inputs[start : start + PORTION]
            try:
                vectors = opened.encode([one.content() for one in portion])  # type: ignore[arg-type]
            except BrokenImageError:
                portion, vectors = _one_by_one(opened, portion, skip=skip_broken_images)
                broken += len(inputs[start : start + PORTION]) - len(portion)
            if len(portion):
                writer.write(_columns(portion, vectors))
            advance(PORTION)
        if broken == len(inputs):
            raise BrokenImageError(f"None of the {broken} images of {source} can be decoded.")
    if broken:
        tell(f"left out {broken} of {len(inputs)} images, which cannot be decoded.")
    typer.echo(f"wrote {output}: {len(inputs) - broken} vectors of {opened.dimension} numbers")


def _one_by_one(encoder: Any, portion: list[Any], *, skip: bool) -> tuple[list[Any], Any]:  # noqa: ANN401
    """Those that can be encoded; an error names the file."""
    kept, vectors = [], [np.empty((0, encoder.dimension), np.float32)]
    for one in portion:
        try:
            vectors.append(encoder.encode([one.content()]))
        except BrokenImageError as error:
            if not skip:
                reason = str(error).removeprefix("Image 1 cannot be decoded: ")
                raise BrokenImageError(
                    f"{one.image} cannot be decoded: {reason} (--skip-broken-images leaves such "
                    "images out)"
                ) from error
        else:
            kept.append(one)
    return kept, np.concatenate(vectors)


def _columns(portion: list[Any], vectors: Any) -> dict[str, Any]:  # noqa: ANN401
    columns: dict[str, Any] = {"id": [one.id for one in portion]}
    if portion[0].label is not None:
        columns["label"] = [one.label for one in portion]
    if portion[0].image is not None:
        columns["image"] = [one.image.as_posix() for one in portion]
    return columns | {"vector": vectors}


class _NpzRecords:
    """Collects columns and writes one npz file, whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def write(self, columns: dict[str, Any]) -> None:
        """Keep some rows."""
        self._parts.append(columns)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._parts:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}.draft.npz")
        try:
            names = {"vector": "vectors", "label": "labels", "id": "ids", "image": "images"}
            np.savez(
                draft,
                **{
                    names[name]: np.concatenate([np.asarray(part[name]) for part in self._parts])
                    for name in self._parts[0]
                },
            )
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)
