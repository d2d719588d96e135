"""The paper's robustness experiments: train, damage the queries, search, score, report."""

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2

from nearsure.errors import ConfigError
from nearsure.lab.allocator import keep_freed_memory
from nearsure.lab.datasets.labelled_images import LabelledImages
from nearsure.lab.embedding_run import EmbeddingRun
from nearsure.lab.experiment import EvaluationSettings
from nearsure.lab.figures import save_picture
from nearsure.lab.recipes import Recipe
from nearsure.lab.reproduce import prepared_splits
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.attack_experiment import attack_experiment
from nearsure.lab.robust.corruption_experiment import corruption_experiment
from nearsure.lab.robust.methods import NED
from nearsure.lab.robust.model import ADVERSARIALLY_TRAINED, CLEAN_TRAINED, RobustModel
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.robust_report import write_robust_report
from nearsure.lab.robust.settings import RobustSettings
from nearsure.lab.robust.variants import epsilon_text
from nearsure.lab.views import central_view
from nearsure.robustness import corruption_sheet


def reproduce_robust(
    recipe: Recipe,
    settings: EvaluationSettings,
    robust: RobustSettings,
    *,
    cache: Path,
    output: Path,
    command: str,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Damage the queries of a recipe's main run; what an earlier call finished is not done again.

    Parameters
    ----------
    recipe : Recipe
        Data set and runs, of which the first trained one is taken.
    settings : EvaluationSettings
        k, seed and resamples.
    robust : RobustSettings
        Which damage, to how many queries.
    cache, output : Path
        Folders of the stages and of the report.
    command : str
        What was typed, for the report.
    say : callable
        Takes a line for the person who waits.

    Returns
    -------
    list of Path
        The files of the report.
    """
    run = recipe.runs[recipe.main]
    if run.model.trained != "all":
        raise ConfigError(
            "The robustness of a run can be told if its whole network is trained, as adversarial "
            f"training wants it. Of {recipe.main!r} that is {run.model.trained!r}: choose another "
            "with --loss, or set model.trained to 'all'."
        )
    keep_freed_memory()
    chosen = Recipe(recipe.dataset, {recipe.main: run})
    split = prepared_splits(chosen, cache)[run.dataset, run.seed]
    queries, size = split.queries, run.dataset.image_size
    if max(robust.corrupted_queries or 0, robust.attacked_queries or 0) > len(queries):
        say(f"{recipe.dataset} has {len(queries)} queries: all of them are damaged")
    robust = robust.for_queries(len(queries))
    clean_run = EmbeddingRun(run, split, cache)
    say(f"{recipe.dataset}, {recipe.main}: train on clean images, then on attacked ones")
    hardened = AdversarialRun(clean_run, robust.adversarial)
    models = [
        RobustModel(CLEAN_TRAINED, clean_run, settings.k, settings.seed),
        RobustModel(ADVERSARIALLY_TRAINED, hardened, settings.k, settings.seed),
    ]
    for model in models:
        for protocol, frozen in model.frozen.items():
            temperature = frozen.temperature_fit.temperature
            say(f"  {model.name}, {protocol}: T = {temperature:.4f} from clean images, frozen")
    corrupted = corruption_experiment(
        models[0],
        queries,
        size=size,
        n_queries=robust.corrupted_queries,
        n_resamples=settings.n_resamples,
        seed=settings.seed,
    )
    _say_corrupted(corrupted, say)
    attacked = [
        evaluation
        for model in models
        for evaluation in attack_experiment(
            model,
            queries,
            size=size,
            settings=robust,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
        )
    ]
    _say_attacked(attacked, say)
    examples = _examples(recipe, queries, size, output)
    files = write_robust_report(
        output,
        recipe.dataset if recipe.part == "standard" else f"{recipe.dataset}, {recipe.part}",
        recipe.main,
        [*corrupted, *attacked],
        command=command,
        settings={
            "run": run.model_dump(mode="json", exclude={"dataset": {"root"}}),
            "robust": robust.model_dump(mode="json"),
            "made_with": {**clean_run.made_with, "opencv": cv2.__version__},
        },
        remarks=[
            *_remarks(robust, hardened.attacked_share),
            *(f"![One query]({path.name})" for path in examples),
        ],
    )
    return files + examples


def _remarks(robust: RobustSettings, attacked_share: float) -> list[str]:
    """How the damage was done."""
    training = robust.adversarial
    small = ", ".join(map(epsilon_text, robust.small_epsilons))
    corruptions = (
        "Corruptions: 15 kinds at 5 severities, of the square that the network sees, on the "
        "clean-trained model."
    )
    attacks = (
        "Attacks: white-box, L-infinity, on pixels in [0, 1]. FGSM takes one step of epsilon, BIM "
        "10 of 0.02, PGD 40 of 0.01 from a random start; at the small epsilons "
        f"({small}) PGD takes {robust.small_steps} of epsilon / 4. They raise the normalized "
        "softmax loss against the class means of the strict protocol's gallery. The attack on the "
        "confidence takes steps like those of the small PGD, and raises NED's log-odds of the most "
        "likely wrong class in that gallery, which it knows, as it knows T. Where a query is "
        "searched among all others, the gallery is twice as large, and attackers know half of it."
    )
    second = (
        f"Adversarially trained: {training.epochs:g} more epochs from the clean-trained model, "
        f"{100 * attacked_share:g}% of the images of every class under PGD "
        f"({training.n_steps} steps, epsilon {epsilon_text(training.epsilon)}, which rises from "
        f"0 in the first {100 * training.ramp:g}% of the steps)."
    )
    return [corruptions, attacks, second]


def _examples(recipe: Recipe, queries: LabelledImages, size: int, output: Path) -> list[Path]:
    """A glyph under all corruptions; the pictures of other data sets are not ours to copy."""
    if recipe.dataset != "glyphs":
        return []
    output.mkdir(parents=True, exist_ok=True)
    sheet = corruption_sheet(central_view(queries.read(0), size), seed=0)
    return [save_picture(sheet, output / "examples.png")]


def _say_corrupted(evaluations: Sequence[RobustEvaluation], say: Callable[[str], None]) -> None:
    for found in evaluations:
        clean, mean = found.clean.of(NED), found.mean
        if mean is not None:
            damaged = mean.of(NED)
            say(
                f"  {found.protocol}: NED clean {100 * clean.accuracy.estimate:.2f}% with ECE "
                f"{100 * clean.ece.estimate:.2f}%, mean of {mean.n_variants} corruptions "
                f"{100 * damaged.accuracy.estimate:.2f}% with ECE "
                f"{100 * damaged.ece.estimate:.2f}%"
            )


def _say_attacked(evaluations: Sequence[RobustEvaluation], say: Callable[[str], None]) -> None:
    for found in evaluations:
        for attacked in found.attacks:
            ned = attacked.outcome.of(NED)
            say(
                f"  {found.model}, {found.protocol}, {attacked.variant}: NED "
                f"{100 * ned.accuracy.estimate:.2f}% with ECE {100 * ned.ece.estimate:.2f}%"
            )
