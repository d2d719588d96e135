"""`nearsure reproduce --robust`: train, damage the queries, search, score, report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2

from nearsure.errors import ConfigError
from nearsure.lab.cache import to_plain
from nearsure.lab.datasets.images import LabelledImages
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.experiment import EvaluationSettings
from nearsure.lab.figures import save_picture
from nearsure.lab.images import central_view
from nearsure.lab.protocols import PROTOCOL_NAMES
from nearsure.lab.recipes import Recipe
from nearsure.lab.report import PROTOCOL_TITLES, Page, versions
from nearsure.lab.reproduce import prepare_splits
from nearsure.lab.robust import tables
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.evaluation import Outcome, RobustEvaluation
from nearsure.lab.robust.experiments import attack_experiment, corruption_experiment
from nearsure.lab.robust.figures import (
    draw_attack_curves,
    draw_corruption_map,
    draw_severity_curves,
)
from nearsure.lab.robust.methods import NED
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.settings import (
    ADVERSARIALLY_TRAINED,
    CLEAN_TRAINED,
    RobustSettings,
    epsilon_text,
)
from nearsure.lab.training import tune_malloc
from nearsure.robustness import corruption_sheet

QUESTION = (
    "Does the confidence stay true when queries are damaged or attacked, and gallery and T are "
    "left as they were? All intervals are over queries, not over trainings."
)
ATTACK_LEGEND = (
    "In percent, with 95% bootstrap intervals over the queries; the best of each attack bold, but "
    "none in the last table. Chance raises an ECE, and its interval takes that off; where it then "
    "lies below the ECE, it is left out. Distance used: the largest change of a pixel (of 0 to 1) "
    "that the attack made in an image, in the mean over images and at most. The calibrated "
    "baseline is the one of kNN, Dudani and Gou with the lowest mean ECE over the table's attacks."
)
BASELINE = (
    "The calibrated baseline is the one of kNN, Dudani and Gou with the lowest mean ECE over all "
    "variants, chosen on these very queries; the better of the two bold."
)


def write_robust_report(
    folder: Path,
    dataset: str,
    loss: str,
    evaluations: Sequence[RobustEvaluation],
    *,
    command: str,
    settings: Mapping[str, Any],
    remarks: Sequence[str] = (),
) -> list[Path]:
    """Write tables, figures, sentences and numbers.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    dataset, loss : str
        What was evaluated.
    evaluations : sequence of RobustEvaluation
        Of any models and protocols, with corruptions, attacks or both; models in their order.
    command : str
        What a reader types to get the same.
    settings : mapping
        Of the run, for the JSON.
    remarks : sequence of str
        Paragraphs for the top of the page, such as how the attacks were made.

    Returns
    -------
    list of Path
        The files.
    """
    page = Page(folder)
    page.add(f"# {dataset}, {loss}: damaged and attacked queries", f"Made by `{command}`.")
    page.add(QUESTION, *remarks)
    for protocol in PROTOCOL_NAMES:
        asked = [evaluation for evaluation in evaluations if evaluation.protocol == protocol]
        attacked = {evaluation.model: evaluation for evaluation in asked if evaluation.attacks}
        if asked:
            page.add(f"## {PROTOCOL_TITLES[protocol]}")
        for evaluation in asked:
            if evaluation.corruptions:
                _add_corruptions(page, dataset, loss, evaluation)
        if attacked:
            _add_attacks(page, dataset, loss, attacked)
    document = {
        "dataset": dataset,
        "loss": loss,
        "command": command,
        "versions": versions(),
        "settings": dict(settings),
        "evaluations": to_plain(evaluations),
    }
    return page.write("robustness.json", document, compact=True)


def _add_corruptions(page: Page, dataset: str, loss: str, evaluation: RobustEvaluation) -> None:
    short = f"{_dashed(evaluation.protocol)}-{_dashed(evaluation.model)}.png"
    title = f"{dataset}, {loss}"
    page.add(f"### Corrupted queries: {evaluation.model}", tables.circumstances(evaluation))
    page.add(_list(tables.corruption_findings(evaluation)), *_notes([evaluation]))
    page.add("#### Table 2: mean over all corruptions and severities")
    page.add(tables.table_2(dataset, loss, evaluation))
    curves = draw_severity_curves(evaluation, page.folder / f"severity-{short}", name=title)
    page.add_picture("Against the severity", curves)
    page.add("#### By severity", BASELINE, tables.severity_table(evaluation))
    cells = draw_corruption_map(evaluation, page.folder / f"corruptions-{short}", name=title)
    page.add_picture("Every variant", cells)
    page.add("#### By corruption", tables.corruption_table(evaluation))


def _add_attacks(
    page: Page, dataset: str, loss: str, evaluations: Mapping[str, RobustEvaluation]
) -> None:
    found = list(evaluations.values())
    page.add("### Attacked queries", *map(tables.circumstances, found))
    for evaluation in found:
        page.add(f"{evaluation.model}:", _list(tables.attack_findings(evaluation)))
    page.add(*_notes(found))
    for evaluation in found:
        page.add(*tables.gradient_notes(evaluation))
    page.add(ATTACK_LEGEND)
    for title, table in (
        ("Table 3: attacks of the paper's size", tables.table_3(dataset, loss, evaluations)),
        ("Small epsilons", tables.small_epsilon_table(evaluations)),
        ("The attack on the confidence", tables.confidence_attack_table(evaluations)),
    ):
        page.add(*((f"#### {title}", table) if table else ()))
    path = page.folder / f"attacks-{_dashed(found[0].protocol)}.png"
    curves = draw_attack_curves(evaluations, path, name=f"{dataset}, {loss}")
    page.add_picture("Against epsilon", curves)


def _notes(evaluations: Iterable[RobustEvaluation]) -> list[str]:
    notes = dict.fromkeys(note for evaluation in evaluations for note in evaluation.notes)
    return [f"Note: {note}" for note in notes]


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _dashed(name: str) -> str:
    """A name that a file may have."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


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
        Takes a line of progress.

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
    tune_malloc()
    chosen = Recipe(recipe.dataset, {recipe.main: run})
    split = prepare_splits(chosen, cache)[run.dataset, run.seed]
    queries = split.queries
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
        models[0], n_queries=robust.corrupted_queries, n_resamples=settings.n_resamples
    )
    for found in corrupted:
        mean = tables.mean_of_corruptions(found)
        say(
            f"  {found.protocol}: NED clean {_figures(found.clean)}, mean of {mean.n_variants} "
            f"corruptions {_figures(mean)}"
        )
    attacked = [
        evaluation
        for model in models
        for evaluation in attack_experiment(model, robust, n_resamples=settings.n_resamples)
    ]
    for found in attacked:
        for entry in found.attacks:
            where = f"{found.model}, {found.protocol}, {entry.variant}"
            say(f"  {where}: NED {_figures(entry.outcome)}")
    examples = _examples(recipe, queries, run.dataset.image_size, output)
    files = write_robust_report(
        output,
        recipe.title,
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


def _figures(outcome: Outcome) -> str:
    ned = outcome.of(NED)
    return f"{100 * ned.accuracy.estimate:.2f}% with ECE {100 * ned.ece.estimate:.2f}%"
