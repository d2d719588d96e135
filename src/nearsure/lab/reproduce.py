"""The paper's experiment: train, embed, search, score; tables and figures beside the paper's."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from nearsure.lab.allocator import keep_freed_memory
from nearsure.lab.embedding_run import EmbeddingRun
from nearsure.lab.embeddings_file import EmbeddingSet
from nearsure.lab.experiment import EvaluationSettings, Experiment, run_experiment
from nearsure.lab.prepared_images import prepare_images
from nearsure.lab.recipes import Recipe
from nearsure.lab.report import write_report


def reproduce(
    recipe: Recipe,
    settings: EvaluationSettings,
    *,
    cache: Path,
    output: Path,
    command: str,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Run a recipe; what an earlier, interrupted call finished is not done again.

    Parameters
    ----------
    recipe : Recipe
        Data set and runs.
    settings : EvaluationSettings
        Of the evaluation.
    cache : Path
        Folder of the stages.
    output : Path
        Folder of the report.
    command : str
        What was typed, for the report.
    say : callable
        Takes a line for the person who waits.

    Returns
    -------
    list of Path
        The files of the report.
    """
    keep_freed_memory()
    experiments: list[Experiment] = []
    for name, run in recipe.runs.items():
        split = prepare_images(run.dataset, seed=run.seed, cache=cache)
        say(
            f"{recipe.dataset}, {name}: {len(split.train)} images of "
            f"{len(split.train.classes)} seen classes, {len(split.queries)} of "
            f"{len(split.queries.classes)} unseen ones"
        )
        embedding = EmbeddingRun(run, split, cache)
        queries = EmbeddingSet(embedding.embeddings("queries"), np.asarray(split.queries.labels))
        gallery = None
        if split.gallery is not None:
            vectors = embedding.embeddings("gallery")
            gallery = EmbeddingSet(vectors, np.asarray(split.gallery.labels))
        history = embedding.history
        experiment = run_experiment(
            name,
            queries,
            gallery,
            settings,
            cache=cache,
            key=embedding.training_stage.key,
            details={
                "settings": run.model_dump(mode="json", exclude={"dataset": {"root"}}),
                "training": {"steps": len(history), "last_losses": history[-100:]},
            },
        )
        experiments.append(experiment)
        for protocol, evaluation in experiment.evaluations.items():
            first, ned = evaluation.result_of("1nn"), evaluation.result_of("ned")
            say(
                f"  {protocol}: 1NN {100 * first.accuracy.estimate:.2f}%, NED "
                f"{100 * ned.accuracy.estimate:.2f}% with ECE {100 * ned.ece.estimate:.2f}%"
            )
    main = "normalized-softmax" if "normalized-softmax" in recipe.runs else next(iter(recipe.runs))
    return write_report(
        output, recipe.dataset, experiments, command=command, settings=asdict(settings), main=main
    )
