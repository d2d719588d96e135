"""The paper's experiment: train, embed, search, score; tables and figures beside the paper's."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from nearsure.comparison import title_of
from nearsure.embedding_files import EmbeddingSet
from nearsure.lab.config import LOSSES, DatasetSettings, RunSettings
from nearsure.lab.datasets.images import ImageSplit, Pixels
from nearsure.lab.default_rule import DEFAULT
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.experiment import EvaluationSettings, Experiment, run_experiment
from nearsure.lab.images import contact_sheet, prepare_images, refuse_other_pixels
from nearsure.lab.recipes import BEFORE, Recipe
from nearsure.lab.report import read_report, write_report
from nearsure.lab.training import refuse_too_many_classes, tune_malloc

# Rows and columns of the picture of examples.
SHOWN = 12


def reproduce(
    recipe: Recipe,
    settings: EvaluationSettings,
    *,
    others: Sequence[Recipe] = (),
    cache: Path,
    output: Path,
    command: str,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Run a recipe; what an earlier, interrupted call finished is not done again.

    Of a recipe with some of the losses alone, what the folder of the report holds of others is
    kept.

    Parameters
    ----------
    recipe : Recipe
        Data set and runs.
    settings : EvaluationSettings
        Of the evaluation.
    others : sequence of Recipe
        The same runs, or some of them, with other seeds, to show how much trainings differ.
    cache : Path
        Folder of the stages.
    output : Path
        Folder of the report.
    command : str
        What was typed, for the report.
    say : callable
        Takes a line of progress.

    Returns
    -------
    list of Path
        The files of the report.
    """
    tune_malloc()
    recipe, kept, kept_again = _keep_others(recipe, others, output, settings)
    splits = prepare_splits(recipe, cache)
    for other in others:
        splits |= prepare_splits(other, cache)

    def experiment(name: str, run: RunSettings) -> Experiment:
        split = splits[run.dataset, run.seed]
        say(
            f"{recipe.dataset}, {name}, seed {run.seed}: {len(split.train)} images of "
            f"{len(split.train.classes)} seen classes, {len(split.queries)} of "
            f"{len(split.queries.classes)} unseen ones"
        )
        found = _experiment(name, EmbeddingRun(run, split, cache), settings)
        for protocol, evaluation in found.evaluations.items():
            figures = (
                f"{title_of(result.rule)} {100 * result.accuracy.estimate:.2f}% with ECE "
                f"{100 * result.ece.estimate:.2f}%"
                for result in map(evaluation.result_of, ("1nn", "ned", DEFAULT))
            )
            say(f"  {protocol}: {', '.join(figures)}")
        return found

    experiments = kept + [experiment(name, run) for name, run in recipe.runs.items()]
    experiments.sort(key=lambda one: (BEFORE, *LOSSES).index(one.name))
    again = kept_again + [
        experiment(name, run)
        for other in others
        for name, run in other.runs.items()
        if run.model.trained != "nothing"
    ]
    return write_report(
        output,
        recipe.title,
        experiments,
        command=command,
        settings=asdict(settings),
        main=next((one.name for one in experiments if one.name != BEFORE), BEFORE),
        others=again,
        examples=_examples(recipe, splits),
    )


def _keep_others(
    recipe: Recipe, others: Sequence[Recipe], output: Path, settings: EvaluationSettings
) -> tuple[Recipe, list[Experiment], list[Experiment]]:
    """What is left to run of some of the losses; runs and other trainings that a folder holds."""
    if recipe.runs.keys() >= set(LOSSES):
        return recipe, [], []
    stored, trainings = read_report(output, recipe.title, asdict(settings))
    asked = recipe.runs.keys() - {BEFORE} if BEFORE in {one.name for one in stored} else recipe.runs
    again = {(name, run.seed) for other in others for name, run in other.runs.items()}
    return (
        Recipe(recipe.dataset, {name: recipe.runs[name] for name in recipe.runs if name in asked}),
        [one for one in stored if one.name not in asked],
        [one for one in trainings if one.name not in asked and (one.name, one.seed) not in again],
    )


def _experiment(name: str, embedding: EmbeddingRun, settings: EvaluationSettings) -> Experiment:
    """Train, embed and evaluate one run."""
    run, split = embedding.settings, embedding.split

    def embedded(part: str) -> EmbeddingSet:
        return EmbeddingSet(embedding.embeddings(part), np.asarray(split.parts[part].labels))

    history = embedding.trained.history
    return run_experiment(
        name,
        embedded("queries"),
        embedded("gallery") if "gallery" in split.parts else None,
        settings,
        seen=partial(embedded, "train"),
        cache=embedding.cache,
        key=embedding.training_stage.key,
        details={
            "settings": run.model_dump(mode="json", exclude={"dataset": {"root"}}),
            "training": {"steps": len(history), "last_losses": history[-100:]},
            "made_with": embedding.made_with,
        },
        seed=run.seed,
    )


def _examples(
    recipe: Recipe, splits: dict[tuple[DatasetSettings, int], ImageSplit]
) -> Pixels | None:
    """Some glyphs; the pictures of other data sets are not ours to copy."""
    if recipe.dataset != "glyphs":
        return None
    (settings, seed), split = next(iter(splits.items()))
    columns = min(SHOWN, settings.images_per_class)
    return contact_sheet(
        split.queries,
        classes=SHOWN,
        images_per_class=columns,
        size=2 * settings.image_size,
        seed=seed,
    )


def prepare_splits(recipe: Recipe, cache: Path) -> dict[tuple[DatasetSettings, int], ImageSplit]:
    """The images of every run; what does not fit is said before the first run takes its hours."""
    splits: dict[tuple[DatasetSettings, int], ImageSplit] = {}
    for run in recipe.runs.values():
        images = (run.dataset, run.seed)
        if images not in splits:
            splits[images] = prepare_images(run.dataset, seed=run.seed, cache=cache)
            if recipe.dataset != "glyphs":  # which are drawn, and cached by what draws them
                refuse_other_pixels(splits[images], cache)
        if run.model.trained != "nothing":
            n_classes = len(splits[images].train.classes)
            refuse_too_many_classes(run.training.classes_per_batch, n_classes)
    return splits
