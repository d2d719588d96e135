"""What `nearsure reproduce` runs for each data set, and how each schedule was found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from nearsure.errors import ConfigError
from nearsure.lab.config import (
    LOSSES,
    DatasetName,
    DatasetSettings,
    LossName,
    ModelSettings,
    RunSettings,
    TrainingSettings,
    apply_changes,
)

BEFORE = "before training"
# What a configuration may not change, and why.
FIXED = {
    "training.loss": ", as each run of a recipe has its own: choose with --loss",
    "dataset.root": ": choose with --root",
    "seed": ", as evaluation has it, too: choose with --seed",
}


@dataclass(frozen=True)
class Recipe:
    """The runs of a data set.

    Parameters
    ----------
    dataset : str
        Which.
    runs : dict of RunSettings
        By the name of the loss; `BEFORE` is the backbone as it comes. All on the same images.
    """

    dataset: str
    runs: dict[str, RunSettings]

    @property
    def main(self) -> str:
        """The run of Table 1 and of the figures: the first that was trained."""
        return next((name for name in self.runs if name != BEFORE), BEFORE)

    @property
    def part(self) -> str:
        """Which images: "standard" or "tuning"."""
        return next(iter(self.runs.values())).dataset.part

    @property
    def title(self) -> str:
        """For reports: part of the seen classes is another task than the paper's."""
        return self.dataset if self.part == "standard" else f"{self.dataset}, {self.part}"

    def only(self, losses: list[LossName]) -> "Recipe":
        """The same recipe with some of the losses; what comes before training stays."""
        kept = {name: run for name, run in self.runs.items() if name in losses or name == BEFORE}
        return Recipe(self.dataset, kept)


def check_losses(names: list[str]) -> list[LossName]:
    """Names of losses that exist."""
    unknown = [name for name in names if name not in LOSSES]
    if unknown:
        raise ConfigError(f"A loss is one of {', '.join(LOSSES)}. Got {', '.join(unknown)}.")
    return [loss for loss in LOSSES if loss in names]


def recipe(
    dataset: str,
    *,
    root: Path | None = None,
    seed: int = 0,
    changes: dict[str, Any] | None = None,
    source: str = "settings",
) -> Recipe:
    """The recipe of a data set.

    Parameters
    ----------
    dataset : str
        Which.
    root : Path, optional
        Folder that holds it.
    seed : int
        Of every run.
    changes : dict, optional
        Nested settings that replace the recipe's in every run. N-pairs makes pairs of what is
        left, and what comes before training keeps its model.
    source : str
        What the changes are called in messages.

    Raises
    ------
    ConfigError
        If the data set does not exist or lacks its folder, or if the changes are not allowed: those
        of loss, data set or seed would give runs that are not what they are called.
    """
    if dataset not in get_args(DatasetName):
        raise ConfigError(
            f"A data set is one of {', '.join(get_args(DatasetName))}. Got {dataset!r} instead."
        )
    changes = changes or {}
    _refuse_other_names(changes, dataset, source)

    def settled(run: RunSettings) -> RunSettings:
        given = {"dataset": {"name": dataset, "root": root}, "seed": seed}
        return apply_changes(apply_changes(run, given, source="settings"), changes, source=source)

    if dataset == "glyphs":
        if root is not None:
            raise ConfigError("Glyphs are drawn, not read: root must not be given.")
    elif root is None:
        raise ConfigError(f"{dataset} needs its folder: --root FOLDER.")
    preset, rates = PRESETS.get(dataset, ANY), RATES.get(dataset, {})
    trained: dict[str, RunSettings] = {
        loss: settled(
            apply_changes(preset, {"training": rates.get(loss, {})}, source="settings")
        ).with_loss(loss)
        for loss in LOSSES
    }
    # A network that starts from nothing has nothing to show before training.
    first = trained[LOSSES[0]]
    before = {} if first.model.backbone == "small-cnn" else {BEFORE: _untrained(first)}
    return Recipe(dataset, before | trained)


def _refuse_other_names(changes: dict[str, Any], dataset: str, source: str) -> None:
    """Keep runs what they are called; parts that are no tables are left to `changed`."""
    flat = changes | {
        f"{part}.{key}": value
        for part, settings in changes.items()
        if isinstance(settings, dict)
        for key, value in settings.items()
    }
    for name, why in FIXED.items():
        if name in flat:
            raise ConfigError(f"{source}: {name} must not be given{why}.")
    if flat.get("model.trained") == "nothing":
        raise ConfigError(
            f"{source}: model.trained must be 'head' or 'all' for the runs of a loss; every recipe "
            "that starts from trained weights shows them untrained, too."
        )
    if flat.get("dataset.name", dataset) != dataset:
        raise ConfigError(
            f"{source}: dataset.name must be {dataset!r}, the data set of the command, or be left "
            f"out. Got {flat['dataset.name']!r} instead."
        )


def _untrained(run: RunSettings) -> RunSettings:
    model = ModelSettings(backbone=run.model.backbone, trained="nothing")
    return run.model_copy(update={"model": model})


# What was compared to choose the rates, and what was not: docs/adr/0009.
GLYPHS = RunSettings(
    dataset=DatasetSettings(name="glyphs", image_size=32),
    model=ModelSettings(backbone="small-cnn", embedding_size=128),
    training=TrainingSettings(
        epochs=6,
        classes_per_batch=32,
        images_per_class=4,
        learning_rate=2e-3,
        proxy_learning_rate=2e-2,
        smallest_crop=0.7,
        flip=False,
        proxies_from_class_means=False,
    ),
)
# The first blocks cost more than half of a step, and views of 160 pixels half of one of 224.
FINE_TUNED = ModelSettings(frozen_blocks=3)
CUB200 = RunSettings(
    dataset=DatasetSettings(name="cub200", image_size=224),
    model=FINE_TUNED,
    training=TrainingSettings(
        epochs=6, crop_size=160, learning_rate=1e-4, proxy_learning_rate=1e-3
    ),
)
CARS196 = RunSettings(
    dataset=DatasetSettings(name="cars196", image_size=224),
    model=FINE_TUNED,
    training=TrainingSettings(
        epochs=6, crop_size=160, learning_rate=3e-4, proxy_learning_rate=5e-3
    ),
)
ANY = RunSettings(
    dataset=DatasetSettings(name="class-folders", image_size=224),
    model=FINE_TUNED,
    # Few classes a batch, as there may be few; N-pairs needs twice as many.
    training=TrainingSettings(epochs=10, classes_per_batch=8, crop_size=160),
)
PRESETS = {"glyphs": GLYPHS, "cub200": CUB200, "cars196": CARS196}
# Where a loss has a schedule of its own.
RATES: dict[str, dict[LossName, dict[str, float]]] = {
    "cub200": {
        "triplet": {"epochs": 3, "learning_rate": 5e-5},
        "n-pairs": {"epochs": 3},
        "proxy-nca": {"epochs": 3, "proxy_learning_rate": 1e-2},
    },
    "cars196": {
        "triplet": {
            "epochs": 3,
            "learning_rate": 1e-4,
            "classes_per_batch": 8,
            "images_per_class": 8,
            "easy_positives": True,
        },
        "n-pairs": {"epochs": 3, "n_pairs_temperature": 0.1},
        "proxy-nca": {"epochs": 3, "proxy_learning_rate": 1e-2},
    },
}
