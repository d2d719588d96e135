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
    changed,
)

BEFORE = "before training"
HEAD_SIZE = 512


@dataclass(frozen=True)
class Recipe:
    """The runs of a data set.

    Parameters
    ----------
    dataset : str
        Which.
    runs : dict of RunSettings
        By the name of the loss; `BEFORE` is the backbone as it comes.
    """

    dataset: str
    runs: dict[str, RunSettings]

    def only(self, losses: list[LossName]) -> "Recipe":
        """The same recipe with some of the losses; what comes before training stays."""
        kept = {name: run for name, run in self.runs.items() if name in losses or name == BEFORE}
        return Recipe(self.dataset, kept)


def checked_losses(names: list[str]) -> list[LossName]:
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
        Nested settings that replace the recipe's in every run.
    source : str
        What the changes are called in messages.
    """
    if dataset not in get_args(DatasetName):
        raise ConfigError(
            f"A data set is one of {', '.join(get_args(DatasetName))}. Got {dataset!r} instead."
        )
    if dataset == "glyphs":
        if root is not None:
            raise ConfigError("Glyphs are drawn, not read: root must not be given.")
        first, others = GLYPHS, GLYPHS
        runs: dict[str, RunSettings] = {}
    else:
        if root is None:
            raise ConfigError(f"{dataset} needs its folder: --root FOLDER.")
        first = {"cub200": CUB200, "cars196": CARS196}.get(dataset, ANY)
        others = _head(first)
        runs = {BEFORE: _untrained(first)}
    runs |= {loss: (first if loss == LOSSES[0] else others).with_loss(loss) for loss in LOSSES}
    given = {"dataset": {"name": dataset, "root": root}, "seed": seed}
    return Recipe(
        dataset,
        {
            name: changed(changed(run, given, source="settings"), changes or {}, source=source)
            for name, run in runs.items()
        },
    )


def _untrained(run: RunSettings) -> RunSettings:
    return run.model_copy(update={"model": ModelSettings(trained="nothing")})


def _head(run: RunSettings) -> RunSettings:
    """A linear head on features that are computed once."""
    return run.model_copy(
        update={
            "model": ModelSettings(trained="head", embedding_size=HEAD_SIZE),
            "training": HEAD_TRAINING,
        }
    )


# The schedules were chosen on the seen classes alone (`--part tuning`).
HEAD_TRAINING = TrainingSettings(
    epochs=20, classes_per_batch=32, images_per_class=4, learning_rate=1e-3, weight_decay=1e-3
)
GLYPHS = RunSettings(
    dataset=DatasetSettings(name="glyphs", image_size=32),
    model=ModelSettings(backbone="small-cnn", embedding_size=128),
    training=TrainingSettings(
        epochs=8,
        classes_per_batch=32,
        images_per_class=4,
        learning_rate=2e-3,
        proxy_learning_rate=2e-2,
        smallest_crop=0.7,
        flip=False,
        proxies_from_class_means=False,
    ),
)
CUB200 = RunSettings(
    dataset=DatasetSettings(name="cub200", image_size=160),
    training=TrainingSettings(epochs=8, learning_rate=1e-4, proxy_learning_rate=1e-3),
)
CARS196 = RunSettings(
    dataset=DatasetSettings(name="cars196", image_size=112),
    training=TrainingSettings(epochs=12, learning_rate=5e-4, proxy_learning_rate=5e-3),
)
ANY = RunSettings(
    dataset=DatasetSettings(name="class-folders", image_size=160),
    training=TrainingSettings(epochs=10),
)
