"""One typed configuration a run: what is trained, on what, how. Saved beside its results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nearsure.errors import ConfigError
from nearsure.extras import read_toml

if TYPE_CHECKING:
    from typing import Self

DatasetName = Literal["glyphs", "cub200", "cars196", "sop", "inshop", "class-folders"]
LossName = Literal["normalized-softmax", "triplet", "n-pairs", "proxy-nca"]
BackboneName = Literal["small-cnn", "efficientnet-lite0"]
Trained = Literal["nothing", "head", "all"]
Share = Annotated[float, Field(gt=0, le=1)]

LOSSES: tuple[LossName, ...] = ("normalized-softmax", "triplet", "n-pairs", "proxy-nca")


class Settings(BaseModel):
    """Base of the parts: frozen, a key that does not exist is an error, and so is infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


AnySettings = TypeVar("AnySettings", bound=Settings)


class DatasetSettings(Settings):
    """Which images.

    Parameters
    ----------
    name : str
        Data set.
    root : Path, optional
        Folder that holds it; glyphs need none.
    image_size : int
        Side of the central square that is embedded, and, without a `crop_size`, of the views that
        are learned from.
    images_per_class : int
        Of glyphs.
    part : {"standard", "tuning"}
        "tuning" never opens the unseen classes: the first three quarters of the seen ones are
        trained on and the others tested. Schedules are chosen with it.
    skip_broken_images, drop_single_images : bool
        Go on without images that cannot be decoded, and without classes of one image.
    """

    name: DatasetName
    root: Path | None = None
    image_size: int = Field(default=160, ge=16, le=1024)
    images_per_class: int = Field(default=20, ge=2)
    part: Literal["standard", "tuning"] = "standard"
    skip_broken_images: bool = False
    drop_single_images: bool = False


class ModelSettings(Settings):
    """Which embedding.

    Parameters
    ----------
    backbone : {"small-cnn", "efficientnet-lite0"}
        Convolutional network; the second comes with ImageNet weights.
    trained : {"nothing", "head", "all"}
        What learns: nothing (the features as they come), a linear head on cached features, or
        the whole network.
    embedding_size : int, optional
        Outputs of the linear layer (without bias). None: the pooled features are the embedding.
    frozen_blocks : int
        Of EfficientNet-Lite0: the stem and so many of its 16 blocks stay as ImageNet left them. The
        first three cost more than half of a step, as their maps are the largest.
    """

    backbone: BackboneName = "efficientnet-lite0"
    trained: Trained = "all"
    embedding_size: int | None = Field(default=None, ge=2)
    frozen_blocks: int = Field(default=0, ge=0, le=16)

    @model_validator(mode="after")
    def _consistent(self) -> "Self":
        if self.trained == "head" and self.embedding_size is None:
            raise ValueError("a head needs an embedding_size")
        if self.backbone == "small-cnn" and self.trained != "all":
            raise ValueError("small-cnn has no trained weights: trained must be 'all'")
        return self


class TrainingSettings(Settings):
    """How it learns.

    Parameters
    ----------
    loss : {"normalized-softmax", "triplet", "n-pairs", "proxy-nca"}
        Metric-learning loss.
    epochs : float
        Passes over as many images as the train part has.
    classes_per_batch, images_per_class : int
        Every batch holds so many images of so many classes.
    learning_rate, proxy_learning_rate, weight_decay : float
        Of AdamW: for the network, for the proxies of the loss, and for the network.
    warmup : float
        Share of the steps in which the rate rises; after them it falls as a half cosine to zero.
    crop_size : int, optional
        Side of the views that are learned from; None is the `image_size` of the data set. Random
        crops show things larger than the whole image does, so that smaller views have them at the
        size at which they are embedded later (Touvron et al. 2019), and cost less.
    smallest_crop : float
        Random crops cover this share of the image or more, of an elongated image the largest
        square; 1 shows the whole of a square image.
    flip : bool
        Mirror half of the images.
    proxies_from_class_means : bool
        Start the proxies at the class means of the embedding as it comes, so that the first steps
        do not tear a trained network down for the sake of random proxies.
    easy_positives : bool
        Of triplets: only one an image, with its nearest positive and the nearest negative beyond
        that (Xuan et al. 2020), instead of all that are semi-hard. Where images of a class look
        unlike each other, as cars from all sides do, others cannot be had without harm.
    n_pairs_temperature : float
        Of N-pairs: cosines are divided by it. Where it is so low that untrained features do worse
        than chance, the fastest way down is to draw all embeddings together.
    """

    loss: LossName = "normalized-softmax"
    epochs: float = Field(default=10.0, gt=0)
    classes_per_batch: int = Field(default=16, ge=2)
    images_per_class: int = Field(default=4, ge=2)
    learning_rate: float = Field(default=1e-4, gt=0)
    proxy_learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    crop_size: int | None = Field(default=None, ge=16, le=1024)
    smallest_crop: Share = 0.4
    flip: bool = True
    proxies_from_class_means: bool = True
    easy_positives: bool = False
    n_pairs_temperature: float = Field(default=0.05, gt=0)


class RunSettings(Settings):
    """A whole run; the same settings give the same numbers on the same versions and machine."""

    dataset: DatasetSettings
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    seed: int = Field(default=0, ge=0)

    def with_loss(self, loss: LossName) -> "Self":
        """The same run with another loss; N-pairs takes pairs, as its name says."""
        training = self.training.model_copy(update={"loss": loss})
        if loss == "n-pairs":
            images = training.classes_per_batch * training.images_per_class
            training = training.model_copy(
                update={"classes_per_batch": images // 2, "images_per_class": 2}
            )
        return self.model_copy(update={"training": training})


def read_changes(path: Path) -> dict[str, Any]:
    """Settings from a TOML or JSON file, not yet checked.

    Raises
    ------
    ConfigError
        If the file cannot be read or holds no table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        changes = json.loads(text) if path.suffix.lower() == ".json" else read_toml(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as TOML or JSON: {error}") from error
    if not isinstance(changes, dict):
        raise ConfigError(f"{path} must hold a table of settings. Got {type(changes).__name__}.")
    return changes


def apply_changes(preset: AnySettings, changes: dict[str, Any], *, source: str) -> AnySettings:
    """A preset with nested changes, checked as a whole.

    Parameters
    ----------
    preset : Settings
        What to start from, such as a whole run.
    changes : dict
        Settings that replace it, in the same nesting.
    source : str
        What the changes are called in messages.

    Raises
    ------
    ConfigError
        If there is a key that no settings have, or a value that is not allowed; the message names
        the key.
    """
    merged = preset.model_dump()
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merged[key] | value
        else:
            merged[key] = value
    try:
        return type(preset).model_validate(merged)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error, type(preset))}") from error


def _sentence(error: ValidationError, settings: type[BaseModel]) -> str:
    """What pydantic found, one clause a key."""
    clauses = []
    for problem in error.errors():
        key = ".".join(map(str, problem["loc"])) or "settings"
        if problem["type"] == "extra_forbidden":
            clauses.append(f"there is no setting {key!r}; {_siblings(problem['loc'], settings)}")
        else:
            clauses.append(f"{key}: {problem['msg']} (got {problem['input']!r})")
    return "; ".join(clauses)


def _siblings(location: tuple[int | str, ...], settings: type[BaseModel]) -> str:
    """Which keys do exist where an unknown one was given."""
    for key in location[:-1]:
        part = settings.model_fields[str(key)].annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            settings = part
    return f"allowed are {', '.join(settings.model_fields)}"
