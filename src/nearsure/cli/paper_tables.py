"""`nearsure evaluate` without a model: the paper's tables and figures from saved embeddings."""

from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from nearsure.cli.typed_command import say_files, typed_command
from nearsure.embedding_files import EmbeddingSet, load_embeddings
from nearsure.errors import ConfigError
from nearsure.lab.experiment import EvaluationSettings, run_experiment
from nearsure.lab.report import write_report
from nearsure.whole_files import resolved


@dataclass(frozen=True)
class GivenGallery:
    """Where the gallery is, if it is not the queries themselves."""

    file: str | None
    labels: Path | None
    vectors_key: str | None
    labels_key: str | None


def write_tables(
    embeddings: str,
    *,
    labels: Path | None,
    vectors_key: str | None,
    labels_key: str | None,
    gallery: GivenGallery,
    name: str | None,
    k: int,
    seed: int,
    n_resamples: int,
    output: Path | None,
) -> None:
    """Evaluate every rule, say it, and write the report."""
    queries = load_embeddings(
        embeddings, labels_path=labels, vectors_key=vectors_key, labels_key=labels_key
    )
    supports: EmbeddingSet | None = None
    if gallery != GivenGallery(None, None, None, None):
        same_file = gallery.file is None or _same(gallery.file, embeddings)
        if same_file and gallery.vectors_key in {None, vectors_key}:
            raise ConfigError(
                "The gallery must be other vectors than the queries, or each query finds itself: "
                "give another file (--gallery) or another array (--gallery-vectors-key)."
            )
        supports = load_embeddings(
            gallery.file or embeddings,
            labels_path=gallery.labels,
            vectors_key=gallery.vectors_key or (vectors_key if gallery.file else None),
            labels_key=gallery.labels_key or (labels_key if gallery.file else None),
        )
    settings = EvaluationSettings(k=k, seed=seed, n_resamples=n_resamples)
    title = name or ("embeddings" if embeddings == "-" else Path(embeddings).stem)
    experiment = run_experiment("given embeddings", queries, supports, settings)
    for protocol, evaluation in experiment.evaluations.items():
        typer.echo(f"{protocol}, k = {evaluation.k}:\n{evaluation.comparison.to_text()}\n")
        for note in evaluation.notes:
            typer.echo(f"Note: {note}\n")
    files = write_report(
        output or Path("results") / title,
        title,
        [experiment],
        command=typed_command(),
        settings=asdict(settings),
        main=experiment.name,
    )
    say_files(files)


def _same(one: str, other: str) -> bool:
    return "-" not in {one, other} and resolved(Path(one)) == resolved(Path(other))
